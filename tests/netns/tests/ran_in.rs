//! Which share of its messages each tier ran: `ran_in` of a path and of a handler.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use ashway_abi::Verdict;
use ashway_api::answer::RanIn;
use ashway_netns::node::{Config, entry, ordinary, run, text, until};
use ashway_netns::traffic::{Ledger, TIERS, path, settle};
use ashway_rig::{Node, Rig, RigOptions, UdpClient, skip_unless_root};
use serde_json::Value;

/// Messages of a kind on a path.
const EACH: u64 = 20;

/// What a message asks for by its first byte.
const REPLY: u8 = 0;
const ABORT: u8 = 1;
const STOP: u8 = 2;

/// Does what a message asks for, and may make it longer by 16 bytes.
fn asked() -> String {
    format!(
        r#"(module
            (import "ashway" "msg_resize" (func $resize (param i32) (result i32)))
            (import "ashway" "msg_load8" (func $load (param i32) (result i32)))
            (memory (export "memory") 1 1)
            (@custom "ashway.grows" "\10\00\00\00")
            (func (export "on_rx") (param $len i32) (param i32) (result i32) (local $asks i32)
                (local.set $asks (call $load (i32.const 0)))
                (if (i32.eq (local.get $asks) (i32.const {STOP})) (then unreachable))
                (if (i32.eq (local.get $asks) (i32.const {ABORT}))
                    (then (return (i32.const {}))))
                (drop (call $resize (i32.add (local.get $len) (i32.const 16))))
                (i32.const {})))"#,
        Verdict::Abort as u32,
        Verdict::Reply as u32,
    )
}

/// Sets a timer for each message; nothing happens when it is due.
const TIMERS: &str = r#"(module
    (import "ashway" "timer_set" (func $set (param i32 i64) (result i32)))
    (memory (export "memory") 1 1)
    (global $next (mut i32) (i32.const 0))
    (func (export "on_rx") (param i32 i32) (result i32)
        (drop (call $set (global.get $next) (i64.const 1000000)))
        (global.set $next (i32.add (global.get $next) (i32.const 1)))
        i32.const 0)
    (func (export "on_timer") (param i32 i32) (result i32) i32.const 0))"#;

/// A node with `asked` on `kernel` and `user`, which say where they run, and on `limited`, which
/// goes by it after the first stop; and with timers.
fn node(rig: &Rig) -> Node {
    let handler = |config: Config, name: &str, source: &str| {
        let file = std::env::temp_dir().join(format!("{}-{name}.wasm", rig.name()));
        std::fs::write(&file, wat::parse_str(source).unwrap()).unwrap();
        config.handler_file(name, &file)
    };
    let [user, kernel] = TIERS;
    let mut config = handler(kernel.config(), "asked", &asked());
    let drop = "on_fault = 'drop'\nfaults = { limit = 1000, within = '1 s' }";
    let limited = "on_fault = 'drop'\nfaults = { limit = 1, within = '1 s', rest = '1000 s' }";
    config = path(config, "kernel", "asked", 7001, kernel, drop);
    config = path(config, "user", "asked", 7002, user, drop);
    config = path(config, "limited", "asked", 7003, user, limited);
    let file = std::env::temp_dir().join(format!("{}-timers.wasm", rig.name()));
    std::fs::write(&file, wat::parse_str(TIMERS).unwrap()).unwrap();
    let timers = format!(
        "[handler.timers]\nfile = '{}'\nallow = ['timer']",
        file.display()
    );
    config = path(config.text(&timers), "timers", "timers", 7004, user, "");
    rig.node(config).start().unwrap()
}

fn message(asks: u8, len: usize) -> Vec<u8> {
    let mut message = vec![7; len];
    message[0] = asks;
    message
}

/// A payload whose frame has room to grow under XDP on a veth, where it ends at a multiple of 64
/// bytes, and one whose frame mostly has not.
const ROOM: usize = 38;
const NO_ROOM: usize = 80;

/// Messages of each kind. Those with room come first, while nothing keeps them from the kernel
/// tier.
fn send_all(client: &UdpClient) -> u64 {
    for len in [ROOM, NO_ROOM] {
        for _ in 0..EACH {
            let reply = client.ask(&message(REPLY, len)).unwrap();
            assert_eq!(reply.len(), len + 16);
        }
    }
    for _ in 0..EACH {
        for asks in [ABORT, STOP] {
            client.send(&message(asks, ROOM)).unwrap();
        }
    }
    4 * EACH
}

