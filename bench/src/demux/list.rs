//! A thousand filters as a list, which is what demux replaces.
//!
//! Engler and Kaashoek 1996 say of DPF that it is ten times as fast as the packet
//! filters before it, which were interpreted one by one. So here are the same
//! thousand filters, compiled by libpcap and tried one after another:
//!
//! * **interpreter**: by `pcap_offline_filter`, in an ordinary process, beside the
//!   user tier's walk over the headers and look-up;
//! * **JIT**: as instructions of eBPF, translated as the kernel itself does with
//!   a filter of a socket, in one `BPF_PROG_TYPE_SCHED_CLS` program by
//!   `BPF_PROG_TEST_RUN`, beside the kernel tier's program. Nothing is counted of
//!   what a thousand sockets cost besides their filters.
//!
//! A list is fast for what stands first in it, so there are three kinds of keys.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

use Reg::{R0, R1, R6, R7, R8};
use anyhow::{Context, Result, bail, ensure};
use ashway_check::bpf::{Assembler, Insn, Label, Reg, op};
use ashway_kernel::{Program, ProgramKind, ProgramSpec, TestRun};
use ashway_rig::Process;
use serde_json::json;

use super::program::{self, Case, Programs};
use super::{Part, user};
use crate::peers::INSTALL;
use crate::ratio::{Ratio, Target};
use crate::stats::Spread;
use crate::table;

/// Filters in the list.
const FILTERS: u32 = 1_000;

/// Places of the list that stand for all of them where every run has the same
/// frame.
const PLACES: u32 = 20;

/// Measures all kinds of keys.
pub(super) fn run(rounds: usize, quick: bool) -> Result<Part> {
    let mut part = Part::default();
    let mut lines = Vec::new();
    let mut peer = Peer::start()?;
    let jitted = jitted(&peer.dump()?)?;
    let less = if quick { 10 } else { 1 };
    let mut worst = Vec::new();
    for keys in ["uniform", "first", "last"] {
        eprintln!("measuring a list of {FILTERS} filters, {keys} ...");
        let case = if keys == "uniform" {
            Case::Uniform
        } else {
            Case::Hot
        };
        let ours = Programs::load(FILTERS, case)?;
        ours.check()?;
        let user = user::Tier::new(FILTERS)?;
        let repeat = if keys == "first" { 2_000_000 } else { 20_000 };
        let mut times = Vec::new();
        for _ in 0..rounds {
            times.push([
                user.whole_ns(keys),
                peer.time(keys, repeat / less)?,
                (0..20 / less)
                    .map(|_| ours.ns_per_run(ours.demux(), 200_000))
                    .try_fold(f64::INFINITY, |best, ns| ns.map(|ns| best.min(ns)))?,
                list_ns(&jitted, keys, 20_000 / less)?,
            ]);
        }
        let spread = |of: usize| Spread::of(times.iter().map(|times| times[of]));
        let [Some(user), Some(interpreter), Some(kernel), Some(jit)] = [0, 1, 2, 3].map(spread)
        else {
            continue;
        };
        let over = |list: usize, ours: usize| times.iter().map(move |t| t[list] / t[ours]);
        let (Some(interpreted), Some(compiled)) = (Spread::of(over(1, 0)), Spread::of(over(3, 2)))
        else {
            continue;
        };
        let number = |spread: Spread| table::digits(spread.median);
        lines.push(vec![
            keys.to_owned(),
            number(user),
            number(interpreter),
            number(interpreted),
            number(kernel),
            number(jit),
            number(compiled),
        ]);
        part.cases.push(json!({
            "list": FILTERS,
            "keys": keys,
            "user_ns": user.to_json(),
            "interpreter_ns": interpreter.to_json(),
            "interpreter_over_user": interpreted.to_json(),
            "kernel_ns": kernel.to_json(),
            "jit_ns": jit.to_json(),
            "jit_over_kernel": compiled.to_json(),
        }));
        if keys == "uniform" {
            worst.extend(over(1, 0));
            part.ratios.extend(Ratio::of(
                "jitted_list_over_demux",
                Target::Recorded,
                over(3, 2),
            ));
        }
    }
    part.ratios.extend(Ratio::of(
        "interpreted_list_over_demux",
        Target::AtLeast(10.0),
        worst,
    ));
    let header = [
        "KEYS",
        "USER",
        "INTERPRETER",
        "RATIO",
        "KERNEL",
        "JIT LIST",
        "RATIO",
    ];
    part.text = format!(
        "The path of a frame among {FILTERS} filters, ns; headers walked, keys drawn:\n\n{}",
        table::render(&header, 1, &lines)
    );
    Ok(part)
}

/// `bench/peers/pcap_list.c`, waiting for commands.
struct Peer {
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    _process: Process,
}

