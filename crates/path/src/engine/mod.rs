//! The engine: runs paths.
//!
//! Messages are [offered](Engine::offer) to the input queue of their path; a
//! [policy](crate::sched) picks the path that runs next, and a [turn](Engine::turn)
//! runs some of its messages. What comes out of a path goes to the [`Shell`], which
//! may answer with the path that takes it next: then that path runs on the same turn,
//! with no other path in between (Scout §3.4: "execute a path, enter a router, and
//! then continue execution in another path"). What waits in the output queue of a path
//! does not come out before a transmitter [takes](Engine::take_output) it.
//!
//! The worker's thread and the [simulator](crate::sim) drive this same code. The
//! engine has no clock and makes no system call: the shell has them.
//!
//! * [`run`](self) and its order of events: `run.rs`
//! * timers: `alarms.rs`
//! * whose the CPU's time was: `meter.rs`

mod alarms;
mod meter;
mod run;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use ashway_abi::Count;
use ashway_abi::trusted::LAZY_MESSAGES;

use crate::bug::{self, Bug};
use crate::path::{Exit, Path, Trail};
use crate::places::{IdMap, PathId};
use crate::queue::Refused;
use crate::sched::Policy;
use crate::sched::share::ShareAccount;
use crate::stage::Direction;
use crate::time::Time;
use crate::watch::Watch;
use alarms::Alarms;
use meter::Meter;
pub use run::{ASIDE, LOOK, MAX_CROSSINGS, MAX_WOKEN, WAKING};

/// Turns in a round at most, so that whoever drives the engine looks at other things, too.
pub const ROUND: usize = 64;

/// What is around an engine: the worker, or the simulator. `M` is what messages are
/// made of, `D` what the shell keeps of each path.
pub trait Shell<M, D> {
    /// Who watches a message on its way.
    type Watch: Watch<M>;

    /// The time. Asked twice for each turn, for each [`LOOK`] messages within it, and
    /// where a message crosses to another path.
    fn now(&mut self) -> Time;

    /// The CPU time of the thread that runs the engine.
    fn cpu_time(&mut self) -> Duration;

    /// Whether the path may run now, as far as the shell knows; if not, it is asked again
    /// after [`ASIDE`].
    fn may_run(&mut self, _path: PathId, _data: &mut D) -> bool {
        true
    }

    /// Begins to watch a message that goes along `path` next, or a path that is woken. The
    /// watch is told of the fate of each received message.
    fn watch(&mut self, path: &Path<M>, data: &D, message: Option<&M>) -> Self::Watch;

    /// A message has come out of a path. The answer is where it goes on; it counts for a
    /// message that [left](Exit::Left) only.
    fn exit(&mut self, from: From<'_, D>, exit: Exit<M>) -> Option<Requeued<M>>;

    /// The message of this [ticket](Trail::ticket) has ended, or gone on.
    fn done(&mut self, ticket: NonZeroU32);

    /// The path has run: a message went along it, or a timer of it was due.
    fn ran(&mut self, path: PathId, body: &mut Path<M>, data: &mut D);

    /// A path's share has been charged, or has run out.
    fn charged(&mut self, _path: PathId, _data: &D, _share: &ShareAccount) {}

    /// The path that a message was to go on to is gone.
    fn stray(&mut self, message: M, trail: Trail);

    /// A stage of the path has panicked. The path runs no more; its messages have ended
    /// as [`Count::DroppedFault`].
    fn failed(&mut self, path: PathId, body: &Path<M>);
}

/// Where a message comes from that has left a path.
#[derive(Debug)]
pub struct From<'a, D> {
    /// The path.
    pub path: PathId,
    /// What the shell keeps of it.
    pub data: &'a D,
    /// Where the message has been, this path included.
    pub trail: Trail,
}

/// A message that has waited in a path's output queue.
#[derive(Debug)]
pub struct Output<'a, M, D> {
    /// The path.
    pub path: PathId,
    /// What the shell keeps of it.
    pub data: &'a D,
    /// How it left the path.
    pub exit: Exit<M>,
}

/// A message that goes on along another path.
#[derive(Debug)]
pub struct Requeued<M> {
    /// The path.
    pub path: PathId,
    /// The way it goes there.
    pub direction: Direction,
    /// The message.
    pub message: M,
    /// Its [ticket](Trail::ticket) for that path.
    pub ticket: Option<NonZeroU32>,
}

