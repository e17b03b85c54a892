//! A module between the interface and a handler means the same wherever the handler's
//! messages come from, and keeps the handler out of the kernel tier, which would leave
//! it out.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use ashway_netns::node::{Config, at_rest, entry, run, text, until};
use ashway_rig::{B4, Rig, RigOptions, Signal, skip_unless_root};
use serde_json::json;

/// Where the tap stands.
const PLACES: [(&str, &str); 2] = [
    (
        "below",
        "[module.wire]\nkind = 'eth'\niface = 'b0'\n\
         [module.look]\nkind = 'tap'\ndown = 'wire.up'\nfile = 'look.pcapng'\n\
         [module.ip]\nkind = 'ip'\ndown = 'look.up'\n\
         [module.udp]\nkind = 'udp'\ndown = 'ip.up'\n\
         [module.app]\nkind = 'handler'\nhandler = 'counter'\ndown = 'udp.up'\n",
    ),
    (
        "above",
        "[module.look]\nkind = 'tap'\nlayer = 'payload'\ndown = 'udp.up'\nfile = 'look.pcapng'\n\
         [module.app]\nkind = 'handler'\nhandler = 'counter'\ndown = 'look.up'\n",
    ),
];

/// What the tap's file holds, without times, and with the bytes where these are payload:
/// headers have numbers that differ from run to run. And the first message's time.
fn seen(file: &Path, place: &str) -> (String, Duration) {
    let read = |options: &str| {
        let read = run(Command::new("tcpdump").args([options, "-r"]).arg(file));
        assert!(read.status.success(), "{}", text(&read));
        String::from_utf8(read.stdout).unwrap()
    };
    let first = read("-ntt");
    let first = first.split(' ').next().unwrap().parse().unwrap();
    let options = if place == "above" { "-ntx" } else { "-nt" };
    (read(options), Duration::from_secs_f64(first))
}

#[test]
fn a_tap_on_the_way_to_a_handler_sees_the_same_by_xdp_and_by_sockets() {
    if skip_unless_root() {
        return;
    }
    for (place, modules) in PLACES {
        let files = ["native", "packet"].map(|mode| {
            let rig = Rig::new(&format!("layers-{place}-{mode}"), RigOptions::default()).unwrap();
            let config = Config::on_b0(mode).handler("counter").unwrap();
            let config = config.path("counter", 7777, "auto").text(modules);
            let mut node = rig.node(config).start().unwrap();
            // The first message comes well after the node's start.
            let begun = SystemTime::now();
            until("some time is over", || {
                (begun.elapsed().unwrap() > Duration::from_millis(1500)).then_some(())
            });
            // One socket for all, so that both runs have the same ports in their files.
            let client = rig.client_a(7777).unwrap();
            for sum in 1..=20 {
                assert_eq!(client.ask_number(1).unwrap(), sum, "{place}, {mode}");
            }
            let status = at_rest(&node);
            let path = entry(&status, "paths", "counter");
            assert_eq!(path["fates"]["answered"], 20, "{place}, {mode}: {path:#}");
            assert_eq!(path["tier"], "user", "{place}, {mode}: {path:#}");
            // What the kernel tier would leave out keeps the handler out of it.
            let refused = run(&mut node.command(["path", "promote", "counter"]));
            let said = text(&refused);
            assert!(!refused.status.success(), "{place}, {mode}: {said}");
            let because = match mode {
                "native" => "the stage `look` stands between `b0` and the handler",
                _ => "on an interface without a kernel tier",
            };
            assert!(said.contains(because), "{place}, {mode}: {said}");
            let file = node.config().with_file_name("look.pcapng");
            node.signal(Signal::TERM).unwrap();
            assert!(node.wait().unwrap().success());
            let (seen, first) = seen(&file, place);
            let early = begun.duration_since(SystemTime::UNIX_EPOCH).unwrap();
            assert!(first > early + Duration::from_secs(1), "{place}, {mode}");
            // An ephemeral port is another each time.
            let port = client.socket().local_addr().unwrap().port();
            seen.replace(&port.to_string(), "port")
        });
        let packets = files[0]
            .lines()
            .filter(|line| !line.starts_with('\t'))
            .count();
        assert_eq!(packets, 40, "{place}: {}", files[0]);
        assert_eq!(files[0], files[1], "{place}");
    }
}

