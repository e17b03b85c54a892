//! A ring buffer of notes that programs make (Linux 5.8).
//!
//! Each note is preceded by 8 bytes: its length with two bits on top (still being
//! written; thrown away), and a page number that only the kernel needs. The data
//! is mapped twice in a row, so a note that goes over the end is read in one piece.
//! What is read lies in pages that user space cannot write, and is copied out, once.
//!
//! Source: `kernel/bpf/ringbuf.c`, Linux 6.18.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;

use crate::ring_buffer::RingBuffer;

/// `BPF_RINGBUF_BUSY_BIT`, `BPF_RINGBUF_DISCARD_BIT`, `BPF_RINGBUF_HDR_SZ`.
const BUSY: u32 = 1 << 31;
const DISCARDED: u32 = 1 << 30;
const HEADER_BYTES: u64 = 8;

/// The map, and a reader of it (`ashway_kernel::shared::notes` makes one).
#[derive(Debug)]
pub struct NoteRing {
    ring: RingBuffer,
    bytes: u64,
}

impl NoteRing {
    /// Maps a ring buffer of `bytes` bytes: a power of two and at least a page.
    ///
    /// # Errors
    ///
    /// What `mmap(2)` returned.
    pub fn map(fd: OwnedFd, bytes: u32) -> io::Result<Self> {
        let ring = RingBuffer::map(fd, 2 * bytes as usize)?;
        Ok(Self {
            ring,
            bytes: bytes.into(),
        })
    }

    /// The map, to name it in a program.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.ring.fd()
    }

    /// Hands the notes that are there to `take`, the oldest first; says how many. A
    /// note that is still being written, and what is behind it, waits for the next
    /// call. One reader at a time: who has the ring.
    pub fn read(&mut self, mut take: impl FnMut(&[u8])) -> usize {
        let consumer = self.ring.consumer();
        let mut at = consumer.load(Ordering::Relaxed);
        let mut note = Vec::new();
        let mut count = 0;
        while at < self.ring.producer().load(Ordering::Acquire) {
            let offset = self.ring.data((at & (self.bytes - 1)) as usize);
            let header = self.ring.produced().u32_at(offset).load(Ordering::Acquire);
            if header & BUSY != 0 {
                break;
            }
            let len = u64::from(header & !DISCARDED);
            if header & DISCARDED == 0 {
                note.resize(len as usize, 0);
                let start = offset + HEADER_BYTES as usize;
                // The kernel wrote the length: it lies inside.
                if self.ring.produced().copy_out(start, &mut note).is_ok() {
                    take(&note);
                    count += 1;
                }
            }
            at += (len + HEADER_BYTES).next_multiple_of(8);
            consumer.store(at, Ordering::Release);
        }
        count
    }
}
