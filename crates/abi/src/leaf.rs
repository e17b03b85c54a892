//! What demux knows of a path once it has found it.
//!
//! The value of an entry in a shape's hash map: user space writes it, the entry
//! program reads it and counts the hit. Everything the entry program needs is
//! here, so a path of a known shape comes and goes by one map update.

/// A demux entry's value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Leaf {
    /// The path's row in the counters map.
    pub row: u32,
    /// The path's position within its instance.
    pub local: u32,
    /// The instance's ring for this interface's receive queue 0.
    pub ring_base: u16,
    /// How many rings the instance has for this interface; 0 if it has none, and its queues
    /// share those of all interfaces.
    pub ring_count: u16,
    /// Bits of [`context::flag`](crate::context::flag) that hold for every
    /// message of the path.
    pub flags: u32,
    /// The place of the path's program in the interface's program array.
    pub slot: u32,
    /// What the user tier is told with each message ([`SLOT_TAG`](crate::trusted::SLOT_TAG)):
    /// the number of the interface.
    pub tag: u32,
}

/// Offset of the row and of the position that follows it.
pub const ROW: i16 = 0;
/// Offset of [`Leaf::ring_base`] and of [`Leaf::ring_count`] that follows it.
pub const RING_BASE: i16 = 8;
/// Offset of [`Leaf::flags`].
pub const FLAGS: i16 = 12;
/// Most paths of an interface that end in a handler: places for them in its program array.
pub const MAX_SLOTS: usize = 1024;
/// Offset of the slot and of the tag that follows it.
pub const SLOT: i16 = 16;
/// Offset of the `u64` number of hits. CPUs add to it without atomics, so it may
/// fall short where several serve one path; the path's row is exact.
pub const HITS: i16 = 24;
/// Size of an entry's value.
pub const BYTES: usize = 32;

impl Leaf {
    /// Its rings as one word: where they begin and how many they are.
    #[must_use]
    pub const fn rings(self) -> u32 {
        let ([b0, b1], [c0, c1]) = (self.ring_base.to_ne_bytes(), self.ring_count.to_ne_bytes());
        u32::from_ne_bytes([b0, b1, c0, c1])
    }

    /// The value for the map, with no hits.
    #[must_use]
    pub fn to_bytes(self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        let words = [
            self.row,
            self.local,
            self.rings(),
            self.flags,
            self.slot,
            self.tag,
        ];
        for (place, word) in bytes.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    /// The value and the hits, as they lie in the map.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; BYTES]) -> (Self, u64) {
        let word = |at: usize| {
            let mut word = [0; 4];
            word.copy_from_slice(&bytes[at..at + 4]);
            u32::from_ne_bytes(word)
        };
        let half = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        let leaf = Self {
            row: word(0),
            local: word(4),
            ring_base: half(8),
            ring_count: half(10),
            flags: word(12),
            slot: word(16),
            tag: word(20),
        };
        let mut hits = [0; 8];
        hits.copy_from_slice(&bytes[HITS as usize..]);
        (leaf, u64::from_ne_bytes(hits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::mem::offset_of;

    #[test]
    fn offsets_are_the_structs() {
        assert_eq!(offset_of!(Leaf, row), ROW as usize);
        assert_eq!(offset_of!(Leaf, local), ROW as usize + 4);
        assert_eq!(offset_of!(Leaf, ring_base), RING_BASE as usize);
        assert_eq!(offset_of!(Leaf, ring_count), RING_BASE as usize + 2);
        assert_eq!(offset_of!(Leaf, flags), FLAGS as usize);
        assert_eq!(offset_of!(Leaf, slot), SLOT as usize);
        assert_eq!(offset_of!(Leaf, tag), SLOT as usize + 4);
        assert_eq!(size_of::<Leaf>(), HITS as usize);
        let leaf = Leaf {
            row: 1,
            local: 2,
            ring_base: 3,
            ring_count: 7,
            flags: 4,
            slot: 5,
            tag: 6,
        };
        assert_eq!(Leaf::from_bytes(&leaf.to_bytes()), (leaf, 0));
    }
}