/// Stages below a handler are woken like any other: what one of them delays comes late, in
/// order, and is answered.
#[test]
fn a_module_that_delays_stands_below_a_handler() {
    if skip_unless_root() {
        return;
    }
    for mode in ["native", "tcx", "packet"] {
        let rig = Rig::new(&format!("layers-delay-{mode}"), RigOptions::default()).unwrap();
        let bad = |more: &str| {
            let config = Config::on_b0(mode).handler("counter").unwrap();
            config.path("counter", 7777, "auto").text(&format!(
                "[module.bad]\nkind = 'fault'\ndown = 'udp.up'\n{more}\
                 [module.app]\nkind = 'handler'\nhandler = 'counter'\ndown = 'bad.up'\n"
            ))
        };
        let node = rig.node(bad("delay_us = 20000\n")).start().unwrap();
        let client = rig.client_a(7777).unwrap();
        let begun = std::time::Instant::now();
        for sum in 1..=5 {
            assert_eq!(client.ask_number(1).unwrap(), sum, "{mode}");
        }
        assert!(begun.elapsed() >= Duration::from_millis(100), "{mode}");
        let status = at_rest(&node);
        let path = entry(&status, "paths", "counter");
        assert_eq!(path["fates"]["absorbed"], 5, "{mode}: {path:#}");
        let shown = run(&mut node.command(["path", "show", "counter", "-j"]));
        let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
        assert_eq!(shown["queues"]["in_backward"]["maximum"], 256, "{mode}");
        // Answers wait at the link to be transmitted; behind the handler nobody transmits.
        let outputs = ["out_forward", "out_backward"].map(|queue| shown["queues"][queue].clone());
        let expected = [256, 0].map(|maximum| json!({ "length": 0, "maximum": maximum }));
        assert_eq!(outputs, expected, "{mode}");
        let said = text(&run(&mut node.command(["path", "show", "counter"])));
        assert!(
            said.contains("queue     out forward: 0 of 256\n")
                && said.contains("queue     out backward: none, what leaves there goes on"),
            "{mode}: {said}"
        );
        assert!(shown["time_ns"].as_u64() > Some(0), "{mode}: {shown:#}");
        drop(node);
        // One that only loses.
        let node = rig.node(bad("loss_ppm = 1000000\n")).start().unwrap();
        client.send(&[1, 0, 0, 0]).unwrap();
        until("the message is lost", || {
            let status = node.status().unwrap();
            let path = entry(&status, "paths", "counter");
            (path["fates"]["dropped"]["fault"] == 1).then_some(())
        });
    }
}

/// What a path without a handler loses is found where losses are asked for.
#[test]
fn why_and_status_count_what_a_path_without_a_handler_loses() {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("layers-why", RigOptions::default()).unwrap();
    let config = Config::on_b0("packet").text(&format!(
        "[module.bad]\nkind = 'fault'\ndown = 'udp.up'\nloss_ppm = 1000000\n\
         [module.end]\nkind = 'sink'\ndown = 'bad.up'\n\
         [path.lossy]\nfrom = 'end'\nattrs = {{ local = '{B4}:7000', pathname = 'eth:b0' }}\n"
    ));
    let node = rig.node(config).start().unwrap();
    let client = rig.client_a(7000).unwrap();
    for _ in 0..3 {
        client.send(b"hello").unwrap();
    }
    until("all are lost", || {
        let status = node.status().unwrap();
        let path = entry(&status, "paths", "lossy");
        (path["fates"]["dropped"]["fault"] == 3).then_some(())
    });
    let say = |words: &[&str]| text(&run(&mut node.command(words.to_vec())));
    for (asked, wanted) in [
        (&["why", "lossy"][..], &["dropped_fault", "3"][..]),
        (
            &["why", "dropped_fault"],
            &["path `lossy`: 3", "`fault` lost it"],
        ),
        (&["status"], &["lossy", "dropped", "fault", "3"]),
        (&["path", "show", "lossy"], &["dropped_fault            3"]),
    ] {
        let said = say(asked);
        for word in wanted {
            assert!(said.contains(word), "{asked:?}: no `{word}` in:\n{said}");
        }
    }
}

