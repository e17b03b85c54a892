//! Whether a program adds its memory's base to addresses, or leaves that to the JIT.

use ashway_check::bpf::{Image, Insn, Reg};

/// Places of a program that reach the handler's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Uses {
    /// By a cast to the arena's address space: the JIT has the base in a register and folds it
    /// into the access.
    pub(super) folded: usize,
    /// By the base, which the program loads from its stack to add an address to it.
    pub(super) added: usize,
}

/// `addr_space_cast`: a 64-bit move with offset and immediate 1 (Linux 6.9).
const CAST: (u8, i16, i32) = (0xbf, 1, 1);

/// A 64-bit load from where the program around the handler has put the base of an array.
const LOAD_BASE: (u8, i16, u8) = (0x79, -32, Reg::R10 as u8);

/// Counts them.
pub(super) fn uses(image: &Image) -> Uses {
    let insns = || image.insns.iter().map(|raw| Insn::decode(*raw));
    let is_cast = |insn: &Insn| (insn.opcode, insn.off, insn.imm) == CAST;
    let is_base = |insn: &Insn| (insn.opcode, insn.off, insn.src) == LOAD_BASE;
    Uses {
        folded: insns().filter(is_cast).count(),
        added: insns().filter(is_base).count(),
    }
}
