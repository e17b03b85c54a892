//! What belongs to a process goes with it, whatever way it ends, and its messages have
//! the next best path or the host (ASH-32); what is unloaded leaves nothing in the
//! kernel.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use std::collections::BTreeSet;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ashway_netns::node::{Config, at_rest, control, entry, ordinary, run, shift, text, until};
use ashway_netns::traffic::{Over, PLACES, settle};
use ashway_rig::{Node, Rig, RigOptions, handler, skip_unless_root};
use serde_json::{Value, json};

/// The maps and programs that a node holds, by their kernel ids: it pins none, so these
/// are all that it has. Which they are may change, their number not: where the demux gets
/// another shape, an interface has another entry program, and another map for its entries.
fn kernel_objects(node: &Node) -> BTreeSet<String> {
    let fds = std::fs::read_dir(format!("/proc/{}/fdinfo", node.id())).unwrap();
    let infos = fds.filter_map(|fd| std::fs::read_to_string(fd.ok()?.path()).ok());
    let ids = infos.flat_map(|info| {
        let lines = info
            .lines()
            .filter(|line| line.starts_with("map_id:") || line.starts_with("prog_id:"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    });
    ids.collect()
}

/// Has a path of this shape come and go: the interface's program keeps the map of a shape
/// that was there, for the next. How many objects that makes.
fn know_shape(node: &Node, handler: &str, filter: &str) -> usize {
    let before = kernel_objects(node).len();
    bind(node, handler, "shape", filter, &json!({ "tier": "user" }));
    until("the program has the shape", || {
        let operations = node.status().unwrap()["operations"].clone();
        operations.as_array().unwrap().is_empty().then_some(())
    });
    control(node, &json!({ "request": "unbind", "path": "shape" })).unwrap();
    kernel_objects(node).len() - before
}

/// An application: it sleeps.
fn application() -> Child {
    let mut sleep = Command::new("sleep");
    sleep.arg("1000").stdin(Stdio::null()).spawn().unwrap()
}

fn load(node: &Node, file: &str, name: &str, owner: Option<u32>) {
    let file = handler(file).unwrap();
    let request = json!({
        "request": "load", "file": file, "name": name, "allow": ["reply"], "owner": owner,
    });
    control(node, &request).unwrap();
}

fn bind(node: &Node, handler: &str, path: &str, filter: &str, more: &Value) -> Value {
    let mut request = json!({
        "request": "bind", "handler": handler, "path": path, "iface": ["b0"], "match": filter,
    });
    for (key, value) in more.as_object().unwrap() {
        request[key] = value.clone();
    }
    control(node, &request).unwrap()
}

fn names(status: &Value, list: &str) -> Vec<String> {
    let entries = status[list].as_array().unwrap().iter();
    entries
        .map(|entry| entry["name"].as_str().unwrap().to_owned())
        .collect()
}

/// Unloaded is refused while something uses it, and then leaves nothing: not in the
/// kernel, not in the lists, and its name is free.
#[test]
fn what_is_unloaded_leaves_nothing() {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("unload", RigOptions::default()).unwrap();
    for place in PLACES {
        let config = place.config().handler("counter").unwrap();
        let node = rig
            .node(config.path("counter", 7777, "user"))
            .start()
            .unwrap();
        let steady = rig.client_a(7777).unwrap();
        let before = kernel_objects(&node);
        let words = |words: &[&str]| {
            let output = run(&mut node.command(words));
            (output.status.code(), text(&output))
        };
        for round in 1..=3 {
            load(&node, "ledger", "other", None);
            load(&node, "echo", "echo", None);
            // Those behind the one that goes keep their paths.
            bind(
                &node,
                "echo",
                "behind",
                "udp and dst port 8001",
                &json!({ "tier": place.tier }),
            );
            bind(
                &node,
                "other",
                "p",
                "udp and dst port 8000",
                &json!({ "tier": place.tier }),
            );
            let behind = rig.client_a(8001).unwrap();
            assert_eq!(rig.client_a(8000).unwrap().ask(&[0; 16]).unwrap().len(), 16);
            let (code, said) = words(&["handler", "unload", "other"]);
            assert_eq!(code, Some(1), "{place}: {said}");
            assert!(
                said.contains("used by path `p`") && said.contains("`ashway unbind p`"),
                "{said}"
            );
            let (code, said) = words(&["unbind", "p"]);
            assert_eq!(code, Some(0), "{place}: {said}");
            let (code, said) = words(&["handler", "unload", "other"]);
            assert_eq!(code, Some(0), "{place}: {said}");
            assert_eq!(behind.ask(b"still").unwrap(), b"still", "{place}");
            assert_eq!(steady.ask_number(1).unwrap(), round, "{place}");
            let (code, said) = words(&["handler", "unload", "other"]);
            assert!(
                code == Some(1) && said.contains("no handler `other`"),
                "{said}"
            );
            let status = node.status().unwrap();
            assert_eq!(names(&status, "handlers"), ["counter", "echo"], "{place}");
            words(&["unbind", "behind"]);
            let (code, said) = words(&["handler", "unload", "echo"]);
            assert_eq!(code, Some(0), "{place}: {said}");
            until("its maps and programs are gone", || {
                (kernel_objects(&node).len() == before.len()).then_some(())
            });
        }
        // A handler of the file, too, once nothing uses it.
        let (_, said) = words(&["handler", "unload", "counter"]);
        assert!(said.contains("used by path `counter`"), "{said}");
        words(&["unbind", "counter"]);
        let (code, said) = words(&["handler", "unload", "counter"]);
        assert_eq!(code, Some(0), "{place}: {said}");
        assert_eq!(names(&node.status().unwrap(), "handlers"), [""; 0]);
        load(&node, "echo", "counter", None);
        bind(
            &node,
            "counter",
            "new",
            "udp and dst port 7777",
            &json!({ "tier": place.tier }),
        );
        assert_eq!(steady.ask(b"hi").unwrap(), b"hi", "{place}");
        node.stop().unwrap();
    }
}

/// An application that ends in any way takes its handlers, paths, maps and programs
/// along within a second; what came for it goes to the next best path, and none of it
/// is lost.
#[test]
fn what_an_application_owns_goes_with_it() {
    if skip_unless_root() {
        return;
    }
    for place in PLACES {
        let mut soonest = Duration::MAX;
        for signal in ["KILL", "SEGV", "TERM"] {
            let rig = Rig::new("owner", RigOptions::default()).unwrap();
            let node = rig.node(place.config()).start().unwrap();
            // The next best path: less specific.
            load(&node, "echo", "echo", None);
            bind(
                &node,
                "echo",
                "next",
                "udp and dst port 7777",
                &json!({ "tier": place.tier }),
            );
            let mine = "udp and dst port 7777 and src net 10.7.0.0/16";
            for filter in [mine, "udp and dst port 7778"] {
                know_shape(&node, "echo", filter);
            }
            let before = kernel_objects(&node);
            let mut app = application();
            let pid = app.id();
            load(&node, "echo", "app", Some(pid));
            bind(&node, "app", "mine", mine, &json!({ "tier": place.tier }));
            // A path of the application to a handler of the node.
            bind(
                &node,
                "echo",
                "also",
                "udp and dst port 7778",
                &json!({
                    "tier": place.tier, "owner": pid,
                }),
            );
            let status = node.status().unwrap();
            assert_eq!(entry(&status, "handlers", "app")["owner"], pid);
            assert_eq!(entry(&status, "handlers", "echo")["owner"], Value::Null);
            assert_eq!(entry(&status, "paths", "also")["owner"], pid);
            let listed = text(&run(&mut node.command(["handler", "ls"])));
            assert!(listed.contains(&format!("process {pid}")), "{listed}");

            let over = AtomicBool::new(false);
            let (asked, gone) = std::thread::scope(|scope| {
                let _over = Over(&over);
                let traffic = scope.spawn(|| {
                    let client = rig.client_a(7777).unwrap();
                    let mut asked = 0_u64;
                    while !over.load(Ordering::Acquire) {
                        // In turn: a lost one would be missed at once.
                        let number = asked.to_be_bytes();
                        assert_eq!(client.ask(&number).unwrap(), number, "{place}");
                        asked += 1;
                    }
                    asked
                });
                until("the application has had messages", || {
                    let status = node.status().unwrap();
                    let mine = entry(&status, "paths", "mine")["received"].as_u64();
                    (mine > Some(50) || traffic.is_finished()).then_some(())
                });
                let begin = Instant::now();
                let kill = Command::new("kill")
                    .args(["-s", signal, &pid.to_string()])
                    .status();
                assert!(kill.unwrap().success());
                until("its objects are gone", || {
                    let status = node.status().unwrap();
                    let alone = names(&status, "handlers") == ["echo"]
                        && names(&status, "paths") == ["next"];
                    let as_before = kernel_objects(&node).len() == before.len();
                    (alone && as_before || traffic.is_finished()).then_some(())
                });
                let gone = begin.elapsed();
                let next = entry(&node.status().unwrap(), "paths", "next")["received"].as_u64();
                until("the next path has the messages", || {
                    let status = node.status().unwrap();
                    let now = entry(&status, "paths", "next")["received"].as_u64();
                    (now > next || traffic.is_finished()).then_some(())
                });
                over.store(true, Ordering::Release);
                (traffic.join().unwrap(), gone)
            });
            app.wait().unwrap();
            soonest = soonest.min(gone);
            println!("{place}, SIG{signal}: gone within {gone:?}, {asked} asked, none lost");
            let status = at_rest(&node);
            let next = entry(&status, "paths", "next");
            assert_eq!(next["fates"]["answered"], next["received"], "{next:#}");
            // Its name and its place are free.
            load(&node, "echo", "app", None);
            bind(&node, "app", "mine", mine, &json!({ "tier": place.tier }));
            assert_eq!(rig.client_a(7777).unwrap().ask(b"again").unwrap(), b"again");
            node.stop().unwrap();
        }
        // The promise. A busy machine may keep the node from one of three, and not from all.
        let promised = Duration::from_secs(1);
        assert!(
            soonest < promised,
            "{place}: gone within {soonest:?} at the soonest"
        );
    }
}

/// An application that ends while its handler is compiled, recorded or compared for a
/// promotion takes that with it: who asked is told, and nothing is left.
#[test]
fn an_owner_that_ends_in_a_promotion_leaves_nothing() {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("owner-promotes", RigOptions::default()).unwrap();
    let node = rig.node(Config::on_b0("native")).start().unwrap();
    let filter = "udp and dst port 7777";
    let before = kernel_objects(&node).len();
    load(&node, "echo", "first", None);
    let before = before + know_shape(&node, "first", filter);
    control(&node, &json!({ "request": "unload", "handler": "first" })).unwrap();
    let mut told = Vec::new();
    // At once it is compiled, then it waits for messages to record.
    for wait in [0, 50, 300] {
        let mut app = application();
        load(&node, "echo", "app", Some(app.id()));
        bind(&node, "app", "mine", filter, &json!({ "tier": "auto" }));
        shift(&node, "demote", "mine");
        let promoted = std::thread::scope(|scope| {
            let asked =
                scope.spawn(|| control(&node, &json!({ "request": "promote", "path": "mine" })));
            std::thread::sleep(Duration::from_millis(wait));
            app.kill().unwrap();
            app.wait().unwrap();
            asked.join().unwrap()
        });
        if let Err(why) = promoted {
            let says = why["message"].as_str().unwrap();
            assert!(says.contains("mine") || says.contains("unbound"), "{says}");
            told.push(says.to_owned());
        }
        until("its objects are gone", || {
            let status = node.status().unwrap();
            let none = ["handlers", "paths"].map(|list| names(&status, list).is_empty());
            let as_before = kernel_objects(&node).len() == before;
            (none == [true; 2] && as_before).then_some(())
        });
    }
    // At least the one that waited was in the middle.
    let unbound = |says: &String| says.contains("unbound");
    assert!(told.iter().any(unbound), "{told:?}");
    // Nobody waits for what is gone.
    load(&node, "echo", "app", None);
    bind(&node, "app", "mine", filter, &json!({ "tier": "auto" }));
    shift(&node, "demote", "mine");
    shift(&node, "promote", "mine");
    assert_eq!(rig.client_a(7777).unwrap().ask(b"again").unwrap(), b"again");
    node.stop().unwrap();
}

/// Where no other path matches, the messages are the host's.
#[test]
fn without_another_path_the_host_has_the_messages() {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("owner-host", RigOptions::default()).unwrap();
    let host = ordinary(&rig, 7777);
    let node = rig.node(Config::on_b0("native")).start().unwrap();
    let mut app = application();
    load(&node, "echo", "app", Some(app.id()));
    bind(&node, "app", "mine", "udp and dst port 7777", &json!({}));
    let client = rig.client_a(7777).unwrap();
    assert_eq!(client.ask(b"mine").unwrap(), b"mine");
    app.kill().unwrap();
    // Before anybody has waited for it.
    until("its path is gone", || {
        node.status().unwrap()["paths"]
            .as_array()
            .unwrap()
            .is_empty()
            .then_some(())
    });
    client.send(b"host").unwrap();
    let mut bytes = [0; 16];
    assert_eq!(host.recv(&mut bytes).unwrap(), 4);
    app.wait().unwrap();
    node.wait_for_line(|line| line.contains("1 handler and 1 path gone with it"))
        .unwrap();
    node.stop().unwrap();
}

/// Owners that cannot be are refused, with nothing half done.
#[test]
fn only_a_process_that_lives_owns() {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("owner-none", RigOptions::default()).unwrap();
    let node = rig.node(Config::on_b0("native")).start().unwrap();
    let mut dead = application();
    let pid = dead.id();
    dead.kill().unwrap();
    until("it has ended", || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.contains(") Z ").then_some(())
    });
    let unwaited = json!(pid);
    let file = handler("echo").unwrap();
    for owner in [
        unwaited,
        json!(0),
        json!(-1),
        json!(u64::MAX),
        json!("me"),
        json!([1]),
    ] {
        let request = json!({ "request": "load", "file": file, "owner": owner });
        let refused = control(&node, &request).unwrap_err();
        assert_eq!(refused["code"], "usage", "{owner}: {refused}");
        assert!(
            refused["hint"].as_str().unwrap().contains("caller"),
            "{refused}"
        );
    }
    dead.wait().unwrap();
    assert_eq!(names(&node.status().unwrap(), "handlers"), [""; 0]);
    // Whoever asks may be the owner: this test, which goes on.
    let request = json!({ "request": "load", "file": file, "owner": "caller", "allow": ["reply"] });
    control(&node, &request).unwrap();
    let status = node.status().unwrap();
    assert_eq!(
        entry(&status, "handlers", "echo")["owner"],
        std::process::id()
    );
    bind(&node, "echo", "echo", "udp and dst port 7777", &json!({}));
    let client = rig.client_a(7777).unwrap();
    for _ in 0..3 {
        assert_eq!(client.ask(b"hi").unwrap(), b"hi");
    }
    settle(&node, "echo", 3).assert_fates(&[("answered", 3)], &"echo");
    node.stop().unwrap();
}
