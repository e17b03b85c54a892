//! CRCs: carry-less products move 16 bytes at a time past 64 others.
//!
//! What is kept are 64 bytes whose CRC, from state 0, is the state: a message
//! of their own that stands before the rest. At first they are 60 zeros and the
//! four bytes that lead from 0 to the exported state. Each chunk they move past
//! it and become part of it. At the end of all, with `t` bytes behind the last
//! chunk, zeros, the 64 bytes and the `t` bytes are one message, of which the
//! last 128 bytes count: zeros in front change nothing at state 0. So no byte is
//! ever taken alone.
//!
//! Source: Gopal et al. 2009 (see [`Crc`]); the divisions there and here.

use iced_x86::{Code, Register};

use super::super::primitive::Crc;
use super::asm::Arg;
use super::emit::{Emit, Exhausted, Home, frame};
use super::table;
use crate::bug::{self, Bug};

/// What a CRC keeps during the loop.
pub(super) struct FoldRegs {
    /// The 64 bytes, in one, two or four vectors.
    homes: Vec<Home>,
    /// In the frame: 64 zeros, the 64 bytes, the bytes behind the last chunk.
    message: i32,
}

const X: [Register; 6] = [
    Register::XMM0,
    Register::XMM1,
    Register::XMM2,
    Register::XMM3,
    Register::XMM4,
    Register::XMM5,
];

/// Finds room.
pub(super) fn keep(emit: &mut Emit<'_>) -> FoldRegs {
    let vectors = if emit.cpu.carryless_wide {
        emit.parts()
    } else {
        4
    };
    FoldRegs {
        homes: (0..vectors).map(|_| emit.home()).collect(),
        message: emit.room(192),
    }
}

/// Whether the 64 bytes are four vectors of 16.
fn narrow(emit: &Emit<'_>) -> bool {
    !emit.cpu.carryless_wide
}

/// Constants of 64 bits in the lower half of 16 bytes, repeated.
fn half(emit: &mut Emit<'_>, constant: u64) -> Arg {
    pair(emit, [constant, 0])
}

fn pair(emit: &mut Emit<'_>, [first, second]: [u64; 2]) -> Arg {
    let both = u128::from(first) | u128::from(second) << 64;
    emit.asm.lanes(both.to_le_bytes())
}

fn carryless(emit: &mut Emit<'_>, to: Register, left: Register, right: Arg, halves: i32) {
    let args = [Arg::R(to), Arg::R(left), right, Arg::I(halves)];
    emit.asm
        .op(Code::VEX_Vpclmulqdq_xmm_xmm_xmmm128_imm8, &args);
}

/// Before the loop: 60 zeros and four bytes.
pub(super) fn prologue(emit: &mut Emit<'_>, crc: Crc, first: usize, kept: &FoldRegs) {
    let (eax, r8d) = (Register::EAX, Register::R8D);
    emit.asm
        .op(Code::Mov_r32_rm32, &[Arg::R(eax), Emit::persistent(first)]);
    // The quotient of state and polynomial as power series: 32 coefficients.
    emit.gpr_to_xmm(X[0], eax);
    let inverse = half(emit, u64::from(crc.inverse));
    carryless(emit, X[1], X[0], inverse, 0);
    emit.xmm_to_gpr(Register::RAX, X[1]);
    emit.asm
        .op(Code::Shr_rm64_imm8, &[Arg::R(Register::RAX), Arg::I(31)]);
    emit.gpr2(Code::Mov_r32_rm32, eax, eax);
    // Times the polynomial: what lies above x^31 are the four bytes.
    emit.gpr_to_xmm(X[1], eax);
    let polynomial = half(emit, u64::from(crc.polynomial));
    carryless(emit, X[1], X[1], polynomial, 0);
    emit.xmm_to_gpr(Register::R8, X[1]);
    emit.asm.op(Code::Shl_rm32_1, &[Arg::R(r8d), Arg::I(1)]);
    emit.gpr2(Code::Xor_r32_rm32, eax, r8d);
    let to = frame(kept.message);
    let zero = emit.asm.lanes([0_u8]);
    for vector in 0..192 / emit.vector_bytes() as i32 {
        let register = emit.temporary();
        emit.load(register, zero);
        emit.store(at(to, vector * emit.vector_bytes() as i32), register);
        emit.give(register);
    }
    emit.asm
        .op(Code::Mov_rm32_r32, &[at(to, 64 + 60), Arg::R(eax)]);
    let bytes = 64 / kept.homes.len() as i32;
    for (index, home) in kept.homes.iter().enumerate() {
        emit.settle(*home, at(to, 64 + index as i32 * bytes));
    }
    // The zeros' place and the tail's must be what they say: a narrow vector
    // settles from 32 bytes, of which only the first 16 count.
}

