//! What one instruction does to what is known.

use super::Shape;
use super::arith;
use super::graph::map_use;
use super::state::{REGS, State, fact};
use super::value::{Base, Num, PACKET_MOST, Packet, Region, Span, Tag, Value};
use super::violation::{Fail, Rule, refuse};
use crate::bpf::form::{Form, Operand};
use crate::bpf::{Image, Insn, MapRef, op};
use crate::promote::MemoryKind;
use ashway_abi::context;

/// What a block does that matters to the loops it is in.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Facts {
    /// A way leads to it.
    pub(super) reached: bool,
    /// It takes fuel, or ticks.
    pub(super) charges: u32,
    pub(super) ticks: u32,
    /// Bit set of registers that grow by a constant, below [`LOOP_MOST`].
    pub(super) grown: u16,
    /// Bit set of registers that are written otherwise.
    pub(super) written: u16,
    /// The same for the context's scratch words, by number.
    pub(super) words_grown: u8,
    pub(super) words_written: u8,
    /// It tries to take a slot of a ring from other CPUs.
    pub(super) contends: bool,
    pub(super) helpers: u32,
}

/// What an index that bounds a loop stays below.
pub(super) const LOOP_MOST: u64 = 1 << 17;

/// Follows the instructions of a block.
pub(super) struct Step<'a> {
    pub(super) image: &'a Image,
    pub(super) shape: &'a Shape,
    /// The instruction.
    pub(super) at: usize,
    pub(super) state: State,
    pub(super) facts: Facts,
}

