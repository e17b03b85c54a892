//! A relay between A and C: what it sends on, where answers go.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod world;

use std::time::Duration;

use ashway_abi::Count;
use ashway_modules::Message;
use ashway_modules::forward::Forward;
use ashway_modules::handler::Act;
use ashway_modules::sink::Sink;
use ashway_modules::source::Source;
use ashway_path::attrs::Attrs;
use ashway_path::graph::Graph;
use ashway_path::path::{Exit, Limits};
use ashway_path::sim::{Link, LinkId, Sim, Single};
use ashway_path::stage::Direction::{Backward, Forward as Onward};
use ashway_path::time::Time;
use world::{End, Fake, Read, attrs, books_close, create, end, fate, mac, read, through, udp};

const NOBODY: &[u8] = b"answer to nobody";

/// A, B as A sees it, B as C sees it, C.
fn ends() -> [End; 4] {
    [
        end(0xa, "10.0.1.2:4000"),
        end(0xb1, "10.0.1.1:9000"),
        end(0xb2, "10.0.3.1:7000"),
        end(0xc, "10.0.3.2:9001"),
    ]
}

/// B.
fn host([_, b1, b2, _]: [End; 4]) -> Graph<Message> {
    let relay = Forward {
        name: "relay".into(),
    };
    world::graph(
        vec![
            ("wire_a", world::eth("wire_a", 1, b1)),
            ("wire_c", world::eth("wire_c", 2, b2)),
            ("ip", world::ip()),
            ("udp", world::udp_module()),
            ("relay", Box::new(relay)),
        ],
        &[
            ("ip.down", "wire_a.up"),
            ("ip.down", "wire_c.up"),
            ("udp.down", "ip.up"),
            ("relay.down", "udp.up"),
        ],
    )
}

/// A path for whoever sends.
fn wide([_, b1, b2, c]: [End; 4]) -> Attrs {
    attrs(&[
        ("local", &b1.address.to_string()),
        ("next_hop", &c.address.to_string()),
        ("from", &b2.address.to_string()),
        ("next_hop_mac", &mac(c)),
        ("out", "wire_c"),
    ])
}

/// A path for A alone.
fn narrow(ends: [End; 4]) -> Attrs {
    let mut attrs = wide(ends);
    attrs.set("remote", ends[0].address);
    attrs.set("next_mac", mac(ends[0]).as_str());
    attrs
}

fn relay(ends: [End; 4], attrs: Attrs, ruled: bool) -> Single<Message> {
    let path = create(&host(ends), "wire_a", attrs, ruled).unwrap();
    let stages: Vec<_> = path.stages().map(|stage| stage.name().to_owned()).collect();
    let expected = if ruled {
        vec!["datagram", "relay", "datagram"]
    } else {
        vec!["wire_a", "ip", "udp", "relay", "udp", "ip", "wire_c"]
    };
    assert_eq!(stages, expected);
    path
}

fn expect(from: End, to: End, payload: &[u8]) -> Read {
    Read {
        from,
        to,
        vlan: None,
        hops: 64,
        payload: payload.to_vec(),
    }
}

#[test]
fn what_leaves_has_the_next_hops_addresses_and_whole_checksums() {
    for ruled in [false, true] {
        let [a, b1, b2, c] = ends();
        let mut path = relay(ends(), wide(ends()), ruled);
        for len in [0, 1, 17, 1400] {
            let payload = vec![len as u8; len];
            // Padded, as short frames come, and with a number of hops of its own.
            let mut frame = udp(a, b1, None, &payload);
            frame.resize(frame.len().max(60), 0);
            assert_eq!(through(&mut path, Onward, &frame), expect(b2, c, &payload));
        }
        let account = path.account();
        assert_eq!(account.fate(Count::Forwarded), 4);
        assert_eq!(account.originated, 0);
        books_close(&path);
    }
}

#[test]
fn nothing_of_the_senders_headers_goes_on() {
    let [a, b1, b2, c] = ends();
    let frame = udp(a, b1, None, b"x");
    // Type of service, identification, "don't fragment": not the relay's.
    let mut marked = frame.clone();
    marked[15] = 0xb8;
    marked[18..21].copy_from_slice(&[1, 2, 0x40]);
    marked[24..26].fill(0);
    let header: u32 = (14..34)
        .step_by(2)
        .map(|at| u32::from(u16::from_be_bytes([marked[at], marked[at + 1]])))
        .sum();
    let sum = !((header + (header >> 16)) as u16);
    marked[24..26].copy_from_slice(&sum.to_be_bytes());
    for ruled in [false, true] {
        let mut path = relay(ends(), wide(ends()), ruled);
        let mut sent = Vec::new();
        for frame in [&frame, &marked] {
            for exit in world::send(&mut path, Onward, frame, Time(0)) {
                let Exit::Left { message, .. } = exit else {
                    panic!("{exit:?}");
                };
                assert_eq!(message.meta.iface, 2);
                sent.push(message.bytes().to_vec());
            }
        }
        assert_eq!(read(&sent[0]), expect(b2, c, b"x"));
        assert_eq!(sent[0], sent[1]);
    }
}

