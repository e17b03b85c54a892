//! Paths that run in the user tier as a whole, as the worker has them.
//!
//! They take whole frames: from a packet socket, or from a ring of the node's own
//! [carrier](crate::instance::Instance::carrier). Which path a frame belongs to is
//! looked up here, so it is right even if paths came and went while it waited.
//! What leaves a path at a link's end goes out by the interface its link wrote
//! into it, whichever it came by; what leaves at any other end is a frame again,
//! and is looked up once more (Scout §3.4: "execute a path, enter a router, and
//! then continue execution in another path").

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use ashway_abi::Count;
use ashway_abi::count::ROW_WORDS;
use ashway_demux::{Replica, Update};
use ashway_memory::clock::monotonic_ns;
use ashway_modules::{Message, datagram, eth};
use ashway_path::path::{Exit, Path};
use ashway_path::places::{PathId, Places};
use ashway_path::stage::Direction;
use ashway_path::time::Time;
use ashway_wire::Headers;

use crate::counters::UserRows;
use crate::observe::tap;
use crate::packets::PacketPort;
use crate::relays::Relays;
use crate::rings::{XdpPort, spare_message};
use crate::runner::{self, Port, RunInstance, give_to_host};
use crate::share::{Admission, Purse, Waiting};
use crate::snapshot::PathSnapshot;
use crate::worker;

/// Where demux leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Lead {
    /// To a path that ends in a handler.
    Bound {
        /// Its row, which no other path ever has.
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

/// One message in so many has its time taken.
const SAMPLE: u32 = 64;

/// From how many paths to the next one message may go on one call.
const MAX_CROSSINGS: u32 = 8;

/// Buffers that are kept for the next messages, and paths that are woken at once.
const KEPT: usize = 64;

/// The paths, and what of theirs is underway.
pub(crate) struct Live {
    pub(crate) paths: Places<Box<Path<Message>>>,
    /// By interface: everything that demux knows there. The node's thread has the
    /// tables themselves.
    tables: Vec<Replica<Lead>>,
    /// What is to be done first.
    orders: Receiver<Order>,
    /// Those that the host hears too.
    pub(crate) heard: HashSet<PathId>,
    /// The row that all of them share.
    row: u32,
    /// Those that the kernel tier can do; there once the node has made the first.
    pub(crate) relays: Option<Relays>,
    /// Those that have a share of the worker, and what waits for that.
    shares: HashMap<PathId, (Purse, Waiting<Entering>)>,
    /// How many wait, all together.
    held: Arc<AtomicU32>,
    /// When a path is to be woken, at the latest. A path may be woken early.
    armed: HashMap<PathId, Time>,
    /// Never more than one that is not in `armed` for each change of that to an
    /// earlier time.
    alarms: BinaryHeap<Reverse<(Time, PathId)>>,
    outbox: Vec<Outgoing>,
    /// What left its path where no link is, in order; empty between two calls.
    onward: VecDeque<Onward>,
    /// Scratch: what came out of a path.
    exits: Vec<Exit<Message>>,
    spare: Vec<Message>,
    seen: u32,
}

/// A message in front of a path.
struct Entering {
    message: Message,
    /// Its way along that.
    direction: Direction,
    /// Where it has been.
    course: Course,
}

/// A message that is a frame again, and is to be looked up.
struct Onward {
    /// The path it left, which it does not come back to at once.
    from: PathId,
    course: Course,
    message: Message,
}

/// Where a message has been.
#[derive(Clone, Copy, Debug, Default)]
struct Course {
    /// How many paths it has gone along.
    paths: u32,
    /// Whether the host heard what it came as.
    heard: bool,
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
    Host {
        /// To which row its end belongs.
        row: u32,
    },
    /// To a path that ends in a handler.
    Bound(Lead),
}

impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Live")
            .field("paths", &self.paths.len())
            .finish_non_exhaustive()
    }
}

impl Live {
    /// No paths, on interfaces with these tables; does what comes by `orders`.
    /// How many wait for their paths' shares is counted in `held`.
    pub(crate) fn new(
        tables: Vec<Replica<Lead>>,
        row: u32,
        orders: Receiver<Order>,
        held: Arc<AtomicU32>,
    ) -> Self {
        Self {
            paths: Places::new(),
            tables,
            orders,
            heard: HashSet::new(),
            row,
            relays: None,
            shares: HashMap::new(),
            held,
            armed: HashMap::new(),
            alarms: BinaryHeap::new(),
            outbox: Vec::new(),
            onward: VecDeque::new(),
            exits: Vec::new(),
            spare: Vec::new(),
            seen: 0,
        }
    }

