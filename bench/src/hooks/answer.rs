//! The remote increment at each hook.

use std::time::Duration;

use anyhow::{Context, Result};
use ashway_kernel::{Attached, Iface};
use ashway_rig::Rig;
use serde_json::json;

use super::{Options, Section, settled};
use crate::hosts::{self, COUNTER_PORT, Hosts};
use crate::peers::Object;
use crate::ratio::{Ratio, Target};
use crate::rtt::{self, Client, Plan};
use crate::stats::Spread;
use crate::table;

const CASES: [&str; 3] = ["ashway, tcx", "ashway, xdp", "by hand, tcx"];

/// Requests of a figure.
const REQUESTS: u32 = 4_000;
/// A figure ends after this time.
const LONGEST: Duration = Duration::from_secs(3);

pub(super) fn measure(options: &Options) -> Result<Section> {
    let rigs = ["hooks-tcx", "hooks-xdp", "hooks-hand"].map(hosts::stock);
    let [tcx, xdp, hand] = rigs;
    let (tcx, xdp, hand) = (tcx?, xdp?, hand?);
    let nodes = [
        options.node(&tcx, "tcx")?.start()?,
        options.node(&xdp, "xdp")?.start()?,
    ];
    for node in &nodes {
        settled(node)?;
    }
    let object = Object::load("tc_counter")?;
    let program = object.program("ashway_by_hand")?;
    let _attached =
        hand.in_b(|| -> Result<_> { Ok(Attached::tcx(&program, Iface::by_name("b0")?.ifindex)?) })?;
    let rigs = [&tcx, &xdp, &hand];
    let (count, requests) = if options.quick {
        (2, REQUESTS / 10)
    } else {
        (options.rounds, REQUESTS)
    };
    let mut rounds: Vec<[f64; CASES.len()]> = Vec::new();
    for number in 0..count {
        let mut round = [0.0; CASES.len()];
        for case in (0..CASES.len()).map(|case| (case + number) % CASES.len()) {
            round[case] = p50(rigs[case], requests).context(CASES[case])?;
        }
        rounds.push(round);
    }
    for node in nodes {
        node.stop()?;
    }
    let of = |case: usize| rounds.iter().map(move |round| round[case]);
    let spreads = [0, 1, 2].map(|case| Spread::of(of(case)).context("no rounds"));
    let mut lines = Vec::new();
    let mut document = Vec::new();
    for (name, spread) in CASES.into_iter().zip(spreads) {
        let spread = spread?;
        let cells = [spread.median, spread.min, spread.max].map(|ns| table::time(ns as u64));
        lines.push([vec![name.to_owned()], cells.to_vec()].concat());
        document.push(json!({ "case": name, "p50_ns": spread.to_json() }));
    }
    let over = |under: usize| of(0).zip(of(under)).map(|(tcx, under)| tcx / under);
    let ratios = [
        Ratio::of("tcx_over_xdp_p50", Target::AtMost(1.0), over(1)),
        Ratio::of("tcx_over_by_hand_p50", Target::AtMost(1.05), over(2)),
    ];
    Ok(Section {
        name: "answer",
        document: document.into(),
        text: format!(
            "A remote increment, p50 of {requests} round trips; medians of the rounds:\n\n{}",
            table::render(&["CASE", "P50", "MIN", "MAX"], 2, &lines)
        ),
        ratios: ratios.into_iter().flatten().collect(),
    })
}

/// Of the counter behind a wire, in ns.
fn p50(rig: &Rig, requests: u32) -> Result<f64> {
    let plan = Plan {
        requests,
        longest: LONGEST,
        client: Client::Fifo,
    };
    let run = rtt::run(&rig.client(COUNTER_PORT)?, plan)?;
    Ok(run.times.summary().p50 as f64)
}
