//! What a caller in Rust gets: beside well-kept crates, a pipe in Wasm beside the
//! same one built in, the rule that makes one pass of UDP's checksum and a list beside
//! both apart, and the compiler's own time and output.

use std::fmt::Write;
use std::hint::black_box;
use std::time::Instant;

use anyhow::{Result, ensure};
use ashway_codegen::normalise::{Limits, Profile, normalise_as};
use ashway_codegen::pipe::{self, Cpu, Gauge, List, Pipe, PipeRequest, compile, user_pipe};
use ashway_handler::native::{Passes, Pipes};
use ashway_wire::checksum::Sum;
use serde_json::{Value, json};

use crate::ratio::{Ratio, Target};
use crate::stats::Spread;
use crate::table;

/// What came of it.
pub(super) struct Here {
    pub(super) cases: Vec<Value>,
    pub(super) text: String,
    pub(super) ratios: Vec<Ratio>,
}

/// Sizes of messages.
const SIZES: [usize; 3] = [64, 1472, 4096];

/// Functions in Wasm, their words, and the same built in.
const USERS: [(&str, Gauge, &str, &str); 3] = [
    (
        "xor",
        Gauge::Bits32,
        "(param i32) (result i32) local.get 0  i32.const 0xdeadbeef  i32.xor",
        "xor32(0xdeadbeef)",
    ),
    (
        "sum",
        Gauge::Bits8,
        "(param i32 i32) (result i32 i32) local.get 0  local.get 1  local.get 0  i32.add",
        "sum8",
    ),
    (
        "swap",
        Gauge::Bits32,
        "(param i32) (result i32)
         local.get 0  i32.const 8  i32.rotl  i32.const 0x00ff00ff  i32.and
         local.get 0  i32.const 24  i32.rotl  i32.const 0xff00ff00  i32.and  i32.or",
        "bswap32",
    ),
];

/// Lists behind UDP's checksum: that modify, that also sum in another way, and that
/// only look.
const RULED: [(&str, &str); 3] = [
    (
        "xor(0xdeadbeef) | bswap32",
        "rule fuse-checksum, xor | bswap32: apart / fused, 1472 B",
    ),
    (
        "xor(0xdeadbeef) | bswap32 | crc32c",
        "the same, xor | bswap32 | crc32c",
    ),
    ("sum32", "the same, sum32"),
];

/// The list whose compilation is timed.
const THREE: &str = "cksum16 | bswap32 | xor(0xdeadbeef)";

/// Lists whose code is measured, and what they are made of.
const LISTS: usize = 1000;
const NAMES: [&str; 17] = [
    "copy",
    "cksum16",
    "crc32",
    "crc32c",
    "adler32",
    "bswap16",
    "bswap32",
    "bswap64",
    "xor32(1)",
    "add16(3)",
    "mask(0x37fa213d)",
    "alaw2ulaw",
    "sum8",
    "sum32",
    "min16",
    "max32",
    "count8(0)",
];

pub(super) fn run(cpu: Cpu, rounds: usize, quick: bool) -> Result<Here> {
    let mut here = Here {
        cases: Vec::new(),
        text: String::new(),
        ratios: Vec::new(),
    };
    here.crates(cpu, rounds, quick)?;
    here.users(cpu, rounds, quick)?;
    here.rule(cpu, rounds, quick)?;
    here.compiler(cpu, rounds, quick)?;
    Ok(here)
}

/// Batches of a round, of which the best counts: what disturbs one only ever adds.
const BATCHES: usize = 4;

/// ns of one call on so many bytes.
fn time(bytes: usize, quick: bool, call: &mut dyn FnMut()) -> f64 {
    let total = if quick { 1 << 16 } else { 1 << 20 };
    let calls = (total / bytes).max(16);
    (0..BATCHES)
        .map(|_| {
            let begun = Instant::now();
            for _ in 0..calls {
                call();
            }
            begun.elapsed().as_secs_f64() * 1e9 / calls as f64
        })
        .fold(f64::INFINITY, f64::min)
}

/// The two take turns at one destination; ns of each round. `run` is told which of
/// them it is.
fn alternate(
    source: &[u8],
    (rounds, quick): (usize, bool),
    mut run: impl FnMut(bool, &[u8], &mut [u8]),
) -> Vec<(f64, f64)> {
    let mut destination = vec![0; source.len()];
    let mut time = |first| {
        time(source.len(), quick, &mut || {
            run(first, black_box(source), black_box(&mut destination));
        })
    };
    (0..rounds)
        .map(|round| {
            // Neither always comes first.
            if round % 2 == 0 {
                let ours = time(true);
                (ours, time(false))
            } else {
                let theirs = time(false);
                (time(true), theirs)
            }
        })
        .collect()
}