/// Memory a little further.
fn at(memory: Arg, by: i32) -> Arg {
    match memory {
        Arg::M(base, at) => Arg::M(base, at + by),
        other => other,
    }
}

/// One vector of data moves the 64 bytes on.
pub(super) fn chunk(
    emit: &mut Emit<'_>,
    crc: Crc,
    kept: &FoldRegs,
    data: u8,
    part: usize,
) -> Result<(), Exhausted> {
    if emit.tail {
        let to = frame(kept.message + 128 + (part * emit.vector_bytes()) as i32);
        emit.store(to, data);
        return Ok(());
    }
    let past_chunk = if bug::is(Bug::PipeFoldShort) { 2 } else { 3 };
    let constants = pair(emit, crc.folds[past_chunk]);
    if narrow(emit) {
        return narrow_chunk(emit, constants, kept, data, part);
    }
    let home = kept.homes[part];
    let sum = emit.acquire(home)?;
    let other = emit.take()?;
    let data = emit.v(data);
    let args = [emit.v(other), emit.v(sum), constants, Arg::I(0)];
    emit.vop(table::CARRYLESS, &args);
    let args = [emit.v(sum), emit.v(sum), constants, Arg::I(0x11)];
    emit.vop(table::CARRYLESS, &args);
    if emit.wide() {
        // 0x96: exclusive or of all three.
        let args = [emit.v(sum), emit.v(other), data, Arg::I(0x96)];
        emit.asm
            .op(Code::EVEX_Vpternlogq_zmm_k1z_zmm_zmmm512b64_imm8, &args);
    } else {
        let other = emit.v(other);
        emit.v3(table::XOR, sum, sum, other);
        emit.v3(table::XOR, sum, sum, data);
    }
    emit.give(other);
    emit.release(home, sum);
    Ok(())
}

/// The same with products of 128 bits only.
fn narrow_chunk(
    emit: &mut Emit<'_>,
    constants: Arg,
    kept: &FoldRegs,
    data: u8,
    part: usize,
) -> Result<(), Exhausted> {
    let lanes = emit.vector_bytes() / 16;
    let (other, piece) = (emit.take()?, emit.take()?);
    let xmm = |register: u8| Register::XMM0 + u32::from(register);
    for lane in 0..lanes {
        let home = kept.homes[part * lanes + lane];
        let sum = emit.acquire(home)?;
        if emit.wide() {
            let args = [Arg::R(xmm(piece)), emit.v(data), Arg::I(lane as i32)];
            emit.asm
                .op(Code::EVEX_Vextracti32x4_xmmm128_k1z_zmm_imm8, &args);
        } else {
            let args = [Arg::R(xmm(piece)), emit.v(data), Arg::I(lane as i32)];
            emit.asm.op(Code::VEX_Vextracti128_xmmm128_ymm_imm8, &args);
        }
        // Homes may be above 15, out of reach for VEX; the other forms of these
        // products are VPCLMULQDQ's, even of 128 bits.
        let low = if sum < 16 { sum } else { emit.take()? };
        if low != sum {
            let from = emit.v(sum);
            emit.load(low, from);
        }
        let product = Code::VEX_Vpclmulqdq_xmm_xmm_xmmm128_imm8;
        let xor = Code::VEX_Vpxor_xmm_xmm_xmmm128;
        let (s, o) = (Arg::R(xmm(low)), Arg::R(xmm(other)));
        emit.asm.op(product, &[o, s, constants, Arg::I(0)]);
        emit.asm.op(product, &[s, s, constants, Arg::I(0x11)]);
        emit.asm.op(xor, &[s, s, o]);
        emit.asm.op(xor, &[s, s, Arg::R(xmm(piece))]);
        if low != sum {
            let from = emit.v(low);
            emit.load(sum, from);
            emit.give(low);
        }
        emit.release(home, sum);
    }
    emit.give(other);
    emit.give(piece);
    Ok(())
}

