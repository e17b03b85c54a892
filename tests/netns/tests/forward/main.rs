//! A relay between two networks, in both tiers and on all rungs: a path of the long
//! form from one interface to another.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

mod iperf3;
mod shadow;
mod share;
mod three;
mod ways_out;

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ashway_kernel::{Iface, iface};
use ashway_netns::node::{entry, freeze, run, shift, text, until};
use ashway_netns::observe::{Observing, documents, observes};
use ashway_netns::traffic::{Over, flood, request, stream, until_the_kernel_runs_all};
use ashway_rig::{Signal, skip_unless_root};
use serde_json::{Value, json};

use three::{B8, C8, MAC_C, Three, ask_and_answer, closed, ip, relay};

/// `ashway trace` names the relay, in both tiers and both ways, and says where each
/// message leaves.
#[test]
fn a_trace_names_the_relay_and_where_messages_leave() {
    if skip_unless_root() {
        return;
    }
    for tier in ["kernel", "user"] {
        let three = Three::new(&format!("fwd-trace-{tier}"));
        let node = three.node("native", tier);
        let (client, server) = (three.rig.client_a(5000).unwrap(), three.server(6000));
        // On a wide path the first message of a sender is for the user tier.
        ask_and_answer(&client, &server, 1);
        let words = ["trace", "-j", "--path", "relay", "--count", "2"];
        let observing = Observing::start(node.command(words)).unwrap();
        assert!(observes(&node));
        ask_and_answer(&client, &server, 2);
        let said = documents(&observing.finish().unwrap().0);
        let facts: Vec<_> = said
            .iter()
            .map(|packet| {
                let steps = packet["steps"].as_array().unwrap();
                let classified: Vec<_> = steps
                    .iter()
                    .filter(|step| step["step"] == "classified")
                    .map(|step| &step["path"])
                    .collect();
                json!({
                    "path": packet["path"], "tier": packet["tier"], "fate": packet["fate"],
                    "in": packet["received"]["iface"], "out": packet["sent"][0]["iface"],
                    "classified": classified,
                })
            })
            .collect();
        let expected = |came: &str, went: &str| {
            json!({
                "path": "relay", "tier": tier, "fate": "forwarded",
                "in": came, "out": went, "classified": ["relay"],
            })
        };
        let expected = [expected("b0", "b1"), expected("b1", "b0")];
        assert_eq!(facts, expected, "{tier}: {said:#?}");
        closed(&node);
        node.stop().unwrap();
    }
}

/// Nobody says what hardware address C has: the kernel's table does, and when it says
/// something else, the relay follows, in both tiers.
#[test]
fn the_relay_follows_its_neighbour() {
    if skip_unless_root() {
        return;
    }
    for tier in ["kernel", "user"] {
        let three = Three::new(&format!("fwd-neighbour-{tier}"));
        // The kernel has to find out by itself.
        ip(
            three.rig.command_b("ip"),
            &["neigh", "del", C8, "dev", "b1"],
        );
        let config = format!(
            r#"
            [iface.b0]
            [iface.b1]
            [module.relay]
            kind = "forward"
            down = "udp.up"
            [path.relay]
            tier = "{tier}"
            from = "eth:b0"
            attrs = {{ pathname = "udp/relay", local = "10.7.0.2:5000", next_hop = "{C8}:6000", from = "{B8}:7000", out = "eth:b1" }}
            "#
        );
        let node = three.rig.node(config).start().unwrap();
        let server = three.server(6000);
        let client = three.rig.client_a(5000).unwrap();
        let is_known = |mac: &str| {
            until("the node knows its neighbour", || {
                (relay(&node)["next_hop"]["mac"] == mac).then_some(())
            });
        };
        is_known(MAC_C);
        for number in 0..10 {
            ask_and_answer(&client, &server, number);
        }
        let other = "02:00:00:00:00:cc";
        ip(
            three.c.command("ip"),
            &["link", "set", "c0", "address", other],
        );
        let neighbour = [
            "neigh",
            "replace",
            C8,
            "lladdr",
            other,
            "dev",
            "b1",
            "nud",
            "reachable",
        ];
        ip(three.rig.command_b("ip"), &neighbour);
        is_known(other);
        for number in 0..10 {
            ask_and_answer(&client, &server, number);
        }
        let shown = relay(&node);
        assert_eq!(shown["fates"]["forwarded"], 40, "{shown:#}");

        // Nobody answers for it: counted, and said.
        ip(three.c.command("ip"), &["link", "set", "c0", "down"]);
        ip(
            three.rig.command_b("ip"),
            &["neigh", "replace", C8, "dev", "b1", "nud", "failed"],
        );
        until("the node does not know it any more", || {
            relay(&node)["next_hop"]["mac"].is_null().then_some(())
        });
        client.send(b"nobody").unwrap();
        let shown = until("it is counted", || {
            let shown = relay(&node);
            (shown["fates"]["dropped"]["no_next_hop"] == 1).then_some(shown)
        });
        assert_eq!(shown["balanced"], true, "{shown:#}");
        let said = text(&run(&mut node.command(["path", "show", "relay"])));
        assert!(
            said.contains("next hop  10.8.0.3 on b1: not known"),
            "{said}"
        );
        node.stop().unwrap();
    }
}

