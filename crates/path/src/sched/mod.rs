//! Scheduling: which path runs next, and for how long.
//!
//! The [engine](crate::engine) tells the policy of each message that it has put on
//! an input queue, asks for the next turn, and says how long the turn took. A
//! policy sees ids and times only: no message, no clock.
//!
//! Source: Scout §3.4, whose scheduler runs paths, not modules.

pub mod drr;
pub mod fifo;
pub mod share;

use std::time::Duration;

use crate::places::PathId;
use crate::stage::Direction;
use crate::time::Time;

/// A path's permission to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The path.
    pub path: PathId,
    /// The input queue to take from; `None`: both, alternately.
    pub direction: Option<Direction>,
    /// How many messages at most.
    pub messages: u32,
    /// How long at most, but for the message that is under way when that is over.
    pub time: Duration,
}

/// An order among paths that have messages. Each call takes constant time unless
/// the policy says otherwise.
pub trait Policy {
    /// A message was put on this input queue.
    fn arrived(&mut self, path: PathId, direction: Direction, now: Time);

    /// The next turn; `None` if no path has a message. Each turn is followed by
    /// [`Policy::ended`].
    fn pick(&mut self, now: Time) -> Option<Turn>;

    /// How many paths have messages, or more.
    fn ready(&self) -> usize;

    /// A turn has ended. `more`: the path still has messages and may run.
    fn ended(&mut self, turn: Turn, took: Duration, more: bool);

    /// A path has used time outside its turns: its timers were due.
    fn used(&mut self, path: PathId, time: Duration);

    /// A path is gone. Its id may still come up until the policy has skipped it.
    fn removed(&mut self, path: PathId);
}
