//! The generated programs in the real kernel, without an interface: the ring, and what both
//! tiers do with a message. [`iface`] has the programs at an interface, [`promises`] what the
//! kernel tier promises, with its seeded bugs.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use ashway_abi::memory::{HEADROOM_BYTES, Layout, STATE_BYTES};
use ashway_abi::{Budget, MemoryKind, QueueLayout};
use ashway_abi::{Count, Leaf, context, count, trusted};
use ashway_check::bpf::{Atomic, Hook, Insn, Reg};
use ashway_codegen::demux::{compiled, emit};
use ashway_codegen::{entry, exit, instance};
use ashway_demux::{self as demux, Table, Update};
use ashway_kernel::{Map, MapSpec, Program, TestRun, shared};
use ashway_memory::messages::{Buffer, Pool};
use ashway_memory::{Memory, SharedArray};
use ashway_rig::{Frame, frames::Spoil};
use ashway_wire::{Datagram, Headers};
use ashway_worker::programs::{self, DemuxMaps, Followed, Maps, NodeMaps};

mod iface;
mod promises;

const PASS: u32 = 2;
const DROP: u32 = 1;
const TX: u32 = 3;

/// Arena programs load only with `CAP_PERFMON`; run under
/// `setpriv --bounding-set=-perfmon,-sys_admin` this is the array's test alone.
fn kinds() -> Vec<MemoryKind> {
    let arena = ashway_kernel::probe::Probe::run().has(ashway_kernel::probe::Feature::ArenaProgram);
    if arena {
        vec![MemoryKind::Arena, MemoryKind::Array]
    } else {
        vec![MemoryKind::Array]
    }
}

/// Plain, and behind one or two tags: each `vlan` means one more.
const FILTER: &str =
    "udp dst port 7777 or (vlan and udp dst port 7777) or (vlan and udp dst port 7777)";

struct Bench {
    node: NodeMaps,
    slots: Map,
    trusted: SharedArray,
    pool: Arc<Pool>,
    memory: Memory,
    entry: Program,
    layout: Layout,
    _user: Program,
}

fn node_maps() -> NodeMaps {
    let cpus = ashway_kernel::maps::possible_cpus().unwrap() as u32;
    let map = |spec: &MapSpec| Arc::new(Map::create(spec).unwrap());
    NodeMaps {
        frags: false,
        hook: Hook::Xdp,
        context: map(&MapSpec::array("ctx", context::BYTES as u32 * cpus, 1)),
        cpus,
        counters: map(&MapSpec::percpu_array(
            "rows",
            count::KERNEL_BYTES as u32,
            4,
        )),
        wake: Arc::new(shared::bell("wake", 4096).unwrap()),
    }
}

const QUEUE: QueueLayout = QueueLayout {
    paths: 1,
    rings: 2,
    slot_bytes: 2048,
    locks: 0,
};

fn queue(cpus: u32, kind: MemoryKind) -> instance::QueueSpec {
    instance::QueueSpec {
        hook: Hook::Xdp,
        cpus,
        layout: QUEUE,
        packet: entry::Packet::beside(kind),
        order_scope: instance::OrderScope::Ring,
    }
}

fn bench(kind: MemoryKind) -> Bench {
    let layout = Layout::without_endpoint(131_072, STATE_BYTES);
    let node = node_maps();
    let cpus = node.cpus;
    let slots = Map::create(&MapSpec::prog_array("slots", 4)).unwrap();
    let trusted = shared::words("trusted", QUEUE.bytes()).unwrap();
    let pool = shared::pool(&trusted, &QUEUE).unwrap();
    let memory = match kind {
        MemoryKind::Arena => shared::arena(layout.total_bytes()).unwrap(),
        MemoryKind::Array => shared::array(layout.total_bytes()).unwrap(),
    };
    let mut table = Table::default();
    table.insert(&demux::parse(FILTER).unwrap(), 1).unwrap();
    let leaf = |row| Leaf {
        row,
        ring_count: 1,
        ..Leaf::default()
    };
    let shapes = compiled::compile_open(&table, compiled::FEW, leaf);
    let demux = DemuxMaps::create(&table, &shapes, leaf).unwrap();
    let spec = entry::Spec {
        hook: Hook::Xdp,
        shapes: &shapes,
        spares: Some(compiled::spares_at(&shapes)),
        cpus,
        per_cpu: false,
        unmatched_row: 0,
        mac: ashway_rig::MAC_B,
        reply: entry::Reply::Transmit,
        packet: entry::Packet::beside(kind),
    };
    let maps = Maps {
        node: &node,
        trusted: Some(&trusted),
        memory: Some(&memory),
    };
    let entry = programs::load_entry(&entry::generate(&spec), &node, &slots, &demux)
        .unwrap_or_else(|e| panic!("entry: {e}: {}", e.log()));
    let user = instance::user(&queue(cpus, kind));
    let user = programs::load("ashway_user", &user, &maps)
        .unwrap_or_else(|e| panic!("user: {e}: {}", e.log()));
    eprintln!(
        "verified: entry {}, user {}",
        entry.verified_insns(),
        user.verified_insns()
    );
    slots.set_slot(0, user.fd()).unwrap();
    Bench {
        node,
        slots,
        trusted,
        pool,
        memory,
        entry,
        layout,
        _user: user,
    }
}

