//! What this kernel offers and this process may use, found out by trying.
//!
//! Version numbers lie (distributions patch, configurations differ), so every
//! feature is really used once, on objects that vanish again. Nothing is
//! attached anywhere.

use std::fs;
use std::io;
use std::os::fd::AsFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::insn::{exit, insn, load_map, mov};
use crate::load::{LoadError, MapFixup, Program, ProgramKind, ProgramSpec};
use crate::shared;
use crate::sys::{self, Command};
use ashway_memory::Memory;

/// Something Ashway uses of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// Programs run as machine code.
    Jit,
    /// The kernel's types can be read.
    Btf,
    /// XDP programs can be loaded.
    Xdp,
    /// Arrays can be mapped.
    MmapableArray,
    /// Ring buffers, for waking.
    RingBuffer,
    /// Division with sign, sign extension, long jumps.
    CpuV4,
    /// Memory shared with programs at the same address.
    Arena,
    /// Programs that use an arena can be loaded.
    ArenaProgram,
    /// Loops that the verifier need not follow to the end.
    MayGoto,
    /// Links to traffic control.
    Tcx,
    /// `AF_XDP` sockets.
    AfXdp,
    /// Packet sockets.
    AfPacket,
}

impl Feature {
    /// Every feature, in the order `doctor` shows them.
    pub const ALL: [Self; 12] = [
        Self::Jit,
        Self::Btf,
        Self::Xdp,
        Self::MmapableArray,
        Self::RingBuffer,
        Self::CpuV4,
        Self::Arena,
        Self::ArenaProgram,
        Self::MayGoto,
        Self::Tcx,
        Self::AfXdp,
        Self::AfPacket,
    ];

    /// The name `doctor` shows.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Jit => "BPF JIT",
            Self::Btf => "kernel BTF",
            Self::Xdp => "XDP programs",
            Self::MmapableArray => "mappable arrays",
            Self::RingBuffer => "BPF ring buffer",
            Self::CpuV4 => "BPF cpu v4 instructions",
            Self::Arena => "BPF arena",
            Self::ArenaProgram => "arena programs",
            Self::MayGoto => "may_goto",
            Self::Tcx => "TCX",
            Self::AfXdp => "AF_XDP sockets",
            Self::AfPacket => "AF_PACKET sockets",
        }
    }

    /// The Linux version that brings it.
    #[must_use]
    pub const fn since(self) -> &'static str {
        match self {
            Self::Jit => "3.0",
            Self::Btf => "5.4",
            Self::Xdp => "4.8",
            Self::MmapableArray => "5.5",
            Self::RingBuffer => "5.8",
            Self::CpuV4 | Self::Tcx => "6.6",
            Self::Arena | Self::ArenaProgram | Self::MayGoto => "6.9",
            Self::AfXdp => "4.18",
            Self::AfPacket => "2.2",
        }
    }
}

/// Whether a feature can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It was used just now.
    Ok,
    /// It could not be used, for this reason.
    Missing {
        /// The kernel's answer in words.
        reason: String,
        /// Whether the process lacks a capability, rather than the kernel the
        /// feature.
        privilege: bool,
    },
}

/// A capability that some rung of the ladder needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capability {
    /// Its name.
    pub name: &'static str,
    /// What Ashway needs it for.
    pub needed_for: &'static str,
    /// Whether the process has it.
    pub held: bool,
}

/// Number, name and use of each capability (capabilities(7)).
const CAPABILITIES: [(u32, &str, &str); 5] = [
    (39, "CAP_BPF", "maps and programs"),
    (12, "CAP_NET_ADMIN", "attaching to interfaces"),
    (38, "CAP_PERFMON", "arena programs (else array mode)"),
    (13, "CAP_NET_RAW", "AF_XDP and AF_PACKET sockets"),
    (21, "CAP_SYS_ADMIN", "naming the owner of a foreign program"),
];

/// What was found.
#[derive(Clone, Debug)]
pub struct Probe {
    /// Kernel release, e.g. `6.18.3`.
    pub release: String,
    /// Every feature with its state, in the order of [`Feature::ALL`].
    pub features: Vec<(Feature, State)>,
    /// The capabilities that matter.
    pub capabilities: Vec<Capability>,
    /// `kernel.unprivileged_bpf_disabled`, if it can be read.
    pub unprivileged_bpf_disabled: Option<u32>,
}

impl Probe {
    /// Tries everything. Takes some ms and leaves no trace.
    #[must_use]
    pub fn run() -> Self {
        Self {
            release: rustix::system::uname()
                .release()
                .to_string_lossy()
                .into_owned(),
            features: Feature::ALL
                .into_iter()
                .map(|feature| (feature, state(attempt(feature))))
                .collect(),
            capabilities: capabilities(),
            unprivileged_bpf_disabled: read_number("/proc/sys/kernel/unprivileged_bpf_disabled"),
        }
    }

    /// Whether a feature can be used.
    #[must_use]
    pub fn has(&self, feature: Feature) -> bool {
        self.state(feature) == &State::Ok
    }

