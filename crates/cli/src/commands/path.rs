//! `ashway path`: the paths of a running node, and those that a configuration would have.

use clap::Subcommand;
use serde_json::{Value, json};

use super::{Node, status};
use crate::face::{Face, clean};
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
    ///
    /// Before a path runs there for the first time, some of its messages are recorded,
    /// with the handler's memory before and after, while the user tier goes on
    /// answering. The program of the kernel tier runs each of them once more, over a
    /// memory of its own, and has to come to the same end. This waits at most half a
    /// second for messages.
    Promote {
        /// The path
        name: String,
        /// Compare this many messages
        #[arg(long, value_name = "N", default_value_t = 64)]
        shadow: u32,
        /// Compare none
        #[arg(long, conflicts_with = "shadow")]
        no_shadow: bool,
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
    /// Give a path's handler its messages again
    ///
    /// A handler that was stopped as often as the path's `faults` allow is bypassed: its
    /// messages go to the path's next choice, or are dropped where `on_fault` says so. It
    /// gets them again after a rest by itself; this ends the rest at once.
    Enable {
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
        let (request, name, node, tier) = match self {
            Self::Ls { node } => {
                let document = node.connect()?.request(&json!({ "request": "status" }))?;
                let list = json!({
                    "paths": document["paths"],
                    "paths_not_listed": document["paths_not_listed"],
                });
                face.show(&list, || status::paths(&document))?;
                return Ok(());
            }
            Self::Enable { name, node } => {
                let request = json!({ "request": "enable", "path": name });
                let answer = node.connect()?.request(&request)?;
                face.show(&answer, || {
                    let tier = clean(answer["tier"].as_str().unwrap_or("user"));
                    match answer["was_bypassed"].as_bool() {
                        Some(true) => {
                            format!("path `{name}` has its handler again, in the {tier} tier")
                        }
                        _ => format!("path `{name}` was not bypassed; it runs in the {tier} tier"),
                    }
                })?;
                return Ok(());
            }
            Self::Plan(command) => return command.run(face),
            Self::Create(command) => return command.run(face),
            Self::Show(command) => return command.run(face),
            Self::Rm(command) => return command.run(face),
            Self::Promote {
                name,
                shadow,
                no_shadow,
                node,
            } => {
                let messages = if no_shadow { 0 } else { shadow };
                let request = json!({ "request": "promote", "path": name, "shadow": messages });
                (request, name, node, "kernel")
            }
            Self::Demote { name, node } => {
                let request = json!({ "request": "demote", "path": name });
                (request, name, node, "user")
            }
        };
        let answer = node.connect()?.request(&request)?;
        face.show(&answer, || {
            let tier = answer["tier"].as_str().unwrap_or(tier);
            // It is of the promotion, whatever happened since.
            let compared = match tier {
                "kernel" => compared(&answer["compared"]),
                _ => String::new(),
            };
            let bypass = status::bypass(&name, &answer["bypass"]);
            format!("path `{name}` runs in the {tier} tier{compared}\n{bypass}")
        })?;
        Ok(())
    }
}

/// What was compared before a promotion.
fn compared(compared: &Value) -> String {
    match (compared["equal"].as_u64(), compared["unclear"].as_u64()) {
        (Some(0), Some(0)) => "\n  no message came: nothing was compared".to_owned(),
        (Some(equal), Some(0)) => {
            format!("\n  {equal} recorded messages have the same end there")
        }
        (Some(equal), Some(unclear)) => format!(
            "\n  {equal} recorded messages have the same end there; {unclear} cannot be \
             repeated: the memory was written meanwhile, or the handler asked for the time"
        ),
        _ => String::new(),
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
