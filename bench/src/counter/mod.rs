//! `ashway bench counter`: every number promised for the remote increment, as a
//! ratio measured side by side in one run.
//!
//! * [`rows`]: round trips, in all cases.
//! * [`testrun`]: the kernel tier beside a program written by hand.
//! * [`flood`]: what arrives when more is sent than can be served.
//! * [`start`]: how long until a node answers, and what promoting takes.
//! * [`tcp`]: what attaching costs the host's own traffic.
//!
//! Nothing here passes or fails a test: a machine may be slow, shared or busy.
//! Each ratio says what was promised and whether this run kept it.

mod flood;
mod rows;
mod start;
mod tcp;
mod testrun;

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::Report;
use crate::ratio::{self, Ratio};

/// How much to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Rounds; medians are of whole rounds.
    pub rounds: usize,
    /// Requests of each row, all rounds together.
    pub requests: u32,
    /// One round and a tenth of everything: whether it works, not how fast.
    pub quick: bool,
    /// One part alone, by its name in the document.
    pub only: Option<String>,
    /// The `ashway` to measure; the running program unless told otherwise.
    pub binary: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            rounds: 5,
            requests: 20_000,
            quick: false,
            only: None,
            binary: None,
        }
    }
}

/// How a part is measured.
type Measure = fn(&Options) -> Result<Section>;

/// One part of the benchmark.
struct Section {
    document: Value,
    text: String,
    ratios: Vec<Ratio>,
}

/// Measures everything; takes some minutes. Says on standard error what it is
/// at. Needs root, the built handlers, `clang-19`, `libbpf-dev` and `iperf3`.
///
/// The document: `{"rows","testrun","flood","promotion","tcp","ratios"}`.
///
/// # Errors
///
/// Names the part that could not be measured.
pub fn run(options: &Options) -> Result<Report> {
    let mut options = options.clone();
    if options.quick {
        options.rounds = 1;
        options.requests = (options.requests / 10).max(1);
    }
    let options = &options;
    let parts: [(&str, &str, Measure); 5] = [
        ("rows", "round trips", rows::measure),
        (
            "testrun",
            "the kernel tier beside a program written by hand",
            testrun::measure,
        ),
        ("flood", "a flood", flood::measure),
        ("promotion", "start and promotion", start::measure),
        ("tcp", "TCP through the host's own stack", tcp::measure),
    ];
    let mut document = json!({});
    let mut text = String::new();
    let mut ratios = Vec::new();
    if let Some(only) = &options.only
        && !parts.iter().any(|(name, ..)| name == only)
    {
        let names = parts.map(|(name, ..)| name).join("`, `");
        bail!("there is no part `{only}`; there is `{names}`");
    }
    for (name, what, measure) in parts {
        if options.only.as_ref().is_some_and(|only| only != name) {
            continue;
        }
        eprintln!("measuring {what} ...");
        let section = measure(options).with_context(|| format!("cannot measure {what}"))?;
        document[name] = section.document;
        text += &section.text;
        text.push('\n');
        ratios.extend(section.ratios);
    }
    text += &ratio::render(&ratios);
    document["ratios"] = ratio::to_json(&ratios);
    Ok(Report { document, text })
}

impl Options {
    /// A node to be started in host B of a rig.
    fn node<'r>(
        &self,
        rig: &'r ashway_rig::Rig,
        config: String,
    ) -> Result<ashway_rig::node::NodeBuilder<'r>> {
        let binary = match &self.binary {
            Some(binary) => binary.clone(),
            None => ashway_rig::ashway()?,
        };
        Ok(rig.node(config).binary(binary))
    }

    /// A tenth of it in a quick run.
    fn scaled(&self, full: u32) -> u32 {
        if self.quick { (full / 10).max(1) } else { full }
    }
}
