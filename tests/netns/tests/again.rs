//! Interfaces that change while a node has them: deleted and made again, with another
//! name or hardware address, with more queues and fewer. Their paths go on, no message takes another's
//! path, and what the node says of itself is true meanwhile.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ashway_kernel::{Attached, Mode};
use ashway_netns::node::{Config, at_rest, entry, index, ip, run, stranger, text, until};
use ashway_netns::traffic::{Ledger, Over, settle};
use ashway_rig::namespace::Namespace;
use ashway_rig::{B4, Node, Rig, RigOptions, UdpClient, skip_unless_root};
use serde_json::{Value, json};

/// Each way to have an interface, in both tiers.
const PLACES: [(&str, &str); 5] = [
    ("auto", "kernel"),
    ("auto", "user"),
    ("native", "kernel"),
    ("generic", "user"),
    ("packet", "user"),
];

/// How often an interface changes at TCX, and elsewhere.
const CHANGES: [u32; 2] = [50, 5];

fn changes(mode: &str) -> u32 {
    CHANGES[usize::from(mode != "auto")]
}

/// A second wire, `a1` - `b1`, with 10.8.0.1 and 10.8.0.2.
fn add_wire(rig: &Rig) {
    let b = rig.b().name();
    let add = format!("link add a1 type veth peer name b1 netns {b}");
    ip(rig.command_a("ip"), &add);
    for line in ["addr add 10.8.0.1/24 dev a1", "link set a1 up"] {
        ip(rig.command_a("ip"), line);
    }
    let gro = run(rig.command_a("ethtool").args(["-K", "a1", "gro", "on"]));
    assert!(gro.status.success(), "{}", text(&gro));
    for line in ["addr add 10.8.0.2/24 dev b1", "link set b1 up"] {
        ip(rig.command_b("ip"), line);
    }
}

/// A client of `b1`.
fn far(rig: &Rig, port: u16) -> UdpClient {
    let address: SocketAddr = format!("10.8.0.2:{port}").parse().unwrap();
    rig.in_a(|| UdpClient::connect(address)).unwrap()
}

fn mode_of(status: &Value, iface: &str) -> String {
    let mode = &entry(status, "interfaces", iface)["mode"];
    mode.as_str().unwrap().to_owned()
}

/// Sends this number to B's port without end until `over`, every half a millisecond; how often.
fn send(socket: &UdpSocket, number: u32, over: &AtomicBool) -> u64 {
    let mut sent = 0;
    while !over.load(Ordering::Acquire) {
        // A neighbour that is just being changed refuses it.
        if socket.send(&number.to_be_bytes()).is_ok() {
            sent += 1;
        }
        std::thread::sleep(Duration::from_micros(500));
    }
    sent
}

/// A message to `b1`.
const FLOW: [&str; 3] = ["udp 10.8.0.1:9 > 10.8.0.2:7777", "--iface", "b1"];

/// What the node answers `why` of this.
fn why(node: &Node, about: &[&str]) -> Value {
    let answer = run(node.command(["why", "-j"]).args(about));
    assert!(answer.status.success(), "{}", text(&answer));
    serde_json::from_slice(&answer.stdout).unwrap()
}

