//! A ring buffer of notes that programs make (Linux 5.8).
//!
//! Each note is preceded by 8 bytes: its length with two bits on top (still being
//! written; thrown away), and a page number that only the kernel needs. The data
//! is mapped twice in a row, so a note that goes over the end is read in one piece.
//! What is read lies in pages that user space cannot write, and is copied out, once.
//!
//! Source: `kernel/bpf/ringbuf.c`, Linux 6.18.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering;

use crate::mapping::Mapping;
use crate::maps::{Map, MapKind, MapSpec};

/// `BPF_RINGBUF_BUSY_BIT`, `BPF_RINGBUF_DISCARD_BIT`, `BPF_RINGBUF_HDR_SZ`.
const BUSY: u32 = 1 << 31;
const DISCARDED: u32 = 1 << 30;
const HEADER_BYTES: u64 = 8;

/// The map, and a reader of it.
#[derive(Debug)]
pub struct NoteRing {
    map: Map,
    consumer: Mapping,
    /// The producer's position, and the data behind it.
    produced: Mapping,
    bytes: u64,
    page: usize,
}

impl NoteRing {
    /// Makes a ring of `bytes` bytes: a power of two and at least a page. The kernel
    /// takes that much memory.
    ///
    /// # Errors
    ///
    /// What `bpf(2)` or `mmap(2)` returned.
    pub fn create(name: &str, bytes: u32) -> io::Result<Self> {
        let map = Map::create(&MapSpec {
            kind: MapKind::RingBuf,
            key_size: 0,
            value_size: 0,
            max_entries: bytes,
            flags: 0,
            name,
        })?;
        let page = rustix::param::page_size();
        let consumer = Mapping::shared(map.fd(), 0, page, true)?;
        let len = page + 2 * bytes as usize;
        let produced = Mapping::shared(map.fd(), page as u64, len, false)?;
        Ok(Self {
            map,
            consumer,
            produced,
            bytes: bytes.into(),
            page,
        })
    }

    /// The map, to name it in a program.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.map.fd()
    }

    /// Hands the notes that are there to `take`, the oldest first; says how many. A
    /// note that is still being written, and what is behind it, waits for the next
    /// call. One reader at a time: who has the ring.
    pub fn read(&mut self, mut take: impl FnMut(&[u8])) -> usize {
        let consumer = self.consumer.u64_at(0);
        let mut at = consumer.load(Ordering::Relaxed);
        let mut note = Vec::new();
        let mut count = 0;
        while at < self.produced.u64_at(0).load(Ordering::Acquire) {
            let offset = self.page + (at & (self.bytes - 1)) as usize;
            let header = self.produced.u32_at(offset).load(Ordering::Acquire);
            if header & BUSY != 0 {
                break;
            }
            let len = u64::from(header & !DISCARDED);
            if header & DISCARDED == 0 {
                note.resize(len as usize, 0);
                let start = offset + HEADER_BYTES as usize;
                // The kernel wrote the length: it lies inside.
                if self.produced.copy_out(start, &mut note).is_ok() {
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
