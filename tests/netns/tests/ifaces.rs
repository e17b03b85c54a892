//! Interfaces that come to a running node and go, by `apply`: what is at other interfaces goes on
//! meanwhile, and nothing is left of them.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use std::fs;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ashway_netns::node::{Config, at_rest, census, control, entry, ip, ordinary, run, text, until};
use ashway_netns::traffic::{Ledger, Over, settle};
use ashway_rig::{Node, Rig, RigOptions, UdpClient, skip_unless_root};
use serde_json::{Value, json};

/// Each way to have an interface, in both tiers.
const PLACES: [(&str, &str); 5] = [
    ("auto", "kernel"),
    ("auto", "user"),
    ("xdp", "kernel"),
    ("xdp", "user"),
    ("packet", "user"),
];

/// How often an interface comes and goes.
const ROUNDS: u32 = 10;

/// A wire `aN` - `NAME`, with 10.9.N.1 and 10.9.N.2.
fn add_wire(rig: &Rig, number: u32, name: &str) {
    let b = rig.b().name();
    let add = format!("link add a{number} type veth peer name {name} netns {b}");
    ip(rig.command_a("ip"), &add);
    for line in [
        format!("addr add 10.9.{number}.1/24 dev a{number}"),
        format!("link set a{number} up"),
    ] {
        ip(rig.command_a("ip"), &line);
    }
    let gro = run(rig
        .command_a("ethtool")
        .args(["-K", &format!("a{number}"), "gro", "on"]));
    assert!(gro.status.success(), "{}", text(&gro));
    for line in [
        format!("addr add 10.9.{number}.2/24 dev {name}"),
        format!("link set {name} up"),
    ] {
        ip(rig.command_b("ip"), &line);
    }
}

/// A client of the interface of this wire.
fn far(rig: &Rig, number: u32, port: u16) -> UdpClient {
    let address: SocketAddr = format!("10.9.{number}.2:{port}").parse().unwrap();
    rig.in_a(|| UdpClient::connect(address)).unwrap()
}

fn apply(node: &Node, config: &Config) -> Result<Value, Value> {
    fs::write(node.config(), String::from(config.clone())).unwrap();
    control(node, &json!({ "request": "apply", "file": node.config() }))
}

fn texts(answer: &Value) -> Vec<&str> {
    let steps = answer["steps"].as_array().unwrap();
    steps
        .iter()
        .map(|step| step["text"].as_str().unwrap())
        .collect()
}

/// These make interfaces by the dozen, for which the kernel has one lock for the whole machine
/// (RTNL); a queue that was left is free only when that can be had (`xp_release_deferred`).
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The counter at 7777 of `b0`, and of `b1` if that is there.
fn counter(mode: &str, tier: &str, with_b1: bool) -> Config {
    let config = Config::on_b0(mode);
    let (config, ifaces) = if with_b1 {
        (config.iface("b1", mode), "['b0', 'b1']")
    } else {
        (config, "['b0']")
    };
    let config = config.handler("counter").unwrap();
    config.path_on(ifaces, "counter", 7777, tier)
}