#[test]
fn an_interface_that_is_made_again_is_taken_again() {
    if skip_unless_root() {
        return;
    }
    for (mode, tier) in PLACES {
        let place = format!("{mode}, {tier}");
        let rig = Rig::new(&format!("again-{mode}-{tier}"), RigOptions::default()).unwrap();
        add_wire(&rig);
        let config = Config::on_b0(mode).iface("b1", mode);
        let config = config.handler("counter").unwrap();
        let config = config.handler_file("beside", &ashway_rig::handler("counter").unwrap());
        let config = config.path_on("['b1']", "counter", 7777, tier);
        let node = rig.node(config.path("beside", 7777, tier)).start().unwrap();
        let first = mode_of(&node.status().unwrap(), "b1");
        assert_eq!(far(&rig, 7777).ask_number(1).unwrap(), 1, "{place}");

        let near = rig.client_a(7777).unwrap();
        let over = AtomicBool::new(false);
        let (asked, sent) = std::thread::scope(|scope| {
            let ends = Over(&over);
            // Beside it another interface's path has its messages all the while.
            let beside = scope.spawn(|| send(near.socket(), 1000, &over));
            let mut asked = 1;
            for change in 0..changes(mode) {
                ip(rig.command_b("ip"), "link del b1");
                if change == 0 {
                    node.wait_for_line(|line| line == "interface `b1` is gone")
                        .unwrap();
                    let status = node.status().unwrap();
                    assert_eq!(mode_of(&status, "b1"), "gone", "{place}");
                    let hint = &entry(&status, "interfaces", "b1")["hint"];
                    let hint = hint.as_str().unwrap();
                    assert!(hint.starts_with("it is taken again when"), "{hint}");
                    let of_path = why(&node, &["counter"]);
                    let silent = &of_path["silent"][0];
                    assert_eq!(
                        (&silent["iface"], &silent["mode"]),
                        (&json!("b1"), &json!("gone"))
                    );
                    let why = why(&node, &FLOW);
                    assert_eq!(why["path"], Value::Null, "{place}: {why:#}");
                    let reason = why["reason"].as_str().unwrap();
                    assert!(reason.contains("`b1` is gone"), "{place}: {reason}");
                    // A path that comes meanwhile is there when the interface is.
                    let mut words = vec!["bind", "counter", "--name", "late", "--iface", "b1"];
                    words.extend(["--match", "udp and dst port 7778", "--tier", tier]);
                    let bound = run(&mut node.command(words));
                    assert!(bound.status.success(), "{place}: {}", text(&bound));
                }
                add_wire(&rig);
                let ifindex = index(&rig, "b1");
                until("the node has it again", || {
                    let status = node.status().unwrap();
                    let same = entry(&status, "interfaces", "b1")["ifindex"] == ifindex;
                    (same && mode_of(&status, "b1") == first).then_some(())
                });
                // Its hardware address is another, and the counter is the same.
                let client = far(&rig, 7777);
                for _ in 0..2 {
                    asked += 1;
                    assert_eq!(client.ask_number(1).unwrap(), asked, "{place}");
                }
            }
            assert_eq!(far(&rig, 7778).ask_number(1).unwrap(), asked + 1, "{place}");
            drop(ends);
            (u64::from(asked), beside.join().unwrap())
        });
        assert_eq!(why(&node, &FLOW)["path"], "counter", "{place}");
        assert_eq!(why(&node, &["counter"])["silent"], json!([]), "{place}");
        settle(&node, "counter", asked).assert_fates(&[("answered", asked)], &place);
        settle(&node, "late", 1).assert_fates(&[("answered", 1)], &place);
        let beside = settle(&node, "beside", sent);
        beside.assert_fates(&[("answered", sent)], &place);
        let output = node.output();
        let taken = output.matches("interface `b1` is taken again").count();
        assert_eq!(taken as u32, changes(mode), "{place}: {output}");
        println!("{place}: {taken} times, {sent} messages beside");
        node.stop().unwrap();
    }
}

/// A node outlives its only interface, and has it when it is back.
#[test]
fn the_last_interface_may_go_and_come() {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("again-last", RigOptions::default()).unwrap();
    add_wire(&rig);
    let config = Config::default().iface("b1", "auto");
    let config = config.handler("counter").unwrap();
    let config = config.path_on("['b1']", "counter", 7777, "kernel");
    let mut node = rig.node(config).start().unwrap();
    assert_eq!(far(&rig, 7777).ask_number(1).unwrap(), 1);
    ip(rig.command_b("ip"), "link del b1");
    node.wait_for_line(|line| line == "interface `b1` is gone")
        .unwrap();
    assert_eq!(mode_of(&node.status().unwrap(), "b1"), "gone");
    add_wire(&rig);
    node.wait_for_line(|line| line.starts_with("interface `b1` is taken again: tcx"))
        .unwrap();
    assert_eq!(far(&rig, 7777).ask_number(1).unwrap(), 2);
    // What somebody takes from it by hand it does not take back.
    let detached = run(rig.ashway_b().unwrap().args(["iface", "detach", "b1"]));
    assert!(detached.status.success(), "{}", text(&detached));
    assert_eq!(node.wait().unwrap().code(), Some(1));
    let output = node.output();
    assert!(output.contains("no interface is left"), "{output}");
}

