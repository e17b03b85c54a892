//! What lanes are reduced into: set before the loop, added to in it, brought together
//! behind it.

use iced_x86::{Code, Register};

use super::super::super::ir::{Gauge, Op, Pipe, Reduce, Tail, Update, Value};
use super::super::asm::Arg;
use super::super::emit::{Emit, Exhausted, Home, frame, lane};
use super::super::table::{self, V};
use super::{Body, Homes};
use crate::bug::{self, Bug};

/// How a reduction combines lanes, of which width they are, and what changes
/// nothing.
fn combine(gauge: Gauge, how: Reduce) -> (V, Gauge, u8) {
    match how {
        Reduce::Ones => (table::ADD[2], Gauge::Bits32, 0),
        // Words of 16 bits are summed in pairs in lanes of 32, others in 64.
        Reduce::Sum if gauge == Gauge::Bits16 => (table::ADD[2], Gauge::Bits32, 0),
        Reduce::Sum => (table::ADD[3], Gauge::Bits64, 0),
        Reduce::Xor => (table::XOR, gauge, 0),
        Reduce::Or => (table::OR, gauge, 0),
        Reduce::Min => (table::MIN[lane(gauge)], gauge, 0xff),
        Reduce::Max => (table::MAX[lane(gauge)], gauge, 0),
    }
}

/// Before the loop: accumulators to what changes nothing, parameters to all lanes.
pub(in super::super) fn prologue(emit: &mut Emit<'_>, pipe: &Pipe, first: usize, homes: &Homes) {
    for (index, home) in homes.iter().enumerate() {
        let update = pipe.updates().iter().find(|(id, _)| id.index() == index);
        if let Some((_, Update::Reduce(how, _))) = update {
            let (_, _, neutral) = combine(pipe.gauge(), *how);
            let from = emit.asm.lanes([neutral]);
            emit.settle(*home, from);
        } else {
            let register = emit.temporary();
            let to = emit.v(register);
            let from = Emit::persistent(first + index);
            emit.vop(table::BROADCAST[lane(pipe.gauge())], &[to, from]);
            match *home {
                Home::Register(home) => {
                    let home = emit.v(home);
                    emit.vop(table::LOAD, &[home, to]);
                }
                Home::Frame(at) => emit.store(frame(at), register),
            }
            emit.give(register);
        }
    }
}

/// Behind the loop: lanes come together, and into the pipe's registers.
pub(in super::super) fn epilogue(emit: &mut Emit<'_>, pipe: &Pipe, first: usize, homes: &Homes) {
    for (id, update) in pipe.updates() {
        let Update::Reduce(how, _) = *update else {
            continue;
        };
        let (v, width, _) = combine(pipe.gauge(), how);
        let from = match homes[id.index()] {
            Home::Register(register) => emit.v(register),
            Home::Frame(at) => frame(at),
        };
        let lanes = emit.temporary();
        emit.load(lanes, from);
        if matches!(how, Reduce::Sum | Reduce::Ones) {
            if width == Gauge::Bits32 {
                add_signs(emit, lanes);
                emit.widen(lanes);
            }
            emit.horizontal(table::ADD[3], lanes, Gauge::Bits64);
        } else {
            emit.horizontal(v, lanes, width);
        }
        emit.give(lanes);
        into_register(emit, how, first + id.index());
    }
}

/// Adds what was taken from words to make them signed: 2^15 from both words of a
/// lane, in each vector of data, the rest among them. Uses `rax`.
fn add_signs(emit: &mut Emit<'_>, lanes: u8) {
    let (rax, eax) = (Arg::R(Register::RAX), Arg::R(Register::EAX));
    // Vectors: of 64 bytes, or twice as many.
    let up = Arg::M(Register::RCX, 63);
    emit.asm.op(Code::Lea_r64_m, &[rax, up]);
    emit.asm.op(Code::Shr_rm64_imm8, &[rax, Arg::I(6)]);
    let shift = 16 + emit.parts().trailing_zeros() as i32;
    emit.asm.op(Code::Shl_rm32_imm8, &[eax, Arg::I(shift)]);
    let signs = emit.temporary();
    let low = Arg::R(Register::XMM0 + u32::from(signs));
    emit.asm.op(Code::VEX_Vmovd_xmm_rm32, &[low, eax]);
    let signs_arg = emit.v(signs);
    emit.vop(table::BROADCAST[2], &[signs_arg, low]);
    emit.v3(table::ADD[2], lanes, lanes, signs_arg);
    emit.give(signs);
}

