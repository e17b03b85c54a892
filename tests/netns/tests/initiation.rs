//! What a handler begins by itself: messages to other peers (ASH-9), and functions
//! that a message names (ASH-10); and that nobody does so ungranted (ASH-23).

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use std::net::UdpSocket;

use ashway_netns::node::{Config, PATIENCE, entry, text, until};
use ashway_netns::traffic::{Ledger, PLACES, Place, settle};
use ashway_rig::{A4, A6, Node, Rig, RigOptions, handler, skip_unless_root};
use serde_json::Value;

/// The handler with these lines in its section, on port 7010.
fn fanout(config: Config, tier: &str, lines: &str) -> Config {
    let file = handler("fanout").unwrap();
    let file = file.to_string_lossy();
    let section = format!("[handler.fanout]\nfile = {file:?}\n{lines}");
    config.text(&section).path("fanout", 7010, tier)
}

/// What a path has sent when so many messages are handed over: each is heard before it is
/// counted.
fn handed_over(node: &Node, path: &str, count: u64) -> Value {
    until("all that was heard is counted", || {
        let out = entry(&node.status().unwrap(), "paths", path)["out"].clone();
        (out["handed_over"] == count).then_some(out)
    })
}

fn user_places() -> impl Iterator<Item = Place> {
    PLACES.into_iter().filter(|place| place.tier == "user")
}

#[test]
fn one_request_makes_messages_to_several_peers() {
    const ROUNDS: u64 = 20;
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("fanout", RigOptions::default()).unwrap();
    let peers = rig.in_a(|| {
        let four = |port| UdpSocket::bind((A4, port)).unwrap();
        [four(9001), four(9002), UdpSocket::bind((A6, 9003)).unwrap()]
    });
    for peer in &peers {
        peer.set_read_timeout(Some(PATIENCE)).unwrap();
    }
    for place in user_places() {
        // Nobody is on the last one's network.
        let lines = format!(
            "allow = [\"reply\", \"send\"]\nsend_port = 7011\n\
             channels = [\"{A4}:9001\", \"{A4}:9002\", \"[{A6}]:9003\", \"10.99.0.1:9\"]"
        );
        let node = rig.node(fanout(place.config(), place.tier, &lines));
        let node = node.start().unwrap();
        let client = rig.client_a(7010).unwrap();
        for round in 0..ROUNDS as u8 {
            let request = [&[6][..], b"round ", &[round]].concat();
            // The fourth was accepted, too: that it has no way shows in the books.
            let reply = [&[4][..], b"round ", &[round]].concat();
            assert_eq!(client.ask(&request).unwrap(), reply, "{place}");
            for (number, peer) in (0_u32..).zip(&peers) {
                let mut bytes = [0; 64];
                let (len, from) = peer.recv_from(&mut bytes).unwrap();
                let expected = [&number.to_be_bytes()[..], &request[1..]].concat();
                assert_eq!(bytes[..len], expected, "{place}");
                assert_eq!(from.port(), 7011, "{place}");
            }
        }
        client.send(&[255]).unwrap();
        let mut bytes = [0; 64];
        let (len, _) = peers[0].recv_from(&mut bytes).unwrap();
        assert_eq!(bytes[..len], [255], "{place}: the clone");

        let fates = [("answered", ROUNDS), ("consumed", 1)];
        settle(&node, "fanout", ROUNDS + 1).assert_fates(&fates, &place);
        // Four messages and a reply each time, and the clone.
        let out = handed_over(&node, "fanout", ROUNDS * 4 + 1);
        assert_eq!(out["originated"], ROUNDS * 5 + 1, "{place}: {out}");
        assert_eq!(out["dropped"]["no_route"], ROUNDS, "{place}: {out}");
        node.stop().unwrap();
    }
}

/// The kernel tier has no message to send; the handler stays where there is one, and
/// says which line keeps it there.
#[test]
fn a_handler_that_sends_stays_in_the_user_tier() {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("staying", RigOptions::default()).unwrap();
    let lines = format!("allow = [\"reply\", \"send\"]\nchannels = [\"{A4}:9001\"]");
    let node = rig.node(fanout(Config::on_b0("native"), "auto", &lines));
    let node = node.start().unwrap();
    let status = node.status().unwrap();
    assert_eq!(entry(&status, "paths", "fanout")["tier"], "user");
    let promotion = &entry(&status, "handlers", "fanout")["promotion"];
    let line = promotion["line"].as_str().unwrap();
    assert!(line.starts_with("apps/handlers/fanout.c:"), "{promotion:#}");
    let because = promotion["because"].as_str().unwrap();
    assert!(because.contains("is a call of the user tier"), "{because}");
    let client = rig.client_a(7010).unwrap();
    assert_eq!(client.ask(&[1, 7]).unwrap(), [1, 7]);
    node.stop().unwrap();
}

