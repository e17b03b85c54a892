//! `ashway bench` is a program beside `ashway`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use common::Directory;
use serde_json::Value;

// One test: another one's child would keep a program open for writing that is begun here.
#[test]
fn bench_is_the_program_beside_ashway_or_is_named_as_missing() {
    let directory = Directory::new("bench");
    let ashway = directory.0.join("ashway");
    fs::copy(env!("CARGO_BIN_EXE_ashway"), &ashway).unwrap();
    it_is_named_with_the_way_to_get_it(&ashway);
    let bench = directory.file("ashway-bench", "#!/bin/sh\necho \"$*\"\nexit 7\n");
    fs::set_permissions(&bench, fs::Permissions::from_mode(0o755)).unwrap();
    it_gets_the_arguments_as_they_were(&ashway);
}

fn run(ashway: &Path, args: &[&str]) -> (Option<i32>, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = Command::new(ashway).args(args).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

fn it_is_named_with_the_way_to_get_it(ashway: &Path) {
    let missing = ashway.with_file_name("ashway-bench");
    for args in [&["bench", "--help"][..], &["bench"], &["pipe", "calibrate"]] {
        let (code, _, said) = run(ashway, args);
        assert_eq!(code, Some(6), "{said}");
        assert!(said.contains(missing.to_str().unwrap()), "{said}");
        assert!(said.contains("cargo build --release"), "{said}");
    }
    let (_, document, _) = run(ashway, &["bench", "-j"]);
    let document: Value = serde_json::from_str(&document).unwrap();
    assert_eq!(document["error"]["code"], "not_supported");
}

fn it_gets_the_arguments_as_they_were(ashway: &Path) {
    for (args, got) in [
        (&["bench"][..], "\n"),
        (&["bench", "--help"], "--help\n"),
        (&["bench", "counter", "--help"], "counter --help\n"),
        (
            &["bench", "demux", "--rounds", "2", "-j"],
            "demux --rounds 2 -j\n",
        ),
        (&["-j", "bench", "demux"], "demux -j\n"),
        (&["bench", "-j", "demux"], "demux -j\n"),
        (&["pipe", "calibrate"], "calibrate\n"),
    ] {
        let (code, said, _) = run(ashway, args);
        assert_eq!(said, got, "{args:?}");
        // Its exit code is ours.
        assert_eq!(code, Some(7), "{args:?}");
    }
}
