//! `ashway-time-promise [RUNS [BUDGET [FOLDER]]]`: how long hostile handlers really run.
//!
//! The promise is that none continues past its budget (50 us) plus one slice
//! of guest time. Each kind of handler runs RUNS times (default 1,000,000,
//! about a minute) by `BPF_PROG_TEST_RUN` on one CPU, with BUDGET in us (default 50).
//! With a FOLDER (`tests/hostile`) it is those there that end for want of fuel in
//! either tier. The program around it
//! takes the time itself, right before and after the handler, and keeps the
//! longest and a histogram of 256 ns in a part of the context that no handler
//! uses, so that nothing but two looks at the clock is added.
//!
//! A hypervisor that takes the CPU away, and interrupts, are in these times.
//! Handlers take turns, batch by batch of 0.1 s, and the last two columns are what each
//! takes longer than the control in the same pass: the medians of the differences of
//! batches' medians, and of their p99. A batch in which `/proc/stat` counted stolen
//! time is marked. (Steal is counted in ticks of 10 ms, so a batch without it may have
//! lost less than that.)
//!
//! The memory begins as one circle through all of its cache lines, in no order
//! that a CPU could foresee, for the handler that goes along it; an application
//! can write the same at any time.

#![forbid(unsafe_code)]

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use ashway_abi::memory::WASM_PAGE;
use ashway_abi::{Budget, MemoryKind};
use ashway_abi::{Cause, context};
use ashway_bench::stats::Spread;
use ashway_check::bpf::{Assembler, MapRef, Reg, Size, helper, op};
use ashway_codegen::normalise::{Limits, normalise};
use ashway_codegen::promote::{Checks, Shape};
use ashway_codegen::stub;
use ashway_kernel::{
    Map, MapFixup, MapSpec, Program, ProgramKind, ProgramSpec, TestRun, maps, shared,
};
use ashway_memory::{AllegedOffset, Memory};
use rustix::thread::{CpuSet, sched_setaffinity};

/// A node's default, with fuel that never ends, so that the clock ends every run.
const BUDGET: Budget = Budget {
    fuel: 1 << 40,
    slice: 4_096,
    ns: 50_000,
};

macro_rules! hostile {
    ($($name:literal)*) => {
        [$(($name, include_str!(concat!(
            "../../../crates/codegen/tests/promote/hostile/", $name, ".wat"
        )))),*]
    };
}

const HANDLERS: [(&str, &str); 10] = hostile! {
    "nested_loops" "recursion" "br_table" "division" "cache_miss" "atomics"
    "copy_small" "copy_64k" "copy_mib" "fill_mib"
};

/// A turn that is nothing but loads, each of the next one's address: as long as
/// the charges within it let it be. Each run begins elsewhere.
fn chase() -> String {
    format!(
        "(module (memory (export \"memory\") 256 256)
            (func (export \"on_rx\") (param $at i32) (param i32) (result i32)
                (local.set $at (i32.and (i32.const 0xffffc0)
                    (i32.add (i32.load (i32.const 4)) (i32.const 0x123440))))
                (i32.store (i32.const 4) (local.get $at))
                (loop $again (local.set $at (local.get $at) {}) (br $again))
                (unreachable)))",
        "i32.load ".repeat(4_000)
    )
}

/// A cache line.
const LINE: usize = 64;

/// Writes into each line's first word where the next line is (Sattolo 1986).
fn make_circle(memory: &mut [u8]) {
    let mut next: Vec<u32> = (0..).step_by(LINE).take(memory.len() / LINE).collect();
    let mut random = 1_u64;
    for last in (1..next.len()).rev() {
        // Knuth's MMIX generator.
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        next.swap(last, (random >> 33) as usize % last);
    }
    for (line, next) in memory.chunks_exact_mut(LINE).zip(next) {
        line[..4].copy_from_slice(&next.to_le_bytes());
    }
}

