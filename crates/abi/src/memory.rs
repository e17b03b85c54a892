//! The instance's memory: what lies where.
//!
//! ```text
//! 0            guest_bytes        +state_bytes                       total_bytes
//! | guest      | state            | slots: rings x 256 x slot_bytes | endpoint |
//! ```
//!
//! * **guest** is the handler's Wasm memory, at the addresses it knows.
//! * **state** holds the module's mutable globals, its tables and its passive
//!   segments, out of the guest's reach.
//! * **slots** hold the payloads of messages that wait for the user tier.
//! * **endpoint** is the application's ring, if the handler has one
//!   ([`endpoint`](crate::endpoint)).
//!
//! The application maps all of it and may write any of it at any time. That
//! spoils its own handler's results. It also reaches the payload of a message
//! that waits in a slot, which `pass` would hand to the host (SECURITY.md).

use crate::endpoint;

/// Bytes of a Wasm page.
pub const WASM_PAGE: usize = 65536;

/// Bytes of the state region of a module without large tables or passive
/// segments: the least there is. It is always a multiple of a Wasm page.
pub const STATE_BYTES: usize = WASM_PAGE;

/// Offset in the state region of the `u32` current size of the guest memory,
/// in Wasm pages; mutable globals follow at [`STATE_GLOBALS`], 8 bytes each.
pub const STATE_GUEST_PAGES: usize = 0;

/// Offset in the state region of the first mutable global.
pub const STATE_GLOBALS: usize = 64;

/// Bytes of headers that a handler can reach in front of its message: as many as
/// the kernel tier looks for a message behind.
pub const FRONT_BYTES: usize = crate::trusted::SLOT_HEADERS_BYTES;

/// What an instance's memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryKind {
    /// A BPF arena.
    Arena,
    /// The one value of a mmapable array.
    Array,
}

/// Where the regions of one instance lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Size of the handler's memory: its declared maximum.
    pub guest_bytes: usize,
    /// Size of the state region, at least [`STATE_BYTES`].
    pub state_bytes: usize,
    /// Number of rings: one per receive queue.
    pub rings: usize,
    /// Room for one payload; a power of two.
    pub slot_bytes: usize,
    /// Slots of the application's ring, a power of two; 0 if there is none.
    pub endpoint_slots: usize,
}

impl Layout {
    /// Offset of the state region.
    #[must_use]
    pub const fn state_offset(&self) -> usize {
        self.guest_bytes
    }

    /// Offset of the payload slots.
    #[must_use]
    pub const fn slots_offset(&self) -> usize {
        self.guest_bytes + self.state_bytes
    }

    /// Offset of one payload slot.
    #[must_use]
    pub const fn slot_offset(&self, ring: usize, slot: usize) -> usize {
        self.slots_offset() + (ring * crate::trusted::RING_SLOTS + slot) * self.slot_bytes
    }

    /// Offset of the endpoint's control block, which follows its payloads.
    #[must_use]
    pub const fn endpoint_control(&self) -> usize {
        self.slot_offset(self.rings, self.endpoint_slots)
    }

    /// Offset of the endpoint's descriptor of one slot.
    #[must_use]
    pub const fn endpoint_descriptor(&self, slot: usize) -> usize {
        self.endpoint_control() + endpoint::CONTROL_BYTES + slot * endpoint::DESCRIPTOR_BYTES
    }

    /// Size of the whole memory.
    #[must_use]
    pub const fn total_bytes(&self) -> usize {
        if self.endpoint_slots == 0 {
            self.slot_offset(self.rings, 0)
        } else {
            self.endpoint_descriptor(self.endpoint_slots)
        }
    }
}
