//! The generated programs in the real kernel, without an interface.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use std::sync::atomic::Ordering::Relaxed;

use ashway_abi::memory::{Layout, STATE_BYTES};
use ashway_abi::{Budget, MemoryKind};
use ashway_abi::{Count, Leaf, context, count, trusted};
use ashway_check::bpf::{Atomic, Insn, Reg};
use ashway_codegen::demux::emit;
use ashway_codegen::{entry, exit, instance};
use ashway_daemon::programs::{self, DemuxMaps, Maps, NodeMaps};
use ashway_demux::{self as demux, Filter, Table, Update};
use ashway_kernel::{Map, MapSpec, Program, ProgramKind, TestRun, shared};
use ashway_memory::{Memory, SharedArray};
use ashway_rig::{Frame, frames::Spoil};
use ashway_wire::{Datagram, Headers};

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
    memory: Memory,
    entry: Program,
    layout: Layout,
    _user: Program,
}

fn node_maps() -> NodeMaps {
    let cpus = ashway_kernel::maps::possible_cpus().unwrap() as u32;
    NodeMaps {
        context: Map::create(&MapSpec::array("ctx", context::BYTES as u32 * cpus, 1)).unwrap(),
        cpus,
        counters: Map::create(&MapSpec::percpu_array("rows", count::ROW_BYTES as u32, 4)).unwrap(),
        wake: shared::bell("wake", 4096).unwrap(),
    }
}

