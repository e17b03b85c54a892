//! Paths as the worker has them: those of modules, and those that end in a handler.
//!
//! Messages come from the rings of handlers' instances ([`crate::run_instance`]), from those of
//! whole frames ([frame queue](crate::queue)), and from interfaces without a kernel tier.
//! Each waits in its path's own input queue until the [engine](ashway_path::engine) picks
//! the path. What comes as a whole frame is looked up here if its path has gone meanwhile,
//! so it is right even if paths came and went while it waited.
//! What leaves a path at a link's end goes out by the interface its link wrote
//! into it, whichever it came by; what leaves at any other end is a frame again,
//! and is looked up once more (Scout §3.4: "execute a path, enter a router, and
//! then continue execution in another path").

mod receive;
mod shell;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::AtomicU32;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};

use ashway_abi::Count;
use ashway_demux::Replica;
use ashway_memory::clock::monotonic_ns;
use ashway_modules::rules::INJECT_BACKWARD;
use ashway_modules::{Message, datagram, eth};
use ashway_path::engine::Engine;
use ashway_path::places::PathId;
use ashway_path::sched::drr::Drr;
use ashway_path::sched::share::ShareAccount;
use ashway_path::time::Time;

use crate::counters::UserRows;
use crate::frame_port::FramePort;
use crate::iface_map::IfaceMap;
use crate::instance::Instance;
use crate::order::{ModulePath, Order};
use crate::queue::Queue;
use crate::relay_shadow::Recording;
use crate::relays::Relays;
use crate::ring_marks::RingMarks;
use crate::rows::CounterRow;
use crate::run_instance::HandlerPath;
use crate::snapshot::PathSnapshot;
use crate::target::{DemuxChange, Target};
use crate::witness::{Sights, Witnesses};
use crate::xdp_port::XdpPort;
use shell::{Around, Counting};

/// The paths, and what is around them.
pub struct Paths {
    pub(crate) engine: Engine<Message, Seat, Drr>,
    /// Paths of modules by their numbers.
    routes: Vec<Option<PathId>>,
    /// Paths of handlers that are gone for the node, and what has come to them is not done.
    closing: Vec<Closing>,
    around: Around,
    /// Who says that what the kernel tier sent has left; there if there can be any.
    witnesses: Option<Witnesses>,
    /// For what a frame waits for, until its path is known.
    pub(crate) after: Sights,
    /// What is to be done first.
    orders: Receiver<Order>,
}

/// A path of a handler that is gone for the node.
#[derive(Debug)]
struct Closing {
    id: PathId,
    /// What the handler's rings held when nothing led to the path any more.
    rings: Option<RingMarks>,
}

/// What the worker keeps of a path.
#[derive(Debug)]
pub(crate) struct Seat {
    /// Its number among the paths of modules.
    number: Option<u32>,
    /// Where its messages are counted.
    row: CounterRow,
    /// The stage at which messages enter that the entry program has validated.
    inner: Option<u8>,
    /// Whether messages that leave it forward, and backward, leave it by a link.
    links: [bool; 2],
    /// What has to have left before it runs.
    after: Option<Box<Sights>>,
    /// Whether its next hop is being looked up, until when it does not run either.
    awaits_next_mac: bool,
}

impl fmt::Debug for Paths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Paths")
            .field("paths", &self.engine.len())
            .finish_non_exhaustive()
    }
}

impl Paths {
    /// No paths, on interfaces with these tables; does what comes by `orders`. `row` is that
    /// of all paths of modules. Their messages that wait and that no program counts are
    /// counted in `held`.
    pub fn new(
        tables: IfaceMap<Replica<Target>>,
        row: CounterRow,
        orders: Receiver<Order>,
        held: Arc<AtomicU32>,
    ) -> Self {
        Self {
            engine: Engine::default(),
            routes: Vec::new(),
            closing: Vec::new(),
            around: Around::new(tables, row, held),
            witnesses: None,
            after: Sights::default(),
            orders,
        }
    }

