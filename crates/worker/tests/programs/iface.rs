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
    let port = |port: u16| format!("udp dst port {port}");
    let mut iface = Interface::new(&[&port(7000)]);
    let targets = |iface: &Interface, port| iface.targets(&Frame::to_b(port, b"x"));
    for path in 1..10 {
        assert_eq!(targets(&iface, 7000 + path), emit::NO_PATH);
        let came = iface.come(&port(7000 + path), path.into());
        assert_eq!(came, Followed::Yes, "path {path}");
        let both = [targets(&iface, 7000), targets(&iface, 7000 + path)];
        assert_eq!(both, [0, path.into()]);
    }
    // The one of the program goes, and its place is another's.
    assert_eq!(iface.go(0), Followed::Yes);
    let both = [targets(&iface, 7000), targets(&iface, 7009)];
    assert_eq!(both, [emit::NO_PATH, 9]);
    assert_eq!(iface.come(&port(7000), 10), Followed::Yes);
    assert_eq!(targets(&iface, 7000), 10);
    let hits = iface.maps.hits().unwrap();
    // Over IPv4 and over IPv6.
    assert_eq!((hits.len(), hits.values().sum::<u64>()), (20, 11));
    // The last goes; the shape is one that the program has had.
    for path in 1..11 {
        assert_eq!(iface.go(path), Followed::Yes);
        assert_eq!(targets(&iface, 7000 + path as u16 % 10), emit::NO_PATH);
    }
    assert!(iface.table.is_empty() && iface.maps.hits().unwrap().is_empty());
    assert_eq!(iface.come(&port(7001), 11), Followed::Yes);
    let both = [targets(&iface, 7000), targets(&iface, 7001)];
    assert_eq!(both, [emit::NO_PATH, 11]);
}

/// Paths of shapes that the program does not have are data to it: more and less specific
/// ones, and one with exclusions. They come, are counted and go, as what has no map in the
/// program does; what has no room is told.
#[test]
fn shapes_that_come_later_are_data() {
    if ashway_rig::skip_unless_root() {
        return;
    }
    let mut iface = Interface::new(&["udp dst port 7000", "ip proto 99"]);
    let other_version = |port| Frame::to_b_v6(port, b"x");
    // Plain, and walked.
    let both = |iface: &Interface, port| {
        let plain = Frame::to_b(port, b"x");
        let walked = plain.clone().spoil(Spoil::Options(2));
        [iface.targets(&plain), iface.targets(&walked)]
    };
    assert_eq!(iface.come("udp", 2), Followed::AsData);
    assert_eq!([both(&iface, 7000), both(&iface, 7001)], [[0, 0], [2, 2]]);
    assert_eq!(iface.targets(&other_version(7001)), 2);
    let narrow = "udp dst port 7000 and ip[8] = 64";
    assert_eq!(iface.come(narrow, 3), Followed::AsData);
    assert_eq!([both(&iface, 7000), both(&iface, 7001)], [[3, 3], [2, 2]]);
    assert_eq!(iface.targets(&other_version(7000)), 0);
    let not = "udp dst port 7002 and not ip[8] = 64";
    assert_eq!(iface.come(not, 4), Followed::AsData);
    assert_eq!(both(&iface, 7002), [2, 2], "it is excluded");
    assert_eq!(iface.targets(&other_version(7002)), 4);
    assert_eq!(iface.come("ip proto 98", 5), Followed::AsData);

    let hits: u64 = iface.maps.hits().unwrap().values().sum();
    assert_eq!(hits, 2 + 2 + 1 + 2 + 2 + 1 + 2 + 1, "each frame once");
    for path in [3, 2, 1, 5, 4] {
        assert_eq!(iface.go(path), Followed::Yes, "{path}");
    }
    let gone = [emit::NO_PATH; 2];
    assert_eq!([both(&iface, 7000), both(&iface, 7001)], [[0, 0], gone]);
    assert_eq!(iface.maps.hits().unwrap().len(), 2);
    // Those that went are known still; of others there is no end.
    assert_eq!(iface.come(narrow, 6), Followed::AsData);
    assert_eq!(both(&iface, 7000), [6, 6]);
    let mut others = (1..33).map(|bits| format!("udp and src net 128.0.0.0/{bits}"));
    let full = others
        .position(|text| iface.come(&text, 100) == Followed::No || iface.go(100) == Followed::No);
    assert_eq!(full, Some(5), "three of eight slots are those of before");
}

