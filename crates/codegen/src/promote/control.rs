//! Blocks: where ways part and join.
//!
//! At a label the operands are in the slots of their heights; what a branch
//! carries along is moved there first. Values below a block's own cannot change
//! inside it, so flushing them once, where it begins, is enough.

use super::emitter::{Emitter, Facts};
use super::frame::is_wide;
use super::stack::At;
use crate::bug::{self, Bug};
use crate::normalise::ir::{Op, OpKind};
use ashway_abi::MemoryKind;
use ashway_abi::{Cause, context};
use ashway_check::bpf::{Label, Reg, Size};
use wasmparser::{BlockType, Operator};

/// What a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Function,
    Block,
    Loop,
    /// With the label of the `else`.
    If(Label),
}

/// An open block.
#[derive(Clone, Debug)]
pub(super) struct Control {
    pub(super) kind: Kind,
    /// Where a branch goes.
    pub(super) label: Label,
    /// Height of the stack below the block's parameters.
    pub(super) base: usize,
    /// For each parameter and result, whether it is an `i64`.
    params: Vec<bool>,
    results: Vec<bool>,
    /// What holds on every branch to the label; `None` as long as there is none.
    reached: Option<Facts>,
    /// What held where the block began.
    entry: Facts,
}

impl Control {
    /// Values that a branch carries.
    pub(super) fn carried(&self) -> usize {
        match self.kind {
            Kind::Loop => self.params.len(),
            _ => self.results.len(),
        }
    }

    pub(super) fn reach(&mut self, facts: Facts) {
        self.reached = Some(self.reached.map_or(facts, |reached| reached.meet(facts)));
    }
}

