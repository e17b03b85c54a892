//! A path's share of its tier: eager, lazy and eager again as its load rises and
//! falls, in order, counted, and without its neighbour noticing (ASH-29, ASH-30).

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ashway_abi::Verdict;
use ashway_abi::share::{AHEAD_NS, DUE_NS};
use ashway_abi::trusted::{LAZY_MESSAGES, RING_SLOTS};
use ashway_netns::node::{Config, at_rest, control, entry, run, shift, text, until};
use ashway_netns::traffic::{
    Ledger, Over, PLACES, Place, by_queue, client_of_queue, flood, in_order, path, request, settle,
    two_queues,
};
use ashway_rig::{Node, Rig, RigOptions, UdpClient, skip_unless_root};
use serde_json::{Value, json};

/// The two tiers' modes that have a kernel tier.
const MODES: [&str; 3] = ["native", "generic", "tcx"];

/// Where the worker keeps the account.
const USER: [Place; 3] = [PLACES[0], PLACES[2], PLACES[4]];

/// Few enough that a test asks for less.
const SHARE: &str = "share = \"30 %\"\nrate = \"1000/s\"";

/// Runs that a rate of 1000/s has beyond one for each ms: what it may be ahead, the run
/// that goes over it, and what it was due.
const MOST_AT_ONCE: u64 = (AHEAD_NS + DUE_NS) / 1_000_000 + 1;

/// How long two queues have more than the share.
const OFTEN: Duration = Duration::from_secs(3);

fn mode(node: &Node, path: &str) -> String {
    let status = node.status().unwrap();
    let mode = &entry(&status, "paths", path)["mode"];
    mode.as_str().unwrap().to_owned()
}

fn ledger(node: &Node, path: &str) -> Ledger {
    Ledger::of(&node.status().unwrap(), path)
}

fn note(ledger: &Ledger, name: &str) -> u64 {
    ledger.notes.get(name).copied().unwrap_or(0)
}

/// All that may become of a message here. Where messages wait for those that another
/// CPU led to the user tier, not for the share, the ring may be full.
fn ends(ledger: &Ledger) -> u64 {
    let fates = ["answered", "dropped_over_share", "dropped_ring_full"];
    fates.iter().map(|fate| ledger.fate(fate)).sum()
}

/// Messages whose handler ran in the kernel tier: neither led to the user tier nor
/// dropped on the way there.
fn eager(ledger: &Ledger) -> u64 {
    let queued = ["queued_share", "queued_order", "queued_busy"];
    let queued: u64 = queued.iter().map(|name| note(ledger, name)).sum();
    let dropped = ["dropped_over_share", "dropped_ring_full"];
    let dropped: u64 = dropped.iter().map(|fate| ledger.fate(fate)).sum();
    ledger.received - queued - dropped
}

/// A counter with a share at port 7777, and a counter without one, its neighbour, at
/// 7778.
fn config(mode: &'static str) -> Config {
    config_at(Place {
        mode,
        tier: "kernel",
    })
}

fn config_at(place: Place) -> Config {
    let file = ashway_rig::handler("counter").unwrap();
    let config = place.config().handler_file("neighbour", &file);
    let config = config.handler_file("counter", &file);
    let config = path(config, "neighbour", "neighbour", 7778, place, "");
    path(config, "flow", "counter", 7777, place, SHARE)
}

