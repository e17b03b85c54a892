//! The part of programs, played by a test.
//!
//! Words that any process can have lie in the place of maps, and a test does with them what a
//! program does that puts a message into a queue (`codegen/src/instance/enqueue.rs`). So what the
//! user tier does on its side is tested without root; that programs do their part is tested in
//! the kernel (`tests/programs`).

use std::io::Result;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use ashway_abi::memory::HEADROOM_BYTES;
use ashway_abi::{MemoryKind, trusted};
use ashway_codegen::entry::Packet;
use ashway_memory::{SharedArray, WakeBell, page_multiple};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::param::page_size;

use crate::iface_map::IfaceMap;
use crate::queue::Queue;
use crate::queue_plan::{IfaceFacts, QueuePlan};

/// One interface with one receive queue.
fn facts() -> IfaceMap<IfaceFacts> {
    let one = IfaceFacts {
        queues: 1,
        mtu: 1500,
        shares: false,
    };
    [(0, one)].into_iter().collect()
}

fn memory(bytes: usize) -> Result<OwnedFd> {
    let memory = memfd_create("played", MemfdFlags::CLOEXEC)?;
    ftruncate(&memory, page_multiple(bytes) as u64)?;
    Ok(memory)
}

/// Words, all 0.
pub(crate) fn words(bytes: usize) -> SharedArray {
    let mapped = memory(bytes).and_then(|memory| SharedArray::map(memory, bytes));
    mapped.expect("a process can have memory")
}

fn queue(name: &str, plan: QueuePlan) -> Queue {
    let words = words(plan.layout().bytes());
    let made = Queue::over(words, name, plan, Packet::beside(MemoryKind::Array));
    made.expect("a process can have memory")
}

/// The queue of a handler, with one ring.
pub(crate) fn handler_queue(name: &str) -> Queue {
    queue(name, QueuePlan::unbound(&facts()))
}

/// The queue of whole frames, with one ring.
pub(crate) fn frame_queue() -> Queue {
    queue("frames", QueuePlan::of_frames(&facts()))
}

/// What programs ring.
pub(crate) struct Ringer {
    /// As the worker has it. Whoever waits for it does not wait: to `poll(2)` a file in memory is
    /// readable always.
    pub(crate) bell: Arc<WakeBell>,
    words: SharedArray,
}

impl Ringer {
    pub(crate) fn new() -> Self {
        let bytes = 2 * page_size();
        let made = memory(bytes).and_then(|memory| {
            let bell = Arc::new(WakeBell::map(memory.try_clone()?)?);
            let words = SharedArray::map(memory, bytes)?;
            Ok(Self { bell, words })
        });
        made.expect("a process can have memory")
    }

    /// Rings.
    pub(crate) fn ring(&self) {
        let produced = self.words.u64_at(page_size());
        produced.fetch_add(16, Ordering::SeqCst);
    }

    /// Rings if the queue's reader wishes it, behind a message; says whether it did.
    pub(crate) fn ring_for(&self, queue: &Queue) -> bool {
        let rings = take_wish(queue);
        if rings {
            self.ring();
        }
        rings
    }
}

/// Takes away the wish to be rung for, if there is one.
pub(crate) fn take_wish(queue: &Queue) -> bool {
    // Behind the message.
    fence(Ordering::SeqCst);
    let wish = queue.words().u32_at(trusted::NEED_WAKE);
    wish.load(Ordering::SeqCst) != 0 && wish.swap(0, Ordering::SeqCst) != 0
}

/// A slot of the first ring that is taken and not filled.
pub(crate) struct Slot {
    ticket: u32,
    /// The number of the interface that its message comes by.
    iface: u32,
}

impl Slot {
    /// Takes the next.
    pub(crate) fn take(queue: &Queue) -> Self {
        let produced = trusted::RINGS + trusted::RING_PRODUCED;
        Self {
            ticket: queue
                .words()
                .u32_at(produced)
                .fetch_add(1, Ordering::SeqCst),
            iface: 0,
        }
    }

    /// The same, for a message that came by this interface; else it is the first.
    pub(crate) const fn by(self, iface: u32) -> Self {
        Self { iface, ..self }
    }

    /// Fills it with a message of this path, or key, whose flow is counted in this bucket. The
    /// message counts as in the user tier before it can be seen there.
    pub(crate) fn fill(self, queue: &Queue, path: usize, bucket: u32, bytes: &[u8]) {
        let slot = self.ticket as usize % trusted::RING_SLOTS;
        let (words, layout) = (queue.words(), queue.layout());
        let block = words.u32_at(layout.block_word(slot));
        let block = block.load(Ordering::Relaxed) as usize;
        let frame = layout.pool_offset() + block + HEADROOM_BYTES;
        words.copy_in(frame, bytes).expect("it fits a block");
        let descriptor = trusted::SLOTS + slot * trusted::SLOT_BYTES;
        for (field, value) in [
            (trusted::SLOT_LOCAL_PATH, path as u32),
            // None of the headers has been looked at, so any byte may be the first behind them.
            (trusted::SLOT_LONG, trusted::long::UNCHECKED),
            (trusted::SLOT_PAYLOAD_OFF, 1),
            (trusted::SLOT_PAYLOAD_LEN, bytes.len() as u32 - 1),
            (trusted::SLOT_FLOW, bucket),
            (trusted::SLOT_TAG, self.iface),
        ] {
            let word = words.u32_at(descriptor + field);
            word.store(value, Ordering::Relaxed);
        }
        queue.in_user_word(path).fetch_add(1, Ordering::AcqRel);
        if let Some(flow) = queue.flow_word(bucket) {
            flow.fetch_add(1, Ordering::AcqRel);
        }
        let ready = words.u32_at(descriptor + trusted::SLOT_READY);
        ready.store(self.ticket.wrapping_add(1), Ordering::Release);
    }
}

/// Puts a message into the first ring, in the way of [`Slot::fill`]. Does not ring.
pub(crate) fn put(queue: &Queue, path: usize, bucket: u32, bytes: &[u8]) {
    Slot::take(queue).fill(queue, path, bucket, bytes);
}
