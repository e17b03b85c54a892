//! One instruction, and the numbers it is made of.

/// A register. `R10` is the read-only frame pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names say it all")]
pub enum Reg {
    R0,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    R7,
    R8,
    R9,
    R10,
}

/// Width of a memory access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// 1 byte.
    B,
    /// 2 bytes.
    H,
    /// 4 bytes.
    W,
    /// 8 bytes.
    D,
}

impl Size {
    /// The width in bytes.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        match self {
            Self::B => 1,
            Self::H => 2,
            Self::W => 4,
            Self::D => 8,
        }
    }

    pub(crate) const fn bits(self) -> u8 {
        match self {
            Self::W => 0x00,
            Self::H => 0x08,
            Self::B => 0x10,
            Self::D => 0x18,
        }
    }
}

/// Atomic operations on memory; all are sequentially consistent on x86-64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Atomic {
    /// `*p += r`.
    Add = 0x00,
    /// `*p |= r`.
    Or = 0x40,
    /// `*p &= r`.
    And = 0x50,
    /// `*p ^= r`.
    Xor = 0xa0,
    /// `r = *p; *p += r`.
    FetchAdd = 0x01,
    /// `r <-> *p`.
    Exchange = 0xe1,
    /// `if *p == r0 { *p = r }; r0 = old`.
    CompareExchange = 0xf1,
}

/// One eBPF instruction (half of a 16-byte `ld_imm64`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields of RFC 9669 §3.1")]
pub struct Insn {
    pub opcode: u8,
    pub dst: u8,
    pub src: u8,
    pub off: i16,
    pub imm: i32,
}

impl Insn {
    /// The little-endian wire form.
    #[must_use]
    pub const fn encode(self) -> u64 {
        self.opcode as u64
            | (((self.src << 4) | self.dst) as u64) << 8
            | ((self.off as u16) as u64) << 16
            | ((self.imm as u32) as u64) << 32
    }

    /// The inverse of [`Insn::encode`].
    #[must_use]
    pub const fn decode(raw: u64) -> Self {
        Self {
            opcode: raw as u8,
            dst: (raw >> 8) as u8 & 15,
            src: (raw >> 12) as u8 & 15,
            off: (raw >> 16) as i16,
            imm: (raw >> 32) as i32,
        }
    }
}

/// ALU and jump operation bits (RFC 9669 §4.1, §4.3).
#[allow(missing_docs, reason = "the names of RFC 9669")]
pub mod op {
    pub const ADD: u8 = 0x00;
    pub const SUB: u8 = 0x10;
    pub const MUL: u8 = 0x20;
    pub const DIV: u8 = 0x30;
    pub const OR: u8 = 0x40;
    pub const AND: u8 = 0x50;
    pub const LSH: u8 = 0x60;
    pub const RSH: u8 = 0x70;
    pub const NEG: u8 = 0x80;
    pub const MOD: u8 = 0x90;
    pub const XOR: u8 = 0xa0;
    pub const MOV: u8 = 0xb0;
    pub const ARSH: u8 = 0xc0;
    pub const END: u8 = 0xd0;

    pub const JA: u8 = 0x00;
    pub const JEQ: u8 = 0x10;
    pub const JGT: u8 = 0x20;
    pub const JGE: u8 = 0x30;
    pub const JSET: u8 = 0x40;
    pub const JNE: u8 = 0x50;
    pub const JSGT: u8 = 0x60;
    pub const JSGE: u8 = 0x70;
    pub const CALL: u8 = 0x80;
    pub const EXIT: u8 = 0x90;
    pub const JLT: u8 = 0xa0;
    pub const JLE: u8 = 0xb0;
    pub const JSLT: u8 = 0xc0;
    pub const JSLE: u8 = 0xd0;
    pub const JCOND: u8 = 0xe0;
}

/// Helper numbers (`enum bpf_func_id`).
#[allow(missing_docs, reason = "the kernel's names")]
pub mod helper {
    pub const MAP_LOOKUP_ELEM: i32 = 1;
    pub const KTIME_GET_NS: i32 = 5;
    pub const GET_SMP_PROCESSOR_ID: i32 = 8;
    pub const TAIL_CALL: i32 = 12;
    pub const REDIRECT: i32 = 23;
    pub const SKB_LOAD_BYTES: i32 = 26;
    pub const SKB_CHANGE_TAIL: i32 = 38;
    pub const SKB_PULL_DATA: i32 = 39;
    pub const XDP_ADJUST_HEAD: i32 = 44;
    pub const XDP_ADJUST_META: i32 = 54;
    pub const XDP_ADJUST_TAIL: i32 = 65;
    pub const RINGBUF_OUTPUT: i32 = 130;
    pub const CHECK_MTU: i32 = 163;
    pub const XDP_GET_BUFF_LEN: i32 = 188;
    pub const XDP_LOAD_BYTES: i32 = 189;
    pub const XDP_STORE_BYTES: i32 = 190;
}
