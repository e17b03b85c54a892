//! The kernel's helpers, as far as our programs call them.

use super::space::{CONTEXT, COUNTERS, HEADROOM, MAPS, MEMORY, ROW_STRIDE, TRUSTED, XDP_MD};
use super::step::Registers;
use super::{Machine, Reason};
use crate::bpf::{MapRef, helper};
use ashway_abi::count::ROW_BYTES;

/// Tail calls in one activation (`MAX_TAIL_CALL_CNT`).
const MAX_TAIL_CALLS: u32 = 33;

/// `XDP_REDIRECT`.
const XDP_REDIRECT: u64 = 4;

const EINVAL: i64 = -22;
const EACCES: i64 = -13;

/// The handle of a map, as `ld_imm64` gives it to helpers.
pub(super) const fn handle(map: MapRef) -> u64 {
    MAPS + map as u64
}

/// What a helper left behind.
pub(super) enum Called {
    /// A value in `r0`.
    Value(u64),
    /// Nothing in `r0`: the tail call did not happen.
    Nothing,
    /// The program in that slot takes over.
    TailCall(u32),
}

impl Machine {
    /// Calls `number` with `r1`-`r5`; reads only the arguments it takes.
    pub(super) fn call(&mut self, number: i32, registers: &Registers) -> Result<Called, Reason> {
        let argument = |n| registers.read(n);
        let wrong = |register| Reason::Argument {
            helper: number,
            register,
        };
        let expect = |register, value| {
            if argument(register)? == value {
                Ok(())
            } else {
                Err(wrong(register))
            }
        };
        Ok(Called::Value(match number {
            helper::MAP_LOOKUP_ELEM => {
                let map = argument(1)?;
                let key = self.space.load(argument(2)?, 4)?;
                self.lookup(map, key).ok_or_else(|| wrong(1))?
            }
            helper::KTIME_GET_NS => {
                let now = self.clock_ns;
                self.clock_ns += self.clock_step_ns;
                now
            }
            // One CPU, the first.
            helper::GET_SMP_PROCESSOR_ID => 0,
            helper::TAIL_CALL => {
                expect(1, XDP_MD)?;
                expect(2, handle(MapRef::Slots))?;
                let index = argument(3)? as u32;
                let filled = self.filled.get(index as usize) == Some(&true);
                if !filled || self.tail_calls == MAX_TAIL_CALLS {
                    return Ok(Called::Nothing);
                }
                self.tail_calls += 1;
                return Ok(Called::TailCall(index));
            }
            helper::REDIRECT => {
                self.redirects.push((argument(1)? as u32, argument(2)?));
                XDP_REDIRECT
            }
            helper::XDP_ADJUST_META => {
                expect(1, XDP_MD)?;
                let meta = self.space.meta as i64 + i64::from(argument(2)? as i32);
                self.adjust_meta(meta) as u64
            }
            helper::RINGBUF_OUTPUT => {
                expect(1, handle(MapRef::Wake))?;
                self.space.bytes(argument(2)?, argument(3)? as usize)?;
                argument(4)?;
                self.wakes += 1;
                0
            }
            helper::XDP_LOAD_BYTES => {
                expect(1, XDP_MD)?;
                let at = HEADROOM + argument(2)? as u32 as usize;
                let len = argument(4)? as u32 as usize;
                let into = argument(3)?;
                // The buffer must be writable whether or not it is written.
                self.space.bytes(into, len)?;
                match self.space.packet.get(at..at + len).map(<[u8]>::to_vec) {
                    None => EINVAL as u64,
                    Some(bytes) => {
                        self.space.bytes(into, len)?.copy_from_slice(&bytes);
                        0
                    }
                }
            }
            helper::XDP_STORE_BYTES => {
                expect(1, XDP_MD)?;
                let at = HEADROOM + argument(2)? as u32 as usize;
                let len = argument(4)? as u32 as usize;
                let bytes = self.space.bytes(argument(3)?, len)?.to_vec();
                match self.space.packet.get_mut(at..at + len) {
                    None => EINVAL as u64,
                    Some(place) => {
                        place.copy_from_slice(&bytes);
                        0
                    }
                }
            }
            _ => return Err(Reason::NoSuchHelper(number)),
        }))
    }

    /// The address of a map's value, 0 if it has none for `key`; `None` if it
    /// is no map that can be looked up.
    fn lookup(&self, map: u64, key: u64) -> Option<u64> {
        let one = |base| if key == 0 { base } else { 0 };
        Some(if map == handle(MapRef::Context) {
            one(CONTEXT)
        } else if map == handle(MapRef::Trusted) {
            one(TRUSTED)
        } else if map == handle(MapRef::Memory) && self.array_mode {
            one(MEMORY)
        } else if map == handle(MapRef::Counters) {
            let rows = (self.space.counters.len() / ROW_BYTES) as u64;
            if key < rows {
                COUNTERS + key * ROW_STRIDE as u64
            } else {
                0
            }
        } else {
            return None;
        })
    }

    /// The address `offset` bytes into a map's only value, for `ld_imm64`.
    /// Per-CPU maps have none; `None` for them and for what is out of range.
    pub(super) fn value(&self, map: MapRef, offset: u32) -> Option<u64> {
        let (base, len) = match map {
            MapRef::Context => (CONTEXT, self.space.context.len()),
            MapRef::Trusted => (TRUSTED, self.space.trusted.len()),
            MapRef::Memory if self.array_mode => (MEMORY, self.space.memory.len()),
            _ => return None,
        };
        ((offset as usize) < len).then(|| base + u64::from(offset))
    }

    /// `bpf_xdp_adjust_meta` (Linux `net/core/filter.c`): at most 252 bytes,
    /// in words.
    fn adjust_meta(&mut self, meta: i64) -> i64 {
        let Some(len) = usize::try_from(meta)
            .ok()
            .and_then(|meta| HEADROOM.checked_sub(meta))
        else {
            return EINVAL;
        };
        if len % 4 != 0 || len > 252 {
            return EACCES;
        }
        self.space.meta = HEADROOM - len;
        0
    }
}
