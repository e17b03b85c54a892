//! What waits for a compilation or for messages is seen, and can be cancelled: then nothing
//! of it was done.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use ashway_netns::large::{Asked, Large, ask};
use ashway_netns::node::{control, counter, entry, run, text, until};
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
