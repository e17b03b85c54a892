//! Looks at the clock: two subprograms behind the program, which all charges and ticks of a
//! handler call when a slice is spent.
//!
//! They read the clock (33 ns), beside which a call is nothing, and fill up from `RESERVE`. Each
//! gets the context, and returns 0, or the [`Cause`] for which the handler has to stop.
//!
//! No table of costs can tell a load that takes 1 ns from one that waits 100 for
//! memory, but the clock can: a slice is as long as the last one was fast, so that it
//! takes [`STRETCH_NS`] or what is left of the time. It is the most there is for code
//! that does not wait.
//!
//! Nor can the clock tell a handler from a hypervisor or an interrupt that had the CPU
//! meanwhile, and that takes longer than most budgets. So of each activation the first stretch
//! between two looks that ends behind the deadline is not charged: a CPU that is taken away once
//! stops nobody, and a handler that does not end runs for one stretch more. (To charge a slice
//! at most its fuel at the pace of loads that all wait for memory would not do: 3,072 units take
//! twice a budget of 50 us then.)

use super::emitter::Emitter;
use super::shape::STRETCH_NS;
use super::tick::TICKS;
use crate::bug::{self, Bug};
use Reg::{R0, R1, R2, R3, R4, R5, R9};
use ashway_abi::{Budget, Cause, context};
use ashway_check::bpf::{Assembler, Label, Reg, Size, helper, op};

/// Where the subprograms are.
#[derive(Clone, Copy, Debug)]
pub struct Looks {
    /// Gives the next slice of fuel.
    pub(super) refill: Label,
    /// Gives ticks.
    pub(super) ticks: Label,
}

impl Looks {
    /// For a program that is begun.
    #[must_use]
    pub fn new(asm: &mut Assembler) -> Self {
        Self {
            refill: asm.label(),
            ticks: asm.label(),
        }
    }

    /// Those that were called, behind all of the program.
    pub fn emit(self, asm: &mut Assembler, budget: &Budget) {
        asm.line(None);
        refill(asm, self.refill, budget);
        ticks(asm, self.ticks, budget);
    }
}

impl Emitter<'_> {
    /// Calls one, with the context in `r1`.
    ///
    /// The verifier takes it that a subprogram reads all of `r1` to `r5`, so that what was left in
    /// them would be kept apart on all ways that lead here (docs/facts.md, "Registers at a
    /// subprogram's call").
    pub(super) fn call_look(&mut self, look: Label) {
        self.asm.mov(R1, R9);
        for unused in [R2, R3, R4, R5] {
            self.asm.mov_imm(unused, 0);
        }
        self.asm.call_own(look);
    }
}

