//! `ashway why`: which path a flow takes, and why messages ended as they did.

use std::fmt::Write as _;
use std::path::PathBuf;

use ashway_api::answer::{
    self, Counted, Matched, Missed, UnmatchedOf, WhyCounter, WhyFlow, WhyPath,
};
use ashway_api::{Said, request};
use ashway_config as config;
use ashway_node::why;
use clap::Args;
use serde_json::json;

use super::Node;
use crate::face::{Face, clean};
use crate::failure::{Exit, Failure};

/// Say why: of a flow, of a counter, of a path
///
/// For a flow: the path that takes its messages, with the filters that match, the
/// most specific first, and what keeps it out of the others; or why the host gets
/// it. For a counter of `ashway status`: what it means, which paths have counted
/// it, at which stage, what in the configuration has a part in it, and the next
/// step. For a path: the same for each of its counters.
///
/// Of a flow nothing but its headers is known: a filter that looks into the
/// message finds zeros there.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ashway why 'udp 10.0.0.1:5000 > 10.0.0.2:7777' --iface veth0
  ashway why 'vlan 5 tcp [2001:db8::1]:5000 > [2001:db8::2]:80' --config node.toml
  ashway why dropped_bad_udp_checksum
  ashway why dropped_ring_full --path inc
  ashway why inc")]
pub(crate) struct Why {
    /// A flow, a counter or a path
    about: String,
    /// Where the flow arrives [default: the only interface]
    #[arg(long)]
    iface: Option<String>,
    /// Only this path's counter
    #[arg(long)]
    path: Option<String>,
    /// Ask a configuration about a flow, not a node
    #[arg(long, value_name = "FILE", conflicts_with_all = ["socket", "path"])]
    config: Option<PathBuf>,
    #[command(flatten)]
    node: Node,
}

impl Why {
    pub(crate) fn run(self, face: Face) -> Result<(), Failure> {
        let Said { document, answer } = match &self.config {
            Some(file) => {
                let config = config::load(file)?;
                if !self.about.contains('>') {
                    let what = format!("`{}` is no flow", self.about);
                    let hint = "a configuration has counted nothing: leave out `--config` to ask \
                                a node";
                    return Err(Failure::new(Exit::Usage, what).hint(hint));
                }
                let answer = why::offline(&config, &self.about, self.iface.as_deref())?;
                Said {
                    document: json!(answer),
                    answer,
                }
            }
            None => self.node.connect()?.request(request::Why {
                about: self.about,
                path: self.path,
                iface: self.iface,
            })?,
        };
        face.show(&document, || match &answer {
            answer::Why::Flow(answer) => flow(answer),
            answer::Why::Counter(answer) => counter(answer),
            answer::Why::Path(answer) => path(answer),
        })
    }
}

/// The stages of a path.
fn stages(stages: &[String]) -> String {
    let all: Vec<_> = stages.iter().map(|stage| clean(stage)).collect();
    all.join(" > ")
}

/// `node.toml:12`, where there is such a place.
fn place(file: &str, line: Option<u64>) -> String {
    match line {
        Some(line) => format!("{}:{line}", clean(file)),
        None => "bound while the node ran".to_owned(),
    }
}

// Writing to a string cannot fail.
macro_rules! line {
    ($text:expr, $($arg:tt)*) => { let _ = writeln!($text, $($arg)*); };
}

fn flow(answer: &WhyFlow) -> String {
    let mut out = String::new();
    let to = match &answer.path {
        Some(path) => format!("path `{}`", clean(path)),
        None if answer.has_no_host => "no path".to_owned(),
        None => "the host".to_owned(),
    };
    let (flow, iface) = (clean(&answer.flow), clean(&answer.iface));
    line!(out, "{flow} on {iface} goes to {to}");
    line!(out, "  because: {}", clean(&answer.reason));
    if let (Some(file), Some(names)) = (&answer.file, &answer.stages) {
        line!(out, "  {}", configured(file, answer.line, None));
        line!(out, "  stages: {}", stages(names));
    }
    if let Some(word) = &answer.tier {
        out += &tier(word, answer.tier_reason.as_deref());
    }
    for Matched { filter, bits, .. } in &answer.matched {
        let (path, text) = (clean(&filter.path), clean(&filter.filter));
        let place = place(&filter.file, filter.line);
        line!(out, "  matches `{path}` ({bits} bits): {text}    {place}");
    }
    for Missed { filter, missing } in &answer.missed {
        let missing = missing.as_deref().map_or_else(|| "?".to_owned(), clean);
        let (path, place) = (clean(&filter.path), place(&filter.file, filter.line));
        line!(
            out,
            "  does not match `{path}`, which wants `{missing}`    {place}"
        );
    }
    if answer.missed_not_listed > 0 {
        line!(out, "  and {} more do not match", answer.missed_not_listed);
    }
    out + &hint(&answer.hint)
}

