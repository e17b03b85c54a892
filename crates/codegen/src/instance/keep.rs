//! Keeps what stopped a handler in the kernel tier, to be replayed.
//!
//! The frame goes to the trusted words, and the instance stays locked for the worker
//! ([`trusted::HELD`]), which takes both frame and memory and frees it: so the memory is
//! as the handler has left it, whatever comes meanwhile, which waits in the ring as
//! behind any activation on another CPU. (Of a handler that runs on several CPUs at once it is that
//! CPU's lock alone, and the memory is as all of them have left it.) The worker says how often that may happen
//! ([`trusted::FAULT_WANTED`]); else the instance is free at once. It is told of a wanted
//! fault that cannot be kept, too: the node looks for what comes until the next is wanted.

use ashway_abi::{context, trusted};
use ashway_check::bpf::{Assembler, Atomic, Reg, Size, op};

use super::{Spec, enqueue, leave, unlock};
use crate::hook;
use Reg::{R0, R1, R2, R3, R4, R5, R6, R7, R9};

/// Frees the instance, now or by way of the worker. `r6` = `md`, `r7` = trusted
/// words, `r9` = the context; clobbers `r0`-`r5`.
pub(super) fn emit(asm: &mut Assembler, spec: &Spec) {
    let free = asm.label();
    let lost = asm.label();
    let tell = asm.label();
    let out = asm.label();
    if !spec.is_parallel() {
        asm.load(Size::W, R1, R7, trusted::FAULT_WANTED as i16);
        asm.jump_if_imm(op::JEQ, R1, 0, free);
    }
    let most = trusted::HEADERS_BYTES as i32;
    asm.load(Size::W, R4, R9, context::PAYLOAD_OFF);
    asm.jump_if_imm(op::JEQ, R4, 0, lost);
    asm.jump_if_imm(op::JGT, R4, most, lost);
    asm.load(Size::W, R5, R9, context::PAYLOAD_LEN);
    asm.jump_if_imm(op::JGT, R5, trusted::FAULT_FRAME_BYTES as i32 - most, lost);
    asm.mov(R3, R7);
    asm.alu_imm(
        op::ADD,
        R3,
        trusted::fault_at(spec.queue.layout.rings) as i32,
    );
    asm.store(Size::W, R3, trusted::FAULT_FRONT as i16, R4);
    asm.store(Size::W, R3, trusted::FAULT_LEN as i16, R5);
    asm.load(Size::W, R1, R9, context::DIRTY);
    asm.store(Size::W, R3, trusted::FAULT_CHANGED as i16, R1);
    asm.alu_imm(op::ADD, R3, trusted::FAULT_FRAME as i32);
    asm.alu(op::ADD, R4, R5);
    asm.mov(R1, R6);
    asm.mov_imm(R2, 0);
    hook::load_bytes(asm);
    asm.jump_if_imm(op::JNE, R0, 0, lost);
    leave(asm, spec, trusted::HELD);
    asm.jump(tell);
    asm.bind(lost);
    unlock(asm, spec);
    asm.bind(tell);
    // A full barrier, which waking needs.
    asm.mov_imm(R1, 0);
    asm.atomic(
        Atomic::Exchange,
        Size::W,
        R7,
        trusted::FAULT_WANTED as i16,
        R1,
    );
    enqueue::wake(asm);
    asm.jump(out);
    asm.bind(free);
    unlock(asm, spec);
    asm.bind(out);
}
