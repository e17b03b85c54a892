//! Each rule: an accepted program, changed by hand at the place that the rule is
//! about, is refused with that rule.

use super::programs::{
    BUDGET, CPUS, FUNCTIONS, Made, functions, instance_program, module, stub_program, user_program,
};
use ashway_abi::{context, trusted};
use ashway_codegen::bpf::{
    Assembler, Atomic, Image, Insn, MapRef, MapUse, Reg, Size, helper, op, print,
};
use ashway_codegen::check::{Around, Rule};
use ashway_codegen::promote::MemoryKind::{self, Arena, Array};

const NOP: Insn = jump(0);

const fn jump(off: i16) -> Insn {
    Insn {
        opcode: 0x05,
        dst: 0,
        src: 0,
        off,
        imm: 0,
    }
}

/// The handler of [`super::programs::BODIES`] with this name, or a body.
fn stub(body: &str, memory: MemoryKind) -> Made {
    stub_program(body, &module(body), memory, false).unwrap()
}

fn recursive(memory: MemoryKind) -> Made {
    let (name, text) = FUNCTIONS[0];
    stub_program(name, &functions(text), memory, false).unwrap()
}

fn instance(body: &str, memory: MemoryKind) -> Made {
    instance_program(body, &module(body), memory, (2, 3, true)).unwrap()
}

/// What is said of each program that has one of the instructions changed.
fn edits(
    made: &Made,
    which: impl Fn(Insn) -> bool,
    change: impl Fn(Insn) -> Insn,
) -> Vec<Option<Rule>> {
    assert!(made.check().is_ok(), "{:?}", made.check());
    let mut second_half = false;
    let mut results = Vec::new();
    for at in 0..made.image.insns.len() {
        let insn = Insn::decode(made.image.insns[at]);
        if !std::mem::replace(&mut second_half, insn.opcode == 0x18) && which(insn) {
            let mut edited = made.clone();
            edited.image.insns[at] = change(insn).encode();
            results.push(edited.check().err().map(|violation| violation.rule));
        }
    }
    assert!(
        !results.is_empty(),
        "no such instruction:\n{}",
        print(&made.image)
    );
    results
}

/// All of them are refused, with this rule.
fn refused(made: &Made, which: impl Fn(Insn) -> bool, change: impl Fn(Insn) -> Insn, rule: Rule) {
    let results = edits(made, which, change);
    let all = results.iter().all(|found| *found == Some(rule));
    assert!(
        all,
        "{}: {results:?} instead of {rule:?}\n{}",
        made.name,
        print(&made.image)
    );
}

/// At least one is refused with this rule.
fn noticed(made: &Made, which: impl Fn(Insn) -> bool, change: impl Fn(Insn) -> Insn, rule: Rule) {
    let results = edits(made, which, change);
    assert!(
        results.contains(&Some(rule)),
        "{}: {results:?}\n{}",
        made.name,
        print(&made.image)
    );
}

const LOAD: &str = "local.get $len i32.load offset=16";
const STORE: &str = "local.get $len local.get $channel i32.store offset=16 i32.const 2";
const LOOP: &str = "loop
    local.get $i i32.const 1 i32.add local.tee $i local.get $len i32.lt_u br_if 0
    end local.get $i";
const MESSAGE: &str = "local.get $len i32.const 4 i32.sub call $load32";
const ANSWER: &str = "i32.const 0 i32.const 1 call $store8 i32.const 2";
const BULK: &str = "i32.const 200 i32.const 100 local.get $len memory.copy i32.const 2";

/// `if w > imm`, which compares addresses.
fn is_bound(insn: Insn) -> bool {
    insn.opcode == 0x26
}

/// A load, or a store of a register, by a register that is neither the
/// context's nor the stack's.
fn is_load(insn: Insn) -> bool {
    insn.opcode & 7 == 1 && insn.src < 9
}