    /// Does what was ordered. So whoever was answered that a path is there, or is
    /// gone, and then sends a message, finds it so.
    pub(crate) fn obey(&mut self, rows: &UserRows) {
        while let Ok(order) = self.orders.try_recv() {
            order(self, rows);
        }
    }

    /// Takes a path in.
    pub(crate) fn come(&mut self, id: PathId, path: Box<Path<Message>>) {
        if let Some(share) = crate::config::share(path.attrs()) {
            let purse = Purse::of_modules(share.terms(), Arc::clone(&self.held));
            self.shares.insert(id, (purse, Waiting::default()));
        }
        self.paths.put(id, path);
        self.arm(id);
    }

    /// Leads messages as an interface's table now does.
    pub(crate) fn turn(&mut self, iface: usize, turn: Turn) {
        match turn {
            Turn::Update(update) => self.tables[iface].follow(&update),
            Turn::Anew(table) => self.tables[iface] = table,
        }
    }

    /// Takes a path away, to which nothing leads any more; what waits in it is
    /// dropped.
    pub(crate) fn go(&mut self, id: PathId, rows: &UserRows) {
        self.heard.remove(&id);
        self.armed.remove(&id);
        if let Some(relays) = &mut self.relays {
            relays.remove(id);
        }
        if let Some((purse, mut waiting)) = self.shares.remove(&id) {
            purse.set_open(true);
            while let Some((entering, _)) = waiting.take(&purse, 0) {
                self.refuse(entering.message, Count::DroppedNoEndpoint, rows);
            }
        }
        let Some(mut path) = self.paths.remove(id) else {
            return;
        };
        let before = Tally::of(&path);
        path.drain(Count::DroppedNoEndpoint, &mut |exit| self.exits.push(exit));
        before.publish(&path, self.row, rows);
        self.settle(id, [false; 2], Course::default(), rows);
    }

    /// Says the hardware address of a path's next hop, in both tiers.
    pub(crate) fn set_next_mac(&mut self, id: PathId, mac: Option<[u8; 6]>) {
        let Some(path) = self.paths.at_mut(id) else {
            return;
        };
        datagram::set_next_mac(path, mac);
        if let Some(relays) = &mut self.relays {
            relays.refresh(id, path);
        }
    }

    /// The row that all paths share.
    pub(crate) const fn row(&self) -> u32 {
        self.row
    }

    /// A buffer for the next message.
    pub(crate) fn buffer(&mut self) -> Message {
        self.spare.pop().unwrap_or_else(spare_message)
    }

    fn keep(&mut self, message: Message) {
        if self.spare.len() < KEPT {
            self.spare.push(message);
        }
    }

    /// The path that a frame which came by this interface belongs to.
    pub(crate) fn lead(&mut self, iface: usize, frame: &[u8], rows: &UserRows) -> Option<Lead> {
        self.obey(rows);
        self.tables[iface].find(&Headers::parse(frame), frame)
    }

    /// Runs a frame that has been counted as received in the common row along its
    /// path; [`flush`](Self::flush) does what comes of it.
    pub(crate) fn run(&mut self, message: Message, now: Time, rows: &UserRows) {
        let lead = self.lead(message.meta.iface as usize, message.bytes(), rows);
        self.follow(lead, message, now, rows);
    }

    /// The same, where it is known which it is.
    pub(crate) fn follow(
        &mut self,
        lead: Option<Lead>,
        mut message: Message,
        now: Time,
        rows: &UserRows,
    ) {
        message.meta.arrived = now;
        self.step(lead, message, Course::default(), now, rows);
        self.go_on(now, rows);
    }

    /// Runs everything that left a path for another, and what that makes of it.
    fn go_on(&mut self, now: Time, rows: &UserRows) {
        while let Some(Onward {
            from,
            course,
            mut message,
        }) = self.onward.pop_front()
        {
            message.rewind();
            rows.add(self.row, Count::Received);
            let lead = self.lead(message.meta.iface as usize, message.bytes(), rows);
            let lead = lead.filter(|lead| !matches!(lead, Lead::Live(same, _) if *same == from));
            self.step(lead, message, course, now, rows);
        }
    }

    /// Runs a message along one path, or posts it to where it ends.
    fn step(
        &mut self,
        lead: Option<Lead>,
        message: Message,
        course: Course,
        now: Time,
        rows: &UserRows,
    ) {
        match lead {
            Some(Lead::Live(id, direction))
                if course.paths < MAX_CROSSINGS && self.paths.at(id).is_some() =>
            {
                let entering = Entering {
                    message,
                    direction,
                    course,
                };
                self.enter(id, entering, now, rows);
            }
            Some(bound @ Lead::Bound { row, .. }) => {
                rows.add(self.row, Count::Forwarded);
                rows.add(row, Count::Received);
                tap::fate(&message, Count::Forwarded);
                self.post(Way::Bound(bound), message);
            }
            _ => self.give_back(course, message, rows),
        }
    }

