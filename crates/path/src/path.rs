//! Paths: stages in a row, with queues, attributes and an account.
//!
//! Combining, establishing and taking down are here; how a message travels is
//! in `travel`.
//!
//! Source: Scout §3.2 (path object) and §3.3 (creation, phases 2 and 3).

use std::num::NonZeroU32;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use ashway_abi::Count;

use crate::account::Account;
use crate::attrs::{Attrs, Name, Value};
use crate::bug::{self, Bug};
use crate::create::MAX_STAGES;
use crate::demand;
use crate::queue::{Queue, Refused};
use crate::stage::{Direction, Stage};
use crate::time::Time;

#[cfg(test)]
mod tests;
mod travel;

pub use travel::{Exit, MAX_ORIGINATED};

/// A message in an input queue, and where it has been.
type Queued<M> = (M, Trail);

/// What a path may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest lengths of the queues, in messages: input forward, input
    /// backward, output forward, output backward. 0: there is no queue; nothing
    /// can be offered there, and what leaves there leaves at once.
    pub queue: [u32; 4],
    /// The memory grant, in bytes: the path, its stages, what they ask for, and
    /// its queues when full. Buffers of messages are not part of it.
    pub memory_bytes: usize,
}

/// Input queues of 32 messages, no output queues, 64 KiB.
impl Default for Limits {
    fn default() -> Self {
        Self {
            queue: [32, 32, 0, 0],
            memory_bytes: 64 << 10,
        }
    }
}

/// A path through the modules of a graph. `M` is what messages are made of: a
/// handle to a buffer, which all stages share.
///
/// Between `establish` and the end of its life an [engine](crate::engine) may run
/// messages along it; doing so before is the caller's mistake, and panics in debug
/// builds. Dropping it destroys its stages, last first.
pub struct Path<M> {
    name: Arc<str>,
    slots: Vec<Slot<M>>,
    /// The stages that have to be acquired: a bit for each position.
    acquires: u64,
    attrs: Attrs,
    inputs: [Queue<Queued<M>>; 2],
    /// The input queue that was served last.
    served: Direction,
    /// With whether the path originated the message.
    outputs: [Queue<(M, bool)>; 2],
    traffic: travel::Traffic<M>,
    account: Account,
    /// The stage that runs, or ran last.
    at: usize,
    established: bool,
}

/// Where a message has been before it came to a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trail {
    /// Paths that it went along.
    pub paths: u8,
    /// The host's stack has a copy of what it came as.
    pub host_copy: bool,
    /// The stage that it enters at, if another tier has done those before it.
    pub stage: Option<u8>,
    /// What the engine's shell gets back when the message has left the path that it was
    /// given for.
    pub ticket: Option<NonZeroU32>,
}

/// A stage and when it wants to be woken.
struct Slot<M> {
    stage: Box<dyn Stage<M>>,
    wake_at: Option<Time>,
}

/// A path that needs more memory than it is granted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "path `{path}` needs {needed_bytes} bytes of memory and is granted {granted_bytes}; \
     most of it goes to {largest} ({largest_bytes} bytes)"
)]
pub struct TooMuch {
    /// The path.
    pub path: String,
    /// What it would need.
    pub needed_bytes: usize,
    /// What it may have.
    pub granted_bytes: usize,
    /// What needs most of it.
    pub largest: String,
    /// How much that needs.
    pub largest_bytes: usize,
}

/// A stage that could not be established. Those that had been were destroyed,
/// last first.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stage `{name}` at position {stage} cannot be established: {because}")]
pub struct NotEstablished {
    /// Its position in the path.
    pub stage: usize,
    /// Its name.
    pub name: String,
    /// What it says.
    pub because: String,
}

