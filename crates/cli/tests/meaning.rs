//! A configuration means what it always meant: the graph, the demux and the paths that follow
//! from it.
//!
//! `data/meanings.txt` has the configurations of `paths/`, of the guides and of the tests with
//! real packets, each that means something else than the others once, behind a digest of what
//! the tree at facf855 made of it, when handlers and modules had paths of two kinds. Two
//! configurations are left out, which mean more since: modules that delay, below a handler,
//! were refused.
//!
//! Where a document is changed on purpose: `ASHWAY_MEANING=note cargo test --test meaning`
//! writes the digests anew, with the `ashway` of `ASHWAY_BIN`, if that is set.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use sha2::{Digest, Sha256};

use common::Directory;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/meanings.txt");

/// Before each configuration.
const MARK: &str = "#### ";

/// What a configuration means, in the words of three commands.
fn meaning(directory: &Path, text: &str) -> Vec<String> {
    std::fs::write(directory.join("c.toml"), text).unwrap();
    let own = env!("CARGO_BIN_EXE_ashway");
    let ashway = std::env::var_os("ASHWAY_BIN").unwrap_or_else(|| own.into());
    let said = |words: [&str; 2]| {
        let output = Command::new(&ashway)
            .args(words)
            .args(["c.toml", "-j"])
            .current_dir(directory)
            .output()
            .unwrap();
        if !output.status.success() {
            // There is nothing to plan where no path is of modules.
            assert_eq!(words, ["path", "plan"], "refused:\n{text}");
            return String::new();
        }
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        document.to_string()
    };
    [["graph", "show"], ["demux", "show"], ["path", "plan"]]
        .map(said)
        .into()
}

fn digest(meaning: &[String]) -> String {
    let mut hash = Sha256::new();
    for document in meaning {
        hash.update(document.as_bytes());
        hash.update(b"\n");
    }
    hash.finalize()[..12]
        .iter()
        .fold(String::new(), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        })
}

#[test]
fn configurations_mean_what_they_meant() {
    let directory = Directory::new("meaning");
    directory.file("h.wasm", "");
    let file = std::fs::read_to_string(FILE).unwrap();
    let (mut noted, mut seen, mut others) = (String::new(), 0, String::new());
    for part in file.split(MARK).skip(1) {
        let (known, text) = part.split_once('\n').unwrap();
        let meaning = meaning(&directory.0, text);
        let now = digest(&meaning);
        let _ = write!(noted, "{MARK}{now}\n{text}");
        seen += 1;
        if now != known {
            let _ = writeln!(others, "{text}\nis now\n{}\n", meaning.join("\n"));
        }
    }
    if std::env::var("ASHWAY_MEANING").is_ok_and(|word| word == "note") {
        std::fs::write(FILE, noted).unwrap();
        return;
    }
    assert!(seen > 80, "only {seen} are there");
    assert!(others.is_empty(), "these mean something else:\n{others}");
}

/// A digest notices the smallest difference: one module, one bit of a filter, one stage.
#[test]
fn another_meaning_has_another_digest() {
    let directory = Directory::new("meaning-other");
    directory.file("h.wasm", "");
    let text = "[iface.b0]\n[handler.h]\nfile = \"h.wasm\"\n[path.p]\niface = \"b0\"\n\
                match = \"udp dst port 7777\"\nhandler = \"h\"\n";
    let digests = [
        text.to_owned(),
        text.replace("7777", "7776"),
        text.replace("b0", "b1"),
        format!("{text}[module.m]\nkind = \"sink\"\ndown = \"udp.up\"\n"),
    ]
    .map(|text| digest(&meaning(&directory.0, &text)));
    for (at, digest) in digests.iter().enumerate() {
        assert!(!digests[..at].contains(digest), "{at}");
    }
}
