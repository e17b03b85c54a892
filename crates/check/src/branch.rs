//! What a jump says about the numbers and pointers it compares.

use super::arith::narrow;
use super::state::{State, fact};
use super::step::Step;
use super::value::{Base, Num, Region, Tag, Value};
use super::violation::{Checked, Rule};
use crate::bpf::form::Operand;
use crate::bpf::{invert, mirror, op};
use ashway_abi::context;

/// What holds where a jump is taken, and where it is not; `None` if that cannot
/// be.
pub(super) type Ways = [Option<State>; 2];

/// A number and the register it is in.
type Side = (Option<u8>, Num);

impl Step<'_> {
    pub(super) fn branch(&self, wide: bool, op: u8, dst: u8, src: Operand) -> Checked<Ways> {
        let left = self.read(dst)?;
        let (right, src) = match src {
            Operand::Imm(imm) if !wide => (Value::number(u64::from(imm as u32)), None),
            Operand::Imm(_) => (self.operand(src)?, None),
            Operand::Reg(reg) => (self.read(reg)?, Some(reg)),
        };
        let way = |operation: u8| {
            let mut state = self.state.clone();
            match (left, right, operation) {
                (Value::Num(a), Value::Num(b), _) => {
                    let Some((a, b)) = narrow(wide, operation, a, b) else {
                        return Ok(None);
                    };
                    state.learn(dst, a);
                    if let Some(src) = src {
                        state.learn(src, b);
                    }
                    state.numbers_are(wide, operation, (Some(dst), a), (src, b));
                }
                (Value::In(Region::Row, _), ..) if right == Value::number(0) => {}
                (first, second, op::JLT | op::JLE) | (second, first, op::JGT | op::JGE) if wide => {
                    state.in_order(first, second)?;
                }
                _ => return Err(Rule::Pointer),
            }
            Ok(Some(state))
        };
        // A test of bits says nothing that we use.
        Ok([way(op)?, way(invert(op).unwrap_or(op))?])
    }
}

impl State {
    /// Two numbers, with what is known of them now, are in this relation.
    fn numbers_are(&mut self, wide: bool, operation: u8, left: Side, right: Side) {
        const DEADLINE: Tag = Tag::Word(context::DEADLINE);
        let (a, b) = (left.1, right.1);
        match (a.tag, a.constant()) {
            (Tag::LowBits(of, bits), Some(0)) => {
                if let Value::Num(num) = self.reg(of) {
                    self.learn(of, num.tagged(Tag::Even(bits)));
                }
            }
            (Tag::Lock, Some(0)) => self.set(fact::LOCKED, self.has(fact::MAY_BE_LOCKED)),
            (Tag::Lock, _) if a.min > 0 => self.set(fact::MAY_BE_LOCKED, false),
            (Tag::Returned(seen_to), Some(0)) => self.set(seen_to, false),
            (DEADLINE, Some(0)) => self.set(fact::NO_DEADLINE, true),
            (Tag::Word(context::GRACE), Some(0)) => self.set(fact::GRACE, true),
            _ => {}
        }
        for num in [a, b].into_iter().filter(|num| num.is_natural(true)) {
            match num.tag {
                Tag::Word(context::FUEL) => self.set(fact::OWES, false),
                Tag::Word(context::BULK) => self.set(fact::OWES_BULK, false),
                _ => {}
            }
        }
        let signed = matches!(operation, op::JSLT | op::JSLE | op::JSGT | op::JSGE);
        if !wide || signed && !(a.is_natural(true) && b.is_natural(true)) {
            return;
        }
        let ((reg, smaller), (_, larger)) = match operation {
            op::JLT | op::JLE | op::JSLT | op::JSLE | op::JEQ => (left, right),
            _ if mirror(operation) != operation => (right, left),
            _ => return,
        };
        match (smaller.tag, larger.tag, reg) {
            (Tag::Now, DEADLINE, _) => self.set(fact::CLOCK_DUE, false),
            (Tag::None | Tag::LowBits(..), Tag::Total, Some(reg)) if larger.is_natural(true) => {
                self.learn(reg, smaller.tagged(Tag::Within));
            }
            _ => {}
        }
    }

    /// The first pointer is not behind the second.
    fn in_order(&mut self, first: Value, second: Value) -> Checked {
        match (first, second) {
            (Value::Packet(pointer), Value::PacketEnd) if pointer.base != Base::Meta => {
                self.packet_reaches(pointer);
            }
            // Metadata ends where the packet begins.
            (Value::Packet(pointer), Value::Packet(end))
                if pointer.base == Base::Meta && end.base == Base::Data && end.off == 0 =>
            {
                self.packet_reaches(pointer);
            }
            (Value::PacketEnd | Value::Packet(_), Value::Packet(_)) => {}
            _ => return Err(Rule::Pointer),
        }
        Ok(())
    }
}
