//! Messages of any length: in every place they reach their handler byte by byte, and each is
//! counted once; what is many messages behind one header comes as many. The host's own are the
//! host's.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use std::net::UdpSocket;
use std::time::Duration;

use ashway_netns::node::{at_rest, entry, run, text};
use ashway_netns::traffic::{Ledger, PLACES, Place, path, settle};
use ashway_rig::{Node, Rig, RigOptions, skip_unless_root};
use serde_json::json;

const PORT: u16 = 7777;
/// Largest payload over IPv6 in a packet of 9,000 bytes.
const FITS: usize = 9_000 - 40 - 8;
/// The longest that a program reads by itself.
const SHORT: usize = 4_088;

/// A wire with an MTU of 9,000 bytes at both ends; the client's device computes
/// checksums or leaves them half.
fn wire(name: &str, whole: bool) -> Rig {
    let rig = Rig::new(name, RigOptions::default()).unwrap();
    for (command, link) in [(rig.command_a("ip"), "a0"), (rig.command_b("ip"), "b0")] {
        let mut command = command;
        let output = run(command.args(["link", "set", link, "mtu", "9000"]));
        assert!(output.status.success(), "{}", text(&output));
    }
    if whole {
        let output = run(rig.command_a("ethtool").args(["-K", "a0", "tx", "off"]));
        assert!(output.status.success(), "{}", text(&output));
    }
    rig
}

/// Bytes that repeat nowhere at a slot's distance.
fn bytes(len: usize) -> Vec<u8> {
    let words = (0..len as u32).map(|at| (at / 4).wrapping_mul(0x9e37_79b1) >> (8 * (at % 4)));
    words.map(|word| word as u8).collect()
}

#[test]
fn long_messages_reach_their_handler_in_every_place() {
    if skip_unless_root() {
        return;
    }
    for place in PLACES {
        for whole in [false, true] {
            let rig = wire(
                &format!("jumbo-{}-{}-{whole}", place.mode, place.tier),
                whole,
            );
            let node = echo(&rig, place, "");
            let place = format!("{place}, whole checksums: {whole}");

            // The host's own, with and without fragments.
            let own = rig.in_b(|| UdpSocket::bind("[::]:9000")).unwrap();
            own.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            let mut got = vec![0; 65_536];
            for client in [rig.client_a(9000).unwrap(), rig.client_a_v6(9000).unwrap()] {
                for len in [5_000, 8_900, 20_000] {
                    client.send(&vec![7; len]).unwrap();
                    assert_eq!(own.recv(&mut got).unwrap(), len, "{place}");
                }
            }

            // A path's.
            let lens = [100, SHORT, SHORT + 1, 8_000, FITS, 100];
            let clients = [rig.client_a(PORT).unwrap(), rig.client_a_v6(PORT).unwrap()];
            for client in &clients {
                for len in lens {
                    let echo = client.ask(&bytes(len)).unwrap();
                    assert!(echo == bytes(len), "{place}: {len} bytes");
                }
            }
            let ledger = settle(&node, "echo", 2 * lens.len() as u64);
            ledger.assert_fates(&[("answered", 2 * lens.len() as u64)], &place);
            if place.starts_with("kernel") {
                assert_led(&ledger, 2 * 3, &place);
            }
            node.stop().unwrap();
        }
    }
}

/// Asserts that the kernel tier led at least so many messages on for their length; behind one of
/// them another may be led on for their order.
fn assert_led(ledger: &Ledger, long: u64, place: &dyn std::fmt::Display) {
    let note = |name| ledger.notes.get(name).copied().unwrap_or(0);
    assert!(note("queued_long") > 0, "{place}: {ledger:?}");
    let led = note("queued_long") + note("queued_order");
    assert!(led >= long, "{place}: {ledger:?}");
    assert_eq!(note("queued_tier"), 0, "{place}: {ledger:?}");
}

/// A node with one path to the handler `echo`, in this place.
fn echo(rig: &Rig, place: Place, more: &str) -> Node {
    let config = place.config().handler("echo").unwrap();
    let config = path(config, "echo", "echo", PORT, place, "").text(more);
    let node = rig.node(config).start().unwrap();
    let tier = entry(&node.status().unwrap(), "paths", "echo")["tier"].clone();
    assert_eq!(tier, place.tier, "{place}: {}", node.output());
    node
}

