//! Order by flows: a message that cannot run in the kernel tier holds up its own flow, and no
//! other; on a path that says so, all of it or none.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ashway_netns::node::{PATIENCE, at_rest, entry, freeze};
use ashway_netns::traffic::{Ledger, Place, hear, in_order, path, request, settle};
use ashway_rig::{B4, Node, Rig, UdpClient, skip_unless_root};
use rustix::process::Signal;

const PORT: u16 = 7777;

/// Flows, of which the first crosses always.
const FLOWS: usize = 100;

/// Messages behind one header.
const SEGMENTS: u32 = 3;

/// How a flow's messages are made such that they cannot run in the kernel tier.
#[derive(Clone, Copy, Debug)]
enum Crosses {
    /// Behind IPv4 options, where programs have no arena.
    Options,
    /// As many behind one header, which XDP on a veth never sees.
    Segments,
}

/// Where such a flow crosses, and how.
const PLACES: [(Place, Crosses); 2] = [
    (
        Place {
            mode: "native",
            tier: "kernel",
        },
        Crosses::Options,
    ),
    (
        Place {
            mode: "tcx",
            tier: "kernel",
        },
        Crosses::Segments,
    ),
];

impl Crosses {
    /// Has the messages of a flow cross, or no longer.
    fn set(self, flow: &UdpClient, crosses: bool) {
        match self {
            Self::Options => flow.options(crosses.into()).unwrap(),
            Self::Segments => flow.segment(if crosses { 8 } else { 0 }).unwrap(),
        }
    }

    /// Sends messages that cross, of these numbers and the next; the number behind them.
    fn send(self, flow: &UdpClient, number: u32) -> u32 {
        let count = match self {
            Self::Options => 1,
            Self::Segments => SEGMENTS,
        };
        let numbers = number..number + count;
        let all: Vec<u8> = numbers.flat_map(|number| request(1, number)).collect();
        flow.send(&all).unwrap();
        number + count
    }
}

fn node(rig: &Rig, place: Place, crosses: Crosses, order: &str) -> Node {
    let mut config = place.config().handler("echo").unwrap();
    if let Crosses::Options = crosses {
        config = config.text("memory = \"array\"");
    }
    let order = format!("order = {order:?}");
    let node = rig.node(path(config, "flow", "echo", PORT, place, &order));
    node.start().unwrap()
}

/// Clients whose messages are flows of their own.
fn flows(rig: &Rig, number: usize) -> Vec<UdpClient> {
    let server = SocketAddr::new(IpAddr::V4(B4), PORT);
    let ports = 20_000..20_000 + number as u16;
    ports
        .map(|port| rig.in_a(|| UdpClient::connect_from(port, server)).unwrap())
        .collect()
}

/// Messages that hold up flows, as the node says once it is at rest.
fn in_flows(node: &Node) -> u64 {
    let status = at_rest(node);
    entry(&status, "handlers", "echo")["in_flows"]
        .as_u64()
        .unwrap()
}

/// The worker stands still, and messages of one flow wait for it. All others are answered, by
/// the kernel tier; those of the flow are answered in their order when it goes on. A seed decides
/// which flows share a bucket: of 99 one does in a run of 40, and three in one of 100,000.
#[test]
fn a_message_that_crosses_holds_up_its_own_flow() {
    const ROUNDS: u32 = 3;
    if skip_unless_root() {
        return;
    }
    for (place, crosses) in PLACES {
        let rig = in_order("flows");
        let node = node(&rig, place, crosses, "flow");
        let flows = flows(&rig, FLOWS);
        let (first, others) = flows.split_first().unwrap();
        // Whoever is asked for the first time looks for the other's address.
        for flow in &flows {
            flow.ask(&request(0, 0)).unwrap();
        }
        let mut received = flows.len() as u64;
        let before = settle(&node, "flow", received);
        assert_eq!(in_flows(&node), 0);

        freeze(&node);
        crosses.set(first, true);
        let mut sent = 0;
        for round in 0..ROUNDS {
            sent = crosses.send(first, sent);
            if round == 0 {
                // What could run waits as well, behind those.
                crosses.set(first, false);
                first.send(&request(1, sent)).unwrap();
                sent += 1;
                crosses.set(first, true);
            }
        }
        received += u64::from(sent);
        let mut held = Vec::new();
        for flow in others {
            flow.set_timeout(Duration::from_secs(2)).unwrap();
            for round in 0..ROUNDS {
                received += 1;
                flow.send(&request(2, round)).unwrap();
                if flow.receive().is_err() {
                    held.push((flow, round));
                    break;
                }
            }
        }
        node.signal(Signal::CONT).unwrap();
        assert!(held.len() < 3, "{place}: {} of 99 were held up", held.len());
        for (flow, round) in &held {
            flow.set_timeout(PATIENCE).unwrap();
            assert_eq!(hear(flow.socket()), (2, *round));
        }
        for expected in 0..sent {
            assert_eq!(hear(first.socket()), (1, expected), "{place}: overtaken");
        }
        let ledger = settle(&node, "flow", received);
        ledger.assert_fates(&[("answered", received)], &place);
        let queued = |ledger: &Ledger| {
            let notes = ledger.notes.iter();
            let queued = notes.filter(|(name, _)| name.starts_with("queued_"));
            queued.map(|(_, times)| times).sum::<u64>()
        };
        println!(
            "{place}: {:?}, {} share the bucket",
            ledger.notes,
            held.len()
        );
        let waited = u64::from(sent) + held.len() as u64;
        assert_eq!(
            queued(&ledger) - queued(&before),
            waited,
            "{place}: {ledger:?}"
        );
        assert_eq!(ledger.notes.get("queued_tier"), None, "{place}: {ledger:?}");
        // Whatever waited has left: the flow goes by the kernel tier again.
        assert_eq!(in_flows(&node), 0, "{place}");
        crosses.set(first, false);
        freeze(&node);
        first.ask(&request(3, 0)).unwrap();
        node.signal(Signal::CONT).unwrap();
        node.stop().unwrap();
    }
}