    /// Who is asked whether what the kernel tier sent has left.
    pub fn set_witnesses(&mut self, witnesses: Witnesses) {
        self.witnesses = Some(witnesses);
    }

    /// Asks whether what the kernel tier sent on a CPU has left.
    pub(crate) fn ask_witness(&self, cpu: usize, sights: &mut Sights) {
        let sight = self.witnesses.as_ref().and_then(|all| all.ask(cpu));
        if let Some(sight) = sight {
            sights.add(&sight);
        }
    }

    /// Has a path wait for these.
    pub(crate) fn wait_for(&mut self, path: PathId, sights: &mut Sights) {
        if !sights.are_over()
            && let Some((_, seat)) = self.engine.path_mut(path)
        {
            seat.after.get_or_insert_default().add_all(sights);
        }
    }

    /// Does what was ordered. So whoever was answered that a path is there, or is
    /// gone, and then sends a message, finds it so.
    pub(crate) fn apply_pending(&mut self, rows: &UserRows) {
        while let Ok(Order {
            insert,
            demux_changes,
            remove,
            next_macs,
        }) = self.orders.try_recv()
        {
            for new in insert {
                self.insert(new);
            }
            for (iface, turn) in demux_changes {
                self.turn(iface, turn);
            }
            for id in remove {
                self.remove(id, rows);
            }
            for (id, mac) in next_macs {
                self.set_next_mac(id, mac);
            }
        }
    }

    /// Takes a path of modules in.
    pub(crate) fn insert(&mut self, new: ModulePath) {
        let ModulePath {
            id,
            number,
            path,
            awaits_next_mac,
        } = new;
        let share = ashway_config::share(path.attrs());
        let share = share.map(|share| Arc::new(ShareAccount::of_modules(share.terms())));
        let row = self.around.row;
        if let Some(number) = number {
            let at = number as usize;
            if at >= self.routes.len() {
                self.routes.resize(at + 1, None);
            }
            self.routes[at] = Some(id);
        }
        let links = eth::links(&path);
        let seat = Seat {
            number,
            row,
            inner: None,
            links,
            after: None,
            awaits_next_mac,
        };
        self.engine.insert(id, *path, seat, share);
    }

    /// Takes a path in that the rings of this instance feed.
    pub(crate) fn insert_fed(&mut self, instance: &Arc<Instance>, path: HandlerPath) {
        let HandlerPath {
            id,
            local,
            row,
            path,
            share,
            ..
        } = path;
        let inner = path.attrs().number(INJECT_BACKWARD);
        let seat = Seat {
            number: None,
            row,
            inner: inner.and_then(|stage| u8::try_from(stage).ok()),
            links: eth::links(&path),
            after: None,
            awaits_next_mac: false,
        };
        self.around.feeds.insert(row, instance, local);
        self.engine.insert(id, *path, seat, share);
    }

    /// Leads messages as an interface's table now does.
    fn turn(&mut self, iface: usize, turn: DemuxChange) {
        let tables = &mut self.around.tables;
        match turn {
            DemuxChange::Update(update) => tables[iface].follow(&update),
            DemuxChange::Anew(table) => drop(tables.insert(iface, table)),
        }
    }

    /// Takes a path away, to which nothing leads any more; what waits in it is
    /// dropped.
    fn remove(&mut self, id: PathId, rows: &UserRows) {
        if let Some(relays) = &mut self.around.relays {
            relays.remove(id);
        }
        let (engine, mut around) = self.split(rows);
        let removed = engine.remove(id, Count::DroppedNoEndpoint, &mut around);
        if let Some(number) = removed.and_then(|(_, seat)| seat.number) {
            self.routes[number as usize] = None;
        }
    }

