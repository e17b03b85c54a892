//! `msg_resize`: what it answers, and how far.
//!
//! A message gets shorter by any number of bytes. It gets longer by as many as its
//! handler has declared ([`GROWS_SECTION`](crate::GROWS_SECTION)), because whether
//! there is room is asked before the handler runs: a kernel-tier activation that met
//! a frame without room could not be handed to the user tier half done.

/// The message is that long now.
pub const DONE: u32 = 0;
/// It would be longer than it came by more than the handler has declared. Nothing
/// has changed.
pub const NO_ROOM: u32 = 1;

/// Most that can be declared, in bytes: no frame to a driver is longer.
pub const MOST: u32 = 4096;
