//! What is around the paths: where messages that leave them go, and where all is counted.

use std::num::NonZeroU32;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ashway_abi::Count;
use ashway_demux::Replica;
use ashway_memory::clock::thread_ns;
use ashway_modules::Message;
use ashway_path::engine::{Engine, From, MAX_CROSSINGS, Output, Requeued, Shell};
use ashway_path::path::{Exit, Path, Trail};
use ashway_path::places::PathId;
use ashway_path::sched::Policy;
use ashway_path::sched::share::ShareAccount;
use ashway_path::stage::{Direction, Stage};
use ashway_path::time::Time;
use ashway_path::watch::Watch;
use ashway_wire::Headers;

use super::Seat;
use crate::clock::now;
use crate::counters::UserRows;
use crate::feeds::{Feeds, write_standing};
use crate::frame_port::FramePort;
use crate::iface_map::IfaceMap;
use crate::observe::trace;
use crate::port::{Gone, Port, give_to_host, unsent};
use crate::queue::Queue;
use crate::relay_shadow::{Recorded, Recorder};
use crate::relays::Relays;
use crate::rows::CounterRow;
use crate::target::Target;
use crate::ticket::Ticket;
use crate::xdp_port::XdpPort;

/// Messages that are kept for the next: as many as are taken of a ring at once, so that of its
/// spare blocks others are left.
const SPARE_MESSAGES: usize = 32;

/// What is around the paths.
pub(super) struct Around {
    /// By interface: everything that demux knows there. The node's thread has the
    /// tables themselves.
    pub(super) tables: IfaceMap<Replica<Target>>,
    /// The row of all paths of modules.
    pub(super) row: CounterRow,
    /// Those that the kernel tier can do; there once the node has made the first.
    pub(super) relays: Option<Relays>,
    /// Where their program reads how they stand with their shares.
    pub(super) frame_queue: Option<Arc<Queue>>,
    /// What feeds the paths of handlers.
    pub(super) feeds: Feeds,
    /// Messages in input queues of paths of modules that no program counts.
    held: Arc<AtomicU32>,
    outbox: Vec<Outgoing>,
    /// Keys of whole frames that have left the user tier, once the outbox is empty.
    pub(super) ended_frames: Vec<u32>,
    /// The same of handlers' messages: rows of their paths, and buckets of their flows.
    pub(super) ended_handlers: Vec<(CounterRow, u32)>,
    pub(super) spare: Vec<Message>,
    /// What becomes of a relay's messages before it is promoted.
    pub(super) recorder: Recorder,
}

/// A message that leaves at the end of a batch and waits in no output queue.
struct Outgoing {
    to: Destination,
    row: CounterRow,
    message: Message,
}

#[derive(Clone, Copy)]
enum Destination {
    /// Out of the interface that is written in the message.
    Send,
    /// A message that was received, back to the host's stack. This path, if there is one, has
    /// counted it as passed.
    Back(Option<PathId>),
    /// To the host's stack: a message that a path has originated.
    Host,
}

impl Around {
    pub(super) fn new(
        tables: IfaceMap<Replica<Target>>,
        row: CounterRow,
        held: Arc<AtomicU32>,
    ) -> Self {
        Self {
            tables,
            row,
            relays: None,
            frame_queue: None,
            feeds: Feeds::default(),
            held,
            outbox: Vec::new(),
            ended_frames: Vec::new(),
            ended_handlers: Vec::new(),
            spare: Vec::new(),
            recorder: Recorder::default(),
        }
    }

    /// Where demux leads a frame that came by this interface: nowhere if that has gone.
    pub(super) fn demux(&self, iface: usize, frame: &[u8]) -> Option<Target> {
        let table = self.tables.get(iface)?;
        table.find(&Headers::parse(frame), frame)
    }

    pub(super) fn keep(&mut self, message: Message) {
        if self.spare.len() < SPARE_MESSAGES && !message.buffer().is_of_closed() {
            self.spare.push(message);
        }
    }

    /// Counts a message that no program counts, for a path with this row.
    pub(super) fn count(&self, row: CounterRow) -> Ticket {
        if let Some(feed) = self.feeds.at(row) {
            feed.count();
            return Ticket::WorkerFor(row);
        }
        self.held.fetch_add(1, Ordering::AcqRel);
        Ticket::Worker
    }

    /// The message of this ticket has left the user tier, or does so at the next flush.
    pub(super) fn end(&mut self, ticket: NonZeroU32) {
        match Ticket::unpack(ticket) {
            Ticket::Worker => drop(self.held.fetch_sub(1, Ordering::AcqRel)),
            Ticket::WorkerFor(row) => {
                if let Some(feed) = self.feeds.at(row) {
                    feed.uncount();
                }
            }
            Ticket::Frame(key) => self.ended_frames.push(key),
            Ticket::Handler(row, flow) => self.ended_handlers.push((row, flow)),
        }
    }

