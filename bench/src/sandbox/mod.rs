//! `ashway bench sandbox`: what safety costs a handler in the kernel tier.
//!
//! A remote write of 40 and of 4,096 bytes (ASHs, section V.D), once as it is and
//! once from a build that is for measuring only: no bounds of memory, no fuel. Such
//! a program is run by `BPF_PROG_TEST_RUN` and never attached to anything. What the
//! kernel itself demands of every program, the comparison of each packet access with
//! the packet's end, is in both.
//!
//! What counts is the *body*: the time of a run less that of a handler that does
//! nothing. Instructions are those that our interpreter executes for the same
//! message, also less the empty ones.

use anyhow::{Context, Result, ensure};
use ashway_abi::Budget;
use ashway_abi::Verdict;
use ashway_check::bpf::Image;
use ashway_check::bpf::interp::Machine;
use ashway_codegen::normalise::{Limits, Module, normalise};
use ashway_codegen::promote::Checks;
use ashway_codegen::stub;
use ashway_trial::{EMPTY, Engine, Setup, Trial};
use serde_json::json;

use crate::Report;
use crate::forward::thread_cpu;
use crate::ratio::{self, Ratio, Target};
use crate::stats::Spread;
use crate::table;

/// How much to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Rounds; a ratio is their median.
    pub rounds: usize,
    /// One round and a tenth of the runs: whether it works, not how fast.
    pub quick: bool,
}

/// The handler.
const REMOTE_WRITE: &str = include_str!("remote_write.wat");

/// Bytes that are written, and the most that the paper's sandboxing cost.
const SIZES: [(u32, f64); 2] = [(40, 1.3), (4096, 1.02)];

/// A node's default.
const BUDGET: Budget = Budget {
    fuel: 2_400_000,
    slice: 4_096,
    ns: 50_000,
};

/// The builds that take turns.
const BUILDS: [(&str, Checks); 4] = {
    let all = Checks {
        bounds: true,
        fuel: true,
    };
    [
        ("sandboxed", all),
        (
            "unsafe",
            Checks {
                bounds: false,
                fuel: false,
            },
        ),
        (
            "without_bounds",
            Checks {
                bounds: false,
                ..all
            },
        ),
        ("without_fuel", Checks { fuel: false, ..all }),
    ]
};

/// Runs for one figure: so many batches of so many.
const BATCHES: usize = 60;
const BATCH: u32 = 50_000;

/// Measures; about two minutes. Needs root.
///
/// The document: `{"rows":[...],"ratios":{...}}`; times in ns.
///
/// # Errors
///
/// If the kernel does not take a build, or the write is not done.
pub fn run(options: &Options) -> Result<Report> {
    let rounds = if options.quick {
        1
    } else {
        options.rounds.max(1)
    };
    let batches = if options.quick { BATCHES / 10 } else { BATCHES };
    let limits = Limits::default();
    let wasm = wat::parse_str(REMOTE_WRITE)?;
    let (write, nothing) = (normalise(&wasm, &limits)?, normalise(EMPTY, &limits)?);
    let mut rows: Vec<Row> = SIZES.iter().map(|&(bytes, _)| Row::new(bytes)).collect();
    for row in &mut rows {
        for (_, checks) in BUILDS {
            let executed = executed(&write, checks, &message(row.bytes))?;
            let empty = self::executed(&nothing, Checks::default(), &message(row.bytes))?;
            row.insns.push(executed - empty);
        }
    }
    for _ in 0..rounds {
        // Loaded anew in each round: where the kernel puts a program is up to chance, and
        // a loop is up to 5 % faster in one place than in another.
        let mut empty = Trial::new(&nothing, Engine::Kernel, &setup(Checks::default()))?;
        let mut builds = Vec::new();
        for (name, checks) in BUILDS {
            let build = Trial::new(&write, Engine::Kernel, &setup(checks));
            builds.push(build.with_context(|| format!("the kernel, {name}"))?);
        }
        for row in &mut rows {
            let message = message(row.bytes);
            for ((name, _), build) in BUILDS.iter().zip(&mut builds) {
                check(build, &message, row.bytes).with_context(|| (*name).to_owned())?;
            }
            row.bodies
                .push(bodies(&mut builds, &mut empty, &message, batches)?);
        }
    }
    Ok(report(&rows))
}

fn setup(checks: Checks) -> Setup {
    Setup {
        budget: BUDGET,
        checks,
        ..Setup::default()
    }
}

/// A write to the third segment; of more than half of a page, its half.
fn message(bytes: u32) -> Vec<u8> {
    let words = [2, 16, bytes].map(u32::to_be_bytes);
    let payload = if bytes > 2048 { bytes / 2 } else { bytes };
    let payload = (0..payload).map(|at| (at * 7 + 1) as u8);
    words.concat().into_iter().chain(payload).collect()
}

