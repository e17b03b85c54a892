//! Which messages of a path wait for which, in our own interpreter: a message that goes to the
//! user tier holds up its own flow, and no other; on a path that says so, all of it, or none.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use std::collections::VecDeque;
use std::net::IpAddr;

use ashway_abi::context::flag;
use ashway_abi::memory::{Layout, STATE_BYTES, WASM_PAGE};
use ashway_abi::share::Terms;
use ashway_abi::{Count, Leaf, MemoryKind, QueueLayout, flow, trusted};
use ashway_check::bpf::interp::Machine;
use ashway_check::bpf::{Hook, Image};
use ashway_codegen::demux::compiled::{self, FEW};
use ashway_codegen::entry::{self, Packet, Reply};
use ashway_codegen::instance::{self, OrderScope, QueueSpec};
use ashway_demux::Table;
use ashway_rig::{Frame, Spoil};
use promoted::promoted;

#[path = "common/promoted.rs"]
mod promoted;

const LAYOUT: Layout = Layout::without_endpoint(WASM_PAGE, STATE_BYTES);
const QUEUE: QueueLayout = QueueLayout {
    paths: 3,
    rings: 1,
    slot_bytes: 4096,
    locks: 0,
};
const LOCAL: usize = 1;
const PORT: u16 = 7;
const SEED: u64 = 0x5eed_0f1a_57ed_c0de;

const CONSUME: &str = r#"(module (memory (export "memory") 1 1)
    (func (export "on_rx") (param i32 i32) (result i32) i32.const 0))"#;

const PLACES: [(Hook, MemoryKind); 3] = [
    (Hook::Xdp, MemoryKind::Arena),
    (Hook::Xdp, MemoryKind::Array),
    (Hook::Tcx, MemoryKind::Arena),
];

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// Its handler ran in the kernel tier.
    Ran,
    /// It waits for the user tier.
    Waits(Count),
    Dropped,
}

const FATES: [(Count, Fate); 8] = [
    (Count::Consumed, Fate::Ran),
    (Count::QueuedTier, Fate::Waits(Count::QueuedTier)),
    (Count::QueuedOrder, Fate::Waits(Count::QueuedOrder)),
    (Count::QueuedBusy, Fate::Waits(Count::QueuedBusy)),
    (Count::QueuedLong, Fate::Waits(Count::QueuedLong)),
    (Count::QueuedOptions, Fate::Waits(Count::QueuedOptions)),
    (Count::DroppedRingFull, Fate::Dropped),
    (Count::DroppedQueueFull, Fate::Dropped),
];

/// An interface with one path, and a worker that is told when to work.
struct Node {
    machine: Machine,
    entry: Image,
    user: Image,
    kernel: Image,
    /// Buckets of what the worker has in hand.
    in_hand: VecDeque<u32>,
}

impl Node {
    fn new(place: (Hook, MemoryKind), flags: u32) -> Self {
        Self::with_share(place, flags, None)
    }

    fn with_share((hook, memory): (Hook, MemoryKind), flags: u32, share: Option<Terms>) -> Self {
        let queue = QueueSpec {
            hook,
            cpus: 1,
            layout: QUEUE,
            packet: Packet::beside(memory),
            order_scope: OrderScope::Ring,
        };
        let spec = instance::Spec {
            queue,
            layout: LAYOUT,
            memory,
        };
        let user = instance::user(&queue);
        let kernel = promoted(CONSUME, &spec, |handler| handler.share = share);
        let mut table = Table::default();
        let filter = format!("udp dst port {PORT} or (vlan and udp dst port {PORT})");
        table
            .insert(&ashway_demux::parse(&filter).unwrap(), ())
            .unwrap();
        let shapes = compiled::compile(&table, FEW, |()| Leaf {
            local: LOCAL as u32,
            ring_count: QUEUE.rings as u16,
            flags,
            ..Leaf::default()
        });
        let entry = entry::generate(&entry::Spec {
            hook,
            shapes: &shapes,
            spares: None,
            cpus: 1,
            per_cpu: false,
            unmatched_row: 0,
            mac: Frame::to_b(PORT, &[]).eth_destination,
            reply: Reply::Redirect,
            packet: Packet::beside(memory),
        });
        let mut machine = Machine::new(1, QUEUE.bytes(), LAYOUT.total_bytes());
        machine.array_mode = memory == MemoryKind::Array;
        machine.set_hits(compiled::hits_bytes(&shapes));
        let words = machine.trusted_mut();
        words[trusted::FLOW_SEED..][..8].copy_from_slice(&SEED.to_ne_bytes());
        for (at, block) in QUEUE.first_blocks() {
            words[at..][..4].copy_from_slice(&block.to_ne_bytes());
        }
        let mut node = Self {
            machine,
            entry,
            user,
            kernel,
            in_hand: VecDeque::new(),
        };
        node.promote(true);
        node
    }