/// A sender's batch is as many messages of the relay as it was made of, and each ran in the tier
/// that sent it on.
#[test]
fn a_senders_batch_is_many_messages_of_the_relay() {
    if skip_unless_root() {
        return;
    }
    let three = Three::new("fwd-batch");
    let node = three.node("tcx", "kernel");
    let server = three.server(6000);
    let client = three.rig.client_a(5000).unwrap();
    for number in 0..10 {
        ask_and_answer(&client, &server, number);
    }
    client.segment(100).unwrap();
    for _ in 0..20 {
        client.send(&[7; 1000]).unwrap();
    }
    let mut heard = [0; 2048];
    for _ in 0..200 {
        assert_eq!(server.recv(&mut heard).unwrap(), 100);
    }
    closed(&node);
    let shown = relay(&node);
    assert_eq!(shown["received"], 220, "{shown:#}");
    assert_eq!(shown["fates"]["forwarded"], 220, "{shown:#}");
    assert_eq!(shown["balanced"], true, "{shown:#}");
    // The first of those that came one by one may cross, as its sender was not known yet.
    let [kernel, user] = ["kernel", "user"].map(|tier| number(&shown["ran_in"][tier]));
    assert_eq!(kernel + user, 220, "{shown:#}");
    assert!((10..=20).contains(&kernel), "{shown:#}");
    node.stop().unwrap();
}

/// What must be true of a relay in either tier.
fn there_and_back(mode: &str, tier: &str, gro: bool) {
    if skip_unless_root() {
        return;
    }
    let three = Three::with_gro(&format!("fwd-{mode}-{tier}-{gro}"), gro);
    let node = three.node(mode, tier);
    let server = three.server(6000);
    let client = three.rig.client_a(5000).unwrap();
    for number in 0..200 {
        ask_and_answer(&client, &server, number);
    }
    // Another sender is answered where it is.
    let other = three.rig.client_a(5000).unwrap();
    ask_and_answer(&other, &server, 1000);

    let at_rest = closed(&node);
    let shown = entry(&at_rest, "paths", "relay");
    assert_eq!(shown["received"], 402, "{shown:#}");
    assert_eq!(shown["fates"]["forwarded"], 402, "{shown:#}");
    assert_eq!(shown["balanced"], true, "{shown:#}");
    let live = &at_rest["module_paths"];
    assert_eq!(live["received"], 402, "{live:#}");
    assert_eq!(live["fates"]["forwarded"], 402, "{live:#}");
    assert_eq!(live["out"]["handed_over"], 402, "{live:#}");
    assert_eq!(shown["tier"], tier, "{shown:#}");
    if tier == "kernel" {
        // The two senders' first messages are for the user tier, which notes them; and
        // so is what comes before the worker, on a busy machine, has left its turn.
        let kernel = &shown["kernel"];
        assert_eq!(kernel["received"], 402, "{shown:#}");
        assert!(shown["kernel_time_ns"].as_u64().unwrap() > 0, "{shown:#}");
        let notes = ["queued_tier", "queued_order"].map(|note| &kernel["notes"][note]);
        let queued: u64 = notes.iter().filter_map(|note| note.as_u64()).sum();
        assert!(queued >= 2, "{shown:#}");
    }
    // Nobody else hears the relay's messages, or misses his own.
    let host = three.rig.in_b(|| UdpSocket::bind("10.7.0.2:5001")).unwrap();
    host.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    three.rig.client_a(5001).unwrap().send(b"host").unwrap();
    assert_eq!(host.recv(&mut [0; 9]).unwrap(), 4);
    let host = three.rig.in_b(|| UdpSocket::bind("10.7.0.2:5000")).unwrap();
    host.set_nonblocking(true).unwrap();
    ask_and_answer(&client, &server, 2000);
    assert!(
        host.recv(&mut [0; 9]).is_err(),
        "the host hears the relay's"
    );
    node.stop().unwrap();
}

