//! `ashway bench crowd`: one path that is busy, beside handlers and paths that are not.
//!
//! A handler of the user tier that takes some 200 ns and consumes is flooded with live
//! frames from CPU 0, faster than the worker takes them. Cases, in turn in each round, each
//! on a node of its own: the handler alone; beside 300 handlers, each with a path, that get
//! nothing; and beside those and 10,000 paths of modules that get nothing either. What is
//! compared is the worker's CPU time for each message that the busy path has run, so that a
//! worker that was interrupted costs nobody.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ashway_rig::{Frame, Node, Rig};
use serde_json::{Value, json};

use crate::Report;
use crate::hosts::{self, named, status};
use crate::ratio::{self, Ratio, Target};
use crate::stats::Spread;
use crate::table;
use crate::xdp::{self, Attached};

/// How much to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Rounds; a ratio is their median.
    pub rounds: usize,
    /// One round and a tenth of everything: whether it works, not how fast.
    pub quick: bool,
    /// The `ashway` to measure; the release build unless told otherwise.
    pub binary: Option<PathBuf>,
}

/// How long one figure is measured.
const LASTS: Duration = Duration::from_millis(1500);

/// Frames in one call, which ends in a wait of about 24 ms.
const CALL: u32 = 500_000;

/// Length of each frame.
const FRAME_BYTES: usize = 64;

/// The port of the busy path, and the first of the idle handlers and of the idle paths.
const PORTS: [u16; 3] = [7777, 20_000, 30_000];

/// Idle handlers and idle paths of modules.
const IDLE: [usize; 2] = [300, 10_000];

/// Paths that are created by one request.
const AT_ONCE: usize = 250;

/// Takes some hundred turns of a loop, less than a slice of fuel, and consumes.
const BUSY: &str = r#"(module (memory (export "memory") 1 1)
    (func (export "on_rx") (param i32 i32) (result i32) (local $left i32)
        (local.set $left (i32.const 300))
        (loop $on
            (i32.store (i32.const 64) (local.get $left))
            (br_if $on (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))
        (i32.const 0)))"#;

/// What is beside the busy path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Case {
    Alone,
    Handlers,
    Both,
}

impl Case {
    const ALL: [Self; 3] = [Self::Alone, Self::Handlers, Self::Both];

    const fn name(self) -> &'static str {
        match self {
            Self::Alone => "alone",
            Self::Handlers => "handlers",
            Self::Both => "handlers_and_paths",
        }
    }

    fn idle(self, quick: bool) -> [usize; 2] {
        let most = IDLE.map(|number| if quick { number / 10 } else { number });
        match self {
            Self::Alone => [0, 0],
            Self::Handlers => [most[0], 0],
            Self::Both => most,
        }
    }
}

/// What a case came to in one round.
#[derive(Clone, Copy, Debug)]
struct Sample {
    /// The worker's CPU time for each message, in ns.
    ns: f64,
    /// Messages that were run, a second.
    rate: f64,
}

