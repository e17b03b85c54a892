//! The kernel tier: a copy from a message to an arena, alone, with what is fused into
//! it, and with another pass behind it. By `BPF_PROG_TEST_RUN`.

use std::os::fd::BorrowedFd;

use anyhow::{Result, ensure};
use ashway_abi::context;
use ashway_check::bpf::MapRef;
use ashway_codegen::pipe::ebpf::{KernelList, trial};
use ashway_codegen::pipe::{self, List};
use ashway_kernel::maps::possible_cpus;
use ashway_kernel::{Feature, Map, MapSpec, Probe, Program, TestRun, shared};
use ashway_memory::{AllegedOffset, Memory};
use serde_json::{Value, json};

use crate::ratio::{Ratio, Target};
use crate::stats::Spread;
use crate::table;

/// What came of it; nothing without the right to load programs.
#[derive(Default)]
pub(super) struct Kernel {
    pub(super) cases: Vec<Value>,
    pub(super) text: String,
    pub(super) ratios: Vec<Ratio>,
}

/// Sizes of messages.
const SIZES: [usize; 3] = [64, 512, 1472];

/// What takes turns: the lists of its passes. The first two do nothing and copy.
const WAYS: [(&str, &[&str]); 6] = [
    ("nothing", &[]),
    ("copy", &[""]),
    ("copy+checksum", &["cksum16"]),
    ("copy, then checksum", &["", "cksum16"]),
    ("copy+checksum+byteswap", &["cksum16 | bswap32"]),
    ("copy+byteswap, then checksum", &["bswap32", "cksum16"]),
];

/// Runs in one call, and calls of a round, of which the best counts: what disturbs
/// one only ever adds.
const REPEAT: u32 = 50_000;
const CALLS: usize = 10;

struct Loaded {
    program: Program,
    memory: Memory,
    /// What its first pass does; nothing if there is none.
    first: Option<List>,
}

pub(super) fn run(rounds: usize, quick: bool) -> Result<Kernel> {
    if !Probe::run().has(Feature::ArenaProgram) {
        let text = "The kernel tier is not measured: this takes arenas (Linux 6.9) and root.\n";
        return Ok(Kernel {
            text: text.to_owned(),
            ..Kernel::default()
        });
    }
    let cpus = possible_cpus()? as u32;
    let contexts = MapSpec::array("ashway_context", context::BYTES as u32 * cpus, 1);
    let contexts = Map::create(&contexts)?;
    let loaded: Vec<Loaded> = WAYS
        .iter()
        .map(|(_, lists)| load(lists, &contexts, cpus))
        .collect::<Result<_>>()?;
    let mut kernel = Kernel::default();
    let mut rows = Vec::new();
    for bytes in SIZES {
        for loaded in &loaded {
            loaded.check(bytes)?;
        }
        let times = (0..rounds)
            .map(|_| round(&loaded, bytes, quick))
            .collect::<Result<Vec<_>>>()?;
        rows.push(kernel.row(bytes, &times));
    }
    let header: Vec<&str> = std::iter::once("BYTES")
        .chain(WAYS.iter().map(|(name, _)| *name))
        .collect();
    kernel.text = format!(
        "Kernel tier, ns a message, running a program (`nothing`) included:\n\n{}",
        table::render(&header, 0, &rows)
    );
    Ok(kernel)
}

fn load(lists: &[&str], contexts: &Map, cpus: u32) -> Result<Loaded> {
    let lists: Vec<KernelList> = lists
        .iter()
        .map(|text| {
            let list = match *text {
                "" => List::new(),
                text => pipe::parse(text)?,
            };
            Ok(KernelList::new(&list)?)
        })
        .collect::<Result<_>>()?;
    let work = match &lists[..] {
        [] => trial::Work::Nothing,
        lists => trial::Work::Passes(lists),
    };
    let image = trial::program(work, cpus);
    let memory = shared::arena(trial::MEMORY_BYTES)?;
    let fd = |map| -> BorrowedFd<'_> {
        match map {
            MapRef::Context => contexts.fd(),
            MapRef::Memory => memory.fd(),
            other => unreachable!("the program has no {other:?}"),
        }
    };
    let program = ashway_trial::program::load("ashway_pipes", &image, fd)?;
    let first = lists.first().map(|list| list.list().clone());
    Ok(Loaded {
        program,
        memory,
        first,
    })
}

fn message(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 31) as u8).collect()
}

impl Loaded {
    /// It copies what it should.
    fn check(&self, bytes: usize) -> Result<()> {
        let mut expected = message(bytes);
        let frame = trial::frame(&expected, trial::DESTINATION as u32);
        let run = TestRun {
            packet: &frame,
            context: None,
            repeat: 1,
        };
        ensure!(
            self.program.test_run(&run)?.retval == trial::COPIED,
            "a program gave up"
        );
        if let Some(list) = &self.first {
            pipe::interpret(list, &mut list.initial(), &mut expected);
            let mut copied = vec![0; bytes];
            let from = AllegedOffset(trial::DESTINATION as u32);
            self.memory.copy_out(from, &mut copied)?;
            ensure!(copied == expected, "a program copies something else");
        }
        Ok(())
    }
}

/// The best of the calls of each.
fn round(loaded: &[Loaded], bytes: usize, quick: bool) -> Result<Vec<f64>> {
    let frame = trial::frame(&message(bytes), trial::DESTINATION as u32);
    let mut best = vec![f64::INFINITY; loaded.len()];
    let (calls, repeat) = if quick {
        (2, REPEAT / 10)
    } else {
        (CALLS, REPEAT)
    };
    for _ in 0..calls {
        for (loaded, best) in loaded.iter().zip(&mut best) {
            let run = loaded.program.test_run(&TestRun {
                packet: &frame,
                context: None,
                repeat,
            })?;
            ensure!(run.retval == trial::COPIED, "a program gave up");
            *best = best.min(f64::from(run.duration_ns));
        }
    }
    Ok(best)
}

impl Kernel {
    fn row(&mut self, bytes: usize, times: &[Vec<f64>]) -> Vec<String> {
        let of = |way: usize| Spread::of(times.iter().map(|times| times[way]));
        let mut row = vec![bytes.to_string()];
        for (way, (name, _)) in WAYS.iter().enumerate() {
            let spread = of(way);
            row.push(spread.map_or_else(String::new, |ns| table::digits(ns.median)));
            self.cases.push(json!({
                "bytes": bytes,
                "way": name,
                "ns": spread.map(Spread::to_json),
            }));
        }
        if bytes == SIZES[2] {
            let ratio = |name, over: usize, under: usize| {
                let rounds = times.iter().map(|times| times[over] / times[under]);
                Ratio::of(name, Target::Recorded, rounds)
            };
            self.ratios.extend(
                [
                    ratio("kernel tier, copy then checksum / fused, 1472 B", 3, 2),
                    ratio(
                        "kernel tier, copy+byteswap then checksum / fused, 1472 B",
                        5,
                        4,
                    ),
                ]
                .into_iter()
                .flatten(),
            );
        }
        row
    }
}
