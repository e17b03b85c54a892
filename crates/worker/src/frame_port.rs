//! The way in and out of an interface without a kernel tier.

use ashway_abi::Count;
use ashway_abi::memory::HEADROOM_BYTES;
use ashway_memory::messages::Buffer;
use ashway_modules::mac::Mac;
use ashway_ring::BATCH;
use ashway_wire::eth;

use crate::bug::{self, Bug};
use crate::medium::Medium;
use crate::port::Port;
use crate::rows::CounterRow;

/// The way in and out of an interface whose frames the worker receives itself.
#[derive(Debug)]
pub struct FramePort {
    /// What it is made of.
    pub medium: Box<dyn Medium>,
    /// Where the next frames are received: buffers of messages.
    pub rooms: Rooms,
    /// Its number.
    pub iface: usize,
    /// The interface's address: frames for any other are not ours.
    pub mac: Mac,
    /// The interface's row.
    pub unmatched_row: CounterRow,
}

impl FramePort {
    /// Whether messages that wait for their paths have to be done first; so many do.
    pub(crate) fn is_held_back(&self, waiting: u64) -> bool {
        waiting > 0 && self.medium.is_one_by_one() && !bug::is(Bug::CaptureNotHeldBack)
    }
}

/// Buffers of messages, for the frames of one batch.
#[derive(Debug)]
pub struct Rooms {
    /// One for each.
    pub(crate) all: Vec<Buffer>,
    /// How long they are.
    pub(crate) long: usize,
}

impl Rooms {
    /// For the frames of an interface with this MTU. What comes longer (many messages behind one
    /// header, or the MTU was raised since) and is a path's is copied once more.
    #[must_use]
    pub fn new(mtu: usize) -> Self {
        let long = HEADROOM_BYTES + eth::HEADER_BYTES + mtu;
        let all = (0..BATCH).map(|_| Buffer::new(long)).collect();
        Self { all, long }
    }
}

impl Port for FramePort {
    fn send(&mut self, frame: &[u8]) -> Count {
        self.medium.send(frame)
    }

    fn pass(&mut self, frame: &[u8]) -> Count {
        self.medium.pass(frame)
    }
}
