//! A message that stops a handler, in either tier, stops it again at the same source line
//! in either, from what the node has kept and without the node (X-10).

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use std::sync::atomic::{AtomicBool, Ordering};

use ashway_netns::node::{Config, at_rest, control as ask, entry, run, text, until};
use ashway_netns::traffic::{Over, Place, TIERS, path, request, stream, two_queues};
use ashway_rig::{Rig, RigOptions, skip_unless_root};
use serde_json::{Value, json};

#[test]
fn what_stopped_a_handler_stops_it_again_at_the_same_line() {
    if skip_unless_root() {
        return;
    }
    for place in TIERS {
        stops_again(place);
    }
}

fn stops_again(place: Place) {
    let rig = Rig::new("faults", RigOptions::default()).unwrap();
    let handlers = ["wild", "divide", "outside"];
    let config =
        handlers
            .iter()
            .zip(7001..)
            .fold(Config::on_b0("native"), |config, (handler, port)| {
                let config = config.handler(handler).unwrap();
                path(
                    config,
                    handler,
                    handler,
                    port,
                    place,
                    "on_fault = \"drop\"\nfaults = \"off\"",
                )
            });
    let node = rig.node(config).start().unwrap();
    let mut numbers = Vec::new();
    for (handler, port) in handlers.iter().zip(7001..) {
        let client = rig.client_a(port).unwrap();
        let message = [0xff, 0xff, 0, 0, 0, 0, 0, 0];
        let request = json!({ "request": "faults", "handler": handler });
        // Twice the same place: kept once. The kernel tier keeps one in 100 ms.
        let mut sent = 0;
        let fault = until("the handler is stopped twice", || {
            if place.tier == "kernel" || sent < 2 {
                client.send(&message).unwrap();
                sent += 1;
            }
            let list = ask(&node, &request).unwrap();
            let fault = list.as_array().unwrap().first().cloned()?;
            (fault["times"] == 2).then_some(fault)
        });
        assert_eq!(fault["tier"], place.tier, "{fault}");
        let export = json!({ "request": "fault", "fault": fault["fault"] });
        let kept = ask(&node, &export).unwrap();
        assert_eq!(kept["message"], "ffff000000000000", "the same packet");
        // Ethernet, IP and UDP are in front of it; there the ports begin.
        let front = kept["front"].as_str().unwrap();
        let ports = format!(
            "{:04x}{port:04x}",
            client.socket().local_addr().unwrap().port()
        );
        assert_eq!((front.len(), &front[68..76]), (2 * 42, &*ports));
        let number = fault["fault"].to_string();
        let cause = fault["cause"].as_str().unwrap();
        let place = format!("apps/handlers/{handler}.c:{}", fault["line"]);
        println!("{handler}: {cause} at {place}");
        for tier in ["user", "kernel"] {
            let mut command = node.command(["handler", "replay", &number, "--tier", tier]);
            let output = run(&mut command);
            let words = text(&output);
            assert!(output.status.success(), "{handler}, {tier}: {words}");
            let again = format!("in the {tier} tier: {cause} at {place}: the same");
            assert!(words.contains(&again), "{handler}: {words}");
        }
        numbers.push(number);
    }
    let listed = text(&run(&mut node.command(["handler", "faults"])));
    assert!(listed.contains("apps/handlers/divide.c:"), "{listed}");
    // Another number, and a name that is none.
    let output = run(&mut node.command(["handler", "replay", "77"]));
    assert!(text(&output).contains("no fault `77`"), "{}", text(&output));
    let output = run(&mut node.command(["handler", "replay", "../x"]));
    assert_eq!(output.status.code(), Some(2));
    // Without the node.
    let file = node.config().parent().unwrap().join("fault.json");
    let file = file.to_str().unwrap().to_owned();
    let output = run(&mut node.command(["handler", "faults", "--export", &numbers[1], &file]));
    assert!(output.status.success(), "{}", text(&output));
    let command = |words: [&str; 3]| run(&mut node.command(words));
    let output = command(["handler", "replay", &file]);
    assert!(text(&output).contains("the same"), "{}", text(&output));
    // The twin: another memory, and another message, have another end.
    let kept = std::fs::read_to_string(&file).unwrap();
    let mut other: Value = serde_json::from_str(&kept).unwrap();
    other["message"] = json!("ffffffffffffffff");
    std::fs::write(&file, other.to_string()).unwrap();
    let output = command(["handler", "replay", &file]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains("another end"), "{}", text(&output));
    std::fs::write(&file, "{}").unwrap();
    assert_eq!(command(["handler", "replay", &file]).status.code(), Some(2));
    node.stop().unwrap();
}

