//! `ashway bench demux`: how long it takes to find a frame's path, by the number
//! of paths.
//!
//! All paths are of one shape (`udp dst port 7777 and src host A`). Three programs
//! take turns by `BPF_PROG_TEST_RUN`, each run on another of the keys, drawn
//! uniformly or always the same one:
//!
//! * **demux**: the program that the entry program begins with, its count of the
//!   hit included;
//! * **bare**: bounds, the same key from constant places, one look-up in a
//!   `BPF_MAP_TYPE_HASH` of the same keys and values, nothing else;
//! * **floor**: nothing. It and the others begin by drawing the next key and
//!   writing it into the packet; this and the test run's own time are what
//!   `LESS FLOOR` subtracts.

mod program;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::ratio::{self, Ratio, Target};
use crate::stats::Spread;
use crate::table;
use program::{Case, Programs};

/// Numbers of paths.
const PATHS: [u32; 5] = [1, 10, 1_000, 10_000, 100_000];

/// Runs in one call.
const REPEAT: u32 = 200_000;

/// Calls per program and round. They alternate, so that a slow moment of the
/// machine meets all three.
const CALLS: u32 = 20;

/// How much to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Rounds; a ratio is their median.
    pub rounds: usize,
    /// One round and a tenth of the calls: whether it works, not how fast.
    pub quick: bool,
}

/// What was measured.
#[derive(Clone, Debug)]
pub struct Report {
    /// `{"cases":[...],"ratios":{...}}`; times in ns.
    pub document: Value,
    /// The same as tables.
    pub text: String,
}

/// Measures; about a minute. Needs root.
///
/// # Errors
///
/// Without the right to load programs, or if one does not find its path.
pub fn run(options: &Options) -> Result<Report> {
    let (rounds, calls) = match options.quick {
        true => (1, CALLS / 10),
        false => (options.rounds.max(1), CALLS),
    };
    let mut lines = Vec::new();
    let mut cases = Vec::new();
    let mut ratios = Vec::new();
    for paths in PATHS {
        for case in [Case::Uniform, Case::Hot] {
            eprintln!("measuring {paths} paths, {} ...", case.word());
            let programs = Programs::load(paths, case)?;
            programs.check()?;
            let times: Vec<[f64; 3]> = (0..rounds)
                .map(|_| round(&programs, calls))
                .collect::<Result<_>>()?;
            let spread = |of: usize| Spread::of(times.iter().map(|times| times[of]));
            let (Some(demux), Some(bare), Some(floor)) = (spread(0), spread(1), spread(2)) else {
                continue;
            };
            let whole = Spread::of(times.iter().map(|[demux, bare, _]| demux / bare));
            let net = times
                .iter()
                .map(|[demux, bare, floor]| (demux - floor) / (bare - floor).max(1.0));
            let net = Spread::of(net);
            let (Some(whole), Some(net)) = (whole, net) else {
                continue;
            };
            lines.push(vec![
                paths.to_string(),
                case.word().to_owned(),
                format!("{:.1}", demux.median),
                format!("{:.1}", bare.median),
                format!("{:.1}", floor.median),
                format!("{:.1}", demux.median - floor.median),
                format!("{:.1}", bare.median - floor.median),
                table::digits(whole.median),
                table::digits(net.median),
            ]);
            cases.push(json!({
                "paths": paths,
                "keys": case.word(),
                "demux_ns": demux.to_json(),
                "bare_ns": bare.to_json(),
                "floor_ns": floor.to_json(),
                "demux_over_bare": whole.to_json(),
                "demux_over_bare_less_floor": net.to_json(),
            }));
            if case == Case::Uniform {
                ratios.extend(times.iter().map(|[demux, bare, _]| (paths, demux / bare)));
            }
        }
    }
    let worst = |of: &[(u32, f64)]| -> Vec<f64> {
        (0..rounds)
            .map(|round| {
                let of_round = of.iter().enumerate().filter(|(i, _)| i % rounds == round);
                of_round.map(|(_, (_, ratio))| *ratio).fold(0.0, f64::max)
            })
            .collect()
    };
    let ratios: Vec<Ratio> = Ratio::of(
        "demux_over_bare_hash_worst",
        Target::AtMost(1.2),
        worst(&ratios),
    )
    .into_iter()
    .collect();
    ensure!(!lines.is_empty(), "nothing was measured");
    let header = [
        "PATHS",
        "KEYS",
        "DEMUX",
        "BARE",
        "FLOOR",
        "DEMUX-FLOOR",
        "BARE-FLOOR",
        "DEMUX/BARE",
        "LESS FLOOR",
    ];
    Ok(Report {
        document: json!({ "cases": cases, "ratios": ratio::to_json(&ratios) }),
        text: format!(
            "To find a frame's path, ns, the best calls of each round:\n\n{}\n{}",
            table::render(&header, 2, &lines),
            ratio::render(&ratios)
        ),
    })
}

/// The best time of each program: demux, bare, floor.
fn round(programs: &Programs, calls: u32) -> Result<[f64; 3]> {
    let mut best = [f64::INFINITY; 3];
    for _ in 0..calls {
        for (program, best) in programs.all().into_iter().zip(&mut best) {
            *best = best.min(programs.ns_per_run(program, REPEAT)?);
        }
    }
    Ok(best)
}
