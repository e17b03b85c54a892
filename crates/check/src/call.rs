//! Helper calls: those our programs make, with what they are given.

use ashway_abi::trusted;

use super::access::Access;
use super::step::Step;
use super::value::{Num, Region, Tag, Value};
use super::violation::{Checked, Rule};
use crate::bpf::{MapRef, Size, helper};
use crate::bug::{self, Bug};
use Arg::{Bell, Is, Number, Room, Told};

/// What a helper takes in a register.
#[derive(Clone, Copy, Debug)]
enum Arg {
    Is(Value),
    Number,
    /// A stack slot with a number in it.
    Bell,
    /// Room for as many bytes as the next register says.
    Room,
    /// What an observer is told: as many bytes of the context.
    Told,
}

const MD: Arg = Is(Value::begin(Region::Md));
/// Its first field is the row's number.
const CONTEXT: Arg = Is(Value::begin(Region::Context));
const COUNTERS: Arg = Is(Value::Map(MapRef::Counters));
const WAKE: Arg = Is(Value::Map(MapRef::Wake));
const NOTES: Arg = Is(Value::Map(MapRef::Notes));
const BELL_BYTES: Arg = Is(Value::number(8));
const ANY: Value = Value::Num(Num::any(true));
/// That it is not null is the kernel's to check.
const ROW: Value = Value::begin(Region::Row);
const NOW: Value = Value::Num(Num::any(true).tagged(Tag::Now));
const CPU: Value = Value::Num(Num::any(false).tagged(Tag::Cpu));

/// Most bytes that one call moves: the longest payload and its headers.
const MOST_BYTES: u64 = 4096 + trusted::HEADERS_BYTES as u64;

impl Step<'_> {
    pub(super) fn call(&mut self, number: i32) -> Checked {
        let (anywhere, args, result): (bool, &[Arg], Value) = match number {
            helper::KTIME_GET_NS => (true, &[], NOW),
            helper::GET_SMP_PROCESSOR_ID => (true, &[], CPU),
            helper::XDP_LOAD_BYTES | helper::XDP_STORE_BYTES | helper::SKB_LOAD_BYTES => {
                (true, &[MD, Number, Room, Number], ANY)
            }
            helper::SKB_CHANGE_TAIL => (false, &[MD, Number, Number], ANY),
            helper::XDP_GET_BUFF_LEN => (false, &[MD], ANY),
            helper::MAP_LOOKUP_ELEM => (false, &[COUNTERS, CONTEXT], ROW),
            helper::REDIRECT => (false, &[Number, Number], ANY),
            helper::XDP_ADJUST_META | helper::XDP_ADJUST_TAIL => (false, &[MD, Number], ANY),
            helper::CHECK_MTU => (false, &[MD, Number, Bell, Number, Number], ANY),
            helper::RINGBUF_OUTPUT if self.read(1)? == Value::Map(MapRef::Notes) => {
                (false, &[NOTES, Told, Number, Number], ANY)
            }
            helper::RINGBUF_OUTPUT => (false, &[WAKE, Bell, BELL_BYTES, Number], ANY),
            _ => (bug::is(Bug::CheckAnyHelper), &[], ANY),
        };
        let unknown = !anywhere && args.is_empty();
        let trusted = anywhere || !self.handler_may_run();
        if unknown || !trusted && !bug::is(Bug::CheckAnyHelper) {
            return Err(Rule::Helper);
        }
        for (reg, arg) in (1..).zip(args) {
            match (*arg, self.read(reg)?) {
                (Is(expected), value) if value == expected => {}
                (Number, Value::Num(_)) => {}
                (Bell, slot) => match self.state.cell(slot, Size::D) {
                    Some(Value::Num(_)) => {}
                    _ => return Err(Rule::Helper),
                },
                (Told, Value::In(Region::Context, _)) => {
                    let bytes = self.number(reg + 1)?.max;
                    let bytes = u32::try_from(bytes).map_err(|_| Rule::Helper)?;
                    self.reach(self.read(reg)?, bytes, Access::Read)?;
                }
                (Room, pointer) => self.move_bytes(pointer, self.number(reg + 1)?.max)?,
                _ => return Err(Rule::Helper),
            }
        }
        if matches!(
            number,
            helper::XDP_ADJUST_META | helper::XDP_ADJUST_TAIL | helper::SKB_CHANGE_TAIL
        ) {
            let moved = |value| matches!(value, Value::Packet(_) | Value::PacketEnd);
            self.state.forget(moved);
        }
        for reg in 0..6 {
            self.state.set_reg(reg, Value::Unset);
        }
        self.state.set_reg(0, result);
        Ok(())
    }

    /// Between the message and what is not one of the context's fields or a
    /// trusted word; where in the message is the kernel's to check.
    fn move_bytes(&mut self, pointer: Value, bytes: u64) -> Checked {
        let Value::In(Region::Context | Region::Memory | Region::Trusted, _) = pointer else {
            return Err(Rule::Helper);
        };
        if bytes > MOST_BYTES {
            return Err(Rule::Helper);
        }
        self.state.forget_words();
        self.reach(pointer, bytes as u32, Access::Write)
    }
}
