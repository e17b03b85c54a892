//! In the kernel, by `BPF_PROG_TEST_RUN`.

use std::collections::HashMap;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};

use ashway_abi::count::KERNEL_BYTES;
use ashway_abi::memory::HEADROOM_BYTES;
use ashway_abi::{Count, MemoryKind, context, hop, leaf as leaf_map, trusted};
use ashway_check::bpf::{Hook, Image, MapRef};
use ashway_codegen::demux::compiled::{self, Entries};
use ashway_codegen::exit;
use ashway_demux::Table;
use ashway_kernel::maps::possible_cpus;
use ashway_kernel::{Map, MapFixup, MapSpec, Program, ProgramKind, ProgramSpec, TestRun, shared};
use ashway_memory::{Memory, SharedArray, WakeBell};
use ashway_rig::captures::{Captures, Links};
use ashway_rig::skip_unless_root;

use super::user::User;
use super::world::{
    End, FEW, LAYOUT, OUR_MAC, OrderScope, QUEUE, ROWS, Rung, behind, counted, end, entry, leaf,
    row, same,
};

/// One frame in so many is cut at every length: a test run costs microseconds, and
/// so does each row of counters.
const SHARE: usize = 300;

/// What a test run takes: whole Ethernet headers, and one page with room around.
const LENGTHS: std::ops::RangeInclusive<usize> = 14..=3000;

/// A socket buffer has a whole IP header as well.
const WITH_IP: usize = 54;

struct Loaded {
    rung: Rung,
    what: OrderScope,
    entry: Program,
    _behind: Program,
    counters: Map,
    trusted: SharedArray,
    _memory: Memory,
    counts: Vec<Vec<u64>>,
    _maps: Vec<Map>,
    _hops: SharedArray,
    _wake: WakeBell,
}

impl Loaded {
    fn new(table: &Table<usize>, rung: Rung, few: usize, what: OrderScope) -> Self {
        let cpus = possible_cpus().unwrap() as u32;
        let create = |spec: &MapSpec| Map::create(spec).unwrap();
        let contexts = create(&MapSpec::array("ctx", context::BYTES as u32 * cpus, 1));
        let counters = create(&MapSpec::percpu_array(
            "rows",
            KERNEL_BYTES as u32,
            ROWS as u32,
        ));
        let hops = shared::words("hops", ROWS * hop::BYTES).unwrap();
        for path in 0..ROWS {
            let value = super::world::hop().to_bytes();
            hops.copy_in(path * hop::BYTES, &value).unwrap();
        }
        let slots = create(&MapSpec::prog_array("slots", 1));
        let wake = shared::bell("wake", 4096).unwrap();
        let trusted = shared::words("trusted", QUEUE.bytes()).unwrap();
        for (at, block) in QUEUE.first_blocks() {
            trusted.u32_at(at).store(block, Release);
        }
        let memory = match rung.memory() {
            MemoryKind::Arena => shared::arena(LAYOUT.total_bytes()),
            MemoryKind::Array => shared::array(LAYOUT.total_bytes()),
        };
        let memory = memory.unwrap();
        let compiled = compiled::compile(table, few, leaf);
        let mut shapes = HashMap::new();
        for (one, entries) in compiled.iter().zip(table.shapes()) {
            if let Entries::Hash(number) = one.entries {
                let (key, room) = (one.shape.key_bytes() as u32, entries.len() as u32);
                let map = create(&MapSpec::hash(
                    "shape",
                    key,
                    leaf_map::BYTES as u32,
                    room.max(1),
                ));
                for (key, path) in entries.iter() {
                    map.update(key, &leaf(path).to_bytes()).unwrap();
                }
                shapes.insert(number, map);
            }
        }
        let hits = create(&MapSpec::array(
            "hits",
            compiled::hits_bytes(&compiled) as u32,
            1,
        ));
        let load = |image: &Image| {
            let fixup = |used: &ashway_check::bpf::MapUse| MapFixup {
                insn: used.insn,
                fd: match used.map {
                    MapRef::Context => contexts.fd(),
                    MapRef::Counters => counters.fd(),
                    MapRef::Wake => wake.fd(),
                    MapRef::Slots => slots.fd(),
                    MapRef::Trusted => trusted.fd(),
                    MapRef::Memory => memory.fd(),
                    MapRef::Shape(number) => shapes[&number].fd(),
                    MapRef::Hits => hits.fd(),
                    MapRef::Hops => hops.fd(),
                    MapRef::Notes => unreachable!("nobody observes"),
                },
                value_offset: used.value_offset,
            };
            let maps: Vec<_> = image.maps.iter().map(fixup).collect();
            accepted(image, &maps)
        };
        let program = load(&behind(what, rung, cpus));
        let entry = load(&entry(&compiled, rung, cpus));
        slots.set_slot(0, program.fd()).unwrap();
        let mut maps = vec![contexts, slots, hits];
        maps.extend(shapes.into_values());
        Self {
            rung,
            what,
            entry,
            _behind: program,
            counters,
            trusted,
            _memory: memory,
            counts: vec![vec![0; Count::of_programs().len()]; ROWS],
            _maps: maps,
            _hops: hops,
            _wake: wake,
        }
    }

