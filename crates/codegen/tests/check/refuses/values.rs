//! What registers hold, and what helpers are given.

use super::super::programs::{module, observed_program};
use super::{
    ANSWER, LOAD, LOOP, NOP, STORE, calls, edits, instance, is_store, noticed, refused, stores,
    stub,
};
use ashway_abi::MemoryKind::{Arena, Array};
use ashway_abi::context;
use ashway_check::Rule;
use ashway_check::bpf::{Assembler, Insn, Reg, helper, op};

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
fn a_register_that_nobody_wrote() {
    let made = stub(LOOP, Arena);
    let after = |insn: Insn| insn.opcode == 0x79 && insn.src == 9 && insn.off == context::DEADLINE;
    // A call leaves nothing in r1 to r5, and r5 has the look before by then.
    refused(
        &made,
        after,
        |insn| Insn {
            opcode: 0xbf,
            src: 2,
            off: 0,
            ..insn
        },
        Rule::Unset,
    );
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
    // In the handler, whose looks come last; before them some are trusted code's.
    let made = instance(LOOP, Arena);
    for number in [113, 12, 23, 1, 130] {
        let results = edits(&made, calls(helper::KTIME_GET_NS), other(number));
        assert_eq!(
            results.last(),
            Some(&Some(Rule::Helper)),
            "{number}: {results:?}"
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

/// No more than what the context holds.
#[test]
fn an_observer_that_is_told_too_much() {
    // Every verdict is possible, so that the checker goes to each note.
    const ANY_VERDICT: &str = "i32.const 0 i32.const 1 call $store8 local.get $len";
    let setting = (2, 3, true);
    let made = observed_program("answer", &module(ANY_VERDICT), Arena, setting).unwrap();
    let most = ashway_abi::observe::MOST_BYTES as i32;
    // `if w3 > most`, in front of the helper's length.
    let bound = |insn: Insn| insn.opcode == 0x25 && insn.dst == 3 && insn.imm == most;
    let end = context::BYTES as i32;
    // The sum over an answer's payload has the same bound, of the same register.
    noticed(
        &made,
        bound,
        |insn| Insn { imm: end, ..insn },
        Rule::Context,
    );
    let to_ring = calls(helper::RINGBUF_OUTPUT);
    let other = |insn| Insn { imm: 113, ..insn };
    refused(&made, to_ring, other, Rule::Helper);
}
