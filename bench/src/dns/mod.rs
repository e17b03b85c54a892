//! `ashway bench dns`: a DNS responder as a handler, beside unbound.
//!
//! `apps/handlers/zone.c` and unbound (one thread, `local-data`) have the same names, and
//! `dnsperf` asks for them at one rate: unbound, the handler in the kernel tier at TCX, in
//! the user tier at TCX, and in the kernel tier under XDP, where few frames have room for
//! an answer that is longer than its query. Each on a veth of its own, as it comes, in turn.
//!
//! Latency is the average that `dnsperf` prints. CPU time is the whole machine's: what both
//! CPUs were neither idle nor stolen from `dnsperf`'s start to its end, so of the client,
//! too; of a machine that has something else to do it says nothing.

mod perf;
mod servers;

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use self::perf::{DnsperfRun, RATE, ask};
use self::servers::{Folder, Place, Server, lines, name};
use crate::Report;
use crate::hosts;
use crate::ratio::{self, Ratio, Target};
use crate::stats::Spread;
use crate::table;

/// How much to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Rounds; each has all cases in turn.
    pub rounds: usize,
    /// Two rounds of a second each: whether it works, not how fast.
    pub quick: bool,
    /// The `ashway` to measure; the release build unless told otherwise.
    pub binary: Option<PathBuf>,
}

/// `None` is unbound, with which the others are compared.
const CASES: [(&str, Option<Place>); 4] = [
    ("unbound", None),
    (
        "ashway, tcx, kernel tier",
        Some(Place::new("tcx", "kernel")),
    ),
    ("ashway, tcx, user tier", Some(Place::new("tcx", "user"))),
    (
        "ashway, xdp, kernel tier",
        Some(Place::new("xdp", "kernel")),
    ),
];
const TCX: usize = 1;
const USER: usize = 2;
const XDP: usize = 3;

/// Measures; two and a half minutes with 5 rounds. Needs root, `unbound`, `dnsperf` and the
/// built handlers.
///
/// The document: `{"rate","seconds","cases":[...],"ratios"}`.
///
/// # Errors
///
/// Without the right to make namespaces, and what a node or a tool said.
pub fn run(options: &Options) -> Result<Report> {
    let folder = Folder::new()?;
    let queries = folder.file("queries", &lines(|i| format!("{} A", name(i))))?;
    let mut rigs = Vec::new();
    for number in 0..CASES.len() {
        rigs.push(hosts::stock(&format!("dns{number}"))?);
    }
    let mut servers = Vec::new();
    for ((what, place), rig) in CASES.into_iter().zip(&rigs) {
        let server = match place {
            None => Server::unbound(rig, &folder),
            Some(place) => Server::node(rig, place, &folder, options.binary.as_deref()),
        };
        servers.push(server.context(what)?);
    }
    let (count, seconds) = if options.quick {
        (2, 1)
    } else {
        (options.rounds, 6)
    };
    let mut rounds: Vec<[DnsperfRun; CASES.len()]> = Vec::new();
    for number in 0..count {
        let mut round = [DnsperfRun::default(); CASES.len()];
        for case in (0..CASES.len()).map(|case| (case + number) % CASES.len()) {
            let run = ask(&rigs[case], &servers[case], &queries, seconds);
            round[case] = run.context(CASES[case].0)?;
        }
        // Averages, without what is behind their point.
        let longer = round.map(|run| run.sizes.1.saturating_sub(run.sizes.0));
        ensure!(
            longer.iter().all(|bytes| bytes.abs_diff(16) <= 1),
            "an answer is 16 bytes longer than its query, not {longer:?}"
        );
        rounds.push(round);
    }
    for server in servers {
        server.stop()?;
    }
    report(&rounds, seconds)
}

fn report(rounds: &[[DnsperfRun; CASES.len()]], seconds: u32) -> Result<Report> {
    let of = |case: usize, what: fn(&DnsperfRun) -> f64| {
        rounds.iter().map(move |round| what(&round[case]))
    };
    let spread = |case, what| Spread::of(of(case, what)).context("no rounds");
    let (mut lines, mut cases) = (Vec::new(), Vec::new());
    for (case, (name, place)) in CASES.into_iter().enumerate() {
        let latency = spread(case, |run| run.latency_us)?;
        let cpu = spread(case, |run| run.cpu_us)?;
        let share = spread(case, |run| run.kernel_share)?;
        let sum = |what: fn(&DnsperfRun) -> u64| {
            rounds.iter().map(|round| what(&round[case])).sum::<u64>()
        };
        let counts = [
            sum(|run| run.completed),
            sum(|run| run.lost),
            sum(|run| run.stopped),
        ];
        let mut line = vec![name.to_owned()];
        for spread in [latency, cpu] {
            line.extend([spread.median, spread.min, spread.max].map(table::digits));
        }
        let percent = format!("{:.2} %", share.min * 100.0);
        line.push(place.map_or_else(String::new, |_| percent));
        line.extend(counts.map(|count| count.to_string()));
        lines.push(line);
        cases.push(json!({
            "case": name, "latency_us": latency.to_json(), "cpu_us": cpu.to_json(),
            "kernel_share": place.map(|_| share.to_json()), "completed": counts[0],
            "lost": counts[1], "stopped": counts[2],
        }));
    }
    let over = |case, what| {
        of(case, what)
            .zip(of(0, what))
            .map(|(ours, peer)| ours / peer)
    };
    let latency = |case| over(case, |run: &DnsperfRun| run.latency_us);
    let cpu = |case| over(case, |run: &DnsperfRun| run.cpu_us);
    let lowest_share = |case| Some(spread(case, |run| run.kernel_share).ok()?.min);
    let share = |name, target, case| Ratio::exact(name, target, lowest_share(case)?);
    let lost = |run: &DnsperfRun| run.lost as f64;
    let ratios: Vec<Ratio> = [
        share("tcx_kernel_share", Target::AtLeast(0.99), TCX),
        Ratio::of(
            "tcx_latency_over_unbound",
            Target::AtMost(0.4),
            latency(TCX),
        ),
        Ratio::of("tcx_cpu_over_unbound", Target::AtMost(0.75), cpu(TCX)),
        Ratio::of("tcx_lost", Target::Recorded, of(TCX, lost)),
        Ratio::of("user_latency_over_unbound", Target::Recorded, latency(USER)),
        Ratio::of("user_cpu_over_unbound", Target::Recorded, cpu(USER)),
        share("xdp_kernel_share", Target::Recorded, XDP),
        Ratio::of("xdp_latency_over_unbound", Target::Recorded, latency(XDP)),
        Ratio::of("xdp_cpu_over_unbound", Target::Recorded, cpu(XDP)),
    ]
    .into_iter()
    .flatten()
    .collect();
    let header = [
        "SERVER",
        "LATENCY",
        "MIN",
        "MAX",
        "CPU",
        "MIN",
        "MAX",
        "IN KERNEL",
        "ANSWERS",
        "LOST",
        "STOPPED",
    ];
    let text = format!(
        "{RATE} queries a second for {seconds} s: average latency and CPU time of the whole \
         machine a query (us),\nmedians of the rounds; the lowest share of messages run in the \
         kernel tier:\n\n{}\n{}",
        table::render(&header, 1, &lines),
        ratio::render(&ratios)
    );
    let document: Value = json!({
        "rate": RATE.parse::<u32>()?, "seconds": seconds, "cases": cases,
        "ratios": ratio::to_json(&ratios),
    });
    Ok(Report { document, text })
}
