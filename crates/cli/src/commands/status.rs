//! `ashway status`: where every message went.

use std::fmt::Write as _;

use ashway_api::request;
use clap::Args;
use serde_json::{Map, Value};

use super::Node;
use crate::face::{Face, clean};
use crate::failure::Failure;
use crate::table;

/// Say where every message went
///
/// Each message a path received is in exactly one column of fates or still
/// waiting: at rest the sums close to the message.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ashway status
  ashway status -j | jq '.paths[] | {name, received}'")]
pub(crate) struct Status {
    #[command(flatten)]
    node: Node,
}

impl Status {
    pub(crate) fn run(self, face: Face) -> Result<(), Failure> {
        let document = self.node.connect()?.request(request::Status {})?;
        face.show(&document, || render(&document))?;
        Ok(())
    }
}

/// All tables.
fn render(document: &Value) -> String {
    let mut parts = vec![
        interfaces(document),
        handlers(document),
        paths(document),
        shares(document),
        without_handler(document),
        losses(document),
        taps(document),
        operations(document),
    ];
    parts.retain(|part| !part.is_empty());
    parts.join("\n")
}

fn interfaces(document: &Value) -> String {
    let rows: Vec<_> = each(document, "interfaces")
        .map(|iface| {
            vec![
                text(&iface["name"]),
                text(&iface["mode"]),
                text(&iface["reply"]),
                text(&iface["udp_checksum"]),
                text(&iface["unmatched"]["passed"]),
                match text(&iface["lost_after_hand_over"]) {
                    none if none.is_empty() => "0".to_owned(),
                    lost => lost,
                },
            ]
        })
        .collect();
    let header = [
        "INTERFACE",
        "MODE",
        "REPLY",
        "UDP CHECKSUM",
        "PASSED ON",
        "LOST AFTER HAND-OVER",
    ];
    let mut out = table::render(&header, &rows);
    for iface in each(document, "interfaces") {
        let hint = text(&iface["hint"]);
        if !hint.is_empty() {
            // Writing to a string cannot fail.
            let _ = writeln!(out, "hint: {}: {}", text(&iface["name"]), clean(&hint));
        }
    }
    out
}

/// What is under way: `ashway cancel` ends it.
fn operations(document: &Value) -> String {
    let keys = ["operation", "does", "about", "by", "waits_for", "age_ms"];
    let rows: Vec<_> = each(document, "operations")
        .map(|operation| keys.map(|key| text(&operation[key])).to_vec())
        .collect();
    let header = ["OPERATION", "DOES", "ABOUT", "BY", "WAITS FOR", "SINCE MS"];
    if rows.is_empty() {
        String::new()
    } else {
        table::render(&header, &rows)
    }
}

/// What taps write, and what keeps them from it.
fn taps(document: &Value) -> String {
    let rows: Vec<_> = each(document, "taps")
        .map(|tap| {
            ["tap", "file", "written", "lost", "failed", "because"]
                .map(|key| text(&tap[key]))
                .to_vec()
        })
        .collect();
    let header = ["TAP", "FILE", "WRITTEN", "LOST", "FAILED", "BECAUSE"];
    if rows.is_empty() {
        String::new()
    } else {
        table::render(&header, &rows)
    }
}

/// Why a path is not in the kernel tier, and what to do; nothing if it is.
pub(crate) fn stays(name: &str, stays: &Value) -> String {
    let word = |key: &str| clean(stays[key].as_str().unwrap_or_default());
    if !stays.is_object() {
        return String::new();
    }
    let asked = match stays["asked"].as_str() {
        Some("kernel") => " has `tier = \"kernel\"` and",
        _ => "",
    };
    let place = match word("line") {
        line if line.is_empty() => line,
        line => format!("{line}: "),
    };
    let mut text = format!(
        "path `{}`{asked} stays in the user tier: {place}{}\n",
        clean(name),
        word("because")
    );
    if !word("hint").is_empty() {
        let _ = writeln!(text, "  hint: {}", word("hint"));
    }
    text
}

