//! Paths that come and go for as long as a node runs: what one of them had is another's
//! when nothing of it is underway, and nothing is used up.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use ashway_netns::node::{Config, at_rest, census, control, counter, entry, ip, until};
use ashway_netns::traffic::Over;
use ashway_rig::{Node, Process, Rig, RigOptions, handler, skip_unless_root};
use serde_json::json;

/// How often as many come and go: three thousand, nearly three times as many as there are
/// rows of counters. `ASHWAY_REBINDS` is another number of paths.
fn rounds() -> u32 {
    let more = std::env::var("ASHWAY_REBINDS").ok();
    more.map_or(3_000, |number| number.parse().expect("a number")) / u32::from(EACH)
}

/// Paths of a round: as many as a handler can have.
const EACH: u16 = 60;

fn bind(node: &Node, number: u16, tier: &str, owner: u32) {
    let request = json!({
        "request": "bind", "handler": "echo", "path": format!("p{number}"), "iface": ["b0"],
        "match": format!("udp and dst port {}", 10_000 + number), "tier": tier, "owner": owner,
    });
    control(node, &request).unwrap();
}

/// As many paths as a handler can have come, one of them runs in the kernel tier, and all go
/// with the process that they belong to. Each begins with counters of zero.
fn round(rig: &Rig, node: &Node, round: u32) {
    let mut sleep = Command::new("sleep");
    sleep.arg("1000");
    let owner = Process::spawn(sleep).unwrap();
    let promoted = (round % u32::from(EACH)) as u16;
    for number in 0..EACH {
        let tier = if number == promoted { "kernel" } else { "user" };
        bind(node, number, tier, owner.id());
    }
    let asked = [promoted, (promoted + 1) % EACH];
    for number in asked {
        let client = rig.client_a(10_000 + number).unwrap();
        for number in 0..3_u32 {
            let number = number.to_be_bytes();
            assert_eq!(client.ask(&number).unwrap(), number, "round {round}");
        }
    }
    let status = at_rest(node);
    for number in 0..EACH {
        let path = entry(&status, "paths", &format!("p{number}"));
        let wanted = if asked.contains(&number) { 3 } else { 0 };
        assert_eq!(path["received"], wanted, "round {round}: {path:#}");
        assert_eq!(path["fates"]["answered"], wanted, "round {round}: {path:#}");
    }
    // One goes by hand.
    unbind(node, "p0");
    drop(owner);
    until("they have gone with their owner", || {
        let status = node.status().unwrap();
        (status["paths"].as_array().unwrap().len() == 1).then_some(())
    });
}

fn unbind(node: &Node, name: &str) {
    control(node, &json!({ "request": "unbind", "path": name })).unwrap();
}

/// Paths come and go by the thousand beside one under traffic, which loses nothing; nothing
/// is left of any.
#[test]
fn paths_come_and_go_without_an_end() {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("rebind", RigOptions::default()).unwrap();
    let node = rig.node(counter("kernel").unwrap()).start().unwrap();
    let file = handler("echo").unwrap();
    let load = json!({ "request": "load", "file": file, "allow": ["reply"] });
    control(&node, &load).unwrap();
    // What is made once is made.
    round(&rig, &node, 0);
    let before = until("the node has let the round's owner go", || {
        Some(census(&node)).filter(|now| !now.keys().any(|kind| kind.contains("pidfd")))
    });
    let over = AtomicBool::new(false);
    let asked = std::thread::scope(|scope| {
        let _over = Over(&over);
        let traffic = scope.spawn(|| {
            let client = rig.client_a(7777).unwrap();
            let mut asked = 0;
            while !over.load(Ordering::Acquire) {
                asked += 1;
                // In turn, so that a lost one would be missed at once.
                assert_eq!(client.ask_number(1).unwrap(), asked);
            }
            asked
        });
        for number in 1..=rounds() {
            assert!(!traffic.is_finished(), "a message was lost");
            round(&rig, &node, number);
        }
        over.store(true, Ordering::Release);
        traffic.join().unwrap()
    });
    let status = at_rest(&node);
    let path = entry(&status, "paths", "counter");
    assert_eq!(path["fates"]["answered"], asked, "{path:#}");
    until("all is as it was before", || {
        (census(&node) == before).then_some(())
    });
    println!(
        "{} paths came and went, {asked} asked meanwhile, none lost: {before:?}",
        (rounds() + 1) * u32::from(EACH)
    );
    node.stop().unwrap();
}

/// As many paths as there are rows, at one time: the next is refused with a reason, and
/// comes when another has gone.
#[test]
fn what_is_full_is_said_and_ends_when_a_path_goes() {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("rebind-full", RigOptions::default()).unwrap();
    ip(rig.command_b("ip"), "link add b1 type veth peer name c1");
    ip(rig.command_b("ip"), "link set b1 up");
    let config = Config::on_b0("native").iface("b1", "native");
    let node = rig.node(config).start().unwrap();
    let file = handler("echo").unwrap();
    let bind = |number: usize| {
        let name = format!("h{}", number / 60);
        if number.is_multiple_of(60) {
            let load = json!({ "request": "load", "file": file, "name": name, "allow": ["reply"] });
            control(&node, &load).unwrap();
        }
        // An interface has room for as many, so the last are on another.
        let iface = if number < 1000 { "b0" } else { "b1" };
        let request = json!({
            "request": "bind", "handler": name, "path": format!("p{number}"), "iface": [iface],
            "match": format!("udp and dst port {}", 10_000 + number), "tier": "user",
        });
        control(&node, &request)
    };
    for number in 0..1024 {
        bind(number).unwrap();
    }
    let refused = bind(1024).unwrap_err();
    assert_eq!(
        refused["message"],
        "this node has 1024 paths that end in a handler, and rows of counters for no more"
    );
    assert_eq!(refused["hint"], "unbind one that is not needed");
    unbind(&node, "p7");
    bind(1024).unwrap();
    assert!(bind(1025).is_err());
    node.stop().unwrap();
}
