//! What an interface without a kernel tier is made of.
//!
//! All rungs without programs are one to the worker: it receives their frames itself, into
//! buffers of messages, and sends by them. They differ in where frames come from and go to, and
//! in what is behind a message that no handler wants.
//!
//! | medium | frames come from | a passed message goes to |
//! | --- | --- | --- |
//! | [packet socket](socket) | an interface of the host | the host's stack, which may have it already |
//! | [TAP device](tap_device) | the host itself | nowhere: `dropped_no_host` |
//! | [capture](capture) | a file | the other file, beside what is sent |
//! | [link in memory](memory) | whoever has the far end | whoever has the far end |
//! | the same between two interfaces | the other interface | nowhere: `dropped_no_host` |

pub mod capture;
pub mod memory;
pub mod socket;
pub mod tap_device;

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;

use ashway_abi::Count;
use ashway_memory::messages::Buffer;
use ashway_path::time::Time;

/// Where frames come from and go to. Nothing here waits.
pub trait Medium: fmt::Debug + Send {
    /// Puts the frames that wait into `rooms`, in order of arrival, one into each, behind the
    /// room for headers that a message has. Says how many there were; fewer than there are rooms
    /// if no more wait.
    ///
    /// # Errors
    ///
    /// What the system says: there is nothing more to receive.
    fn receive(&mut self, rooms: &mut [Buffer]) -> io::Result<usize>;

    /// What is known of a frame that was received last.
    fn received(&self, at: usize) -> Received;

    /// Its bytes behind the first `taken`, which had no room.
    fn rest(&self, at: usize, taken: usize) -> &[u8];

    /// Frames lost since this was last asked, because nobody received them in time.
    fn lost(&mut self) -> u64 {
        0
    }

    /// Sends a whole frame, and says how that ended, in the ledger of what is sent.
    fn send(&mut self, frame: &[u8]) -> Count;

    /// Gives a frame to the host, as if it had just come; its fate.
    fn pass(&mut self, frame: &[u8]) -> Count;

    /// What becomes of a frame of those that were received last, which no path wants: its fate.
    /// `front` are its bytes but for those that had no room.
    fn leave(&mut self, at: usize, front: &[u8]) -> Count;

    /// Readable when there is something to receive.
    fn fd(&self) -> Option<BorrowedFd<'_>>;

    /// When there is, where no descriptor tells.
    fn due_at(&self) -> Option<Time> {
        None
    }

    /// Whether a frame is received only when all paths are done with the one before.
    fn is_one_by_one(&self) -> bool {
        false
    }

    /// Lets go of what is buffered: the worker is about to sleep.
    fn flush(&mut self) {}

    /// Receives nothing that comes from now on. Whether that worked.
    fn shut(&mut self) -> bool;
}

/// A frame that was received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// How long it is, in bytes.
    pub len: usize,
    /// If it is many messages behind one header, how long the payload of each is; else 0.
    pub gso_size: usize,
}