/// The write is done, and by every build alike.
fn check(build: &mut Trial<'_>, message: &[u8], bytes: u32) -> Result<()> {
    let done = build.activate("on_rx", message, 0)?;
    ensure!(
        done.verdict() == Some(Verdict::Consume),
        "{:?}",
        done.result
    );
    let payload = &message[12..];
    let written = &build.guest()[0x7000 + 16..][..bytes as usize];
    let same = written.chunks(payload.len()).all(|part| part == payload);
    ensure!(same, "the payload is not where it belongs");
    Ok(())
}

/// The bodies of one round, in ns: the medians of what each build takes longer than the
/// empty program. They take turns batch by batch, because bodies of a few ns are lost in
/// how a clock rate wanders within a second.
fn bodies(
    builds: &mut [Trial<'_>],
    empty: &mut Trial<'_>,
    message: &[u8],
    batches: usize,
) -> Result<Vec<f64>> {
    let mut bodies = vec![Vec::new(); builds.len()];
    for batch in 0..batches {
        let least = time(empty, message)?;
        for step in 0..builds.len() {
            // Batches start at another build each, so that none always comes first.
            let at = (step + batch) % builds.len();
            bodies[at].push(time(&mut builds[at], message)? - least);
        }
    }
    let median = |bodies| Spread::of(bodies).expect("there is a batch").median;
    Ok(bodies.into_iter().map(|it| median(it).max(0.1)).collect())
}

/// ns per run of one batch, of CPU time: the kernel's own mean is in whole ns, and the
/// time of a whole call has waits in it (two grace periods, while the program is made
/// the one that XDP calls directly), at which the thread's own is brought up to date.
fn time(trial: &mut Trial<'_>, message: &[u8]) -> Result<f64> {
    let start = thread_cpu();
    trial.time("on_rx", message, BATCH)?;
    Ok((thread_cpu() - start) as f64 / f64::from(BATCH))
}

/// Instructions of one run, by our interpreter.
fn executed(module: &Module<'_>, checks: Checks, message: &[u8]) -> Result<u64> {
    let mut trial = Trial::new(module, Engine::Interpreter, &setup(checks))?;
    trial.prepare("on_rx")?;
    let image: &Image = &trial.program("on_rx").context("it was translated")?.image;
    let first = stub::first_memory(module);
    let mut machine = Machine::new(1, ashway_abi::trusted::bytes(1), first.len());
    machine.memory_mut().copy_from_slice(&first);
    machine.run(image, &stub::frame(message))?;
    Ok(machine.executed)
}

/// One length; bodies in ns, by round and build.
struct Row {
    bytes: u32,
    bodies: Vec<Vec<f64>>,
    insns: Vec<u64>,
}

impl Row {
    fn new(bytes: u32) -> Self {
        Self {
            bytes,
            bodies: Vec::new(),
            insns: Vec::new(),
        }
    }

    fn body(&self, build: usize) -> Spread {
        let values = self.bodies.iter().map(|bodies| bodies[build]);
        Spread::of(values).expect("there is a round")
    }

    /// Sandboxed over a build, round by round.
    fn over(&self, build: usize) -> impl Iterator<Item = f64> {
        self.bodies
            .iter()
            .map(move |bodies| bodies[0] / bodies[build])
    }
}

fn report(rows: &[Row]) -> Report {
    let mut lines = Vec::new();
    let mut documents = Vec::new();
    for row in rows {
        for (build, (name, _)) in BUILDS.iter().enumerate() {
            let body = row.body(build);
            let over = Spread::of(row.over(build)).expect("there is a round");
            let digits = table::digits;
            lines.push(vec![
                (*name).to_owned(),
                row.bytes.to_string(),
                digits(body.median),
                digits(body.min),
                digits(body.max),
                digits(over.median),
                row.insns[build].to_string(),
                digits(row.insns[0] as f64 / row.insns[build] as f64),
            ]);
            documents.push(json!({
                "build": name,
                "bytes": row.bytes,
                "body_ns": body.to_json(),
                "sandboxed_over": over.to_json(),
                "insns": row.insns[build],
            }));
        }
    }
    let names = [
        "sandboxed_over_unsafe_40_bytes",
        "sandboxed_over_unsafe_4096_bytes",
    ];
    let ratios: Vec<Ratio> = (rows.iter().zip(SIZES).zip(names))
        .filter_map(|((row, (_, most)), name)| Ratio::of(name, Target::AtMost(most), row.over(1)))
        .collect();
    let header = [
        "REMOTE WRITE",
        "BYTES",
        "BODY ns",
        "MIN",
        "MAX",
        "SANDBOXED x",
        "INSNS",
        "SANDBOXED x",
    ];
    let text = format!(
        "Bodies, without the empty program; SANDBOXED x: the first row of each length over \
         this one.\n\n{}\n{}",
        table::render(&header, 1, &lines),
        ratio::render(&ratios)
    );
    Report {
        document: json!({ "rows": documents, "ratios": ratio::to_json(&ratios) }),
        text,
    }
}
