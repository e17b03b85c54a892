//! A commutative pipe over the lanes of one register.
//!
//! What could carry from lane to lane is kept from it by masks (Warren, *Hacker's
//! Delight*, §2-18).

use super::super::ir::{Binary, Gauge, Op, Pipe, Reduce, Shift, Tail, Update, Value};
use crate::bug::{self, Bug};
use Reg::R9;
use ashway_check::bpf::{Assembler, Reg, Size, op};

/// Where something that lasts is kept.
#[derive(Clone, Copy, Debug)]
pub(super) enum Home {
    Register(Reg),
    /// Two sums, of words of 64 bits and of their higher halves: together those of
    /// both halves, which the first alone loses by carries beyond it.
    Pair {
        all: Reg,
        high: Reg,
    },
    /// In the context, at this offset.
    Slot(i16),
}

/// Whether words are summed as halves of 64 bits: those of 32, and of 16 where a
/// carry counts as much as what it is carried to.
pub(super) const fn in_halves(how: Reduce, gauge: Gauge) -> bool {
    matches!(
        (how, gauge),
        (Reduce::Ones, _) | (Reduce::Sum, Gauge::Bits32)
    )
}

/// No register is free.
pub(super) struct Exhausted;

/// Where a value is.
#[derive(Clone, Copy)]
enum At {
    Register(Reg),
    /// In the context.
    Slot(i16),
    Const(u64),
}

pub(super) struct Lanes<'l> {
    asm: &'l mut Assembler,
    pipe: &'l Pipe,
    homes: &'l [Home],
    /// Bit n: register n is free.
    free: u16,
    /// Where the context says how many bytes of the word there are, if not all.
    partial: Option<i16>,
    values: Vec<Option<At>>,
    /// The operator that uses each value last; `usize::MAX` for what updates or
    /// output need.
    last_use: Vec<usize>,
    data: Reg,
}

impl<'l> Lanes<'l> {
    pub(super) fn new(
        asm: &'l mut Assembler,
        pipe: &'l Pipe,
        homes: &'l [Home],
        free: u16,
        partial: Option<i16>,
    ) -> Self {
        let mut last_use = vec![0; pipe.ops().len()];
        for (at, op) in pipe.ops().iter().enumerate() {
            for value in op.values() {
                last_use[value.index()] = at;
            }
        }
        for (_, update) in pipe.updates() {
            let (Update::Set(value) | Update::Reduce(_, value)) = update;
            last_use[value.index()] = usize::MAX;
        }
        last_use[pipe.result().index()] = usize::MAX;
        Self {
            asm,
            pipe,
            homes,
            free,
            partial,
            values: vec![None; pipe.ops().len()],
            last_use,
            data: Reg::R0,
        }
    }

    /// The word in `data` passes. Gives the register of what comes out, and which
    /// registers are free then.
    pub(super) fn pass(&mut self, data: Reg) -> Result<(Reg, u16), Exhausted> {
        self.data = data;
        let all = self.free | 1 << data as u16;
        for at in 0..self.pipe.ops().len() {
            let made = match self.pipe.ops()[at] {
                Op::Input => At::Register(data),
                Op::Const(constant) => At::Const(replicate(constant, self.pipe.gauge())),
                Op::Register(register) => match self.homes[register.index()] {
                    Home::Register(register) => At::Register(register),
                    Home::Slot(slot) => At::Slot(slot),
                    Home::Pair { .. } => unreachable!("who reads what it reduces needs order"),
                },
                op => At::Register(self.operator(op)?),
            };
            self.values[at] = Some(made);
            for value in 0..at {
                if self.last_use[value] == at {
                    self.give_value(value);
                }
            }
        }
        for (id, update) in self.pipe.updates() {
            if let Update::Reduce(how, value) = *update {
                self.reduce(self.homes[id.index()], how, value)?;
            }
        }
        let given = self.result()?;
        Ok((given, all & !(1 << given as u16)))
    }