impl Bench {
    fn run(&self, frame: &[u8]) -> u32 {
        self.entry
            .test_run(&TestRun {
                packet: frame,
                context: None,
                repeat: 1,
            })
            .unwrap()
            .retval
    }

    /// As if the worker had worked off its only message.
    fn user_tier_is_done(&self) {
        use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
        let word = |offset| self.trusted.u32_at(offset);
        assert_eq!(word(trusted::PATHS).swap(0, AcqRel), 1);
        let produced = word(trusted::RINGS + trusted::RING_PRODUCED).load(Acquire);
        word(trusted::RINGS + trusted::RING_CONSUMED).store(produced, Release);
    }

    fn count(&self, row: u32, which: Count) -> u64 {
        self.node
            .counters
            .lookup_percpu(&row.to_le_bytes())
            .unwrap()
            .iter()
            .map(|cpu| u64::from_le_bytes(cpu[which as usize * 8..][..8].try_into().unwrap()))
            .sum()
    }
}

#[test]
fn a_message_lands_in_its_block_as_it_came() {
    if ashway_rig::skip_unless_root() {
        return;
    }
    for kind in kinds() {
        let bench = bench(kind);
        for (n, len) in [0, 1, 4, 7, 8, 63, 64, 65, 1000, 1472]
            .into_iter()
            .enumerate()
        {
            let payload: Vec<u8> = (0..len).map(|i| (i * 7 + n) as u8).collect();
            let frame = Frame::to_b(7777, &payload).bytes();
            assert_eq!(bench.run(&frame), DROP, "taken");
            let ring = trusted::RINGS;
            let produced = bench.trusted.u32_at(ring + trusted::RING_PRODUCED);
            assert_eq!(
                produced.load(std::sync::atomic::Ordering::Acquire),
                n as u32 + 1
            );
            let slot = trusted::SLOTS + n * trusted::SLOT_BYTES;
            let word = |offset| bench.trusted.u32_at(slot + offset).load(Relaxed) as usize;
            assert_eq!(word(trusted::SLOT_PAYLOAD_LEN), len);
            let headers = word(trusted::SLOT_PAYLOAD_OFF);
            let mut block = Buffer::default();
            assert!(bench.pool.exchange(n, &mut block).is_some());
            let landed = &block[HEADROOM_BYTES..][..headers + len];
            assert_eq!(landed, &frame[..headers + len], "{len} bytes");
        }
        assert_eq!(bench.count(1, Count::Received), 10);
        assert_eq!(bench.count(1, Count::QueuedTier), 10);
    }
}

#[test]
fn a_full_ring_drops_and_says_so() {
    if ashway_rig::skip_unless_root() {
        return;
    }
    let bench = bench(MemoryKind::Arena);
    let frame = Frame::to_b(7777, b"fill").bytes();
    for _ in 0..300 {
        assert_eq!(bench.run(&frame), DROP);
    }
    assert_eq!(bench.count(1, Count::QueuedTier), 256);
    assert_eq!(bench.count(1, Count::DroppedRingFull), 44);
}

/// Answers everything, unchanged.
const ECHO: &str = r#"(module
    (memory (export "memory") 2 2)
    (func (export "on_rx") (param i32 i32) (result i32) i32.const 1))"#;

/// Puts the promoted `text` behind the path's slot.
fn promote(bench: &Bench, kind: MemoryKind, text: &str) -> Program {
    promote_edited(bench, kind, text, |_| ())
}

/// The same after `edit` has been at the finished program.
fn promote_edited(
    bench: &Bench,
    kind: MemoryKind,
    text: &str,
    edit: impl FnOnce(&mut Vec<u64>),
) -> Program {
    use ashway_codegen::normalise::{Limits, normalise};
    let wasm = wat::parse_str(text).unwrap();
    let module = normalise(&wasm, &Limits::default()).unwrap();
    let entry = module.exports.iter().find(|(name, _)| name == "on_rx");
    let (mut image, _) = instance::kernel(
        &instance::Spec {
            queue: queue(bench.node.cpus, kind),
            layout: bench.layout,
            memory: kind,
        },
        &instance::Handler {
            module: &module,
            entry: entry.unwrap().1,
            path: None,
            budget: Budget {
                fuel: 200_000,
                slice: 2048,
                ns: 50_000,
            },
            share: None,
            may_reply: true,
            locals_in_memory: false,
        },
    )
    .unwrap();
    edit(&mut image.insns);
    let maps = Maps {
        node: &bench.node,
        trusted: Some(&bench.trusted),
        memory: Some(&bench.memory),
    };
    let program = programs::load("ashway_kernel", &image, &maps)
        .unwrap_or_else(|e| panic!("kernel: {e}: {}", e.log()));
    bench.slots.set_slot(0, program.fd()).unwrap();
    program
}

