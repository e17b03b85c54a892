//! An activation in the kernel tier has its instance to itself. The path of the user tier that
//! wants it meanwhile waits, and nobody else does.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use ashway_netns::traffic::{Over, TIERS, client_of_queue, hear, path, request, settle};
use ashway_rig::{Rig, RigOptions, skip_unless_root};
use rustix::thread::{CpuSet, sched_setaffinity};

/// Answers; a long message only after 3 ms.
const SLOW: &str = r#"(module (import "ashway" "now_ns" (func $now (result i64)))
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param i32) (result i32) (local $end i64)
        (if (i32.gt_u (local.get $len) (i32.const 100)) (then
            (local.set $end (i64.add (call $now) (i64.const 3000000)))
            (loop $on (br_if $on (i64.lt_u (call $now) (local.get $end))))))
        (i32.const 1)))"#;

/// Answers of the other handler while one message waits for the instance, at least in one of
/// the rounds. A worker that waits with it gives none.
const MEANWHILE: u32 = 10;

/// Activations that the instance is busy with, at most.
const ACTIVATIONS: u32 = 300;

/// Where the kernel tier is busy, and where all others are.
const CPUS: [usize; 2] = [0, 1];

/// Keeps this thread on one CPU, and those that it starts.
fn pin(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).unwrap();
}

#[test]
fn nobody_else_waits_while_the_kernel_tier_has_an_instance() {
    if skip_unless_root() {
        return;
    }
    let options = RigOptions {
        queues: 2,
        gro_on_client: false,
        ..RigOptions::default()
    };
    let rig = Rig::new("lock", options).unwrap();
    let file = std::env::temp_dir().join(format!("{}-slow.wasm", rig.name()));
    fs::write(&file, wat::parse_str(SLOW).unwrap()).unwrap();
    let [user, kernel] = TIERS;
    let config = user.config().handler("echo").unwrap();
    let config = config.text(&format!(
        "[handler.slow]\nfile = {file:?}\nallow = ['reply', 'time']"
    ));
    let config = path(config, "kernel", "slow", 7001, kernel, "budget = '10 ms'");
    let config = path(config, "waits", "slow", 7002, user, "");
    let config = path(config, "other", "echo", 7003, user, "");
    // A worker that the scheduler has put where the kernel tier runs waits for that anyway.
    pin(CPUS[1]);
    let node = rig.node(config).start().unwrap();
    let (long, _) = client_of_queue(&rig, 0, 7001);
    let (waits, probes) = client_of_queue(&rig, 1, 7002);
    let (other, _) = client_of_queue(&rig, 1, 7003);

    let over = AtomicBool::new(false);
    let activations = AtomicU32::new(0);
    let mut rounds = 0;
    let most = std::thread::scope(|scope| {
        let _over = Over(&over);
        scope.spawn(|| {
            pin(CPUS[0]);
            while !over.load(Ordering::Acquire) {
                long.ask(&[0; 200]).unwrap();
                activations.fetch_add(1, Ordering::Relaxed);
            }
        });
        let mut most = 0;
        while most < MEANWHILE && activations.load(Ordering::Relaxed) < ACTIVATIONS {
            waits.send(&request(7, rounds)).unwrap();
            let mut answered = 0;
            waits.socket().set_nonblocking(true).unwrap();
            while waits.socket().peek(&mut [0; 8]).is_err() {
                other.ask(&request(1, answered)).unwrap();
                answered += 1;
            }
            waits.socket().set_nonblocking(false).unwrap();
            assert_eq!(hear(waits.socket()), (7, rounds), "lost or doubled");
            // The last may have been under way by then.
            most = most.max(answered.saturating_sub(1));
            rounds += 1;
        }
        most
    });
    println!("{most} answers while one message waited, in round {rounds}");
    assert!(most >= MEANWHILE, "{most} answers while one message waited");
    let received = u64::from(rounds) + probes;
    let ledger = settle(&node, "waits", received);
    ledger.assert_fates(&[("answered", received)], &"waits");
    node.stop().unwrap();
    fs::remove_file(file).unwrap();
}
