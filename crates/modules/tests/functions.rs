//! Handlers, host, source and sink in paths.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod world;

use std::time::Duration;

use ashway_abi::Count;
use ashway_modules::Message;
use ashway_modules::handler::Act;
use ashway_modules::host::Host;
use ashway_modules::ip::Ip;
use ashway_modules::sink::Sink;
use ashway_modules::source::Source;
use ashway_path::attrs::Attrs;
use ashway_path::engine::MAX_WOKEN;
use ashway_path::graph::Graph;
use ashway_path::path::{Exit, Limits, Path};
use ashway_path::sim::{Link, Sim, Single};
use ashway_path::stage::Direction::{Backward, Forward};
use ashway_path::time::Time;
use etherparse::{Icmpv4Header, Icmpv4Type, NetHeaders, PacketBuilder, PacketHeaders};
use etherparse::{TransportHeader, ip_number};
use world::{Fake, Read, attrs, books_close, create, end, fate, read, send, through, udp};

const US: &str = "10.0.1.1:9000";
const THEM: &str = "10.0.1.2:4000";

fn echo() -> Fake {
    Fake::new(|_| Act::Reply)
}

/// A path's stages by name.
fn names(path: &Path<Message>) -> Vec<String> {
    path.stages().map(|stage| stage.name().to_owned()).collect()
}

type Boxed = Box<dyn ashway_path::module::Module<Message>>;

/// Modules on the usual stack.
fn stack(more: Vec<(&str, Boxed)>, edges: &[(&str, &str)]) -> Graph<Message> {
    let mut modules = vec![
        ("wire", world::eth("wire", 1, end(1, US))),
        ("ip", world::ip()),
        ("udp", world::udp_module()),
    ];
    modules.extend(more);
    let mut all = vec![("ip.down", "wire.up"), ("udp.down", "ip.up")];
    all.extend_from_slice(edges);
    world::graph(modules, &all)
}

fn host() -> Boxed {
    Box::new(Host {
        name: "host".into(),
    })
}

/// SBX-11: the graph says where the handler stands; nobody else notices.
#[test]
fn a_handler_is_put_behind_udp_and_no_other_layer_is_touched() {
    let (us, them) = (end(1, US), end(2, THEM));
    let app = echo();
    // Counts, turns letters into capitals, keeps back what begins with `!`.
    let hook = Fake::new(|payload| {
        if payload.first() == Some(&b'!') {
            return Act::Done(Count::DroppedHandler);
        }
        payload.make_ascii_uppercase();
        Act::Forward
    });
    let plain = stack(vec![("app", app.module("app"))], &[("app.down", "udp.up")]);
    let hooked = stack(
        vec![("app", app.module("app")), ("hook", hook.module("hook"))],
        &[("app.down", "hook.up"), ("hook.down", "udp.up")],
    );
    for ruled in [false, true] {
        let before = hook.ran();
        let mut without = create(&plain, "app", Attrs::new(), ruled).unwrap();
        let mut with = create(&hooked, "app", Attrs::new(), ruled).unwrap();
        let mut expected = names(&without);
        expected.insert(1, "hook".to_owned());
        assert_eq!(names(&with), expected);

        let reply = |payload: &[u8]| Read {
            from: us,
            to: them,
            vlan: None,
            hops: 64,
            payload: payload.to_vec(),
        };
        let frame = udp(them, us, None, b"hello");
        assert_eq!(through(&mut without, Backward, &frame), reply(b"hello"));
        assert_eq!(through(&mut with, Backward, &frame), reply(b"HELLO"));
        let frame = udp(them, us, None, b"!secret");
        assert_eq!(fate(&mut with, Backward, &frame), Count::DroppedHandler);
        // What the layers below refuse does not get as far.
        let mut broken = udp(them, us, None, b"hello");
        broken[45] ^= 1;
        assert_eq!(
            fate(&mut with, Backward, &broken),
            Count::DroppedBadUdpChecksum
        );
        assert_eq!(hook.ran() - before, 2);
        let account = with.account();
        assert_eq!(account.fate(Count::Answered), 1);
        books_close(&with);
    }
    // The answer went by it unseen: twice for each path and never more.
    assert_eq!(hook.ran(), 4);
}