fn map(list: &List, cpu: Cpu) -> Result<Pipes> {
    Ok(Pipes::map(compile(list, cpu, pipe::Options::default())?)?)
}

fn data(bytes: usize) -> Vec<u8> {
    (0..bytes)
        .map(|at| (((at * 31) >> 3) ^ (at >> 9)) as u8)
        .collect()
}

impl Here {
    /// A copy and a crate's routine over it, beside both fused.
    fn crates(&mut self, cpu: Cpu, rounds: usize, quick: bool) -> Result<()> {
        let list = pipe::parse("crc32")?;
        let pipes = map(&list, cpu)?;
        let mut rows = Vec::new();
        for bytes in SIZES {
            let source = data(bytes);
            let mut ours = vec![0; bytes];
            let mut registers = list.initial();
            pipes.run(&mut registers, &source, &mut ours, bytes);
            let crc = crc32fast::hash(&source);
            ensure!(!registers[0] as u32 == crc, "the CRCs of {bytes} B differ");
            let times = alternate(&source, (rounds, quick), |first, source, to| {
                if first {
                    let mut registers = [0xffff_ffff];
                    pipes.run(&mut registers, source, to, bytes);
                    black_box(registers);
                } else {
                    to.copy_from_slice(source);
                    black_box(crc32fast::hash(to));
                }
            });
            self.row(&mut rows, "copy + crc32, crate crc32fast", bytes, &times);
        }
        self.table("Called from Rust, in the caches, ns", "CRATE", &rows);
        Ok(())
    }

    /// A pipe in Wasm beside the same one built in.
    fn users(&mut self, cpu: Cpu, rounds: usize, quick: bool) -> Result<()> {
        let mut rows = Vec::new();
        let mut worst = None;
        for (name, gauge, body, built_in) in USERS {
            let own = list_of(function(body, gauge)?)?;
            let built_in = pipe::parse(built_in)?;
            let (own, built_in) = (map(&own, cpu)?, map(&built_in, cpu)?);
            for bytes in SIZES {
                let source = data(bytes);
                let (mut one, mut other) = (vec![0; bytes], vec![0; bytes]);
                let mut registers = own.native().list().initial();
                let mut others = built_in.native().list().initial();
                own.run(&mut registers, &source, &mut one, bytes);
                built_in.run(&mut others, &source, &mut other, bytes);
                // What is built in may have a key besides.
                ensure!(
                    one == other && (registers.is_empty() || registers == others),
                    "`{name}` in Wasm is not `{name}` built in"
                );
                let times = alternate(&source, (rounds, quick), |first, source, to| {
                    if first {
                        own.run(&mut registers, source, to, bytes);
                    } else {
                        built_in.run(&mut others, source, to, bytes);
                    }
                });
                let ratio = Spread::of(times.iter().map(|(own, built_in)| own / built_in));
                let median = |spread: Option<Spread>| spread.map_or(0.0, |one| one.median);
                if median(ratio) > median(worst) {
                    worst = ratio;
                }
                self.row(&mut rows, name, bytes, &times);
            }
        }
        self.table(
            "Pipes in Wasm, beside the same built in, ns",
            "BUILT IN",
            &rows,
        );
        let worst = worst.map(|spread| Ratio {
            name: "pipe in Wasm / built in, the worst",
            spread,
            target: Target::AtMost(1.2),
            exact: false,
        });
        self.ratios.extend(worst);
        Ok(())
    }

    /// What two stages of a path do with a message, UDP's and one of kind `pipe`, and
    /// what the rule `fuse-checksum` makes of them (`modules/src/pipe.rs`).
    fn rule(&mut self, cpu: Cpu, rounds: usize, quick: bool) -> Result<()> {
        let mut rows = Vec::new();
        for (text, name) in RULED {
            let list = pipe::parse(text)?;
            let summed = pipe::parse(&format!("cksum16 | {text}"))?;
            let plan = |list| pipe::plan(list, cpu, 1472);
            let apart = Passes::map_in_place(&list, cpu, &plan(&list))?;
            let across = Passes::map(&summed, cpu, &plan(&summed))?;
            let in_place = Passes::map_in_place(&summed, cpu, &plan(&summed))?;
            let sum = |data: &[u8]| u64::from(Sum::new().bytes(data).fold().swap_bytes());
            let fused = |registers: &mut [u64], source: &mut [u8], to: &mut [u8]| {
                if list.no_mod() {
                    in_place.run_in_place(registers, source);
                } else {
                    across.run(registers, source, to);
                }
            };
            for bytes in SIZES {
                let source = data(bytes);
                let (mut one, mut other) = (source.clone(), vec![0; bytes]);
                let (mut registers, mut all) = (list.initial(), summed.initial());
                fused(&mut all, &mut one, &mut other);
                apart.run_in_place(&mut registers, &mut one);
                ensure!(
                    (list.no_mod() || one == other)
                        && all[1..] == registers
                        && all[0] == sum(&source),
                    "`{text}` of {bytes} B is something else in one pass"
                );
                let times = alternate(&source, (rounds, quick), |first, _, to| {
                    if first {
                        let mut registers = summed.initial();
                        fused(&mut registers, &mut one, to);
                        black_box(registers);
                    } else {
                        let mut registers = list.initial();
                        black_box(sum(to));
                        apart.run_in_place(&mut registers, to);
                        black_box(registers);
                    }
                });
                if bytes == 1472 {
                    let ratios = times.iter().map(|(fused, apart)| apart / fused);
                    self.ratios
                        .extend(Ratio::of(name, Target::Recorded, ratios));
                }
                self.row(&mut rows, text, bytes, &times);
            }
        }
        let title = "UDP's checksum and a list, in one pass by the rule `fuse-checksum`, ns";
        self.table(title, "APART", &rows);
        Ok(())
    }

