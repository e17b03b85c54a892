//! The programs at an interface: its demux while paths come and go, the decisions of the
//! entry program beside those in Rust, and the exit program.

use super::*;

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
        spares: None,
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