    fn at(&self, value: Value) -> At {
        self.values[value.index()].expect("values come before their use")
    }

    fn take(&mut self) -> Result<Reg, Exhausted> {
        const ALL: [Reg; 9] = [
            Reg::R0,
            Reg::R1,
            Reg::R2,
            Reg::R3,
            Reg::R4,
            Reg::R5,
            Reg::R6,
            Reg::R7,
            Reg::R8,
        ];
        let free = ALL
            .into_iter()
            .find(|reg| self.free & 1 << *reg as u16 != 0);
        let register = free.ok_or(Exhausted)?;
        self.free &= !(1 << register as u16);
        Ok(register)
    }

    fn give(&mut self, register: Reg) {
        self.free |= 1 << register as u16;
    }

    /// Frees a value's register if it is the value's own.
    fn give_value(&mut self, value: usize) {
        let lasting = matches!(self.pipe.ops()[value], Op::Input | Op::Register(_));
        if let Some(At::Register(register)) = self.values[value]
            && !lasting
        {
            self.give(register);
        }
    }

    /// The value in a register that may be changed.
    fn own(&mut self, value: At) -> Result<Reg, Exhausted> {
        let into = self.take()?;
        match value {
            At::Register(from) => self.asm.mov(into, from),
            At::Slot(at) => self.asm.load(Size::D, into, R9, at),
            At::Const(constant) => self.asm.load_imm(into, constant),
        }
        Ok(into)
    }

    /// `register` = `register` op `value`.
    fn alu(&mut self, operation: u8, register: Reg, value: At) -> Result<(), Exhausted> {
        match value {
            At::Register(value) => self.asm.alu(operation, register, value),
            At::Const(constant) if i64::from(constant as i32) == constant as i64 => {
                self.asm.alu_imm(operation, register, constant as i32);
            }
            value => {
                let own = self.own(value)?;
                self.asm.alu(operation, register, own);
                self.give(own);
            }
        }
        Ok(())
    }

    fn and(&mut self, register: Reg, mask: u64) -> Result<(), Exhausted> {
        if mask == u64::MAX {
            return Ok(());
        }
        self.alu(op::AND, register, At::Const(mask))
    }

    fn operator(&mut self, op: Op) -> Result<Reg, Exhausted> {
        match op {
            Op::Swap(value) => {
                let value = self.at(value);
                self.swap(value)
            }
            Op::Shift(op, value, bits) => {
                let value = self.at(value);
                self.shift(op, value, bits)
            }
            Op::Binary(op, left, right) => {
                let (left, right) = (self.at(left), self.at(right));
                self.binary(op, left, right)
            }
            _ => unreachable!("`missing` refuses it, or it needs no code"),
        }
    }

    fn swap(&mut self, value: At) -> Result<Reg, Exhausted> {
        match self.pipe.gauge() {
            Gauge::Bits8 => self.own(value),
            Gauge::Bits16 => self.shift(Shift::RotateLeft, value, 8),
            gauge => {
                let to = self.own(value)?;
                self.asm.to_be(Size::D, to);
                if gauge == Gauge::Bits32 {
                    let other = self.own(At::Register(to))?;
                    self.asm.alu_imm(op::LSH, to, 32);
                    self.asm.alu_imm(op::RSH, other, 32);
                    self.asm.alu(op::OR, to, other);
                    self.give(other);
                }
                Ok(to)
            }
        }
    }

