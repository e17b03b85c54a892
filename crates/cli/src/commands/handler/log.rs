//! `ashway handler log`: lines that a handler has logged.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::time::Duration;

use ashway_api::answer::Lines;
use ashway_api::request;
use clap::Args;

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
            let said = self.node.clone().connect()?.request(request)?;
            if !self.follow {
                return face.show(&said.document, || shown(&said.answer, 0));
            }
            let text = shown(&said.answer, too_many);
            let news = !text.is_empty();
            let mut out = io::stdout();
            let put = if news && face.json {
                writeln!(out, "{}", ascii(said.document.to_string()))
            } else if news {
                write!(out, "{text}")
            } else {
                Ok(())
            };
            // Whoever has read enough has gone.
            if put.and_then(|()| out.flush()).is_err() {
                return Ok(());
            }
            (after, too_many) = (said.answer.last, said.answer.too_many);
            std::thread::sleep(PACE);
        }
    }
}

/// For people; `before` lines were too many before.
fn shown(lines: &Lines, before: u32) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    if lines.overwritten > 0 {
        let _ = writeln!(out, "({} earlier lines are gone)", lines.overwritten);
    }
    for line in &lines.lines {
        let path = line.path.as_deref().unwrap_or("-");
        let (seconds, micros) = (line.at_ns / 1_000_000_000, line.at_ns / 1_000 % 1_000_000);
        let _ = writeln!(
            out,
            "[{seconds}.{micros:06}] {}: {}",
            clean(path),
            clean(&line.text)
        );
    }
    let lost = lines.too_many.saturating_sub(before);
    if lost > 0 {
        let _ = writeln!(out, "({lost} lines were too many for their activations)");
    }
    out
}