/// Has each message's second number in its memory, and is stopped by one that begins with
/// 255, at one of eight places.
const NOTES: &str = r#"(module
    (import "ashway" "msg_load8" (func $load8 (param i32) (result i32)))
    (import "ashway" "msg_load32be" (func $load32 (param i32) (result i32)))
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param i32 i32) (result i32)
        (i32.store (i32.const 1024) (call $load32 (i32.const 4)))
        (if (i32.eq (call $load8 (i32.const 0)) (i32.const 255)) (then
            block block block block block block block block
            (br_table 0 1 2 3 4 5 6 7 (call $load8 (i32.const 1)))
            end unreachable end unreachable end unreachable end unreachable
            end unreachable end unreachable end unreachable end unreachable))
        i32.const 1))"#;

/// What is kept in softirq are the packet and the memory of one moment, whatever comes on
/// other CPUs meanwhile: the handler stays as it is until both are taken.
#[test]
fn a_fault_in_softirq_is_kept_with_the_memory_of_that_moment() {
    if skip_unless_root() {
        return;
    }
    let rig = two_queues("moment", true);
    let file = std::env::temp_dir().join(format!("ashway-notes-{}.wasm", std::process::id()));
    std::fs::write(&file, wat::parse_str(NOTES).unwrap()).unwrap();
    let config = TIERS[1].config().handler_file("notes", &file);
    let more = "on_fault = \"drop\"\nfaults = \"off\"";
    let config = path(config, "notes", "notes", 7777, TIERS[1], more);
    let node = rig.node(config).start().unwrap();
    std::fs::remove_file(&file).unwrap();
    let over = AtomicBool::new(false);
    let (good, bad) = (rig.client_a(7777).unwrap(), rig.client_a(7777).unwrap());
    let number = |n: u32| 0xff00_0000 | n << 16;
    std::thread::scope(|scope| {
        let _over = Over(&over);
        scope.spawn(|| {
            while !over.load(Ordering::Acquire) {
                let _ = stream(&good, 1, 1000, 16);
            }
        });
        let mut sequence = 0x8000_0000_u32;
        for place in 0..8 {
            let kept = until("a fault of the kernel tier", || {
                sequence += 1;
                bad.send(&request(number(place), sequence)).unwrap();
                let list = ask(&node, &json!({ "request": "faults" })).unwrap();
                let list = list.as_array().unwrap().clone();
                let in_kernel = list.iter().filter(|fault| fault["tier"] == "kernel");
                (in_kernel.count() > place as usize).then(|| list.last().unwrap().clone())
            });
            let export = json!({ "request": "fault", "fault": kept["fault"] });
            let kept = ask(&node, &export).unwrap();
            let message = kept["message"].as_str().unwrap();
            assert_eq!(message[..8], format!("{:08x}", number(place)), "{message}");
            let noted = &kept["memory"].as_str().unwrap()[2 * 1024..][..8];
            let noted = u32::from_str_radix(noted, 16).unwrap().swap_bytes();
            assert_eq!(
                message[8..],
                format!("{noted:08x}"),
                "the memory is another's"
            );
        }
    });
    let status = at_rest(&node);
    assert_eq!(entry(&status, "paths", "notes")["balanced"], true);
    node.stop().unwrap();
}

/// A message of 1 arms it; one of 2 stops it if it is armed, and disarms it before that, and
/// writes over the message.
const ONCE: &str = r#"(module
    (import "ashway" "msg_load8" (func $load (param i32) (result i32)))
    (import "ashway" "msg_store8" (func $store (param i32 i32)))
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param i32 i32) (result i32)
        (local $armed i32)
        (if (i32.eq (call $load (i32.const 0)) (i32.const 1)) (then
            (i32.store (i32.const 64) (i32.const 7))
            (return (i32.const 0))))
        (local.set $armed (i32.load (i32.const 64)))
        (i32.store (i32.const 64) (i32.const 0))
        (call $store (i32.const 0) (i32.const 9))
        (if (local.get $armed) (then unreachable))
        (i32.const 0)))"#;

