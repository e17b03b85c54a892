//! Which ring a message of each receive queue lies in, in our own interpreter: its own
//! interface's, also where that has more queues than rings, or those of all interfaces where
//! it has none.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use ashway_abi::memory::{Layout, STATE_BYTES, WASM_PAGE};
use ashway_abi::{Count, MemoryKind, QueueLayout, context, trusted};
use ashway_check::bpf::interp::Machine;
use ashway_check::bpf::{Hook, Image};
use ashway_codegen::entry::Packet;
use ashway_codegen::instance::{self, OrderScope};
use promoted::promoted;

#[path = "common/promoted.rs"]
mod promoted;

/// Rings of an interface that has its own before it, and another's behind.
const BASE: u32 = 2;
const COUNT: u32 = 3;
const RINGS: usize = 6;

const LAYOUT: Layout = Layout::without_endpoint(WASM_PAGE, STATE_BYTES);

const CONSUME: &str = r#"(module (memory (export "memory") 1 1)
    (func (export "on_rx") (param i32 i32) (result i32) i32.const 0))"#;

const MEMORIES: [MemoryKind; 2] = [MemoryKind::Arena, MemoryKind::Array];

const fn spec(memory: MemoryKind, rings: usize) -> instance::Spec {
    instance::Spec {
        queue: instance::QueueSpec {
            hook: Hook::Xdp,
            cpus: 1,
            layout: QueueLayout {
                paths: 1,
                rings,
                slot_bytes: 2048,
                locks: 0,
            },
            packet: Packet::beside(memory),
            order_scope: OrderScope::Ring,
        },
        layout: LAYOUT,
        memory,
    }
}

/// A program of the user tier and one of the kernel tier, over the same words.
struct Path {
    user: Image,
    kernel: Image,
    machine: Machine,
    rings: usize,
}

impl Path {
    fn new(memory: MemoryKind, rings: usize, base: u32, count: u32) -> Self {
        let spec = spec(memory, rings);
        let words = spec.queue.layout.bytes();
        let mut machine = Machine::new(1, words, spec.layout.total_bytes());
        machine.array_mode = memory == MemoryKind::Array;
        for (at, value) in [
            (context::RING_BASE, base | count << 16),
            (context::PAYLOAD_OFF, 42),
            (context::PAYLOAD_LEN, 8),
            (context::FLAGS, context::flag::PLAIN),
        ] {
            machine.context_mut()[at as usize..][..4].copy_from_slice(&value.to_ne_bytes());
        }
        Self {
            user: instance::user(&spec.queue),
            kernel: promoted(CONSUME, &spec, |_| {}),
            machine,
            rings,
        }
    }

    /// The messages to come are of another interface.
    fn put(&mut self, at: i16, value: u32) {
        self.machine.context_mut()[at as usize..][..4].copy_from_slice(&value.to_ne_bytes());
    }

    /// A message of this queue goes to the user tier: its ring, and whether it comes
    /// right behind one of the kernel tier.
    fn queued(&mut self, queue: u32) -> Option<(usize, bool)> {
        let before = self.produced();
        self.machine.rx_queue = queue;
        self.machine.run(&self.user, &[0; 50]).unwrap();
        let after = self.produced();
        let ring = (0..after.len()).find(|ring| after[*ring] > before[*ring])?;
        let slot = ring * trusted::RING_SLOTS + before[ring] as usize;
        let at = trusted::SLOTS + slot * trusted::SLOT_BYTES + trusted::SLOT_AFTER_CPU;
        Some((ring, self.machine.trusted_u32(at) != 0))
    }

    /// A message of this queue runs in the kernel tier.
    fn runs(&mut self, queue: u32) {
        // As if the worker had done all that came before.
        self.machine.trusted_mut()[trusted::PATHS..][..4].fill(0);
        let before = self.machine.count(0, Count::Consumed);
        self.machine.rx_queue = queue;
        self.machine.run(&self.kernel, &[0; 50]).unwrap();
        assert_eq!(self.machine.count(0, Count::Consumed), before + 1);
    }

