//! Memory that several processes and the kernel's programs write at the same time.
//!
//! Maps what somebody made and handed over as a descriptor, and copies from and to it; no
//! `bpf(2)` here. What makes arenas, arrays and ring buffers is `ashway_kernel::shared`,
//! so a process that only works on such memory need not be able to.
//!
//! * [`Mapping`]: a range of address space. Never as `&[u8]`: `mapping.rs` says why.
//! * [`Memory`]: what a handler and its application share.
//! * [`SharedArray`]: words that kernel programs and the daemon both write.
//! * [`WakeBell`], [`NoteRing`]: ring buffers that programs fill.
//! * [`messages`]: where messages lie that are nobody's but ours.
//! * [`counters()`]: zeros to count in.
//! * [`clock`]: the clocks that programs and the daemon share.
//!
//! Unsafe code is in `mapping`, `messages`, `pool`, `counters` and `clock`.

pub mod clock;
mod counters;
mod mapping;
mod memory;
pub mod messages;
mod notes;
mod pool;
mod ring_buffer;
mod shared;
mod wake;

pub use counters::counters;
pub use mapping::{Mapping, OutsideMemory};
pub use memory::{
    ALIGNMENT, AllegedOffset, GUARD_BYTES, Memory, MemoryKind, RESERVED_BYTES, Reservation,
};
pub use notes::NoteRing;
pub use shared::SharedArray;
pub use wake::WakeBell;

/// `bytes` rounded up to whole pages.
#[must_use]
pub fn page_multiple(bytes: usize) -> usize {
    bytes.next_multiple_of(rustix::param::page_size())
}
