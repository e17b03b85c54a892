//! The way in and out of an interface by a packet socket: the rung without a kernel tier.

use std::os::fd::{AsFd, OwnedFd};

use ashway_abi::Count;
use ashway_abi::memory::HEADROOM_BYTES;
use ashway_memory::messages::Buffer;
use ashway_modules::mac::Mac;
use ashway_ring::{BATCH, PacketSocket, Passer};
use ashway_wire::eth;
use rustix::io::Errno;
use rustix::net::{SendFlags, send};

use crate::port::{Port, is_down};
use crate::rows::CounterRow;

/// The way in and out of an interface without a kernel tier.
#[derive(Debug)]
pub struct PacketPort {
    /// Hears.
    pub socket: PacketSocket,
    /// Sends.
    pub out: OwnedFd,
    /// Where the next frames are received: buffers of messages.
    pub rooms: Rooms,
    /// Its number.
    pub iface: usize,
    /// The interface's address: frames for any other are not ours.
    pub mac: Mac,
    /// The interface's row.
    pub unmatched_row: CounterRow,
    /// Gives messages to the host's stack.
    pub passer: Option<Passer>,
    /// Whether a rule keeps matched messages from the host's stack. Without it
    /// the host sees them too.
    pub dropped_from_host: bool,
}

impl PacketPort {
    /// The way out of it.
    pub(crate) fn way_out(&self) -> Out<'_> {
        Out {
            socket: &self.out,
            passer: self.passer.as_ref(),
            dropped_from_host: self.dropped_from_host,
        }
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

/// The outgoing half.
#[derive(Debug)]
pub(crate) struct Out<'a> {
    socket: &'a OwnedFd,
    passer: Option<&'a Passer>,
    dropped_from_host: bool,
}

impl Port for Out<'_> {
    fn send(&mut self, frame: &[u8]) -> Count {
        match send(self.socket.as_fd(), frame, SendFlags::DONTWAIT) {
            Ok(_) => Count::OutHandedOver,
            Err(Errno::MSGSIZE) => Count::OutDroppedTooLong,
            Err(errno) if is_down(&errno.into()) => Count::OutDroppedIfaceDown,
            Err(_) => Count::OutDroppedTxFull,
        }
    }

    fn pass(&mut self, frame: &[u8]) -> bool {
        if !self.dropped_from_host {
            // The host has it already.
            return true;
        }
        let Some(passer) = self.passer else {
            return false;
        };
        frame
            .get(eth::HEADER_BYTES..)
            .is_some_and(|packet| passer.pass(packet).is_ok())
    }
}