impl Step<'_> {
    /// Everything but jumps.
    pub(super) fn insn(&mut self, insn: Insn, form: Form) -> Result<(), Fail> {
        let dst = insn.dst;
        match form {
            Form::Alu {
                wide,
                op,
                signed,
                src,
            } => self.alu(dst, wide, op, signed, src),
            Form::Neg { wide } => {
                let num = self.number(dst)?;
                self.write(dst, Value::Num(arith::negate(wide, num)))
            }
            Form::Mov { wide, from, src } => self.mov(dst, wide, from, src),
            Form::Cast { src } if self.shape.memory == MemoryKind::Arena => {
                let span = Span::low(self.number(src)?);
                self.write(dst, Value::In(Region::Arena, span))
            }
            Form::Cast { .. } => refuse(Rule::Access, "an arena cast, but there is no arena"),
            Form::Swap { order, bits } => {
                let num = self.number(dst)?;
                self.write(dst, Value::Num(arith::swapped(order, bits, num)))
            }
            Form::Load { size, signed, src } => {
                let value = self.load(src, insn.off, size, signed)?;
                self.write(dst, value)
            }
            Form::Store { size, src } => self.store(dst, insn.off, size, src),
            Form::Atomic { wide, what, src } => self.atomic(dst, insn.off, wide, what, src),
            Form::Imm64 { low } => self.imm64(insn, low),
            Form::Call { helper } => {
                self.facts.helpers += 1;
                self.facts.written |= 0x3f;
                self.call(helper)
            }
            Form::Exit => self.exit(),
            Form::Jump { .. } | Form::MayGoto | Form::Branch { .. } => Ok(()),
        }
    }

    /// What a register holds.
    pub(super) fn read(&self, reg: u8) -> Result<Value, Fail> {
        match self.state.reg(reg) {
            Value::Unset => refuse(Rule::Unset, format!("r{reg} is not the same on every way")),
            value => Ok(value),
        }
    }

    pub(super) fn number(&self, reg: u8) -> Result<Num, Fail> {
        match self.read(reg)? {
            Value::Num(num) => Ok(num),
            value => refuse(Rule::Pointer, format!("{value:?} is used as a number")),
        }
    }

    pub(super) fn operand(&self, operand: Operand) -> Result<Value, Fail> {
        match operand {
            Operand::Reg(reg) => self.read(reg),
            Operand::Imm(imm) => Ok(Value::number(i64::from(imm) as u64)),
        }
    }

    pub(super) fn write(&mut self, reg: u8, value: Value) -> Result<(), Fail> {
        if usize::from(reg) >= REGS {
            return refuse(Rule::Instruction, "r10 is written");
        }
        self.state.set_reg(reg, value);
        self.facts.written |= 1 << reg;
        Ok(())
    }

    fn mov(&mut self, dst: u8, wide: bool, from: u8, src: Operand) -> Result<(), Fail> {
        let value = match self.operand(src)? {
            Value::Num(num) => {
                let mut result = arith::moved(wide, from, num);
                // The low half at least is a copy.
                if let (Operand::Reg(src), Tag::None | Tag::LowBits(..), 0) = (src, num.tag, from)
                    && src != dst
                {
                    result.tag = Tag::LowBits(src, 32);
                }
                Value::Num(result)
            }
            pointer if wide && from == 0 => pointer,
            pointer => return refuse(Rule::Pointer, format!("a part of {pointer:?}")),
        };
        self.write(dst, value)
    }

    fn alu(
        &mut self,
        dst: u8,
        wide: bool,
        mut operation: u8,
        signed: bool,
        src: Operand,
    ) -> Result<(), Fail> {
        let left = self.read(dst)?;
        let mut right = self.operand(src)?;
        // Adding a negative constant is taking its opposite away.
        if let (op::ADD, true, Value::Num(num)) = (operation, wide, right)
            && let Some(constant) = num.constant()
            && (constant as i64) < 0
        {
            operation = op::SUB;
            right = Value::number(constant.wrapping_neg());
        }
        let (result, grows) = match (left, right) {
            (Value::Num(a), Value::Num(b)) => {
                let result = arith::alu(wide, operation, signed, a, b);
                let grows = operation == op::ADD
                    && wide
                    && b.constant().is_some_and(|by| by > 0)
                    && result.max <= LOOP_MOST;
                (
                    Value::Num(result.tagged(self.tag(wide, operation, a, b))),
                    grows,
                )
            }
            (pointer, Value::Num(by)) if wide => (self.offset(pointer, operation, by)?, false),
            (Value::Num(by), pointer) if wide && operation == op::ADD => {
                (self.offset(pointer, operation, by)?, false)
            }
            (pointer, _) => return refuse(Rule::Pointer, format!("arithmetic on {pointer:?}")),
        };
        let written = self.facts.written;
        self.write(dst, result)?;
        if grows {
            self.facts.written = written;
            self.facts.grown |= 1 << dst;
        }
        Ok(())
    }

    /// Where the result of `a OP b` comes from.
    fn tag(&self, wide: bool, operation: u8, a: Num, b: Num) -> Tag {
        const FUEL: Tag = Tag::Same(context::FUEL);
        const RESERVE: Tag = Tag::Same(context::RESERVE);
        if let (op::AND, Tag::LowBits(of, bits), Some(mask)) = (operation, a.tag, b.constant())
            && mask & mask.wrapping_add(1) == 0
        {
            return Tag::LowBits(of, bits.min(mask.count_ones() as u8));
        }
        if !wide {
            return Tag::None;
        }
        let debt = self.state.has(fact::DEBT);
        match (operation, a.tag, b.tag) {
            (op::ADD, FUEL, RESERVE) | (op::ADD, RESERVE, FUEL) if !debt => Tag::Total,
            (op::SUB, Tag::Total, Tag::Given) if debt => Tag::Rest,
            (op::ADD, Tag::Now, _) if b.max <= self.shape.budget.ns => Tag::Later,
            (op::ADD, Tag::Same(word) | Tag::More(word), _)
                if b.min >= 1 && b.max <= u32::MAX.into() =>
            {
                Tag::More(word)
            }
            // A charge is a 32-bit number.
            (op::SUB, Tag::Less(word), _) if b.max <= u32::MAX.into() => Tag::Less(word),
            (op::SUB, Tag::Same(word) | Tag::AtMost(word), _) if b.max <= u32::MAX.into() => {
                if b.min >= 1 {
                    Tag::Less(word)
                } else {
                    Tag::AtMost(word)
                }
            }
            (op::LSH, Tag::Cpu, _)
                if a.max < self.shape.cpus.into()
                    && b.constant() == Some(context::BYTES.trailing_zeros().into()) =>
            {
                Tag::CpuOffset
            }
            _ => Tag::None,
        }
    }

    /// A pointer, moved.
    fn offset(&mut self, pointer: Value, operation: u8, by: Num) -> Result<Value, Fail> {
        let back = operation == op::SUB;
        let moved = match pointer {
            _ if !back && operation != op::ADD => None,
            Value::Contexts if !back && by.tag == Tag::CpuOffset => {
                Some(Value::In(Region::Context, Span::at(0)))
            }
            Value::In(Region::Arena, _) => None,
            Value::In(region, span) => span.moved(by, back).map(|span| Value::In(region, span)),
            Value::Packet(packet) => self.move_packet(packet, by, back).map(Value::Packet),
            Value::Stack(at) => {
                let by = by
                    .constant()
                    .and_then(|by| i16::try_from(by).ok())
                    .map(i32::from);
                by.map(|by| Value::Stack(if back { at - by } else { at + by }))
            }
            _ => None,
        };
        let rule = if matches!(pointer, Value::Packet(_)) {
            Rule::Packet
        } else {
            Rule::Pointer
        };
        moved.ok_or_else(|| Fail::new(rule, format!("{pointer:?} is moved by {by:?}")))
    }

    fn move_packet(&mut self, packet: Packet, by: Num, back: bool) -> Option<Packet> {
        if let Some(by) = by.constant() {
            let by = i32::try_from(by).ok()?;
            let off = packet.off.checked_add(if back { -by } else { by })?;
            return (off.unsigned_abs() <= PACKET_MOST).then_some(Packet { off, ..packet });
        }
        let off = u32::try_from(packet.off).ok().filter(|_| !back)?;
        let far = u64::from(packet.far + off).checked_add(by.max)?;
        let base = Base::Moved(self.at);
        self.state.forget_base(base);
        (far <= PACKET_MOST.into()).then_some(Packet {
            base,
            off: 0,
            known: 0,
            far: far as u32,
        })
    }

    fn imm64(&mut self, insn: Insn, low: u32) -> Result<(), Fail> {
        let high = self.image.insns[self.at + 1] >> 32;
        let used = map_use(self.image, self.at);
        let value = match (insn.src, used) {
            (0, None) => Value::number(u64::from(low) | high << 32),
            (1, Some(used)) if used.value_offset.is_none() && self.shape.names(used.map) => {
                Value::Map(used.map)
            }
            (2, Some(used)) if self.shape.names(used.map) => {
                let at = Span::at(used.value_offset.unwrap_or(0));
                match used.map {
                    MapRef::Context if at == Span::at(0) => Value::Contexts,
                    MapRef::Trusted => Value::In(Region::Trusted, at),
                    MapRef::Memory if self.shape.memory == MemoryKind::Array => {
                        Value::In(Region::Memory, at)
                    }
                    map => return refuse(Rule::Map, format!("the value of {map:?}")),
                }
            }
            (_, used) => return refuse(Rule::Map, format!("{used:?}")),
        };
        self.write(insn.dst, value)
    }

    fn exit(&self) -> Result<(), Fail> {
        if self.state.has(fact::MAY_BE_LOCKED) {
            return refuse(Rule::Lock, "the program ends without releasing it");
        }
        self.number(0).map(|_| ())
    }
}
