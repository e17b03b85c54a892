//! Handlers that run pipes, beside the same work in Wasm, and by hand for XDP.
//!
//! A handler takes a message to its memory and does on the way, or behind, what a list
//! says. What counts is the *body*: the time of a run less that of one that does
//! nothing, in the same engine. The kernel tier by `BPF_PROG_TEST_RUN`.

use anyhow::{Context, Result, ensure};
use ashway_codegen::normalise::{Limits, Module, normalise};
use ashway_codegen::{pipe, stub};
use ashway_kernel::{Program, TestRun};
use ashway_memory::clock;
use ashway_trial::{EMPTY, Engine, Setup, Trial};
use serde_json::{Value, json};

use crate::peers::Object;
use crate::ratio::{Ratio, Target};
use crate::stats::Spread;
use crate::table;

/// What came of it.
#[derive(Default)]
pub(super) struct Handlers {
    pub(super) cases: Vec<Value>,
    pub(super) text: String,
    pub(super) ratios: Vec<Ratio>,
}

/// Sizes of messages: multiples of 64, for those by hand.
const SIZES: [usize; 3] = [64, 512, 1472];

/// What is done to a message.
struct Work {
    name: &'static str,
    list: &'static str,
    /// The program in `peers/xdp_pipes.c`.
    by_hand: &'static str,
    sums: bool,
    swaps: bool,
    /// Names of the ratios at the greatest size: by hand, and in Wasm, over pipes in
    /// the kernel tier; in Wasm over pipes in the user tier.
    ratios: [&'static str; 3],
}

const WORKS: [Work; 3] = [
    Work {
        name: "copy",
        list: "copy",
        by_hand: "ashway_copy",
        sums: false,
        swaps: false,
        ratios: [
            "handler, copy: XDP by hand / pipes, 1472 B",
            "handler, copy: in Wasm / pipes, kernel tier, 1472 B",
            "handler, copy: in Wasm / pipes, user tier, 1472 B",
        ],
    },
    Work {
        name: "copy+checksum",
        list: "cksum16",
        by_hand: "ashway_sum",
        sums: true,
        swaps: false,
        ratios: [
            "handler, copy+checksum: XDP by hand / pipes, 1472 B",
            "handler, copy+checksum: in Wasm / pipes, kernel tier, 1472 B",
            "handler, copy+checksum: in Wasm / pipes, user tier, 1472 B",
        ],
    },
    Work {
        name: "copy+checksum+byteswap+xor",
        list: "cksum16 | bswap32 | xor(0xdeadbeef)",
        by_hand: "ashway_all",
        sums: true,
        swaps: true,
        ratios: [
            "handler, the same with byteswap and xor: XDP by hand / pipes, 1472 B",
            "handler, the same with byteswap and xor: in Wasm / pipes, kernel tier, 1472 B",
            "handler, the same with byteswap and xor: in Wasm / pipes, user tier, 1472 B",
        ],
    },
];

/// The ways that take turns.
const WAYS: [&str; 5] = [
    "kernel tier, pipes",
    "kernel tier, in Wasm",
    "XDP by hand",
    "user tier, pipes",
    "user tier, in Wasm",
];

/// In which engine each is: whose doing nothing is left out.
const ENGINES: [usize; WAYS.len()] = [0, 0, 1, 2, 2];

/// Where a handler's data goes, and the sum.
const DATA: usize = 0x8000;
const SUM: usize = 0x100;

/// Runs for one figure: so many batches of so many.
const BATCHES: usize = 12;
const BATCH: u32 = 20_000;

/// Needs root, arenas and the compiler of the programs by hand.
pub(super) fn run(rounds: usize, quick: bool) -> Result<Handlers> {
    let batches = if quick { 1 } else { BATCHES };
    let limits = Limits::default();
    let empty = normalise(EMPTY, &limits)?;
    let files: Vec<[Vec<u8>; 2]> = (WORKS.iter())
        .map(|work| {
            Ok([
                wat::parse_str(with_pipes(work))?,
                wat::parse_str(in_wasm(work))?,
            ])
        })
        .collect::<Result<_>>()?;
    let modules: Vec<[Module<'_>; 2]> = (files.iter())
        .map(|[pipes, wasm]| Ok([normalise(pipes, &limits)?, normalise(wasm, &limits)?]))
        .collect::<Result<_>>()?;
    // By work and size, the bodies of each round.
    let mut bodies = vec![Vec::new(); WORKS.len() * SIZES.len()];
    for _ in 0..rounds {
        // Loaded anew in each round: where the kernel puts a program is up to chance.
        let object = Object::load("xdp_pipes")?;
        let trial = |module, engine| Trial::new(module, engine, &Setup::default());
        let mut nothing = [
            Contender::Handler(Box::new(trial(&empty, Engine::Kernel)?)),
            Contender::ByHand(object.program("ashway_empty")?),
            Contender::Handler(Box::new(trial(&empty, Engine::User)?)),
        ];
        for (at, (work, [pipes, wasm])) in WORKS.iter().zip(&modules).enumerate() {
            let mut ways = [
                Contender::Handler(Box::new(trial(pipes, Engine::Kernel)?)),
                Contender::Handler(Box::new(trial(wasm, Engine::Kernel)?)),
                Contender::ByHand(object.program(work.by_hand)?),
                Contender::Handler(Box::new(trial(pipes, Engine::User)?)),
                Contender::Handler(Box::new(trial(wasm, Engine::User)?)),
            ];
            for (size, bytes) in SIZES.into_iter().enumerate() {
                let message = message(bytes);
                for (name, way) in WAYS.iter().zip(&mut ways) {
                    let checked = way.check(work, &message);
                    checked.with_context(|| format!("{}, {name}, {bytes} B", work.name))?;
                }
                let body = round(&mut ways, &mut nothing, &message, batches)?;
                bodies[at * SIZES.len() + size].push(body);
            }
        }
    }
    Ok(report(&bodies))
}

fn message(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 31 + 7) as u8).collect()
}

