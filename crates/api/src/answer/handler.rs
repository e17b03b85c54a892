//! A handler, as `status` has it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::instances::HandlerInstance;
use super::{RanIn, Word, nullable};
use crate::values::Scalar;

/// A handler of the node, and where it runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Handler {
    /// Its name.
    pub name: String,
    /// The tiers of its paths, `kernel` and `user`, joined by commas; `unbound` if it has
    /// no path.
    pub tier: String,
    /// In which tier it ran for messages of the paths that are bound to it; absent if none is.
    /// What it ran for paths of modules is among the activations of `module_paths`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ran_in: Option<RanIn>,
    /// What its memory is made of: `arena`, `array` or `memfd`.
    pub memory: Word,
    /// Length of that memory; of all instances together, if it has one for each CPU.
    pub bytes: u64,
    /// The ring that `deliver` fills, if it has one.
    pub endpoint: Option<HandlerEndpoint>,
    /// The process that takes it along when it ends; none if it is the node's.
    pub owner: Option<u32>,
    /// SHA-256 of the Wasm file, in hexadecimal digits.
    pub digest: String,
    /// The Wasm file.
    pub file: String,
    /// What it may do beyond looking at messages.
    pub allow: Vec<Word>,
    /// Its parameters.
    pub params: BTreeMap<String, Scalar<i64>>,
    /// The state that a swap hands on, if it declares any.
    pub state: Option<State>,
    /// Messages in the user tier that hold up their flows in the kernel tier; 0 where no message
    /// is on its way.
    pub in_flows: u32,
    /// Versions before this one, the latest first.
    pub former: Vec<FormerVersion>,
    /// Whether it runs in the kernel tier, and what that took or why not.
    pub promotion: HandlerPromotion,
    /// Why it was stopped last, if it ever was.
    pub last_fault: Option<LastFault>,
    /// Its instances, if it has one for each CPU: what is said of the handler is their sum. Absent
    /// if there is one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub instances: Vec<HandlerInstance>,
}

/// The ring that `deliver` fills.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HandlerEndpoint {
    /// Messages that it holds.
    pub slots: u64,
    /// The process that reads it, if one does.
    pub reader: Option<u32>,
}

/// The state that a swap hands on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct State {
    /// Its length.
    pub bytes: u32,
    /// The version of its layout, which the handler declares.
    pub version: u32,
}

/// A version that was there before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FormerVersion {
    /// SHA-256 of the Wasm file, in hexadecimal digits.
    pub digest: String,
    /// The Wasm file that it came from.
    pub file: String,
}

/// How a handler stands with the kernel tier: of the first of its paths for which that was
/// tried.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HandlerPromotion {
    /// `promoted` or `user`.
    pub state: Word,
    /// If it was tried: why it is in the user tier, where it is.
    #[serde(flatten)]
    pub why: Option<Because>,
    /// If it was refused.
    #[serde(flatten)]
    pub place: Option<SourceLine>,
    /// If it was translated and loaded.
    #[serde(flatten)]
    pub program: Option<HandlerProgram>,
}

impl HandlerPromotion {
    /// Why it is in the user tier, if there is something to say.
    #[must_use]
    pub fn because(&self) -> Option<&str> {
        self.why.as_ref()?.because.as_deref()
    }

    /// The source line at fault, if it was refused for one.
    #[must_use]
    pub fn line(&self) -> Option<&str> {
        self.place.as_ref()?.line.as_deref()
    }
}

/// Why something is as it is, as far as that is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Because {
    /// Why, in a sentence.
    #[serde(deserialize_with = "nullable")]
    pub because: Option<Word>,
    /// The next step.
    #[serde(deserialize_with = "nullable")]
    pub hint: Option<Word>,
}

/// A line of a handler's source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SourceLine {
    /// `file:line`, if it is known.
    #[serde(deserialize_with = "nullable")]
    pub line: Option<String>,
}

/// A handler's program in the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HandlerProgram {
    /// eBPF instructions.
    pub insns: u64,
    /// Instructions that the kernel's verifier went through.
    pub verified_insns: u64,
    /// Time the translation took.
    pub translate_us: u64,
    /// Time the kernel took to load it.
    pub load_us: u64,
    /// Time the last change of tier took.
    pub switch_ns: u64,
    /// Whether the verifier took it only with its locals in memory.
    pub second_try: bool,
}

/// Why something is not in the kernel tier.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Refused {
    /// Why, in a sentence.
    pub because: String,
    /// The source line at fault (`file:line`), if it is known.
    #[serde(deserialize_with = "nullable")]
    pub line: Option<String>,
    /// The next step; may be empty.
    pub hint: String,
}

/// Why a handler was stopped last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LastFault {
    /// How often it was stopped since it was loaded.
    pub count: u32,
    /// The cause, by its name; none if the number that was recorded is no cause's.
    pub cause: Option<Word>,
    /// The source file, if the Wasm file knows it.
    pub file: Option<String>,
    /// The line in it.
    pub line: Option<u32>,
    /// Offset in the Wasm file.
    pub at: u32,
    /// What to do about it, where that can be said.
    pub hint: Option<String>,
}
