//! In our own interpreter, without root.

use std::collections::HashMap;

use ashway_abi::context::{self, flag};
use ashway_check::bpf::Image;
use ashway_check::bpf::interp::Machine;
use ashway_codegen::demux::compiled::{self, Entries, FEW, Later};
use ashway_codegen::demux::emit::{self, NO_PATH, Spec};
use ashway_codegen::demux::spare;
use ashway_codegen::entry::Packet;
use ashway_demux::spare::KEY_BYTES;
use ashway_demux::{self as demux, Key, ShapeId, Table};
use ashway_wire::headers::{Fragment, Headers};
use ashway_wire::{eth, ipv4, vxlan};

use super::cases::{Random, Spare, expected, frame, grown, leaf, table};

/// A machine with the table's entries, and its program.
fn machine(table: &Table<u32>, few: usize, packet: Packet) -> (Machine, Image) {
    machine_as(table, few, packet, false)
}

/// The same, with or without room for shapes that come later.
fn machine_as(table: &Table<u32>, few: usize, packet: Packet, spares: bool) -> (Machine, Image) {
    let mut machine = Machine::new(1, ashway_abi::trusted::bytes(1), 0);
    let compiled = compiled::compile(table, few, leaf);
    for (one, entries) in compiled.iter().zip(table.shapes()) {
        if let Entries::Hash(map) = one.entries {
            machine.add_shape(map, one.shape.key_bytes());
            for (key, path) in entries.iter() {
                machine.insert(map, key, leaf(path));
            }
        }
    }
    machine.set_hits(compiled::hits_bytes(&compiled));
    machine.add_shape(spare::MAP, KEY_BYTES);
    let image = emit::program(&Spec {
        shapes: &compiled,
        spares: spares.then(|| compiled::spares_at(&compiled)),
        cpus: 1,
        packet,
    });
    (machine, image)
}

#[test]
fn the_program_decides_as_the_table_does() {
    let mut hits = 0;
    for seed in 0..40 {
        let mut random = Random::new(seed);
        let filters = [1, 3, 10, 40, 120][seed as usize % 5];
        let table = table(&mut random, filters);
        let frames: Vec<Vec<u8>> = (0..30).map(|_| frame(&mut random)).collect();
        for packet in [Packet::Pointers, Packet::Helpers] {
            for few in [0, FEW] {
                let (mut machine, image) = machine(&table, few, packet);
                for frame in &frames {
                    for cut in 14..=frame.len() {
                        let frame = &frame[..cut];
                        let wanted = expected(&table, frame);
                        let got = machine.run(&image, frame);
                        assert_eq!(got, Ok(wanted), "seed {seed}, {packet:?}, {frame:02x?}");
                        hits += u32::from(wanted != NO_PATH);
                        if wanted != NO_PATH {
                            let word = |at| machine.context_u32(at);
                            let leaf = leaf(wanted);
                            assert_eq!(word(context::ROW), leaf.row);
                            assert_eq!(word(context::LOCAL_PATH), leaf.local);
                            assert_eq!(word(context::RING_BASE), leaf.rings());
                            let own = flag::PLAIN | flag::IPV6;
                            assert_eq!(word(context::FLAGS) & !own, leaf.flags);
                            check_place(word(context::FLAGS) & own, frame);
                            assert_eq!(word(context::SLOT), leaf.slot);
                        }
                    }
                }
            }
        }
    }
    // The domains are small enough to say something.
    assert!(hits > 30_000, "{hits}");
}

/// Entries of a program by shape and key, each with its cell.
type Cells = HashMap<(ShapeId, Key), usize>;

/// A machine with the program of a table that other entries may come to.
fn open_machine(table: &Table<u32>, packet: Packet) -> (Machine, Image, Cells, Vec<Later>) {
    let mut machine = Machine::new(1, ashway_abi::trusted::bytes(1), 0);
    let compiled = compiled::compile_open(table, FEW, leaf);
    machine.set_hits(compiled::hits_bytes(&compiled));
    let (mut cells, mut later) = (Cells::new(), Vec::new());
    for (one, entries) in compiled.iter().zip(table.shapes()) {
        if let Some(map) = one.entries.map() {
            machine.add_shape(map, one.shape.key_bytes());
        }
        match &one.entries {
            Entries::Hash(map) => {
                for (key, path) in entries.iter() {
                    machine.insert(*map, key, leaf(path));
                }
            }
            Entries::Open(constants, its) => {
                later.push(*its);
                cells.extend(constants.iter().map(|one| {
                    let at = one.hits as usize * compiled::CELL_BYTES;
                    ((entries.id(), one.key.into()), at)
                }));
            }
            // Without a key, or beyond the maps that a program can have.
            Entries::Constants(_) => {}
        }
    }
    let image = emit::program(&Spec {
        shapes: &compiled,
        spares: None,
        cpus: 1,
        packet,
    });
    (machine, image, cells, later)
}