fn bench(kind: MemoryKind) -> Bench {
    let layout = Layout {
        guest_bytes: 131_072,
        state_bytes: STATE_BYTES,
        rings: 2,
        slot_bytes: 2048,
        endpoint_slots: 0,
    };
    let node = node_maps();
    let cpus = node.cpus;
    let slots = Map::create(&MapSpec::prog_array("slots", 4)).unwrap();
    let trusted = shared::words("trusted", layout.trusted_bytes(1)).unwrap();
    let memory = match kind {
        MemoryKind::Arena => shared::arena(layout.total_bytes()).unwrap(),
        MemoryKind::Array => shared::array(layout.total_bytes()).unwrap(),
    };
    let mut table = Table::default();
    table.insert(&demux::parse(FILTER).unwrap(), 1).unwrap();
    let leaf = |row| Leaf {
        row,
        ..Leaf::default()
    };
    let shapes = emit::compile_open(&table, emit::FEW, leaf);
    let demux = DemuxMaps::create(&table, &shapes, leaf).unwrap();
    let spec = entry::Spec {
        shapes: &shapes,
        cpus,
        unmatched_row: 0,
        mac: ashway_rig::MAC_B,
        reply: entry::Reply::Transmit,
        packet: match kind {
            MemoryKind::Arena => entry::Packet::Pointers,
            MemoryKind::Array => entry::Packet::Helpers,
        },
    };
    let maps = Maps {
        node: &node,
        trusted: Some(&trusted),
        memory: Some(&memory),
    };
    let entry = programs::load_entry(&entry::generate(&spec), &node, &slots, &demux)
        .unwrap_or_else(|e| panic!("entry: {e}: {}", e.log()));
    let user = instance::user(&instance::Spec {
        cpus,
        layout,
        memory: kind,
        paths: 1,
        behind: instance::Behind::Ring,
    });
    let user = programs::load("ashway_user", ProgramKind::Xdp, &user, &maps)
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
fn a_message_lands_in_the_ring_with_its_headers_apart() {
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
            let mut headers = vec![0; word(trusted::SLOT_PAYLOAD_OFF)];
            bench
                .trusted
                .copy_out(slot + trusted::SLOT_HEADERS, &mut headers)
                .unwrap();
            assert_eq!(headers, frame[..headers.len()]);
            let mut landed = vec![0; len];
            let at = bench.layout.pool_slot(1, 0, n);
            bench.trusted.copy_out(at, &mut landed).unwrap();
            assert_eq!(landed, payload, "{len} bytes");
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

/// Of a shape that the program has, every path is an entry of a map: the second and the
/// ninth, one that takes another's place, and the first after the last has gone.
#[test]
fn paths_come_and_go_without_another_program() {
    if ashway_rig::skip_unless_root() {
        return;
    }
    let leaf = |path| Leaf {
        path,
        ..Leaf::default()
    };
    let filter = |text: &str| demux::parse(text).unwrap();
    let port = |port: u16| filter(&format!("udp dst port {port}"));
    let mut table = Table::default();
    table.insert(&port(7000), 0).unwrap();
    let shapes = emit::compile_open(&table, emit::FEW, leaf);
    let mut maps = DemuxMaps::create(&table, &shapes, leaf).unwrap();
    let node = node_maps();
    let image = emit::program(&emit::Spec {
        shapes: &shapes,
        cpus: node.cpus,
        packet: entry::Packet::Pointers,
    });
    drop(shapes);
    let slots = Map::create(&MapSpec::prog_array("slots", 1)).unwrap();
    let program = programs::load_entry(&image, &node, &slots, &maps).unwrap();
    let leads = |port| {
        let run = TestRun {
            packet: &Frame::to_b(port, b"x").bytes(),
            context: None,
            repeat: 1,
        };
        program.test_run(&run).unwrap().retval
    };
    let come = |table: &mut Table<u32>, maps: &mut DemuxMaps, filter: &Filter, path| {
        let change = table.insert(filter, path).unwrap();
        maps.follow(&[(&Update::of(table, change, path), leaf(path))])
    };
    let go = |table: &mut Table<u32>, maps: &mut DemuxMaps, path| {
        let change = table.remove(path);
        maps.follow(&[(&Update::of(table, change, path), Leaf::default())])
    };
    for path in 1..10 {
        assert_eq!(leads(7000 + path), emit::NO_PATH);
        let came = come(&mut table, &mut maps, &port(7000 + path), path.into());
        assert!(came.unwrap(), "path {path}");
        assert_eq!([leads(7000), leads(7000 + path)], [0, path.into()]);
    }
    // The one of the program goes, and its place is another's.
    assert!(go(&mut table, &mut maps, 0).unwrap());
    assert_eq!([leads(7000), leads(7009)], [emit::NO_PATH, 9]);
    assert!(come(&mut table, &mut maps, &port(7000), 10).unwrap());
    assert_eq!(leads(7000), 10);
    let hits = maps.hits().unwrap();
    // Over IPv4 and over IPv6.
    assert_eq!((hits.len(), hits.values().sum::<u64>()), (20, 11));
    // The last goes; the shape is one that the program has had.
    for path in 1..11 {
        assert!(go(&mut table, &mut maps, path).unwrap());
        assert_eq!(leads(7000 + path as u16 % 10), emit::NO_PATH);
    }
    assert!(table.is_empty() && maps.hits().unwrap().is_empty());
    assert!(come(&mut table, &mut maps, &port(7001), 11).unwrap());
    assert_eq!([leads(7000), leads(7001)], [emit::NO_PATH, 11]);
    // Another shape is another program.
    let other = filter("udp dst port 7001 and src port 9");
    assert!(!come(&mut table, &mut maps, &other, 12).unwrap());
}

#[test]
fn entry_and_wire_decide_alike() {
    if ashway_rig::skip_unless_root() {
        return;
    }
    let mut frames = Vec::new();
    for payload in [&b""[..], b"x", b"abcd", &[7; 100], &[9; 1472]] {
        for make in [Frame::to_b, Frame::to_b_v6] {
            for port in [7777, 7778] {
                let plain = make(port, payload);
                frames.push(plain.bytes());
                for spoil in [
                    Spoil::IpChecksum,
                    Spoil::UdpChecksum,
                    Spoil::NoUdpChecksum,
                    Spoil::Fragment(0, true),
                    Spoil::Fragment(8, true),
                    Spoil::Fragment(8, false),
                    Spoil::Options(1),
                    Spoil::Options(5),
                    Spoil::Options(10),
                    Spoil::Vlan(5),
                    Spoil::Padding(30),
                ] {
                    frames.push(make(port, payload).spoil(spoil).bytes());
                }
                for spoil in [None, Some(Spoil::Options(2)), Some(Spoil::Vlan(5))] {
                    let whole =
                        spoil.map_or_else(|| plain.clone(), |spoil| plain.clone().spoil(spoil));
                    let whole = whole.bytes();
                    for cut in 14..whole.len().min(90) {
                        frames.push(whole[..cut].to_vec());
                    }
                    // Every byte of the headers, changed in a few ways.
                    for at in 0..82.min(whole.len()) {
                        for change in [1, 0x80, 0xff] {
                            let mut frame = whole.clone();
                            frame[at] ^= change;
                            frames.push(frame);
                        }
                    }
                }
            }
        }
    }
    for kind in kinds() {
        decide_alike(&bench(kind), &frames);
    }
    eprintln!("{} frames", frames.len());
}

fn decide_alike(bench: &Bench, frames: &[Vec<u8>]) {
    let filter = demux::parse(FILTER).unwrap();
    for frame in frames {
        // The ring is emptied by pretending to have consumed.
        let produced = bench
            .trusted
            .u32_at(trusted::RINGS + trusted::RING_PRODUCED);
        let consumed = bench
            .trusted
            .u32_at(trusted::RINGS + trusted::RING_CONSUMED);
        let before = produced.load(std::sync::atomic::Ordering::Acquire);
        consumed.store(before, std::sync::atomic::Ordering::Release);
        let counted = |which| bench.count(1, which);
        let reasons = [
            Count::DroppedBadLength,
            Count::DroppedBadIpChecksum,
            Count::DroppedBadUdpChecksum,
            Count::DroppedFragment,
            Count::QueuedTier,
        ];
        let old = reasons.map(counted);
        let code = bench.run(frame);
        let new = reasons.map(counted);
        let moved: Vec<Count> = reasons
            .into_iter()
            .zip(old.iter().zip(&new))
            .filter(|(_, (old, new))| old != new)
            .map(|(reason, _)| reason)
            .collect();
        let expected = match Datagram::parse(frame) {
            Err(_) => None,
            Ok(_) if frame[..6] != ashway_rig::MAC_B => None,
            Ok(_) if !filter.matches(&Headers::parse(frame), frame) => None,
            Ok(datagram) => Some(match datagram.validate(frame) {
                Ok(_) => Count::QueuedTier,
                Err(ashway_wire::Malformed::Fragment) => Count::DroppedFragment,
                Err(ashway_wire::Malformed::BadLength) => Count::DroppedBadLength,
                Err(ashway_wire::Malformed::BadIpChecksum) => Count::DroppedBadIpChecksum,
                Err(ashway_wire::Malformed::BadUdpChecksum) => Count::DroppedBadUdpChecksum,
            }),
        };
        match expected {
            None => assert_eq!((code, moved), (PASS, vec![]), "{frame:02x?}"),
            Some(which) => assert_eq!((code, moved), (DROP, vec![which]), "{frame:02x?}"),
        }
    }
}

#[test]
fn the_exit_program_loads() {
    if ashway_rig::skip_unless_root() {
        return;
    }
    let bench = bench(MemoryKind::Arena);
    let maps = Maps {
        node: &bench.node,
        trusted: None,
        memory: None,
    };
    programs::load(
        "ashway_exit",
        ProgramKind::SchedCls,
        &exit::generate(),
        &maps,
    )
    .unwrap_or_else(|e| panic!("exit: {e}: {}", e.log()));
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
            cpus: bench.node.cpus,
            layout: bench.layout,
            memory: kind,
            paths: 1,
            behind: instance::Behind::Ring,
        },
        &instance::Handler {
            module: &module,
            entry: entry.unwrap().1,
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
    let program = programs::load("ashway_kernel", ProgramKind::Xdp, &image, &maps)
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
                assert_eq!(word(trusted::SLOT_BEHIND) > 0, first, "slot {slot}");
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

/// Whether a program keeps a promise.
type Question = fn(&Bench) -> bool;

/// What the kernel tier promises, each as a question to one program.
const PROMISES: [(&str, Question); 5] = [
    ("the lock is free after an activation", |bench| {
        let frame = Frame::to_b(7777, b"lock").bytes();
        bench.run(&frame);
        word(bench, trusted::LOCK).load(Relaxed) == 0
    }),
    ("a busy instance is left alone", |bench| {
        let frame = Frame::to_b(7777, b"busy").bytes();
        word(bench, trusted::LOCK).store(1, Relaxed);
        let code = bench.run(&frame);
        let queued = bench.count(1, Count::QueuedBusy) == 1;
        word(bench, trusted::LOCK).store(0, Relaxed);
        word(bench, trusted::PATHS).store(0, Relaxed);
        code == DROP && queued
    }),
    ("no message overtakes those in the user tier", |bench| {
        let frame = Frame::to_b(7777, b"order").bytes();
        word(bench, trusted::PATHS).store(1, Relaxed);
        let code = bench.run(&frame);
        word(bench, trusted::PATHS).store(0, Relaxed);
        code == DROP && bench.count(1, Count::QueuedOrder) == 1
    }),
    ("a flood does not keep a path in the user tier", |bench| {
        let frame = Frame::to_b(7777, b"flood").bytes();
        let in_user = word(bench, trusted::PATHS);
        in_user.store(1, Relaxed);
        for _ in 0..=trusted::RING_SLOTS {
            bench.run(&frame);
        }
        let draining = in_user.load(Relaxed) & trusted::DRAINING != 0;
        // As if the worker had worked off all but one.
        let ring = |offset| word(bench, trusted::RINGS + offset);
        let produced = ring(trusted::RING_PRODUCED).load(Relaxed);
        ring(trusted::RING_CONSUMED).store(produced, Relaxed);
        in_user.store(1 | trusted::DRAINING, Relaxed);
        let code = bench.run(&frame);
        let full = bench.count(1, Count::DroppedRingFull);
        let left = in_user.swap(0, Relaxed);
        let kept = left == 1 | trusted::DRAINING && (code, full) == (DROP, 2);
        draining && kept && bench.run(&frame) == TX
    }),
    ("a reply has a true checksum", |bench| {
        let mut frame = Frame::to_b(7777, b"sum").bytes();
        let run = TestRun {
            packet: &frame,
            context: None,
            repeat: 1,
        };
        let reply = bench.entry.test_run(&run).unwrap().packet;
        ashway_wire::make_reply(&mut frame, 42, 3).unwrap();
        reply == frame
    }),
];

fn word(bench: &Bench, offset: usize) -> &std::sync::atomic::AtomicU32 {
    bench.trusted.u32_at(offset)
}

/// Changes the `immediate` of the instructions with this opcode, registers and
/// offset (RFC 9669 §3.1); there must be one.
fn seed(insns: &mut [u64], like: Insn, immediate: i32) {
    let mut changed = 0;
    for raw in insns.iter_mut() {
        let insn = Insn::decode(*raw);
        if insn == like {
            *raw = Insn {
                imm: immediate,
                ..insn
            }
            .encode();
            changed += 1;
        }
    }
    assert!(changed > 0, "{like:?}");
}

/// The first conditional jump of this kind on `r2` and 0, and where it is.
fn find(insns: &[u64], opcode: u8) -> (usize, Insn) {
    let decoded = insns.iter().map(|raw| Insn::decode(*raw)).enumerate();
    let is_it = |insn: &Insn| (insn.opcode, insn.dst, insn.imm) == (opcode, Reg::R2 as u8, 0);
    decoded.into_iter().find(|(_, insn)| is_it(insn)).unwrap()
}

const fn insn(opcode: u8, dst: Reg, off: i16, imm: i32) -> Insn {
    Insn {
        opcode,
        dst: dst as u8,
        src: 0,
        off,
        imm,
    }
}

/// The twins of the promises: programs with one bug each, which just that
/// promise's question must notice.
#[test]
fn each_seeded_bug_breaks_its_promise() {
    if ashway_rig::skip_unless_root() {
        return;
    }
    for (promise, keeps) in PROMISES {
        let bench = bench(MemoryKind::Arena);
        let _program = promote(&bench, MemoryKind::Arena, ECHO);
        assert!(keeps(&bench), "{promise}");
    }
    let bugs: [fn(&mut Vec<u64>); 5] = [
        // `*(u32 *)(r7 + LOCK) = 0`, the release.
        |insns| seed(insns, insn(0x62, Reg::R7, trusted::LOCK as i16, 0), 1),
        // `r0 = 0` before the exchange: it now takes the lock from a holder.
        |insns| {
            let exchange = insns
                .iter()
                .position(|raw| Insn::decode(*raw).imm == Atomic::CompareExchange as i32)
                .unwrap();
            assert_eq!(
                Insn::decode(insns[exchange - 2]),
                insn(0xb7, Reg::R0, 0, 0),
                "what the lock must be"
            );
            insns[exchange - 2] = insn(0xb7, Reg::R0, 0, 1).encode();
            // The holder's 1 is then "free", and 0 is "busy".
            let taken = Insn::decode(insns[exchange + 1]);
            insns[exchange + 1] = Insn { imm: 1, ..taken }.encode();
        },
        // `if r2 == 0 goto mine`, where r2 is `in_user`: `r2 >= 0`, always taken.
        |insns| {
            let jump = find(insns, 0x15);
            insns[jump.0] = Insn {
                opcode: 0x35,
                ..jump.1
            }
            .encode();
        },
        // `if w2 s< 0 goto drained`, where w2 is `in_user`: never taken.
        |insns| {
            let jump = find(insns, 0xc6);
            insns[jump.0] = Insn { off: 0, ..jump.1 }.encode();
        },
        // `r5 ^= 0xffff`, the complement of the sum.
        |insns| seed(insns, insn(0xa7, Reg::R5, 0, 0xffff), 0xfffe),
    ];
    for ((promise, keeps), bug) in PROMISES.into_iter().zip(bugs) {
        let bench = bench(MemoryKind::Arena);
        let _program = promote_edited(&bench, MemoryKind::Arena, ECHO, bug);
        assert!(!keeps(&bench), "not noticed: {promise}");
    }
}

/// Is stopped by every message.
const STOPPED: &str = r#"(module
    (memory (export "memory") 2 2)
    (func (export "on_rx") (param i32 i32) (result i32) unreachable))"#;

/// What stops a handler is kept if that is wanted, and the instance is held until it is
/// taken; what comes meanwhile waits.
fn keeps_what_stopped(bench: &Bench) -> bool {
    let at = trusted::fault_at(bench.layout.rings);
    let kept = || {
        let bytes = [trusted::FAULT_FRONT, trusted::FAULT_LEN]
            .map(|offset| word(bench, at + offset).load(Relaxed) as usize);
        let mut frame = vec![0; bytes.iter().sum()];
        let from = at + trusted::FAULT_FRAME;
        bench.trusted.copy_out(from, &mut frame).unwrap();
        frame
    };
    let lock = || word(bench, trusted::LOCK).load(Relaxed);
    let [first, second] = [&b"first"[..], b"second"].map(|m| Frame::to_b(7777, m).bytes());
    word(bench, trusted::VERSION).store(7, Relaxed);
    let unwanted = bench.run(&first) == PASS && lock() == 0 && kept().is_empty();
    word(bench, trusted::FAULT_WANTED).store(1, Relaxed);
    let wanted = bench.run(&first) == PASS && lock() == trusted::KEPT && kept() == first;
    // On another CPU, or behind it.
    let held = bench.run(&second) == DROP && bench.count(1, Count::QueuedBusy) == 1;
    let held = held && kept() == first && word(bench, trusted::FAULT_COUNT).load(Relaxed) == 2;
    // As if the worker had taken it.
    word(bench, trusted::LOCK).store(0, Relaxed);
    word(bench, trusted::PATHS).store(0, Relaxed);
    let once = bench.run(&second) == PASS && lock() == 0 && kept() == first;
    let version = word(bench, trusted::FAULT_VERSION).load(Relaxed) == 7;
    unwanted && wanted && held && once && version
}

/// A seeded mistake: instructions, and [`trusted::KEPT`].
type Edit = fn(&mut Vec<u64>, i32);

#[test]
fn what_stops_a_handler_is_kept_and_the_instance_held() {
    if ashway_rig::skip_unless_root() {
        return;
    }
    for kind in kinds() {
        let fresh = bench(kind);
        let _program = promote(&fresh, kind, STOPPED);
        assert!(keeps_what_stopped(&fresh), "{kind:?}");
    }
    let kept = trusted::KEPT as i32;
    let bugs: [(&str, Edit); 3] = [
        ("the instance is free at once", |insns, kept| {
            seed(insns, insn(0x62, Reg::R7, trusted::LOCK as i16, kept), 0);
        }),
        ("another packet is kept", |insns, _| {
            // Where in the frame the copy begins.
            seed(insns, insn(0xb7, Reg::R2, 0, 0), 1);
        }),
        ("every packet is kept", |insns, _| {
            let wanted = insns.iter().position(|raw| {
                let insn = Insn::decode(*raw);
                (insn.opcode, insn.off) == (0x61, trusted::FAULT_WANTED as i16)
            });
            insns[wanted.unwrap()] = insn(0xb7, Reg::R1, 0, 1).encode();
        }),
    ];
    for (bug, edit) in bugs {
        let bench = bench(MemoryKind::Arena);
        let _program = promote_edited(&bench, MemoryKind::Arena, STOPPED, |insns| {
            edit(insns, kept);
        });
        assert!(!keeps_what_stopped(&bench), "not noticed: {bug}");
    }
}

/// Logs a line, changes its message, and answers.
const LEAVES_TRACES: &str = r#"(module
    (import "ashway" "log" (func $log (param i32 i32)))
    (import "ashway" "msg_store8" (func $store (param i32 i32)))
    (memory (export "memory") 2 2)
    (func (export "on_rx") (param i32 i32) (result i32)
        (call $log (i32.const 0) (i32.const 1))
        (call $store (i32.const 0) (i32.const 9))
        i32.const 1))"#;

/// Logs what is empty, and nothing else.
const QUIET: &str = r#"(module
    (import "ashway" "log" (func $log (param i32 i32)))
    (memory (export "memory") 2 2)
    (func (export "on_rx") (param $len i32) (param i32) (result i32)
        (if (i32.eqz (local.get $len)) (then (call $log (i32.const 0) (i32.const 1))))
        i32.const 1))"#;

