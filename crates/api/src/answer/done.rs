//! That something was done: the answers to what changes a node.

use serde::{Deserialize, Serialize};

use super::Word;
use super::handler::{Because, Refused};
use super::path::{Bypass, PathPromotion};

/// The answer to `confirm`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Confirmed {
    /// Whether the node was on trial.
    pub was_on_trial: bool,
}

/// The answer to `load`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Loaded {
    /// The handler's name.
    pub handler: String,
    /// SHA-256 of the Wasm file, in hexadecimal digits.
    pub digest: String,
    /// Functions that paths can end in.
    pub functions: Vec<String>,
    /// Time from the request to the end.
    pub took_us: u64,
}

/// The answer to `unload`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Unloaded {
    /// The handler's name.
    pub handler: String,
    /// Time from the request to the end.
    pub took_us: u64,
}

/// The answer to `swap` and `rollback`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Swapped {
    /// The handler's name.
    pub handler: String,
    /// SHA-256 of the Wasm file that runs now, in hexadecimal digits.
    pub digest: String,
    /// The same of the version before.
    pub before: String,
    /// The file that it came from.
    pub file: String,
    /// The state that was handed on, if the version declares any.
    pub state: Option<HandedOn>,
    /// How long no message of the handler was run.
    pub hold_ns: u64,
    /// How long its paths were out of the kernel tier; 0 if none was there.
    pub away_us: u64,
    /// Time from the request to the end.
    pub took_us: u64,
    /// Paths that had to leave the kernel tier.
    pub left_kernel: Vec<LeftKernel>,
}

/// State that a version has taken over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HandedOn {
    /// The version of its layout.
    pub version: u32,
    /// How much was taken over; 0 if the version before had none.
    pub kept_bytes: u32,
    /// The version of the layout that it was converted from, if it was.
    pub migrated_from: Option<u32>,
}

/// A path that had to leave the kernel tier.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LeftKernel {
    /// The path.
    pub path: String,
    /// Why.
    #[serde(flatten)]
    pub refused: Refused,
}

/// The answer to `bind`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Bound {
    /// The path's name.
    pub path: String,
    /// The handler.
    pub handler: String,
    /// The filter.
    #[serde(rename = "match")]
    pub filter: String,
    /// The interfaces.
    pub iface: Vec<String>,
    /// Where it runs: `kernel` or `user`.
    pub tier: Word,
    /// Why it is not in the kernel tier, if it was refused there.
    #[serde(flatten)]
    pub why: Because,
    /// The source line at fault (`file:line`), if it is known.
    pub line: Option<String>,
    /// Time from the request to the end.
    pub took_us: u64,
    /// Of this, what the exchange of the demux took.
    pub exchange_us: u64,
}

/// The answer to `unbind`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Unbound {
    /// The path's name.
    pub path: String,
    /// Time from the request to the end.
    pub took_us: u64,
}

/// The answer to `promote` and `demote`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Moved {
    /// The path's name.
    pub path: String,
    /// Where it runs now: `kernel` or `user`.
    pub tier: Word,
    /// Time the change of tier took.
    pub switch_ns: u64,
    /// That its messages go by its handler, if they do.
    pub bypass: Option<Bypass>,
    /// If the path ends in a handler, or is a relay.
    #[serde(flatten)]
    pub shadow: Option<Shadow>,
}

/// What was compared before a path was promoted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Shadow {
    /// None if nothing was.
    #[serde(deserialize_with = "super::nullable")]
    pub compared: Option<Compared>,
}

/// How many recorded messages had the same end in the kernel tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Compared {
    /// Messages with the same end.
    pub equal: u64,
    /// Messages that cannot be repeated.
    pub unclear: u64,
    /// Whether this request has compared them, not one before.
    pub now: bool,
}

/// The answer to `enable`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Enabled {
    /// The path's name.
    pub path: String,
    /// Where it runs: `kernel` or `user`.
    pub tier: Word,
    /// Whether its messages went by its handler.
    pub was_bypassed: bool,
}

/// The answer to `create`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Created {
    /// In the order in which they were asked for.
    pub created: Vec<CreatedPath>,
    /// Time from the request to the end.
    pub took_ns: u64,
}

/// A path that was created.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CreatedPath {
    /// Its name.
    pub path: String,
    /// Where it runs: `kernel` or `user`.
    pub tier: Word,
    /// How it stands with the kernel tier.
    pub promotion: PathPromotion,
    /// Each step of its creation, a line each; only if `log` was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
}

/// The answer to `remove`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Removed {
    /// The paths, as they were named.
    pub removed: Vec<String>,
    /// Time from the request to the end.
    pub took_ns: u64,
}
