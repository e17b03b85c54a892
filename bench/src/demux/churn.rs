//! What traffic notices of paths that come and go.
//!
//! Demux's program of a thousand paths runs on host B's end of a veth and sends
//! back every frame that it finds a path for. Client A sends frames of one path,
//! one after another, and times each until it is back. In every other turn a
//! thread inserts 10,000 other paths a second into the table and the program's
//! map, and takes as many out: one shape, so no program is loaded again.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use ashway_abi::{Leaf, context};
use ashway_check::bpf::MapRef;
use ashway_codegen::demux::compiled::{self, FEW};
use ashway_codegen::demux::emit::{self, Spec};
use ashway_codegen::entry::Packet;
use ashway_demux::{Filter, Table};
use ashway_kernel::maps::possible_cpus;
use ashway_kernel::{Map, MapSpec, TestRun};
use ashway_rig::{Frame, Injector, Rig, RigOptions, realtime};
use serde_json::json;

use super::Part;
use super::program::{self, Maps};
use crate::ratio::{Ratio, Target};
use crate::stats::{Spread, Summary, Times};
use crate::table;
use crate::xdp::{Attached, TX};

/// Paths that stay.
const PATHS: u32 = 1_000;
/// Paths that come and go.
const OTHERS: u32 = 10_000;
/// Of them, each millisecond: with a thousand of these, 10,000 a second.
const A_MILLISECOND: u32 = 10;
/// `XDP_PASS`.
const PASS: u32 = 2;
/// How long a frame may be away.
const PATIENCE: Duration = Duration::from_secs(2);

/// Measures quiet and busy turns.
pub(super) fn run(rounds: usize, quick: bool) -> Result<Part> {
    eprintln!("measuring traffic while paths come and go ...");
    let frames = if quick { 2_000 } else { 20_000 };
    let rig = Rig::new("churn", RigOptions::default())?;
    let mut table = program::table(PATHS)?;
    // The program returns the path's number, which XDP takes for its verdict.
    let leaf = |_| Leaf {
        tag: TX,
        ..Leaf::default()
    };
    let shapes = compiled::compile(&table, FEW, leaf);
    let cpus = possible_cpus()? as u32;
    let image = emit::program(&Spec {
        shapes: &shapes,
        spares: None,
        cpus,
        packet: Packet::Pointers,
    });
    drop(shapes);
    let entries = (0..PATHS).map(|path| (program::key(path), TX)).collect();
    let map = program::filled(program::KEY_BYTES, 2 * OTHERS, entries)?;
    let mut maps = Maps {
        context: Map::create(&MapSpec::array("ctx", context::BYTES as u32 * cpus, 1))?,
        hits: Map::create(&MapSpec::array("hits", compiled::CELL_BYTES as u32, 1))?,
        shapes: HashMap::new(),
    };
    let shape = table.shapes().first().context("one shape")?.id();
    maps.shapes.insert(MapRef::Shape(shape.0), map);
    let program = maps.load("ashway_churn", &image)?;
    let found = program.test_run(&TestRun {
        packet: &frame(),
        context: None,
        repeat: 1,
    })?;
    ensure!(found.retval == TX, "the path was not found");
    // A veth takes what the other end transmits by XDP only with a program, or
    // receive offload, of its own.
    let _client = Attached::to_client(&rig, PASS)?;
    let _attached = Attached::to_host(&rig, "b0", &program)?;
    let others: Vec<Filter> = (PATHS..PATHS + OTHERS)
        .map(|path| {
            let text = program::text(path);
            text.parse().map_err(|error| anyhow!("{text}: {error}"))
        })
        .collect::<Result<_>>()?;
    let (_, map) = maps.shapes.iter().next().context("one map")?;

    let client = rig.injector_a()?;
    exchange(&client, frames / 10)?;
    let mut quiet = Vec::new();
    let mut busy = Vec::new();
    let mut rates = Vec::new();
    for _ in 0..rounds {
        quiet.push(exchange(&client, frames)?.summary());
        let end = AtomicBool::new(false);
        let changes = AtomicU32::new(0);
        let begun = Instant::now();
        let (times, changed) = thread::scope(|scope| {
            let changer = scope.spawn(|| change(&mut table, &others, map, &end, &changes));
            let times = exchange(&client, frames);
            end.store(true, Ordering::Relaxed);
            (times, changer.join())
        });
        changed.map_err(|_| anyhow!("the thread that changes paths failed"))??;
        rates.push(f64::from(changes.load(Ordering::Relaxed)) / begun.elapsed().as_secs_f64());
        busy.push(times?.summary());
    }
    report(&quiet, &busy, &rates)
}