/// A message that is refused before the handler begins takes nothing over from the one
/// before it on its CPU: neither its lines nor that it was changed.
fn begins_anew(edit: impl FnOnce(&mut Vec<u64>)) -> bool {
    use ashway_abi::log::ring;
    let bench = bench(MemoryKind::Arena);
    let frame = Frame::to_b(7777, b"trace").bytes();
    let lines = || {
        let at = trusted::log_at(bench.layout.rings) + ring::PRODUCED;
        word(&bench, at).load(Relaxed)
    };
    let _first = promote(&bench, MemoryKind::Arena, LEAVES_TRACES);
    assert_eq!((bench.run(&frame), lines()), (TX, 1));
    let _second = promote_edited(&bench, MemoryKind::Arena, QUIET, |insns| {
        // `if r3 <= SLOT_HEADERS_BYTES`, where r3 is the payload's place, in each message.
        let bound = insns.iter().position(|raw| {
            let Insn {
                opcode, dst, imm, ..
            } = Insn::decode(*raw);
            let most = trusted::SLOT_HEADERS_BYTES as i32;
            (opcode, dst, imm) == (0xb5, Reg::R3 as u8, most)
        });
        let bound = bound.unwrap();
        let jump = Insn::decode(insns[bound]);
        insns[bound] = Insn { imm: 0, ..jump }.encode();
        edit(insns);
    });
    let passed = bench.run(&frame) == PASS;
    assert_eq!(bench.count(1, Count::AbortMessageBounds), 1);
    passed && lines() == 1
}

#[test]
fn who_is_stopped_before_it_begins_has_nothing_of_the_one_before() {
    if ashway_rig::skip_unless_root() || !kinds().contains(&MemoryKind::Arena) {
        return;
    }
    // What is left lies with the CPU.
    let mut here = rustix::thread::CpuSet::new();
    here.set(rustix::thread::sched_getcpu());
    rustix::thread::sched_setaffinity(None, &here).unwrap();
    assert!(begins_anew(|_| ()));
    let nothing = insn(0x05, Reg::R0, 0, 0).encode();
    let forget = |like: Insn| {
        move |insns: &mut Vec<u64>| {
            let at = insns.iter().position(|raw| Insn::decode(*raw) == like);
            insns[at.unwrap()] = nothing;
        }
    };
    let lines = insn(0x62, Reg::R1, ashway_abi::log::stage::COUNT as i16, 0);
    let dirty = insn(0x62, Reg::R9, context::DIRTY, 0);
    for bug in [lines, dirty] {
        assert!(!begins_anew(forget(bug)), "not noticed: {bug:?}");
    }
}