/// What the machine does by itself: looks at the clock all the time, so that
/// there is no slice to speak of. Whatever this row is over the budget, no
/// handler is to blame for.
const CONTROL_SLICE: u32 = 64;

/// Runs in one system call.
const BATCH: u32 = 2_000;

/// The corpus' own.
const MESSAGE: &[u8; 64] = &{
    let mut message = [0; 64];
    let mut at = 0;
    while at < message.len() {
        message[at] = at as u8;
        at += 1;
    }
    message
};

/// In the context, behind the call stack: the longest run, when this one began,
/// and runs by their length.
const LONGEST: i32 = 55 * 1024;
const BEGAN: i16 = 8;
const HISTOGRAM: i32 = 56 * 1024;
const BUCKETS: usize = 1_408;
/// A bucket is 256 ns wide; the last has all above 360 us. They end before what
/// handlers log is staged.
const SHIFT: i32 = 8;

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let mut number = |what: &'static str, otherwise| match args.next() {
        Some(number) => number.parse::<u32>().context(what),
        None => Ok(otherwise),
    };
    let runs = number("RUNS is a number", 1_000_000)?;
    let us = number("BUDGET is a number, in us", 50)?;
    let budget = Budget {
        ns: u64::from(us) * 1_000,
        ..BUDGET
    };
    let handlers = if let Some(folder) = args.next() {
        endless(Path::new(&folder))?
    } else {
        let known = HANDLERS.map(|(name, text)| (name.to_owned(), text.to_owned()));
        let chase = [("chase".to_owned(), chase())];
        known.into_iter().chain(chase).collect()
    };
    let mut cpu = CpuSet::new();
    cpu.set(1);
    sched_setaffinity(None, &cpu).context("cannot stay on CPU 1")?;
    let control = Budget {
        slice: CONTROL_SLICE,
        ..budget
    };
    let mut subjects = vec![Subject::new("(control)", HANDLERS[0].1, control)?];
    for (name, text) in &handlers {
        let subject = Subject::new(name, text, budget);
        subjects.push(subject.with_context(|| format!("handler {name}"))?);
    }
    // The first batch warms up: pages, caches, the dispatcher. With fuel without end, and
    // the memory of the run before, some end otherwise.
    for pass in 0..=runs.div_ceil(BATCH) {
        for subject in &mut subjects {
            let batch = subject.batch();
            let batch = batch.with_context(|| format!("handler {}", subject.name))?;
            if pass > 0 {
                subject.batches.push(batch);
            }
        }
        subjects.retain(|subject| subject.cause == Some(Cause::Time));
    }
    println!("{runs} runs of each handler, budget {us} us, slice 4096 fuel, times in us\n");
    let width = handlers.iter().map(|(name, _)| name.len()).max();
    let width = width.unwrap_or(0).max(14);
    let header = format!(
        "{:width$}{:>9}{:>9}{:>9}{:>9}{:>9}{:>12}{:>9}{:>9}",
        "handler", "median", "p99", "p99.99", "max", "stolen", "in batches", "median+", "p99+"
    );
    println!("{header}\n{}", "-".repeat(header.len()));
    for subject in &subjects {
        subject.print(&subjects[0], width);
    }
    println!("\n+ over the control in the same pass");
    Ok(())
}

/// The handlers of a folder whose first line says that they end for want of fuel.
fn endless(folder: &Path) -> Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    let entries = fs::read_dir(folder);
    for entry in entries.with_context(|| format!("`{}` cannot be read", folder.display()))? {
        let path = entry?.path();
        if path.extension().is_none_or(|end| end != "wat") {
            continue;
        }
        let text = fs::read_to_string(&path)?;
        // More than the one handler, or a message that matters, is for other tests.
        if text.starts_with(";; both: fuel") && !text.starts_with(";; both: fuel,") {
            let name = path.file_stem().context("a file has a name")?;
            found.push((name.to_string_lossy().into_owned(), text));
        }
    }
    found.sort();
    ensure!(
        !found.is_empty(),
        "no handler in `{}` is endless",
        folder.display()
    );
    Ok(found)
}

