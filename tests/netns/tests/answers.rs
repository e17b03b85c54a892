//! Every answer of a running node is what its type says: no key more, none less.
//!
//! `control` and `Node::status` compare each answer with its type. Here all requests are
//! asked, of a node that has something of each kind.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use std::collections::BTreeSet;

use ashway_api::Request;
use ashway_netns::large::{self, Large};
use ashway_netns::node::{Config, control, until};
use ashway_rig::{Rig, RigOptions, handler, skip_unless_root};
use serde_json::{Value, json};

/// Handlers in both tiers, one that is stopped, one with an endpoint; paths of modules.
fn config() -> Config {
    let inbox = handler("counter").unwrap();
    Config::on_b0("native")
        .handler("counter")
        .unwrap()
        .handler("divide")
        .unwrap()
        .path("counter", 7777, "kernel")
        .text(&format!(
            "[handler.inbox]\nfile = \"{}\"\nendpoint = 64\nallow = [\"reply\"]",
            inbox.display()
        ))
        .text(
            r#"
[path.stop]
iface = ["b0"]
match = "udp and dst port 7778"
handler = "divide"
tier = "user"
on_fault = "drop"
faults = { limit = 2, within = "10 s", rest = "10 s" }
share = "50 %"
[module.end]
kind = "sink"
down = "udp.up"
[module.udp]
kind = "udp"
down = "ip.up"
[path.steady]
from = "end"
attrs = { local = "10.7.0.2:5000", pathname = "eth:b0" }
"#,
        )
}

#[test]
fn every_answer_is_what_its_type_says() {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("answers", RigOptions::default()).unwrap();
    let large = Large::new(&rig);
    let node = rig.node(config()).start().unwrap();
    let mut asked = BTreeSet::new();
    let mut ask = |request: Value| {
        asked.insert(request["request"].as_str().unwrap().to_owned());
        control(&node, &request).unwrap_or_else(|error| panic!("{request}: {error:#}"))
    };
    let file = handler("counter").unwrap();

    assert_eq!(rig.client_a(7777).unwrap().ask_number(1).unwrap(), 1);
    rig.client_a(5000).unwrap().send(b"hello").unwrap();
    rig.client_a(9).unwrap().send(b"nobody's").unwrap();
    let stopped = until("the handler is stopped", || {
        let message = [0xff, 0xff, 0, 0, 0, 0, 0, 0];
        rig.client_a(7778).unwrap().send(&message).unwrap();
        let list = ask(json!({ "request": "faults" }));
        let bypassed = ask(json!({ "request": "show", "path": "stop" }))["bypass"].is_object();
        list[0]["fault"].as_u64().filter(|_| bypassed)
    });
    ask(json!({ "request": "fault", "fault": stopped }));
    ask(json!({ "request": "status" }));
    for about in ["stop", "counter", "steady", "received", "dropped_fault"] {
        ask(json!({ "request": "why", "about": about }));
    }
    for port in [7777, 7778, 5000, 9] {
        let flow = format!("udp 10.7.0.1:9 > 10.7.0.2:{port}");
        ask(json!({ "request": "why", "about": flow }));
    }
    ask(json!({ "request": "enable", "path": "stop" }));
    ask(json!({ "request": "demux" }));
    ask(json!({ "request": "confirm" }));
    for verb in ["plan", "apply"] {
        ask(json!({ "request": verb, "file": node.config() }));
    }

    // What the kernel tier takes, and what it does not.
    for path in ["counter", "steady"] {
        ask(json!({ "request": "show", "path": path }));
    }
    ask(json!({ "request": "demote", "path": "counter" }));
    ask(json!({ "request": "status" }));
    ask(json!({ "request": "promote", "path": "counter", "shadow": 0 }));
    ask(json!({ "request": "swap", "handler": "counter", "file": file }));
    ask(json!({ "request": "rollback", "handler": "counter" }));

    ask(json!({ "request": "load", "file": file, "name": "more", "params": {} }));
    let bind = json!({
        "request": "bind", "handler": "more", "iface": ["b0"], "match": "udp and dst port 7779",
        "owner": "caller",
    });
    ask(bind);
    ask(json!({ "request": "unbind", "path": "more" }));
    ask(json!({ "request": "unload", "handler": "more" }));
    let flow = json!({ "local": "10.7.0.2:6000", "pathname": "eth:b0" });
    let create = json!({
        "request": "create", "module": "end", "name": "mine", "attrs": flow, "log": true,
    });
    ask(create);
    ask(json!({ "request": "show", "path": "mine" }));
    ask(json!({ "request": "remove", "path": "mine" }));
    ask(json!({ "request": "log", "handler": "counter" }));
    ask(json!({ "request": "memory", "handler": "inbox" }));
    ask(json!({ "request": "endpoint", "handler": "inbox" }));
    ask(json!({ "request": "observe", "path": "counter" }));

    let loading = json!({ "request": "load", "file": large.file(), "name": "large" });
    let waits = large::ask(&node, &loading);
    let number = until("it is compiled", || {
        let status = ask(json!({ "request": "status" }));
        status["operations"][0]["operation"].as_u64()
    });
    ask(json!({ "request": "cancel", "operation": number }));
    drop(waits);

    let all = Request::NAMES.iter().map(|name| (*name).to_owned());
    assert_eq!(asked, all.collect());
    node.stop().unwrap();
}