    /// Takes paths of a handler away, to which nothing leads any more, as soon as what has
    /// come to them is done. Nothing of it waits for a share any more.
    pub(crate) fn close(&mut self, paths: &[PathId], now: Time) {
        self.look_at_shares(paths, now);
        for &id in paths {
            let feed = self
                .engine
                .data(id)
                .and_then(|seat| self.around.feeds.at(seat.row));
            let queue = feed.and_then(|feed| feed.instance().queue.as_ref());
            self.closing.push(Closing {
                id,
                rings: queue.map(RingMarks::of),
            });
        }
    }

    /// The node has no interface of this number any more, and never will have.
    pub(crate) fn forget_iface(&mut self, iface: usize) {
        self.around.tables.remove(iface);
        if let Some(relays) = &mut self.around.relays {
            relays.forget_way_out(iface);
        }
    }

    /// Lets those of them go that are done; says which.
    pub(crate) fn closed(&mut self, rows: &UserRows) -> Vec<PathId> {
        let (engine, feeds) = (&self.engine, &self.around.feeds);
        let row = |closing: &Closing| Some(engine.data(closing.id)?.row);
        let closing: Vec<CounterRow> = self.closing.iter().filter_map(row).collect();
        let is_done = |gone: &mut Closing| {
            let id = gone.id;
            let own = engine.data(id).map(|seat| seat.row);
            let feed = own.and_then(|row| feeds.at(row));
            let idle = feed.is_none_or(|feed| {
                let shared = feed.instance();
                // It may be busy at other interfaces without end.
                let rings = gone.rings.as_ref().zip(shared.queue.as_ref());
                let goes_on = || {
                    let of_it = closing.iter().filter(|row| Some(**row) == own);
                    feed.ifaces() > of_it.count()
                };
                shared.in_user(feed.local()) == 0
                    || rings.is_some_and(|(marks, queue)| marks.are_passed(queue)) && goes_on()
            });
            idle && engine.path(id).is_none_or(|path| path.waiting() == 0)
        };
        let done = self.closing.extract_if(.., |closing| is_done(closing));
        let done: Vec<PathId> = done.map(|closing| closing.id).collect();
        for id in &done {
            let row = self.engine.data(*id).map(|seat| seat.row);
            self.remove(*id, rows);
            if let Some(row) = row {
                self.around.feeds.remove(row);
            }
        }
        done
    }

    /// Whether paths wait to be [closed](Self::closed).
    pub(crate) const fn is_closing(&self) -> bool {
        !self.closing.is_empty()
    }

    /// Says the hardware address of a path's next hop, in both tiers.
    pub(crate) fn set_next_mac(&mut self, id: PathId, mac: Option<[u8; 6]>) {
        let Some((path, seat)) = self.engine.path_mut(id) else {
            return;
        };
        seat.awaits_next_mac = false;
        datagram::set_next_mac(path, mac);
        if let Some(relays) = &mut self.around.relays {
            relays.refresh(id, path);
        }
    }

    /// Records what becomes of a relay's messages.
    pub(crate) fn record(&mut self, recording: &Arc<Mutex<Recording>>) {
        self.around.recorder.begin(recording);
    }

    /// The queue that whole frames come by, from now on.
    pub(crate) fn set_frame_queue(&mut self, frame_queue: &Arc<Queue>) {
        self.around.frame_queue = Some(Arc::clone(frame_queue));
    }

    /// The relays of the kernel tier, from now on.
    pub(crate) fn set_relays(&mut self, relays: Relays) {
        self.around.relays = Some(relays);
    }

    /// The relays of the kernel tier, if there can be any.
    pub(crate) fn relays(&mut self) -> Option<&mut Relays> {
        self.around.relays.as_mut()
    }