    /// Posts a message to the host, unless that has heard it.
    fn give_back(&mut self, course: Course, message: Message, rows: &UserRows) {
        if course.heard {
            rows.add(self.row, Count::Passed);
            tap::fate(&message, Count::Passed);
            self.keep(message);
        } else {
            self.post(Way::Host { row: self.row }, message);
        }
    }

    /// Counts the end of a message that no path has taken.
    fn refuse(&mut self, message: Message, fate: Count, rows: &UserRows) {
        rows.add(self.row, fate);
        tap::fate(&message, fate);
        self.keep(message);
    }

    /// A path as it is now, if it is there.
    pub(crate) fn snapshot(&self, id: PathId) -> Option<PathSnapshot> {
        let path = self.paths.at(id)?;
        let share = self.shares.get(&id);
        let mode = share.map(|(purse, _)| purse.mode(monotonic_ns()));
        Some(PathSnapshot::of(path, mode))
    }

    /// Runs a message along a path that is there, has it wait for the path's share, or
    /// drops it.
    fn enter(&mut self, id: PathId, entering: Entering, now: Time, rows: &UserRows) {
        let Some((purse, waiting)) = self.shares.get_mut(&id) else {
            return self.pass(id, entering, now, rows);
        };
        let began = monotonic_ns();
        match waiting.admit(purse, began) {
            Admission::Runs => {
                self.pass(id, entering, now, rows);
                self.charge(id, began);
            }
            Admission::Waits => {
                waiting.push(purse, entering, false);
                self.arm(id);
            }
            Admission::Over => {
                let message = entering.message;
                let Some(path) = self.paths.at_mut(id) else {
                    return self.refuse(message, Count::DroppedOverShare, rows);
                };
                tap::path(&message, path.name());
                tap::fate(&message, Count::DroppedOverShare);
                let before = Tally::of(path);
                let ended = path.discard(message, Count::DroppedOverShare);
                before.publish(path, self.row, rows);
                if let Exit::Ended { message, .. } = ended {
                    self.keep(message);
                }
            }
        }
    }

    /// Charges a path for a message that it took at this time, in ns.
    fn charge(&self, id: PathId, began: u64) {
        if let Some((purse, _)) = self.shares.get(&id) {
            purse.ran(began, monotonic_ns());
        }
    }

    /// Runs what waits for a path's share and may run now.
    fn work_off(&mut self, id: PathId, now: Time, rows: &UserRows) {
        while self.outbox.len() <= KEPT {
            let began = monotonic_ns();
            let Some((purse, waiting)) = self.shares.get_mut(&id) else {
                return;
            };
            let Some((entering, _)) = waiting.take(purse, began) else {
                break;
            };
            self.pass(id, entering, now, rows);
            self.charge(id, began);
        }
        self.arm(id);
    }

    /// The paths that have a share. Allocates.
    pub(crate) fn with_shares(&self) -> Vec<PathId> {
        self.shares.keys().copied().collect()
    }

    /// Runs what waits for a path's share, and what comes from now on, whatever was used.
    /// Whether some still waits, for room in what is to be sent.
    pub(crate) fn open_share(&mut self, id: PathId, now: Time, rows: &UserRows) -> bool {
        if let Some((purse, _)) = self.shares.get(&id) {
            purse.set_open(true);
        }
        self.work_off(id, now, rows);
        self.go_on(now, rows);
        let waiting = self.shares.get(&id).map(|(_, waiting)| waiting);
        waiting.is_some_and(|waiting| !waiting.is_empty())
    }

    /// Runs a message along a path that is there, whatever that has had.
    fn pass(&mut self, id: PathId, entering: Entering, now: Time, rows: &UserRows) {
        let Entering {
            message,
            direction,
            course,
        } = entering;
        let begin = self.seen.is_multiple_of(SAMPLE).then(Instant::now);
        self.seen = self.seen.wrapping_add(1);
        let exits = &mut self.exits;
        let Some(path) = self.paths.at_mut(id) else {
            return;
        };
        let before = Tally::of(path);
        let out = &mut |exit| exits.push(exit);
        if tap::on() {
            tap::path(&message, path.name());
            path.pass_watched(direction, message, now, &mut tap::Watcher::default(), out);
        } else {
            path.pass(direction, message, now, out);
        }
        before.publish(path, self.row, rows);
        if let Some(begin) = begin {
            path.charge(begin.elapsed() * SAMPLE);
        }
        if let Some(relays) = &mut self.relays {
            relays.follow(id, path);
        }
        let links = eth::links(path);
        self.arm(id);
        self.settle(id, links, course, rows);
    }

