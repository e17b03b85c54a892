//! Loads, stores and atomics: what may be reached, and how.

use super::Around;
use super::state::{SLOTS, WORDS, fact};
use super::step::Step;
use super::value::{Base, Num, Packet, Region, Span, Tag, Value};
use super::violation::{Fail, Rule, refuse};
use crate::bpf::form::Operand;
use crate::bpf::{Atomic, Size};
use crate::bug::{self, Bug};
use crate::xdp::md;
use ashway_abi::{context, count, trusted};

/// What an access does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
    Atomic,
}

impl Step<'_> {
    /// That `bytes` bytes at `pointer + off` may be reached. Fields of the
    /// context below the frames, and trusted words below the rings, have rules
    /// of their own when they are written.
    pub(super) fn reach(
        &self,
        pointer: Value,
        off: i16,
        bytes: u32,
        access: Access,
    ) -> Result<(), Fail> {
        let (good, rule) = match pointer {
            Value::Packet(packet) => {
                let covered = covers(packet, off, bytes) || bug::is(Bug::CheckNoPacketEnd);
                (covered && access != Access::Atomic, Rule::Packet)
            }
            Value::In(region, span) => self.reach_region(region, span, off, bytes, access),
            _ => (bug::is(Bug::CheckNoBase), Rule::Access),
        };
        if good {
            return Ok(());
        }
        refuse(
            rule,
            format!("{access:?} of {bytes} bytes at {off:+} from {pointer:?}"),
        )
    }

    fn reach_region(
        &self,
        region: Region,
        span: Span,
        off: i16,
        bytes: u32,
        access: Access,
    ) -> (bool, Rule) {
        let layout = &self.shape.layout;
        let locked = self.state.has(fact::LOCKED);
        let (from, to) = match region {
            Region::Context if access == Access::Read && span.only(off).is_some() => {
                (0, context::BYTES)
            }
            Region::Context => (context::FRAMES as usize, context::BYTES),
            Region::Trusted if access == Access::Write => {
                (trusted::RINGS, trusted::bytes(layout.rings))
            }
            Region::Trusted => (0, trusted::bytes(layout.rings)),
            Region::Row => (0, count::ROW_BYTES),
            // Without the lock a program only fills slots.
            _ if !locked => (layout.slots_offset(), layout.total_bytes()),
            Region::Memory => (0, layout.total_bytes()),
            // A page that is not there reads as 0, and the guard around the
            // arena is as wide as an instruction's offset.
            Region::Arena => (0, usize::MAX >> 1),
        };
        let inside = span.inside(off, bytes, from, to) || region == Region::Arena && locked;
        // A word in two cache lines would stop the whole machine, or kill the
        // kernel (split lock detection).
        let zeros = span
            .zeros
            .min(Num::exactly(off.unsigned_abs().into()).zeros);
        let aligned = access != Access::Atomic
            || u32::from(zeros) >= bytes.trailing_zeros() && region != Region::Context;
        if region == Region::Context {
            return (
                inside && aligned || bug::is(Bug::CheckNoContext),
                Rule::Context,
            );
        }
        (inside && aligned, Rule::Access)
    }

    pub(super) fn load(
        &mut self,
        src: u8,
        off: i16,
        size: Size,
        signed: bool,
    ) -> Result<Value, Fail> {
        let pointer = self.read(src)?;
        match pointer {
            Value::Md if size == Size::W && !signed => return md_field(off),
            Value::Stack(at) if !signed => {
                let slot = slot(at, off, size)?;
                return match *self.state.slot(slot) {
                    Value::Unset => refuse(Rule::Unset, format!("stack slot {slot}")),
                    value => Ok(value),
                };
            }
            // They do not work there (FACTS 1).
            Value::In(Region::Arena, _) if signed => {
                return refuse(Rule::Access, "a sign-extending load from the arena");
            }
            _ => self.reach(pointer, off, size.bytes(), Access::Read)?,
        }
        if signed {
            return Ok(Value::Num(Num::any(true)));
        }
        let mut num = Num::of_bytes(size.bytes());
        if let Value::In(Region::Context, span) = pointer
            && let Some(at) = span.only(off)
        {
            match (i16::try_from(at), size) {
                _ if word(span, off, size).is_some() => {
                    let word = word(span, off, size).unwrap_or(0);
                    if let Value::Num(kept) = *self.state.word(word) {
                        num = kept;
                    }
                }
                (Ok(context::ZERO), Size::D | Size::W) => num = Num::exactly(0),
                // What the entry program writes there is a datagram's length.
                (Ok(context::PAYLOAD_LEN), Size::W) if self.shape.around == Around::Instance => {
                    num.max = u16::MAX.into();
                }
                (Ok(at), Size::D) if at < context::FRAMES => num.tag = Tag::Same(at),
                _ => {}
            }
        }
        Ok(Value::Num(num))
    }

    pub(super) fn store(
        &mut self,
        dst: u8,
        off: i16,
        size: Size,
        src: Operand,
    ) -> Result<(), Fail> {
        let pointer = self.read(dst)?;
        let value = self.operand(src)?;
        if let Value::Stack(at) = pointer {
            *self.state.slot(slot(at, off, size)?) = value;
            return Ok(());
        }
        let num = match value {
            Value::Num(num) => num,
            _ if bug::is(Bug::CheckPointerLeak) => Num::any(true),
            _ => return refuse(Rule::Pointer, format!("{value:?} is stored to {pointer:?}")),
        };
        if let Value::In(region, span) = pointer
            && let Some(at) = span.only(off).and_then(|at| i16::try_from(at).ok())
        {
            match region {
                Region::Context if at < context::FRAMES => {
                    return self.store_field(at, size, num, src);
                }
                Region::Trusted if (at as usize) < trusted::RINGS => {
                    return self.store_trusted(at as usize, size, num);
                }
                _ => {}
            }
        }
        self.reach(pointer, off, size.bytes(), Access::Write)?;
        if let Value::In(Region::Context, span) = pointer {
            let off_i64 = i64::from(off);
            let end = span.max + off_i64 + i64::from(size.bytes());
            self.state.forget_words(span.min + off_i64, end);
            if let Some(word) = word(span, off, size) {
                *self.state.word(word) = Value::Num(num.tagged(Tag::None));
            }
        }
        Ok(())
    }

    fn store_trusted(&mut self, at: usize, size: Size, num: Num) -> Result<(), Fail> {
        match at {
            trusted::LOCK
                if size == Size::W && num.constant() == Some(0) && self.state.has(fact::LOCKED) =>
            {
                self.state.set(fact::LOCKED | fact::MAY_BE_LOCKED, false);
                Ok(())
            }
            trusted::LOCK => refuse(Rule::Lock, "released without being held"),
            trusted::FAULT_CAUSE | trusted::FAULT_AT | trusted::FAULT_ROW if size == Size::W => {
                Ok(())
            }
            _ => refuse(Rule::Access, format!("trusted word {at} is written")),
        }
    }

    pub(super) fn atomic(
        &mut self,
        dst: u8,
        off: i16,
        wide: bool,
        what: i32,
        src: u8,
    ) -> Result<(), Fail> {
        const ADD: i32 = Atomic::Add as i32;
        const OR: i32 = Atomic::Or as i32;
        const AND: i32 = Atomic::And as i32;
        const XOR: i32 = Atomic::Xor as i32;
        const FETCH: i32 = 1;
        const EXCHANGE: i32 = Atomic::Exchange as i32;
        const COMPARE_EXCHANGE: i32 = Atomic::CompareExchange as i32;
        let pointer = self.read(dst)?;
        self.reach(pointer, off, if wide { 8 } else { 4 }, Access::Atomic)?;
        let result = match what {
            COMPARE_EXCHANGE => Some(0),
            EXCHANGE => Some(src),
            _ if matches!(what & !FETCH, ADD | OR | AND | XOR) => {
                (what & FETCH != 0).then_some(src)
            }
            _ => return refuse(Rule::Instruction, format!("no atomic {what:#x}")),
        };
        let value = self.number(src)?;
        let mut old = Num::any(wide);
        if what == COMPARE_EXCHANGE {
            // When it succeeds the CPU leaves `r0` as it is, upper half included,
            // and Linux 6.18 does not clear that for an arena.
            old = Num::any(wide || self.number(0)?.max > u32::MAX.into());
        }
        if let Value::In(Region::Trusted, span) = pointer {
            match (span.only(off).map(|at| at as usize), what) {
                (Some(trusted::LOCK), COMPARE_EXCHANGE) if !wide => {
                    self.take_lock(value)?;
                    old.tag = Tag::Lock;
                }
                (Some(trusted::NEED_WAKE), EXCHANGE) | (Some(trusted::FAULT_COUNT), ADD) => {}
                (_, ADD) if span.inside(off, 4, trusted::PATHS, trusted::RINGS) => {}
                _ if span.inside(off, 4, trusted::RINGS, usize::MAX >> 1) => {
                    let alone = !self.state.has(fact::MAY_BE_LOCKED);
                    self.facts.contends |= what == COMPARE_EXCHANGE && alone;
                }
                _ => return refuse(Rule::Access, format!("an atomic on {pointer:?}")),
            }
        }
        result.map_or(Ok(()), |reg| self.write(reg, Value::Num(old)))
    }

    /// 0 becomes 1, or somebody else has it.
    fn take_lock(&mut self, value: Num) -> Result<(), Fail> {
        let values = (self.number(0)?.constant(), value.constant());
        if values != (Some(0), Some(1)) || self.state.has(fact::MAY_BE_LOCKED) {
            return refuse(Rule::Lock, "it is not taken as it should be");
        }
        self.state.set(fact::MAY_BE_LOCKED, true);
        Ok(())
    }
}