/// Hears a counter's sums until `over`: they only rise.
fn rising(client: &UdpClient, over: &AtomicBool) -> u32 {
    client.set_timeout(Duration::from_millis(300)).unwrap();
    let (mut last, mut heard) = (0, 0);
    loop {
        match client.receive() {
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

/// Asks so slowly that it keeps to its share, and is eager.
fn ask_seldom(node: &Node, client: &UdpClient) {
    let queued = note(&ledger(node, "flow"), "queued_share");
    for sequence in 0..20 {
        client.ask(&request(1, sequence)).unwrap();
        // This takes longer than its rate.
        assert_eq!(mode(node, "flow"), "eager");
    }
    assert_eq!(note(&ledger(node, "flow"), "queued_share"), queued);
}

/// Asks until so many answers have come; how often it asked. What came to B and was not
/// answered shows in the ledger; what found A's end of the wire full never came.
fn ask_beside_a_flood(client: &UdpClient, answers: u32) -> u64 {
    client.set_timeout(Duration::from_millis(500)).unwrap();
    let mut asked = 0;
    for sequence in 0..answers {
        until("the neighbour is answered", || {
            asked += 1;
            client.ask(&request(1, sequence)).ok()
        });
    }
    asked
}

#[test]
fn the_load_rises_and_falls_and_nothing_is_lost_uncounted_or_overtaken() {
    if skip_unless_root() {
        return;
    }
    for modes in MODES {
        let rig = in_order("share");
        let node = rig.node(config(modes)).start().unwrap();
        let client = rig.client_a(7777).unwrap();
        let neighbour = rig.client_a(7778).unwrap();
        ask_seldom(&node, &client);

        let over = AtomicBool::new(false);
        let (heard, asked) = std::thread::scope(|scope| {
            let _over = Over(&over);
            let heard = scope.spawn(|| rising(&client, &over));
            scope.spawn(|| flood(&client, 1, &over));
            until("messages above the share are dropped", || {
                let ledger = ledger(&node, "flow");
                (ledger.fate("dropped_over_share") > 1_000).then_some(())
            });
            assert_eq!(mode(&node, "flow"), "lazy");
            // Beside the lazy way it still has its share.
            let before = eager(&ledger(&node, "flow"));
            until("its handler runs in the kernel tier meanwhile", || {
                (eager(&ledger(&node, "flow")) > before + 100).then_some(())
            });
            // Nobody else notices, but where the wire has no room for what it sends.
            let asked = ask_beside_a_flood(&neighbour, 200);
            over.store(true, Ordering::Release);
            (heard.join().unwrap(), asked)
        });
        let resting = Ledger::of(&at_rest(&node), "flow");
        println!("{modes}: {heard} sums heard; {resting:?}");
        assert!(heard > 0);
        assert_eq!(resting.gap(), None);
        assert_eq!(ends(&resting), resting.received, "{resting:?}");
        assert!(note(&resting, "queued_share") > 0, "{resting:?}");
        let undisturbed = Ledger::of(&at_rest(&node), "neighbour");
        let came = undisturbed.received;
        assert!((200..=asked).contains(&came), "{asked}: {undisturbed:?}");
        undisturbed.assert_fates(&[("answered", came)], &modes);

        until("it is eager again", || {
            (mode(&node, "flow") == "eager").then_some(())
        });
        ask_seldom(&node, &client);
        assert_eq!(ledger(&node, "flow").gap(), None);
        node.stop().unwrap();
    }
}

/// Asks for some times as many runs as the rate has, with pauses: a flood would take the
/// CPUs from the worker, and while messages wait there the kernel tier runs none.
fn ask_often(client: &UdpClient, over: &AtomicBool) {
    for sequence in 0.. {
        let _ = client.send(&request(1, sequence));
        std::thread::sleep(Duration::from_micros(150));
        if over.load(Ordering::Acquire) {
            return;
        }
    }
}

/// Two queues run the handler on two CPUs: the account is one. With one for each it
/// would run twice as often.
#[test]
fn every_queue_draws_on_the_same_share() {
    if skip_unless_root() {
        return;
    }
    let rig = two_queues("share-queues", true);
    let node = rig.node(config("native")).start().unwrap();
    let began = Instant::now();
    let clients = [0, 1].map(|queue| client_of_queue(&rig, queue, 7777).0);
    let before = by_queue(&rig);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _over = Over(&over);
        for client in &clients {
            scope.spawn(|| ask_often(client, &over));
        }
        std::thread::sleep(OFTEN);
        over.store(true, Ordering::Release);
    });
    let resting = Ledger::of(&at_rest(&node), "flow");
    // What was on the way when that ended ran before this, too.
    let most = began.elapsed().as_millis() as u64 + MOST_AT_ONCE;
    let ran = eager(&resting);
    let queues: Vec<u64> = by_queue(&rig)
        .iter()
        .zip(&before)
        .map(|(now, before)| now - before)
        .collect();
    println!("{ran} runs, at most {most}; by queue {queues:?}");
    assert_eq!(resting.gap(), None);
    assert_eq!(ends(&resting), resting.received, "{resting:?}");
    assert!(note(&resting, "queued_share") > 0, "{resting:?}");
    // Two accounts would run more than that, and most of what one runs is run: so they
    // would show.
    let by_two: u64 = queues.iter().map(|count| most.min(*count)).sum();
    assert!(by_two > most + most / 4, "{queues:?}");
    assert!(ran > most / 5, "{ran} runs of {most}: {resting:?}");
    assert!(ran <= most, "{ran} runs, at most {most}: {resting:?}");
    node.stop().unwrap();
}

/// A path made while the node runs has a share, too; and the one behind it begins
/// without its debt.
#[test]
fn a_path_that_is_bound_begins_without_a_debt() {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("share-bind", RigOptions::default()).unwrap();
    let file = ashway_rig::handler("counter").unwrap();
    let config = config("native").handler_file("spare", &file);
    let node = rig.node(config).start().unwrap();
    let command = |words: &[&str]| {
        let output = run(&mut node.command(words.to_vec()));
        (output.status.success(), text(&output))
    };
    let bind = |more: &[&str]| {
        let filter = "udp and dst port 7779";
        let words = [
            "bind", "spare", "--name", "late", "--iface", "b0", "--match", filter,
        ];
        command(&[&words[..], more].concat())
    };
    let client = rig.client_a(7779).unwrap();
    for _ in 0..3 {
        let (good, said) = bind(&["--tier", "kernel", "--rate", "1/s"]);
        assert!(good, "{said}");
        for sequence in 0..5 {
            client.ask(&request(1, sequence)).unwrap();
        }
        let ledger = settle(&node, "late", 5);
        ledger.assert_fates(&[("answered", 5)], &"late");
        let led = ["queued_share", "queued_order", "queued_busy"].map(|name| note(&ledger, name));
        assert_eq!(led.iter().sum::<u64>(), 4, "{ledger:?}");
        assert_eq!(mode(&node, "late"), "lazy");
        let (good, said) = command(&["status"]);
        assert!(good && said.contains(" 1/s "), "{said}");
        assert!(!said.contains("%, 1/s"), "{said}");
        let (good, said) = command(&["unbind", "late"]);
        assert!(good, "{said}");
    }
    for (more, says) in [
        (["--share", "20"], "`20` is no share"),
        (["--share", "0 %"], "`0 %` is no share"),
        (["--rate", "fast"], "`fast` is no rate"),
    ] {
        let (good, said) = bind(&more);
        assert!(!good && said.contains(says), "{said}");
    }
    node.stop().unwrap();
}

/// In the user tier what is above the share waits, and is dropped where 32 wait: each
/// message counted once, none overtaken, and the share is what runs.
#[test]
fn the_worker_keeps_the_account_of_the_user_tier() {
    if skip_unless_root() {
        return;
    }
    for place in USER {
        let rig = in_order("share-user");
        let node = rig.node(config_at(place)).start().unwrap();
        let began = Instant::now();
        let client = rig.client_a(7777).unwrap();
        let neighbour = rig.client_a(7778).unwrap();
        ask_seldom(&node, &client);

        let over = AtomicBool::new(false);
        let lazy = u64::from(LAZY_MESSAGES);
        let (heard, most_waited) = std::thread::scope(|scope| {
            let _over = Over(&over);
            let heard = scope.spawn(|| rising(&client, &over));
            scope.spawn(|| ask_often(&client, &over));
            let [mut least_waited, mut most_waited] = [u64::MAX, 0];
            until("messages above the share are dropped", || {
                let ledger = ledger(&node, "flow");
                most_waited = most_waited.max(ledger.waiting);
                let dropped = ledger.fate("dropped_over_share");
                if dropped > 0 {
                    least_waited = least_waited.min(ledger.waiting);
                }
                // In its queue, and what came in between.
                (dropped > 1_000 && least_waited <= 2 * lazy).then_some(())
            });
            assert_eq!(mode(&node, "flow"), "lazy", "{place}");
            for sequence in 0..200 {
                neighbour.ask(&request(1, sequence)).unwrap();
            }
            over.store(true, Ordering::Release);
            (heard.join().unwrap(), most_waited)
        });
        let resting = Ledger::of(&at_rest(&node), "flow");
        let most = began.elapsed().as_millis() as u64 + MOST_AT_ONCE;
        let ran = resting.fate("answered");
        println!("{place}: {heard} heard, {most_waited} waited; at most {most}: {resting:?}");
        assert_eq!(resting.gap(), None);
        assert_eq!(ends(&resting), resting.received, "{resting:?}");
        assert!(
            ran > 100 && ran <= most,
            "{ran} of at most {most}: {resting:?}"
        );
        // In the ring, too, while the worker has no CPU.
        assert!((1..=lazy + RING_SLOTS as u64).contains(&most_waited));
        settle(&node, "neighbour", 200).assert_fates(&[("answered", 200)], &place);

        until("it is eager again", || {
            (mode(&node, "flow") == "eager").then_some(())
        });
        ask_seldom(&node, &client);
        node.stop().unwrap();
    }
}

/// Has a share of the time alone, no rate, and a budget that a machine which is short of
/// CPUs does not exceed.
const SLOW_SHARE: &str = "share = \"1 %\"\nbudget = \"10 ms\"\non_fault = \"drop\"";

/// Turns of a loop in which each product waits for the one before: four cycles or more, so
/// no CPU does them all within [`LEAST_NS`].
const SLOW_TURNS: u64 = 50_000;

/// What a message of the slow handler takes at least, in ns: as if a CPU had 10 GHz.
const LEAST_NS: u64 = SLOW_TURNS * 4 / 10;

/// Some ten times as many: long enough that messages wait meanwhile.
const SLOW_COUNT_TURNS: u64 = 500_000;

/// Sends each message back, after a while.
fn slow() -> String {
    let reply = Verdict::Reply as u32;
    format!(
        r#"(module
            (import "ashway" "msg_store8" (func $store8 (param i32 i32)))
            (memory (export "memory") 1 1)
            (func (export "on_rx") (param $len i32) (param i32) (result i32)
                (local $turns i32) (local $product i32)
                (local.set $turns (i32.const {SLOW_TURNS}))
                (local.set $product (local.get $len))
                (loop $again
                    (local.set $product (i32.add (i32.const 1)
                        (i32.mul (local.get $product) (i32.const 1664525))))
                    (br_if $again (local.tee $turns
                        (i32.sub (local.get $turns) (i32.const 1)))))
                (call $store8 (i32.const 0) (local.get $product))
                (i32.const {reply})))"#
    )
}

