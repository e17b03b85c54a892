//! Pipes that are not commutative: word by word, in a loop inside the loop.
//!
//! The vector goes to the frame's buffer, the words pass through general
//! registers, the vector comes back. Every value has a slot in the frame.

use iced_x86::{Code, Register};

use super::super::ir::{
    Binary, Count, Gauge, MAX_OPS, Op, Pipe, Reduce, Shift, Tail, Update, Value,
};
use super::asm::Arg;
use super::emit::{Emit, frame};
use crate::bug::{self, Bug};

/// Bytes of the frame that one pipe's values need; pipes share them.
pub(super) const VALUES_BYTES: usize = MAX_OPS * 8;

/// The next word, and how many are left.
const WORD: Register = Register::RBX;
const LEFT: Register = Register::R12;

/// One vector of data passes the pipe, which keeps its values at `values`.
pub(super) fn chunk(
    emit: &mut Emit<'_>,
    pipe: &Pipe,
    first: usize,
    values: i32,
    data: u8,
    part: usize,
) {
    let gauge = pipe.gauge();
    let buffer = emit.buffer;
    emit.store(frame(buffer), data);
    let words = emit.vector_bytes() / gauge.bytes();
    let done = emit.asm.label();
    if emit.tail {
        count_words(emit, pipe, part);
        emit.asm.jump(Code::Jle_rel32_64, done);
    } else {
        emit.asm.op(
            Code::Mov_r32_imm32,
            &[Arg::R(Register::R12D), Arg::I(words as i32)],
        );
    }
    emit.asm.op(Code::Lea_r64_m, &[Arg::R(WORD), frame(buffer)]);
    let turn = emit.asm.label();
    emit.asm.place(turn);
    word(emit, pipe, first, values);
    emit.asm.op(
        Code::Add_rm64_imm8,
        &[Arg::R(WORD), Arg::I(gauge.bytes() as i32)],
    );
    emit.asm.op(Code::Dec_rm64, &[Arg::R(LEFT)]);
    emit.asm.jump(Code::Jne_rel32_64, turn);
    emit.asm.place(done);
    emit.load(data, frame(buffer));
    if emit.tail && !pipe.no_mod() {
        let end = emit.before_end(part, Gauge::Bits8, true);
        emit.v3(super::table::AND, data, data, end);
    }
}

/// How many words of this part the body sees, and flags of it. Uses `r8`.
fn count_words(emit: &mut Emit<'_>, pipe: &Pipe, part: usize) {
    let bytes = emit.vector_bytes() as i32;
    let up = pipe.tail() == Tail::Pad || bug::is(Bug::PipeOrderTailTaken);
    emit.rounded_tail(LEFT, pipe.gauge(), up);
    if emit.parts() > 1 {
        emit.asm.op(
            Code::Sub_rm64_imm8,
            &[Arg::R(LEFT), Arg::I(part as i32 * bytes)],
        );
        emit.asm
            .op(Code::Mov_r32_imm32, &[Arg::R(Register::R8D), Arg::I(bytes)]);
        emit.gpr2(Code::Cmp_r64_rm64, LEFT, Register::R8);
        emit.gpr2(Code::Cmovg_r64_rm64, LEFT, Register::R8);
    }
    let shift = pipe.gauge().bytes().trailing_zeros() as i32;
    if shift > 0 {
        emit.asm
            .op(Code::Sar_rm64_imm8, &[Arg::R(LEFT), Arg::I(shift)]);
    }
    emit.gpr2(Code::Test_rm64_r64, LEFT, LEFT);
}

