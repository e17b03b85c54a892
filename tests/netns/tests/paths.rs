//! Paths that come and go on a running node, beside one that must not notice.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use std::fs;
use std::io::{BufRead, BufReader, Write as _};
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ashway_netns::node::{Config, entry, run, text, until, worker_task};
use ashway_netns::traffic::{Over, request};
use ashway_rig::{Node, Rig, RigOptions, skip_unless_root};
use serde_json::{Value, json};

/// Two sinks, and a path into one of them that is there from the start.
fn config(mode: &str) -> Config {
    Config::on_b0(mode).text(
        r#"
[module.end]
kind = "sink"
down = "udp.up"
[module.udp]
kind = "udp"
down = "ip.up"
[module.frag]
kind = "fragment"
down = "eth:b0.up"
[path.steady]
from = "end"
attrs = { local = "10.7.0.2:5000", pathname = "eth:b0" }
"#,
    )
}

fn ask(node: &Node, request: &Value) -> Value {
    let mut stream = UnixStream::connect(node.socket()).unwrap();
    // In one piece: a busy node does not wait long for the rest.
    stream.write_all(format!("{request}\n").as_bytes()).unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    let answer: Value = serde_json::from_str(&line).unwrap();
    assert!(answer.get("error").is_none(), "{request:.300}: {answer:#}");
    answer["ok"].clone()
}

/// A path of one flow.
fn flow(number: u32) -> Value {
    let (high, low) = (number / 250, number % 250 + 1);
    json!({
        "module": "end",
        "name": format!("flow-{number}"),
        "attrs": {
            "local": "10.7.0.2:6000",
            "remote": format!("10.7.{}.{low}:7000", high + 1),
            "pathname": "eth:b0",
        },
    })
}

fn received(node: &Node, path: &str) -> u64 {
    let shown = ask(node, &json!({ "request": "show", "path": path }));
    assert_eq!(shown["balanced"], true, "{shown:#}");
    shown["received"].as_u64().unwrap()
}

fn come_and_go(mode: &str) {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new(&format!("paths-{mode}"), RigOptions::default()).unwrap();
    let node = rig.node(config(mode)).start().unwrap();
    let client = rig.client_a(5000).unwrap();
    client.send(b"first").unwrap();
    until("the first message comes", || {
        (received(&node, "steady") == 1).then_some(())
    });

    let stop = AtomicBool::new(false);
    let sent = std::thread::scope(|scope| {
        let _stop = Over(&stop);
        let traffic = scope.spawn(|| {
            let mut sent = 1_u64;
            while !stop.load(Ordering::Relaxed) {
                client.send(&sent.to_be_bytes()).unwrap();
                sent += 1;
                // Slower than the ring is emptied, on a busy machine too.
                std::thread::sleep(Duration::from_micros(500));
            }
            sent
        });
        // Singly, so that shapes grow from constants into a map and go again.
        for number in 0..40 {
            let mut request = flow(number);
            request["request"] = json!("create");
            ask(&node, &request);
        }
        for number in 0..40 {
            ask(
                &node,
                &json!({ "request": "remove", "path": format!("flow-{number}") }),
            );
        }
        // Many at a time.
        for _ in 0..3 {
            for first in (0..1000).step_by(250) {
                let paths: Vec<_> = (first..first + 250).map(flow).collect();
                let made = ask(&node, &json!({ "request": "create", "paths": paths }));
                assert_eq!(made["created"].as_array().unwrap().len(), 250);
            }
            let status = node.status().unwrap();
            assert_eq!(status["module_paths"]["paths"], 1001);
            // A thousand are shown one by one.
            assert_eq!(status["paths_not_listed"], 1);
            for first in (0..1000).step_by(250) {
                let names: Vec<_> = (first..first + 250).map(|n| format!("flow-{n}")).collect();
                ask(&node, &json!({ "request": "remove", "paths": names }));
            }
            assert_eq!(node.status().unwrap()["module_paths"]["paths"], 1);
        }
        stop.store(true, Ordering::Relaxed);
        traffic.join().unwrap()
    });
    // A worker without a CPU for a tenth of a second finds its ring full: that is counted.
    until("all messages come", || {
        let ring = &node.status().unwrap()["module_paths"]["ring"];
        let full = ring["dropped_ring_full"].as_u64().unwrap();
        (received(&node, "steady") + full == sent).then_some(())
    });
    let live = node.status().unwrap()["module_paths"].clone();
    assert_eq!(live["received"], sent, "{live:#}");
    assert_eq!(live["balanced"], true, "{live:#}");
    node.stop().unwrap();
}