fn ran_in(status: &Value, list: &str, name: &str) -> RanIn {
    serde_json::from_value(entry(status, list, name)["ran_in"].clone()).unwrap()
}

/// Messages that went to the user tier, whatever for.
fn queued(ledger: &Ledger) -> u64 {
    let queued = ledger.notes.iter();
    let queued = queued.filter(|(name, _)| name.starts_with("queued_"));
    queued.map(|(_, times)| times).sum()
}

/// The line of a table that begins with this word, behind the line that begins with that.
fn line<'a>(said: &'a str, table: &str, name: &str) -> &'a str {
    let mut lines = said
        .lines()
        .skip_while(|line| !line.trim_start().starts_with(table));
    let named = lines.find(|line| line.split_whitespace().next() == Some(name));
    named.unwrap_or_else(|| panic!("no `{name}` in\n{said}"))
}

#[test]
fn each_message_that_a_handler_ran_for_is_counted_in_one_tier() {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("ranin", RigOptions::default()).unwrap();
    let node = node(&rig);
    // What is handed back, the host's servers have.
    let _servers = [7001, 7002].map(|port| ordinary(&rig, port));
    let mut sum = RanIn::default();

    let sent = send_all(&rig.client_a(7001).unwrap());
    let ledger = settle(&node, "kernel", sent);
    let ran = ran_in(&node.status().unwrap(), "paths", "kernel");
    println!("{ran:?} {:?}", ledger.notes);
    assert_eq!(ran.all(), sent, "{ledger:?}");
    assert_eq!(ran.user, queued(&ledger), "{ledger:?}");
    assert!(ran.kernel >= EACH && ran.user > 0, "{ledger:?}");
    sum += ran;

    let sent = send_all(&rig.client_a(7002).unwrap());
    let _ = settle(&node, "user", sent);
    let ran = ran_in(&node.status().unwrap(), "paths", "user");
    assert_eq!(
        ran,
        RanIn {
            kernel: 0,
            user: sent
        }
    );
    sum += ran;

    // The handler is not run for what goes by it.
    let client = rig.client_a(7003).unwrap();
    client.ask(&message(REPLY, ROOM)).unwrap();
    for _ in 0..EACH {
        client.send(&message(STOP, ROOM)).unwrap();
    }
    let ledger = settle(&node, "limited", 1 + EACH);
    let ran = ran_in(&node.status().unwrap(), "paths", "limited");
    let bypassed = ledger.notes["bypassed"];
    assert!(bypassed > 0, "{ledger:?}");
    let user = 1 + EACH - bypassed;
    assert_eq!(ran, RanIn { kernel: 0, user }, "{ledger:?}");
    sum += ran;

    let status = node.status().unwrap();
    assert_eq!(ran_in(&status, "handlers", "asked"), sum, "{status:#}");
    let said = text(&run(&mut node.command(["status"])));
    for (table, name, share) in [
        ("HANDLER", "asked", sum.share_of_kernel()),
        (
            "PATH",
            "kernel",
            ran_in(&status, "paths", "kernel").share_of_kernel(),
        ),
        ("PATH", "user", Some("0 %".to_owned())),
    ] {
        let line = line(&said, table, name);
        assert!(line.contains(&format!(" {} ", share.unwrap())), "{line}");
    }
    let said = text(&run(&mut node.command(["path", "show", "user"])));
    assert!(
        said.contains("ran       0 % in the kernel tier: 0, in the user tier 80"),
        "{said}"
    );

    // Nor is a timer a message.
    let client = rig.client_a(7004).unwrap();
    for _ in 0..EACH {
        client.send(&message(REPLY, ROOM)).unwrap();
    }
    until("all timers have run", || {
        let status = node.status().unwrap();
        let timers = &entry(&status, "paths", "timers")["notes"]["ran_for_timer"];
        (*timers == EACH).then_some(())
    });
    let status = node.status().unwrap();
    let ran = ran_in(&status, "paths", "timers");
    assert_eq!(
        ran,
        RanIn {
            kernel: 0,
            user: EACH
        },
        "{status:#}"
    );
    assert_eq!(
        entry(&status, "paths", "timers")["activations"]["examined"],
        2 * EACH
    );
    node.stop().unwrap();
}