/// The same while the worker works: each flow is in its order, whatever finds the instance busy.
#[test]
fn each_flow_keeps_its_order_while_one_crosses() {
    const ROUNDS: u32 = 200;
    if skip_unless_root() {
        return;
    }
    for (place, crosses) in PLACES {
        let rig = in_order("flows-live");
        let node = node(&rig, place, crosses, "flow");
        let flows = flows(&rig, 20);
        let (first, others) = flows.split_first().unwrap();
        crosses.set(first, true);
        let (mut sent, mut heard) = (0, 0);
        for round in 0..ROUNDS {
            for _ in 0..4 {
                sent = crosses.send(first, sent);
            }
            for flow in others {
                flow.send(&request(2, 2 * round)).unwrap();
                flow.send(&request(2, 2 * round + 1)).unwrap();
            }
            while heard < sent {
                assert_eq!(hear(first.socket()), (1, heard), "{place}: overtaken");
                heard += 1;
            }
            for flow in others {
                for number in [2 * round, 2 * round + 1] {
                    assert_eq!(hear(flow.socket()), (2, number), "{place}: overtaken");
                }
            }
        }
        let received = u64::from(sent) + 2 * u64::from(ROUNDS) * others.len() as u64;
        let ledger = settle(&node, "flow", received);
        println!("{place}: {received} messages, {:?}", ledger.notes);
        ledger.assert_fates(&[("answered", received)], &place);
        assert_eq!(in_flows(&node), 0, "{place}");
        node.stop().unwrap();
    }
}

/// Where none is asked for, a message is answered before those of its own flow that wait; where
/// the path's is, those of others wait, too.
#[test]
fn a_path_says_what_waits() {
    if skip_unless_root() {
        return;
    }
    for (place, crosses) in PLACES {
        for order in ["none", "path"] {
            let rig = in_order("flows-rule");
            let node = node(&rig, place, crosses, order);
            let shown = node.status().unwrap();
            assert_eq!(entry(&shown, "paths", "flow")["order"], order);
            let flows = flows(&rig, 2);
            for flow in &flows {
                flow.ask(&request(0, 0)).unwrap();
            }
            let mut received = flows.len() as u64;
            let _ = settle(&node, "flow", received);
            freeze(&node);
            crosses.set(&flows[0], true);
            let sent = crosses.send(&flows[0], 0);
            crosses.set(&flows[0], false);
            if order == "none" {
                for flow in &flows {
                    assert_eq!(flow.ask(&request(2, 9)).unwrap(), request(2, 9), "{place}");
                }
            } else {
                flows[1].send(&request(2, 9)).unwrap();
                flows[1].set_timeout(Duration::from_millis(300)).unwrap();
                flows[1].receive().expect_err("it waits");
                flows[1].set_timeout(PATIENCE).unwrap();
            }
            node.signal(Signal::CONT).unwrap();
            for expected in 0..sent {
                assert_eq!(hear(flows[0].socket()), (1, expected), "{place}");
            }
            received += u64::from(sent);
            if order == "none" {
                received += 2;
            } else {
                assert_eq!(hear(flows[1].socket()), (2, 9));
                received += 1;
            }
            let ledger = settle(&node, "flow", received);
            ledger.assert_fates(&[("answered", received)], &place);
            let waited = ledger.notes.get("queued_order").copied().unwrap_or(0);
            assert_eq!(waited, u64::from(order == "path"), "{place}: {ledger:?}");
            assert_eq!(in_flows(&node), 0, "{place}");
            node.stop().unwrap();
        }
    }
}
