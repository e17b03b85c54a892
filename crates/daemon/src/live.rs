//! Paths that run in the user tier as a whole, as the worker has them.
//!
//! They take whole frames: from a packet socket, or from a ring of the node's own
//! [carrier](crate::instance::Instance::carrier). Which path a frame belongs to is
//! looked up here, so it is right even if paths came and went while it waited. Then it
//! waits in the path's own input queue until the [engine](ashway_path::engine) picks
//! the path.
//! What leaves a path at a link's end goes out by the interface its link wrote
//! into it, whichever it came by; what leaves at any other end is a frame again,
//! and is looked up once more (Scout §3.4: "execute a path, enter a router, and
//! then continue execution in another path").

use std::collections::HashSet;
use std::fmt;
use std::num::NonZeroU32;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use ashway_abi::Count;
use ashway_demux::{Replica, Update};
use ashway_memory::clock::{monotonic_ns, thread_ns};
use ashway_modules::{Message, datagram, eth};
use ashway_path::engine::{Engine, From, Full, MAX_CROSSINGS, Shell};
use ashway_path::path::{Exit, Path, Trail};
use ashway_path::places::PathId;
use ashway_path::sched::drr::Drr;
use ashway_path::sched::share::ShareAccount;
use ashway_path::stage::Direction;
use ashway_path::time::Time;
use ashway_path::watch::Watch;
use ashway_wire::Headers;

use crate::counters::UserRows;
use crate::instance::Instance;
use crate::observe::tap;
use crate::packets::PacketPort;
use crate::relays::{self, Relays};
use crate::rings::{self, XdpPort, spare_message};
use crate::runner::{self, Port, RunInstance, give_to_host};
use crate::snapshot::PathSnapshot;
use crate::worker;

/// Where demux leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Lead {
    /// To a path that ends in a handler.
    Bound {
        /// Its row, which no other path has at the time.
        row: u32,
        /// Its instance, by its id.
        instance: u32,
        /// Its number within the instance.
        local: u32,
    },
    /// To a path of the user tier, at the end where messages go in this
    /// direction.
    Live(PathId, Direction),
}

/// What the worker is to do with its live paths before it looks up another frame.
pub(crate) type Order = Box<dyn FnOnce(&mut Live, &UserRows) + Send>;

/// A change of an interface's demux.
#[derive(Clone, Debug)]
pub(crate) enum Turn {
    /// A filter came or went.
    Update(Update<Lead>),
    /// All of it is new.
    Anew(Replica<Lead>),
}

/// Most paths that have a number, and with it a part of each ring of whole frames. What
/// comes for a further one is looked up again by the worker, and may fill the ring.
pub(crate) const MOST: usize = 1 << 16;

/// Keys of those paths, behind those of relays.
pub(crate) const KEYS: usize = 2 * MOST;

/// The key of a path's messages in a direction, by the path's number: where programs count
/// how many of them are in the user tier.
pub(crate) const fn key(number: u32, direction: Direction) -> usize {
    relays::KEYS + 2 * number as usize + direction as usize
}

/// The number and the direction of a key; `None` if it is a relay's.
fn of_key(key: usize) -> Option<(usize, Direction)> {
    let key = key.checked_sub(relays::KEYS)?;
    let direction = match key % 2 {
        0 => Direction::Forward,
        _ => Direction::Backward,
    };
    Some((key / 2, direction))
}

/// Buffers that are kept for the next messages, and messages that wait to be sent before
/// no more paths run.
const KEPT: usize = 64;

/// The ticket of a message that no program counts: it came by a packet socket.
const UNCOUNTED: NonZeroU32 = NonZeroU32::MAX;

/// The paths, and what is around them.
pub(crate) struct Live {
    pub(crate) engine: Engine<Message, Seat, Drr>,
    /// Paths by their numbers.
    routes: Vec<Option<PathId>>,
    around: Around,
    /// What is to be done first.
    orders: Receiver<Order>,
}

/// What the worker keeps of a path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seat {
    number: Option<u32>,
    /// Whether messages that leave it forward, and backward, leave it by a link.
    links: [bool; 2],
}

/// What is around the paths.
struct Around {
    /// By interface: everything that demux knows there. The node's thread has the
    /// tables themselves.
    tables: Vec<Replica<Lead>>,
    /// The row that all of them share.
    row: u32,
    /// Those that the kernel tier can do; there once the node has made the first.
    relays: Option<Relays>,
    /// Messages in input queues that no program counts.
    held: Arc<AtomicU32>,
    outbox: Vec<Outgoing>,
    /// Keys of the messages that have left the user tier, once the outbox is empty.
    ended: Vec<u32>,
    spare: Vec<Message>,
}

