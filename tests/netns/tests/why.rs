//! `ashway why`: what really happened to real messages, with its reason, path, stage
//! and line of the configuration, in both tiers.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use ashway_netns::node::{run, stock, text};
use ashway_netns::traffic::{PLACES, Place, path, settle};
use ashway_rig::{Frame, Node, Rig, Spoil, skip_unless_root};
use serde_json::{Value, json};

const PORT: u16 = 7777;

/// A path that replies, and one whose handler is stopped by each message.
fn node(rig: &Rig, place: Place) -> Node {
    let config = place.config().handler("echo").unwrap();
    let config = config.handler("divide").unwrap();
    let config = path(config, "echo", "echo", PORT, place, "");
    let config = path(
        config,
        "stop",
        "divide",
        PORT + 1,
        place,
        "on_fault = \"drop\"",
    );
    rig.node(config).start().unwrap()
}

/// The answer, which must be one.
fn why(node: &Node, words: &[&str]) -> Value {
    let words = ["why", "-j"].iter().chain(words);
    let output = run(&mut node.command(words));
    assert!(output.status.success(), "{}", text(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Number of the line of the node's configuration that begins so, behind the line
/// `section`.
fn line(node: &Node, section: &str, key: &str) -> usize {
    let file = std::fs::read_to_string(node.config()).unwrap();
    let mut lines = file
        .lines()
        .enumerate()
        .skip_while(|(_, line)| *line != section);
    lines.find(|(_, line)| line.starts_with(key)).unwrap().0 + 1
}

#[test]
fn a_dropped_message_has_its_reason_path_stage_and_line() {
    if skip_unless_root() {
        return;
    }
    let rig = stock("why");
    for place in PLACES {
        let node = node(&rig, place);
        let wire = rig.injector_a().unwrap();
        let frame = |spoil| Frame::to_b(PORT, b"sixteen bytes...").spoil(spoil).bytes();
        let spoils = [
            (Spoil::IpChecksum, "dropped_bad_ip_checksum", "ip"),
            (Spoil::UdpChecksum, "dropped_bad_udp_checksum", "udp"),
            (Spoil::UdpLength(40), "dropped_bad_length", "udp"),
        ];
        for (times, (spoil, ..)) in spoils.iter().enumerate() {
            for _ in 0..=times {
                wire.send(&frame(*spoil)).unwrap();
            }
        }
        wire.send(&Frame::to_b(PORT + 1, &[0, 0, 0, 7, 0, 0, 0, 0]).bytes())
            .unwrap();
        let _ = settle(&node, "echo", 6);
        let _ = settle(&node, "stop", 1);

        let filter = line(&node, "[path.echo]", "match");
        for (times, (_, counter, stage)) in spoils.iter().enumerate() {
            let answer = why(&node, &[counter]);
            let rows = answer["rows"].as_array().unwrap();
            assert_eq!(rows.len(), 1, "{place}: {answer:#}");
            let row = &rows[0];
            assert_eq!(row["path"], "echo", "{place}: {answer:#}");
            assert_eq!(row["count"], times + 1, "{place}: {answer:#}");
            assert_eq!(row["stage"], *stage, "{place}: {answer:#}");
            assert_eq!(row["line"], filter, "{place}: {answer:#}");
            assert_eq!(row["file"], json!(node.config()), "{place}: {answer:#}");
            assert_eq!(row["tier"], place.tier, "{place}: {answer:#}");
        }

        // The same for a person.
        let said = run(&mut node.command(["why", "bad_udp_checksum"]));
        let said = text(&said);
        let at = format!("{}:{filter}", node.config().display());
        for words in [
            "UDP checksum is wrong",
            "path `echo`: 2, at stage `udp`",
            &at,
            "hint:",
        ] {
            assert!(said.contains(words), "{place}: `{words}`: {said}");
        }

        // By the path, and for a handler that was stopped.
        let answer = why(&node, &["stop"]);
        let rows = answer["rows"].as_array().unwrap();
        let dropped = rows.iter().find(|row| row["counter"] == "dropped_fault");
        let dropped = dropped.unwrap_or_else(|| panic!("{place}: {answer:#}"));
        assert_eq!(dropped["stage"], "handler:divide", "{place}: {answer:#}");
        let on_fault = line(&node, "[path.stop]", "on_fault");
        assert_eq!(dropped["line"], on_fault, "{place}: {answer:#}");
        let aborted = rows.iter().find(|row| {
            let counter = row["counter"].as_str().unwrap();
            counter.starts_with("abort_")
        });
        let aborted = aborted.unwrap_or_else(|| panic!("{place}: {answer:#}"));
        assert!(
            aborted["last_fault"]["count"].as_u64() >= Some(1),
            "{answer:#}"
        );
        node.stop().unwrap();
    }
}

#[test]
fn a_flow_goes_where_why_says() {
    if skip_unless_root() {
        return;
    }
    let rig = stock("whyflow");
    for place in PLACES {
        let node = node(&rig, place);
        let flow = format!("udp 10.0.0.1:40000 > 10.0.0.2:{PORT}");
        let answer = why(&node, &[&flow]);
        assert_eq!(answer["path"], "echo", "{place}: {answer:#}");
        assert_eq!(answer["tier"], place.tier, "{place}: {answer:#}");
        assert_eq!(
            answer["line"],
            line(&node, "[path.echo]", "match"),
            "{answer:#}"
        );
        let stages = answer["stages"].as_array().unwrap();
        assert_eq!(stages.last(), Some(&json!("handler:echo")), "{answer:#}");
        let client = rig.client_a(PORT).unwrap();
        assert_eq!(client.ask(b"really").unwrap(), b"really");
        let _ = settle(&node, "echo", 1);

        // A path that comes while the node runs is more specific from then on.
        let file = ashway_rig::handler("echo").unwrap();
        let file = file.to_str().unwrap();
        let output = run(&mut node.command(["handler", "load", file, "--name", "other"]));
        assert!(output.status.success(), "{}", text(&output));
        let output = run(&mut node.command([
            "bind",
            "other",
            "--name",
            "late",
            "--iface",
            "b0",
            "--match",
            &format!("udp and dst port {PORT} and src port 40000"),
        ]));
        assert!(output.status.success(), "{}", text(&output));
        let answer = why(&node, &[&flow, "--iface", "b0"]);
        assert_eq!(answer["path"], "late", "{place}: {answer:#}");
        assert_eq!(answer["line"], Value::Null, "{place}: {answer:#}");
        assert_eq!(answer["matched"][1]["path"], "echo", "{place}: {answer:#}");
        let wire = rig.injector_a().unwrap();
        wire.send(&Frame::to_b(PORT, b"x").from_port(40_000).bytes())
            .unwrap();
        let _ = settle(&node, "late", 1);
        let _ = settle(&node, "echo", 1);

        let host = why(&node, &["tcp 10.0.0.1:40000 > 10.0.0.2:7777"]);
        assert_eq!(host["path"], Value::Null, "{place}: {host:#}");
        assert_eq!(
            host["missed"][0]["missing"], "protocol udp",
            "{place}: {host:#}"
        );

        // The file alone knows nothing of what came later.
        let file = node.config().to_str().unwrap();
        let output = run(rig
            .ashway_b()
            .unwrap()
            .args(["why", &flow, "--config", file, "-j"]));
        assert!(output.status.success(), "{}", text(&output));
        let offline: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(offline["path"], "echo", "{place}: {offline:#}");
        node.stop().unwrap();
    }
}

#[test]
fn exit_codes_say_what_is_wrong() {
    if skip_unless_root() {
        return;
    }
    let rig = stock("whycodes");
    let node = node(&rig, PLACES[0]);
    for (words, code, says) in [
        (vec!["echoo"], 2, "did you mean `echo`"),
        (vec!["udp 10.0.0.1 > 10.0.0.2:1"], 2, "has no port"),
        (
            vec!["udp 10.0.0.1:1 > 10.0.0.2:1", "--iface", "c0"],
            1,
            "c0",
        ),
        (vec!["passed", "--path", "nobody"], 1, "no path `nobody`"),
    ] {
        let output = run(&mut node.command(["why"].iter().chain(&words)));
        assert_eq!(
            output.status.code(),
            Some(code),
            "{words:?}: {}",
            text(&output)
        );
        assert!(text(&output).contains(says), "{words:?}: {}", text(&output));
    }
    let file = node.config().to_str().unwrap().to_owned();
    let output = run(rig
        .ashway_b()
        .unwrap()
        .args(["why", "passed", "--config", &file]));
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    let socket = node.socket().to_owned();
    node.stop().unwrap();
    let output = run(rig
        .ashway_b()
        .unwrap()
        .args(["why", "passed", "--socket"])
        .arg(socket));
    assert_eq!(output.status.code(), Some(5), "{}", text(&output));
}