    fn end(&mut self, frame: &[u8]) -> End {
        let (code, left) = test_run(&self.entry, frame);
        let mut risen = Vec::new();
        for row in 0..ROWS {
            let cpus = self
                .counters
                .lookup_percpu(&(row as u32).to_ne_bytes())
                .unwrap();
            for (count, before) in Count::of_programs().iter().zip(&mut self.counts[row]) {
                let at = *count as usize * 8;
                let word = |cpu: &Vec<u8>| u64::from_ne_bytes(cpu[at..at + 8].try_into().unwrap());
                let now: u64 = cpus.iter().map(word).sum();
                if now != *before {
                    risen.push((row, *count, now - *before));
                    *before = now;
                }
            }
        }
        if code == self.rung.codes().pass {
            assert!(left == frame, "the host gets its frame untouched");
        }
        end(self.rung, code, counted(&risen), left, || self.message())
    }

    /// Takes the one message out of the ring, as the worker would.
    fn message(&self) -> Vec<u8> {
        let word = |at| self.trusted.u32_at(at);
        let consumed = word(trusted::RINGS + trusted::RING_CONSUMED);
        let slot = consumed.load(Acquire) as usize % trusted::RING_SLOTS;
        let at = trusted::SLOTS + slot * trusted::SLOT_BYTES;
        let more = word(at + trusted::SLOT_LONG).load(Acquire) & trusted::long::SLOTS;
        consumed.fetch_add(1 + more, AcqRel);
        let produced = word(trusted::RINGS + trusted::RING_PRODUCED).load(Acquire);
        assert_eq!(produced, consumed.load(Acquire), "one message");
        let len = word(at + trusted::SLOT_PAYLOAD_LEN).load(Acquire);
        let path = word(at + trusted::SLOT_LOCAL_PATH).load(Acquire) as usize;
        let in_user = word(trusted::PATHS + path * trusted::PATH_STRIDE);
        assert_eq!(in_user.load(Acquire), 1);
        in_user.store(0, Release);
        word(QUEUE.path_word(path) + trusted::PATH_CHAINED).store(0, Release);
        let front = word(at + trusted::SLOT_PAYLOAD_OFF).load(Acquire) as usize;
        let mut frame = vec![0; front + len as usize];
        for (nth, piece) in frame.chunks_mut(QUEUE.piece_bytes()).enumerate() {
            let slot = (slot + nth) % trusted::RING_SLOTS;
            let block = word(QUEUE.block_word(slot)).load(Acquire) as usize;
            let at = QUEUE.pool_offset() + HEADROOM_BYTES + block;
            self.trusted.copy_out(at, piece).unwrap();
        }
        frame.split_off(front)
    }
}

/// What the program returns, and the frame as it leaves it.
fn test_run(program: &Program, frame: &[u8]) -> (u32, Vec<u8>) {
    let run = TestRun {
        packet: frame,
        context: None,
        repeat: 1,
    };
    let result = program
        .test_run(&run)
        .unwrap_or_else(|error| panic!("{error}: {frame:02x?}"));
    (result.retval, result.packet)
}

fn accepted(image: &Image, maps: &[MapFixup]) -> Program {
    Program::load(&ProgramSpec {
        name: "ashway_replay",
        kind: match image.hook {
            Hook::Xdp => ProgramKind::Xdp,
            Hook::Tcx => ProgramKind::SchedCls,
        },
        attach_type: 0,
        insns: &image.insns,
        maps,
        btf: None,
    })
    .unwrap_or_else(|error| {
        let log = error.log();
        panic!("{error}\n{}", &log[log.len().saturating_sub(4000)..]);
    })
}

#[test]
fn the_kernel_comes_to_what_the_user_tier_comes_to() {
    if skip_unless_root() {
        return;
    }
    let Some(captures) = Captures::read(Links::Any, 400) else {
        return;
    };
    let mut user = User::new();
    let mut all = Vec::new();
    for rung in Rung::ALL {
        for few in FEW {
            for what in OrderScope::ALL {
                all.push(Loaded::new(&user.table, rung, few, what));
            }
        }
    }
    let exit = accepted(&exit::generate(), &[]);
    let (mut run, mut at) = (0_u64, 0_usize);
    let replayed = captures.replay(SHARE, OUR_MAC, |frame| {
        if !LENGTHS.contains(&frame.len()) {
            return;
        }
        at += 1;
        if frame.len() >= WITH_IP {
            // What has no mark is none of the exit program's (`TCX_NEXT`).
            let (next, left) = test_run(&exit, frame);
            assert_eq!((next, left == frame), (u32::MAX, true), "{frame:02x?}");
        }
        let at_ring = user.end(OrderScope::Ring, frame);
        let beyond = matches!(at_ring, End::Queued(..));
        // One of the six ways, in turn.
        let turn = at % 6;
        for (number, one) in all.iter_mut().enumerate() {
            if number / 3 != turn || one.what != OrderScope::Ring && !beyond {
                continue;
            }
            if one.rung == Rung::Tcx && frame.len() < WITH_IP {
                continue;
            }
            run += 1;
            let got = one.end(frame);
            let wanted = user.end(one.what, frame);
            let (rung, what) = (one.rung, one.what);
            assert!(
                same(rung, false, what, &got, &wanted),
                "{rung:?}, {what:?}: {got:x?}, and in the user tier {wanted:x?}, of {frame:02x?}"
            );
        }
    });
    println!("{replayed:?}: {run} runs");
    for one in &all {
        for path in 0..ROWS - 1 {
            let received = one.counts[row(path)][Count::Received as usize];
            assert!(received > 0, "{:?}: nothing on path {path}", one.what);
        }
    }
    assert!(run > 20_000, "{run}");
}