fn is_store(insn: Insn) -> bool {
    insn.opcode & 7 == 3 && insn.opcode & 0xe0 == 0x60 && insn.dst < 9
}

/// An 8-byte load or store of a word of the context.
fn loads(word: i16) -> impl Fn(Insn) -> bool {
    move |insn| insn.opcode == 0x79 && insn.src == 9 && insn.off == word
}

fn stores(word: i16) -> impl Fn(Insn) -> bool {
    move |insn| insn.opcode == 0x7b && insn.dst == 9 && insn.off == word
}

fn calls(number: i32) -> impl Fn(Insn) -> bool {
    move |insn| insn.opcode == 0x85 && insn.imm == number
}

fn is_jump_if_greater(insn: Insn) -> bool {
    insn.opcode == 0x2d
}

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
fn a_charge_that_is_left_out() {
    for memory in [Arena, Array] {
        let made = stub(LOOP, memory);
        let charges = |insn: Insn| stores(context::FUEL)(insn) && insn.src == 0;
        refused(&made, charges, |_| NOP, Rule::Fuel);
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
    let asks = |insn: Insn| insn.opcode == 0xc5 && insn.dst == 1;
    noticed(&made, asks, |_| NOP, Rule::Fuel);
}

#[test]
fn a_refill_that_gives_too_much() {
    let made = stub(LOOP, Arena);
    let slice = BUDGET.slice as i32;
    // A quarter is for what comes before the first look.
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
    let less = |insn: Insn| insn.opcode == 0xbf && (insn.dst, insn.src, insn.off) == (2, 1, 0);
    refused(&made, less, |_| NOP, Rule::Fuel);
    refused(&made, stores(context::RESERVE), |_| NOP, Rule::Fuel);
    let rest = |insn: Insn| insn.opcode == 0x1f && (insn.dst, insn.src) == (1, 2);
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
fn a_budget_that_is_not_set() {
    let made = stub(LOOP, Arena);
    for word in [context::FUEL, context::DEADLINE] {
        let sets =
            |insn: Insn| matches!(insn.opcode, 0x7a | 0x7b) && insn.dst == 9 && insn.off == word;
        noticed(&made, sets, |_| NOP, Rule::Fuel);
    }
    // What comes before the first look is a quarter of a slice.
    let first = (BUDGET.slice / 4) as i32;
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

#[test]
fn a_jump_to_nowhere() {
    let made = stub(
        "i64.const 0x123456789abcdef global.set $count i32.const 1",
        Array,
    );
    let is_branch = |insn: Insn| insn.opcode & 7 == 5 && !matches!(insn.opcode, 0x85 | 0x95);
    for off in [i16::MIN, i16::MAX] {
        refused(
            &made,
            is_branch,
            |insn| Insn { off, ..insn },
            Rule::Instruction,
        );
    }
    // Into the middle of a number of 16 bytes.
    let wide =
        (0..made.image.insns.len()).find(|at| Insn::decode(made.image.insns[*at]).opcode == 0x18);
    let mut made = made.clone();
    made.image.insns[0] = jump(wide.unwrap() as i16).encode();
    assert_eq!(made.check().unwrap_err().rule, Rule::Instruction);
    made.image.insns.pop();
    assert_eq!(made.check().unwrap_err().rule, Rule::Instruction);
}

#[test]
fn an_instruction_that_nobody_knows() {
    let made = stub(LOAD, Arena);
    for opcode in [0x8d, 0x20, 0x40, 0xf7] {
        refused(
            &made,
            |insn| insn.opcode == 0x95,
            |insn| Insn { opcode, ..insn },
            Rule::Instruction,
        );
    }
    // A call of a subprogram, and of a kernel function.
    for src in [1, 2] {
        refused(
            &made,
            |insn| insn.opcode == 0x85,
            |insn| Insn { src, ..insn },
            Rule::Instruction,
        );
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
    locked.shape.around = Around::Stub;
    locked.image = loop_that_the_kernel_ends();
    assert_eq!(locked.check().unwrap_err().rule, Rule::Cycle);
    locked.shape.around = Around::Instance;
    assert!(locked.check().is_ok());
    let most = |insn: Insn| insn.opcode == 0x25 && insn.dst == 4 && insn.imm == 2048 - 32;
    noticed(&made, most, |_| NOP, Rule::Packet);
}

#[test]
fn a_pointer_that_gets_out() {
    for memory in [Arena, Array] {
        // The context's, the stack's.
        for src in [9, 10] {
            let made = stub(STORE, memory);
            noticed(
                &made,
                is_store,
                |insn| Insn {
                    src,
                    opcode: 0x7b,
                    ..insn
                },
                Rule::Pointer,
            );
            let made = stub(ANSWER, memory);
            noticed(&made, is_store, |insn| Insn { src, ..insn }, Rule::Pointer);
        }
        // To the context, where a handler's own values are.
        let made = stub(LOOP, memory);
        refused(
            &made,
            stores(context::FUEL),
            |insn| Insn { src: 9, ..insn },
            Rule::Pointer,
        );
        // As the program's result, or as a number.
        let made = stub(LOAD, memory);
        noticed(
            &made,
            |insn| insn.opcode == 0xb7 && insn.dst == 0,
            |_| Insn {
                opcode: 0xbf,
                src: 9,
                ..NOP
            },
            Rule::Pointer,
        );
        let mixes = |insn| Insn {
            opcode: 0xaf,
            src: 9,
            ..insn
        };
        noticed(
            &made,
            |insn| insn.opcode == 0xb7 && insn.dst == 0,
            mixes,
            Rule::Unset,
        );
    }
}

#[test]
fn a_pointer_that_is_taken_apart() {
    let mut asm = Assembler::new();
    asm.mov(Reg::R2, Reg::R10);
    asm.alu_imm(op::RSH, Reg::R2, 1);
    asm.mov_imm(Reg::R0, 0);
    asm.exit();
    let mut made = stub(LOAD, Arena);
    made.image = asm.finish();
    assert_eq!(made.check().unwrap_err().rule, Rule::Pointer);
}

#[test]
fn another_helper() {
    let made = stub(LOOP, Arena);
    let other = |imm| move |insn| Insn { imm, ..insn };
    // bpf_probe_read_kernel, bpf_tail_call, bpf_redirect, bpf_map_lookup_elem
    for number in [113, 12, 23, 1] {
        refused(
            &made,
            calls(helper::KTIME_GET_NS),
            other(number),
            Rule::Helper,
        );
    }
    let made = instance(LOOP, Arena);
    for number in [113, 12, 23, 1, 130] {
        refused(
            &made,
            calls(helper::KTIME_GET_NS),
            other(number),
            Rule::Helper,
        );
    }
    refused(
        &made,
        calls(helper::MAP_LOOKUP_ELEM),
        other(12),
        Rule::Helper,
    );
}

#[test]
fn a_helper_with_other_arguments() {
    let made = stub("local.get $len call $load8", Array);
    // The helper writes to the stack, or beyond the frames.
    let into = |insn: Insn| insn.opcode == 0xbf && insn.dst == 3 && insn.src == 9;
    refused(&made, into, |insn| Insn { src: 10, ..insn }, Rule::Helper);
    let frames = |insn: Insn| insn.opcode == 0x07 && insn.dst == 3;
    refused(
        &made,
        frames,
        |insn| Insn { imm: 255, ..insn },
        Rule::Context,
    );
    let end = context::BYTES as i32;
    refused(
        &made,
        frames,
        |insn| Insn { imm: end, ..insn },
        Rule::Context,
    );
    let bytes = |insn: Insn| insn.opcode == 0xb7 && insn.dst == 4;
    refused(&made, bytes, |insn| Insn { imm: -1, ..insn }, Rule::Helper);
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

#[test]
fn a_call_stack_without_a_bound() {
    for memory in [Arena, Array] {
        let made = recursive(memory);
        let deep = |insn: Insn| insn.opcode == 0x26 && insn.imm > 16 * 1024;
        refused(&made, deep, |_| NOP, Rule::Context);
    }
}

#[test]
fn a_lock_that_is_not_kept() {
    for memory in [Arena, Array] {
        let made = instance(LOOP, memory);
        let releases = |insn: Insn| {
            insn.opcode == 0x62
                && insn.dst == 7
                && insn.off == trusted::LOCK as i16
                && insn.imm == 0
        };
        for imm in [1, 2] {
            // What comes behind may not be called, or not be left, under the lock.
            let kept = |insn: Insn| if imm == 1 { NOP } else { Insn { imm, ..insn } };
            let results = edits(&made, releases, kept);
            let rules = [Rule::Lock, Rule::Helper].map(Some);
            assert!(
                results.iter().all(|found| rules.contains(found)),
                "{results:?}"
            );
        }
        let takes = |insn: Insn| insn.opcode == 0xc3 && insn.dst == 7 && insn.imm == 0xf1;
        let results = edits(&made, takes, |_| NOP);
        assert!(results.iter().all(Option::is_some), "{results:?}");
        let busy = |insn: Insn| insn.opcode == 0x56 && insn.dst == 0 && insn.imm == 0;
        noticed(&made, busy, |_| NOP, Rule::Lock);
    }
}

#[test]
fn another_map() {
    let mut made = stub(LOAD, Array);
    let memory = |used: &&mut MapUse| used.map == MapRef::Memory;
    made.image.maps.iter_mut().find(memory).unwrap().map = MapRef::Trusted;
    assert_eq!(made.check().unwrap_err().rule, Rule::Map);
    let mut made = stub(LOAD, Array);
    made.image.maps[0].insn = 0;
    assert_eq!(made.check().unwrap_err().rule, Rule::Map);
    let mut made = instance(LOAD, Array);
    let counters = |used: &&mut MapUse| used.map == MapRef::Counters;
    made.image.maps.iter_mut().find(counters).unwrap().map = MapRef::Slots;
    assert_eq!(made.check().unwrap_err().rule, Rule::Map);
}

#[test]
fn a_register_that_nobody_wrote() {
    let made = stub(LOOP, Arena);
    let after = |insn: Insn| insn.opcode == 0x79 && insn.src == 9 && insn.off == context::DEADLINE;
    // A call leaves nothing in r1 to r5.
    refused(
        &made,
        after,
        |insn| Insn {
            opcode: 0xbf,
            src: 4,
            off: 0,
            ..insn
        },
        Rule::Unset,
    );
}

#[test]
fn trusted_words_in_other_ways() {
    let made = instance(LOAD, Arena);
    let fault =
        |insn: Insn| insn.opcode == 0x63 && insn.dst == 7 && insn.off == trusted::FAULT_AT as i16;
    for off in [trusted::FAULT_COUNT, trusted::NEED_WAKE, trusted::PATHS] {
        refused(
            &made,
            fault,
            |insn| Insn {
                off: off as i16,
                ..insn
            },
            Rule::Access,
        );
    }
    let counter = |insn: Insn| insn.opcode == 0x35 && insn.imm == 64;
    noticed(
        &made,
        counter,
        |insn| Insn { imm: 65, ..insn },
        Rule::Access,
    );
}

#[test]
fn a_violation_says_where_and_what_to_do() {
    let mut made = stub(LOAD, Array);
    let bound = (0..made.image.insns.len())
        .find(|at| is_bound(Insn::decode(made.image.insns[*at])))
        .unwrap();
    made.image.insns[bound] = NOP.encode();
    let violation = made.check().unwrap_err();
    let words = violation.to_string();
    assert!(
        words.starts_with(&format!("instruction {}: ", violation.insn)),
        "{words}"
    );
    assert!(violation.because().contains("a bug of the translator"));
    assert!(violation.hint().contains("report"));
}
