//! Blocks, branches, and comparisons that become jumps.
//!
//! At a label the operands are in the slots of their heights; what a branch
//! carries along is moved there first. Values below a block's own cannot change
//! inside it, so flushing them once, where it begins, is enough.

use super::emitter::{Emitter, Facts};
use super::frame::{Home, is_wide};
use super::stack::{At, Entry, fits};
use crate::bpf::{Label, Reg, Size, op};
use crate::normalise::ir::{Op, OpKind};
use ashway_abi::{Cause, context};
use std::collections::BTreeMap;
use wasmparser::{BlockType, BrTable, Operator};

/// What a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Function,
    Block,
    Loop,
    /// With the label of the `else`.
    If(Label),
}

/// An open block.
#[derive(Clone, Debug)]
pub(super) struct Control {
    kind: Kind,
    /// Where a branch goes.
    label: Label,
    /// Height of the stack below the block's parameters.
    base: usize,
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
    fn carried(&self) -> usize {
        match self.kind {
            Kind::Loop => self.params.len(),
            _ => self.results.len(),
        }
    }

    fn reach(&mut self, facts: Facts) {
        self.reached = Some(self.reached.map_or(facts, |reached| reached.meet(facts)));
    }
}

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
    fn inverted(self) -> Self {
        Self {
            operation: inverse(self.operation),
            ..self
        }
    }

    fn reads(self, reg: Reg) -> bool {
        self.left == reg || self.right == Right::Reg(reg)
    }
}

/// The jump that is taken when the other is not.
fn inverse(operation: u8) -> u8 {
    match operation {
        op::JEQ => op::JNE,
        op::JNE => op::JEQ,
        op::JGT => op::JLE,
        op::JLE => op::JGT,
        op::JGE => op::JLT,
        op::JLT => op::JGE,
        op::JSGT => op::JSLE,
        op::JSLE => op::JSGT,
        op::JSGE => op::JSLT,
        _ => op::JSGE,
    }
}

