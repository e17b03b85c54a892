//! `ashway bench hooks`: what a node costs its host at each hook, and how fast it answers there.
//!
//! * [`host`]: one TCP stream into B's own stack and one out of it, with nothing attached, with
//!   a node at TCX and with one under XDP, in pairs; and what each changes of the wire.
//! * [`answer`]: the remote increment in the kernel tier at TCX, under XDP, and by a program for
//!   TCX that was written by hand; on a veth as it comes, whose far end does not poll.

mod answer;
mod host;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use ashway_rig::node::NodeBuilder;
use ashway_rig::{Node, Rig};
use serde_json::{Map, Value, json};

use crate::Report;
use crate::hosts;
use crate::ratio::{self, Ratio};

/// How much to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Rounds; each has all cases in turn.
    pub rounds: usize,
    /// Two rounds and a tenth of everything: whether it works, not how fast.
    pub quick: bool,
    /// The `ashway` to measure; the release build unless told otherwise.
    pub binary: Option<PathBuf>,
}

impl Options {
    /// A node of the counter on B's end of the wire.
    fn node<'r>(&self, rig: &'r Rig, attach: &str) -> Result<NodeBuilder<'r>> {
        let builder = rig.node(hosts::config_at("b0", attach)?);
        Ok(match &self.binary {
            Some(binary) => builder.binary(binary.clone()),
            None => builder,
        })
    }
}

/// Waits until the node has nothing of its own to do: its counter is in the kernel tier.
fn settled(node: &Node) -> Result<()> {
    const PATIENCE: Duration = Duration::from_secs(10);
    let begin = Instant::now();
    loop {
        let status = hosts::status(node.socket())?;
        if hosts::named(&status, "paths", hosts::COUNTER_PATH)?["tier"] == "kernel" {
            return Ok(());
        }
        ensure!(begin.elapsed() < PATIENCE, "the counter is not promoted");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// One part of the benchmark.
struct Section {
    name: &'static str,
    document: Value,
    text: String,
    ratios: Vec<Ratio>,
}

/// Measures; three minutes with 15 rounds. Needs root, `iperf3`, `ethtool` and the built
/// handlers.
///
/// The document: `{"host","answer","ratios"}`.
///
/// # Errors
///
/// Without the right to make namespaces, and what the node or a tool said.
pub fn run(options: &Options) -> Result<Report> {
    let mut document = Map::new();
    let mut text = Vec::new();
    let mut ratios = Vec::new();
    for section in [host::measure(options)?, answer::measure(options)?] {
        document.insert(section.name.to_owned(), section.document);
        text.push(section.text);
        ratios.extend(section.ratios);
    }
    document.insert("ratios".to_owned(), json!(ratio::to_json(&ratios)));
    text.push(ratio::render(&ratios));
    Ok(Report {
        document: document.into(),
        text: text.join("\n"),
    })
}