#[test]
fn a_narrow_path_answers_to_its_remote_even_unasked() {
    for ruled in [false, true] {
        let [a, b1, b2, c] = ends();
        let mut path = relay(ends(), narrow(ends()), ruled);
        let first = udp(c, b2, None, b"unasked");
        assert_eq!(
            through(&mut path, Backward, &first),
            expect(b1, a, b"unasked")
        );
        let frame = udp(a, b1, None, b"ping");
        assert_eq!(through(&mut path, Onward, &frame), expect(b2, c, b"ping"));
        let frame = udp(c, b2, None, b"pong");
        assert_eq!(through(&mut path, Backward, &frame), expect(b1, a, b"pong"));
        assert_eq!(path.account().fate(Count::Forwarded), 3);
        books_close(&path);
    }
}

#[test]
fn a_wide_path_answers_to_who_sent_last() {
    for ruled in [false, true] {
        let [a, b1, b2, c] = ends();
        let mut path = relay(ends(), wide(ends()), ruled);
        let back = udp(c, b2, None, NOBODY);
        assert_eq!(fate(&mut path, Backward, &back), Count::DroppedNoNextHop);
        let other = end(0xd, "10.0.1.77:1234");
        for sender in [a, other, a] {
            through(&mut path, Onward, &udp(sender, b1, None, b"ping"));
            for payload in [&b"pong"[..], &[7; 1400], b""] {
                let back = udp(c, b2, None, payload);
                assert_eq!(
                    through(&mut path, Backward, &back),
                    expect(b1, sender, payload)
                );
            }
        }
        // Nobody can answer to these; the last one before stays.
        let mut group = a;
        group.mac[0] |= 1;
        let no_port = end(0xe, "10.0.1.78:0");
        for sender in [group, no_port] {
            through(&mut path, Onward, &udp(sender, b1, None, b"ping"));
            let back = udp(c, b2, None, b"pong");
            assert_eq!(through(&mut path, Backward, &back), expect(b1, a, b"pong"));
        }
        assert_eq!(path.account().fate(Count::DroppedNoNextHop), 1);
        books_close(&path);
    }
}

#[test]
fn the_two_sides_may_differ_in_version_and_vlan() {
    let [_, _, b2, c] = ends();
    let (a, b1) = (end(0xa, "[fd00::2]:4000"), end(0xb1, "[fd00::1]:9000"));
    let ends = [a, b1, b2, c];
    for ruled in [false, true] {
        for mut attrs in [wide(ends), narrow(ends)] {
            attrs.set("vlan", 5);
            attrs.set("next_hop_vlan", 9);
            let mut path = relay(ends, attrs, ruled);
            let there = Read {
                vlan: Some(9),
                ..expect(b2, c, b"six to four")
            };
            let frame = udp(a, b1, Some(5), b"six to four");
            assert_eq!(through(&mut path, Onward, &frame), there);
            let back = Read {
                vlan: Some(5),
                ..expect(b1, a, b"four to six")
            };
            let frame = udp(c, b2, Some(9), b"four to six");
            assert_eq!(through(&mut path, Backward, &frame), back);
        }
    }
}

#[test]
fn what_is_said_of_one_side_is_not_taken_for_the_other() {
    let [a, b1, b2, c] = ends();
    let mut tagged = narrow(ends());
    tagged.set("vlan", 5);
    let mut path = relay(ends(), tagged.clone(), true);
    let frame = udp(a, b1, Some(5), b"x");
    assert_eq!(through(&mut path, Onward, &frame), expect(b2, c, b"x"));
    // A's hardware address is not C's.
    tagged.remove("next_hop_mac");
    let mut path = relay(ends(), tagged, true);
    let lost = fate(&mut path, Onward, &frame);
    assert_eq!(lost, Count::DroppedNoNextHop);
}

