//! Fuel, ticks and the clock.

use super::super::programs::{BUDGET, user_program};
use super::{BULK, LOAD, LOOP, NOP, calls, loads, noticed, recursive, refused, stores, stub};
use ashway_abi::MemoryKind::{Arena, Array};
use ashway_abi::context;
use ashway_check::bpf::{Assembler, Image, Insn, Reg, helper};
use ashway_check::{Around, Rule};

#[test]
fn a_charge_that_is_left_out() {
    for memory in [Arena, Array] {
        let made = stub(LOOP, memory);
        let charges = |insn: Insn| stores(context::FUEL)(insn) && insn.src == 0;
        refused(&made, charges, |_| NOP, Rule::Cycle);
        let takes = |insn: Insn| insn.opcode == 0x17 && insn.dst == 0 && insn.imm > 0;
        noticed(&made, takes, |insn| Insn { imm: 0, ..insn }, Rule::Cycle);
        refused(&made, takes, |insn| Insn { imm: -1, ..insn }, Rule::Fuel);
        noticed(
            &made,
            loads(context::FUEL),
            |_| Insn {
                opcode: 0xb7,
                ..NOP
            },
            Rule::Fuel,
        );
    }
}

#[test]
fn fuel_that_nobody_asks_for() {
    let made = stub(LOOP, Arena);
    let asks = |insn: Insn| insn.opcode == 0xc5 && insn.dst == 0 && insn.imm == 0;
    refused(&made, asks, |_| NOP, Rule::Fuel);
    let asks = |insn: Insn| insn.opcode == 0xc5 && insn.dst == 4;
    noticed(&made, asks, |_| NOP, Rule::Fuel);
}

#[test]
fn a_refill_that_gives_too_much() {
    let made = stub(LOOP, Arena);
    let slice = BUDGET.slice as i32;
    let given = slice - slice / 4;
    let is_slice = |insn: Insn| insn.opcode == 0xb7 && insn.dst == 2 && insn.imm == given;
    refused(
        &made,
        is_slice,
        |insn| Insn {
            imm: given + 1,
            ..insn
        },
        Rule::Fuel,
    );
    // What is less than a slice is all there is.
    let less = |insn: Insn| insn.opcode == 0xbf && (insn.dst, insn.src, insn.off) == (2, 4, 0);
    refused(&made, less, |_| NOP, Rule::Fuel);
    refused(&made, stores(context::RESERVE), |_| NOP, Rule::Fuel);
    let rest = |insn: Insn| insn.opcode == 0x1f && (insn.dst, insn.src) == (4, 2);
    refused(&made, rest, |_| NOP, Rule::Fuel);
}

#[test]
fn a_slice_without_a_look_at_the_clock() {
    for made in [stub(LOOP, Arena), stub(BULK, Arena), recursive(Array)] {
        let late = |insn: Insn| insn.opcode == 0x2d && (insn.dst, insn.src) == (0, 1);
        noticed(&made, late, |_| NOP, Rule::Fuel);
        let now = |insn: Insn| Insn {
            opcode: 0xb7,
            dst: 0,
            imm: 0,
            ..insn
        };
        refused(&made, calls(helper::KTIME_GET_NS), now, Rule::Fuel);
        let extends = |insn: Insn| Insn { src: 1, ..insn };
        refused(&made, stores(context::DEADLINE), extends, Rule::Fuel);
    }
}

#[test]
fn a_grace_that_is_used_twice() {
    for made in [stub(LOOP, Arena), stub(BULK, Arena), recursive(Array)] {
        let asks = |insn: Insn| insn.opcode == 0x55 && insn.dst == 2 && insn.imm == 0;
        refused(&made, asks, |_| NOP, Rule::Fuel);
        let uses = |insn: Insn| insn.opcode == 0x7a && insn.off == context::GRACE && insn.imm == 1;
        refused(&made, uses, |_| NOP, Rule::Fuel);
        let again = |insn: Insn| Insn { imm: 0, ..insn };
        refused(&made, uses, again, Rule::Fuel);
        // And it gives no more than the budget.
        let most = |insn: Insn| insn.opcode == 0xbf && (insn.dst, insn.src) == (1, 2);
        refused(&made, most, |_| NOP, Rule::Fuel);
    }
}

/// What a subprogram says is asked before the handler goes on, and it is told where to look.
#[test]
fn a_subprogram_that_is_not_believed() {
    for made in [stub(LOOP, Arena), stub(LOOP, Array)] {
        let asks = |insn: Insn| insn.opcode == 0x15 && (insn.dst, insn.imm) == (0, 0);
        let goes_on = |insn: Insn| Insn {
            opcode: 0x05,
            dst: 0,
            ..insn
        };
        refused(&made, asks, goes_on, Rule::Fuel);
        let tells = |insn: Insn| insn.opcode == 0xbf && (insn.dst, insn.src) == (1, 9);
        refused(&made, tells, |_| NOP, Rule::Helper);
        let elsewhere = |insn: Insn| Insn { src: 10, ..insn };
        refused(&made, tells, elsewhere, Rule::Helper);
        let calls = |insn: Insn| insn.opcode == 0x85 && insn.src == 1;
        let nowhere = |insn: Insn| Insn {
            imm: insn.imm + 1,
            ..insn
        };
        refused(&made, calls, nowhere, Rule::Unset);
    }
}

