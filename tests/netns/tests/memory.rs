//! One memory: handler, both tiers, and an application without any privilege.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use std::os::unix::fs::PermissionsExt;

use ashway_netns::node::{
    Config, Lines, application, ask, at_rest, copy_program, counter, entry, ordinary, proc_status,
    run, shift, stock, text, until,
};
use ashway_rig::{Node, Signal, UdpClient, ashway, skip_unless_root};

/// Requests for each tier where load matters.
const MANY: u32 = 20_000;

const TIERS: [&str; 2] = ["user", "kernel"];

fn number(line: &str) -> u32 {
    line.parse().unwrap_or_else(|_| panic!("no number: {line}"))
}

/// The tier a path is in now must be the one that was meant.
fn assert_tier(node: &Node, path: &str, tier: &str) {
    let status = node.status().unwrap();
    assert_eq!(
        entry(&status, "paths", path)["tier"],
        tier,
        "{}",
        node.output()
    );
}

#[test]
fn an_application_without_privilege_reads_the_counter() {
    if skip_unless_root() {
        return;
    }
    let rig = stock("app");
    for tier in TIERS {
        let node = rig.node(counter(tier).unwrap()).start().unwrap();
        assert_tier(&node, "counter", tier);
        let mut app = application(&node, "counter", "counter_app").unwrap();
        assert_eq!(app.ask("").unwrap(), "0");
        for (field, value) in [("Uid", "65534\t65534\t65534\t65534"), ("Groups", "")] {
            assert_eq!(proc_status(app.process().id(), field), value, "{field}");
        }
        for field in ["CapEff", "CapPrm", "CapInh", "CapAmb"] {
            let held = proc_status(app.process().id(), field);
            assert_eq!(held, "0000000000000000", "{field}");
        }

        let client = rig.client_a(7777).unwrap();
        for sum in 1..=MANY {
            assert_eq!(ask(&rig, &node, &client, 1), sum, "{tier}");
        }
        assert_eq!(number(&app.ask("").unwrap()), MANY, "{tier}");
        let status = at_rest(&node);
        let path = entry(&status, "paths", "counter");
        assert_eq!(path["received"], MANY, "{tier}");
        assert_eq!(path["fates"]["answered"], MANY, "{tier}");
        assert_eq!(entry(&status, "handlers", "counter")["memory"], "arena");
        node.stop().unwrap();
    }
}

/// What one tier wrote the other one sees, and the application sees both and is
/// seen by both: there is one memory, not copies that are kept alike.
#[test]
fn both_tiers_and_the_application_share_one_variable() {
    if skip_unless_root() {
        return;
    }
    let rig = stock("one");
    for memory in ["arena", "array"] {
        let config = Config::on_b0("auto").handler("counter").unwrap();
        let config = config.text(&format!("memory = {memory:?}"));
        let node = rig
            .node(config.path("counter", 7777, "kernel"))
            .start()
            .unwrap();
        let status = node.status().unwrap();
        assert_eq!(entry(&status, "handlers", "counter")["memory"], memory);
        let mut app = application(&node, "counter", "counter_app").unwrap();
        let client = rig.client_a(7777).unwrap();
        let mut sum = 0;
        for (verb, tier) in [("promote", "kernel"), ("demote", "user")].repeat(3) {
            shift(&node, verb, "counter");
            assert_tier(&node, "counter", tier);
            sum += 5;
            assert_eq!(client.ask_number(5).unwrap(), sum, "{memory}, {tier}");
            assert_eq!(number(&app.ask("").unwrap()), sum, "{memory}, {tier}");
            sum += 1000;
            assert_eq!(number(&app.ask(&sum.to_string()).unwrap()), sum);
            sum += 7;
            assert_eq!(client.ask_number(7).unwrap(), sum, "{memory}, {tier}");
        }
        node.stop().unwrap();
    }
}

