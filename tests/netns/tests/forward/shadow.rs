//! Record and replay before a relay is promoted.

use std::sync::atomic::{AtomicBool, Ordering};

use ashway_netns::node::{control, run, shift, text, until};
use ashway_netns::traffic::{Over, stream};
use ashway_rig::{Node, skip_unless_root};
use serde_json::{Value, json};

use super::three::{Three, ask_and_answer, closed, relay};
use super::{echo, number};

fn promote(node: &Node, messages: u32) -> Value {
    let request = json!({ "request": "promote", "path": "relay", "shadow": messages });
    control(node, &request).unwrap_or_else(|why| panic!("{why:#}"))
}

/// What the user tier makes of live messages of both directions, the relay's program has to
/// make of them, too: native and generic XDP, at TCX, and where frames leave by the exit
/// program. None of them runs twice.
#[test]
fn live_messages_of_a_relay_have_the_same_end_in_the_kernel_tier() {
    if skip_unless_root() {
        return;
    }
    for (mode, gro) in [
        ("native", true),
        ("native", false),
        ("generic", true),
        ("tcx", false),
    ] {
        let three = Three::with_gro(&format!("fwd-shadow-{mode}-{gro}"), gro);
        let node = three.node(mode, "user");
        let server = three.server(6000);
        let client = three.rig.client_a(5000).unwrap();
        let (over, over_there) = (AtomicBool::new(false), AtomicBool::new(false));
        let (promoted, sent) = std::thread::scope(|scope| {
            let _over = [&over, &over_there].map(Over);
            let echo = scope.spawn(|| echo(&server, &over_there));
            let streams = scope.spawn(|| {
                let mut sent = 0;
                while !over.load(Ordering::Acquire) {
                    let _ = stream(&client, 7, 100, 16);
                    sent += 100_u64;
                }
                sent
            });
            // It waits half a second for them, in which a busy machine may have few, or none.
            let promoted = until("messages were compared", || {
                let promoted = promote(&node, 64);
                if promoted["compared"]["equal"] == 0 {
                    shift(&node, "demote", "relay");
                    return None;
                }
                Some(promoted)
            });
            over.store(true, Ordering::Release);
            let sent = streams.join().unwrap();
            over_there.store(true, Ordering::Release);
            echo.join().unwrap();
            (promoted, sent)
        });
        let compared = &promoted["compared"];
        println!("{mode}, gro {gro}: {compared}");
        assert_eq!(promoted["tier"], "kernel", "{promoted:#}");
        assert_eq!(compared["now"], true, "{promoted:#}");
        let (equal, unclear) = (number(&compared["equal"]), number(&compared["unclear"]));
        assert!((1..=64).contains(&(equal + unclear)), "{promoted:#}");
        let _ = closed(&node);
        let shown = relay(&node);
        assert_eq!(number(&shown["received"]), 2 * sent, "{shown:#}");
        assert_eq!(number(&shown["fates"]["forwarded"]), 2 * sent, "{shown:#}");
        // It is known by now.
        shift(&node, "demote", "relay");
        let again = text(&run(&mut node.command(["path", "promote", "relay"])));
        assert!(again.contains("compared before"), "{again}");
        ask_and_answer(&client, &server, 1);
        node.stop().unwrap();
    }
}

#[test]
fn a_relay_without_messages_says_that_nothing_was_compared() {
    if skip_unless_root() {
        return;
    }
    let three = Three::new("fwd-shadow-none");
    let node = three.node("native", "user");
    let said = text(&run(&mut node.command(["path", "promote", "relay"])));
    assert!(said.contains("nothing was compared"), "{said}");
    shift(&node, "demote", "relay");
    let said = text(&run(&mut node.command([
        "path",
        "promote",
        "relay",
        "--no-shadow",
    ])));
    assert!(said.contains("nothing was compared, as asked"), "{said}");
    shift(&node, "demote", "relay");
    // It waits for messages, and none come; who demotes it has the last word.
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let request = json!({ "request": "promote", "path": "relay" });
            control(&node, &request)
        });
        while !waiting.is_finished() {
            shift(&node, "demote", "relay");
        }
        let why = waiting.join().unwrap().unwrap_err();
        let says = why["message"].as_str().unwrap();
        assert!(says.contains("demoted meanwhile"), "{says}");
    });
    assert_eq!(relay(&node)["tier"], "user");
    node.stop().unwrap();
}
