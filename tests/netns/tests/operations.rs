//! What waits for a compilation or for messages is seen, and can be cancelled: then nothing
//! of it was done.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use std::collections::BTreeMap;
use std::time::Instant;

use ashway_netns::large::{Asked, Large, ask};
use ashway_netns::node::{PATIENCE, census, control, counter, entry, run, text, until};
use ashway_netns::observe::{Observing, documents};
use ashway_rig::{Node, Rig, RigOptions, skip_unless_root};
use serde_json::{Value, json};

fn operations(node: &Node) -> Vec<Value> {
    node.status().unwrap()["operations"]
        .as_array()
        .unwrap()
        .clone()
}

/// The number of the operation about this, once it is there.
fn number(node: &Node, does: &str, about: &str) -> u64 {
    until("the operation is under way", || {
        let is_it = |operation: &&Value| operation["does"] == does && operation["about"] == about;
        operations(node).iter().find(is_it)?["operation"].as_u64()
    })
}

fn cancel(node: &Node, number: u64) -> Result<Value, Value> {
    control(node, &json!({ "request": "cancel", "operation": number }))
}

/// That its client was told.
fn was_cancelled(asked: Asked) {
    let answer = asked.answer();
    assert_eq!(answer["error"]["message"], "it was cancelled", "{answer}");
}