#[test]
fn an_interface_comes_and_goes_by_apply_and_its_paths_go_on() {
    if skip_unless_root() {
        return;
    }
    let _alone = alone();
    for (mode, tier) in PLACES {
        let place = format!("{mode}, {tier}");
        let rig = Rig::new(&format!("ifaces-{mode}-{tier}"), RigOptions::default()).unwrap();
        add_wire(&rig, 1, "b1");
        let node = rig.node(counter(mode, tier, false)).start().unwrap();
        let host = ordinary(&rig, 7777);
        let near = rig.client_a(7777).unwrap();
        assert_eq!(near.ask_number(0).unwrap(), 0);
        let before = census(&node);
        let over = AtomicBool::new(false);
        let (asked, asked_far) = std::thread::scope(|scope| {
            let ends = Over(&over);
            let beside = scope.spawn(|| {
                let (mut asked, mut last) = (0_u32, 0);
                while !over.load(Ordering::Acquire) {
                    // In turn, so that a lost one would be missed at once. The other
                    // interface's clients add to the same count.
                    let now = near.ask_number(1).unwrap();
                    assert!(now > last, "{place}");
                    (asked, last) = (asked + 1, now);
                }
                asked
            });
            let mut asked = 0;
            for _ in 0..ROUNDS {
                assert!(!beside.is_finished(), "{place}: a message was lost");
                let answer = apply(&node, &counter(mode, tier, true)).unwrap();
                assert_eq!(
                    texts(&answer),
                    [
                        "create iface b1: taken",
                        "reach  path counter: `iface`; it goes on, at other interfaces"
                    ],
                    "{place}"
                );
                let client = far(&rig, 1, 7777);
                for _ in 0..20 {
                    client.ask_number(1).unwrap();
                    asked += 1;
                }
                let answer = apply(&node, &counter(mode, tier, false)).unwrap();
                assert_eq!(texts(&answer).len(), 2, "{place}");
                // It is the host's.
                let number = 77_u32.to_be_bytes();
                far(&rig, 1, 7777).socket().send(&number).unwrap();
                let mut heard = [0; 5];
                let len = host.recv(&mut heard).unwrap();
                assert_eq!(heard[..len], number, "{place}");
            }
            drop(ends);
            (beside.join().unwrap(), asked)
        });
        let all = asked + asked_far;
        let ledger = settle(&node, "counter", u64::from(all) + 1);
        assert_eq!(ledger.gap(), None, "{place}");
        assert_eq!(near.ask_number(0).unwrap(), all, "{place}");
        let path = at_rest(&node);
        let path = entry(&path, "paths", "counter");
        assert_eq!(path["tier"], tier, "{place}");
        // What goes is closed by the worker, when it has looked.
        until("nothing is left", || {
            (census(&node) == before).then_some(())
        });
    }
}

/// What cannot be taken changes nothing, and is said by its line.
#[test]
fn an_interface_that_cannot_be_had_is_refused_and_nothing_has_changed() {
    if skip_unless_root() {
        return;
    }
    let _alone = alone();
    let rig = Rig::new("ifaces-refused", RigOptions::default()).unwrap();
    let node = rig.node(counter("auto", "kernel", false)).start().unwrap();
    let before = census(&node);
    let client = rig.client_a(7777).unwrap();
    let said = |refused: &Value| match refused["errors"][0]["message"].as_str() {
        Some(said) => said.to_owned(),
        None => panic!("{refused}"),
    };
    // Not there.
    let refused = apply(&node, &counter("auto", "kernel", true)).unwrap_err();
    assert!(
        said(&refused).starts_with("there is no interface `b1`"),
        "{refused}"
    );
    add_wire(&rig, 1, "b1");
    // At another hook than the programs of the node.
    let other = counter("auto", "kernel", true);
    let other = String::from(other).replace(
        "[iface.b1]\nattach = \"auto\"",
        "[iface.b1]\nattach = \"xdp\"",
    );
    let refused = apply(&node, &Config::default().text(&other)).unwrap_err();
    assert!(said(&refused).contains("run at TCX"), "{refused}");
    // With as many paths at it as a handler has room for, of which one is taken by hand.
    let by_hand = |iface: &str| {
        let bind = json!({
            "request": "bind", "handler": "counter", "path": "hand", "iface": [iface],
            "match": "udp and dst port 7500",
        });
        control(&node, &bind).unwrap();
    };
    let unbind = || {
        let unbound = run(&mut node.command(["unbind", "hand"]));
        assert!(unbound.status.success(), "{}", text(&unbound));
    };
    by_hand("b0");
    let crowd = (0..59).fold(counter("auto", "kernel", true), |config, nth| {
        let section = format!(
            "[path.more{nth}]\niface = \"b1\"\nmatch = \"udp and dst port {}\"\n\
             handler = \"counter\"\n",
            7800 + nth
        );
        config.text(&section)
    });
    let refused = apply(&node, &crowd).unwrap_err();
    assert!(said(&refused).contains("and no room"), "{refused}");
    unbind();
    assert_eq!(census(&node), before);
    // A path by hand stands on one that would go.
    apply(&node, &counter("auto", "kernel", true)).unwrap();
    by_hand("b1");
    let refused = apply(&node, &counter("auto", "kernel", false)).unwrap_err();
    assert!(said(&refused).contains("hand"), "{refused}");
    assert!(far(&rig, 1, 7500).ask_number(1).is_ok());
    unbind();
    apply(&node, &counter("auto", "kernel", false)).unwrap();
    assert_eq!(client.ask_number(0).unwrap(), 1);
    let after = || (census(&node) == before).then_some(());
    until("nothing is left", after);
    let gap = Ledger::of(&at_rest(&node), "counter").gap();
    assert_eq!(gap, None);
}