/// The handler that asks for a list.
fn with_pipes(work: &Work) -> String {
    let Work { list, .. } = work;
    let (set, get) = if work.sums {
        (
            "(call $set (i32.const 0) (i64.const 0))",
            "(call $get (i32.const 0))",
        )
    } else {
        ("", "(i64.const 0)")
    };
    format!(
        "(module
            (import \"ashway\" \"pipe_read\" (func $read (param i32 i32 i32 i32)))
            (import \"ashway\" \"pipe_set\" (func $set (param i32 i64)))
            (import \"ashway\" \"pipe_get\" (func $get (param i32) (result i64)))
            (memory (export \"memory\") 1 1)
            (func (export \"on_rx\") (param $len i32) (param $channel i32) (result i32)
                {set}
                (call $read (i32.const 0) (i32.const {DATA}) (local.get $len) (i32.const 0))
                (i64.store (i32.const {SUM}) {get})
                (i32.const 0))
            (@custom \"ashway.pipes\" \"{list}\"))"
    )
}

/// The handler that does it itself, behind `msg_read`: words of 8 bytes, 64 a turn.
fn in_wasm(work: &Work) -> String {
    let word = |at: usize| {
        let sum = "(local.set $sum (i64.add (local.get $sum) (i64.add
            (i64.and (local.get $word) (i64.const 0xffffffff))
            (i64.shr_u (local.get $word) (i64.const 32)))))";
        let half = |mask: &str, bits: usize| {
            format!(
                "(local.set $word (i64.or
                    (i64.shl (i64.and (local.get $word) (i64.const {mask})) (i64.const {bits}))
                    (i64.and (i64.shr_u (local.get $word) (i64.const {bits})) (i64.const {mask}))))"
            )
        };
        let swap = format!(
            "{} {} (i64.store offset={at} (local.get $at)
                (i64.xor (local.get $word) (i64.const 0xdeadbeefdeadbeef)))",
            half("0x00ff00ff00ff00ff", 8),
            half("0x0000ffff0000ffff", 16),
        );
        format!(
            "(local.set $word (i64.load offset={at} (local.get $at))) {} {}",
            if work.sums { sum } else { "" },
            if work.swaps { &swap } else { "" },
        )
    };
    let turn: String = (0..8).map(|at| word(8 * at)).collect();
    let pass = format!(
        "(loop $turn {turn}
            (local.set $at (i32.add (local.get $at) (i32.const 64)))
            (br_if $turn (i32.lt_u (local.get $at) (local.get $end))))"
    );
    let fold = |bits: usize, mask: &str| {
        format!(
            "(local.set $sum (i64.add (i64.and (local.get $sum) (i64.const {mask}))
                (i64.shr_u (local.get $sum) (i64.const {bits}))))"
        )
    };
    let folds = [fold(32, "0xffffffff"), fold(16, "0xffff").repeat(3)].concat();
    format!(
        "(module
            (import \"ashway\" \"msg_read\" (func $read (param i32 i32 i32)))
            (memory (export \"memory\") 1 1)
            (func (export \"on_rx\") (param $len i32) (param $channel i32) (result i32)
                (local $at i32) (local $end i32) (local $word i64) (local $sum i64)
                (call $read (i32.const 0) (i32.const {DATA}) (local.get $len))
                (local.set $at (i32.const {DATA}))
                (local.set $end (i32.add (local.get $at) (local.get $len)))
                {}
                (i64.store (i32.const {SUM}) (local.get $sum))
                (i32.const 0)))",
        if work.sums || work.swaps {
            [pass, folds].concat()
        } else {
            String::new()
        }
    )
}

/// Something that takes a message.
enum Contender<'m> {
    Handler(Box<Trial<'m>>),
    ByHand(Program),
}

impl Contender<'_> {
    /// It does what the list says.
    fn check(&mut self, work: &Work, message: &[u8]) -> Result<()> {
        let list = pipe::parse(work.list)?;
        let (mut registers, mut expected) = (list.initial(), message.to_vec());
        pipe::interpret(&list, &mut registers, &mut expected);
        let sum = if work.sums { registers[0] } else { 0 };
        let (given, same) = match self {
            Self::Handler(trial) => {
                trial.activate("on_rx", message, 0)?;
                let guest = trial.guest();
                let given = u64::from_le_bytes(guest[SUM..][..8].try_into()?);
                (given, guest[DATA..].starts_with(&expected))
            }
            // Of what it stored it shows the last word.
            Self::ByHand(program) => {
                let after = program.test_run(&TestRun {
                    packet: &stub::frame(message),
                    context: None,
                    repeat: 1,
                })?;
                let given = u32::from_le_bytes(after.packet[8..12].try_into()?);
                (given.into(), expected.ends_with(&after.packet[16..24]))
            }
        };
        ensure!(given == sum, "the sum is {given:#x}, not {sum:#x}");
        ensure!(same, "something else is stored");
        Ok(())
    }

    /// ns of CPU time for each run of a batch.
    fn time(&mut self, message: &[u8]) -> Result<f64> {
        let begun = clock::thread_ns();
        match self {
            Self::Handler(trial) => {
                trial.time("on_rx", message, BATCH)?;
            }
            Self::ByHand(program) => {
                program.test_run(&TestRun {
                    packet: &stub::frame(message),
                    context: None,
                    repeat: BATCH,
                })?;
            }
        }
        Ok((clock::thread_ns() - begun) as f64 / f64::from(BATCH))
    }
}

/// The bodies of one round, in ns: the medians of what each way takes longer than
/// nothing in its engine. All take turns batch by batch.
fn round(
    ways: &mut [Contender<'_>; WAYS.len()],
    nothing: &mut [Contender<'_>; 3],
    message: &[u8],
    batches: usize,
) -> Result<[f64; WAYS.len()]> {
    let mut bodies: [Vec<f64>; WAYS.len()] = Default::default();
    for batch in 0..batches {
        let mut least = [0.0; 3];
        for (way, least) in nothing.iter_mut().zip(&mut least) {
            *least = way.time(message)?;
        }
        for step in 0..ways.len() {
            let at = (step + batch) % ways.len();
            bodies[at].push(ways[at].time(message)? - least[ENGINES[at]]);
        }
    }
    Ok(bodies.map(|it| Spread::of(it).expect("there is a batch").median.max(0.1)))
}

fn report(bodies: &[Vec<[f64; WAYS.len()]>]) -> Handlers {
    let mut handlers = Handlers::default();
    let mut rows = Vec::new();
    for (at, work) in WORKS.iter().enumerate() {
        for (size, bytes) in SIZES.into_iter().enumerate() {
            let rounds = &bodies[at * SIZES.len() + size];
            let mut row = vec![work.name.to_owned(), bytes.to_string()];
            for (way, name) in WAYS.iter().enumerate() {
                let spread = Spread::of(rounds.iter().map(|round| round[way]));
                row.push(spread.map_or_else(String::new, |ns| table::digits(ns.median)));
                handlers.cases.push(json!({
                    "work": work.name,
                    "bytes": bytes,
                    "way": name,
                    "body_ns": spread.map(Spread::to_json),
                }));
            }
            rows.push(row);
            if bytes == SIZES[SIZES.len() - 1] {
                let ratio = |name, over: usize, under: usize| {
                    let rounds = rounds.iter().map(|round| round[over] / round[under]);
                    Ratio::of(name, Target::Recorded, rounds)
                };
                let [by_hand, kernel, user] = work.ratios;
                let ratios = [ratio(by_hand, 2, 0), ratio(kernel, 1, 0), ratio(user, 4, 3)];
                handlers.ratios.extend(ratios.into_iter().flatten());
            }
        }
    }
    let header: Vec<&str> = ["HANDLER", "BYTES"].into_iter().chain(WAYS).collect();
    handlers.text = format!(
        "Handlers that take a message to their memory, ns, running nothing left out:\n\n{}",
        table::render(&header, 1, &rows)
    );
    handlers
}