/// The jump that says the same with the operands exchanged.
pub(super) fn mirrored(operation: u8) -> u8 {
    match operation {
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

impl<'e> Emitter<'e> {
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
    fn take_condition(&mut self) -> Condition {
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

    fn jump_on(&mut self, condition: Condition, to: Label) {
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

    fn release_condition(&mut self, condition: Condition) {
        self.release(condition.left);
        if let Right::Reg(reg) = condition.right {
            self.release(reg);
        }
    }

    /// `select`: the first if the condition holds, else the second.
    pub(super) fn select(&mut self) {
        let condition = self.take_condition();
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

    fn block_type(&self, ty: BlockType) -> (Vec<bool>, Vec<bool>) {
        match ty {
            BlockType::Empty => (Vec::new(), Vec::new()),
            BlockType::Type(ty) => (Vec::new(), vec![is_wide(ty)]),
            BlockType::FuncType(index) => {
                let ty = &self.shape.module.types[index as usize];
                let wide = |types: &[wasmparser::ValType]| types.iter().map(|t| is_wide(*t)).collect();
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
        self.open(Kind::Loop, params, results, head);
    }

    fn launder_locals(&mut self) {
        let layout = self.layout();
        let locals = layout.locals.iter().zip(&self.body.defined);
        let regs: Vec<(Reg, bool)> = locals
            .filter_map(|(local, defined)| match local.home {
                Home::Reg(reg) if defined.is_some() => Some((reg, local.wide)),
                _ => None,
            })
            .collect();
        if regs.is_empty() {
            return;
        }
        let zero = self.alloc();
        self.asm.load(Size::D, zero, Reg::R9, context::ZERO);
        for (reg, wide) in regs {
            self.launder(wide, reg, zero);
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
        for defined in &mut self.body.defined {
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

    fn push_slots(&mut self, wide: &[bool]) {
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

    /// Copies the top `count` operands to the slots from `base` on; the stack
    /// is left as it is, for the way on which the branch is not taken.
    fn settle(&mut self, base: usize, count: usize) {
        if !self.is_settled(base, count) {
            let scratch = self.alloc();
            self.settle_by(base, count, scratch);
            self.release(scratch);
        }
    }

    fn is_settled(&self, base: usize, count: usize) -> bool {
        let top = &self.body.stack[self.body.stack.len() - count..];
        top.iter().zip(base..).all(|(entry, slot)| entry.at == At::Slot(slot))
    }

    /// The same with a register that is free or will not be needed again. A
    /// slot is never written before it is read, because values only move down.
    fn settle_by(&mut self, base: usize, count: usize, scratch: Reg) {
        let first = self.body.stack.len() - count;
        for index in 0..count {
            let entry = self.body.stack[first + index];
            if entry.at == At::Slot(base + index) {
                continue;
            }
            self.note_slot(base + index);
            let offset = self.layout().operand(base + index);
            let mut source = entry;
            let direct = match entry.at {
                At::Reg(_) => true,
                At::Const(bits) => fits(bits, entry.wide),
                At::Local(_) | At::Slot(_) => false,
            };
            if !direct {
                self.move_into(scratch, entry);
                source.at = At::Reg(scratch);
            }
            self.store_at(offset, source);
        }
    }

    fn control(&mut self, depth: u32) -> usize {
        self.body.controls.len() - 1 - depth as usize
    }

    /// Notes a branch to the block, and says where it goes and what it carries.
    fn branch_to(&mut self, depth: u32) -> (Kind, Label, usize, usize) {
        let facts = self.body.facts;
        let index = self.control(depth);
        let control = &mut self.body.controls[index];
        control.reach(facts);
        (control.kind, control.label, control.base, control.carried())
    }

    pub(super) fn br(&mut self, depth: u32) {
        let (kind, label, base, count) = self.branch_to(depth);
        if kind == Kind::Function {
            self.leave_function(count);
        } else {
            self.settle(base, count);
            self.asm.jump(label);
        }
        self.stop();
    }

    pub(super) fn br_if(&mut self, depth: u32) {
        let condition = self.take_condition();
        let (kind, label, base, count) = self.branch_to(depth);
        if count == 0 || kind != Kind::Function && self.is_settled(base, count) {
            self.jump_on(condition, label);
        } else {
            // Everything that can move other operands comes before the jump.
            let scratch = self.alloc();
            let over = self.asm.label();
            self.jump_on(condition.inverted(), over);
            if kind == Kind::Function {
                self.leave_function_by(count, scratch);
            } else {
                self.settle_by(base, count, scratch);
                self.asm.jump(label);
            }
            self.asm.bind(over);
            self.release(scratch);
        }
        self.release_condition(condition);
    }

    pub(super) fn return_now(&mut self) {
        let results = self.layout().results.len();
        self.leave_function(results);
        self.stop();
    }

    fn leave_function(&mut self, results: usize) {
        // Nothing in a register is needed on this way any more, the single
        // result excepted, which is moved first.
        let scratch = if results > 1 { self.alloc() } else { Reg::R0 };
        self.leave_function_by(results, scratch);
        if results > 1 {
            self.release(scratch);
        }
    }

    /// One result goes into `r0`, several into the frame's first slots.
    fn leave_function_by(&mut self, results: usize, scratch: Reg) {
        if results == 1 {
            let top = *self.body.stack.last().expect("the result is there");
            self.move_into(Reg::R0, top);
        } else {
            self.settle_by(0, results, scratch);
        }
        let returns = self.body.returns.expect("it was made with the function");
        self.asm.jump(returns);
    }

    /// `br_table`: a balanced tree of comparisons over runs of equal targets.
    pub(super) fn br_table(&mut self, targets: &BrTable<'e>) {
        let entry = self.pop();
        let index = self.reg_of(entry);
        let count = {
            let control = self.control(targets.default());
            self.body.controls[control].carried()
        };
        let height = self.body.stack.len();
        for height in height - count..height {
            self.flush_entry(height);
        }
        let mut labels: BTreeMap<u32, Label> = BTreeMap::new();
        let mut stubs = Vec::new();
        let depths: Vec<u32> = targets
            .targets()
            .map(|depth| depth.expect("the module was validated"))
            .chain([targets.default()])
            .collect();
        for depth in &depths {
            if labels.contains_key(depth) {
                continue;
            }
            let (kind, label, base, count) = self.branch_to(*depth);
            let direct = count == 0 || kind != Kind::Function && self.is_settled(base, count);
            let to = if direct { label } else { self.asm.label() };
            labels.insert(*depth, to);
            if !direct {
                stubs.push((to, kind, label, base));
            }
        }
        let mut runs: Vec<(u32, Label)> = Vec::new();
        for (depth, from) in depths.iter().zip(0..) {
            let label = labels[depth];
            if runs.last().is_none_or(|(_, last)| *last != label) {
                runs.push((from, label));
            }
        }
        self.tree(index, &runs);
        self.release(index);
        for (stub, kind, label, base) in stubs {
            self.asm.bind(stub);
            if kind == Kind::Function {
                self.leave_function_by(count, Reg::R0);
            } else {
                self.settle_by(base, count, Reg::R0);
                self.asm.jump(label);
            }
        }
        self.stop();
    }

    /// Jumps to the label of the last run that begins at or below `index`.
    pub(super) fn tree(&mut self, index: Reg, runs: &[(u32, Label)]) {
        match runs {
            [] => {}
            [(_, label)] => self.asm.jump(*label),
            [(_, low), (from, high)] => {
                self.asm.jump32_if_imm(op::JGE, index, *from as i32, *high);
                self.asm.jump(*low);
            }
            _ => {
                let (low, high) = runs.split_at(runs.len() / 2);
                let right = self.asm.label();
                self.asm
                    .jump32_if_imm(op::JGE, index, high[0].0 as i32, right);
                self.tree(index, low);
                self.asm.bind(right);
                self.tree(index, high);
            }
        }
    }
}