/// A parameter of the configuration is a variable like any other.
#[test]
fn a_parameter_is_there_before_the_first_message() {
    if skip_unless_root() {
        return;
    }
    let rig = stock("param");
    for tier in TIERS {
        let config = Config::on_b0("auto").handler("counter").unwrap();
        let config = config.text("params = { step = 5 }");
        let node = rig
            .node(config.path("counter", 7777, tier))
            .start()
            .unwrap();
        let client = rig.client_a(7777).unwrap();
        assert_eq!(client.ask_number(3).unwrap(), 15, "{tier}");
        node.stop().unwrap();
    }
}

const ACQUIRE: u8 = 1;
const RELEASE: u8 = 2;
const GRANTED: u8 = 0;
const HELD: u8 = 1;
const NOT_OWNER: u8 = 2;
const BAD_REQUEST: u8 = 3;

/// One request of the lock protocol (`apps/handlers/lock.c`); its status.
fn lock(client: &UdpClient, operation: u8, lock: u16, owner: u32) -> u8 {
    let mut request = vec![operation, 0];
    request.extend(lock.to_be_bytes());
    request.extend(owner.to_be_bytes());
    let reply = client.ask(&request).unwrap();
    assert_eq!(reply[1..], request[1..], "all but the status comes back");
    reply[0]
}

/// ASH-12: the application decides by a plain store what a remote client gets.
#[test]
fn locks_are_taken_remotely_and_by_the_application() {
    if skip_unless_root() {
        return;
    }
    let rig = stock("lock");
    for tier in TIERS {
        let config = Config::on_b0("auto").handler("lock").unwrap();
        let node = rig.node(config.path("lock", 7778, tier)).start().unwrap();
        assert_tier(&node, "lock", tier);
        let mut app = application(&node, "lock", "lock_app").unwrap();
        let client = rig.client_a(7778).unwrap();

        assert_eq!(lock(&client, ACQUIRE, 7, 100), GRANTED, "{tier}");
        assert_eq!(
            lock(&client, ACQUIRE, 7, 100),
            GRANTED,
            "a repeated request"
        );
        assert_eq!(lock(&client, ACQUIRE, 7, 200), HELD, "{tier}");
        assert_eq!(lock(&client, RELEASE, 7, 200), NOT_OWNER, "{tier}");
        assert_eq!(app.ask("7").unwrap(), "100", "{tier}");

        // The client died; the application frees its lock.
        assert_eq!(app.ask("7 0").unwrap(), "100");
        assert_eq!(lock(&client, ACQUIRE, 7, 200), GRANTED, "{tier}");
        assert_eq!(lock(&client, RELEASE, 7, 200), GRANTED, "{tier}");
        assert_eq!(app.ask("7").unwrap(), "0", "{tier}");

        // And the application takes one for itself.
        assert_eq!(app.ask("255 4242").unwrap(), "0");
        assert_eq!(lock(&client, ACQUIRE, 255, 1), HELD, "{tier}");
        assert_eq!(lock(&client, RELEASE, 255, 1), NOT_OWNER, "{tier}");
        assert_eq!(app.ask("255 0").unwrap(), "4242");
        assert_eq!(lock(&client, ACQUIRE, 255, 1), GRANTED, "{tier}");

        for (operation, id, owner) in [(3, 0, 1), (ACQUIRE, 256, 1), (RELEASE, 0, 0)] {
            assert_eq!(lock(&client, operation, id, owner), BAD_REQUEST, "{tier}");
        }
        node.stop().unwrap();
    }
}