/// Somebody gives the interface another hardware address again and again: its paths follow,
/// and messages that come meanwhile are their paths' or the host's.
#[test]
fn paths_follow_a_changed_hardware_address() {
    if skip_unless_root() {
        return;
    }
    for (mode, tier) in PLACES {
        let place = format!("{mode}, {tier}");
        let rig = Rig::new(&format!("mac-{mode}-{tier}"), RigOptions::default()).unwrap();
        let counter = ashway_rig::handler("counter").unwrap();
        let config = Config::on_b0(mode).handler("counter").unwrap();
        let config = config.handler_file("other", &counter);
        let config = config.path("counter", 7777, tier).path("other", 7778, tier);
        let config = config.text(
            "[module.end]\nkind = \"sink\"\ndown = \"udp.up\"\n\
             [path.end]\nfrom = \"end\"\nattrs = { local = \"10.7.0.2:7000\" }",
        );
        let node = rig.node(config).start().unwrap();
        let client = rig.client_a(7777).unwrap();
        assert_eq!(client.ask_number(1).unwrap(), 1);
        let before = node.status().unwrap()["interfaces"][0].clone();
        let others = [(7777, 1), (7778, 1000)].map(|(port, number)| {
            let socket = rig.in_a(|| UdpSocket::bind("0.0.0.0:0")).unwrap();
            socket.connect((B4, port)).unwrap();
            (socket, number)
        });
        let over = AtomicBool::new(false);
        let mut mac = String::new();
        std::thread::scope(|scope| {
            let _over = Over(&over);
            for (socket, number) in &others {
                scope.spawn(|| send(socket, *number, &over));
            }
            for change in 1..=changes(mode) {
                mac = format!("02:00:00:00:77:{change:02x}");
                ip(rig.command_b("ip"), &format!("link set b0 address {mac}"));
                let neighbour = format!("neigh replace {B4} lladdr {mac} dev a0");
                ip(rig.command_a("ip"), &neighbour);
                until("the node has seen it", || {
                    let status = node.status().unwrap();
                    (status["interfaces"][0]["mac"] == *mac).then_some(())
                });
                // Sums of ones and of thousands: each message was its own path's.
                let asked = rig.client_a(7778).unwrap().ask_number(1000).unwrap();
                assert_eq!(asked % 1000, 0, "{place}");
                rig.client_a(7777).unwrap().ask_number(1).unwrap();
            }
        });
        // A path of modules, which asks in its stage, too.
        rig.client_a(7000).unwrap().send(b"hello").unwrap();
        until("the sink has it", || {
            let status = node.status().unwrap();
            (entry(&status, "paths", "end")["received"] == 1).then_some(())
        });
        let status = at_rest(&node);
        let after = &status["interfaces"][0];
        assert_eq!(
            (&before["mac_changes"], &after["mac_changes"]),
            (&json!(0), &json!(changes(mode)))
        );
        for (name, port, number) in [("counter", 7777, 1), ("other", 7778, 1000)] {
            let received = Ledger::of(&status, name).received;
            let client = rig.client_a(port).unwrap();
            let sum = client.ask_number(number).unwrap();
            assert_eq!(
                u64::from(sum),
                (received + 1) * u64::from(number),
                "{place}"
            );
            assert_eq!(entry(&status, "paths", name)["tier"], tier, "{place}");
        }
        let said = format!("interface `b0` has the hardware address {mac}, and had ");
        assert!(node.output().contains(&said), "{}", node.output());
        node.stop().unwrap();
    }
}

/// `ethtool -L` while messages come: each is answered, whatever queue it comes by.
#[test]
fn queues_may_become_more_and_fewer() {
    if skip_unless_root() {
        return;
    }
    for (mode, tier) in PLACES {
        let place = format!("{mode}, {tier}");
        let options = RigOptions {
            queues: 4,
            ..RigOptions::default()
        };
        // Native XDP is where a driver takes its queues down and up with its program.
        let changes = if mode == "native" {
            CHANGES[0]
        } else {
            changes(mode)
        };
        let rig = Rig::new(&format!("queues-{mode}-{tier}"), options).unwrap();
        let config = Config::on_b0(mode).handler("counter").unwrap();
        let node = rig
            .node(config.path("counter", 7777, tier))
            .start()
            .unwrap();
        let clients: Vec<_> = (0..8).map(|_| rig.client_a(7777).unwrap()).collect();
        let mut asked = 0;
        for change in 0..changes {
            let queues = [1, 3, 2, 4][change as usize % 4];
            // Under XDP b0 takes no fewer than a0 sends by.
            let in_a = (rig.command_a("ethtool"), "a0", "tx");
            let in_b = (rig.command_b("ethtool"), "b0", "rx");
            let ends = if change % 2 == 0 {
                [in_a, in_b]
            } else {
                [in_b, in_a]
            };
            for (mut ethtool, link, kind) in ends {
                let set = run(ethtool.args(["-L", link, kind, &queues.to_string()]));
                assert!(set.status.success(), "{place}: {}", text(&set));
            }
            for client in &clients {
                asked += 1;
                assert_eq!(client.ask_number(1).unwrap(), asked, "{place}");
            }
        }
        until("the node has seen them", || {
            let status = node.status().unwrap();
            let last = [1, 3, 2, 4][(changes as usize - 1) % 4];
            (status["interfaces"][0]["rx_queues"] == last).then_some(())
        });
        let asked = u64::from(asked);
        settle(&node, "counter", asked).assert_fates(&[("answered", asked)], &place);
        node.stop().unwrap();
    }
}