/// Behind the loop: the state, from the last 128 bytes.
pub(super) fn epilogue(emit: &mut Emit<'_>, crc: Crc, first: usize, kept: &FoldRegs) {
    let message = kept.message;
    let bytes = 64 / kept.homes.len() as i32;
    for (index, home) in kept.homes.iter().enumerate() {
        let register = emit.temporary();
        let from = match *home {
            Home::Register(register) => emit.v(register),
            Home::Frame(at) => frame(at),
        };
        emit.load(register, from);
        let to = frame(message + 64 + index as i32 * bytes);
        if narrow(emit) {
            let from = Arg::R(Register::XMM0 + u32::from(register));
            emit.asm.op(Code::VEX_Vmovdqu_xmmm128_xmm, &[to, from]);
        } else {
            emit.store(to, register);
        }
        emit.give(register);
    }
    let lane = |at: i32| Arg::X(Register::RSP, Register::R11, message + at);
    let xor = Code::VEX_Vpxor_xmm_xmm_xmmm128;
    // Two blocks of 64 bytes to one, and its four lanes to the last.
    let past_block = pair(emit, crc.folds[3]);
    for index in 0..4 {
        let (a, b) = (Arg::R(X[1]), Arg::R(X[2]));
        emit.asm
            .op(Code::VEX_Vmovdqu_xmm_xmmm128, &[a, lane(index * 16)]);
        carryless(emit, X[2], X[1], past_block, 0);
        carryless(emit, X[1], X[1], past_block, 0x11);
        emit.asm.op(xor, &[a, a, b]);
        emit.asm.op(xor, &[a, a, lane(64 + index * 16)]);
        if index < 3 {
            let past_lanes = pair(emit, crc.folds[2 - index as usize]);
            carryless(emit, X[2], X[1], past_lanes, 0);
            carryless(emit, X[1], X[1], past_lanes, 0x11);
            emit.asm.op(xor, &[a, a, b]);
        }
        let sum = Arg::R(X[0]);
        if index == 0 {
            emit.asm.op(Code::VEX_Vmovdqu_xmm_xmmm128, &[sum, a]);
        } else {
            emit.asm.op(xor, &[sum, sum, a]);
        }
    }
    divide(emit, crc);
    emit.asm.op(
        Code::Mov_rm64_r64,
        &[Emit::persistent(first), Arg::R(Register::RAX)],
    );
}

/// The state to `rax` from the 16 bytes in `xmm0`: times x^32, modulo the
/// polynomial. Uses `r8`.
fn divide(emit: &mut Emit<'_>, crc: Crc) {
    let (x0, x1) = (Arg::R(X[0]), Arg::R(X[1]));
    let xor = Code::VEX_Vpxor_xmm_xmm_xmmm128;
    // The first 8 bytes stand for x^96 more, the last for x^32: 96 bits.
    let far = half(emit, crc.last[0]);
    carryless(emit, X[1], X[0], far, 0);
    emit.asm
        .op(Code::VEX_Vpsrldq_xmm_xmm_imm8, &[x0, x0, Arg::I(8)]);
    emit.asm
        .op(Code::VEX_Vpslldq_xmm_xmm_imm8, &[x0, x0, Arg::I(4)]);
    emit.asm.op(xor, &[x0, x0, x1]);
    // The highest 32 of them to the other 64.
    let near = half(emit, crc.last[1]);
    carryless(emit, X[1], X[0], near, 0);
    emit.asm.op(xor, &[x0, x0, x1]);
    emit.asm.op(
        Code::VEX_Vpextrq_rm64_xmm_imm8,
        &[Arg::R(Register::RAX), x0, Arg::I(1)],
    );
    // Barrett's division of those by the polynomial.
    let (eax, r8d) = (Register::EAX, Register::R8D);
    emit.gpr_to_xmm(X[1], eax);
    let quotient = half(emit, u64::from(crc.quotient));
    carryless(emit, X[1], X[1], quotient, 0);
    emit.xmm_to_gpr(Register::R8, X[1]);
    emit.asm.op(Code::Shl_rm32_1, &[Arg::R(r8d), Arg::I(1)]);
    emit.gpr2(Code::Xor_r32_rm32, r8d, eax);
    emit.gpr_to_xmm(X[1], r8d);
    let polynomial = half(emit, u64::from(crc.polynomial));
    carryless(emit, X[1], X[1], polynomial, 0);
    emit.xmm_to_gpr(Register::R8, X[1]);
    emit.asm
        .op(Code::Shr_rm64_imm8, &[Arg::R(Register::R8), Arg::I(31)]);
    emit.asm
        .op(Code::Shr_rm64_imm8, &[Arg::R(Register::RAX), Arg::I(32)]);
    emit.gpr2(Code::Xor_r32_rm32, eax, r8d);
}