/// ASH-8, ASH-34: nobody has to be scheduled for an answer.
#[test]
fn a_stopped_application_stops_nothing() {
    if skip_unless_root() {
        return;
    }
    let rig = stock("stopped");
    let node = rig.node(counter("kernel").unwrap()).start().unwrap();
    let mut app = application(&node, "counter", "counter_app").unwrap();
    assert_eq!(app.ask("").unwrap(), "0");
    let client = rig.client_a(7777).unwrap();
    // In the user tier the worker answers, which is not the application either.
    let mut sum = 0;
    for verb in ["promote", "demote"] {
        shift(&node, verb, "counter");
        app.process().signal(Signal::STOP).unwrap();
        until("the application is stopped", || {
            proc_status(app.process().id(), "State")
                .starts_with('T')
                .then_some(())
        });
        app.say("").unwrap();
        for _ in 0..1000 {
            sum += 1;
            assert_eq!(client.ask_number(1).unwrap(), sum, "after {verb}");
        }
        app.process().signal(Signal::CONT).unwrap();
        assert_eq!(number(&app.hear().unwrap()), sum);
    }

    // Not even the node has to be scheduled for the kernel tier.
    shift(&node, "promote", "counter");
    node.signal(Signal::STOP).unwrap();
    until("the node is stopped", || {
        proc_status(node.id(), "State")
            .starts_with('T')
            .then_some(())
    });
    for _ in 0..1000 {
        sum += 1;
        assert_eq!(client.ask_number(1).unwrap(), sum, "with the node stopped");
    }
    assert_eq!(number(&app.ask("").unwrap()), sum);
    node.signal(Signal::CONT).unwrap();
    let status = at_rest(&node);
    assert_eq!(entry(&status, "paths", "counter")["fates"]["answered"], sum);
    node.stop().unwrap();
}

/// An application may ruin its own handler's answers, and nothing else.
#[test]
fn a_hostile_application_harms_only_its_handler() {
    if skip_unless_root() {
        return;
    }
    let rig = stock("hostile");
    for memory in ["arena", "array"] {
        let config = Config::on_b0("auto").handler("counter").unwrap();
        let config = config.text(&format!("memory = {memory:?}"));
        let config = config.handler("sum").unwrap().path("counter", 7777, "user");
        let node = rig.node(config.path("sum", 7778, "auto")).start().unwrap();
        let mut hostile = application(&node, "counter", "scribble_app").unwrap();
        assert_eq!(hostile.hear().unwrap(), "scribbled");

        let (victim, other) = (rig.client_a(7777).unwrap(), rig.client_a(7778).unwrap());
        let mut wrong = 0;
        for (verb, round) in [("demote", 0), ("promote", 1)] {
            shift(&node, verb, "counter");
            for i in 0..MANY / 2 {
                // Whatever the answer is, there is one: the verdict and the
                // length of the message are not in the memory.
                wrong += u32::from(ask(&rig, &node, &victim, 1) != i + 1);
                if i % 10 == 0 {
                    let sum = ask(&rig, &node, &other, 0x0102_0304);
                    assert_eq!(sum, 10, "another handler's answer");
                }
            }
            let status = at_rest(&node);
            let path = entry(&status, "paths", "counter");
            assert_eq!(path["received"], (round + 1) * MANY / 2, "{path:#}");
            assert_eq!(path["fates"]["answered"], path["received"], "{path:#}");
            assert_eq!(path["out"]["handed_over"], path["received"], "{path:#}");
        }
        println!("{memory}: {wrong} of {MANY} answers were spoilt");
        assert!(wrong > 0, "the application did nothing");
        assert!(
            hostile.process().signal(Signal::TERM).is_ok(),
            "it ran to the end"
        );
        let status = at_rest(&node);
        assert_eq!(
            entry(&status, "paths", "sum")["fates"]["answered"],
            MANY / 10
        );
        node.stop().unwrap();
    }
}

/// Like compiled C: keeps a stack pointer in a mutable global, which lies in the
/// memory, and addresses through it.
const WITH_STACK: &str = r#"
    (module
      (memory (export "memory") 2 2)
      (global $sp (mut i32) (i32.const 16384))
      (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (global.set $sp (i32.sub (global.get $sp) (i32.const 16)))
        (i32.store (global.get $sp) (local.get $len))
        (i32.load (global.get $sp))
        (global.set $sp (i32.add (global.get $sp) (i32.const 16)))
        (i32.eq (local.get $len))))
"#;

