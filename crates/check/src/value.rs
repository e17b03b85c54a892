//! What the checker knows of a register or a stack slot.

use crate::bpf::MapRef;
use std::ops::Range;

/// Beyond this no packet pointer is believed (`MAX_PACKET_OFF`).
pub(super) const PACKET_MOST: u32 = 0xffff;

/// Where a number comes from, as far as a rule needs it. Holds for the number
/// as it is now: a store to the word that a tag names takes the tag from all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tag {
    None,
    /// The CPU's number.
    Cpu,
    /// The distance of the CPU's context from the first.
    CpuOffset,
    /// The distance of the CPU's lock from the first CPU's.
    LockOffset,
    /// The place of the CPU's lock among the trusted words.
    OwnLock,
    /// The old content of the lock, just fetched.
    Lock,
    /// What the word at this offset of the context holds.
    Word(i16),
    /// The same, less a 32-bit number; whether by at least 1.
    Spent(i16, bool),
    /// All fuel there is: slice and reserve.
    Total,
    /// Not more than all fuel.
    Within,
    /// The new slice.
    Given,
    /// All fuel without the new slice.
    Rest,
    /// The clock.
    Now,
    /// The clock plus at most the budget.
    Later,
    /// What a subprogram has returned; if it is 0, these facts hold no more.
    Returned(u16),
    /// The low bits of the number in this register, which has not changed.
    LowBits(u8, u32),
    /// A multiple of 2 to this power.
    Even(u32),
}

/// A number, zero-extended to 64 bits; as an offset, modulo 2^64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Num {
    pub(super) min: u64,
    pub(super) max: u64,
    pub(super) tag: Tag,
}

impl Num {
    pub(super) const fn range(min: u64, max: u64) -> Self {
        let tag = Tag::None;
        Self { min, max, tag }
    }

    pub(super) const fn exactly(value: u64) -> Self {
        Self::range(value, value)
    }

    /// Any number of this many bytes.
    pub(super) const fn of_bytes(bytes: u32) -> Self {
        Self::range(0, u64::MAX >> (64 - 8 * bytes))
    }

    pub(super) const fn any(wide: bool) -> Self {
        Self::of_bytes(if wide { 8 } else { 4 })
    }

    pub(super) const fn tagged(self, tag: Tag) -> Self {
        Self { tag, ..self }
    }

    /// The low half.
    pub(super) const fn low(self) -> Self {
        match self.tag {
            _ if self.max <= u32::MAX as u64 => self,
            Tag::Even(_) => Self::any(false).tagged(self.tag),
            _ => Self::any(false),
        }
    }

    pub(super) const fn constant(self) -> Option<u64> {
        if self.min == self.max {
            Some(self.min)
        } else {
            None
        }
    }

    /// The number, if it is only one and small.
    pub(super) fn only(self) -> Option<i16> {
        self.constant().and_then(|at| i16::try_from(at).ok())
    }

    /// The bytes that an access at this offset can touch.
    pub(super) fn touches(self, bytes: u32) -> Range<u128> {
        self.min.into()..u128::from(self.max) + u128::from(bytes)
    }

    /// Whether it is not negative as a signed number of that width.
    pub(super) const fn is_natural(self, wide: bool) -> bool {
        self.max <= Self::any(wide).max >> 1
    }

    fn join(self, other: Self, widen: bool) -> Self {
        let mut min = self.min.min(other.min);
        let mut max = self.max.max(other.max);
        if widen && min < self.min {
            min = 0;
        }
        if widen && max > self.max {
            max = Self::any(max > u32::MAX.into()).max;
        }
        let tag = match (self.tag, other.tag) {
            (a, b) if a == b => a,
            (Tag::Total | Tag::Within, Tag::Total | Tag::Within) => Tag::Within,
            _ => Tag::None,
        };
        Self { min, max, tag }
    }
}

/// What a pointer leads into; its offset is from the region's begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Region {
    /// The hook's context.
    Md,
    /// The stack, whose begin is its lowest byte.
    Stack,
    /// The contexts of all CPUs.
    Contexts,
    /// This CPU's context.
    Context,
    Trusted,
    /// The memory as a map's value.
    Memory,
    /// The memory as an arena.
    Arena,
    /// A row of counters, or null.
    Row,
}

/// What packet pointers that move by constants have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Base {
    /// `data`.
    Data,
    /// `data_meta`, which ends at `data`.
    Meta,
    /// Moved by a number at this instruction: another place each time, so no
    /// older pointer may bear it then.
    Moved(usize),
    /// Different on the ways that join before this block, in this place.
    Joined(usize, usize),
}

/// A packet pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packet {
    pub(super) base: Base,
    /// Distance from the base.
    pub(super) off: i32,
    /// Bytes from the base on that are known to be there.
    pub(super) known: i32,
}

impl Packet {
    pub(super) const fn begin(base: Base) -> Self {
        let (off, known) = (0, 0);
        Self { base, off, known }
    }

    fn join(self, other: Self, place: Base, widen: bool) -> Option<Self> {
        // Another place has such a base from another time: another pointer.
        if matches!((self.base, place), (Base::Joined(a, of), Base::Joined(b, to)) if a == b && of != to)
        {
            return None;
        }
        if (self.base, self.off) == (other.base, other.off) {
            let known = self.known.min(other.known);
            return Some(Self { known, ..self });
        }
        let bad = |packet: Self| packet.base == Base::Meta || packet.off < 0;
        let ahead = (self.known - self.off).min(other.known - other.off);
        let known = ahead.max(0) * i32::from(!widen);
        let good = !bad(self) && !bad(other);
        good.then_some(Self {
            known,
            ..Self::begin(place)
        })
    }
}

/// What a register or a stack slot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// Nothing that may be used.
    Unset,
    Num(Num),
    In(Region, Num),
    Packet(Packet),
    /// `data_end`.
    PacketEnd,
    /// A map, for helpers.
    Map(MapRef),
}

impl Value {
    pub(super) const fn number(value: u64) -> Self {
        Self::Num(Num::exactly(value))
    }

    /// The first byte of a region.
    pub(super) const fn begin(region: Region) -> Self {
        Self::In(region, Num::exactly(0))
    }

    /// What holds if it is one or the other, where packet pointers that differ
    /// get the base `place`. `widen` makes what still grows as large as it can
    /// be, so that joining comes to an end.
    pub(super) fn join(self, new: Self, place: Base, widen: bool) -> Self {
        match (self, new) {
            (Self::Packet(a), Self::Packet(b)) => {
                a.join(b, place, widen).map_or(Self::Unset, Self::Packet)
            }
            (a, b) if a == b => a,
            (Self::Num(a), Self::Num(b)) => Self::Num(a.join(b, widen)),
            (Self::In(a, at), Self::In(b, to)) if a == b => Self::In(a, at.join(to, widen)),
            _ => Self::Unset,
        }
    }
}
