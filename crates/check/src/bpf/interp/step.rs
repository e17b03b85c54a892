//! Runs one program, instruction by instruction.

use super::alu::{alu, compare, sign, swap};
use super::helpers::{Called, handle};
use super::space::{MD, MEMORY, PACKET, STACK, STACK_BYTES, region};
use super::{Machine, Reason};
use crate::bpf::form::{Form, Operand, form};
use crate::bpf::insn::{Insn, Size, op};
use crate::bpf::{Atomic, Field, Hook, Image, skb};

/// What fills the stack before a program runs, so that a read of what it never
/// wrote stands out.
const STACK_FILL: u8 = 0xa5;

/// How a program ended.
pub(super) enum End {
    Exit(u32),
    TailCall(u32),
}

enum Next {
    Insn(usize),
    /// A subprogram.
    Call(usize),
    End(End),
}

/// The registers, and which of them have been written.
#[derive(Clone, Copy)]
pub(super) struct Registers {
    values: [u64; 11],
    written: u16,
}

impl Registers {
    fn new() -> Self {
        let mut values = [0; 11];
        values[1] = MD;
        values[10] = STACK + STACK_BYTES as u64;
        Self {
            values,
            written: 1 << 1 | 1 << 10,
        }
    }

    pub(super) fn read(&self, register: u8) -> Result<u64, Reason> {
        if register > 10 || self.written & 1 << register == 0 {
            return Err(Reason::NeverWritten(register));
        }
        Ok(self.values[register as usize])
    }

    fn write(&mut self, register: u8, value: u64) -> Result<(), Reason> {
        if register >= 10 {
            return Err(Reason::ReadOnly(register));
        }
        self.written |= 1 << register;
        self.values[register as usize] = value;
        Ok(())
    }

    fn operand(&self, operand: Operand) -> Result<u64, Reason> {
        match operand {
            Operand::Reg(register) => self.read(register),
            Operand::Imm(imm) => Ok(i64::from(imm) as u64),
        }
    }

    /// As a subprogram finds them: with its arguments alone. Ours have no stack.
    fn called(self) -> Self {
        Self {
            written: self.written & 0x3e,
            ..self
        }
    }

    /// What a call leaves of `r0`-`r5`.
    fn clobber(&mut self) {
        self.written &= !0x3f;
    }
}

impl Machine {
    /// Runs `image` from its start; on a fault also says at which instruction.
    pub(super) fn program(&mut self, image: &Image) -> Result<End, (usize, Reason)> {
        let mut registers = Registers::new();
        self.space.stack = [STACK_FILL; STACK_BYTES];
        self.hook = image.hook;
        let mut may_goto = self.may_goto_limit;
        let mut at = 0;
        // Whoever has called a subprogram: registers, and where it goes on.
        let mut caller: Option<(Registers, usize)> = None;
        loop {
            if self.executed == self.insn_limit {
                return Err((at, Reason::TooLong(self.insn_limit)));
            }
            self.executed += 1;
            match self.step(image, at, &mut registers, &mut may_goto) {
                Ok(Next::Insn(next)) => at = next,
                Ok(Next::Call(to)) if caller.is_none() => {
                    caller = Some((registers, at + 1));
                    registers = registers.called();
                    at = to;
                }
                // The kernel would take more than one; ours call none.
                Ok(Next::Call(_)) => return Err((at, Reason::NoSuchInsn(image.insns[at]))),
                Ok(Next::End(end)) => match (caller.take(), end) {
                    (Some((mut above, next)), End::Exit(_)) => {
                        above.clobber();
                        above.values[0] = registers.values[0];
                        above.written |= 1;
                        (registers, at) = (above, next);
                    }
                    (_, end) => return Ok(end),
                },
                Err(reason) => return Err((at, reason)),
            }
        }
    }

