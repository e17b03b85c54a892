//! In the kernel, by `BPF_PROG_TEST_RUN`.

use ashway_abi::count::ROW_BYTES;
use ashway_abi::{Count, context, hop};
use ashway_codegen::bpf::{Image, MapRef};
use ashway_codegen::entry::Packet;
use ashway_codegen::forward;
use ashway_kernel::maps::possible_cpus;
use ashway_kernel::{Map, MapFixup, MapSpec, Program, ProgramKind, ProgramSpec, TestRun};

use super::cases::{Case, Random};
use super::interpreter::{End, HOP, entry, right};

struct Loaded {
    entry: Program,
    _forward: Program,
    hops: Map,
    counters: Map,
    _maps: [Map; 3],
}

impl Loaded {
    fn new(packet: Packet) -> Self {
        let cpus = possible_cpus().unwrap() as u32;
        let contexts =
            Map::create(&MapSpec::array("ctx", context::BYTES as u32 * cpus, 1)).unwrap();
        let counters = Map::create(&MapSpec::percpu_array("rows", ROW_BYTES as u32, 2)).unwrap();
        let hops = Map::create(&MapSpec::hash("hops", 4, hop::BYTES as u32, 8)).unwrap();
        let slots = Map::create(&MapSpec::prog_array("slots", 1)).unwrap();
        let hits = Map::create(&MapSpec::array("hits", 8, 1)).unwrap();
        let load = |image: &Image, kind| {
            let fixups = image.maps.iter().map(|used| MapFixup {
                insn: used.insn,
                fd: match used.map {
                    MapRef::Context => contexts.fd(),
                    MapRef::Counters => counters.fd(),
                    MapRef::Hops => hops.fd(),
                    MapRef::Slots => slots.fd(),
                    MapRef::Hits => hits.fd(),
                    other => panic!("{other:?}"),
                },
                value_offset: used.value_offset,
            });
            accepted(image, &fixups.collect::<Vec<_>>(), kind)
        };
        let forward = forward::generate(&forward::Spec { cpus, packet });
        let forward = load(&forward, ProgramKind::Xdp);
        slots.set_slot(0, forward.fd()).unwrap();
        println!("{packet:?}: {} instructions", forward.verified_insns());
        Self {
            entry: load(&entry(packet, cpus), ProgramKind::Xdp),
            _forward: forward,
            hops,
            counters,
            _maps: [contexts, slots, hits],
        }
    }

    /// How often anything was counted on the path so far.
    fn counts(&self) -> Vec<u64> {
        let rows = self.counters.lookup_percpu(&0_u32.to_ne_bytes()).unwrap();
        let word = |row: &Vec<u8>, count: Count| {
            let at = count as usize * 8;
            u64::from_ne_bytes(row[at..at + 8].try_into().unwrap())
        };
        let counts = Count::ALL
            .iter()
            .map(|count| rows.iter().map(|row| word(row, *count)).sum());
        counts.collect()
    }

    fn run(&self, case: &Case) -> End {
        let key = HOP.to_ne_bytes();
        self.hops.update(&key, &case.hop().to_bytes()).unwrap();
        let before = self.counts();
        let run = TestRun {
            packet: &case.received(),
            context: None,
            repeat: 1,
        };
        let result = self.entry.test_run(&run).unwrap();
        let after = self.counts();
        let risen: Vec<Count> = Count::ALL[1..]
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

fn skip_unless_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        println!("skipped: needs root (bpf(2))");
    }
    !root
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
