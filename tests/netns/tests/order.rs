//! Never overtake (DESIGN 3): promotion is a permission, demotion withdraws it
//! and waits. Nothing is lost, doubled or reordered within a flow.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use std::sync::atomic::{AtomicBool, Ordering};

use ashway_netns::node::{ordinary, shift};
use ashway_netns::traffic::{
    TIERS, client_of_queue, hear, path, request, settle, stream, two_queues,
};
use ashway_rig::{Node, Rig, UdpClient, skip_unless_root};

/// Changes of tier in a test.
const SHIFTS: u32 = 50;

/// Messages between two looks at whether the test is over.
const ROUND: u32 = 500;

/// Unanswered messages of a flow.
const WINDOW: u32 = 48;

fn node(rig: &Rig, handler: &str) -> Node {
    let place = TIERS[0];
    let config = place.config().handler(handler).unwrap();
    rig.node(path(config, "flow", handler, 7777, place, ""))
        .start()
        .unwrap()
}

/// Runs `traffic` in a thread for each client while the path changes its tier
/// again and again; how many messages each sent. `traffic` sends a round.
fn while_shifting(
    node: &Node,
    clients: &[UdpClient],
    traffic: impl Fn(usize, &UdpClient) -> u32 + Sync,
) -> u64 {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let threads: Vec<_> = clients
            .iter()
            .enumerate()
            .map(|(i, client)| {
                let (over, traffic) = (&over, &traffic);
                scope.spawn(move || {
                    let mut sent = 0;
                    while !over.load(Ordering::Acquire) {
                        sent += u64::from(traffic(i, client));
                    }
                    sent
                })
            })
            .collect();
        for i in 0..SHIFTS {
            // A sender that panicked has found something; say so at once.
            if threads
                .iter()
                .any(std::thread::ScopedJoinHandle::is_finished)
            {
                break;
            }
            shift(node, ["promote", "demote"][i as usize % 2], "flow");
        }
        over.store(true, Ordering::Release);
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum()
    })
}

/// Replies: two flows on two queues, so that the instance is often busy when a
/// message comes and tiers take turns even between changes.
#[test]
fn replies_keep_their_order_while_the_tier_changes() {
    if skip_unless_root() {
        return;
    }
    for gro in [false, true] {
        let rig = two_queues(if gro { "order-gro" } else { "order" }, gro);
        let node = node(&rig, "echo");
        let (one, probes_one) = client_of_queue(&rig, 0, 7777);
        let (two, probes_two) = client_of_queue(&rig, 1, 7777);
        let probes = probes_one + probes_two;
        let sent = while_shifting(&node, &[one, two], |_, client| {
            let _ = stream(client, 0, ROUND, WINDOW);
            ROUND
        });
        let ledger = settle(&node, "flow", sent + probes);
        ledger.assert_fates(&[("answered", sent + probes)], &"echo");
        println!("gro {gro}: {sent} messages, {:?}", ledger.notes);
        assert!(ledger.notes.contains_key("queued_tier"), "{ledger:?}");
        assert!(
            ledger.notes["queued_tier"] < sent,
            "the kernel tier answered nothing: {ledger:?}"
        );
        node.stop().unwrap();
    }
}

/// Messages for the host: the two tiers pass them on by different ways, and the
/// host's own socket must not notice. A message that the user tier passes may
/// take a page or two of the socket's 208 KiB, so fewer are on their way.
#[test]
fn passed_messages_keep_their_order_while_the_tier_changes() {
    if skip_unless_root() {
        return;
    }
    let rig = two_queues("order-pass", false);
    let host = ordinary(&rig, 7777);
    let node = node(&rig, "even");
    let client = [rig.client_a(7777).unwrap()];
    let sent = while_shifting(&node, &client, |_, client| {
        // Odd numbers are the host's.
        let mut sent = 0;
        for expected in 0..ROUND {
            while sent < ROUND && sent - expected < WINDOW / 3 {
                client.send(&request(1, sent)).unwrap();
                sent += 1;
            }
            assert_eq!(hear(&host), (1, expected), "lost, doubled or overtaken");
        }
        ROUND
    });
    let ledger = settle(&node, "flow", sent);
    ledger.assert_fates(&[("passed", sent)], &"even");
    println!("{sent} messages, {:?}", ledger.notes);
    assert!(ledger.notes["queued_tier"] < sent, "{ledger:?}");
    node.stop().unwrap();
}
