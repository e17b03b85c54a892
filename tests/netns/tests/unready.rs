//! Modules that cannot be initialised: all of them are named by line, whether a node is to be
//! started or brought to another file, and nothing is half done.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use ashway_netns::node::{Config, at_rest, control, run, text};
use ashway_netns::traffic::{PLACES, Place, path};
use ashway_rig::{Node, Rig, RigOptions, skip_unless_root};
use serde_json::{Value, json};

/// A handler that counts, with a tap on its way.
fn base(place: Place) -> Config {
    let config = place.config().handler("counter").unwrap();
    let config = config.text(
        "[module.ear]\nkind = 'tap'\nlayer = 'payload'\ndown = 'udp.up'\nfile = 'ear.pcapng'\n\
         [module.app]\nkind = 'handler'\nhandler = 'counter'\ndown = 'ear.up'",
    );
    path(config, "counter", "counter", 7777, place, "")
}

/// Adds four taps to a file: two cannot write, the others could. With the lines of the two.
fn with_taps(config: Config) -> (Config, [usize; 2]) {
    let lines = String::from(config.clone()).lines().count();
    let tap = |name: &str, file: &str| {
        format!("[module.{name}]\nkind = 'tap'\ndown = 'udp.up'\nfile = '{file}'\n")
    };
    let taps = [
        tap("fresh", "fresh.pcapng"),
        tap("lost", "nowhere/lost.pcapng"),
        tap("kept", "kept.pcapng"),
        // Nobody makes a file there, and root, too, is told so only when it tries.
        tap("proc", "/proc/proc.pcapng"),
    ];
    (
        config.text(taps.concat().trim_end()),
        [lines + 5, lines + 13],
    )
}

const SAID: [&str; 2] = [
    "module `lost` cannot be initialised: cannot write `",
    "module `proc` cannot be initialised: cannot write `/proc/proc.pcapng`",
];
const HINT: &str = "name a file that the node may write";

/// The files beside the configuration.
fn beside(file: &Path) -> Vec<OsString> {
    let all = fs::read_dir(file.parent().unwrap()).unwrap();
    let mut names: Vec<_> = all.map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    names
}

fn ask(node: &Node, verb: &str) -> Result<Value, Value> {
    control(node, &json!({ "request": verb, "file": node.config() }))
}

#[test]
fn a_running_node_is_told_of_every_module_that_cannot_be_initialised_and_goes_on() {
    if skip_unless_root() {
        return;
    }
    for place in [PLACES[0], PLACES[4]] {
        let rig = Rig::new("unready", RigOptions::default()).unwrap();
        let node = rig.node(base(place)).start().unwrap();
        let client = rig.client_a(7777).unwrap();
        assert_eq!(client.ask_number(1).unwrap(), 1, "{place}");
        let kept = node.config().with_file_name("kept.pcapng");
        fs::write(&kept, "of somebody").unwrap();
        let (before, files) = (at_rest(&node), beside(node.config()));

        let (wrong, lines) = with_taps(base(place));
        fs::write(node.config(), String::from(wrong)).unwrap();
        for verb in ["plan", "apply"] {
            let refused = ask(&node, verb).unwrap_err();
            assert_eq!(refused["code"], "usage", "{place}: {refused:#}");
            let errors = refused["errors"].as_array().unwrap();
            assert_eq!(errors.len(), 2, "{place}: {refused:#}");
            for ((error, line), said) in errors.iter().zip(lines).zip(SAID) {
                assert_eq!(error["line"], line, "{place}: {refused:#}");
                let message = error["message"].as_str().unwrap();
                assert!(message.starts_with(said), "{place}: {message}");
                assert_eq!(error["hint"], HINT, "{place}");
            }
        }
        assert_eq!(beside(node.config()), files, "{place}");
        assert_eq!(fs::read(&kept).unwrap(), b"of somebody", "{place}");
        let after = at_rest(&node);
        for list in ["handlers", "paths", "taps"] {
            assert_eq!(before[list], after[list], "{place}");
        }
        assert_eq!(client.ask_number(1).unwrap(), 2, "{place}");

        // Its modules are those that it had.
        fs::write(node.config(), String::from(base(place))).unwrap();
        let same = ask(&node, "plan").unwrap();
        assert_eq!(same["steps"], json!([]), "{place}: {same:#}");
        // And the files that could be written can be.
        let (wrong, _) = with_taps(base(place));
        let right = String::from(wrong)
            .replace("nowhere/", "")
            .replace("/proc/", "");
        fs::write(node.config(), right).unwrap();
        ask(&node, "apply").unwrap();
        assert_ne!(fs::read(&kept).unwrap(), b"of somebody", "{place}");
        let status = at_rest(&node);
        assert_eq!(status["taps"].as_array().unwrap().len(), 5, "{place}");
        assert_eq!(client.ask_number(1).unwrap(), 3, "{place}");
        node.stop().unwrap();
    }
}

#[test]
fn a_node_does_not_start_with_modules_that_cannot_be_initialised() {
    if skip_unless_root() {
        return;
    }
    for place in [PLACES[0], PLACES[4]] {
        let rig = Rig::new("unready-run", RigOptions::default()).unwrap();
        let (wrong, lines) = with_taps(base(place));
        let mut node = rig.node(wrong).launch().unwrap();
        assert_eq!(node.wait().unwrap().code(), Some(2), "{place}");
        let said = node.output();
        for (said_of, line) in SAID.iter().zip(lines) {
            let at = format!("{}:{line}:", node.config().display());
            for part in [format!("error: {said_of}"), at, format!("= help: {HINT}")] {
                assert!(said.contains(&part), "{place}: no `{part}` in:\n{said}");
            }
        }
        let names = beside(node.config());
        let begun = |name: &&OsString| name.to_string_lossy().ends_with("pcapng");
        assert_eq!(names.iter().find(begun), None, "{place}");
        let link = run(rig.command_b("ip").args(["link", "show", "b0"]));
        assert!(!text(&link).contains("xdp"), "{place}: {}", text(&link));
    }
}
