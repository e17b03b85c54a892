//! Stages: what one module contributes to one path.
//!
//! A message comes to a stage from one of its two neighbours, and the stage
//! says by its return value what becomes of it: there is no way to call anybody
//! but the neighbours, and none to call them at the wrong time (Scout §3.2,
//! "interfaces only to adjacent stages", by construction).
//!
//! ```
//! use ashway_path::stage::{Cx, Direction, Stage, Step};
//!
//! struct Neighbour;
//!
//! impl Stage<u32> for Neighbour {
//!     fn name(&self) -> &str {
//!         "neighbour"
//!     }
//!     fn take(&mut self, message: u32, _: Direction, _: &mut Cx<'_, u32>) -> Step<u32> {
//!         Step::On(message)
//!     }
//!     fn as_any(&mut self) -> &mut dyn std::any::Any {
//!         self
//!     }
//! }
//! ```
//!
//! Skipping a stage does not compile, because there is no path to name it on:
//!
//! ```compile_fail,E0609
//! # use ashway_path::stage::{Cx, Direction, Stage, Step};
//! # struct Skips;
//! # impl Stage<u32> for Skips {
//! #     fn name(&self) -> &str {
//! #         "skips"
//! #     }
//!     fn take(&mut self, message: u32, direction: Direction, cx: &mut Cx<'_, u32>) -> Step<u32> {
//!         cx.path.stage(3).take(message, direction, cx)
//!     }
//! #     fn as_any(&mut self) -> &mut dyn std::any::Any {
//! #         self
//! #     }
//! # }
//! ```

use ashway_abi::Count;

use crate::attrs::Attrs;
use crate::demand::{self, Demand};
use crate::module::Kind;
use crate::time::Time;

/// Which way a message travels. A path is created from its first stage to its
/// last; that is forward (Scout's FWD and BWD).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the first stage to the last.
    Forward,
    /// From the last stage to the first.
    Backward,
}

impl Direction {
    /// The other one.
    #[must_use]
    pub const fn opposite(self) -> Self {
        match self {
            Self::Forward => Self::Backward,
            Self::Backward => Self::Forward,
        }
    }
}

/// What becomes of a message behind a stage. Received messages end in one fate
/// each; messages sent on after that are *originated* (ledger out).
#[derive(Debug, PartialEq, Eq)]
pub enum Step<M> {
    /// On to the next stage in its direction, or out of the path's end.
    On(M),
    /// Turned around: the received message ends with this fate, and what is in
    /// its buffer now travels the other way as a new one.
    Back(M, Count),
    /// Kept by the stage as part of a larger message (fate `Absorbed`).
    Absorbed,
    /// Its way ends here, with this fate. The shell gets the buffer back; with
    /// `Passed` it gives the message to the host.
    End(M, Count),
}

impl<M> Step<M> {
    /// The message, unless the stage kept it.
    #[must_use]
    pub const fn message(&self) -> Option<&M> {
        match self {
            Self::On(message) | Self::Back(message, _) | Self::End(message, _) => Some(message),
            Self::Absorbed => None,
        }
    }
}

/// What a stage can see and do beside its answer.
#[derive(Debug)]
pub struct Cx<'a, M> {
    /// Now.
    pub now: Time,
    /// The path's attributes, shared by all its stages.
    pub attrs: &'a mut Attrs,
    /// Further messages of the stage's own, to be sent behind its answer in
    /// this order, each from this stage in its direction (fragments, timers,
    /// acknowledgements). They are originated here.
    pub also: &'a mut Vec<(Direction, M)>,
    /// When to call [`Stage::wake`]; one time per stage, the last set is valid.
    pub wake_at: &'a mut Option<Time>,
}

/// What rules and drawings need to know of a stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "facts that do not depend on each other"
)]
pub struct Traits {
    /// Does nothing in either direction: it can be left out.
    pub idle: bool,
    /// The kernel tier's entry program does the inbound half of it, given the
    /// same attributes.
    pub in_entry: bool,
    /// The kernel tier can do all of it in the program behind the path's slot.
    pub promotable: bool,
    /// Checks, inbound, that its lengths agree with those of the layer below.
    pub checks_length: bool,
    /// Touches every byte of the message.
    pub touches_data: bool,
    /// Has a form in which the stage below sums up in the same pass.
    pub fuses: bool,
    /// For a stage at an end of the path: what leaves there is transmitted, so it waits in
    /// the output queue until a transmitter takes it. Behind any other stage it goes on to
    /// the next path at once, and an output queue there does nothing.
    pub transmits: bool,
    /// Is to be woken as soon as the path is established: it sends without having
    /// received.
    pub starts: bool,
    /// Looks at the time. Who runs the path need not ask for it otherwise.
    pub reads_clock: bool,
    /// Has to be [acquired](Stage::acquire) before the path runs.
    pub acquires: bool,
}

/// One module's part in one path. `M` is what messages are made of.
///
/// `Send`, because who creates a path and who runs it may be two threads.
pub trait Stage<M>: Send {
    /// The module's name in the graph, or the kind's for a stage that a rule
    /// made.
    fn name(&self) -> &str;

    /// The kind of module that made it, for rules that know kinds.
    fn kind(&self) -> Option<&'static Kind> {
        None
    }

    /// What rules may know.
    fn traits(&self) -> Traits {
        Traits::default()
    }

    /// Adds its part of the path's filter: what must be true of a frame for it to come
    /// up this path.
    fn demands(&self, _all: &mut Vec<Demand>) {}

    /// That part in pcap-filter words, for people; `None` if it has none.
    fn filter(&self) -> Option<String> {
        let mut all = Vec::new();
        self.demands(&mut all);
        demand::in_words(&all)
    }

    /// Bytes of memory it needs beyond itself, from the path's grant.
    fn memory_bytes(&self) -> usize {
        0
    }

    /// Called once when the whole path is there, in the order of the stages.
    ///
    /// # Errors
    ///
    /// Why it cannot be part of this path; those established before it are then
    /// destroyed, last first.
    fn establish(&mut self, _attrs: &mut Attrs) -> Result<(), String> {
        Ok(())
    }

    /// Takes down what `establish` set up. Called exactly once for each
    /// successful `establish`.
    fn destroy(&mut self) {}

    /// Takes what it has in common with somebody else, for the next run of the path: one
    /// message and all that is made of it, or its timers. False if the other has it now: then
    /// the path waits for a moment, and nobody else does. Never waits itself. Asked where
    /// [`Traits::acquires`] says so.
    fn acquire(&mut self) -> bool {
        true
    }

    /// The run for which it was [acquired](Self::acquire) has ended.
    fn release(&mut self) {}

    /// Takes a message from the neighbour before it in `direction`.
    fn take(&mut self, message: M, direction: Direction, cx: &mut Cx<'_, M>) -> Step<M>;

    /// The time it asked for has come.
    fn wake(&mut self, _cx: &mut Cx<'_, M>) {}

    /// For rules that replace stages of a known type.
    fn as_any(&mut self) -> &mut dyn std::any::Any;
}
