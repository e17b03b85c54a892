//! Fuel: the handler's real bound.
//!
//! `FUEL` holds what is left of the current slice, so that a charge is three
//! instructions and a jump that is hardly ever taken. A spent slice goes to
//! code out of line, which calls the [subprogram](super::looks) that fills it up:
//! the end of fuel comes at the same operator in both tiers, the end of time is
//! the outer net with a cause of its own.

use super::emitter::Emitter;
use super::stack::At;
use crate::bug::{self, Bug};
use crate::normalise::cost::BULK_SHIFT;
use crate::normalise::ir::FileOffset;
use ashway_abi::context;
use ashway_check::bpf::{Label, Reg, Size, op};

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
        self.asm.bind(slow.from);
        for (reg, size, slot) in &slow.lent {
            self.asm.store(*size, Reg::R9, *slot, *reg);
        }
        self.call_look(self.looks.refill);
        if slow.lent.is_empty() {
            self.asm.jump_if_imm(op::JEQ, Reg::R0, 0, slow.back);
        } else {
            let over = self.asm.label();
            self.asm.jump_if_imm(op::JNE, Reg::R0, 0, over);
            for (reg, size, slot) in &slow.lent {
                self.asm.load(*size, *reg, Reg::R9, *slot);
            }
            self.asm.jump(slow.back);
            self.asm.bind(over);
        }
        self.stop_with(Reg::R0, slow.at);
    }
}
