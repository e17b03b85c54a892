//! Integer operators: the lowering table.
//!
//! eBPF has most of them. What it lacks is made of shifts and masks (the
//! counts: Warren, "Hacker's Delight" 2nd ed., 5-1, 5-3, 5-4), and where it
//! means something else, division by zero and overflow, the check comes first.

use super::condition::mirrored;
use super::emitter::Emitter;
use super::frame::Home;
use super::stack::{At, Entry, fits};
use crate::bug::{self, Bug};
use ashway_abi::Cause;
use ashway_check::bpf::{Reg, Size, op};
use wasmparser::Operator;

/// What kind of division.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Division {
    wide: bool,
    signed: bool,
    remainder: bool,
}

impl Emitter<'_> {
    /// Translates the operator if it is one of integers; says whether it was.
    pub(super) fn integer(&mut self, operator: &Operator<'_>) -> bool {
        use Operator as O;
        match operator {
            O::I32Const { value } => self.push(At::Const(u64::from(*value as u32)), false),
            O::I64Const { value } => self.push(At::Const(*value as u64), true),

            O::I32Eqz => self.eqz(false),
            O::I64Eqz => self.eqz(true),
            O::I32Eq | O::I64Eq => self.compare(op::JEQ),
            O::I32Ne | O::I64Ne => self.compare(op::JNE),
            O::I32LtS | O::I64LtS => self.compare(op::JSLT),
            O::I32LtU | O::I64LtU if bug::is(Bug::CompareSigned) => self.compare(op::JSLT),
            O::I32LtU | O::I64LtU => self.compare(op::JLT),
            O::I32GtS | O::I64GtS => self.compare(op::JSGT),
            O::I32GtU | O::I64GtU => self.compare(op::JGT),
            O::I32LeS | O::I64LeS => self.compare(op::JSLE),
            O::I32LeU | O::I64LeU => self.compare(op::JLE),
            O::I32GeS | O::I64GeS => self.compare(op::JSGE),
            O::I32GeU | O::I64GeU => self.compare(op::JGE),

            O::I32Add | O::I64Add => self.binary(op::ADD, true),
            O::I32Sub | O::I64Sub => self.binary(op::SUB, false),
            O::I32Mul | O::I64Mul => self.binary(op::MUL, true),
            O::I32And | O::I64And => self.binary(op::AND, true),
            O::I32Or | O::I64Or => self.binary(op::OR, true),
            O::I32Xor | O::I64Xor => self.binary(op::XOR, true),
            O::I32Shl | O::I64Shl => self.shift(op::LSH),
            O::I32ShrS | O::I64ShrS if bug::is(Bug::ShiftUnsigned) => self.shift(op::RSH),
            O::I32ShrS | O::I64ShrS => self.shift(op::ARSH),
            O::I32ShrU | O::I64ShrU => self.shift(op::RSH),
            O::I32Rotl | O::I64Rotl => self.rotate(op::LSH, op::RSH),
            O::I32Rotr | O::I64Rotr => self.rotate(op::RSH, op::LSH),

            O::I32DivS => self.divide(false, true, false),
            O::I32DivU => self.divide(false, false, false),
            O::I32RemS => self.divide(false, true, true),
            O::I32RemU => self.divide(false, false, true),
            O::I64DivS => self.divide(true, true, false),
            O::I64DivU => self.divide(true, false, false),
            O::I64RemS => self.divide(true, true, true),
            O::I64RemU => self.divide(true, false, true),

            O::I32Clz | O::I64Clz => self.leading_zeros(),
            O::I32Ctz | O::I64Ctz => self.trailing_zeros(),
            O::I32Popcnt | O::I64Popcnt => self.population(),

            O::I32WrapI64 => self.wrap(),
            O::I64ExtendI32U => self.zero_extend(),
            O::I64ExtendI32S | O::I64Extend32S => self.sign_extend(Size::W, true),
            O::I64Extend16S => self.sign_extend(Size::H, true),
            O::I64Extend8S => self.sign_extend(Size::B, true),
            O::I32Extend16S => self.sign_extend(Size::H, false),
            O::I32Extend8S => self.sign_extend(Size::B, false),
            _ => return false,
        }
        true
    }

    /// An operation that eBPF has under the same meaning.
    fn binary(&mut self, operation: u8, commutes: bool) {
        let mut right = self.pop();
        let mut left = self.pop();
        let wide = left.wide;
        let target = self.target();
        if commutes {
            let in_target = |entry| target.is_some_and(|reg| self.is_in(entry, reg));
            let is_own = |entry: Entry| matches!(entry.at, At::Reg(_));
            let constant_first = matches!(left.at, At::Const(_));
            if constant_first
                || in_target(right)
                || target.is_none() && is_own(right) && !is_own(left)
            {
                (left, right) = (right, left);
            }
        }
        match target {
            Some(reg) if !self.is_in(right, reg) || left.at == right.at => {
                self.move_into(reg, left);
                self.before_bits(operation, left, reg);
                self.alu_entry(operation, wide, reg, right);
                if left.at != At::Reg(reg) {
                    self.discard(left);
                }
                self.push_reg(reg, wide);
            }
            _ => {
                let reg = self.own(left);
                self.before_bits(operation, left, reg);
                self.alu_entry(operation, wide, reg, right);
                self.push_reg(reg, wide);
            }
        }
    }

    /// Hides the first operand of `and` and `or` from the verifier, unless it
    /// knows nothing of it (it has just been loaded) or all (a constant).
    fn before_bits(&mut self, operation: u8, left: Entry, reg: Reg) {
        let known = match left.at {
            At::Const(_) | At::Slot(_) => false,
            At::Local(local) => self.layout().locals[local as usize].home != Home::Frame,
            At::Reg(_) => true,
        };
        if known && matches!(operation, op::AND | op::OR) {
            let zero = self.alloc();
            self.forget_sign(left.wide, reg, zero);
            self.release(zero);
        }
    }

    /// Amounts count modulo the width: by themselves in a register, by us in a
    /// constant, which the verifier would refuse.
    fn shift(&mut self, operation: u8) {
        let bits = self.amount_mask();
        let top = self.body.stack.last_mut().expect("the amount is there");
        if let At::Const(amount) = &mut top.at {
            *amount &= bits;
        }
        self.binary(operation, false);
    }

    /// The bits of a shift amount that count.
    fn amount_mask(&self) -> u64 {
        let wide = self.body.stack.last().is_some_and(|entry| entry.wide);
        if wide { 63 } else { 31 }
    }

    fn rotate(&mut self, there: u8, back: u8) {
        let mask = self.amount_mask();
        let amount = self.pop();
        let value = self.pop();
        let wide = value.wide;
        let result = self.own(value);
        if let At::Const(amount) = amount.at {
            let amount = amount & (mask - u64::from(bug::is(Bug::RotateShort)));
            if amount != 0 {
                let other = self.alloc();
                self.asm.mov(other, result);
                self.alu_imm(there, wide, result, amount as i32);
                self.alu_imm(back, wide, other, (mask + 1 - amount) as i32);
                self.alu(op::OR, wide, result, other);
                self.release(other);
            }
        } else {
            let other = self.alloc();
            let amount = self.own(amount);
            self.asm.mov(other, result);
            self.alu(there, wide, result, amount);
            // -amount is width - amount, modulo the width.
            self.alu_imm(op::NEG, wide, amount, 0);
            self.alu(back, wide, other, amount);
            self.alu(op::OR, wide, result, other);
            self.release(amount);
            self.release(other);
        }
        self.push_reg(result, wide);
    }

    fn eqz(&mut self, wide: bool) {
        if !wide && self.invert_condition() {
            return;
        }
        self.push(At::Const(0), wide);
        self.compare(op::JEQ);
    }

    fn compare(&mut self, mut operation: u8) {
        let mut right = self.pop();
        let mut left = self.pop();
        if matches!(left.at, At::Const(_)) && !matches!(right.at, At::Const(_)) {
            (left, right) = (right, left);
            operation = mirrored(operation);
        }
        if self.result_is_jumped_on() {
            self.leave_condition(operation, left, right);
        } else if left.wide || !self.compare_without_jump(operation, left, right) {
            self.compare_with_jump(operation, left, right);
        }
    }

    /// `i32` operands are 64-bit numbers, so the sign of a difference says
    /// which is smaller. No jump: nothing to mispredict, and one state for the
    /// verifier instead of two.
    fn compare_without_jump(&mut self, operation: u8, left: Entry, right: Entry) -> bool {
        let (minuend, subtrahend, negated) = match operation {
            op::JLT => (left, right, false),
            op::JGE => (left, right, true),
            op::JGT => (right, left, false),
            op::JLE => (right, left, true),
            op::JEQ | op::JNE => {
                self.compare_equal(operation, left, right);
                return true;
            }
            _ => return false,
        };
        // Constants are zero-extended, immediates are not.
        if let At::Const(bits) = subtrahend.at
            && !fits(bits, true)
        {
            return false;
        }
        let result = self.own(minuend);
        self.alu_entry(op::SUB, true, result, subtrahend);
        self.asm.alu_imm(op::RSH, result, 63);
        if negated {
            self.asm.alu_imm(op::XOR, result, 1);
        }
        self.push_reg(result, false);
        true
    }

    /// A difference of 0 minus 1 is negative, and so is minus any other.
    fn compare_equal(&mut self, operation: u8, left: Entry, right: Entry) {
        let result = self.own(left);
        if right.at != At::Const(0) {
            self.alu_entry(op::XOR, false, result, right);
        }
        if operation == op::JEQ {
            self.asm.alu_imm(op::SUB, result, 1);
        } else {
            self.asm.alu_imm(op::NEG, result, 0);
        }
        self.asm.alu_imm(op::RSH, result, 63);
        self.push_reg(result, false);
    }

    fn compare_with_jump(&mut self, operation: u8, left: Entry, right: Entry) {
        let wide = left.wide;
        let left = self.reg_of(left);
        let over = self.asm.label();
        let result;
        match right.at {
            At::Const(bits) if fits(bits, wide) => {
                result = self.alloc();
                self.asm.mov_imm(result, 1);
                if wide {
                    self.asm.jump_if_imm(operation, left, bits as i32, over);
                } else {
                    self.asm.jump32_if_imm(operation, left, bits as i32, over);
                }
            }
            _ => {
                let right = self.reg_of(right);
                result = self.alloc();
                self.asm.mov_imm(result, 1);
                if wide {
                    self.asm.jump_if(operation, left, right, over);
                } else {
                    self.asm.jump32_if(operation, left, right, over);
                }
                self.release(right);
            }
        }
        self.asm.mov_imm(result, 0);
        self.asm.bind(over);
        self.release(left);
        self.push_reg(result, false);
    }

    /// Traps as WebAssembly does (specification §4.3.2, `idiv`, `irem`); eBPF
    /// gives 0 for a division by zero and knows no overflow.
    fn divide(&mut self, wide: bool, signed: bool, remainder: bool) {
        let divisor = self.pop();
        let dividend = self.pop();
        let kind = Division {
            wide,
            signed,
            remainder,
        };
        let result = self.own(dividend);
        match divisor.at {
            At::Const(bits) if !signed && bits != 0 && fits(bits, wide) => {
                let operation = if remainder { op::MOD } else { op::DIV };
                self.alu_imm(operation, wide, result, bits as i32);
            }
            _ => self.divide_checked(kind, result, divisor),
        }
        if !wide {
            // The verifier knows nothing about a quotient or remainder, not even
            // that the upper half is 0: as an offset into the message it refuses it.
            self.alu(op::MOV, false, result, result);
        }
        self.push_reg(result, wide);
    }

    fn divide_checked(&mut self, kind: Division, result: Reg, divisor: Entry) {
        let wide = kind.wide;
        let by = self.reg_of(divisor);
        let least = (kind.signed && wide).then(|| self.alloc());
        let zero = self.trap(Cause::DivideByZero);
        if bug::is(Bug::DivideByZeroAllowed) {
            // eBPF gives 0.
        } else if wide {
            self.asm.jump_if_imm(op::JEQ, by, 0, zero);
        } else {
            self.asm.jump32_if_imm(op::JEQ, by, 0, zero);
        }
        let operation = if kind.remainder { op::MOD } else { op::DIV };
        if !kind.signed {
            self.alu(operation, wide, result, by);
            self.release(by);
            return;
        }
        // -1 divides without a remainder, and overflows for one dividend. Before
        // Linux 6.12 the instruction itself faulted on that one.
        let divide = self.asm.label();
        let end = self.asm.label();
        if wide {
            self.asm.jump_if_imm(op::JNE, by, -1, divide);
        } else {
            self.asm.jump32_if_imm(op::JNE, by, -1, divide);
        }
        if kind.remainder {
            self.asm.mov_imm(result, 0);
        } else {
            let overflow = if bug::is(Bug::OverflowAllowed) {
                end
            } else {
                self.trap(Cause::Overflow)
            };
            if let Some(least) = least {
                self.asm.load_imm(least, i64::MIN as u64);
                self.asm.jump_if(op::JEQ, result, least, overflow);
            } else {
                self.asm.jump32_if_imm(op::JEQ, result, i32::MIN, overflow);
            }
            self.alu_imm(op::NEG, wide, result, 0);
        }
        self.asm.jump(end);
        self.asm.bind(divide);
        self.asm.signed_div(operation, wide, result, by);
        self.asm.bind(end);
        if let Some(least) = least {
            self.release(least);
        }
        self.release(by);
    }

    /// The ones of the number with every bit below its highest one set too,
    /// taken from the width.
    fn leading_zeros(&mut self) {
        let entry = self.pop();
        let wide = entry.wide;
        let value = self.own(entry);
        let other = self.alloc();
        for shift in [1, 2, 4, 8, 16, 32] {
            if shift < 32 || wide {
                self.asm.mov(other, value);
                self.alu_imm(op::RSH, wide, other, shift);
                self.alu(op::OR, wide, value, other);
            }
        }
        self.alu_imm(op::XOR, wide, value, -1);
        self.release(other);
        self.count_ones(value, wide);
        self.push_reg(value, wide);
    }

    /// The ones of the number that has ones exactly where this one has trailing
    /// zeros: `!x & (x - 1)`.
    fn trailing_zeros(&mut self) {
        let entry = self.pop();
        let wide = entry.wide;
        let value = self.own(entry);
        let other = self.alloc();
        self.asm.mov(other, value);
        self.alu_imm(op::SUB, wide, other, 1);
        self.alu_imm(op::XOR, wide, value, -1);
        self.alu(op::AND, wide, value, other);
        self.release(other);
        self.count_ones(value, wide);
        self.push_reg(value, wide);
    }

    fn population(&mut self) {
        let entry = self.pop();
        let value = self.own(entry);
        self.count_ones(value, entry.wide);
        self.push_reg(value, entry.wide);
    }

    /// Sums within pairs, fours and bytes, then of all bytes by one
    /// multiplication.
    fn count_ones(&mut self, value: Reg, wide: bool) {
        let other = self.alloc();
        let mask = if wide { Some(self.alloc()) } else { None };
        self.asm.mov(other, value);
        self.alu_imm(op::RSH, wide, other, 1);
        self.masked(op::AND, other, 0x55, mask);
        self.alu(op::SUB, wide, value, other);
        self.asm.mov(other, value);
        self.alu_imm(op::RSH, wide, other, 2);
        self.masked(op::AND, other, 0x33, mask);
        self.masked(op::AND, value, 0x33, mask);
        self.alu(op::ADD, wide, value, other);
        self.asm.mov(other, value);
        let four = 4 + i32::from(bug::is(Bug::CountShort));
        self.alu_imm(op::RSH, wide, other, four);
        self.alu(op::ADD, wide, value, other);
        self.masked(op::AND, value, 0x0f, mask);
        self.masked(op::MUL, value, 0x01, mask);
        self.alu_imm(op::RSH, wide, value, if wide { 56 } else { 24 });
        if let Some(mask) = mask {
            self.release(mask);
        }
        self.release(other);
    }

    /// `dst = dst OP` the byte repeated; through `temporary` if in 64 bits.
    fn masked(&mut self, operation: u8, dst: Reg, byte: u8, temporary: Option<Reg>) {
        let bits = u64::from_le_bytes([byte; 8]);
        match temporary {
            Some(temporary) => {
                self.asm.load_imm(temporary, bits);
                self.asm.alu(operation, dst, temporary);
            }
            None => self.asm.alu32_imm(operation, dst, bits as i32),
        }
    }

    fn wrap(&mut self) {
        let entry = self.pop();
        if let At::Const(bits) = entry.at {
            self.push(At::Const(bits & 0xffff_ffff), false);
            return;
        }
        let from = self.reg_of(entry);
        let into = self.result_from(from);
        self.alu(op::MOV, bug::is(Bug::WrapNothing), into, from);
        self.push_reg(into, false);
    }

    /// Nothing to do but to look at it differently; a slot's upper half is not
    /// zero, though.
    fn zero_extend(&mut self) {
        let mut entry = self.pop();
        if let At::Slot(_) = entry.at {
            entry.at = At::Reg(self.own(entry));
        }
        self.push(entry.at, true);
    }

    fn sign_extend(&mut self, from: Size, wide: bool) {
        let entry = self.pop();
        let source = self.reg_of(entry);
        let into = self.result_from(source);
        if bug::is(Bug::ExtendShort) {
            self.asm.movsx(Size::B, wide, into, source);
        } else {
            self.asm.movsx(from, wide, into, source);
        }
        self.push_reg(into, wide);
    }
}