/// The handlers and why each runs where it runs.
pub(crate) fn handlers(document: &Value) -> String {
    let rows: Vec<_> = each(document, "handlers")
        .map(|handler| {
            let promotion = &handler["promotion"];
            let mut why = text(&promotion["because"]);
            let line = text(&promotion["line"]);
            if !line.is_empty() {
                why = format!("{why} ({line})");
            }
            if why.is_empty() && promotion["insns"].is_u64() {
                why = format!(
                    "{} instructions, {} verified, loaded in {} us",
                    promotion["insns"], promotion["verified_insns"], promotion["load_us"]
                );
            }
            vec![
                text(&handler["name"]),
                text(&handler["tier"]),
                text(&handler["memory"]),
                text(&handler["bytes"]),
                text(&handler["digest"]).chars().take(12).collect(),
                owner(handler),
                text(&promotion["state"]),
                why,
            ]
        })
        .collect();
    let header = [
        "HANDLER",
        "TIER",
        "MEMORY",
        "BYTES",
        "DIGEST",
        "OWNER",
        "PROMOTION",
        "WHY",
    ];
    let mut out = table::render(&header, &rows);
    let granted: Vec<_> = each(document, "handlers")
        .map(|handler| {
            let params = entries(&handler["params"]);
            let params: Vec<_> = params
                .map(|(name, value)| format!("{name}={value}"))
                .collect();
            vec![
                text(&handler["name"]),
                text(&handler["allow"]),
                params.join(" "),
            ]
        })
        .filter(|row| row[1..].iter().any(|cell| !cell.is_empty()))
        .collect();
    if !granted.is_empty() {
        out.push('\n');
        out += &table::render(&["HANDLER", "MAY", "PARAMETERS"], &granted);
    }
    let faults: Vec<_> = each(document, "handlers")
        .filter(|handler| handler["last_fault"].is_object())
        .map(|handler| {
            let fault = &handler["last_fault"];
            let place = match (text(&fault["file"]), text(&fault["line"])) {
                (file, line) if !file.is_empty() => format!("{file}:{line}"),
                _ => format!("offset {}", text(&fault["at"])),
            };
            vec![
                text(&handler["name"]),
                text(&fault["cause"]),
                place,
                text(&fault["count"]),
            ]
        })
        .collect();
    if !faults.is_empty() {
        out.push('\n');
        out += &table::render(&["STOPPED HANDLER", "LAST CAUSE", "AT", "TIMES"], &faults);
    }
    let former: Vec<_> = each(document, "handlers")
        .flat_map(|handler| each(handler, "former").map(move |former| (handler, former)))
        .map(|(handler, former)| {
            vec![
                text(&handler["name"]),
                text(&former["digest"]).chars().take(12).collect(),
                text(&former["file"]),
            ]
        })
        .collect();
    if !former.is_empty() {
        out.push('\n');
        out += &table::render(&["HANDLER", "BEFORE", "FROM"], &former);
    }
    for handler in each(document, "handlers") {
        let hint = text(&handler["last_fault"]["hint"]);
        if !hint.is_empty() {
            // Writing to a string cannot fail.
            let _ = writeln!(out, "hint: {}: {}", text(&handler["name"]), clean(&hint));
        }
    }
    out
}

/// Who takes something along when it ends.
fn owner(object: &Value) -> String {
    match text(&object["owner"]) {
        none if none.is_empty() => "node".to_owned(),
        pid => format!("process {pid}"),
    }
}

/// The paths and both their ledgers.
pub(crate) fn paths(document: &Value) -> String {
    let rows: Vec<_> = each(document, "paths")
        .map(|path| {
            let fates: Map<_, _> = entries(&path["fates"])
                .map(|(name, count)| (name.clone(), Value::from(total(count))))
                .collect();
            let unbalanced = path["balanced"] == Value::Bool(false);
            vec![
                text(&path["name"]),
                if path["bypass"].is_object() {
                    "bypassed".to_owned()
                } else {
                    text(&path["tier"])
                },
                text(&path["handler"]),
                text(&path["iface"]),
                text(&path["match"]),
                text(&path["received"]),
                text(&path["waiting"]),
                counts(&Value::Object(fates)),
                counts(&path["notes"]),
                if unbalanced { "sums do not close" } else { "" }.to_owned(),
            ]
        })
        .collect();
    let header = [
        "PATH",
        "TIER",
        "HANDLER",
        "INTERFACE",
        "MATCH",
        "RECEIVED",
        "WAITING",
        "FATES",
        "NOTES",
        "",
    ];
    let mut out = table::render(&header, &rows);
    for path in each(document, "paths") {
        let name = path["name"].as_str().unwrap_or("?");
        out += &bypass(name, &path["bypass"]);
        out += &stays(name, &path["stays"]);
    }
    let more = total(&document["paths_not_listed"]);
    if more > 0 {
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "and {more} more, by name behind these; `ashway path show NAME` shows any"
        );
    }
    let sent: Vec<_> = each(document, "paths")
        .filter(|path| total(&path["out"]["originated"]) > 0)
        .map(|path| {
            let out = &path["out"];
            vec![
                text(&path["name"]),
                text(&out["originated"]),
                text(&out["handed_over"]),
                counts(&out["dropped"]),
            ]
        })
        .collect();
    if !sent.is_empty() {
        out.push('\n');
        out += &table::render(&["PATH", "ORIGINATED", "HANDED OVER", "DROPPED"], &sent);
    }
    out
}