#[test]
fn datagrams_go_there_and_back_by_packet_sockets() {
    there_and_back("packet", "user", true);
}

#[test]
fn datagrams_go_there_and_back_by_xdp() {
    there_and_back("native", "user", true);
}

#[test]
fn datagrams_go_there_and_back_in_the_kernel_tier() {
    there_and_back("native", "kernel", true);
}

#[test]
fn datagrams_go_there_and_back_in_the_kernel_tier_without_gro() {
    there_and_back("native", "kernel", false);
}

#[test]
fn datagrams_go_there_and_back_at_tcx() {
    there_and_back("tcx", "user", false);
    there_and_back("tcx", "kernel", false);
}

#[test]
fn datagrams_go_there_and_back_in_the_kernel_tier_by_generic_xdp() {
    there_and_back("generic", "kernel", true);
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

/// Answers to all that come to it, until the streams end. They come in order.
fn echo(server: &UdpSocket, over: &AtomicBool) {
    let short = Some(Duration::from_millis(20));
    server.set_read_timeout(short).unwrap();
    let (mut bytes, mut next) = ([0; 9], 0);
    while !over.load(Ordering::Acquire) {
        let Ok((len, from)) = server.recv_from(&mut bytes) else {
            continue;
        };
        let sequence = u32::from_be_bytes(bytes[4..8].try_into().unwrap());
        if sequence == 0 {
            next = 0;
        }
        assert_eq!(sequence, next, "lost, doubled or overtaken on the way to C");
        next += 1;
        server.send_to(&bytes[..len], from).unwrap();
    }
}

/// Messages of a round, and how many of them are on the way at a time.
const ROUND: u32 = 500;
const WINDOW: u32 = 32;

/// Both directions keep their order while the path changes its tier again and
/// again, and all that was received has come to its end.
fn in_order(gro: bool) {
    if skip_unless_root() {
        return;
    }
    let three = Three::with_gro(&format!("fwd-order-{gro}"), gro);
    let node = three.node("native", "auto");
    let server = three.server(6000);
    let client = three.rig.client_a(5000).unwrap();
    let (over, over_there) = (AtomicBool::new(false), AtomicBool::new(false));
    let sent = std::thread::scope(|scope| {
        let _over = [&over, &over_there].map(Over);
        let echo = scope.spawn(|| echo(&server, &over_there));
        let streams = scope.spawn(|| {
            let mut sent = 0;
            while !over.load(Ordering::Acquire) {
                let _ = stream(&client, 7, ROUND, WINDOW);
                sent += u64::from(ROUND);
            }
            sent
        });
        for number in 0..40 {
            if streams.is_finished() || echo.is_finished() {
                break;
            }
            shift(&node, ["demote", "promote"][number % 2], "relay");
        }
        over.store(true, Ordering::Release);
        let sent: u64 = streams.join().unwrap();
        // The last round has been answered.
        over_there.store(true, Ordering::Release);
        echo.join().unwrap();
        sent
    });
    let status = closed(&node);
    let live = &status["module_paths"];
    assert_eq!(live["received"], 2 * sent, "{live:#}");
    assert_eq!(live["fates"]["forwarded"], 2 * sent, "{live:#}");
    let shown = entry(&status, "paths", "relay");
    assert_eq!(shown["received"], 2 * sent, "{shown:#}");
    assert_eq!(shown["balanced"], true, "{shown:#}");
    let notes = &shown["kernel"]["notes"];
    assert_eq!(shown["notes"], *notes, "{shown:#}");
    let queued = notes["queued_tier"].as_u64().unwrap();
    println!("gro {gro}: {sent} there and back, {notes}");
    assert!(queued > 0 && queued < 2 * sent, "{shown:#}");
    let user: u64 = notes.as_object().unwrap().values().map(number).sum();
    let ran_in = json!({ "kernel": 2 * sent - user, "user": user });
    assert_eq!(shown["ran_in"], ran_in, "{shown:#}");
    node.stop().unwrap();
}

#[test]
fn messages_keep_their_order_while_the_tier_changes() {
    in_order(true);
}

#[test]
fn messages_keep_their_order_while_the_tier_changes_without_gro() {
    in_order(false);
}

/// What C hears until `over` of two senders: how much. Each one's numbers only rise.
fn rising(server: &UdpSocket, over: &AtomicBool) -> u32 {
    let short = Some(Duration::from_millis(20));
    server.set_read_timeout(short).unwrap();
    let (mut bytes, mut heard, mut next) = ([0; 9], 0, [0; 2]);
    loop {
        let Ok((len, _)) = server.recv_from(&mut bytes) else {
            if over.load(Ordering::Acquire) {
                return heard;
            }
            continue;
        };
        assert_eq!(len, 8);
        let [sender, sequence] =
            [0, 4].map(|at| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap()));
        let next = &mut next[sender as usize];
        assert!(sequence >= *next, "{sequence} was overtaken or doubled");
        (heard, *next) = (heard + 1, sequence + 1);
    }
}