    /// A feature's state.
    ///
    /// # Panics
    ///
    /// Never: every feature was tried.
    #[must_use]
    pub fn state(&self, feature: Feature) -> &State {
        self.features
            .iter()
            .find(|(tried, _)| *tried == feature)
            .map(|(_, state)| state)
            .expect("every feature was tried")
    }
}

fn state(attempt: io::Result<()>) -> State {
    match attempt {
        Ok(()) => State::Ok,
        Err(error) => State::Missing {
            reason: error.to_string(),
            privilege: matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES)),
        },
    }
}

fn attempt(feature: Feature) -> io::Result<()> {
    match feature {
        Feature::Jit => match read_number("/proc/sys/net/core/bpf_jit_enable") {
            Some(0) => Err(io::Error::other("off in net.core.bpf_jit_enable")),
            // Kernels built to always use the JIT may not have the switch.
            _ => Ok(()),
        },
        Feature::Btf => fs::metadata("/sys/kernel/btf/vmlinux").map(drop),
        Feature::Xdp => load(&[mov(0, 2), exit()], None),
        Feature::MmapableArray => shared::words("ashway_probe", 4096).map(drop),
        Feature::RingBuffer => shared::bell("ashway_probe", 4096).map(drop),
        Feature::CpuV4 => load(&cpu_v4(), None),
        Feature::Arena => shared::arena(4096).map(drop),
        Feature::ArenaProgram => {
            let memory = shared::arena(4096)?;
            load(&arena_program(), Some(&memory))
        }
        Feature::MayGoto => load(&endless_loop(), None),
        Feature::Tcx => query_tcx(),
        Feature::AfXdp => socket(AddressFamily::XDP),
        // Protocol 0: such a socket receives nothing.
        Feature::AfPacket => socket(AddressFamily::PACKET),
    }
}

/// Loads an XDP program whose instruction 0 may name `memory`.
fn load(insns: &[u64], memory: Option<&Memory>) -> io::Result<()> {
    let fixup = memory.map(|memory| MapFixup {
        insn: 0,
        fd: memory.as_fd(),
        value_offset: None,
    });
    Program::load(&ProgramSpec {
        name: "ashway_probe",
        kind: ProgramKind::Xdp,
        attach_type: 0,
        insns,
        maps: fixup.as_slice(),
        btf: None,
    })
    .map(drop)
    .map_err(|error| match error {
        LoadError::Denied { errno, .. } | LoadError::Exhausted { errno, .. } => errno,
        rejected => io::Error::other(rejected),
    })
}

/// `r0 = (s8)7 s/ 2` behind a long jump over nothing.
fn cpu_v4() -> [u64; 5] {
    [
        mov(0, 7),
        insn(0xbf, 0, 0, 8, 0),
        insn(0x37, 0, 0, 1, 2),
        insn(0x06, 0, 0, 0, 0),
        exit(),
    ]
}

/// Stores a word at offset 8 of the arena that instruction 0 names.
fn arena_program() -> [u64; 7] {
    [
        load_map(1),
        0,
        mov(2, 8),
        // r2 = cast of an offset to an arena pointer.
        insn(0xbf, 2, 2, 1, 1),
        // *(u32 *)r2 = 1
        insn(0x62, 2, 0, 0, 1),
        mov(0, 1),
        exit(),
    ]
}

/// A loop that only `may_goto` ends.
fn endless_loop() -> [u64; 4] {
    [
        mov(0, 1),
        // may_goto +1
        insn(0xe5, 0, 0, 1, 0),
        // goto -2
        insn(0x05, 0, 0, -2, 0),
        exit(),
    ]
}

/// Asks for the programs at loopback's ingress.
fn query_tcx() -> io::Result<()> {
    let mut attr = sys::ProgQuery {
        target: 1,
        attach_type: sys::ATTACH_TCX_INGRESS,
        ..Default::default()
    };
    // SAFETY: with a count of 0 the kernel follows none of the null pointers.
    unsafe { sys::bpf(Command::ProgQuery, &mut attr) }?;
    Ok(())
}

fn socket(family: AddressFamily) -> io::Result<()> {
    rustix::net::socket_with(family, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    Ok(())
}

fn capabilities() -> Vec<Capability> {
    let effective = fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|status| {
            let line = status.lines().find_map(|l| l.strip_prefix("CapEff:"))?;
            u64::from_str_radix(line.trim(), 16).ok()
        })
        .unwrap_or(0);
    CAPABILITIES
        .into_iter()
        .map(|(number, name, needed_for)| Capability {
            name,
            needed_for,
            held: effective & (1 << number) != 0,
        })
        .collect()
}

fn read_number(path: &str) -> Option<u32> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_feature_has_a_state_and_a_reason_if_missing() {
        let probe = Probe::run();
        assert_eq!(probe.features.len(), Feature::ALL.len());
        for (feature, state) in &probe.features {
            println!("{} (Linux {}): {state:?}", feature.name(), feature.since());
            if let State::Missing { reason, .. } = state {
                assert!(!reason.is_empty());
            }
        }
        assert_eq!(probe.capabilities.len(), CAPABILITIES.len());
    }
}