#[test]
fn what_is_missing_is_said_by_name() {
    let graph = host(ends());
    let without = |name: &str| {
        let mut attrs = wide(ends());
        attrs.remove(name);
        create(&graph, "wire_a", attrs, false).err().unwrap()
    };
    for name in ["next_hop", "from"] {
        let said = without(name);
        assert!(
            said.contains(&format!("`{name}` is missing; give `{name}` an")),
            "{said}"
        );
    }
    let mut attrs = wide(ends());
    attrs.set(
        "from",
        "10.0.3.1:0".parse::<std::net::SocketAddr>().unwrap(),
    );
    let said = create(&graph, "wire_a", attrs, false).err().unwrap();
    assert!(said.contains("`from` is 10.0.3.1:0"), "{said}");
    let said = create(&graph, "relay", wide(ends()), false).err().unwrap();
    assert!(said.contains("begin the path at the link"), "{said}");
    let relay = Forward {
        name: "relay".into(),
    };
    let bare = world::graph(
        vec![
            ("wire_a", world::eth("wire_a", 1, ends()[1])),
            ("ip", world::ip()),
            ("relay", Box::new(relay)),
        ],
        &[("ip.down", "wire_a.up"), ("relay.down", "ip.up")],
    );
    let said = create(&bare, "wire_a", wide(ends()), false).err().unwrap();
    assert!(
        said.contains("no UDP is below") && said.contains("connect `relay.down`"),
        "{said}"
    );
    // Without `out` nobody says which link is the next hop's: the path ends at IP.
    let mut attrs = wide(ends());
    attrs.remove("out");
    let path = create(&graph, "wire_a", attrs, false).unwrap();
    assert_eq!(path.len(), 6);
}

/// SBX-11, for a relay: a handler is put between UDP and the relay, sees what both
/// sides send, and nobody else notices.
#[test]
fn a_handler_between_udp_and_the_relay_sees_both_directions() {
    let [a, b1, b2, c] = ends();
    let hook = Fake::new(|payload| {
        payload.make_ascii_uppercase();
        Act::Forward
    });
    let relay = Forward {
        name: "relay".into(),
    };
    let graph = world::graph(
        vec![
            ("wire_a", world::eth("wire_a", 1, b1)),
            ("wire_c", world::eth("wire_c", 2, b2)),
            ("ip", world::ip()),
            ("udp", world::udp_module()),
            ("hook", hook.module("hook")),
            ("relay", Box::new(relay)),
        ],
        &[
            ("ip.down", "wire_a.up"),
            ("ip.down", "wire_c.up"),
            ("udp.down", "ip.up"),
            ("hook.down", "udp.up"),
            ("relay.down", "hook.up"),
        ],
    );
    for (attrs, ruled) in [(wide(ends()), false), (narrow(ends()), true)] {
        let before = hook.ran();
        let mut path = create(&graph, "wire_a", attrs, ruled).unwrap();
        let there = udp(a, b1, None, b"ping");
        assert_eq!(through(&mut path, Onward, &there), expect(b2, c, b"PING"));
        let back = udp(c, b2, None, b"pong");
        assert_eq!(through(&mut path, Backward, &back), expect(b1, a, b"PONG"));
        assert_eq!(hook.ran() - before, 2);
        books_close(&path);
    }
}

