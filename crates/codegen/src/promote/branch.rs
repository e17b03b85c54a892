//! Branches, and what they carry along.

use super::control::Kind;
use super::emitter::Emitter;
use super::stack::{At, fits};
use crate::bug::{self, Bug};
use ashway_check::bpf::{Label, Reg, op};
use std::collections::BTreeMap;
use wasmparser::BrTable;

impl<'e> Emitter<'e> {
    /// Copies the top `count` operands to the slots from `base` on; the stack
    /// is left as it is, for the way on which the branch is not taken.
    pub(super) fn settle(&mut self, base: usize, count: usize) {
        if !self.is_settled(base, count) {
            let scratch = self.alloc();
            self.settle_by(base, count, scratch);
            self.release(scratch);
        }
    }

    fn is_settled(&self, base: usize, count: usize) -> bool {
        let top = &self.body.stack[self.body.stack.len() - count..];
        top.iter()
            .zip(base..)
            .all(|(entry, slot)| entry.at == At::Slot(slot) || bug::is(Bug::JoinNotSettled))
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

    pub(super) fn leave_function(&mut self, results: usize) {
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
        let first = u32::from(bug::is(Bug::TableOffByOne));
        for (depth, from) in depths.iter().zip(first..) {
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
