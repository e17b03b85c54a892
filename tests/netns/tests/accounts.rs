//! Accounts: the CPU time of the worker is that of its paths.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ashway_netns::node::{Config, control, until, worker_task};
use ashway_netns::traffic::Over;
use ashway_rig::{Node, Rig, RigOptions, UdpClient, skip_unless_root};
use serde_json::json;

/// Takes so many us by the clock, and consumes.
fn burns(us: u32) -> Vec<u8> {
    wat::parse_str(format!(
        r#"(module (import "ashway" "now_ns" (func $now (result i64)))
            (memory (export "memory") 1 1)
            (func (export "on_rx") (param i32 i32) (result i32) (local $end i64)
                (local.set $end (i64.add (call $now) (i64.const {us}000)))
                (loop $on (br_if $on (i64.lt_u (call $now) (local.get $end))))
                (i32.const 0)))"#
    ))
    .unwrap()
}

/// CPU time that the worker has had, in ns (`/proc/PID/task/TID/schedstat`, first field).
fn worker_ns(node: &Node) -> u64 {
    let stat = fs::read_to_string(worker_task(node).join("schedstat")).unwrap();
    stat.split(' ').next().unwrap().parse().unwrap()
}

/// A path's messages that have run, and its time, in ns.
fn account(node: &Node, path: &str) -> [u64; 2] {
    let shown = control(node, &json!({ "request": "show", "path": path })).unwrap();
    ["runs", "time_ns"].map(|key| shown[key].as_u64().unwrap())
}

/// Sends to all paths in turn for 1.5 s, with this pause behind each round; the runs and the time
/// of each path. The CPU time that the worker had is its paths', within 2 %: both are read while
/// it has nothing to do, because it may be busy for long before it says what its paths have.
fn measured<const N: usize>(
    node: &Node,
    clients: &[UdpClient; N],
    paths: [&str; N],
    pause: Duration,
    said: &str,
) -> [[u64; 2]; N] {
    let over = AtomicBool::new(false);
    let look = || (worker_ns(node), paths.map(|path| account(node, path)));
    let (cpu, before) = look();
    let (cpu, paths) = std::thread::scope(|scope| {
        let ends = Over(&over);
        scope.spawn(|| {
            while !over.load(Ordering::Acquire) {
                for client in clients {
                    // What has no room is dropped, and that is the point.
                    let _ = client.send(b"burn");
                }
                std::thread::sleep(pause);
            }
        });
        std::thread::sleep(Duration::from_millis(1500));
        drop(ends);
        until("all have run", || {
            std::thread::sleep(Duration::from_millis(100));
            let waiting = |path: &str| {
                let shown = control(node, &json!({ "request": "show", "path": path })).unwrap();
                shown["waiting"].as_u64().unwrap()
            };
            (paths.map(waiting) == [0; N]).then_some(())
        });
        let (cpu_then, then) = look();
        let since = |at: usize| [0, 1].map(|what: usize| then[at][what] - before[at][what]);
        (cpu_then - cpu, std::array::from_fn(since))
    });
    let all: u64 = paths.iter().map(|[_, ns]: &[u64; 2]| ns).sum();
    let off = cpu.abs_diff(all);
    let percent = off as f64 * 100.0 / cpu as f64;
    println!("{said}: worker {cpu} ns, paths {paths:?}: off by {percent:.2} %");
    assert!(off * 50 <= cpu, "{said}: worker {cpu} ns, paths {paths:?}");
    paths
}

/// Messages that cost less than to take them out of a ring and to wake for them: to a handler,
/// and to a path of modules; at a rate at which the worker sleeps between them, and one at
/// which it does not.
#[test]
fn what_the_worker_uses_for_cheap_messages_is_their_paths() {
    if skip_unless_root() {
        return;
    }
    for mode in ["native", "packet"] {
        let rig = Rig::new(&format!("accounts-cheap-{mode}"), RigOptions::default()).unwrap();
        let config = Config::on_b0(mode).handler("counter").unwrap();
        let config = config.path("counter", 7001, "user").text(
            "[module.end]\nkind = 'sink'\ndown = 'udp.up'\n\
             [path.sink]\nfrom = 'end'\n\
             attrs = { local = '10.7.0.2:7002', pathname = 'eth:b0' }",
        );
        let node = rig.node(config).start().unwrap();
        let clients = [7001, 7002].map(|port| rig.client_a(port).unwrap());
        for pause in [Duration::from_micros(200), Duration::ZERO] {
            let said = format!("{mode}, {pause:?} apart");
            let paths = measured(&node, &clients, ["counter", "sink"], pause, &said);
            for [runs, ns] in paths {
                assert!(runs > 1000 && ns > 500 * runs, "{said}: {paths:?}");
            }
        }
        node.stop().unwrap();
    }
}

