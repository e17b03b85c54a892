//! A link in memory: no device, no system but one process.
//!
//! Its far end is either the program that uses this library, which gives frames and takes what
//! leaves ([`FarEnd`]), or another interface of the node ([`joined`]). Either direction has room
//! for [`ROOM`] frames; what finds none is lost and counted.
//!
//! A frame costs one allocation and two copies, and a system call if the receiver may sleep.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use ashway_abi::Count;
use ashway_abi::memory::HEADROOM_BYTES;
use ashway_memory::messages::Buffer;

use super::{Medium, Received};
use crate::bell::Bell;
use crate::bug::{self, Bug};

/// Frames that one direction holds: as many as the transmit queue of Linux' own devices.
pub const ROOM: usize = 1000;

/// The longest frame, in bytes: a packet of 64 KiB behind a header with two tags.
pub const LONGEST: usize = 65_535 + 14 + 8;

type Frame = Box<[u8]>;

/// Where one direction begins.
struct Inlet {
    frames: SyncSender<Frame>,
    bell: Arc<Bell>,
    /// Frames that found no room, and that the other side has not counted yet.
    lost: Arc<AtomicU64>,
}

/// Where it ends.
struct Outlet {
    frames: Receiver<Frame>,
    bell: Arc<Bell>,
    lost: Arc<AtomicU64>,
}

/// Why a frame was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotTaken {
    /// As many as there is room for wait. It is counted as lost.
    #[error("{ROOM} frames wait already")]
    Full,
    /// It is longer than any.
    #[error("a frame has {LONGEST} bytes at most")]
    TooLong,
    /// The other end is gone.
    #[error("nobody is at the other end")]
    Gone,
}

fn lane() -> io::Result<(Inlet, Outlet)> {
    let (sender, receiver) = sync_channel(ROOM);
    let (bell, lost) = (Arc::new(Bell::new()?), Arc::default());
    let outlet = Outlet {
        frames: receiver,
        bell: Arc::clone(&bell),
        lost: Arc::clone(&lost),
    };
    let inlet = Inlet {
        frames: sender,
        bell,
        lost,
    };
    Ok((inlet, outlet))
}

impl Inlet {
    fn put(&self, frame: &[u8]) -> Result<(), NotTaken> {
        if frame.len() > LONGEST {
            return Err(NotTaken::TooLong);
        }
        match self.frames.try_send(frame.into()) {
            Ok(()) => {
                self.bell.ring();
                Ok(())
            }
            Err(TrySendError::Full(_)) => Err(NotTaken::Full),
            Err(TrySendError::Disconnected(_)) => Err(NotTaken::Gone),
        }
    }

    /// The same, in the ledger of what is sent.
    fn send(&self, frame: &[u8]) -> Count {
        match self.put(frame) {
            Ok(()) => Count::OutHandedOver,
            Err(NotTaken::Full) => Count::OutDroppedTxFull,
            Err(NotTaken::TooLong) => Count::OutDroppedTooLong,
            Err(NotTaken::Gone) => Count::OutDroppedIfaceDown,
        }
    }
}

/// An interface's end. See the [module](self).
pub struct MemoryMedium {
    come: Outlet,
    go: Inlet,
    /// Where passed messages go; `None` if there is no host.
    host: Option<Inlet>,
    batch: Vec<Frame>,
    is_shut: bool,
}

impl MemoryMedium {
    fn new(come: Outlet, go: Inlet, host: Option<Inlet>) -> Self {
        Self {
            come,
            go,
            host,
            batch: Vec::new(),
            is_shut: false,
        }
    }
}

/// The end of whoever uses the node as a library: the wire's other end, and the host.
pub struct FarEnd {
    go: Inlet,
    come: Outlet,
    host: Outlet,
}

