//! The pages of a BPF ring buffer that user space maps.
//!
//! Source: `kernel/bpf/ringbuf.c`, Linux 6.18: one page with the consumer's position,
//! which user space writes; one with the producer's, which it cannot; then the data,
//! mapped twice in a row.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU64;

use crate::mapping::Mapping;

/// A ring buffer map, its two positions, and its data if asked for.
#[derive(Debug)]
pub(crate) struct RingBuffer {
    fd: OwnedFd,
    consumer: Mapping,
    /// The producer's position, and the data behind it.
    produced: Mapping,
    page: usize,
}

impl RingBuffer {
    /// Maps the positions, and `data` bytes behind them.
    pub(crate) fn map(fd: OwnedFd, data: usize) -> io::Result<Self> {
        let page = rustix::param::page_size();
        let consumer = Mapping::shared(fd.as_fd(), 0, page, true)?;
        let produced = Mapping::shared(fd.as_fd(), page as u64, page + data, false)?;
        Ok(Self {
            fd,
            consumer,
            produced,
            page,
        })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// How far user space has read; it alone writes this.
    pub(crate) fn consumer(&self) -> &AtomicU64 {
        self.consumer.u64_at(0)
    }

    /// How far programs have written.
    pub(crate) fn producer(&self) -> &AtomicU64 {
        self.produced.u64_at(0)
    }

    /// Where offset `at` of the data lies in [`Self::produced`].
    pub(crate) fn data(&self, at: usize) -> usize {
        self.page + at
    }

    /// The producer's position and the data: read only.
    pub(crate) fn produced(&self) -> &Mapping {
        &self.produced
    }
}
