//! A node without messages does not run: no thread of it, for no time at all. And what it
//! noticed by looking again and again before, it is told.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use ashway_netns::node::{Config, PATIENCE, control};
use ashway_rig::{Node, Process, Rig, RigOptions, Signal, handler, skip_unless_root};
use serde_json::json;

/// How long a node must not run. Longer than anything that it looked at by time before, and
/// shorter than the minute after which it looks for an XDP link that somebody detached.
const IDLE: Duration = Duration::from_secs(5);

/// What each thread of the node has run so far: how long, how long it waited for a CPU, and
/// how often (`/proc/PID/task/TID/schedstat`), by its name.
fn ran(node: &Node) -> BTreeMap<String, String> {
    let tasks = fs::read_dir(format!("/proc/{}/task", node.id())).unwrap();
    let tasks = tasks.map(|task| task.unwrap().path());
    let read = |path| fs::read_to_string(path).unwrap().trim().to_owned();
    tasks
        .map(|task| (read(task.join("comm")), read(task.join("schedstat"))))
        .collect()
}

/// Waits until the node does nothing, and sees that it stays so: not one thread is woken, not
/// once. What is done at the end of what it did last takes its time; a node that looks again
/// and again never comes to rest.
fn assert_rests(node: &Node, what: &str) {
    let end = Instant::now() + PATIENCE + IDLE;
    let (mut before, mut since) = (ran(node), Instant::now());
    while since.elapsed() < IDLE {
        sleep(Duration::from_millis(100));
        let now = ran(node);
        if now != before {
            assert!(Instant::now() < end, "{what}: {before:?}, then {now:?}");
            (before, since) = (now, Instant::now());
        }
    }
}

/// A wire on which the kernel itself is silent, too: no router is looked for.
fn rig(name: &str) -> Rig {
    let rig = Rig::new(name, RigOptions::default()).unwrap();
    for (command, link) in [
        (rig.command_a("sysctl"), "a0"),
        (rig.command_b("sysctl"), "b0"),
    ] {
        let mut command = command;
        let key = format!("net.ipv6.conf.{link}.disable_ipv6=1");
        assert!(command.args(["-q", "-w", &key]).status().unwrap().success());
    }
    rig
}

fn node(rig: &Rig, mode: &str, tier: &str) -> Node {
    let config = Config::on_b0(mode).handler("counter").unwrap();
    let config = config.path("counter", 7777, tier).text(
        "[module.end]\nkind = \"sink\"\ndown = \"udp.up\"\n\
         [path.end]\nfrom = \"end\"\nattrs = { local = \"10.7.0.2:7000\" }",
    );
    rig.node(config).start().unwrap()
}

#[test]
fn a_node_without_messages_does_not_run() {
    if skip_unless_root() {
        return;
    }
    let places = [
        ("native", "kernel"),
        ("native", "user"),
        ("auto", "kernel"),
        ("generic", "user"),
        ("packet", "user"),
    ];
    for (mode, tier) in places {
        let rig = rig(&format!("idle-{mode}-{tier}"));
        let node = node(&rig, mode, tier);
        let what = format!("{mode}, {tier}");
        assert_rests(&node, &what);
        // Nor behind messages, and requests.
        let client = rig.client_a(7777).unwrap();
        for number in 1..100 {
            assert_eq!(client.ask_number(1).unwrap(), number, "{what}");
        }
        node.status().unwrap();
        let path = json!({
            "name": "more", "module": "end", "attrs": { "local": "10.7.0.2:7001" },
        });
        control(&node, &json!({ "request": "create", "paths": [path] })).unwrap();
        control(&node, &json!({ "request": "remove", "paths": ["more"] })).unwrap();
        assert_rests(&node, &what);
        assert_eq!(client.ask_number(1).unwrap(), 100, "{what}");
        node.stop().unwrap();
    }
}

