//! The endpoint: the ring in an instance's memory by which `deliver` hands
//! messages to the application.
//!
//! ```text
//! slots x slot_bytes    control             descriptors
//! | payloads          | consumed, need_wake | slots x 16 bytes |
//! ```
//!
//! It lies behind the handler's state
//! ([`Layout::endpoint_payload`](crate::memory::Layout::endpoint_payload)).
//! Programs in softirq and the daemon put messages in; the application, which is
//! one process, takes them out.
//!
//! The application can write all of it. So the place of the next message
//! ([`ENDPOINT_PRODUCED`](crate::trusted::ENDPOINT_PRODUCED)) is a trusted word, and
//! `consumed` is an allegation: a wrong one makes the ring look full, or lets unread
//! messages be written over, and both are its owner's own.
//!
//! **Putting in:** take a ticket, if `ticket - consumed` is less than the number of
//! slots; fill slot `ticket % slots`; write `ticket + 1` to its [`READY`] by a full
//! barrier; if [`NEED_WAKE`] is set, clear it and make the reader's descriptor readable.
//! **Taking out:** the next message is there when the [`READY`] of slot
//! `consumed % slots` is `consumed + 1`; copy it, then write `consumed + 1`.
//! **Sleeping:** empty the descriptor, set [`NEED_WAKE`], a full barrier, look once
//! more, wait until the descriptor is readable.

/// Fewest slots; a power of two.
pub const MIN_SLOTS: usize = 16;
/// Most slots; a power of two.
pub const MAX_SLOTS: usize = 4096;

/// `u32` in the control block: messages taken out so far (wraps). The
/// application's to write.
pub const CONSUMED: usize = 0;
/// `u32` in the control block: 1 if the application sleeps and wants its descriptor
/// to become readable.
pub const NEED_WAKE: usize = 64;
/// Bytes of the control block; the descriptors follow.
pub const CONTROL_BYTES: usize = 128;

/// Bytes of a descriptor.
pub const DESCRIPTOR_BYTES: usize = 16;
/// `u32` in a descriptor: the message's place in the sequence, plus 1, once it is
/// there.
pub const READY: usize = 0;
/// `u32` in a descriptor: bytes of the payload, or [`VOID`].
pub const LEN: usize = 4;
/// `u32` in a descriptor: the path's number among those of the handler.
pub const PATH: usize = 8;

/// [`LEN`] of a slot that was taken and holds no message after all: to be stepped
/// over.
pub const VOID: u32 = u32::MAX;
