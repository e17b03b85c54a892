//! How a message travels along a path.
//!
//! One message at a time goes from stage to stage, until it leaves or ends.
//! What stages send beside their answer is put on a stack, so that it follows
//! directly behind the answer and before anything that was put off earlier:
//! fragments of fragments stay in order. Nothing recurses, and nothing is
//! allocated for a message unless a stage sends several.
//!
//! Work is bounded: a message visits each stage at most once per direction it
//! takes, and one message (or one waking of one stage) can make at most
//! [`MAX_ORIGINATED`] others.

use ashway_abi::Count;

use super::Path;
use crate::account::{Misbehaviour, is_fate};
use crate::bug::{self, Bug};
use crate::queue::Refused;
use crate::stage::{Cx, Direction, Step};
use crate::time::Time;
use crate::watch::Watch;

/// How many messages a path makes out of one at most. The largest IPv4 datagram
/// falls into 1,366 fragments over the smallest MTU (68, RFC 791).
pub const MAX_ORIGINATED: u32 = 4096;

/// Room for messages put off that is kept from one message to the next.
const SPARE_ROOM: usize = 16;

/// How a message came out of a path.
#[derive(Debug, PartialEq, Eq)]
pub enum Exit<M> {
    /// At an end: behind the last stage going forward, before the first going
    /// backward.
    Left {
        /// The way it went.
        direction: Direction,
        /// The message.
        message: M,
        /// Whether the path originated it, by turning a message around or from
        /// nothing (ledger out); if not it was received, and its fate is
        /// [`Count::Forwarded`].
        turned: bool,
    },
    /// Within: the caller gets the buffer back, and does what the fate says
    /// (with [`Count::Passed`], gives the message to the host).
    Ended {
        /// The message.
        message: M,
        /// What became of it.
        fate: Count,
        /// Whether the path originated it (ledger out).
        turned: bool,
    },
}

/// What is on its way; empty between two calls of the path.
pub(super) struct Traffic<M> {
    /// Filled by the stage that is running.
    also: Vec<(Direction, M)>,
    /// A stack.
    put_off: Vec<Flight<M>>,
}

/// A message on its way to a stage. Positions wrap: there is no stage before
/// the first.
struct Flight<M> {
    message: M,
    to: usize,
    direction: Direction,
    turned: bool,
}

impl<M> Traffic<M> {
    pub(super) const fn new() -> Self {
        Self {
            also: Vec::new(),
            put_off: Vec::new(),
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.also.capacity() * size_of::<(Direction, M)>()
            + self.put_off.capacity() * size_of::<Flight<M>>()
    }
}

impl<M> Path<M> {
    /// Runs the stages for a message that has been received, from this stage on, or the
    /// first of its direction, and for all that they make of it.
    ///
    /// The cost is that of the stages, and a few ns for each of them (`examples/cost.rs`).
    pub(crate) fn carry(
        &mut self,
        stage: Option<u8>,
        direction: Direction,
        message: M,
        now: Time,
        watch: &mut impl Watch<M>,
        out: &mut impl FnMut(Exit<M>),
    ) {
        debug_assert!(self.established, "`{}` is not established", self.name);
        self.account.runs += 1;
        let stage = stage.map(usize::from).filter(|at| *at < self.slots.len());
        let received = Flight {
            message,
            to: stage.unwrap_or_else(|| self.entry(direction)),
            direction,
            turned: false,
        };
        let mut left = MAX_ORIGINATED;
        self.travel(received, &mut left, now, watch, out);
        self.settle(left, now, watch, out);
    }

    /// Wakes the stages whose time has come, each once, and runs what they
    /// send.
    pub(crate) fn wake(
        &mut self,
        now: Time,
        watch: &mut impl Watch<M>,
        out: &mut impl FnMut(Exit<M>),
    ) {
        for at in 0..self.slots.len() {
            let slot = &mut self.slots[at];
            if slot.wake_at.is_none_or(|time| time > now) {
                continue;
            }
            slot.wake_at = None;
            self.at = at;
            self.account.runs += 1;
            slot.stage.wake(&mut Cx {
                now,
                attrs: &mut self.attrs,
                also: &mut self.traffic.also,
                wake_at: &mut slot.wake_at,
            });
            let mut left = MAX_ORIGINATED;
            self.put_off(at, &mut left, out);
            self.settle(left, now, watch, out);
        }
    }

    /// When a stage wants to be woken. Bounded by the stages.
    #[must_use]
    pub fn wake_at(&self) -> Option<Time> {
        self.slots.iter().filter_map(|slot| slot.wake_at).min()
    }

    /// Ends a received message that no stage has.
    pub(crate) fn end_received(&mut self, fate: Count) {
        self.account.end(fate);
    }

    /// A stage has panicked: what was under way has ended with it. Gives back how many
    /// received messages that were.
    pub(crate) fn fail(&mut self) -> u64 {
        self.traffic = Traffic::new();
        self.blame(self.at, Misbehaviour::Panicked);
        let open = self.account.open() - self.waiting();
        let lost = if bug::is(Bug::PanicUncounted) {
            0
        } else {
            open
        };
        self.account.end_many(Count::DroppedFault, lost);
        self.account.ended = self.account.originated - self.account.left;
        lost
    }

    /// Where a message that comes in this way meets the first stage.
    const fn entry(&self, direction: Direction) -> usize {
        match direction {
            Direction::Forward => 0,
            Direction::Backward => self.slots.len().wrapping_sub(1),
        }
    }

    /// Runs what was put off, the latest first.
    fn settle(
        &mut self,
        mut left: u32,
        now: Time,
        watch: &mut impl Watch<M>,
        out: &mut impl FnMut(Exit<M>),
    ) {
        while let Some(flight) = self.traffic.put_off.pop() {
            self.travel(flight, &mut left, now, watch, out);
        }
        self.traffic.put_off.shrink_to(SPARE_ROOM);
        self.traffic.also.shrink_to(SPARE_ROOM);
    }

