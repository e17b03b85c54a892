//! A handler that is stopped again and again loses the kernel tier, then its messages,
//! and gets them back: by itself after a rest, or by hand.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use ashway_netns::node::{entry, ordinary, run, stock, text};
use ashway_netns::traffic::{PLACES, SOON, path, settle};
use ashway_rig::{Node, skip_unless_root};

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
