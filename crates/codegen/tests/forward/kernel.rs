//! In the kernel, by `BPF_PROG_TEST_RUN`.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};

use ashway_abi::count::KERNEL_BYTES;
use ashway_abi::share::{AHEAD_NS, Terms};
use ashway_abi::{Count, Hop, context, hop, trusted};
use ashway_check::bpf::{Image, MapRef};
use ashway_codegen::demux::compiled::CELL_BYTES;
use ashway_codegen::entry::Packet;
use ashway_codegen::forward;
use ashway_kernel::maps::possible_cpus;
use ashway_kernel::{Map, MapFixup, MapSpec, Program, ProgramKind, ProgramSpec, TestRun, shared};
use ashway_memory::clock::monotonic_ns;
use ashway_memory::{SharedArray, WakeBell};
use ashway_rig::skip_unless_root;

use super::cases::{Case, Checksum, Random};
use super::interpreter::{End, HOP, entry, right, spec};

/// More than a handler's instance can have: their words lie elsewhere.
const PATHS: usize = trusted::MAX_PATHS + 5;

struct Loaded {
    entry: Program,
    _forward: Program,
    hops: SharedArray,
    counters: Map,
    trusted: SharedArray,
    _maps: ([Map; 3], WakeBell),
}

impl Loaded {
    fn new(packet: Packet) -> Self {
        let cpus = possible_cpus().unwrap() as u32;
        let contexts =
            Map::create(&MapSpec::array("ctx", context::BYTES as u32 * cpus, 1)).unwrap();
        let counters = Map::create(&MapSpec::percpu_array("rows", KERNEL_BYTES as u32, 2)).unwrap();
        let hops = shared::words("hops", PATHS * hop::BYTES).unwrap();
        let spec = spec(packet, cpus, PATHS);
        let words = shared::words("trusted", spec.layout.bytes()).unwrap();
        let wake = shared::bell("wake", 4096).unwrap();
        let slots = Map::create(&MapSpec::prog_array("slots", 1)).unwrap();
        let hits = Map::create(&MapSpec::array("hits", CELL_BYTES as u32, 1)).unwrap();
        let load = |image: &Image, kind| {
            let fixups = image.maps.iter().map(|used| MapFixup {
                insn: used.insn,
                fd: match used.map {
                    MapRef::Context => contexts.fd(),
                    MapRef::Counters => counters.fd(),
                    MapRef::Hops => hops.fd(),
                    MapRef::Trusted => words.fd(),
                    MapRef::Wake => wake.fd(),
                    MapRef::Slots => slots.fd(),
                    MapRef::Hits => hits.fd(),
                    other @ (MapRef::Memory | MapRef::Shape(_) | MapRef::Notes) => {
                        panic!("{other:?}")
                    }
                },
                value_offset: used.value_offset,
            });
            accepted(image, &fixups.collect::<Vec<_>>(), kind)
        };
        let forward = forward::generate(&spec);
        let forward = load(&forward, ProgramKind::Xdp);
        slots.set_slot(0, forward.fd()).unwrap();
        println!("{packet:?}: {} instructions", forward.verified_insns());
        Self {
            entry: load(&entry(packet, cpus), ProgramKind::Xdp),
            _forward: forward,
            hops,
            counters,
            trusted: words,
            _maps: ([contexts, slots, hits], wake),
        }
    }

    /// How often anything was counted on the path so far.
    fn counts(&self) -> Vec<u64> {
        let rows = self.counters.lookup_percpu(&0_u32.to_ne_bytes()).unwrap();
        let word = |row: &Vec<u8>, count: Count| {
            let at = count as usize * 8;
            u64::from_ne_bytes(row[at..at + 8].try_into().unwrap())
        };
        let counts = Count::of_programs()
            .iter()
            .map(|count| rows.iter().map(|row| word(row, *count)).sum());
        counts.collect()
    }

    /// 1 if a CPU is noted on which the message left, which is taken back.
    fn left_on(&self) -> u32 {
        let at = trusted::paths_at(PATHS, 1) + HOP as usize * trusted::PATH_STRIDE;
        let word = self.trusted.u32_at(at + trusted::PATH_BEHIND_KERNEL);
        word.swap(0, Ordering::Relaxed).min(1)
    }

    /// Until when the path has paid for its share.
    fn paid(&self) -> &AtomicU64 {
        let at = trusted::paths_at(PATHS, 1) + HOP as usize * trusted::PATH_STRIDE;
        self.trusted.u64_at(at + trusted::PATH_PAID)
    }