/// The paths that one thread runs.
pub struct Engine<M, D, P> {
    entries: IdMap<Box<Entry<M, D>>>,
    policy: P,
    alarms: Alarms,
    /// Paths whose share is used up, and until when.
    parked: Alarms,
    /// Paths that could not run, and when they are tried again.
    aside: Alarms,
    /// Paths with messages in output queues, the next to be taken from first.
    outgoing: VecDeque<PathId>,
    /// An output queue is half full or more, and was not taken from since.
    pressed: bool,
    meter: Meter,
    /// The path that uses time, and since when.
    current: Option<PathId>,
    mark: Time,
    /// What runs, so that a panic has a name.
    running: Option<run::Running>,
    /// Messages on their way to the next path; empty between two calls.
    crossing: VecDeque<run::Crossing<M>>,
    waiting: u64,
    strays: u64,
    circles: u64,
}

/// A path, and what is kept of it.
#[expect(
    clippy::struct_excessive_bools,
    reason = "facts that do not depend on each other"
)]
struct Entry<M, D> {
    path: Path<M>,
    data: D,
    share: Option<Arc<ShareAccount>>,
    /// How many messages it has said to wait for the share.
    reported: u32,
    /// The host's stack has a copy of what comes to it.
    host_copy: bool,
    /// It waits for its share.
    parked: bool,
    /// It waits for what a stage of it has in common with others, or for the shell.
    aside: bool,
    /// A stage of it has panicked.
    failed: bool,
    /// It is in the list of those with messages in output queues.
    outgoing: bool,
}

/// Why a message was not queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// There is no such path; nobody has counted the message.
    NoPath,
    /// The queue is full, or the path's share is used up, or the path has failed. The
    /// path has counted the message as received, with this fate.
    Dropped(Count),
}

/// What is alive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Paths.
    pub paths: usize,
    /// Their stages.
    pub stages: usize,
    /// Messages in input queues.
    pub waiting: u64,
    /// Bytes that the paths have allocated.
    pub memory_bytes: usize,
    /// Messages that were to go on into a path that was gone.
    pub strays: u64,
    /// Messages dropped because paths led into each other in a circle.
    pub circles: u64,
}

impl<M, D, P: Policy> Engine<M, D, P> {
    /// No paths.
    #[must_use]
    pub fn new(policy: P) -> Self {
        Self {
            entries: IdMap::new(),
            policy,
            alarms: Alarms::default(),
            parked: Alarms::default(),
            aside: Alarms::default(),
            outgoing: VecDeque::new(),
            pressed: false,
            meter: Meter::default(),
            current: None,
            mark: Time::default(),
            running: None,
            crossing: VecDeque::new(),
            waiting: 0,
            strays: 0,
            circles: 0,
        }
    }

    /// Takes in an established path, which no message has met, under an id that no
    /// other path has. O(log n).
    pub fn insert(&mut self, id: PathId, path: Path<M>, data: D, share: Option<Arc<ShareAccount>>) {
        let entry = Entry {
            path,
            data,
            share,
            reported: 0,
            host_copy: false,
            parked: false,
            aside: false,
            failed: false,
            outgoing: false,
        };
        self.entries.put(id, Box::new(entry));
        self.arm(id, Time::default());
    }

    /// Takes a path out, and ends what waits in its queues with this fate. O(1), and
    /// the messages that wait. `None` if there is none.
    ///
    /// # Panics
    ///
    /// If `fate` is not one.
    pub fn remove<S: Shell<M, D>>(
        &mut self,
        id: PathId,
        fate: Count,
        shell: &mut S,
    ) -> Option<(Path<M>, D)> {
        self.drain(id, fate, shell);
        self.take(id)
    }

    /// Takes a path out with the messages that wait in its queues, so that another can
    /// have them. O(1). `None` if there is none.
    pub fn take(&mut self, id: PathId) -> Option<(Path<M>, D)> {
        let entry = self.entries.remove(id)?;
        self.waiting -= entry.path.waiting();
        self.policy.removed(id);
        self.alarms.remove(id);
        self.parked.remove(id);
        self.aside.remove(id);
        let Entry { path, data, .. } = *entry;
        Some((path, data))
    }

    /// Gives each path that has messages a turn, up to [`ROUND`] of them, and fewer if an
    /// output queue fills: what is in it is to be taken first. False if none had one that may
    /// run.
    pub fn round<S: Shell<M, D>>(&mut self, shell: &mut S) -> bool {
        // Whoever spins asks again and again: without work the clock is not looked at.
        if self.policy.ready() == 0 && self.parked.is_empty() && self.aside.is_empty() {
            return false;
        }
        let turns = self.policy.ready().clamp(1, ROUND);
        let ran = (0..turns).take_while(|turns| (*turns == 0 || !self.pressed) && self.turn(shell));
        ran.count() > 0
    }

