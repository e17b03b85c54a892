//! A body's operators on lanes.

use iced_x86::{Code, Register};

use super::super::super::ir::{Binary, Count, Gauge, Op, Shift, Value};
use super::super::asm::Arg;
use super::super::emit::Exhausted;
use super::super::table;
use super::Body;
use crate::bug::{self, Bug};

impl Body<'_, '_> {
    /// A constant in every lane.
    pub(super) fn constant(&mut self, constant: u64) -> Arg {
        let bytes = constant.to_le_bytes();
        match self.gauge() {
            Gauge::Bits8 => self.emit.asm.lanes([bytes[0]]),
            Gauge::Bits16 => self.emit.asm.lanes([bytes[0], bytes[1]]),
            Gauge::Bits32 => self
                .emit
                .asm
                .lanes([bytes[0], bytes[1], bytes[2], bytes[3]]),
            Gauge::Bits64 | Gauge::Bits128 => self.emit.asm.lanes(bytes),
        }
    }

    pub(super) fn compute(&mut self, op: Op, to: u8) -> Result<(), Exhausted> {
        match op {
            Op::Input | Op::Const(_) | Op::Register(_) => unreachable!("nothing to compute"),
            Op::Swap(value) => {
                let from = self.in_register(value, to);
                let bytes = self.gauge().bytes() as u8;
                let order: [u8; 16] = std::array::from_fn(|at| {
                    at as u8 / bytes * bytes + (bytes - 1 - at as u8 % bytes)
                });
                let order = self.emit.asm.lanes(order);
                self.emit.v3(table::SHUFFLE, to, from, order);
            }
            Op::Binary(op, left, right) => self.binary(op, to, left, right)?,
            Op::Shift(op, value, bits) => {
                let from = self.in_register(value, to);
                self.shift(op, to, from, bits)?;
            }
            Op::ShiftBy(op, value, bits) => self.shift_by(op, to, value, bits)?,
            Op::Count(what, value) => self.count(what, to, value)?,
            Op::Select(condition, one, other) => self.select(to, condition, one, other)?,
            Op::Table(value) => {
                let from = self.in_register(value, to);
                self.look_up(to, from)?;
            }
        }
        Ok(())
    }

    fn binary(&mut self, op: Binary, to: u8, left: Value, right: Value) -> Result<(), Exhausted> {
        let at = self.lane();
        let v = match op {
            Binary::Add => table::ADD[at],
            Binary::Sub => table::SUB[at],
            Binary::Mul => table::MUL[at],
            Binary::And => table::AND,
            Binary::Or => table::OR,
            Binary::Xor => table::XOR,
            Binary::Min => table::MIN[at],
            Binary::Max => table::MAX[at],
            Binary::Equal | Binary::Below => return self.relation(op, to, left, right),
        };
        let left = self.in_register(left, to);
        let right = self.value(right);
        self.emit.v3(v, to, left, right);
        Ok(())
    }

    fn relation(&mut self, op: Binary, to: u8, left: Value, right: Value) -> Result<(), Exhausted> {
        let at = self.lane();
        let left = self.in_register(left, to);
        let right = self.value(right);
        let one = self.constant(1);
        let below = op == Binary::Below;
        if self.emit.wide() {
            let (k1, left) = (Arg::R(Register::K1), self.emit.v(left));
            if below {
                // Predicate 1: less than; 2: or equal.
                let less = Arg::I(1 + i32::from(bug::is(Bug::PipeWideBelow)));
                self.emit.vop(table::COMPARE[at], &[k1, left, right, less]);
            } else {
                self.emit.vop(table::EQUAL[at], &[k1, left, right]);
            }
            let code = table::LOAD_MASKED[at].z.expect("in every width of lane");
            let to = self.emit.v(to);
            self.emit.asm.masked(code, &[to, one], Register::K1, true);
        } else if below {
            // left >= right where the greater one is left.
            let greater = self.emit.take()?;
            self.emit.v3(table::MAX[at], greater, left, right);
            let greater_arg = self.emit.v(greater);
            self.emit.v3(table::EQUAL[at], to, left, greater_arg);
            self.emit.v3(table::ANDN, to, to, one);
            self.emit.give(greater);
        } else {
            self.emit.v3(table::EQUAL[at], to, left, right);
            self.emit.v3(table::AND, to, to, one);
        }
        Ok(())
    }

