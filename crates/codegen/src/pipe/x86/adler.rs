//! Adler-32: a chunk's bytes are weighed by how often `s2` will count them.
//!
//! Over n chunks of 64 bytes `s1` grows by the sum of all bytes, and `s2` by
//! 64 n times `s1`, by 64 times the sums of bytes before each chunk, and by
//! each chunk's bytes times 64 to 1 (RFC 1950 §8.2, written out). Three
//! accumulators, one division at the end.

use iced_x86::{Code, Register};

use super::super::ir::Gauge;
use super::super::primitive::ADLER_MODULUS;
use super::asm::Arg;
use super::emit::{Emit, Exhausted, Home, frame};
use super::table;
use crate::bug::{self, Bug};

/// What it keeps during the loop.
pub(super) struct SumRegs {
    /// Sums of bytes, in lanes of 64 bits.
    sums: Home,
    /// The sums before each chunk, summed, in lanes of 64 bits.
    before: Home,
    /// Weighed sums, in lanes of 32 bits.
    weighed: Home,
    /// In the frame: the bytes behind the last chunk.
    rest: i32,
}

/// Finds room.
pub(super) fn keep(emit: &mut Emit<'_>) -> SumRegs {
    SumRegs {
        sums: emit.home(),
        before: emit.home(),
        weighed: emit.home(),
        rest: emit.room(64),
    }
}

/// Before the loop: nothing summed.
pub(super) fn prologue(emit: &mut Emit<'_>, kept: &SumRegs) {
    let zero = emit.asm.lanes([0_u8]);
    for home in [kept.sums, kept.before, kept.weighed] {
        emit.settle(home, zero);
    }
}

/// One vector of data.
pub(super) fn chunk(
    emit: &mut Emit<'_>,
    kept: &SumRegs,
    data: u8,
    part: usize,
) -> Result<(), Exhausted> {
    let offset = part * emit.vector_bytes();
    if emit.tail {
        emit.store(frame(kept.rest + offset as i32), data);
        return Ok(());
    }
    if part == 0 {
        let sums = emit.acquire(kept.sums)?;
        let sums_arg = emit.v(sums);
        emit.accumulate(kept.before, table::ADD[3], sums_arg)?;
        emit.release(kept.sums, sums);
    }
    let words = emit.take()?;
    let words_arg = emit.v(words);
    let zero = emit.asm.lanes([0_u8]);
    emit.v3(table::SAD, words, data, zero);
    emit.accumulate(kept.sums, table::ADD[3], words_arg)?;
    let first = if bug::is(Bug::PipeAdlerWeights) {
        63
    } else {
        64
    };
    let weights: [u8; 64] = std::array::from_fn(|at| first - at.min(63) as u8);
    let Arg::M(pool, at) = emit.asm.constant(&weights) else {
        unreachable!("constants are memory");
    };
    emit.v3(
        table::MADD_BYTES,
        words,
        data,
        Arg::M(pool, at + offset as i32),
    );
    let ones = emit.asm.lanes(1_u16.to_le_bytes());
    emit.v3(table::MADD_WORDS, words, words, ones);
    emit.accumulate(kept.weighed, table::ADD[2], words_arg)?;
    emit.give(words);
    Ok(())
}

/// A vector's lanes, summed, to `rax`.
fn total(emit: &mut Emit<'_>, home: Home, widen: bool) {
    let register = emit.temporary();
    let from = match home {
        Home::Register(register) => emit.v(register),
        Home::Frame(at) => frame(at),
    };
    emit.load(register, from);
    if widen {
        emit.widen(register);
    }
    emit.horizontal(table::ADD[3], register, Gauge::Bits64);
    emit.give(register);
}

/// Behind the loop: the registers. Uses `rax`, `rbx`, `rdx`, `rsi`, `r8`, `r12`.
pub(super) fn epilogue(emit: &mut Emit<'_>, first: usize, kept: &SumRegs) {
    use Register::{R8, R11, R12, RAX, RBX, RCX, RDX};
    let r = Arg::R;
    let (s1, s2) = (RBX, R12);
    emit.asm
        .op(Code::Mov_r64_rm64, &[r(s1), Emit::persistent(first)]);
    emit.asm
        .op(Code::Mov_r64_rm64, &[r(s2), Emit::persistent(first + 1)]);
    // 64 n s1
    emit.gpr2(Code::Mov_r64_rm64, R8, RCX);
    emit.asm.op(Code::And_rm64_imm8, &[r(R8), Arg::I(-64)]);
    emit.gpr2(Code::Imul_r64_rm64, R8, s1);
    emit.gpr2(Code::Add_r64_rm64, s2, R8);
    total(emit, kept.before, false);
    emit.asm.op(Code::Shl_rm64_imm8, &[r(RAX), Arg::I(6)]);
    emit.gpr2(Code::Add_r64_rm64, s2, RAX);
    total(emit, kept.weighed, true);
    emit.gpr2(Code::Add_r64_rm64, s2, RAX);
    total(emit, kept.sums, false);
    emit.gpr2(Code::Add_r64_rm64, s1, RAX);
    // The rest, byte by byte.
    let (turn, done) = (emit.asm.label(), emit.asm.label());
    emit.gpr2(Code::Xor_r32_rm32, Register::R8D, Register::R8D);
    emit.asm.place(turn);
    emit.gpr2(Code::Cmp_r64_rm64, R8, R11);
    emit.asm.jump(Code::Jae_rel32_64, done);
    let byte = Arg::X(Register::RSP, R8, kept.rest);
    emit.asm.op(Code::Movzx_r32_rm8, &[r(Register::EAX), byte]);
    emit.gpr2(Code::Add_r64_rm64, s1, RAX);
    emit.gpr2(Code::Add_r64_rm64, s2, s1);
    emit.asm.op(Code::Inc_rm64, &[r(R8)]);
    emit.asm.jump(Code::Jmp_rel32_64, turn);
    emit.asm.place(done);
    emit.asm.op(
        Code::Mov_r32_imm32,
        &[r(Register::R8D), Arg::I(ADLER_MODULUS as i32)],
    );
    for (index, sum) in [(first, s1), (first + 1, s2)] {
        emit.gpr2(Code::Mov_r64_rm64, RAX, sum);
        emit.gpr2(Code::Xor_r32_rm32, Register::EDX, Register::EDX);
        emit.asm.op(Code::Div_rm64, &[r(R8)]);
        emit.asm
            .op(Code::Mov_rm64_r64, &[Emit::persistent(index), r(RDX)]);
    }
}