    /// Takes a message that waits in an output queue, to be transmitted. The paths that have
    /// some take turns, a message each; those of a path stay in their order. O(1).
    pub fn take_output(&mut self) -> Option<Output<'_, M, D>> {
        // A path may have gone since, or its queue been emptied.
        let path = loop {
            let Some(path) = self.outgoing.pop_front() else {
                self.pressed = false;
                return None;
            };
            let Some(entry) = self.entries.at_mut(path) else {
                continue;
            };
            entry.outgoing = false;
            if entry.path.has_output() {
                break path;
            }
        };
        let entry = self.entries.at_mut(path)?;
        let exit = entry.path.take_output()?;
        if entry.path.has_output() {
            entry.outgoing = true;
            if bug::is(Bug::OutputUnfair) {
                self.outgoing.push_front(path);
            } else {
                self.outgoing.push_back(path);
            }
        }
        let data = &entry.data;
        Some(Output { path, data, exit })
    }

    /// Queues a message that is received by a path. Constant time, does not allocate
    /// unless more messages wait than ever before; no stage runs.
    ///
    /// # Errors
    ///
    /// [`Full`], and the message: early discard.
    pub fn offer(
        &mut self,
        id: PathId,
        direction: Direction,
        message: M,
        trail: Trail,
        now: Time,
    ) -> Result<(), (M, Full)> {
        let Some(entry) = self.entries.at_mut(id) else {
            return Err((message, Full::NoPath));
        };
        if let Err(fate) = entry.admits(now) {
            self.refuse(id, fate);
            return Err((message, Full::Dropped(fate)));
        }
        if let Err(Refused(message)) = entry.path.enqueue(direction, message, trail) {
            self.meter.used(Some(id), Duration::ZERO, 1);
            return Err((message, Full::Dropped(Count::DroppedQueueFull)));
        }
        self.waiting += 1;
        if entry.parked {
            entry.report(entry.path.waiting());
        } else if !entry.aside {
            self.policy.arrived(id, direction, now);
        }
        Ok(())
    }

    /// Whether [`Engine::offer`] would queue a message now, so that it need not be
    /// made for nothing.
    ///
    /// # Errors
    ///
    /// The fate that the message would have; for a path that is not there, none.
    pub fn admits(&mut self, id: PathId, direction: Direction, now: Time) -> Result<(), Count> {
        let Some(entry) = self.entries.at_mut(id) else {
            return Ok(());
        };
        entry.admits(now)?;
        let queue = entry.path.input(direction);
        if queue.len() < queue.maximum() as usize {
            Ok(())
        } else {
            Err(Count::DroppedQueueFull)
        }
    }

    /// Counts a message that [`Engine::admits`] has refused.
    pub fn refuse(&mut self, id: PathId, fate: Count) {
        if let Some(entry) = self.entries.at_mut(id) {
            entry.path.refuse(fate);
            self.meter.used(Some(id), Duration::ZERO, 1);
        }
    }

    /// How many messages of a path wait for nothing but their turn, or for a moment.
    #[must_use]
    pub fn backlog(&self, id: PathId) -> u64 {
        let entry = self.entries.at(id);
        let entry = entry.filter(|entry| entry.has_work() || entry.aside);
        entry.map_or(0, |entry| entry.path.waiting())
    }

    /// Whether a path could not run and is tried again soon.
    #[must_use]
    pub fn sets_aside(&self) -> bool {
        self.aside.next().is_some()
    }

    /// Ends what waits in a path's queues with this fate.
    pub(crate) fn drain<S: Shell<M, D>>(&mut self, id: PathId, fate: Count, shell: &mut S) {
        let Some(entry) = self.entries.at_mut(id) else {
            return;
        };
        entry.report(0);
        let Entry { path, data, .. } = &mut **entry;
        for direction in [Direction::Forward, Direction::Backward] {
            while let Some((message, trail)) = path.dequeue(direction) {
                self.waiting -= 1;
                path.end_received(fate);
                shell.watch(path, data, Some(&message)).end(fate);
                show(id, data, trail, ended(message, fate), shell);
                if let Some(ticket) = trail.ticket
                    && !bug::is(Bug::TicketLost)
                {
                    shell.done(ticket);
                }
            }
            while let Some(exit) = path.take(direction) {
                show(id, data, Trail::default(), exit, shell);
            }
        }
    }

    /// The path of this id.
    #[must_use]
    pub fn path(&self, id: PathId) -> Option<&Path<M>> {
        self.entries.at(id).map(|entry| &entry.path)
    }

    /// The path of this id, to be changed, and what the shell keeps of it.
    pub fn path_mut(&mut self, id: PathId) -> Option<(&mut Path<M>, &mut D)> {
        let entry = self.entries.at_mut(id)?;
        Some((&mut entry.path, &mut entry.data))
    }

    /// What the shell keeps of a path.
    #[must_use]
    pub fn data(&self, id: PathId) -> Option<&D> {
        self.entries.at(id).map(|entry| &entry.data)
    }

    /// The share of a path that has one.
    #[must_use]
    pub fn share(&self, id: PathId) -> Option<&Arc<ShareAccount>> {
        self.entries.at(id)?.share.as_ref()
    }

    /// Says whether the host's stack has a copy of what comes to a path.
    pub fn set_host_copy(&mut self, id: PathId, host_copy: bool) {
        if let Some(entry) = self.entries.at_mut(id) {
            entry.host_copy = host_copy;
        }
    }

    /// Lets all queued messages run, and those that come from now on, whatever their
    /// paths have used: nobody will wait any more.
    pub fn open_shares(&mut self, now: Time) {
        let shared = self.entries.iter();
        let shared = shared.filter_map(|(id, entry)| Some((id, entry.share.as_ref()?)));
        let ids: Vec<PathId> = shared
            .map(|(id, share)| (share.set_open(true), id).1)
            .collect();
        for id in ids {
            self.look_at_share(id, now);
        }
    }

    /// Somebody has opened a path's share: what waits for it may run `now`.
    pub fn look_at_share(&mut self, id: PathId, now: Time) {
        let parked = self.entries.at(id).is_some_and(|entry| entry.parked);
        if parked && !bug::is(Bug::OpenShareForgotten) {
            self.parked.set(id, now);
        }
    }

    /// All paths, in no order that means anything.
    pub fn iter(&self) -> impl Iterator<Item = (PathId, &Path<M>)> {
        self.entries.iter().map(|(id, entry)| (id, &entry.path))
    }

    /// How many paths there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no path.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Messages in the input queues of all paths.
    #[must_use]
    pub const fn waiting(&self) -> u64 {
        self.waiting
    }

    /// What is alive. Walks all paths and stages.
    #[must_use]
    pub fn census(&self) -> Census {
        let mut census = Census {
            paths: self.len(),
            strays: self.strays,
            circles: self.circles,
            ..Census::default()
        };
        for (_, path) in self.iter() {
            census.stages += path.len();
            census.waiting += path.waiting();
            census.memory_bytes += path.memory_bytes();
        }
        census
    }
}