    fn post(&mut self, to: Destination, row: CounterRow, message: Message) {
        self.outbox.push(Outgoing { to, row, message });
    }

    /// Transmits what waits in the output queues of the paths, each message by the interface
    /// that its link has written into it, and gives the host what is its own.
    pub(super) fn transmit<P: Policy>(
        &mut self,
        engine: &mut Engine<Message, Seat, P>,
        xdp: &mut IfaceMap<XdpPort>,
        frames: &mut [FramePort],
        rows: &UserRows,
    ) {
        let mut any = false;
        while let Some(Output { data, exit, .. }) = engine.take_output() {
            any = true;
            let (Exit::Left { message, .. } | Exit::Ended { message, .. }) = exit;
            rows.add(data.row, Count::OutOriginated);
            self.recorder.sent(&message);
            let (message, _) = Destination::Send.by(data.row, message, xdp, frames, rows);
            self.keep(message);
        }
        let mut outbox = std::mem::take(&mut self.outbox);
        for Outgoing { to, row, message } in outbox.drain(..) {
            any = true;
            let (message, fate) = to.by(row, message, xdp, frames, rows);
            if let Destination::Back(Some(path)) = to
                && fate != Count::Passed
                && let Some((path, _)) = engine.path_mut(path)
            {
                path.pass_failed(fate);
            }
            self.keep(message);
        }
        self.outbox = outbox;
        if any {
            for port in xdp.values_mut() {
                // A failed kick leaves the frames in the ring for the next one.
                let _ = port.tx.kick();
            }
        }
    }
}

impl Destination {
    /// Has a message leave for there by its interface. Gives the buffer back, and says how that
    /// is counted: in the ledger of what is sent, or of what was received if that is given back.
    fn by(
        self,
        row: CounterRow,
        message: Message,
        xdp: &mut IfaceMap<XdpPort>,
        frames: &mut [FramePort],
        rows: &UserRows,
    ) -> (Message, Count) {
        let iface = message.meta.iface as usize;
        if let Some(port) = xdp.get_mut(iface) {
            self.out(row, message, port, rows)
        } else if let Some(port) = frames.iter_mut().find(|port| port.iface == iface) {
            self.out(row, message, port, rows)
        } else {
            self.out(row, message, &mut Gone, rows)
        }
    }

    /// The same by this port.
    fn out(
        self,
        row: CounterRow,
        mut message: Message,
        port: &mut impl Port,
        rows: &UserRows,
    ) -> (Message, Count) {
        if let Self::Send = self {
            let sent = port.send(message.bytes());
            message.copied();
            trace::sent(&message, sent == Count::OutHandedOver);
            rows.add(row, sent);
            return (message, sent);
        }
        let fate = give_to_host(&mut message, port);
        if let Self::Back(_) = self {
            rows.add(row, fate);
            trace::fate(&message, fate);
            return (message, fate);
        }
        let sent = match fate {
            Count::Passed => Count::OutHandedOver,
            Count::DroppedNoHost => Count::OutDroppedNoRoute,
            _ => Count::OutDroppedTxFull,
        };
        rows.add(row, Count::OutOriginated);
        rows.add(row, sent);
        (message, sent)
    }
}

/// What is around the paths, and where they are counted: the shell of their engine.
pub(super) struct Counting<'a> {
    pub(super) around: &'a mut Around,
    pub(super) rows: &'a UserRows,
}

impl Deref for Counting<'_> {
    type Target = Around;

    fn deref(&self) -> &Around {
        self.around
    }
}

impl DerefMut for Counting<'_> {
    fn deref_mut(&mut self) -> &mut Around {
        self.around
    }
}

impl Counting<'_> {
    /// Posts a message to the host, unless that has a copy. `passed_by` is the path that has
    /// counted it as passed, if one has.
    pub(super) fn give_back(
        &mut self,
        row: CounterRow,
        passed_by: Option<PathId>,
        trail: Trail,
        message: Message,
    ) {
        if trail.host_copy {
            self.rows.add(row, Count::Passed);
            trace::fate(&message, Count::Passed);
            self.keep(message);
        } else {
            self.post(Destination::Back(passed_by), row, message);
        }
    }
}

impl<'a> Shell<Message, Seat> for Counting<'a> {
    type Watch = Watcher<'a>;

    fn now(&mut self) -> Time {
        now()
    }

    fn cpu_time(&mut self) -> Duration {
        Duration::from_nanos(thread_ns())
    }