    fn promote(&mut self, promoted: bool) {
        let program = if promoted { &self.kernel } else { &self.user };
        self.machine.slots = vec![Some(program.clone())];
    }

    fn word(&self, at: usize) -> u32 {
        self.machine.trusted_u32(at)
    }

    fn set(&mut self, at: usize, word: u32) {
        self.machine.trusted_mut()[at..][..4].copy_from_slice(&word.to_ne_bytes());
    }

    fn send(&mut self, frame: &[u8]) -> Fate {
        let before = FATES.map(|(count, _)| self.machine.count(0, count));
        self.machine.run(&self.entry, frame).unwrap();
        let after = FATES.map(|(count, _)| self.machine.count(0, count));
        let mut fates = FATES.iter().zip(before.iter().zip(after));
        let risen = fates.find(|(_, (before, after))| after > *before);
        let ((_, fate), _) = risen.expect("each message is counted");
        *fate
    }

    const fn ring(offset: usize) -> usize {
        trusted::RINGS + offset
    }

    fn descriptor(ticket: u32) -> usize {
        trusted::SLOTS + ticket as usize % trusted::RING_SLOTS * trusted::SLOT_BYTES
    }

    /// The worker takes the next message out of the ring; its bucket.
    fn take(&mut self) -> Option<u32> {
        let [consumed, produced] = [trusted::RING_CONSUMED, trusted::RING_PRODUCED]
            .map(|offset| self.word(Self::ring(offset)));
        if consumed == produced {
            return None;
        }
        let slot = Self::descriptor(consumed);
        assert_eq!(self.word(slot + trusted::SLOT_LOCAL_PATH), LOCAL as u32);
        let more = self.word(slot + trusted::SLOT_LONG) & trusted::long::SLOTS;
        let flow = self.word(slot + trusted::SLOT_FLOW);
        self.set(Self::ring(trusted::RING_CONSUMED), consumed + 1 + more);
        let chained = QUEUE.path_word(LOCAL) + trusted::PATH_CHAINED;
        self.set(chained, self.word(chained) - more);
        self.in_hand.push_back(flow);
        Some(flow)
    }

    /// The first that it has in hand leaves the user tier.
    fn leave(&mut self) -> bool {
        let Some(bucket) = self.in_hand.pop_front() else {
            return false;
        };
        let mut words = vec![QUEUE.path_word(LOCAL)];
        if (bucket as usize) < flow::BUCKETS {
            words.insert(0, QUEUE.flow_word(bucket as usize));
        }
        for word in words {
            self.set(word, trusted::less(self.word(word), 1));
        }
        true
    }

    fn in_user(&self) -> u32 {
        self.word(QUEUE.path_word(LOCAL))
    }

    /// What all buckets hold, marks included.
    fn in_flows(&self) -> u64 {
        let buckets = (0..flow::BUCKETS).map(|bucket| self.word(QUEUE.flow_word(bucket)));
        buckets.map(u64::from).sum()
    }
}

/// The bucket of a frame, by what the frame was made of.
fn bucket(frame: &Frame) -> u32 {
    let [source, destination] = [frame.source_port, frame.destination_port];
    let ports = [source.to_be_bytes(), destination.to_be_bytes()].concat();
    let ports = ports.try_into().unwrap();
    match (frame.source, frame.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            flow::of_ipv4(SEED, [source.octets(), destination.octets()], ports)
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            flow::of_ipv6(SEED, [source.octets(), destination.octets()], ports)
        }
        _ => unreachable!("addresses of two families"),
    }
}

