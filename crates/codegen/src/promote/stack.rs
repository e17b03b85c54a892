//! The operand stack, which mostly does not exist.
//!
//! An operand is a constant, a local, a scratch register or a frame slot, and
//! stays what it is until something needs it elsewhere: `local.get` and
//! `i32.const` emit nothing. Where ways join, operands are in the slots of
//! their heights ("flushed"), because both ways must agree.
//!
//! `i32` values are zero-extended in 64-bit registers, always: addresses and
//! bounds checks rely on it.

use super::emitter::{Emitter, width};
use super::frame::{Home, SCRATCH, bit};
use crate::normalise::ir::OpKind;
use ashway_abi::context;
use ashway_check::bpf::{Reg, Size, op};
use wasmparser::Operator;

/// Registers that can be scratch, in the order in which they are taken.
const LOW: [Reg; 6] = [Reg::R0, Reg::R1, Reg::R2, Reg::R3, Reg::R4, Reg::R5];

/// Where a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum At {
    /// Known now; an `i32` is zero-extended.
    Const(u64),
    /// In a local, which has not been written since.
    Local(u32),
    /// In a register of its own.
    Reg(Reg),
    /// In the frame slot of this height.
    Slot(usize),
}

/// An operand.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) at: At,
    /// Whether it is an `i64`.
    pub(super) wide: bool,
}

