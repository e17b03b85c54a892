//! A packet socket on an interface of the host.
//!
//! The kernel still sees every frame; a drop rule at the interface's ingress
//! keeps matched messages from the host's stack, so that `consume` is true.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ashway_abi::Count;
use ashway_abi::memory::HEADROOM_BYTES;
use ashway_memory::messages::Buffer;
use ashway_ring::{PacketSocket, Passer, receive_nothing};
use ashway_wire::eth;
use rustix::io::Errno;
use rustix::net::{SendFlags, send};

use super::{Medium, Received};
use crate::port::is_down;

/// See the [module](self).
#[derive(Debug)]
pub struct Socket {
    /// Hears.
    pub socket: PacketSocket,
    /// Sends.
    pub out: OwnedFd,
    /// Gives messages to the host's stack.
    pub passer: Option<Passer>,
    /// Whether a rule keeps matched messages from the host's stack. Without it
    /// the host sees them too.
    pub dropped_from_host: bool,
}

impl Medium for Socket {
    fn receive(&mut self, rooms: &mut [Buffer]) -> io::Result<usize> {
        self.socket.recv_batch(rooms, HEADROOM_BYTES)
    }

    fn received(&self, at: usize) -> Received {
        let (len, gso_size) = self.socket.frame(at);
        Received { len, gso_size }
    }

    fn rest(&self, at: usize, taken: usize) -> &[u8] {
        self.socket.rest(at, taken)
    }

    fn lost(&mut self) -> u64 {
        self.socket.lost().unwrap_or(0)
    }

    fn send(&mut self, frame: &[u8]) -> Count {
        match send(self.out.as_fd(), frame, SendFlags::DONTWAIT) {
            Ok(_) => Count::OutHandedOver,
            Err(Errno::MSGSIZE) => Count::OutDroppedTooLong,
            Err(errno) if is_down(&errno.into()) => Count::OutDroppedIfaceDown,
            Err(_) => Count::OutDroppedTxFull,
        }
    }

    fn pass(&mut self, frame: &[u8]) -> Count {
        // Without the rule the host has it already.
        let is_passed = !self.dropped_from_host
            || self.passer.as_ref().is_some_and(|passer| {
                let packet = frame.get(eth::HEADER_BYTES..);
                packet.is_some_and(|packet| passer.pass(packet).is_ok())
            });
        if is_passed {
            Count::Passed
        } else {
            Count::DroppedPassFailed
        }
    }

    fn leave(&mut self, _at: usize, _front: &[u8]) -> Count {
        // The rule drops what a path matches, and nothing else.
        Count::Passed
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn shut(&mut self) -> bool {
        receive_nothing(self.socket.as_fd()).is_ok()
    }
}
