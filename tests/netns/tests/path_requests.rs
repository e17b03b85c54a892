//! What is asked of paths means the same by whichever command it is asked.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use ashway_netns::node::{Config, at_rest, control, entry, freeze, run, text, until};
use ashway_netns::traffic::request;
use ashway_rig::{Node, Rig, RigOptions, skip_unless_root};
use rustix::process::Signal;
use serde_json::{Value, json};

fn show(node: &Node, path: &str) -> Value {
    control(node, &json!({ "request": "show", "path": path })).unwrap()
}

/// A path that takes what its domain does not own is refused alike, made by its handler's name
/// or from its handler's module; so is one that leads through what is not there.
#[test]
fn the_same_cause_has_the_same_exit_code() {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("path-codes", RigOptions::default()).unwrap();
    let config = Config::on_b0("native").handler("counter").unwrap();
    let config = config.text("domain = 'games'\n[domain.games]\nowns = ['udp and dst port 7000']");
    let node = rig.node(config).start().unwrap();
    let bind = ["bind", "counter", "--iface", "b0", "--match"];
    let create = ["path", "create", "--module", "handler:counter", "--attr"];
    let create = [&create[..], &["pathname=udp/eth:b0", "--attr"]].concat();
    let nowhere = [
        "path",
        "create",
        "--attr",
        "local=10.7.0.2:7000",
        "--module",
    ];
    for (words, last, says) in [
        (
            &bind[..],
            "udp and dst port 7001",
            "domain `games` does not own",
        ),
        (
            &create,
            "local=10.7.0.2:7001",
            "domain `games` does not own",
        ),
        (
            &["bind", "--iface", "b0", "--match", "udp"],
            "nobody",
            "there is no handler `nobody`",
        ),
        (
            &nowhere,
            "handler:nobody",
            "module `handler:nobody`: there is no module of this name",
        ),
    ] {
        let refused = run(&mut node.command([words, &[last]].concat()));
        assert!(text(&refused).contains(says), "{}", text(&refused));
        assert_eq!(refused.status.code(), Some(2), "{}", text(&refused));
    }
    node.stop().unwrap();
}

#[test]
fn a_path_that_is_named_twice_goes_once() {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("path-twice", RigOptions::default()).unwrap();
    let config = Config::on_b0("native").text("[module.end]\nkind = 'sink'\ndown = 'udp.up'");
    let node = rig.node(config).start().unwrap();
    let create = || {
        let path = |name, local| {
            let attrs = json!({ "local": local, "pathname": "eth:b0" });
            json!({ "module": "end", "name": name, "attrs": attrs })
        };
        let paths = [path("one", "10.7.0.2:7001"), path("two", "10.7.0.2:7002")];
        control(&node, &json!({ "request": "create", "paths": paths })).unwrap();
    };
    create();
    let removed = run(&mut node.command(["path", "rm", "one", "two", "one"]));
    assert_eq!(text(&removed), "2 removed\n");
    create();
    let remove = json!({ "request": "remove", "paths": ["two", "one", "two"] });
    assert_eq!(
        control(&node, &remove).unwrap()["removed"],
        json!(["two", "one"])
    );
    node.stop().unwrap();
}

/// Answers after a millisecond by the clock.
const SLOW: &str = r#"(module (import "ashway" "now_ns" (func $now (result i64)))
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param i32 i32) (result i32) (local $end i64)
        (local.set $end (i64.add (call $now) (i64.const 1_000_000)))
        (loop $on (br_if $on (i64.lt_u (call $now) (local.get $end))))
        (i32.const 1)))"#;

/// A path from a handler with a shorter queue is bound to it as any other, in either tier, and
/// its queue is as short as it says.
#[test]
fn a_short_queue_is_a_handlers_too() {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("path-short", RigOptions::default()).unwrap();
    let file = std::env::temp_dir().join(format!("{}.wasm", rig.name()));
    std::fs::write(&file, wat::parse_str(SLOW).unwrap()).unwrap();
    let config = Config::on_b0("native").text(&format!(
        "[handler.slow]\nfile = {file:?}\nallow = ['reply', 'time']\n\
         [path.short]\nfrom = 'handler:slow'\ntier = 'kernel'\n\
         [path.short.attrs]\nlocal = '10.7.0.2:7777'\npathname = 'udp/eth:b0'\nqueue = 64\n\
         budget_ns = 5000000"
    ));
    let node = rig.node(config).start().unwrap();
    let shown = show(&node, "short");
    assert_eq!(
        (&shown["tier"], &shown["handler"]),
        (&json!("kernel"), &json!("slow"))
    );
    let client = rig.client_a(7777).unwrap();
    client.send(b"hello").unwrap();
    client.receive().unwrap();

    control(&node, &json!({ "request": "demote", "path": "short" })).unwrap();
    assert_eq!(show(&node, "short")["queues"]["in_backward"]["maximum"], 64);
    freeze(&node);
    for sequence in 0..200 {
        client.send(&request(0, sequence)).unwrap();
    }
    node.signal(Signal::CONT).unwrap();
    let shown = until("all have ended", || {
        let shown = show(&node, "short");
        (shown["received"] == 201 && shown["waiting"] == 0).then_some(shown)
    });
    // What is in the ring is taken in some looks, and a message runs between two.
    let dropped = shown["fates"]["dropped"]["queue_full"].as_u64();
    let dropped = dropped.unwrap_or(0);
    assert!((200 - 64 - 32..=200 - 64).contains(&dropped), "{shown:#}");
    assert_eq!(shown["fates"]["answered"], 201 - dropped, "{shown:#}");
    node.stop().unwrap();
    std::fs::remove_file(file).unwrap();
}

