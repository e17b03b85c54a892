//! `instances = "parallel"`: one memory, in which the handler runs on several CPUs at once, in both
//! tiers and on the way from one to the other. What is counted by atomic operators is what was
//! sent, what lies on the stack is each CPU's own, and nobody finds the handler busy.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use std::fs;
use std::net::UdpSocket;

use ashway_netns::cpus::{self, CPUS, PLACES, PORT, clients, on_cpu, skip_here};
use ashway_netns::node::{Config, application_with, control as ask, entry, run, text};
use ashway_netns::traffic::{Ledger, Place, path, request, settle, two_queues};
use ashway_rig::{Node, Rig, UdpClient};
use serde_json::{Value, json};

/// What asks for messages that found their variables changed, and for the count without atomics.
const TORN: u32 = u32::MAX;
const LOSSY: u32 = u32::MAX - 1;

fn config(place: Place) -> Config {
    let config = place.config().handler("tally").unwrap();
    path(
        config.text("instances = \"parallel\""),
        "inc",
        "tally",
        PORT,
        place,
        "",
    )
}

/// How many all clients [sent](cpus::count).
fn count(clients: &[UdpClient], meanwhile: impl FnOnce()) -> u64 {
    cpus::count(clients, meanwhile).into_iter().sum()
}

/// What the handler says to this number.
fn said(client: &UdpClient, number: u32) -> u32 {
    let answer = client.ask(&request(number, 0)).unwrap();
    u32::from_be_bytes(*answer.first_chunk().unwrap())
}

/// The counter, as an application reads it in the handler's memory.
fn counter(node: &Node) -> u64 {
    let app = application_with(node, "tally", "counter_app", &[], &[]);
    app.unwrap().ask("").unwrap().parse().unwrap()
}

/// All that was sent is in the one memory, and no CPU has touched another's stack.
fn assert_whole(node: &Node, clients: &[UdpClient], sent: u64, probes: u64, what: Place) -> Ledger {
    let lossy = said(&clients[0], LOSSY);
    assert_eq!(said(&clients[0], TORN), 0, "{what}: a stack of two CPUs");
    let ledger = settle(node, "inc", sent + probes + 2);
    ledger.assert_fates(&[("answered", sent + probes + 2)], &what);
    assert_eq!(counter(node), sent, "{what}");
    println!("{what}: {sent} sent and counted, {lossy} without atomics");
    // It may lose what two CPUs add at the same time, and never more.
    assert!(u64::from(lossy) <= sent, "{what}: {lossy} of {sent}");
    ledger
}

/// Starts a node where nothing is recorded before its handler is promoted.
fn start(rig: &Rig, config: Config) -> Node {
    rig.node(config).start().unwrap()
}

#[test]
fn two_cpus_count_in_one_memory() {
    if skip_here() {
        return;
    }
    for place in PLACES {
        let rig = two_queues("parallel", false);
        let node = start(&rig, config(place));
        let (clients, probes) = clients(&rig, place);
        let sent = count(&clients, || ());
        let ledger = assert_whole(&node, &clients, sent, probes, place);
        let status = node.status().unwrap();
        let path = entry(&status, "paths", "inc");
        assert_eq!(path["tier"], place.tier, "{path:#}");
        // Nothing crosses for the other CPU's sake.
        let busy = ledger.notes.get("queued_busy");
        assert_eq!(busy, None, "{place}: {ledger:?}");
        let waited = ledger.notes.get("waited_busy");
        assert_eq!(waited, None, "{place}: {ledger:?}");
        assert_eq!(
            path["ran_in"][place.tier], path["received"],
            "{place}: {path:#}"
        );
        node.stop().unwrap();
    }
}

#[test]
fn tiers_change_under_traffic() {
    if skip_here() {
        return;
    }
    for mode in ["native", "tcx"] {
        let place = Place::new(mode, "kernel");
        let rig = two_queues("paralleltiers", false);
        let node = start(&rig, config(place));
        let (clients, probes) = clients(&rig, place);
        let tier = |request: &str, shadow: u32| {
            let mut asked = json!({ "request": request, "path": "inc" });
            if request == "promote" {
                asked["shadow"] = json!(shadow);
            }
            let answer = ask(&node, &asked).unwrap();
            answer["tier"].as_str().unwrap().to_owned()
        };
        let sent = count(&clients, || {
            for round in 0..10 {
                assert_eq!(tier("demote", 0), "user");
                // What is recorded for the comparison has the memory for itself.
                assert_eq!(tier("promote", 8 * (round % 2)), "kernel");
            }
        });
        assert_whole(&node, &clients, sent, probes, place);
        let status = node.status().unwrap();
        let ran = &entry(&status, "paths", "inc")["ran_in"];
        assert!(ran["user"] != 0 && ran["kernel"] != 0, "{ran}");
        node.stop().unwrap();
    }
}

