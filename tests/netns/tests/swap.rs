//! Versions of a handler that take over from each other under traffic: nothing is
//! lost, doubled or overtaken, and no message meets two versions.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ashway_netns::node::{application, at_rest, control as ask, entry};
use ashway_netns::traffic::{
    Over, PLACES, Place, TIERS, client_of_queue, path, request, settle, stream, two_queues,
};
use ashway_rig::{Node, Rig, RigOptions, UdpClient, skip_unless_root};
use serde_json::{Value, json};

/// Messages between two looks at whether the test is over.
const ROUND: u32 = 500;

/// Unanswered messages of a flow. Four of them fit a ring.
const WINDOW: u32 = 32;

/// Changes of version in a test, each beside one of tier: a hundred changes. And how long a
/// machine that is busy elsewhere may take for them.
const SWAPS: u32 = 50;
const LONGEST: Duration = Duration::from_mins(2);

fn file(handler: &str) -> PathBuf {
    ashway_rig::handler(handler).unwrap()
}

fn node(rig: &Rig, place: Place) -> Node {
    let config = place.config().handler("ledger").unwrap();
    rig.node(path(config, "flow", "ledger", 7777, place, ""))
        .start()
        .unwrap()
}

fn swap(node: &Node, handler: &str) -> Result<Value, Value> {
    let request = json!({ "request": "swap", "handler": "ledger", "file": file(handler) });
    ask(node, &request)
}

fn rollback(node: &Node) -> Result<Value, Value> {
    ask(node, &json!({ "request": "rollback", "handler": "ledger" }))
}

/// What is in the ledger: answered by each version, out of place, and messages since
/// the last change of version.
fn ledger(client: &UdpClient) -> [u32; 4] {
    let answer = client.ask(&[0; 16]).unwrap();
    let (words, _) = answer.as_chunks::<4>();
    let words: Vec<u32> = words.iter().map(|word| u32::from_be_bytes(*word)).collect();
    words.try_into().unwrap()
}

/// Who answered, of a flow: each stamp is that of one version and one swap.
#[derive(Default)]
struct Seen {
    messages: u64,
    /// The last stamp.
    last: u32,
    /// By each version.
    by: [u64; 2],
}

impl Seen {
    fn round(&mut self, client: &UdpClient, flow: u32) {
        for stamp in stream(client, flow, ROUND, WINDOW) {
            assert!(stamp >= self.last, "an older version answered: {stamp}");
            let (swaps, version) = (stamp / 2, stamp % 2);
            assert_eq!(swaps % 2, version, "a version with the other's ledger");
            self.last = stamp;
            self.by[version as usize] += 1;
            self.messages += 1;
        }
    }
}

/// Sends by so many flows on both queues while `change` changes the node, so often; what
/// was sent, with those that found the clients, and by whom it was answered.
fn under_traffic(rig: &Rig, flows: usize, mut change: impl FnMut(u32)) -> (u64, [u64; 2]) {
    let (one, probes_one) = client_of_queue(rig, 0, 7777);
    let (two, probes_two) = client_of_queue(rig, 1, 7777);
    let more = [21_000, 21_001].map(|port| {
        rig.in_a(|| UdpClient::connect_from(port, "10.7.0.2:7777".parse().unwrap()))
            .unwrap()
    });
    let probes = probes_one + probes_two;
    let clients: Vec<_> = [one, two].into_iter().chain(more).take(flows).collect();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _over = Over(&over);
        let threads: Vec<_> = clients
            .iter()
            .zip(1..)
            .map(|(client, flow)| {
                let over = &over;
                scope.spawn(move || {
                    let mut seen = Seen::default();
                    while !over.load(Ordering::Acquire) {
                        seen.round(client, flow);
                    }
                    seen
                })
            })
            .collect();
        let end = Instant::now() + LONGEST;
        for step in 0..SWAPS {
            // A sender that panicked has found something; say so at once.
            let found = threads
                .iter()
                .any(std::thread::ScopedJoinHandle::is_finished);
            if found || Instant::now() > end {
                assert!(found, "{step} changes in {LONGEST:?}");
                break;
            }
            change(step);
        }
        over.store(true, Ordering::Release);
        let mut all = (probes, [probes, 0]);
        for thread in threads {
            let seen = thread.join().unwrap();
            all.0 += seen.messages;
            all.1 = [all.1[0] + seen.by[0], all.1[1] + seen.by[1]];
        }
        all
    })
}

/// The next version, and the other one after it.
fn next(step: u32) -> &'static str {
    ["ledger_2", "ledger"][step as usize % 2]
}

