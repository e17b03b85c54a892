//! A queue: the trusted words that it is made of, and the pool behind them.
//!
//! ```text
//! 0                 words          pool_offset       bytes
//! | trusted words   |              | blocks          |
//! ```
//!
//! * **[trusted words](crate::trusted)**: the rings, the words of each path, the buckets of
//!   flows, and, of a handler that runs on several CPUs at once, a lock for each CPU.
//! * **pool**: blocks that frames lie in, each slot of a ring has one, and there are some more.
//!
//! Only programs and the daemon map it. A handler's queue has the handler's own words, too:
//! its lock, what stopped it, its lines, and the places that its endpoint has given out.

use crate::memory::HEADROOM_BYTES;
use crate::{flow, trusted};

/// Bytes of a page.
const PAGE_BYTES: usize = 4096;

/// What a queue has, which is where it all lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLayout {
    /// Paths that messages in it can be of.
    pub paths: usize,
    /// Number of rings: one per receive queue.
    pub rings: usize,
    /// Room for one payload; a power of two.
    pub slot_bytes: usize,
    /// Locks of the handler: 0 where it has the one among its [words](crate::trusted::LOCK), else
    /// one for each possible CPU.
    pub locks: usize,
}

impl QueueLayout {
    /// Offset of a path's [word](trusted::PATHS).
    #[must_use]
    pub const fn path_word(&self, path: usize) -> usize {
        trusted::paths_at(self.paths, self.rings) + path * trusted::PATH_STRIDE
    }

    /// Offset of a [bucket of flows](trusted::flows_at).
    #[must_use]
    pub const fn flow_word(&self, bucket: usize) -> usize {
        trusted::flows_at(self.paths, self.rings) + bucket * size_of::<u32>()
    }

    /// Offset of the [lock of a CPU](trusted::LOCK_STRIDE), where there is one for each.
    #[must_use]
    pub const fn cpu_lock(&self, cpu: usize) -> usize {
        self.flow_word(flow::BUCKETS).next_multiple_of(64) + cpu * trusted::LOCK_STRIDE
    }

    /// Offset of the pool: the blocks that frames lie in,
    /// [`block_bytes`](Self::block_bytes) apart, each with [`HEADROOM_BYTES`] in front of its
    /// frame.
    #[must_use]
    pub const fn pool_offset(&self) -> usize {
        // It is mapped once more, by itself.
        self.cpu_lock(self.locks).next_multiple_of(PAGE_BYTES)
    }

    /// Bytes of a frame that a slot's block holds: any frame whose payload fits a slot. A
    /// longer one lies in as many slots as it takes, each but the last full.
    #[must_use]
    pub const fn piece_bytes(&self) -> usize {
        trusted::HEADERS_BYTES + self.slot_bytes
    }

    /// Size of a block.
    #[must_use]
    pub const fn block_bytes(&self) -> usize {
        (HEADROOM_BYTES + self.piece_bytes()).next_multiple_of(64)
    }

    /// How many there are: at least one, so that there is a pool to be mapped.
    #[must_use]
    pub const fn blocks(&self) -> usize {
        let blocks = self.rings * (trusted::RING_SLOTS + trusted::SPARE_BLOCKS);
        if blocks == 0 { 1 } else { blocks }
    }

    /// The words that say [which block](trusted::blocks_at) each slot has, and what they are
    /// at first.
    pub fn first_blocks(&self) -> impl Iterator<Item = (usize, u32)> {
        let bytes = self.block_bytes();
        (0..self.rings * trusted::RING_SLOTS)
            .map(move |slot| (self.block_word(slot), (slot * bytes) as u32))
    }

    /// That word of a slot, which is counted over all rings.
    #[must_use]
    pub const fn block_word(&self, slot: usize) -> usize {
        trusted::blocks_at(self.rings) + slot * size_of::<u32>()
    }

    /// Size of the trusted words and the pool behind them.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.pool_offset() + self.blocks() * self.block_bytes()
    }
}