fn covers(packet: Packet, off: i16, bytes: u32) -> bool {
    let from = i64::from(packet.off) + i64::from(off);
    from >= 0 && from + i64::from(bytes) <= packet.known.into()
}

/// The word of the context that is accessed, if it is one whole.
fn word(span: Span, off: i16, size: Size) -> Option<usize> {
    let at = span.only(off)? - i64::from(context::FRAMES);
    let word = usize::try_from(at).ok()? / 8;
    (size == Size::D && at % 8 == 0 && word < WORDS).then_some(word)
}

/// The stack slot of an access, which must be a whole one of those we use.
pub(super) fn slot(at: i32, off: i16, size: Size) -> Result<usize, Fail> {
    let below = -(at + i32::from(off));
    if size == Size::D && below % 8 == 0 && (8..=8 * SLOTS as i32).contains(&below) {
        return Ok(below as usize / 8 - 1);
    }
    refuse(Rule::Access, format!("r10-{below} is no stack slot"))
}

fn md_field(off: i16) -> Result<Value, Fail> {
    let packet = |base| {
        Value::Packet(Packet {
            base,
            off: 0,
            known: 0,
            far: 0,
        })
    };
    Ok(match off {
        md::DATA => packet(Base::Data),
        md::DATA_META => packet(Base::Meta),
        md::DATA_END => Value::PacketEnd,
        md::INGRESS_IFINDEX | md::RX_QUEUE => Value::Num(Num::any(false)),
        _ => return refuse(Rule::Access, format!("xdp_md{off:+} is read")),
    })
}
