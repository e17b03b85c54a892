//! Fuel: the handler's real bound.
//!
//! `FUEL` holds what is left of the current slice, so that a charge is three
//! instructions and a jump that is hardly ever taken. A spent slice goes to
//! code out of line, which reads the clock (33 ns) and fills up from `RESERVE`:
//! the end of fuel comes at the same operator in both tiers, the end of time is
//! the outer net with a cause of its own.
//!
//! No table of costs can tell a load that takes 1 ns from one that waits 100 for
//! memory, but the clock can: a slice is as long as the last one was fast, so that it
//! takes [`STRETCH_NS`] or what is left of the time. It is the most there is for code
//! that does not wait.

use super::emitter::Emitter;
use super::shape::STRETCH_NS;
use super::stack::At;
use crate::bug::{self, Bug};
use crate::normalise::cost::BULK_SHIFT;
use crate::normalise::ir::FileOffset;
use ashway_abi::{Cause, context};
use ashway_check::bpf::{Label, Reg, Size, helper, op};

/// A charge's way out of line and back.
#[derive(Clone, Debug)]
pub(super) struct SlowCharge {
    from: Label,
    back: Label,
    at: FileOffset,
    /// What a helper would clobber: registers with the slots to save them in.
    lent: Vec<(Reg, Size, i16)>,
}

impl Emitter<'_> {
    /// `Charge`.
    pub(super) fn charge(&mut self, cost: u32) {
        if bug::is(Bug::ChargeForgotten) {
            return;
        }
        if !self.shape.checks.fuel {
            return;
        }
        // The helper out of line clobbers every scratch register.
        self.flush_registers();
        self.asm.load(Size::D, Reg::R0, Reg::R9, context::FUEL);
        if let Ok(cost) = i32::try_from(cost) {
            self.asm.alu_imm(op::SUB, Reg::R0, cost);
        } else {
            self.asm.load_imm(Reg::R1, u64::from(cost));
            self.asm.alu(op::SUB, Reg::R0, Reg::R1);
        }
        self.charged();
    }

    /// `ChargeBulk`.
    pub(super) fn charge_bulk(&mut self) {
        if !self.shape.checks.fuel {
            return;
        }
        self.flush_registers();
        let top = *self.body.stack.last().expect("the length is there");
        if top.at == At::Const(0) {
            return;
        }
        self.move_into(Reg::R1, top);
        self.asm.alu_imm(op::RSH, Reg::R1, BULK_SHIFT as i32);
        self.asm.load(Size::D, Reg::R0, Reg::R9, context::FUEL);
        self.asm.alu(op::SUB, Reg::R0, Reg::R1);
        self.charged();
    }

    /// The slice's new rest is in `r0`.
    fn charged(&mut self) {
        let slow = SlowCharge {
            from: self.asm.label(),
            back: self.asm.label(),
            at: self.at,
            lent: self.lent(),
        };
        self.asm.store(Size::D, Reg::R9, context::FUEL, Reg::R0);
        self.asm.jump_if_imm(op::JSLT, Reg::R0, 0, slow.from);
        self.asm.bind(slow.back);
        self.slow_charges.push(slow);
    }

    /// All ways out of line.
    pub(super) fn slow_charges(&mut self) {
        for slow in std::mem::take(&mut self.slow_charges) {
            self.place(slow.at);
            self.refill(&slow);
        }
    }

    fn refill(&mut self, slow: &SlowCharge) {
        let budget = self.shape.budget;
        let running = self.asm.label();
        let near = self.asm.label();
        let give = self.asm.label();
        let whole = self.asm.label();
        let fuel = self.trap_at(Cause::Fuel, slow.at);
        let time = self.trap_at(Cause::Time, slow.at);
        self.asm.bind(slow.from);
        for (reg, size, slot) in &slow.lent {
            self.asm.store(*size, Reg::R9, *slot, *reg);
        }
        self.asm.call(helper::KTIME_GET_NS);
        // r4 = what is left in all.
        self.asm.load(Size::D, Reg::R4, Reg::R9, context::RESERVE);
        self.asm.load(Size::D, Reg::R3, Reg::R9, context::FUEL);
        self.asm.alu(op::ADD, Reg::R4, Reg::R3);
        self.asm.jump_if_imm(op::JSLT, Reg::R4, 0, fuel);
        // r2 = how much of it until the next look; r3 = now.
        let units = |units: u32| i32::try_from(units).unwrap_or(i32::MAX);
        self.asm.mov(Reg::R3, Reg::R0);
        self.asm.load(Size::D, Reg::R1, Reg::R9, context::DEADLINE);
        self.asm.jump_if_imm(op::JNE, Reg::R1, 0, running);
        self.asm.load_imm(Reg::R1, budget.ns);
        self.asm.alu(op::ADD, Reg::R0, Reg::R1);
        self.asm.store(Size::D, Reg::R9, context::DEADLINE, Reg::R0);
        self.asm.mov_imm(Reg::R2, units(budget.second()));
        self.asm.jump(give);
        self.asm.bind(running);
        if !bug::is(Bug::ClockIgnored) {
            self.asm.jump_if(op::JGT, Reg::R0, Reg::R1, time);
        }
        let most = units(budget.next());
        if !bug::is(Bug::SlowIgnored) {
            // As much as was given, by the time there is over the time that it took.
            self.asm.alu(op::SUB, Reg::R1, Reg::R0);
            self.asm
                .jump_if_imm(op::JLE, Reg::R1, STRETCH_NS as i32, near);
            self.asm.mov_imm(Reg::R1, STRETCH_NS as i32);
            self.asm.bind(near);
            self.asm.load(Size::D, Reg::R2, Reg::R9, context::GIVEN);
            self.asm.alu(op::MUL, Reg::R2, Reg::R1);
            self.asm.load(Size::D, Reg::R1, Reg::R9, context::LOOKED);
            self.asm.alu(op::SUB, Reg::R0, Reg::R1);
            self.asm.alu(op::DIV, Reg::R2, Reg::R0);
            self.asm.alu_imm(op::ADD, Reg::R2, units(budget.least()));
            self.asm.jump_if_imm(op::JLE, Reg::R2, most, give);
        }
        self.asm.mov_imm(Reg::R2, most);
        self.asm.bind(give);
        self.asm.store(Size::D, Reg::R9, context::LOOKED, Reg::R3);
        self.asm.jump_if(op::JSGE, Reg::R4, Reg::R2, whole);
        if !bug::is(Bug::RefillWhole) {
            self.asm.mov(Reg::R2, Reg::R4);
        }
        self.asm.bind(whole);
        self.asm.store(Size::D, Reg::R9, context::FUEL, Reg::R2);
        self.asm.alu(op::SUB, Reg::R4, Reg::R2);
        self.asm.store(Size::D, Reg::R9, context::RESERVE, Reg::R4);
        self.asm.store(Size::D, Reg::R9, context::GIVEN, Reg::R2);
        for (reg, size, slot) in &slow.lent {
            self.asm.load(*size, *reg, Reg::R9, *slot);
        }
        self.asm.jump(slow.back);
    }
}
