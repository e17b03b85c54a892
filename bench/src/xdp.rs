//! Small XDP programs around a measurement, and the way to a node's own.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ashway_check::bpf::{Assembler, Field, Reg, Size, op};
use ashway_kernel::{Iface, Mode, Program, ProgramKind, ProgramSpec, TestRun, XdpContext, owner};
use ashway_rig::{Rig, realtime};

use crate::neighbour::pin;

/// `XDP_DROP`.
pub const DROP: u32 = 1;
/// `XDP_TX`.
pub const TX: u32 = 3;

/// A program that returns one code for every frame.
///
/// # Errors
///
/// Without the right to load programs.
pub fn constant(name: &str, code: u32) -> Result<Program> {
    // r0 = code; exit
    load(name, &[0xb7 | u64::from(code) << 32, 0x95])
}

/// A program that writes `frame` over whatever it gets, and sends that (`XDP_TX`). For
/// live runs: they take a page that comes back as whoever had it last has left it, so a
/// frame whose headers were turned around would be sent so the next time.
///
/// # Errors
///
/// Without the right to load programs.
pub fn rewriting(name: &str, frame: &[u8]) -> Result<Program> {
    let mut asm = Assembler::new();
    let short = asm.label();
    asm.field(Reg::R2, Reg::R1, Field::Data);
    asm.field(Reg::R3, Reg::R1, Field::DataEnd);
    asm.mov(Reg::R4, Reg::R2);
    asm.alu_imm(op::ADD, Reg::R4, frame.len() as i32);
    asm.mov_imm(Reg::R0, DROP as i32);
    asm.jump_if(op::JGT, Reg::R4, Reg::R3, short);
    let (words, rest) = frame.as_chunks::<4>();
    let mut at = 0;
    for word in words {
        asm.store_imm(Size::W, Reg::R2, at, i32::from_ne_bytes(*word));
        at += 4;
    }
    for byte in rest {
        asm.store_imm(Size::B, Reg::R2, at, (*byte).into());
        at += 1;
    }
    asm.mov_imm(Reg::R0, TX as i32);
    asm.bind(short);
    asm.exit();
    load(name, &asm.finish().insns)
}

fn load(name: &str, insns: &[u64]) -> Result<Program> {
    Ok(Program::load(&ProgramSpec {
        name,
        kind: ProgramKind::Xdp,
        attach_type: 0,
        insns,
        maps: &[],
        btf: None,
    })?)
}

/// Floods B from A for that long: so many live frames a call, by a program that sends
/// them, from CPU 0. What it sends is received in softirq there, too; who takes it has the
/// other.
///
/// # Errors
///
/// Without a real-time priority, and what the kernel said.
pub fn flood(rig: &Rig, sender: &Program, frame: &[u8], call: u32, lasts: Duration) -> Result<()> {
    rig.in_a(|| {
        let ifindex = Iface::by_name("a0")?.ifindex;
        pin(0)?;
        // Nor may others slow it down: the taker would wait, and to wait takes time, too.
        realtime(|| {
            let begin = Instant::now();
            while begin.elapsed() < lasts {
                sender.run_live(frame, call, ifindex)?;
            }
            Ok(())
        })?
    })
}

/// Has a program of an interface of B run for that long on one frame, from CPU 0: so many runs
/// a call. What it does with a frame is done, but nothing sends or receives. Gives back how
/// many there were.
///
/// # Errors
///
/// As [`flood`].
pub fn run(
    rig: &Rig,
    (iface, program): (&str, &Program),
    frame: &[u8],
    call: u32,
    lasts: Duration,
) -> Result<u64> {
    rig.in_b(|| {
        let ifindex = Iface::by_name(iface)?.ifindex;
        pin(0)?;
        realtime(|| {
            let run = TestRun {
                packet: frame,
                context: Some(XdpContext::from_interface(frame.len(), ifindex)),
                repeat: call,
            };
            let (begin, mut frames) = (Instant::now(), 0);
            while begin.elapsed() < lasts {
                program.test_run(&run)?;
                frames += u64::from(call);
            }
            Ok(frames)
        })?
    })
}

/// A program on an interface; taken off on drop.
#[derive(Debug)]
pub struct Attached {
    _link: ashway_kernel::Attached,
}

impl Attached {
    /// Attaches a program that returns `code` to `a0`.
    ///
    /// # Errors
    ///
    /// What the kernel said.
    pub fn to_client(rig: &Rig, code: u32) -> Result<Self> {
        let program = constant("ashway_bench_a0", code)?;
        let link = rig.in_a(|| -> Result<_> {
            let ifindex = Iface::by_name("a0")?.ifindex;
            Ok(ashway_kernel::Attached::xdp(
                &program,
                ifindex,
                Mode::Native,
            )?)
        });
        Ok(Self { _link: link? })
    }

    /// Attaches a program to an interface of B.
    ///
    /// # Errors
    ///
    /// What the kernel said.
    pub fn to_host(rig: &Rig, iface: &str, program: &Program) -> Result<Self> {
        let link = rig.in_b(|| -> Result<_> {
            let ifindex = Iface::by_name(iface)?.ifindex;
            Ok(ashway_kernel::Attached::xdp(
                program,
                ifindex,
                Mode::Native,
            )?)
        });
        Ok(Self { _link: link? })
    }
}

/// Adds a TAP to B: an interface where a reply leaves by `XDP_TX`, as it does on
/// a network card. On a veth it would take a redirect or the exit program.
///
/// # Errors
///
/// What `ip` said; needs `/dev/net/tun`.
pub fn add_tap(rig: &Rig, name: &str) -> Result<()> {
    for words in [
        format!("tuntap add {name} mode tap"),
        // The address that the rig's frames and the program by hand are for.
        format!("link set {name} address 02:00:00:00:00:0b"),
        format!("link set {name} up"),
    ] {
        let status = rig.command_b("ip").args(words.split(' ')).status()?;
        if !status.success() {
            bail!("`ip {words}` failed");
        }
    }
    Ok(())
}

/// The entry program of the node on this interface of B.
///
/// # Errors
///
/// If nothing is attached there.
pub fn entry(rig: &Rig, iface: &str) -> Result<Program> {
    let ifindex = rig.in_b(|| Iface::by_name(iface))?.ifindex;
    let owner = rig.in_b(|| owner(ifindex))?;
    let id = owner
        .with_context(|| format!("no XDP program is on `{iface}`"))?
        .prog_id;
    Program::from_id(id).with_context(|| format!("cannot reach program {id}"))
}