#[test]
fn versions_change_under_traffic_and_no_message_notices() {
    if skip_unless_root() {
        return;
    }
    for (gro, flows) in [(false, 2), (true, 2), (true, 4)] {
        let rig = two_queues(if gro { "swap-gro" } else { "swap" }, gro);
        let node = node(&rig, TIERS[1]);
        let mut holds = Vec::new();
        let (sent, by) = under_traffic(&rig, flows, |step| {
            let swapped = swap(&node, next(step)).unwrap_or_else(|why| panic!("{why:#}"));
            assert_eq!(swapped["left_kernel"], json!([]));
            holds.push(swapped["hold_ns"].as_u64().unwrap());
            // Every other change is of a path in the user tier.
            let verb = ["promote", "demote"][step as usize / 2 % 2];
            ask(&node, &json!({ "request": verb, "path": "flow" })).unwrap();
        });
        holds.sort_unstable();
        let at = |share: usize| holds[(holds.len() - 1) * share / 100] / 1000;
        println!(
            "gro {gro}, {flows} flows: {sent} messages, {} swaps; messages waited {} us (median), {} (p99), {} (max)",
            holds.len(),
            at(50),
            at(99),
            at(100)
        );
        let shown = settle(&node, "flow", sent);
        println!("{:?}", shown.notes);
        shown.assert_fates(&[("answered", sent)], &"ledger");
        assert!(
            shown.notes["queued_tier"] < sent,
            "the kernel tier answered nothing"
        );
        let client = rig.client_a(7777).unwrap();
        let [one, two, out_of_place, _] = ledger(&client);
        assert_eq!([one, two].map(u64::from), by);
        assert_eq!(out_of_place, 0);
        assert!(by[0] > 0 && by[1] > 0, "{by:?}");
        node.stop().unwrap();
    }
}

