//! `ashway bench promote`: the same handlers in the kernel tier, in Wasmtime and
//! as native code.
//!
//! Each program of [`programs`] takes turns in the three. What counts is the
//! *body*: the time of a call less that of a handler that does nothing in the
//! same engine. Both tiers run the same normalised module, bounds checks and
//! fuel included. The programs, handlers and ordinary ones, are built by
//! `cargo xtask programs`.

mod native;
mod program;

use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::Report;
use crate::programs::{LIBRARIES, PROGRAMS, UNTUNED};
use crate::ratio::{self, Ratio, Target};
use crate::stats::Spread;
use crate::table;
pub use native::Native;
use program::{Case, Program};

/// Bodies shorter than this (in Wasmtime, ns) are lost in the noise of a call.
const SHORTEST_NS: f64 = 100.0;

/// How much to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Rounds; a ratio is their median.
    pub rounds: usize,
    /// One round and a tenth of the calls: whether it works, not how fast.
    pub quick: bool,
    /// Where the built programs are.
    pub folder: PathBuf,
}

/// Measures; some two minutes. Needs root and the built programs.
///
/// The document: `{"programs":[...],"ratios":{...}}`; times in ns.
///
/// # Errors
///
/// Names the program that could not be measured.
pub fn run(options: &Options) -> Result<Report> {
    let rounds = if options.quick { 1 } else { options.rounds };
    let nothing = Program::nothing()?;
    let mut measured = Vec::new();
    for name in PROGRAMS.iter().chain(&UNTUNED).chain(&LIBRARIES) {
        if LIBRARIES.contains(name) && !options.folder.join(name).exists() {
            eprintln!("leaving out {name}: it was not fetched");
            continue;
        }
        eprintln!("measuring {name} ...");
        let program = Program::read(&options.folder, name)
            .and_then(|program| measure(&program, &nothing, rounds, options.quick))
            .with_context(|| format!("cannot measure `{name}`"))?;
        measured.push(program);
    }
    let ratios = ratios(&measured, rounds);
    let text = format!("{}\n{}", render(&measured), ratio::render(&ratios));
    let documents: Vec<_> = measured.iter().map(Measured::to_json).collect();
    let document = json!({ "programs": documents, "ratios": ratio::to_json(&ratios) });
    Ok(Report { document, text })
}

/// One program's figures; times in ns, one for each round.
struct Measured {
    name: String,
    /// Whether anybody looked at it while tuning.
    tuned: bool,
    bodies: Vec<[f64; Case::ALL.len()]>,
    calls: Vec<[f64; Case::ALL.len()]>,
    loaded: program::Load,
}

fn measure(program: &Program, nothing: &Program, rounds: usize, quick: bool) -> Result<Measured> {
    let mut cases = program.cases()?;
    let mut empty = nothing.cases()?;
    let mut bodies = Vec::new();
    let mut calls = Vec::new();
    for round in 0..rounds {
        let mut call = [0.0; Case::ALL.len()];
        let mut body = call;
        // Rounds start at another case each, so that none always comes first.
        for step in 0..Case::ALL.len() {
            let case = (step + round) % Case::ALL.len();
            let full = program.time(&mut cases, Case::ALL[case], quick)?;
            let base = nothing.time(&mut empty, Case::ALL[case], quick)?;
            call[case] = full;
            body[case] = (full - base).max(0.0);
        }
        bodies.push(body);
        calls.push(call);
    }
    Ok(Measured {
        name: program.name.clone(),
        tuned: PROGRAMS.contains(&program.name.as_str()),
        bodies,
        calls,
        loaded: cases.load(),
    })
}

impl Measured {
    fn body(&self, case: Case) -> Option<Spread> {
        spread(&self.bodies, case)
    }

    fn call(&self, case: Case) -> Option<Spread> {
        spread(&self.calls, case)
    }

    /// One case's bodies over another's, round by round.
    fn ratio(&self, over: Case, under: Case) -> impl Iterator<Item = f64> {
        let pairs = self.bodies.iter();
        pairs.map(move |body| body[over as usize] / body[under as usize].max(1.0))
    }

    fn is_long(&self) -> bool {
        self.body(Case::User)
            .is_some_and(|body| body.median > SHORTEST_NS)
    }

