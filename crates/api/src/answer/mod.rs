//! What a running node answers: every key of every answer, with its unit.
//!
//! The node makes these values and writes them as they are; the `ashway` command, and any
//! program in Rust, reads them. An answer stands under `ok` of the line on the socket, and
//! `ashway ... -j` prints it.
//!
//! Who reads is lenient: a key that the type does not have is passed over, since a node may
//! be newer than its client. Words (`tier`, `state`, `mode`, ...) are texts for the same
//! reason. Who tests is strict: [`exact`] refuses a document of which the type does not say
//! everything.
//!
//! A key may be `null` wherever its type is an option, unless it says that it is *absent*.
//! Where documents of one kind have more keys than others, those that come together are a
//! group: an option that is written flat. Groups of one document have no key in common,
//! since serde takes keys away for a group even where it then finds one missing.

mod counts;
mod done;
mod event;
mod exact;
mod handler;
mod iface;
mod instances;
mod look;
mod path;
mod plan;
mod ran_in;
mod status;
#[cfg(test)]
mod tests;
mod why;

use std::borrow::Cow;

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

pub use counts::{Activations, Counts, Fates, Tally};
pub use done::{
    Bound, Compared, Confirmed, Created, CreatedPath, Enabled, HandedOn, LeftKernel, Loaded, Moved,
    Removed, Shadow, Swapped, Unbound, Unloaded,
};
pub use event::{Event, Frame, Lost, Observing, Packet, Silent, Step, What};
pub use exact::{Inexact, exact};
pub use handler::{
    Because, FormerVersion, Handler, HandlerEndpoint, HandlerProgram, HandlerPromotion, LastFault,
    Refused, SourceLine, State,
};
pub use iface::{Interface, LostAfterHandOver, NotTaken, Pattern, Unmatched};
pub use instances::{HandlerInstance, PathInstance};
pub use look::{
    Demux, DemuxOfInterface, EndpointPlace, Fault, Faults, HandlerMemory, Lines, LogLine,
    Replayable, Shape, ShapeEntry,
};
pub use path::{
    BoundTo, Bypass, Entrance, FaultLimit, KernelPart, Memory, NextHop, NotPromotable, Path,
    PathBase, PathPromotion, PathRun, PathShare, Queue, Queues, Stage,
};
pub use plan::{Plan, PlanStep};
pub use ran_in::RanIn;
pub use status::{AllModulePaths, Operation, Status, Tap, UnderWay};
pub use why::{
    Counted, Filter, Matched, Missed, SilentIface, Together, UnmatchedOf, Why, WhyCounter, WhyFlow,
    WhyPath,
};

use crate::request::Request;

/// A word of a set that may grow: a text, so that an older client reads a newer word.
pub type Word = Cow<'static, str>;

/// A request whose answer is of a type.
pub trait Ask: Into<Request> {
    /// What stands under `ok`.
    type Answer: Serialize + DeserializeOwned;
}

/// Reads a key that has to be there, and may be `null`. It tells apart groups that are
/// written flat: serde takes any other option that is not there as none.
fn nullable<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    Option::deserialize(deserializer)
}

/// Keys that come together and are written flat, if they come.
trait Group: DeserializeOwned {
    /// The key that says that they do.
    const KEY: &'static str;
}

/// Reads a group. Of an option that is written flat serde keeps every error to itself.
fn group<'de, D: Deserializer<'de>, T: Group>(deserializer: D) -> Result<Option<T>, D::Error> {
    let keys = Map::deserialize(deserializer)?;
    let is_there = keys.contains_key(T::KEY);
    let group = is_there.then(|| T::deserialize(Value::Object(keys)));
    group.transpose().map_err(D::Error::custom)
}

/// The enum of all answers, so that a node can pass on any.
macro_rules! answers {
    ($($answer:ident),* $(,)?) => {
        /// An answer to a request that was done.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize)]
        #[serde(untagged)]
        #[allow(missing_docs, reason = "each is named as its type, which says what it is")]
        #[allow(clippy::large_enum_variant, reason = "there is one at a time, on its way out")]
        pub enum Answer {
            $($answer($answer)),*
        }

        $(impl From<$answer> for Answer {
            fn from(answer: $answer) -> Self {
                Self::$answer(answer)
            }
        })*
    };
}

answers! {
    Bound, Confirmed, Created, Demux, Enabled, EndpointPlace, Faults, HandlerMemory, Lines,
    Loaded, Moved, Observing, Operation, Path, Plan, Removed, Replayable, Status, Swapped,
    Unbound, Unloaded, Why,
}