impl Peer {
    fn start() -> Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
        let root = root.context("the workspace's root")?;
        let out = root.join("target/peers");
        std::fs::create_dir_all(&out)?;
        let program = out.join("pcap_list");
        let built = Command::new("cc")
            .args(["-O2", "-Wall", "-Wextra", "-Werror"])
            .arg(root.join("bench/peers/pcap_list.c"))
            .arg("-o")
            .arg(&program)
            .arg("-ldl")
            .status()
            .with_context(|| format!("cannot start `cc`; run `{INSTALL}`"))?;
        ensure!(built.success(), "`pcap_list.c` was not compiled");
        let mut command = Command::new(program);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Process::spawn(command).context("cannot start pcap_list")?;
        let output = process.child().stdout.take().context("no output")?;
        let mut input = process.child().stdin.take().context("no input")?;
        for path in 0..FILTERS {
            writeln!(input, "{}", program::text(path))?;
        }
        writeln!(input)?;
        Ok(Self {
            input,
            output: BufReader::new(output),
            _process: process,
        })
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        let bytes = self.output.read_line(&mut line)?;
        ensure!(bytes > 0, "pcap_list ended; what it wrote says why");
        Ok(line)
    }

    /// ns per frame.
    fn time(&mut self, keys: &str, repeat: u32) -> Result<f64> {
        writeln!(self.input, "time {keys} {repeat}")?;
        Ok(self.line()?.trim().parse()?)
    }

    /// Programs as code, jt, jf, k of each instruction.
    fn dump(&mut self) -> Result<Vec<Vec<[u32; 4]>>> {
        writeln!(self.input, "dump")?;
        let one = |line: String| -> Result<Vec<[u32; 4]>> {
            let numbers: Result<Vec<u32>, _> = line.split_whitespace().map(str::parse).collect();
            let insns = numbers?[1..]
                .chunks_exact(4)
                .map(|insn| [insn[0], insn[1], insn[2], insn[3]])
                .collect();
            Ok(insns)
        };
        (0..FILTERS).map(|_| one(self.line()?)).collect()
    }
}

/// ns per frame; for uniform keys the mean over [`PLACES`].
fn list_ns(list: &Program, keys: &str, repeat: u32) -> Result<f64> {
    let places: Vec<u32> = match keys {
        "first" => vec![0],
        "last" => vec![FILTERS - 1],
        _ => (0..PLACES)
            .map(|place| (2 * place + 1) * FILTERS / PLACES / 2)
            .collect(),
    };
    let mut sum = 0.0;
    for place in &places {
        let result = list.test_run(&TestRun {
            packet: &program::frame_of(*place),
            context: None,
            repeat,
        })?;
        let found = result.retval;
        ensure!(found == *place, "the list found {found} instead of {place}");
        sum += f64::from(result.duration_ns);
    }
    Ok(sum / places.len() as f64)
}

/// Classic programs one after another; returns the number of the first that takes
/// the frame. A in `r0`, X in `r7`, as in `bpf_convert_filter` (net/core/filter.c).
fn jitted(filters: &[Vec<[u32; 4]>]) -> Result<Program> {
    let mut asm = Assembler::new();
    asm.mov(R6, R1);
    for (number, filter) in (0..).zip(filters) {
        let next = asm.label();
        let labels: Vec<Label> = filter.iter().map(|_| asm.label()).collect();
        for (at, insn) in filter.iter().enumerate() {
            asm.bind(labels[at]);
            translate(&mut asm, *insn, number, next, |skip| {
                labels[at + 1 + skip as usize]
            })?;
        }
        asm.bind(next);
    }
    asm.mov_imm(R0, -1);
    asm.exit();
    Ok(Program::load(&ProgramSpec {
        name: "ashway_list",
        kind: ProgramKind::SchedCls,
        attach_type: 0,
        insns: &asm.finish().insns,
        maps: &[],
        btf: None,
    })?)
}

/// One instruction of those that the filters here compile to.
fn translate(
    asm: &mut Assembler,
    [code, yes, no, k]: [u32; 4],
    number: i32,
    next: Label,
    label: impl Fn(u32) -> Label,
) -> Result<()> {
    let load = |code: u32, src: u8| Insn {
        opcode: code as u8,
        dst: 0,
        src,
        off: 0,
        imm: k as i32,
    };
    match code {
        // Loads from a constant place and from behind X are eBPF's too.
        0x20 | 0x28 | 0x30 => asm.raw(load(code, 0)),
        0x40 | 0x48 | 0x50 => asm.raw(load(code, R7 as u8)),
        // ldxb 4*([k]&0xf)
        0xb1 => {
            asm.mov(R8, R0);
            asm.raw(load(0x30, 0));
            asm.alu32_imm(op::AND, R0, 0xf);
            asm.alu32_imm(op::LSH, R0, 2);
            asm.mov(R7, R0);
            asm.mov(R0, R8);
        }
        0x15 | 0x25 | 0x35 => {
            asm.jump32_if_imm(code as u8 & 0xf0, R0, k as i32, label(yes));
            asm.jump(label(no));
        }
        // jset, which has no opposite: by way of its value.
        0x45 => {
            asm.mov(R1, R0);
            asm.alu32_imm(op::AND, R1, k as i32);
            asm.jump32_if_imm(op::JNE, R1, 0, label(yes));
            asm.jump(label(no));
        }
        0x06 if k == 0 => asm.jump(next),
        0x06 => {
            asm.mov_imm(R0, number);
            asm.exit();
        }
        _ => bail!("libpcap used an instruction that is not translated here: {code:#x}"),
    }
    Ok(())
}
