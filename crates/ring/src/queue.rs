//! The four rings of a socket, as producer or as consumer.
//!
//! A ring is a power-of-two array of descriptors and two indices that count up
//! for ever and wrap at 2^32. The producer writes descriptors, then its index
//! (release); the consumer reads that index (acquire), then the descriptors,
//! then gives them back by its own index (release), which the producer reads
//! (acquire) before it writes them again.
//!
//! Verbs as in libxdp: `reserve`/`submit`, `peek`/`release`. Constant time, no
//! allocation, no system call.
//!
//! Source: `if_xdp.h`, and the kernel's own half in `net/xdp/xsk_queue.h`.

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use rustix::net::xdp::{XdpDesc, XdpRingFlags, XdpRingOffset};

use ashway_memory::Mapping;

/// What a ring carries.
///
/// # Safety
///
/// Any bytes are a value of the type: the kernel, not Rust, wrote them.
pub(crate) unsafe trait Descriptor: Copy {}

// SAFETY: an integer. The fill and completion rings carry chunk addresses.
unsafe impl Descriptor for u64 {}
// SAFETY: `repr(C)` of integers. The rx and tx rings carry these.
unsafe impl Descriptor for XdpDesc {}

/// Both halves' view of a ring. The pointers lie in `mapping`.
#[derive(Debug)]
struct Ring<T> {
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: Option<NonNull<AtomicU32>>,
    descriptors: NonNull<T>,
    size: u32,
    _mapping: Arc<Mapping>,
    _owns: PhantomData<T>,
}

// SAFETY: the pointers lead into `mapping`, which any thread may use.
unsafe impl<T: Send> Send for Ring<T> {}

impl<T: Descriptor> Ring<T> {
    /// `None` if the ring does not lie in the mapping or its size is no power of
    /// two.
    fn new(mapping: Arc<Mapping>, offsets: &XdpRingOffset, size: u32) -> Option<Self> {
        if !size.is_power_of_two() {
            return None;
        }
        let flags = match offsets.flags {
            Some(offset) => Some(mapping.at(offset, 1)?),
            None => None,
        };
        Some(Self {
            producer: mapping.at(offsets.producer, 1)?,
            consumer: mapping.at(offsets.consumer, 1)?,
            flags,
            descriptors: mapping.at(offsets.desc, size as usize)?,
            size,
            _mapping: mapping,
            _owns: PhantomData,
        })
    }

    fn producer(&self) -> &AtomicU32 {
        // SAFETY: in the mapping, aligned, and only ever accessed atomically.
        unsafe { self.producer.as_ref() }
    }

    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as for the producer's index.
        unsafe { self.consumer.as_ref() }
    }

    fn flags(&self) -> u32 {
        self.flags.map_or(0, |flags| {
            // SAFETY: as for the producer's index.
            let flags = unsafe { flags.as_ref() };
            flags.load(Ordering::Relaxed)
        })
    }

    fn descriptor(&self, index: u32) -> NonNull<T> {
        // SAFETY: the masked index is below `size`, and `size` descriptors lie
        // in the mapping.
        unsafe { self.descriptors.add((index & (self.size - 1)) as usize) }
    }
}

/// The producing half: of a fill or tx ring.
#[derive(Debug)]
pub(crate) struct Producer<T> {
    ring: Ring<T>,
    /// Descriptors written, of which `producer` in the ring have been submitted.
    written: u32,
    /// The consumer's index when last read.
    consumed: u32,
}

impl<T: Descriptor> Producer<T> {
    /// There must be no other producer on the ring.
    pub(crate) fn new(mapping: Arc<Mapping>, offsets: &XdpRingOffset, size: u32) -> Option<Self> {
        let ring = Ring::new(mapping, offsets, size)?;
        let written = ring.producer().load(Ordering::Relaxed);
        let consumed = ring.consumer().load(Ordering::Acquire);
        Some(Self {
            ring,
            written,
            consumed,
        })
    }

    /// Writes the next descriptor, to be seen by the consumer after `submit`.
    /// False, and nothing done, if the ring is full.
    pub(crate) fn reserve(&mut self, descriptor: T) -> bool {
        if self.written.wrapping_sub(self.consumed) >= self.ring.size {
            self.consumed = self.ring.consumer().load(Ordering::Acquire);
            if self.written.wrapping_sub(self.consumed) >= self.ring.size {
                return false;
            }
        }
        // SAFETY: in the mapping; the consumer has given this descriptor back
        // (the acquire above) and does not read it before `submit`.
        unsafe { self.ring.descriptor(self.written).write(descriptor) };
        self.written = self.written.wrapping_add(1);
        true
    }

    /// Shows the consumer everything written.
    pub(crate) fn submit(&mut self) {
        self.ring.producer().store(self.written, Ordering::Release);
    }

    /// Submitted descriptors that the consumer has not given back.
    pub(crate) fn pending(&mut self) -> u32 {
        self.consumed = self.ring.consumer().load(Ordering::Acquire);
        self.written.wrapping_sub(self.consumed)
    }

    /// Whether the kernel sleeps and wants a system call
    /// (`XDP_RING_NEED_WAKEUP`). The fence orders our index before its flag:
    /// either it sees the index or we see the flag.
    pub(crate) fn needs_wakeup(&self) -> bool {
        fence(Ordering::SeqCst);
        self.ring.flags() & XdpRingFlags::XDP_RING_NEED_WAKEUP.bits() != 0
    }
}