    /// Carries one message to its end. `left` is how many more may be
    /// originated.
    fn travel(
        &mut self,
        flight: Flight<M>,
        left: &mut u32,
        now: Time,
        watch: &mut impl Watch<M>,
        out: &mut impl FnMut(Exit<M>),
    ) {
        let Flight {
            mut message,
            mut to,
            mut direction,
            mut turned,
        } = flight;
        while let Some(slot) = self.slots.get_mut(to) {
            self.at = to;
            let mut cx = Cx {
                now,
                attrs: &mut self.attrs,
                also: &mut self.traffic.also,
                wake_at: &mut slot.wake_at,
            };
            watch.stage(&*slot.stage, direction, &message);
            let step = slot.stage.take(message, direction, &mut cx);
            watch.answered(step.message());
            if !self.traffic.also.is_empty() {
                self.put_off(to, left, out);
            }
            match step {
                Step::On(same) => message = same,
                Step::Back(same, fate) if is_fate(fate) && *left > 0 => {
                    *left -= 1;
                    self.end_watched(turned, fate, watch);
                    self.account.originated += 1;
                    message = same;
                    turned = !bug::is(Bug::TurnedStaysReceived);
                    direction = direction.opposite();
                }
                Step::Absorbed => return self.end_watched(turned, Count::Absorbed, watch),
                Step::End(message, fate) if is_fate(fate) || bug::is(Bug::AnyCountIsFate) => {
                    self.end_watched(turned, fate, watch);
                    return out(Exit::Ended {
                        message,
                        fate,
                        turned,
                    });
                }
                Step::Back(message, fate) | Step::End(message, fate) => {
                    let what = if is_fate(fate) {
                        Misbehaviour::Endless(MAX_ORIGINATED)
                    } else {
                        Misbehaviour::NotAFate(fate)
                    };
                    self.blame(to, what);
                    self.end_watched(turned, Count::DroppedFault, watch);
                    return out(Exit::Ended {
                        message,
                        fate: Count::DroppedFault,
                        turned,
                    });
                }
            }
            to = next(to, direction);
        }
        self.leave(message, direction, turned, watch, out);
    }

    /// Out of the path's end, or onto the output queue there.
    fn leave(
        &mut self,
        message: M,
        direction: Direction,
        turned: bool,
        watch: &mut impl Watch<M>,
        out: &mut impl FnMut(Exit<M>),
    ) {
        let queue = &mut self.outputs[direction as usize];
        if queue.maximum() > 0 {
            if let Err(Refused((message, _))) = queue.offer((message, turned)) {
                let fate = Count::DroppedQueueFull;
                self.end_watched(turned, fate, watch);
                if !bug::is(Bug::OutputSwallows) {
                    out(Exit::Ended {
                        message,
                        fate,
                        turned,
                    });
                }
                return;
            }
            self.count_left(turned, watch);
        } else {
            self.count_left(turned, watch);
            out(Exit::Left {
                direction,
                message,
                turned,
            });
        }
    }

    /// Puts off what the stage at this position sends beside its answer.
    fn put_off(&mut self, at: usize, left: &mut u32, out: &mut impl FnMut(Exit<M>)) {
        let put_off = &mut self.traffic.put_off;
        let base = put_off.len();
        let within = self.traffic.also.len().min(*left as usize);
        *left -= within as u32;
        if !bug::is(Bug::AlsoUncounted) {
            self.account.originated += within as u64;
        }
        let own = self.traffic.also.drain(..within);
        put_off.extend(own.map(|(direction, message)| Flight {
            message,
            to: next(at, direction),
            direction,
            turned: true,
        }));
        if !bug::is(Bug::AlsoReversed) {
            put_off[base..].reverse();
        }
        if !self.traffic.also.is_empty() {
            self.blame(at, Misbehaviour::Endless(MAX_ORIGINATED));
        }
        while let Some((_, message)) = self.traffic.also.pop() {
            self.account.originated += 1;
            self.fault(message, true, out);
        }
    }

    fn count_left(&mut self, turned: bool, watch: &mut impl Watch<M>) {
        if turned {
            self.account.left += 1;
        } else {
            self.account.end(Count::Forwarded);
            watch.end(Count::Forwarded);
        }
    }

    /// Ends a message that a stage may not send, or not end so.
    fn fault(&mut self, message: M, turned: bool, out: &mut impl FnMut(Exit<M>)) {
        let fate = Count::DroppedFault;
        self.end(turned, fate);
        out(Exit::Ended {
            message,
            fate,
            turned,
        });
    }

    fn blame(&mut self, at: usize, what: Misbehaviour) {
        self.account.blame(self.slots[at].stage.name(), at, what);
    }

    /// Counts the end of a message within the path, and says it.
    fn end_watched(&mut self, turned: bool, fate: Count, watch: &mut impl Watch<M>) {
        self.end(turned, fate);
        if !turned {
            watch.end(fate);
        }
    }

    /// Counts the end of a message within the path, in its ledger.
    fn end(&mut self, turned: bool, fate: Count) {
        if turned {
            self.account.ended += 1;
        } else if fate != Count::Absorbed || !bug::is(Bug::AbsorbUncounted) {
            self.account.end(fate);
        }
    }
}

/// The neighbour of the stage at this position.
fn next(at: usize, direction: Direction) -> usize {
    match direction {
        Direction::Forward if bug::is(Bug::StageSkipped) => at + 2,
        Direction::Forward => at + 1,
        Direction::Backward => at.wrapping_sub(1),
    }
}
