//! A bell that programs ring to wake a sleeping thread.
//!
//! A BPF ring buffer (Linux 5.8) of which only the wake-up is used: the records
//! say nothing, what there is to do stands in the rings of the instances. So
//! emptying it means moving the consumer's position up to the producer's.
//!
//! A record that is reserved but not yet committed may be skipped that way, and
//! its wake-up lost. That is harmless in this order: the sleeper says that it
//! wants to be woken (a full barrier), *then* drains, *then* looks at the rings
//! once more, then polls; a program fills a ring (a full barrier), then looks
//! whether to ring. What the drain skipped, the look after it sees. Programs
//! ring with `BPF_RB_FORCE_WAKEUP`, so that no position decides.
//!
//! Source: `kernel/bpf/ringbuf.c`, Linux 6.18.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;

use crate::ring_buffer::RingBuffer;

/// A ring buffer map, and its two positions mapped (`ashway_kernel::shared::bell` makes
/// one).
#[derive(Debug)]
pub struct WakeBell {
    ring: RingBuffer,
}

impl WakeBell {
    /// Maps the positions of a ring buffer.
    ///
    /// # Errors
    ///
    /// What `mmap(2)` returned.
    pub fn map(fd: OwnedFd) -> io::Result<Self> {
        let ring = RingBuffer::map(fd, 0)?;
        Ok(Self { ring })
    }

    /// The map, to name it in a program and to wait for: it polls readable
    /// while the bell has rung and was not drained.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.ring.fd()
    }

    /// Whether it has rung since it was last drained. Two loads.
    #[must_use]
    #[inline]
    pub fn has_rung(&self) -> bool {
        let produced = self.ring.producer().load(Ordering::Acquire);
        self.ring.consumer().load(Ordering::Relaxed) != produced
    }

    /// Forgets what has rung so far; says whether anything had. Constant time.
    #[expect(clippy::must_use_candidate, reason = "draining is the effect")]
    pub fn drain(&self) -> bool {
        let produced = self.ring.producer().load(Ordering::Acquire);
        let consumer = self.ring.consumer();
        let rang = consumer.load(Ordering::Relaxed) != produced;
        consumer.store(produced, Ordering::Release);
        rang
    }
}

impl AsFd for WakeBell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd()
    }
}
