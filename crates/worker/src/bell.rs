//! A bell that other threads ring for the node's loop.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, eventfd};

/// Rung when the loop has something to look at. It does not say what: the loop looks at
/// everything that may have changed. Readable while it has rung and was not
/// [taken](Self::take).
#[derive(Debug)]
pub struct Bell {
    fd: OwnedFd,
    /// Whether it has rung since the last look. A handler that faults for each message
    /// rings for each, and only the first makes a system call.
    rung: AtomicBool,
}

impl Bell {
    /// A silent one.
    ///
    /// # Errors
    ///
    /// When no event descriptor can be had.
    pub fn new() -> io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Self {
            fd,
            rung: AtomicBool::new(false),
        })
    }

    /// Rings it. What the caller has written before is seen by the look that follows.
    pub(crate) fn ring(&self) {
        if !self.rung.swap(true, Ordering::AcqRel) {
            // It fails only when 2^64 rings wait.
            let _ = rustix::io::write(&self.fd, &1_u64.to_ne_bytes());
        }
    }

    /// Silences it; whether it had rung. To be called before the look: who rings from now
    /// on is heard again.
    pub fn take(&self) -> bool {
        // In this order: a ring between the two finds `rung` and writes nothing, and the
        // look comes after it. In the other order its write would be read here, and no
        // later ring would write. Not rung: there is nothing to read.
        let _ = rustix::io::read(&self.fd, &mut [0_u8; 8]);
        self.rung.swap(false, Ordering::AcqRel)
    }
}

impl Bell {
    /// The same without a system call while it has not rung, for who looks often.
    pub(crate) fn take_rung(&self) -> bool {
        // Whoever rings has said so before it writes. If the write is still to come there is
        // nothing to read, and nothing is taken: else the descriptor would stay readable.
        self.rung.load(Ordering::Acquire)
            && rustix::io::read(&self.fd, &mut [0_u8; 8]).is_ok()
            && self.rung.swap(false, Ordering::AcqRel)
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::sync::Arc;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    fn is_heard(bell: &Bell) -> bool {
        let mut fds = [PollFd::new(bell, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())).unwrap() > 0
    }

    #[test]
    fn it_is_heard_once_however_often_it_rings() {
        let bell = Bell::new().unwrap();
        assert!(!is_heard(&bell) && !bell.take());
        for _ in 0..2 {
            (0..3).for_each(|_| bell.ring());
            assert!(is_heard(&bell) && bell.take());
            assert!(!is_heard(&bell) && !bell.take());
        }
    }

    /// However ring and look fall together, the last ring is heard.
    #[test]
    fn no_ring_is_lost() {
        const RINGS: u64 = 100_000;
        let bell = Arc::new(Bell::new().unwrap());
        let said = Arc::new(std::sync::atomic::AtomicU64::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 1..=RINGS {
                    said.store(number, Ordering::Release);
                    bell.ring();
                }
            });
            while said.load(Ordering::Acquire) < RINGS || is_heard(&bell) {
                let mut fds = [PollFd::new(&*bell, PollFlags::IN)];
                poll(&mut fds, None).unwrap();
                bell.take();
                if said.load(Ordering::Acquire) == RINGS {
                    break;
                }
            }
        });
    }
}