/// Back with the number that it had, where a new one would have another.
#[test]
fn an_interface_that_comes_back_from_another_namespace_is_taken_again() {
    if skip_unless_root() {
        return;
    }
    for (mode, tier) in PLACES {
        let place = format!("{mode}, {tier}");
        let rig = Rig::new(&format!("away-{mode}-{tier}"), RigOptions::default()).unwrap();
        let elsewhere = Namespace::new(format!("{}-x", rig.name())).unwrap();
        add_wire(&rig);
        let config = Config::on_b0(mode).iface("b1", mode);
        let config = config.handler("counter").unwrap();
        let config = config.path_on("['b1']", "counter", 7777, tier);
        let node = rig.node(config).start().unwrap();
        let first = mode_of(&node.status().unwrap(), "b1");
        let ifindex = index(&rig, "b1");
        assert_eq!(far(&rig, 7777).ask_number(1).unwrap(), 1, "{place}");

        let away = format!("link set b1 netns {}", elsewhere.name());
        ip(rig.command_b("ip"), &away);
        node.wait_for_line(|line| line == "interface `b1` is gone")
            .unwrap();
        let back = format!("link set b1 netns {}", rig.b().name());
        ip(elsewhere.command("ip"), &back);
        for line in ["addr add 10.8.0.2/24 dev b1", "link set b1 up"] {
            ip(rig.command_b("ip"), line);
        }
        assert_eq!(index(&rig, "b1"), ifindex, "{place}");
        until("the node has it again", || {
            (mode_of(&node.status().unwrap(), "b1") == first).then_some(())
        });
        assert_eq!(far(&rig, 7777).ask_number(1).unwrap(), 2, "{place}");
        settle(&node, "counter", 2).assert_fates(&[("answered", 2)], &place);
        node.stop().unwrap();
    }
}

/// Under another name it is another interface: its messages are the host's until it has its own
/// again.
#[test]
fn an_interface_with_another_name_is_left_until_it_has_its_own_again() {
    if skip_unless_root() {
        return;
    }
    for (mode, tier) in PLACES {
        let place = format!("{mode}, {tier}");
        let rig = Rig::new(&format!("name-{mode}-{tier}"), RigOptions::default()).unwrap();
        add_wire(&rig);
        let config = Config::on_b0(mode).iface("b1", mode);
        let config = config.handler("counter").unwrap();
        let config = config.path_on("['b1']", "counter", 7777, tier);
        let node = rig.node(config).start().unwrap();
        let first = mode_of(&node.status().unwrap(), "b1");
        let client = far(&rig, 7777);
        assert_eq!(client.ask_number(1).unwrap(), 1, "{place}");
        let host = rig.in_b(|| UdpSocket::bind("10.8.0.2:7777")).unwrap();
        host.set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();

        for number in 1..=3_u32 {
            ip(rig.command_b("ip"), "link set b1 name other");
            until("the node has left it", || {
                (mode_of(&node.status().unwrap(), "b1") == "gone").then_some(())
            });
            client.socket().send(&number.to_be_bytes()).unwrap();
            let mut heard = [0; 8];
            let (len, _) = host.recv_from(&mut heard).unwrap();
            assert_eq!(heard[..len], number.to_be_bytes(), "{place}");
            ip(rig.command_b("ip"), "link set other name b1");
            until("the node has it again", || {
                (mode_of(&node.status().unwrap(), "b1") == first).then_some(())
            });
            assert_eq!(client.ask_number(1).unwrap(), 1 + number, "{place}");
        }
        settle(&node, "counter", 4).assert_fates(&[("answered", 4)], &place);
        let said = "interface `b1` is called `other` now";
        let output = node.output();
        assert_eq!(output.matches(said).count(), 3, "{place}: {output}");
        node.stop().unwrap();
    }
}

