//! `instances = "per-cpu"`: what arrives on a CPU runs in the memory of that CPU, in both tiers and
//! on the way from one to the other, and all of them together are what was sent.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use std::fs;

use ashway_netns::cpus::{PLACES, PORT, clients, count, skip_here};
use ashway_netns::node::{Config, application_with, control as ask, entry, run, text};
use ashway_netns::traffic::{Place, path, settle, two_queues};
use ashway_rig::Node;
use serde_json::{Value, json};

fn config(place: Place) -> Config {
    let config = place.config().handler("counter").unwrap();
    path(
        config.text("instances = \"per-cpu\""),
        "inc",
        "counter",
        PORT,
        place,
        "",
    )
}

/// The counters in the memory of each CPU's instance, as an application reads them there.
fn memories(node: &Node) -> Vec<u64> {
    let instances = instances(node, "handlers", "counter").len();
    let of = |cpu: usize| {
        let options = ["--cpu", &cpu.to_string()];
        let app = application_with(node, "counter", "counter_app", &options, &[]);
        let said = app.unwrap().ask("").unwrap();
        said.parse::<u64>().unwrap()
    };
    (0..instances).map(of).collect()
}

fn instances(node: &Node, list: &str, name: &str) -> Vec<Value> {
    let status = node.status().unwrap();
    let found = entry(&status, list, name)["instances"].as_array();
    found.unwrap().clone()
}

/// What was sent is in the memories, each message in one of them; and almost all that came by a CPU
/// in that of this CPU: some of another may arrive while it polls the queue.
fn assert_apart(node: &Node, sent: &[u64], probes: u64, what: Place) {
    let all: u64 = sent.iter().sum();
    let ledger = settle(node, "inc", all + probes);
    ledger.assert_fates(&[("answered", all + probes)], &what);
    let memories = memories(node);
    assert_eq!(memories.iter().sum::<u64>(), all, "{what}: {memories:?}");
    let paths = instances(node, "paths", "inc");
    let received = |path: &Value| path["received"].as_u64().unwrap();
    let sum: u64 = paths.iter().map(received).sum();
    assert_eq!(sum, all + probes, "{what}: {paths:#?}");
    for (cpu, sent) in sent.iter().enumerate() {
        println!("{what}, CPU {cpu}: {sent} sent, {} counted", memories[cpu]);
        assert!(memories[cpu] >= sent - sent / 20, "{what}: {memories:?}");
        assert_eq!(paths[cpu]["name"], format!("inc@{cpu}"));
        assert!(received(&paths[cpu]) >= memories[cpu], "{what}: {paths:#?}");
    }
}

#[test]
fn each_cpu_counts_what_arrives_there() {
    if skip_here() {
        return;
    }
    for place in PLACES {
        let rig = two_queues("percpu", false);
        let node = rig.node(config(place)).start().unwrap();
        let (clients, probes) = clients(&rig, place);
        let sent = count(&clients, || ());
        assert_apart(&node, &sent, probes, place);
        let status = node.status().unwrap();
        let path = entry(&status, "paths", "inc");
        assert_eq!(path["tier"], place.tier, "{path:#}");
        let ran = &path["ran_in"];
        let other = if place.tier == "user" {
            "kernel"
        } else {
            "user"
        };
        assert_eq!(ran[place.tier], path["received"], "{path:#}");
        assert_eq!(ran[other], 0, "{path:#}");
        let handler = entry(&status, "handlers", "counter");
        assert_eq!(handler["ran_in"], *ran, "{handler:#}");
        node.stop().unwrap();
    }
}