/// What is compared with a constant is nobody's once its cell says so.
#[test]
fn entries_go_without_a_program() {
    let (mut hits, mut gone) = (0, 0);
    for seed in 200..220 {
        let mut random = Random::new(seed);
        let whole = table(&mut random, [3, 10, 40, 120][seed as usize % 4]);
        let frames: Vec<Vec<u8>> = (0..60).map(|_| frame(&mut random)).collect();
        for packet in [Packet::Pointers, Packet::Helpers] {
            let (mut machine, image, cells, _) = open_machine(&whole, packet);
            let mut table = whole.clone();
            for path in (0..120).step_by(2) {
                let mut without = table.clone();
                let change = without.remove(path);
                let removed = change.removed.iter();
                let at: Option<Vec<_>> = removed.map(|place| cells.get(place)).collect();
                // Others are led elsewhere by maps, or by a new program.
                let Some(at) = at.filter(|_| change.turned.is_empty()) else {
                    continue;
                };
                for at in at {
                    machine.set_hits_at(at + compiled::GONE as usize, 1);
                    gone += 1;
                }
                table = without;
            }
            for frame in &frames {
                let wanted = expected(&table, frame);
                let got = machine.run(&image, frame);
                assert_eq!(got, Ok(wanted), "seed {seed}, {packet:?}, {frame:02x?}");
                hits += u32::from(wanted != NO_PATH);
            }
        }
    }
    assert!(hits > 200 && gone > 100, "{hits} {gone}");
}

/// What comes later is found in a map, once it is counted; one that went may come again
/// as another's.
#[test]
fn entries_come_without_a_program() {
    const KNOWN: u32 = 1;
    const LATER: u32 = 2;
    let filter = demux::parse("udp dst port 7").unwrap();
    let mut table = Table::default();
    table.insert(&filter, KNOWN).unwrap();
    for packet in [Packet::Pointers, Packet::Helpers] {
        let (mut machine, image, cells, later) = open_machine(&table, packet);
        let check = |machine: &mut Machine, port, wanted| {
            let frames = [
                over_ipv4(0, port),
                over_ipv4(1, port),
                over_ipv6(false, port),
                over_ipv6(true, port),
            ];
            for frame in frames {
                let got = machine.run(&image, &frame);
                assert_eq!(got, Ok(wanted), "{packet:?}, {frame:02x?}");
            }
        };
        let mut grown = table.clone();
        let another = demux::parse("udp dst port 8").unwrap();
        let change = grown.insert(&another, LATER).unwrap();
        assert!(change.made.is_empty(), "they have shapes in common");
        for (shape, key) in &change.added {
            machine.insert(shape.0, key, leaf(LATER));
        }
        check(&mut machine, 8, NO_PATH);
        for later in &later {
            machine.set_hits_at(later.count as usize * compiled::CELL_BYTES, 1);
        }
        check(&mut machine, 7, KNOWN);
        check(&mut machine, 8, LATER);
        check(&mut machine, 9, NO_PATH);
        for at in cells.values() {
            machine.set_hits_at(at + compiled::GONE as usize, 1);
        }
        check(&mut machine, 7, NO_PATH);
        check(&mut machine, 8, LATER);
        for (shape, key) in cells.keys() {
            machine.insert(shape.0, key, leaf(LATER));
        }
        check(&mut machine, 7, LATER);
    }
}

/// A shape that comes after the program is found as data: by its masks, without what it
/// excludes, and behind what is more specific.
#[test]
fn shapes_come_as_data() {
    let (mut found, mut outdone, mut hits) = (0, 0, 0);
    for seed in 300..360 {
        let mut random = Random::new(seed);
        let grown = grown(&mut random, [0, 1, 3, 10, 40][seed as usize % 5]);
        let frames: Vec<Vec<u8>> = (0..30).map(|_| frame(&mut random)).collect();
        for packet in [Packet::Pointers, Packet::Helpers] {
            let (mut machine, image) = machine_as(&grown.program, FEW, packet, true);
            let shapes = compiled::compile(&grown.program, FEW, leaf);
            let at = compiled::spares_at(&shapes) as usize;
            for (i, word) in grown.spares.to_bytes().chunks_exact(8).enumerate() {
                let word = u64::from_ne_bytes(word.try_into().unwrap());
                machine.set_hits_at(at + 8 * i, word);
            }
            for (key, path) in &grown.entries {
                machine.insert(spare::MAP, key, leaf(*path));
            }
            for frame in &frames {
                for cut in 14..=frame.len() {
                    let frame = &frame[..cut];
                    let wanted = expected(&grown.table, frame);
                    let got = machine.run(&image, frame);
                    assert_eq!(got, Ok(wanted), "seed {seed}, {packet:?}, {frame:02x?}");
                    if wanted != NO_PATH {
                        let own = flag::PLAIN | flag::IPV6;
                        let flags = machine.context_u32(context::FLAGS);
                        assert_eq!(flags & !own, leaf(wanted).flags);
                        check_place(flags & own, frame);
                    }
                    let headers = Headers::parse(frame);
                    let late = |path: &u32| *path >= 1_000;
                    let all: Vec<u32> = grown.table.matches(&headers, frame).map(|m| m.1).collect();
                    found += u32::from(late(&wanted) && wanted != NO_PATH);
                    outdone += u32::from(!late(&wanted) && all.iter().any(late));
                }
            }
            let sum =
                |sum: u64, (key, _): &Spare| sum + machine.shape_hits(spare::MAP, key).unwrap_or(0);
            hits += grown.entries.iter().fold(0, sum);
        }
    }
    assert!(found > 3_000 && outdone > 1_000, "{found} {outdone}");
    assert_eq!(u64::from(found), hits, "each is counted where it was found");
}