/// Lengths of the runs of a batch, or of several.
#[derive(Clone)]
struct Times {
    buckets: Vec<u64>,
    longest_ns: u64,
    stolen_ticks: u64,
}

impl Times {
    fn none() -> Self {
        Self {
            buckets: vec![0; BUCKETS],
            longest_ns: 0,
            stolen_ticks: 0,
        }
    }

    fn add(&mut self, other: &Self) {
        for (sum, more) in self.buckets.iter_mut().zip(&other.buckets) {
            *sum += more;
        }
        self.longest_ns = self.longest_ns.max(other.longest_ns);
        self.stolen_ticks += other.stolen_ticks;
    }

    /// The upper end of the bucket that this part of all runs reaches, in us.
    fn quantile_us(&self, part: f64) -> f64 {
        let runs: u64 = self.buckets.iter().sum();
        let wanted = (runs as f64 * part).ceil() as u64;
        let mut seen = 0;
        let bucket = self.buckets.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        ((bucket.unwrap_or(0) + 1) << SHIFT) as f64 / 1e3
    }
}

/// A handler in the kernel.
struct Subject {
    name: String,
    program: Program,
    contexts: Map,
    /// For as long as the program uses it.
    _memory: Memory,
    cause: Option<Cause>,
    batches: Vec<Times>,
}

impl Subject {
    fn new(name: &str, text: &str, budget: Budget) -> Result<Self> {
        let wasm = wat::parse_str(text)?;
        let module = normalise(&wasm, &Limits::default())?;
        let entry = module.exports.iter().find(|(name, _)| name == "on_rx");
        let shape = Shape {
            module: &module,
            entry: entry.context("no on_rx")?.1,
            memory: MemoryKind::Arena,
            layout: stub::layout(&module),
            budget,
            locals_in_memory: false,
            checks: Checks::default(),
        };
        let (image, _) = stub::generate_around(&shape, cpus()? as u32, before, after)?;
        let value_bytes = context::BYTES * cpus()?;
        let contexts = Map::create(&MapSpec::array("time_context", value_bytes as u32, 1))?;
        let mut first = stub::first_memory(&module);
        make_circle(&mut first[..module.initial_pages as usize * WASM_PAGE]);
        let memory = shared::arena(first.len())?;
        memory.copy_in(AllegedOffset(0), &first)?;
        let fixups = image.maps.iter().map(|used| {
            let fd = match used.map {
                MapRef::Context => contexts.fd(),
                _ => memory.fd(),
            };
            MapFixup {
                insn: used.insn,
                fd,
                value_offset: used.value_offset,
            }
        });
        let program = Program::load(&ProgramSpec {
            name: "time_promise",
            kind: ProgramKind::Xdp,
            attach_type: 0,
            insns: &image.insns,
            maps: &fixups.collect::<Vec<_>>(),
            btf: None,
        })?;
        Ok(Self {
            name: name.to_owned(),
            program,
            contexts,
            _memory: memory,
            cause: None,
            batches: Vec::new(),
        })
    }

    fn batch(&mut self) -> Result<Times> {
        let value_bytes = context::BYTES * cpus()?;
        let value = vec![0; value_bytes];
        self.contexts.update(&0_u32.to_le_bytes(), &value)?;
        let stolen = stolen_ticks()?;
        let result = self.program.test_run(&TestRun {
            packet: &stub::frame(MESSAGE),
            context: None,
            repeat: BATCH,
        })?;
        let stolen = stolen_ticks()? - stolen;
        let outcome = stub::outcome(&result.packet).context("the frame is spoiled")?;
        self.cause = outcome.result.err().map(|(cause, _)| cause);
        let value = self.contexts.lookup(&0_u32.to_le_bytes())?;
        let value = value.context("no context")?;
        read(&value[context::BYTES..], stolen)
    }

