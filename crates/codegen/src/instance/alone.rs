//! A program of the kernel tier, run for one message without an entry program: what it expects in
//! its context, and what it leaves there.
//!
//! For whoever runs the program that a node is about to load, instruction by instruction, over
//! maps in which nothing has happened (`worker/src/dry_run.rs`). Messages are
//! [plain](flag::PLAIN): of others the entry program writes down where their headers are.

use ashway_abi::{Cause, context, context::flag};

use super::{PLAIN_PAYLOADS, VERDICT};
use crate::normalise::ir::FileOffset;

/// A message in its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// Whether it came by IPv6.
    ipv6: bool,
    /// Its length.
    len: u32,
    /// The path's number within its instance.
    path: u32,
}

impl Start {
    /// Of `len` bytes behind the headers of a plain packet, of which there are `front` bytes;
    /// none if no plain packet has so many. The path has this number within its instance.
    #[must_use]
    pub fn plain(front: usize, len: usize, path: usize) -> Option<Self> {
        let is_so = |place: &i32| usize::try_from(*place) == Ok(front);
        let ipv6 = PLAIN_PAYLOADS.iter().position(is_so)? == 1;
        Some(Self {
            ipv6,
            len: len.try_into().ok()?,
            path: path.try_into().ok()?,
        })
    }

    /// The words of the context, `u32` each, that are to be written before the program runs, in
    /// the context of each CPU that it may run on.
    #[must_use]
    pub fn words(self) -> [(i16, u32); 9] {
        let family = if self.ipv6 { flag::IPV6 } else { 0 };
        [
            (context::ROW, 0),
            (context::LOCAL_PATH, self.path),
            // Ring 0, and no other.
            (context::RING_BASE, 1 << 16),
            (
                context::PAYLOAD_OFF,
                PLAIN_PAYLOADS[usize::from(self.ipv6)] as u32,
            ),
            (context::PAYLOAD_LEN, self.len),
            (context::FLAGS, flag::PLAIN | family),
            (context::CAUSE, 0),
            (context::DIRTY, 0),
            // No verdict.
            (VERDICT, u32::MAX),
        ]
    }
}

/// What has come of the handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// The verdict's number, or cause and place of its stop.
    pub result: Result<u32, (Cause, FileOffset)>,
    /// Whether it changed the message.
    pub dirty: bool,
    /// The message's length now.
    pub len: u32,
}

impl End {
    /// By the context of the CPU that it ran on; nothing where the handler has not run: the
    /// program has led the message to the user tier, or ran on another CPU.
    #[must_use]
    pub fn read(word: impl Fn(i16) -> u32) -> Option<Self> {
        let result = match Cause::from_number(word(context::CAUSE)) {
            Some(cause) => Err((cause, word(context::AT))),
            None => Ok(word(VERDICT)),
        };
        (result != Ok(u32::MAX)).then(|| Self {
            result,
            dirty: word(context::DIRTY) != 0,
            len: word(context::PAYLOAD_LEN),
        })
    }
}