/// One path in each tier, at the same time: the worker is one CPU more in the same memory, and
/// a message that is recorded for the comparison has it for itself.
#[test]
fn both_tiers_at_once_are_in_one_memory() {
    if skip_here() {
        return;
    }
    for mode in ["native", "tcx"] {
        let place = Place::new(mode, "kernel");
        let rig = two_queues("parallelboth", false);
        let user = Place {
            tier: "user",
            ..place
        };
        let config = path(config(place), "slow", "tally", PORT + 1, user, "");
        let node = start(&rig, config);
        let fast = rig.client_a(PORT).unwrap();
        let slow = rig.client_a(PORT + 1).unwrap();
        let mut both = 0;
        let sent = count(&[fast, slow], || {
            for _ in 0..3 {
                let asked = json!({ "request": "promote", "path": "slow", "shadow": 16 });
                assert_eq!(ask(&node, &asked).unwrap()["tier"], "kernel");
                let asked = json!({ "request": "demote", "path": "slow" });
                assert_eq!(ask(&node, &asked).unwrap()["tier"], "user");
                both += 1;
            }
        });
        assert_eq!(both, 3);
        let client = rig.client_a(PORT).unwrap();
        assert_eq!(said(&client, TORN), 0, "{place}: a stack of two tiers");
        assert_eq!(counter(&node), sent, "{place}");
        let status = node.status().unwrap();
        for (name, tier) in [("inc", "kernel"), ("slow", "user")] {
            let path = entry(&status, "paths", name);
            assert_ne!(path["ran_in"][tier], 0, "{path:#}");
        }
        node.stop().unwrap();
    }
}

/// Another version while both CPUs ask: the swap waits for both, and what it hands on is whole.
#[test]
fn a_swap_waits_for_all_cpus() {
    if skip_here() {
        return;
    }
    for place in [Place::new("native", "kernel"), Place::new("tcx", "user")] {
        let rig = two_queues("parallelswap", false);
        let node = start(&rig, config(place));
        let file = ashway_rig::handler("tally").unwrap();
        let (clients, probes) = clients(&rig, place);
        let mut swaps = 0;
        let sent = count(&clients, || {
            for _ in 0..5 {
                let asked = json!({ "request": "swap", "handler": "tally", "file": file,
                    "params": { "turns": 100 } });
                let done = ask(&node, &asked).unwrap();
                assert_eq!(done["handler"], "tally", "{done:#}");
                swaps += 1;
            }
        });
        assert_eq!(swaps, 5);
        assert_eq!(said(&clients[0], TORN), 0, "{place}");
        let ledger = settle(&node, "inc", sent + probes + 1);
        ledger.assert_fates(&[("answered", sent + probes + 1)], &place);
        // Each version begins with a memory of its own.
        assert!(counter(&node) <= sent, "{place}");
        node.stop().unwrap();
    }
}

/// `apply` makes it one that runs on all CPUs at once, and takes that back: each begins with a
/// memory of its own.
#[test]
fn a_file_makes_it_parallel_and_takes_that_back() {
    if skip_here() {
        return;
    }
    let place = Place::new("tcx", "kernel");
    let rig = two_queues("parallelapply", false);
    let serial = || {
        let config = place.config().handler("tally").unwrap();
        path(config, "inc", "tally", PORT, place, "")
    };
    let node = start(&rig, serial());
    let (clients, _) = clients(&rig, place);
    let apply = |config: Config| {
        fs::write(node.config(), String::from(config)).unwrap();
        let asked = json!({ "request": "apply", "file": node.config() });
        let done = ask(&node, &asked).unwrap();
        let steps = done["steps"].as_array().unwrap().clone();
        assert!(steps.iter().any(|step| step["name"] == "tally"), "{done:#}");
    };
    let mut sent = count(&clients, || ());
    for parallel in [true, false, true] {
        assert_eq!(counter(&node), sent, "before it is parallel: {parallel}");
        apply(if parallel { config(place) } else { serial() });
        sent = count(&clients, || ());
        let status = node.status().unwrap();
        assert_eq!(entry(&status, "paths", "inc")["tier"], "kernel");
        assert_eq!(said(&clients[0], TORN), 0);
    }
    assert_eq!(counter(&node), sent);
    node.stop().unwrap();
}

