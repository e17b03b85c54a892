//! The whole node: the answer to `status`.

use serde::{Deserialize, Serialize};

use super::Word;
use super::counts::{Counts, Tally};
use super::handler::Handler;
use super::iface::{Interface, Pattern};
use super::path::Path;

/// The whole node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Status {
    /// Its name.
    pub node: String,
    /// In the order in which they came, those of the configuration first.
    pub interfaces: Vec<Interface>,
    /// The sections of interfaces that are patterns, in the configuration's order.
    #[serde(default)]
    pub patterns: Vec<Pattern>,
    /// In the order in which they came.
    pub handlers: Vec<Handler>,
    /// Those that end in a handler, then those of modules, by name, up to 1000 of these.
    pub paths: Vec<Path>,
    /// Paths of modules behind these.
    pub paths_not_listed: u64,
    /// All paths of modules together.
    pub module_paths: AllModulePaths,
    /// What has been asked for and is not done.
    pub operations: Vec<UnderWay>,
    /// What taps write.
    pub taps: Vec<Tap>,
}

/// All paths of modules together, with those that were removed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AllModulePaths {
    /// How many there are.
    pub paths: u64,
    /// Messages that were lost on the way to the worker, by the counter's name: of which
    /// path, nobody knows.
    pub ring: Tally,
    /// What they received and made, and what became of it.
    #[serde(flatten)]
    pub counts: Counts,
}

/// A request that the node finishes later, or what it does by itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Operation {
    /// Its number, for `cancel`.
    pub operation: u64,
    /// The request's name.
    pub does: Word,
    /// A handler, a path or a file.
    pub about: String,
    /// Who asked for it: `the node`, or a process.
    pub by: String,
}

/// An operation that is under way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UnderWay {
    /// Which.
    #[serde(flatten)]
    pub operation: Operation,
    /// `messages` or `the compile thread`.
    pub waits_for: Word,
    /// Time since it began.
    pub age_ms: u64,
}

/// What a tap writes, and what keeps it from it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Tap {
    /// The module.
    pub tap: String,
    /// The file.
    pub file: String,
    /// Frames written.
    pub written: u64,
    /// Frames that came faster than they could be written.
    pub lost: u64,
    /// Frames that the file did not take.
    pub failed: u64,
    /// Why not, the last time.
    pub because: Option<String>,
}