/// That a path's messages go by its handler, and for how long, if they do.
pub(super) fn bypass(path: &str, bypass: &Value) -> String {
    if !bypass.is_object() {
        return String::new();
    }
    format!(
        "path `{}` is bypassed for another {} s: {}\n  hint: {}\n",
        clean(path),
        bypass["left_ms"].as_u64().unwrap_or(0).div_ceil(1000),
        text(&bypass["because"]),
        text(&bypass["hint"]),
    )
}

/// The paths that have no more than a share of their tier.
fn shares(document: &Value) -> String {
    let rows: Vec<_> = each(document, "paths")
        .filter(|path| path["share"].is_string())
        .map(|path| {
            ["name", "share", "mode"]
                .map(|key| text(&path[key]))
                .to_vec()
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    table::render(&["PATH", "SHARE", "MODE"], &rows)
}

/// The paths without a handler as a whole: what was lost in the ring that they share
/// is no path's.
fn without_handler(document: &Value) -> String {
    let live = &document["live"];
    if total(&live["paths"]) == 0 && total(&live["received"]) == 0 {
        return String::new();
    }
    let fates = entries(&live["fates"]).filter(|(name, _)| *name != "dropped");
    let fates = fates.map(|(name, times)| (name.clone(), times.clone()));
    let dropped = entries(&live["fates"]["dropped"]);
    let dropped = dropped.map(|(name, times)| (format!("dropped_{name}"), times.clone()));
    let unbalanced = live["balanced"] == Value::Bool(false);
    let row = vec![
        text(&live["paths"]),
        text(&live["received"]),
        text(&live["waiting"]),
        counts(&Value::Object(fates.chain(dropped).collect())),
        if unbalanced { "sums do not close" } else { "" }.to_owned(),
    ];
    let header = [
        "PATHS WITHOUT A HANDLER",
        "RECEIVED",
        "WAITING",
        "FATES",
        "",
    ];
    table::render(&header, &[row])
}

/// Drops by reason and aborts by cause, one line each.
fn losses(document: &Value) -> String {
    let mut rows = Vec::new();
    for path in each(document, "paths") {
        for (kind, list) in [
            ("dropped", &path["fates"]["dropped"]),
            ("aborted", &path["aborts"]),
        ] {
            for (reason, count) in entries(list) {
                if total(count) > 0 {
                    let name = text(&path["name"]);
                    rows.push(vec![name, kind.to_owned(), reason.clone(), text(count)]);
                }
            }
        }
    }
    table::render(&["PATH", "WHAT", "WHY", "MESSAGES"], &rows)
}

fn each<'d>(document: &'d Value, key: &str) -> impl Iterator<Item = &'d Value> {
    document[key].as_array().into_iter().flatten()
}

fn entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

/// The sum of all numbers in a value.
fn total(value: &Value) -> u64 {
    match value {
        Value::Number(number) => number.as_u64().unwrap_or(0),
        Value::Object(map) => map.values().map(total).sum(),
        _ => 0,
    }
}

/// `answered 20000, passed 3`: what is not 0.
fn counts(value: &Value) -> String {
    entries(value)
        .filter(|(_, count)| total(count) > 0)
        .map(|(name, count)| format!("{name} {count}"))
        .collect::<Vec<_>>()
        .join(", ")
}

