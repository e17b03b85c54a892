//! A list's registers: to their homes before the loop, and back behind it.

use super::super::ir::{Gauge, Reduce, Update};
use super::super::list::{End, Form};
use super::MemoryAt;
use super::copy::{Copy, LEN};
use super::lanes::Home;
use crate::bug::{self, Bug};
use Reg::{R0, R1, R2, R3, R4, R5, R9, R10};
use ashway_abi::context;
use ashway_check::bpf::{Reg, Size, op};

impl Copy<'_> {
    /// Registers into the form they have, accumulators to nothing, parameters to all
    /// lanes.
    pub(super) fn begin(&mut self) {
        let len = self.slot(LEN);
        self.asm.store(Size::D, R9, len, R3);
        self.registers_pointer();
        for (index, form) in self.list.forms() {
            let at = (index * 8) as i16;
            self.asm.load(Size::D, R0, R4, at);
            match form {
                Form::Masked(mask) => self.and(R0, *mask),
                Form::Folded => self.fold(),
                // Adler's, which has no form here.
                Form::Reduced => {}
            }
            self.asm.store(Size::D, R4, at, R0);
        }
        for placed in self.list.pipes() {
            for index in 0..placed.pipe.registers().len() {
                let place = placed.first_register + index;
                let home = self.homes[place];
                let updates = placed.pipe.updates();
                if updates.iter().any(|(id, _)| id.index() == index) {
                    // A zero that the verifier does not know.
                    self.asm.load(Size::D, R0, R9, context::ZERO);
                } else {
                    self.asm.load(Size::D, R0, R4, (place * 8) as i16);
                    self.replicate(placed.pipe.gauge());
                }
                match home {
                    Home::Register(register) => self.asm.mov(register, R0),
                    Home::Pair { all, high } => {
                        self.asm.mov(all, R0);
                        self.asm.mov(high, R0);
                    }
                    Home::Slot(at) => self.asm.store(Size::D, R9, at, R0),
                }
            }
        }
        // The first turn must look like any other.
        self.asm.load(Size::D, R0, R9, context::ZERO);
        for register in [R1, R2, R3] {
            self.asm.alu32(op::XOR, register, R0);
        }
    }

    /// `r4` = the list's registers in memory.
    pub(super) fn registers_pointer(&mut self) {
        let registers = self.places.registers as i32;
        match self.places.memory {
            MemoryAt::Arena => {
                self.asm.alu32_imm(op::MOV, R4, registers);
                self.asm.arena_cast(R4, R4);
            }
            MemoryAt::Array { base, .. } => {
                self.asm.load(Size::D, R4, R10, base);
                self.asm.alu_imm(op::ADD, R4, registers);
            }
        }
    }

    /// `r0` in every lane. Clobbers `r5`.
    pub(super) fn replicate(&mut self, gauge: Gauge) {
        self.and(R0, gauge.mask());
        let mut bits = gauge.bits();
        while bits < 64 {
            self.asm.mov(R5, R0);
            self.asm.alu_imm(op::LSH, R5, bits as i32);
            self.asm.alu(op::OR, R0, R5);
            bits *= 2;
        }
    }

    /// `register` &= `mask`. Clobbers `r5`.
    pub(super) fn and(&mut self, register: Reg, mask: u64) {
        match mask {
            u64::MAX => {}
            0xffff_ffff => self.asm.alu32(op::MOV, register, register),
            _ => {
                self.asm.load_imm(R5, mask);
                self.asm.alu(op::AND, register, R5);
            }
        }
    }

    /// `r0` = its ones' complement sum of 16 bits. Clobbers `r5`.
    pub(super) fn fold(&mut self) {
        // 64 bits, then 33, 33, 17, 17, 16.
        for bits in [32, 32, 16, 16, 16] {
            self.asm.mov(R5, R0);
            self.asm.alu_imm(op::RSH, R5, bits);
            if bits == 32 {
                self.asm.alu32(op::MOV, R0, R0);
            } else {
                self.asm.alu_imm(op::AND, R0, 0xffff);
            }
            self.asm.alu(op::ADD, R0, R5);
        }
    }

    /// Accumulators into the list's registers.
    pub(super) fn finish(&mut self) {
        self.registers_pointer();
        for placed in self.list.pipes() {
            for (id, update) in placed.pipe.updates() {
                let place = placed.first_register + id.index();
                let Update::Reduce(how, _) = *update else {
                    continue;
                };
                match self.homes[place] {
                    Home::Register(register) => self.asm.mov(R0, register),
                    Home::Pair { all, high } => {
                        // All, less the high halves where they were: the low ones.
                        self.asm.mov(R0, all);
                        self.asm.mov(R5, high);
                        self.asm.alu_imm(op::LSH, R5, 32);
                        self.asm.alu(op::SUB, R0, R5);
                        self.asm.alu(op::ADD, R0, high);
                    }
                    Home::Slot(at) => self.asm.load(Size::D, R0, R9, at),
                }
                self.combine(how, placed.pipe.gauge(), (place * 8) as i16);
            }
        }
        for (index, end) in self.list.ends() {
            let at = (index * 8) as i16;
            self.asm.load(Size::D, R0, R4, at);
            match end {
                End::Masked(mask) => self.and(R0, *mask),
                End::Rolled(gauge) => self.roll(*gauge),
            }
            self.asm.store(Size::D, R4, at, R0);
        }
    }

    /// `r0`'s lanes into the register at `r4` plus `at`. Clobbers `r0` and `r5`.
    fn combine(&mut self, how: Reduce, gauge: Gauge, at: i16) {
        let operation = match how {
            Reduce::Sum | Reduce::Ones => op::ADD,
            Reduce::Or => op::OR,
            _ => op::XOR,
        };
        if operation != op::ADD {
            let mut bits = 32;
            while bits >= gauge.bits() {
                self.asm.mov(R5, R0);
                self.asm.alu_imm(op::RSH, R5, bits as i32);
                self.asm.alu(operation, R0, R5);
                bits /= 2;
            }
            self.and(R0, gauge.mask());
        }
        self.asm.load(Size::D, R5, R4, at);
        if bug::is(Bug::PipeKernelRegistersLost) {
            return;
        }
        self.asm.alu(operation, R0, R5);
        if how == Reduce::Ones {
            self.fold();
        }
        self.asm.store(Size::D, R4, at, R0);
    }

    /// `r0` = `r0` turned right by the length. Clobbers `r1`, `r2`, `r5`.
    fn roll(&mut self, gauge: Gauge) {
        let len = self.slot(LEN);
        self.asm.load(Size::D, R1, R9, len);
        self.asm.alu_imm(op::AND, R1, gauge.bytes() as i32 - 1);
        self.asm.alu_imm(op::LSH, R1, 3);
        self.asm.mov(R2, R0);
        self.asm.alu(op::RSH, R2, R1);
        // By 64 is by 0, which a key of 64 bits that is not turned does not mind.
        self.asm.mov_imm(R5, gauge.bits() as i32);
        self.asm.alu(op::SUB, R5, R1);
        self.asm.alu(op::LSH, R0, R5);
        self.asm.alu(op::OR, R0, R2);
        self.and(R0, gauge.mask());
    }
}