#[test]
fn a_handler_in_a_path_created_from_below_stands_the_same_way() {
    let (us, them) = (end(1, US), end(2, THEM));
    let hook = Fake::new(|_| Act::Forward);
    let graph = stack(
        vec![("app", echo().module("app")), ("hook", hook.module("hook"))],
        &[("app.down", "hook.up"), ("hook.down", "udp.up")],
    );
    let mut path = create(&graph, "wire", Attrs::new(), false).unwrap();
    assert_eq!(names(&path), ["wire", "ip", "udp", "hook", "app"]);
    let answer = through(&mut path, Forward, &udp(them, us, None, b"hello"));
    assert_eq!((answer.to, hook.ran()), (them, 1));
}

#[test]
fn every_act_of_a_handler_has_its_fate() {
    let (us, them) = (end(1, US), end(2, THEM));
    let mut group = them;
    group.mac[0] |= 1;
    for (act, sender, expected) in [
        (Act::Done(Count::Consumed), them, Count::Consumed),
        (Act::Done(Count::DroppedFault), them, Count::DroppedFault),
        (Act::Pass, them, Count::Passed),
        (Act::Reply, group, Count::DroppedNoSender),
        (Act::Reply, end(2, "10.0.1.2:0"), Count::DroppedNoSender),
        // The top of the path: there is nothing to go on to.
        (Act::Forward, them, Count::DroppedNoNextHop),
    ] {
        let app = Fake::new(move |_| act);
        let graph = stack(vec![("app", app.module("app"))], &[("app.down", "udp.up")]);
        for ruled in [false, true] {
            let mut path = create(&graph, "app", Attrs::new(), ruled).unwrap();
            let frame = udp(sender, us, None, b"hello");
            assert_eq!(fate(&mut path, Backward, &frame), expected, "{act:?}");
            books_close(&path);
        }
    }
}

#[test]
fn a_function_that_is_not_there_is_refused_at_creation() {
    let graph = stack(
        vec![("app", echo().module("app"))],
        &[("app.down", "udp.up")],
    );
    let said = create(&graph, "app", attrs(&[("function", "on_tick")]), false);
    let said = said.err().unwrap();
    assert!(
        said.contains("there is no function `on_tick`; available: `on_rx`"),
        "{said}"
    );
}

#[test]
fn what_reaches_the_host_is_the_frame_as_it_came() {
    let (us, them) = (end(1, US), end(2, THEM));
    let look = Fake::new(|_| Act::Forward);
    let graph = stack(
        vec![("host", host()), ("look", look.module("look"))],
        &[("host.down", "look.up"), ("look.down", "udp.up")],
    );
    let mut frame = udp(them, us, None, b"hello");
    frame.resize(60, 0xee);
    for (from, direction) in [("host", Backward), ("wire", Forward)] {
        let mut path = create(&graph, from, Attrs::new(), true).unwrap();
        let exits = send(&mut path, direction, &frame, Time(0));
        let [
            Exit::Ended {
                message,
                fate: Count::Passed,
                ..
            },
        ] = exits.as_slice()
        else {
            panic!("{exits:?}");
        };
        let mut message = message.clone();
        message.rewind();
        assert_eq!(message.bytes(), frame);
        books_close(&path);
    }
    assert_eq!(look.ran(), 2);
}

/// An echo request as `ping` sends it, by `etherparse`.
fn ping(payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    PacketBuilder::ethernet2(end(2, THEM).mac, end(1, US).mac)
        .ipv4([10, 0, 1, 2], [10, 0, 1, 1], 3)
        .icmpv4_echo_request(77, 1)
        .write(&mut frame, payload)
        .unwrap();
    frame
}

/// ICMP echo (RFC 792): the type becomes 0, and the checksum one that fits.
fn icmp_echo(packet: &mut [u8]) -> Act {
    if packet.len() < 8 || packet[0] != 8 {
        return Act::Pass;
    }
    packet[0] = 0;
    let sum = u16::from_be_bytes([packet[2], packet[3]]);
    let (sum, carry) = sum.overflowing_add(0x0800);
    packet[2..4].copy_from_slice(&(sum + u16::from(carry)).to_be_bytes());
    Act::Reply
}