fn report(quiet: &[Summary], busy: &[Summary], rates: &[f64]) -> Result<Part> {
    let mut part = Part::default();
    let mut lines = Vec::new();
    for (name, turns) in [("none", quiet), ("10,000/s", busy)] {
        let of = |field: fn(&Summary) -> u64| Spread::of(turns.iter().map(|t| field(t) as f64));
        let fields: [Option<Spread>; 3] = [of(|t| t.p50), of(|t| t.p99), of(|t| t.p999)];
        let [Some(p50), Some(p99), Some(p999)] = fields else {
            continue;
        };
        let shown = |spread: Spread| {
            let time = |ns: f64| table::time(ns as u64);
            let Spread {
                median, min, max, ..
            } = spread;
            format!("{} ({} .. {})", time(median), time(min), time(max))
        };
        lines.push(vec![name.to_owned(), shown(p50), shown(p99), shown(p999)]);
        part.cases.push(json!({
            "changes": name,
            "p50_ns": p50.to_json(),
            "p99_ns": p99.to_json(),
            "p999_ns": p999.to_json(),
        }));
    }
    let rate = Spread::of(rates.iter().copied()).context("no rounds")?;
    let over = quiet.iter().zip(busy);
    part.ratios.extend(Ratio::of(
        "p999_while_paths_change_over_quiet",
        Target::Recorded,
        over.map(|(quiet, busy)| busy.p999 as f64 / quiet.p999 as f64),
    ));
    part.ratios.extend(Ratio::of(
        "paths_inserted_and_removed_per_s",
        Target::Recorded,
        rates.iter().copied(),
    ));
    let header = ["CHANGES", "P50", "P99", "P99.9"];
    part.text = format!(
        "A frame there and back over a veth, {:.0} paths/s inserted and removed:\n\n{}",
        rate.median,
        table::render(&header, 1, &lines)
    );
    Ok(part)
}

/// A whole datagram of a path in the middle.
fn frame() -> Vec<u8> {
    let mut frame = Frame::to_b(program::PORT, &[0; 18]).bytes();
    frame[26..30].copy_from_slice(&program::frame_of(PATHS / 2)[26..30]);
    frame
}

/// Sends frames of one path, each when the one before is back.
fn exchange(client: &Injector, frames: u32) -> Result<Times> {
    let frame = frame();
    let run = || -> Result<Times> {
        let mut times = Times::new();
        for _ in 0..frames {
            let begun = Instant::now();
            client.send(&frame)?;
            // Hosts have something to say of their own now and then.
            while client.receive(PATIENCE).context("a frame did not return")? != frame {}
            times.record(begun.elapsed().as_nanos() as u64);
        }
        Ok(times)
    };
    realtime(run)?
}

/// Inserts and removes paths until `end`, by table and map.
fn change(
    table: &mut Table<u32>,
    others: &[Filter],
    map: &Map,
    end: &AtomicBool,
    changes: &AtomicU32,
) -> Result<()> {
    let mut due = Instant::now();
    let mut numbers = (0..others.len()).cycle();
    while !end.load(Ordering::Relaxed) {
        due += Duration::from_millis(1);
        let now: Vec<usize> = numbers.by_ref().take(A_MILLISECOND as usize).collect();
        for number in &now {
            let path = PATHS + *number as u32;
            let inserted = table.insert(&others[*number], path);
            let change = inserted.map_err(|conflict| anyhow!("{conflict}"))?;
            for (_, key) in change.added {
                let leaf = Leaf {
                    tag: path,
                    ..Leaf::default()
                };
                map.update(&key, &leaf.to_bytes())?;
            }
        }
        for number in &now {
            for (_, key) in table.remove(PATHS + *number as u32).removed {
                map.delete(&key)?;
            }
        }
        changes.fetch_add(A_MILLISECOND, Ordering::Relaxed);
        thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    Ok(())
}
