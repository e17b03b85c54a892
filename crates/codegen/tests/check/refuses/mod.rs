//! Each rule: an accepted program, changed by hand at the place that the rule is
//! about, is refused with that rule.

mod access;
mod fuel;
mod program;
mod trusted;
mod values;

use super::programs::{FUNCTIONS, Subject, functions, instance_program, module, stub_program};
use ashway_abi::MemoryKind;
use ashway_check::Rule;
use ashway_check::bpf::{Insn, print};

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
fn stub(body: &str, memory: MemoryKind) -> Subject {
    stub_program(body, &module(body), memory, false).unwrap()
}

fn recursive(memory: MemoryKind) -> Subject {
    let (name, text) = FUNCTIONS[0];
    stub_program(name, &functions(text), memory, false).unwrap()
}

fn instance(body: &str, memory: MemoryKind) -> Subject {
    instance_program(body, &module(body), memory, (2, 3, true)).unwrap()
}

/// What is said of each program that has one of the instructions changed.
fn edits(
    made: &Subject,
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
fn refused(
    made: &Subject,
    which: impl Fn(Insn) -> bool,
    change: impl Fn(Insn) -> Insn,
    rule: Rule,
) {
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
fn noticed(
    made: &Subject,
    which: impl Fn(Insn) -> bool,
    change: impl Fn(Insn) -> Insn,
    rule: Rule,
) {
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
