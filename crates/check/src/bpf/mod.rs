//! eBPF instructions, an assembler with labels, BTF line info, a printer and an
//! interpreter.
//!
//! Source: RFC 9669 (BPF ISA) for the encodings; `may_goto`, the arena cast
//! and pseudo loads from Linux 6.12 `include/uapi/linux/bpf.h`.

mod asm;
mod btf;
pub(crate) mod form;
pub(crate) mod graph;
mod hook;
mod insn;
pub mod interp;
mod print;

pub use asm::invert;
pub(crate) use asm::mirror;
pub use asm::{Assembler, Label, Patched};
pub use btf::{Btf, Line};
pub use hook::{Field, Hook, skb};
pub use insn::{Atomic, Insn, Reg, Size, helper, op};
pub use print::print;
pub(crate) use print::print_one;

/// A map as a program names it; the daemon turns it into a file descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MapRef {
    /// The node's per-CPU context ([`ashway_abi::context`]).
    Context,
    /// The node's counters ([`ashway_abi::count`]).
    Counters,
    /// The node's wake ring.
    Wake,
    /// The interface's program array.
    Slots,
    /// The instance's trusted words ([`ashway_abi::trusted`]).
    Trusted,
    /// The instance's memory ([`ashway_abi::memory`]).
    Memory,
    /// A demux shape's entries: keys to [`ashway_abi::Leaf`] (a hash).
    Shape(u32),
    /// A `u64` of hits for each demux entry that is compared with constants.
    Hits,
    /// Next hops of the node's forward paths ([`ashway_abi::Hop`]).
    Hops,
    /// The ring buffer of an observation ([`ashway_abi::observe`]).
    Notes,
}

/// A place in a program that needs the file descriptor of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapUse {
    /// Index of the first half of the `ld_imm64`.
    pub insn: usize,
    /// Which map.
    pub map: MapRef,
    /// Offset into the map's value, for a direct value address.
    pub value_offset: Option<u32>,
}

/// A finished program, not yet loaded.
#[derive(Clone, Debug, Default)]
pub struct Image {
    /// Where it runs.
    pub hook: Hook,
    /// The instructions, raw.
    pub insns: Vec<u64>,
    /// Where maps are named.
    pub maps: Vec<MapUse>,
    /// Source lines, in instruction order; empty when none are known.
    pub lines: Vec<Line>,
}

impl Image {
    /// Where subprograms begin that are called, in their order. Allocates.
    #[must_use]
    pub fn subprograms(&self) -> Vec<u32> {
        let called = self.insns.iter().zip(0_i64..).filter_map(|(raw, at)| {
            match form::form(Insn::decode(*raw)) {
                Some(form::Form::CallOwn { distance }) => {
                    u32::try_from(at + 1 + i64::from(distance)).ok()
                }
                _ => None,
            }
        });
        let mut called: Vec<u32> = called.collect();
        called.sort_unstable();
        called.dedup();
        called
    }

    /// The map that the instruction at this index names.
    pub(crate) fn map_at(&self, insn: usize) -> Option<MapUse> {
        let at = self.maps.partition_point(|used| used.insn < insn);
        self.maps.get(at).copied().filter(|used| used.insn == insn)
    }
}