/// Measures; a minute and a half. Needs root and two CPUs.
///
/// The document: `{"cases":{...},"ratios":{...}}`; times in ns.
///
/// # Errors
///
/// Without the right to make namespaces, and what the node said.
pub fn run(options: &Options) -> Result<Report> {
    let (rounds, lasts) = if options.quick {
        (1, LASTS / 10)
    } else {
        (options.rounds.max(1), LASTS)
    };
    let folder = std::env::temp_dir().join(format!("ashway-crowd-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let file = folder.join("busy.wasm");
    fs::write(&file, wat::parse_str(BUSY)?)?;
    let mut found: Vec<[Sample; 3]> = Vec::new();
    for round in 0..rounds {
        eprintln!("round {} of {rounds} ...", round + 1);
        let mut turns = [Sample { ns: 0.0, rate: 0.0 }; 3];
        for number in 0..Case::ALL.len() {
            // Another case begins each time, so that none always comes first.
            let at = (number + round) % Case::ALL.len();
            let case = Case::ALL[at];
            let turn = measure(options, case, &file, lasts);
            turns[at] = turn.with_context(|| case.name())?;
        }
        found.push(turns);
    }
    fs::remove_dir_all(&folder)?;
    Ok(report(&found))
}

fn config(case: Case, file: &Path, quick: bool) -> String {
    let file = file.display();
    let mut config = "[iface.b0]\nmode = \"native\"\n".to_owned();
    let [handlers, paths] = case.idle(quick);
    let idle = (0..handlers).map(|number| (format!("idle{number}"), PORTS[1] + number as u16));
    for (name, port) in std::iter::once(("busy".to_owned(), PORTS[0])).chain(idle) {
        // Writing to a string does not fail.
        let _ = writeln!(
            config,
            "[handler.{name}]\nfile = \"{file}\"\n[path.{name}]\niface = \"b0\"\n\
             match = \"udp and dst port {port}\"\nhandler = \"{name}\"\ntier = \"user\""
        );
    }
    if paths > 0 {
        config += "[module.end]\nkind = \"sink\"\ndown = \"udp.up\"\n";
    }
    config
}

/// Floods the busy path for a while.
fn measure(options: &Options, case: Case, file: &Path, lasts: Duration) -> Result<Sample> {
    let rig = hosts::stock("crowd")?;
    let attached = Attached::to_client(&rig, xdp::DROP)?;
    let mut builder = rig.node(config(case, file, options.quick));
    if let Some(binary) = &options.binary {
        builder = builder.binary(binary);
    }
    let node = builder.start()?;
    let [_, paths] = case.idle(options.quick);
    let paths: Vec<Value> = (0..paths)
        .map(|number| {
            let local = format!("10.7.0.2:{}", PORTS[2] + number as u16);
            json!({ "name": format!("p{number}"), "module": "end", "attrs": { "local": local } })
        })
        .collect();
    for some in paths.chunks(AT_ONCE) {
        hosts::ask(
            node.socket(),
            &json!({ "request": "create", "paths": some }),
        )?;
    }
    let worker = hosts::worker(&node)?;
    // The first frames find caches and buffers cold.
    flood(&rig, lasts / 5)?;
    let before = (hosts::cpu_ns(worker)?, consumed(&node)?, Instant::now());
    flood(&rig, lasts)?;
    let took = before.2.elapsed();
    let messages = consumed(&node)? - before.1;
    let ns = hosts::cpu_ns(worker)? - before.0;
    drop(attached);
    node.stop()?;
    Ok(Sample {
        ns: ns as f64 / (messages as f64).max(1.0),
        rate: messages as f64 / took.as_secs_f64(),
    })
}

/// Sends to the busy path from A for that long.
fn flood(rig: &Rig, lasts: Duration) -> Result<()> {
    let payload = [0; FRAME_BYTES - 14 - 20 - 8];
    let frame = Frame::to_b(PORTS[0], &payload).bytes();
    let sender = xdp::constant("ashway_crowd", xdp::TX)?;
    xdp::flood(rig, &sender, &frame, CALL, lasts)
}

fn consumed(node: &Node) -> Result<u64> {
    let status = status(node.socket())?;
    let fates = &named(&status, "paths", "busy")?["fates"];
    Ok(fates["consumed"].as_u64().unwrap_or(0))
}

fn report(found: &[[Sample; 3]]) -> Report {
    let mut cases = serde_json::Map::new();
    let mut rows = Vec::new();
    for (at, case) in Case::ALL.into_iter().enumerate() {
        let ns = Spread::of(found.iter().map(|turns| turns[at].ns));
        let rate = Spread::of(found.iter().map(|turns| turns[at].rate));
        if let (Some(ns), Some(rate)) = (ns, rate) {
            let entry = json!({ "ns": ns.to_json(), "per_second": rate.to_json() });
            cases.insert(case.name().to_owned(), entry);
            let cells = [ns.median, ns.min, ns.max].map(|ns| format!("{ns:.0}"));
            let rate = format!("{:.3}", rate.median / 1e6);
            rows.push([vec![case.name().to_owned()], cells.to_vec(), vec![rate]].concat());
        }
    }
    let of = |name, at: usize| {
        let rounds = found.iter().map(|turns| turns[at].ns / turns[0].ns);
        Ratio::of(name, Target::AtMost(1.05), rounds)
    };
    let ratios: Vec<Ratio> = [
        of("handlers_over_alone", 1),
        of("handlers_and_paths_over_alone", 2),
    ]
    .into_iter()
    .flatten()
    .collect();
    let header = ["BESIDE", "NS", "MIN", "MAX", "MPPS"];
    let text = format!(
        "CPU time of the worker for each message of the busy path:\n\n{}\n{}",
        table::render(&header, 1, &rows),
        ratio::render(&ratios)
    );
    Report {
        document: json!({ "cases": cases, "ratios": ratio::to_json(&ratios) }),
        text,
    }
}
