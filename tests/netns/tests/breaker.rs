//! A handler that is stopped again and again loses the kernel tier, then its messages,
//! and gets them back: by itself after a rest, or by hand.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use ashway_netns::node::{entry, ordinary, run, stock, text, until};
use ashway_netns::traffic::{PLACES, SOON, path, settle};
use ashway_rig::{B4, Node, skip_unless_root};
use serde_json::Value;

/// What `divide` is asked.
fn numbers(a: i32, b: i32) -> Vec<u8> {
    [a.to_be_bytes(), b.to_be_bytes()].concat()
}

fn says(node: &Node, words: &[&str]) -> String {
    let output = run(&mut node.command(words));
    assert!(output.status.success(), "{}", text(&output));
    text(&output)
}

#[test]
fn so_many_stops_demote_then_bypass_and_a_hand_brings_it_back() {
    const LIMIT: u64 = 5;
    if skip_unless_root() {
        return;
    }
    let rig = stock("breaker");
    let place = PLACES[1];
    let limit = "faults = { limit = 5, within = \"1000 s\", rest = \"1000 s\" }";
    for (fate, on_fault, port) in [("passed", "pass", 7004), ("dropped_fault", "drop", 7005)] {
        let config = place.config().handler("divide").unwrap();
        let more = format!("on_fault = \"{on_fault}\"\n{limit}");
        let node = rig
            .node(path(config, "divide", "divide", port, place, &more))
            .start()
            .unwrap();
        let host = ordinary(&rig, port);
        host.set_read_timeout(Some(SOON)).unwrap();
        let client = rig.client_a(port).unwrap();
        let stop = |times| (0..times).for_each(|_| client.send(&numbers(6, 0)).unwrap());
        let tier = |wanted: &str| {
            let status = node.status().unwrap();
            let path = entry(&status, "paths", "divide").clone();
            assert_eq!(path["tier"], wanted, "{path}");
            path
        };

        // One less than the limit, then the last.
        stop(LIMIT - 1);
        assert_eq!(client.ask(&numbers(6, 3)).unwrap(), numbers(2, 3));
        tier("kernel");
        stop(1);
        let line = "path `divide` demoted: its handler was stopped 5 times within 1000 s";
        node.wait_for_line(|said| said == line).unwrap();
        let now = tier("user");
        assert!(now["bypass"].is_null(), "{now}");

        // As often again, in the user tier.
        assert_eq!(client.ask(&numbers(8, 2)).unwrap(), numbers(4, 2));
        stop(LIMIT);
        node.wait_for_line(|said| said.starts_with("path `divide` bypassed for 1000 s"))
            .unwrap();
        let sent = 2 * LIMIT + 2;
        let before = settle(&node, "divide", sent);
        assert_eq!(before.aborts.get("divide_by_zero"), Some(&(2 * LIMIT)));

        // Good or bad, messages go by it now.
        for message in [numbers(9, 3), numbers(6, 0), numbers(4, 1)] {
            client.send(&message).unwrap();
        }
        let after = settle(&node, "divide", sent + 3);
        assert_eq!(after.aborts, before.aborts, "{on_fault}: nothing runs");
        assert_eq!(after.notes.get("bypassed"), Some(&3), "{after:?}");
        after.assert_fates(&[("answered", 2), (fate, 2 * LIMIT + 3)], &on_fault);
        if on_fault == "pass" {
            let mut bytes = [0; 64];
            let heard: Vec<_> = (0..2 * LIMIT + 3)
                .map(|_| {
                    host.recv(&mut bytes)
                        .map(|len| bytes[..len].to_vec())
                        .unwrap()
                })
                .collect();
            let last = [numbers(9, 3), numbers(6, 0), numbers(4, 1)];
            assert_eq!(heard[heard.len() - 3..], last, "unchanged, in order");
        }
        let status = says(&node, &["status"]);
        assert!(
            status.contains("path `divide` is bypassed for another"),
            "{status}"
        );
        let why = says(&node, &["why", "divide"]);
        assert!(
            why.contains("tier: bypassed, because its handler was stopped 5 times"),
            "{why}"
        );
        // Another tier does not end it, which is said with the next step.
        let said = says(&node, &["path", "demote", "divide"]);
        assert!(said.contains("is bypassed for another"), "{said}");
        assert!(
            said.contains("`ashway path enable divide` ends it"),
            "{said}"
        );
        let said = says(&node, &["path", "demote", "divide", "-j"]);
        let said: Value = serde_json::from_str(&said).unwrap();
        assert_eq!(said["bypass"]["handler"], "divide", "{said:#}");

        // By hand.
        let said = says(&node, &["path", "enable", "divide"]);
        assert!(said.contains("has its handler again"), "{said}");
        assert_eq!(client.ask(&numbers(9, 3)).unwrap(), numbers(3, 3));
        let said = says(&node, &["path", "enable", "divide"]);
        assert!(said.contains("was not bypassed"), "{said}");
        says(&node, &["path", "promote", "divide", "--no-shadow"]);
        assert_eq!(client.ask(&numbers(9, 3)).unwrap(), numbers(3, 3));
        let path = tier("kernel");
        assert_eq!(path["balanced"], true);
        node.stop().unwrap();
    }
}