impl<M, D> Entry<M, D> {
    /// Whether a message may be queued, as far as the path's share goes.
    fn admits(&self, now: Time) -> Result<(), Count> {
        if self.failed {
            return Err(Count::DroppedFault);
        }
        // What waits for a share has little room, at all paths that have it in common: to
        // wait longer would not help.
        let Some(share) = self.share.as_ref().filter(|share| !share.is_open()) else {
            return Ok(());
        };
        let others = if bug::is(Bug::RoomForEach) {
            0
        } else {
            share.queued()
        };
        let waiting = u64::from(others).max(self.path.waiting());
        if waiting >= u64::from(LAZY_MESSAGES)
            && !bug::is(Bug::WaitsWithoutBound)
            && (self.parked || !share.may_run(now.0))
        {
            return Err(Count::DroppedOverShare);
        }
        Ok(())
    }

    /// Says that so many of its messages wait for the share.
    fn report(&mut self, waiting: u64) {
        if let Some(share) = &self.share {
            let before = std::mem::replace(&mut self.reported, waiting as u32);
            share.report(before, self.reported);
        }
    }
}

impl<M, D, P: Policy + Default> Default for Engine<M, D, P> {
    fn default() -> Self {
        Self::new(P::default())
    }
}

/// A received message that no stage has seen the end of.
const fn ended<M>(message: M, fate: Count) -> Exit<M> {
    Exit::Ended {
        message,
        fate,
        turned: false,
    }
}

/// Shows the shell a message that goes nowhere else.
fn show<M, D, S: Shell<M, D>>(path: PathId, data: &D, trail: Trail, exit: Exit<M>, shell: &mut S) {
    shell.exit(From { path, data, trail }, exit);
}