/// Many names that match: they come and go while the node runs.
const MANY: u32 = 50;

/// The counter at 7777 of all that match.
fn by_pattern(mode: &str, tier: &str) -> Config {
    let config = Config::on_b0(mode).iface("\"c[0-9]*\"", mode);
    let config = config.handler("counter").unwrap();
    config.path_on("['b0', 'c[0-9]*']", "counter", 7777, tier)
}

fn matched(status: &Value) -> (u64, Vec<&str>) {
    let pattern = &status["patterns"][0];
    let ifaces = status["interfaces"].as_array().unwrap();
    let by_it = |iface: &&Value| iface["pattern"] == pattern["pattern"];
    let names = ifaces.iter().filter(by_it);
    let names = names.map(|iface| iface["name"].as_str().unwrap());
    (pattern["interfaces"].as_u64().unwrap(), names.collect())
}

#[test]
fn what_matches_a_pattern_is_taken_as_it_appears_and_let_go_of_when_it_vanishes() {
    if skip_unless_root() {
        return;
    }
    let _alone = alone();
    for (mode, tier) in PLACES {
        let place = format!("{mode}, {tier}");
        let rig = Rig::new(&format!("pattern-{mode}-{tier}"), RigOptions::default()).unwrap();
        // One is there before the node, and one that matches no pattern.
        add_wire(&rig, 200, "c200");
        add_wire(&rig, 201, "cx");
        let node = rig.node(by_pattern(mode, tier)).start().unwrap();
        assert_eq!(
            matched(&node.status().unwrap()),
            (1, vec!["c200"]),
            "{place}"
        );
        assert_eq!(far(&rig, 200, 7777).ask_number(1).unwrap(), 1, "{place}");
        let near = rig.client_a(7777).unwrap();
        assert_eq!(near.ask_number(0).unwrap(), 1, "{place}");
        let before = census(&node);
        // So many at TCX, and fewer elsewhere.
        let many = if mode == "auto" { MANY } else { 5 };
        let over = AtomicBool::new(false);
        let asked = std::thread::scope(|scope| {
            let ends = Over(&over);
            let beside = scope.spawn(|| {
                let mut asked = 0_u32;
                while !over.load(Ordering::Acquire) {
                    near.ask_number(1).unwrap();
                    asked += 1;
                }
                asked
            });
            let mut asked = 1;
            for _ in 0..2 {
                for number in 1..=many {
                    add_wire(&rig, number, &format!("c{number}"));
                }
                until("all are taken, and known to be up", || {
                    let status = node.status().unwrap();
                    let mut ifaces = status["interfaces"].as_array().unwrap().iter();
                    let is_up = ifaces.all(|iface| iface["mode"] != "down");
                    (is_up && matched(&status).0 == u64::from(many) + 1).then_some(())
                });
                for number in 1..=many {
                    let client = far(&rig, number, 7777);
                    let answer = client.ask_number(1);
                    assert!(
                        answer.is_ok(),
                        "{place}, {number}: {answer:?}: {}",
                        node.output()
                    );
                    asked += 1;
                }
                assert!(!beside.is_finished(), "{place}: a message was lost");
                // Messages are underway while they vanish.
                let clients = (1..=many).map(|number| far(&rig, number, 7777));
                let clients: Vec<UdpClient> = clients.collect();
                for client in &clients {
                    let _ = client.socket().send(&0_u32.to_be_bytes());
                }
                for number in 1..=many {
                    ip(rig.command_b("ip"), &format!("link del c{number}"));
                }
                until("all have been let go of", || {
                    (matched(&node.status().unwrap()).0 == 1).then_some(())
                });
            }
            drop(ends);
            beside.join().unwrap() + asked
        });
        assert_eq!(near.ask_number(0).unwrap(), asked, "{place}");
        assert_eq!(
            far(&rig, 200, 7777).ask_number(0).unwrap(),
            asked,
            "{place}"
        );
        let status = at_rest(&node);
        assert_eq!(Ledger::of(&status, "counter").gap(), None, "{place}");
        assert_eq!(entry(&status, "paths", "counter")["tier"], tier, "{place}");
        until("nothing is left", || {
            (census(&node) == before).then_some(())
        });
        assert_eq!(
            far(&rig, 201, 7777).ask_number(1).unwrap_err().kind(),
            std::io::ErrorKind::ConnectionRefused
        );
    }
}