fn tier(tier: &str, because: Option<&str>) -> String {
    match because {
        Some(because) => format!("  tier: {}, because {}\n", clean(tier), clean(because)),
        None => format!("  tier: {}\n", clean(tier)),
    }
}

fn hint(hint: &str) -> String {
    match hint {
        "" => String::new(),
        hint => format!("  hint: {}\n", clean(hint)),
    }
}

fn counter(answer: &WhyCounter) -> String {
    let mut out = String::new();
    let (name, reason) = (clean(&answer.counter), clean(&answer.reason));
    line!(out, "{name}: a message {reason}");
    for row in &answer.rows {
        let at = stage(row).map(|stage| format!(", at {stage}"));
        let (path, at) = (clean(&row.path), at.unwrap_or_default());
        line!(out, "  path `{path}`: {}{at}", row.count);
        line!(out, "    {}", configured_row(row));
        out += &last_fault(row);
    }
    if answer.rows_not_listed > 0 {
        line!(out, "  and {} more paths", answer.rows_not_listed);
    }
    for UnmatchedOf { name, passed } in &answer.unmatched {
        let name = clean(name);
        line!(out, "  interface `{name}`: {passed} that matched no path");
    }
    let together = answer.together;
    if together > 0 {
        line!(
            out,
            "  paths of modules, which have one counter for it: {together}"
        );
    } else if answer.rows.is_empty() && answer.unmatched.is_empty() {
        line!(out, "  nothing has been counted so far");
    }
    out + &hint(&answer.hint)
}

fn path(answer: &WhyPath) -> String {
    let mut out = String::new();
    let (received, waiting) = (answer.received, answer.waiting);
    let name = clean(&answer.path);
    line!(out, "path `{name}`: {received} received, {waiting} waiting");
    line!(out, "  {}", configured(&answer.file, answer.line, None));
    line!(out, "  stages: {}", stages(&answer.stages));
    out += &tier(&answer.tier, answer.tier_reason.as_deref());
    for at in &answer.silent {
        let (iface, mode) = (clean(&at.iface), clean(&at.mode));
        line!(
            out,
            "  nothing comes by interface `{iface}`, which is {mode}"
        );
        if let Some(hint) = &at.hint {
            line!(out, "    hint: {}", clean(hint));
        }
    }
    for row in &answer.rows {
        let (counter, reason) = (clean(&row.counter), clean(&row.reason));
        line!(out, "  {counter} {}: a message {reason}", row.count);
        let at = stage(row).map(|stage| format!("at {stage}, "));
        line!(out, "    {}{}", at.unwrap_or_default(), configured_row(row));
        out += &last_fault(row);
        line!(out, "    hint: {}", clean(&row.hint));
    }
    for (row, at) in answer.together.iter().zip(0..) {
        if at == 0 {
            line!(out, "  together with all other paths of modules:");
        }
        let (counter, reason) = (clean(&row.counter), clean(&row.reason));
        line!(out, "    {counter} {}: a message {reason}", row.count);
        // Notes alone are nothing to act on.
        if counter.contains("dropped_") {
            line!(out, "      hint: {}", clean(&row.hint));
        }
    }
    out
}

/// The stage of a row, and the one that does its work; some paths have none for it.
fn stage(row: &Counted) -> Option<String> {
    let stage = clean(row.stage.as_deref()?);
    Some(match &row.merged_into {
        Some(merged) => format!("stage `{stage}` (done by `{}`)", clean(merged)),
        None => format!("stage `{stage}`"),
    })
}

/// Where something comes from, with the key of the configuration if there is one.
fn configured(file: &str, line: Option<u64>, key: Option<&str>) -> String {
    let key = key.map_or_else(String::new, |key| format!(" (`{}`)", clean(key)));
    let word = if line.is_some() { "configured at " } else { "" };
    format!("{word}{}{key}", place(file, line))
}

fn configured_row(row: &Counted) -> String {
    configured(&row.file, row.line, row.key.as_deref())
}

/// Where the handler was stopped last.
fn last_fault(row: &Counted) -> String {
    let fault = row.last_fault.as_ref();
    match fault.map(|fault| (&fault.file, fault.line, &fault.cause)) {
        Some((Some(file), Some(line), cause)) => {
            let cause = cause.as_deref().map_or_else(|| "?".to_owned(), clean);
            format!("    last stopped at {}:{line} ({cause})\n", clean(file))
        }
        _ => String::new(),
    }
}