/// The body for the word at `WORD`.
fn word(emit: &mut Emit<'_>, pipe: &Pipe, first: usize, values: i32) {
    let slot = |value: Value| frame(values + value.index() as i32 * 8);
    let rax = Arg::R(Register::RAX);
    for (at, op) in pipe.ops().iter().enumerate() {
        operate(emit, pipe, *op, first, &slot);
        truncate(emit, pipe.width());
        emit.asm
            .op(Code::Mov_rm64_r64, &[frame(values + at as i32 * 8), rax]);
    }
    for (id, update) in pipe.updates() {
        let register = Emit::persistent(first + id.index());
        match *update {
            Update::Set(value) => {
                emit.asm.op(Code::Mov_r64_rm64, &[rax, slot(value)]);
                emit.asm.op(Code::Mov_rm64_r64, &[register, rax]);
            }
            Update::Reduce(how, value) => {
                emit.asm.op(Code::Mov_r64_rm64, &[rax, slot(value)]);
                truncate(emit, pipe.gauge());
                reduce(emit, how, register);
            }
        }
    }
    if !pipe.no_mod() {
        emit.asm.op(Code::Mov_r64_rm64, &[rax, slot(pipe.result())]);
        let to = Arg::M(WORD, 0);
        match pipe.gauge() {
            Gauge::Bits8 => emit.asm.op(Code::Mov_rm8_r8, &[to, Arg::R(Register::AL)]),
            Gauge::Bits16 => emit.asm.op(Code::Mov_rm16_r16, &[to, Arg::R(Register::AX)]),
            Gauge::Bits32 => emit
                .asm
                .op(Code::Mov_rm32_r32, &[to, Arg::R(Register::EAX)]),
            Gauge::Bits64 | Gauge::Bits128 => emit.asm.op(Code::Mov_rm64_r64, &[to, rax]),
        }
    }
}

/// `rax` modulo the gauge.
fn truncate(emit: &mut Emit<'_>, gauge: Gauge) {
    match gauge {
        Gauge::Bits8 => emit.gpr2(Code::Movzx_r32_rm8, Register::EAX, Register::AL),
        Gauge::Bits16 => emit.gpr2(Code::Movzx_r32_rm16, Register::EAX, Register::AX),
        Gauge::Bits32 => emit.gpr2(Code::Mov_r32_rm32, Register::EAX, Register::EAX),
        Gauge::Bits64 | Gauge::Bits128 => {}
    }
}

/// An operator's result to `rax`; above the width anything may stand. Uses `r8`.
fn operate(emit: &mut Emit<'_>, pipe: &Pipe, op: Op, first: usize, slot: &impl Fn(Value) -> Arg) {
    let (rax, r8) = (Arg::R(Register::RAX), Arg::R(Register::R8));
    match op {
        Op::Input => {
            let from = Arg::M(WORD, 0);
            match pipe.gauge() {
                Gauge::Bits8 => emit
                    .asm
                    .op(Code::Movzx_r32_rm8, &[Arg::R(Register::EAX), from]),
                Gauge::Bits16 => emit
                    .asm
                    .op(Code::Movzx_r32_rm16, &[Arg::R(Register::EAX), from]),
                Gauge::Bits32 => emit
                    .asm
                    .op(Code::Mov_r32_rm32, &[Arg::R(Register::EAX), from]),
                Gauge::Bits64 | Gauge::Bits128 => emit.asm.op(Code::Mov_r64_rm64, &[rax, from]),
            }
        }
        Op::Const(constant) => {
            let from = emit.asm.lanes(constant.to_le_bytes());
            emit.asm.op(Code::Mov_r64_rm64, &[rax, from]);
        }
        Op::Register(id) => {
            let from = Emit::persistent(first + id.index());
            emit.asm.op(Code::Mov_r64_rm64, &[rax, from]);
        }
        Op::Swap(value) => {
            emit.asm.op(Code::Mov_r64_rm64, &[rax, slot(value)]);
            emit.asm.op(Code::Bswap_r64, &[rax]);
            let above = 64 - pipe.width().bits() as i32;
            if above > 0 {
                emit.asm.op(Code::Shr_rm64_imm8, &[rax, Arg::I(above)]);
            }
        }
        Op::Binary(op, left, right) => {
            emit.asm.op(Code::Mov_r64_rm64, &[rax, slot(left)]);
            binary(emit, op, slot(right));
        }
        Op::Shift(op, value, bits) => {
            emit.asm.op(Code::Mov_r64_rm64, &[rax, slot(value)]);
            shift(emit, op, pipe.width().bits() as i32, bits as i32);
        }
        Op::ShiftBy(op, value, bits) => {
            emit.asm.op(Code::Mov_r64_rm64, &[rax, slot(value)]);
            shift_by(emit, op, pipe.width().bits() as i32, slot(bits));
        }
        Op::Count(what, value) => {
            emit.asm.op(Code::Mov_r64_rm64, &[rax, slot(value)]);
            count(emit, what, pipe.width().bits());
        }
        Op::Select(condition, one, other) => {
            emit.asm.op(Code::Mov_r64_rm64, &[rax, slot(one)]);
            emit.asm.op(Code::Mov_r64_rm64, &[r8, slot(condition)]);
            emit.asm.op(Code::Test_rm64_r64, &[r8, r8]);
            emit.asm.op(Code::Cmove_r64_rm64, &[rax, slot(other)]);
        }
        Op::Table(value) => {
            let entries: Vec<u8> = (0..=255)
                .flat_map(|byte| (pipe.entry(byte) as u32).to_le_bytes())
                .collect();
            let Arg::M(pool, at) = emit.asm.constant(&entries) else {
                unreachable!("constants are memory");
            };
            emit.asm
                .op(Code::Movzx_r32_rm8, &[Arg::R(Register::EAX), slot(value)]);
            emit.asm.op(Code::Shl_rm64_imm8, &[rax, Arg::I(2)]);
            let entry = Arg::X(pool, Register::RAX, at);
            emit.asm
                .op(Code::Mov_r32_rm32, &[Arg::R(Register::EAX), entry]);
        }
    }
}

