//! What one handler does wrong is its own affair (SBX-1, SBX-2): a runaway is
//! stopped and named, and others keep answering, also beside busy processes.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use ashway_kernel::iface;
use ashway_netns::node::{application, control, entry, freeze, proc_status, stock, until};
use ashway_netns::traffic::{PLACES, Place, TIERS, client_of_queue, path, settle, two_queues};
use ashway_rig::{Hogs, Node, Rig, Signal, realtime, skip_unless_root};
use serde_json::json;

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

/// ASH-6, ASH-25: what a runaway takes is its budget and the slice in which that ends, by the node's
/// own account: each message is stopped by the clock, and charged with that. In the user tier that
/// is CPU time, with what it takes to wake and to take the message out; in
/// the kernel tier some messages are timed for the others. On a machine that takes its CPU away it may
/// have one stretch more, which was not its own, so half a budget is allowed for that.
#[test]
fn a_stopped_handler_is_charged_with_its_budget_and_no_more() {
    const TIMES: u64 = 60;
    const BUDGET_NS: u64 = 2_000_000;
    if skip_unless_root() {
        return;
    }
    let rig = stock("charged");
    for place in PLACES {
        let config = place.config().handler("runaway").unwrap();
        let more = "on_fault = \"drop\"\nfaults = \"off\"\nbudget = \"2 ms\"";
        let config = path(config, "runaway", "runaway", 7001, place, more);
        let node = rig.node(config).start().unwrap();
        let status = node.status().unwrap();
        assert_eq!(entry(&status, "paths", "runaway")["tier"], place.tier);
        let client = rig.client_a(7001).unwrap();
        for sent in 1..=TIMES {
            client.send(b"Run").unwrap();
            // One by one: else some find the ring full.
            let ledger = settle(&node, "runaway", sent);
            assert_eq!(
                ledger.aborts.get("time"),
                Some(&sent),
                "{place}: {ledger:?}"
            );
        }
        let shown = control(&node, &json!({ "request": "show", "path": "runaway" })).unwrap();
        let key = match place.tier {
            "kernel" => "kernel_time_ns",
            _ => "time_ns",
        };
        let each = shown[key].as_u64().unwrap() / TIMES;
        println!("{place}: {each} ns a message, of a budget of {BUDGET_NS}");
        // One whose CPU was taken away has had less.
        let most = BUDGET_NS * 3 / 2;
        assert!((BUDGET_NS / 4..most).contains(&each), "{place}: {shown:#}");
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

/// SBX-1: sixteen processes that want the CPUs for themselves, the owner of the memory stopped
/// and, for the kernel tier, the node too: each message is answered, in turn, and counted.
#[test]
fn busy_processes_and_a_stopped_owner_do_not_stop_a_handler() {
    const ASKED: u32 = 300;
    if skip_unless_root() {
        return;
    }
    let rig = stock("hogs-stopped");
    let _hogs = Hogs::start(16).unwrap();
    for place in PLACES {
        let in_kernel = place.tier == "kernel";
        let config = place.config().handler("counter").unwrap();
        let config = path(config, "inc", "counter", 7777, place, "");
        let node = rig.node(config).start().unwrap();
        let status = node.status().unwrap();
        assert_eq!(entry(&status, "paths", "inc")["tier"], place.tier);
        let mut owner = application(&node, "counter", "counter_app").unwrap();
        assert_eq!(owner.ask("").unwrap(), "0", "{place}");
        owner.process().signal(Signal::STOP).unwrap();
        until("the owner is stopped", || {
            let state = proc_status(owner.process().id(), "State");
            state.starts_with('T').then_some(())
        });
        if in_kernel {
            freeze(&node);
        }
        let client = rig.client_a(7777).unwrap();
        client.set_timeout(ashway_netns::node::PATIENCE).unwrap();
        // The user tier's worker is one process among seventeen.
        let asked = if in_kernel { ASKED } else { ASKED / 20 };
        for sum in 1..=asked {
            assert_eq!(client.ask_number(1).unwrap(), sum, "{place}");
        }
        node.signal(Signal::CONT).unwrap();
        let all = u64::from(asked);
        let ledger = settle(&node, "inc", all);
        ledger.assert_fates(&[("answered", all)], &place);
        assert!(ledger.aborts.is_empty(), "{place}: {ledger:?}");
        // The owner finds what was done while it was not there.
        owner.process().signal(Signal::CONT).unwrap();
        assert_eq!(owner.ask("").unwrap(), asked.to_string(), "{place}");
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
