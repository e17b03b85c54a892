//! What a configuration would change, or has changed: the answer to `plan` and `apply`.

use serde::{Deserialize, Serialize};

use super::Word;

/// The steps from what the node does to what a file says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Plan {
    /// The configuration.
    pub file: String,
    /// Whether they are done.
    pub applied: bool,
    /// In the order in which they are done.
    pub steps: Vec<PlanStep>,
    /// Things of the configuration that stay as they are.
    pub unchanged: u64,
    /// Further things that no file has, and that stay.
    pub not_listed: u64,
    /// Time from the request to the end; absent where nothing was done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub took_us: Option<u64>,
}

/// A step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PlanStep {
    /// What is done; `stay` of what was made by hand.
    #[serde(rename = "do")]
    pub act: Word,
    /// The kind of thing it is done to.
    pub what: Word,
    /// Its name.
    pub name: String,
    /// The line of the configuration; none of what is not in it.
    pub line: Option<u64>,
    /// The keys of that section that differ.
    pub keys: Vec<Word>,
    /// Why this is done, if it does not follow from the keys.
    pub because: Option<String>,
    /// The step in a line, for people.
    pub text: String,
}