/// `rax` op the operand.
fn binary(emit: &mut Emit<'_>, op: Binary, right: Arg) {
    let rax = Arg::R(Register::RAX);
    let code = match op {
        Binary::Add => Code::Add_r64_rm64,
        Binary::Sub => Code::Sub_r64_rm64,
        Binary::Mul => Code::Imul_r64_rm64,
        Binary::And => Code::And_r64_rm64,
        Binary::Or => Code::Or_r64_rm64,
        Binary::Xor => Code::Xor_r64_rm64,
        Binary::Min | Binary::Max => {
            emit.asm.op(Code::Cmp_r64_rm64, &[rax, right]);
            if op == Binary::Min {
                Code::Cmova_r64_rm64
            } else {
                Code::Cmovb_r64_rm64
            }
        }
        Binary::Equal | Binary::Below => {
            emit.asm.op(Code::Cmp_r64_rm64, &[rax, right]);
            let set = if op == Binary::Equal {
                Code::Sete_rm8
            } else {
                Code::Setb_rm8
            };
            emit.asm.op(set, &[Arg::R(Register::AL)]);
            return emit.gpr2(Code::Movzx_r32_rm8, Register::EAX, Register::AL);
        }
    };
    emit.asm.op(code, &[rax, right]);
}

/// `rax`, a number of `width` bits, shifted. Uses `r8`.
fn shift(emit: &mut Emit<'_>, op: Shift, width: i32, bits: i32) {
    let (rax, r8) = (Arg::R(Register::RAX), Arg::R(Register::R8));
    match op {
        Shift::Left => emit.asm.op(Code::Shl_rm64_imm8, &[rax, Arg::I(bits)]),
        Shift::Right => emit.asm.op(Code::Shr_rm64_imm8, &[rax, Arg::I(bits)]),
        Shift::RightSigned => {
            emit.asm.op(Code::Shl_rm64_imm8, &[rax, Arg::I(64 - width)]);
            // Two shifts: their sum may be 64, which x86 takes for 0.
            emit.asm.op(Code::Sar_rm64_imm8, &[rax, Arg::I(64 - width)]);
            emit.asm.op(Code::Sar_rm64_imm8, &[rax, Arg::I(bits)]);
        }
        Shift::RotateLeft if bits == 0 => {}
        Shift::RotateLeft => {
            emit.asm.op(Code::Mov_r64_rm64, &[r8, rax]);
            emit.asm.op(Code::Shl_rm64_imm8, &[rax, Arg::I(bits)]);
            emit.asm
                .op(Code::Shr_rm64_imm8, &[r8, Arg::I(width - bits)]);
            emit.asm.op(Code::Or_r64_rm64, &[rax, r8]);
        }
    }
}

