//! Calls and returns inside the one eBPF function.
//!
//! A call writes the arguments where the callee's locals live, saves the
//! caller's registers in its own frame, notes the number of the call site in
//! the callee's frame, and jumps. A return compares that number in a balanced
//! tree; a function that is called from one place only returns there directly.
//! A single result comes in `r0`, several in the callee's first operand slots.
//! What a call that can come back to its own function does beyond that is in
//! `recursion.rs`.

use super::emitter::{Emitter, Facts, Site, width};
use super::frame::{Home, indirect_targets, is_wide, number_targets};
use super::stack::At;
use crate::bug::{self, Bug};
use ashway_abi::Cause;
use ashway_check::bpf::{Label, Reg, Size};
use std::collections::BTreeMap;

impl Emitter<'_> {
    pub(super) fn call(&mut self, callee: u32) {
        let layout = &self.plan.functions[callee as usize];
        if callee == self.body.index {
            self.own_parameters(layout.params);
        }
        for param in (0..layout.params).rev() {
            let argument = self.pop();
            if layout.locals[param].home != Home::Unread {
                self.store_at(layout.local(param as u32), argument);
            }
            self.discard(argument);
        }
        self.flush_registers();
        self.save_locals();
        let back = self.asm.label();
        self.jump_to(callee, back);
        self.come_back(callee, back);
    }

    /// The table cannot change, so a call through it is a tree of direct calls.
    pub(super) fn call_indirect(&mut self, type_index: u32, table: u32) {
        let targets = indirect_targets(self.shape, type_index, table);
        self.call_one_of(type_index, targets);
    }

    /// A function's number can be stored, so any that is ever named can come.
    pub(super) fn call_number(&mut self, type_index: u32) {
        let targets = number_targets(self.shape, type_index);
        self.call_one_of(type_index, targets);
    }

    /// Pops a key and calls the function that has it; traps if none has.
    /// `targets` is sorted.
    fn call_one_of(&mut self, type_index: u32, targets: impl Iterator<Item = (u32, u32)>) {
        let entry = self.pop();
        let key = self.own(entry);
        let ty = &self.shape.module.types[type_index as usize];
        let results: Vec<bool> = ty.results().iter().map(|ty| is_wide(*ty)).collect();
        let arguments = ty.params().len();
        let base = self.body.stack.len() - arguments;
        for height in base..base + arguments {
            self.flush_entry(height);
        }
        self.flush_registers();
        self.save_locals();

        let trap = self.trap(Cause::IndirectCall);
        let mut calls: Vec<(u32, Label)> = Vec::new();
        let mut known = BTreeMap::new();
        let mut runs = vec![(0, trap)];
        for (position, callee) in targets {
            let label = *known.entry(callee).or_insert_with(|| {
                let label = self.asm.label();
                calls.push((callee, label));
                label
            });
            // Behind the entry the gap begins again, unless the next fills it.
            if runs.last().is_some_and(|(from, _)| *from == position) {
                runs.pop();
            }
            runs.push((position, label));
            runs.push((position + 1, trap));
        }
        self.tree(key, &runs);
        self.release(key);
        let behind = self.asm.label();
        for (callee, label) in &calls {
            self.asm.bind(*label);
            if self.is_too_long() {
                // Nothing will come of it; the operator's end says so.
                continue;
            }
            self.pass_from_slots(*callee, base);
            if results.len() < 2 {
                self.jump_to(*callee, behind);
            } else {
                // Each leaves its results in a frame of its own.
                let back = self.asm.label();
                self.jump_to(*callee, back);
                self.asm.bind(back);
                self.lift_results(*callee, base);
                self.asm.jump(behind);
            }
        }
        for _ in 0..arguments {
            self.pop();
        }
        self.asm.bind(behind);
        self.restore_locals();
        self.body.facts = Facts::default();
        self.push_results(&results);
    }

    /// Writes the arguments that are in slots from `base` on where the callee's
    /// parameters live.
    fn pass_from_slots(&mut self, callee: u32, base: usize) {
        let layout = &self.plan.functions[callee as usize];
        for (param, local) in layout.locals[..layout.params].iter().enumerate() {
            if local.home != Home::Unread {
                let size = width(local.wide);
                let from = self.layout().operand(base + param);
                self.asm.load(size, Reg::R0, Reg::R9, from);
                self.asm
                    .store(size, Reg::R9, layout.local(param as u32), Reg::R0);
            }
        }
    }

    /// Registers that locals live in, with the locals' slots.
    pub(super) fn live_registers(&self) -> Vec<(Reg, Size, i16)> {
        let layout = self.layout();
        let read_later = layout.in_registers.iter().copied().filter(|index| {
            let local = &layout.locals[*index as usize];
            self.body.defined[*index as usize].is_some() && local.lives_at(self.body.next)
        });
        // Operands can mean a local behind the end of its life.
        let operands = self.body.stack.iter().filter_map(|entry| match entry.at {
            At::Local(local) => Some(local),
            _ => None,
        });
        let mut live: Vec<(Reg, Size, i16)> = Vec::new();
        for index in read_later.chain(operands) {
            let local = &layout.locals[index as usize];
            if let Home::Reg(reg) = local.home
                && live.iter().all(|(known, ..)| *known != reg)
            {
                live.push((reg, width(local.wide), layout.local(index)));
            }
        }
        live
    }

    fn save_locals(&mut self) {
        if self.is_frame_pushed() {
            return;
        }
        for (reg, size, slot) in self.live_registers() {
            self.asm.store(size, Reg::R9, slot, reg);
        }
    }

    fn restore_locals(&mut self) {
        if self.is_frame_pushed() || bug::is(Bug::CallKeepsRegisters) {
            return;
        }
        for (reg, size, slot) in self.live_registers() {
            self.asm.load(size, reg, Reg::R9, slot);
        }
    }

    fn jump_to(&mut self, callee: u32, back: Label) {
        let sites = &mut self.sites[callee as usize];
        let id = sites.len();
        sites.push(Site {
            back,
            facts: self.body.facts,
        });
        let layout = &self.plan.functions[callee as usize];
        if layout.call_sites != 1 {
            self.asm
                .store_imm(Size::W, Reg::R9, layout.return_id(), id as i32);
        }
        self.asm.jump(self.entries[callee as usize]);
    }

    fn come_back(&mut self, callee: u32, back: Label) {
        self.asm.bind(back);
        self.restore_locals();
        let layout = &self.plan.functions[callee as usize];
        if layout.call_sites != 1 || layout.calls_out {
            // As the verifier sees it, the return can come from elsewhere.
            self.body.facts = Facts::default();
        }
        if layout.results.len() > 1 {
            self.lift_results(callee, self.body.stack.len());
        }
        self.push_results(&layout.results);
    }

    /// Copies several results from the callee's first slots to those from
    /// `base` on. In a function that has called itself they only move up, and
    /// the last goes first, so that none is overwritten.
    fn lift_results(&mut self, callee: u32, base: usize) {
        let layout = &self.plan.functions[callee as usize];
        for (number, wide) in layout.results.iter().enumerate().rev() {
            let size = width(*wide);
            self.note_slot(base + number);
            let (from, to) = (layout.operand(number), self.layout().operand(base + number));
            if from != to {
                self.asm.load(size, Reg::R0, Reg::R9, from);
                self.asm.store(size, Reg::R9, to, Reg::R0);
            }
        }
    }

    /// One result is in `r0`, several are in their slots.
    fn push_results(&mut self, results: &[bool]) {
        if let [wide] = results[..] {
            self.body.busy |= 1 << Reg::R0 as u8;
            self.push_reg(Reg::R0, wide);
        } else {
            self.push_slots(results);
        }
    }

    /// First in each function but the handler.
    pub(super) fn function_entry(&mut self) {
        let sites = &self.sites[self.body.index as usize];
        if let [site] = sites[..]
            && !self.layout().recursive
        {
            self.body.facts = site.facts;
        } else {
            // Calls after each other look like a loop to the verifier, because
            // the return tree could lead back to the first.
            let trap = self.trap(Cause::Time);
            self.asm.may_goto(trap);
        }
    }

    /// Where the function's returns go.
    pub(super) fn return_dispatch(&mut self, function: u32, returns: Label) {
        self.asm.bind(returns);
        let id = self.plan.functions[function as usize].return_id();
        let runs: Vec<(u32, Label)> = self.sites[function as usize]
            .iter()
            .zip(0..)
            .map(|(site, number)| (number, site.back))
            .collect();
        if runs.len() > 1 {
            self.asm.load(Size::W, Reg::R1, Reg::R9, id);
        }
        self.tree(Reg::R1, &runs);
    }
}