/// The consuming half: of an rx or completion ring.
#[derive(Debug)]
pub(crate) struct Consumer<T> {
    ring: Ring<T>,
    /// Descriptors read, of which `consumer` in the ring have been released.
    read: u32,
    /// The producer's index when last read.
    produced: u32,
}

impl<T: Descriptor> Consumer<T> {
    /// There must be no other consumer on the ring.
    pub(crate) fn new(mapping: Arc<Mapping>, offsets: &XdpRingOffset, size: u32) -> Option<Self> {
        let ring = Ring::new(mapping, offsets, size)?;
        let read = ring.consumer().load(Ordering::Relaxed);
        let produced = ring.producer().load(Ordering::Acquire);
        Some(Self {
            ring,
            read,
            produced,
        })
    }

    /// Reads the next descriptor, if there is one.
    pub(crate) fn peek(&mut self) -> Option<T> {
        if self.read == self.produced {
            self.produced = self.ring.producer().load(Ordering::Acquire);
            if self.read == self.produced {
                return None;
            }
        }
        // SAFETY: in the mapping; the producer has shown this descriptor (the
        // acquire above) and does not write it before `release`. Any bytes are
        // a `T`.
        let descriptor = unsafe { self.ring.descriptor(self.read).read() };
        self.read = self.read.wrapping_add(1);
        Some(descriptor)
    }

    /// Gives everything read back to the producer.
    pub(crate) fn release(&mut self) {
        self.ring.consumer().store(self.read, Ordering::Release);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    const SIZE: u32 = 8;
    const OFFSETS: XdpRingOffset = XdpRingOffset {
        producer: 0,
        consumer: 64,
        flags: Some(128),
        desc: 192,
    };

    /// A ring in ordinary memory whose indices both stand at `start`.
    fn ring(start: u32) -> (Arc<Mapping>, Producer<u64>, Consumer<u64>) {
        let mapping = Arc::new(Mapping::anonymous(4096).unwrap());
        for offset in [OFFSETS.producer, OFFSETS.consumer] {
            word(&mapping, offset).store(start, Ordering::Relaxed);
        }
        let producer = Producer::new(mapping.clone(), &OFFSETS, SIZE).unwrap();
        let consumer = Consumer::new(mapping.clone(), &OFFSETS, SIZE).unwrap();
        (mapping, producer, consumer)
    }

    fn word(mapping: &Mapping, offset: u64) -> &AtomicU32 {
        // SAFETY: `at` has checked bounds and alignment; all accesses are atomic.
        unsafe { mapping.at::<AtomicU32>(offset, 1).unwrap().as_ref() }
    }

    #[test]
    fn fills_to_the_brim_and_wraps_at_every_place() {
        for start in [0, 5, u32::MAX - 3, u32::MAX] {
            let (_, mut producer, mut consumer) = ring(start);
            for round in 0..5 {
                for value in 0..u64::from(SIZE) {
                    assert!(producer.reserve(round * 100 + value), "from {start}");
                }
                assert!(!producer.reserve(99), "full, from {start}");
                assert_eq!(consumer.peek(), None, "before submit");
                producer.submit();
                assert_eq!(producer.pending(), SIZE);
                for value in 0..u64::from(SIZE) {
                    assert_eq!(consumer.peek(), Some(round * 100 + value), "from {start}");
                }
                assert_eq!(consumer.peek(), None);
                assert!(!producer.reserve(99), "before release");
                consumer.release();
                assert_eq!(producer.pending(), 0);
            }
        }
    }

    #[test]
    fn nothing_is_lost_between_two_threads_across_the_wrap() {
        let messages = 200_000u64;
        let (_, mut producer, mut consumer) = ring(u32::MAX - 100_000);
        let sender = std::thread::spawn(move || {
            for value in 0..messages {
                while !producer.reserve(value) {
                    producer.submit();
                    std::thread::yield_now();
                }
                if value % 3 == 0 {
                    producer.submit();
                }
            }
            producer.submit();
        });
        for value in 0..messages {
            let got = loop {
                if let Some(got) = consumer.peek() {
                    break got;
                }
                std::thread::yield_now();
            };
            assert_eq!(got, value);
            consumer.release();
        }
        sender.join().unwrap();
        assert_eq!(consumer.peek(), None);
    }

    #[test]
    fn the_wakeup_flag_is_read() {
        let (mapping, producer, _) = ring(0);
        assert!(!producer.needs_wakeup());
        word(&mapping, 128).store(1, Ordering::Relaxed);
        assert!(producer.needs_wakeup());
    }

    #[test]
    fn a_ring_outside_its_mapping_is_refused() {
        let mapping = Arc::new(Mapping::anonymous(4096).unwrap());
        let new = |offsets: XdpRingOffset, size| {
            Producer::<u64>::new(mapping.clone(), &offsets, size).is_some()
        };
        assert!(new(OFFSETS, SIZE));
        assert!(!new(OFFSETS, 7));
        assert!(!new(OFFSETS, 512));
        let desc = 4096 - 56;
        assert!(!new(XdpRingOffset { desc, ..OFFSETS }, SIZE));
        let producer = 2;
        assert!(!new(
            XdpRingOffset {
                producer,
                ..OFFSETS
            },
            SIZE
        ));
        let flags = Some(u64::MAX);
        assert!(!new(XdpRingOffset { flags, ..OFFSETS }, SIZE));
    }
}