/// Under its name there can be an interface of another kind. What takes programs only in its
/// driver is left, with a line, and taken when it is a veth again.
#[test]
fn an_interface_that_becomes_another_kind_is_taken_as_what_it_is() {
    if skip_unless_root() {
        return;
    }
    for (mode, tier) in [("auto", "kernel"), ("auto", "user"), ("native", "kernel")] {
        let place = format!("{mode}, {tier}");
        let rig = Rig::new(&format!("kind-{mode}-{tier}"), RigOptions::default()).unwrap();
        add_wire(&rig);
        let config = Config::on_b0(mode).iface("b1", mode);
        let config = config.handler("counter").unwrap();
        let config = config.path_on("['b0', 'b1']", "counter", 7777, tier);
        let node = rig.node(config).start().unwrap();
        let first = mode_of(&node.status().unwrap(), "b1");
        assert_eq!(far(&rig, 7777).ask_number(1).unwrap(), 1, "{place}");
        ip(rig.command_b("ip"), "link del b1");
        node.wait_for_line(|line| line == "interface `b1` is gone")
            .unwrap();
        // A bridge, with the wire behind it.
        let b = rig.b().name();
        let add = format!("link add a1 type veth peer name p1 netns {b}");
        ip(rig.command_a("ip"), &add);
        for line in ["addr add 10.8.0.1/24 dev a1", "link set a1 up"] {
            ip(rig.command_a("ip"), line);
        }
        for line in [
            "link add b1 address 02:00:00:00:00:2b type bridge",
            "link set p1 master b1",
            "link set p1 up",
            "addr add 10.8.0.2/24 dev b1",
            "link set b1 up",
        ] {
            ip(rig.command_b("ip"), line);
        }
        let near = rig.client_a(7777).unwrap();
        let mut asked = 1;
        if mode == "auto" {
            until("the node has the bridge", || {
                (mode_of(&node.status().unwrap(), "b1") == first).then_some(())
            });
            asked += 1;
            assert_eq!(far(&rig, 7777).ask_number(1).unwrap(), asked, "{place}");
        } else {
            let left = "interface `b1` is not taken again: ";
            let line = node.wait_for_line(|line| line.starts_with(left)).unwrap();
            assert!(line.contains("does not take the program"), "{line}");
            let status = node.status().unwrap();
            assert_eq!(mode_of(&status, "b1"), "gone", "{place}");
        }
        asked += 1;
        assert_eq!(near.ask_number(1).unwrap(), asked, "{place}: the other one");
        ip(rig.command_b("ip"), "link del b1");
        ip(rig.command_b("ip"), "link del p1");
        add_wire(&rig);
        until("the node has the wire again", || {
            (mode_of(&node.status().unwrap(), "b1") == first).then_some(())
        });
        asked += 1;
        assert_eq!(far(&rig, 7777).ask_number(1).unwrap(), asked, "{place}");
        let asked = u64::from(asked);
        settle(&node, "counter", asked).assert_fates(&[("answered", asked)], &place);
        node.stop().unwrap();
    }
}

/// At TCX there is room for somebody's XDP program before ours: what that passes we have, what it
/// drops we have not, and the operator can see who it is.
#[test]
fn a_foreign_xdp_program_before_us_at_tcx_is_named() {
    if skip_unless_root() {
        return;
    }
    for tier in ["kernel", "user"] {
        let rig = Rig::new(&format!("foreign-{tier}"), RigOptions::default()).unwrap();
        let config = Config::on_b0("tcx").handler("counter").unwrap();
        let config = config.path("counter", 7777, tier);
        let node = rig.node(config).start().unwrap();
        let client = rig.client_a(7777).unwrap();
        assert_eq!(client.ask_number(1).unwrap(), 1);
        let b0 = index(&rig, "b0");
        let passes = stranger();
        let mut asked = 1;
        for mode in [Mode::Native, Mode::Generic] {
            let theirs = rig.in_b(|| Attached::xdp(&passes, b0, mode)).unwrap();
            asked += 1;
            assert_eq!(client.ask_number(1).unwrap(), asked, "{tier}: {mode:?}");
            let doctor = run(rig.ashway_b().unwrap().args(["doctor", "b0"]));
            assert!(text(&doctor).contains("stranger"), "{}", text(&doctor));
            drop(theirs);
            asked += 1;
            assert_eq!(client.ask_number(1).unwrap(), asked, "{tier}: {mode:?}");
        }
        let asked = u64::from(asked);
        settle(&node, "counter", asked).assert_fates(&[("answered", asked)], &tier);
        node.stop().unwrap();
    }
}
