//! Calls and returns inside the one eBPF function.
//!
//! A call writes the arguments where the callee's locals live, saves the
//! caller's registers in its own frame, notes the number of the call site in
//! the callee's frame, and jumps. A return compares that number in a balanced
//! tree; a function that is called from one place only returns there directly.
//! The single result comes in `r0`.

use super::emitter::{Emitter, Facts, Site, width};
use super::frame::{Home, indirect_targets};
use super::stack::{At, Entry};
use crate::bpf::{Label, Reg, Size};
use ashway_abi::Cause;

impl Emitter<'_> {
    pub(super) fn call(&mut self, callee: u32) {
        let layout = &self.plan.functions[callee as usize];
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
        let entry = self.pop();
        let index = self.own(entry);
        let ty = &self.shape.module.types[type_index as usize];
        let arguments = ty.params().len();
        let height = self.body.stack.len();
        for height in height - arguments..height {
            self.flush_entry(height);
        }
        self.flush_registers();
        self.save_locals();

        let trap = self.trap(Cause::IndirectCall);
        let back = self.asm.label();
        let mut calls: Vec<(u32, Label)> = Vec::new();
        let mut runs = vec![(0, trap)];
        for (position, callee) in indirect_targets(self.shape, type_index, table) {
            let known = calls.iter().find(|(c, _)| *c == callee).map(|(_, l)| *l);
            let label = known.unwrap_or_else(|| {
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
        self.tree(index, &runs);
        self.release(index);
        for (callee, label) in &calls {
            self.asm.bind(*label);
            let layout = &self.plan.functions[*callee as usize];
            for param in 0..layout.params {
                if layout.locals[param].home != Home::Unread {
                    let argument = Entry {
                        at: At::Slot(height - arguments + param),
                        wide: layout.locals[param].wide,
                    };
                    self.move_into(Reg::R0, argument);
                    let argument = Entry {
                        at: At::Reg(Reg::R0),
                        ..argument
                    };
                    self.store_at(layout.local(param as u32), argument);
                }
            }
            self.jump_to(*callee, back);
        }
        for _ in 0..arguments {
            self.pop();
        }
        if let Some((callee, _)) = calls.first() {
            self.come_back(*callee, back);
            self.body.facts = Facts::default();
        } else {
            // Every entry is a trap.
            self.asm.bind(back);
            let results: Vec<bool> = ty
                .results()
                .iter()
                .map(|ty| super::frame::is_wide(*ty))
                .collect();
            for wide in results {
                self.push(At::Const(0), wide);
            }
        }
    }

    /// Registers that locals live in, with the locals' slots.
    fn live_registers(&self) -> Vec<(Reg, Size, i16)> {
        let layout = self.layout();
        let locals = layout.locals.iter().zip(&self.body.defined).zip(0..);
        locals
            .filter_map(|((local, defined), index)| match local.home {
                Home::Reg(reg) if defined.is_some() => {
                    Some((reg, width(local.wide), layout.local(index)))
                }
                _ => None,
            })
            .collect()
    }

    fn save_locals(&mut self) {
        for (reg, size, slot) in self.live_registers() {
            self.asm.store(size, Reg::R9, slot, reg);
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
        for (reg, size, slot) in self.live_registers() {
            self.asm.load(size, reg, Reg::R9, slot);
        }
        let layout = &self.plan.functions[callee as usize];
        if layout.call_sites != 1 || layout.calls_out {
            // As the verifier sees it, the return can come from elsewhere.
            self.body.facts = Facts::default();
        }
        match layout.results[..] {
            [] => {}
            [wide] => {
                self.body.busy |= 1 << Reg::R0 as u8;
                self.push_reg(Reg::R0, wide);
            }
            _ => {
                for (height, wide) in layout.results.iter().enumerate() {
                    let result = self.alloc();
                    self.asm
                        .load(width(*wide), result, Reg::R9, layout.operand(height));
                    self.push_reg(result, *wide);
                }
            }
        }
    }

    /// First in each function but the handler.
    pub(super) fn function_entry(&mut self) {
        let sites = &self.sites[self.body.index as usize];
        if let [site] = sites[..] {
            self.body.facts = site.facts;
        } else {
            // Calls after each other look like a loop to the verifier, because
            // the return tree could lead back to the first.
            let trap = self.trap(Cause::Time);
            self.asm.may_goto(trap);
        }
    }

    /// Where the function's returns go.
    pub(super) fn return_dispatch(&mut self) {
        let returns = self.body.returns.expect("it was made with the function");
        self.asm.bind(returns);
        let index = self.body.index as usize;
        let id = self.layout().return_id();
        let runs: Vec<(u32, Label)> = self.sites[index]
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