    fn may_run(&mut self, _: PathId, seat: &mut Seat) -> bool {
        !seat.awaits_next_mac && seat.after.as_mut().is_none_or(|after| after.are_over())
    }

    fn watch(
        &mut self,
        path: &Path<Message>,
        seat: &Seat,
        message: Option<&Message>,
    ) -> Watcher<'a> {
        let on = trace::on();
        if on && let Some(message) = message {
            trace::path(message, path.name());
        }
        let recorded = self.recorder.recorded(message);
        Watcher {
            recorded,
            rows: self.rows,
            row: seat.row,
            trace: on.then(trace::Watcher::default),
        }
    }

    fn exit(&mut self, from: From<'_, Seat>, exit: Exit<Message>) -> Option<Requeued<Message>> {
        let row = from.data.row;
        let (mut message, turned) = match exit {
            // From the output queue of a path that is taken away: it is transmitted all the
            // same.
            Exit::Left {
                direction, message, ..
            } if from.data.links[direction as usize] => {
                self.rows.add(row, Count::OutOriginated);
                self.post(Destination::Send, row, message);
                return None;
            }
            Exit::Left {
                message, turned, ..
            } => (message, turned),
            Exit::Ended {
                message,
                fate,
                turned,
            } => {
                if turned && let Some(unsent) = unsent(fate) {
                    self.rows.add(row, Count::OutOriginated);
                    self.rows.add(row, unsent);
                }
                if fate == Count::Passed && turned {
                    self.post(Destination::Host, row, message);
                } else if fate == Count::Passed {
                    self.give_back(row, Some(from.path), from.trail, message);
                } else {
                    self.keep(message);
                }
                return None;
            }
        };
        if turned {
            self.rows.add(row, Count::OutOriginated);
            self.rows.add(row, Count::OutHandedOver);
        }
        // It is a frame again.
        message.rewind();
        let found = self
            .around
            .demux(message.meta.iface as usize, message.bytes());
        let onward =
            found.filter(|target| target.path != from.path && from.trail.paths < MAX_CROSSINGS);
        self.rows
            .add(onward.map_or(row, |target| target.row), Count::Received);
        let Some(target) = onward else {
            self.give_back(row, None, from.trail, message);
            return None;
        };
        Some(Requeued {
            path: target.path,
            direction: target.direction,
            message,
            ticket: Some(self.count(target.row).pack()),
        })
    }

    fn done(&mut self, ticket: NonZeroU32) {
        self.end(ticket);
    }

    fn ran(&mut self, id: PathId, path: &mut Path<Message>, _: &mut Seat) {
        if let Some(relays) = &mut self.around.relays {
            relays.follow(id, path);
            self.around.recorder.ran(id, || relays.hops_of(path));
        }
    }

    fn charged(&mut self, id: PathId, seat: &Seat, share: &ShareAccount) {
        if let Some(feed) = self.feeds.at(seat.row) {
            feed.tell(share);
        } else if let (Some(relays), Some(queue)) = (&self.relays, &self.frame_queue)
            && let Some(key) = relays.account_of(id)
            && !share.is_open()
        {
            write_standing(queue.words(), queue.path_word(key), &share.stands());
        }
    }

    fn stray(&mut self, message: Message, trail: Trail) {
        let row = self.around.row;
        self.give_back(row, None, trail, message);
    }

    fn failed(&mut self, _: PathId, path: &Path<Message>) {
        if let Some(fault) = &path.account().fault {
            let name = path.name();
            crate::say::say(&format!("path `{name}` runs no more: {fault}"));
            crate::say::say("  hint: this is a bug of the stage's module; please report it");
        }
    }
}

/// Counts how received messages end, and tells whoever observes.
pub(super) struct Watcher<'a> {
    rows: &'a UserRows,
    row: CounterRow,
    trace: Option<trace::Watcher>,
    recorded: Option<Recorded>,
}

impl Watch<Message> for Watcher<'_> {
    fn stage(&mut self, stage: &dyn Stage<Message>, direction: Direction, message: &Message) {
        if let Some(trace) = &mut self.trace {
            trace.stage(stage, direction, message);
        }
    }

    fn answered(&mut self, message: Option<&Message>) {
        if let Some(trace) = &mut self.trace {
            trace.answered(message);
        }
    }

    fn end(&mut self, fate: Count) {
        // What is given to the host is counted when that has worked or not.
        if fate != Count::Passed {
            self.rows.add(self.row, fate);
        }
        if let Some(recorded) = &self.recorded {
            recorded.end(fate);
        }
        if let Some(trace) = &mut self.trace {
            trace.end(fate);
        }
    }
}
