//! The [engine](crate::engine) under a virtual clock: the same seed gives the same
//! run, event by event.
//!
//! One processor runs the messages of all paths, in the order that a
//! [policy](crate::sched) says, each for a fixed time. Messages come over
//! *links*, which delay, lose and reorder by the seed; a *classifier* finds each
//! one's path, as demux does. What leaves a path goes onto the link that is
//! connected there, or comes out.
//!
//! Not for throughput: everything is recorded. [`Single`] runs one path, without the
//! rest of the world.

mod single;

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, HashMap};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use ashway_abi::Count;

use crate::engine::{Engine, From, Full, Requeued, Shell};
use crate::path::{Exit, Path, Trail};
use crate::places::{Ids, PathId};
use crate::queue::Refused;
use crate::sched::Policy;
use crate::sched::fifo::Fifo;
use crate::sched::share::ShareAccount;
use crate::stage::Direction;
use crate::time::Time;
use crate::watch::Nobody;
pub use single::Single;

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
pub type Classifier<M> = Box<dyn FnMut(&Names, LinkId, &M) -> Option<(PathId, Direction)>>;

/// Something that a person does to the paths while they run.
pub type Action<M, P = Fifo> = Box<dyn FnOnce(&mut Sim<M, P>)>;

/// The paths by name.
#[derive(Debug, Default)]
pub struct Names(HashMap<Arc<str>, PathId>);

impl Names {
    /// The path of this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<PathId> {
        self.0.get(name).copied()
    }
}

/// A name that another path has.
#[derive(Debug, thiserror::Error)]
#[error("there is a path `{name}` already (id {by}); choose another name or remove it first")]
pub struct Taken {
    /// The name.
    pub name: String,
    /// The path that has it.
    pub by: PathId,
}

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
    /// A stage of a path panicked.
    Failed(PathId),
}

/// The simulator. `M` is what messages are made of.
pub struct Sim<M, P = Fifo> {
    /// The paths. Add and remove them by [`Sim::create`] and [`Sim::remove`],
    /// so that it is recorded.
    pub engine: Engine<M, (), P>,
    /// What the paths are called.
    pub names: Names,
    /// How long the processor takes for a message.
    pub cost: Duration,
    /// What has come out, in order.
    pub out: Vec<(PathId, Exit<M>)>,
    /// What has happened, in order.
    pub trace: Vec<(Time, Happened)>,
    now: Time,
    ids: Ids,
    random: Random,
    links: Vec<Link>,
    connected: HashMap<(PathId, Direction), LinkId>,
    classify: Classifier<M>,
    label: fn(&M) -> u64,
    events: BinaryHeap<Reverse<Event<M, P>>>,
    scheduled: u64,
    /// Whether the processor runs, or is about to.
    busy: bool,
    /// The next time at which the engine is to be woken.
    alarm: Option<Time>,
}

struct Event<M, P> {
    at: Time,
    /// Breaks ties: first scheduled, first done.
    order: u64,
    what: What<M, P>,
}

enum What<M, P> {
    Arrival(LinkId, M),
    /// The processor is free.
    Turn,
    /// Something of the engine is due.
    Alarm,
    Action(Action<M, P>),
}

/// The simulator as the engine sees it, for one call.
struct Around<M> {
    now: Time,
    cost: Duration,
    label: fn(&M) -> u64,
    exits: Vec<(Time, PathId, Exit<M>)>,
    trace: Vec<(Time, Happened)>,
}

impl<M> Shell<M, ()> for Around<M> {
    type Watch = Nobody;

    fn now(&mut self) -> Time {
        self.now
    }

    /// The processor has nothing else to do.
    fn cpu_time(&mut self) -> Duration {
        self.now.since(Time::default())
    }

    fn watch(&mut self, _: &Path<M>, (): &(), _: Option<&M>) -> Nobody {
        Nobody
    }

    fn exit(&mut self, from: From<'_, ()>, exit: Exit<M>) -> Option<Requeued<M>> {
        self.exits.push((self.now, from.path, exit));
        None
    }

    fn done(&mut self, _: NonZeroU32) {}

    fn ran(&mut self, _: PathId, _: &mut Path<M>, (): &mut ()) {
        self.now = self.now + self.cost;
    }

    fn stray(&mut self, message: M, _: Trail) {
        let label = (self.label)(&message);
        self.trace.push((self.now, Happened::Unmatched(label)));
    }

    fn failed(&mut self, path: PathId, _: &Path<M>) {
        self.trace.push((self.now, Happened::Failed(path)));
    }
}

impl<M> Sim<M> {
    /// An empty world at time 0, whose processor takes messages in the order of their
    /// arrival. `label` tells messages apart in the trace.
    #[must_use]
    pub fn new(seed: u64, label: fn(&M) -> u64, classify: Classifier<M>) -> Self {
        Self::with_policy(Fifo::default(), seed, label, classify)
    }
}