/// A path through a handler that the kernel tier cannot have says which attribute is the
/// reason, and stands with its handler; one that no file has has its stages.
#[test]
fn what_keeps_a_handlers_path_in_the_user_tier_is_named() {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("path-why", RigOptions::default()).unwrap();
    let config = Config::on_b0("native").handler("counter").unwrap();
    let node = rig.node(config).start().unwrap();
    let mut create = json!({
        "request": "create", "module": "handler:counter", "name": "hops",
        "attrs": { "local": "10.7.0.2:7777", "pathname": "udp/eth:b0", "ttl": 9, "order": "path" },
    });
    let refused = control(&node, &create).unwrap_err().to_string();
    assert!(refused.contains("attribute `order`"), "{refused}");
    create["attrs"].as_object_mut().unwrap().remove("order");
    let created = control(&node, &create).unwrap();
    let promotion = &created["created"][0]["promotion"];
    let because = promotion["because"].as_str().unwrap();
    assert!(because.contains("the attribute `ttl`"), "{created:#}");
    assert_eq!(rig.client_a(7777).unwrap().ask_number(1).unwrap(), 1);
    let status = at_rest(&node);
    let path = entry(&status, "paths", "hops");
    assert_eq!(path["leads_through"], json!(["counter"]), "{path:#}");
    let printed = text(&run(&mut node.command(["status"])));
    let line = printed
        .lines()
        .find(|line| line.contains("hops") && line.contains("b0"));
    assert!(
        line.is_some_and(|line| line.contains("counter")),
        "{printed}"
    );
    assert!(printed.contains("path `hops` stays in the user tier: the attribute `ttl`"));
    let why = control(&node, &json!({ "request": "why", "about": "hops" })).unwrap();
    let stages = why["stages"].as_array().unwrap();
    assert_eq!(stages.last(), Some(&json!("handler:counter")), "{why:#}");
    node.stop().unwrap();
}

/// A file that a node starts with is one that it can be brought to.
#[test]
fn a_tier_that_cannot_be_is_said_by_start_and_apply_alike() {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("path-tiers", RigOptions::default()).unwrap();
    let text_of = |tier: &str| {
        let config = Config::on_b0("native").handler("counter").unwrap();
        String::from(config)
            + &format!(
                "[module.end]\nkind = 'sink'\ndown = 'udp.up'\n\
             [module.look]\nkind = 'tap'\nlayer = 'payload'\ndown = 'udp.up'\nfile = 'x.pcapng'\n\
             [module.app]\nkind = 'handler'\nhandler = 'counter'\ndown = 'look.up'\n\
             [path.bound]\niface = 'b0'\nmatch = 'udp and dst port 7777'\nhandler = 'counter'\n\
             tier = '{tier}'\n\
             [path.frames]\nfrom = 'end'\ntier = '{tier}'\n\
             attrs = {{ local = '10.7.0.2:6000', pathname = 'eth:b0' }}\n"
            )
    };
    let started = rig.node(text_of("kernel")).start().unwrap();
    let tiers = |node: &Node| ["bound", "frames"].map(|path| show(node, path)["tier"].clone());
    assert_eq!(tiers(&started), ["user", "user"]);
    started.stop().unwrap();

    let node = rig.node(text_of("auto")).start().unwrap();
    std::fs::write(node.config(), text_of("kernel")).unwrap();
    let applied = control(&node, &json!({ "request": "apply", "file": node.config() })).unwrap();
    assert_eq!(tiers(&node), ["user", "user"]);
    for step in applied["steps"].as_array().unwrap() {
        let text = step["text"].as_str().unwrap();
        assert!(text.contains("it stays in the user tier: "), "{applied:#}");
    }
    assert_eq!(applied["steps"].as_array().unwrap().len(), 2, "{applied:#}");
    node.stop().unwrap();
}
