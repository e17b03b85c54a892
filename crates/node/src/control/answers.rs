//! Answers on their way out.
//!
//! A client takes its answer as fast as it likes, and the node's loop waits for none: what
//! the socket does not hold at once is written between two looks at the node. How long one
//! may take, how many there are and how much memory they hold is bounded; who asks for more
//! costs the client that has waited longest the rest of its answer.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

/// How long a client may take over its answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// Most answers that are not out.
const MOST: usize = 64;

/// Most bytes of these answers, unless there is one alone: a fault of a handler with the
/// largest memory has half as many.
const MOST_BYTES: usize = 64 << 20;

/// Most bytes that are written at once, so that one that reads fast holds up nobody either.
const PIECE: usize = 256 << 10;

/// An answer, and who is to have it.
#[derive(Debug)]
pub(super) struct Answering {
    stream: UnixStream,
    line: Vec<u8>,
    sent: usize,
    /// Goes with the first byte.
    fd: Option<OwnedFd>,
    until: Instant,
}

impl Answering {
    /// Begins with a line. The stream does not block.
    pub(super) fn new(
        stream: UnixStream,
        line: Vec<u8>,
        fd: Option<OwnedFd>,
        now: Instant,
    ) -> Self {
        Self {
            stream,
            line,
            sent: 0,
            fd,
            until: now + PATIENCE,
        }
    }

    /// Writes what the socket takes now; whether that was all.
    ///
    /// # Errors
    ///
    /// What the kernel said: the client went away, and has lost its answer.
    pub(super) fn push(&mut self) -> io::Result<bool> {
        let rest = &self.line[self.sent..];
        let piece = &rest[..rest.len().min(PIECE)];
        let fds: Vec<BorrowedFd<'_>> = self.fd.iter().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(&fds));
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        match sendmsg(&self.stream, &[IoSlice::new(piece)], &mut ancillary, flags) {
            Ok(sent) => {
                self.sent += sent;
                self.fd = None;
                Ok(self.sent == self.line.len())
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// The answers that are not out, the oldest first.
#[derive(Debug)]
pub(super) struct Answers {
    waiting: VecDeque<Answering>,
    queue: Sender<Answering>,
    begun: Receiver<Answering>,
}

impl Answers {
    pub(super) fn new() -> Self {
        let (queue, begun) = channel();
        Self {
            waiting: VecDeque::new(),
            queue,
            begun,
        }
    }

    /// Where an answer goes whose client has not taken all of it at once.
    pub(super) fn queue(&self) -> Sender<Answering> {
        self.queue.clone()
    }

    /// Takes over what was queued; who has waited longest makes room.
    pub(super) fn collect(&mut self) {
        self.waiting.extend(self.begun.try_iter());
        let mut bytes: usize = self.waiting.iter().map(|it| it.line.len()).sum();
        while self.waiting.len() > MOST || self.waiting.len() > 1 && bytes > MOST_BYTES {
            let oldest = self.waiting.pop_front();
            bytes -= oldest.map_or(0, |oldest| oldest.line.len());
        }
    }

    /// What becomes writable when there is something to [`push`](Self::push).
    pub(super) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.waiting.iter().map(|it| it.stream.as_fd())
    }

    /// When the first of them is late.
    pub(super) fn due(&self) -> Option<Instant> {
        self.waiting.iter().map(|it| it.until).min()
    }

    /// Writes a piece of each, and hangs up on whom is done or late.
    pub(super) fn push(&mut self, now: Instant) {
        self.waiting
            .retain_mut(|it| now < it.until && it.push().is_ok_and(|done| !done));
    }
}
