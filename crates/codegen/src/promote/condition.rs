//! Comparisons that become jumps.
//!
//! A comparison followed by the operator that branches on it is one jump: it
//! waits until that operator takes it.

use super::emitter::Emitter;
use super::stack::{At, Entry, fits};
use crate::bug::{self, Bug};
use crate::normalise::ir::OpKind;
use ashway_check::bpf::{Label, Reg, invert, op};
use wasmparser::Operator;

/// A comparison whose result is only jumped on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Condition {
    operation: u8,
    wide: bool,
    left: Reg,
    right: Right,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Right {
    Imm(i32),
    Reg(Reg),
}

impl Condition {
    pub(super) fn inverted(self) -> Self {
        Self {
            operation: invert(self.operation).expect("a comparison has an opposite"),
            ..self
        }
    }

    fn reads(self, reg: Reg) -> bool {
        self.left == reg || self.right == Right::Reg(reg)
    }
}

/// The jump that says the same with the operands exchanged.
pub(super) fn mirrored(operation: u8) -> u8 {
    match operation {
        same if bug::is(Bug::CompareNotMirrored) => same,
        op::JGT => op::JLT,
        op::JLT => op::JGT,
        op::JGE => op::JLE,
        op::JLE => op::JGE,
        op::JSGT => op::JSLT,
        op::JSLT => op::JSGT,
        op::JSGE => op::JSLE,
        op::JSLE => op::JSGE,
        same => same,
    }
}

impl Emitter<'_> {
    /// Whether the next operator jumps on what this one computes.
    pub(super) fn result_is_jumped_on(&self) -> bool {
        for op in &self.body.code[self.body.next..] {
            match &op.kind {
                OpKind::Wasm(Operator::I32Eqz) => {}
                OpKind::Wasm(
                    Operator::BrIf { .. }
                    | Operator::If { .. }
                    | Operator::Select
                    | Operator::TypedSelect { .. },
                ) => return true,
                _ => return false,
            }
        }
        false
    }

    /// Leaves a comparison to the operator that jumps on it.
    pub(super) fn leave_condition(&mut self, operation: u8, left: Entry, right: Entry) {
        let wide = left.wide;
        let left = self.reg_of(left);
        let right = match right.at {
            At::Const(bits) if fits(bits, wide) => Right::Imm(bits as i32),
            _ => Right::Reg(self.reg_of(right)),
        };
        self.body.condition = Some(Condition {
            operation,
            wide,
            left,
            right,
        });
    }

    /// `i32.eqz` on a comparison that waits.
    pub(super) fn invert_condition(&mut self) -> bool {
        let waits = self.body.condition.is_some();
        self.body.condition = self.body.condition.map(Condition::inverted);
        waits
    }

    /// The comparison that waits, or else: the top operand is not 0.
    pub(super) fn take_condition(&mut self) -> Condition {
        if let Some(condition) = self.body.condition.take() {
            return condition;
        }
        let entry = self.pop();
        Condition {
            operation: op::JNE,
            wide: false,
            left: self.reg_of(entry),
            right: Right::Imm(0),
        }
    }

    pub(super) fn jump_on(&mut self, condition: Condition, to: Label) {
        let Condition {
            operation,
            wide,
            left,
            right,
        } = condition;
        match (right, wide) {
            (Right::Imm(imm), true) => self.asm.jump_if_imm(operation, left, imm, to),
            (Right::Imm(imm), false) => self.asm.jump32_if_imm(operation, left, imm, to),
            (Right::Reg(right), true) => self.asm.jump_if(operation, left, right, to),
            (Right::Reg(right), false) => self.asm.jump32_if(operation, left, right, to),
        }
    }

    pub(super) fn release_condition(&mut self, condition: Condition) {
        self.release(condition.left);
        if let Right::Reg(reg) = condition.right {
            self.release(reg);
        }
    }

    /// `select`: the first if the condition holds, else the second.
    pub(super) fn select(&mut self) {
        let mut condition = self.take_condition();
        if bug::is(Bug::SelectOther) {
            condition = condition.inverted();
        }
        let second = self.pop();
        let first = self.pop();
        let over = self.asm.label();
        let target = self.target();
        let result = match target {
            Some(reg) if self.is_in(second, reg) => {
                self.jump_on(condition.inverted(), over);
                self.move_into(reg, first);
                reg
            }
            Some(reg) if self.is_in(first, reg) || !condition.reads(reg) => {
                self.move_into(reg, first);
                self.jump_on(condition, over);
                self.move_into(reg, second);
                reg
            }
            _ => {
                let reg = self.own(first);
                self.jump_on(condition, over);
                self.move_into(reg, second);
                reg
            }
        };
        self.asm.bind(over);
        self.release_condition(condition);
        self.discard(second);
        if first.at != At::Reg(result) {
            self.discard(first);
        }
        self.push_reg(result, first.wide);
    }
}
