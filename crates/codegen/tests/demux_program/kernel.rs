//! In the kernel, by `BPF_PROG_TEST_RUN`.

use std::collections::HashMap;

use ashway_abi::{context, leaf};
use ashway_check::bpf::{Image, MapRef};
use ashway_codegen::demux::compiled::{self, Compiled, Entries, FEW};
use ashway_codegen::demux::emit::{self, NO_PATH, Spec};
use ashway_codegen::demux::spare;
use ashway_codegen::entry::Packet;
use ashway_demux::spare::{KEY_BYTES, Spares};
use ashway_demux::{Conjunction, Field, Filter, Table, Test};
use ashway_kernel::maps::possible_cpus;
use ashway_kernel::{Map, MapFixup, MapSpec, Program, ProgramKind, ProgramSpec, TestRun};
use ashway_rig::skip_unless_root;

use super::cases::{Random, Spare, expected, frame, grown, leaf, table};

struct Loaded {
    program: Program,
    shapes: HashMap<u32, Map>,
}

/// The table's program and its maps.
fn load(table: &Table<u32>, few: usize, packet: Packet) -> Loaded {
    load_as(table, &compiled::compile(table, few, leaf), packet)
}

fn load_as(table: &Table<u32>, compiled: &[Compiled<'_>], packet: Packet) -> Loaded {
    load_with(table, compiled, packet, None)
}

/// The same; with what lies in its spares, if it has any, and their entries.
fn load_with(
    table: &Table<u32>,
    compiled: &[Compiled<'_>],
    packet: Packet,
    spares: Option<(&Spares, &[Spare])>,
) -> Loaded {
    let cpus = possible_cpus().unwrap() as u32;
    let image = emit::program(&Spec {
        shapes: compiled,
        spares: spares.map(|_| compiled::spares_at(compiled)),
        cpus,
        packet,
    });
    let contexts = Map::create(&MapSpec::array("ctx", context::BYTES as u32 * cpus, 1)).unwrap();
    let mut shapes = HashMap::new();
    for (one, entries) in compiled.iter().zip(table.shapes()) {
        if let Some(number) = one.entries.map() {
            let bytes = one.shape.key_bytes() as u32;
            let room = entries.len() as u32;
            let spec = MapSpec::hash("shape", bytes, leaf::BYTES as u32, room);
            let map = Map::create(&spec).unwrap();
            if let Entries::Open(..) = one.entries {
                shapes.insert(number, map);
                continue;
            }
            let (mut keys, mut values) = (Vec::new(), Vec::new());
            for (key, path) in entries.iter() {
                keys.extend_from_slice(key);
                values.extend_from_slice(&leaf(path).to_bytes());
            }
            map.update_batch(&keys, &values).unwrap();
            shapes.insert(number, map);
        }
    }
    let hits = Map::create(&MapSpec::array(
        "hits",
        compiled::hits_bytes(compiled) as u32,
        1,
    ))
    .unwrap();
    if let Some((spares, entries)) = spares {
        let spec = MapSpec::hash("spares", KEY_BYTES as u32, leaf::BYTES as u32, 64);
        let map = Map::create(&spec).unwrap();
        for (key, path) in entries {
            map.update(key, &leaf(*path).to_bytes()).unwrap();
        }
        shapes.insert(spare::MAP, map);
        let mut value = vec![0; compiled::spares_at(compiled) as usize];
        value.extend(spares.to_bytes());
        hits.update(&0_u32.to_ne_bytes(), &value).unwrap();
    }
    let fixups = image.maps.iter().map(|used| MapFixup {
        insn: used.insn,
        fd: match used.map {
            MapRef::Context => contexts.fd(),
            MapRef::Hits => hits.fd(),
            MapRef::Shape(number) => shapes[&number].fd(),
            other => panic!("{other:?}"),
        },
        value_offset: used.value_offset,
    });
    let fixups: Vec<MapFixup> = fixups.collect();
    Loaded {
        program: accepted(&image, &fixups),
        shapes,
    }
}

fn accepted(image: &Image, maps: &[MapFixup]) -> Program {
    Program::load(&ProgramSpec {
        name: "ashway_demux",
        kind: ProgramKind::Xdp,
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

impl Loaded {
    fn run(&self, frame: &[u8]) -> u32 {
        let run = TestRun {
            packet: frame,
            context: None,
            repeat: 1,
        };
        self.program.test_run(&run).unwrap().retval
    }
}

#[test]
fn the_kernel_runs_it_as_the_table_decides() {
    if skip_unless_root() {
        return;
    }
    let mut hits = 0;
    for seed in 100..110 {
        let mut random = Random::new(seed);
        let table = table(&mut random, [3, 40, 120][seed as usize % 3]);
        let frames: Vec<Vec<u8>> = (0..20).map(|_| frame(&mut random)).collect();
        for packet in [Packet::Pointers, Packet::Helpers] {
            let ways = [
                compiled::compile(&table, 0, leaf),
                compiled::compile(&table, FEW, leaf),
                compiled::compile_open(&table, FEW, leaf),
            ];
            for compiled in ways {
                let loaded = load_as(&table, &compiled, packet);
                for frame in &frames {
                    for cut in 14..=frame.len() {
                        let frame = &frame[..cut];
                        let wanted = expected(&table, frame);
                        assert_eq!(loaded.run(frame), wanted, "seed {seed}, {frame:02x?}");
                        hits += u32::from(wanted != NO_PATH);
                    }
                }
            }
        }
    }
    assert!(hits > 5_000, "{hits}");
}

#[test]
fn the_kernel_finds_shapes_that_are_data() {
    if skip_unless_root() {
        return;
    }
    let mut found = 0;
    for seed in 400..412 {
        let mut random = Random::new(seed);
        let grown = grown(&mut random, [0, 3, 40][seed as usize % 3]);
        let frames: Vec<Vec<u8>> = (0..20).map(|_| frame(&mut random)).collect();
        let compiled = compiled::compile_open(&grown.program, FEW, leaf);
        for packet in [Packet::Pointers, Packet::Helpers] {
            let spares = Some((&grown.spares, &grown.entries[..]));
            let loaded = load_with(&grown.program, &compiled, packet, spares);
            for frame in &frames {
                for cut in 14..=frame.len() {
                    let frame = &frame[..cut];
                    let wanted = expected(&grown.table, frame);
                    assert_eq!(loaded.run(frame), wanted, "seed {seed}, {frame:02x?}");
                    found += u32::from((1_000..NO_PATH).contains(&wanted));
                }
            }
        }
    }
    assert!(found > 500, "{found}");
}

#[test]
fn the_verifier_takes_a_thousand_filters_of_thirty_shapes() {
    if skip_unless_root() {
        return;
    }
    for filters in [0, 1, 64, 1200] {
        let mut table = Table::default();
        for number in 0..filters {
            let filter = Filter {
                text: number.to_string(),
                any: vec![conjunction(number)],
            };
            table.insert(&filter, number).unwrap();
        }
        assert_eq!(table.shapes().len(), (filters as usize).min(30));
        for packet in [Packet::Pointers, Packet::Helpers] {
            let open = load_as(&table, &compiled::compile_open(&table, FEW, leaf), packet);
            let loaded = load(&table, FEW, packet);
            let open_shapes = compiled::compile_open(&table, FEW, leaf);
            let none = Some((&Spares::default(), &[][..]));
            let spares = load_with(&table, &open_shapes, packet, none);
            println!(
                "{filters} filters, {packet:?}: {} instructions verified, {} if it is open, {} \
                 with spares",
                loaded.program.verified_insns(),
                open.program.verified_insns(),
                spares.program.verified_insns()
            );
        }
    }
}

/// Filter number `number` of thirty shapes: each tests another number of bits of
/// the addresses.
fn conjunction(number: u32) -> Conjunction {
    let shape = number % 30;
    let kind = if shape.is_multiple_of(2) {
        0x0800_u16
    } else {
        0x86dd
    };
    let mut mask = [0; 16];
    mask[..4].copy_from_slice(&(u32::MAX << (shape / 2)).to_be_bytes());
    let value = (number / 30 + 1) << 16;
    let mut wanted = [0; 16];
    wanted[..4].copy_from_slice(&value.to_be_bytes());
    let protocol = if shape.is_multiple_of(3) { 6 } else { 17 };
    let tests = vec![
        Test::whole(Field::EtherType, kind.to_be_bytes()),
        Test::whole(Field::Protocol, [protocol]),
        Test::new(Field::Source, mask, wanted),
        Test::whole(Field::DestinationPort, (number as u16).to_be_bytes()),
    ];
    Conjunction {
        tests,
        not: Vec::new(),
    }
}

#[test]
fn a_hundred_thousand_entries_are_found_and_counted() {
    if skip_unless_root() {
        return;
    }
    let mut table = Table::default();
    for number in 0..100_000_u32 {
        let conjunction = Conjunction {
            tests: vec![
                Test::whole(Field::EtherType, 0x0800_u16.to_be_bytes()),
                Test::whole(Field::Protocol, [17]),
                Test::whole(Field::Source, source(number)),
                Test::whole(Field::DestinationPort, 53_u16.to_be_bytes()),
            ],
            not: Vec::new(),
        };
        let filter = Filter {
            text: number.to_string(),
            any: vec![conjunction],
        };
        table.insert(&filter, number).unwrap();
    }
    let loaded = load(&table, FEW, Packet::Pointers);
    for number in (0..100_000).step_by(997) {
        assert_eq!(loaded.run(&datagram(source(number))), number);
        assert_eq!(loaded.run(&datagram([9, 0, 0, 1])), NO_PATH);
    }
    let [map] = loaded.shapes.values().collect::<Vec<_>>()[..] else {
        panic!("one shape");
    };
    for (_, value) in map.entries().unwrap() {
        let (leaf, hits) = ashway_abi::Leaf::from_bytes(&value.try_into().unwrap());
        assert_eq!(hits, u64::from(leaf.tag.is_multiple_of(997)));
    }
}

fn source(number: u32) -> [u8; 4] {
    (0x0a00_0000 + number).to_be_bytes()
}

/// A plain UDP datagram to port 53.
fn datagram(source: [u8; 4]) -> Vec<u8> {
    let mut frame = vec![0; 42];
    frame[12..15].copy_from_slice(&[8, 0, 0x45]);
    frame[23] = 17;
    frame[26..30].copy_from_slice(&source);
    frame[37] = 53;
    frame
}
