//! `ashway bench demux`: how long it takes to find a frame's path, by the number
//! of paths.
//!
//! Most paths here are of one shape (`udp dst port 7777 and src host A`).
//!
//! * `kernel`: the program beside a bare look-up;
//! * `user`: the table beside a `HashMap`, many shapes, and insertions;
//! * `list`: both beside a thousand filters tried one by one;
//! * `churn`: traffic while paths come and go.

mod churn;
mod kernel;
mod list;
mod program;
mod user;

use anyhow::Result;
use serde_json::{Value, json};

use crate::Report;
use crate::ratio::{self, Ratio};

/// Numbers of paths.
const PATHS: [u32; 5] = [1, 10, 1_000, 10_000, 100_000];

/// How much to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Rounds; a ratio is their median.
    pub rounds: usize,
    /// One round and a tenth of the work: whether it works, not how fast.
    pub quick: bool,
}

/// What one of the comparisons found.
#[derive(Default)]
struct Part {
    cases: Vec<Value>,
    ratios: Vec<Ratio>,
    text: String,
}

/// Measures; some minutes. Needs root, libpcap and a C compiler.
///
/// The document: `{"cases":[...],"ratios":{...}}`; times in ns.
///
/// # Errors
///
/// Without the right to load programs, if something is not installed, or if a
/// path is not found.
pub fn run(options: &Options) -> Result<Report> {
    let rounds = if options.quick {
        1
    } else {
        options.rounds.max(1)
    };
    let parts = [
        kernel::run(rounds, options.quick)?,
        user::run(rounds)?,
        list::run(rounds, options.quick)?,
        churn::run(rounds, options.quick)?,
    ];
    let mut ratios = Vec::new();
    let mut cases = Vec::new();
    let mut text = String::new();
    for part in parts {
        ratios.extend(part.ratios);
        cases.extend(part.cases);
        text += &part.text;
        text.push('\n');
    }
    Ok(Report {
        document: json!({ "cases": cases, "ratios": ratio::to_json(&ratios) }),
        text: text + &ratio::render(&ratios),
    })
}