/// SCT-10 and ASH-53: two paths, one over IP itself that turns ICMP around, one
/// over UDP, share one IP module.
#[test]
fn one_ip_module_serves_two_protocols_and_echo_turns_around_inside() {
    let (us, them) = (end(1, US), end(2, THEM));
    let (pinged, app) = (Fake::new(icmp_echo), echo());
    let graph = stack(
        vec![("icmp", pinged.module("icmp")), ("app", app.module("app"))],
        &[("icmp.down", "ip.up"), ("app.down", "udp.up")],
    );
    let icmp = attrs(&[("protocol", "1")]);
    let mut of_icmp = create(&graph, "icmp", icmp, false).unwrap();
    let mut of_udp = create(&graph, "app", Attrs::new(), false).unwrap();
    assert_eq!(names(&of_icmp), ["icmp", "ip", "wire"]);
    assert_eq!(names(&of_udp), ["app", "udp", "ip", "wire"]);
    let shared = graph
        .nodes()
        .iter()
        .filter(|node| node.module.kind().name == "ip");
    assert_eq!(shared.count(), 1);

    let exits = send(&mut of_icmp, Backward, &ping(b"abcdefgh"), Time(0));
    let [
        Exit::Left {
            message,
            turned: true,
            direction: Forward,
        },
    ] = exits.as_slice()
    else {
        panic!("{exits:?}");
    };
    let headers = PacketHeaders::from_ethernet_slice(message.bytes()).unwrap();
    let Some(NetHeaders::Ipv4(ip, _)) = headers.net else {
        panic!("no IP");
    };
    assert_eq!((ip.source, ip.destination), ([10, 0, 1, 1], [10, 0, 1, 2]));
    assert_eq!((ip.protocol, ip.time_to_live), (ip_number::ICMP, 64));
    assert_eq!(ip.header_checksum, ip.calc_header_checksum());
    let Some(TransportHeader::Icmpv4(icmp)) = headers.transport else {
        panic!("no ICMP");
    };
    let payload = headers.payload.slice();
    let Icmpv4Type::EchoReply(sent) = icmp.icmp_type.clone() else {
        panic!("{:?}", icmp.icmp_type);
    };
    assert_eq!((sent.id, sent.seq, payload), (77, 1, &b"abcdefgh"[..]));
    assert_eq!(
        icmp,
        Icmpv4Header::with_checksum(icmp.icmp_type.clone(), payload)
    );

    let answer = through(&mut of_udp, Backward, &udp(them, us, None, b"hello"));
    assert_eq!(answer.to, them);
    assert_eq!((pinged.ran(), app.ran()), (1, 1));
    for path in [&of_icmp, &of_udp] {
        assert_eq!(path.account().fate(Count::Answered), 1);
        books_close(path);
    }
}