fn refill(asm: &mut Assembler, begin: Label, budget: &Budget) {
    let [fuel, running, near, over, time, give, whole] = [(); 7].map(|()| asm.label());
    asm.bind(begin);
    clock(asm);
    // r4 = what is left in all.
    asm.load(Size::D, R4, R9, context::RESERVE);
    asm.load(Size::D, R3, R9, context::FUEL);
    asm.alu(op::ADD, R4, R3);
    asm.jump_if_imm(op::JSLT, R4, 0, fuel);
    // r2 = how much of it until the next look; r3 = now.
    let units = |units: u32| i32::try_from(units).unwrap_or(i32::MAX);
    asm.mov(R3, R0);
    asm.load(Size::D, R1, R9, context::DEADLINE);
    asm.jump_if_imm(op::JNE, R1, 0, running);
    start(asm, budget);
    asm.mov_imm(R2, units(budget.second()));
    asm.jump(give);
    asm.bind(running);
    if !bug::is(Bug::ClockIgnored) {
        asm.jump_if(op::JGT, R0, R1, over);
    }
    let most = units(budget.next());
    if !bug::is(Bug::SlowIgnored) {
        // As much as was given, by the time there is over the time that it took.
        asm.alu(op::SUB, R1, R0);
        asm.jump_if_imm(op::JLE, R1, STRETCH_NS as i32, near);
        asm.mov_imm(R1, STRETCH_NS as i32);
        asm.bind(near);
        asm.load(Size::D, R2, R9, context::GIVEN);
        asm.alu(op::MUL, R2, R1);
        asm.load(Size::D, R1, R9, context::LOOKED);
        asm.alu(op::SUB, R0, R1);
        asm.alu(op::DIV, R2, R0);
        asm.alu_imm(op::ADD, R2, units(budget.least()));
        asm.jump_if_imm(op::JLE, R2, most, give);
    }
    asm.mov_imm(R2, most);
    asm.bind(give);
    asm.store(Size::D, R9, context::LOOKED, R3);
    asm.jump_if(op::JSGE, R4, R2, whole);
    if !bug::is(Bug::RefillWhole) {
        asm.mov(R2, R4);
    }
    asm.bind(whole);
    asm.store(Size::D, R9, context::FUEL, R2);
    asm.alu(op::SUB, R4, R2);
    asm.store(Size::D, R9, context::RESERVE, R4);
    asm.store(Size::D, R9, context::GIVEN, R2);
    asm.mov_imm(R0, 0);
    asm.exit();
    asm.bind(over);
    grace(asm, budget, time);
    asm.mov_imm(R2, units(budget.least()));
    asm.jump(give);
    for (label, cause) in [(fuel, Cause::Fuel), (time, Cause::Time)] {
        asm.bind(label);
        asm.mov_imm(R0, cause as i32);
        asm.exit();
    }
}

fn ticks(asm: &mut Assembler, begin: Label, budget: &Budget) {
    let [running, time, give] = [(); 3].map(|()| asm.label());
    asm.bind(begin);
    clock(asm);
    asm.load(Size::D, R1, R9, context::DEADLINE);
    asm.jump_if_imm(op::JNE, R1, 0, running);
    start(asm, budget);
    asm.jump(give);
    asm.bind(running);
    asm.jump_if(op::JLE, R0, R1, give);
    grace(asm, budget, time);
    asm.bind(give);
    asm.store_imm(Size::D, R9, context::BULK, TICKS);
    asm.mov_imm(R0, 0);
    asm.exit();
    asm.bind(time);
    asm.mov_imm(R0, Cause::Time as i32);
    asm.exit();
}

/// `r0` = now, `r5` = the look before, `r9` = the context, which is in `r1`. Clobbers `r1`-`r4`.
fn clock(asm: &mut Assembler) {
    asm.mov(R9, R1);
    asm.call(helper::KTIME_GET_NS);
    asm.load(Size::W, R5, R9, context::SEEN);
    asm.store(Size::W, R9, context::SEEN, R0);
}

/// The first look: the time begins in `r0`. Clobbers `r0` and `r1`.
fn start(asm: &mut Assembler, budget: &Budget) {
    asm.load_imm(R1, budget.ns);
    asm.alu(op::ADD, R0, R1);
    asm.store(Size::D, R9, context::DEADLINE, R0);
}

/// The time is over: to `time` if that was so before in this activation. Else it goes on
/// for what was left of it at the last look. Registers as behind [`clock`], and `r1` = the
/// deadline; clobbers these and `r2`.
fn grace(asm: &mut Assembler, budget: &Budget, time: Label) {
    if bug::is(Bug::GraceForgotten) {
        asm.jump(time);
        return;
    }
    let left = asm.label();
    asm.load(Size::D, R2, R9, context::GRACE);
    if !bug::is(Bug::GraceForEver) {
        asm.jump_if_imm(op::JNE, R2, 0, time);
    }
    asm.store_imm(Size::D, R9, context::GRACE, 1);
    asm.alu32(op::SUB, R1, R5);
    asm.load_imm(R2, budget.ns);
    asm.jump_if(op::JLE, R1, R2, left);
    asm.mov(R1, R2);
    asm.bind(left);
    asm.alu(op::ADD, R0, R1);
    asm.store(Size::D, R9, context::DEADLINE, R0);
}