/// However its headers lie, and however long it is, a message is counted in the bucket of its
/// addresses and ports, and its slot says so.
#[test]
fn a_message_is_counted_in_its_flows_bucket() {
    let spoils: [&[Spoil]; 5] = [
        &[],
        &[Spoil::Vlan(5)],
        &[Spoil::Options(2)],
        &[Spoil::Vlan(5), Spoil::Options(1)],
        &[Spoil::Padding(9)],
    ];
    for place in PLACES {
        for promoted in [false, true] {
            let mut node = Node::new(place, 0);
            node.promote(promoted);
            node.set(trusted::LOCK, 1);
            let mut ticket = 0;
            for port in (1..60_000).step_by(9_999) {
                for (spoils, len) in spoils.into_iter().zip([8, 0, 100, 30, 9_000]) {
                    let payload = vec![
                        3;
                        if place.0 == Hook::Tcx {
                            len
                        } else {
                            len.min(1400)
                        }
                    ];
                    for plain in [Frame::to_b(PORT, &payload), Frame::to_b_v6(PORT, &payload)] {
                        let plain = plain.from_port(port);
                        let frame = spoils
                            .iter()
                            .fold(plain, |frame, spoil| frame.spoil(*spoil));
                        let expected = bucket(&frame);
                        let fate = node.send(&frame.bytes());
                        assert!(matches!(fate, Fate::Waits(_)), "{place:?}: {fate:?}");
                        let slot = Node::descriptor(ticket);
                        let seen = node.word(slot + trusted::SLOT_FLOW);
                        assert_eq!(seen, expected, "{place:?}, {promoted}, {spoils:?}");
                        let word = node.word(QUEUE.flow_word(seen as usize));
                        assert_eq!((word, node.in_flows()), (1, 1));
                        ticket += 1 + (node.word(slot + trusted::SLOT_LONG) & trusted::long::SLOTS);
                        node.take();
                        node.leave();
                        assert_eq!((node.in_user(), node.in_flows()), (0, 0));
                    }
                }
            }
        }
    }
}

/// Frames of flows that share no bucket.
fn flows(number: usize) -> Vec<Vec<u8>> {
    let mut used = Vec::new();
    let mut frames = Vec::new();
    for port in 40_000.. {
        let frame = match port % 2 {
            0 => Frame::to_b(PORT, b"flow"),
            _ => Frame::to_b_v6(PORT, b"flow"),
        };
        let frame = frame.from_port(port);
        if !used.contains(&bucket(&frame)) {
            used.push(bucket(&frame));
            frames.push(frame.bytes());
        }
        if frames.len() == number {
            break;
        }
    }
    frames
}

/// The flow that has a message in the user tier waits, and the 99 others do not.
#[test]
fn a_message_that_crosses_holds_up_its_own_flow() {
    let frames = flows(100);
    for place in PLACES {
        let mut node = Node::new(place, 0);
        node.set(trusted::LOCK, 1);
        assert_eq!(node.send(&frames[0]), Fate::Waits(Count::QueuedBusy));
        node.set(trusted::LOCK, 0);
        for _ in 0..3 {
            for frame in &frames[1..] {
                assert_eq!(node.send(frame), Fate::Ran, "{place:?}");
            }
            assert_eq!(node.send(&frames[0]), Fate::Waits(Count::QueuedOrder));
        }
        assert_eq!((node.in_user(), node.in_flows()), (4, 4));
        for _ in 0..4 {
            assert_eq!(node.send(&frames[1]), Fate::Ran);
            assert!(node.take().is_some() && node.leave());
        }
        assert_eq!(node.send(&frames[0]), Fate::Ran, "{place:?}");
        assert_eq!((node.in_user(), node.in_flows()), (0, 0));
    }
}

/// Numbers that look random (xorshift, G. Marsaglia 2003).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// Messages of six flows come, find the instance busy or not, and the worker does some; the path
/// changes its tier. By each rule exactly those messages run at once that have nobody to wait for,
/// so none overtakes; and in the end nothing is counted anywhere.
#[test]
fn who_waits_for_nobody_runs_at_once() {
    const FLOWS: usize = 6;
    let frames = flows(FLOWS);
    for place in PLACES {
        for rule in [0, flag::ORDER_PATH, flag::ORDER_NONE] {
            let mut node = Node::new(place, rule);
            let mut random = Random(77);
            // Of each flow, how many are in the user tier; and in which order they are there.
            let mut waiting = [0_u32; FLOWS];
            let mut order = VecDeque::new();
            let (mut busy, mut promoted) = (false, true);
            let (mut ran, mut waited) = (0, 0);
            for _ in 0..20_000 {
                match random.below(100) {
                    0..15 => {
                        let which = random.below(FLOWS as u64) as usize;
                        let held = match rule {
                            0 => waiting[which] > 0,
                            flag::ORDER_PATH => waiting.iter().any(|flow| *flow > 0),
                            _ => false,
                        };
                        let expected = match (promoted, held, busy) {
                            (false, ..) => Fate::Waits(Count::QueuedTier),
                            (_, true, _) => Fate::Waits(Count::QueuedOrder),
                            (.., true) => Fate::Waits(Count::QueuedBusy),
                            _ => Fate::Ran,
                        };
                        let fate = node.send(&frames[which]);
                        assert_eq!(fate, expected, "{place:?}, {rule}, {which} of {waiting:?}");
                        if fate == Fate::Ran {
                            ran += 1;
                        } else {
                            waiting[which] += 1;
                            order.push_back(which);
                            waited += 1;
                        }
                    }
                    15..55 => drop(node.take()),
                    55..97 => {
                        if node.leave() {
                            waiting[order.pop_front().unwrap()] -= 1;
                        }
                    }
                    97 => {
                        busy = !busy;
                        node.set(trusted::LOCK, busy.into());
                    }
                    _ => {
                        promoted = !promoted;
                        node.promote(promoted);
                    }
                }
                // So that no ring is ever full.
                while order.len() > 100 {
                    node.take();
                    assert!(node.leave());
                    waiting[order.pop_front().unwrap()] -= 1;
                }
                assert_eq!(node.in_user(), waiting.iter().sum::<u32>());
            }
            while node.take().is_some() {}
            while node.leave() {}
            assert_eq!((node.in_user(), node.in_flows()), (0, 0), "{place:?}");
            assert!(ran > 100 && waited > 1_000, "{ran} and {waited}");
        }
    }
}

