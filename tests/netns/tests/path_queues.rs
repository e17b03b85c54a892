//! Input queues: a path that is flooded fills its own part of the ring, and every other
//! path finds room.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use ashway_netns::node::{Config, control, entry, freeze, until};
use ashway_netns::traffic::{Ledger, request};
use ashway_rig::{Node, Rig, RigOptions, skip_unless_root};
use rustix::process::Signal;
use serde_json::{Value, json};

/// Two paths of modules, and one that ends in a handler.
fn config(mode: &str) -> Config {
    let config = Config::on_b0(mode).handler("counter").unwrap();
    config.path("counter", 7777, "user").text(
        r#"
[module.end]
kind = "sink"
down = "udp.up"
[path.flooded]
from = "end"
attrs = { local = "10.7.0.2:5000", pathname = "eth:b0" }
[path.other]
from = "end"
attrs = { local = "10.7.0.2:5001", pathname = "eth:b0" }
"#,
    )
}

fn shown(node: &Node, path: &str) -> Value {
    control(node, &json!({ "request": "show", "path": path })).unwrap()
}

/// Messages of a path that ended like this.
fn fate(shown: &Value, fate: &str) -> u64 {
    match fate.strip_prefix("dropped_") {
        Some(reason) => shown["fates"]["dropped"][reason].as_u64().unwrap_or(0),
        None => shown["fates"][fate].as_u64().unwrap(),
    }
}

/// What a ring holds is decided when a message arrives, whoever empties it and when: the
/// node stands still meanwhile.
#[test]
fn a_flooded_path_fills_its_own_part_of_the_ring() {
    if skip_unless_root() {
        return;
    }
    for mode in ["native", "generic"] {
        let rig = Rig::new(&format!("path-queues-{mode}"), RigOptions::default()).unwrap();
        let node = rig.node(config(mode)).start().unwrap();
        let [flood, other, counter] = [5000, 5001, 7777].map(|port| rig.client_a(port).unwrap());
        // Each has been there once: the wire knows its neighbours, the worker its buffers.
        flood.send(b"first").unwrap();
        until("the first message comes", || {
            (shown(&node, "flooded")["received"] == 1).then_some(())
        });

        freeze(&node);
        for sequence in 0..1280 {
            flood.send(&request(0, sequence)).unwrap();
        }
        for sequence in 0..60 {
            other.send(&request(0, sequence)).unwrap();
            counter.send(&request(1, sequence)).unwrap();
        }
        node.signal(Signal::CONT).unwrap();

        let ended = |path, received: u64| {
            until("all messages have ended", || {
                let shown = shown(&node, path);
                let done = shown["received"] == received && shown["waiting"] == 0;
                (done && shown["balanced"] == true).then_some(shown)
            })
        };
        let flooded = ended("flooded", 1281);
        // Half of the ring is its own, and nothing else was there.
        assert_eq!(
            fate(&flooded, "dropped_queue_full"),
            1280 - 128,
            "{mode}: {flooded:#}"
        );
        assert_eq!(fate(&flooded, "consumed"), 129, "{mode}: {flooded:#}");
        let other = ended("other", 60);
        assert_eq!(fate(&other, "consumed"), 60, "{mode}: {other:#}");
        let status = until("the handler's have ended", || {
            let status = node.status().unwrap();
            (Ledger::of(&status, "counter").received == 60).then_some(status)
        });
        assert_eq!(entry(&status, "paths", "counter")["fates"]["answered"], 60);
        assert_eq!(
            status["live"]["balanced"], true,
            "{mode}: {:#}",
            status["live"]
        );
        assert_eq!(status["live"]["ring"]["dropped_ring_full"], 0, "{mode}");
        node.stop().unwrap();
    }
}

/// On packet sockets the worker decides, before it copies; a queue holds 256.
#[test]
fn a_path_on_a_packet_socket_has_a_queue_of_its_own() {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("path-queues-packet", RigOptions::default()).unwrap();
    let node = rig.node(config("packet")).start().unwrap();
    let [flood, other] = [5000, 5001].map(|port| rig.client_a(port).unwrap());
    for sequence in 0..100 {
        flood.send(&request(0, sequence)).unwrap();
        other.send(&request(0, sequence)).unwrap();
    }
    for path in ["flooded", "other"] {
        let shown = until("all messages have ended", || {
            let shown = shown(&node, path);
            (shown["received"] == 100 && shown["waiting"] == 0).then_some(shown)
        });
        assert_eq!(fate(&shown, "consumed"), 100, "{shown:#}");
        assert_eq!(shown["queues"]["in_backward"]["maximum"], 256, "{shown:#}");
    }
    let live = &node.status().unwrap()["live"];
    assert_eq!(live["balanced"], true, "{live:#}");
    node.stop().unwrap();
}