/// Why stages could not be replaced; the path is as it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotReplaced {
    /// The path would outgrow its memory grant.
    #[error(transparent)]
    TooMuch(#[from] TooMuch),
    /// A new stage could not be established.
    #[error(transparent)]
    NotEstablished(#[from] NotEstablished),
}

impl<M> Path<M> {
    /// Combines stages into a path (Scout's second phase). First is where it
    /// was created, last is where creation ended.
    ///
    /// # Errors
    ///
    /// [`TooMuch`] if the memory grant does not suffice; the stages, not
    /// established, are dropped.
    pub fn assemble(
        name: &str,
        stages: Vec<Box<dyn Stage<M>>>,
        attrs: Attrs,
        limits: Limits,
    ) -> Result<Self, TooMuch> {
        let slots: Vec<_> = stages.into_iter().map(Slot::new).collect();
        let [forward, backward, out_forward, out_backward] = limits.queue;
        let mut path = Self {
            name: name.into(),
            acquires: acquiring(&slots),
            slots,
            attrs,
            inputs: [Queue::new(forward), Queue::new(backward)],
            served: Direction::Backward,
            outputs: [Queue::new(out_forward), Queue::new(out_backward)],
            traffic: travel::Traffic::new(),
            account: Account::default(),
            at: 0,
            established: false,
        };
        path.account.granted_bytes = limits.memory_bytes;
        path.grant()?;
        Ok(path)
    }

    /// Establishes the stages in their order (Scout's third phase).
    ///
    /// # Errors
    ///
    /// [`NotEstablished`] by the first stage that cannot; those before it are
    /// destroyed, last first, and the attributes are what they were.
    pub fn establish(&mut self) -> Result<(), NotEstablished> {
        let before = self.attrs.clone();
        let established = self.establish_new();
        if established.is_err() {
            self.attrs = before;
        }
        established
    }

    /// The same for a path that is dropped if it cannot be: its attributes are then whatever
    /// the stages left.
    pub(crate) fn establish_new(&mut self) -> Result<(), NotEstablished> {
        if !self.established {
            establish(&mut self.slots, 0, &mut self.attrs)?;
            self.established = true;
        }
        Ok(())
    }

    /// Replaces some of the stages by others, as rules do; what waits in the
    /// queues stays. The new ones are established before the old ones are
    /// destroyed (last first), because only so the old can stay if the new
    /// cannot work; wake-ups of the old are forgotten.
    ///
    /// # Errors
    ///
    /// [`NotReplaced`]; the path and its attributes are as before.
    ///
    /// # Panics
    ///
    /// If the range is not within the stages.
    pub fn replace(
        &mut self,
        range: Range<usize>,
        with: Vec<Box<dyn Stage<M>>>,
    ) -> Result<(), NotReplaced> {
        assert!(range.start <= range.end && range.end <= self.len());
        let (at, added) = (range.start, with.len());
        let mut new: Vec<Slot<M>> = with.into_iter().map(Slot::new).collect();
        // Only new stages that are established change attributes.
        let mut before = None;
        if self.established && added > 0 {
            let attrs = self.attrs.clone();
            if let Err(failed) = establish(&mut new, at, &mut self.attrs) {
                self.attrs = attrs;
                return Err(failed.into());
            }
            before = Some(attrs);
        }
        let mut other: Vec<Slot<M>> = self.slots.splice(range, new).collect();
        let granted = self.grant();
        if granted.is_err() {
            other = self.slots.splice(at..at + added, other).collect();
            if !bug::is(Bug::ReplaceLeavesAttrs)
                && let Some(before) = before
            {
                self.attrs = before;
            }
        }
        self.acquires = acquiring(&self.slots);
        if self.established && !bug::is(Bug::ReplaceForgetsOld) {
            destroy(&mut other);
        }
        Ok(granted?)
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name, to keep.
    #[must_use]
    pub fn shared_name(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }

    /// Whether messages may travel it.
    #[must_use]
    pub const fn is_established(&self) -> bool {
        self.established
    }

    /// Its stages, first to last.
    #[must_use]
    pub fn stages(&self) -> impl DoubleEndedIterator<Item = &dyn Stage<M>> {
        self.slots.iter().map(|slot| &*slot.stage)
    }

    /// How many stages it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether it has no stage.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The stage at this position, if it is of this type: for rules that move
    /// what a stage knows into another.
    pub fn stage_as<S: Stage<M> + 'static>(&mut self, stage: usize) -> Option<&mut S> {
        self.slots.get_mut(stage)?.stage.as_any().downcast_mut()
    }

    /// Its attributes.
    #[must_use]
    pub const fn attrs(&self) -> &Attrs {
        &self.attrs
    }

    /// Its attributes, to be changed from outside.
    pub const fn attrs_mut(&mut self) -> &mut Attrs {
        &mut self.attrs
    }

    /// What must be true of a frame for it to come up this path: the stages'
    /// parts, in pcap-filter words. `None` if no stage has one.
    #[must_use]
    pub fn filter(&self) -> Option<String> {
        let mut all = Vec::new();
        for stage in self.stages() {
            stage.demands(&mut all);
        }
        demand::in_words(&all)
    }

    /// Receives a message on the input queue of this direction.
    ///
    /// # Errors
    ///
    /// Early discard: if the queue is full, or not there, the message comes
    /// back. It is counted as received and as [`Count::DroppedQueueFull`].
    pub(crate) fn enqueue(
        &mut self,
        direction: Direction,
        message: M,
        trail: Trail,
    ) -> Result<(), Refused<M>> {
        self.account.receive();
        self.inputs[direction as usize]
            .offer((message, trail))
            .map_err(|Refused((message, _))| {
                if !bug::is(Bug::DiscardUncounted) {
                    self.account.end(Count::DroppedQueueFull);
                }
                Refused(message)
            })
    }

    /// Takes the message that has waited longest in the input queue of this direction.
    pub(crate) fn dequeue(&mut self, direction: Direction) -> Option<(M, Trail)> {
        self.served = direction;
        self.inputs[direction as usize].take()
    }

    /// The input queue to be served next: they take turns.
    pub(crate) fn next_input(&self) -> Option<Direction> {
        let next = self.served.opposite();
        [next, self.served]
            .into_iter()
            .find(|direction| !self.inputs[*direction as usize].is_empty())
    }

    /// Has the stages take what they have in common with others, all or none; whether they
    /// could.
    pub(crate) fn acquire(&mut self) -> bool {
        let mut left = self.acquires;
        while left != 0 {
            let at = left.trailing_zeros();
            if !self.slots[at as usize].stage.acquire() {
                self.release_all(self.acquires ^ left);
                return false;
            }
            left &= left - 1;
        }
        true
    }

    /// Has them give it back.
    pub(crate) fn release(&mut self) {
        if bug::is(Bug::StageNotReleased) {
            return;
        }
        self.release_all(self.acquires);
    }

    fn release_all(&mut self, mut left: u64) {
        while left != 0 {
            self.slots[left.trailing_zeros() as usize].stage.release();
            left &= left - 1;
        }
    }

    /// Receives a message and ends it before any stage has run.
    pub(crate) fn refuse(&mut self, fate: Count) {
        self.account.receive();
        self.account.end(fate);
    }

    /// A message that the path has ended as passed was not taken by the host's stack, or there
    /// is none: this is its fate. Whoever looks between the two sees it as passed.
    ///
    /// # Panics
    ///
    /// In a debug build, if none has passed.
    pub fn pass_failed(&mut self, fate: Count) {
        self.account.pass_failed(fate);
    }

    /// Receives a message past the queues.
    pub(crate) fn receive(&mut self) {
        self.account.receive();
    }

    /// The input queue of this direction.
    #[must_use]
    pub const fn input(&self, direction: Direction) -> &Queue<(M, Trail)> {
        &self.inputs[direction as usize]
    }

    /// The output queue of this direction: messages that have left, and whether
    /// the path originated them.
    #[must_use]
    pub const fn output(&self, direction: Direction) -> &Queue<(M, bool)> {
        &self.outputs[direction as usize]
    }

    /// Takes what has waited longest in the output queue of this direction.
    pub(crate) fn take(&mut self, direction: Direction) -> Option<Exit<M>> {
        let (message, turned) = self.outputs[direction as usize].take()?;
        Some(Exit::Left {
            direction,
            message,
            turned,
        })
    }

    /// Takes the next message of the output queues, those that left forward first.
    pub(crate) fn take_output(&mut self) -> Option<Exit<M>> {
        let forward = self.take(Direction::Forward);
        forward.or_else(|| self.take(Direction::Backward))
    }

    /// Whether an output queue holds a message.
    pub(crate) fn has_output(&self) -> bool {
        self.outputs.iter().any(|queue| !queue.is_empty())
    }

    /// Whether an output queue is at least half full: a further message may find no room for
    /// all that the stages make of it.
    pub(crate) fn output_presses(&self) -> bool {
        let full = |queue: &Queue<_>| 2 * queue.len() >= queue.maximum() as usize;
        self.outputs
            .iter()
            .any(|queue| !queue.is_empty() && full(queue))
    }

    /// Messages received that have no fate yet.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        self.inputs.iter().map(|queue| queue.len() as u64).sum()
    }

    /// What the path may use.
    #[must_use]
    pub const fn limits(&self) -> Limits {
        Limits {
            queue: [
                self.inputs[0].maximum(),
                self.inputs[1].maximum(),
                self.outputs[0].maximum(),
                self.outputs[1].maximum(),
            ],
            memory_bytes: self.account.granted_bytes,
        }
    }

    /// Changes what the path may use. A queue does not become shorter than what
    /// waits in it: [`Path::limits`] says what it came to.
    ///
    /// # Errors
    ///
    /// [`TooMuch`] if the memory grant does not suffice; nothing is changed.
    pub fn limit(&mut self, limits: Limits) -> Result<(), TooMuch> {
        let before = self.limits();
        self.set_limits(limits);
        self.grant().inspect_err(|_| self.set_limits(before))
    }

    fn set_limits(&mut self, limits: Limits) {
        let [forward, backward, out_forward, out_backward] = limits.queue;
        self.inputs[0].resize(forward);
        self.inputs[1].resize(backward);
        self.outputs[0].resize(out_forward);
        self.outputs[1].resize(out_backward);
        self.account.granted_bytes = limits.memory_bytes;
    }

    /// Its books.
    #[must_use]
    pub const fn account(&self) -> &Account {
        &self.account
    }

    /// Charges execution time to it.
    pub fn charge(&mut self, time: Duration) {
        self.account.time += time;
    }

    /// Gives back the room that its creation needed and its life does not.
    pub(crate) fn shrink(&mut self) {
        self.slots.shrink_to_fit();
        self.attrs.shrink();
    }

    /// Bytes that it has allocated now, itself included.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let queues: usize = self.inputs.iter().map(Queue::memory_bytes).sum::<usize>()
            + self.outputs.iter().map(Queue::memory_bytes).sum::<usize>();
        self.fixed_bytes() + queues + self.traffic.memory_bytes()
    }

    /// The path without its queues, its stages apart.
    fn own_bytes(&self) -> usize {
        size_of::<Self>() + self.name.len() + self.attrs.iter().count() * size_of::<(Name, Value)>()
    }

    /// The path without its queues.
    fn fixed_bytes(&self) -> usize {
        self.own_bytes() + self.slots.iter().map(Slot::memory_bytes).sum::<usize>()
    }

    /// Checks what the path may come to need against its grant, and notes it.
    fn grant(&mut self) -> Result<(), TooMuch> {
        let messages = |at: usize| self.limits().queue[at] as usize;
        let queues = (messages(0) + messages(1)) * size_of::<Queued<M>>()
            + (messages(2) + messages(3)) * size_of::<(M, bool)>();
        let needed_bytes = self.fixed_bytes() + queues;
        let granted_bytes = self.account.granted_bytes;
        if needed_bytes <= granted_bytes {
            self.account.memory_bytes = needed_bytes;
            return Ok(());
        }
        let parts = [
            (queues, "its queues".to_owned()),
            (self.own_bytes(), "the path itself".to_owned()),
        ];
        let stages = self.slots.iter().map(|slot| {
            (
                slot.memory_bytes(),
                format!("stage `{}`", slot.stage.name()),
            )
        });
        let (largest_bytes, largest) = stages.chain(parts).max().unwrap_or_default();
        Err(TooMuch {
            path: self.name.to_string(),
            needed_bytes,
            granted_bytes,
            largest,
            largest_bytes,
        })
    }
}