/// A sends 2,000 messages by way of B to C, which answers each one.
#[test]
fn a_stream_goes_through_the_relay_and_back() {
    let [a, b1, _, c] = ends();
    let top = |module, host, top| {
        world::graph(
            vec![
                ("wire", world::eth("wire", 1, host)),
                ("ip", world::ip()),
                ("udp", world::udp_module()),
                (module, top),
            ],
            &[
                ("ip.down", "wire.up"),
                ("udp.down", "ip.up"),
                ("udp.up", &format!("{module}.down")),
            ],
        )
    };
    let created = |graph: &Graph<Message>, name: &str, module: &str, attrs| {
        let limits = Limits {
            queue: [256, 256, 0, 0],
            ..Limits::default()
        };
        graph.create(name, module, attrs, limits, &[]).unwrap().path
    };
    for (relaying, lost_ppm) in [
        (wide(ends()), 0),
        (narrow(ends()), 0),
        (wide(ends()), 50_000),
    ] {
        let [to_b, to_c, from_c, to_a] = [0, 1, 2, 3];
        let mut links: Vec<LinkId> = Vec::new();
        let ids = std::sync::Arc::new(std::sync::Mutex::new(Vec::<LinkId>::new()));
        let known = ids.clone();
        let mut sim: Sim<Message> = Sim::new(
            3,
            |message| message.len() as u64,
            Box::new(move |names, link, _| {
                let at = known.lock().unwrap().iter().position(|id| *id == link)?;
                let (name, direction) = [
                    ("relay", Onward),
                    ("c", Backward),
                    ("relay", Backward),
                    ("a", Backward),
                ][at];
                Some((names.find(name)?, direction))
            }),
        );
        for at in [to_b, to_c, from_c, to_a] {
            let wire = Link {
                delay: Duration::from_micros(50),
                jitter: Duration::ZERO,
                lost_ppm: if at == to_c { lost_ppm } else { 0 },
            };
            links.push(sim.link(wire));
        }
        ids.lock().unwrap().clone_from(&links);

        let source = Source {
            name: "source".into(),
        };
        let sending = attrs(&[
            ("local", &a.address.to_string()),
            ("remote", &b1.address.to_string()),
            ("next_mac", &mac(b1)),
            ("rate", "100000"),
            ("count", "2000"),
            ("len", "200"),
        ]);
        let echo = Fake::new(|_| Act::Reply);
        let graphs = [
            top("source", a, Box::new(source)),
            host(ends()),
            top("echo", c, echo.module("echo")),
        ];
        let path = created(&graphs[0], "a", "source", sending);
        let in_a = sim.create(path).unwrap();
        let in_b = sim
            .create(created(&graphs[1], "relay", "wire_a", relaying))
            .unwrap();
        let in_c = sim
            .create(created(&graphs[2], "c", "echo", Attrs::new()))
            .unwrap();
        sim.connect(in_a, Onward, links[to_b]);
        sim.connect(in_b, Onward, links[to_c]);
        sim.connect(in_c, Onward, links[from_c]);
        sim.connect(in_b, Backward, links[to_a]);
        sim.run(Time(1_000_000_000));

        let arrived = echo.ran();
        if lost_ppm == 0 {
            assert_eq!(arrived, 2000);
        } else {
            assert!((1800..2000).contains(&arrived), "{arrived}");
        }
        let account = |id| sim.engine.path(id).unwrap().account();
        assert_eq!(account(in_a).left, 2000);
        assert_eq!(account(in_a).fate(Count::Consumed), arrived);
        assert_eq!(account(in_b).fate(Count::Forwarded), 2000 + arrived);
        for id in [in_a, in_b, in_c] {
            books_close(sim.engine.path(id).unwrap());
        }
    }
}

/// The same with a sink behind it: nothing changed or out of order.
#[test]
fn a_sink_behind_the_relay_finds_nothing_wrong() {
    let [a, b1, b2, c] = ends();
    let sink = Sink {
        name: "sink".into(),
    };
    let graph = world::graph(
        vec![
            ("wire", world::eth("wire", 1, c)),
            ("ip", world::ip()),
            ("udp", world::udp_module()),
            ("sink", Box::new(sink)),
        ],
        &[
            ("ip.down", "wire.up"),
            ("udp.down", "ip.up"),
            ("sink.down", "udp.up"),
        ],
    );
    let mut end = create(&graph, "sink", Attrs::new(), false).unwrap();
    let mut path = relay(ends(), wide(ends()), true);
    for sequence in 0..100 {
        let mut payload = [0; 64];
        let probe = ashway_modules::source::Probe {
            sequence,
            sent: Time(0),
        };
        probe.write(&mut payload);
        let there = through(&mut path, Onward, &udp(a, b1, None, &payload));
        let frame = udp(b2, c, None, &there.payload);
        assert_eq!(fate(&mut end, Backward, &frame), Count::Consumed);
    }
    assert_eq!(
        end.attrs().to_string(),
        "damaged=0 duplicated=0 iface=wire lost=0 mtu=1500 received=100 reordered=0"
    );
}

#[test]
fn each_end_has_a_filter_of_its_own() {
    use ashway_modules::eth;
    for ruled in [false, true] {
        let path = relay(ends(), narrow(ends()), ruled);
        let of = |direction| eth::filter_of(&path, direction).unwrap();
        let from_a = of(Onward);
        assert!(
            from_a.contains("src port 4000") && from_a.contains("dst port 9000"),
            "{from_a}"
        );
        assert!(!from_a.contains("9001"), "{from_a}");
        let from_c = of(Backward);
        assert!(
            from_c.contains("src port 9001") && from_c.contains("dst port 7000"),
            "{from_c}"
        );
        assert!(!from_c.contains("4000"), "{from_c}");
        assert_eq!(eth::filter(&path).unwrap(), from_a);
    }
}