/// A name of its own comes first, then the longer literal; what cannot be had is left.
#[test]
fn a_name_comes_before_a_pattern_and_what_cannot_be_had_is_left() {
    if skip_unless_root() {
        return;
    }
    let _alone = alone();
    let rig = Rig::new("pattern-first", RigOptions::default()).unwrap();
    let config = Config::default()
        .iface("\"*\"", "packet")
        .iface("\"c1*\"", "packet")
        .iface("c12", "packet")
        .handler("counter")
        .unwrap();
    let config = config.path_on("['c1*', 'c12']", "counter", 7777, "auto");
    let node = rig.node(config.clone());
    // An interface that has its own section has to be there.
    assert!(node.start().is_err());
    add_wire(&rig, 12, "c12");
    let node = rig.node(config).start().unwrap();
    for number in [1, 2, 10] {
        add_wire(&rig, number, &format!("c{number}"));
    }
    let by = |name: &str| {
        let status = node.status().unwrap();
        let ifaces = status["interfaces"].as_array().unwrap();
        let is_it = |iface: &&Value| iface["name"] == name && iface["mode"] != "down";
        let found = ifaces.iter().find(is_it);
        found.map(|iface| iface["pattern"].clone())
    };
    for (name, pattern) in [
        ("c1", json!("c1*")),
        ("c10", json!("c1*")),
        ("c2", json!("*")),
        ("b0", json!("*")),
        ("c12", Value::Null),
    ] {
        until("it is taken", || (by(name)? == pattern).then_some(()));
    }
    assert_eq!(by("lo"), None, "nobody has asked for it by its name");
    for number in [1, 10, 12] {
        assert!(far(&rig, number, 7777).ask_number(1).is_ok());
    }
    assert!(far(&rig, 2, 7777).ask_number(1).is_err());
    // By hand, too.
    let bind = json!({
        "request": "bind", "handler": "counter", "path": "hand", "iface": ["*"],
        "match": "udp and dst port 7500",
    });
    control(&node, &bind).unwrap();
    assert!(far(&rig, 2, 7500).ask_number(1).is_ok());
    add_wire(&rig, 3, "c3");
    until("it is taken", || by("c3"));
    assert!(far(&rig, 3, 7500).ask_number(1).is_ok());
    // With another name it is another's, or nobody's.
    ip(rig.command_b("ip"), "link set c3 down");
    ip(rig.command_b("ip"), "link set c3 name c13");
    ip(rig.command_b("ip"), "link set c13 up");
    until("it is another's", || {
        (by("c13")? == json!("c1*")).then_some(())
    });
    assert_eq!(by("c3"), None);
    assert!(far(&rig, 3, 7777).ask_number(1).is_ok());
}

/// Somebody else's program stands at the node's hook: the interface is left, shown, and nothing
/// else is disturbed.
#[test]
fn an_interface_that_is_anothers_is_not_taken() {
    if skip_unless_root() {
        return;
    }
    let _alone = alone();
    let rig = Rig::new("pattern-anothers", RigOptions::default()).unwrap();
    let node = rig.node(by_pattern("xdp", "kernel")).start().unwrap();
    let near = rig.client_a(7777).unwrap();
    assert_eq!(near.ask_number(1).unwrap(), 1);
    add_wire(&rig, 9, "d9");
    let theirs = ashway_netns::node::stranger();
    let link = rig.in_b(|| {
        let index = ashway_kernel::Iface::by_name("d9").unwrap().ifindex;
        ashway_kernel::Attached::xdp(&theirs, index, ashway_kernel::Mode::Native).unwrap()
    });
    ip(rig.command_b("ip"), "link set d9 down");
    ip(rig.command_b("ip"), "link set d9 name c9");
    ip(rig.command_b("ip"), "link set c9 up");
    let left = until("it is left", || {
        let status = node.status().unwrap();
        let left = &status["patterns"][0]["not_taken"][0];
        (!left.is_null()).then(|| left.clone())
    });
    assert_eq!(left["name"], "c9");
    assert!(left["because"].as_str().unwrap().contains("c9"), "{left}");
    assert_eq!(near.ask_number(1).unwrap(), 2);
    drop(link);
    ip(rig.command_b("ip"), "link del c9");
    until("nobody speaks of it any more", || {
        let status = node.status().unwrap();
        (status["patterns"][0]["not_taken"] == json!([])).then_some(())
    });
}