impl Emitter<'_> {
    fn block_type(&self, ty: BlockType) -> (Vec<bool>, Vec<bool>) {
        match ty {
            BlockType::Empty => (Vec::new(), Vec::new()),
            BlockType::Type(ty) => (Vec::new(), vec![is_wide(ty)]),
            BlockType::FuncType(index) => {
                let ty = &self.shape.module.types[index as usize];
                let wide =
                    |types: &[wasmparser::ValType]| types.iter().map(|t| is_wide(*t)).collect();
                (wide(ty.params()), wide(ty.results()))
            }
        }
    }

    fn open(&mut self, kind: Kind, params: Vec<bool>, results: Vec<bool>, label: Label) {
        self.body.controls.push(Control {
            kind,
            label,
            base: self.body.stack.len() - params.len(),
            params,
            results,
            reached: None,
            entry: self.body.facts,
        });
    }

    /// The block that the whole function is.
    pub(super) fn open_function(&mut self, results: Vec<bool>) {
        let label = self.body.returns.expect("it was made with the function");
        self.open(Kind::Function, Vec::new(), results, label);
    }

    /// Flushes, and the top `params` operands without exception.
    fn flush_for_block(&mut self, params: usize) {
        self.flush();
        let height = self.body.stack.len();
        for height in height - params..height {
            self.flush_entry(height);
        }
    }

    pub(super) fn block(&mut self, ty: BlockType) {
        let (params, results) = self.block_type(ty);
        self.flush_for_block(params.len());
        let label = self.asm.label();
        self.open(Kind::Block, params, results, label);
    }

    pub(super) fn if_block(&mut self, ty: BlockType) {
        let condition = self.take_condition();
        let (params, results) = self.block_type(ty);
        self.flush_for_block(params.len());
        let otherwise = self.asm.label();
        self.jump_on(condition.inverted(), otherwise);
        self.release_condition(condition);
        let label = self.asm.label();
        self.open(Kind::If(otherwise), params, results, label);
    }

    /// The verifier must find the second arrival at the head to be nothing new,
    /// so that what it knows at the first has to be as good as nothing.
    pub(super) fn loop_block(&mut self, ty: BlockType) {
        let (params, results) = self.block_type(ty);
        self.flush_for_block(params.len());
        self.launder_locals();
        if self.layout().calls_out {
            // A return can arrive, as the verifier sees it, from a call made
            // elsewhere, where less was known of the packet.
            self.body.facts = Facts::default();
        }
        let head = self.asm.here();
        let trap = self.trap(Cause::Time);
        self.asm.may_goto(trap);
        if self.shape.memory == MemoryKind::Array {
            // Without `CAP_PERFMON` the verifier also follows ways that only a
            // speculating CPU takes, and on these it learns more.
            self.launder_locals();
        }
        self.open(Kind::Loop, params, results, head);
    }

    fn launder_locals(&mut self) {
        let regs = self.live_registers();
        if regs.is_empty() {
            return;
        }
        let zero = self.alloc();
        let word = if bug::is(Bug::LaunderChanges) {
            context::FUEL
        } else {
            context::ZERO
        };
        self.asm.load(Size::D, zero, Reg::R9, word);
        for (reg, size, _) in regs {
            self.launder(size == Size::D, reg, zero);
        }
        self.release(zero);
    }

    pub(super) fn else_arm(&mut self) {
        let mut control = self.close();
        let Kind::If(otherwise) = control.kind else {
            unreachable!("a validated module has `else` only in an `if`");
        };
        if !self.body.unreachable {
            self.settle(control.base, control.results.len());
            control.reach(self.body.facts);
            self.asm.jump(control.label);
        }
        self.asm.bind(otherwise);
        self.truncate(control.base);
        self.push_slots(&control.params);
        self.body.facts = control.entry;
        self.body.unreachable = false;
        control.kind = Kind::Block;
        self.body.controls.push(control);
    }

    pub(super) fn end(&mut self) {
        let mut control = self.close();
        let falls_through = !self.body.unreachable;
        match control.kind {
            Kind::Function if falls_through => {
                return self.leave_function(control.results.len());
            }
            Kind::Function | Kind::Loop => return,
            Kind::Block => {}
            // Without `else` the parameters are the results, in place.
            Kind::If(_) => control.reach(control.entry),
        }
        if control.reached.is_none() {
            return;
        }
        if falls_through {
            self.settle(control.base, control.results.len());
            control.reach(self.body.facts);
        }
        if let Kind::If(otherwise) = control.kind {
            self.asm.bind(otherwise);
        }
        self.asm.bind(control.label);
        self.truncate(control.base);
        self.push_slots(&control.results);
        self.body.facts = control.reached.unwrap_or_default();
        self.body.unreachable = false;
    }

    /// Takes the innermost block; locals that got their value in it have none.
    fn close(&mut self) -> Control {
        let control = self.body.controls.pop();
        let depth = self.body.controls.len();
        // It matters for those in registers only.
        for local in &self.layout().in_registers {
            let defined = &mut self.body.defined[*local as usize];
            *defined = defined.filter(|within| *within <= depth);
        }
        control.expect("a validated module closes what it opened")
    }

    fn truncate(&mut self, height: usize) {
        while self.body.stack.len() > height {
            let entry = self.pop();
            self.discard(entry);
        }
    }

    pub(super) fn push_slots(&mut self, wide: &[bool]) {
        for wide in wide {
            let height = self.body.stack.len();
            self.push(At::Slot(height), *wide);
        }
    }

    /// What follows cannot be reached.
    pub(super) fn stop(&mut self) {
        let base = self.body.controls.last().map_or(0, |control| control.base);
        self.truncate(base);
        self.body.unreachable = true;
    }

    /// An operator that cannot be reached: only blocks matter.
    pub(super) fn skip(&mut self, op: &Op<'_>) {
        let OpKind::Wasm(operator) = &op.kind else {
            return;
        };
        match operator {
            Operator::Block { .. } | Operator::Loop { .. } | Operator::If { .. } => {
                self.body.skipped_blocks += 1;
            }
            Operator::End if self.body.skipped_blocks > 0 => self.body.skipped_blocks -= 1,
            Operator::End => self.end(),
            Operator::Else if self.body.skipped_blocks == 0 => self.else_arm(),
            _ => {}
        }
    }
}
