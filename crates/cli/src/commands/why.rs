//! `ashway why`: which path a flow takes, and why messages ended as they did.

use std::fmt::Write as _;
use std::path::PathBuf;

use ashway_api::request;
use ashway_config as config;
use ashway_daemon::why;
use clap::Args;
use serde_json::Value;

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
        let answer = match &self.config {
            Some(file) => {
                let config = config::load(file)?;
                if !self.about.contains('>') {
                    let what = format!("`{}` is no flow", self.about);
                    let hint = "a configuration has counted nothing: leave out `--config` to ask \
                                a node";
                    return Err(Failure::new(Exit::Usage, what).hint(hint));
                }
                why::offline(&config, &self.about, self.iface.as_deref())?
            }
            None => self.node.connect()?.request(request::Why {
                about: self.about,
                path: self.path,
                iface: self.iface,
            })?,
        };
        face.show(&answer, || match answer["about"].as_str() {
            Some("flow") => flow(&answer),
            Some("counter") => counter(&answer),
            _ => path(&answer),
        })
    }
}

/// A text of the answer, fit for a terminal; `?` if it is none.
fn text(value: &Value) -> String {
    clean(value.as_str().unwrap_or("?"))
}

fn texts(value: &Value) -> String {
    let all: Vec<_> = value.as_array().into_iter().flatten().map(text).collect();
    all.join(" > ")
}

/// `node.toml:12`, where there is such a place.
fn place(entry: &Value) -> String {
    match entry["line"].as_u64() {
        Some(line) => format!("{}:{line}", text(&entry["file"])),
        None => "bound while the node ran".to_owned(),
    }
}

// Writing to a string cannot fail.
macro_rules! line {
    ($text:expr, $($arg:tt)*) => { let _ = writeln!($text, $($arg)*); };
}

fn flow(answer: &Value) -> String {
    let mut out = String::new();
    let to = match &answer["path"] {
        Value::String(path) => format!("path `{}`", clean(path)),
        _ => "the host".to_owned(),
    };
    line!(
        out,
        "{} on {} goes to {to}",
        text(&answer["flow"]),
        text(&answer["iface"])
    );
    line!(out, "  because: {}", text(&answer["reason"]));
    if answer["path"].is_string() {
        line!(out, "  {}", configured(answer));
        line!(out, "  stages: {}", texts(&answer["stages"]));
    }
    out += &tier(answer);
    let list = |key: &str| answer[key].as_array().into_iter().flatten();
    for entry in list("matched") {
        let (path, filter) = (text(&entry["path"]), text(&entry["match"]));
        line!(
            out,
            "  matches `{path}` ({} bits): {filter}    {}",
            entry["bits"],
            place(entry)
        );
    }
    for entry in list("missed") {
        let (path, missing) = (text(&entry["path"]), text(&entry["missing"]));
        line!(
            out,
            "  does not match `{path}`, which wants `{missing}`    {}",
            place(entry)
        );
    }
    if let Some(more @ 1..) = answer["missed_not_listed"].as_u64() {
        line!(out, "  and {more} more do not match");
    }
    out + &hint(answer)
}

fn tier(answer: &Value) -> String {
    match (&answer["tier"], &answer["tier_reason"]) {
        (Value::String(tier), Value::String(because)) => {
            format!("  tier: {}, because {}\n", clean(tier), clean(because))
        }
        (Value::String(tier), _) => format!("  tier: {}\n", clean(tier)),
        _ => String::new(),
    }
}

fn hint(answer: &Value) -> String {
    match answer["hint"].as_str() {
        None | Some("") => String::new(),
        Some(hint) => format!("  hint: {}\n", clean(hint)),
    }
}

fn counter(answer: &Value) -> String {
    let mut out = String::new();
    line!(
        out,
        "{}: a message {}",
        text(&answer["counter"]),
        text(&answer["reason"])
    );
    let list = |key: &str| answer[key].as_array().into_iter().flatten();
    for row in list("rows") {
        let at = stage(row).map(|stage| format!(", at {stage}"));
        line!(
            out,
            "  path `{}`: {}{}",
            text(&row["path"]),
            row["count"],
            at.unwrap_or_default()
        );
        line!(out, "    {}", configured(row));
        out += &last_fault(row);
    }
    if let Some(more @ 1..) = answer["rows_not_listed"].as_u64() {
        line!(out, "  and {more} more paths");
    }
    for iface in list("unmatched") {
        line!(
            out,
            "  interface `{}`: {} that matched no path",
            text(&iface["name"]),
            iface["passed"]
        );
    }
    let together = answer["together"].as_u64().unwrap_or(0);
    if together > 0 {
        line!(
            out,
            "  paths of modules, which have one counter for it: {together}"
        );
    } else if list("rows").chain(list("unmatched")).next().is_none() {
        line!(out, "  nothing has been counted so far");
    }
    out + &hint(answer)
}

fn path(answer: &Value) -> String {
    let mut out = String::new();
    let (received, waiting) = (&answer["received"], &answer["waiting"]);
    line!(
        out,
        "path `{}`: {received} received, {waiting} waiting",
        text(&answer["path"])
    );
    line!(out, "  {}", configured(answer));
    line!(out, "  stages: {}", texts(&answer["stages"]));
    out += &tier(answer);
    for row in answer["rows"].as_array().into_iter().flatten() {
        line!(
            out,
            "  {} {}: a message {}",
            text(&row["counter"]),
            row["count"],
            text(&row["reason"])
        );
        let at = stage(row).map(|stage| format!("at {stage}, "));
        line!(out, "    {}{}", at.unwrap_or_default(), configured(row));
        out += &last_fault(row);
        line!(out, "    hint: {}", text(&row["hint"]));
    }
    let together = answer["together"].as_array().into_iter().flatten();
    for (row, at) in together.zip(0..) {
        if at == 0 {
            line!(out, "  together with all other paths of modules:");
        }
        let (counter, reason) = (text(&row["counter"]), text(&row["reason"]));
        line!(out, "    {counter} {}: a message {reason}", row["count"]);
        // Notes alone are nothing to act on.
        if counter.contains("dropped_") {
            line!(out, "      hint: {}", text(&row["hint"]));
        }
    }
    out
}

/// The stage of a row, and the one that does its work; some paths have none for it.
fn stage(row: &Value) -> Option<String> {
    let stage = clean(row["stage"].as_str()?);
    Some(match row["merged_into"].as_str() {
        Some(merged) => format!("stage `{stage}` (done by `{}`)", clean(merged)),
        None => format!("stage `{stage}`"),
    })
}

/// Where something comes from, with the key of the configuration if there is one.
fn configured(entry: &Value) -> String {
    let key = entry["key"].as_str();
    let key = key.map_or_else(String::new, |key| format!(" (`{}`)", clean(key)));
    let word = if entry["line"].is_u64() {
        "configured at "
    } else {
        ""
    };
    format!("{word}{}{key}", place(entry))
}

/// Where the handler was stopped last.
fn last_fault(row: &Value) -> String {
    let fault = &row["last_fault"];
    match (fault["file"].as_str(), fault["line"].as_u64()) {
        (Some(file), Some(line)) => {
            let cause = text(&fault["cause"]);
            format!("    last stopped at {}:{line} ({cause})\n", clean(file))
        }
        _ => String::new(),
    }
}
