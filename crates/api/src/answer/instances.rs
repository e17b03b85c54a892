//! The instances of a handler that has one for each CPU (`instances = "per-cpu"`). What `status`
//! says of such a handler, or of a path to it, is the sum of these.

use serde::{Deserialize, Serialize};

use super::RanIn;
use super::counts::Counts;

/// An instance of a handler.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HandlerInstance {
    /// Its name, `HANDLER@CPU`, by which requests about one instance know it.
    pub name: String,
    /// The CPU whose messages it runs.
    pub cpu: u32,
    /// The tiers of its paths, as of the handler.
    pub tier: String,
    /// In which tier it ran; absent if no path leads to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ran_in: Option<RanIn>,
    /// Length of its memory.
    pub bytes: u64,
    /// The process that reads its endpoint, if it has one and one does.
    pub reader: Option<u32>,
    /// Messages in the user tier that hold up their flows.
    pub in_flows: u32,
    /// How often it was stopped.
    pub stopped: u32,
}

/// A path to an instance of a handler.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PathInstance {
    /// Its name, `PATH@CPU`.
    pub name: String,
    /// The CPU whose messages it takes.
    pub cpu: u32,
    /// Where it runs: `kernel` or `user`; `bypassed` if its messages go by the handler.
    pub tier: String,
    /// What it received, and what became of it.
    #[serde(flatten)]
    pub counts: Counts,
    /// In which tier its messages ran.
    pub ran_in: Option<RanIn>,
}
