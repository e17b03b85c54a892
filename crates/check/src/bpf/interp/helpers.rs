//! The kernel's helpers, as far as our programs call them.

use super::space::{
    CONTEXT, COUNTERS, HITS, HOPS, MAPS, MD, MEMORY, ROW_STRIDE, TRUSTED, leaf_address,
};
use super::step::Registers;
use super::{Machine, Reason};
use crate::bpf::{Hook, MapRef, helper};
use ashway_abi::count::KERNEL_BYTES;

/// Tail calls in one activation (`MAX_TAIL_CALL_CNT`).
const MAX_TAIL_CALLS: u32 = 33;

/// `XDP_REDIRECT`.
const XDP_REDIRECT: u64 = 4;
/// `TC_ACT_REDIRECT`.
const TC_ACT_REDIRECT: u64 = 7;

const EAGAIN: i64 = -11;
const ENOMEM: i64 = -12;
const EFAULT: i64 = -14;
const EINVAL: i64 = -22;
const EACCES: i64 = -13;

/// Length of an Ethernet header.
const ETH_BYTES: usize = 14;

/// `sizeof(struct xdp_frame)`.
const FRAME_RECORD_BYTES: usize = 40;

/// Handle of the first hash, behind [`MAPS`].
const SHAPES: u64 = 16;

