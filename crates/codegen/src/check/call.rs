//! Helper calls: those our programs make, with what they are given.

use super::Around;
use super::access::{Access, slot};
use super::state::fact;
use super::step::Step;
use super::value::{Num, Region, Span, Tag, Value};
use super::violation::{Fail, Rule, refuse};
use crate::bpf::{MapRef, Size, helper};
use crate::bug::{self, Bug};

/// Most bytes that one call moves.
const MOST_BYTES: u64 = 4096;

/// Bytes of a stack slot, which the ring's bell takes.
const BELL_BYTES: u64 = 8;

impl Step<'_> {
    pub(super) fn call(&mut self, number: i32) -> Result<(), Fail> {
        let result = match number {
            helper::KTIME_GET_NS => Value::Num(Num::any(true).tagged(Tag::Now)),
            helper::GET_SMP_PROCESSOR_ID => Value::Num(Num::any(false).tagged(Tag::Cpu)),
            helper::XDP_LOAD_BYTES | helper::XDP_STORE_BYTES => self.move_bytes()?,
            _ => self.trusted_call(number)?,
        };
        self.state.clobber();
        self.state.set_reg(0, result);
        Ok(())
    }

    /// Helpers that only the code around a handler calls.
    fn trusted_call(&mut self, number: i32) -> Result<Value, Fail> {
        if bug::is(Bug::CheckAnyHelper) {
            return Ok(Value::Num(Num::any(true)));
        }
        if self.shape.around == Around::Stub || self.state.has(fact::MAY_BE_LOCKED) {
            return refuse(
                Rule::Helper,
                format!("helper {number} where a handler may run"),
            );
        }
        Ok(match number {
            helper::MAP_LOOKUP_ELEM => {
                self.takes(1, |value| value == Value::Map(MapRef::Counters))?;
                self.takes(2, |value| value == Value::In(Region::Context, Span::at(0)))?;
                Value::MaybeRow
            }
            helper::REDIRECT => {
                self.number(1)?;
                self.number(2)?;
                Value::Num(Num::any(true))
            }
            helper::XDP_ADJUST_META => {
                self.takes(1, |value| value == Value::Md)?;
                self.number(2)?;
                self.state.forget_packet();
                Value::Num(Num::any(true))
            }
            helper::RINGBUF_OUTPUT => {
                self.takes(1, |value| value == Value::Map(MapRef::Wake))?;
                self.takes(2, |value| matches!(value, Value::Stack(_)))?;
                if let Value::Stack(at) = self.read(2)?
                    && !matches!(self.state.slot(slot(at, 0, Size::D)?), Value::Num(_))
                {
                    return refuse(Rule::Helper, "r2 is no number on the stack");
                }
                self.takes(3, |value| value == Value::number(BELL_BYTES))?;
                self.number(4)?;
                Value::Num(Num::any(true))
            }
            _ => return refuse(Rule::Helper, format!("helper {number}")),
        })
    }

    fn takes(&self, reg: u8, good: impl Fn(Value) -> bool) -> Result<(), Fail> {
        let value = self.read(reg)?;
        if good(value) {
            return Ok(());
        }
        refuse(Rule::Helper, format!("r{reg} is {value:?}"))
    }

    /// Between the message and what is in `r3`, which has room for `r4` bytes;
    /// where in the message is the kernel's to check.
    fn move_bytes(&mut self) -> Result<Value, Fail> {
        self.takes(1, |value| value == Value::Md)?;
        self.number(2)?;
        let pointer = self.read(3)?;
        if matches!(pointer, Value::In(Region::Context, _)) {
            self.state.forget_words(0, i64::MAX);
        }
        self.takes(3, |value| {
            matches!(
                value,
                Value::In(Region::Context | Region::Memory | Region::Trusted, _)
            )
        })?;
        let bytes = self.number(4)?.max;
        if bytes > MOST_BYTES {
            return refuse(Rule::Helper, format!("r4 is up to {bytes}"));
        }
        // Fields of the context and trusted words are not messages.
        self.reach(pointer, 0, bytes as u32, Access::Write)?;
        Ok(Value::Num(Num::any(true)))
    }
}
