//! The lines of an activation, from their stage into the instance's ring.
//!
//! Under the instance's lock, so that there is one writer, in whichever tier; readers go
//! by the number in each line, which is 0 while it changes. Of a handler that runs on several CPUs at
//! once each takes its line by an atomic addition: a line is two CPUs' only if one of them stands
//! still while the others write as many as the ring has. No loop: it would have to
//! keep to the handler's time.

use ashway_abi::log::{LINE_BYTES, MOST, RING_LINES, ring, stage};
use ashway_abi::{context, trusted};
use ashway_check::bpf::{Assembler, Atomic, Reg, Size, helper, op};

use super::Spec;
use crate::normalise::Module;
use Reg::{R0, R1, R2, R3, R7, R8, R9};

/// Context: the time.
const NOW: i16 = context::SCRATCH + 32;

/// `r7` = trusted words, `r9` = the context; the lock is held. Clobbers `r0`-`r5` and
/// `r8`.
pub(super) fn emit(asm: &mut Assembler, spec: &Spec, module: &Module<'_>) {
    if !module.logs() {
        return;
    }
    let [done, out] = [(); 2].map(|()| asm.label());
    asm.mov(R8, R9);
    asm.alu_imm(op::ADD, R8, context::LOG as i32);
    asm.load(Size::W, R0, R8, stage::COUNT as i16);
    asm.jump_if_imm(op::JEQ, R0, 0, out);
    asm.call(helper::KTIME_GET_NS);
    asm.store(Size::D, R9, NOW, R0);
    for line in 0..MOST as i16 {
        asm.load(Size::W, R0, R8, stage::COUNT as i16);
        asm.jump_if_imm(op::JLE, R0, line.into(), done);
        // r2 = the line's number, from 0; r3 = its place.
        ring_at(asm, spec, R1);
        if spec.is_parallel() {
            asm.mov_imm(R2, 1);
            asm.atomic(Atomic::FetchAdd, Size::W, R1, ring::PRODUCED as i16, R2);
        } else {
            asm.load(Size::W, R2, R1, ring::PRODUCED as i16);
        }
        asm.mov(R3, R2);
        asm.alu_imm(op::AND, R3, RING_LINES as i32 - 1);
        asm.alu_imm(op::LSH, R3, ring::STRIDE.trailing_zeros() as i32);
        asm.alu(op::ADD, R3, R1);
        let at = ring::LINES as i16;
        asm.mov_imm(R0, 0);
        asm.atomic(Atomic::Exchange, Size::W, R3, at + ring::READY as i16, R0);
        let from = stage::LINES as i16 + line * stage::STRIDE as i16;
        asm.load(Size::W, R0, R8, from);
        asm.store(Size::W, R3, at + ring::LEN as i16, R0);
        asm.load(Size::D, R0, R9, NOW);
        asm.store(Size::D, R3, at + ring::AT as i16, R0);
        asm.load(Size::W, R0, R9, context::ROW);
        asm.store(Size::W, R3, at + ring::ROW as i16, R0);
        for word in (0..LINE_BYTES as i16).step_by(8) {
            asm.load(Size::D, R0, R8, from + stage::TEXT as i16 + word);
            asm.store(Size::D, R3, at + ring::TEXT as i16 + word, R0);
        }
        asm.alu32_imm(op::ADD, R2, 1);
        asm.mov(R0, R2);
        asm.atomic(Atomic::Exchange, Size::W, R3, at + ring::READY as i16, R0);
        if !spec.is_parallel() {
            asm.store(Size::W, R1, ring::PRODUCED as i16, R2);
        }
    }
    asm.load(Size::W, R0, R8, stage::COUNT as i16);
    asm.alu32_imm(op::SUB, R0, MOST as i32);
    ring_at(asm, spec, R1);
    asm.atomic(Atomic::Add, Size::W, R1, ring::LOST as i16, R0);
    asm.bind(done);
    asm.bind(out);
}

/// `to` = the ring.
fn ring_at(asm: &mut Assembler, spec: &Spec, to: Reg) {
    asm.mov(to, R7);
    asm.alu_imm(op::ADD, to, trusted::log_at(spec.queue.layout.rings) as i32);
}