/// The handle of a map, as `ld_imm64` gives it to helpers.
pub(super) const fn handle(map: MapRef) -> u64 {
    MAPS + match map {
        MapRef::Context => 0,
        MapRef::Counters => 1,
        MapRef::Wake => 2,
        MapRef::Slots => 3,
        MapRef::Trusted => 4,
        MapRef::Memory => 5,
        MapRef::Hits => 6,
        MapRef::Hops => 7,
        MapRef::Notes => 8,
        MapRef::Shape(number) => SHAPES + number as u64,
    }
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
        let xdp = self.hook == Hook::Xdp;
        Ok(Called::Value(match number {
            helper::MAP_LOOKUP_ELEM => {
                let map = argument(1)?;
                let key = argument(2)?;
                let found = if let Some(shape) = map.checked_sub(MAPS + SHAPES) {
                    self.lookup_shape(shape as u32, key)?
                } else {
                    let key = self.space.load(key, 4)?;
                    self.lookup(map, key)
                };
                found.ok_or_else(|| wrong(1))?
            }
            helper::KTIME_GET_NS => {
                let now = self.clock_ns + self.executed * self.insn_ns;
                let step = self.clock_steps_ns.pop_front();
                self.clock_ns += step.unwrap_or(self.clock_step_ns);
                while let Some((_, at, word)) = self.written_ns.pop_front_if(|(ns, ..)| *ns <= now)
                {
                    self.space.trusted[at..at + 4].copy_from_slice(&word.to_le_bytes());
                }
                now
            }
            helper::GET_SMP_PROCESSOR_ID => self.cpu as u64,
            helper::TAIL_CALL => {
                expect(1, MD)?;
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
                if xdp { XDP_REDIRECT } else { TC_ACT_REDIRECT }
            }
            helper::XDP_ADJUST_META if xdp => {
                expect(1, MD)?;
                let meta = self.space.meta as i64 + i64::from(argument(2)? as i32);
                self.adjust_meta(meta) as u64
            }
            helper::XDP_ADJUST_HEAD if xdp => {
                expect(1, MD)?;
                let start = self.space.start as i64 + i64::from(argument(2)? as i32);
                self.adjust_head(start) as u64
            }
            helper::XDP_ADJUST_TAIL if xdp => {
                expect(1, MD)?;
                let end = self.space.packet.len() as i64 + i64::from(argument(2)? as i32);
                self.adjust_tail(end) as u64
            }
            helper::RINGBUF_OUTPUT if argument(1)? == handle(MapRef::Notes) => {
                let note = self.space.bytes(argument(2)?, argument(3)? as usize)?;
                let room = self.notes.len() < self.notes_limit;
                if room {
                    self.notes.push(note.to_vec());
                }
                argument(4)?;
                if room { 0 } else { EAGAIN as u64 }
            }
            helper::RINGBUF_OUTPUT => {
                expect(1, handle(MapRef::Wake))?;
                self.space.bytes(argument(2)?, argument(3)? as usize)?;
                argument(4)?;
                self.wakes += 1;
                0
            }
            helper::CHECK_MTU => {
                expect(1, MD)?;
                // The context's interface, and the frame's own length.
                expect(2, 0)?;
                let mtu = (self.mtu as u32).to_le_bytes();
                self.space.bytes(argument(3)?, 4)?.copy_from_slice(&mtu);
                let len = self.space.linear - self.space.start;
                let grown = len as i64 + i64::from(argument(4)? as i32);
                expect(5, 0)?;
                u64::from(grown > self.mtu + ETH_BYTES as i64)
            }
            helper::XDP_GET_BUFF_LEN if xdp => {
                expect(1, MD)?;
                self.space.frame().len() as u64
            }
            helper::XDP_LOAD_BYTES if xdp => {
                expect(1, MD)?;
                let [at, into, len] = [argument(2)?, argument(3)?, argument(4)?];
                self.load_bytes(at, into, len, EINVAL)?
            }
            helper::SKB_LOAD_BYTES if !xdp => {
                expect(1, MD)?;
                let [at, into, len] = [argument(2)?, argument(3)?, argument(4)?];
                self.load_bytes(at, into, len, EFAULT)?
            }
            helper::XDP_STORE_BYTES if xdp => {
                expect(1, MD)?;
                let [at, from, len] = [argument(2)?, argument(3)?, argument(4)?];
                self.store_bytes(at, from, len)?
            }
            helper::SKB_PULL_DATA if !xdp => {
                expect(1, MD)?;
                self.pull(argument(2)? as u32 as usize) as u64
            }
            helper::SKB_CHANGE_TAIL if !xdp => {
                expect(1, MD)?;
                let len = argument(2)? as u32 as usize;
                expect(3, 0)?;
                self.change_tail(len) as u64
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
            let rows = (self.space.counters.len() / KERNEL_BYTES) as u64;
            if key < rows {
                COUNTERS + key * ROW_STRIDE as u64
            } else {
                0
            }
        } else {
            return None;
        })
    }

    /// The same for a demux shape's hash.
    fn lookup_shape(&mut self, shape: u32, key: u64) -> Result<Option<u64>, Reason> {
        let Some(shape) = self.shapes.get(&shape) else {
            return Ok(None);
        };
        let key = self.space.bytes(key, shape.key_bytes)?;
        let leaf = shape.entries.get(&*key);
        Ok(Some(leaf.map_or(0, |leaf| leaf_address(*leaf))))
    }

    /// The address `offset` bytes into a map's only value, for `ld_imm64`.
    /// Per-CPU maps have none; `None` for them and for what is out of range.
    pub(super) fn value(&self, map: MapRef, offset: u32) -> Option<u64> {
        let (base, len) = match map {
            MapRef::Context => (CONTEXT, self.space.context.len()),
            MapRef::Trusted => (TRUSTED, self.space.trusted.len()),
            MapRef::Hits => (HITS, self.space.hits.len()),
            MapRef::Hops => (HOPS, self.space.hops.len()),
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
            .and_then(|meta| self.space.start.checked_sub(meta))
        else {
            return EINVAL;
        };
        if len % 4 != 0 || len > 252 {
            return EACCES;
        }
        self.space.meta = self.space.start - len;
        0
    }

    /// `bpf_xdp_adjust_head`, for frames without metadata: at least the kernel's
    /// own record in front, and an Ethernet header behind.
    fn adjust_head(&mut self, start: i64) -> i64 {
        let last = self.space.packet.len() - ETH_BYTES;
        match usize::try_from(start) {
            Ok(start) if (FRAME_RECORD_BYTES..=last).contains(&start) => {
                self.space.start = start;
                self.space.meta = start;
                0
            }
            _ => EINVAL,
        }
    }

    /// `bpf_xdp_adjust_tail`; what the frame gains is 0.
    fn adjust_tail(&mut self, end: i64) -> i64 {
        let first = self.space.start + ETH_BYTES;
        match usize::try_from(end) {
            Ok(end) if (first..=self.space.tail).contains(&end) => {
                self.space.packet.resize(end, 0);
                self.space.linear = end;
                0
            }
            _ => EINVAL,
        }
    }

    /// Copies bytes of the frame, or returns `beyond` if it has not so many. The buffer must
    /// be writable whether or not it is written.
    fn load_bytes(&mut self, at: u64, into: u64, len: u64, beyond: i64) -> Result<u64, Reason> {
        let (at, len) = (at as u32 as usize, len as u32 as usize);
        self.space.bytes(into, len)?;
        let Some(bytes) = self.space.frame().get(at..at + len).map(<[u8]>::to_vec) else {
            return Ok(beyond as u64);
        };
        self.space.bytes(into, len)?.copy_from_slice(&bytes);
        Ok(0)
    }

    /// `bpf_xdp_store_bytes`.
    fn store_bytes(&mut self, at: u64, from: u64, len: u64) -> Result<u64, Reason> {
        let (at, len) = (at as u32 as usize, len as u32 as usize);
        let bytes = self.space.bytes(from, len)?.to_vec();
        let at = self.space.start + at;
        let Some(place) = self.space.packet.get_mut(at..at + len) else {
            return Ok(EINVAL as u64);
        };
        place.copy_from_slice(&bytes);
        Ok(0)
    }

    /// `bpf_skb_pull_data`: at least so many bytes are linear.
    fn pull(&mut self, len: usize) -> i64 {
        if len > self.space.frame().len() {
            return ENOMEM;
        }
        self.space.linear = self.space.linear.max(self.space.start + len);
        0
    }

    /// `bpf_skb_change_tail`: there is always room, and all of the frame is linear then.
    fn change_tail(&mut self, len: usize) -> i64 {
        if len < ETH_BYTES {
            return EINVAL;
        }
        self.space.linear = self.space.start + len;
        self.space.packet.resize(self.space.linear, 0);
        0
    }
}