    fn shift(&mut self, op: Shift, to: u8, from: u8, bits: u32) -> Result<(), Exhausted> {
        let at = self.lane();
        let width = self.gauge().bits();
        let native = match op {
            Shift::Left => table::LEFT[at],
            Shift::Right => table::RIGHT[at],
            Shift::RightSigned => table::RIGHT_SIGNED[at],
            Shift::RotateLeft => table::ROTATE[at],
        };
        if self.emit.code(native).is_some() {
            self.emit.vshift(native, to, from, bits);
            return Ok(());
        }
        match op {
            // Bytes: shift words, and drop what came from the neighbour.
            Shift::Left => {
                self.emit.vshift(table::LEFT[1], to, from, bits);
                let kept = self.constant(0xff << bits & 0xff);
                self.emit.v3(table::AND, to, to, kept);
            }
            Shift::Right => {
                self.emit.vshift(table::RIGHT[1], to, from, bits);
                let kept = self.constant(0xff >> bits);
                self.emit.v3(table::AND, to, to, kept);
            }
            Shift::RotateLeft => {
                let low = self.emit.take()?;
                if bits == 0 {
                    let from = self.emit.v(from);
                    self.emit.load(to, from);
                } else {
                    self.shift(Shift::Right, low, from, width - bits)?;
                    self.shift(Shift::Left, to, from, bits)?;
                    let low = self.emit.v(low);
                    self.emit.v3(table::OR, to, to, low);
                }
                self.emit.give(low);
            }
            Shift::RightSigned => {
                // With s the sign's place after the shift: (x ^ s) - s.
                self.shift(Shift::Right, to, from, bits)?;
                let sign = self.constant(1 << (width - 1 - bits));
                self.emit.v3(table::XOR, to, to, sign);
                self.emit.v3(table::SUB[at], to, to, sign);
            }
        }
        Ok(())
    }

    /// Lanes of 32 and 64 bits, each by an amount of its own, modulo the width.
    fn shift_by(&mut self, op: Shift, to: u8, value: Value, bits: Value) -> Result<(), Exhausted> {
        let (at, width) = (self.lane(), u64::from(self.gauge().bits()));
        let (by, own) = (self.emit.take()?, self.emit.take()?);
        let bits = self.in_register(bits, by);
        let unmasked = bug::is(Bug::PipeShiftUnmasked);
        let modulus = self.constant(if unmasked { u64::MAX } else { width - 1 });
        self.emit.v3(table::AND, by, bits, modulus);
        let from = self.in_register(value, own);
        let by_arg = self.emit.v(by);
        match op {
            Shift::Left => self.emit.v3(table::LEFT_BY[at], to, from, by_arg),
            Shift::Right => self.emit.v3(table::RIGHT_BY[at], to, from, by_arg),
            Shift::RightSigned => {
                // With s the sign's place after the shift: (x ^ s) - s.
                self.emit.v3(table::RIGHT_BY[at], to, from, by_arg);
                let sign = self.constant(1 << (width - 1));
                self.emit.load(own, sign);
                self.emit.v3(table::RIGHT_BY[at], own, own, by_arg);
                let sign = self.emit.v(own);
                self.emit.v3(table::XOR, to, to, sign);
                self.emit.v3(table::SUB[at], to, to, sign);
            }
            Shift::RotateLeft => {
                // By 0 there is nothing that comes in: shifts by the width give 0.
                self.emit.v3(table::LEFT_BY[at], to, from, by_arg);
                let rest = self.emit.take()?;
                let all = self.constant(width);
                self.emit.load(rest, all);
                self.emit.v3(table::SUB[at], rest, rest, by_arg);
                let rest_arg = self.emit.v(rest);
                self.emit.v3(table::RIGHT_BY[at], rest, from, rest_arg);
                self.emit.v3(table::OR, to, to, rest_arg);
                self.emit.give(rest);
            }
        }
        self.emit.give(own);
        self.emit.give(by);
        Ok(())
    }

    /// Zeros at an end are made ones, and all else zeros; then ones are counted, by a
    /// table of half bytes (Mula 2008).
    fn count(&mut self, what: Count, to: u8, value: Value) -> Result<(), Exhausted> {
        let (at, gauge) = (self.lane(), self.gauge());
        let other = self.emit.take()?;
        let from = self.in_register(value, to);
        match what {
            Count::Ones => {
                let from = self.emit.v(from);
                self.emit.load(to, from);
            }
            Count::Trailing => {
                // !x & (x - 1)
                let wrong = bug::is(Bug::PipeCountTrailing);
                let one = self.constant(u64::from(!wrong));
                self.emit.v3(table::SUB[at], other, from, one);
                let other_arg = self.emit.v(other);
                self.emit.v3(table::ANDN, to, from, other_arg);
            }
            Count::Leading => {
                // The highest one, and ones in all places below it.
                let from = self.emit.v(from);
                self.emit.load(to, from);
                let mut bits = 1;
                while bits < gauge.bits() {
                    self.shift(Shift::Right, other, to, bits)?;
                    let other_arg = self.emit.v(other);
                    self.emit.v3(table::OR, to, to, other_arg);
                    bits *= 2;
                }
                let ones = self.constant(u64::MAX);
                self.emit.v3(table::XOR, to, to, ones);
            }
        }
        let counts: [u8; 16] = std::array::from_fn(|half| half.count_ones() as u8);
        let counts = self.emit.asm.lanes(counts);
        let low = self.emit.asm.lanes([0x0f]);
        self.emit.vshift(table::RIGHT[1], other, to, 4);
        self.emit.v3(table::AND, other, other, low);
        self.emit.v3(table::AND, to, to, low);
        let table = self.emit.take()?;
        self.emit.load(table, counts);
        let (high_arg, low_arg) = (self.emit.v(other), self.emit.v(to));
        self.emit.v3(table::SHUFFLE, other, table, high_arg);
        self.emit.v3(table::SHUFFLE, to, table, low_arg);
        self.emit.give(table);
        self.emit.v3(table::ADD[0], to, to, high_arg);
        match gauge {
            Gauge::Bits8 => {}
            Gauge::Bits64 | Gauge::Bits128 => {
                let zero = self.constant(0);
                self.emit.v3(table::SAD, to, to, zero);
            }
            Gauge::Bits16 | Gauge::Bits32 => {
                self.emit.vshift(table::RIGHT[1], other, to, 8);
                self.emit.v3(table::ADD[0], to, to, high_arg);
                let byte = self.emit.asm.lanes(0xff_u16.to_le_bytes());
                self.emit.v3(table::AND, to, to, byte);
                if gauge == Gauge::Bits32 {
                    let ones = self.emit.asm.lanes(1_u16.to_le_bytes());
                    self.emit.v3(table::MADD_WORDS, to, to, ones);
                }
            }
        }
        self.emit.give(other);
        Ok(())
    }