#[test]
fn a_path_under_traffic_does_not_notice_a_thousand_others_by_xdp() {
    come_and_go("native");
}

#[test]
fn a_path_under_traffic_does_not_notice_a_thousand_others_by_packet_sockets() {
    come_and_go("packet");
}

/// The first path of another shape has its messages from the answer on, and another path
/// loses none, while the programs that have the shapes are made and put in place.
#[test]
fn the_first_path_of_a_shape_is_served_at_once() {
    const SHAPES: u16 = 12;
    const MESSAGES: u16 = 40;
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("paths-shapes", RigOptions::default()).unwrap();
    let node = rig.node(config("native")).start().unwrap();
    let steady = rig.client_a(5000).unwrap();
    let of_shape = |shape: u16| {
        let name = format!("shape-{shape}");
        (name, rig.client_a(6000 + shape).unwrap())
    };
    let shapes: Vec<_> = (0..SHAPES).map(of_shape).collect();
    let pause = || std::thread::sleep(Duration::from_micros(500));
    let send_all = || {
        for _ in 0..MESSAGES {
            for (_, client) in &shapes {
                client.send(b"again").unwrap();
            }
            pause();
        }
    };
    let stop = AtomicBool::new(false);
    let sent = std::thread::scope(|scope| {
        let _stop = Over(&stop);
        let traffic = scope.spawn(|| {
            let mut sent = 0_u64;
            while !stop.load(Ordering::Relaxed) {
                steady.send(b"steady").unwrap();
                sent += 1;
                pause();
            }
            sent
        });
        let mut programs = 0;
        // Each tests another number of bits, and comes while the programs for those
        // before it are made.
        for (shape, (name, client)) in (0..).zip(&shapes) {
            let request = json!({
                "request": "create",
                "module": "end",
                "name": name,
                "match": format!("src net 10.7.0.0/{}", 16 + shape),
                "attrs": { "local": format!("10.7.0.2:{}", 6000 + shape), "pathname": "eth:b0" },
            });
            ask(&node, &request);
            if shape % 2 == 1 {
                // What has gone comes again while the program is made.
                ask(&node, &json!({ "request": "remove", "paths": [name] }));
                ask(&node, &request);
            }
            let status = node.status().unwrap();
            let operations = status["operations"].as_array().unwrap().iter();
            programs += operations
                .filter(|one| one["does"] == "entry" && one["by"] == "the node")
                .count();
            for _ in 0..MESSAGES {
                client.send(b"first").unwrap();
                pause();
            }
        }
        assert!(
            programs > 0,
            "no request made a program and had others wait"
        );
        send_all();
        until("the programs have all shapes", || {
            let operations = node.status().unwrap()["operations"].clone();
            operations.as_array().unwrap().is_empty().then_some(())
        });
        send_all();
        stop.store(true, Ordering::Relaxed);
        traffic.join().unwrap()
    });
    let of_shape = 3 * u64::from(MESSAGES);
    let all = sent + u64::from(SHAPES) * of_shape;
    // A worker without a CPU for a tenth of a second finds its ring full: that is counted.
    until("all messages come", || {
        let live = &node.status().unwrap()["module_paths"];
        let full = live["ring"]["dropped_ring_full"].as_u64().unwrap();
        let came: u64 = shapes.iter().map(|(name, _)| received(&node, name)).sum();
        assert!(received(&node, "steady") + came + full <= all, "{live:#}");
        (received(&node, "steady") + came + full == all).then_some(())
    });
    for (name, _) in &shapes {
        assert!(received(&node, name) <= of_shape, "{name}");
    }
    // They go at once too, and their messages are the host's again.
    let names: Vec<_> = shapes.iter().map(|(name, _)| name).collect();
    ask(&node, &json!({ "request": "remove", "paths": names }));
    let host = rig.in_b(|| UdpSocket::bind("10.7.0.2:6000")).unwrap();
    host.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    shapes[0].1.send(b"hello").unwrap();
    assert_eq!(host.recv(&mut [0; 9]).unwrap(), 5);
    node.stop().unwrap();
}