    /// Lets the kernel tier run a relay's messages, or no longer.
    pub(crate) fn promote(&mut self, id: PathId, promoted: bool, now: Time) {
        if let Some(relays) = &mut self.around.relays
            && let Some((path, _)) = self.engine.path_mut(id)
        {
            relays.promote(id, path, promoted);
            // There the program keeps the account.
            if let Some(share) = self.engine.share(id) {
                share.set_open(promoted);
            }
            self.engine.look_at_share(id, now);
        }
    }

    /// Writes all hops anew: an interface is another than it was.
    pub(crate) fn refresh_relays(&mut self) {
        if let Some(relays) = &mut self.around.relays {
            for id in relays.promoted() {
                if let Some((path, _)) = self.engine.path_mut(id) {
                    relays.promote(id, path, true);
                }
            }
        }
    }

    /// Says of which paths the host's stack has a copy of what comes to them.
    pub(crate) fn set_host_copies(&mut self, paths: &HashSet<PathId>) {
        let all: Vec<PathId> = self.engine.iter().map(|(id, _)| id).collect();
        for id in all {
            self.engine.set_host_copy(id, paths.contains(&id));
        }
    }

    /// Somebody has opened the shares of these paths: what waits for them may run.
    pub(crate) fn look_at_shares(&mut self, paths: &[PathId], now: Time) {
        for id in paths {
            self.engine.look_at_share(*id, now);
        }
    }

    /// For the next message: one that holds nothing that is still needed.
    pub(crate) fn message(&mut self) -> Message {
        self.around.spare.pop().unwrap_or_default()
    }

    /// Gives back the memory of messages that are kept for the next: it may be of an instance
    /// that has gone.
    pub(crate) fn forget_spares(&mut self) {
        self.around.spare.clear();
    }

    /// Gives each path that has messages its turn. Says whether there was one.
    pub(crate) fn run(&mut self, rows: &UserRows) -> bool {
        let (engine, mut around) = self.split(rows);
        engine.round(&mut around)
    }

    /// When [`wake`](Self::wake) or [`run`](Self::run) has something to do that no message
    /// brings about.
    pub(crate) fn due_at(&self) -> Option<Time> {
        self.engine.due_at()
    }

    /// Wakes paths whose time has come. Says whether there were any.
    pub(crate) fn wake(&mut self, rows: &UserRows) -> bool {
        self.apply_pending(rows);
        let (engine, mut around) = self.split(rows);
        engine.wake(&mut around)
    }

    /// Charges the paths with the CPU time that they had, before the thread sleeps or does what
    /// is no path's work.
    pub(crate) fn pause(&mut self, rows: &UserRows) {
        let (engine, mut around) = self.split(rows);
        engine.pause(&mut around);
    }

    /// A path as it is now, if it is there.
    pub(crate) fn snapshot(&self, id: PathId) -> Option<PathSnapshot> {
        let path = self.engine.path(id)?;
        let share = self.engine.share(id);
        Some(PathSnapshot::of(
            path,
            share.map(|share| share.mode(monotonic_ns())),
        ))
    }

    /// The paths, and what is around them.
    fn split<'a>(
        &'a mut self,
        rows: &'a UserRows,
    ) -> (&'a mut Engine<Message, Seat, Drr>, Counting<'a>) {
        let around = &mut self.around;
        (&mut self.engine, Counting { around, rows })
    }

    /// Transmits what waits in the paths' output queues, and gives the host what is its own.
    pub(crate) fn flush(
        &mut self,
        xdp: &mut IfaceMap<XdpPort>,
        frames: &mut [FramePort],
        frame_queue: Option<&Queue>,
        rows: &UserRows,
    ) {
        self.around.transmit(&mut self.engine, xdp, frames, rows);
        // Only now that the replies have left: the kernel tier must not overtake.
        self.around.feeds.leave(&self.around.ended_handlers);
        self.around.ended_handlers.clear();
        if let Some(frame_queue) = frame_queue {
            frame_queue.leave(self.around.ended_frames.drain(..));
        }
        let (engine, mut around) = self.split(rows);
        engine.settle(&mut around);
    }
}