/// Both instances at once and each by itself, while messages come by both CPUs.
#[test]
fn tiers_change_under_traffic() {
    if skip_here() {
        return;
    }
    for mode in ["native", "tcx"] {
        let place = Place::new(mode, "kernel");
        let rig = two_queues("percputiers", false);
        let node = rig.node(config(place)).start().unwrap();
        let (clients, probes) = clients(&rig, place);
        let tier = |request: &str, path: &str| {
            let mut asked = json!({ "request": request, "path": path });
            if request == "promote" {
                asked["shadow"] = json!(0);
            }
            let answer = ask(&node, &asked).unwrap();
            answer["tier"].as_str().unwrap().to_owned()
        };
        let sent = count(&clients, || {
            for _ in 0..10 {
                assert_eq!(tier("demote", "inc"), "user");
                assert_eq!(tier("promote", "inc@1"), "kernel");
                let status = node.status().unwrap();
                assert_eq!(entry(&status, "paths", "inc")["tier"], "kernel,user");
                assert_eq!(tier("promote", "inc"), "kernel");
            }
        });
        assert_apart(&node, &sent, probes, place);
        let status = node.status().unwrap();
        let ran = &entry(&status, "paths", "inc")["ran_in"];
        assert!(ran["user"] != 0 && ran["kernel"] != 0, "{ran}");
        node.stop().unwrap();
    }
}

/// A handler that is loaded into a running node, swapped and unloaded is all of its instances.
#[test]
fn it_comes_changes_and_goes_as_one() {
    if skip_here() {
        return;
    }
    let place = Place::new("native", "kernel");
    let rig = two_queues("percpuload", false);
    let node = rig
        .node(place.config().text("[node]\nname = 'late'"))
        .start()
        .unwrap();
    let file = ashway_rig::handler("counter").unwrap();
    let load = json!({
        "request": "load", "file": file, "allow": ["reply"], "instances": "per-cpu",
    });
    assert_eq!(ask(&node, &load).unwrap()["handler"], "counter");
    let taken = ask(&node, &load).unwrap_err();
    assert!(
        taken["message"].as_str().unwrap().contains("already"),
        "{taken:#}"
    );
    let bind = |more: Value| {
        let mut request = json!({
            "request": "bind", "handler": "counter", "path": "inc", "iface": ["b0"],
            "match": format!("udp and dst port {PORT}"),
        });
        let more = more.as_object().unwrap().clone();
        request.as_object_mut().unwrap().extend(more);
        ask(&node, &request)
    };
    for more in [json!({ "share": "10 %" }), json!({ "order": "path" })] {
        let said = bind(more).unwrap_err();
        let said = said["message"].as_str().unwrap();
        assert!(said.contains("`instances = \"per-cpu\"`"), "{said}");
    }
    let bound = bind(json!({ "tier": "kernel" })).unwrap();
    assert_eq!(
        (&bound["path"], &bound["tier"]),
        (&json!("inc"), &json!("kernel"))
    );

    let (clients, probes) = clients(&rig, place);
    let first = count(&clients, || ());
    assert_apart(&node, &first, probes, place);

    // One of them is meant where only one can be, and none goes alone.
    for (request, about, instead) in [
        (
            json!({ "request": "memory", "handler": "counter" }),
            "counter",
            "counter@0",
        ),
        (
            json!({ "request": "log", "handler": "counter" }),
            "counter",
            "counter@0",
        ),
        (
            json!({ "request": "unbind", "path": "inc@1" }),
            "inc@1",
            "name `inc`",
        ),
        (
            json!({ "request": "remove", "path": "inc@0" }),
            "inc@0",
            "name `inc`",
        ),
        (
            json!({ "request": "unload", "handler": "counter@1" }),
            "counter@1",
            "name `counter`",
        ),
        (
            json!({ "request": "unload", "handler": "counter" }),
            "path `inc`",
            "unbind inc",
        ),
        (
            json!({
                "request": "bind", "handler": "counter@1", "path": "one", "iface": ["b0"],
                "match": "udp and dst port 9",
            }),
            "counter@1",
            "name `counter`",
        ),
        (
            json!({ "request": "create", "module": "handler:counter@1", "attrs": {
                "pathname": "eth:b0", "local": "10.7.0.2:9" } }),
            "instance of handler `counter`",
            "bind counter",
        ),
    ] {
        let refused = ask(&node, &request).unwrap_err();
        let words = ["message", "hint"].map(|key| refused[key].as_str().unwrap());
        assert!(
            words[0].contains(about) && words[1].contains(instead),
            "{refused:#}"
        );
    }

    // Another version, in all of them: it has a memory that begins anew.
    let swapped = ask(
        &node,
        &json!({ "request": "swap", "handler": "counter", "file": file, "params": { "step": 3 } }),
    );
    assert_eq!(swapped.unwrap()["handler"], "counter");
    let second = count(&clients, || ());
    let all: u64 = first.iter().chain(&second).sum();
    let _ = settle(&node, "inc", all + probes);
    let counted: u64 = memories(&node).iter().sum();
    assert_eq!(counted, 3 * second.iter().sum::<u64>());

    let gone = ask(&node, &json!({ "request": "unbind", "path": "inc" })).unwrap();
    assert_eq!(gone["path"], "inc");
    ask(&node, &json!({ "request": "unload", "handler": "counter" })).unwrap();
    let status = node.status().unwrap();
    for list in ["handlers", "paths"] {
        assert_eq!(status[list], json!([]), "{status:#}");
    }
    node.stop().unwrap();
}

