//! Paths under a virtual clock: the same seed gives the same run, event by
//! event.
//!
//! One processor runs the messages of all paths in the order of their arrival,
//! each for a fixed time, which is charged to its path. Messages come over
//! *links*, which delay, lose and reorder by the seed; a *classifier* finds each
//! one's path, as demux does. What leaves a path goes onto the link that is
//! connected there, or comes out.
//!
//! Not for throughput: everything is recorded.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::time::Duration;

use ashway_abi::Count;

use crate::path::{Exit, Path};
use crate::queue::Refused;
use crate::set::{PathId, Paths, Taken};
use crate::stage::Direction;
use crate::time::Time;

/// A way for messages, from anywhere to the classifier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// How long each message takes at least.
    pub delay: Duration,
    /// How much longer at most; messages overtake each other within it.
    pub jitter: Duration,
    /// How many of a million are lost.
    pub lost_ppm: u32,
}

/// A link's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LinkId(usize);

/// Finds the path of a message that arrives over a link.
pub type Classifier<M> = Box<dyn FnMut(&Paths<M>, LinkId, &M) -> Option<(PathId, Direction)>>;

/// Something that a person does to the paths while they run.
pub type Action<M> = Box<dyn FnOnce(&mut Sim<M>)>;

/// What happened, and to which message (by its label).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happened {
    /// Put on a link.
    Sent(LinkId, u64),
    /// Lost on it.
    Lost(LinkId, u64),
    /// Arrived, with no path to take it.
    Unmatched(u64),
    /// Arrived on a path's input queue.
    Queued(PathId, u64),
    /// Arrived where the queue was full.
    Discarded(PathId, u64),
    /// Came out of a path's end.
    Left(PathId, u64),
    /// Ended within a path.
    Ended(PathId, u64, Count),
    /// A path was created.
    Created(PathId),
    /// A path was removed.
    Removed(PathId),
}

/// The simulator. `M` is what messages are made of.
pub struct Sim<M> {
    /// The paths. Add and remove them by [`Sim::create`] and [`Sim::remove`],
    /// so that it is recorded.
    pub paths: Paths<M>,
    /// How long the processor takes for a message.
    pub cost: Duration,
    /// What has come out, in order.
    pub out: Vec<(PathId, Exit<M>)>,
    /// What has happened, in order.
    pub trace: Vec<(Time, Happened)>,
    now: Time,
    random: Random,
    links: Vec<Link>,
    connected: HashMap<(PathId, Direction), LinkId>,
    classify: Classifier<M>,
    label: fn(&M) -> u64,
    events: BinaryHeap<Reverse<Event<M>>>,
    scheduled: u64,
    /// Whose turn it is, one entry for each message queued.
    ready: VecDeque<(PathId, Direction)>,
    busy: bool,
}

struct Event<M> {
    at: Time,
    /// Breaks ties: first scheduled, first done.
    order: u64,
    what: What<M>,
}

enum What<M> {
    Arrival(LinkId, M),
    /// The processor is free.
    Turn,
    Wake(PathId),
    Action(Action<M>),
}

impl<M> Sim<M> {
    /// An empty world at time 0. `label` tells messages apart in the trace.
    #[must_use]
    pub fn new(seed: u64, label: fn(&M) -> u64, classify: Classifier<M>) -> Self {
        Self {
            paths: Paths::new(),
            cost: Duration::from_micros(1),
            out: Vec::new(),
            trace: Vec::new(),
            now: Time(0),
            random: Random(seed),
            links: Vec::new(),
            connected: HashMap::new(),
            classify,
            label,
            events: BinaryHeap::new(),
            scheduled: 0,
            ready: VecDeque::new(),
            busy: false,
        }
    }

    /// Now.
    #[must_use]
    pub const fn now(&self) -> Time {
        self.now
    }

    /// Adds a link.
    pub fn link(&mut self, link: Link) -> LinkId {
        self.links.push(link);
        LinkId(self.links.len() - 1)
    }

    /// What leaves the path in this direction goes onto this link.
    pub fn connect(&mut self, path: PathId, direction: Direction, link: LinkId) {
        self.connected.insert((path, direction), link);
    }

    /// Takes a path in; it must be established.
    ///
    /// # Errors
    ///
    /// [`Taken`] if the name is in use.
    pub fn create(&mut self, path: Path<M>) -> Result<PathId, Taken> {
        let id = self.paths.insert(path)?;
        self.record(Happened::Created(id));
        self.watch(id);
        Ok(id)
    }

    /// Takes a path out and destroys it. What waits in its input queues ends
    /// with this fate and comes out. False if it is gone already.
    pub fn remove(&mut self, id: PathId, fate: Count) -> bool {
        let Some(mut path) = self.paths.remove(id) else {
            return false;
        };
        let mut exits = Vec::new();
        path.drain(fate, &mut |exit| exits.push((id, exit)));
        self.settle(exits);
        self.record(Happened::Removed(id));
        true
    }