/// The twin: what a version forgets shows in the ledger.
#[test]
fn a_state_that_is_not_handed_on_is_missed() {
    if skip_unless_root() {
        return;
    }
    let rig = two_queues("swap-forgets", false);
    let node = node(&rig, TIERS[1]);
    let (sent, by) = under_traffic(&rig, 2, |step| {
        if step == 25 {
            swap(&node, "ledger_forgets").unwrap();
        } else if step < 25 {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    let _ = settle(&node, "flow", sent);
    let client = rig.client_a(7777).unwrap();
    let [one, _, _, _] = ledger(&client);
    assert!(u64::from(one) < by[0], "{one} of {by:?}");
}

/// What is declared stays, all else begins anew; and back, wherever a handler runs.
#[test]
fn state_is_kept_and_the_rest_is_new() {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("swap-state", RigOptions::default()).unwrap();
    for place in PLACES {
        let node = node(&rig, place);
        let client = rig.client_a(7777).unwrap();
        let refused = rollback(&node).unwrap_err();
        assert!(refused["message"].to_string().contains("no version before"));
        let mut place_in_flow = 0;
        let mut ask = || {
            let answer = client.ask(&request(1, place_in_flow)).unwrap();
            place_in_flow += 1;
            answer[3]
        };
        assert_eq!((ask(), ask()), (0, 0), "{place}");
        let answer = swap(&node, "ledger_2").unwrap();
        let state = json!({ "version": 2, "kept_bytes": 272, "migrated_from": 1 });
        assert_eq!(answer["state"], state, "{place}");
        assert_eq!(ask(), 3, "{place}");
        assert_eq!(ledger(&client), [2, 1, 0, 2], "{place}");
        // The same once more: no migration, and no trap.
        let again = swap(&node, "ledger_2").unwrap();
        assert_eq!(again["state"]["migrated_from"], Value::Null);
        assert_eq!((ask(), ledger(&client)), (3, [2, 2, 0, 2]), "{place}");
        rollback(&node).unwrap();
        let back = rollback(&node).unwrap();
        assert_eq!(back["state"]["migrated_from"], 2);
        assert_eq!(ask(), 4, "{place}");
        assert_eq!(ledger(&client), [3, 2, 0, 2], "{place}");
        let status = at_rest(&node);
        let path = entry(&status, "paths", "flow");
        assert_eq!(
            (&path["received"], &path["tier"]),
            (&8.into(), &place.tier.into())
        );
        assert_eq!(entry(&status, "handlers", "ledger")["former"], json!([]));
        node.stop().unwrap();
    }
}

/// A file for the node, from text.
fn wat(node: &Node, name: &str, source: &str) -> PathBuf {
    let file = node.config().parent().unwrap().join(name);
    fs::write(&file, wat::parse_str(source).unwrap()).unwrap();
    file
}

/// A handler with a state from `begin` to `end`, of this version, and more exports.
fn source(state: Option<[u32; 3]>, more: &str) -> String {
    let state = state.map_or_else(String::new, |words| {
        let bytes = words.iter().flat_map(|word| word.to_le_bytes());
        let bytes: Vec<_> = bytes.map(|byte| format!("\\{byte:02x}")).collect();
        format!("(@custom \"ashway.state\" \"{}\")", bytes.concat())
    });
    format!(
        "(module (memory (export \"memory\") 2 2)
           (func (export \"on_rx\") (param i32 i32) (result i32) i32.const 1) {more} {state})"
    )
}

/// Whatever is refused, and why: the version that runs goes on, with every byte.
#[test]
fn what_cannot_take_over_changes_nothing() {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("swap-refused", RigOptions::default()).unwrap();
    for place in [TIERS[0], TIERS[1], PLACES[4]] {
        let node = node(&rig, place);
        let client = rig.client_a(7777).unwrap();
        for i in 0..3 {
            client.ask(&request(1, i)).unwrap();
        }
        let migrate = "(func (export \"migrate\") (param i32))";
        let state = |bytes: u32, version: u32| Some([1024, 1024 + bytes, version]);
        let floats = "(func (export \"migrate\") (param i32)) (func $f (result f32) f32.const 1)";
        let float =
            source(state(272, 2), floats).replace("i32.const 1)", "call $f i32.trunc_f32_s)");
        for (name, source, says) in [
            ("missing", source(None, ""), "the file declares none"),
            ("larger", source(state(8, 2), migrate), "the file's has 8"),
            ("changed", source(state(280, 1), migrate), "280 in the file"),
            ("alone", source(state(272, 2), ""), "exports no `migrate`"),
            (
                "typed",
                source(state(272, 2), "(func (export \"migrate\"))"),
                "exports no `migrate`",
            ),
            (
                "memory",
                source(state(272, 1), "").replace("2 2", "2 3"),
                "196608 bytes at most",
            ),
            (
                "outside",
                source(Some([131_000, 131_272, 1]), ""),
                "ends at byte 131272",
            ),
            ("backwards", source(Some([8, 0, 1]), ""), "ends at 0"),
            (
                "signature",
                source(state(272, 1), "").replace("(result i32) i32.const 1", ""),
                "a handler has type",
            ),
            (
                "unbound",
                source(state(272, 1), "").replace("on_rx", "on_tx"),
                "no exported function `on_rx`",
            ),
            (
                "import",
                "(module (import \"ashway\" \"fly\" (func)))".to_owned(),
                "fly",
            ),
            (
                "float",
                float,
                if place.tier == "kernel" {
                    "tier = \\\"kernel\\\""
                } else {
                    ""
                },
            ),
        ] {
            let file = wat(&node, name, &source);
            let request = json!({ "request": "swap", "handler": "ledger", "file": file });
            if says.is_empty() {
                // The user tier takes floats; then back.
                ask(&node, &request).unwrap();
                rollback(&node).unwrap();
                continue;
            }
            let why = ask(&node, &request).unwrap_err();
            let text = why.to_string();
            assert!(text.contains(says), "{place}, {name}: {text}");
        }
        if place.tier == "kernel" {
            let why = swap(&node, "ledger_traps").unwrap_err();
            let message = why["message"].as_str().unwrap();
            let line = "was stopped at apps/handlers/ledger_traps.c:8: unreachable";
            assert!(message.contains(line), "{message}");
            let status = node.status().unwrap();
            assert_eq!(entry(&status, "paths", "flow")["tier"], "kernel");
            assert_eq!(ledger(&client), [3, 0, 0, 4]);
            assert_eq!(client.ask(&request(1, 3)).unwrap()[3], 0);
        }
        node.stop().unwrap();
    }
}

/// What an application has mapped is what the next version works in.
#[test]
fn an_application_keeps_its_mapping() {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("swap-mapped", RigOptions::default()).unwrap();
    let config = TIERS[1].config().handler("counter").unwrap();
    let node = rig
        .node(path(config, "counter", "counter", 7777, TIERS[1], ""))
        .start()
        .unwrap();
    let client = rig.client_a(7777).unwrap();
    let mut app = application(&node, "counter", "counter_app").unwrap();
    assert_eq!(client.ask_number(5).unwrap(), 5);
    let before = app.ask("?").unwrap();
    let request = json!({ "request": "swap", "handler": "counter", "file": file("counter") });
    let answer = ask(&node, &request).unwrap();
    assert_eq!(answer["state"], Value::Null);
    assert_eq!(client.ask_number(7).unwrap(), 7);
    let after = app.ask("?").unwrap();
    println!("{before} -> {after}");
    assert!(before.contains('5') && after.contains('7'));
}
