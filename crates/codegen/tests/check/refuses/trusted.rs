//! The lock and the other trusted words.

use super::{LOAD, LOOP, NOP, edits, instance, noticed, refused};
use ashway_abi::MemoryKind::{Arena, Array};
use ashway_abi::trusted;
use ashway_check::Rule;
use ashway_check::bpf::{Assembler, Atomic, Insn, MapRef, Reg, Size, op};

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
        for imm in [1, trusted::HELD as i32 + 1] {
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
            insn.opcode == 0xdb && insn.imm == 0xf1 && lock
        };
        let results = edits(&made, takes, |_| NOP);
        assert!(results.iter().all(Option::is_some), "{results:?}");
        // Of the lock alone, with no look at who wants it.
        refused(
            &made,
            takes,
            |insn| Insn {
                opcode: 0xc3,
                ..insn
            },
            Rule::Access,
        );
        let busy = |insn: Insn| insn.opcode == 0x55 && insn.dst == 0 && insn.imm == 0;
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

/// Whoever reads the words of a fault knows by its cause whether they are of one: that is
/// 0 before the first of them is written, and there behind the last.
#[test]
fn the_cause_of_a_fault_is_taken_away_first_and_written_last() {
    let made = instance(LOAD, Arena);
    let faults = trusted::FAULT_COUNT..trusted::FAULT_WANTED;
    let image = made.image.insns.iter().map(|raw| Insn::decode(*raw));
    let written = image.filter(|insn| {
        let is_word = [0x62, 0x63, 0xc3].contains(&insn.opcode) && insn.dst == 7;
        is_word && usize::try_from(insn.off).is_ok_and(|off| faults.contains(&off))
    });
    let written: Vec<_> = written
        .map(|insn| (insn.opcode, insn.off as usize))
        .collect();
    assert_eq!(written.len(), 6, "{written:?}");
    assert_eq!(written[0], (0x62, trusted::FAULT_CAUSE));
    assert_eq!(written[4], (0xc3, trusted::FAULT_COUNT));
    assert_eq!(written[5], (0x63, trusted::FAULT_CAUSE));
}

/// Whether it is released is all that differs.
#[test]
fn a_lock_that_is_kept_at_the_end() {
    for released in [true, false] {
        let mut asm = Assembler::new();
        let out = asm.label();
        asm.map(Reg::R7, MapRef::Trusted, Some(0));
        asm.mov_imm(Reg::R0, 0);
        asm.mov_imm(Reg::R1, trusted::IN_KERNEL as i32);
        let lock = trusted::LOCK as i16;
        asm.atomic(Atomic::CompareExchange, Size::D, Reg::R7, lock, Reg::R1);
        asm.jump_if_imm(op::JNE, Reg::R0, 0, out);
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

/// A path's words about its share are plainly stored under the lock; `in_user`, which
/// order hangs on, never, and nothing without the lock.
#[test]
fn words_of_one_of_several_paths() {
    const PATHS: i32 = 3;
    let share = trusted::PATH_PAID as i16;
    let in_user = 0;
    let behind = trusted::PATH_BEHIND_KERNEL as i16;
    for (several, locked, size, off, good) in [
        (true, true, Size::D, share, true),
        (true, true, Size::W, trusted::PATH_LAZY as i16, true),
        (true, true, Size::W, share, false),
        (true, true, Size::D, share - 4, false),
        (true, true, Size::W, in_user, false),
        (true, true, Size::W, behind, false),
        (true, false, Size::D, share, false),
        (false, true, Size::D, share, true),
        (false, true, Size::W, in_user, false),
        (false, false, Size::D, share, false),
    ] {
        let mut asm = Assembler::new();
        let out = asm.label();
        asm.map(Reg::R7, MapRef::Trusted, Some(0));
        asm.mov(Reg::R1, Reg::R7);
        if several {
            asm.load(Size::W, Reg::R2, Reg::R7, trusted::FAULT_COUNT as i16);
            asm.jump_if_imm(op::JGE, Reg::R2, PATHS, out);
            asm.alu_imm(
                op::LSH,
                Reg::R2,
                trusted::PATH_STRIDE.trailing_zeros() as i32,
            );
            asm.alu(op::ADD, Reg::R1, Reg::R2);
        }
        asm.alu_imm(op::ADD, Reg::R1, trusted::PATHS as i32);
        asm.mov_imm(Reg::R0, 0);
        asm.mov_imm(Reg::R3, trusted::IN_KERNEL as i32);
        let lock = trusted::LOCK as i16;
        if locked {
            asm.atomic(Atomic::CompareExchange, Size::D, Reg::R7, lock, Reg::R3);
            asm.jump_if_imm(op::JNE, Reg::R0, 0, out);
        }
        asm.store_imm(size, Reg::R1, off, 1);
        if locked {
            asm.store_imm(Size::W, Reg::R7, lock, 0);
        }
        asm.bind(out);
        asm.mov_imm(Reg::R0, 0);
        asm.exit();
        let mut made = instance(LOAD, Arena);
        made.image = asm.finish();
        let rule = made.check().err().map(|violation| violation.rule);
        let case = (several, locked, size, off);
        assert_eq!(rule, (!good).then_some(Rule::Access), "{case:?}");
    }
}
