//! The lock and the other trusted words.

use super::{LOAD, LOOP, NOP, edits, instance, noticed, refused};
use ashway_abi::trusted;
use ashway_codegen::bpf::{Assembler, Atomic, Insn, MapRef, Reg, Size, op};
use ashway_codegen::check::Rule;
use ashway_codegen::promote::MemoryKind::{Arena, Array};

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
        for imm in [1, trusted::KEPT as i32 + 1] {
            // What comes behind may not be called, or not be left, under the lock.
            let kept = |insn: Insn| if imm == 1 { NOP } else { Insn { imm, ..insn } };
            let results = edits(&made, releases, kept);
            let rules = [Rule::Lock, Rule::Helper].map(Some);
            assert!(
                results.iter().all(|found| rules.contains(found)),
                "{results:?}"
            );
        }
        let takes = |insn: Insn| {
            let lock = insn.dst == 7 && insn.off == trusted::LOCK as i16;
            insn.opcode == 0xc3 && insn.imm == 0xf1 && lock
        };
        let results = edits(&made, takes, |_| NOP);
        assert!(results.iter().all(Option::is_some), "{results:?}");
        let busy = |insn: Insn| insn.opcode == 0x56 && insn.dst == 0 && insn.imm == 0;
        noticed(&made, busy, |_| NOP, Rule::Lock);
    }
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

/// Whether it is released is all that differs.
#[test]
fn a_lock_that_is_kept_at_the_end() {
    for released in [true, false] {
        let mut asm = Assembler::new();
        let out = asm.label();
        asm.map(Reg::R7, MapRef::Trusted, Some(0));
        asm.mov_imm(Reg::R0, 0);
        asm.mov_imm(Reg::R1, 1);
        let lock = trusted::LOCK as i16;
        asm.atomic(Atomic::CompareExchange, Size::W, Reg::R7, lock, Reg::R1);
        asm.jump32_if_imm(op::JNE, Reg::R0, 0, out);
        if released {
            asm.store_imm(Size::W, Reg::R7, lock, 0);
        }
        asm.bind(out);
        asm.mov_imm(Reg::R0, 0);
        asm.exit();
        let mut made = instance(LOAD, Arena);
        made.image = asm.finish();
        let rule = made.check().err().map(|violation| violation.rule);
        assert_eq!(rule, (!released).then_some(Rule::Lock));
    }
}