/// A handler that clears what led to its stop is replayed as it was stopped: from the second time
/// on memory and message are kept as they were before. In the kernel tier, where
/// nothing is copied before, its path comes to the user tier by `on_fault = "demote"`.
#[test]
fn a_handler_that_clears_its_own_trigger_is_stopped_again() {
    if skip_unless_root() {
        return;
    }
    for place in TIERS {
        let rig = Rig::new("once", RigOptions::default()).unwrap();
        let file = std::env::temp_dir().join(format!("ashway-once-{}.wasm", std::process::id()));
        std::fs::write(&file, wat::parse_str(ONCE).unwrap()).unwrap();
        let config = place.config().handler_file("once", &file);
        let more = "on_fault = \"demote\"\nfaults = \"off\"";
        let config = path(config, "once", "once", 7777, place, more);
        let node = rig.node(config).start().unwrap();
        std::fs::remove_file(&file).unwrap();
        let client = rig.client_a(7777).unwrap();
        let list = || ask(&node, &json!({ "request": "faults" })).unwrap();
        let last = |exact: bool| {
            let list = list();
            let mut faults = list.as_array().unwrap().iter().rev();
            faults.find(|fault| fault["exact"] == exact).cloned()
        };
        // Once only: a second stop would be kept as it began.
        client.send(&[1]).unwrap();
        client.send(&[2]).unwrap();
        let fault = until("it is kept as it left its memory", || last(false));
        assert_eq!(fault["tier"], place.tier, "{fault}");
        let replay = |fault: &Value, tier: &str| {
            let number = fault["fault"].to_string();
            run(&mut node.command(["handler", "replay", &number, "--tier", tier]))
        };
        let output = replay(&fault, "user");
        assert_eq!(output.status.code(), Some(1), "{}", text(&output));
        let fault = until("it is kept as it began", || {
            client.send(&[1]).unwrap();
            client.send(&[2]).unwrap();
            last(true)
        });
        assert_eq!(fault["tier"], "user", "{place}: {fault}");
        let export = json!({ "request": "fault", "fault": fault["fault"] });
        let kept = ask(&node, &export).unwrap();
        assert_eq!(kept["message"], "02", "{place}");
        assert_eq!(kept["memory"].as_str().unwrap()[2 * 64..][..2], *"07");
        for tier in ["user", "kernel"] {
            let output = replay(&fault, tier);
            let words = text(&output);
            assert!(output.status.success(), "{place}, {tier}: {words}");
            assert!(words.contains("the same"), "{place}, {tier}: {words}");
            assert!(
                !words.contains("had changed it"),
                "{place}, {tier}: {words}"
            );
        }
        node.stop().unwrap();
    }
}

/// Sets timer 5; only that one stops it.
const FIFTH: &str = r#"(module
    (import "ashway" "timer_set" (func $set (param i32 i64) (result i32)))
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param i32 i32) (result i32)
        (drop (call $set (i32.const 5) (i64.const 1000000))) i32.const 0)
    (func (export "on_timer") (param i32 i32) (result i32)
        (if (i32.eq (local.get 1) (i32.const 5)) (then unreachable)) i32.const 0))"#;

/// The fault of a timer is replayed with the timer's number.
#[test]
fn a_timer_that_stopped_its_handler_stops_it_again() {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("fifth", RigOptions::default()).unwrap();
    let file = std::env::temp_dir().join(format!("ashway-fifth-{}.wasm", std::process::id()));
    std::fs::write(&file, wat::parse_str(FIFTH).unwrap()).unwrap();
    let lines = format!("[handler.fifth]\nfile = {file:?}\nallow = [\"timer\"]");
    let config = TIERS[0].config().text(&lines);
    let config = path(config, "fifth", "fifth", 7777, TIERS[0], "");
    let node = rig.node(config).start().unwrap();
    std::fs::remove_file(&file).unwrap();
    rig.client_a(7777).unwrap().send(b"set").unwrap();
    let fault = until("the timer stops it", || {
        let list = ask(&node, &json!({ "request": "faults" })).unwrap();
        list.as_array().unwrap().first().cloned()
    });
    let (function, number) = (&fault["function"], &fault["channel"]);
    assert_eq!((function, number), (&json!("on_timer"), &json!(5)));
    let output = run(&mut node.command(["handler", "replay", "1"]));
    assert!(text(&output).contains("the same"), "{}", text(&output));
    // There are no timers.
    let output = run(&mut node.command(["handler", "replay", "1", "--tier", "kernel"]));
    assert!(
        text(&output).contains("cannot be replayed"),
        "{}",
        text(&output)
    );
    node.stop().unwrap();
}

/// Whatever runs by now, a fault is shown with the source of what was stopped.
#[test]
fn a_fault_is_shown_with_the_source_of_its_own_version() {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("own-source", RigOptions::default()).unwrap();
    for place in TIERS {
        let config = place.config().handler("divide").unwrap();
        let more = "on_fault = \"drop\"";
        let node = rig
            .node(path(config, "flow", "divide", 7777, place, more))
            .start()
            .unwrap();
        let client = rig.client_a(7777).unwrap();
        let message = [0xff, 0xff, 0, 0, 0, 0, 0, 0];
        let shown = |file: &str, count: u64| {
            until(&format!("fault {count} is in {file}"), || {
                let status = node.status().unwrap();
                let fault = &entry(&status, "handlers", "divide")["last_fault"];
                let name = fault["file"].as_str()?.rsplit('/').next()?.to_owned();
                (name == file && fault["count"] == count).then_some(())
            });
        };
        client.send(&message).unwrap();
        shown("divide.c", 1);
        let wild = ashway_rig::handler("wild").unwrap();
        let swap = json!({ "request": "swap", "handler": "divide", "file": wild });
        ask(&node, &swap).unwrap();
        shown("divide.c", 1);
        client.send(&message).unwrap();
        shown("wild.c", 2);
        ask(
            &node,
            &json!({ "request": "rollback", "handler": "divide" }),
        )
        .unwrap();
        shown("wild.c", 2);
        client.send(&message).unwrap();
        shown("divide.c", 3);
        node.stop().unwrap();
    }
}
