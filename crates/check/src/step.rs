//! What one instruction does to what is known.

use super::arith;
use super::branch::Ways;
use super::state::{REGS, State, fact};
use super::subprogram::Within;
use super::value::{Base, Num, PACKET_MOST, Packet, Region, Tag, Value};
use super::violation::{Checked, Rule};
use super::{Around, Shape};
use crate::bpf::form::{Form, Operand, form};
use crate::bpf::{Image, Insn, MapRef, op, print_one};
use crate::bug::{self, Bug};
use ashway_abi::{MemoryKind, context, trusted};

/// Follows the instructions of a block.
pub(super) struct Step<'a> {
    pub(super) image: &'a Image,
    pub(super) shape: &'a Shape,
    /// The instruction.
    pub(super) at: usize,
    pub(super) state: State,
    /// Places so far that take fuel or tick.
    pub(super) charges: u32,
    /// Whose instructions these are.
    pub(super) within: Within<'a>,
}

impl Step<'_> {
    /// All instructions up to there. What holds where the last one jumps to, and
    /// behind it.
    pub(super) fn block(&mut self, end: usize) -> Checked<Ways> {
        while self.at < end {
            let insn = Insn::decode(self.image.insns[self.at]);
            let form = form(insn).ok_or(Rule::Instruction)?;
            if let Form::Branch { wide, op, src } = form {
                return self.branch(wide, op, insn.dst, src);
            }
            self.insn(insn, form)?;
            self.at += 1 + usize::from(matches!(form, Form::Imm64 { .. }));
        }
        Ok([Some(self.state.clone()), Some(self.state.clone())])
    }

    /// The instruction and what its registers hold, in words.
    pub(super) fn describe(&self) -> String {
        let insn = Insn::decode(self.image.insns[self.at]);
        let regs = [insn.dst, insn.src];
        let regs = regs.map(|reg| format!("; r{reg}: {:?}", self.state.reg(reg)));
        print_one(insn) + &regs.concat()
    }

    /// Everything but jumps.
    fn insn(&mut self, insn: Insn, form: Form) -> Checked {
        self.within_bounds(insn, form)?;
        let dst = insn.dst;
        let value = match form {
            Form::Alu { wide, op, src, .. } => self.alu(dst, wide, op, src)?,
            Form::Neg { wide } => {
                let num = self.number(dst)?;
                Value::Num(arith::alu(wide, op::SUB, Num::exactly(0), num))
            }
            Form::Mov { wide, from, src } => self.mov(wide, from, src)?,
            Form::Cast { src } if self.shape.memory == MemoryKind::Arena => {
                Value::In(Region::Arena, self.number(src)?.low())
            }
            Form::Cast { .. } => return Err(Rule::Access),
            Form::Swap { bits, .. } => {
                self.number(dst)?;
                Value::Num(Num::of_bytes(u32::from(bits) / 8))
            }
            Form::Load { size, signed, src } => {
                let pointer = self.pointer(src, insn.off)?;
                self.load(pointer, size, signed)?
            }
            Form::Imm64 { low } => self.imm64(insn, low)?,
            Form::Store { size, src } => {
                let pointer = self.pointer(dst, insn.off)?;
                return self.store(pointer, size, src);
            }
            Form::Atomic { wide, what, .. } => return self.atomic(insn, wide, what),
            Form::Call { helper } => return self.call(helper),
            Form::CallOwn { distance } => return self.call_own(distance),
            Form::Exit if matches!(self.within, Within::Subprogram(_)) => return self.return_own(),
            Form::Exit if self.state.has(fact::MAY_BE_LOCKED) && !bug::is(Bug::CheckNoLock) => {
                return Err(Rule::Lock);
            }
            Form::Exit => return self.number(0).map(|_| ()),
            Form::MayGoto => {
                self.charges += u32::from(!self.handler_may_run());
                return Ok(());
            }
            Form::Jump { .. } | Form::Branch { .. } => return Ok(()),
        };
        self.write(dst, value)
    }

    /// Whether this can be a handler's code, not that around it.
    pub(super) fn handler_may_run(&self) -> bool {
        self.shape.around == Around::Stub || self.state.has(fact::MAY_BE_LOCKED)
    }

    /// What a register holds.
    pub(super) fn read(&self, reg: u8) -> Checked<Value> {
        match self.state.reg(reg) {
            // A subprogram has no stack.
            Value::In(Region::Stack, _) if matches!(self.within, Within::Subprogram(_)) => {
                Err(Rule::Unset)
            }
            Value::Unset => Err(Rule::Unset),
            value => Ok(value),
        }
    }

    /// Where an access by a register goes.
    pub(super) fn pointer(&self, reg: u8, off: i16) -> Checked<Value> {
        let by = Num::exactly(i64::from(off) as u64);
        Ok(match self.read(reg)? {
            Value::In(..) if off == 0 => self.read(reg)?,
            Value::In(region, at) => Value::In(region, arith::alu(true, op::ADD, at, by)),
            Value::Packet(packet) => Value::Packet(Packet {
                off: packet.off + i32::from(off),
                ..packet
            }),
            value => value,
        })
    }

    pub(super) fn number(&self, reg: u8) -> Checked<Num> {
        match self.read(reg)? {
            Value::Num(num) => Ok(num),
            _ => Err(Rule::Pointer),
        }
    }

    pub(super) fn operand(&self, operand: Operand) -> Checked<Value> {
        match operand {
            Operand::Reg(reg) => self.read(reg),
            Operand::Imm(imm) => Ok(Value::number(i64::from(imm) as u64)),
        }
    }

    pub(super) fn write(&mut self, reg: u8, value: Value) -> Checked {
        if usize::from(reg) >= REGS {
            return Err(Rule::Instruction);
        }
        self.state.set_reg(reg, value);
        Ok(())
    }

    fn mov(&self, wide: bool, from: u8, src: Operand) -> Checked<Value> {
        match self.operand(src)? {
            Value::Num(num) => Ok(Value::Num(match (src, num.tag) {
                // The low half at least is a copy.
                (Operand::Reg(src), Tag::None | Tag::LowBits(..)) if from == 0 => {
                    arith::moved(wide, from, num).tagged(Tag::LowBits(src, 32))
                }
                _ => arith::moved(wide, from, num),
            })),
            pointer if wide && from == 0 => Ok(pointer),
            _ => Err(Rule::Pointer),
        }
    }

    fn alu(&mut self, dst: u8, wide: bool, operation: u8, src: Operand) -> Checked<Value> {
        match (self.read(dst)?, self.operand(src)?) {
            (Value::Num(a), Value::Num(b)) => {
                let tag = self.tag(wide, operation, a, b);
                let result = arith::alu(wide, operation, a, b);
                Ok(Value::Num(result.tagged(tag)))
            }
            (pointer, Value::Num(by)) if wide && matches!(operation, op::ADD | op::SUB) => {
                self.offset(pointer, operation, by)
            }
            (Value::Num(by), pointer) if wide && operation == op::ADD => {
                self.offset(pointer, operation, by)
            }
            _ => Err(Rule::Pointer),
        }
    }

    /// Where the result of `a OP b` comes from.
    fn tag(&self, wide: bool, operation: u8, a: Num, b: Num) -> Tag {
        const FUEL: Tag = Tag::Word(context::FUEL);
        const RESERVE: Tag = Tag::Word(context::RESERVE);
        const CPU_SHIFT: u64 = context::BYTES.trailing_zeros() as u64;
        const LOCK_SHIFT: u64 = trusted::LOCK_STRIDE.trailing_zeros() as u64;
        let debt = self.state.has(fact::DEBT);
        // A charge is a 32-bit number.
        let charge = b.max <= u32::MAX.into();
        match (operation, a.tag, b.tag, b.constant()) {
            (op::AND, _, _, Some(mask)) if mask.trailing_zeros() > 0 && mask != 0 => {
                Tag::Even(mask.trailing_zeros())
            }
            (op::AND, Tag::LowBits(of, bits), _, Some(mask)) => {
                Tag::LowBits(of, bits.min(mask.trailing_ones()))
            }
            (op::ADD | op::XOR, Tag::Even(bits), _, Some(by)) if by.trailing_zeros() > 0 => {
                Tag::Even(bits.min(by.trailing_zeros()))
            }
            _ if !wide => Tag::None,
            (op::ADD, FUEL, RESERVE, _) | (op::ADD, RESERVE, FUEL, _) if !debt => Tag::Total,
            (op::SUB, Tag::Total, Tag::Given, _) if debt => Tag::Rest,
            (op::ADD, Tag::Now, ..) if b.max <= self.shape.budget.ns => Tag::Later,
            (op::SUB, Tag::Word(word), ..) if charge => Tag::Spent(word, b.min >= 1),
            (op::SUB, Tag::Spent(word, paid), ..) if charge => Tag::Spent(word, paid || b.min >= 1),
            (op::LSH, Tag::Cpu, _, Some(CPU_SHIFT)) if a.max < self.shape.cpus.into() => {
                Tag::CpuOffset
            }
            (op::LSH, of, _, Some(LOCK_SHIFT))
                if (of == Tag::Cpu || bug::is(Bug::CheckAnyLock)) && a.max < self.locks() =>
            {
                Tag::LockOffset
            }
            (op::ADD, Tag::LockOffset, _, Some(by)) if by == self.first_lock() => Tag::OwnLock,
            (op::LSH, _, _, Some(bits @ 1..=16)) => Tag::Even(bits as u32),
            _ => Tag::None,
        }
    }

    /// A pointer, moved.
    fn offset(&mut self, pointer: Value, operation: u8, by: Num) -> Checked<Value> {
        match pointer {
            Value::In(Region::Contexts, _) if operation == op::ADD && by.tag == Tag::CpuOffset => {
                Ok(Value::begin(Region::Context))
            }
            Value::In(Region::Arena | Region::Contexts | Region::Md, _) => Err(Rule::Pointer),
            Value::In(region, at) => {
                let mut moved = arith::alu(true, operation, at, by);
                if at.constant() == Some(0) {
                    moved.tag = by.tag;
                }
                Ok(Value::In(region, moved))
            }
            Value::Packet(packet) => self.move_packet(packet, operation, by).map(Value::Packet),
            _ => Err(Rule::Pointer),
        }
    }

    fn move_packet(&mut self, packet: Packet, operation: u8, by: Num) -> Checked<Packet> {
        if let Some(by) = by.constant() {
            let by = i32::try_from(by as i64).map_err(|_| Rule::Packet)?;
            let off = match operation {
                op::ADD => packet.off.checked_add(by),
                _ => packet.off.checked_sub(by),
            };
            let off = off.filter(|off| off.unsigned_abs() <= PACKET_MOST);
            return off.map(|off| Packet { off, ..packet }).ok_or(Rule::Packet);
        }
        if operation == op::SUB || by.max > PACKET_MOST.into() {
            return Err(Rule::Packet);
        }
        let base = Base::Moved(self.at);
        let older = |value| matches!(value, Value::Packet(packet) if packet.base == base);
        self.state.forget(older);
        Ok(Packet::begin(base))
    }

    fn imm64(&self, insn: Insn, low: u32) -> Checked<Value> {
        let high = self.image.insns[self.at + 1] >> 32;
        let used = self.image.map_at(self.at);
        let named = used.filter(|used| self.shape.names(used.map));
        match (insn.src, named) {
            (0, _) if used.is_none() => Ok(Value::number(u64::from(low) | high << 32)),
            (1, Some(used)) if used.value_offset.is_none() => Ok(Value::Map(used.map)),
            (2, Some(used)) => {
                let region = match used.map {
                    MapRef::Context if used.value_offset == Some(0) => Region::Contexts,
                    MapRef::Trusted => Region::Trusted,
                    MapRef::Memory if self.shape.memory == MemoryKind::Array => Region::Memory,
                    _ => return Err(Rule::Map),
                };
                let at = used.value_offset.unwrap_or(0);
                Ok(Value::In(region, Num::exactly(at.into())))
            }
            _ => Err(Rule::Map),
        }
    }
}
