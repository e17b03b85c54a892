//! A path, as `status` lists it and `path show` shows it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::counts::{Counts, Tally};
use super::handler::{Because, Refused};
use super::instances::PathInstance;
use super::{Group, RanIn, Word, group, nullable};

/// A path of the node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Path {
    /// What it is, and what it did in both tiers.
    #[serde(flatten)]
    pub base: PathBase,
    /// Where its messages come in.
    pub ends: Vec<Entrance>,
    /// The module that it was created from.
    pub from: String,
    /// How it stands with the kernel tier.
    pub promotion: PathPromotion,
    /// Where it sends to, if that had to be looked up.
    pub next_hop: Option<NextHop>,
    /// In which tier its messages ran. If it is bound to a handler: those that the handler was
    /// run for, which are neither those that were dropped before nor those that went by it. Of a
    /// relay: those that a tier was done with, which are all that it received. Absent of any other
    /// path, which the user tier runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ran_in: Option<RanIn>,
    /// The paths to each instance of its handler, if that has one for each CPU: what is said of the
    /// path is their sum. Absent if there is one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub instances: Vec<PathInstance>,
    /// What the kernel tier has done of it, if it is a relay that has a place there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<KernelPart>,
    /// Handlers that its stages run without its being bound to one; absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leads_through: Vec<String>,
    /// The handler whose rings feed it, if it is bound to one.
    #[serde(flatten, deserialize_with = "group")]
    pub bound: Option<BoundTo>,
    /// What the worker has of it; absent if the worker does not know it any more.
    #[serde(flatten, deserialize_with = "group")]
    pub run: Option<PathRun>,
}

/// The handler that a path is bound to (`[path.NAME] handler = ...`, `bind`, or a path from
/// a handler's module straight to an interface).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BoundTo {
    /// The handler.
    pub handler: String,
    /// Its function.
    pub function: String,
    /// Why it is not in the kernel tier, if it was refused there.
    pub stays: Option<NotPromotable>,
    /// What happens to a message whose handler was stopped: `pass`, `drop` or `demote`.
    pub on_fault: Word,
    /// Time that the handler may take for one message.
    pub budget_ns: u64,
    /// Which of its messages keep their order between the tiers: those of a `flow`, of the
    /// `path`, or `none`.
    pub order: Word,
}

impl Group for BoundTo {
    const KEY: &'static str = "handler";
}

/// What all paths have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PathBase {
    /// Its name.
    pub name: String,
    /// The interfaces that its messages come by.
    pub iface: Vec<String>,
    /// The filter that leads messages to it; of a path with several ends that of the first.
    #[serde(rename = "match")]
    pub filter: Option<String>,
    /// Where it runs: `kernel` or `user`; both, joined by a comma, if the instances of its handler
    /// run in either.
    pub tier: Word,
    /// The process that takes it along when it ends; none if it is the node's.
    pub owner: Option<u32>,
    /// How often its handlers may be stopped; none if there is no limit.
    pub faults: Option<FaultLimit>,
    /// That its messages go by its handler now, if they do.
    pub bypass: Option<Bypass>,
    /// What it received, and what became of it.
    #[serde(flatten)]
    pub counts: Counts,
    /// If it has a share.
    #[serde(flatten, deserialize_with = "group")]
    pub share: Option<PathShare>,
}

/// How often a handler may be stopped on a path before its messages go by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FaultLimit {
    /// How many stops within the time are too many.
    pub limit: u32,
    /// The time in which they are counted.
    pub within_ms: u64,
    /// How long its messages then go by it; none if they do not.
    pub rest_ms: Option<u64>,
}

/// That messages go by a handler.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Bypass {
    /// The handler.
    pub handler: String,
    /// Why, in a sentence.
    pub because: String,
    /// How long still.
    pub left_ms: u64,
    /// The next step.
    pub hint: String,
}

/// The part of its tier that a path may use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PathShare {
    /// The share, in the configuration's words (`12.5 %, 7000/s`).
    pub share: String,
    /// `eager`: below its share; `lazy`: its messages wait for it. None while nothing is
    /// known.
    #[serde(deserialize_with = "nullable")]
    pub mode: Option<Word>,
}

impl Group for PathShare {
    const KEY: &'static str = "share";
}

/// Why a path that ends in a handler is not in the kernel tier.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NotPromotable {
    /// The tier that was asked for: `auto`, `kernel` or `user`.
    pub asked: Word,
    /// Why it is in the user tier.
    #[serde(flatten)]
    pub refused: Refused,
}

/// Where messages come in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Entrance {
    /// The interface.
    pub iface: String,
    /// The filter that leads messages to the path there.
    #[serde(rename = "match")]
    pub filter: Option<String>,
    /// Which way they go through the stages: `forward` (first to last) or `backward`.
    pub direction: Word,
}

/// How a path stands with the kernel tier.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PathPromotion {
    /// `promoted` or `user`.
    pub state: Word,
    /// Why it is in the user tier; absent if it is not.
    #[serde(flatten)]
    pub why: Option<Because>,
    /// Time the last change of tier took; absent of a path that has no place in the kernel
    /// tier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub switch_ns: Option<u64>,
}

/// Where a path sends to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NextHop {
    /// The address that it sends to.
    pub address: String,
    /// The neighbour on the way there: the address itself, or a gateway. None if there is
    /// no route.
    pub neighbour: Option<String>,
    /// The interface.
    pub iface: String,
    /// The neighbour's link address, if it is known.
    pub mac: Option<String>,
}

/// What the kernel tier has done of a path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct KernelPart {
    /// Messages that it has seen.
    pub received: u64,
    /// Those that it left to the user tier and what else happened, by the counter's name.
    pub notes: Tally,
}

/// What the worker has of a path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PathRun {
    /// First to last.
    pub stages: Vec<Stage>,
    /// Its attributes and invariants, by name.
    pub attrs: BTreeMap<String, String>,
    /// Its four queues.
    pub queues: Queues,
    /// Messages that its stages made.
    pub originated: u64,
    /// How often the worker has run it.
    pub runs: u64,
    /// CPU time it took in the user tier.
    pub time_ns: u64,
    /// How long the kernel tier took for its messages, by some of them that were timed.
    pub kernel_time_ns: u64,
    /// The memory it holds.
    pub memory: Memory,
    /// The last error of a stage, in words, if there was one.
    #[serde(deserialize_with = "nullable")]
    pub fault: Option<String>,
}

impl Group for PathRun {
    const KEY: &'static str = "stages";
}

/// A stage of a path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Stage {
    /// The module's name in the graph.
    pub module: String,
    /// The kind of that module; none if a rule made the stage.
    pub kind: Option<Word>,
}

/// The queues of a path: two at each end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Queues {
    /// Messages that come in at the first stage.
    pub in_forward: Queue,
    /// Messages that come in at the last stage.
    pub in_backward: Queue,
    /// Messages that have left the last stage, a link's, and wait to be transmitted. Behind
    /// another stage there is no queue (`maximum` 0): they go on to the next path at once.
    pub out_forward: Queue,
    /// The same of messages that have left the first stage.
    pub out_backward: Queue,
}

/// A queue of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Queue {
    /// Messages that it holds.
    pub length: u64,
    /// Messages that it may hold.
    pub maximum: u64,
}

/// The memory of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Memory {
    /// What it holds now.
    pub bytes: u64,
    /// What it may hold.
    pub granted_bytes: u64,
}