#[test]
fn nobody_sends_ungranted() {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("grants", RigOptions::default()).unwrap();
    let lines = format!("allow = [\"reply\"]\nchannels = [\"{A4}:9001\"]");
    let node = rig.node(fanout(Config::on_b0("packet"), "user", &lines));
    let mut node = node.launch().unwrap();
    assert_eq!(node.wait().unwrap().code(), Some(2), "{}", node.output());
    let said = node.output();
    assert!(
        said.contains("`msg_clone`, `send`, which were not granted to it"),
        "{said}"
    );
    assert!(said.contains("add \"send\" to `allow`"), "{said}");
    let checked = ashway_netns::node::run(
        std::process::Command::new(ashway_rig::ashway().unwrap())
            .arg("check")
            .arg(node.config()),
    );
    assert_eq!(checked.status.code(), Some(2), "{}", text(&checked));
}

/// ASH-10: the message names a function of the module, in every place.
#[test]
fn a_message_names_the_function_it_wants() {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("active", RigOptions::default()).unwrap();
    for place in PLACES {
        let config = place.config().handler("active").unwrap();
        let node = rig.node(config.path("active", 7012, place.tier));
        let node = node.start().unwrap();
        let status = node.status().unwrap();
        let tier = &entry(&status, "paths", "active")["tier"];
        assert_eq!(tier, place.tier, "{place}: {}", node.output());
        let client = rig.client_a(7012).unwrap();
        let call = |number: u32, argument: u32| {
            let request = [number.to_be_bytes(), argument.to_be_bytes()].concat();
            let reply = client.ask(&request).unwrap();
            assert_eq!(reply[..4], request[..4], "{place}");
            u32::from_be_bytes(reply[4..].try_into().unwrap())
        };
        let mut total = 0_u32;
        for i in 0..50_u32 {
            let argument = i.wrapping_mul(0x9e37_79b9);
            total = total.wrapping_add(argument);
            assert_eq!(call(0, argument), total, "{place}");
            assert_eq!(
                call(1, argument),
                argument.wrapping_mul(argument),
                "{place}"
            );
            assert_eq!(call(2, argument), argument.count_ones(), "{place}");
        }
        // Numbers that nobody has registered.
        for number in [3, 4, u32::MAX] {
            client
                .send(&[number.to_be_bytes(), [0; 4]].concat())
                .unwrap();
        }
        let fates = [("answered", 150), ("dropped_handler", 3)];
        settle(&node, "active", 153).assert_fates(&fates, &place);
        node.stop().unwrap();
    }
}

/// A handler that runs by itself: one request, and a message for each time it does.
#[test]
fn a_timer_runs_the_handler_without_a_message() {
    const BEATS: u32 = 20;
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("beat", RigOptions::default()).unwrap();
    let peer = rig.in_a(|| UdpSocket::bind((A4, 9004)).unwrap());
    peer.set_read_timeout(Some(PATIENCE)).unwrap();
    for place in user_places() {
        let file = handler("beat").unwrap();
        let config = place.config().text(&format!(
            "[handler.beat]\nfile = {file:?}\nallow = [\"send\", \"timer\"]\n\
             channels = [\"{A4}:9004\"]"
        ));
        let node = rig.node(config.path("beat", 7013, place.tier));
        let node = node.start().unwrap();
        let client = rig.client_a(7013).unwrap();
        // Set off before it is due, for all that the clock of a busy machine says.
        client.send(&0_u32.to_be_bytes()).unwrap();
        // From another CPU, the second could be the first to arrive.
        let _ = settle(&node, "beat", 1);
        client.send(&BEATS.to_be_bytes()).unwrap();
        let mut bytes = [0; 16];
        for number in 1..=BEATS {
            let (len, _) = peer.recv_from(&mut bytes).unwrap_or_else(|why| {
                let ledger = Ledger::of(&node.status().unwrap(), "beat");
                panic!("{place}: beat {number}: {why}: {ledger:?}")
            });
            assert_eq!(bytes[..len], number.to_be_bytes(), "{place}");
        }
        settle(&node, "beat", 2).assert_fates(&[("consumed", 2)], &place);
        let out = handed_over(&node, "beat", u64::from(BEATS));
        assert_eq!(out["originated"], BEATS, "{place}: {out}");
        node.stop().unwrap();
    }
}
