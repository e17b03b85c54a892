//! Each handler of `tests/hostile` on a running node, beside a path that must
//! not notice: it ends as its first line says, that is counted by cause, and the
//! other path loses no message and no byte (ASH-6, SBX-2).
//!
//! One handler in eight, unless `ASHWAY_HOSTILE=whole` (`cargo xtask hostile`).

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};

use ashway_abi::{Cause, Verdict};
use ashway_hostile::{End, Entry, Expectation, Tier, corpus};
use ashway_netns::node::{PATIENCE, assert_free, entry, ordinary, run, text, until};
use ashway_netns::traffic::{Ledger, Place, TIERS, heard, path, settle};
use ashway_rig::{Node, Rig, RigOptions, UdpClient, skip_unless_root};

/// Where the hostile handlers listen, and the victim.
const HOSTILE: u16 = 7001;
const VICTIM: u16 = 7777;

/// Counts, and looks through its memory: 128 KiB are a pattern, 512 bytes of
/// which each message compares. A byte that is not its own stops it.
const VICTIM_WAT: &str = r#"(module
    (import "ashway" "msg_load32be" (func $load (param i32) (result i32)))
    (import "ashway" "msg_store32be" (func $store (param i32 i32)))
    (memory (export "memory") 2 2)
    (global $sum (mut i32) (i32.const 0))
    (global $at (mut i32) (i32.const 0))
    (func $pattern (param $at i32) (result i64)
        (i64.mul (i64.add (i64.extend_i32_u (local.get $at)) (i64.const 1))
            (i64.const 0x9e3779b97f4a7c15)))
    (func $fill (local $at i32)
        (loop $again
            (i64.store (local.get $at) (call $pattern (local.get $at)))
            (br_if $again (i32.lt_u
                (local.tee $at (i32.add (local.get $at) (i32.const 8))) (i32.const 0x20000)))))
    (start $fill)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (local $at i32) (local $end i32)
        (local.set $at (global.get $at))
        (local.set $end (i32.add (local.get $at) (i32.const 512)))
        (loop $again
            (if (i64.ne (i64.load (local.get $at)) (call $pattern (local.get $at)))
                (then (unreachable)))
            (br_if $again (i32.lt_u
                (local.tee $at (i32.add (local.get $at) (i32.const 8))) (local.get $end))))
        (global.set $at (i32.and (local.get $end) (i32.const 0x1ffff)))
        (global.set $sum (i32.add (global.get $sum) (call $load (i32.const 0))))
        (call $store (i32.const 0) (global.get $sum))
        (i32.const 1)))"#;

/// Among the aborts of a ledger, what is no fault.
const VOLUNTARY: &str = "voluntary";

/// A look through all of the victim's memory takes so many messages.
const SWEEP: u32 = 256;

#[test]
fn every_handler_is_contained_beside_a_victim() {
    if skip_unless_root() {
        return;
    }
    let whole = std::env::var_os("ASHWAY_HOSTILE").is_some_and(|value| value == "whole");
    let stride = if whole { 1 } else { 8 };
    let corpus = corpus().unwrap();
    // Both tiers take other ones.
    for (place, skip) in TIERS.into_iter().zip([0, stride / 2]) {
        let rig = Rig::new("hostile", RigOptions::default()).unwrap();
        let config = place.config();
        let folder = std::env::temp_dir().join(format!("{}-corpus", rig.name()));
        std::fs::create_dir_all(&folder).unwrap();
        let victim = folder.join("victim.wasm");
        std::fs::write(&victim, wat::parse_str(VICTIM_WAT).unwrap()).unwrap();
        // A hypervisor takes the CPU away for longer than the default budget.
        let more = "budget = \"10 ms\"";
        let config = path(
            config.handler_file("victim", &victim),
            "victim",
            "victim",
            VICTIM,
            place,
            more,
        );
        let node = rig.node(config).start().unwrap();
        let now = node.status().unwrap();
        assert_eq!(
            entry(&now, "paths", "victim")["tier"],
            place.tier,
            "{place}"
        );
        let host = ordinary(&rig, HOSTILE);
        let over = AtomicBool::new(false);
        let mut tried = 0;
        std::thread::scope(|scope| {
            let ending = Ending(&over);
            let traffic = scope.spawn(|| ask_until(&rig.client_a(VICTIM).unwrap(), &over));
            let client = rig.client_a(HOSTILE).unwrap();
            client.set_timeout(PATIENCE).unwrap();
            for hostile in corpus.iter().skip(skip).step_by(stride) {
                if whole {
                    println!("{place}: {}", hostile.name);
                }
                assert!(!traffic.is_finished(), "{place}: before {}", hostile.name);
                let file = folder.join(format!("{}.wasm", hostile.name));
                std::fs::write(&file, &hostile.wasm).unwrap();
                let words = [
                    "handler",
                    "load",
                    file.to_str().unwrap(),
                    "--allow",
                    "reply,log,pipe",
                ];
                let output = run(&mut node.command(words));
                let loaded = output.status.success();
                let said = text(&output);
                match expected(hostile, place) {
                    Err(words) => {
                        assert!(!loaded && said.contains(words), "{}: {said}", hostile.name);
                    }
                    Ok((tier, ends)) => {
                        assert!(loaded, "{}: {said}", hostile.name);
                        contain(&node, &client, &host, hostile, tier, ends);
                    }
                }
                tried += 1;
            }
            drop(ending);
            let asked = traffic.join().unwrap();
            let ledger = settle(&node, "victim", u64::from(asked));
            ledger.assert_fates(&[("answered", u64::from(asked))], &place);
            assert!(ledger.aborts.is_empty(), "{place}: {ledger:?}");
            println!(
                "{place}: {tried} handlers; the victim was asked {asked} times, and lost none"
            );
        });
        node.stop().unwrap();
        assert_free(&rig, "b0");
        std::fs::remove_dir_all(folder).unwrap();
    }
}