#[test]
fn after_a_rest_a_handler_is_tried_again() {
    if skip_unless_root() {
        return;
    }
    let rig = stock("rests");
    let place = PLACES[0];
    let config = place.config().handler("divide").unwrap();
    let more = "faults = { limit = 1, rest = \"2 s\" }\non_fault = \"drop\"";
    let node = rig
        .node(path(config, "divide", "divide", 7004, place, more))
        .start()
        .unwrap();
    let client = rig.client_a(7004).unwrap();
    client.send(&numbers(6, 0)).unwrap();
    let said = |line: String| node.wait_for_line(|known| known == line).unwrap();
    let why = "its handler was stopped 1 time within 1 s";
    said(format!("path `divide` bypassed for 2 s: {why}"));
    said("path `divide` has its handler again".to_owned());
    assert_eq!(client.ask(&numbers(9, 3)).unwrap(), numbers(3, 3));
    node.stop().unwrap();
}

/// What loses a path its handler for all senders is asked for, never the default.
#[test]
fn without_a_rest_a_handler_is_demoted_and_no_more() {
    if skip_unless_root() {
        return;
    }
    let rig = stock("demoted");
    let place = PLACES[1];
    let config = place.config().handler("divide").unwrap();
    let more = "faults = { limit = 5, within = \"1000 s\" }\non_fault = \"drop\"";
    let node = rig
        .node(path(config, "divide", "divide", 7004, place, more))
        .start()
        .unwrap();
    let client = rig.client_a(7004).unwrap();
    let stop = |times| (0..times).for_each(|_| client.send(&numbers(6, 0)).unwrap());
    stop(5);
    let line = "path `divide` demoted: its handler was stopped 5 times within 1000 s";
    node.wait_for_line(|said| said == line).unwrap();
    stop(50);
    assert_eq!(client.ask(&numbers(9, 3)).unwrap(), numbers(3, 3));
    let ledger = settle(&node, "divide", 56);
    ledger.assert_fates(&[("answered", 1), ("dropped_fault", 55)], &"demoted");
    assert_eq!(ledger.notes.get("bypassed"), None, "{ledger:?}");
    let status = node.status().unwrap();
    let path = entry(&status, "paths", "divide");
    assert_eq!(path["bypass"], Value::Null, "{path}");
    assert_eq!(path["faults"]["rest_ms"], Value::Null, "{path}");
    node.stop().unwrap();
}

