//! A path's share of the kernel tier, in its program: what
//! [`Account`](ashway_abi::share::Account) does, for the path's
//! [words](trusted::PATH_PAID).
//!
//! Of a handler all of it is under the instance's lock, so plain loads and stores do. Two looks at
//! the clock for each run are its price (33 ns each: docs/facts.md, "A look at the clock");
//! a message that waits for order's sake has none, and one that is dropped mostly one.
//!
//! A relay has no lock: several CPUs may ask and charge at a time. What a message costs is added
//! to what is paid for by an atomic instruction, so none goes uncharged. What can go wrong is
//! bounded: each CPU may run one message that it would not have run behind another's, and where
//! two begin to charge an account that lies behind at the same time, it may end behind by the
//! time between their beginnings, which is less than one of them takes.

use ashway_abi::share::{AHEAD_NS, BACK_NS, DRAIN_NS, DUE_NS, HOLD_NS, Terms, UNIT_BITS};
use ashway_abi::{Count, trusted};
use ashway_check::bpf::{Assembler, Atomic, Label, Reg, Size, helper, op};

use super::enqueue::PATH_WORD;
use crate::bug::{self, Bug};
use crate::hook::{self, Action};
use Reg::{R0, R1, R2, R3, R4, R5, R8, R10};

/// Stack: when the handler began.
const BEGAN: i16 = -96;

const PAID: i16 = trusted::PATH_PAID as i16;
const LAZY: i16 = trusted::PATH_LAZY as i16;
const LAZY_AT: i16 = trusted::PATH_LAZY_AT as i16;

/// Where a program finds the account of a message's path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AccountAt {
    /// Stack: the address of the path word that the account is in.
    pub(crate) words: i16,
}

impl AccountAt {
    /// In the word of the message's own path.
    pub(super) const OWN: Self = Self { words: PATH_WORD };

    /// `r1` = the account's words.
    fn find(self, asm: &mut Assembler) {
        asm.load(Size::D, R1, R10, self.words);
    }
}

/// What a program charges.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Price {
    /// The same for all its messages, under the instance's lock.
    Locked(Terms),
    /// What lies at this place of the stack ([`TERMS`](ashway_abi::hop::TERMS)), while other
    /// CPUs charge the same account.
    Shared(i16),
}

/// To `within` if the path may run its handler now (`Account::may_run`). Clobbers
/// `r0`-`r5`.
pub(crate) fn ask(asm: &mut Assembler, place: AccountAt, within: Label) {
    let lazy = asm.label();
    let over = asm.label();
    asm.call(helper::KTIME_GET_NS);
    asm.store(Size::D, R10, BEGAN, R0);
    place.find(asm);
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
pub(crate) fn charge(asm: &mut Assembler, place: AccountAt, price: Price) {
    if bug::is(Bug::ShareNeverEmpties) {
        return;
    }
    let enough = asm.label();
    let from = asm.label();
    let later = asm.label();
    asm.call(helper::KTIME_GET_NS);
    asm.load(Size::D, R3, R10, BEGAN);
    asm.alu(op::SUB, R0, R3);
    match price {
        Price::Locked(terms) => {
            asm.alu_imm(op::MUL, R0, terms.price as i32);
            asm.alu_imm(op::RSH, R0, UNIT_BITS as i32);
            asm.jump_if_imm(op::JGE, R0, terms.least_ns as i32, enough);
            asm.mov_imm(R0, terms.least_ns as i32);
        }
        Price::Shared(at) => {
            asm.load(Size::W, R1, R10, at);
            asm.alu(op::MUL, R0, R1);
            asm.alu_imm(op::RSH, R0, UNIT_BITS as i32);
            asm.load(Size::W, R1, R10, at + 4);
            asm.jump_if(op::JGE, R0, R1, enough);
            asm.mov(R0, R1);
        }
    }
    asm.bind(enough);
    place.find(asm);
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
    if matches!(price, Price::Locked(_)) || bug::is(Bug::RelayChargeStored) {
        asm.mov(R2, R3);
        asm.bind(later);
        asm.alu(op::ADD, R2, R0);
        asm.store(Size::D, R1, PAID, R2);
    } else {
        // If another CPU was faster, it has brought the account up to when its message began.
        asm.mov(R4, R0);
        asm.mov(R0, R2);
        asm.atomic(Atomic::CompareExchange, Size::D, R1, PAID, R3);
        asm.mov(R0, R4);
        asm.bind(later);
        asm.atomic(Atomic::Add, Size::D, R1, PAID, R0);
    }
}

/// To `over` if the path is above its share, or was a moment ago: while its messages wait
/// in the user tier nobody asks. What is counted so is what [`Mode`](ashway_abi::share::Mode)
/// says. `r1` = the account's words. Clobbers `r0`-`r5`.
fn is_over(asm: &mut Assembler, place: AccountAt, over: Label) {
    let within = asm.label();
    asm.load(Size::W, R2, R1, LAZY);
    asm.jump_if_imm(op::JNE, R2, 0, over);
    if bug::is(Bug::ShareForgotten) {
        asm.bind(within);
        return;
    }
    asm.load(Size::D, R3, R1, LAZY_AT);
    asm.jump_if_imm(op::JEQ, R3, 0, within);
    if_lazy_within(asm, place, HOLD_NS, over);
    asm.bind(within);
}

/// To `then` if the path was above its share less than `ns` ago. Clobbers `r0`-`r5`.
fn if_lazy_within(asm: &mut Assembler, place: AccountAt, ns: u64, then: Label) {
    asm.call(helper::KTIME_GET_NS);
    place.find(asm);
    asm.load(Size::D, R3, R1, LAZY_AT);
    asm.alu_imm(op::ADD, R3, ns as i32);
    asm.jump_if(op::JGT, R3, R0, then);
}

/// To `full` if the path is above its share and has all the room of such a path.
/// `r1` = its word. Clobbers `r0`-`r5`.
pub(super) fn room(asm: &mut Assembler, place: AccountAt, full: Label) {
    if bug::is(Bug::ShareTakesRing) {
        return;
    }
    let is_room = asm.label();
    asm.load(Size::W, R2, R1, 0);
    asm.alu32_imm(op::AND, R2, !trusted::DRAINING.cast_signed());
    let most = trusted::LAZY_MESSAGES as i32 - 1;
    asm.jump_if_imm(op::JLE, R2, most, is_room);
    if place.words != PATH_WORD {
        place.find(asm);
    }
    is_over(asm, place, full);
    asm.bind(is_room);
}

/// To `later` if the path is above its share and has not been so for long enough to drain.
/// Clobbers `r0`-`r5`.
pub(super) fn drains(asm: &mut Assembler, place: AccountAt, later: Label) {
    if bug::is(Bug::ShareDrainsAtOnce) {
        return;
    }
    let now = asm.label();
    place.find(asm);
    asm.load(Size::W, R2, R1, LAZY);
    asm.jump_if_imm(op::JEQ, R2, 0, now);
    if_lazy_within(asm, place, DRAIN_NS, later);
    asm.bind(now);
}

/// A message is dropped for want of room: if its path is above its share, that is the
/// reason, in `r8`. Clobbers `r0`-`r5`.
pub(super) fn blame(asm: &mut Assembler, place: AccountAt) {
    let over = asm.label();
    let within = asm.label();
    place.find(asm);
    is_over(asm, place, over);
    asm.jump(within);
    asm.bind(over);
    asm.mov_imm(R8, Count::DroppedOverShare as i32);
    if bug::is(Bug::ShareUncounted) {
        hook::finish(asm, Action::Drop);
    }
    asm.bind(within);
}
