//! Accesses: memory, packet, context.

use super::super::programs::{CPUS, functions, stub_program};
use super::{
    ANSWER, LOAD, MESSAGE, NOP, STORE, edits, is_bound, is_jump_if_greater, is_load, noticed,
    recursive, refused, stub,
};
use ashway_abi::MemoryKind::{Arena, Array};
use ashway_abi::context;
use ashway_check::Rule;
use ashway_check::bpf::{Assembler, Atomic, Insn, MapRef, Reg, Size, helper, op};

#[test]
fn a_bound_that_is_not_compared() {
    refused(&stub(LOAD, Array), is_bound, |_| NOP, Rule::Access);
    refused(&stub(STORE, Array), is_bound, |_| NOP, Rule::Access);
}

#[test]
fn a_bound_that_is_one_too_large() {
    let made = stub(LOAD, Array);
    let last = made.shape.layout.total_bytes() as i32 - 16 - 4;
    let to = |imm| move |insn| Insn { imm, ..insn };
    assert_eq!(edits(&made, is_bound, to(last)), [None]);
    refused(&made, is_bound, to(last + 1), Rule::Access);
}

#[test]
fn an_offset_that_is_too_wide() {
    let made = stub(LOAD, Array);
    let is_memory = |insn: Insn| is_load(insn) && insn.off == 16;
    let far = |off| move |insn| Insn { off, ..insn };
    refused(&made, is_memory, far(-1), Rule::Access);
    let guest = made.shape.layout.guest_bytes;
    assert_eq!(guest, 1 << 16, "so that an offset leads behind the state");
    let mut shape = made.clone();
    shape.shape.layout.state_bytes = 0;
    refused(&shape, is_memory, far(17), Rule::Access);
}

#[test]
fn an_address_that_is_not_cast() {
    let is_cast = |insn: Insn| insn.opcode == 0xbf && insn.off == 1;
    let plain = |insn| Insn {
        off: 0,
        imm: 0,
        ..insn
    };
    refused(&stub(LOAD, Arena), is_cast, plain, Rule::Access);
    refused(&stub(STORE, Arena), is_cast, plain, Rule::Access);
    // And no cast where there is no arena.
    let mut made = stub(LOAD, Arena);
    made.shape.memory = Array;
    assert_eq!(made.check().unwrap_err().rule, Rule::Access);
}

#[test]
fn an_atomic_access_that_is_not_aligned() {
    let text = "(func $f (param i32) (result i32)
        (i32.atomic.rmw.add (local.get 0) (i32.const 1)))";
    let made = stub_program("atomic", &functions(text), Arena, false).unwrap();
    let asks = |insn: Insn| insn.opcode == 0x55 && insn.imm == 0 && insn.dst == 0;
    noticed(&made, asks, |_| NOP, Rule::Access);
}

/// A 32-bit compare-exchange that succeeds leaves the upper half of `r0`.
#[test]
fn an_upper_half_that_is_not_cleared() {
    for (size, good) in [(Size::W, true), (Size::D, false)] {
        let mut asm = Assembler::new();
        let out = asm.label();
        asm.call(helper::GET_SMP_PROCESSOR_ID);
        asm.jump_if_imm(op::JGE, Reg::R0, CPUS as i32, out);
        asm.alu_imm(op::LSH, Reg::R0, 16);
        asm.map(Reg::R9, MapRef::Context, Some(0));
        asm.alu(op::ADD, Reg::R9, Reg::R0);
        asm.mov_imm(Reg::R2, 64);
        asm.arena_cast(Reg::R2, Reg::R2);
        asm.load(size, Reg::R0, Reg::R2, 0);
        asm.atomic(Atomic::CompareExchange, Size::W, Reg::R2, 0, Reg::R0);
        asm.jump32_if_imm(op::JGT, Reg::R0, 100, out);
        asm.alu(op::ADD, Reg::R9, Reg::R0);
        asm.load(Size::W, Reg::R0, Reg::R9, context::FRAMES);
        asm.bind(out);
        asm.mov_imm(Reg::R0, 0);
        asm.exit();
        let mut made = stub(LOAD, Arena);
        made.image = asm.finish();
        let found = made.check();
        assert_eq!(found.is_ok(), good, "{found:?}");
    }
}

#[test]
fn a_packet_access_that_is_not_compared() {
    for memory in [Arena, Array] {
        let made = stub(ANSWER, memory);
        noticed(&made, is_jump_if_greater, |_| NOP, Rule::Packet);
    }
    let made = stub(MESSAGE, Arena);
    noticed(&made, is_jump_if_greater, |_| NOP, Rule::Packet);
}

#[test]
fn a_packet_access_that_is_one_byte_longer() {
    let made = stub(MESSAGE, Arena);
    let last_load = |insn: Insn| insn.opcode == 0x61 && insn.src < 6;
    noticed(
        &made,
        last_load,
        |insn| Insn {
            opcode: 0x79,
            ..insn
        },
        Rule::Packet,
    );
    noticed(
        &made,
        is_load,
        |insn| Insn {
            off: insn.off - 1,
            ..insn
        },
        Rule::Packet,
    );
    // The pointer behind the chunk is not as far as was said.
    let four = |insn: Insn| insn.opcode == 0x07 && insn.imm == 4;
    noticed(&made, four, |insn| Insn { imm: 3, ..insn }, Rule::Packet);
}

#[test]
fn a_call_stack_without_a_bound() {
    for memory in [Arena, Array] {
        let made = recursive(memory);
        let deep = |insn: Insn| insn.opcode == 0x26 && insn.imm > 16 * 1024;
        refused(&made, deep, |_| NOP, Rule::Context);
    }
}

#[test]
fn a_field_of_the_context_that_is_not_the_handlers() {
    let made = stub(
        "local.get $len i32.const 1 i32.add local.tee $i call $load8 local.get $i i32.add",
        Arena,
    );
    let frame = |insn: Insn| {
        matches!(insn.opcode, 0x62 | 0x63) && insn.dst == 9 && insn.off >= context::CAUSE
    };
    for field in [context::ROW, context::ZERO, context::FLAGS, 144, 252] {
        refused(
            &made,
            frame,
            |insn| Insn { off: field, ..insn },
            Rule::Context,
        );
    }
    refused(&made, frame, |insn| Insn { off: -4, ..insn }, Rule::Context);
    // Another CPU's.
    let cpus = |insn: Insn| insn.opcode == 0x35 && insn.imm == CPUS as i32;
    refused(
        &made,
        cpus,
        |insn| Insn {
            imm: CPUS as i32 + 1,
            ..insn
        },
        Rule::Pointer,
    );
}
