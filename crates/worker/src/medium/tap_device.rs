//! A TAP device: the host is at the other end of the wire.
//!
//! What the host sends by it is what the node receives. So the host's stack is not behind a
//! message, but in front of it: what a handler passes ends as a message to a machine that has
//! nobody who listens, and is counted as that.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use ashway_abi::Count;
use ashway_abi::memory::HEADROOM_BYTES;
use ashway_memory::messages::Buffer;
use ashway_ring::{BATCH, TapDevice};
use rustix::io::Errno;

use super::{Medium, Received};
use crate::port::is_down;

/// Room for what a message's buffer has no room for of one frame. The kernel gives none longer
/// than 64 KiB and a header.
const FRAME_BYTES: usize = 65536 + 64;

/// See the [module](self).
#[derive(Debug)]
pub struct TapMedium {
    tap: TapDevice,
    lens: [usize; BATCH],
    rests: Vec<u8>,
    is_shut: bool,
}

impl TapMedium {
    /// Of this device. Allocates 2 MiB of address space.
    #[must_use]
    pub fn new(tap: TapDevice) -> Self {
        Self {
            tap,
            lens: [0; BATCH],
            rests: vec![0; BATCH * FRAME_BYTES],
            is_shut: false,
        }
    }
}

impl Medium for TapMedium {
    fn receive(&mut self, rooms: &mut [Buffer]) -> io::Result<usize> {
        if self.is_shut {
            return Ok(0);
        }
        let rests = self.rests.chunks_exact_mut(FRAME_BYTES);
        let mut count = 0;
        for ((room, rest), len) in rooms.iter_mut().zip(rests).zip(&mut self.lens) {
            match self.tap.receive(&mut room[HEADROOM_BYTES..], rest) {
                Ok(Some(received)) => *len = received,
                Err(error) if count == 0 => return Err(error),
                // An error is said again when what has come is done.
                Ok(None) | Err(_) => break,
            }
            count += 1;
        }
        Ok(count)
    }

    fn received(&self, at: usize) -> Received {
        Received {
            len: self.lens[at],
            gso_size: 0,
        }
    }

    fn rest(&self, at: usize, taken: usize) -> &[u8] {
        let rest = &self.rests[at * FRAME_BYTES..][..FRAME_BYTES];
        &rest[..self.lens[at].saturating_sub(taken).min(FRAME_BYTES)]
    }

    fn send(&mut self, frame: &[u8]) -> Count {
        match self.tap.send(frame) {
            Ok(()) => Count::OutHandedOver,
            Err(error) if is_down(&error) || is_off(&error) => Count::OutDroppedIfaceDown,
            Err(_) => Count::OutDroppedTxFull,
        }
    }

    fn pass(&mut self, _frame: &[u8]) -> Count {
        Count::DroppedNoHost
    }

    fn leave(&mut self, _at: usize, _front: &[u8]) -> Count {
        Count::DroppedNoHost
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        (!self.is_shut).then(|| self.tap.as_fd())
    }

    fn shut(&mut self) -> bool {
        self.is_shut = true;
        true
    }
}

/// What the kernel says of a device that is down, or was deleted (`tun_get_user`,
/// `tun_chr_write_iter`).
fn is_off(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::IO | Errno::BADFD))
}