    fn to_json(&self) -> Value {
        let mut document = json!({ "name": self.name, "tuned": self.tuned });
        for case in Case::ALL {
            let name = case.name();
            document["body_ns"][name] = json!(self.body(case).map(Spread::to_json));
            document["call_ns"][name] = json!(self.call(case).map(Spread::to_json));
        }
        let ratio = Spread::of(self.ratio(Case::Kernel, Case::User));
        document["kernel_over_user"] = json!(ratio.map(Spread::to_json));
        document["load"] = self.loaded.to_json();
        document
    }
}

fn spread(rounds: &[[f64; Case::ALL.len()]], case: Case) -> Option<Spread> {
    Spread::of(rounds.iter().map(|round| round[case as usize]))
}

fn ratios(measured: &[Measured], rounds: usize) -> Vec<Ratio> {
    let long: Vec<_> = measured
        .iter()
        .filter(|program| program.tuned && program.is_long())
        .map(|program| program.ratio(Case::Kernel, Case::User).collect::<Vec<_>>())
        .collect();
    let mean = (0..rounds).map(|round| {
        let logarithms = long.iter().map(|ratios| ratios[round].ln());
        (logarithms.sum::<f64>() / long.len() as f64).exp()
    });
    let medians = long
        .iter()
        .filter_map(|ratios| Spread::of(ratios.iter().copied()));
    let worst = medians.map(|spread| spread.median).fold(0.0, f64::max);
    let slowest = |tuned: bool| {
        let programs = measured.iter().filter(|program| program.tuned == tuned);
        let loads = programs.map(|program| program.loaded.total_ms());
        loads.fold(0.0, f64::max)
    };
    [
        Ratio::of(
            "kernel tier / Wasmtime, geometric mean",
            Target::AtMost(1.2),
            mean,
        ),
        Ratio::of(
            "kernel tier / Wasmtime, the worst program",
            Target::AtMost(2.0),
            [worst],
        ),
        Ratio::of(
            "slowest promotion, ms",
            Target::AtMost(20.0),
            [slowest(true)],
        ),
        Ratio::of(
            "the same, of libraries and words",
            Target::Recorded,
            [slowest(false)],
        ),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn render(measured: &[Measured]) -> String {
    let cell = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), table::digits);
    let rows: Vec<_> = measured
        .iter()
        .map(|program| {
            let body = |case| cell(program.body(case).map(|body| body.median));
            let ratio = Spread::of(program.ratio(Case::Kernel, Case::User));
            let range = ratio.map(|r| {
                let [low, high] = [r.min, r.max].map(table::digits);
                format!("{low}..{high}")
            });
            let ratio = ratio.filter(|_| program.is_long());
            let share = |case| {
                let of = program.body(case).zip(program.body(Case::Kernel));
                cell(of.map(|(without, with)| without.median / with.median))
            };
            vec![
                program.name.clone(),
                body(Case::Kernel),
                body(Case::User),
                body(Case::Native),
                cell(ratio.map(|ratio| ratio.median)),
                range.filter(|_| ratio.is_some()).unwrap_or_default(),
                cell(program.call(Case::Kernel).map(|call| call.median)),
                cell(program.call(Case::User).map(|call| call.median)),
                share(Case::Unbounded),
                share(Case::Unfuelled),
                share(Case::Unfolded),
                program.loaded.insns.to_string(),
                program.loaded.verified.to_string(),
                table::digits(program.loaded.total_ms()),
            ]
        })
        .collect();
    let header = [
        "PROGRAM",
        "KERNEL",
        "WASMTIME",
        "NATIVE",
        "RATIO",
        "MIN..MAX",
        "CALL",
        "WASMTIME",
        "NO BOUNDS",
        "NO FUEL",
        "ADDED BASE",
        "INSNS",
        "VERIFIED",
        "LOAD MS",
    ];
    format!(
        "Bodies in ns (a call less an empty one); the ratio is kernel tier over \
         Wasmtime, where the\nbody takes more than {SHORTEST_NS} ns; CALL is a whole call in \
         ns. NO BOUNDS and NO FUEL: the kernel\ntier's body without the checks, as a share of \
         that with them (builds for measuring only).\nADDED BASE: the same over a mappable array, \
         where instructions add the memory's base and\nmask the address, which the JIT folds into the \
         access in an arena.\n\n{}",
        table::render(&header, 1, &rows)
    )
}
