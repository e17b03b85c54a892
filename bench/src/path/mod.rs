//! `ashway bench path`: what a path of a running node costs.
//!
//! Paths of one flow each are created on a node by its control socket and removed again.
//! They have six stages: four of `fault`, a sink, and what the rules make of `eth`, `ip`
//! and `udp`. Times are the node's own, from the request to the last map entry, and beside
//! them the whole round trip of the client; the memory is the node's resident set. The
//! first paths of a shape have a row each: the first is data, until a program that has the
//! shape follows, the others are map entries.
//!
//! Scout's figures (Mosberger & Peterson 1996, §4.1 and §3.2) are shown beside for
//! scale, not as a comparison: they are of a 300 MHz Alpha.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path as FsPath, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use ashway_rig::{Node, Rig, RigOptions};
use serde_json::{Value, json};

use crate::Report;
use crate::ratio::{self, Ratio, Target};

/// Creation of a path for UDP, in us.
const SCOUT_CREATION_US: f64 = 200.0;
/// A path without its stages, in bytes, and a stage.
const SCOUT_PATH_BYTES: u32 = 300;
const SCOUT_STAGE_BYTES: u32 = 150;

/// Paths in one request; it may have 64 KiB.
const LOT: u32 = 250;

/// How much to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// A hundredth of everything: whether it works, not how fast.
    pub quick: bool,
    /// The `ashway` binary.
    pub binary: Option<PathBuf>,
}

/// Measures; a few minutes. Needs root.
///
/// The document has times in us and memory in bytes.
///
/// # Errors
///
/// Without root, or if the node does not what it is asked for.
pub fn run(options: &Options) -> Result<Report> {
    let (single, alive, lives) = if options.quick {
        (50, 1_000, 10_000)
    } else {
        (1_000, 100_000, 1_000_000)
    };
    let rig = Rig::new("bench-path", RigOptions::default())?;
    let mut builder = rig.node(
        "[iface.b0]\n[module.end]\nkind = \"sink\"\ndown = \"one.up\"\n\
         [module.one]\nkind = \"fault\"\ndown = \"two.up\"\n\
         [module.two]\nkind = \"fault\"\ndown = \"three.up\"\n\
         [module.three]\nkind = \"fault\"\ndown = \"four.up\"\n\
         [module.four]\nkind = \"fault\"\ndown = \"udp.up\"\n\
         [module.udp]\nkind = \"udp\"\ndown = \"ip.up\"\n",
    );
    if let Some(binary) = &options.binary {
        builder = builder.binary(binary);
    }
    let node = builder.start()?;
    let socket = node.socket();

    let first = first_of_a_shape(socket)?;
    let few = singly(socket, 20..20 + single)?;
    let shape = new_shapes(socket, NEW_SHAPES)?;
    let again = same_shape_again(socket, single.min(100))?;

    lots(socket, 20..21, &create)?;
    let before = resident_bytes(&node)?;
    let begin = Instant::now();
    lots(socket, 21..alive, &create)?;
    let each_us = begin.elapsed().as_secs_f64() * 1e6 / f64::from(alive);
    let bytes = resident_bytes(&node)?.saturating_sub(before);
    let bytes_each = bytes / u64::from(alive - 21);
    let many = singly(socket, alive..alive + single)?;
    lots(socket, 0..alive, &remove)?;

    let round = (LOT * 4).min(lives);
    let life = |rounds: u32| -> Result<()> {
        for _ in 0..rounds {
            lots(socket, 0..round, &create)?;
            lots(socket, 0..round, &remove)?;
        }
        Ok(())
    };
    life(lives / round / 10)?;
    let start = resident_bytes(&node)?;
    life(lives / round)?;
    let growth = resident_bytes(&node)?.saturating_sub(start);
    node.stop()?;

    let at_most = |name, limit, rounds: &[f64]| {
        Ratio::of(name, Target::AtMost(limit), rounds.iter().copied())
    };
    // So few paths weigh less than what else a node takes meanwhile.
    let weighed = |name, limit, bytes: u64| {
        let exact = Ratio::exact(name, Target::AtMost(limit), bytes as f64);
        exact.filter(|_| !options.quick)
    };
    let ratios: Vec<Ratio> = [
        at_most("create_us", 20.0, &few.creates),
        at_most("create_us_beside_many", 20.0, &many.creates),
        at_most("create_us_new_shape", 20.0, &shape.creates),
        at_most("remove_us", 20.0, &few.removes),
        at_most("remove_us_beside_many", 20.0, &many.removes),
        weighed("bytes_alive", 250e6, bytes),
        weighed("growth_bytes", 0.0, growth),
    ]
    .into_iter()
    .flatten()
    .collect();
    let document = json!({
        "ratios": ratio::to_json(&ratios),
        "first_of_a_shape_us": first,
        "existing_shape": few.json(),
        "former_shape": again.json(),
        "new_shape": shape.json(),
        "existing_shape_beside_many": many.json(),
        "alive": { "paths": alive, "bytes": bytes, "bytes_each": bytes_each, "create_us_each_in_lots": each_us },
        "lives": { "paths": lives, "growth_bytes": growth },
        "scout": {
            "creation_us": SCOUT_CREATION_US,
            "path_bytes": SCOUT_PATH_BYTES,
            "stage_bytes": SCOUT_STAGE_BYTES,
        },
    });
    let mut text = String::new();
    let _ = writeln!(
        text,
        "{:<34} {:>10} {:>10} {:>12}",
        "median, us", "create", "remove", "round trip"
    );
    for (name, times) in [
        ("a shape that is there", &few),
        ("the same beside all the others", &many),
        ("a shape that was there", &again),
        ("a new shape", &shape),
    ] {
        let _ = writeln!(
            text,
            "{name:<34} {:>10.1} {:>10.1} {:>12.1}",
            times.create, times.remove, times.round_trip
        );
    }
    let _ = writeln!(
        text,
        "Scout (300 MHz Alpha)              {SCOUT_CREATION_US:>10.1}"
    );
    let first: Vec<String> = first.iter().map(|us| format!("{us:.0}")).collect();
    let _ = writeln!(
        text,
        "the first {} of a shape, us each: {}",
        first.len(),
        first.join(" ")
    );
    let _ = writeln!(
        text,
        "\n{alive} paths of 6 stages: {:.1} MB, {bytes_each} bytes each, {each_us:.1} us each in lots \
         of {LOT} (Scout: {SCOUT_PATH_BYTES} bytes and {SCOUT_STAGE_BYTES} for each stage)",
        bytes as f64 / 1e6
    );
    let _ = writeln!(
        text,
        "{lives} created and destroyed: the node grew by {growth} bytes\n"
    );
    text.push_str(&ratio::render(&ratios));
    Ok(Report { document, text })
}

