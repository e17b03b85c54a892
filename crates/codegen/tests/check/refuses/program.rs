//! The program as a whole: instructions, jumps, maps, size.

use super::super::programs::user_program;
use super::{LOAD, NOP, instance, is_bound, jump, refused, stub};
use ashway_abi::MemoryKind::{Arena, Array};
use ashway_check::Rule;
use ashway_check::bpf::{Assembler, Insn, MapRef, MapUse, Reg, op};

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
    // A call of a kernel function.
    refused(
        &made,
        |insn| insn.opcode == 0x85,
        |insn| Insn { src: 2, ..insn },
        Rule::Instruction,
    );
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

/// A large loop whose number is another one each time, until it is widened.
#[test]
fn more_than_can_be_followed() {
    let mut made = stub(LOAD, Array);
    made.shape.around = user_program(Array, 1, 1).shape.around;
    for (insns, rule) in [(900_000, Rule::Work), (100_000, Rule::Cycle)] {
        let mut asm = Assembler::new();
        asm.mov_imm(Reg::R6, 0);
        let head = asm.here();
        for _ in 0..insns {
            asm.mov_imm(Reg::R0, 0);
        }
        asm.alu_imm(op::ADD, Reg::R6, 1);
        asm.jump(head);
        made.image = asm.finish();
        assert_eq!(made.check().unwrap_err().rule, rule, "{insns}");
    }
}