    fn step(
        &mut self,
        image: &Image,
        at: usize,
        registers: &mut Registers,
        may_goto: &mut u64,
    ) -> Result<Next, Reason> {
        let raw = *image.insns.get(at).ok_or(Reason::OffTheEnd)?;
        let insn = Insn::decode(raw);
        let form = form(insn).ok_or(Reason::NoSuchInsn(raw))?;
        let dst = insn.dst;
        let offset = i64::from(insn.off);
        let jump = |distance: i64| {
            let target = at as i64 + 1 + distance;
            usize::try_from(target).map_err(|_| Reason::OffTheEnd)
        };
        let mut next = at + 1;
        match form {
            Form::Alu {
                wide,
                op,
                signed,
                src,
            } => {
                let (a, b) = (registers.read(dst)?, registers.operand(src)?);
                registers.write(dst, alu(wide, op, signed, a, b))?;
            }
            Form::Neg { wide } => {
                let value = registers.read(dst)?;
                registers.write(dst, alu(wide, op::SUB, false, 0, value))?;
            }
            Form::Mov { wide, from, src } => {
                let value = registers.operand(src)?;
                let value = match from {
                    0 => value,
                    bits => sign(value, bits.into()),
                };
                let mask = if wide { u64::MAX } else { u32::MAX.into() };
                registers.write(dst, value & mask)?;
            }
            Form::Cast { .. } if self.array_mode => return Err(Reason::NoArena),
            Form::Cast { src } => {
                let low = registers.read(src)? as u32;
                registers.write(dst, MEMORY | u64::from(low))?;
            }
            Form::Swap { order, bits } => {
                let value = registers.read(dst)?;
                registers.write(dst, swap(order, bits, value))?;
            }
            Form::Load { size, signed, src } => {
                let address = registers.read(src)?.wrapping_add_signed(offset);
                let value = if region(address) == MD {
                    self.context_field(address - MD, size, signed)?
                } else {
                    self.space.load(address, size.bytes() as usize)?
                };
                let value = if signed {
                    sign(value, size.bytes() * 8)
                } else {
                    value
                };
                registers.write(dst, value)?;
            }
            Form::Store { size, src } => {
                let address = registers.read(dst)?.wrapping_add_signed(offset);
                let value = registers.operand(src)?;
                self.space.store(address, size.bytes() as usize, value)?;
            }
            Form::Atomic { wide, what, src } => {
                let address = registers.read(dst)?.wrapping_add_signed(offset);
                self.atomic(registers, address, wide, what, src)
                    .and_then(|known| known.then_some(()).ok_or(Reason::NoSuchInsn(raw)))?;
            }
            Form::Imm64 { low } => {
                let high = Insn::decode(*image.insns.get(at + 1).ok_or(Reason::OffTheEnd)?);
                let value = if insn.src == 0 {
                    u64::from(low) | u64::from(high.imm as u32) << 32
                } else {
                    let used = image
                        .maps
                        .iter()
                        .find(|used| used.insn == at)
                        .ok_or(Reason::NoSuchInsn(raw))?;
                    match used.value_offset {
                        None => handle(used.map),
                        Some(offset) => self.value(used.map, offset).ok_or(Reason::NoValue)?,
                    }
                };
                registers.write(dst, value)?;
                next = at + 2;
            }
            Form::Jump { distance, .. } => next = jump(distance.into())?,
            Form::MayGoto if *may_goto == 0 => next = jump(offset)?,
            Form::MayGoto => *may_goto -= 1,
            Form::Branch { wide, op, src } => {
                let (a, b) = (registers.read(dst)?, registers.operand(src)?);
                if compare(wide, op, a, b) {
                    next = jump(offset)?;
                }
            }
            Form::Call { helper } => {
                let called = self.call(helper, registers)?;
                registers.clobber();
                match called {
                    Called::Value(value) => registers.write(0, value)?,
                    Called::Nothing => {}
                    Called::TailCall(slot) => return Ok(Next::End(End::TailCall(slot))),
                }
            }
            Form::CallOwn { distance } => return Ok(Next::Call(jump(distance.into())?)),
            Form::Exit => return Ok(Next::End(End::Exit(registers.read(0)? as u32))),
        }
        Ok(Next::Insn(next))
    }

    /// A field of the hook's context. The kernel rewrites these loads, so only
    /// whole 32-bit fields can be read, and some of them give pointers.
    fn context_field(&self, at: u64, size: Size, signed: bool) -> Result<u64, Reason> {
        let is_field = size == Size::W && !signed;
        let field = self.hook.field(at as i64).filter(|_| is_field);
        let only_skb = is_field && self.hook == Hook::Tcx;
        Ok(match (field, at as i16) {
            (Some(Field::Data), _) => PACKET + self.space.start as u64,
            (Some(Field::DataEnd), _) => PACKET + self.space.linear as u64,
            (Some(Field::DataMeta), _) => PACKET + self.space.meta as u64,
            (Some(Field::Ifindex), _) => self.ifindex.into(),
            (Some(Field::RxQueue), _) => match self.hook {
                Hook::Xdp => self.rx_queue.into(),
                Hook::Tcx => u64::from(self.rx_queue) + 1,
            },
            (None, skb::LEN) if only_skb => self.space.frame().len() as u64,
            (None, skb::VLAN_PRESENT) if only_skb => self.tag.is_some().into(),
            (None, skb::VLAN_TCI) if only_skb => self.tag.map_or(0, |[_, tag]| tag.into()),
            // As it lies in a frame.
            (None, skb::VLAN_PROTO) if only_skb => {
                self.tag.map_or(0, |[kind, _]| kind.to_be().into())
            }
            (None, skb::GSO_SEGS) if only_skb => self.gso_segs.into(),
            (None, skb::GSO_SIZE) if only_skb => self.gso_size.into(),
            _ => {
                return Err(Reason::Outside {
                    address: MD + at,
                    len: size.bytes() as usize,
                });
            }
        })
    }

    /// `false` if there is no such operation.
    fn atomic(
        &mut self,
        registers: &mut Registers,
        address: u64,
        wide: bool,
        what: i32,
        src: u8,
    ) -> Result<bool, Reason> {
        const FETCH: i32 = 1;
        const EXCHANGE: i32 = Atomic::Exchange as i32;
        const COMPARE_EXCHANGE: i32 = Atomic::CompareExchange as i32;
        let len = if wide { 8 } else { 4 };
        let value = registers.read(src)?;
        match what {
            EXCHANGE => {
                let old = self.space.atomic(address, len, |_| value)?;
                registers.write(src, old)?;
            }
            COMPARE_EXCHANGE => {
                let expected = registers.read(0)?;
                let old = self.space.atomic(address, len, |old| {
                    if compare(wide, op::JEQ, old, expected) {
                        value
                    } else {
                        old
                    }
                })?;
                registers.write(0, old)?;
            }
            _ => {
                let operation = match what & !FETCH {
                    0x00 => op::ADD,
                    0x40 => op::OR,
                    0x50 => op::AND,
                    0xa0 => op::XOR,
                    _ => return Ok(false),
                };
                let old = self
                    .space
                    .atomic(address, len, |old| alu(wide, operation, false, old, value))?;
                if what & FETCH != 0 {
                    registers.write(src, old)?;
                }
            }
        }
        Ok(true)
    }
}