/// Ends the victim's traffic, also when a test fails.
struct Ending<'o>(&'o AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Asks the victim in turn, so that a lost answer would be missed at once; at
/// the end so often that it has looked through its memory.
fn ask_until(client: &UdpClient, over: &AtomicBool) -> u32 {
    client.set_timeout(PATIENCE).unwrap();
    let (mut asked, mut left) = (0, SWEEP);
    while left > 0 {
        asked += 1;
        assert_eq!(client.ask_number(1).unwrap(), asked, "the victim's answer");
        left -= u32::from(over.load(Ordering::Acquire));
    }
    asked
}

/// Which tier takes it and how it ends there, or what a refusal says.
fn expected(hostile: &Entry, place: Place) -> Result<(&'static str, &[End]), &str> {
    let (user, kernel) = match &hostile.expectation {
        Expectation::Refused(words) => return Err(words),
        Expectation::Loaded { user, kernel, .. } => (user, kernel),
    };
    match (place.tier, kernel, user) {
        ("kernel", Tier::Runs(ends), _) => Ok(("kernel", ends)),
        (_, _, Tier::Runs(ends)) => Ok(("user", ends)),
        (_, _, Tier::Start(cause)) => Err(cause.name()),
        (_, _, Tier::Refused(words)) => Err(words),
    }
}

/// Binds it, gives it as many messages as its header has ends, and unbinds it.
fn contain(
    node: &Node,
    client: &UdpClient,
    host: &UdpSocket,
    hostile: &Entry,
    tier: &str,
    ends: &[End],
) {
    let name = hostile.name.as_str();
    // 5 us buy the fuel that the corpus is written for; where fuel ends nothing,
    // neither must the clock.
    let endless = ends.iter().any(|end| end.result == Err(Cause::Fuel));
    let budget = if endless { "5 us" } else { "10 ms" };
    let filter = format!("udp and dst port {HOSTILE}");
    let words = ["bind", name, "--iface", "b0", "--match", &filter];
    let output = run(node.command(words).args(["--budget", budget]));
    assert!(output.status.success(), "{name}: {}", text(&output));
    if tier == "user" {
        // Its own choice is the kernel tier; where it stays in this one it says so.
        let output = run(&mut node.command(["path", "demote", name]));
        let said = text(&output);
        assert!(
            output.status.success() || said.contains("user"),
            "{name}: {said}"
        );
    }
    let now = node.status().unwrap();
    assert_eq!(entry(&now, "paths", name)["tier"], tier, "{name}");

    let message: Vec<u8> = (0..64).collect();
    let mut before = settle(node, name, 0);
    for (end, number) in ends.iter().zip(1..) {
        client.send(&message).unwrap();
        let after = settle(node, name, number);
        let what = format!("{name}, {tier} tier, message {number}");
        let end =
            judge(*end, endless, &before, &after).unwrap_or_else(|why| panic!("{what}: {why}"));
        match end {
            "answered" => assert_eq!(client.receive().unwrap().len(), message.len(), "{what}"),
            "passed" => until("the host hears it", || {
                let heard = heard(host);
                assert!(
                    heard.iter().all(|(bytes, _)| *bytes == message),
                    "{what}: changed"
                );
                (!heard.is_empty()).then_some(())
            }),
            _ => {}
        }
        let aborts = changes(&before.aborts, &after.aborts);
        if let Some((cause, _)) = aborts.iter().find(|(cause, _)| cause != VOLUNTARY) {
            let status = node.status().unwrap();
            let fault = &entry(&status, "handlers", name)["last_fault"];
            assert_eq!(fault["cause"], cause.as_str(), "{what}");
        }
        before = after;
    }
    assert!(
        heard(host).is_empty(),
        "{name}: the host heard what was not for it"
    );
    let output = run(&mut node.command(["unbind", name]));
    assert!(output.status.success(), "{name}: {}", text(&output));
}