/// Of several changes of one entry in one call the last counts, whether it is a constant of
/// the program, in a map of it, or data to it.
#[test]
fn the_last_change_of_an_entry_counts() {
    if ashway_rig::skip_unless_root() {
        return;
    }
    let (port, frame) = ("udp dst port 7000", Frame::to_b(7000, b"x"));
    for others in [port, "udp dst port 7001", "ip proto 99"] {
        for (begins, changes) in [
            (true, "-+"),
            (true, "-+-"),
            (true, "-+-+"),
            (false, "+"),
            (false, "+-"),
            (false, "+-+"),
        ] {
            let mut iface = Interface::new(&[others]);
            let entries = |iface: &Interface| iface.maps.hits().unwrap().len();
            let others_entries = if others == port { 0 } else { entries(&iface) };
            let path = u32::from(others != port);
            match (begins, others == port) {
                (true, false) => assert_ne!(iface.come(port, path), Followed::No),
                (false, true) => assert_eq!(iface.go(path), Followed::Yes),
                _ => {}
            }
            iface.turn(port, path, changes);
            let of = format!("{others}: {begins} {changes}");
            let there = changes.ends_with('+');
            let targets = if there { path } else { emit::NO_PATH };
            assert_eq!(iface.targets(&frame), targets, "{of}");
            // Over IPv4 and over IPv6.
            let own = entries(&iface) - others_entries;
            assert_eq!(own, if there { 2 } else { 0 }, "{of}");
            // And it goes on as if that had been all.
            let (more, targets) = if there {
                ("-", emit::NO_PATH)
            } else {
                ("+", path)
            };
            iface.turn(port, path, more);
            assert_eq!(iface.targets(&frame), targets, "{of}, then {more}");
        }
    }
}

/// A table, a program of what it had in the beginning, and its maps.
struct Interface {
    table: Table<u32>,
    program: Program,
    maps: DemuxMaps,
    /// Its context is the program's.
    _node: NodeMaps,
}

impl Interface {
    /// For these filters, which lead to paths 0, 1 and so on.
    fn new(filters: &[&str]) -> Self {
        let mut table = Table::default();
        for (path, text) in (0..).zip(filters) {
            table.insert(&demux::parse(text).unwrap(), path).unwrap();
        }
        let shapes = compiled::compile_open(&table, compiled::FEW, leaf);
        let maps = DemuxMaps::create(&table, &shapes, leaf).unwrap();
        let node = node_maps();
        let image = emit::program(&emit::Spec {
            shapes: &shapes,
            spares: Some(compiled::spares_at(&shapes)),
            cpus: node.cpus,
            packet: entry::Packet::Pointers,
        });
        drop(shapes);
        let slots = Map::create(&MapSpec::prog_array("slots", 1)).unwrap();
        Self {
            program: programs::load_entry(&image, &node, &slots, &maps).unwrap(),
            table,
            maps,
            _node: node,
        }
    }

    fn come(&mut self, text: &str, path: u32) -> Followed {
        let change = self.table.insert(&demux::parse(text).unwrap(), path);
        let update = Update::of(&self.table, change.unwrap(), path);
        self.maps.follow(&[(&update, leaf(path))]).unwrap()
    }

    fn go(&mut self, path: u32) -> Followed {
        let change = self.table.remove(path);
        let update = Update::of(&self.table, change, path);
        self.maps.follow(&[(&update, Leaf::default())]).unwrap()
    }

    /// Several changes in one call: `+` has a path come, `-` has it go.
    fn turn(&mut self, text: &str, path: u32, changes: &str) {
        let mut updates = Vec::new();
        for change in changes.chars() {
            let change = match change {
                '+' => self
                    .table
                    .insert(&demux::parse(text).unwrap(), path)
                    .unwrap(),
                _ => self.table.remove(path),
            };
            updates.push(Update::of(&self.table, change, path));
        }
        let updates: Vec<_> = updates.iter().map(|update| (update, leaf(path))).collect();
        let followed = self.maps.follow(&updates).unwrap();
        assert_ne!(followed, Followed::No, "{text}: {changes}");
    }

    /// Where the program leads a frame.
    fn targets(&self, frame: &Frame) -> u32 {
        let run = TestRun {
            packet: &frame.bytes(),
            context: None,
            repeat: 1,
        };
        self.program.test_run(&run).unwrap().retval
    }
}

fn leaf(path: u32) -> Leaf {
    Leaf {
        tag: path,
        ..Leaf::default()
    }
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
    programs::load("ashway_exit", &exit::generate(), &maps)
        .unwrap_or_else(|e| panic!("exit: {e}: {}", e.log()));
}
