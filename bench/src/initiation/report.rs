//! The tables and the document.

use serde_json::{Value, json};

use super::{ASKED, OWN, Row, cost, timers};
use crate::Report;
use crate::stats::Spread;
use crate::table;

/// All that was measured.
pub(super) struct Found {
    pub(super) rows: Vec<Row>,
    pub(super) costs: Vec<cost::Row>,
    pub(super) late: Vec<timers::Row>,
    pub(super) arm: Spread,
    /// What a program may do, and whether the verifier takes it.
    pub(super) stated: Vec<(String, String)>,
    /// By which entries' programs two copies were marked.
    pub(super) pair: [u8; 2],
}

pub(super) fn report(found: &Found) -> Report {
    let lines: Vec<_> = found.rows.iter().map(line).collect();
    let header = ["WAY", "MESSAGE", "N", "P50 us", "MIN", "MAX", "P99 us"];
    let stated: Vec<Vec<String>> = (found.stated.iter())
        .map(|(name, answer)| vec![name.clone(), answer.clone()])
        .collect();
    let only = match found.pair {
        [1, 1] => "the first entry's is run for both",
        [1, 2] | [2, 1] => "each is run for its own",
        _ => "they are not run as expected",
    };
    let text = format!(
        "A request of {ASKED} bytes, until so many messages are back, of {ASKED} (the same) or \
         {OWN} bytes\n(its own):\n\n{}\nCPU time of each message, where nobody receives; \
         SEND x: that of `send` over it:\n\n{}\nSetting a `bpf_timer` takes {} ns ({} .. {}). \
         How late timers are:\n\n{}\nWhat the verifier takes of an XDP program:\n\n{}\nTwo \
         entries of a devmap, one interface, a program each: {only}.\n",
        table::render(&header, 2, &lines),
        cost::render(&found.costs),
        table::digits(found.arm.median),
        table::digits(found.arm.min),
        table::digits(found.arm.max),
        timers::render(&found.late),
        table::render(&["IT MAY", ""], 2, &stated),
    );
    let stated: Vec<Value> = (found.stated.iter())
        .map(|(name, answer)| json!({ "name": name, "answer": answer }))
        .collect();
    let document = json!({
        "messages": found.rows.iter().map(to_json).collect::<Vec<_>>(),
        "cpu": found.costs.iter().map(cost::Row::to_json).collect::<Vec<_>>(),
        "timers": found.late.iter().map(timers::Row::to_json).collect::<Vec<_>>(),
        "arm_ns": found.arm.to_json(),
        "verifier": stated,
        "one_interface": only,
    });
    Report { document, text }
}

fn line(row: &Row) -> Vec<String> {
    let (p50, us) = (row.p50(), |ns: f64| table::digits(ns / 1e3));
    let message = if row.way.own { "its own" } else { "the same" };
    let mut line = [row.way.name, message].map(str::to_owned).to_vec();
    line.push(row.wanted.to_string());
    line.extend([p50.median, p50.min, p50.max, row.p99()].map(us));
    line
}

fn to_json(row: &Row) -> Value {
    json!({
        "way": row.way.name,
        "own": row.way.own,
        "messages": row.wanted,
        "p50_ns": row.p50().to_json(),
        "p99_ns": row.p99(),
    })
}
