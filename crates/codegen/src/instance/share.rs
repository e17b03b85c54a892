//! A path's share of the kernel tier, in its program: what
//! [`Account`](ashway_abi::share::Account) does, for the path's
//! [words](trusted::PATH_PAID).
//!
//! All of it is under the instance's lock, so plain loads and stores do. Two looks at
//! the clock for each run are its price (33 ns each: docs/facts.md, "A look at the clock");
//! a message that waits for order's sake has none, and one that is dropped mostly one.

use ashway_abi::share::{AHEAD_NS, BACK_NS, DRAIN_NS, DUE_NS, HOLD_NS, Terms, UNIT_BITS};
use ashway_abi::{Count, trusted};
use ashway_check::bpf::{Assembler, Label, Reg, Size, helper, op};

use super::enqueue::PATH_WORD;
use crate::bug::{self, Bug};
use crate::hook::{self, Action};
use Reg::{R0, R1, R2, R3, R4, R5, R8, R10};

/// Stack: when the handler began.
const BEGAN: i16 = -96;

const PAID: i16 = trusted::PATH_PAID as i16;
const LAZY: i16 = trusted::PATH_LAZY as i16;
const LAZY_AT: i16 = trusted::PATH_LAZY_AT as i16;

/// To `within` if the path may run its handler now (`Account::may_run`). Clobbers
/// `r0`-`r5`.
pub(super) fn ask(asm: &mut Assembler, within: Label) {
    let lazy = asm.label();
    let over = asm.label();
    asm.call(helper::KTIME_GET_NS);
    asm.store(Size::D, R10, BEGAN, R0);
    asm.load(Size::D, R1, R10, PATH_WORD);
    asm.load(Size::D, R2, R1, PAID);
    asm.load(Size::W, R3, R1, LAZY);
    asm.mov(R4, R0);
    if bug::is(Bug::ShareNeverRefills) {
        asm.mov_imm(R4, 0);
    }
    let back = if bug::is(Bug::ShareFlickers) {
        AHEAD_NS
    } else {
        BACK_NS
    };
    asm.alu_imm(op::ADD, R4, back as i32);
    asm.jump_if_imm(op::JNE, R3, 0, lazy);
    asm.alu_imm(op::ADD, R4, (AHEAD_NS - back) as i32);
    asm.bind(lazy);
    asm.jump_if(op::JGT, R2, R4, over);
    asm.store_imm(Size::W, R1, LAZY, 0);
    asm.jump(within);
    asm.bind(over);
    asm.store_imm(Size::W, R1, LAZY, 1);
    asm.store(Size::D, R1, LAZY_AT, R0);
}

/// The handler has run (`Account::ran`). Clobbers `r0`-`r5`.
pub(super) fn charge(asm: &mut Assembler, terms: Terms) {
    if bug::is(Bug::ShareNeverEmpties) {
        return;
    }
    let enough = asm.label();
    let from = asm.label();
    let later = asm.label();
    asm.call(helper::KTIME_GET_NS);
    asm.load(Size::D, R3, R10, BEGAN);
    asm.alu(op::SUB, R0, R3);
    asm.alu_imm(op::MUL, R0, terms.price as i32);
    asm.alu_imm(op::RSH, R0, UNIT_BITS as i32);
    asm.jump_if_imm(op::JGE, R0, terms.least_ns as i32, enough);
    asm.mov_imm(R0, terms.least_ns as i32);
    asm.bind(enough);
    asm.load(Size::D, R1, R10, PATH_WORD);
    asm.load(Size::D, R2, R1, PAID);
    asm.load(Size::D, R4, R1, LAZY_AT);
    asm.mov(R5, R4);
    asm.alu_imm(op::ADD, R5, HOLD_NS as i32);
    asm.jump_if(op::JGE, R3, R5, from);
    asm.alu_imm(op::SUB, R3, DUE_NS as i32);
    asm.jump_if(op::JGE, R3, R4, from);
    asm.mov(R3, R4);
    asm.bind(from);
    asm.jump_if(op::JGE, R2, R3, later);
    asm.mov(R2, R3);
    asm.bind(later);
    asm.alu(op::ADD, R2, R0);
    asm.store(Size::D, R1, PAID, R2);
}

/// To `over` if the path is above its share, or was a moment ago: while its messages wait
/// in the user tier nobody asks. What is counted so is what [`Mode`](ashway_abi::share::Mode)
/// says. `r1` = its word. Clobbers `r0`-`r5`.
fn is_over(asm: &mut Assembler, over: Label) {
    let within = asm.label();
    asm.load(Size::W, R2, R1, LAZY);
    asm.jump_if_imm(op::JNE, R2, 0, over);
    if bug::is(Bug::ShareForgotten) {
        asm.bind(within);
        return;
    }
    asm.load(Size::D, R3, R1, LAZY_AT);
    asm.jump_if_imm(op::JEQ, R3, 0, within);
    if_lazy_within(asm, HOLD_NS, over);
    asm.bind(within);
}

/// To `then` if the path was above its share less than `ns` ago. Clobbers `r0`-`r5`.
fn if_lazy_within(asm: &mut Assembler, ns: u64, then: Label) {
    asm.call(helper::KTIME_GET_NS);
    asm.load(Size::D, R1, R10, PATH_WORD);
    asm.load(Size::D, R3, R1, LAZY_AT);
    asm.alu_imm(op::ADD, R3, ns as i32);
    asm.jump_if(op::JGT, R3, R0, then);
}

/// To `full` if the path is above its share and has all the room of such a path.
/// `r1` = its word. Clobbers `r0`-`r5`.
pub(super) fn room(asm: &mut Assembler, full: Label) {
    if bug::is(Bug::ShareTakesRing) {
        return;
    }
    let is_room = asm.label();
    asm.load(Size::W, R2, R1, 0);
    asm.alu32_imm(op::AND, R2, !trusted::DRAINING.cast_signed());
    let most = trusted::LAZY_MESSAGES as i32 - 1;
    asm.jump_if_imm(op::JLE, R2, most, is_room);
    is_over(asm, full);
    asm.bind(is_room);
}

/// To `later` if the path is above its share and has not been so for long enough to drain.
/// Clobbers `r0`-`r5`.
pub(super) fn drains(asm: &mut Assembler, later: Label) {
    if bug::is(Bug::ShareDrainsAtOnce) {
        return;
    }
    let now = asm.label();
    asm.load(Size::D, R1, R10, PATH_WORD);
    asm.load(Size::W, R2, R1, LAZY);
    asm.jump_if_imm(op::JEQ, R2, 0, now);
    if_lazy_within(asm, DRAIN_NS, later);
    asm.bind(now);
}

/// A message is dropped for want of room: if its path is above its share, that is the
/// reason, in `r8`. Clobbers `r0`-`r5`.
pub(super) fn blame(asm: &mut Assembler) {
    let over = asm.label();
    let within = asm.label();
    asm.load(Size::D, R1, R10, PATH_WORD);
    is_over(asm, over);
    asm.jump(within);
    asm.bind(over);
    asm.mov_imm(R8, Count::DroppedOverShare as i32);
    if bug::is(Bug::ShareUncounted) {
        hook::finish(asm, Action::Drop);
    }
    asm.bind(within);
}