    /// Puts a message on a link.
    pub fn send(&mut self, over: LinkId, message: M) {
        let label = (self.label)(&message);
        self.record(Happened::Sent(over, label));
        let link = self.links[over.0];
        if self.random.below(1_000_000) < u64::from(link.lost_ppm) {
            return self.record(Happened::Lost(over, label));
        }
        let longest = link.jitter.as_nanos() as u64;
        let jitter = Duration::from_nanos(self.random.below(longest + 1));
        self.schedule(self.now + link.delay + jitter, What::Arrival(over, message));
    }

    /// Does something at a time; at once if that has passed.
    pub fn at(&mut self, time: Time, action: impl FnOnce(&mut Self) + 'static) {
        self.schedule(time, What::Action(Box::new(action)));
    }

    /// Runs until nothing is left to do, or this time is reached. Gives back
    /// how many events there were.
    pub fn run(&mut self, until: Time) -> u64 {
        let mut done = 0;
        while self
            .events
            .peek()
            .is_some_and(|Reverse(next)| next.at <= until)
        {
            let Some(Reverse(event)) = self.events.pop() else {
                break;
            };
            self.now = event.at;
            done += 1;
            match event.what {
                What::Arrival(link, message) => self.arrive(link, message),
                What::Turn => self.turn(),
                What::Wake(id) => self.wake(id),
                What::Action(action) => action(self),
            }
        }
        done
    }

    /// Puts a message on a path's input queue, as an application does.
    ///
    /// # Errors
    ///
    /// Gives it back if there is no such path, or its queue is full.
    pub fn offer(
        &mut self,
        id: PathId,
        direction: Direction,
        message: M,
    ) -> Result<(), Refused<M>> {
        let label = (self.label)(&message);
        let Some(path) = self.paths.path_mut(id) else {
            self.record(Happened::Unmatched(label));
            return Err(Refused(message));
        };
        if let Err(refused) = path.offer(direction, message) {
            self.record(Happened::Discarded(id, label));
            return Err(refused);
        }
        self.record(Happened::Queued(id, label));
        self.ready.push_back((id, direction));
        if !self.busy {
            self.busy = true;
            self.schedule(self.now, What::Turn);
        }
        Ok(())
    }

    fn arrive(&mut self, link: LinkId, message: M) {
        let label = (self.label)(&message);
        let found = (self.classify)(&self.paths, link, &message);
        let Some((id, direction)) = found else {
            return self.record(Happened::Unmatched(label));
        };
        // What is refused is recorded; its buffer goes.
        let _ = self.offer(id, direction, message);
    }

    fn turn(&mut self) {
        let Some((id, direction)) = self.ready.pop_front() else {
            self.busy = false;
            return;
        };
        let mut exits = Vec::new();
        if let Some(path) = self.paths.path_mut(id) {
            path.run(direction, self.now, &mut |exit| exits.push((id, exit)));
            path.charge(self.cost);
        }
        self.settle(exits);
        self.watch(id);
        self.schedule(self.now + self.cost, What::Turn);
    }

    fn wake(&mut self, id: PathId) {
        let Some(path) = self.paths.path_mut(id) else {
            return;
        };
        // Not if what it was scheduled for has been seen to since.
        if path.wake_at().is_some_and(|time| time <= self.now) {
            let mut exits = Vec::new();
            path.wake(self.now, &mut |exit| exits.push((id, exit)));
            self.settle(exits);
            self.watch(id);
        }
    }

    /// Sees to it that the path is woken. Not at this very moment, where time
    /// would stand still for a stage that always wants it.
    fn watch(&mut self, id: PathId) {
        if let Some(time) = self.paths.path(id).and_then(Path::wake_at) {
            let soonest = self.now + Duration::from_nanos(1);
            self.schedule(time.max(soonest), What::Wake(id));
        }
    }

    fn schedule(&mut self, at: Time, what: What<M>) {
        self.scheduled += 1;
        self.events.push(Reverse(Event {
            at: at.max(self.now),
            order: self.scheduled,
            what,
        }));
    }

    /// Records what came out of a path and sends it on.
    fn settle(&mut self, exits: Vec<(PathId, Exit<M>)>) {
        for (id, exit) in exits {
            match exit {
                Exit::Left {
                    direction,
                    message,
                    turned,
                } => {
                    self.record(Happened::Left(id, (self.label)(&message)));
                    if let Some(link) = self.connected.get(&(id, direction)) {
                        self.send(*link, message);
                        continue;
                    }
                    let exit = Exit::Left {
                        direction,
                        message,
                        turned,
                    };
                    self.out.push((id, exit));
                }
                Exit::Ended { ref message, fate } => {
                    let label = (self.label)(message);
                    self.record(Happened::Ended(id, label, fate));
                    self.out.push((id, exit));
                }
            }
        }
    }

    fn record(&mut self, what: Happened) {
        self.trace.push((self.now, what));
    }
}

impl<M> PartialEq for Event<M> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<M> Eq for Event<M> {}

impl<M> PartialOrd for Event<M> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<M> Ord for Event<M> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

/// Numbers that look like chance and are the same for the same seed: `SplitMix64`
/// (Steele, Lea & Flood 2014, figure 16).
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// The next number.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from 0 to below `bound`; 0 if that is 0.
    pub const fn below(&mut self, bound: u64) -> u64 {
        ((self.next() as u128 * bound as u128) >> 64) as u64
    }
}
