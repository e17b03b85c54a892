//! A handler's memory: what lies where.
//!
//! ```text
//! 0            guest_bytes        +state_bytes   total_bytes
//! | guest      | state            | endpoint      |
//! ```
//!
//! * **guest** is the handler's Wasm memory, at the addresses it knows.
//! * **state** holds the module's mutable globals, its tables and its passive
//!   segments, out of the guest's reach.
//! * **endpoint** is the application's ring, if the handler has one
//!   ([`endpoint`](crate::endpoint)).
//!
//! The application maps all of it and may write any of it at any time. That
//! spoils its own handler's results. Messages that wait for the user tier are not in it:
//! they lie in the pool of its [queue](crate::queue), which no application maps, since `pass`
//! hands them to the host as they came.

use crate::{endpoint, trusted};

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
pub const FRONT_BYTES: usize = trusted::HEADERS_BYTES;

/// Room in front of a received frame: VLAN tag, a larger IP header or a tunnel's headers fit
/// without moving the payload.
pub const HEADROOM_BYTES: usize = 128;

/// Size of the memory in which Wasm reaches messages: all that the process has.
pub const MESSAGES_BYTES: usize = 1 << 31;

/// What a handler's memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryKind {
    /// A BPF arena.
    Arena,
    /// The one value of a mmapable array.
    Array,
}

/// Where the regions of a handler's memory lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Size of the handler's memory: its declared maximum.
    pub guest_bytes: usize,
    /// Size of the state region, at least [`STATE_BYTES`].
    pub state_bytes: usize,
    /// Slots of the application's ring, a power of two; 0 if there is none.
    pub endpoint_slots: usize,
    /// Room for one payload in each of these; a power of two.
    pub endpoint_slot_bytes: usize,
}

impl Layout {
    /// Of a memory without an endpoint.
    #[must_use]
    pub const fn without_endpoint(guest_bytes: usize, state_bytes: usize) -> Self {
        Self {
            guest_bytes,
            state_bytes,
            endpoint_slots: 0,
            endpoint_slot_bytes: 0,
        }
    }

    /// Offset of the state region.
    #[must_use]
    pub const fn state_offset(&self) -> usize {
        self.guest_bytes
    }

    /// Offset of the endpoint's payloads, [`endpoint_slot_bytes`](Self::endpoint_slot_bytes)
    /// apart.
    #[must_use]
    pub const fn endpoint_payload(&self, slot: usize) -> usize {
        self.guest_bytes + self.state_bytes + slot * self.endpoint_slot_bytes
    }

    /// Offset of the endpoint's control block, which follows its payloads.
    #[must_use]
    pub const fn endpoint_control(&self) -> usize {
        self.endpoint_payload(self.endpoint_slots)
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
            self.endpoint_payload(0)
        } else {
            self.endpoint_descriptor(self.endpoint_slots)
        }
    }
}