#[test]
fn both_tiers_reply_with_the_same_bytes() {
    if ashway_rig::skip_unless_root() {
        return;
    }
    for kind in kinds() {
        let bench = bench(kind);
        let _program = promote(&bench, kind, ECHO);
        let mut compared = 0;
        for len in (0..70).chain([255, 256, 1471, 1472]) {
            let payload: Vec<u8> = (0..len).map(|i| (i * 31 + 7) as u8).collect();
            for make in [Frame::to_b, Frame::to_b_v6] {
                for spoil in [
                    None,
                    Some(Spoil::NoUdpChecksum),
                    Some(Spoil::Options(3)),
                    Some(Spoil::Options(5)),
                    Some(Spoil::Padding(9)),
                    Some(Spoil::Vlan(7)),
                ] {
                    let mut frame = make(7777, &payload);
                    if let Some(spoil) = spoil {
                        frame = frame.spoil(spoil);
                    }
                    let mut frame = frame.bytes();
                    let message = Datagram::parse(&frame)
                        .ok()
                        .and_then(|datagram| datagram.validate(&frame).ok());
                    let result = bench
                        .entry
                        .test_run(&TestRun {
                            packet: &frame,
                            context: None,
                            repeat: 1,
                        })
                        .unwrap();
                    let Some(message) = message else {
                        assert_ne!(result.retval, TX, "{len} {spoil:?}");
                        continue;
                    };
                    if kind == MemoryKind::Array
                        && matches!(spoil, Some(Spoil::Options(_) | Spoil::Vlan(_)))
                    {
                        assert_eq!(result.retval, DROP, "to the user tier");
                        bench.user_tier_is_done();
                        continue;
                    }
                    assert_eq!(result.retval, TX, "{len} {spoil:?}");
                    ashway_wire::make_reply(&mut frame, message.payload_off, message.payload_len)
                        .unwrap();
                    assert_eq!(result.packet, frame, "{len} {spoil:?}");
                    compared += 1;
                }
            }
        }
        assert!(compared > 300, "{compared}");
    }
}

/// What the kernel tier answers leaves only at the end of the driver's poll, so
/// the first message that goes to the ring behind it names its CPU, for the
/// worker to wait; those behind that one need not.
#[test]
fn the_first_message_behind_the_kernel_tier_says_so() {
    use std::sync::atomic::Ordering;
    if ashway_rig::skip_unless_root() {
        return;
    }
    for kind in kinds() {
        let bench = bench(kind);
        let _program = promote(&bench, kind, ECHO);
        let frame = Frame::to_b(7777, b"in turn").bytes();
        let lock = bench.trusted.u32_at(trusted::LOCK);
        let mut slot = 0;
        for _ in 0..2 {
            assert_eq!(bench.run(&frame), TX, "answered in the kernel tier");
            assert_eq!(bench.run(&frame), TX);
            // The instance is busy, on another CPU.
            lock.store(1, Ordering::Release);
            for first in [true, false, false] {
                assert_eq!(bench.run(&frame), DROP, "in the ring");
                let word = |offset| {
                    let at = trusted::SLOTS + slot * trusted::SLOT_BYTES + offset;
                    bench.trusted.u32_at(at).load(Ordering::Acquire)
                };
                assert_eq!(word(trusted::SLOT_AFTER_CPU) > 0, first, "slot {slot}");
                assert_eq!(word(trusted::SLOT_READY), slot as u32 + 1);
                slot += 1;
            }
            lock.store(0, Ordering::Release);
            // As if the worker had worked them off.
            let in_user = bench.trusted.u32_at(trusted::PATHS);
            assert_eq!(in_user.swap(0, Ordering::AcqRel), 3);
        }
        assert_eq!(bench.count(1, Count::QueuedBusy), 2);
        assert_eq!(bench.count(1, Count::QueuedOrder), 4);
    }
}

#[test]
fn nobody_is_answered_who_cannot_be_a_sender() {
    if ashway_rig::skip_unless_root() {
        return;
    }
    let bench = bench(MemoryKind::Arena);
    let _program = promote(&bench, MemoryKind::Arena, ECHO);
    let whole = Frame::to_b(7777, b"who").bytes();
    // Source address, and the group bit of the source MAC.
    for (at, bytes) in [
        (26, &[0, 0, 0, 0][..]),
        (26, &[127, 0, 0, 1]),
        (26, &[224, 0, 0, 1]),
        (26, &[255, 255, 255, 255]),
        (6, &[3]),
    ] {
        let mut frame = whole.clone();
        frame[at..at + bytes.len()].copy_from_slice(bytes);
        // No UDP checksum, and a true IP checksum.
        frame[40..42].fill(0);
        frame[24..26].fill(0);
        let sum = ashway_wire::checksum::Sum::new()
            .bytes(&frame[14..34])
            .checksum();
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        assert_eq!(bench.run(&frame), DROP, "{bytes:?}");
    }
    assert_eq!(bench.count(1, Count::DroppedNoSender), 5);
}