/// Where it is the time that binds, not a rate: few messages whose handler takes long are
/// as much as many whose handler does not.
#[test]
fn a_share_of_time_binds_without_a_rate() {
    if skip_unless_root() {
        return;
    }
    let file = std::env::temp_dir().join(format!("ashway-slow-{}.wasm", std::process::id()));
    std::fs::write(&file, wat::parse_str(slow()).unwrap()).unwrap();
    for place in USER {
        let rig = Rig::new("share-time", RigOptions::default()).unwrap();
        let config = place.config().handler("counter").unwrap();
        let config = path(config, "neighbour", "counter", 7778, place, "");
        let config = config.handler_file("slow", &file);
        let config = path(config, "flow", "slow", 7777, place, SLOW_SHARE);
        let node = rig.node(config).start().unwrap();
        let began = Instant::now();
        let client = rig.client_a(7777).unwrap();
        let neighbour = rig.client_a(7778).unwrap();

        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _over = Over(&over);
            scope.spawn(|| ask_often(&client, &over));
            until("messages above the share are dropped", || {
                let ledger = ledger(&node, "flow");
                (ledger.fate("dropped_over_share") > 1_000).then_some(())
            });
            assert_eq!(mode(&node, "flow"), "lazy", "{place}");
            for sequence in 0..200 {
                neighbour.ask(&request(1, sequence)).unwrap();
            }
        });
        let resting = Ledger::of(&at_rest(&node), "flow");
        let ran = resting.fate("answered") + resting.fate("dropped_fault");
        let time = began.elapsed().as_nanos() as u64 + AHEAD_NS + DUE_NS;
        let most = time / 100 / LEAST_NS + 1;
        println!("{place}: {ran} ran, at most {most}: {resting:?}");
        assert_eq!(resting.gap(), None);
        let ended = ends(&resting) + resting.fate("dropped_fault");
        assert_eq!(ended, resting.received, "{resting:?}");
        assert!((2..=most).contains(&ran), "{ran} of at most {most}");
        assert!(ran < resting.fate("dropped_over_share"), "{resting:?}");
        settle(&node, "neighbour", 200).assert_fates(&[("answered", 200)], &place);

        until("it is eager again", || {
            (mode(&node, "flow") == "eager").then_some(())
        });
        client.send(&request(1, 0)).unwrap();
        let _ = settle(&node, "flow", resting.received + 1);
        node.stop().unwrap();
    }
    std::fs::remove_file(&file).unwrap();
}

