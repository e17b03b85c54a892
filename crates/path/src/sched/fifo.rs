//! First in, first out: messages run in the order in which they arrived, whatever
//! their path and whatever they cost.
//!
//! The policy of the simulator unless a test asks for another. Not for a node: a
//! path whose messages are expensive has as much of the CPU as it likes.

use std::collections::VecDeque;
use std::time::Duration;

use super::{Policy, Turn};
use crate::places::PathId;
use crate::stage::Direction;
use crate::time::Time;

/// One entry for each message that waits.
#[derive(Debug, Default)]
pub struct Fifo {
    arrivals: VecDeque<(PathId, Direction)>,
}

impl Policy for Fifo {
    fn arrived(&mut self, path: PathId, direction: Direction, _now: Time) {
        self.arrivals.push_back((path, direction));
    }

    fn pick(&mut self, _now: Time) -> Option<Turn> {
        let (path, direction) = self.arrivals.pop_front()?;
        Some(Turn {
            path,
            direction: Some(direction),
            messages: 1,
            time: Duration::MAX,
        })
    }

    fn ready(&self) -> usize {
        self.arrivals.len()
    }

    fn ended(&mut self, _turn: Turn, _took: Duration, _more: bool) {}

    fn used(&mut self, _path: PathId, _time: Duration) {}

    /// Its entries stay: the engine finds no such path, and picks again.
    fn removed(&mut self, _path: PathId) {}
}