/// Parts that a run of creations or removals is judged by.
const ROUNDS: usize = 5;

/// Medians in us.
struct Times {
    create: f64,
    remove: f64,
    /// The same of each part of the run.
    creates: Vec<f64>,
    removes: Vec<f64>,
    /// Of a creation, as its client sees it.
    round_trip: f64,
}

impl Times {
    fn of(mut create: Vec<f64>, mut remove: Vec<f64>, mut round_trip: Vec<f64>) -> Self {
        let median = |times: &mut Vec<f64>| {
            times.sort_by(f64::total_cmp);
            times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
        };
        let rounds = |times: &[f64]| {
            let parts = times.chunks(times.len().div_ceil(ROUNDS).max(1));
            parts.map(|part| median(&mut part.to_vec())).collect()
        };
        Self {
            creates: rounds(&create),
            removes: rounds(&remove),
            create: median(&mut create),
            remove: median(&mut remove),
            round_trip: median(&mut round_trip),
        }
    }

    fn json(&self) -> Value {
        json!({
            "create_us": self.create,
            "remove_us": self.remove,
            "create_round_trip_us": self.round_trip,
        })
    }
}

/// Creates paths of a shape that is there, one by one, then removes them so.
fn singly(socket: &FsPath, numbers: std::ops::Range<u32>) -> Result<Times> {
    let (mut create_us, mut remove_us, mut trips) = (Vec::new(), Vec::new(), Vec::new());
    for number in numbers.clone() {
        let begin = Instant::now();
        create_us.push(ask(socket, &create(number..number + 1))?);
        trips.push(begin.elapsed().as_secs_f64() * 1e6);
    }
    for number in numbers {
        remove_us.push(ask(socket, &remove(number..number + 1))?);
    }
    Ok(Times::of(create_us, remove_us, trips))
}