/// Takes `rax` into a persistent register. Uses `r8`.
fn into_register(emit: &mut Emit<'_>, how: Reduce, index: usize) {
    let to = Emit::persistent(index);
    let (rax, r8) = (Register::RAX, Register::R8);
    match how {
        Reduce::Sum => emit.asm.op(Code::Add_rm64_r64, &[to, Arg::R(rax)]),
        Reduce::Xor => emit.asm.op(Code::Xor_rm64_r64, &[to, Arg::R(rax)]),
        Reduce::Or => emit.asm.op(Code::Or_rm64_r64, &[to, Arg::R(rax)]),
        Reduce::Min | Reduce::Max => {
            let other_is_further = if how == Reduce::Min {
                Code::Cmova_r64_rm64
            } else {
                Code::Cmovb_r64_rm64
            };
            emit.asm.op(Code::Cmp_r64_rm64, &[Arg::R(rax), to]);
            emit.asm.op(other_is_further, &[Arg::R(rax), to]);
            emit.asm.op(Code::Mov_rm64_r64, &[to, Arg::R(rax)]);
        }
        Reduce::Ones => {
            emit.asm.op(Code::Add_r64_rm64, &[Arg::R(rax), to]);
            // A piece has 2^19 words: 36 bits, then 21, 17, 16.
            for _ in 0..3 {
                emit.gpr2(Code::Mov_r64_rm64, r8, rax);
                emit.asm.op(Code::Shr_rm64_imm8, &[Arg::R(r8), Arg::I(16)]);
                emit.gpr2(Code::Movzx_r32_rm16, Register::EAX, Register::AX);
                emit.gpr2(Code::Add_r64_rm64, rax, r8);
            }
            emit.asm.op(Code::Mov_rm64_r64, &[to, Arg::R(rax)]);
        }
    }
}

impl Body<'_, '_> {
    /// Takes a value into the lanes' accumulators.
    pub(super) fn reduce(
        &mut self,
        home: Home,
        how: Reduce,
        value: Value,
        part: usize,
    ) -> Result<(), Exhausted> {
        let gauge = self.gauge();
        let (v, _, neutral) = combine(gauge, how);
        let words = self.emit.take()?;
        let mut from = self.in_register(value, words);
        // Behind the end there are zeros. A word that is not there must not
        // count, whatever the body makes of zero.
        let is_data = self.pipe.ops()[value.index()] == Op::Input;
        let harmless = is_data && neutral == 0 && self.pipe.tail() == Tail::Pad;
        if self.emit.tail && !harmless && !bug::is(Bug::PipeLanesTailCounts) {
            let there = self.there(part);
            self.emit.v3(table::AND, words, from, there);
            if neutral != 0 {
                let mask = self.emit.take()?;
                self.emit.load(mask, there);
                let ones = self.constant(u64::MAX);
                self.emit.v3(table::XOR, mask, mask, ones);
                let mask_arg = self.emit.v(mask);
                self.emit.v3(table::OR, words, words, mask_arg);
                self.emit.give(mask);
            }
            from = words;
        }
        match (how, gauge) {
            (Reduce::Sum, Gauge::Bits8) => {
                let zero = self.constant(0);
                self.emit.v3(table::SAD, words, from, zero);
            }
            (Reduce::Ones, _) | (Reduce::Sum, Gauge::Bits16) => {
                // Pairs are summed by an instruction that takes words as signed:
                // less 2^15 they are. The epilogue adds it again. Not VPDPWSSD,
                // which sums as well: its five cycles for each vector are more.
                let sign = self.emit.asm.lanes(0x8000_u16.to_le_bytes());
                let ones = self.emit.asm.lanes(1_u16.to_le_bytes());
                self.emit.v3(table::XOR, words, from, sign);
                self.emit.v3(table::MADD_WORDS, words, words, ones);
            }
            (Reduce::Sum, Gauge::Bits32) => {
                // Sums of two neighbours, each in the lane of both.
                let low = self.emit.take()?;
                let mask = self.emit.asm.lanes(0xffff_ffff_u64.to_le_bytes());
                self.emit.v3(table::AND, low, from, mask);
                self.emit.vshift(table::RIGHT[3], words, from, 32);
                let low_arg = self.emit.v(low);
                self.emit.v3(table::ADD[3], words, words, low_arg);
                self.emit.give(low);
            }
            _ => {
                let from = self.emit.v(from);
                self.emit.accumulate(home, v, from)?;
                self.emit.give(words);
                return Ok(());
            }
        }
        let words_arg = self.emit.v(words);
        self.emit.accumulate(home, v, words_arg)?;
        self.emit.give(words);
        Ok(())
    }
}
