//! Lines that a handler logs: the same in every place, kept however it ends, counted
//! where they are too many, and harmless to a terminal.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use ashway_netns::node::{Config, Lines, control, entry, run, text};
use ashway_netns::traffic::{PLACES, settle};
use ashway_rig::{Rig, RigOptions, handler, skip_unless_root};
use serde_json::{Value, json};

fn config(config: Config, file: &str, tier: &str) -> Config {
    let section = format!("[handler.says]\nfile = {file:?}\nallow = [\"reply\", \"log\"]\n");
    config.text(&section).path("says", 7021, tier)
}

fn texts(log: &Value) -> Vec<String> {
    let lines = log["lines"].as_array().unwrap().iter();
    lines
        .map(|line| {
            assert_eq!(line["path"], "says", "{line}");
            assert!(line["at_ns"].as_u64() > Some(0), "{line}");
            line["text"].as_str().unwrap().to_owned()
        })
        .collect()
}

#[test]
fn a_handler_says_the_same_in_every_place() {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("log", RigOptions::default()).unwrap();
    let file = handler("says").unwrap();
    for place in PLACES {
        let config = config(place.config(), file.to_str().unwrap(), place.tier);
        let node = rig.node(config).start().unwrap();
        let tier = entry(&node.status().unwrap(), "paths", "says")["tier"].clone();
        assert_eq!(tier, place.tier, "{place}: {}", node.output());
        let client = rig.client_a(7021).unwrap();
        client.ask(b"first").unwrap();
        client
            .ask(b"\x1b[31mred\x1b]0;title\x07 \xe2\x80\xaetxt \xff")
            .unwrap();
        client.ask(&[b'x'; 120]).unwrap();
        // Stopped, and passed on: nobody answers.
        rig.client_a(7021).unwrap().send(b"/0").unwrap();
        let _ = settle(&node, "says", 4);
        let look = |after: u64| {
            let request = json!({ "request": "log", "handler": "says", "after": after });
            control(&node, &request).unwrap()
        };
        let log = look(0);
        let long = "x".repeat(104);
        let red = "\\u{1b}[31mred\\u{1b}]0;title\\u{7} \\u{202e}txt \u{fffd}";
        let expected = ["first", "said", red, "said", &long, "said", "/0", "said"];
        assert_eq!(texts(&log), expected, "{place}");
        assert_eq!((&log["last"], &log["overwritten"]), (&json!(8), &json!(0)));
        assert_eq!(texts(&look(7)), ["said"], "{place}");

        // More than the ring keeps.
        for number in 0..40 {
            client.ask(format!("line {number}").as_bytes()).unwrap();
        }
        let log = look(8);
        assert_eq!(log["overwritten"], 80 - 64, "{place}");
        assert_eq!(texts(&log).last().unwrap(), "said", "{place}");
        assert_eq!(texts(&log)[62], "line 39", "{place}");

        let shown = run(&mut node.command(["handler", "log", "says"]));
        let shown = text(&shown);
        assert!(shown.contains("(24 earlier lines are gone)"), "{shown}");
        assert!(shown.contains("] says: line 39\n"), "{shown}");
        assert!(!shown.contains('\u{1b}'), "{shown:?}");
        let nobody = text(&run(&mut node.command(["handler", "log", "nobody"])));
        assert!(nobody.contains("there is no handler `nobody`"), "{nobody}");

        // What has been shown came before what is asked next: each is another look.
        let mut follows = Lines::start(node.command(["handler", "log", "says", "-f"])).unwrap();
        while !follows.hear().unwrap().ends_with("] says: line 39") {}
        assert!(follows.hear().unwrap().ends_with("] says: said"), "{place}");
        for number in 0..4 {
            client.ask(format!("look {number}").as_bytes()).unwrap();
            for expected in [&*format!("look {number}"), "said"] {
                let line = follows.hear().unwrap();
                assert!(
                    line.ends_with(&format!("] says: {expected}")),
                    "{place}: {line}"
                );
            }
        }
        drop(follows);
        node.stop().unwrap();
    }
}

/// Four lines of each activation, and a count of the others; the neighbour answers on.
#[test]
fn a_flood_of_lines_is_cut_and_counted() {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("logflood", RigOptions::default()).unwrap();
    let file = std::env::temp_dir().join(format!("{}.wasm", rig.name()));
    let wasm = wat::parse_str(
        r#"(module
            (import "ashway" "log" (func $log (param i32 i32)))
            (memory (export "memory") 1 1)
            (data (i32.const 0) "flood")
            (func (export "on_rx") (param i32 i32) (result i32) (local $i i32)
                (loop $again
                    (call $log (i32.const 0) (i32.const 5))
                    (br_if $again
                        (i32.lt_u
                            (local.tee $i (i32.add (local.get $i) (i32.const 1)))
                            (i32.const 50))))
                (i32.const 1)))"#,
    );
    std::fs::write(&file, wasm.unwrap()).unwrap();
    for place in PLACES {
        let config = config(place.config(), file.to_str().unwrap(), place.tier);
        let config = config
            .handler("echo")
            .unwrap()
            .path("echo", 7022, place.tier);
        let node = rig.node(config).start().unwrap();
        let client = rig.client_a(7021).unwrap();
        let neighbour = rig.client_a(7022).unwrap();
        for _ in 0..10 {
            client.ask(b"go").unwrap();
            neighbour.ask(b"still here").unwrap();
        }
        let request = json!({ "request": "log", "handler": "says", "after": 0 });
        let log = control(&node, &request).unwrap();
        assert_eq!(texts(&log), vec!["flood"; 40], "{place}");
        assert_eq!(log["too_many"], 10 * 46, "{place}");
        let status = node.status().unwrap();
        for (path, received) in [("says", 10), ("echo", 10)] {
            let ledger = settle(&node, path, received);
            ledger.assert_fates(&[("answered", received)], &place);
        }
        assert_eq!(status["paths"].as_array().unwrap().len(), 2);
        node.stop().unwrap();
    }
}