/// A value as a cell.
fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(list) => list.iter().map(text).collect::<Vec<_>>().join(","),
        Value::Object(_) => counts(value),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn document() -> Value {
        json!({
            "node": { "name": "default" },
            "interfaces": [{ "name": "veth0", "ifindex": 7, "mode": "native", "reply": "af_xdp",
                "udp_checksum": "whole", "unmatched": { "passed": 12 },
                "lost_after_hand_over": { "driver": 0 } }],
            "handlers": [
                { "name": "counter", "tier": "kernel", "memory": "arena", "bytes": 4096,
                  "digest": "0123456789abcdef", "promotion": { "state": "promoted", "insns": 101,
                  "verified_insns": 102, "load_us": 180 } },
                { "name": "loop", "tier": "user", "memory": "arena", "bytes": 4096,
                  "digest": "fedcba9876543210", "promotion": { "state": "user",
                  "because": "floating point", "line": "loop.c:9" },
                  "last_fault": { "cause": "fuel", "file": "loop.c", "line": 7, "count": 2,
                  "hint": "mend it" } },
            ],
            "paths": [{ "name": "inc", "iface": ["veth0"], "handler": "counter", "tier": "kernel",
                "match": "udp and dst port 7777", "received": 20005, "waiting": 0,
                "fates": { "consumed": 0, "answered": 20000,
                    "dropped": { "bad_length": 3, "fault": 2 } },
                "notes": { "queued_busy": 4 }, "aborts": { "voluntary": 0, "fuel": 2 },
                "out": { "originated": 5, "handed_over": 5, "dropped": { "tx_full": 0 } },
                "balanced": true }],
        })
    }

    #[test]
    fn every_number_that_is_not_zero_is_shown() {
        let shown = render(&document());
        for part in [
            "veth0      native  af_xdp",
            "101 instructions, 102 verified, loaded in 180 us",
            "floating point (loop.c:9)",
            "fuel        loop.c:7      2",
            "hint: loop: mend it",
            "answered 20000, dropped 5",
            "queued_busy 4",
            "inc   dropped  bad_length         3",
            "inc   aborted  fuel               2",
        ] {
            assert!(shown.contains(part), "{part}\n{shown}");
        }
        for part in ["consumed", "voluntary", "tx_full", "do not close"] {
            assert!(!shown.contains(part), "{part}\n{shown}");
        }
    }

    #[test]
    fn a_share_is_shown_with_its_mode() {
        let mut document = document();
        assert!(!render(&document).contains("SHARE"));
        document["paths"][0]["share"] = json!("12.5 %, 7000/s");
        document["paths"][0]["mode"] = json!("lazy");
        let shown = render(&document);
        assert!(shown.contains("inc   12.5 %, 7000/s  lazy"), "{shown}");
    }

    #[test]
    fn what_the_shared_ring_lost_is_shown() {
        let mut document = document();
        assert!(!render(&document).contains("WITHOUT A HANDLER"));
        document["live"] = json!({ "paths": 3, "received": 7058, "waiting": 0,
            "fates": { "consumed": 2909, "passed": 0, "dropped": { "ring_full": 4149 } },
            "balanced": true });
        let shown = render(&document);
        for part in ["consumed 2909, dropped_ring_full 4149", "7058"] {
            assert!(shown.contains(part), "{part}\n{shown}");
        }
        assert!(!shown.contains("do not close"), "{shown}");
    }

    #[test]
    fn a_number_stands_in_each_column_of_an_interface() {
        let shown = interfaces(&document());
        assert!(shown.trim_end().ends_with(" 0"), "{shown}");
        let mut document = document();
        document["interfaces"][0]["lost_after_hand_over"]["driver"] = json!(1);
        assert!(interfaces(&document).trim_end().ends_with("driver 1"));
    }

    #[test]
    fn a_document_without_anything_in_it_is_empty() {
        assert_eq!(render(&Value::Null), "");
        let mut unbalanced = document();
        unbalanced["paths"][0]["balanced"] = Value::Bool(false);
        assert!(paths(&unbalanced).contains("sums do not close"));
        let mut many = document();
        many["paths_not_listed"] = Value::from(3);
        assert!(paths(&many).contains("and 3 more"));
    }
}
