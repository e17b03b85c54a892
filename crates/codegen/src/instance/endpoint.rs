//! `deliver`: the message goes into the application's ring.
//!
//! The protocol is [`ashway_abi::endpoint`]'s, the copy that of the rings to the
//! user tier ([`deliver`]). All of it happens when the handler has ended and the
//! instance is free again: the place is a trusted word, taken by
//! compare-and-exchange, so the worker and several CPUs may deliver at once.
//!
//! A program cannot signal an event descriptor. It leaves a word for the worker,
//! and rings its bell only if the worker sleeps: so an application that always
//! claims to sleep costs the softirq no more than the worker's own bell.

use ashway_abi::{Count, context, endpoint, trusted};

use super::{Spec, end_with, enqueue};
use crate::hook::Action;
use Reg::{R0, R1, R2, R3, R4, R5, R7, R9, R10};
use ashway_abi::MemoryKind;
use ashway_check::bpf::{Assembler, Atomic, Label, MapRef, Reg, Size, op};

/// `r6` = `md`, `r7` = trusted words, `r9` = the context; the lock is free.
/// Goes to `finish` as [`end_with`] said.
pub(super) fn emit(asm: &mut Assembler, spec: &Spec, finish: Label) {
    let slots = spec.layout.endpoint_slots as i32;
    let none = asm.label();
    let full = asm.label();
    let too_long = asm.label();
    let void = asm.label();
    let again = asm.label();
    let taken = asm.label();

    asm.load(Size::W, R1, R7, trusted::ENDPOINT_OPEN as i16);
    asm.jump_if_imm(op::JEQ, R1, 0, none);
    asm.load(Size::W, R5, R9, context::PAYLOAD_LEN);
    asm.jump_if_imm(
        op::JGT,
        R5,
        spec.layout.endpoint_slot_bytes as i32,
        too_long,
    );
    asm.load(Size::W, R5, R9, context::PAYLOAD_OFF);
    asm.jump_if_imm(op::JGT, R5, trusted::HEADERS_BYTES as i32, too_long);

    asm.bind(again);
    asm.load(Size::W, R3, R7, trusted::ENDPOINT_PRODUCED as i16);
    control(asm, spec);
    asm.load(Size::W, R4, R2, endpoint::CONSUMED as i16);
    // Alleged: whatever it is, the place is `r3`'s.
    asm.mov(R5, R3);
    asm.alu32(op::SUB, R5, R4);
    asm.jump_if_imm(op::JGE, R5, slots, full);
    asm.mov(R0, R3);
    asm.mov(R5, R3);
    asm.alu32_imm(op::ADD, R5, 1);
    asm.atomic(
        Atomic::CompareExchange,
        Size::W,
        R7,
        trusted::ENDPOINT_PRODUCED as i16,
        R5,
    );
    asm.jump32_if(op::JEQ, R0, R3, taken);
    asm.may_goto(full);
    asm.jump(again);

    asm.bind(taken);
    asm.store(Size::D, R10, enqueue::TICKET, R3);
    asm.alu_imm(op::AND, R3, slots - 1);
    asm.store(Size::D, R10, enqueue::SLOT, R3);
    enqueue::copy_payload(asm, spec, void);

    end_with(asm, Count::Delivered, Some(Count::Committed), Action::Drop);
    asm.load(Size::W, R3, R9, context::PAYLOAD_LEN);
    publish(asm, spec, finish);

    // Taken but not filled: never, the lengths have been checked. The application
    // steps over it.
    asm.bind(void);
    asm.map(R7, MapRef::Trusted, Some(0));
    end_with(
        asm,
        Count::DroppedTooLong,
        Some(Count::Committed),
        Action::Drop,
    );
    asm.load_imm(R3, endpoint::VOID.into());
    publish(asm, spec, finish);

    for (label, fate) in [
        (none, Count::DroppedNoEndpoint),
        (full, Count::DroppedEndpointFull),
        (too_long, Count::DroppedTooLong),
    ] {
        asm.bind(label);
        end_with(asm, fate, Some(Count::Committed), Action::Drop);
        asm.jump(finish);
    }
}

/// `r2` = the control block. Clobbers nothing else.
fn control(asm: &mut Assembler, spec: &Spec) {
    let at = spec.layout.endpoint_control() as i32;
    match spec.memory {
        MemoryKind::Arena => {
            asm.mov_imm(R2, at);
            asm.arena_cast(R2, R2);
        }
        MemoryKind::Array => {
            asm.map(R2, MapRef::Memory, Some(0));
            asm.alu_imm(op::ADD, R2, at);
        }
    }
}

/// Makes the slot visible with length `r3`, and has a reader that sleeps woken.
fn publish(asm: &mut Assembler, spec: &Spec, finish: Label) {
    asm.load(Size::D, R4, R10, enqueue::TICKET);
    asm.mov(R5, R4);
    asm.alu_imm(op::AND, R5, spec.layout.endpoint_slots as i32 - 1);
    let shift = endpoint::DESCRIPTOR_BYTES.trailing_zeros() as i32;
    asm.alu_imm(op::LSH, R5, shift);
    asm.alu_imm(op::ADD, R5, spec.layout.endpoint_descriptor(0) as i32);
    match spec.memory {
        MemoryKind::Arena => asm.arena_cast(R1, R5),
        MemoryKind::Array => {
            asm.map(R1, MapRef::Memory, Some(0));
            asm.alu(op::ADD, R1, R5);
        }
    }
    asm.store(Size::W, R1, endpoint::LEN as i16, R3);
    asm.load(Size::W, R2, R9, context::LOCAL_PATH);
    asm.store(Size::W, R1, endpoint::PATH as i16, R2);
    asm.alu32_imm(op::ADD, R4, 1);
    // A full barrier, between "here is one" and "does the application sleep?".
    asm.atomic(Atomic::Exchange, Size::W, R1, endpoint::READY as i16, R4);
    control(asm, spec);
    asm.load(Size::W, R1, R2, endpoint::NEED_WAKE as i16);
    asm.jump_if_imm(op::JEQ, R1, 0, finish);
    asm.store_imm(Size::W, R2, endpoint::NEED_WAKE as i16, 0);
    asm.mov_imm(R1, 1);
    asm.atomic(
        Atomic::Exchange,
        Size::W,
        R7,
        trusted::ENDPOINT_WAKE as i16,
        R1,
    );
    enqueue::wake(asm);
    asm.jump(finish);
}
