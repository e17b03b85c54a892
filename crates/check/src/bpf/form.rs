//! What an instruction is: the one decoder that printer and interpreter share.
//!
//! Covers what the kernel's cpu v4 knows apart from kfuncs and
//! the old packet loads, none of which we emit (RFC 9669 §3-§5; `may_goto` and
//! the arena cast from Linux 6.12 `include/uapi/linux/bpf.h`).

use super::insn::{Insn, Size, op};

/// The second operand of an operation, or the value of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operand {
    Reg(u8),
    Imm(i32),
}

/// Which bytes a byte-order instruction turns round, on a little-endian CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Truncates.
    Little,
    /// Swaps.
    Big,
    /// Swaps, whatever the CPU (cpu v4).
    Swap,
}

/// An instruction by kind; `op` holds [`op`]'s bits, `wide` means 64 bits.
/// Operands common to all forms (`dst`, `off`) stay in the [`Insn`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// `dst = dst OP src`; not `NEG`, `MOV`, `END`.
    Alu {
        wide: bool,
        op: u8,
        signed: bool,
        src: Operand,
    },
    /// `dst = -dst`.
    Neg { wide: bool },
    /// `dst = src`, sign-extended from that many bits if not 0.
    Mov { wide: bool, from: u8, src: Operand },
    /// `dst` = address in the arena from the low 32 bits of `src`.
    Cast { src: u8 },
    /// `dst` in another byte order.
    Swap { order: Order, bits: u8 },
    /// `dst = *(src + off)`.
    Load { size: Size, signed: bool, src: u8 },
    /// `*(dst + off) = src`.
    Store { size: Size, src: Operand },
    /// An atomic on `*(dst + off)`; `what` is the immediate.
    Atomic { wide: bool, what: i32, src: u8 },
    /// First half of `ld_imm64`; `src` says whether it names a map.
    Imm64 { low: u32 },
    /// `goto` and `gotol`.
    Jump { distance: i32, long: bool },
    /// `may_goto`.
    MayGoto,
    /// `if dst OP src goto`.
    Branch { wide: bool, op: u8, src: Operand },
    /// A helper's number.
    Call { helper: i32 },
    /// A call of a subprogram, as far away as a jump is.
    CallOwn { distance: i32 },
    /// `exit`.
    Exit,
}

/// `BPF_PSEUDO_CALL`: the source register of a call of a subprogram.
pub(super) const CALL_OWN: u8 = 1;

/// The kind of `insn`; `None` for what does not exist or what we never emit.
pub(crate) fn form(insn: Insn) -> Option<Form> {
    let opcode = insn.opcode;
    let operation = opcode & 0xf0;
    let by_reg = opcode & 0x08 != 0;
    let src = if by_reg {
        Operand::Reg(insn.src)
    } else {
        Operand::Imm(insn.imm)
    };
    let size = match opcode & 0x18 {
        0x00 => Size::W,
        0x08 => Size::H,
        0x10 => Size::B,
        _ => Size::D,
    };
    let mode = opcode & 0xe0;
    Some(match opcode & 7 {
        0 if opcode == 0x18 => Form::Imm64 {
            low: insn.imm as u32,
        },
        1 if mode == 0x60 || mode == 0x80 && size != Size::D => Form::Load {
            size,
            signed: mode == 0x80,
            src: insn.src,
        },
        2 if mode == 0x60 => Form::Store {
            size,
            src: Operand::Imm(insn.imm),
        },
        3 if mode == 0x60 => Form::Store {
            size,
            src: Operand::Reg(insn.src),
        },
        3 if mode == 0xc0 && matches!(size, Size::W | Size::D) && is_atomic(insn.imm) => {
            Form::Atomic {
                wide: size == Size::D,
                what: insn.imm,
                src: insn.src,
            }
        }
        class @ (4 | 7) => alu(insn, class == 7, operation, src)?,
        class @ (5 | 6) => jump(insn, class == 5, operation, src)?,
        _ => return None,
    })
}

/// With or without the old value, which an exchange always gives.
fn is_atomic(what: i32) -> bool {
    matches!(what & !1, 0x00 | 0x40 | 0x50 | 0xa0) || matches!(what, 0xe1 | 0xf1)
}

fn alu(insn: Insn, wide: bool, operation: u8, src: Operand) -> Option<Form> {
    let by_reg = matches!(src, Operand::Reg(_));
    // The verifier refuses constants that make no sense.
    if let Operand::Imm(imm) = src {
        let width = if wide { 64 } else { 32 };
        match operation {
            op::DIV | op::MOD if imm == 0 => return None,
            op::LSH | op::RSH | op::ARSH if !(0..width).contains(&imm) => return None,
            _ => {}
        }
    }
    Some(match (operation, insn.off) {
        (op::END, 0) => Form::Swap {
            order: match (wide, by_reg) {
                (true, false) => Order::Swap,
                (false, false) => Order::Little,
                (false, true) => Order::Big,
                (true, true) => return None,
            },
            bits: u8::try_from(insn.imm)
                .ok()
                .filter(|bits| matches!(bits, 16 | 32 | 64))?,
        },
        (op::NEG, 0) if !by_reg => Form::Neg { wide },
        (op::MOV, 1) if wide && by_reg && insn.imm == 1 => Form::Cast { src: insn.src },
        (op::MOV, 0) => Form::Mov { wide, from: 0, src },
        (op::MOV, from @ (8 | 16 | 32)) if by_reg && (wide || from < 32) => Form::Mov {
            wide,
            from: from as u8,
            src,
        },
        (op::DIV | op::MOD, signed @ (0 | 1)) => Form::Alu {
            wide,
            op: operation,
            signed: signed == 1,
            src,
        },
        (
            op::ADD | op::SUB | op::MUL | op::OR | op::AND | op::LSH | op::RSH | op::XOR | op::ARSH,
            0,
        ) => Form::Alu {
            wide,
            op: operation,
            signed: false,
            src,
        },
        _ => return None,
    })
}

fn jump(insn: Insn, wide: bool, operation: u8, src: Operand) -> Option<Form> {
    let by_reg = matches!(src, Operand::Reg(_));
    Some(match operation {
        op::JA if !by_reg => Form::Jump {
            distance: if wide { insn.off.into() } else { insn.imm },
            long: !wide,
        },
        // Other values of `src` call kfuncs.
        op::CALL if wide && !by_reg && insn.src == 0 => Form::Call { helper: insn.imm },
        op::CALL if wide && !by_reg && insn.src == CALL_OWN => Form::CallOwn { distance: insn.imm },
        op::EXIT if wide && !by_reg => Form::Exit,
        op::JCOND if wide && !by_reg => Form::MayGoto,
        op::JA | op::CALL | op::EXIT | op::JCOND | 0xf0 => return None,
        _ => Form::Branch {
            wide,
            op: operation,
            src,
        },
    })
}
