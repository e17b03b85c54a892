//! Watching messages on their way.
//!
//! A path run with somebody who watches takes the same steps as one without: who
//! watches is asked for nothing, sees the message before each stage, and is told
//! of its end. A path run without has no code for it.

use ashway_abi::Count;

use crate::stage::{Direction, Stage};

/// Somebody who looks at messages on their way through a path. Called by whoever
/// runs the path: copy what is to be kept, and do not wait.
pub trait Watch<M> {
    /// This stage takes the message next.
    fn stage(&mut self, stage: &dyn Stage<M>, direction: Direction, message: &M);

    /// The stage that took the message last has answered. The message is what it
    /// gave back, if it did.
    fn answered(&mut self, _message: Option<&M>) {}

    /// A received message has ended so. Those that the path originated have no
    /// fate: they leave, or are dropped.
    fn end(&mut self, fate: Count);
}

/// Nobody watches.
#[derive(Clone, Copy, Debug)]
pub struct Nobody;

impl<M> Watch<M> for Nobody {
    fn stage(&mut self, _: &dyn Stage<M>, _: Direction, _: &M) {}
    fn end(&mut self, _: Count) {}
}