/// `rax`, a number of `width` bits, shifted by the operand, modulo the width. Uses `r8`.
fn shift_by(emit: &mut Emit<'_>, op: Shift, width: i32, bits: Arg) {
    let (rax, r8) = (Arg::R(Register::RAX), Arg::R(Register::R8));
    let amount = |emit: &mut Emit<'_>| {
        emit.asm.op(Code::Mov_r64_rm64, &[r8, bits]);
        emit.asm.op(Code::And_rm64_imm8, &[r8, Arg::I(width - 1)]);
    };
    let code = match op {
        Shift::Left => Code::VEX_Shlx_r64_rm64_r64,
        Shift::Right => Code::VEX_Shrx_r64_rm64_r64,
        Shift::RightSigned => {
            emit.asm.op(Code::Shl_rm64_imm8, &[rax, Arg::I(64 - width)]);
            emit.asm.op(Code::Sar_rm64_imm8, &[rax, Arg::I(64 - width)]);
            Code::VEX_Sarx_r64_rm64_r64
        }
        Shift::RotateLeft if width == 64 => {
            // The only variable rotation takes its amount from `cl`, which is the length's.
            let rcx = Arg::R(Register::RCX);
            amount(emit);
            emit.asm.op(Code::Xchg_rm64_r64, &[r8, rcx]);
            emit.asm.op(Code::Rol_rm64_CL, &[rax, Arg::R(Register::CL)]);
            return emit.asm.op(Code::Xchg_rm64_r64, &[r8, rcx]);
        }
        Shift::RotateLeft => {
            // Two of the number, one behind the other, shifted right by the rest.
            emit.asm.op(Code::Mov_r64_rm64, &[r8, rax]);
            emit.asm.op(Code::Shl_rm64_imm8, &[r8, Arg::I(width)]);
            emit.asm.op(Code::Or_r64_rm64, &[rax, r8]);
            amount(emit);
            emit.asm.op(Code::Neg_rm64, &[r8]);
            emit.asm.op(Code::Add_rm64_imm8, &[r8, Arg::I(width)]);
            let args = [rax, rax, r8];
            return emit.asm.op(Code::VEX_Shrx_r64_rm64_r64, &args);
        }
    };
    amount(emit);
    emit.asm.op(code, &[rax, rax, r8]);
}

/// Counts bits of `rax`, a number of `width` bits. Uses `r8`.
fn count(emit: &mut Emit<'_>, what: Count, width: u32) {
    let (rax, r8) = (Arg::R(Register::RAX), Arg::R(Register::R8));
    match what {
        Count::Ones => emit.asm.op(Code::Popcnt_r64_rm64, &[rax, rax]),
        Count::Leading => {
            emit.asm.op(Code::Lzcnt_r64_rm64, &[rax, rax]);
            let wide = bug::is(Bug::PipeOrderCountWide);
            let above = Arg::I(if wide { 0 } else { 64 - width as i32 });
            emit.asm.op(Code::Sub_rm64_imm8, &[rax, above]);
        }
        Count::Trailing => {
            if width < 64 {
                // A one above, where counting ends.
                emit.asm
                    .op(Code::Mov_r32_imm32, &[Arg::R(Register::R8D), Arg::I(1)]);
                emit.asm
                    .op(Code::Shl_rm64_imm8, &[r8, Arg::I(width as i32)]);
                emit.asm.op(Code::Or_r64_rm64, &[rax, r8]);
            }
            emit.asm.op(Code::Tzcnt_r64_rm64, &[rax, rax]);
        }
    }
}

/// Takes `rax` into a persistent register. Uses `r8`.
fn reduce(emit: &mut Emit<'_>, how: Reduce, register: Arg) {
    let (rax, r8) = (Arg::R(Register::RAX), Arg::R(Register::R8));
    match how {
        Reduce::Sum => emit.asm.op(Code::Add_rm64_r64, &[register, rax]),
        Reduce::Xor => emit.asm.op(Code::Xor_rm64_r64, &[register, rax]),
        Reduce::Or => emit.asm.op(Code::Or_rm64_r64, &[register, rax]),
        Reduce::Min | Reduce::Max => {
            let further = if how == Reduce::Min {
                Code::Cmova_r64_rm64
            } else {
                Code::Cmovb_r64_rm64
            };
            emit.asm.op(Code::Cmp_r64_rm64, &[rax, register]);
            emit.asm.op(further, &[rax, register]);
            emit.asm.op(Code::Mov_rm64_r64, &[register, rax]);
        }
        Reduce::Ones => {
            // Two numbers of 16 bits: one fold, which cannot carry again.
            emit.asm.op(Code::Add_r64_rm64, &[rax, register]);
            emit.asm.op(Code::Mov_r64_rm64, &[r8, rax]);
            emit.asm.op(Code::Shr_rm64_imm8, &[r8, Arg::I(16)]);
            emit.gpr2(Code::Movzx_r32_rm16, Register::EAX, Register::AX);
            emit.asm.op(Code::Add_r64_rm64, &[rax, r8]);
            emit.asm.op(Code::Mov_rm64_r64, &[register, rax]);
        }
    }
}