    fn shift(&mut self, shift: Shift, value: At, bits: u32) -> Result<Reg, Exhausted> {
        let gauge = self.pipe.gauge();
        let width = gauge.bits();
        let to = self.own(value)?;
        if bits == 0 {
            return Ok(to);
        }
        let by = bits as i32;
        match shift {
            Shift::Left => {
                self.asm.alu_imm(op::LSH, to, by);
                self.and(to, replicate(gauge.mask() << bits & gauge.mask(), gauge))?;
            }
            Shift::Right => {
                self.asm.alu_imm(op::RSH, to, by);
                self.and(to, replicate(gauge.mask() >> bits, gauge))?;
            }
            Shift::RightSigned if gauge == Gauge::Bits64 => self.asm.alu_imm(op::ARSH, to, by),
            Shift::RightSigned => {
                self.asm.alu_imm(op::RSH, to, by);
                self.and(to, replicate(gauge.mask() >> bits, gauge))?;
                // With t the sign where it is now and h where it was, what comes in
                // is h and all between.
                let t = self.own(At::Register(to))?;
                self.and(t, replicate(1 << (width - 1 - bits), gauge))?;
                let h = self.own(At::Register(t))?;
                self.asm.alu_imm(op::LSH, h, by);
                self.asm.alu(op::OR, to, h);
                self.asm.alu_imm(op::LSH, t, 1);
                self.asm.alu(op::SUB, h, t);
                self.asm.alu(op::OR, to, h);
                self.give(t);
                self.give(h);
            }
            Shift::RotateLeft => {
                let low = self.shift(Shift::Right, At::Register(to), width - bits)?;
                self.asm.alu_imm(op::LSH, to, by);
                self.and(to, replicate(gauge.mask() << bits & gauge.mask(), gauge))?;
                self.asm.alu(op::OR, to, low);
                self.give(low);
            }
        }
        Ok(to)
    }

    fn binary(&mut self, binary: Binary, left: At, right: At) -> Result<Reg, Exhausted> {
        let gauge = self.pipe.gauge();
        let to = self.own(left)?;
        let bitwise = match binary {
            Binary::And => Some(op::AND),
            Binary::Or => Some(op::OR),
            Binary::Xor => Some(op::XOR),
            Binary::Mul => Some(op::MUL),
            Binary::Add if gauge == Gauge::Bits64 => Some(op::ADD),
            Binary::Sub if gauge == Gauge::Bits64 => Some(op::SUB),
            _ => None,
        };
        if let Some(operation) = bitwise {
            self.alu(operation, to, right)?;
            return Ok(to);
        }
        let high = if bug::is(Bug::PipeKernelCarries) {
            0
        } else {
            replicate(1 << (gauge.bits() - 1), gauge)
        };
        // What the highest bits of the lanes become without a carry into them.
        let top = self.own(At::Register(to))?;
        self.alu(op::XOR, top, right)?;
        let operation = if binary == Binary::Add {
            self.and(to, !high)?;
            op::ADD
        } else {
            self.asm.alu_imm(op::XOR, top, -1);
            self.alu(op::OR, to, At::Const(high))?;
            op::SUB
        };
        self.and(top, high)?;
        let own = self.own(right)?;
        self.and(own, !high)?;
        self.asm.alu(operation, to, own);
        self.give(own);
        self.asm.alu(op::XOR, to, top);
        self.give(top);
        Ok(to)
    }

    /// Ones for the bytes of words that the body sees, or of all that are there.
    fn there(&mut self, gauge: Gauge, up: bool, partial: i16) -> Result<Reg, Exhausted> {
        let bits = self.own(At::Slot(partial))?;
        let bytes = gauge.bytes() as i32;
        if up {
            self.asm.alu_imm(op::ADD, bits, bytes - 1);
        }
        self.asm.alu_imm(op::AND, bits, -bytes & 15);
        // Twice by half: 64 is too far for one shift.
        self.asm.alu_imm(op::LSH, bits, 2);
        let ones = self.own(At::Const(1))?;
        self.asm.alu(op::LSH, ones, bits);
        self.asm.alu(op::LSH, ones, bits);
        self.asm.alu_imm(op::SUB, ones, 1);
        self.give(bits);
        Ok(ones)
    }

