//! The handful of instructions that probes are made of.
//!
//! Programs for packets come from `codegen`; these only ask the kernel what it
//! accepts. Source: RFC 9669; arena casts, `may_goto` and pseudo map loads are
//! `include/uapi/linux/bpf.h`.

/// An instruction as the little-endian number of its 8 bytes.
pub(crate) const fn insn(opcode: u8, dst: u8, src: u8, off: i16, imm: i32) -> u64 {
    (opcode as u64)
        | ((dst as u64) << 8)
        | ((src as u64) << 12)
        | ((off as u16 as u64) << 16)
        | ((imm as u32 as u64) << 32)
}

/// `dst = imm`, sign-extended.
pub(crate) const fn mov(dst: u8, imm: i32) -> u64 {
    insn(0xb7, dst, 0, 0, imm)
}

/// A helper call.
pub(crate) const fn call(helper: i32) -> u64 {
    insn(0x85, 0, 0, 0, helper)
}

/// `exit`.
pub(crate) const fn exit() -> u64 {
    insn(0x95, 0, 0, 0, 0)
}

/// First half of `dst = map`; the fd is put in by a fix-up, 0 follows.
pub(crate) const fn load_map(dst: u8) -> u64 {
    insn(0x18, dst, 0, 0, 0)
}
