//! Why a flow takes its path, a counter counts, or a path is as it is: the answer to `why`.

use serde::{Deserialize, Serialize};

use super::Word;
use super::handler::LastFault;

/// Why something is as it is; `about` says which of the three it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "about", rename_all = "snake_case")]
pub enum Why {
    /// Which path a flow takes.
    Flow(WhyFlow),
    /// Why a counter counts.
    Counter(WhyCounter),
    /// What a path has counted, and why.
    Path(WhyPath),
}

/// Which path a flow takes, and why no other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WhyFlow {
    /// The flow, as it was understood.
    pub flow: String,
    /// Where it arrives.
    pub iface: String,
    /// The path that takes it; none if the host gets it, or nobody.
    pub path: Option<String>,
    /// Whether there is no host behind the interface, which the node has made itself.
    #[serde(default)]
    pub has_no_host: bool,
    /// Why, in a sentence.
    pub reason: String,
    /// The next step; may be empty.
    pub hint: String,
    /// The tier that the path runs in, `bypassed` if its messages go by its handler; of a
    /// configuration the tier it asks for.
    pub tier: Option<Word>,
    /// Why it is in that tier, if that is not the one asked for.
    pub tier_reason: Option<String>,
    /// The path's stages, first the one next to the interface.
    pub stages: Option<Vec<String>>,
    /// The configuration.
    pub file: Option<String>,
    /// The line of the path's filter in it; none of a path that came while the node ran.
    pub line: Option<u64>,
    /// The filters that match it, the most specific first.
    pub matched: Vec<Matched>,
    /// Some of those that do not.
    pub missed: Vec<Missed>,
    /// How many more do not.
    pub missed_not_listed: u64,
}

/// A filter of a path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Filter {
    /// The path.
    pub path: String,
    /// The filter.
    #[serde(rename = "match")]
    pub filter: String,
    /// The configuration.
    pub file: String,
    /// The line of the filter in it; none of a path that came while the node ran.
    pub line: Option<u64>,
}

/// A filter that matches a flow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Matched {
    /// Which.
    #[serde(flatten)]
    pub filter: Filter,
    /// Bits of a frame that it tests; the filter with most takes the frame.
    pub bits: u64,
    /// Tests that must not hold; they decide between filters with as many bits.
    pub exclusions: u64,
}

/// A filter that does not match a flow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Missed {
    /// Which.
    #[serde(flatten)]
    pub filter: Filter,
    /// The first test of it that the flow fails.
    pub missing: Option<String>,
}

/// Why a counter counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WhyCounter {
    /// The counter.
    pub counter: Word,
    /// What it says of a message: "a message ...".
    pub reason: Word,
    /// The stage that counts it.
    pub stage: Word,
    /// The next step; may be empty.
    pub hint: Word,
    /// The paths that have counted it, those with most first.
    pub rows: Vec<Counted>,
    /// How many more have.
    pub rows_not_listed: u64,
    /// Interfaces that have counted it of frames that no path takes.
    pub unmatched: Vec<UnmatchedOf>,
    /// Messages that paths of modules have counted together, and none by itself.
    pub together: u64,
}

/// What a path has counted under a counter, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Counted {
    /// The path.
    pub path: String,
    /// The counter.
    pub counter: Word,
    /// How often.
    pub count: u64,
    /// What it says of a message: "a message ...".
    pub reason: Word,
    /// The stage that counts it; none if the path has no such stage.
    pub stage: Option<String>,
    /// The stage that does its work, where one does the work of several.
    pub merged_into: Option<String>,
    /// Where the path runs: `kernel` or `user`.
    pub tier: Word,
    /// The key of the configuration that has most to do with it.
    pub key: Option<Word>,
    /// The configuration.
    pub file: String,
    /// The line of that key, or of the path, in it.
    pub line: Option<u64>,
    /// The next step.
    pub hint: Word,
    /// The last stop of the handler, if the counter counts stops and that one may be among
    /// them.
    pub last_fault: Option<LastFault>,
}

/// Frames of an interface that no path takes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UnmatchedOf {
    /// The interface.
    pub name: String,
    /// Frames that went on to the host's stack.
    pub passed: u64,
}

/// What a path has counted, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WhyPath {
    /// The path.
    pub path: String,
    /// Messages received.
    pub received: u64,
    /// Of these, those that have no fate yet.
    pub waiting: u64,
    /// The tier that it runs in; `bypassed` if its messages go by its handler.
    pub tier: Word,
    /// Why it is in that tier, if that is not the one asked for.
    pub tier_reason: Option<String>,
    /// Its stages, first the one next to the interface; of a path that came while the node
    /// ran, none.
    pub stages: Vec<String>,
    /// The configuration.
    pub file: String,
    /// The line of the path's filter in it; none of a path that came while the node ran.
    pub line: Option<u64>,
    /// Its interfaces by which nothing comes now.
    pub silent: Vec<SilentIface>,
    /// Each counter that is not 0.
    pub rows: Vec<Counted>,
    /// Counters that it has together with all paths of modules, and that are not 0.
    pub together: Vec<Together>,
}

/// An interface by which nothing comes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SilentIface {
    /// The interface.
    pub iface: String,
    /// `down` or `gone`.
    pub mode: Word,
    /// The next step.
    pub hint: Option<String>,
}

/// What paths of modules have counted together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Together {
    /// The counter.
    pub counter: Word,
    /// How often.
    pub count: u64,
    /// What it says of a message: "a message ...".
    pub reason: Word,
    /// The next step.
    pub hint: Word,
}