    fn produced(&self) -> Vec<u32> {
        (0..self.rings)
            .map(|ring| trusted::RINGS + ring * trusted::RING_STRIDE + trusted::RING_PRODUCED)
            .map(|at| self.machine.trusted_u32(at))
            .collect()
    }
}

#[test]
fn a_queue_beyond_an_interfaces_rings_shares_one_of_them() {
    for memory in MEMORIES {
        let mut path = Path::new(memory, RINGS, BASE, COUNT);
        for queue in [0, 1, 2, 3, 5, 7, 64, 4095] {
            let ring = (BASE + queue % COUNT) as usize;
            assert_eq!(path.queued(queue), Some((ring, false)), "queue {queue}");
        }
        assert_eq!(path.machine.count(0, Count::DroppedRingFull), 0);
    }
}

#[test]
fn an_interface_without_rings_shares_those_of_all() {
    for (memory, rings) in MEMORIES.into_iter().zip([RINGS, 1]) {
        let mut path = Path::new(memory, rings, 0, 0);
        for queue in [0, 1, 2, 3, 5, 7, 64, 4095] {
            let ring = queue as usize % rings;
            assert_eq!(path.queued(queue), Some((ring, false)), "queue {queue}");
        }
    }
}

/// The slot says by which interface its message came.
#[test]
fn a_slot_has_the_tag_of_its_message() {
    for memory in MEMORIES {
        let mut path = Path::new(memory, 1, 0, 0);
        for (slot, tag) in [7_u32, 70_000, 0, u32::MAX].into_iter().enumerate() {
            path.put(context::TAG, tag);
            path.queued(0).unwrap();
            let at = trusted::SLOTS + slot * trusted::SLOT_BYTES + trusted::SLOT_TAG;
            assert_eq!(path.machine.trusted_u32(at), tag);
        }
    }
}

#[test]
fn each_queue_of_a_ring_knows_what_it_is_behind() {
    for (rings, base, count) in [(RINGS, BASE, COUNT), (1, 0, 1)] {
        for memory in MEMORIES {
            let mut path = Path::new(memory, rings, base, count);
            let queues = || (0..trusted::RING_MARKS as u32 - 1).map(|nth| nth * count);
            queues().for_each(|queue| path.runs(queue));
            for queue in queues() {
                let first = path.queued(queue).unwrap();
                assert_eq!(first, (base as usize, true), "queue {queue}");
                assert!(!path.queued(queue).unwrap().1, "queue {queue}");
            }
            // Those beyond have one mark together, which one of them cannot take away from
            // another.
            let [one, other] = [500, 600].map(|nth| nth * count);
            assert!(!path.queued(one).unwrap().1);
            path.runs(one);
            for queue in [other, one, other, one] {
                assert!(path.queued(queue).unwrap().1, "queue {queue}");
            }
            assert!(!path.queued(0).unwrap().1);
        }
    }
}

/// Queue 0 of an interface that shares the rings has the number of queue 0 of the one whose
/// ring it is, and takes no mark away from it; nor does that take one away from the other.
fn a_shared_ring_orders_each_interface_for_itself() -> bool {
    [(RINGS, BASE, COUNT), (1, 0, 1)]
        .into_iter()
        .all(|(rings, base, count)| {
            MEMORIES.into_iter().all(|memory| {
                let mut path = Path::new(memory, rings, base, count);
                let own = base | count << 16;
                // Of the one that shares, a queue that comes into the ring of the own one's first.
                let other = base;
                path.runs(0);
                path.put(context::RING_BASE, 0);
                let first = path.queued(other).unwrap();
                path.put(context::RING_BASE, own);
                let kept = path.queued(0).unwrap() == (base as usize, true);
                path.put(context::RING_BASE, 0);
                path.runs(other);
                path.put(context::RING_BASE, own);
                let nobodys = !path.queued(0).unwrap().1;
                path.put(context::RING_BASE, 0);
                let behind = path.queued(other).unwrap() == (base as usize, true);
                first == (base as usize, false) && kept && nobodys && behind
            })
        })
}

#[test]
fn interfaces_that_share_a_ring_keep_their_marks() {
    assert!(a_shared_ring_orders_each_interface_for_itself());
}
