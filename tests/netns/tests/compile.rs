//! A large file is compiled beside everything else: while that goes on, the node
//! answers requests and messages, and what it was for may go away.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use std::fmt::Write as _;

use ashway_netns::large::{Large, ask};
use ashway_netns::node::{Config, assert_free, counter, entry, run, text, until};
use ashway_rig::{Node, Rig, RigOptions, skip_unless_root};
use serde_json::{Value, json};

fn has(status: &Value, list: &str, name: &str) -> bool {
    let mut entries = status[list].as_array().unwrap().iter();
    entries.any(|entry| entry["name"] == name)
}

fn open_files(node: &Node) -> usize {
    let folder = format!("/proc/{}/fd", node.id());
    std::fs::read_dir(folder).unwrap().count()
}

/// Each status here is asked for behind the slow request and shows that this one
/// had not been done: so the node answered before.
#[test]
fn others_are_served_while_a_large_file_is_compiled() {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("compile", RigOptions::default()).unwrap();
    let large = Large::new(&rig);
    let node = rig.node(counter("user").unwrap()).start().unwrap();
    let client = rig.client_a(7777).unwrap();
    let mut sum = 0;
    let mut message = || {
        sum += 1;
        assert_eq!(client.ask_number(1).unwrap(), sum);
    };

    let load = json!({ "request": "load", "file": large.file(), "name": "large" });
    let (loading, again) = (ask(&node, &load), ask(&node, &load));
    message();
    assert!(!has(&node.status().unwrap(), "handlers", "large"));
    let answer = loading.answer();
    println!("load: {answer}");
    assert_eq!(answer["ok"]["handler"], "large");
    // Who came second with the name is told so when its turn has come.
    let answer = again.answer();
    let because = answer["error"]["message"].as_str().unwrap();
    assert_eq!(because, "there is a handler `large` already");
    assert!(has(&node.status().unwrap(), "handlers", "large"));

    // The path goes away under its promotion.
    let bind = |tier| {
        json!({
            "request": "bind", "handler": "large", "iface": ["b0"],
            "match": "udp and dst port 8888", "tier": tier,
        })
    };
    let files = open_files(&node);
    let answer = ask(&node, &bind("user")).answer();
    assert_eq!(answer["ok"]["tier"], "user");
    let promote = json!({ "request": "promote", "path": "large" });
    let promoting = ask(&node, &promote);
    message();
    assert_eq!(
        entry(&node.status().unwrap(), "paths", "large")["tier"],
        "user"
    );
    let unbound = run(&mut node.command(["unbind", "large"]));
    assert!(unbound.status.success(), "{}", text(&unbound));
    let answer = promoting.answer();
    let because = answer["error"]["message"].as_str().unwrap();
    assert_eq!(because, "the path was unbound meanwhile");
    until("all it opened is closed", || {
        (open_files(&node) == files).then_some(())
    });

    // And one that stays.
    let binding = ask(&node, &bind("kernel"));
    message();
    assert!(!has(&node.status().unwrap(), "paths", "large"));
    let answer = binding.answer();
    println!("bind: {answer}");
    assert_eq!(answer["ok"]["tier"], "kernel");
    let status = node.status().unwrap();
    println!("{}", entry(&status, "handlers", "large")["promotion"]);
    assert_eq!(entry(&status, "paths", "large")["tier"], "kernel");
    message();
    node.stop().unwrap();
    assert_free(&rig, "b0");
}

/// A node that is told to end does not wait for its compilers.
#[test]
fn a_node_ends_under_a_compilation() {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("compile-end", RigOptions::default()).unwrap();
    let large = Large::new(&rig);
    let node = rig.node(counter("user").unwrap()).start().unwrap();
    let load = json!({ "request": "load", "file": large.file(), "name": "large" });
    let waiting = ask(&node, &load);
    assert!(!has(&node.status().unwrap(), "handlers", "large"));
    node.stop().unwrap();
    let answer = waiting.answer();
    let because = answer["error"]["message"].as_str();
    let expected = "the node ended or failed before this was done";
    assert_eq!(because, Some(expected), "{answer}");
    assert_free(&rig, "b0");
}