/// A datagram of 60,000 bytes comes as fragments, and its answer leaves so.
#[test]
fn the_longest_messages_come_and_go_as_fragments() {
    if skip_unless_root() {
        return;
    }
    for place in PLACES.into_iter().filter(|place| place.tier == "user") {
        for mtu in ["1500", "9000"] {
            let rig = wire(&format!("jumbo-frag-{}-{mtu}", place.mode), false);
            for (mut command, link) in [(rig.command_a("ip"), "a0"), (rig.command_b("ip"), "b0")] {
                let output = run(command.args(["link", "set", link, "mtu", mtu]));
                assert!(output.status.success(), "{}", text(&output));
            }
            let config = place.config().handler("echo").unwrap().text(WITH_FRAGMENTS);
            let node = rig.node(config).start().unwrap();
            let client = rig.client_a(PORT).unwrap();
            for len in [100, 8_000, 60_000, 65_000] {
                let echo = client.ask(&bytes(len)).unwrap();
                assert!(echo == bytes(len), "{place}, {mtu}: {len} bytes");
            }
            let status = at_rest(&node);
            let echo = entry(&status, "paths", "echo");
            assert_eq!(echo["received"], 4, "{place}, {mtu}: {echo:#}");
            assert_eq!(echo["fates"]["answered"], 4, "{place}, {mtu}: {echo:#}");
            assert_eq!(
                status["module_paths"]["balanced"], true,
                "{place}: {status:#}"
            );
            node.stop().unwrap();
        }
    }
}

/// A path for all fragments.
const FRAGMENTS: &str = r#"
[module.frag]
kind = "fragment"
down = "eth:b0.up"
[path.frags]
from = "frag"
attrs = { pathname = "eth:b0" }
"#;

/// The same, and one of a handler whose answers are cut.
const WITH_FRAGMENTS: &str = r#"
[module.frag]
kind = "fragment"
down = "eth:b0.up"
up = "ip.down"
[module.ip]
kind = "ip"
[module.udp]
kind = "udp"
down = "ip.up"
[path.frags]
from = "frag"
attrs = { pathname = "eth:b0" }
[path.echo]
from = "handler:echo"
attrs = { pathname = "udp/ip/frag/eth:b0", local = "10.7.0.2:7777" }
"#;

/// A long message whose path has nothing that cuts reaches its handler all the same: its answer
/// is longer than the link takes.
#[test]
fn an_answer_that_nobody_cuts_is_counted() {
    if skip_unless_root() {
        return;
    }
    for place in PLACES {
        let rig = wire(&format!("jumbo-uncut-{}-{}", place.mode, place.tier), false);
        let node = echo(&rig, place, FRAGMENTS);
        let client = rig.client_a(PORT).unwrap();
        client.send(&bytes(60_000)).unwrap();
        assert_eq!(client.ask(&bytes(100)).unwrap(), bytes(100), "{place}");
        let ledger = settle(&node, "echo", 2);
        ledger.assert_fates(&[("answered", 2)], &place);
        let status = at_rest(&node);
        let dropped = &entry(&status, "paths", "echo")["out"]["dropped"];
        assert_eq!(dropped, &json!({ "too_long": 1 }), "{place}");
        node.stop().unwrap();
    }
}

/// A sender's batch is as many messages as it was made of, each with its own answer.
#[test]
fn a_senders_batch_is_many_messages() {
    const SIZE: usize = 1000;
    if skip_unless_root() {
        return;
    }
    for place in PLACES
        .into_iter()
        .filter(|place| ["tcx", "packet"].contains(&place.mode))
    {
        let rig = Rig::new(&format!("batch-{}", place.tier), RigOptions::default()).unwrap();
        let node = echo(&rig, place, "");
        let mut sent = 0;
        for client in [rig.client_a(PORT).unwrap(), rig.client_a_v6(PORT).unwrap()] {
            client.segment(SIZE as u16).unwrap();
            // One that is a batch of one, too.
            for len in [SIZE, 2 * SIZE, 10 * SIZE + 1, 50 * SIZE + 999, 300] {
                let batch = bytes(len);
                client.send(&batch).unwrap();
                for piece in batch.chunks(SIZE) {
                    assert!(client.receive().unwrap() == piece, "{place}: {len} bytes");
                    sent += 1;
                }
            }
        }
        let ledger = settle(&node, "echo", sent);
        ledger.assert_fates(&[("answered", sent)], &place);
        if place.tier == "kernel" {
            let alone = 2 * 2;
            assert_led(&ledger, sent - alone, &place);
        }
        node.stop().unwrap();
    }
}