#[test]
fn what_waits_for_the_compile_thread_is_seen_and_can_be_cancelled() {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("operations", RigOptions::default()).unwrap();
    let large = Large::new(&rig);
    let node = rig.node(counter("user").unwrap()).start().unwrap();
    assert_eq!(operations(&node), [] as [Value; 0]);
    let load = |name: &str| {
        ask(
            &node,
            &json!({ "request": "load", "file": large.file(), "name": name }),
        )
    };
    let plan = json!({ "request": "plan", "file": node.config() });

    // The first is being compiled, the others wait behind it.
    let first = load("first");
    let [second, third] = ["second", "third"].map(load);
    let planned = ask(&node, &plan);
    let file = node.config().to_str().unwrap().to_owned();
    let numbers = [
        number(&node, "load", "second"),
        number(&node, "plan", &file),
    ];
    let shown = operations(&node);
    assert_eq!(shown.len(), 4, "{shown:#?}");
    for operation in &shown {
        assert_eq!(operation["by"], format!("process {}", std::process::id()));
        assert_eq!(operation["waits_for"], "the compile thread");
    }
    let printed = text(&run(&mut node.command(["status"])));
    assert!(printed.contains("OPERATION"), "{printed}");
    let first_number = number(&node, "load", "first");
    let printed = run(&mut node.command(["cancel", &numbers[0].to_string()]));
    assert_eq!(text(&printed), "cancelled: load second\n");
    let cancelled = cancel(&node, numbers[1]).unwrap();
    assert_eq!(cancelled["does"], "plan");
    was_cancelled(second);
    was_cancelled(planned);

    // Also one whose job was begun.
    cancel(&node, first_number).unwrap();
    was_cancelled(first);
    assert_eq!(third.answer()["ok"]["handler"], "third");
    let status = node.status().unwrap();
    let handlers = status["handlers"].as_array().unwrap();
    let names: Vec<_> = handlers
        .iter()
        .map(|it| it["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["counter", "third"]);

    // What has ended cannot be.
    for gone in [numbers[0], first_number, 0, u64::MAX] {
        let refused = cancel(&node, gone).unwrap_err();
        assert_eq!(refused["code"], "failed", "{refused:#}");
    }
    assert_eq!(rig.client_a(7777).unwrap().ask_number(1).unwrap(), 1);
    node.stop().unwrap();
}

/// The programs that the first has asked for are asked for once more: the second is not
/// admitted before they are there.
#[test]
fn who_observes_behind_one_who_is_cancelled_sees_every_step() {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("observers", RigOptions::default()).unwrap();
    let large = Large::new(&rig);
    let node = rig.node(counter("user").unwrap()).start().unwrap();
    let load = json!({ "request": "load", "file": large.file(), "name": "large" });
    let compiled = ask(&node, &load);
    let gives_up = ask(&node, &json!({ "request": "observe", "path": "counter" }));
    let first = number(&node, "observe", "counter");
    let told = std::thread::scope(|scope| {
        let trace = scope.spawn(|| {
            let words = ["trace", "-j", "--path", "counter", "--count", "1"];
            Observing::start(node.command(words)).unwrap()
        });
        until("both wait", || {
            let waiting = operations(&node);
            let observers = waiting.iter().filter(|it| it["does"] == "observe");
            (observers.count() == 2).then_some(())
        });
        cancel(&node, first).unwrap();
        was_cancelled(gives_up);
        let trace = trace.join().unwrap();
        assert_eq!(rig.client_a(7777).unwrap().ask_number(1).unwrap(), 1);
        trace.finish().unwrap().0
    });
    let [message] = &documents(&told)[..] else {
        panic!("{told}");
    };
    // It is the handler's own program that says this, the one that was asked for twice.
    let steps = message["steps"].as_array().unwrap();
    let handed_over = steps.iter().any(|step| step["to"] == "ring program");
    assert!(handed_over, "{message:#}");
    assert_eq!(compiled.answer()["ok"]["handler"], "large");
    node.stop().unwrap();
}

/// A promotion that waits for messages holds a recording, which goes with it.
#[test]
fn a_promotion_that_waits_for_messages_can_be_cancelled() {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("records", RigOptions::default()).unwrap();
    let node = rig.node(counter("user").unwrap()).start().unwrap();
    let promote = json!({ "request": "promote", "path": "counter" });
    let waits = |operation: &Value| operation["waits_for"] == "messages";
    // Half a second, and this asks at once: but this thread may be the one that waits.
    until("one was cancelled while it waited", || {
        let promoting = ask(&node, &promote);
        let seen = until(
            "it has ended, or waits for messages",
            || match operations(&node).as_slice() {
                [] => Some(None),
                [one] if waits(one) => Some(one["operation"].as_u64()),
                _ => None,
            },
        );
        let cancelled = seen.is_some_and(|number| cancel(&node, number).is_ok());
        if cancelled {
            was_cancelled(promoting);
        } else {
            let _ = promoting.answer();
            control(&node, &json!({ "request": "demote", "path": "counter" })).unwrap();
        }
        cancelled.then_some(())
    });
    assert_eq!(
        entry(&node.status().unwrap(), "paths", "counter")["tier"],
        "user"
    );
    // It has left nothing that another would be refused for.
    let promoted = control(
        &node,
        &json!({ "request": "promote", "path": "counter", "shadow": 1 }),
    );
    assert_eq!(promoted.unwrap()["tier"], "kernel");
    assert_eq!(rig.client_a(7777).unwrap().ask_number(1).unwrap(), 1);
    node.stop().unwrap();
}

/// Keeps the compile thread busy for some seconds: the answers of what does.
fn busy(node: &Node, large: &Large) -> [Asked; 3] {
    ["first", "second", "third"].map(|name| {
        let load = json!({ "request": "load", "file": large.file(), "name": name });
        ask(node, &load)
    })
}

/// Takes away what kept it busy.
fn idle(node: &Node, busy: [Asked; 3]) {
    for asked in busy {
        let name = asked.answer()["ok"]["handler"].clone();
        control(node, &json!({ "request": "unload", "handler": name })).unwrap();
    }
}

/// What the node holds when what was unloaded has gone.
fn held(node: &Node) -> BTreeMap<String, usize> {
    let mut before = BTreeMap::new();
    until("it lets go", || {
        let now = census(node);
        let same = now == before;
        before = now;
        same.then(|| before.clone())
    })
}

/// That it comes to hold no more than this, in which there may be a client that is gone.
fn holds(node: &Node, before: &BTreeMap<String, usize>) {
    let mut now = BTreeMap::new();
    let end = Instant::now() + PATIENCE;
    let more = |now: &BTreeMap<String, usize>| {
        let mut now = now.iter();
        now.any(|(kind, count)| before.get(kind).is_none_or(|known| count > known))
    };
    while now.is_empty() || more(&now) {
        assert!(Instant::now() < end, "{before:#?} became {now:#?}");
        now = census(node);
    }
}

/// What each operation would have changed is as it was, nothing of it is held, and the same
/// request is done when it is asked once more.
#[test]
fn what_a_request_would_change_is_as_it_was_when_it_is_cancelled() {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("cancels", RigOptions::default()).unwrap();
    let large = Large::new(&rig);
    let config = counter("kernel").unwrap();
    let node = rig.node(config.clone()).start().unwrap();
    let file = ashway_rig::handler("counter").unwrap();
    let swap = json!({ "request": "swap", "handler": "counter", "file": file });
    // There is one to go back to.
    control(&node, &swap).unwrap();
    let more = rig.name().to_owned() + "-more.toml";
    let more = std::env::temp_dir().join(more);
    let echo = config.handler("echo").unwrap().path("echo", 7778, "kernel");
    std::fs::write(&more, String::from(echo)).unwrap();
    let bind = |name: &str| {
        json!({ "request": "bind", "handler": "counter", "path": name, "iface": ["b0"],
            "match": "udp and dst port 7779", "tier": "kernel" })
    };
    let applied = more.to_str().unwrap();
    let requests = [
        ("swap", "counter", swap),
        (
            "rollback",
            "counter",
            json!({ "request": "rollback", "handler": "counter" }),
        ),
        ("bind", "bound", bind("bound")),
        (
            "apply",
            applied,
            json!({ "request": "apply", "file": applied }),
        ),
    ];
    // What is made once is made.
    idle(&node, busy(&node, &large));
    let facts = |node: &Node| {
        let status = node.status().unwrap();
        let handlers = status["handlers"].as_array().unwrap().iter();
        let handlers =
            handlers.map(|it| json!([it["name"], it["digest"], it["former"], it["tier"]]));
        let paths = status["paths"].as_array().unwrap().iter();
        let paths = paths.map(|it| json!([it["name"], it["match"], it["tier"]]));
        (handlers.collect::<Vec<_>>(), paths.collect::<Vec<_>>())
    };
    let before = (facts(&node), held(&node));

    let loads = busy(&node, &large);
    let asked = requests.each_ref().map(|(.., request)| ask(&node, request));
    for ((does, about, _), asked) in requests.iter().zip(asked) {
        let number = number(&node, does, about);
        let shown = operations(&node);
        let shown = shown.iter().find(|it| it["operation"] == number).unwrap();
        assert_eq!(shown["by"], format!("process {}", std::process::id()));
        assert_eq!(cancel(&node, number).unwrap()["does"], *does);
        was_cancelled(asked);
    }
    idle(&node, loads);
    assert_eq!(operations(&node), [] as [Value; 0]);
    assert_eq!(facts(&node), before.0);
    holds(&node, &before.1);
    let client = rig.client_a(7777).unwrap();
    assert_eq!(client.ask_number(1).unwrap(), 1);

    // An apply is cancelled, too, while what comes with it is compiled.
    let grown = std::fs::read_to_string(&more).unwrap();
    let grown = grown + &format!("[handler.large]\nfile = {:?}\n", large.file());
    let file = more.with_extension("large.toml");
    std::fs::write(&file, grown).unwrap();
    let asked = ask(&node, &json!({ "request": "apply", "file": file }));
    let number = number(&node, "apply", file.to_str().unwrap());
    until("it is read", || {
        let age = operations(&node)
            .first()
            .map(|it| it["age_ms"].as_u64().unwrap());
        age.is_none_or(|age| age >= 200).then_some(())
    });
    cancel(&node, number).unwrap();
    was_cancelled(asked);
    // Behind whatever the compile thread does still.
    control(&node, &json!({ "request": "plan", "file": node.config() })).unwrap();
    assert_eq!(facts(&node), before.0);
    holds(&node, &before.1);

    for (does, _, request) in &requests {
        if let Err(refused) = control(&node, request) {
            panic!("{does}: {refused:#}");
        }
    }
    client.ask_number(1).unwrap();
    for port in [7778, 7779] {
        let client = rig.client_a(port).unwrap();
        client.send(b"\0\0\0\x01\0\0\0\0").unwrap();
        client.receive().unwrap();
    }
    node.stop().unwrap();
    for file in [more, file] {
        std::fs::remove_file(file).unwrap();
    }
}

/// The paths of an interface have their messages without the program, and the next one is made.
#[test]
fn an_entry_program_that_is_cancelled_is_made_for_the_next_shape() {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("entries", RigOptions::default()).unwrap();
    let large = Large::new(&rig);
    let config = counter("user").unwrap();
    let config = config.text("[module.end]\nkind = 'sink'\ndown = 'udp.up'");
    let node = rig.node(config).start().unwrap();
    idle(&node, busy(&node, &large));
    let before = census(&node);
    let create = |name: &str, attrs: Value| {
        let create = json!({ "request": "create", "module": "end", "name": name, "attrs": attrs });
        control(&node, &create).unwrap();
    };
    let received = |path: &str| {
        let status = node.status().unwrap();
        entry(&status, "paths", path)["received"].as_u64().unwrap()
    };
    let loads = busy(&node, &large);
    create(
        "one",
        json!({ "local": "10.7.0.2:6000", "pathname": "eth:b0" }),
    );
    let first = number(&node, "entry", "b0");
    let shown = operations(&node);
    let shown = shown.iter().find(|it| it["operation"] == first).unwrap();
    assert_eq!(shown["by"], "the node");
    let cancelled = cancel(&node, first).unwrap();
    assert_eq!(cancelled["does"], "entry");
    let client = rig.client_a(6000).unwrap();
    client.send(b"as data").unwrap();
    until("its message comes", || (received("one") == 1).then_some(()));
    idle(&node, loads);
    assert!(operations(&node).is_empty());
    // The queue of whole frames, which came with the path, stays; of the program nothing does.
    let with_frames = census(&node);

    create("two", json!({ "local": "10.7.0.2", "pathname": "eth:b0" }));
    until("its program is in its place", || {
        operations(&node).is_empty().then_some(())
    });
    client.send(b"by program").unwrap();
    until("its message comes", || (received("one") == 2).then_some(()));
    let remove = json!({ "request": "remove", "paths": ["one", "two"] });
    control(&node, &remove).unwrap();
    assert_eq!(rig.client_a(7777).unwrap().ask_number(1).unwrap(), 1);
    println!("{before:?} {with_frames:?} {:?}", census(&node));
    node.stop().unwrap();
}
