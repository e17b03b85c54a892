//! `ashway path`: the paths of a running node, and those that a configuration would have.

use clap::Subcommand;
use serde_json::json;

use super::{Node, status};
use crate::face::Face;
use crate::failure::{Exit, Failure};

mod live;
mod plan;

/// Paths: those of a running node, or of a configuration (plan)
#[derive(Debug, Subcommand)]
pub(crate) enum Path {
    /// List them, with what they received and what became of it
    Ls {
        #[command(flatten)]
        node: Node,
    },
    /// Let a path's handler run in the kernel tier
    ///
    /// If the handler cannot be translated, or the kernel refuses the result, it
    /// stays in the user tier and the reason is printed (exit code 3).
    Promote {
        /// The path
        name: String,
        #[command(flatten)]
        node: Node,
    },
    /// Take a path's handler back to the user tier
    ///
    /// Messages on the way are neither lost nor reordered.
    Demote {
        /// The path
        name: String,
        #[command(flatten)]
        node: Node,
    },
    Plan(plan::Plan),
    Create(live::Create),
    Show(live::Show),
    Rm(live::Rm),
}

impl Path {
    pub(crate) fn run(self, face: Face) -> Result<(), Failure> {
        let (verb, name, node, tier) = match self {
            Self::Ls { node } => {
                let document = node.connect()?.request(&json!({ "request": "status" }))?;
                let list = json!({
                    "paths": document["paths"],
                    "paths_not_listed": document["paths_not_listed"],
                });
                face.show(&list, || status::paths(&document))?;
                return Ok(());
            }
            Self::Plan(command) => return command.run(face),
            Self::Create(command) => return command.run(face),
            Self::Show(command) => return command.run(face),
            Self::Rm(command) => return command.run(face),
            Self::Promote { name, node } => ("promote", name, node, "kernel"),
            Self::Demote { name, node } => ("demote", name, node, "user"),
        };
        let request = json!({ "request": verb, "path": name });
        let answer = node.connect()?.request(&request)?;
        face.show(&answer, || {
            let tier = answer["tier"].as_str().unwrap_or(tier);
            format!("path `{name}` runs in the {tier} tier")
        })?;
        Ok(())
    }
}

/// The name and the value of `--attr NAME=VALUE`.
///
/// # Errors
///
/// Which of them is missing.
fn attr(text: &str) -> Result<(&str, &str), Failure> {
    let lacks = match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => return Ok((name, value)),
        Some(_) => "name",
        None => "value",
    };
    let failure = Failure::new(Exit::Usage, format!("`--attr {text}` has no {lacks}"));
    Err(failure.hint("write `--attr NAME=VALUE`"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn an_attribute_has_a_name_and_a_value() {
        assert_eq!(attr("a=b=c").unwrap(), ("a", "b=c"));
        assert_eq!(attr("=1").unwrap_err().error, "`--attr =1` has no name");
        assert_eq!(attr("mtu").unwrap_err().error, "`--attr mtu` has no value");
    }
}