/// What waits is done when nobody will wait any more, in order: its path goes to the
/// kernel tier, is taken away, or the node ends.
#[test]
fn what_waits_for_a_share_is_done_at_the_end() {
    if skip_unless_root() {
        return;
    }
    for place in USER {
        for end in ["promote", "unbind", "stop"] {
            if (place.mode, end) == ("packet", "promote") {
                continue;
            }
            let place = Place {
                tier: if end == "promote" { "auto" } else { "user" },
                ..place
            };
            let rig = Rig::new("share-end", RigOptions::default()).unwrap();
            let file = ashway_rig::handler("counter").unwrap();
            let config = place.config().handler_file("counter", &file);
            let config = path(config, "flow", "counter", 7777, place, "rate = \"1/s\"");
            let node = rig.node(config).start().unwrap();
            if end == "promote" {
                shift(&node, "demote", "flow");
            }
            let client = rig.client_a(7777).unwrap();
            for sequence in 0..5 {
                client.send(&request(1, sequence)).unwrap();
            }
            until("all but the first wait", || {
                (ledger(&node, "flow").waiting == 4).then_some(())
            });
            assert_eq!(mode(&node, "flow"), "lazy");
            match end {
                "promote" => shift(&node, "promote", "flow"),
                "unbind" => {
                    let output = run(&mut node.command(["unbind", "flow"]));
                    assert!(output.status.success(), "{}", text(&output));
                }
                _ => node.stop().unwrap(),
            }
            for sum in 1..=5_u32 {
                let reply = client.receive().unwrap();
                assert_eq!(reply[..4], sum.to_be_bytes(), "{place}, {end}");
            }
        }
    }
}

