//! Arithmetic and comparison, as RFC 9669 §4.1 and §4.3 define them.
//!
//! 32-bit operations take the low halves and zero-extend their result. Division
//! never faults: `x / 0` is 0, `x % 0` is `x`, `MIN / -1` is `MIN`.

use crate::bpf::form::Order;
use crate::bpf::insn::op;

/// `a OP b`; operations that are not of the `Alu` form give `a`.
pub(super) fn alu(wide: bool, operation: u8, signed: bool, a: u64, b: u64) -> u64 {
    if wide {
        alu64(operation, signed, a, b)
    } else {
        u64::from(alu32(operation, signed, a as u32, b as u32))
    }
}

fn alu64(operation: u8, signed: bool, a: u64, b: u64) -> u64 {
    match operation {
        op::ADD => a.wrapping_add(b),
        op::SUB => a.wrapping_sub(b),
        op::MUL => a.wrapping_mul(b),
        op::DIV if b == 0 => 0,
        op::MOD if b == 0 => a,
        op::DIV if signed => (a as i64).wrapping_div(b as i64) as u64,
        op::MOD if signed => (a as i64).wrapping_rem(b as i64) as u64,
        op::DIV => a / b,
        op::MOD => a % b,
        op::OR => a | b,
        op::AND => a & b,
        op::XOR => a ^ b,
        op::LSH => a << (b & 63),
        op::RSH => a >> (b & 63),
        op::ARSH => ((a as i64) >> (b & 63)) as u64,
        _ => a,
    }
}

fn alu32(operation: u8, signed: bool, a: u32, b: u32) -> u32 {
    match operation {
        op::LSH => a << (b & 31),
        op::RSH => a >> (b & 31),
        op::ARSH => ((a as i32) >> (b & 31)) as u32,
        // In 64 bits `MIN / -1` is 2^31, whose low half is `MIN` again.
        _ if signed => alu64(operation, true, sign(a.into(), 32), sign(b.into(), 32)) as u32,
        _ => alu64(operation, false, a.into(), b.into()) as u32,
    }
}

/// The low `bits` of `value`, sign-extended to 64.
pub(super) fn sign(value: u64, bits: u32) -> u64 {
    (((value << (64 - bits)) as i64) >> (64 - bits)) as u64
}

/// The low `bits` of `value` in another byte order, zero-extended.
pub(super) fn swap(order: Order, bits: u8, value: u64) -> u64 {
    let low = value << (64 - bits);
    match order {
        Order::Little => low >> (64 - bits),
        Order::Big | Order::Swap => low.swap_bytes(),
    }
}

/// Whether the jump `a OP b` is taken.
pub(super) fn compare(wide: bool, operation: u8, a: u64, b: u64) -> bool {
    let (a, b) = if wide {
        (a, b)
    } else {
        // Sign extension keeps the order of unsigned halves, too.
        (sign(a, 32), sign(b, 32))
    };
    let (signed_a, signed_b) = (a as i64, b as i64);
    match operation {
        op::JEQ => a == b,
        op::JNE => a != b,
        op::JSET => a & b != 0,
        op::JGT => a > b,
        op::JGE => a >= b,
        op::JLT => a < b,
        op::JLE => a <= b,
        op::JSGT => signed_a > signed_b,
        op::JSGE => signed_a >= signed_b,
        op::JSLT => signed_a < signed_b,
        op::JSLE => signed_a <= signed_b,
        _ => false,
    }
}