impl Emitter<'_> {
    pub(super) fn push(&mut self, at: At, wide: bool) {
        self.body.stack.push(Entry { at, wide });
    }

    pub(super) fn push_reg(&mut self, reg: Reg, wide: bool) {
        self.push(At::Reg(reg), wide);
    }

    /// Takes the top operand; a register of its own stays taken until
    /// [`Self::release`].
    pub(super) fn pop(&mut self) -> Entry {
        self.body
            .stack
            .pop()
            .expect("a validated module pops only what it pushed")
    }

    /// Gives a register back; locals' registers are not concerned.
    pub(super) fn release(&mut self, reg: Reg) {
        if self.is_scratch(reg) {
            self.body.busy &= !(1 << reg as u8);
        }
    }

    /// Drops a popped operand.
    pub(super) fn discard(&mut self, entry: Entry) {
        if let At::Reg(reg) = entry.at {
            self.release(reg);
        }
    }

    /// Takes a scratch register; the operand that has waited longest makes room
    /// if none is free. Never between a jump and its label: the other way would
    /// not know.
    pub(super) fn alloc(&mut self) -> Reg {
        let free = self.scratch() & !self.body.busy;
        if let Some(reg) = LOW.into_iter().find(|reg| free & bit(*reg) != 0) {
            self.body.busy |= 1 << reg as u8;
            return reg;
        }
        let oldest = self
            .body
            .stack
            .iter()
            .position(|e| self.is_in_scratch(e.at));
        let height = oldest.expect("no operator holds all registers");
        let At::Reg(reg) = self.body.stack[height].at else {
            unreachable!("the entry was found because it is in a register");
        };
        self.flush_entry(height);
        self.body.busy |= 1 << reg as u8;
        reg
    }

    /// A register that holds the value, to be read only.
    pub(super) fn reg_of(&mut self, entry: Entry) -> Reg {
        match entry.at {
            At::Reg(reg) => reg,
            At::Local(local) => match self.layout().locals[local as usize].home {
                Home::Reg(reg) => reg,
                _ => self.own(entry),
            },
            At::Const(_) | At::Slot(_) => self.own(entry),
        }
    }

    /// A scratch register that holds the value, to be overwritten.
    pub(super) fn own(&mut self, entry: Entry) -> Reg {
        if let At::Reg(reg) = entry.at
            && self.is_scratch(reg)
        {
            return reg;
        }
        let reg = self.alloc();
        self.move_into(reg, entry);
        reg
    }

    /// Copies a value into a register; one instruction, or two for a wide
    /// constant, and nothing else changes.
    pub(super) fn move_into(&mut self, into: Reg, entry: Entry) {
        match entry.at {
            At::Const(bits) => self.asm.load_imm(into, bits),
            At::Reg(reg) if reg == into => {}
            At::Reg(reg) => self.asm.mov(into, reg),
            At::Slot(height) => {
                let slot = self.layout().operand(height);
                self.asm.load(width(entry.wide), into, Reg::R9, slot);
            }
            At::Local(index) => {
                let local = self.layout().locals[index as usize];
                match local.home {
                    Home::Reg(reg) if reg == into => {}
                    Home::Reg(reg) => self.asm.mov(into, reg),
                    Home::Frame | Home::Unread => {
                        let slot = self.layout().local(index);
                        self.asm.load(width(local.wide), into, Reg::R9, slot);
                    }
                }
            }
        }
    }

    /// Whether reading the entry reads this register.
    pub(super) fn is_in(&self, entry: Entry, reg: Reg) -> bool {
        match entry.at {
            At::Reg(its) => its == reg,
            At::Local(local) => self.layout().locals[local as usize].home == Home::Reg(reg),
            At::Const(_) | At::Slot(_) => false,
        }
    }

    /// The register of the local that the next operator writes the result to,
    /// if that is what it does: the result is best made there. Operands that
    /// still wait for the local's old value are moved away.
    pub(super) fn target(&mut self) -> Option<Reg> {
        let next = self.body.code.get(self.body.next)?;
        let OpKind::Wasm(Operator::LocalSet { local_index } | Operator::LocalTee { local_index }) =
            &next.kind
        else {
            return None;
        };
        let Home::Reg(reg) = self.layout().locals[*local_index as usize].home else {
            return None;
        };
        self.detach(*local_index);
        Some(reg)
    }

    /// A register for a result made from the value in `from`, which is given
    /// back unless it is the same.
    pub(super) fn result_from(&mut self, from: Reg) -> Reg {
        match self.target() {
            Some(target) => {
                self.release(from);
                target
            }
            None if self.is_scratch(from) => from,
            None => self.alloc(),
        }
    }

    /// Gives operands that still mean the local's present value, or that of
    /// one that had its register before, registers of their own.
    fn detach(&mut self, local: u32) {
        let home = self.layout().locals[local as usize].home;
        for height in 0..self.body.stack.len() {
            let entry = self.body.stack[height];
            let shares = match home {
                Home::Reg(reg) => self.is_in(entry, reg),
                Home::Frame | Home::Unread => false,
            };
            if shares || entry.at == At::Local(local) {
                let reg = self.own(entry);
                self.body.stack[height].at = At::Reg(reg);
            }
        }
    }

    /// `local.set`.
    pub(super) fn set_local(&mut self, local: u32) {
        let entry = self.pop();
        self.write_local(local, entry);
        self.discard(entry);
    }

    /// `local.tee`.
    pub(super) fn tee_local(&mut self, local: u32) {
        let mut entry = self.pop();
        let home = self.layout().locals[local as usize].home;
        if home == Home::Frame && matches!(entry.at, At::Slot(_)) {
            entry.at = At::Reg(self.own(entry));
        }
        self.write_local(local, entry);
        match home {
            Home::Reg(_) => {
                self.discard(entry);
                self.push(At::Local(local), entry.wide);
            }
            Home::Unread | Home::Frame => self.push(entry.at, entry.wide),
        }
    }

    fn write_local(&mut self, index: u32, entry: Entry) {
        let layout = self.layout();
        let local = layout.locals[index as usize];
        if entry.at != At::Local(index) {
            self.detach(index);
            match local.home {
                Home::Unread => {}
                Home::Reg(reg) => self.move_into(reg, entry),
                Home::Frame => self.store_at(layout.local(index), entry),
            }
        }
        let depth = self.body.controls.len();
        self.body.defined[index as usize].get_or_insert(depth);
    }

    /// Writes a value to an offset in the context.
    pub(super) fn store_at(&mut self, offset: i16, entry: Entry) {
        let size = width(entry.wide);
        if let At::Const(bits) = entry.at
            && (!entry.wide || fits(bits, true))
        {
            self.asm.store_imm(size, Reg::R9, offset, bits as i32);
            return;
        }
        let reg = self.reg_of(entry);
        self.asm.store(size, Reg::R9, offset, reg);
        // What was a register before stays one: it is the caller's to release.
        if !matches!(entry.at, At::Reg(_)) {
            self.release(reg);
        }
    }

    /// Puts every operand where it would be expected after a join, constants
    /// excepted: those are the same on every way.
    pub(super) fn flush(&mut self) {
        self.flush_registers();
        for height in 0..self.body.stack.len() {
            if matches!(self.body.stack[height].at, At::Local(_)) {
                self.flush_entry(height);
            }
        }
    }

    /// Empties the scratch registers.
    pub(super) fn flush_registers(&mut self) {
        for height in 0..self.body.stack.len() {
            if self.is_in_scratch(self.body.stack[height].at) {
                self.flush_entry(height);
            }
        }
    }

    fn scratch(&self) -> u8 {
        if self.body.parked {
            SCRATCH
        } else {
            self.layout().scratch
        }
    }

    pub(super) fn is_scratch(&self, reg: Reg) -> bool {
        self.scratch() & bit(reg) != 0
    }

    fn is_in_scratch(&self, at: At) -> bool {
        matches!(at, At::Reg(reg) if self.is_scratch(reg))
    }

    /// Runs what needs all scratch registers and leaves nothing on the stack:
    /// locals that are in some of them wait in their slots.
    pub(super) fn park(&mut self, operation: impl FnOnce(&mut Self)) {
        self.park_those(|reg| bit(reg) != 0, operation);
    }

    /// The same of what needs all registers.
    pub(super) fn park_all(&mut self, operation: impl FnOnce(&mut Self)) {
        self.park_those(|_| true, operation);
    }

    fn park_those(&mut self, needed: impl Fn(Reg) -> bool, operation: impl FnOnce(&mut Self)) {
        for height in 0..self.body.stack.len() {
            if matches!(self.body.stack[height].at, At::Local(_)) {
                self.flush_entry(height);
            }
        }
        let mut lent = self.live_registers();
        lent.retain(|(reg, ..)| needed(*reg));
        for (reg, size, slot) in &lent {
            self.asm.store(*size, Reg::R9, *slot, *reg);
        }
        self.body.parked = true;
        operation(self);
        self.body.parked = false;
        for (reg, size, slot) in &lent {
            self.asm.load(*size, *reg, Reg::R9, *slot);
        }
    }

    /// The scratch registers that locals live in, with the locals' slots.
    pub(super) fn lent(&self) -> Vec<(Reg, Size, i16)> {
        let mut live = self.live_registers();
        live.retain(|(reg, ..)| bit(*reg) != 0);
        live
    }

    /// Puts the operand at `height` into its slot.
    pub(super) fn flush_entry(&mut self, height: usize) {
        let entry = self.body.stack[height];
        if entry.at == At::Slot(height) {
            return;
        }
        self.note_slot(height);
        self.store_at(self.layout().operand(height), entry);
        self.discard(entry);
        self.body.stack[height].at = At::Slot(height);
    }

    /// The slot of this height is used.
    pub(super) fn note_slot(&mut self, height: usize) {
        self.body.operands = self.body.operands.max(height + 1);
    }

    /// `dst = dst OP src`, where `src` may be a constant.
    pub(super) fn alu_entry(&mut self, operation: u8, wide: bool, dst: Reg, src: Entry) {
        if let At::Const(bits) = src.at
            && fits(bits, wide)
        {
            if wide {
                self.asm.alu_imm(operation, dst, bits as i32);
            } else {
                self.asm.alu32_imm(operation, dst, bits as i32);
            }
            return;
        }
        let reg = self.reg_of(src);
        self.alu(operation, wide, dst, reg);
        self.release(reg);
    }

    /// `dst = dst OP src` in the value's width.
    pub(super) fn alu(&mut self, operation: u8, wide: bool, dst: Reg, src: Reg) {
        if wide {
            self.asm.alu(operation, dst, src);
        } else {
            self.asm.alu32(operation, dst, src);
        }
    }

    /// `dst = dst OP imm` in the value's width.
    pub(super) fn alu_imm(&mut self, operation: u8, wide: bool, dst: Reg, imm: i32) {
        if wide {
            self.asm.alu_imm(operation, dst, imm);
        } else {
            self.asm.alu32_imm(operation, dst, imm);
        }
    }

    /// Launders a value before `and` and `or`. A verifier that knows it to be 0
    /// or -1 follows both ways from there (`maybe_fork_scalars`), and Linux
    /// 6.18.44 loads through a null pointer when it has too many of them to
    /// follow: any file could take the loading process down. Clobbers `zero`.
    pub(super) fn forget_sign(&mut self, wide: bool, reg: Reg, zero: Reg) {
        self.asm.load(Size::D, zero, Reg::R9, context::ZERO);
        self.launder(wide, reg, zero);
    }

    /// XORs a zero unknown to the verifier into `reg`, so that it forgets what
    /// it knows of the value (docs/facts.md, "Laundering").
    pub(super) fn launder(&mut self, wide: bool, reg: Reg, zero: Reg) {
        self.alu(op::XOR, wide, reg, zero);
    }
}

/// Whether a constant can be the immediate of an instruction: those of 64-bit
/// instructions are sign-extended.
pub(super) const fn fits(bits: u64, wide: bool) -> bool {
    !wide || bits as i64 == bits as i32 as i64
}