/// A flow that floods while one of its messages is in the user tier fills its path's part of the
/// ring: it drains, and others run on.
#[test]
fn a_flow_that_floods_is_dropped_alone() {
    let frames = flows(2);
    for place in PLACES {
        let mut node = Node::new(place, 0);
        node.set(trusted::LOCK, 1);
        assert_eq!(node.send(&frames[0]), Fate::Waits(Count::QueuedBusy));
        node.set(trusted::LOCK, 0);
        while node.send(&frames[0]) != Fate::Dropped {}
        let mut left = node.in_user();
        assert_eq!(
            left & trusted::DRAINING,
            0,
            "{place:?}: the path does not drain"
        );
        assert_eq!(node.in_flows(), u64::from(left | trusted::DRAINING));
        while left > 0 {
            assert_eq!(node.send(&frames[0]), Fate::Dropped);
            assert_eq!(node.send(&frames[1]), Fate::Ran, "{place:?}");
            node.take();
            node.leave();
            left -= 1;
        }
        assert_eq!(node.send(&frames[0]), Fate::Ran, "{place:?}");
        assert_eq!((node.in_user(), node.in_flows()), (0, 0));
    }
}

/// A path with a share goes by flows while it keeps to that, and as a whole above it, until none
/// of it is in the user tier.
#[test]
fn above_its_share_a_path_waits_as_a_whole() {
    let frames = flows(3);
    for place in PLACES {
        let mut node = Node::with_share(place, 0, Some(Terms::new(500, None)));
        node.machine.clock_ns = 1_000_000_000;
        node.set(trusted::LOCK, 1);
        assert_eq!(node.send(&frames[0]), Fate::Waits(Count::QueuedBusy));
        node.set(trusted::LOCK, 0);
        assert_eq!(node.send(&frames[1]), Fate::Ran, "{place:?}");
        let lazy = QUEUE.path_word(LOCAL) + trusted::PATH_LAZY;
        node.set(lazy, 1);
        for frame in &frames[1..] {
            assert_eq!(
                node.send(frame),
                Fate::Waits(Count::QueuedOrder),
                "{place:?}"
            );
        }
        while node.take().is_some() {}
        while node.leave() {}
        assert_eq!(node.send(&frames[1]), Fate::Ran, "{place:?}");
        assert_eq!((node.word(lazy), node.in_flows()), (0, 0));
    }
}

/// A message that needs no order leaves the mark of what ran before it to the next that does.
#[test]
fn who_needs_no_order_comes_behind_nobody() {
    for (rule, named) in [
        (flag::ORDER_NONE, false),
        (flag::ORDER_PATH, true),
        (0, true),
    ] {
        let frame = &flows(1)[0];
        let mut node = Node::new(PLACES[0], rule);
        assert_eq!(node.send(frame), Fate::Ran);
        node.set(trusted::LOCK, 1);
        assert_eq!(node.send(frame), Fate::Waits(Count::QueuedBusy));
        let after = node.word(Node::descriptor(0) + trusted::SLOT_AFTER_CPU);
        assert_eq!(after > 0, named);
        let mark = Node::ring(trusted::RING_BEHIND_KERNEL);
        assert_eq!(node.word(mark), u32::from(!named));
    }
}