/// It has the context's fields, and neither frames nor a stack.
#[test]
fn a_subprogram_that_writes_elsewhere() {
    for made in [stub(LOOP, Arena), stub(BULK, Arena)] {
        let seen = |insn: Insn| insn.opcode == 0x63 && (insn.dst, insn.off) == (9, context::SEEN);
        let elsewhere = |insn: Insn| Insn {
            off: context::FRAMES,
            ..insn
        };
        refused(&made, seen, elsewhere, Rule::Access);
        let stack = |insn: Insn| Insn {
            dst: 10,
            off: -8,
            ..insn
        };
        refused(&made, seen, stack, Rule::Unset);
    }
}

#[test]
fn a_budget_that_is_not_set() {
    let made = stub(LOOP, Arena);
    for word in [context::FUEL, context::DEADLINE, context::GRACE] {
        let sets =
            |insn: Insn| matches!(insn.opcode, 0x7a | 0x7b) && insn.dst == 9 && insn.off == word;
        noticed(&made, sets, |_| NOP, Rule::Fuel);
    }
    // What comes before the first look is an eighth of a slice.
    let first = (BUDGET.slice / 8) as i32;
    let gives = |insn: Insn| insn.opcode == 0xb4 && insn.dst == 1 && insn.imm == first;
    let more = |insn: Insn| Insn {
        imm: first + 1,
        ..insn
    };
    refused(&made, gives, more, Rule::Fuel);
    let mut made = made;
    made.shape.budget.fuel /= 2;
    assert_eq!(made.check().unwrap_err().rule, Rule::Fuel);
}

#[test]
fn a_tick_that_is_left_out() {
    for memory in [Arena, Array] {
        for made in [stub(BULK, memory), recursive(memory)] {
            let ticks = |insn: Insn| stores(context::BULK)(insn);
            noticed(&made, ticks, |_| NOP, Rule::Cycle);
            let takes = |insn: Insn| insn.opcode == 0x17 && insn.imm >= 4;
            noticed(&made, takes, |insn| Insn { imm: 0, ..insn }, Rule::Cycle);
            let refills =
                |insn: Insn| insn.opcode == 0x7a && insn.off == context::BULK && insn.imm > 8192;
            refused(
                &made,
                refills,
                |insn| Insn {
                    imm: 1 << 20,
                    ..insn
                },
                Rule::Fuel,
            );
        }
    }
}

fn loop_that_the_kernel_ends() -> Image {
    let mut asm = Assembler::new();
    let (head, out) = (asm.label(), asm.label());
    asm.mov_imm(Reg::R0, 0);
    asm.bind(head);
    asm.may_goto(out);
    asm.jump(head);
    asm.bind(out);
    asm.exit();
    asm.finish()
}

#[test]
fn a_loop_without_a_charge() {
    for memory in [Arena, Array] {
        let made = stub(LOAD, memory);
        // A failed comparison is made again, for ever.
        let back = |insn: Insn| Insn { off: -1, ..insn };
        noticed(&made, |insn| insn.opcode == 0x2d, back, Rule::Cycle);
    }
    // Where no handler runs it is the kernel that ends loops, and only there.
    let made = user_program(Arena, 2, 1);
    let ends = |insn: Insn| insn.opcode == 0xe5;
    refused(&made, ends, |_| NOP, Rule::Cycle);
    let mut locked = made.clone();
    let instance = std::mem::replace(&mut locked.shape.around, Around::Stub);
    locked.image = loop_that_the_kernel_ends();
    assert_eq!(locked.check().unwrap_err().rule, Rule::Cycle);
    locked.shape.around = instance;
    assert!(locked.check().is_ok());
}

#[test]
fn a_payload_beyond_its_slot_or_the_pool() {
    let made = user_program(Arena, 2, 1);
    let too_long = |insn: Insn| insn.opcode == 0x25 && insn.dst == 5 && insn.imm == 2048;
    noticed(&made, too_long, |_| NOP, Rule::Helper);
    let Around::Instance(layout) = made.shape.around else {
        panic!("it has a queue");
    };
    let last = ((layout.blocks() - 1) * layout.block_bytes()) as i32;
    let bound = |insn: Insn| insn.opcode == 0x25 && insn.dst == 3 && insn.imm == last;
    noticed(&made, bound, |_| NOP, Rule::Access);
    let beyond = |insn: Insn| Insn {
        imm: last + 64,
        ..insn
    };
    noticed(&made, bound, beyond, Rule::Access);
}
