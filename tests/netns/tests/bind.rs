//! Handlers that come while a node runs: loading gives an id, binding leads
//! messages to it, unbinding leads them back to the host (ASH-2).

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ashway_netns::node::{
    Config, assert_free, at_rest, control, counter, entry, ordinary, run, shift, text, until,
};
use ashway_netns::traffic::{Over, PLACES, TIERS, settle};
use ashway_rig::{B4, Node, Rig, RigOptions, skip_unless_root};
use serde_json::{Value, json};

/// Long enough for a reply, short enough to wait for none.
const SOON: Duration = Duration::from_millis(100);

fn file(handler: &str) -> String {
    let file = ashway_rig::handler(handler).unwrap();
    file.to_str().unwrap().to_owned()
}

/// Runs a command that must do its work; what it printed.
fn done(node: &Node, words: &[&str]) -> String {
    let output = run(&mut node.command(words));
    assert!(output.status.success(), "{words:?}: {}", text(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a command that must fail; its exit code and what it printed.
fn refused(node: &Node, words: &[&str]) -> (Option<i32>, String) {
    let output = run(&mut node.command(words));
    assert!(!output.status.success(), "{words:?}: {}", text(&output));
    (output.status.code(), text(&output))
}

fn load(node: &Node, handler: &str, more: &[&str]) -> String {
    let file = file(handler);
    let words = [&["handler", "load", &file, "--allow", "reply"], more].concat();
    done(node, &words).trim_end().to_owned()
}

fn bind(node: &Node, handler: &str, filter: &str, tier: &str, more: &[&str]) -> Value {
    let words = [
        &["bind", handler, "--match", filter, "--iface", "b0"][..],
        &["--tier", tier, "-j"],
        more,
    ]
    .concat();
    serde_json::from_str(&done(node, &words)).unwrap()
}

/// The two steps, and back, wherever a handler can run.
#[test]
fn loaded_is_not_bound_and_unbound_is_the_hosts() {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("bind", RigOptions::default()).unwrap();
    let host = ordinary(&rig, 7777);
    host.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut bytes = [0; 16];
    for place in PLACES {
        let node = rig.node(place.config()).start().unwrap();
        let client = rig.client_a(7777).unwrap();
        client.set_timeout(SOON).unwrap();

        let id = load(&node, "counter", &["--param", "step=10"]);
        assert_eq!(id, "counter");
        let status = node.status().unwrap();
        assert_eq!(entry(&status, "handlers", &id)["tier"], "unbound");
        assert_eq!(status["paths"].as_array().unwrap().len(), 0);
        client.ask_number(1).expect_err("nothing runs yet");
        assert_eq!(host.recv(&mut bytes).unwrap(), 4, "{place}");

        // Twice: numbers that were given back serve again, memory stays.
        for round in 0..2 {
            let answer = bind(&node, &id, "udp and dst port 7777", place.tier, &[]);
            assert_eq!(
                (&answer["path"], &answer["tier"]),
                (&id.as_str().into(), &place.tier.into())
            );
            println!(
                "{place}: bound in {} us, exchange {} us",
                answer["took_us"], answer["exchange_us"]
            );
            client.set_timeout(Duration::from_secs(5)).unwrap();
            for i in 1..=20 {
                let sum = (20 * round + i) * 10;
                assert_eq!(client.ask_number(1).unwrap(), sum, "{place}");
            }
            let status = at_rest(&node);
            let path = entry(&status, "paths", &id);
            assert_eq!(path["received"], 20, "{place}: {path:#}");

            done(&node, &["unbind", &id]);
            let status = node.status().unwrap();
            assert_eq!(status["paths"].as_array().unwrap().len(), 0);
            client.set_timeout(SOON).unwrap();
            client.ask_number(1).expect_err("nothing runs any more");
            assert_eq!(host.recv(&mut bytes).unwrap(), 4, "{place}");
        }
        let interfaces = &node.status().unwrap()["interfaces"];
        assert_eq!(interfaces[0]["lost_after_hand_over"]["driver"], 0);
        node.stop().unwrap();
        assert_free(&rig, "b0");
    }
}

/// `path create` from a handler's module makes the path that `bind` makes, in whichever tier,
/// and each of the two commands that take a path away takes it away.
#[test]
fn a_path_created_from_a_handler_is_bound_to_it() {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("bind-created", RigOptions::default()).unwrap();
    for place in PLACES {
        let node = rig.node(place.config()).start().unwrap();
        let client = rig.client_a(7777).unwrap();
        load(&node, "counter", &[]);
        // Named twice, a path is taken away once.
        let twice = ["path", "rm", "made", "made"];
        for (round, away) in [["unbind", "made"].as_slice(), &twice]
            .into_iter()
            .enumerate()
        {
            let words = [
                "path",
                "create",
                "--name",
                "made",
                "--module",
                "handler:counter",
            ];
            let local = format!("local={B4}:7777");
            let attrs = ["--attr", "pathname=udp/eth:b0", "--attr", &local];
            done(
                &node,
                &[&words[..], &attrs, &["--tier", place.tier]].concat(),
            );
            until("it is where it was asked for", || {
                let status = node.status().unwrap();
                (entry(&status, "paths", "made")["tier"] == place.tier).then_some(())
            });
            for i in 1..=20 {
                assert_eq!(
                    client.ask_number(1).unwrap(),
                    20 * round as u32 + i,
                    "{place}"
                );
            }
            let status = at_rest(&node);
            let path = entry(&status, "paths", "made");
            assert_eq!(
                (&path["received"], &path["handler"]),
                (&20.into(), &"counter".into())
            );
            assert_eq!(path["from"], "handler:counter", "{path:#}");
            done(&node, away);
            assert_eq!(node.status().unwrap()["paths"].as_array().unwrap().len(), 0);
        }
        // Of two with one name there is none.
        let one = |port: u16| {
            let attrs = json!({ "pathname": "udp/eth:b0", "local": format!("{B4}:{port}") });
            json!({ "module": "handler:counter", "name": "made", "attrs": attrs })
        };
        let request = json!({ "request": "create", "paths": [one(7777), one(7778)] });
        let refused = control(&node, &request).unwrap_err();
        assert_eq!(
            refused["message"], "there is a path `made` already",
            "{refused}"
        );
        assert_eq!(node.status().unwrap()["paths"].as_array().unwrap().len(), 0);
        node.stop().unwrap();
    }
}

/// `unbind` takes a path of modules away, too.
#[test]
fn whichever_path_it_is_unbind_takes_it_away() {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("unbind-long", RigOptions::default()).unwrap();
    let lines = format!(
        "[module.end]\nkind = 'sink'\ndown = 'udp.up'\n\
         [path.long]\nfrom = 'end'\nattrs = {{ local = '{B4}:7004' }}\n"
    );
    let node = rig.node(Config::on_b0("native").text(&lines));
    let node = node.start().unwrap();
    done(&node, &["unbind", "long"]);
    assert_eq!(node.status().unwrap()["paths"].as_array().unwrap().len(), 0);
    let (_, said) = refused(&node, &["unbind", "long"]);
    assert!(said.contains("there is no path `long`"), "{said}");
    node.stop().unwrap();
}

/// While others are bound, unbound and moved, a path under traffic loses
/// nothing.
#[test]
fn a_path_under_traffic_notices_nothing() {
    if skip_unless_root() {
        return;
    }
    for tier in ["user", "kernel"] {
        let rig = Rig::new("bind-busy", RigOptions::default()).unwrap();
        let node = rig.node(counter(tier).unwrap()).start().unwrap();
        assert_eq!(load(&node, "echo", &[]), "echo");
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _over = Over(&over);
            let traffic = scope.spawn(|| {
                let client = rig.client_a(7777).unwrap();
                let mut asked = 0;
                while !over.load(Ordering::Acquire) {
                    asked += 1;
                    // In turn, so that a lost one would be missed at once.
                    assert_eq!(client.ask_number(1).unwrap(), asked, "{tier}");
                }
                asked
            });
            let second = rig.client_a(8888).unwrap();
            for round in 0..10 {
                if traffic.is_finished() {
                    break;
                }
                let other = ["user", "kernel"][round % 2];
                // More tests than the busy path's: it is tried first.
                bind(&node, "echo", "ip and udp dst port 8888", other, &[]);
                for text in [b"one", b"two"] {
                    assert_eq!(second.ask(text).unwrap(), text);
                }
                shift(&node, ["promote", "demote"][round % 2], "echo");
                assert_eq!(second.ask(b"three").unwrap(), b"three");
                done(&node, &["unbind", "echo"]);
            }
            over.store(true, Ordering::Release);
            let asked = traffic.join().unwrap();
            let status = at_rest(&node);
            let path = entry(&status, "paths", "counter");
            assert_eq!(path["received"], asked, "{path:#}");
            assert_eq!(path["fates"]["answered"], asked, "{path:#}");
            println!("{tier}: {asked} requests beside 20 changes, none lost");
        });
        node.stop().unwrap();
    }
}

/// A handler that the file gives one path takes a second, whichever tier either runs in,
/// while the first has traffic.
#[test]
fn a_handler_of_the_file_takes_a_second_path_under_traffic() {
    if skip_unless_root() {
        return;
    }
    for place in PLACES {
        let rig = Rig::new("bind-second", RigOptions::default()).unwrap();
        let config = place.config().handler("counter").unwrap();
        let config = config.path("counter", 7777, place.tier);
        let node = rig.node(config).start().unwrap();
        let over = AtomicBool::new(false);
        let (mut ours, mut theirs) = (0, 0);
        std::thread::scope(|scope| {
            let _over = Over(&over);
            let traffic = scope.spawn(|| {
                let (client, mut asked) = (rig.client_a(7777).unwrap(), 0);
                while !over.load(Ordering::Acquire) {
                    client.ask_number(1).unwrap();
                    asked += 1;
                }
                asked
            });
            let second = rig.client_a(8888).unwrap();
            let other = ["user", "auto"][usize::from(place.tier == "user")];
            for tier in [place.tier, other].repeat(3) {
                let more = ["--name", "second"];
                bind(&node, "counter", "udp and dst port 8888", tier, &more);
                for _ in 0..20 {
                    second.ask_number(1).unwrap();
                    ours += 1;
                }
                settle(&node, "second", 20).assert_fates(&[("answered", 20)], &place);
                done(&node, &["unbind", "second"]);
            }
            over.store(true, Ordering::Release);
            theirs = traffic.join().unwrap();
        });
        // One memory, and nothing of either was lost.
        let sum = rig.client_a(7777).unwrap().ask_number(1).unwrap();
        assert_eq!(sum, ours + theirs + 1, "{place}");
        println!("{place}: {theirs} asked beside {ours} of a second path");
        node.stop().unwrap();
    }
}

/// Two instances of one file do not share a memory; two paths of one do.
#[test]
fn an_instance_has_one_memory_and_many_paths() {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("bind-many", RigOptions::default()).unwrap();
    let node = rig.node(Config::on_b0("auto")).start().unwrap();
    for (name, path, port, tier) in [
        ("one", "a", 7001, "kernel"),
        ("one", "b", 7002, "user"),
        ("two", "c", 7003, "kernel"),
    ] {
        if path != "b" {
            assert_eq!(load(&node, "counter", &["--name", name]), name);
        }
        let filter = format!("udp and dst port {port}");
        bind(&node, name, &filter, tier, &["--name", path]);
    }
    let mut answers = Vec::new();
    for port in [7001, 7002, 7003] {
        answers.push(rig.client_a(port).unwrap().ask_number(1).unwrap());
    }
    assert_eq!(answers, [1, 2, 1]);
    let status = at_rest(&node);
    assert_eq!(entry(&status, "handlers", "one")["tier"], "kernel,user");
    node.stop().unwrap();
}

/// What cannot be is refused by name, and nothing is half there.
#[test]
fn what_is_wrong_is_named_and_changes_nothing() {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("bind-wrong", RigOptions::default()).unwrap();
    let node = rig.node(counter("kernel").unwrap()).start().unwrap();
    let garbage: PathBuf = node.config().with_file_name("garbage.wasm");
    std::fs::write(&garbage, b"no module at all").unwrap();
    let garbage = garbage.to_str().unwrap();
    let watch: PathBuf = node.config().with_file_name("watch.wasm");
    let source = r#"(module
        (import "ashway" "now_ns" (func (result i64)))
        (memory (export "memory") 1 1)
        (func (export "on_rx") (param i32 i32) (result i32) (i32.const 0)))"#;
    std::fs::write(&watch, wat::parse_str(source).unwrap()).unwrap();
    let watch = watch.to_str().unwrap();
    let as_text: PathBuf = node.config().with_file_name("watch.wat");
    std::fs::write(&as_text, source).unwrap();
    let as_text = as_text.to_str().unwrap();
    let wrong = |name: &str, more: &str| {
        let file = node.config().with_file_name(name);
        let source = format!("(module (memory (export \"memory\") 1 1) {more})");
        std::fs::write(&file, wat::parse_str(source).unwrap()).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let version = wrong(
        "version.wasm",
        r#"(@custom "ashway.abi" "\63\00\00\00")
        (func (export "on_rx") (param i32 i32) (result i32) (i32.const 0))"#,
    );
    let signature = wrong("signature.wasm", r#"(func (export "on_rx") (param i32))"#);
    // A command would take it for an option.
    let dash = wrong(
        "-x.wasm",
        r#"(func (export "on_rx") (param i32 i32) (result i32) (i32.const 0))"#,
    );
    let long = "x".repeat(100_000);
    let echo = file("echo");
    load(&node, "echo", &[]);
    // Needs an operator of the user tier.
    load(&node, "float", &[]);
    let before = node.status().unwrap();

    let on = ["--iface", "b0", "--match"];
    let free = "udp and dst port 8888";
    for (words, code, says) in [
        (vec!["handler", "load", garbage], 3, "garbage.wasm"),
        (vec!["handler", "load", "/nowhere.wasm"], 2, "/nowhere.wasm"),
        (vec!["handler", "load", &echo], 1, "handler `echo` already"),
        (
            vec!["handler", "load", &version],
            3,
            "version 99, this is version 1",
        ),
        (
            vec!["handler", "load", &signature],
            3,
            "a handler has type (i32, i32) -> i32",
        ),
        (vec!["handler", "load", &dash], 2, "`-x` cannot be the name"),
        (
            vec!["handler", "load", &echo, "--name", "../../etc/passwd"],
            2,
            "cannot be the name",
        ),
        (
            vec!["handler", "load", &echo, "--name", "\u{1b}[31mred\u{7}"],
            2,
            "cannot be the name",
        ),
        (
            vec!["handler", "load", &echo, "--name", &long],
            1,
            "the request ",
        ),
        (
            vec!["handler", "load", &echo, "--name", &long[..40_000]],
            2,
            "(40000 bytes)",
        ),
        (vec!["handler", "unload", "\u{1b}[31mred"], 1, "no handler"),
        (
            vec!["handler", "unload", &long[..40_000]],
            1,
            "(40000 bytes)",
        ),
        (vec!["path", "promote", "\u{1b}[31mred"], 1, "no path"),
        (
            vec!["handler", "unload", "counter"],
            1,
            "used by path `counter`",
        ),
        (
            vec!["handler", "load", &echo, "--name", "x", "--param", "a=1"],
            2,
            "no parameter `a`",
        ),
        (
            vec!["handler", "load", &echo, "--name", "x", "--allow", "fly"],
            2,
            "cannot be `fly`",
        ),
        (
            vec!["handler", "load", as_text, "--name", "x"],
            3,
            "a node loads the binary form: `wat2wasm ",
        ),
        (
            vec!["handler", "load", watch, "--allow", "reply"],
            2,
            "imports `now_ns`, which was not granted",
        ),
        (
            [&["bind", "ecco"][..], &on, &[free]].concat(),
            2,
            "did you mean `echo`",
        ),
        (
            [&["bind", "echo:x"][..], &on, &[free]].concat(),
            3,
            "no function `x`",
        ),
        (
            vec!["bind", "echo", "--match", free, "--iface", "b9"],
            2,
            "this node has no interface `b9`",
        ),
        (
            [&["bind", "echo"][..], &on, &["udp and prot 7"]].concat(),
            2,
            "at `prot`",
        ),
        (
            [&["bind", "echo"][..], &on, &["udp and dst port 7777"]].concat(),
            2,
            "paths `counter` and `echo` ask for the same messages",
        ),
        (
            [&["bind", "float", "--tier", "kernel"][..], &on, &[free]].concat(),
            3,
            "float.c",
        ),
        (vec!["unbind", "echo"], 1, "no path `echo`"),
    ] {
        let (exit, output) = refused(&node, &words);
        assert_eq!(exit, Some(code), "{says}: {output}");
        assert!(output.contains(says), "{says}: {output}");
        assert!(output.contains("hint: "), "{says}: {output}");
        let unclean = |c: char| c.is_control() && c != '\n';
        assert!(!output.contains(unclean), "{output:?}");
        assert!(output.len() < 1000, "{} bytes: {output}", output.len());
    }
    // 10 MB of a name, and clients that go in the middle of a request, or before its
    // answer: with the answer lost, the request is done whole or not at all.
    let connect = || UnixStream::connect(node.socket()).unwrap();
    let mut stream = connect();
    let name = "x".repeat(10 << 20);
    // The node stops reading.
    let _ = writeln!(stream, r#"{{"request":"unload","handler":"{name}"}}"#);
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap_or_default();
    // Where the machine is so busy that its 100 ms are over before, it says that.
    assert!(said.contains("bad_request"), "{said}");
    let half = format!(r#"{{"request":"load","file":"{echo}","name":"half""#);
    connect().write_all(half.as_bytes()).unwrap();
    connect().write_all(&[0xff, 0, 0x1b, b'\n']).unwrap();
    connect()
        .write_all(b"{\"request\":\"load\",\"name\":\"a\0b\"}\n")
        .unwrap();
    // What clap itself refuses it repeats.
    for words in [
        &["handler", "unlaod\u{1b}[31m"][..],
        &["bind", "--\u{1b}]0;x\u{7}", "h"],
    ] {
        let (exit, output) = refused(&node, words);
        assert_eq!(exit, Some(2), "{output}");
        assert!(
            !output.contains(|c: char| c.is_control() && c != '\n'),
            "{output:?}"
        );
    }
    // But for what the host's own stack sends meanwhile, unasked.
    let still = |mut status: Value| {
        for iface in status["interfaces"].as_array_mut().unwrap() {
            iface["unmatched"].take();
        }
        status
    };
    assert_eq!(still(node.status().unwrap()), still(before), "half applied");

    bind(&node, "echo", free, "auto", &[]);
    let again = [&["bind", "echo"][..], &on, &["udp and dst port 9999"]].concat();
    let (exit, output) = refused(&node, &again);
    assert_eq!(exit, Some(1), "{output}");
    assert!(output.contains("path `echo` already"), "{output}");
    // A handler that stays in the user tier says why.
    let output = done(
        &node,
        &[
            "bind",
            "float",
            "--iface",
            "b0",
            "--match",
            "udp and dst port 9999",
        ],
    );
    assert!(
        output.contains("user tier") && output.contains("because: "),
        "{output}"
    );

    let client = rig.client_a(7777).unwrap();
    assert_eq!(client.ask_number(1).unwrap(), 1);
    assert_eq!(rig.client_a(8888).unwrap().ask(b"hi").unwrap(), b"hi");
    node.stop().unwrap();
}

/// A handler of the configuration that no path uses waits to be bound; a handler
/// has room for 60 paths, an interface for more.
#[test]
fn limits_are_named_and_given_back() {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("bind-full", RigOptions::default()).unwrap();
    let config = Config::on_b0("auto").handler("echo").unwrap();
    let node = rig.node(config).start().unwrap();
    load(&node, "echo", &["--name", "more"]);
    let add = |handler: &str, number: usize| {
        let filter = format!("udp and dst port {}", 9000 + number);
        let name = format!("p{number}");
        run(&mut node.command([
            "bind", handler, "--match", &filter, "--iface", "b0", "--name", &name, "--tier", "user",
        ]))
    };
    for (handler, range) in [("echo", 0..60), ("more", 60..68)] {
        for number in range {
            let output = add(handler, number);
            assert!(output.status.success(), "{number}: {}", text(&output));
        }
    }
    let full = add("echo", 68);
    assert_eq!(full.status.code(), Some(1));
    let says = "this handler has 60 paths";
    assert!(text(&full).contains(says), "{}", text(&full));
    for port in [9000, 9059, 9067] {
        let client = rig.client_a(port).unwrap();
        assert_eq!(client.ask(b"hi").unwrap(), b"hi", "port {port}");
    }
    done(&node, &["unbind", "p0"]);
    let output = until("room again", || {
        let output = add("echo", 69);
        output.status.success().then_some(output)
    });
    assert!(text(&output).contains("p69"), "{}", text(&output));
    assert_eq!(rig.client_a(9069).unwrap().ask(b"hi").unwrap(), b"hi");
    assert_eq!(rig.client_a(9059).unwrap().ask(b"hi").unwrap(), b"hi");
    node.stop().unwrap();
}

/// Whatever was bound goes with the node, also with a killed one.
#[test]
fn a_killed_node_takes_its_bindings_along() {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("bind-kill", RigOptions::default()).unwrap();
    for place in TIERS {
        let node = rig.node(place.config()).start().unwrap();
        load(&node, "echo", &[]);
        bind(&node, "echo", "udp and dst port 7777", place.tier, &[]);
        let client = rig.client_a(7777).unwrap();
        assert_eq!(client.ask(b"hi").unwrap(), b"hi");
        node.kill();
        until("the interface is the host's", || {
            let index = ashway_netns::node::index(&rig, "b0");
            rig.in_b(|| ashway_kernel::owner(index))
                .unwrap()
                .is_none()
                .then_some(())
        });
        assert_free(&rig, "b0");
    }
}
