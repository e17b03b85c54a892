//! The user tier's path for a case: eth, ip, udp, forward, udp, ip, eth.

use std::sync::Arc;

use ashway_abi::{Count, Hop};
use ashway_modules::eth::Eth;
use ashway_modules::forward::Forward;
use ashway_modules::ip::Ip;
use ashway_modules::udp::Udp;
use ashway_modules::{Message, relay, rules};
use ashway_path::attrs::{Attrs, Value};
use ashway_path::graph::Graph;
use ashway_path::module::Module;
use ashway_path::path::{Exit, Limits, Path};
use ashway_path::sim::Single;
use ashway_path::stage::Direction;
use ashway_path::time::Time;

use super::cases::{Case, Checksum, MTU, OUT, Random};

type Boxed = Box<dyn Module<Message>>;

/// The interface that the case's datagram comes by.
const IN: u32 = 1;

/// The path of a case; narrow, it knows its sender beforehand.
fn path(case: &Case, ruled: bool, narrow: bool) -> Single<Message> {
    let eth = |name: &str, number, mac: [u8; 6]| -> Boxed {
        Box::new(Eth {
            name: name.into(),
            iface: name.into(),
            number,
            mac: mac.into(),
            mtu: MTU.into(),
            xdp: true,
            down: Arc::default(),
        })
    };
    let modules: Vec<(&str, Boxed)> = vec![
        ("in", eth("in", IN, case.to.mac)),
        ("out", eth("out", OUT, case.own.mac)),
        ("ip", Box::new(Ip { name: "ip".into() })),
        ("udp", Box::new(Udp { name: "udp".into() })),
        (
            "relay",
            Box::new(Forward {
                name: "relay".into(),
            }),
        ),
    ];
    let edges = [
        ("ip.down", "in.up"),
        ("ip.down", "out.up"),
        ("udp.down", "ip.up"),
        ("relay.down", "udp.up"),
    ];
    let mut graph = Graph::connect(modules, &edges).unwrap_or_else(|found| panic!("{found:?}"));
    graph.init().unwrap();

    let mut attrs = Attrs::new();
    let text = |mac: [u8; 6]| mac.map(|byte| format!("{byte:02x}")).join(":");
    let next_mac = text(case.next.mac);
    attrs.set("local", case.to.address);
    if narrow {
        attrs.set("remote", case.from.address);
        attrs.set("next_mac", Value::of_text(&text(case.from.mac)));
    }
    attrs.set("next_hop", case.next.address);
    attrs.set("from", case.own.address);
    attrs.set("next_hop_mac", Value::of_text(&next_mac));
    attrs.set("out", "out");
    attrs.set("ttl", u64::from(case.hops));
    if let Some(id) = case.vlan_out {
        attrs.set("next_hop_vlan", u64::from(id));
    }
    let rules = if ruled { &rules::RULES[..] } else { &[] };
    let created = graph.create("relay", "in", attrs, Limits::default(), rules);
    let created = created.unwrap_or_else(|error| panic!("{error}"));
    Single::new(created.path)
}

/// What the user tier sends by interface [`OUT`], or the fate of what it drops.
pub(crate) fn send(case: &Case, frame: &[u8], ruled: bool) -> Result<Vec<u8>, Count> {
    take(
        &mut path(case, ruled, false),
        Direction::Forward,
        OUT,
        frame,
    )
}

fn take(
    path: &mut Single<Message>,
    direction: Direction,
    out: u32,
    frame: &[u8],
) -> Result<Vec<u8>, Count> {
    let exits = path.pass(direction, Message::of_frame(frame), Time(0));
    match exits.as_slice() {
        [Exit::Left { message, .. }] => {
            assert_eq!(message.meta.iface, out);
            Ok(message.bytes().to_vec())
        }
        [Exit::Ended { fate, .. }] => Err(*fate),
        other => panic!("{other:?}"),
    }
}

/// Without what the node fills in.
fn bare(hop: Hop) -> Hop {
    Hop {
        ifindex: 0,
        flags: hop.flags & !ashway_abi::hop::flag::BY_TCX,
        ..hop
    }
}

/// What the rule `promote` leaves to the kernel tier is what these tests compare.
#[test]
fn the_hops_of_a_path_are_what_it_writes() {
    let mut random = Random::new(12);
    let mut plain = 0;
    for _ in 0..600 {
        let mut case = Case::draw(&mut random);
        case.checksum = Checksum::Whole;
        // The answer: from the next hop to the relay, and on to the sender.
        let answer = Case {
            from: case.next,
            to: case.own,
            own: case.to,
            next: case.from,
            tags: case.vlan_out.into_iter().collect(),
            vlan_out: None,
            options: 0,
            ..case.clone()
        };
        for narrow in [false, true] {
            let mut path = path(&case, true, narrow);
            for mark in [rules::PROMOTE_FORWARD, rules::PROMOTE_BACKWARD] {
                assert_eq!(path.attrs().number(mark), Some(3));
            }
            let [there, back] =
                [(OUT, case.hop()), (IN, answer.hop())].map(|(iface, hop)| (iface, bare(hop)));
            let found = |path: &mut Path<Message>| {
                relay::hops(path).map(|way| way.map(|way| (way.iface, way.hop)))
            };
            if narrow {
                assert_eq!(found(&mut path), [Some(there), Some(back)], "{case:?}");
                continue;
            }
            assert_eq!(found(&mut path), [None; 2]);
            assert_eq!(relay::changes(&mut path), 0);
            let from = Some(case.sender());
            let there = (OUT, Hop { from, ..there.1 });
            let is_plain = case.tags.is_empty() && case.options == 0;
            let wanted = [there, back].map(|way| is_plain.then_some(way));
            for _ in 0..2 {
                let sent = take(&mut path, Direction::Forward, OUT, &case.received());
                assert_eq!(sent.ok(), case.wanted());
                assert_eq!(relay::changes(&mut path), 1);
                assert_eq!(found(&mut path), wanted, "{case:?}");
                let sent = take(&mut path, Direction::Backward, IN, &answer.received());
                if case.tags.is_empty() {
                    assert_eq!(sent.ok(), answer.wanted(), "{case:?}");
                }
            }
            plain += u32::from(is_plain);
        }
    }
    assert!(plain > 100, "{plain}");
}