    fn compiler(&mut self, cpu: Cpu, rounds: usize, quick: bool) -> Result<()> {
        let list = pipe::parse(THREE)?;
        let times = (0..rounds).map(|_| {
            let runs = if quick { 20 } else { 200 };
            let mut all: Vec<f64> = (0..runs)
                .map(|_| {
                    let begun = Instant::now();
                    black_box(compile(&list, cpu, pipe::Options::default())).ok();
                    begun.elapsed().as_secs_f64() * 1e6
                })
                .collect();
            all.sort_by(f64::total_cmp);
            all[all.len() / 2]
        });
        let times: Vec<f64> = times.collect();
        self.ratios.extend(Ratio::of(
            "compiling three pipes, us",
            Target::AtMost(100.0),
            times,
        ));
        // A pipe's share of the code must not depend on how many there are.
        let none = compile(&List::new(), cpu, pipe::Options::default())?
            .code()
            .len();
        let (mut short, mut long) = ((0, 0), (0, 0));
        for at in 0..LISTS {
            let pipes = at % pipe::MAX_PIPES + 1;
            // Each list begins and goes on at another place of the names.
            let step = 2 * (at / pipe::MAX_PIPES) + 1;
            let text: Vec<&str> = (0..pipes)
                .map(|one| NAMES[(at + one * step) % NAMES.len()])
                .collect();
            let list = pipe::parse(&text.join(" | "))?;
            let code = compile(&list, cpu, pipe::Options::default())?.code().len() - none;
            let sum = if pipes <= pipe::MAX_PIPES / 2 {
                &mut short
            } else {
                &mut long
            };
            *sum = (sum.0 + code, sum.1 + pipes);
        }
        let share = |(code, pipes): (usize, usize)| code as f64 / pipes as f64;
        self.ratios.extend(Ratio::of(
            "code of 1,000 lists, a pipe's share: more than 16 pipes / fewer",
            Target::AtMost(1.1),
            [share(long) / share(short)],
        ));
        Ok(())
    }

    fn row(&mut self, rows: &mut Vec<Vec<String>>, name: &str, bytes: usize, times: &[(f64, f64)]) {
        let ours = Spread::of(times.iter().map(|(ours, _)| *ours));
        let theirs = Spread::of(times.iter().map(|(_, theirs)| *theirs));
        let ratio = Spread::of(times.iter().map(|(ours, theirs)| theirs / ours));
        let cell = |spread: Option<Spread>| {
            spread.map_or_else(String::new, |spread| table::digits(spread.median))
        };
        rows.push(vec![
            name.to_owned(),
            bytes.to_string(),
            cell(ours),
            cell(theirs),
            cell(ratio),
        ]);
        self.cases.push(json!({
            "case": name,
            "bytes": bytes,
            "ours_ns": ours.map(Spread::to_json),
            "theirs_ns": theirs.map(Spread::to_json),
            "theirs_over_ours": ratio.map(Spread::to_json),
        }));
    }

    fn table(&mut self, title: &str, theirs: &str, rows: &[Vec<String>]) {
        let header = ["CASE", "BYTES", "PIPES", theirs, "RATIO"];
        let table = table::render(&header, 1, rows);
        // Writing to a string does not fail.
        let _ = writeln!(self.text, "{title}:\n\n{table}");
    }
}

fn list_of(pipe: Pipe) -> Result<List> {
    let mut list = List::new();
    list.push(pipe)?;
    Ok(list)
}

/// The function of that type and body as a pipe.
fn function(body: &str, gauge: Gauge) -> Result<Pipe> {
    let wasm = wat::parse_str(format!("(module (func (export \"f\") {body}))"))?;
    let module = normalise_as(&wasm, &Limits::default(), Profile::Library)?;
    let wanted = PipeRequest {
        gauge: Some(gauge),
        ..PipeRequest::default()
    };
    Ok(user_pipe(&module, "f", wanted)?)
}
