//! What is asked of a node is done whatever its paths do, and what is said of a path
//! is true of one path.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use std::time::{Duration, Instant};

use ashway_netns::node::{Config, run, text};
use ashway_rig::{B4, Node, Rig, RigOptions, skip_unless_root};

fn config() -> Config {
    let config = Config::on_b0("packet").handler("echo").unwrap();
    config.text(&format!(
        "[module.many]\nkind = 'source'\ndown = 'udp.up'\n\
         [module.end]\nkind = 'sink'\ndown = 'udp.up'\n\
         [path.own]\nfrom = 'end'\nattrs = {{ local = '{B4}:7000', pathname = 'eth:b0' }}\n"
    ))
}

/// What a command prints, if it succeeds.
fn done(node: &Node, words: &[&str]) -> String {
    let output = run(&mut node.command(words.to_vec()));
    assert!(output.status.success(), "{words:?}: {}", text(&output));
    text(&output)
}

fn refused(node: &Node, words: &[&str]) -> String {
    let output = run(&mut node.command(words.to_vec()));
    assert!(!output.status.success(), "{words:?}: {}", text(&output));
    text(&output)
}

/// Nothing it sends leaves the path, because nothing says to whom, and it never comes to
/// an end: others have their turn all the same.
#[test]
fn a_source_that_is_always_due_holds_nobody_up() {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("busy-source", RigOptions::default()).unwrap();
    let node = rig.node(config()).start().unwrap();
    done(
        &node,
        &[
            "path",
            "create",
            "--name",
            "flood",
            "--module",
            "many",
            "--attr",
            "rate=1000000000",
            "--attr",
            "pathname=eth:b0",
        ],
    );
    let begin = Instant::now();
    let shown = done(&node, &["path", "show", "flood"]);
    assert!(shown.contains("made"), "{shown}");
    done(
        &node,
        &[
            "path",
            "create",
            "--name",
            "more",
            "--module",
            "end",
            "--attr",
            "pathname=eth:b0",
            "--attr",
            &format!("local={B4}:7001"),
        ],
    );
    done(&node, &["path", "rm", "more"]);
    assert!(
        begin.elapsed() < Duration::from_secs(20),
        "{:?}",
        begin.elapsed()
    );
    // And with one that is still there, the node ends.
    let begin = Instant::now();
    node.stop().unwrap();
    assert!(
        begin.elapsed() < Duration::from_secs(20),
        "{:?}",
        begin.elapsed()
    );
}

/// A path of the file that was removed is nobody's rival any more.
#[test]
fn what_a_removed_path_of_the_file_took_can_be_bound() {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("busy-removed", RigOptions::default()).unwrap();
    let node = rig.node(config()).start().unwrap();
    let filter = format!("udp and dst host {B4} and dst port 7000");
    let words = ["bind", "echo", "--match", &filter, "--iface", "b0"];
    let said = refused(&node, &words);
    assert!(said.contains("own"), "{said}");
    done(&node, &["path", "rm", "own"]);
    done(&node, &words);
    let client = rig.client_a(7000).unwrap();
    assert_eq!(client.ask(b"hello").unwrap(), b"hello");
    node.stop().unwrap();
}

/// One name is one path, with a handler or without.
#[test]
fn a_name_is_taken_once() {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("busy-names", RigOptions::default()).unwrap();
    let node = rig.node(config()).start().unwrap();
    let bind = |name: &str| {
        let on = [
            "bind",
            "echo",
            "--match",
            "udp and dst port 6000",
            "--iface",
            "b0",
        ];
        run(&mut node.command([&on[..], &["--name", name]].concat()))
    };
    let attr = format!("local={B4}:5000");
    let create = [
        "path",
        "create",
        "--module",
        "end",
        "--attr",
        &attr,
        "--attr",
        "pathname=eth:b0",
    ];
    let create = |name| [&create[..], &["--name", name]].concat();
    done(&node, &create("live"));
    for name in ["live", "own"] {
        let said = bind(name);
        assert!(!said.status.success(), "{}", text(&said));
        let wanted = format!("there is a path `{name}` already");
        assert!(text(&said).contains(&wanted), "{}", text(&said));
    }
    let bound = bind("bound");
    assert!(bound.status.success(), "{}", text(&bound));
    done(&node, &["path", "rm", "live"]);
    let said = refused(&node, &create("bound"));
    assert!(said.contains("there is a path `bound` already"), "{said}");
    node.stop().unwrap();
}
