//! Why a request is turned down.

use serde::{Deserialize, Serialize};

/// What kind of refusal it is; also decides the exit code of the command. Never
/// renamed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// The line is no request: not JSON, too long, too late, or of no known name.
    BadRequest,
    /// The request has a key or a value that cannot be.
    Usage,
    /// A handler cannot run, or not in the tier that was asked for.
    HandlerRefused,
    /// The node lacks a capability.
    PrivilegeMissing,
    /// The kernel lacks a feature.
    NotSupported,
    /// The request does not fit what the node has. A node newer than its client may have
    /// further codes; they read as this one.
    #[serde(other)]
    Failed,
}

/// Why a request is turned down. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[error("{message}")]
pub struct Refusal {
    /// The kind.
    pub code: Code,
    /// Why, in a line.
    pub message: String,
    /// The source file at fault, if one is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The line in that file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// The next step; may be empty.
    #[serde(default)]
    pub hint: String,
    /// Each mistake, where there may be several: those of a configuration, in the order of
    /// their lines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<Self>,
}

impl Refusal {
    /// A refusal without a place.
    pub fn new(code: Code, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            file: None,
            line: None,
            hint: hint.into(),
            errors: Vec::new(),
        }
    }

    /// The request itself is wrong.
    pub fn usage(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(Code::Usage, message, hint)
    }

    /// The request does not fit what the node has or can do.
    pub fn failed(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(Code::Failed, message, hint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_refusal_is_three_words_unless_it_has_a_place() {
        let refusal = Refusal::usage("no", "yes");
        let shown = json!({ "code": "usage", "message": "no", "hint": "yes" });
        assert_eq!(serde_json::to_value(&refusal).unwrap(), shown);
        let read: Refusal = serde_json::from_value(shown).unwrap();
        assert_eq!(read, refusal);
    }

    #[test]
    fn a_code_of_a_newer_node_is_a_failure() {
        let read: Refusal =
            serde_json::from_value(json!({ "code": "full_moon", "message": "no" })).unwrap();
        assert_eq!(read, Refusal::failed("no", ""));
    }
}
