//! Input queues: a path that is flooded fills its own part of the ring, and every other
//! path finds room.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ashway_netns::node::{Config, PATIENCE, at_rest, control, entry, freeze, run, text, until};
use ashway_netns::traffic::{Ledger, Over, request, settle};
use ashway_rig::{Node, Rig, RigOptions, UdpClient, skip_unless_root};
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
    for mode in ["native", "generic", "tcx"] {
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
            status["module_paths"]["balanced"], true,
            "{mode}: {:#}",
            status["module_paths"]
        );
        assert_eq!(
            status["module_paths"]["ring"]["dropped_ring_full"], 0,
            "{mode}"
        );
        node.stop().unwrap();
    }
}

/// Answers; a message of the first sender after a millisecond by the clock.
const SLOW: &str = r#"(module (import "ashway" "now_ns" (func $now (result i64)))
    (import "ashway" "msg_load8" (func $load (param i32) (result i32)))
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param i32 i32) (result i32) (local $end i64)
        (if (i32.eqz (call $load (i32.const 3))) (then
            (local.set $end (i64.add (call $now) (i64.const 1_000_000)))
            (loop $on (br_if $on (i64.lt_u (call $now) (local.get $end))))))
        (i32.const 1)))"#;

/// Ten messages a millisecond, each of which takes that long, until `over`: how many.
fn flood_slowly(client: &UdpClient, over: &AtomicBool) -> u32 {
    let mut sent = 0;
    while !over.load(Ordering::Acquire) {
        for _ in 0..10 {
            client.send(&request(0, sent)).unwrap();
            sent += 1;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    sent
}

fn slow_file(rig: &Rig) -> PathBuf {
    let file = std::env::temp_dir().join(format!("{}.wasm", rig.name()));
    std::fs::write(&file, wat::parse_str(SLOW).unwrap()).unwrap();
    file
}

/// Two paths of one handler in the user tier.
fn of_a_handler(rig: &Rig, mode: &str) -> Config {
    let file = slow_file(rig);
    let config = Config::on_b0(mode).text(&format!(
        "[handler.slow]\nfile = '{}'\nallow = ['reply', 'time']",
        file.display()
    ));
    [("flooded", 5000), ("other", 5001)]
        .into_iter()
        .fold(config, |config, (name, port)| {
            config.text(&format!(
                "[path.{name}]\niface = 'b0'\nmatch = 'udp and dst port {port}'\n\
                 handler = 'slow'\ntier = 'user'\nbudget = '5ms'"
            ))
        })
}

/// The same of paths that end in one handler, whose rings they share. Each one's ledger has
/// what it lost itself.
#[test]
fn a_flooded_path_of_a_handler_fills_its_own_part_of_the_ring() {
    if skip_unless_root() {
        return;
    }
    for mode in ["native", "generic", "tcx"] {
        let rig = Rig::new(&format!("path-parts-{mode}"), RigOptions::default()).unwrap();
        let node = rig.node(of_a_handler(&rig, mode)).start().unwrap();
        let [flood, other] = [5000, 5001].map(|port| rig.client_a(port).unwrap());
        for client in [&flood, &other] {
            client.ask(&request(1, 0)).unwrap();
        }
        let _ = at_rest(&node);
        freeze(&node);
        for sequence in 0..1280 {
            flood.send(&request(1, sequence)).unwrap();
        }
        for sequence in 0..60 {
            other.send(&request(1, sequence)).unwrap();
        }
        node.signal(Signal::CONT).unwrap();
        let ended = |path, received: u64| {
            let ledger = settle(&node, path, received);
            assert_eq!(ledger.gap(), None, "{mode}: {ledger:?}");
            ledger
        };
        let fates = [("answered", 129), ("dropped_queue_full", 1280 - 128)];
        ended("flooded", 1281).assert_fates(&fates, &mode);
        ended("other", 61).assert_fates(&[("answered", 61)], &mode);
        node.stop().unwrap();
    }
}

/// A path that gets ten times what its handler can do loses the rest. Another path of that
/// handler loses nothing, and waits for a turn of the first one's and not for its backlog.
#[test]
fn a_flooded_path_has_no_other_wait_for_its_backlog() {
    const ASKED: u32 = 50;
    if skip_unless_root() {
        return;
    }
    for mode in ["native", "generic", "tcx"] {
        let rig = Rig::new(&format!("path-backlog-{mode}"), RigOptions::default()).unwrap();
        let node = rig.node(of_a_handler(&rig, mode)).start().unwrap();
        let [flood, other] = [5000, 5001].map(|port| rig.client_a(port).unwrap());
        other.set_timeout(PATIENCE).unwrap();
        let over = AtomicBool::new(false);
        let answered = |path| Ledger::of(&node.status().unwrap(), path).fate("answered");
        let (sent, done) = std::thread::scope(|scope| {
            let _over = Over(&over);
            let flooding = scope.spawn(|| flood_slowly(&flood, &over));
            until("the flooded path has lost some", || {
                let ledger = Ledger::of(&node.status().unwrap(), "flooded");
                (ledger.fate("dropped_queue_full") > 0).then_some(())
            });
            let before = answered("flooded");
            for sequence in 0..ASKED {
                other.ask(&request(1, sequence)).unwrap();
            }
            let done = answered("flooded") - before;
            over.store(true, Ordering::Release);
            (flooding.join().unwrap(), done)
        });
        let asked = u64::from(ASKED);
        println!("{mode}: {done} of the flood's messages during {asked} of the other path");
        settle(&node, "other", asked).assert_fates(&[("answered", asked)], &mode);
        let flooded = settle(&node, "flooded", u64::from(sent));
        let lost = flooded.fate("dropped_queue_full");
        assert_eq!(flooded.fate("answered") + lost, u64::from(sent), "{mode}");
        assert!(done < 20 * asked, "{mode}: {done}");
        node.stop().unwrap();
    }
}

/// However long one path of modules gets ten times what it can do: another one, and one of a
/// handler, lose nothing.
#[test]
fn a_flood_of_one_path_costs_no_other_a_message() {
    const ASKED: u32 = 500;
    if skip_unless_root() {
        return;
    }
    for mode in ["native", "generic", "tcx", "packet"] {
        let rig = Rig::new(&format!("path-flood-{mode}"), RigOptions::default()).unwrap();
        let node = rig.node(config(mode)).start().unwrap();
        let loaded = json!({ "request": "load", "file": slow_file(&rig), "name": "slow",
            "allow": ["reply", "time"], "down": "udp.up", "up": "end.down" });
        control(&node, &loaded).unwrap();
        let created = json!({ "request": "create", "name": "slow", "module": "end", "attrs": {
            "local": "10.7.0.2:5002", "pathname": "handler:slow/udp/eth:b0",
            "budget_ns": 5_000_000 } });
        control(&node, &created).unwrap();
        let [flood, other, counter] = [5002, 5001, 7777].map(|port| rig.client_a(port).unwrap());
        let over = AtomicBool::new(false);
        let sent = std::thread::scope(|scope| {
            let _over = Over(&over);
            let flooding = scope.spawn(|| flood_slowly(&flood, &over));
            until("the flooded path has lost some", || {
                (fate(&shown(&node, "slow"), "dropped_queue_full") > 0).then_some(())
            });
            for sequence in 0..ASKED {
                other.send(&request(1, sequence)).unwrap();
                counter.send(&request(1, sequence)).unwrap();
                std::thread::sleep(Duration::from_millis(1));
            }
            over.store(true, Ordering::Release);
            u64::from(flooding.join().unwrap())
        });
        let asked = u64::from(ASKED);
        settle(&node, "counter", asked).assert_fates(&[("answered", asked)], &mode);
        for (path, sent) in [("other", asked), ("slow", sent)] {
            let shown = until("all messages have ended", || {
                let shown = shown(&node, path);
                (shown["received"] == sent && shown["waiting"] == 0).then_some(shown)
            });
            let lost = fate(&shown, "dropped_queue_full");
            assert_eq!(lost > 0, path == "slow", "{mode}: {shown:#}");
            let ended = fate(&shown, "consumed") + fate(&shown, "answered");
            assert_eq!(ended + lost, sent, "{mode}: {shown:#}");
        }
        let unmatched = &node.status().unwrap()["interfaces"][0]["unmatched"];
        assert_eq!(unmatched["overflowed"], 0, "{mode}");
        node.stop().unwrap();
    }
}

/// Frames that found the CPU's own backlog full, before any socket saw them.
fn lost_before(rig: &Rig) -> u64 {
    let shown = run(rig.command_b("ip").args(["-j", "-s", "link", "show", "b0"]));
    let links: Value = serde_json::from_slice(&shown.stdout).unwrap();
    links[0]["stats64"]["rx"]["dropped"].as_u64().unwrap()
}

/// What comes while nobody takes anything from a packet socket is counted, too, when that is full.
#[test]
fn what_overflows_a_packet_socket_is_counted() {
    const FLOOD: u32 = 60_000;
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("path-queues-overflow", RigOptions::default()).unwrap();
    let node = rig.node(config("packet")).start().unwrap();
    let flood = rig.client_a(5000).unwrap();
    freeze(&node);
    for sequence in 0..FLOOD {
        flood.send(&request(0, sequence)).unwrap();
    }
    node.signal(Signal::CONT).unwrap();
    let sent = u64::from(FLOOD);
    let (received, overflowed) = until("all are counted", || {
        let status = at_rest(&node);
        let number = |value: &Value| value.as_u64().unwrap();
        let received = number(&entry(&status, "paths", "flooded")["received"]);
        let overflowed = number(&status["interfaces"][0]["unmatched"]["overflowed"]);
        let all = received + overflowed + lost_before(&rig);
        // Neighbours may have asked for each other meanwhile.
        assert!(all < sent + 20, "{all}");
        (all >= sent).then_some((received, overflowed))
    });
    println!("{received} received, {overflowed} lost");
    assert!(received > 0 && overflowed > 0, "{received}, {overflowed}");
    let printed = run(&mut node.command(["status"]));
    let said = "frames found its packet socket full";
    assert!(text(&printed).contains(said), "{}", text(&printed));
    node.stop().unwrap();
}

/// On packet sockets the worker decides, before it copies; a queue holds 256. The socket has
/// kept all that comes here, and each turn of the flooded path takes as long as 32 messages of
/// it wait to be looked at.
#[test]
fn a_path_on_a_packet_socket_has_a_queue_of_its_own() {
    const FLOOD: u32 = 400;
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("path-queues-packet", RigOptions::default()).unwrap();
    let node = rig.node(of_a_handler(&rig, "packet")).start().unwrap();
    let [flood, other] = [5000, 5001].map(|port| rig.client_a(port).unwrap());
    freeze(&node);
    for sequence in 0..FLOOD {
        flood.send(&request(0, sequence)).unwrap();
        if sequence % 16 == 0 {
            other.send(&request(1, sequence)).unwrap();
        }
    }
    node.signal(Signal::CONT).unwrap();
    let asked = u64::from(FLOOD.div_ceil(16));
    settle(&node, "other", asked).assert_fates(&[("answered", asked)], &"packet");
    let flooded = settle(&node, "flooded", u64::from(FLOOD));
    let [answered, lost] = ["answered", "dropped_queue_full"].map(|fate| flooded.fate(fate));
    assert_eq!(answered + lost, u64::from(FLOOD), "{flooded:?}");
    // What the queue holds, and one for each look while it filled.
    assert!((256..330).contains(&answered), "{flooded:?}");
    let shown = shown(&node, "flooded");
    assert_eq!(shown["queues"]["in_backward"]["maximum"], 256, "{shown:#}");
    node.stop().unwrap();
}

/// A path's queue is as long as its attribute says, and `path show` says how many wait while
/// they do.
#[test]
fn a_queue_is_as_long_as_its_path_says() {
    if skip_unless_root() {
        return;
    }
    for mode in ["native", "packet"] {
        let rig = Rig::new(&format!("path-queue-{mode}"), RigOptions::default()).unwrap();
        let config = Config::on_b0(mode).text("[module.end]\nkind = 'sink'\ndown = 'udp.up'");
        let node = rig.node(config).start().unwrap();
        let file = slow_file(&rig);
        let loaded = json!({ "request": "load", "file": file, "name": "slow",
            "allow": ["reply", "time"], "down": "udp.up", "up": "end.down" });
        control(&node, &loaded).unwrap();
        let create = |queue: u64| {
            json!({ "request": "create", "name": "short", "module": "end",
                "attrs": { "local": "10.7.0.2:5000", "pathname": "handler:slow/udp/eth:b0",
                    "budget_ns": 5_000_000, "queue": queue } })
        };
        let refused = control(&node, &create(0)).unwrap_err();
        let message = refused["message"].as_str().unwrap();
        assert!(message.contains("queue"), "{mode}: {refused}");
        control(&node, &create(16)).unwrap();
        let client = rig.client_a(5000).unwrap();
        let over = AtomicBool::new(false);
        let (sent, queue) = std::thread::scope(|scope| {
            let _over = Over(&over);
            let flooding = scope.spawn(|| flood_slowly(&client, &over));
            let queue = until("some wait, and some answers to be transmitted", || {
                let queues = shown(&node, "short")["queues"].clone();
                let some = |queue: &str| queues[queue]["length"] != 0;
                let both = some("in_backward") && (some("out_forward") || some("out_backward"));
                both.then(|| queues["in_backward"].clone())
            });
            over.store(true, Ordering::Release);
            (u64::from(flooding.join().unwrap()), queue)
        });
        assert_eq!(queue["maximum"], 16, "{mode}");
        assert!(queue["length"].as_u64() <= Some(16), "{mode}: {queue}");
        let shown = until("all messages have ended", || {
            let shown = shown(&node, "short");
            let ended = shown["received"] == sent && shown["waiting"] == 0;
            (ended && shown["balanced"] == true).then_some(shown)
        });
        let [answered, lost] = ["answered", "dropped_queue_full"].map(|which| fate(&shown, which));
        assert_eq!(answered + lost, sent, "{mode}: {shown:#}");
        assert!(answered >= 16 && lost > 0, "{mode}: {shown:#}");
        assert_eq!(shown["queues"]["in_backward"]["length"], 0, "{mode}");
        node.stop().unwrap();
    }
}