/// A link between an interface and whoever has the far end.
///
/// # Errors
///
/// When no event descriptor can be had.
pub fn link() -> io::Result<(MemoryMedium, FarEnd)> {
    let ((go, at_node), (from_node, come), (passed, host)) = (lane()?, lane()?, lane()?);
    let medium = MemoryMedium::new(at_node, from_node, Some(passed));
    Ok((medium, FarEnd { go, come, host }))
}

/// A link between two interfaces of a node. There is no host at either.
///
/// # Errors
///
/// When no event descriptor can be had.
pub fn joined() -> io::Result<[MemoryMedium; 2]> {
    let ((to_one, at_one), (to_other, at_other)) = (lane()?, lane()?);
    Ok([
        MemoryMedium::new(at_one, to_other, None),
        MemoryMedium::new(at_other, to_one, None),
    ])
}

impl FarEnd {
    /// Gives the node a frame, as if it came by the wire. Does not wait.
    ///
    /// # Errors
    ///
    /// [`NotTaken`]; a frame that found no room is counted by the node, as received and lost.
    pub fn give(&self, frame: &[u8]) -> Result<(), NotTaken> {
        let given = self.go.put(frame);
        if given == Err(NotTaken::Full) && !bug::is(Bug::OverflowNotCounted) {
            self.go.lost.fetch_add(1, Ordering::Relaxed);
            self.go.bell.ring();
        }
        given
    }

    /// Takes the next frame that the node has sent, if there is one within this time.
    #[must_use]
    pub fn take(&self, within: Duration) -> Option<Box<[u8]>> {
        self.come.frames.recv_timeout(within).ok()
    }

    /// The same of those that it has passed to the host.
    #[must_use]
    pub fn take_passed(&self, within: Duration) -> Option<Box<[u8]>> {
        self.host.frames.recv_timeout(within).ok()
    }
}

impl Medium for MemoryMedium {
    fn receive(&mut self, rooms: &mut [Buffer]) -> io::Result<usize> {
        if self.is_shut {
            return Ok(0);
        }
        // Before the frames are looked at: who rings from now on is heard again.
        self.come.bell.take_rung();
        self.batch.clear();
        for room in rooms {
            let Ok(frame) = self.come.frames.try_recv() else {
                break;
            };
            let room = &mut room[HEADROOM_BYTES..];
            let front = frame.len().min(room.len());
            room[..front].copy_from_slice(&frame[..front]);
            self.batch.push(frame);
        }
        Ok(self.batch.len())
    }

    fn received(&self, at: usize) -> Received {
        Received {
            len: self.batch[at].len(),
            gso_size: 0,
        }
    }

    fn rest(&self, at: usize, taken: usize) -> &[u8] {
        self.batch[at].get(taken..).unwrap_or_default()
    }

    fn lost(&mut self) -> u64 {
        match self.come.lost.load(Ordering::Relaxed) {
            0 => 0,
            _ => self.come.lost.swap(0, Ordering::Relaxed),
        }
    }

    fn send(&mut self, frame: &[u8]) -> Count {
        self.go.send(frame)
    }

    fn pass(&mut self, frame: &[u8]) -> Count {
        let Some(host) = &self.host else {
            return Count::DroppedNoHost;
        };
        match host.put(frame) {
            Ok(()) => Count::Passed,
            Err(NotTaken::Gone) => Count::DroppedNoHost,
            Err(NotTaken::Full | NotTaken::TooLong) => Count::DroppedPassFailed,
        }
    }

    fn leave(&mut self, at: usize, _front: &[u8]) -> Count {
        let frame = std::mem::take(&mut self.batch[at]);
        let fate = self.pass(&frame);
        self.batch[at] = frame;
        fate
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        (!self.is_shut).then(|| self.come.bell.as_fd())
    }

    fn shut(&mut self) -> bool {
        self.is_shut = true;
        true
    }
}

impl fmt::Debug for MemoryMedium {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryMedium")
            .field("has_host", &self.host.is_some())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for FarEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FarEnd").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
