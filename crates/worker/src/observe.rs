//! Observing: what happens to messages, step by step, for whoever asks while the
//! node runs (`ashway trace`, `ashway capture`).
//!
//! ```text
//! programs made to observe --ring of notes--+
//!                                           +-> the observer's thread: puts the steps
//! worker, while it has a [`trace`] --channel--+   of each message together ,
//!                                               and sends each client those it asked
//!                                               for ([`audience`])
//! ```
//!
//! While nobody asks, the programs are those without observation, the worker has no
//! tap, and there is neither ring nor thread. Nobody who observes can hold messages
//! up: where a ring, a channel or a client's socket is full, what would have gone
//! there is lost and counted.

use ashway_abi::{Cause, Count, observe};

pub mod trace;

/// Something that happened to a message in the user tier.
#[derive(Debug)]
pub struct Event {
    /// The message's number ([`ashway_abi::observe::SEQUENCE`]).
    pub sequence: u64,
    /// When, in ns of `CLOCK_MONOTONIC`.
    pub at: u64,
    /// What happened.
    pub what: What,
}

/// What happened.
#[derive(Debug)]
pub enum What {
    /// A frame came by a packet socket.
    Received {
        /// The interface's number.
        iface: u32,
        /// The frame.
        frame: FramePrefix,
    },
    /// The worker took it out of a ring.
    Taken {
        /// How often its payload had been copied by then.
        copies: u8,
    },
    /// It goes along this path, if along any.
    Path(Option<Box<str>>),
    /// A stage takes it.
    Stage {
        /// Its name.
        name: Box<str>,
        /// Whether from the first stage on.
        forward: bool,
    },
    /// A handler ran.
    Ran {
        /// Its name.
        handler: Box<str>,
        /// What it used.
        fuel: u64,
        /// Why it was stopped, if it was.
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
        /// The frame.
        frame: FramePrefix,
        /// Whether it went out.
        handed_over: bool,
        /// How often its payload had been copied by then.
        copies: u8,
    },
}

/// What is kept of a frame: its beginning, as in a program's note, so that what waits
/// is bounded in bytes too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FramePrefix {
    /// At most [`observe::MOST_BYTES`].
    pub bytes: Box<[u8]>,
    /// How long the frame is.
    pub len: usize,
}

impl FramePrefix {
    /// Of this frame.
    #[must_use]
    pub fn of(frame: &[u8]) -> Self {
        Self {
            bytes: frame[..frame.len().min(observe::MOST_BYTES)].into(),
            len: frame.len(),
        }
    }
}