    /// Takes the value into what is kept.
    fn reduce(&mut self, home: Home, how: Reduce, value: Value) -> Result<(), Exhausted> {
        let gauge = self.pipe.gauge();
        let up = self.pipe.tail() == Tail::Pad;
        let is_data = self.pipe.ops()[value.index()] == Op::Input;
        let words = match self.partial {
            // Zeros count nothing; what the body makes of them must not.
            Some(partial) if !(is_data && up || bug::is(Bug::PipeKernelTailCounts)) => {
                let there = self.there(gauge, up, partial)?;
                let value = self.at(value);
                self.alu(op::AND, there, value)?;
                At::Register(there)
            }
            _ => self.at(value),
        };
        match (how, home) {
            (Reduce::Xor, _) => self.onto_home(home, op::XOR, words)?,
            (Reduce::Or, _) => self.onto_home(home, op::OR, words)?,
            (_, Home::Pair { all, high }) => {
                self.alu(op::ADD, all, words)?;
                let other = self.own(words)?;
                self.asm.alu_imm(op::RSH, other, 32);
                self.asm.alu(op::ADD, high, other);
                self.give(other);
            }
            _ => {
                let lanes = if in_halves(how, gauge) {
                    Gauge::Bits32
                } else {
                    gauge
                };
                let sum = self.sum(lanes, words)?;
                self.onto_home(home, op::ADD, At::Register(sum))?;
                self.give(sum);
            }
        }
        if let (At::Register(own), At::Register(value)) = (words, self.at(value)) {
            if own != value {
                self.give(own);
            }
        } else if let At::Register(own) = words {
            self.give(own);
        }
        Ok(())
    }

    /// The sum of the lanes, in a register of its own.
    fn sum(&mut self, gauge: Gauge, words: At) -> Result<Reg, Exhausted> {
        let sum = self.own(words)?;
        for bits in [8, 16, 32] {
            if bits < gauge.bits() {
                continue;
            }
            let other = self.own(At::Register(sum))?;
            self.asm.alu_imm(op::RSH, other, bits as i32);
            if bits == 32 {
                self.asm.alu32(op::MOV, sum, sum);
            } else {
                let low = replicate_bits((1 << bits) - 1, 2 * bits);
                self.and(sum, low)?;
                self.and(other, low)?;
            }
            self.asm.alu(op::ADD, sum, other);
            self.give(other);
        }
        Ok(sum)
    }

    fn onto_home(&mut self, home: Home, operation: u8, value: At) -> Result<(), Exhausted> {
        match home {
            Home::Register(register) => self.alu(operation, register, value),
            Home::Pair { .. } => unreachable!("`reduce` takes both"),
            Home::Slot(at) => {
                let own = self.own(At::Slot(at))?;
                self.alu(operation, own, value)?;
                self.asm.store(Size::D, R9, at, own);
                self.give(own);
                Ok(())
            }
        }
    }

    /// What comes out, in a register; behind the end there are zeros.
    fn result(&mut self) -> Result<Reg, Exhausted> {
        let result = self.pipe.result();
        if self.pipe.ops()[result.index()] == Op::Input {
            return Ok(self.data);
        }
        let value = self.at(result);
        let own = match value {
            At::Register(own) if !matches!(self.pipe.ops()[result.index()], Op::Register(_)) => own,
            value => self.own(value)?,
        };
        let Some(partial) = self.partial else {
            return Ok(own);
        };
        if self.pipe.tail() == Tail::Leave && !bug::is(Bug::PipeKernelTailSwapped) {
            let there = self.there(self.pipe.gauge(), false, partial)?;
            self.asm.alu(op::XOR, own, self.data);
            self.asm.alu(op::AND, own, there);
            self.asm.alu(op::XOR, own, self.data);
            self.give(there);
        } else {
            let end = self.there(Gauge::Bits8, true, partial)?;
            self.asm.alu(op::AND, own, end);
            self.give(end);
        }
        Ok(own)
    }
}

/// A word in every lane.
fn replicate(word: u64, gauge: Gauge) -> u64 {
    replicate_bits(word, gauge.bits())
}

fn replicate_bits(word: u64, bits: u32) -> u64 {
    (0..64 / bits).fold(0, |all, lane| all | word << (lane * bits))
}
