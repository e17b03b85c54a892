//! What `ashway handler run` shows.

use std::fmt::Write as _;

use ashway_abi::Verdict;
use ashway_codegen::normalise::Module;
use ashway_trial::{Activation, Engine};
use serde_json::{Map, Value, json};

use super::super::file::{self, count};
use super::super::hex::{lower_hex, sha256};
use super::super::packets::{Capture, Packet};
use super::compare::Comparison;
use super::{Part, Run};
use crate::table;

/// Rows that a person wants to see.
const ROWS: usize = 40;

impl Run {
    pub(super) fn document(
        &self,
        module: &Module<'_>,
        capture: &Capture,
        parts: &[Part<'_>],
        comparison: &Comparison,
        written: Option<usize>,
    ) -> Value {
        let (difference, out_of_time) = match comparison {
            Comparison::Same => (None, None),
            Comparison::Differ(difference) => (Some(difference), None),
            Comparison::OutOfTime { packet, engine } => (None, Some((packet, engine.name()))),
        };
        let budget = self.budget().fuel as i64;
        let packets: Vec<Value> = capture
            .packets
            .iter()
            .enumerate()
            .map(|(index, packet)| {
                let mut row = json!({
                    "number": index + 1,
                    "bytes": packet.message().map(<[u8]>::len),
                    "skipped": packet.skipped(),
                });
                for part in parts {
                    if let Some(activation) = &part.activations[index] {
                        row[part.engine.name()] = json!({
                            "verdict": activation.verdict().map(Verdict::name),
                            "stopped": activation.result.err().map(|s| file::stopped_json(module, s)),
                            "message": lower_hex(&activation.message),
                            "dirty": activation.dirty,
                            "fuel_spent": budget - activation.fuel_left,
                        });
                        if module.logs() && part.engine == Engine::User {
                            let (lines, lost) = &part.logs[index];
                            row[part.engine.name()]["log"] = json!(lines);
                            row[part.engine.name()]["log_lost"] = json!(lost);
                        }
                    }
                }
                row
            })
            .collect();
        let mut memory = Map::new();
        let mut ns = Map::new();
        for part in parts {
            let name = part.engine.name();
            memory.insert(
                name.to_owned(),
                json!({ "guest_sha256": sha256(&part.guest), "state_sha256": sha256(&part.state) }),
            );
            if let (Some(taken), Some(empty)) = (part.ns, part.empty_ns) {
                ns.insert(name.to_owned(), json!(taken));
                ns.insert(format!("empty_{name}"), json!(empty));
            }
        }
        json!({
            "handler": self.file.display().to_string(),
            "entry": self.entry,
            "tiers": parts.iter().map(|part| part.engine.name()).collect::<Vec<_>>(),
            "budget_ns": self.budget().ns,
            "packets": packets,
            "memory": memory,
            "ns_per_call": if ns.is_empty() { Value::Null } else { ns.into() },
            "difference": difference.map(|difference| {
                let mut value = json!({ "packet": difference.packet, "what": difference.what });
                for (engine, found) in &difference.found {
                    value[engine.name()] = json!(found);
                }
                value
            }),
            "out_of_time": out_of_time.map(|(packet, tier)| {
                json!({ "packet": packet, "tier": tier })
            }),
            "out": written.zip(self.out.as_ref()).map(|(frames, file)| {
                json!({ "file": file.display().to_string(), "frames": frames })
            }),
        })
    }

    pub(super) fn text(
        &self,
        module: &Module<'_>,
        capture: &Capture,
        parts: &[Part<'_>],
        comparison: &Comparison,
        written: Option<usize>,
    ) -> String {
        let budget = self.budget().fuel as i64;
        let mut header = vec![
            "PACKET".to_owned(),
            "BYTES".to_owned(),
            "VERDICT".to_owned(),
        ];
        if self.trace_fuel {
            let names = parts.iter().map(|part| part.engine.name().to_uppercase());
            header.extend(names.map(|name| format!("FUEL {name}")));
        }
        header.push("MESSAGE".to_owned());
        let row = |(index, packet): (usize, &Packet)| {
            let mut row = vec![(index + 1).to_string()];
            row.push(
                packet
                    .message()
                    .map_or(String::new(), |m| m.len().to_string()),
            );
            let first = parts[0].activations[index].as_ref();
            row.push(match first {
                None => packet.skipped().unwrap_or_default().to_owned(),
                Some(activation) => verdict(module, activation),
            });
            if self.trace_fuel {
                row.extend(parts.iter().map(|part| {
                    let activation = part.activations[index].as_ref();
                    activation.map_or(String::new(), |a| (budget - a.fuel_left).to_string())
                }));
            }
            let goes_on = |a: &&Activation| {
                matches!(
                    a.verdict(),
                    Some(Verdict::Reply | Verdict::Deliver | Verdict::Forward)
                )
            };
            let sent = first.filter(goes_on);
            row.push(sent.map_or(String::new(), |a| shortened(&a.message)));
            row
        };
        let rows: Vec<Vec<String>> = capture
            .packets
            .iter()
            .enumerate()
            .take(ROWS)
            .map(row)
            .collect();
        let header: Vec<&str> = header.iter().map(String::as_str).collect();
        let mut text = table::render(&header, &rows);
        // Writing to a string cannot fail.
        if let Some(more) = capture.packets.len().checked_sub(ROWS + 1) {
            let _ = writeln!(text, "  ... and {} more (all with -j)", more + 1);
        }
        text += &log(module, parts);
        let _ = writeln!(text, "\n{}", counts(capture, &parts[0]));
        for part in parts {
            let _ = writeln!(
                text,
                "memory after, {:<12} guest {}\n{:26} state {}",
                format!("{}:", part.engine.name()),
                sha256(&part.guest),
                "",
                sha256(&part.state),
            );
        }
        if parts.len() > 1 && matches!(comparison, Comparison::Same) {
            let names: Vec<_> = parts.iter().map(|part| part.engine.name()).collect();
            let _ = writeln!(
                text,
                "{} agree: verdicts, messages, fuel and memory",
                names.join(" and ")
            );
        }
        for part in parts {
            if let (Some(ns), Some(empty)) = (part.ns, part.empty_ns) {
                let _ = writeln!(
                    text,
                    "{:<12} {ns:.1} ns per call, {:.1} without what an empty handler takes",
                    format!("{}:", part.engine.name()),
                    (ns - empty).max(0.0),
                );
            }
        }
        if let (Some(frames), Some(out)) = (written, &self.out) {
            let _ = writeln!(
                text,
                "wrote {} to {}",
                count(frames, "frame"),
                out.display()
            );
        }
        text
    }
}

/// What was logged, packet by packet.
fn log(module: &Module<'_>, parts: &[Part<'_>]) -> String {
    if !module.logs() {
        return String::new();
    }
    let Some(part) = parts.iter().find(|part| part.engine == Engine::User) else {
        return "\nits lines are shown with `--tier user`\n".to_owned();
    };
    let rows = part
        .logs
        .iter()
        .zip(1..)
        .flat_map(|((lines, lost), number)| {
            let lost = (*lost > 0).then(|| format!("({lost} more were too many)"));
            let lines = lines.iter().cloned().chain(lost);
            lines.map(move |line| vec![format!("{number}"), line])
        });
    let all: Vec<_> = rows.collect();
    let mut text = String::from("\n");
    text += &table::render(&["PACKET", "LOGGED"], &all[..all.len().min(ROWS)]);
    if let Some(more @ 1..) = all.len().checked_sub(ROWS) {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  ... and {more} more (all with -j)");
    }
    text
}

pub(super) fn verdict(module: &Module<'_>, activation: &Activation) -> String {
    let end = match activation.result {
        Ok(_) => activation.verdict().map_or("?", Verdict::name).to_owned(),
        Err(stopped) => format!(
            "stopped: {} at {}",
            stopped.cause.name(),
            file::place(module, stopped.at)
        ),
    };
    end + spoiled(activation)
}

/// What a node does with a message that was changed and not sent on as changed.
fn spoiled(activation: &Activation) -> &'static str {
    if activation.is_spoiled() {
        ", but changed: a node drops it"
    } else {
        ""
    }
}

