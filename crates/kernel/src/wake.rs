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
//! Source: `kernel/bpf/ringbuf.c`, Linux 6.18, for the layout: one page with
//! the consumer's position, one with the producer's, then the data.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering;

use crate::mapping::Mapping;
use crate::maps::{Map, MapKind, MapSpec};

/// A ring buffer map, and its two positions mapped.
#[derive(Debug)]
pub struct WakeBell {
    map: Map,
    consumer: Mapping,
    producer: Mapping,
}

impl WakeBell {
    /// Makes a bell that remembers up to `bytes` bytes of records (16 for the
    /// smallest); a power of two and at least a page.
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
        let producer = Mapping::shared(map.fd(), page as u64, page, false)?;
        Ok(Self {
            map,
            consumer,
            producer,
        })
    }

    /// The map, to name it in a program and to wait for: it polls readable
    /// while the bell has rung and was not drained.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.map.fd()
    }

    /// Forgets what has rung so far; says whether anything had. Constant time.
    #[expect(clippy::must_use_candidate, reason = "draining is the effect")]
    pub fn drain(&self) -> bool {
        let produced = self.producer.u64_at(0).load(Ordering::Acquire);
        let consumer = self.consumer.u64_at(0);
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
