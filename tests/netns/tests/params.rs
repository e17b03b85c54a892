//! Texts as parameters: from the configuration, from the command line, and refused
//! where they do not fit.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use ashway_netns::node::{Config, entry, run, text};
use ashway_netns::traffic::PLACES;
use ashway_rig::{Rig, RigOptions, handler, skip_unless_root};

fn greets(config: Config, params: &str, tier: &str) -> Config {
    let config = config.handler("greets").unwrap();
    config.text(params).path("greets", 7024, tier)
}

#[test]
fn a_handler_reads_a_text_in_every_place() {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("texts", RigOptions::default()).unwrap();
    let exact = "thirty-two bytes are all of it.!";
    for place in PLACES {
        for (params, answer) in [
            ("", "hello"),
            ("params = { greeting = 'grüß dich' }", "grüß dich"),
            ("params = { greeting = '' }", ""),
            (&format!("params = {{ greeting = '{exact}' }}"), exact),
        ] {
            let node = rig.node(greets(place.config(), params, place.tier));
            let node = node.start().unwrap();
            let tier = entry(&node.status().unwrap(), "paths", "greets")["tier"].clone();
            assert_eq!(tier, place.tier, "{place}");
            let client = rig.client_a(7024).unwrap();
            for request in [&b"?"[..], b"a longer question, and a second sentence"] {
                assert_eq!(client.ask(request).unwrap(), answer.as_bytes(), "{place}");
            }
            node.stop().unwrap();
        }
    }
}

#[test]
fn what_does_not_fit_is_refused_with_its_place() {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("notexts", RigOptions::default()).unwrap();
    let long = format!("params = {{ greeting = '{}' }}", "x".repeat(33));
    for (params, said) in [
        (
            &*long,
            "has room for 32 bytes in parameter `greeting`, not for 33",
        ),
        (
            "params = { greeting = 5 }",
            "takes a text as parameter `greeting`, not a number",
        ),
        (
            "params = { greetings = 'x' }",
            "has no parameter `greetings`",
        ),
        ("params = { greeting = 1.5 }", "an integer or a text"),
    ] {
        let node = rig.node(greets(Config::on_b0("auto"), params, "auto"));
        let mut node = node.launch().unwrap();
        assert_eq!(node.wait().unwrap().code(), Some(2), "{}", node.output());
        assert!(node.output().contains(said), "{said}: {}", node.output());
        let checked = run(std::process::Command::new(ashway_rig::ashway().unwrap())
            .arg("check")
            .arg(node.config()));
        let checked = text(&checked);
        assert!(checked.contains(said), "{said}: {checked}");
        let line = checked.lines().any(|line| line.contains(".toml:"));
        assert!(line, "{checked}");
    }
}

#[test]
fn the_command_line_gives_texts_too() {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("saytexts", RigOptions::default()).unwrap();
    let node = rig.node(Config::on_b0("native")).start().unwrap();
    let file = handler("greets").unwrap();
    let file = file.to_str().unwrap();
    for (name, param, port, answer) in [
        ("day", "greeting=good day", 7024, "good day"),
        ("agent", "greeting=\"007\"", 7025, "007"),
    ] {
        let load = ["handler", "load", file, "--allow", "reply", "--name", name];
        let loaded = run(node.command(load).args(["--param", param]));
        assert!(loaded.status.success(), "{}", text(&loaded));
        let filter = format!("udp and dst port {port}");
        let bound = run(&mut node.command(["bind", name, "--iface", "b0", "--match", &filter]));
        assert!(bound.status.success(), "{}", text(&bound));
        let client = rig.client_a(port).unwrap();
        assert_eq!(client.ask(b"?").unwrap(), answer.as_bytes());
    }
    let number = ["handler", "load", file, "--param", "greeting=7"];
    let refused = text(&run(&mut node.command(number)));
    assert!(refused.contains("takes a text as parameter"), "{refused}");
    assert!(refused.contains("quotation marks"), "{refused}");

    let ran = run(
        std::process::Command::new(ashway_rig::ashway().unwrap()).args([
            "handler",
            "run",
            file,
            "--hex",
            "00",
            "--tier",
            "both",
            "-j",
            "--param",
            "greeting=\"42\"",
        ]),
    );
    let ran = text(&ran);
    assert!(ran.contains("\"message\": \"3432\""), "{ran}");
    node.stop().unwrap();
}

/// A swap gives parameters other values, and keeps those that it says nothing of; each
/// version that is gone back to has its own.
#[test]
fn a_swap_gives_other_values_and_a_rollback_has_the_older_ones() {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("swaptexts", RigOptions::default()).unwrap();
    let file = handler("greets").unwrap();
    let file = file.to_str().unwrap();
    let sum = handler("counter").unwrap();
    let sum = sum.to_str().unwrap();
    for place in PLACES {
        let node = rig.node(greets(
            place.config(),
            "params = { greeting = 'one' }",
            place.tier,
        ));
        let node = node.start().unwrap();
        let client = rig.client_a(7024).unwrap();
        let step = |words: &[&str], answer: &str| {
            let output = run(&mut node.command([&["handler"], words].concat()));
            assert!(output.status.success(), "{place}: {}", text(&output));
            assert_eq!(client.ask(b"?").unwrap(), answer.as_bytes(), "{place}");
            let listed = text(&run(&mut node.command(["handler", "ls"])));
            let row = format!("greeting=\"{answer}\"");
            assert!(listed.contains(&row), "{listed}");
            assert!(listed.contains("reply"), "{listed}");
        };
        step(&["swap", "greets", file, "--param", "greeting=two"], "two");
        step(&["swap", "greets", file], "two");
        step(&["swap", "greets", file, "--param", "greeting="], "");
        step(&["rollback", "greets"], "two");
        step(&["rollback", "greets"], "two");
        step(&["rollback", "greets"], "one");
        for (given, said) in [
            ("greetings=x", "has no parameter `greetings`"),
            ("greeting=7", "takes a text as parameter `greeting`"),
        ] {
            let words = ["handler", "swap", "greets", file, "--param", given];
            let refused = run(&mut node.command(words));
            assert!(!refused.status.success() && text(&refused).contains(said));
        }
        step(&["swap", "greets", file], "one");
        // A version without the parameter does not mind.
        let other = run(&mut node.command(["handler", "swap", "greets", sum]));
        assert!(other.status.success(), "{place}: {}", text(&other));
        node.stop().unwrap();
    }
}