    fn select(
        &mut self,
        to: u8,
        condition: Value,
        one: Value,
        other: Value,
    ) -> Result<(), Exhausted> {
        let at = self.lane();
        let scratch = self.emit.take()?;
        let condition = self.in_register(condition, scratch);
        if self.emit.wide() {
            let condition = self.emit.v(condition);
            let k1 = Arg::R(Register::K1);
            self.emit.vop(table::TEST[at], &[k1, condition, condition]);
            let other = self.in_register(other, scratch);
            let code = table::BLEND[at].z.expect("in every width of lane");
            let args = [self.emit.v(to), self.emit.v(other), self.value(one)];
            self.emit.asm.masked(code, &args, Register::K1, false);
        } else {
            let zero = self.constant(0);
            self.emit.v3(table::EQUAL[at], to, condition, zero);
            let one = self.in_register(one, scratch);
            let args = [
                self.emit.v(to),
                self.emit.v(one),
                self.value(other),
                self.emit.v(to),
            ];
            self.emit
                .asm
                .op(Code::VEX_Vpblendvb_ymm_ymm_ymmm256_ymm, &args);
        }
        self.emit.give(scratch);
        Ok(())
    }

    /// Each byte's entry in the table.
    fn look_up(&mut self, to: u8, from: u8) -> Result<(), Exhausted> {
        let entries: [u8; 256] = std::array::from_fn(|byte| self.pipe.entry(byte as u8) as u8);
        if self.emit.wide() && self.emit.cpu.permute_bytes {
            // Two look-ups in 128 entries each; the highest bit says which.
            let (high, part) = (self.emit.take()?, self.emit.take()?);
            let from_arg = self.emit.v(from);
            let code = Code::EVEX_Vpermi2b_zmm_k1z_zmm_zmmm512;
            self.emit.asm.op(
                Code::EVEX_Vpmovb2m_kr_zmm,
                &[Arg::R(Register::K1), from_arg],
            );
            self.emit.load(high, from_arg);
            self.emit.load(to, from_arg);
            for (index, quarter) in [(to, 0), (high, 128)] {
                let low = self.emit.asm.constant(&entries[quarter..quarter + 64]);
                self.emit.load(part, low);
                let other = self
                    .emit
                    .asm
                    .constant(&entries[quarter + 64..quarter + 128]);
                let args = [self.emit.v(index), self.emit.v(part), other];
                self.emit.asm.op(code, &args);
            }
            let code = table::BLEND[0].z.expect("in every width of lane");
            let args = [self.emit.v(to), self.emit.v(to), self.emit.v(high)];
            self.emit.asm.masked(code, &args, Register::K1, false);
            self.emit.give(high);
            self.emit.give(part);
            return Ok(());
        }
        // 16 look-ups in 16 entries. Where the index, less the row's first, is 16
        // or more, saturation sets its highest bit, which makes the entry 0.
        let (rest, index, row) = (self.emit.take()?, self.emit.take()?, self.emit.take()?);
        let from = self.emit.v(from);
        self.emit.load(rest, from);
        let beyond = self.emit.asm.lanes([0x70_u8]);
        let sixteen = self.emit.asm.lanes([16_u8]);
        for (at, entries) in entries.as_chunks::<16>().0.iter().enumerate() {
            let entries = self.emit.asm.lanes(*entries);
            self.emit.load(row, entries);
            self.emit.v3(table::ADD_SATURATED, index, rest, beyond);
            let index_arg = self.emit.v(index);
            if at == 0 {
                self.emit.v3(table::SHUFFLE, to, row, index_arg);
            } else {
                self.emit.v3(table::SHUFFLE, row, row, index_arg);
                let row = self.emit.v(row);
                self.emit.v3(table::OR, to, to, row);
            }
            if at < 15 {
                self.emit.v3(table::SUB[0], rest, rest, sixteen);
            }
        }
        self.emit.give(rest);
        self.emit.give(index);
        self.emit.give(row);
        Ok(())
    }
}