/// A small handler in which so many branches each count, and what it returns of that.
fn many_ways(rig: &Rig, branches: u32, returns: &str) -> Large {
    let mut source = "(module (memory (export \"memory\") 1 1)
        (func (export \"on_rx\") (param i32 i32) (result i32) (local i32)"
        .to_owned();
    for branch in 0..branches {
        let bit = 1 << (branch % 16);
        write!(
            source,
            "(if (i32.and (local.get 0) (i32.const {bit}))
                (then (local.set 2 (i32.add (local.get 2) (i32.const 1)))))"
        )
        .unwrap();
    }
    write!(source, "{returns}))").unwrap();
    let file = std::env::temp_dir().join(format!("{}-{branches}.wasm", rig.name()));
    std::fs::write(&file, wat::parse_str(source).unwrap()).unwrap();
    Large::of(file)
}

/// The count decides a branch, so that the verifier tells the ways to it apart.
const DECIDES: &str = "(if (result i32) (i32.eq (local.get 2) (i32.const 77))
    (then (i32.const 2)) (else (i32.const 1)))";

/// What the verifier would take half a minute for is given up in time, so that whoever
/// comes next has its turn; and it runs in the kernel tier all the same.
#[test]
fn a_handler_that_the_verifier_is_slow_with_holds_up_others_for_a_moment() {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("compile-ways", RigOptions::default()).unwrap();
    let node = rig.node(counter("user").unwrap()).start().unwrap();
    let client = rig.client_a(7777).unwrap();
    let mut files = Vec::new();
    for (port, branches) in [(7001, 2000), (7002, 6000)] {
        let name = format!("ways{branches}");
        let file = many_ways(&rig, branches, DECIDES);
        let load = json!({ "request": "load", "file": file.file(), "name": name });
        let answer = ask(&node, &load).answer();
        assert_eq!(answer["ok"]["handler"], name, "{answer}");
        let bind = json!({
            "request": "bind", "handler": name, "iface": ["b0"],
            "match": format!("udp and dst port {port}"), "tier": "kernel",
        });
        files.push((name, file, ask(&node, &bind)));
    }
    // Behind both.
    let echo = ashway_rig::handler("echo").unwrap();
    let load = json!({ "request": "load", "file": echo, "name": "echo" });
    let next = ask(&node, &load);
    assert_eq!(client.ask_number(1).unwrap(), 1);
    let answer = next.answer();
    assert_eq!(answer["ok"]["handler"], "echo", "{answer}");
    for (name, _file, bound) in files {
        let answer = bound.answer();
        assert_eq!(answer["ok"]["tier"], "kernel", "{answer}");
        let status = node.status().unwrap();
        let promotion = &entry(&status, "handlers", &name)["promotion"];
        assert_eq!(promotion["second_try"], true, "{promotion}");
        println!("{name}: {promotion}");
    }
    node.stop().unwrap();
}

/// A handler's verdict may be any number, which is no reason to walk each way to it.
#[test]
fn a_count_that_is_returned_is_no_work_for_the_verifier() {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("compile-count", RigOptions::default()).unwrap();
    let file = many_ways(&rig, 1000, "(local.get 2)");
    let config = Config::on_b0("native").handler_file("count", file.file());
    let node = rig
        .node(config.path("count", 7777, "kernel"))
        .start()
        .unwrap();
    let status = node.status().unwrap();
    let promotion = &entry(&status, "handlers", "count")["promotion"];
    assert_eq!(promotion["second_try"], false, "{promotion}");
    let number = |key: &str| promotion[key].as_u64().unwrap();
    assert!(
        number("verified_insns") < 3 * number("insns"),
        "{promotion}"
    );
    node.stop().unwrap();
}