/// A path of modules has a share of the worker, too.
#[test]
fn a_path_of_modules_keeps_to_its_share() {
    if skip_unless_root() {
        return;
    }
    for mode in ["native", "packet"] {
        let rig = Rig::new("share-modules", RigOptions::default()).unwrap();
        let config = Config::on_b0(mode).handler("counter").unwrap();
        let config = config.text(
            "[path.flow]\niface = \"b0\"\nmatch = \"udp and dst port 7777\"\nlayer = \"ip\"\n\
             handler = \"counter\"\nrate = \"1000/s\"\n",
        );
        let node = rig.node(config).start().unwrap();
        let began = Instant::now();
        let client = rig.client_a(7777).unwrap();
        let path = || {
            let shown = run(&mut node.command(["path", "show", "flow", "-j"]));
            serde_json::from_slice::<Value>(&shown.stdout).unwrap()
        };
        assert_eq!(path()["mode"], "eager");
        let over = AtomicBool::new(false);
        let live = || node.status().unwrap()["module_paths"].clone();
        std::thread::scope(|scope| {
            let _over = Over(&over);
            scope.spawn(|| ask_often(&client, &over));
            until("messages above the share are dropped", || {
                let dropped = live()["fates"]["dropped"]["over_share"].as_u64();
                (dropped.unwrap_or(0) > 500).then_some(())
            });
            assert_eq!(path()["mode"], "lazy");
            over.store(true, Ordering::Release);
        });
        let resting = until("nothing waits", || {
            let live = live();
            (live["waiting"] == 0 && live["balanced"] == true).then_some(live)
        });
        let most = began.elapsed().as_millis() as u64 + MOST_AT_ONCE;
        let dropped = resting["fates"]["dropped"]["over_share"].as_u64().unwrap();
        let ran = resting["received"].as_u64().unwrap() - dropped;
        assert_eq!(path()["fates"]["dropped"]["over_share"], dropped);
        println!("{mode}: {ran} ran, at most {most}: {resting}");
        assert!(
            ran > 100 && ran <= most,
            "{ran} of at most {most}: {resting}"
        );
        node.stop().unwrap();
    }
}

