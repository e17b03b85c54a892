//! What a handler asks for while it runs, and the host does when it has ended.
//!
//! `send` and its like are no calls out of the handler: they write into a memory that
//! only they can name, and the host reads it after the activation. So they are the same instructions wherever they run, an activation
//! that is stopped has asked for nothing, and nothing of the host runs inside of it.
//! User tier only.
//!
//! ```text
//! 0           RECORDS              PAYLOADS
//! | count, .. | channel, len x 16 | 16 x 4096 bytes |
//! ```

/// Bytes of it; whole Wasm pages.
pub const BYTES: usize = 128 * 1024;

/// `u32`: messages to be sent.
pub const COUNT: usize = 0;
/// `u32`: channels there are. The host's to write.
pub const CHANNELS: usize = 4;
/// First record, of 8 bytes: `u32` channel, `u32` length.
pub const RECORDS: usize = 8;
/// `u64`: a bit for each timer that was set.
pub const TIMERS_SET: usize = RECORDS + 8 * MOST;
/// First timer, of 8 bytes: in how many ns, or [`NEVER`].
pub const TIMERS: usize = TIMERS_SET + 8;
/// Where the [stage](crate::log::stage) of lines is.
pub const LOG: usize = 1024;
/// First payload, of [`PAYLOAD_BYTES`] each.
pub const PAYLOADS: usize = 4096;

/// Most messages of one activation.
pub const MOST: usize = 16;
/// Longest message.
pub const PAYLOAD_BYTES: usize = 4096;

/// Timers of an instance.
pub const MOST_TIMERS: usize = 64;
/// The time of a timer that is set off.
pub const NEVER: u64 = u64::MAX;

/// What `timer_set` answers to a number that is no timer's; else 0.
pub const NO_TIMER: u32 = 1;

/// What `send` and `msg_clone` answer.
pub mod answer {
    /// It will be sent when the activation has ended.
    pub const QUEUED: u32 = 0;
    /// There is no such channel.
    pub const NO_CHANNEL: u32 = 1;
    /// This activation has sent [`MOST`](super::MOST) already.
    pub const FULL: u32 = 2;
    /// It is longer than [`PAYLOAD_BYTES`](super::PAYLOAD_BYTES).
    pub const TOO_LONG: u32 = 3;
}

const _: () = assert!(TIMERS + 8 * MOST_TIMERS <= LOG);
const _: () = assert!(LOG + crate::log::stage::BYTES <= PAYLOADS);
const _: () = assert!(PAYLOADS + MOST * PAYLOAD_BYTES <= BYTES);