/// Asserts where both tiers lead each frame.
fn check_both(table: &Table<u32>, wanted: &[(Vec<u8>, u32)]) {
    for packet in [Packet::Pointers, Packet::Helpers] {
        for few in [0, FEW] {
            let (mut machine, image) = machine(table, few, packet);
            for (frame, path) in wanted {
                assert_eq!(expected(table, frame), *path, "{frame:02x?}");
                let got = machine.run(&image, frame);
                assert_eq!(got, Ok(*path), "few {few}, {packet:?}, {frame:02x?}");
            }
        }
    }
}

/// Both filters have the same alternative over IPv4: one entry, which leads to the
/// narrower filter's path while that one is there.
#[test]
fn an_entry_of_two_filters_leads_alike_in_both_tiers() {
    const WIDE: u32 = 1;
    const NARROW: u32 = 2;
    let filters = [("udp dst port 7", WIDE), ("ip and udp dst port 7", NARROW)]
        .map(|(text, path)| (demux::parse(text).unwrap(), path));
    let leads = |table: &Table<u32>, ipv4, ipv6| {
        let frames = [
            // Plain, whose fields lie at constant places, and others, which are walked.
            (over_ipv4(0, 7), ipv4),
            (over_ipv4(1, 7), ipv4),
            (over_ipv6(false, 7), ipv6),
            (over_ipv6(true, 7), ipv6),
            (over_ipv4(0, 8), NO_PATH),
            (over_ipv6(true, 8), NO_PATH),
        ];
        check_both(table, &frames);
    };
    for order in [[0, 1], [1, 0]] {
        let mut table = Table::default();
        for (filter, path) in order.map(|i| &filters[i]) {
            table.insert(filter, *path).unwrap();
        }
        leads(&table, NARROW, WIDE);
        let mut wide = table.clone();
        wide.remove(NARROW);
        leads(&wide, WIDE, WIDE);
        table.remove(WIDE);
        leads(&table, NARROW, NO_PATH);
    }
}

/// A UDP datagram to `port` behind so many words of options.
fn over_ipv4(options: u8, port: u8) -> Vec<u8> {
    let mut frame = vec![0; 34];
    frame[12..15].copy_from_slice(&[8, 0, 0x45 + options]);
    frame[23] = ipv4::PROTOCOL_UDP;
    frame.resize(34 + 4 * usize::from(options), 1);
    frame.extend([0, 9, 0, port, 0, 8, 0, 0]);
    frame
}

/// The same, maybe behind an extension header of destination options.
fn over_ipv6(extended: bool, port: u8) -> Vec<u8> {
    let mut frame = vec![0; 54];
    frame[12..15].copy_from_slice(&[0x86, 0xdd, 0x60]);
    frame[20] = if extended { 60 } else { ipv4::PROTOCOL_UDP };
    if extended {
        frame.extend([ipv4::PROTOCOL_UDP, 0, 1, 4, 0, 0, 0, 0]);
    }
    frame.extend([0, 9, 0, port, 0, 8, 0, 0]);
    frame
}

/// What the program says of a frame's form is so.
fn check_place(flags: u32, frame: &[u8]) {
    let headers = Headers::parse(frame);
    let wanted = match (headers.l3, headers.l4, headers.ethertype) {
        _ if headers.fragment != Fragment::No => 0,
        _ if !ipv4::has_ports(headers.protocol) => 0,
        (14, 34, eth::TYPE_IPV4) if frame.len() >= 42 && frame[14] == 0x45 => flag::PLAIN,
        (14, 54, eth::TYPE_IPV6) if frame.len() >= 62 && frame[14] >> 4 == 6 => {
            flag::PLAIN | flag::IPV6
        }
        _ => 0,
    };
    // Where a tunnel is asked for, its packets are walked although they are plain.
    let tunnel = headers.protocol == ipv4::PROTOCOL_UDP && headers.destination_port == vxlan::PORT;
    if !(tunnel && flags == 0) {
        assert_eq!(flags, wanted, "{frame:02x?}");
    }
}
