//! What the checker knows of a register or a stack slot.
//!
//! Numbers are unsigned ranges. A tag says where a number comes from, as far
//! as a rule needs it; it holds for the number as it is now, so a store to the
//! word a tag names takes the tag from every number.

use crate::bpf::MapRef;

/// Beyond this no packet pointer is believed (`MAX_PACKET_OFF`).
pub(super) const PACKET_MOST: u32 = 0xffff;

/// Where a number comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tag {
    None,
    /// The CPU's number.
    Cpu,
    /// The distance of the CPU's context from the first.
    CpuOffset,
    /// The old content of the lock, just fetched.
    Lock,
    /// What the word at this offset of the context holds.
    Same(i16),
    /// At least 1 less.
    Less(i16),
    /// Less or the same.
    AtMost(i16),
    /// At least 1 more.
    More(i16),
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
    /// The low bits of the number in this register, which has not changed.
    LowBits(u8, u8),
}

/// A number, zero-extended to 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Num {
    pub(super) min: u64,
    pub(super) max: u64,
    /// The number is a multiple of 2 to this power.
    pub(super) zeros: u8,
    pub(super) tag: Tag,
}

impl Num {
    pub(super) const fn range(min: u64, max: u64) -> Self {
        Self {
            min,
            max,
            zeros: 0,
            tag: Tag::None,
        }
    }

    pub(super) const fn exactly(value: u64) -> Self {
        Self {
            zeros: if value == 0 {
                6
            } else {
                value.trailing_zeros() as u8
            },
            ..Self::range(value, value)
        }
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

    pub(super) const fn constant(self) -> Option<u64> {
        if self.min == self.max {
            Some(self.min)
        } else {
            None
        }
    }

    /// Whether it is not negative as a signed number of that width.
    pub(super) const fn is_natural(self, wide: bool) -> bool {
        self.max
            <= if wide {
                i64::MAX as u64
            } else {
                i32::MAX as u64
            }
    }

    fn join(self, other: Self, widen: bool) -> Self {
        let mut min = self.min.min(other.min);
        let mut max = self.max.max(other.max);
        if widen && min < self.min {
            min = 0;
        }
        if widen && max > self.max {
            max = if max <= u32::MAX.into() {
                u32::MAX.into()
            } else {
                u64::MAX
            };
        }
        let tag = match (self.tag, other.tag) {
            (a, b) if a == b => a,
            (Tag::Total | Tag::Within, Tag::Total | Tag::Within) => Tag::Within,
            _ => Tag::None,
        };
        Self {
            min,
            max,
            zeros: self.zeros.min(other.zeros),
            tag,
        }
    }
}

/// A range of offsets into a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) min: i64,
    pub(super) max: i64,
    /// Each offset is a multiple of 2 to this power.
    pub(super) zeros: u8,
}

impl Span {
    /// One offset.
    pub(super) const fn at(offset: u32) -> Self {
        Self {
            min: offset as i64,
            max: offset as i64,
            zeros: Num::exactly(offset as u64).zeros,
        }
    }

    /// As far as an arena's pointer reaches.
    pub(super) fn low(num: Num) -> Self {
        let num = if num.max > u32::MAX.into() {
            Num {
                zeros: num.zeros,
                ..Num::any(false)
            }
        } else {
            num
        };
        Self {
            min: num.min as i64,
            max: num.max as i64,
            zeros: num.zeros,
        }
    }

    /// Moved by a number below 2^32, or back by a constant.
    pub(super) fn moved(self, num: Num, back: bool) -> Option<Self> {
        let most = u32::MAX.into();
        let (min, max) = match num.constant() {
            _ if num.max > most => return None,
            Some(by) if back => (-(by as i64), -(by as i64)),
            None if back => return None,
            _ => (num.min as i64, num.max as i64),
        };
        Some(Self {
            min: self.min + min,
            max: self.max + max,
            zeros: self.zeros.min(num.zeros),
        })
    }