    fn set_hop(&self, hop: Hop) {
        let at = HOP as usize * hop::BYTES;
        self.hops.copy_in(at, &hop.to_bytes()).unwrap();
    }

    fn run(&self, case: &Case) -> End {
        self.set_hop(case.hop());
        let before = self.counts();
        let run = TestRun {
            packet: &case.received(),
            context: None,
            repeat: 1,
        };
        let result = self.entry.test_run(&run).unwrap();
        let after = self.counts();
        let risen: Vec<Count> = Count::of_programs()[1..]
            .iter()
            .zip(before[1..].iter().zip(&after[1..]))
            .filter(|(_, (before, after))| before != after)
            .map(|(count, _)| *count)
            .collect();
        // What comes back begins with the metadata.
        let metadata = if result.retval == 2 { 8 } else { 0 };
        let (metadata, frame) = result.packet.split_at(metadata);
        End {
            code: result.retval,
            frame: frame.to_vec(),
            metadata: metadata.to_vec(),
            // Where a redirect leads cannot be seen here.
            redirects: match result.retval {
                4 => vec![(case.hop().ifindex, 0)],
                _ => vec![],
            },
            // Here few are timed.
            timed: true,
            left_on: self.left_on(),
            paid: self.paid().load(Ordering::Relaxed),
            fate: match risen[..] {
                [fate] => Some(fate),
                _ => None,
            },
        }
    }
}

fn accepted(image: &Image, maps: &[MapFixup], kind: ProgramKind) -> Program {
    Program::load(&ProgramSpec {
        name: "ashway_forward",
        kind,
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
fn the_kernel_sends_the_same_bytes() {
    if skip_unless_root() {
        return;
    }
    for packet in [Packet::Pointers, Packet::Helpers] {
        let loaded = Loaded::new(packet);
        let mut random = Random::new(91);
        let mut forwarded = 0;
        for _ in 0..600 {
            let case = Case::draw(&mut random);
            let end = loaded.run(&case);
            assert!(right(&case, &end), "{end:x?} of {case:?}");
            forwarded += u32::from(end.fate == Some(Count::Forwarded));
        }
        assert!(forwarded > 400, "{forwarded}");
    }
}

/// Two CPUs send on messages of one relay at a time, and each of them is paid for.
#[test]
fn cpus_that_charge_at_a_time_lose_nothing() {
    /// Of each thread in a round: all of them are run while the account is ahead of the clock,
    /// so that nobody brings it up to now.
    const RUNS: u32 = 2_000;
    const COST_NS: u32 = 10;
    const ROUNDS: u64 = 50;
    if skip_unless_root() {
        return;
    }
    let loaded = &Loaded::new(Packet::Pointers);
    let mut random = Random::new(92);
    let mut cases = std::iter::from_fn(|| Some(Case::draw(&mut random)));
    let case = cases.find(|case| {
        let ipv4 = case.to.address.is_ipv4() && case.next.address.is_ipv4();
        let plain = case.tags.is_empty() && case.options == 0 && case.vlan_out.is_none();
        ipv4 && plain && !case.by_tcx && case.checksum == Checksum::Whole
    });
    let case = case.unwrap();
    loaded.set_hop(Hop {
        // What leaves is for the relay again, so that a run begins with the frame of the last.
        destination_mac: case.to.mac,
        destination_port: case.to.address.port().to_be_bytes(),
        terms: Some(Terms {
            // A run during which somebody else had the CPU costs no more.
            price: 1,
            least_ns: COST_NS,
        }),
        ..case.hop()
    });
    let frame = &case.received();
    let forwarded = || loaded.counts()[Count::Forwarded as usize];
    let first = forwarded();
    for _ in 0..ROUNDS {
        let before = forwarded();
        let ahead = monotonic_ns() + AHEAD_NS - AHEAD_NS / 10;
        loaded.paid().store(ahead, Ordering::SeqCst);
        let together = &Barrier::new(2);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    together.wait();
                    let run = TestRun {
                        packet: frame,
                        context: None,
                        repeat: RUNS,
                    };
                    loaded.entry.test_run(&run).unwrap();
                });
            }
        });
        let cost = (forwarded() - before) * u64::from(COST_NS);
        let paid = loaded.paid().load(Ordering::SeqCst);
        assert!(paid >= ahead + cost, "{} ns are lost", ahead + cost - paid);
    }
    assert_eq!(forwarded() - first, ROUNDS * 2 * u64::from(RUNS));
}