/// Answers ICMP echo requests whose type stands at `icmp`; at layer `eth` the addresses
/// of IP are its own to swap.
fn answers_pings(icmp: u32) -> String {
    let swap = if icmp == 0 {
        ""
    } else {
        "(local.set $from (call $load32 (i32.const 12)))
         (call $store32 (i32.const 12) (call $load32 (i32.const 16)))
         (call $store32 (i32.const 16) (local.get $from))"
    };
    format!(
        r#"(module
        (import "ashway" "msg_load32be" (func $load32 (param i32) (result i32)))
        (import "ashway" "msg_store32be" (func $store32 (param i32 i32)))
        (import "ashway" "msg_load16be" (func $load16 (param i32) (result i32)))
        (import "ashway" "msg_store16be" (func $store16 (param i32 i32)))
        (memory (export "memory") 1 1)
        (func (export "on_rx") (param i32 i32) (result i32) (local $from i32) (local $sum i32)
            ;; A request's type is 8, an answer's 0, and the sum follows (RFC 1624).
            (call $store16 (i32.const {icmp}) (i32.const 0))
            (local.set $sum (i32.add (call $load16 (i32.const {sum})) (i32.const 0x0800)))
            (call $store16 (i32.const {sum})
                (i32.add (local.get $sum) (i32.shr_u (local.get $sum) (i32.const 16))))
            {swap}
            (i32.const {reply})))"#,
        sum = icmp + 2,
        reply = ashway_abi::Verdict::Reply as u32,
    )
}

/// A handler may stand on IP or on the link, and gets messages of any protocol there,
/// on every rung.
#[test]
fn a_handler_at_another_layer_answers_pings() {
    if skip_unless_root() {
        return;
    }
    for mode in ["native", "tcx", "packet"] {
        for (layer, icmp) in [("eth", 20), ("ip", 0)] {
            let rig = Rig::new(&format!("layers-{layer}-{mode}"), RigOptions::default()).unwrap();
            // Nobody's address, so that no host answers for it.
            let nobody = "10.99.0.1";
            let route = ["route", "add", nobody, "via", "10.7.0.2"];
            assert!(run(rig.command_a("ip").args(route)).status.success());
            let file = std::env::temp_dir().join(format!("{}-{layer}.wasm", rig.name()));
            std::fs::write(&file, wat::parse_str(answers_pings(icmp)).unwrap()).unwrap();
            let config = Config::on_b0(mode)
                .handler_file("ping", &file)
                .text(&format!(
                    "[path.pings]\niface = 'b0'\nlayer = '{layer}'\nhandler = 'ping'\n\
                 match = 'icmp and dst host {nobody} and icmp[0] = 8'\n"
                ));
            let node = rig.node(config).start().unwrap();
            let ping = ["-i", "0.2", "-c", "5", "-W", "5", nobody];
            let ping = text(&run(rig.command_a("ping").args(ping)));
            std::fs::remove_file(&file).unwrap();
            let status = at_rest(&node);
            let path = entry(&status, "paths", "pings");
            assert!(
                ping.contains("5 received") && !ping.contains("wrong"),
                "{layer}, {mode}: {ping}\n{path:#}"
            );
            assert_eq!(path["fates"]["answered"], 5, "{layer}, {mode}: {path:#}");
            assert_eq!(path["balanced"], true, "{layer}, {mode}: {path:#}");
            // It runs, though nothing is bound to it.
            assert_eq!(
                entry(&status, "handlers", "ping")["tier"],
                "user",
                "{layer}"
            );
            let because = path["promotion"]["because"].as_str().unwrap();
            assert!(because.contains("bound"), "{layer}, {mode}: {path:#}");
            node.stop().unwrap();
        }
    }
}

/// A path that takes whatever IP carries leaves fragments to the host, which puts them
/// together; a whole ping to the same address is the path's.
#[test]
fn a_handler_on_ip_leaves_fragments_to_the_host() {
    if skip_unless_root() {
        return;
    }
    for mode in ["native", "tcx", "packet"] {
        let rig = Rig::new(&format!("layers-parts-{mode}"), RigOptions::default()).unwrap();
        let config = Config::on_b0(mode).handler("echo").unwrap().text(&format!(
            "[path.all]\niface = 'b0'\nlayer = 'ip'\nhandler = 'echo'\nmatch = 'icmp and dst host {B4}'\n"
        ));
        let node = rig.node(config).start().unwrap();
        let ping = |bytes: &str| {
            let to = B4.to_string();
            let words = ["-s", bytes, "-c", "2", "-i", "0.2", "-W", "5", &to];
            text(&run(rig.command_a("ping").args(words)))
        };
        let parts = ping("4000");
        let status = node.status().unwrap();
        let path = entry(&status, "paths", "all");
        assert!(parts.contains("2 received"), "{mode}: {parts}\n{path:#}");
        assert_eq!(
            path["fates"]["passed"], path["received"],
            "{mode}: {path:#}"
        );
        let _ = ping("40");
        until("whole packets are the handler's", || {
            let status = node.status().unwrap();
            let path = entry(&status, "paths", "all");
            (path["fates"]["answered"].as_u64() > Some(0)).then_some(())
        });
        node.stop().unwrap();
    }
}