/// Creates the first paths of a shape; how long each took.
fn first_of_a_shape(socket: &FsPath) -> Result<Vec<f64>> {
    (0..20)
        .map(|number| ask(socket, &create(number..number + 1)))
        .collect()
}

/// Shapes that can be new one after the other.
const NEW_SHAPES: u32 = 20;

/// Creates the first path of one shape after the other, and removes it: each tests
/// another number of bits of the sender's address.
fn new_shapes(socket: &FsPath, shapes: u32) -> Result<Times> {
    let create = |shape: u32| wide(Some(format!("src net 10.0.0.0/{}", 8 + shape)));
    one_by_one(socket, (0..shapes).map(create))
}

/// Creates the only path of its shape, and removes it, again and again.
fn same_shape_again(socket: &FsPath, times: u32) -> Result<Times> {
    ask(socket, &wide(None))?;
    ask(socket, &json!({ "request": "remove", "path": "wide" }))?;
    one_by_one(socket, (0..times).map(|_| wide(None)))
}

/// The request for a path `wide`, of a shape of its own.
fn wide(filter: Option<String>) -> Value {
    let mut path = json!({ "request": "create", "module": "end", "name": "wide",
        "attrs": { "local": "10.7.0.2:5000", "pathname": "eth:b0" } });
    if let Some(filter) = filter {
        path["match"] = json!(filter);
    }
    path
}

/// Creates a path `wide` and removes it, by each of these requests.
fn one_by_one(socket: &FsPath, requests: impl Iterator<Item = Value>) -> Result<Times> {
    let (mut create_us, mut remove_us, mut trips) = (Vec::new(), Vec::new(), Vec::new());
    for create in requests {
        let begin = Instant::now();
        create_us.push(ask(socket, &create)?);
        trips.push(begin.elapsed().as_secs_f64() * 1e6);
        let remove = json!({ "request": "remove", "path": "wide" });
        remove_us.push(ask(socket, &remove)?);
    }
    Ok(Times::of(create_us, remove_us, trips))
}

fn lots(
    socket: &FsPath,
    numbers: std::ops::Range<u32>,
    request: &dyn Fn(std::ops::Range<u32>) -> Value,
) -> Result<()> {
    for first in numbers.clone().step_by(LOT as usize) {
        ask(socket, &request(first..(first + LOT).min(numbers.end)))?;
    }
    Ok(())
}

/// The request for paths of one flow each.
fn create(numbers: std::ops::Range<u32>) -> Value {
    let flow = |number: u32| {
        let [_, high, middle, low] = number.to_be_bytes();
        json!({
            "module": "end",
            "name": format!("flow-{number}"),
            "attrs": {
                "local": "10.7.0.2:6000",
                "remote": format!("10.{}.{middle}.{low}:7000", high + 20),
                "pathname": "eth:b0",
            },
        })
    };
    json!({ "request": "create", "paths": numbers.map(flow).collect::<Vec<_>>() })
}

fn remove(numbers: std::ops::Range<u32>) -> Value {
    let names: Vec<_> = numbers.map(|number| format!("flow-{number}")).collect();
    json!({ "request": "remove", "paths": names })
}

/// Asks, and says how long the node took, in us.
fn ask(socket: &FsPath, request: &Value) -> Result<f64> {
    let mut stream = UnixStream::connect(socket).context("the node does not listen")?;
    // In one piece: the node does not wait long for the rest.
    stream.write_all(format!("{request}\n").as_bytes())?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    let answer: Value = serde_json::from_str(&line)?;
    match answer["ok"]["took_ns"].as_u64() {
        Some(ns) => Ok(ns as f64 / 1000.0),
        None => bail!("the node refused: {answer}"),
    }
}

/// Bytes of the node that are in memory.
fn resident_bytes(node: &Node) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", node.id()))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|rest| {
        rest.trim()
            .trim_end_matches("kB")
            .trim()
            .parse::<u64>()
            .ok()
    });
    Ok(kib.context("no VmRSS")? * 1024)
}