/// The words of the command line, and what is refused.
#[test]
fn paths_are_made_shown_and_removed_by_command() {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("paths-words", RigOptions::default()).unwrap();
    let node = rig.node(config("native")).start().unwrap();
    let create = |words: &[&str]| run(&mut node.command([&["path", "create"], words].concat()));
    let made = create(&[
        "--module",
        "end",
        "--name",
        "mine",
        "--attr",
        "local=10.7.0.2:6000",
        "--attr",
        "pathname=eth:b0",
        "-v",
    ]);
    assert!(
        made.status.success() && text(&made).contains("stages"),
        "{}",
        text(&made)
    );
    rig.client_a(6000).unwrap().send(b"hello").unwrap();
    until("the message comes", || {
        (received(&node, "mine") == 1).then_some(())
    });
    let shown = text(&run(&mut node.command(["path", "show", "mine"])));
    for word in [
        "udp and dst port 6000",
        "in backward: 0 of 256",
        "received  1",
        "consumed",
    ] {
        assert!(shown.contains(word), "no `{word}` in:\n{shown}");
    }
    assert!(text(&run(&mut node.command(["path", "ls"]))).contains("mine"));

    // What demux has, with what it caught, and who gets a flow.
    let shown = run(&mut node.command(["demux", "show", "-j"]));
    let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
    let entries = shown["interfaces"][0]["shapes"].as_array().unwrap().iter();
    let mut entries = entries.flat_map(|shape| shape["paths"].as_array().unwrap());
    let mine = entries.find(|entry| entry["path"] == "mine").unwrap();
    assert_eq!(mine["hits"], 1, "{shown:#}");
    let shown = text(&run(&mut node.command(["demux", "show"])));
    for word in ["b0: 2 filters, 1 shape", "1 hits", "HITS", "mine"] {
        assert!(shown.contains(word), "no `{word}` in:\n{shown}");
    }
    let why = text(&run(
        &mut node.command(["why", "udp 10.7.0.1:9 > 10.7.0.2:6000"])
    ));
    for word in ["mine", "steady"] {
        assert!(why.contains(word), "no `{word}` in:\n{why}");
    }
    let promoted = run(&mut node.command(["path", "promote", "mine"]));
    assert!(
        text(&promoted).contains("stays in the user tier"),
        "{}",
        text(&promoted)
    );

    let unknown = text(&run(&mut node.command(["path", "promote", "nope"])));
    for word in ["there is no path `nope`", "`mine`", "`steady`"] {
        assert!(unknown.contains(word), "no `{word}` in:\n{unknown}");
    }

    // The same messages; a name that is taken; no such module. Nothing changes.
    for (words, says) in [
        (
            &[
                "--module",
                "end",
                "--attr",
                "local=10.7.0.2:6000",
                "--attr",
                "pathname=eth:b0",
            ][..],
            "`mine`",
        ),
        (&["--module", "end", "--name", "mine"][..], "already"),
        (&["--module", "ende"][..], "ende"),
    ] {
        let refused = create(words);
        assert!(
            !refused.status.success() && text(&refused).contains(says),
            "{}",
            text(&refused)
        );
    }
    assert_eq!(node.status().unwrap()["module_paths"]["paths"], 2);

    let file = node.config().with_file_name("paths.ndjson");
    let lines: Vec<_> = (0..600).map(|number| flow(number).to_string()).collect();
    fs::write(&file, lines.join("\n")).unwrap();
    let made = create(&["--from", file.to_str().unwrap()]);
    assert!(made.status.success(), "{}", text(&made));
    assert_eq!(node.status().unwrap()["module_paths"]["paths"], 602);
    let gone = run(&mut node.command(["path", "rm", "mine", "flow-3"]));
    assert!(gone.status.success(), "{}", text(&gone));
    // Its messages are the host's again.
    let host = rig.in_b(|| UdpSocket::bind("10.7.0.2:6000")).unwrap();
    host.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    rig.client_a(6000).unwrap().send(b"hello").unwrap();
    assert_eq!(host.recv(&mut [0; 9]).unwrap(), 5);
    node.stop().unwrap();
}

/// A path for one flow, made while a wider path has the traffic of two: from the answer on it
/// has all messages of its flow and none of the other, and none is lost.
#[test]
fn a_narrower_path_takes_exactly_its_flow_under_traffic() {
    if skip_unless_root() {
        return;
    }
    for mode in ["native", "generic", "tcx", "packet"] {
        let rig = Rig::new(&format!("paths-narrow-{mode}"), RigOptions::default()).unwrap();
        let node = rig.node(config(mode)).start().unwrap();
        let narrow = |remote: SocketAddr| {
            json!({
                "request": "create", "module": "end", "name": "narrow",
                "attrs": {
                    "local": "10.7.0.2:5000", "remote": remote.to_string(), "pathname": "eth:b0",
                },
            })
        };
        takes_exactly_its_flow(&rig, &node, "steady", "consumed", narrow, mode);
        assert_eq!(
            node.status().unwrap()["module_paths"]["balanced"],
            true,
            "{mode}"
        );
        node.stop().unwrap();
    }
}

