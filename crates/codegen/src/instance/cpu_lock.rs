//! The lock of a CPU: where a handler runs on several CPUs at once, an activation takes that of
//! its own.
//!
//! It keeps nobody out but the worker, which takes all of them for what nobody may run the handler
//! meanwhile: another version, a state that is handed on, a message that is recorded. So a program
//! does not wait for it: on its own CPU nothing else can have it but the worker, or a fault that
//! is [kept](ashway_abi::trusted::HELD) for the worker. What several CPUs would write of a fault
//! is written by one of them, which [takes the wish](win) for it.

use ashway_abi::trusted;
use ashway_check::bpf::{Assembler, Atomic, Label, Reg, Size, helper, op};

use super::{QueueSpec, wait};
use crate::bug::{self, Bug};
use Reg::{R0, R1, R2, R7, R10};

/// Stack: where it lies. From there on nothing but programs of this CPU changes the place.
const LOCK: i16 = -120;

/// Takes it, or goes to `busy`. `r7` = trusted words. Clobbers `r0`-`r5`.
pub(super) fn take(asm: &mut Assembler, spec: &QueueSpec, busy: Label) {
    asm.call(helper::GET_SMP_PROCESSOR_ID);
    if bug::is(Bug::LockOfAnotherCpu) {
        asm.mov_imm(R0, 0);
    }
    asm.jump_if_imm(op::JGE, R0, spec.layout.locks as i32, busy);
    asm.alu_imm(op::LSH, R0, trusted::LOCK_STRIDE.trailing_zeros() as i32);
    asm.alu_imm(op::ADD, R0, spec.layout.cpu_lock(0) as i32);
    asm.alu(op::ADD, R0, R7);
    asm.store(Size::D, R10, LOCK, R0);
    asm.mov(R2, R0);
    wait::exchange_at(asm, R2);
    asm.jump_if_imm(op::JNE, R0, 0, busy);
}

/// Leaves it, free or as something that is kept. Clobbers `r1`.
pub(super) fn leave(asm: &mut Assembler, value: u32) {
    asm.load(Size::D, R1, R10, LOCK);
    asm.store_imm(Size::W, R1, 0, value as i32);
}

/// Takes the right to write down what stopped the handler; without it to `lost`. `r7` = trusted
/// words. Clobbers `r0`, `r1`.
pub(super) fn win(asm: &mut Assembler, lost: Label) {
    asm.mov_imm(R0, 1);
    asm.mov_imm(R1, trusted::FAULT_WRITTEN as i32);
    let wanted = trusted::FAULT_WANTED as i16;
    asm.atomic(Atomic::CompareExchange, Size::W, R7, wanted, R1);
    if !bug::is(Bug::FaultOfTwo) {
        asm.jump32_if_imm(op::JNE, R0, 1, lost);
    }
}
