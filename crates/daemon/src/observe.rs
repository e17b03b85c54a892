//! Observing: what happens to messages, step by step, for whoever asks while the
//! node runs (`ashway trace`, `ashway capture`).
//!
//! ```text
//! programs made to observe --ring of notes--+
//!                                           +-> the observer's thread: puts the steps
//! worker, while it has a [`tap`] --channel--+   of each message together ([`story`]),
//!                                               and sends each client those it asked
//!                                               for ([`audience`])
//! ```
//!
//! While nobody asks, the programs are those without observation, the worker has no
//! tap, and there is neither ring nor thread. Nobody who observes can hold messages
//! up: where a ring, a channel or a client's socket is full, what would have gone
//! there is lost and counted.

use ashway_abi::{Cause, Count, observe};

pub(crate) mod audience;
mod observer;
mod story;
pub(crate) mod tap;

pub(crate) use observer::{Kernel, Observer};
pub(crate) use story::{Names, Relay};

/// Something that happened to a message in the user tier.
#[derive(Debug)]
pub(crate) struct Event {
    /// The message's number ([`ashway_abi::observe::SEQUENCE`]).
    pub(crate) sequence: u64,
    /// When, in ns of `CLOCK_MONOTONIC`.
    pub(crate) at: u64,
    pub(crate) what: What,
}

/// What happened.
#[derive(Debug)]
pub(crate) enum What {
    /// A frame came by a packet socket.
    Received {
        /// The interface's number.
        iface: u32,
        frame: Kept,
    },
    /// The worker took it out of a ring.
    Taken {
        /// How often its payload had been copied by then.
        copies: u8,
    },
    /// It goes along this path, if along any.
    Path(Option<Box<str>>),
    /// A stage takes it.
    Stage { name: Box<str>, forward: bool },
    /// A handler ran.
    Ran {
        handler: Box<str>,
        fuel: u64,
        stopped: Option<Cause>,
        /// How often its payload had been copied where the handler worked.
        copies: u8,
    },
    /// It ended so.
    Fate(Count),
    /// A frame went out, or was lost at the socket.
    Sent {
        /// The interface's number.
        iface: u32,
        frame: Kept,
        handed_over: bool,
        /// How often its payload had been copied by then.
        copies: u8,
    },
}

/// What is kept of a frame: its beginning, as in a program's note, so that what waits
/// is bounded in bytes too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    /// At most [`observe::MOST_BYTES`].
    pub(crate) bytes: Box<[u8]>,
    /// How long the frame is.
    pub(crate) len: usize,
}

impl Kept {
    pub(crate) fn of(frame: &[u8]) -> Self {
        Self {
            bytes: frame[..frame.len().min(observe::MOST_BYTES)].into(),
            len: frame.len(),
        }
    }
}