/// While the node is stopped, a new sender's message waits for the worker, and behind it,
/// in order, as much of a flood as its part of the ring takes. Then both go on: the worker alone would
/// never come to the flood's end, so the kernel tier has to take over.
#[test]
fn a_flood_does_not_keep_a_relay_in_the_user_tier() {
    if skip_unless_root() {
        return;
    }
    let three = Three::new("fwd-flood");
    let node = three.node("native", "kernel");
    let server = three.server(6000);
    let [client, other] = [(); 2].map(|()| three.rig.client_a(5000).unwrap());
    ask_and_answer(&client, &server, 0);
    // The worker has left its turn, too: else the next message would wait for this one.
    let _ = closed(&node);
    let (over, over_there) = (AtomicBool::new(false), AtomicBool::new(false));
    let heard = std::thread::scope(|scope| {
        let _over = [&over, &over_there].map(Over);
        let heard = scope.spawn(|| rising(&server, &over_there));
        freeze(&node);
        other.send(&request(1, 0)).unwrap();
        let flood = scope.spawn(|| flood(&client, 0, &over));
        // More than that has come when the wire has carried so much.
        let frames = || three.rig.in_b(|| iface::stats("b0")).unwrap().rx_packets;
        let before = frames();
        until("the path's part of the ring is full", || {
            (frames() > before + 1000).then_some(())
        });
        node.signal(Signal::CONT).unwrap();
        until_the_kernel_runs_all(|| {
            let shown = relay(&node);
            let kernel = &shown["kernel"];
            let notes = kernel["notes"].as_object().unwrap().values();
            let notes = notes.map(|note| note.as_u64().unwrap()).sum();
            (kernel["received"].as_u64().unwrap(), notes)
        });
        over.store(true, Ordering::Release);
        flood.join().unwrap();
        // What is under way has its end.
        let _ = closed(&node);
        over_there.store(true, Ordering::Release);
        heard.join().unwrap()
    });
    let status = closed(&node);
    let shown = entry(&status, "paths", "relay");
    let (forwarded, full) = (
        number(&shown["fates"]["forwarded"]),
        number(&shown["fates"]["dropped"]["queue_full"]),
    );
    println!("{forwarded} forwarded, {full} dropped, {heard} heard");
    assert_eq!(number(&shown["received"]), forwarded + full, "{shown:#}");
    assert_eq!(shown["balanced"], true, "{shown:#}");
    assert!(full > 500, "{shown:#}");
    // Each of the two for who it was, and what the part took behind the second.
    let notes = &shown["kernel"]["notes"];
    assert_eq!(number(&notes["queued_tier"]), 2, "{shown:#}");
    assert_eq!(number(&notes["queued_order"]), 127, "{shown:#}");
    assert!(u64::from(heard) <= forwarded, "{shown:#}");
    node.stop().unwrap();
}

