//! `ashway path`: the paths of a running node, and those that a configuration would have.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use ashway_api::answer::{Compared, Moved};
use ashway_api::request;
use clap::Subcommand;
use serde_json::json;

use super::{Node, status};
use crate::face::{Face, clean};
use crate::failure::{Exit, Failure};

mod plan;
mod running;

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
        /// Compare this many messages, at most 10000; once some were compared, none are again
        #[arg(long, value_name = "N", default_value_t = 64)]
        shadow: u32,
        /// Compare none: the same as `--shadow 0`
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
    Create(running::Create),
    Show(running::Show),
    Rm(running::Rm),
}

impl Path {
    pub(crate) fn run(self, face: Face) -> Result<(), Failure> {
        match self {
            Self::Ls { node } => {
                let said = node.connect()?.request(request::Status {})?;
                let list = json!({
                    "paths": said.document["paths"],
                    "paths_not_listed": said.document["paths_not_listed"],
                });
                face.show(&list, || status::paths(&said.answer))
            }
            Self::Enable { name, node } => {
                let path = name.clone();
                let said = node.connect()?.request(request::Enable { path })?;
                face.show(&said.document, || {
                    let tier = clean(&said.answer.tier);
                    if said.answer.was_bypassed {
                        format!("path `{name}` has its handler again, in the {tier} tier")
                    } else {
                        format!("path `{name}` was not bypassed; it runs in the {tier} tier")
                    }
                })
            }
            Self::Plan(command) => command.run(face),
            Self::Create(command) => command.run(face),
            Self::Show(command) => command.run(face),
            Self::Rm(command) => command.run(face),
            Self::Promote {
                name,
                shadow,
                no_shadow,
                node,
            } => {
                let messages = if no_shadow { 0 } else { shadow };
                let request = request::Promote {
                    path: name.clone(),
                    shadow: Some(messages.into()),
                };
                let said = node.connect()?.request(request)?;
                face.show(&said.document, || moved(&name, &said.answer, messages > 0))
            }
            Self::Demote { name, node } => {
                let path = name.clone();
                let said = node.connect()?.request(request::Demote { path })?;
                face.show(&said.document, || moved(&name, &said.answer, false))
            }
        }
    }
}

/// Where a path runs now; `asked` if something was to be compared.
fn moved(name: &str, moved: &Moved, asked: bool) -> String {
    let tier = clean(&moved.tier);
    // It is of the promotion, whatever happened since.
    let shadow = moved.shadow.filter(|_| moved.tier == "kernel");
    let compared = shadow.map_or_else(String::new, |shadow| compared(shadow.compared, asked));
    let bypass = status::bypass(name, moved.bypass.as_ref());
    format!("path `{name}` runs in the {tier} tier{compared}\n{bypass}")
}

/// What was compared before a promotion; `asked` if something was to be.
fn compared(compared: Option<Compared>, asked: bool) -> String {
    let Compared {
        equal,
        unclear,
        now,
    } = compared.unwrap_or_default();
    if !now && equal == 0 {
        let why = if asked {
            "it ran there already: nothing was compared"
        } else {
            "nothing was compared, as asked"
        };
        return format!("\n  {why}");
    }
    if (equal, unclear) == (0, 0) {
        return "\n  no message came: nothing was compared".to_owned();
    }
    let mut text = format!("\n  {equal} recorded messages have the same end there");
    if unclear > 0 {
        let _ = write!(
            text,
            "; {unclear} cannot be repeated: the memory was written meanwhile, the handler asked \
             for the time, or the kernel tier leaves them to the user tier"
        );
    }
    if !now {
        text += "; that was compared before, and is not again while the same code runs";
    }
    text
}

/// The names and values of all `--attr`.
///
/// # Errors
///
/// One is incomplete, or is given twice.
fn attrs(given: &[String]) -> Result<BTreeMap<&str, &str>, Failure> {
    let mut attrs = BTreeMap::new();
    for text in given {
        let (name, value) = attr(text)?;
        if attrs.insert(name, value).is_some() {
            let failure = Failure::new(Exit::Usage, format!("attribute `{name}` is given twice"));
            return Err(failure.hint("give each once"));
        }
    }
    Ok(attrs)
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
    fn what_was_compared_is_said_and_when() {
        let says = |equal, unclear, now, asked| {
            let answer = Compared {
                equal,
                unclear,
                now,
            };
            compared(Some(answer), asked)
        };
        let same = "\n  64 recorded messages have the same end there";
        assert_eq!(says(64, 0, true, true), same);
        assert!(says(64, 0, false, true).starts_with(same));
        assert!(says(64, 0, false, true).contains("compared before"));
        assert!(says(64, 2, true, true).contains("; 2 cannot be repeated"));
        assert!(says(0, 0, true, true).contains("no message came"));
        // Nobody waited for one.
        assert!(says(0, 0, false, false).contains("as asked"));
        assert!(compared(None, false).contains("as asked"));
        assert!(compared(None, true).contains("ran there already"));
    }

    #[test]
    fn an_attribute_has_a_name_and_a_value() {
        assert_eq!(attr("a=b=c").unwrap(), ("a", "b=c"));
        assert_eq!(attr("=1").unwrap_err().error, "`--attr =1` has no name");
        assert_eq!(attr("mtu").unwrap_err().error, "`--attr mtu` has no value");
        let given = ["mtu=9", "ttl=1", "mtu=9"].map(str::to_owned);
        let twice = attrs(&given).unwrap_err();
        assert_eq!(
            (&*twice.error, twice.exit),
            ("attribute `mtu` is given twice", Exit::Usage)
        );
    }
}