/// Stopped on both CPUs: every fault is counted, and what is kept of one is of one message.
#[test]
fn faults_of_two_cpus_are_counted() {
    const ALL: u64 = 500;
    if skip_here() {
        return;
    }
    let place = Place::new("tcx", "kernel");
    let rig = two_queues("parallelfaults", false);
    // Stops at a message of this first byte.
    let handler = r#"(module
        (import "ashway" "msg_load8" (func $load (param i32) (result i32)))
        (memory (export "memory") 1 1 shared)
        (func (export "on_rx") (param i32 i32) (result i32)
          (drop (i32.atomic.rmw.add (i32.const 64) (i32.const 1)))
          (if (i32.eq (call $load (i32.const 0)) (i32.const 7)) (then unreachable))
          (i32.const 0)))"#;
    let file = std::env::temp_dir().join(format!("ashway-stops-{}.wasm", std::process::id()));
    fs::write(&file, wat::parse_str(handler).unwrap()).unwrap();
    let config = place.config().text(&format!(
        "[handler.stops]\nfile = {file:?}\ninstances = \"parallel\""
    ));
    let config = path(
        config,
        "inc",
        "stops",
        PORT,
        place,
        "on_fault = \"drop\"\nfaults = \"off\"",
    );
    let node = start(&rig, config);
    let sockets: Vec<UdpClient> = (0..CPUS).map(|_| rig.client_a(PORT).unwrap()).collect();
    std::thread::scope(|scope| {
        for (cpu, client) in sockets.iter().enumerate() {
            let socket: &UdpSocket = client.socket();
            scope.spawn(move || {
                on_cpu(cpu, || {
                    for number in 0..ALL {
                        socket.send(&[7, cpu as u8, number as u8, 0]).unwrap();
                    }
                });
            });
        }
    });
    let ledger = settle(&node, "inc", ALL * CPUS as u64);
    // What comes while a fault is kept goes to the user tier, which may have no room for all.
    let stopped: u64 = ledger.aborts.values().sum();
    let dropped = ledger.fate("dropped_ring_full");
    assert_eq!(stopped + dropped, ALL * CPUS as u64, "{ledger:?}");
    assert!(stopped > 0, "{ledger:?}");
    let status = node.status().unwrap();
    let fault = &entry(&status, "handlers", "stops")["last_fault"];
    assert_eq!(fault["count"], stopped, "{fault:#}");
    assert_eq!(fault["cause"], "unreachable", "{fault:#}");
    node.stop().unwrap();
    fs::remove_file(&file).unwrap();
}

/// What cannot be, is refused by name, with the next step: in a file, and on a running node.
#[test]
fn what_was_not_built_for_it_is_refused() {
    if skip_here() {
        return;
    }
    let rig = two_queues("parallelrefused", false);
    let place = Place::new("native", "user");
    let node = start(&rig, place.config().text("[node]\nname = 'late'"));
    let load = |name: &str| {
        let file = ashway_rig::handler(name).unwrap();
        let words = [
            "handler",
            "load",
            file.to_str().unwrap(),
            "--allow",
            "reply",
        ];
        let words = words.into_iter().chain(["--instances", "parallel"]);
        run(&mut node.command(words.collect::<Vec<_>>()))
    };
    let refused = load("counter");
    assert!(!refused.status.success());
    let said = text(&refused);
    assert!(
        said.contains("no atomic operators") && said.contains("-matomics"),
        "{said}"
    );
    assert!(load("tally").status.success());
    for more in [json!({ "share": "10 %" }), json!({ "order": "path" })] {
        let mut request = json!({
            "request": "bind", "handler": "tally", "path": "inc", "iface": ["b0"],
            "match": format!("udp and dst port {PORT}"),
        });
        let more: &Value = &more;
        let more = more.as_object().unwrap().clone();
        request.as_object_mut().unwrap().extend(more);
        let said = ask(&node, &request).unwrap_err();
        let said = said["message"].as_str().unwrap();
        assert!(said.contains("`instances = \"parallel\"`"), "{said}");
    }
    node.stop().unwrap();
}
