//! `ashway handler log`: lines that a handler has logged.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::time::Duration;

use ashway_api::request;
use clap::Args;
use serde_json::Value;

use super::Node;
use crate::face::{Face, ascii, clean};
use crate::failure::Failure;

/// How often `--follow` looks. The ring keeps 64 lines.
const PACE: Duration = Duration::from_millis(100);

/// Show what a handler of a node has logged
///
/// The node keeps the last 64 lines of each handler, of 104 bytes each, and of one
/// activation the first four. What is gone is counted. Times are seconds on the
/// monotonic clock. Characters that would do something to a terminal are shown as
/// \u{..}.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ashway handler log counter
  ashway handler log counter -f
  ashway handler log counter -f -j             a JSON document for each look that finds some")]
pub(crate) struct Log {
    /// The handler
    name: String,
    /// Go on with lines as they come, until interrupted
    #[arg(short, long)]
    follow: bool,
    #[command(flatten)]
    node: Node,
}

impl Log {
    pub(crate) fn run(self, face: Face) -> Result<(), Failure> {
        let (mut after, mut too_many) = (0, 0);
        loop {
            let request = request::Log {
                handler: self.name.clone(),
                after: Some(after),
            };
            // A node answers one request of each connection.
            let answer = self.node.clone().connect()?.request(request)?;
            if !self.follow {
                return face.show(&answer, || shown(&answer, 0));
            }
            let said = shown(&answer, too_many);
            let news = !said.is_empty();
            let mut out = io::stdout();
            let put = if news && face.json {
                writeln!(out, "{}", ascii(answer.to_string()))
            } else if news {
                write!(out, "{said}")
            } else {
                Ok(())
            };
            // Whoever has read enough has gone.
            if put.and_then(|()| out.flush()).is_err() {
                return Ok(());
            }
            after = answer["last"].as_u64().unwrap_or_default() as u32;
            too_many = answer["too_many"].as_u64().unwrap_or_default();
            std::thread::sleep(PACE);
        }
    }
}

/// For people; `before` lines were too many before.
fn shown(answer: &Value, before: u64) -> String {
    let mut out = String::new();
    let number = |name: &str| answer[name].as_u64().unwrap_or_default();
    // Writing to a string cannot fail.
    if number("overwritten") > 0 {
        let _ = writeln!(out, "({} earlier lines are gone)", number("overwritten"));
    }
    for line in answer["lines"].as_array().into_iter().flatten() {
        let at = line["at_ns"].as_u64().unwrap_or_default();
        let path = line["path"].as_str().unwrap_or("-");
        let text = line["text"].as_str().unwrap_or_default();
        let (seconds, micros) = (at / 1_000_000_000, at / 1_000 % 1_000_000);
        let _ = writeln!(
            out,
            "[{seconds}.{micros:06}] {}: {}",
            clean(path),
            clean(text)
        );
    }
    let lost = number("too_many").saturating_sub(before);
    if lost > 0 {
        let _ = writeln!(out, "({lost} lines were too many for their activations)");
    }
    out
}
