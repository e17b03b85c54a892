//! A relay's share of the tier that it runs in: as that of a handler's path.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ashway_abi::share::{AHEAD_NS, DUE_NS};
use ashway_netns::node::{entry, shift, until};
use ashway_netns::traffic::{Over, flood, request};
use ashway_rig::{Node, UdpClient, skip_unless_root};
use serde_json::Value;

use super::three::{Three, ask_and_answer, closed, relay};
use super::{number, rising};

/// Few enough that a test asks for less: two messages for each question.
const SHARE: &str = ", share_per_mille = 300, rate_per_second = 2000";

/// Messages that this lets run since `began`: what a path may be ahead, the one that goes over
/// it, and what it was due; on two CPUs one more may begin before the first is charged.
fn most_since(began: Instant) -> u64 {
    let at_once = (AHEAD_NS + DUE_NS) / 500_000 + 2;
    2 * began.elapsed().as_millis() as u64 + 2 + at_once
}

fn kernel(shown: &Value, name: &str) -> u64 {
    shown["kernel"]["notes"][name].as_u64().unwrap_or(0)
}

fn dropped(shown: &Value, name: &str) -> u64 {
    shown["fates"]["dropped"][name].as_u64().unwrap_or(0)
}

/// Messages that the program itself has sent on: neither led to the user tier nor dropped on
/// the way there.
fn eager(shown: &Value) -> u64 {
    let notes = shown["kernel"]["notes"].as_object().unwrap().values();
    let notes: u64 = notes.map(number).sum();
    let dropped: u64 = ["over_share", "queue_full"]
        .map(|name| dropped(shown, name))
        .iter()
        .sum();
    number(&shown["kernel"]["received"]) - notes - dropped
}

/// Asks so slowly that the relay keeps to its share.
fn ask_seldom(node: &Node, client: &UdpClient, three: &Three) {
    let server = three.server(6000);
    let before = relay(node);
    for number in 0..20 {
        ask_and_answer(client, &server, number);
        // This takes longer than its rate.
        assert_eq!(relay(node)["mode"], "eager");
    }
    let after = relay(node);
    assert_eq!(
        dropped(&after, "over_share"),
        dropped(&before, "over_share")
    );
    if after["tier"] == "kernel" {
        assert_eq!(
            kernel(&after, "queued_share"),
            kernel(&before, "queued_share")
        );
    }
}

/// Floods the relay until some are dropped; the status when the ledgers close behind it.
fn above(node: &Node, client: &UdpClient, three: &Three, tier: &str) -> Value {
    let server = three.server(6000);
    let before = dropped(&relay(node), "over_share");
    let (over, over_there) = (AtomicBool::new(false), AtomicBool::new(false));
    let heard = std::thread::scope(|scope| {
        let _over = [&over, &over_there].map(Over);
        let heard = scope.spawn(|| rising(&server, &over_there));
        let flood = scope.spawn(|| match tier {
            // In the user tier the flood must leave the worker a CPU.
            "user" => {
                for sequence in 0.. {
                    let _ = client.send(&request(0, sequence));
                    std::thread::sleep(Duration::from_micros(150));
                    if over.load(Ordering::Acquire) {
                        break;
                    }
                }
            }
            _ => flood(client, 0, &over),
        });
        until("messages above the share are dropped", || {
            (dropped(&relay(node), "over_share") > before + 1_000).then_some(())
        });
        assert_eq!(relay(node)["mode"], "lazy", "{tier}");
        // Beside the lazy way it still has its share.
        let runs = |shown: &Value| match tier {
            "user" => number(&shown["fates"]["forwarded"]),
            _ => eager(shown),
        };
        let at_first = runs(&relay(node));
        until("messages within the share are sent on meanwhile", || {
            (runs(&relay(node)) > at_first + 50).then_some(())
        });
        over.store(true, Ordering::Release);
        flood.join().unwrap();
        let _ = closed(node);
        over_there.store(true, Ordering::Release);
        heard.join().unwrap()
    });
    let status = closed(node);
    let shown = entry(&status, "paths", "relay").clone();
    let forwarded = number(&shown["fates"]["forwarded"]);
    let lost = dropped(&shown, "over_share") + dropped(&shown, "queue_full");
    println!("{tier}: {heard} heard, {forwarded} forwarded, {lost} dropped: {shown}");
    assert!(heard > 0);
    assert_eq!(number(&shown["received"]), forwarded + lost, "{shown:#}");
    // What was dropped before ran in no tier.
    let [kernel, user] = ["kernel", "user"].map(|tier| number(&shown["ran_in"][tier]));
    assert_eq!(kernel + user, forwarded, "{shown:#}");
    assert_eq!(shown["balanced"], true, "{shown:#}");
    until("it is eager again", || {
        (relay(node)["mode"] == "eager").then_some(())
    });
    shown
}

/// Up to its share it is the program that sends on, in both directions; above it messages take
/// the lazy way, are dropped where 32 wait, and none overtakes. Demoted, and back, it is the
/// same share.
#[test]
fn a_relay_keeps_to_its_share_in_either_tier() {
    if skip_unless_root() {
        return;
    }
    for mode in ["native", "generic", "tcx"] {
        let three = Three::with_gro(&format!("fwd-share-{mode}"), mode != "tcx");
        let node = three.node_of(mode, "kernel", SHARE, "");
        let client = three.rig.client_a(5000).unwrap();
        // The first of a sender is for the user tier.
        ask_and_answer(&client, &three.server(6000), 0);
        let shown = relay(&node);
        assert_eq!(shown["tier"], "kernel", "{shown:#}");
        assert_eq!(shown["share"], "30 %, 2000/s", "{shown:#}");
        ask_seldom(&node, &client, &three);

        let began = Instant::now();
        let at_first = eager(&relay(&node));
        let shown = above(&node, &client, &three, "kernel");
        // What was on the way when that ended ran before this, too.
        let most = most_since(began);
        let ran = eager(&shown) - at_first;
        assert!(
            ran > 50 && ran <= most,
            "{mode}: {ran} of {most}: {shown:#}"
        );
        assert!(kernel(&shown, "queued_share") > 0, "{mode}: {shown:#}");
        ask_seldom(&node, &client, &three);

        shift(&node, "demote", "relay");
        let began = Instant::now();
        let at_first = number(&relay(&node)["fates"]["forwarded"]);
        let shown = above(&node, &client, &three, "user");
        let most = most_since(began);
        let ran = number(&shown["fates"]["forwarded"]) - at_first;
        assert!(
            ran > 50 && ran <= most,
            "{mode}: {ran} of {most}: {shown:#}"
        );

        shift(&node, "promote", "relay");
        ask_seldom(&node, &client, &three);
        node.stop().unwrap();
    }
}