fn source(pairs: &[(&'static str, &str)]) -> Result<Single<Message>, String> {
    let load = Source {
        name: "load".into(),
    };
    let graph = stack(vec![("load", Box::new(load))], &[("load.down", "udp.up")]);
    let mut all = attrs(pairs);
    for (name, value) in [("local", US), ("remote", THEM)] {
        all.set(name, value.parse::<std::net::SocketAddr>().unwrap());
    }
    all.set("next_mac", "02:00:00:00:00:02");
    create(&graph, "load", all, false)
}

fn wake(path: &mut Single<Message>, at: u64) -> Vec<Message> {
    let exits = path.wake(Time(at)).into_iter();
    let left = exits.map(|exit| match exit {
        Exit::Left {
            message,
            turned: true,
            ..
        } => message,
        other => panic!("{other:?}"),
    });
    left.collect()
}

/// SCT-12: messages that arise in a path, by its clock.
#[test]
fn a_source_keeps_its_rate_whenever_it_is_woken() {
    let mut path = source(&[("rate", "3"), ("count", "8"), ("len", "100")]).unwrap();
    assert_eq!(path.wake_at(), Some(Time(0)));
    let began = 5;
    assert_eq!(wake(&mut path, began).len(), 1);
    assert_eq!(path.wake_at(), Some(Time(began + 333_333_333)));
    assert_eq!(wake(&mut path, began + 333_333_332).len(), 0);
    // Late: the two that are due, and the next at its own time.
    assert_eq!(wake(&mut path, began + 700_000_000).len(), 2);
    assert_eq!(path.wake_at(), Some(Time(began + 1_000_000_000)));
    let rest = wake(&mut path, 1_000_000_000_000);
    assert_eq!(rest.len(), 5);
    assert_eq!(path.wake_at(), None);
    let frame = read(rest[4].bytes());
    assert_eq!((frame.to, frame.payload.len()), (end(2, THEM), 100));
    assert_eq!(frame.payload[..8], 7_u64.to_be_bytes());
    assert_eq!(path.account().originated, 8);
    books_close(&path);
}

#[test]
fn a_source_that_is_far_behind_catches_up_in_bursts() {
    let mut path = source(&[("rate", "1000000000")]).unwrap();
    assert_eq!(wake(&mut path, 0).len(), 1);
    for _ in 0..2 {
        assert_eq!(wake(&mut path, 10_000).len(), 64 * MAX_WOKEN);
        assert!(path.wake_at().unwrap() <= Time(10_000));
    }
}

#[test]
fn a_source_refuses_what_it_cannot_do() {
    for (name, value) in [
        ("rate", "0"),
        ("rate", "fast"),
        ("len", "23"),
        ("len", "65508"),
    ] {
        let said = source(&[(name, value)]).err().unwrap();
        assert!(
            said.contains(&format!("`{name}` is {value}; give it a number")),
            "{said}"
        );
    }
}

/// What `sink` publishes, over a link that loses and delays by chance.
#[test]
fn a_sink_knows_what_a_link_did() {
    let them = end(2, THEM);
    let sink = Sink {
        name: "sink".into(),
    };
    let graph = world::graph(
        vec![
            ("wire", world::eth("wire", 2, them)),
            ("ip", Box::new(Ip { name: "ip".into() })),
            ("udp", world::udp_module()),
            ("sink", Box::new(sink)),
        ],
        &[
            ("ip.down", "wire.up"),
            ("udp.down", "ip.up"),
            ("sink.down", "udp.up"),
        ],
    );
    let limits = Limits {
        queue: [256, 256, 0, 0],
        ..Limits::default()
    };
    let receiving = graph
        .create("in", "sink", Attrs::new(), limits, &[])
        .unwrap()
        .path;
    let mut sim: Sim<Message> = Sim::new(
        1,
        |message| message.len() as u64,
        Box::new(|names, _, _| Some((names.find("in")?, Backward))),
    );
    let link = sim.link(Link {
        delay: Duration::from_micros(10),
        jitter: Duration::from_micros(100),
        lost_ppm: 20_000,
    });
    let sending = source(&[("rate", "100000"), ("count", "5000")]).unwrap();
    let out = sim.create(sending.into_path()).unwrap();
    let into = sim.create(receiving).unwrap();
    sim.connect(out, Forward, link);
    sim.run(Time(10_000_000_000));

    let count = |what: fn(&ashway_path::sim::Happened) -> bool| {
        sim.trace
            .iter()
            .filter(|(_, happened)| what(happened))
            .count() as u64
    };
    let lost = count(|happened| matches!(happened, ashway_path::sim::Happened::Lost(..)));
    let path = sim.engine.path(into).unwrap();
    let found = |name| path.attrs().number(name).unwrap();
    assert!(
        lost > 50 && found("reordered") > 100,
        "{lost} {}",
        path.attrs()
    );
    assert_eq!(found("received"), 5000 - lost);
    // Those lost behind the last that came cannot be known.
    assert!(lost - found("lost") <= 2, "{lost} {}", path.attrs());
    assert_eq!((found("duplicated"), found("damaged")), (0, 0));
    assert_eq!(path.account().fate(Count::Consumed), 5000 - lost);
    books_close(path);
}

#[test]
fn a_sink_tells_damaged_and_doubled_messages_apart() {
    let (us, them) = (end(1, US), end(2, THEM));
    let sink = Sink {
        name: "sink".into(),
    };
    let graph = stack(vec![("sink", Box::new(sink))], &[("sink.down", "udp.up")]);
    let mut path = create(&graph, "sink", Attrs::new(), true).unwrap();
    let mut payload = [0; 40];
    let probe = ashway_modules::source::Probe {
        sequence: 0,
        sent: Time(9),
    };
    probe.write(&mut payload);
    let mut damaged = Vec::new();
    for bit in 0..40 * 8 {
        let mut payload = payload;
        payload[bit / 8] ^= 1 << (bit % 8);
        damaged.push(payload.to_vec());
    }
    damaged.push(payload[..23].to_vec());
    let broken = damaged.len() as u64;
    for payload in damaged
        .into_iter()
        .chain([payload.to_vec(), payload.to_vec()])
    {
        let frame = udp(them, us, None, &payload);
        assert_eq!(fate(&mut path, Backward, &frame), Count::Consumed);
    }
    let found = |name| path.attrs().number(name).unwrap();
    assert_eq!((found("damaged"), found("duplicated")), (broken, 1));
    assert_eq!(found("received"), broken + 2);
}