/// Two flows whose messages come in turn and cost 100 us and 1 ms, more than the worker can
/// do: each is charged with what it has used, and both with all that the worker has.
#[test]
fn what_the_worker_uses_is_its_paths() {
    if skip_unless_root() {
        return;
    }
    for mode in ["native", "packet"] {
        let rig = Rig::new(&format!("accounts-{mode}"), RigOptions::default()).unwrap();
        let mut config = Config::on_b0(mode);
        for (name, us, port) in [("cheap", 100, 7001), ("dear", 1000, 7002)] {
            let file = std::env::temp_dir().join(format!("{}-{name}.wasm", rig.name()));
            fs::write(&file, burns(us)).unwrap();
            config = config.text(&format!(
                "[handler.{name}]\nfile = {file:?}\nallow = ['time']\n[path.{name}]\niface = 'b0'\nmatch = 'udp and dst port {port}'\n\
                 handler = '{name}'\ntier = 'user'\nbudget = '4 ms'"
            ));
        }
        let node = rig.node(config).start().unwrap();
        let clients = [7001, 7002].map(|port| rig.client_a(port).unwrap());
        let pause = Duration::from_micros(700);
        let paths = measured(&node, &clients, ["cheap", "dear"], pause, mode);
        // By message the one costs ten times what the other does.
        let [cheap, dear] = paths.map(|[runs, ns]| ns as f64 / runs as f64);
        assert!((7.0..13.0).contains(&(dear / cheap)), "{mode}: {paths:?}");
        node.stop().unwrap();
    }
}

/// How long a message of the kernel tier takes.
const BURN_NS: u64 = 20_000;

/// In the kernel tier some of a path's messages are timed, and the account has what all took:
/// of three, of some hundreds, and of many.
#[test]
fn what_the_kernel_tier_takes_is_on_the_paths_account() {
    if skip_unless_root() {
        return;
    }
    for mode in ["native", "generic"] {
        let rig = Rig::new(&format!("accounts-kernel-{mode}"), RigOptions::default()).unwrap();
        let file = std::env::temp_dir().join(format!("{}.wasm", rig.name()));
        fs::write(&file, burns((BURN_NS / 1000) as u32)).unwrap();
        let config = Config::on_b0(mode).text(&format!(
            "[handler.burn]\nfile = {file:?}\nallow = ['time']\n[path.burn]\niface = 'b0'\n\
             match = 'udp and dst port 7001'\nhandler = 'burn'\ntier = 'kernel'\nbudget = '4 ms'"
        ));
        let node = rig.node(config).start().unwrap();
        let client = rig.client_a(7001).unwrap();
        let mut sent = 0;
        for messages in [3, 400, 8_000] {
            while sent < messages {
                client.send(b"burn").unwrap();
                sent += 1;
            }
            let shown = control(&node, &json!({ "request": "show", "path": "burn" })).unwrap();
            assert_eq!(shown["fates"]["consumed"], sent, "{shown:#}");
            let [took, in_user] =
                ["kernel_time_ns", "time_ns"].map(|key| shown[key].as_u64().unwrap());
            println!("{mode}, {sent} messages of {BURN_NS} ns: {took} ns");
            assert_eq!(in_user, 0, "{shown:#}");
            // No message takes less. One whose CPU was taken away may take its budget, and
            // stands for a sixteenth of all.
            let least = sent * BURN_NS;
            let most = least * 2 + (sent / 16 + 1) * 4_020_000;
            assert!(
                (least..most).contains(&took),
                "{mode}: {took} ns of {least}"
            );
        }
        node.stop().unwrap();
        fs::remove_file(&file).unwrap();
    }
}
