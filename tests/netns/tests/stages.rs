//! A handler that comes while a node runs is a stage for paths to come: in the middle of
//! its graph, or below UDP (SCT-33, Scout's extension by an interpreted module).

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use std::path::PathBuf;

use ashway_netns::node::{Config, control, entry, run, text, until};
use ashway_netns::traffic::PLACES;
use ashway_rig::{B4, Node, Rig, RigOptions, skip_unless_root};
use serde_json::{Value, json};

/// A file beside the node's configuration.
fn file(node: &Node, name: &str, source: &str) -> PathBuf {
    let file = node.config().with_file_name(name);
    std::fs::write(&file, wat::parse_str(source).unwrap()).unwrap();
    file
}

/// Lets messages go on whose first byte is odd, and drops the others.
fn odd() -> String {
    use ashway_abi::Verdict;
    format!(
        r#"(module
            (import "ashway" "msg_load8" (func $load8 (param i32) (result i32)))
            (memory (export "memory") 1 1)
            (func (export "on_rx") (param i32 i32) (result i32)
                (select (i32.const {}) (i32.const {})
                    (i32.and (call $load8 (i32.const 0)) (i32.const 1)))))"#,
        Verdict::Forward as u32,
        Verdict::Drop as u32
    )
}

fn create(node: &Node, name: &str, through: &str, port: u16) -> Result<Value, Value> {
    let request = json!({
        "request": "create", "name": name, "module": "end",
        "attrs": { "local": format!("{B4}:{port}"), "pathname": format!("{through}eth:b0") },
    });
    control(node, &request)
}

/// A stage between UDP and a sink, for the paths that are created through it; those that
/// are there notice nothing.
#[test]
fn a_handler_becomes_a_stage_of_a_running_graph() {
    if skip_unless_root() {
        return;
    }
    for place in PLACES {
        let rig = Rig::new("stages", RigOptions::default()).unwrap();
        let config = place
            .config()
            .text("[module.end]\nkind = 'sink'\ndown = 'udp.up'\n");
        let node = rig.node(config).start().unwrap();
        create(&node, "before", "udp/", 7000).unwrap();
        // Not yet.
        let early = create(&node, "early", "handler:odd/udp/", 7001).unwrap_err();
        assert!(
            early["message"].as_str().unwrap().contains("handler:odd"),
            "{early}"
        );
        let wasm = file(&node, "odd.wasm", &odd());
        let wasm = wasm.to_str().unwrap();
        let stage = [
            "handler", "load", wasm, "--down", "udp.up", "--up", "end.down",
        ];
        let loaded = run(&mut node.command(stage));
        assert!(loaded.status.success(), "{place}: {}", text(&loaded));
        create(&node, "after", "handler:odd/udp/", 7001).unwrap();

        let (before, after) = (rig.client_a(7000).unwrap(), rig.client_a(7001).unwrap());
        for byte in 0..10 {
            before.send(&[byte; 32]).unwrap();
            after.send(&[byte; 32]).unwrap();
        }
        let fates = until("all have arrived", || {
            let status = node.status().unwrap();
            let [before, after] =
                ["before", "after"].map(|path| entry(&status, "paths", path).clone());
            (before["received"] == 10 && after["received"] == 10).then_some([before, after])
        });
        let [before, after] = fates.map(|path| path["fates"].clone());
        assert_eq!(before["consumed"], 10, "{place}: {before:#}");
        assert_eq!(
            (&after["consumed"], &after["dropped"]["handler"]),
            (&json!(5), &json!(5)),
            "{place}"
        );

        // It is shown to run, and stays as long as the path does.
        let status = node.status().unwrap();
        assert_eq!(entry(&status, "handlers", "odd")["tier"], "user", "{place}");
        let shown = text(&run(&mut node.command(["path", "show", "after"])));
        assert!(shown.contains("end / handler:odd / "), "{place}: {shown}");
        let unload = |code: i32| {
            let output = run(&mut node.command(["handler", "unload", "odd"]));
            assert_eq!(
                output.status.code(),
                Some(code),
                "{place}: {}",
                text(&output)
            );
            text(&output)
        };
        let said = unload(1);
        assert!(
            said.contains("used by path `after`") && said.contains("path rm after"),
            "{said}"
        );
        assert!(
            run(&mut node.command(["path", "rm", "after"]))
                .status
                .success()
        );
        assert_eq!(
            entry(&node.status().unwrap(), "handlers", "odd")["tier"],
            "unbound"
        );
        unload(0);
        create(&node, "late", "handler:odd/udp/", 7001).unwrap_err();
        // The paths that were there have lost nothing.
        let steady = rig.client_a(7000).unwrap();
        steady.send(&[0; 32]).unwrap();
        until("the first path goes on", || {
            let status = node.status().unwrap();
            (entry(&status, "paths", "before")["fates"]["consumed"] == 11).then_some(())
        });
        node.stop().unwrap();
    }
}

/// Where nothing can stand a handler does not come, and nothing has changed.
#[test]
fn a_stage_in_the_wrong_place_is_refused() {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("stages-wrong", RigOptions::default()).unwrap();
    let config = Config::on_b0("native").text("[module.end]\nkind = 'sink'\ndown = 'udp.up'\n");
    let node = rig.node(config).start().unwrap();
    let wasm = file(&node, "odd.wasm", &odd());
    for (down, up, says) in [
        ("nobody.up", None, "no module `nobody`"),
        ("udp.sideways", None, "no service `sideways`"),
        ("udp", None, "`udp`"),
        ("eth:b0.up\u{1b}[31m", None, "no service"),
        ("udp.up", Some("end.up"), "no service `up`"),
        // What stands on UDP, and what UDP stands on: a circle.
        ("udp.up", Some("udp.down"), ""),
    ] {
        let request = json!({
            "request": "load", "file": wasm, "name": "odd", "down": down, "up": up,
        });
        let refused = control(&node, &request).unwrap_err();
        let message = refused["message"].as_str().unwrap();
        assert!(message.contains(says), "{down}, {up:?}: {refused}");
        assert!(!message.contains(".toml"), "{refused}");
        assert_eq!(
            node.status().unwrap()["handlers"],
            json!([]),
            "{down}, {up:?}"
        );
    }
    let alone = json!({ "request": "load", "file": wasm, "up": "end.down" });
    let refused = control(&node, &alone).unwrap_err();
    assert!(
        refused["message"].as_str().unwrap().contains("no `down`"),
        "{refused}"
    );
    create(&node, "works", "udp/", 7000).unwrap();
    node.stop().unwrap();
}
