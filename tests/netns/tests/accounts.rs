//! Accounts: the CPU time of the worker is that of its paths.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ashway_netns::node::{Config, control};
use ashway_rig::{Node, Rig, RigOptions, skip_unless_root};
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
    let tasks = format!("/proc/{}/task", node.id());
    let mut tasks = fs::read_dir(tasks)
        .unwrap()
        .map(|task| task.unwrap().path());
    let name = |task: &std::path::Path| fs::read_to_string(task.join("comm")).unwrap();
    let worker = tasks
        .find(|task| name(task).trim() == "ashway-worker")
        .unwrap();
    let stat = fs::read_to_string(worker.join("schedstat")).unwrap();
    stat.split(' ').next().unwrap().parse().unwrap()
}

/// A path's messages that have run, and its time, in ns.
fn account(node: &Node, path: &str) -> [u64; 2] {
    let shown = control(node, &json!({ "request": "show", "path": path })).unwrap();
    ["runs", "time_ns"].map(|key| shown[key].as_u64().unwrap())
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
        let over = AtomicBool::new(false);
        let [cpu, cheap, dear] = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Acquire) {
                    for client in &clients {
                        // What has no room is dropped, and that is the point.
                        let _ = client.send(b"burn");
                    }
                    std::thread::sleep(Duration::from_micros(700));
                }
            });
            std::thread::sleep(Duration::from_millis(300));
            let look = || {
                let paths = ["cheap", "dear"].map(|path| account(&node, path));
                (worker_ns(&node), paths)
            };
            let (cpu, [cheap, dear]) = look();
            std::thread::sleep(Duration::from_millis(1500));
            let (cpu_then, [cheap_then, dear_then]) = look();
            over.store(true, Ordering::Release);
            let since =
                |then: [u64; 2], before: [u64; 2]| [then[0] - before[0], then[1] - before[1]];
            [
                [0, cpu_then - cpu],
                since(cheap_then, cheap),
                since(dear_then, dear),
            ]
        });
        let said = format!("{mode}: worker {cpu:?}, cheap {cheap:?}, dear {dear:?}");
        let off = cpu[1].abs_diff(cheap[1] + dear[1]);
        println!("{said}: off by {:.2} %", off as f64 * 100.0 / cpu[1] as f64);
        assert!(off * 50 <= cpu[1], "{said}");
        // By message the one costs ten times what the other does.
        let [cheap, dear] = [cheap, dear].map(|[runs, ns]| ns as f64 / runs as f64);
        assert!((7.0..13.0).contains(&(dear / cheap)), "{said}");
        node.stop().unwrap();
    }
}
