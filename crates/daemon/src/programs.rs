//! From a generated image to a loaded program.
//!
//! `codegen` names maps by their role and `kernel` wants file descriptors; this
//! is the one place that knows both.

use std::os::fd::BorrowedFd;

use ashway_codegen::bpf::{Btf, Image, MapRef};
use ashway_kernel::{
    BtfInfo, LoadError, Map, MapFixup, Memory, Program, ProgramKind, ProgramSpec, SharedArray,
    WakeBell,
};

/// The maps that all programs of a node share.
#[derive(Debug)]
pub struct NodeMaps {
    /// A context for each of [`Self::cpus`]. Not mapped by anybody.
    pub context: Map,
    /// Possible CPUs.
    pub cpus: u32,
    /// Counters, a row each.
    pub counters: Map,
    /// Wakes the worker.
    pub wake: WakeBell,
}

/// The maps a program can name; those it does not name may be absent.
#[derive(Clone, Copy, Debug)]
pub struct Maps<'a> {
    /// Of the node.
    pub node: &'a NodeMaps,
    /// The interface's program array.
    pub slots: Option<&'a Map>,
    /// The instance's trusted words.
    pub trusted: Option<&'a SharedArray>,
    /// The instance's memory.
    pub memory: Option<&'a Memory>,
}

impl<'a> Maps<'a> {
    fn fd(&self, map: MapRef) -> BorrowedFd<'a> {
        match map {
            MapRef::Context => self.node.context.fd(),
            MapRef::Counters => self.node.counters.fd(),
            MapRef::Wake => self.node.wake.fd(),
            MapRef::Slots => self.slots.expect("only entry programs name slots").fd(),
            MapRef::Trusted => self
                .trusted
                .expect("only instance programs name trusted words")
                .fd(),
            MapRef::Memory => self
                .memory
                .expect("only instance programs name a memory")
                .fd(),
        }
    }
}

/// Loads `image`. `name` begins with `ashway`: that is how `iface detach` knows
/// a program of ours.
///
/// # Errors
///
/// What the kernel said ([`LoadError`]).
pub fn load(
    name: &str,
    kind: ProgramKind,
    image: &Image,
    maps: &Maps,
) -> Result<Program, LoadError> {
    let fixups: Vec<MapFixup> = image
        .maps
        .iter()
        .map(|used| MapFixup {
            insn: used.insn,
            fd: maps.fd(used.map),
            value_offset: used.value_offset,
        })
        .collect();
    let btf = (!image.lines.is_empty()).then(|| {
        let btf = Btf::for_program(name, image.insns.len() as u32, &image.lines);
        BtfInfo {
            bytes: btf.bytes,
            func_info: btf.func_info,
            line_info: btf.line_info,
        }
    });
    Program::load(&ProgramSpec {
        name,
        kind,
        attach_type: 0,
        insns: &image.insns,
        maps: &fixups,
        btf: btf.as_ref(),
    })
}