/// `apply` brings it, changes it and takes it, and says so once.
#[test]
fn a_file_brings_it_and_takes_it() {
    if skip_here() {
        return;
    }
    let place = Place::new("tcx", "kernel");
    let rig = two_queues("percpuapply", false);
    let node = rig.node(place.config()).start().unwrap();
    let apply = |text: String| {
        fs::write(node.config(), text).unwrap();
        let asked = json!({ "request": "apply", "file": node.config() });
        let done = ask(&node, &asked).unwrap();
        let steps = done["steps"].as_array().unwrap().iter();
        steps
            .map(|step| {
                format!(
                    "{} {}",
                    step["do"].as_str().unwrap(),
                    step["name"].as_str().unwrap()
                )
            })
            .collect::<Vec<_>>()
    };
    let steps = apply(config(place).into());
    assert_eq!(steps.len(), 2, "{steps:?}");
    assert!(steps.iter().any(|step| step.ends_with(" inc")), "{steps:?}");
    let (clients, probes) = clients(&rig, place);
    let sent = count(&clients, || ());
    assert_apart(&node, &sent, probes, place);

    // The same once more changes nothing; by the user tier it keeps its memories.
    assert_eq!(apply(config(place).into()), [""; 0]);
    let user = Place {
        tier: "user",
        ..place
    };
    let steps = apply(config(user).into());
    assert_eq!(steps.len(), 1, "{steps:?}");
    let more = count(&clients, || ());
    let all: Vec<u64> = sent
        .iter()
        .zip(&more)
        .map(|(one, other)| one + other)
        .collect();
    assert_apart(&node, &all, probes, user);

    let steps = apply(place.config().into());
    assert_eq!(steps.len(), 2, "{steps:?}");
    let status = node.status().unwrap();
    assert_eq!(status["handlers"], json!([]), "{status:#}");
    node.stop().unwrap();
}

/// Only who knows by which CPU a message came can lead it there.
#[test]
fn a_packet_socket_does_not_know_the_cpu() {
    if skip_here() {
        return;
    }
    let rig = two_queues("percpupacket", false);
    let node = rig
        .node(Place::new("packet", "user").config())
        .start()
        .unwrap();
    let file = ashway_rig::handler("counter").unwrap();
    let load = run(&mut node.command([
        "handler",
        "load",
        file.to_str().unwrap(),
        "--instances",
        "per-cpu",
    ]));
    assert!(!load.status.success());
    let said = text(&load);
    assert!(
        said.contains("no interface of this node has programs"),
        "{said}"
    );
    node.stop().unwrap();
}
