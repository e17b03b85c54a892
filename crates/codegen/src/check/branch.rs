//! What a jump says about the numbers and pointers it compares.

use super::arith::{mirrored, narrow, opposite};
use super::state::{State, fact};
use super::step::Step;
use super::value::{Base, Num, Region, Span, Tag, Value};
use super::violation::{Fail, Rule, refuse};
use crate::bpf::form::Operand;
use crate::bpf::op;
use ashway_abi::context;

impl Step<'_> {
    /// What holds where the jump is taken, and where it is not; `None` if that
    /// cannot be.
    pub(super) fn branch(
        &self,
        wide: bool,
        operation: u8,
        dst: u8,
        src: Operand,
    ) -> Result<[Option<State>; 2], Fail> {
        let left = self.read(dst)?;
        let mut right = self.operand(src)?;
        if let (Operand::Imm(imm), false) = (src, wide) {
            right = Value::number(u64::from(imm as u32));
        }
        let src = match src {
            Operand::Reg(reg) => Some(reg),
            Operand::Imm(_) => None,
        };
        let way = |operation: Option<u8>, taken: bool| {
            let mut state = self.state.clone();
            match (left, right) {
                (Value::Num(a), Value::Num(b)) => {
                    let Some(operation) = operation else {
                        if !taken && let Some(bits) = b.constant().and_then(mask_bits) {
                            state.learn(
                                dst,
                                Num {
                                    zeros: a.zeros.max(bits),
                                    ..a
                                },
                            );
                        }
                        return Ok(Some(state));
                    };
                    let Some((a, b)) = narrow(wide, operation, a, b) else {
                        return Ok(None);
                    };
                    state.learn(dst, a);
                    if let Some(src) = src {
                        state.learn(src, b);
                    }
                    state.numbers_are(wide, operation, (dst, a), (src, b));
                }
                (Value::MaybeRow, Value::Num(b)) if wide && b.constant() == Some(0) => {
                    match operation {
                        Some(op::JNE) => state.set_reg(dst, Value::In(Region::Row, Span::at(0))),
                        Some(op::JEQ) => state.set_reg(dst, Value::number(0)),
                        _ => return refuse(Rule::Pointer, format!("{left:?} is compared")),
                    }
                }
                _ => match operation {
                    Some(op::JLT | op::JLE) if wide => state.in_order(left, right)?,
                    Some(op::JGT | op::JGE) if wide => state.in_order(right, left)?,
                    _ => {
                        return refuse(
                            Rule::Pointer,
                            format!("{left:?} and {right:?} are compared"),
                        );
                    }
                },
            }
            Ok(Some(state))
        };
        let when_taken = (operation != op::JSET).then_some(operation);
        Ok([way(when_taken, true)?, way(opposite(operation), false)?])
    }
}

/// How many of the lowest bits, and no others, a mask has.
fn mask_bits(mask: u64) -> Option<u8> {
    (mask & mask.wrapping_add(1) == 0).then(|| mask.count_ones() as u8)
}

impl State {
    /// Two numbers, with what is known of them now, are in this relation.
    fn numbers_are(
        &mut self,
        wide: bool,
        operation: u8,
        (left, a): (u8, Num),
        (right, b): (Option<u8>, Num),
    ) {
        const DEADLINE: Tag = Tag::Same(context::DEADLINE);
        if let (Tag::LowBits(of, bits), Some(0)) = (a.tag, a.constant())
            && let Value::Num(num) = self.reg(of)
        {
            self.learn(
                of,
                Num {
                    zeros: num.zeros.max(bits),
                    ..num
                },
            );
        }
        match (a.tag, a.constant()) {
            (Tag::Lock, Some(0)) => self.set(fact::LOCKED, self.has(fact::MAY_BE_LOCKED)),
            (Tag::Lock, _) if a.min > 0 => self.set(fact::MAY_BE_LOCKED, false),
            (DEADLINE, Some(0)) => self.set(fact::NO_DEADLINE, true),
            _ => {}
        }
        for num in [a, b].into_iter().filter(|num| num.is_natural(true)) {
            match num.tag {
                Tag::Total | Tag::Same(context::FUEL) => self.set(fact::OWES, false),
                Tag::Same(context::BULK) => self.set(fact::OWES_BULK, false),
                _ => {}
            }
        }
        let signed = matches!(operation, op::JSLT | op::JSLE | op::JSGT | op::JSGE);
        if !wide || signed && !(a.is_natural(true) && b.is_natural(true)) {
            return;
        }
        let ((smaller, reg), larger) = match operation {
            op::JLT | op::JLE | op::JSLT | op::JSLE | op::JEQ => ((a, Some(left)), b),
            _ if mirrored(operation) != operation => ((b, right), a),
            _ => return,
        };
        match (smaller.tag, larger.tag) {
            (Tag::Now, DEADLINE) => self.clock_is_read(),
            (Tag::None | Tag::LowBits(..), Tag::Total) if larger.is_natural(true) => {
                if let Some(reg) = reg {
                    self.learn(reg, smaller.tagged(Tag::Within));
                }
            }
            _ => {}
        }
    }

    /// The first pointer is not behind the second.
    fn in_order(&mut self, first: Value, second: Value) -> Result<(), Fail> {
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
            _ => {
                return refuse(
                    Rule::Pointer,
                    format!("{first:?} and {second:?} are compared"),
                );
            }
        }
        Ok(())
    }
}