impl<M, P: Policy> Sim<M, P> {
    /// The same, with another order among paths.
    #[must_use]
    pub fn with_policy(
        policy: P,
        seed: u64,
        label: fn(&M) -> u64,
        classify: Classifier<M>,
    ) -> Self {
        Self {
            engine: Engine::new(policy),
            names: Names::default(),
            cost: Duration::from_micros(1),
            out: Vec::new(),
            trace: Vec::new(),
            now: Time(0),
            ids: Ids::default(),
            random: Random(seed),
            links: Vec::new(),
            connected: HashMap::new(),
            classify,
            label,
            events: BinaryHeap::new(),
            scheduled: 0,
            busy: false,
            alarm: None,
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
        self.create_sharing(path, None)
    }

    /// The same, of a path that has a share of the processor.
    ///
    /// # Errors
    ///
    /// [`Taken`] if the name is in use.
    pub fn create_sharing(
        &mut self,
        path: Path<M>,
        share: Option<Arc<ShareAccount>>,
    ) -> Result<PathId, Taken> {
        let name = path.shared_name();
        if let Some(by) = self.names.find(&name) {
            let name = name.to_string();
            return Err(Taken { name, by });
        }
        let id = self.ids.take();
        self.names.0.insert(name, id);
        self.engine.insert(id, path, (), share);
        self.record(Happened::Created(id));
        self.set_alarm();
        Ok(id)
    }

    /// Takes a path out and destroys it. What waits in its input queues ends
    /// with this fate and comes out. False if it is gone already.
    pub fn remove(&mut self, id: PathId, fate: Count) -> bool {
        let mut around = self.around(Duration::ZERO);
        self.engine.drain(id, fate, &mut around);
        self.settle(around);
        self.take(id).is_some()
    }

    /// Takes a path out with what waits in its queues.
    pub fn take(&mut self, id: PathId) -> Option<Path<M>> {
        let (path, ()) = self.engine.take(id)?;
        self.names.0.remove(path.name());
        self.ids.give_back(id);
        self.record(Happened::Removed(id));
        Some(path)
    }

    /// Puts a message on a link.
    pub fn send(&mut self, over: LinkId, message: M) {
        self.send_at(self.now, over, message);
    }

    fn send_at(&mut self, now: Time, over: LinkId, message: M) {
        let label = (self.label)(&message);
        self.trace.push((now, Happened::Sent(over, label)));
        let link = self.links[over.0];
        if self.random.below(1_000_000) < u64::from(link.lost_ppm) {
            return self.trace.push((now, Happened::Lost(over, label)));
        }
        let longest = link.jitter.as_nanos() as u64;
        let jitter = Duration::from_nanos(self.random.below(longest + 1));
        self.schedule(now + link.delay + jitter, What::Arrival(over, message));
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
                What::Alarm => self.wake(),
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
        let trail = Trail::default();
        let offered = self.engine.offer(id, direction, message, trail, self.now);
        if let Err((message, full)) = offered {
            self.record(match full {
                Full::NoPath => Happened::Unmatched(label),
                Full::Dropped(_) => Happened::Discarded(id, label),
            });
            return Err(Refused(message));
        }
        self.record(Happened::Queued(id, label));
        self.go();
        Ok(())
    }

    /// Has the processor take its next turn, unless it runs.
    fn go(&mut self) {
        if !self.busy {
            self.busy = true;
            self.schedule(self.now, What::Turn);
        }
    }

    fn arrive(&mut self, link: LinkId, message: M) {
        let label = (self.label)(&message);
        let found = (self.classify)(&self.names, link, &message);
        let Some((id, direction)) = found else {
            return self.record(Happened::Unmatched(label));
        };
        // What is refused is recorded; its buffer goes.
        let _ = self.offer(id, direction, message);
    }

    fn turn(&mut self) {
        let mut around = self.around(self.cost);
        self.busy = self.engine.turn(&mut around);
        self.engine.settle(&mut around);
        let end = around.now;
        self.settle(around);
        if self.busy {
            self.schedule(end, What::Turn);
        } else {
            self.engine.pause(&mut self.around(Duration::ZERO));
        }
        self.set_alarm();
    }

    fn wake(&mut self) {
        self.alarm = None;
        let mut around = self.around(Duration::ZERO);
        self.engine.wake(&mut around);
        self.settle(around);
        // Its share may allow a path to run.
        self.go();
        self.set_alarm();
    }

    /// Sees to it that the engine is woken. Not at this very moment, where time
    /// would stand still for a stage that always wants it.
    fn set_alarm(&mut self) {
        if let Some(time) = self.engine.due_at() {
            let soonest = self.now + Duration::from_nanos(1);
            let time = time.max(soonest);
            if self.alarm.is_none_or(|alarm| time < alarm) {
                self.alarm = Some(time);
                self.schedule(time, What::Alarm);
            }
        }
    }

    fn schedule(&mut self, at: Time, what: What<M, P>) {
        self.scheduled += 1;
        self.events.push(Reverse(Event {
            at: at.max(self.now),
            order: self.scheduled,
            what,
        }));
    }

    fn around(&self, cost: Duration) -> Around<M> {
        Around {
            now: self.now,
            cost,
            label: self.label,
            exits: Vec::new(),
            trace: Vec::new(),
        }
    }

    /// Records what came out of paths, transmits what waits in their output queues, and sends
    /// all of it on.
    fn settle(&mut self, mut around: Around<M>) {
        while let Some(output) = self.engine.take_output() {
            around.exits.push((around.now, output.path, output.exit));
        }
        self.trace.extend(around.trace);
        for (now, id, exit) in around.exits {
            match exit {
                Exit::Left {
                    direction,
                    message,
                    turned,
                } => {
                    let label = (self.label)(&message);
                    self.trace.push((now, Happened::Left(id, label)));
                    if let Some(link) = self.connected.get(&(id, direction)) {
                        self.send_at(now, *link, message);
                        continue;
                    }
                    let exit = Exit::Left {
                        direction,
                        message,
                        turned,
                    };
                    self.out.push((id, exit));
                }
                Exit::Ended {
                    ref message, fate, ..
                } => {
                    let label = (self.label)(message);
                    self.trace.push((now, Happened::Ended(id, label, fate)));
                    self.out.push((id, exit));
                }
            }
        }
    }

    fn record(&mut self, what: Happened) {
        self.trace.push((self.now, what));
    }
}

impl<M, P> PartialEq for Event<M, P> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<M, P> Eq for Event<M, P> {}

impl<M, P> PartialOrd for Event<M, P> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<M, P> Ord for Event<M, P> {
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