/// The same of paths of a handler, in both tiers.
#[test]
fn a_narrower_path_of_a_handler_takes_exactly_its_flow_under_traffic() {
    if skip_unless_root() {
        return;
    }
    for (mode, tier) in [
        ("native", "kernel"),
        ("native", "user"),
        ("generic", "kernel"),
        ("tcx", "kernel"),
        ("tcx", "user"),
        ("packet", "user"),
    ] {
        let place = format!("{mode}, {tier}");
        let name = format!("paths-narrow-{mode}-{tier}");
        let rig = Rig::new(&name, RigOptions::default()).unwrap();
        let config = Config::on_b0(mode).handler("counter").unwrap();
        let config = config.path("counter", 5000, tier);
        let node = rig.node(config).start().unwrap();
        let narrow = |remote: SocketAddr| {
            let port = remote.port();
            json!({
                "request": "bind", "handler": "counter", "iface": ["b0"], "path": "narrow",
                "match": format!("udp and dst port 5000 and src port {port}"), "tier": tier,
            })
        };
        takes_exactly_its_flow(&rig, &node, "counter", "answered", narrow, &place);
        for path in ["counter", "narrow"] {
            let status = node.status().unwrap();
            assert_eq!(entry(&status, "paths", path)["tier"], tier, "{place}");
        }
        node.stop().unwrap();
    }
}

/// Two flows of the path `wide`, of which a path takes one that is made meanwhile by the request
/// `narrow`. Messages end with this fate.
fn takes_exactly_its_flow(
    rig: &Rig,
    node: &Node,
    wide: &str,
    fate: &str,
    narrow: impl Fn(SocketAddr) -> Value,
    place: &str,
) {
    /// Rounds that are on their way at most: their messages fit a path's part of a ring.
    const WINDOW: u64 = 32;
    /// Rounds before the path is made, and after it.
    const ROUNDS: u64 = 500;
    let [flow, other] = [(); 2].map(|()| rig.client_a(5000).unwrap());
    let ended = || {
        let status = node.status().unwrap();
        let paths = status["paths"].as_array().unwrap();
        let of = |name: &str| {
            let path = paths.iter().find(|path| path["name"] == name);
            path.map_or(0, |path| path["fates"][fate].as_u64().unwrap())
        };
        [wide, "narrow"].map(of)
    };
    let all_of = |rounds: u64| {
        until("all messages come", || {
            let ended = ended();
            (ended.iter().sum::<u64>() == 3 * rounds).then_some(ended)
        })
    };
    let (stop, begun) = (AtomicBool::new(false), AtomicU64::new(0));
    let [before, after] = std::thread::scope(|scope| {
        let _stop = Over(&stop);
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let round = 1 + begun.fetch_add(1, Ordering::SeqCst);
                flow.send(&request(1, 0)).unwrap();
                // Twice, so that one flow is not taken for the other.
                (0..2).for_each(|_| other.send(&request(1, 0)).unwrap());
                if round.is_multiple_of(WINDOW) {
                    all_of(round);
                }
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        let begun = || begun.load(Ordering::SeqCst);
        let pass = || {
            let end = begun() + ROUNDS;
            until("some rounds pass", || (begun() > end).then_some(()));
        };
        pass();
        let before = begun();
        ask(node, &narrow(flow.socket().local_addr().unwrap()));
        let after = begun();
        pass();
        [before, after]
    });
    let rounds = begun.into_inner();
    let [wide, narrow] = all_of(rounds);
    println!("{place}: {rounds} rounds, {wide} and {narrow} messages");
    // Which of the rounds that began before the answer came first, nobody knows.
    assert!(
        (rounds - after..=rounds - before + 1).contains(&narrow),
        "{place}: {narrow} of {rounds} rounds, made between {before} and {after}"
    );
}

/// Where a message goes on to another path no thread waits and none is woken: a datagram in two
/// fragments runs one path twice and another once, and the worker sleeps once for it.
#[test]
fn a_message_crosses_to_another_path_without_a_context_switch() {
    const DATAGRAMS: u64 = 1000;
    if skip_unless_root() {
        return;
    }
    for mode in ["native", "generic", "tcx", "packet"] {
        let rig = Rig::new(&format!("paths-switch-{mode}"), RigOptions::default()).unwrap();
        let node = rig.node(config(mode)).start().unwrap();
        let frags = json!({
            "request": "create", "module": "frag", "name": "frags",
            "attrs": { "reassembly_bytes": 40_000, "mtu": 1500 },
        });
        ask(&node, &frags);
        let client = rig.client_a(5000).unwrap();
        let switches = || {
            let status = fs::read_to_string(worker_task(&node).join("status")).unwrap();
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            line.unwrap().trim().parse::<u64>().unwrap()
        };
        let before = switches();
        for _ in 0..DATAGRAMS {
            client.send(&[7; 2000]).unwrap();
            std::thread::sleep(Duration::from_micros(300));
        }
        let switches = switches() - before;
        until("all come", || {
            (received(&node, "steady") == DATAGRAMS).then_some(())
        });
        let runs = ["frags", "steady"].map(|path| {
            let shown = ask(&node, &json!({ "request": "show", "path": path }));
            shown["runs"].as_u64().unwrap()
        });
        println!("{mode}: {switches} context switches for {runs:?} runs");
        assert_eq!(runs, [2 * DATAGRAMS, DATAGRAMS], "{mode}");
        assert!(switches < DATAGRAMS * 3 / 2, "{mode}: {switches}");
        node.stop().unwrap();
    }
}