    /// Sorts what came out of a path; before it came there its messages were on
    /// `course`.
    fn settle(&mut self, id: PathId, links: [bool; 2], course: Course, rows: &UserRows) {
        let course = Course {
            paths: course.paths + 1,
            heard: course.heard || !self.heard.is_empty() && self.heard.contains(&id),
        };
        let mut exits = std::mem::take(&mut self.exits);
        for exit in exits.drain(..) {
            match exit {
                Exit::Left {
                    direction, message, ..
                } if links[direction as usize] => {
                    rows.add(self.row, Count::OutOriginated);
                    self.post(Way::Send, message);
                }
                Exit::Left {
                    message, turned, ..
                } => {
                    if turned {
                        rows.add(self.row, Count::OutOriginated);
                        rows.add(self.row, Count::OutHandedOver);
                    }
                    self.onward.push_back(Onward {
                        from: id,
                        course,
                        message,
                    });
                }
                Exit::Ended {
                    message,
                    fate: Count::Passed,
                } => self.give_back(course, message, rows),
                Exit::Ended { message, .. } => self.keep(message),
            }
        }
        self.exits = exits;
    }

    fn post(&mut self, way: Way, message: Message) {
        self.outbox.push(Outgoing { way, message });
    }

    /// Sends what the paths have sent, and gives the host what is its own.
    pub(crate) fn flush(
        &mut self,
        xdp: &mut [Option<XdpPort>],
        packet: &mut [PacketPort],
        instances: &mut [RunInstance],
        rows: &UserRows,
    ) {
        if self.outbox.is_empty() {
            return;
        }
        let mut outbox = std::mem::take(&mut self.outbox);
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
                self.keep(spare);
            }
        }
        self.outbox = outbox;
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
                rows.add(self.row, sent);
            }
            Way::Host { row } => give_to_host(&mut message, row, port, rows),
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

    /// Notes when a path wants to be woken.
    fn arm(&mut self, id: PathId) {
        let stages = self.paths.at(id).and_then(|path| path.wake_at());
        let share = self
            .shares
            .get(&id)
            .filter(|(_, waiting)| !waiting.is_empty());
        let share = share.map(|(purse, _)| {
            let due = purse.due().saturating_sub(monotonic_ns());
            worker::now() + Duration::from_nanos(due)
        });
        let Some(time) = stages.into_iter().chain(share).min() else {
            return;
        };
        let armed = self.armed.get(&id);
        if armed.is_none_or(|armed| time < *armed) {
            self.armed.insert(id, time);
            self.alarms.push(Reverse((time, id)));
        }
    }

    /// When [`wake`](Self::wake) has something to do.
    pub(crate) fn wake_at(&self) -> Option<Time> {
        self.alarms.peek().map(|Reverse((time, _))| *time)
    }

    /// Wakes the paths whose time has come, up to [`KEPT`]. Says whether there were any.
    pub(crate) fn wake(&mut self, now: Time, rows: &UserRows) -> bool {
        self.obey(rows);
        let mut any = false;
        // A path that is always due may send nothing that leaves it: others' messages,
        // and whoever stops the worker, have their turn all the same.
        for _ in 0..KEPT {
            let Some(Reverse((time, id))) = self.alarms.peek().copied() else {
                break;
            };
            if time > now {
                break;
            }
            self.alarms.pop();
            if self.armed.get(&id) != Some(&time) {
                continue;
            }
            any = true;
            self.armed.remove(&id);
            let Some(path) = self.paths.at_mut(id) else {
                continue;
            };
            let begin = Instant::now();
            let exits = &mut self.exits;
            let before = Tally::of(path);
            let out = &mut |exit| exits.push(exit);
            if tap::on() {
                path.wake_watched(now, &mut tap::Watcher::default(), out);
            } else {
                path.wake(now, out);
            }
            before.publish(path, self.row, rows);
            path.charge(begin.elapsed());
            let links = eth::links(path);
            self.arm(id);
            self.settle(id, links, Course::default(), rows);
            self.work_off(id, now, rows);
            self.go_on(now, rows);
            if self.outbox.len() > KEPT {
                // What was sent so far leaves first.
                break;
            }
        }
        any
    }
}

/// A path's fates before it ran.
struct Tally([u64; ROW_WORDS]);

impl Tally {
    fn of(path: &Path<Message>) -> Self {
        let mut tally = [0; ROW_WORDS];
        for (fate, total) in path.account().fates() {
            tally[fate as usize] = total;
        }
        Self(tally)
    }

    /// Adds what has changed since to the row, except for what is given to the
    /// host: that is counted when it has worked or not.
    fn publish(&self, path: &Path<Message>, row: u32, rows: &UserRows) {
        for (fate, total) in path.account().fates() {
            if fate != Count::Passed {
                rows.add_many(row, fate, total - self.0[fate as usize]);
            }
        }
    }
}
