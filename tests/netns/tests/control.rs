//! The control socket of a node that has no descriptors left: who has asked for something
//! is answered, and what fails for that reason says so.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::process::Command;

use ashway_netns::node::{Config, PATIENCE, control, proc_status, run, text, until};
use ashway_rig::{Node, Rig, RigOptions, skip_unless_root};
use serde_json::json;

fn node(rig: &Rig) -> Node {
    let config = Config::on_b0("native").handler("counter").unwrap();
    let config = config.path("counter", 7777, "user");
    rig.node(config).start().unwrap()
}

/// Leaves the node this many free descriptors.
fn leave(node: &Node, free: usize) {
    let folder = format!("/proc/{}/fd", node.id());
    let numbers = fs::read_dir(folder).unwrap().map(|fd| {
        let name = fd.unwrap().file_name();
        name.to_str().unwrap().parse::<usize>().unwrap()
    });
    let used: BTreeSet<_> = numbers.collect();
    let first_not = (0..).filter(|number| !used.contains(number)).nth(free);
    let limit = format!("--nofile={}:", first_not.unwrap());
    let id = node.id().to_string();
    let set = run(Command::new("prlimit").args(["--pid", &id, &limit]));
    assert!(set.status.success(), "{}", text(&set));
}

/// Asks for the status and does not wait for the answer.
fn ask(node: &Node) -> UnixStream {
    let mut client = UnixStream::connect(node.socket()).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    writeln!(client, "{}", json!({ "request": "status" })).unwrap();
    client
}

/// The first line that comes.
fn hear(client: UnixStream) -> String {
    let mut line = String::new();
    BufReader::new(client).read_line(&mut line).unwrap();
    line
}

/// Clients that connect and ask for nothing take all descriptors, and give them back to who
/// asks.
#[test]
fn clients_without_a_request_keep_nobody_from_an_answer() {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("crowded", RigOptions::default()).unwrap();
    let node = node(&rig);
    leave(&node, 8);
    // If each of them had the time that a request may take, they would take a minute.
    let idle: Vec<_> = (0..100)
        .map(|_| UnixStream::connect(node.socket()).unwrap())
        .collect();
    assert!(hear(ask(&node)).starts_with("{\"ok\":"));
    drop(idle);
    assert!(hear(ask(&node)).starts_with("{\"ok\":"));
    node.stop().unwrap();
}

/// No descriptor for a client, and none to take one from: the node sleeps between two looks
/// as ever, and hears the client when there is one.
#[test]
fn a_client_that_finds_no_descriptor_is_heard_later() {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("nofds", RigOptions::default()).unwrap();
    let node = node(&rig);
    leave(&node, 0);
    let client = ask(&node);
    // Who looks at the client again and again hardly ever sleeps.
    let slept = || -> u64 {
        let slept = proc_status(node.id(), "voluntary_ctxt_switches");
        slept.parse().unwrap()
    };
    let before = slept();
    until("its loop sleeps", || (slept() > before + 50).then_some(()));
    leave(&node, 8);
    assert!(hear(client).starts_with("{\"ok\":"));
    node.stop().unwrap();
}

#[test]
fn a_promotion_without_descriptors_is_not_blamed_on_the_verifier() {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("promotefd", RigOptions::default()).unwrap();
    let node = node(&rig);
    // For who asks.
    leave(&node, 1);
    let promote = json!({ "request": "promote", "path": "counter", "shadow": 0 });
    let refused = control(&node, &promote).unwrap_err().to_string();
    leave(&node, 64);
    assert!(refused.contains("Too many open files"), "{refused}");
    assert!(refused.contains("ulimit -n"), "{refused}");
    assert!(!refused.contains("verifier"), "{refused}");
    control(&node, &promote).unwrap();
    node.stop().unwrap();
}