/// A relay that the user tier runs fills its own part of the ring, whatever comes: another
/// path loses nothing, and the relay's ledger has what it lost.
#[test]
fn a_flooded_relay_leaves_other_paths_their_room() {
    if skip_unless_root() {
        return;
    }
    for mode in ["native", "generic"] {
        let three = Three::new(&format!("fwd-part-{mode}"));
        let other = r#"
            [module.end]
            kind = "sink"
            down = "udp.up"
            [path.other]
            from = "end"
            attrs = { local = "10.7.0.2:5001", pathname = "eth:b0" }
        "#;
        let node = three.node_with(mode, "user", other);
        let server = three.server(6000);
        let [client, other] = [5000, 5001].map(|port| three.rig.client_a(port).unwrap());
        ask_and_answer(&client, &server, 0);
        other.send(&request(1, 0)).unwrap();
        let shown = |path| {
            let status = closed(&node);
            entry(&status, "paths", path).clone()
        };
        until("both have been there", || {
            let all = [("relay", 2), ("other", 1)];
            let done = |(path, times)| shown(path)["received"] == times;
            all.into_iter().all(done).then_some(())
        });
        freeze(&node);
        for sequence in 0..1280 {
            client.send(&request(0, sequence)).unwrap();
        }
        for sequence in 0..60 {
            other.send(&request(1, sequence)).unwrap();
        }
        node.signal(Signal::CONT).unwrap();
        until("all has come", || {
            (shown("other")["received"] == 61).then_some(())
        });
        let (relay, other) = (shown("relay"), shown("other"));
        assert_eq!(other["fates"]["consumed"], 61, "{mode}: {other:#}");
        assert_eq!(relay["received"], 2 + 1280, "{mode}: {relay:#}");
        assert_eq!(relay["fates"]["forwarded"], 2 + 128, "{mode}: {relay:#}");
        let lost = &relay["fates"]["dropped"]["queue_full"];
        assert_eq!(*lost, 1280 - 128, "{mode}: {relay:#}");
        assert_eq!(relay["balanced"], true, "{mode}: {relay:#}");
        node.stop().unwrap();
    }
}

/// Both ends are known beforehand: C may speak first, and nothing is for the user
/// tier. By command, and removed again.
#[test]
fn a_narrow_relay_is_the_kernel_tiers_in_both_directions() {
    if skip_unless_root() {
        return;
    }
    let three = Three::new("fwd-narrow");
    let config = "[iface.b0]\n[iface.b1]\n[module.relay]\nkind = \"forward\"\ndown = \"udp.up\"";
    let node = three.rig.node(config).start().unwrap();
    let server = three.server(6000);
    let client = three.rig.client_a(5000).unwrap();
    let remote = client.socket().local_addr().unwrap();
    let mac = three.rig.in_a(|| Iface::by_name("a0")).unwrap().mac;
    let mac = mac.map(|byte| format!("{byte:02x}")).join(":");
    let attrs = [
        "pathname=udp/relay".to_owned(),
        "local=10.7.0.2:5000".to_owned(),
        format!("remote={remote}"),
        format!("next_mac={mac}"),
        format!("next_hop={C8}:6000"),
        format!("from={B8}:7000"),
        "out=eth:b1".to_owned(),
        format!("next_hop_mac={MAC_C}"),
    ];
    let create = |name: &str, more: &[&str]| {
        let mut words = vec!["path", "create", "--name", name, "--module", "eth:b0"];
        words.extend_from_slice(more);
        for attr in &attrs {
            words.extend(["--attr", attr]);
        }
        let output = run(&mut node.command(words));
        assert!(output.status.success(), "{}", text(&output));
        text(&output)
    };
    for round in 0..2 {
        let said = create("relay", &["--tier", "kernel"]);
        assert!(said.contains("in the kernel tier"), "{said}");
        server.send_to(b"unasked", format!("{B8}:7000")).unwrap();
        assert_eq!(client.receive().unwrap(), b"unasked");
        for number in 0..20 {
            ask_and_answer(&client, &server, number);
        }
        let status = closed(&node);
        let shown = entry(&status, "paths", "relay");
        assert_eq!(shown["received"], 41, "{shown:#}");
        assert_eq!(shown["fates"]["forwarded"], 41, "{shown:#}");
        assert_eq!(shown["kernel"]["notes"], json!({}), "{shown:#}");
        assert_eq!(status["module_paths"]["received"], 41 * (round + 1));
        let gone = run(&mut node.command(["path", "rm", "relay"]));
        assert!(gone.status.success(), "{}", text(&gone));
    }

    node.stop().unwrap();
}