/// While nobody asks, so that nothing but the kernel's word can tell.
#[test]
fn a_node_that_rests_is_told_what_happens_to_its_interface() {
    if skip_unless_root() {
        return;
    }
    for mode in ["native", "packet"] {
        let rig = rig(&format!("told-{mode}"));
        let mut node = node(&rig, mode, "user");
        assert_rests(&node, mode);
        let ip = |words: &str| {
            let mut ip = rig.command_b("ip");
            assert!(ip.args(words.split(' ')).status().unwrap().success());
        };
        let said = |line: &str| node.wait_for_line(|said| said.starts_with(line)).unwrap();
        ip("link set b0 address 02:00:00:00:77:99");
        said("interface `b0` has the hardware address 02:00:00:00:77:99");
        ip("link set b0 down");
        said("interface `b0` is down");
        assert_rests(&node, mode);
        ip("link set b0 up");
        said("interface `b0` is up again");
        assert_rests(&node, mode);
        if mode == "native" {
            let mut detach = rig.ashway_b().unwrap();
            let detached = detach.args(["iface", "detach", "b0"]).output().unwrap();
            assert!(detached.status.success());
            said("interface `b0` was detached from this node");
            assert_eq!(node.wait().unwrap().code(), Some(1), "{}", node.output());
        } else {
            // It may be made again.
            ip("link del b0");
            said("interface `b0` is gone");
            assert_rests(&node, mode);
            node.stop().unwrap();
        }
    }
}

/// The end of a process is told, too.
#[test]
fn a_node_that_rests_is_told_when_an_owner_ends() {
    if skip_unless_root() {
        return;
    }
    let rig = rig("idle-owner");
    let node = node(&rig, "native", "user");
    let mut sleep = Command::new("sleep");
    sleep.arg("1000");
    let mut owner = Process::spawn(sleep).unwrap();
    let file = handler("echo").unwrap();
    let load = json!({
        "request": "load", "file": file, "name": "own", "allow": ["reply"], "owner": owner.id(),
    });
    control(&node, &load).unwrap();
    assert_rests(&node, "with an owner");
    owner.signal(Signal::KILL).unwrap();
    owner.wait(PATIENCE).unwrap();
    let line = format!("process {} has ended", owner.id());
    node.wait_for_line(|said| said.starts_with(&line)).unwrap();
    assert_rests(&node, "behind it");
    node.stop().unwrap();
}

/// A next hop that the kernel is sure of needs no look; one that changes is told.
#[test]
fn a_node_that_rests_is_told_of_its_neighbours() {
    if skip_unless_root() {
        return;
    }
    let rig = rig("idle-neighbour");
    let ip = |words: &str| {
        let mut ip = rig.command_b("ip");
        assert!(ip.args(words.split(' ')).status().unwrap().success());
    };
    let neighbour = |mac: &str| {
        ip(&format!(
            "neigh replace 10.8.0.3 lladdr {mac} nud permanent dev b1"
        ));
    };
    let [first, other] = ["02:00:00:00:00:aa", "02:00:00:00:00:bb"];
    ip("link add b1 type veth peer name b2");
    for link in ["b1", "b2"] {
        ip(&format!("link set {link} addrgenmode none"));
        ip(&format!("link set {link} up"));
    }
    ip("addr add 10.8.0.2/24 dev b1");
    neighbour(first);
    let config = Config::on_b0("native").iface("b1", "native").text(
        "[module.relay]\nkind = \"forward\"\ndown = \"udp.up\"\n\
         [path.relay]\nfrom = \"eth:b0\"\nattrs = { pathname = \"udp/relay\", \
         local = \"10.7.0.2:5000\", next_hop = \"10.8.0.3:6000\", \
         from = \"10.8.0.2:7000\", out = \"eth:b1\" }",
    );
    let node = rig.node(config).start().unwrap();
    assert_rests(&node, "with a neighbour");
    neighbour(other);
    assert_rests(&node, "behind the change");
    // It looks when it has answered, so this is what it knew before.
    let shown = control(&node, &json!({ "request": "show", "path": "relay" })).unwrap();
    assert_eq!(shown["next_hop"]["mac"], other, "{shown:#}");
    node.stop().unwrap();
}