/// How many packets met which end.
fn counts(capture: &Capture, part: &Part<'_>) -> String {
    let mut counts: Vec<(String, usize)> = Vec::new();
    for (packet, activation) in capture.packets.iter().zip(&part.activations) {
        let end = match activation {
            None => packet.skipped().unwrap_or_default().to_owned(),
            Some(activation) => {
                let end = match activation.result {
                    Ok(_) => activation.verdict().map_or("?", Verdict::name).to_owned(),
                    Err(stopped) => format!("stopped ({})", stopped.cause.name()),
                };
                end + if activation.is_spoiled() {
                    " (changed)"
                } else {
                    ""
                }
            }
        };
        match counts.iter_mut().find(|(known, _)| *known == end) {
            Some((_, count)) => *count += 1,
            None => counts.push((end, 1)),
        }
    }
    let list: Vec<_> = counts.iter().map(|(end, n)| format!("{n} {end}")).collect();
    let packets = count(capture.packets.len(), "packet");
    match list.join(", ") {
        list if list.is_empty() => packets,
        list => format!("{packets}: {list}"),
    }
}

/// The first bytes, for a row.
fn shortened(message: &[u8]) -> String {
    const MOST: usize = 16;
    let text = lower_hex(&message[..message.len().min(MOST)]);
    if message.len() > MOST {
        text + "..."
    } else {
        text
    }
}