/// What waits for the end of a batch.
struct Outgoing {
    way: Way,
    message: Message,
}

#[derive(Clone, Copy)]
enum Way {
    /// Out of the interface that is written in the message.
    Send,
    /// To the host's stack, as if it came from there.
    Host,
    /// To a path that ends in a handler.
    Bound(Lead),
}

impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Live")
            .field("paths", &self.engine.len())
            .finish_non_exhaustive()
    }
}

impl Live {
    /// No paths, on interfaces with these tables; does what comes by `orders`.
    /// Messages that wait and that no program counts are counted in `held`.
    pub(crate) fn new(
        tables: Vec<Replica<Lead>>,
        row: u32,
        orders: Receiver<Order>,
        held: Arc<AtomicU32>,
    ) -> Self {
        Self {
            engine: Engine::default(),
            routes: Vec::new(),
            around: Around {
                tables,
                row,
                relays: None,
                held,
                outbox: Vec::new(),
                ended: Vec::new(),
                spare: Vec::new(),
            },
            orders,
        }
    }

    /// Does what was ordered. So whoever was answered that a path is there, or is
    /// gone, and then sends a message, finds it so.
    pub(crate) fn obey(&mut self, rows: &UserRows) {
        while let Ok(order) = self.orders.try_recv() {
            order(self, rows);
        }
    }

    /// Takes a path in, which has this number among those of the node.
    pub(crate) fn come(&mut self, id: PathId, number: Option<u32>, path: Box<Path<Message>>) {
        let share = crate::config::share(path.attrs());
        let share = share.map(|share| Arc::new(ShareAccount::of_modules(share.terms())));
        if let Some(number) = number {
            let at = number as usize;
            if at >= self.routes.len() {
                self.routes.resize(at + 1, None);
            }
            self.routes[at] = Some(id);
        }
        let links = eth::links(&path);
        self.engine.insert(id, *path, Seat { number, links }, share);
    }

    /// Leads messages as an interface's table now does.
    pub(crate) fn turn(&mut self, iface: usize, turn: Turn) {
        let tables = &mut self.around.tables;
        match turn {
            Turn::Update(update) => tables[iface].follow(&update),
            Turn::Anew(table) => tables[iface] = table,
        }
    }

    /// Takes a path away, to which nothing leads any more; what waits in it is
    /// dropped.
    pub(crate) fn go(&mut self, id: PathId, rows: &UserRows) {
        if let Some(relays) = &mut self.around.relays {
            relays.remove(id);
        }
        let (engine, mut around) = self.split(rows);
        let removed = engine.remove(id, Count::DroppedNoEndpoint, &mut around);
        if let Some(number) = removed.and_then(|(_, seat)| seat.number) {
            self.routes[number as usize] = None;
        }
    }