/// Fragments go to the path that puts them together, and the whole goes on to the
/// path that its ports belong to (Scout's short and wide path).
#[test]
fn fragments_are_put_together_and_classified_again() {
    if skip_unless_root() {
        return;
    }
    for mode in ["native", "packet"] {
        let rig = Rig::new(&format!("paths-frag-{mode}"), RigOptions::default()).unwrap();
        let node = rig.node(config(mode)).start().unwrap();
        let frags = json!({
            "request": "create", "module": "frag", "name": "frags",
            "attrs": { "reassembly_bytes": 40_000, "mtu": 1500 },
        });
        ask(&node, &frags);
        let client = rig.client_a(5000).unwrap();
        client.send(&[7; 4000]).unwrap();
        client.send(&[7; 100]).unwrap();
        until("both come", || {
            (received(&node, "steady") == 2).then_some(())
        });
        assert_eq!(received(&node, "frags"), 3, "{mode}");
        let status = node.status().unwrap();
        let frags = entry(&status, "paths", "frags");
        assert_eq!(frags["fates"]["absorbed"], 2, "{frags:#}");
        assert_eq!(frags["fates"]["forwarded"], 1, "{frags:#}");
        // Three fragments, a short one, and the whole.
        let live = &status["module_paths"];
        assert_eq!(
            (&live["received"], &live["balanced"]),
            (&json!(5), &json!(true)),
            "{live:#}"
        );
        ask(&node, &json!({ "request": "remove", "path": "frags" }));
        client.send(&[7; 100]).unwrap();
        until("it comes", || {
            (received(&node, "steady") == 3).then_some(())
        });
        node.stop().unwrap();
    }
}

/// The host's own fragmented datagrams go by the path that puts fragments together,
/// too; they come to it as if there were none: each once, however long.
#[test]
fn long_datagrams_of_the_host_survive_beside_a_path_for_all_fragments() {
    if skip_unless_root() {
        return;
    }
    for mode in ["native", "generic", "tcx", "packet"] {
        let rig = Rig::new(&format!("paths-own-{mode}"), RigOptions::default()).unwrap();
        let node = rig.node(config(mode)).start().unwrap();
        ask(
            &node,
            &json!({ "request": "create", "module": "frag", "name": "frags" }),
        );
        for host in ["10.7.0.2", "fd07::2"] {
            let sizes = ["-s", "6000", "-i", "0.2", "-c", "3", "-W", "5", host];
            let ping = text(&run(rig.command_a("ping").args(sizes)));
            assert!(
                ping.contains("3 received") && !ping.contains("DUP"),
                "{mode}: {ping}\n{}",
                text(&run(&mut node.command(["status"])))
            );
        }
        let own = rig.in_b(|| UdpSocket::bind("[::]:9000")).unwrap();
        own.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut datagram = vec![0; 65_536];
        for client in [rig.client_a(9000).unwrap(), rig.client_a_v6(9000).unwrap()] {
            for len in [1473, 4000, 20_000, 65_000] {
                let sent: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
                client.send(&sent).unwrap();
                let (came, from) = own.recv_from(&mut datagram).unwrap();
                assert!(datagram[..came] == sent, "{mode}: {came} of {len} bytes");
                // And the answer, which is cut by the host.
                own.send_to(&datagram[..came], from).unwrap();
                assert!(
                    client.receive().unwrap() == sent,
                    "{mode}: {len} bytes back"
                );
            }
        }
        own.set_nonblocking(true).unwrap();
        assert!(own.recv(&mut datagram).is_err(), "{mode}: a second copy");
        let live = node.status().unwrap()["module_paths"].clone();
        assert_eq!(live["balanced"], true, "{mode}: {live:#}");
        assert_eq!(live["fates"]["dropped"], json!({}), "{mode}: {live:#}");
        node.stop().unwrap();
    }
}