/// A stack pointer that somebody overwrites points anywhere: the handler is
/// stopped, counted and told apart, in both tiers.
#[test]
fn a_hostile_application_can_stop_its_own_handler_only() {
    if skip_unless_root() {
        return;
    }
    let rig = stock("wild-sp");
    let file = std::env::temp_dir().join(format!("ashway-stack-{}.wasm", std::process::id()));
    std::fs::write(&file, wat::parse_str(WITH_STACK).unwrap()).unwrap();
    let config = Config::on_b0("auto").handler_file("stack", &file);
    let config = config.handler("sum").unwrap().path("stack", 7777, "user");
    let node = rig.node(config.path("sum", 7778, "auto")).start().unwrap();
    std::fs::remove_file(&file).unwrap();
    let (victim, other) = (rig.client_a(7777).unwrap(), rig.client_a(7778).unwrap());
    // Messages of a stopped handler go to the host (`on_fault = "pass"`).
    let _host = ordinary(&rig, 7777);
    assert_eq!(victim.ask(b"calm").unwrap(), b"calm");

    let mut hostile = application(&node, "stack", "scribble_app").unwrap();
    assert_eq!(hostile.hear().unwrap(), "scribbled");
    let mut stopped = 0;
    for verb in ["demote", "promote"] {
        shift(&node, verb, "stack");
        for i in 0..MANY / 2 {
            victim.send(b"wild").unwrap();
            if i % 10 == 0 {
                assert_eq!(ask(&rig, &node, &other, 0x0102_0304), 10);
            }
        }
        let status = at_rest(&node);
        let path = entry(&status, "paths", "stack");
        let now = path["aborts"]["memory_bounds"].as_u64().unwrap_or(0);
        assert!(now > stopped, "{path:#}");
        stopped = now;
        let fault = &entry(&status, "handlers", "stack")["last_fault"];
        assert_eq!(fault["cause"], "memory_bounds", "{fault:#}");
    }
    node.stop().unwrap();
}

/// The descriptor is handed out to those who may ask, and to nobody else.
#[test]
fn nobody_else_can_map_the_memory() {
    if skip_unless_root() {
        return;
    }
    let rig = stock("nobody");
    let node = rig.node(counter("user").unwrap()).start().unwrap();
    let mode = std::fs::metadata(node.socket())
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);

    // The build's folder need not be open to this user.
    let folder = node.config().parent().unwrap();
    let binary = folder.join("ashway");
    copy_program(&ashway().unwrap(), &binary).unwrap();
    let as_nobody = |words: &[&str]| {
        let mut command = std::process::Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        command.arg(&binary).args(words);
        command.arg("--socket").arg(node.socket());
        command
    };
    let mut map = as_nobody(&["handler", "map", "counter"]);
    for command in [
        map.args(["--", "true"]),
        &mut as_nobody(&["status"]),
        &mut as_nobody(&["path", "promote", "counter"]),
    ] {
        let refused = run(command);
        assert_eq!(refused.status.code(), Some(4), "{}", text(&refused));
        let said = text(&refused);
        assert!(
            said.contains("only the user who started the node may ask it"),
            "{said}"
        );
    }
    assert_tier(&node, "counter", "user");

    let unknown = run(node
        .command(["handler", "map", "countre"])
        .args(["--", "true"]));
    assert_eq!(unknown.status.code(), Some(1), "{}", text(&unknown));
    assert!(
        text(&unknown).contains("available: `counter`"),
        "{}",
        text(&unknown)
    );

    // Without an environment the application says how it is meant to start.
    let program = ashway_rig::places::application("counter_app").unwrap();
    let alone = run(&mut std::process::Command::new(program));
    assert_eq!(alone.status.code(), Some(1));
    assert!(
        text(&alone).contains("`ashway handler map`"),
        "{}",
        text(&alone)
    );
    node.stop().unwrap();
}

/// The memory outlives its node for an application that has it mapped.
#[test]
fn the_application_survives_the_node() {
    if skip_unless_root() {
        return;
    }
    let rig = stock("survives");
    let node = rig.node(counter("kernel").unwrap()).start().unwrap();
    let mut app: Lines = application(&node, "counter", "counter_app").unwrap();
    assert_eq!(app.ask("").unwrap(), "0");
    let client = rig.client_a(7777).unwrap();
    assert_eq!(client.ask_number(9).unwrap(), 9);
    node.kill();
    assert_eq!(app.ask("").unwrap(), "9");
}