impl<M> Drop for Path<M> {
    fn drop(&mut self) {
        if self.established {
            destroy(&mut self.slots);
        }
    }
}

impl<M> Slot<M> {
    fn new(stage: Box<dyn Stage<M>>) -> Self {
        Self {
            stage,
            wake_at: None,
        }
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.stage) + self.stage.memory_bytes()
    }
}

/// The stages that have to be acquired: a bit for each position.
fn acquiring<M>(slots: &[Slot<M>]) -> u64 {
    const { assert!(MAX_STAGES <= u64::BITS as usize) };
    let bit = |slot: &Slot<M>| u64::from(slot.stage.traits().acquires);
    let bits = (0..).zip(slots).map(|(at, slot)| bit(slot) << at);
    bits.fold(0_u64, |all, bit| all | bit)
}

/// Establishes in order; on failure destroys what was, last first.
fn establish<M>(
    slots: &mut [Slot<M>],
    first: usize,
    attrs: &mut Attrs,
) -> Result<(), NotEstablished> {
    for at in 0..slots.len() {
        if let Err(because) = slots[at].stage.establish(attrs) {
            let from = usize::from(bug::is(Bug::UnwindForgetsFirst)).min(at);
            destroy(&mut slots[from..at]);
            return Err(NotEstablished {
                stage: first + at,
                name: slots[at].stage.name().to_owned(),
                because,
            });
        }
        if slots[at].stage.traits().starts {
            slots[at].wake_at = Some(Time::default());
        }
    }
    Ok(())
}

fn destroy<M>(slots: &mut [Slot<M>]) {
    for slot in slots.iter_mut().rev() {
        slot.stage.destroy();
    }
}
