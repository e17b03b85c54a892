//! Never overtake: promotion is a permission, demotion withdraws it
//! and waits. Nothing is lost, doubled or reordered within a flow.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ashway_kernel::{Iface, Program, ProgramKind, ProgramSpec};
use ashway_netns::node::{at_rest, ordinary, shift, until};
use ashway_netns::traffic::{
    Ledger, Over, TIERS, client_of_queue, flood, hear, in_order, path, request, settle, stream,
    two_queues, until_the_kernel_runs_all,
};
use ashway_rig::{Frame, Node, Rig, UdpClient, skip_unless_root};

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
        let _over = Over(&over);
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

/// `return bpf_redirect(ifindex, 0)`: a live run of it sends frames.
fn sender(ifindex: u32) -> Program {
    let insns = [
        u64::from(ifindex) << 32 | 0x1b7,
        0x2b7,
        23 << 32 | 0x85,
        0x95,
    ];
    Program::load(&ProgramSpec {
        name: "flood",
        kind: ProgramKind::Xdp,
        attach_type: 0,
        insns: &insns,
        maps: &[],
        btf: None,
    })
    .expect("a redirect is accepted")
}

/// Hears a counter's replies until `over`; how many. What a full socket or ring loses
/// is missing; nothing is late.
fn rising(replies: &UdpClient, over: &AtomicBool) -> u32 {
    replies.set_timeout(Duration::from_millis(300)).unwrap();
    let (mut last, mut heard) = (0, 0);
    loop {
        match replies.receive() {
            Ok(reply) => {
                let sum = u32::from_be_bytes(reply[..4].try_into().unwrap());
                assert!(sum > last, "{sum} after {last}: a reply was overtaken");
                (last, heard) = (sum, heard + 1);
            }
            Err(_) if over.load(Ordering::Acquire) => return heard,
            Err(_) => {}
        }
    }
}

/// A flood comes in polls of many messages. When the path is demoted in the
/// middle of one, what the kernel tier answered lies in the driver until the
/// poll ends, and the user tier on the other CPU is at work at once: the sums in
/// the replies must only rise.
#[test]
fn a_demotion_in_the_middle_of_a_poll_does_not_reorder() {
    if skip_unless_root() {
        return;
    }
    let rig = in_order("order-flood");
    let node = node(&rig, "counter");
    let a0 = rig.in_a(|| Iface::by_name("a0")).unwrap().ifindex;
    let flood = sender(a0);
    let frame = Frame::to_b(7777, &request(1, 0)).from_port(7070).bytes();
    let server: SocketAddr = "10.7.0.2:7777".parse().unwrap();
    let replies = rig.in_a(|| UdpClient::connect_from(7070, server)).unwrap();

    let over = AtomicBool::new(false);
    let heard = std::thread::scope(|scope| {
        let _over = Over(&over);
        let listener = scope.spawn(|| rising(&replies, &over));
        let flooder = scope.spawn(|| {
            while !over.load(Ordering::Acquire) {
                rig.in_a(|| flood.run_live(&frame, 20_000, 0)).unwrap();
            }
        });
        for i in 0..SHIFTS {
            shift(&node, ["promote", "demote"][i as usize % 2], "flow");
        }
        over.store(true, Ordering::Release);
        flooder.join().unwrap();
        listener.join()
    });
    let status = at_rest(&node);
    let ledger = Ledger::of(&status, "flow");
    println!("{heard:?} replies heard; {ledger:?}");
    assert!(heard.unwrap() > 0, "{ledger:?}");
    assert_eq!(ledger.gap(), None);
    node.stop().unwrap();
}

/// A path is promoted in the middle of a flood. Messages of it are always in the user
/// tier then, and the kernel tier may take none before them; it takes over all the same.
#[test]
fn a_promotion_takes_hold_in_the_middle_of_a_flood() {
    if skip_unless_root() {
        return;
    }
    let rig = in_order("order-promote");
    let node = node(&rig, "counter");
    let client = rig.client_a(7777).unwrap();
    let over = AtomicBool::new(false);
    let heard = std::thread::scope(|scope| {
        let _over = Over(&over);
        let heard = scope.spawn(|| rising(&client, &over));
        scope.spawn(|| flood(&client, 1, &over));
        until("the ring has been full", || {
            let ledger = Ledger::of(&node.status().unwrap(), "flow");
            (ledger.fate("dropped_ring_full") > 1000).then_some(())
        });
        shift(&node, "promote", "flow");
        until_the_kernel_runs_all(|| {
            let ledger = Ledger::of(&node.status().unwrap(), "flow");
            (ledger.received, ledger.notes.values().sum())
        });
        over.store(true, Ordering::Release);
        heard.join()
    });
    let ledger = Ledger::of(&at_rest(&node), "flow");
    println!("{heard:?} heard; {ledger:?}");
    assert!(heard.unwrap() > 0, "{ledger:?}");
    assert_eq!(ledger.gap(), None);
    let full = ledger.fate("dropped_ring_full");
    assert_eq!(ledger.fate("answered") + full, ledger.received);
    node.stop().unwrap();
}