    /// Says the hardware address of a path's next hop, in both tiers.
    pub(crate) fn set_next_mac(&mut self, id: PathId, mac: Option<[u8; 6]>) {
        let Some((path, _)) = self.engine.path_mut(id) else {
            return;
        };
        datagram::set_next_mac(path, mac);
        if let Some(relays) = &mut self.around.relays {
            relays.refresh(id, path);
        }
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
    pub(crate) fn promote(&mut self, id: PathId, promoted: bool) {
        if let Some(relays) = &mut self.around.relays
            && let Some((path, _)) = self.engine.path_mut(id)
        {
            relays.promote(id, path, promoted);
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

    /// The row that all paths share.
    pub(crate) const fn row(&self) -> u32 {
        self.around.row
    }

    /// A buffer for the next message.
    pub(crate) fn buffer(&mut self) -> Message {
        self.around.spare.pop().unwrap_or_else(spare_message)
    }

    /// The path that a frame which came by this interface belongs to.
    pub(crate) fn lead(&mut self, iface: usize, frame: &[u8], rows: &UserRows) -> Option<Lead> {
        self.obey(rows);
        self.around.tables[iface].find(&Headers::parse(frame), frame)
    }

    /// Queues a frame from a ring, which has been counted as received in the common row.
    /// A program counts it under this key, until it has left the user tier.
    pub(crate) fn receive(&mut self, message: Message, key: usize, now: Time, rows: &UserRows) {
        self.obey(rows);
        // It was classified when it arrived. If its path has gone since, it is another's.
        let route = of_key(key).and_then(|(number, direction)| {
            let id = self.routes.get(number).copied().flatten()?;
            Some(Lead::Live(id, direction))
        });
        let lead = route.or_else(|| {
            let table = &self.around.tables[message.meta.iface as usize];
            table.find(&Headers::parse(message.bytes()), message.bytes())
        });
        let ticket = NonZeroU32::MIN.saturating_add(key as u32);
        self.offer(lead, message, ticket, now, rows);
    }

    /// Queues a frame from a packet socket for the path that it was found to belong to;
    /// `copy` makes the message, if there is room for it.
    pub(crate) fn receive_for(
        &mut self,
        lead: Lead,
        observed: bool,
        now: Time,
        rows: &UserRows,
        copy: impl FnOnce(Message) -> Message,
    ) {
        rows.add(self.around.row, Count::Received);
        if let Lead::Live(id, direction) = lead
            && !observed
            && let Err(fate) = self.engine.admits(id, direction, now)
        {
            self.engine.refuse(id, fate);
            return rows.add(self.around.row, fate);
        }
        let message = copy(self.buffer());
        self.around.held.fetch_add(1, Ordering::AcqRel);
        self.offer(Some(lead), message, UNCOUNTED, now, rows);
    }

    /// Queues a message for its path, or posts it to where it ends.
    fn offer(
        &mut self,
        lead: Option<Lead>,
        mut message: Message,
        ticket: NonZeroU32,
        now: Time,
        rows: &UserRows,
    ) {
        message.meta.arrived = now;
        let trail = Trail {
            ticket: Some(ticket),
            ..Trail::default()
        };
        let (engine, mut around) = self.split(rows);
        if let Some(Lead::Live(id, direction)) = lead {
            match engine.offer(id, direction, message, trail, now) {
                Ok(()) => return,
                Err((message, Full::NoPath)) => around.give_back(trail, message),
                Err((message, Full::Dropped(fate))) => {
                    if let Some(path) = engine.path(id) {
                        tap::path(&message, path.name());
                    }
                    tap::fate(&message, fate);
                    around.rows.add(around.row, fate);
                    around.keep(message);
                }
            }
        } else {
            around.end_of_lookup(lead, trail, message);
        }
        around.done(ticket);
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
        self.obey(rows);
        let (engine, mut around) = self.split(rows);
        engine.wake(&mut around)
    }

    /// Charges the paths with the CPU time that they had, before the thread sleeps.
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

    /// Sends what the paths have sent, and gives the host what is its own.
    pub(crate) fn flush(
        &mut self,
        xdp: &mut [Option<XdpPort>],
        packet: &mut [PacketPort],
        instances: &mut [RunInstance],
        carrier: Option<&Instance>,
        rows: &UserRows,
    ) {
        if !self.around.outbox.is_empty() {
            self.send(xdp, packet, instances, rows);
        }
        // Only now that the replies have left: the kernel tier must not overtake.
        if let Some(carrier) = carrier {
            rings::leave_frames(carrier, self.around.ended.drain(..));
        }
        let (engine, mut around) = self.split(rows);
        engine.settle(&mut around);
    }

    fn send(
        &mut self,
        xdp: &mut [Option<XdpPort>],
        packet: &mut [PacketPort],
        instances: &mut [RunInstance],
        rows: &UserRows,
    ) {
        let mut outbox = std::mem::take(&mut self.around.outbox);
        for Outgoing { way, message } in outbox.drain(..) {
            let iface = message.meta.iface as usize;
            let spare = if let Some(port) = xdp.get_mut(iface).and_then(Option::as_mut) {
                self.end(way, message, port, instances, rows)
            } else if let Some(port) = packet.iter_mut().find(|port| port.iface == iface) {
                self.end(way, message, &mut port.way_out(), instances, rows)
            } else {
                unreachable!("modules know the node's interfaces only")
            };
            if let Some(spare) = spare {
                self.around.keep(spare);
            }
        }
        self.around.outbox = outbox;
        for port in xdp.iter_mut().flatten() {
            // A failed kick leaves the frames in the ring for the next one.
            let _ = port.tx.kick();
        }
    }

    fn end(
        &self,
        way: Way,
        mut message: Message,
        port: &mut impl Port,
        instances: &mut [RunInstance],
        rows: &UserRows,
    ) -> Option<Message> {
        match way {
            Way::Send => {
                let sent = port.send(message.bytes());
                tap::sent(&message, sent == Count::OutHandedOver);
                rows.add(self.around.row, sent);
            }
            Way::Host => give_to_host(&mut message, self.around.row, port, rows),
            Way::Bound(Lead::Bound {
                row,
                instance,
                local,
            }) => {
                let iface = message.meta.iface as usize;
                let instance = runner::by_id(instances, instance);
                match instance.and_then(|instance| instance.path(local as usize, iface)) {
                    Some(path) => {
                        let admission = path.admit();
                        return path.follow(admission, message, port, rows);
                    }
                    None => give_to_host(&mut message, row, port, rows),
                }
            }
            Way::Bound(Lead::Live(..)) => unreachable!("those are run at once"),
        }
        Some(message)
    }
}

impl Around {
    fn keep(&mut self, message: Message) {
        if self.spare.len() < KEPT {
            self.spare.push(message);
        }
    }

    fn post(&mut self, way: Way, message: Message) {
        self.outbox.push(Outgoing { way, message });
    }
}

/// What is around the paths, and where they are counted: the shell of their engine.
struct Counting<'a> {
    around: &'a mut Around,
    rows: &'a UserRows,
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
    /// Posts a message to the host, unless that has a copy.
    fn give_back(&mut self, trail: Trail, message: Message) {
        if trail.host_copy {
            self.rows.add(self.around.row, Count::Passed);
            tap::fate(&message, Count::Passed);
            self.keep(message);
        } else {
            self.post(Way::Host, message);
        }
    }

    /// Posts a message that no path of the engine takes.
    fn end_of_lookup(&mut self, lead: Option<Lead>, trail: Trail, message: Message) {
        if let Some(bound @ Lead::Bound { row, .. }) = lead {
            self.rows.add(self.around.row, Count::Forwarded);
            self.rows.add(row, Count::Received);
            tap::fate(&message, Count::Forwarded);
            self.post(Way::Bound(bound), message);
        } else {
            self.give_back(trail, message);
        }
    }
}

impl<'a> Shell<Message, Seat> for Counting<'a> {
    type Watch = Watcher<'a>;

    fn now(&mut self) -> Time {
        worker::now()
    }

    fn cpu_time(&mut self) -> Duration {
        Duration::from_nanos(thread_ns())
    }

    fn watch(&mut self, path: &Path<Message>, _: &Seat, message: Option<&Message>) -> Watcher<'a> {
        let on = tap::on();
        if on && let Some(message) = message {
            tap::path(message, path.name());
        }
        Watcher {
            rows: self.rows,
            row: self.around.row,
            tap: on.then(tap::Watcher::default),
        }
    }

    fn exit(
        &mut self,
        from: From<'_, Seat>,
        exit: Exit<Message>,
    ) -> Option<(PathId, Direction, Message)> {
        let row = self.around.row;
        let (mut message, turned) = match exit {
            Exit::Left {
                direction, message, ..
            } if from.data.links[direction as usize] => {
                self.rows.add(row, Count::OutOriginated);
                self.post(Way::Send, message);
                return None;
            }
            Exit::Left {
                message, turned, ..
            } => (message, turned),
            Exit::Ended { message, fate } => {
                if fate == Count::Passed {
                    self.give_back(from.trail, message);
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
        self.rows.add(row, Count::Received);
        let table = &self.around.tables[message.meta.iface as usize];
        match table.find(&Headers::parse(message.bytes()), message.bytes()) {
            Some(Lead::Live(id, direction))
                if id != from.path && from.trail.paths < MAX_CROSSINGS =>
            {
                Some((id, direction, message))
            }
            lead => {
                self.end_of_lookup(lead, from.trail, message);
                None
            }
        }
    }

    fn done(&mut self, ticket: NonZeroU32) {
        if ticket == UNCOUNTED {
            self.around.held.fetch_sub(1, Ordering::AcqRel);
        } else {
            self.around.ended.push(ticket.get() - 1);
        }
    }

    fn ran(&mut self, id: PathId, path: &mut Path<Message>, _: &mut Seat) {
        if let Some(relays) = &mut self.around.relays {
            relays.follow(id, path);
        }
    }

    fn stray(&mut self, message: Message, trail: Trail) {
        self.give_back(trail, message);
    }

    fn failed(&mut self, _: PathId, path: &Path<Message>) {
        if let Some(fault) = &path.account().fault {
            let name = path.name();
            crate::node::say(&format!("path `{name}` runs no more: {fault}"));
            crate::node::say("  hint: this is a bug of the stage's module; please report it");
        }
    }
}

/// Counts how received messages end, and tells whoever observes.
struct Watcher<'a> {
    rows: &'a UserRows,
    row: u32,
    tap: Option<tap::Watcher>,
}

impl Watch<Message> for Watcher<'_> {
    fn stage(&mut self, name: &str, direction: Direction, message: &Message) {
        if let Some(tap) = &mut self.tap {
            tap.stage(name, direction, message);
        }
    }

    fn answered(&mut self, message: Option<&Message>) {
        if let Some(tap) = &mut self.tap {
            tap.answered(message);
        }
    }

    fn end(&mut self, fate: Count) {
        // What is given to the host is counted when that has worked or not.
        if fate != Count::Passed {
            self.rows.add(self.row, fate);
        }
        if let Some(tap) = &mut self.tap {
            tap.end(fate);
        }
    }
}