/// A path of modules, whose handler's own module is another: its stages are said, shown and
/// brought back as a short path's one. The path beside it is bound to the same handler.
#[test]
fn a_path_of_modules_is_bypassed_as_visibly_as_a_short_one() {
    if skip_unless_root() {
        return;
    }
    let rig = stock("bypass-long");
    let attrs = "fault_limit = 5, fault_within_ns = 1000000000000, fault_rest_ns = 1000000000000, \
                 on_fault = 'drop'";
    let lines = format!(
        "[module.app]\nkind = 'handler'\nhandler = 'divide'\ndown = 'udp.up'\n\
         [path.beside]\nfrom = 'app'\nattrs = {{ local = '{B4}:7005', on_fault = 'drop' }}\n\
         [module.other]\nkind = 'handler'\nhandler = 'divide'\ndown = 'udp.up'\n\
         [path.long]\nfrom = 'other'\nattrs = {{ local = '{B4}:7004', {attrs} }}\n"
    );
    let config = PLACES[0].config().handler("divide").unwrap().text(&lines);
    let node = rig.node(config).start().unwrap();
    let client = rig.client_a(7004).unwrap();
    let beside = rig.client_a(7005).unwrap();
    assert_eq!(client.ask(&numbers(6, 3)).unwrap(), numbers(2, 3));
    let why = says(&node, &["why", "long"]);
    assert!(!why.contains("nothing has been counted"), "{why}");
    for client in [&client, &beside] {
        (0..5).for_each(|_| client.send(&numbers(6, 0)).unwrap());
    }
    let line = "path `long` bypassed for 1000 s: its handler was stopped 5 times within 1000 s";
    node.wait_for_line(|said| said == line).unwrap();
    let status = node.status().unwrap();
    let path = entry(&status, "paths", "long");
    assert_eq!(path["faults"]["limit"], 5, "{path:#}");
    assert_eq!(path["bypass"]["handler"], "divide", "{path:#}");
    assert_eq!(entry(&status, "paths", "beside")["bypass"], Value::Null);
    let shown = says(&node, &["status"]);
    assert!(shown.contains("`long` is bypassed for another"), "{shown}");
    let shown = says(&node, &["path", "show", "long"]);
    assert!(shown.contains("bypassed"), "{shown}");
    let why = says(&node, &["why", "long"]);
    assert!(why.contains("bypassed, because its handler"), "{why}");
    // The handler itself works for the other path.
    assert_eq!(beside.ask(&numbers(6, 3)).unwrap(), numbers(2, 3));
    let said = says(&node, &["path", "enable", "long"]);
    assert!(said.contains("has its handler again"), "{said}");
    let line = "path `long` has its handler again";
    node.wait_for_line(|said| said == line).unwrap();
    assert_eq!(client.ask(&numbers(9, 3)).unwrap(), numbers(3, 3));
    let said = says(&node, &["path", "enable", "long"]);
    assert!(said.contains("was not bypassed"), "{said}");
    // It is gone with its bypass.
    (0..5).for_each(|_| client.send(&numbers(6, 0)).unwrap());
    until("it is bypassed again", || {
        let status = node.status().unwrap();
        let bypass = &entry(&status, "paths", "long")["bypass"];
        bypass.is_object().then_some(())
    });
    says(&node, &["path", "rm", "long"]);
    let output = run(&mut node.command(["path", "enable", "long"]));
    assert!(
        text(&output).contains("no path `long`"),
        "{}",
        text(&output)
    );
    node.stop().unwrap();
}

/// A message sets four timers; each of them stops it.
const BEATS: &str = r#"(module
    (import "ashway" "timer_set" (func $set (param i32 i64) (result i32)))
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param i32 i32) (result i32)
        (local $id i32)
        (loop $next
            (drop (call $set (local.get $id) (i64.const 1000000)))
            (local.set $id (i32.add (local.get $id) (i32.const 1)))
            (br_if $next (i32.lt_u (local.get $id) (i32.const 4))))
        i32.const 0)
    (func (export "on_timer") (param i32 i32) (result i32) unreachable))"#;

/// Timers that stop their handler count like messages; one that is due while the path is
/// bypassed waits.
#[test]
fn stops_of_a_timer_count_for_the_path_that_set_it() {
    if skip_unless_root() {
        return;
    }
    let rig = stock("beats");
    let file = std::env::temp_dir().join(format!("ashway-beats-{}.wasm", std::process::id()));
    std::fs::write(&file, wat::parse_str(BEATS).unwrap()).unwrap();
    let place = PLACES[0];
    let lines = format!(
        "[handler.beats]\nfile = {file:?}\nallow = [\"timer\"]\n\
         [module.app]\nkind = 'handler'\nhandler = 'beats'\ndown = 'udp.up'\n\
         [path.long]\nfrom = 'app'\nattrs = {{ local = '{B4}:7005', fault_limit = 3, \
         fault_within_ns = 1000000000000, fault_rest_ns = 1000000000000 }}\n"
    );
    let more = "faults = { limit = 3, within = \"1000 s\", rest = \"1000 s\" }";
    let config = place.config().text(&lines);
    let node = rig
        .node(path(config, "short", "beats", 7004, place, more))
        .start()
        .unwrap();
    std::fs::remove_file(&file).unwrap();
    let stops = || {
        let status = node.status().unwrap();
        let fault = &entry(&status, "handlers", "beats")["last_fault"];
        fault["count"].as_u64().unwrap_or(0)
    };
    for (name, port, before) in [("short", 7004, 0), ("long", 7005, 4)] {
        rig.client_a(port).unwrap().send(b"set").unwrap();
        let line = format!("path `{name}` bypassed for 1000 s: its handler was stopped 3 times");
        node.wait_for_line(|said| said.starts_with(&line)).unwrap();
        assert_eq!(stops(), before + 3, "{name}: the fourth waits");
        says(&node, &["path", "enable", name]);
        until("the fourth runs", || (stops() == before + 4).then_some(()));
    }
    node.stop().unwrap();
}