/// Counts messages, takes a while for each, and sends the count back in those that are
/// short.
fn slow_count() -> String {
    let [reply, drop] = [Verdict::Reply, Verdict::Drop].map(|verdict| verdict as u32);
    format!(
        r#"(module
            (import "ashway" "msg_store32be" (func $store (param i32 i32)))
            (memory (export "memory") 1 1)
            (func (export "on_rx") (param $len i32) (param i32) (result i32)
                (local $turns i32) (local $product i32)
                (i32.store (i32.const 0) (i32.add (i32.load (i32.const 0)) (i32.const 1)))
                (local.set $turns (i32.const {SLOW_COUNT_TURNS}))
                (loop $again
                    (local.set $product (i32.add (i32.const 1)
                        (i32.mul (local.get $product) (i32.const 1664525))))
                    (br_if $again (local.tee $turns
                        (i32.sub (local.get $turns) (i32.const 1)))))
                (i32.store (i32.const 4) (local.get $product))
                (if (result i32) (i32.gt_u (local.get $len) (i32.const 100))
                    (then (i32.const {drop}))
                    (else
                        (call $store (i32.const 0) (i32.load (i32.const 0)))
                        (i32.const {reply})))))"#
    )
}

/// What was put together from fragments waits for its path's share as a whole frame, which
/// no program counts. It keeps the path's number all the same: when that path is unbound,
/// and another is bound at once, each of its messages is still worked on.
#[test]
fn whole_frames_that_wait_keep_their_paths_number() {
    const FRAMES: u32 = 20;
    if skip_unless_root() {
        return;
    }
    let name = format!("ashway-slow-count-{}.wasm", std::process::id());
    let file = std::env::temp_dir().join(name);
    std::fs::write(&file, wat::parse_str(slow_count()).unwrap()).unwrap();
    for mode in ["native", "generic"] {
        let rig = Rig::new("share-frames", RigOptions::default()).unwrap();
        let config = Config::on_b0(mode).handler_file("slow", &file);
        let config = config.text("[module.frag]\nkind = 'fragment'\ndown = 'eth:b0.up'");
        let node = rig.node(config).start().unwrap();
        let ask = |request: &Value| control(&node, request).unwrap();
        ask(&json!({
            "request": "create", "module": "frag", "name": "frags",
            "attrs": { "reassembly_bytes": 40_000, "mtu": 1500 },
        }));
        let bind = |path: &str, port: u16, rate: Option<&str>| {
            ask(&json!({
                "request": "bind", "handler": "slow", "path": path, "iface": ["b0"],
                "match": format!("udp and dst port {port}"), "tier": "user", "rate": rate,
                "budget": "10 ms",
            }))
        };
        bind("one", 7777, Some("1/s"));
        let client = rig.client_a(7777).unwrap();
        for _ in 0..FRAMES {
            client.send(&[7; 2_000]).unwrap();
        }
        until("all but the first wait", || {
            (ledger(&node, "one").waiting == u64::from(FRAMES) - 1).then_some(())
        });
        ask(&json!({ "request": "unbind", "path": "one" }));
        bind("other", 7778, None);
        let other = rig.client_a(7778).unwrap();
        let mut asked = 0;
        until("each has run", || {
            let reply = other.ask(&[0; 8]).unwrap();
            asked += 1;
            let count = u32::from_be_bytes(reply[..4].try_into().unwrap());
            assert!(count <= FRAMES + asked, "{count}, of {asked} asked");
            (count == FRAMES + asked).then_some(())
        });
        settle(&node, "other", u64::from(asked)).assert_fates(&[("answered", asked.into())], &mode);
        node.stop().unwrap();
    }
    std::fs::remove_file(&file).unwrap();
}