    fn print(&self, control: &Self, width: usize) {
        let mut all = Times::none();
        for batch in &self.batches {
            all.add(batch);
        }
        let stolen = self.batches.iter().filter(|batch| batch.stolen_ticks > 0);
        let over = |part| {
            let pairs = self.batches.iter().zip(&control.batches);
            let more = pairs.map(|(own, its)| own.quantile_us(part) - its.quantile_us(part));
            Spread::of(more).map_or(0.0, |spread| spread.median)
        };
        println!(
            "{:width$}{:>9.1}{:>9.1}{:>9.1}{:>9.1}{:>6} ms{:>5} of {:>3}{:>9.1}{:>9.1}",
            self.name,
            all.quantile_us(0.5),
            all.quantile_us(0.99),
            all.quantile_us(0.9999),
            all.longest_ns as f64 / 1e3,
            all.stolen_ticks * 10,
            stolen.count(),
            self.batches.len(),
            over(0.5),
            over(0.99),
        );
    }
}

fn cpus() -> Result<usize> {
    Ok(maps::possible_cpus()?)
}

/// What the program left in CPU 1's context.
fn read(context: &[u8], stolen_ticks: u64) -> Result<Times> {
    let words = context[HISTOGRAM as usize..][..4 * BUCKETS].chunks_exact(4);
    let buckets: Vec<u64> = words
        .map(|word| u32::from_le_bytes(word.try_into().expect("four bytes")).into())
        .collect();
    let counted: u64 = buckets.iter().sum();
    ensure!(counted == u64::from(BATCH), "{counted} runs were counted");
    let longest = context[LONGEST as usize..][..8].try_into()?;
    Ok(Times {
        buckets,
        longest_ns: u64::from_le_bytes(longest),
        stolen_ticks,
    })
}

/// Stolen time of CPU 1 since boot: the eighth number of its line.
fn stolen_ticks() -> Result<u64> {
    let stat = fs::read_to_string("/proc/stat")?;
    let line = stat.lines().find(|line| line.starts_with("cpu1 "));
    let word = line.and_then(|line| line.split_whitespace().nth(8));
    Ok(word.context("no cpu1 in /proc/stat")?.parse()?)
}

/// `r1` = where the longest run is.
fn words(asm: &mut Assembler) {
    asm.mov(Reg::R1, Reg::R9);
    asm.alu_imm(op::ADD, Reg::R1, LONGEST);
}

fn before(asm: &mut Assembler) {
    asm.call(helper::KTIME_GET_NS);
    words(asm);
    asm.store(Size::D, Reg::R1, BEGAN, Reg::R0);
}

fn after(asm: &mut Assembler) {
    let not_longer = asm.label();
    let short = asm.label();
    asm.call(helper::KTIME_GET_NS);
    words(asm);
    asm.load(Size::D, Reg::R2, Reg::R1, BEGAN);
    asm.alu(op::SUB, Reg::R0, Reg::R2);
    asm.load(Size::D, Reg::R2, Reg::R1, 0);
    asm.jump_if(op::JLE, Reg::R0, Reg::R2, not_longer);
    asm.store(Size::D, Reg::R1, 0, Reg::R0);
    asm.bind(not_longer);
    asm.alu_imm(op::RSH, Reg::R0, SHIFT);
    asm.jump_if_imm(op::JLT, Reg::R0, BUCKETS as i32, short);
    asm.mov_imm(Reg::R0, BUCKETS as i32 - 1);
    asm.bind(short);
    asm.alu_imm(op::LSH, Reg::R0, 2);
    asm.alu_imm(op::ADD, Reg::R1, HISTOGRAM - LONGEST);
    asm.alu(op::ADD, Reg::R1, Reg::R0);
    asm.load(Size::W, Reg::R2, Reg::R1, 0);
    asm.alu_imm(op::ADD, Reg::R2, 1);
    asm.store(Size::W, Reg::R1, 0, Reg::R2);
}
