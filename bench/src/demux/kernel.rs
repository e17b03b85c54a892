//! The kernel tier: the program that the entry program begins with.
//!
//! Three programs take turns by `BPF_PROG_TEST_RUN`, each run on another of the
//! keys, drawn uniformly or always the same one:
//!
//! * **demux**: the program that the entry program begins with, its count of the
//!   hit included;
//! * **bare**: bounds, the same key from constant places, one look-up in a
//!   `BPF_MAP_TYPE_HASH` of the same keys and values, nothing else;
//! * **floor**: nothing. It and the others begin by drawing the next key and
//!   writing it into the packet; this and the test run's own time are what
//!   `LESS FLOOR` subtracts.

use anyhow::Result;
use serde_json::json;

use super::program::{Case, Programs};
use super::{PATHS, Part};
use crate::ratio::{Ratio, Target};
use crate::stats::Spread;
use crate::table;

/// Runs in one call.
const REPEAT: u32 = 200_000;

/// Calls per program and round. They alternate, so that a slow moment of the
/// machine meets all three.
const CALLS: u32 = 20;

/// Measures all numbers of paths.
pub(super) fn run(rounds: usize, quick: bool) -> Result<Part> {
    let calls = if quick { CALLS / 10 } else { CALLS };
    let mut lines = Vec::new();
    let mut cases = Vec::new();
    // By case and round: over the bare look-up, and in ns.
    let mut uniform: Vec<[f64; 2]> = Vec::new();
    for paths in PATHS {
        for case in [Case::Uniform, Case::Hot] {
            eprintln!(
                "measuring {paths} paths in the kernel tier, {} ...",
                case.word()
            );
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
                uniform.extend(times.iter().map(|[demux, bare, _]| [demux / bare, *demux]));
            }
        }
    }
    let worst = |what: usize| -> Vec<f64> {
        let of = |round| uniform.iter().skip(round).step_by(rounds);
        let worst = |round| of(round).map(|case| case[what]).fold(0.0, f64::max);
        (0..rounds).map(worst).collect()
    };
    let ratios = [
        Ratio::of("demux_over_bare_hash_worst", Target::AtMost(1.2), worst(0)),
        // Five times less than Scout's classifier, and what "at interrupt time" asks for.
        Ratio::of("demux_ns_worst", Target::AtMost(1000.0), worst(1)),
    ];
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
    Ok(Part {
        cases,
        text: format!(
            "To find a frame's path, ns, the best calls of each round:\n\n{}",
            table::render(&header, 2, &lines)
        ),
        ratios: ratios.into_iter().flatten().collect(),
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