    /// Whether `bytes` bytes at `off` are inside, wherever in the span it is.
    pub(super) fn inside(self, off: i16, bytes: u32, from: usize, to: usize) -> bool {
        let off = i64::from(off);
        self.min + off >= from as i64 && self.max + off + i64::from(bytes) <= to as i64
    }

    /// The offset plus `off`, if it is only one.
    pub(super) fn only(self, off: i16) -> Option<i64> {
        (self.min == self.max).then_some(self.min + i64::from(off))
    }

    fn join(self, other: Self, widen: bool) -> Self {
        let hull = Self {
            min: self.min.min(other.min),
            max: self.max.max(other.max),
            zeros: self.zeros.min(other.zeros),
        };
        // What still grows is not used as a pointer: beyond every region.
        let far = if widen && hull != self { 1 << 40 } else { 0 };
        Self {
            min: hull.min - far,
            max: hull.max + far,
            ..hull
        }
    }
}

/// What packet pointers that move by constants have in common. A number made
/// anew (at an instruction, or where ways join) means another place each time,
/// so nothing else may bear it then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Base {
    /// `data`.
    Data,
    /// `data_meta`, which ends at `data`.
    Meta,
    /// Moved by a number at this instruction.
    Moved(usize),
    /// Different on the ways that join before this block, in this place.
    Joined(usize, usize),
}

/// What a pointer with a range of offsets leads into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Region {
    /// This CPU's context.
    Context,
    Trusted,
    /// The memory as a map's value.
    Memory,
    /// The memory as an arena.
    Arena,
    /// A row of counters.
    Row,
}

/// A packet pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packet {
    pub(super) base: Base,
    /// Distance from the base.
    pub(super) off: i32,
    /// Bytes from the base on that are known to be there.
    pub(super) known: i32,
    /// How far from `data` the base can be.
    pub(super) far: u32,
}

/// What a register or a stack slot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// Nothing that may be used.
    Unset,
    Num(Num),
    /// The `xdp_md` pointer.
    Md,
    /// The frame pointer and a distance.
    Stack(i32),
    Packet(Packet),
    /// `data_end`.
    PacketEnd,
    /// A map, for helpers.
    Map(MapRef),
    /// The contexts of all CPUs.
    Contexts,
    /// A pointer into one of these.
    In(Region, Span),
    /// A row of counters, or null.
    MaybeRow,
}

impl Value {
    pub(super) const fn number(value: u64) -> Self {
        Self::Num(Num::exactly(value))
    }

    /// What holds if it is one or the other, at `place` of the block that ways
    /// lead into. `widen` makes what still grows as large as it can be.
    pub(super) fn join(self, new: Self, block: usize, place: usize, widen: bool) -> Self {
        match (self, new) {
            (a, b) if a == b => a,
            (Self::Num(a), Self::Num(b)) => Self::Num(a.join(b, widen)),
            (Self::In(a, s), Self::In(b, t)) if a == b => Self::In(a, s.join(t, widen)),
            (Self::Packet(a), Self::Packet(b)) => Self::join_packets(a, b, block, place, widen),
            _ => Self::Unset,
        }
    }

    fn join_packets(a: Packet, b: Packet, block: usize, place: usize, widen: bool) -> Self {
        let same = a.base == b.base && a.off == b.off;
        // Otherwise the place itself is the new base.
        let from_base = |packet: Packet| if same { 0 } else { packet.off };
        let far = |packet: Packet| packet.far + from_base(packet).unsigned_abs();
        let known = |packet: Packet| packet.known - from_base(packet);
        let meta = a.base == Base::Meta || b.base == Base::Meta;
        let grows = widen && (far(b) > far(a) || known(b) < known(a));
        if !same && (meta || a.off < 0 || b.off < 0 || grows) || far(a).max(far(b)) > PACKET_MOST {
            return Self::Unset;
        }
        Self::Packet(Packet {
            base: if same {
                a.base
            } else {
                Base::Joined(block, place)
            },
            off: a.off - from_base(a),
            known: if grows {
                0
            } else {
                known(a).min(known(b)).max(0)
            },
            far: far(a).max(far(b)),
        })
    }
}
