//! What one handler does wrong is its own affair (SBX-1, SBX-2): a runaway is
//! stopped and named, and others keep answering, also beside busy processes.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use ashway_kernel::iface;
use ashway_netns::node::{entry, stock};
use ashway_netns::traffic::{Place, TIERS, client_of_queue, path, settle, two_queues};
use ashway_rig::{Hogs, Node, Rig, realtime, skip_unless_root};

/// A runaway on one path and a counter on another.
fn node(rig: &Rig, place: Place) -> Node {
    let config = place.config().handler("runaway").unwrap();
    let config = config.handler("counter").unwrap();
    let config = path(
        config,
        "runaway",
        "runaway",
        7001,
        place,
        // It goes on being stopped.
        "on_fault = \"drop\"\nfaults = \"off\"",
    );
    let node = rig
        .node(path(config, "inc", "counter", 7777, place, ""))
        .start()
        .unwrap();
    let status = node.status().unwrap();
    for path in ["runaway", "inc"] {
        assert_eq!(entry(&status, "paths", path)["tier"], place.tier, "{place}");
    }
    node
}

fn assert_named(node: &Node, faults: u64, what: Place) {
    let status = node.status().unwrap();
    let fault = &entry(&status, "handlers", "runaway")["last_fault"];
    assert!(
        fault["cause"] == "fuel" || fault["cause"] == "time",
        "{what}: {fault}"
    );
    assert_eq!(fault["count"], faults, "{what}: {fault}");
    assert!(
        fault["file"].as_str().unwrap().ends_with("runaway.c"),
        "{what}: {fault}"
    );
    // The loop of `apps/handlers/runaway.c`, or the test it was folded into.
    let line = fault["line"].as_u64().unwrap();
    assert!((13..=15).contains(&line), "{what}: {fault}");
    assert!(
        entry(&status, "handlers", "counter")["last_fault"].is_null(),
        "{what}"
    );
}

#[test]
fn a_runaway_is_stopped_and_named_while_others_answer() {
    const TIMES: u32 = 50;
    if skip_unless_root() {
        return;
    }
    let rig = stock("runaway");
    for place in TIERS {
        let node = node(&rig, place);
        let (runaway, other) = (rig.client_a(7001).unwrap(), rig.client_a(7777).unwrap());
        for sum in 1..=TIMES {
            runaway.send(b"Run").unwrap();
            assert_eq!(other.ask_number(1).unwrap(), sum, "{place}");
            // And it goes on itself.
            assert_eq!(runaway.ask(b"walk").unwrap(), b"walk", "{place}");
        }
        let times = u64::from(TIMES);
        let ledger = settle(&node, "runaway", times * 2);
        ledger.assert_fates(&[("answered", times), ("dropped_fault", times)], &place);
        let stopped = ["fuel", "time"].map(|cause| ledger.aborts.get(cause).unwrap_or(&0));
        assert_eq!(
            stopped.into_iter().sum::<u64>(),
            times,
            "{place}: {ledger:?}"
        );
        assert_eq!(ledger.aborts.values().sum::<u64>(), times, "{place}");
        settle(&node, "inc", times).assert_fates(&[("answered", times)], &place);
        assert_named(&node, times, place);
        node.stop().unwrap();
    }
}

/// As fast as a sender can, on the other queue: the victim waits longer, but is
/// answered every time; and the storm itself is accounted for to the packet.
#[test]
fn a_storm_of_runaways_costs_others_nothing_but_time() {
    const STORM: u64 = 2000;
    const ASKED: u32 = 500;
    if skip_unless_root() {
        return;
    }
    let rig = two_queues("storm", false);
    let not_sent = || rig.in_a(|| iface::stats("a0")).unwrap().tx_dropped;
    for place in TIERS {
        let node = node(&rig, place);
        // In one ring of the driver the storm would leave the other no room.
        let (runaway, walked) = client_of_queue(&rig, 0, 7001);
        let (other, probes) = client_of_queue(&rig, 1, 7777);
        let before = not_sent();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..STORM {
                    // A full wire is no error of UDP's.
                    runaway.send(b"Run").unwrap();
                }
            });
            other.set_timeout(ashway_netns::node::PATIENCE).unwrap();
            for sum in 1..=ASKED {
                assert_eq!(other.ask_number(1).unwrap(), sum, "{place}");
            }
        });
        let arrived = STORM - (not_sent() - before);
        let ledger = settle(&node, "runaway", arrived + walked);
        let stopped = ledger.fate("dropped_fault");
        let refused = ledger.fate("dropped_ring_full");
        assert_eq!(stopped + refused, arrived, "{place}: {ledger:?}");
        assert_eq!(ledger.aborts.values().sum::<u64>(), stopped, "{place}");
        println!("{place}: {arrived} arrived, {stopped} stopped, {refused} found a full ring");
        let asked = u64::from(ASKED) + probes;
        settle(&node, "inc", asked).assert_fates(&[("answered", asked)], &place);
        assert_named(&node, stopped, place);
        node.stop().unwrap();
    }
}

/// SBX-1: processes that want both CPUs for themselves, and a message is
/// answered all the same.
#[test]
fn busy_processes_do_not_stop_a_handler() {
    const ASKED: u32 = 500;
    if skip_unless_root() {
        return;
    }
    let rig = stock("hogs");
    let _hogs = Hogs::start(8).unwrap();
    for place in TIERS {
        let node = node(&rig, place);
        let client = rig.client_a(7777).unwrap();
        client.set_timeout(ashway_netns::node::PATIENCE).unwrap();
        // The user tier's worker is one process among them, so it gets less.
        let asked = if place.tier == "kernel" {
            ASKED
        } else {
            ASKED / 20
        };
        for sum in 1..=asked {
            assert_eq!(client.ask_number(1).unwrap(), sum, "{place}");
        }
        realtime(|| {
            for sum in asked + 1..=2 * asked {
                assert_eq!(client.ask_number(1).unwrap(), sum, "{place}, SCHED_FIFO");
            }
        })
        .unwrap();
        let all = u64::from(asked) * 2;
        settle(&node, "inc", all).assert_fates(&[("answered", all)], &place);
        node.stop().unwrap();
    }
}
