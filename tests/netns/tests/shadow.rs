//! Record and replay before a promotion: what the user tier does with live
//! messages, the kernel tier has to do too before it may.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ashway_netns::node::{control as ask, run, shift, text, until};
use ashway_netns::traffic::{Over, Place, in_order, path, request, settle, stream};
use ashway_rig::{Node, Rig, RigOptions, UdpClient, skip_unless_root};
use serde_json::{Value, json};

/// Where a path waits to be promoted.
const USER: Place = Place {
    mode: "native",
    tier: "user",
};

fn node(rig: &Rig, handler: &str) -> Node {
    let config = USER.config().handler(handler).unwrap();
    rig.node(path(config, "flow", handler, 7777, USER, ""))
        .start()
        .unwrap()
}

fn promote(node: &Node, messages: u32) -> Value {
    let request = json!({ "request": "promote", "path": "flow", "shadow": messages });
    ask(node, &request).unwrap_or_else(|why| panic!("{why:#}"))
}

/// Sends while `change` happens; what it returned, and how many were sent.
fn under_traffic<T>(client: &UdpClient, change: impl FnOnce() -> T) -> (T, u64) {
    let (over, begun) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let _over = Over(&over);
        let traffic = scope.spawn(|| {
            let mut sent = 0_u64;
            while !over.load(Ordering::Acquire) {
                let _ = stream(client, 1, 100, 16);
                sent += 100;
                begun.store(true, Ordering::Release);
            }
            sent
        });
        while !begun.load(Ordering::Acquire) && !traffic.is_finished() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let changed = change();
        over.store(true, Ordering::Release);
        (changed, traffic.join().unwrap())
    })
}

#[test]
fn live_messages_have_the_same_end_in_the_kernel_tier() {
    if skip_unless_root() {
        return;
    }
    let rig = in_order("shadow");
    let node = node(&rig, "ledger");
    let client = rig.client_a(7777).unwrap();
    // It waits half a second for them, in which a busy machine may have few, or none.
    let (promoted, sent) = under_traffic(&client, || {
        until("messages were compared", || {
            let promoted = promote(&node, 64);
            if promoted["compared"]["equal"] == 0 {
                shift(&node, "demote", "flow");
                return None;
            }
            Some(promoted)
        })
    });
    let compared = &promoted["compared"];
    let equal = compared["equal"].as_u64().unwrap();
    println!("compared {equal} messages");
    assert!((1..=64).contains(&equal), "{compared}");
    assert_eq!(compared["unclear"], 0, "{compared}");
    assert_eq!(promoted["tier"], "kernel");
    // None of them ran twice: the ledger has each once.
    let _ = settle(&node, "flow", sent);
    let answer = client.ask(&[0; 16]).unwrap();
    assert_eq!(answer[..4], (sent as u32).to_be_bytes());
    assert_eq!(answer[8..12], [0; 4], "out of place");
    node.stop().unwrap();
}

#[test]
fn without_messages_a_promotion_says_that_nothing_was_compared() {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("shadow-none", RigOptions::default()).unwrap();
    let node = node(&rig, "ledger");
    let output = run(&mut node.command(["path", "promote", "flow"]));
    let words = text(&output);
    assert!(words.contains("nothing was compared"), "{words}");
    // What runs, or ran, there is not compared again.
    shift(&node, "demote", "flow");
    for none in ["--no-shadow", "--shadow=0"] {
        let output = run(&mut node.command(["path", "promote", "flow", none]));
        assert!(output.status.success(), "{}", text(&output));
        let words = text(&output);
        assert!(words.contains("nothing was compared, as asked"), "{words}");
    }
    // It runs there already.
    let output = run(&mut node.command(["path", "promote", "flow", "--shadow", "7"]));
    let words = text(&output);
    assert!(
        words.contains("ran there already: nothing was compared"),
        "{words}"
    );
    let output = run(&mut node.command(["path", "promote", "flow", "--shadow", "10001"]));
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output).contains("up to 10000"), "{}", text(&output));
    let client = rig.client_a(7777).unwrap();
    assert_eq!(client.ask(&request(1, 0)).unwrap()[4..], [0; 4]);
    node.stop().unwrap();
}

/// A swap in the middle: what was recorded was another version's.
#[test]
fn a_swap_ends_a_recording() {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("shadow-swap", RigOptions::default()).unwrap();
    let node = node(&rig, "ledger");
    let file = ashway_rig::handler("ledger_2").unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let request = json!({ "request": "promote", "path": "flow" });
            ask(&node, &request)
        });
        // It waits for messages, and none come.
        let swap = json!({ "request": "swap", "handler": "ledger", "file": file });
        while !waiting.is_finished() {
            ask(&node, &swap).unwrap();
            std::thread::sleep(Duration::from_millis(20));
        }
        let why = waiting.join().unwrap().unwrap_err();
        let says = why["message"].as_str().unwrap();
        assert!(says.contains("swapped meanwhile"), "{says}");
        // Nor is it compared if the version comes back.
        let waiting = scope.spawn(|| {
            let request = json!({ "request": "promote", "path": "flow" });
            ask(&node, &request)
        });
        std::thread::sleep(Duration::from_millis(100));
        ask(&node, &swap).unwrap();
        ask(
            &node,
            &json!({ "request": "rollback", "handler": "ledger" }),
        )
        .unwrap();
        let why = waiting.join().unwrap();
        assert!(why.is_err(), "promoted, and nothing was compared: {why:?}");
    });
    let status = node.status().unwrap();
    let path = ashway_netns::node::entry(&status, "paths", "flow");
    assert_eq!(path["tier"], "user");
    node.stop().unwrap();
}

/// A demotion in the middle holds: whoever asks for it wants the path out of the kernel.
#[test]
fn a_demotion_ends_a_promotion_that_is_under_way() {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("shadow-demote", RigOptions::default()).unwrap();
    let node = node(&rig, "ledger");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let request = json!({ "request": "promote", "path": "flow" });
            ask(&node, &request)
        });
        // It waits for messages, and none come.
        while !waiting.is_finished() {
            shift(&node, "demote", "flow");
            std::thread::sleep(Duration::from_millis(20));
        }
        let why = waiting.join().unwrap().unwrap_err();
        let says = why["message"].as_str().unwrap();
        assert!(says.contains("demoted meanwhile"), "{says}");
    });
    let tier = || {
        let status = node.status().unwrap();
        ashway_netns::node::entry(&status, "paths", "flow")["tier"].clone()
    };
    assert_eq!(tier(), "user");
    promote(&node, 0);
    assert_eq!(tier(), "kernel");
    node.stop().unwrap();
}