/// What became of one message, if that is what has to: exactly one fate more, and
/// one abort of this cause if it is stopped. Where a loop has no end, the clock
/// may be faster than the fuel.
fn judge<'l>(
    end: End,
    endless: bool,
    before: &Ledger,
    after: &'l Ledger,
) -> Result<&'l str, String> {
    let aborts = changes(&before.aborts, &after.aborts);
    let fates = changes(&before.fates, &after.fates);
    let [(fate, 1)] = fates.as_slice() else {
        return Err(format!("not one fate more: {fates:?}"));
    };
    let fate = fate.as_str();
    if endless && aborts == [("time".to_owned(), 1)] && ["passed", "aborted_dirty"].contains(&fate)
    {
        let (fate, _) = after.fates.get_key_value(fate).expect("it is one of them");
        return Ok(fate);
    }
    let expected = match end.result {
        Err(_) if end.changed => "aborted_dirty",
        Ok(Verdict::Pass | Verdict::Abort) if end.changed => "dropped_changed",
        Err(_) | Ok(Verdict::Pass | Verdict::Abort) => "passed",
        Ok(Verdict::Consume) => "consumed",
        Ok(Verdict::Reply) => "answered",
        Ok(Verdict::Deliver) => "dropped_no_endpoint",
        Ok(Verdict::Forward) => "dropped_no_next_hop",
        Ok(Verdict::Drop) => "dropped_handler",
    };
    let cause = match end.result {
        Err(cause) => Some(cause.name()),
        Ok(Verdict::Abort) => Some(VOLUNTARY),
        Ok(_) => None,
    };
    let causes: Vec<_> = cause
        .map(|cause| (cause.to_owned(), 1))
        .into_iter()
        .collect();
    if fate != expected || aborts != causes {
        return Err(format!("{end:?}, but {fate}, {aborts:?}"));
    }
    let (fate, _) = after.fates.get_key_value(fate).expect("it is one of them");
    Ok(fate)
}

/// What has grown, and by how much.
fn changes(before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>) -> Vec<(String, u64)> {
    let grown = |(name, count): (&String, &u64)| {
        let more = count - before.get(name).unwrap_or(&0);
        (more > 0).then(|| (name.clone(), more))
    };
    after.iter().filter_map(grown).collect()
}

/// The twin: a node that counts another cause, another fate, two, or none is
/// caught.
#[test]
fn a_doctored_ledger_is_not_believed() {
    use serde_json::json;
    let ledger = |fates: serde_json::Value, aborts: serde_json::Value| {
        let document = json!({ "paths": [{
            "name": "p", "received": 1, "waiting": 0, "balanced": true,
            "fates": fates, "aborts": aborts, "notes": {}, "out": {},
        }]});
        Ledger::of(&document, "p")
    };
    let nothing = ledger(json!({}), json!({}));
    let end = End {
        result: Err(Cause::MemoryBounds),
        place: ashway_hostile::StopPlace::Anywhere,
        changed: false,
    };
    let good = ledger(json!({"passed": 1}), json!({"memory_bounds": 1}));
    assert_eq!(judge(end, false, &nothing, &good), Ok("passed"));
    let late = ledger(json!({"passed": 1}), json!({"time": 1}));
    assert_eq!(judge(end, true, &nothing, &late), Ok("passed"));
    for bad in [
        late,
        ledger(json!({"passed": 1}), json!({})),
        ledger(json!({"passed": 1}), json!({"message_bounds": 1})),
        ledger(json!({"passed": 1}), json!({"memory_bounds": 2})),
        ledger(json!({"passed": 2}), json!({"memory_bounds": 1})),
        ledger(json!({"consumed": 1}), json!({"memory_bounds": 1})),
        ledger(json!({"aborted_dirty": 1}), json!({"memory_bounds": 1})),
        ledger(json!({}), json!({"memory_bounds": 1})),
    ] {
        assert!(judge(end, false, &nothing, &bad).is_err(), "{bad:?}");
    }
}
