//! Nodes and hogs: started, watched, and gone when they should be.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ashway_rig::{Hogs, Rig, RigOptions, skip_unless_root};

/// A stand-in for `ashway` that knows its command line and nothing else.
const STAND_IN: &str = r#"#!/bin/sh
case "$1" in
status) echo "$*" ;;
run)
    trap 'echo stopped; exit 0' TERM
    case "$(cat "$2")" in
    good) echo "attaching" >&2; echo "ready: $5" ;;
    *) echo "error: bad config" >&2; exit 2 ;;
    esac
    while :; do sleep 0.01; done ;;
esac
"#;

fn stand_in() -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ashway-stand-in");
    fs::write(&path, STAND_IN).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[test]
fn a_node_is_ready_asked_and_stopped() {
    if skip_unless_root() {
        return;
    }
    let binary = stand_in();
    let rig = Rig::new("node", RigOptions::default()).unwrap();
    let node = |config: &str| rig.node(config).binary(&binary).arg("extra");

    let running = node("good").start().unwrap();
    assert!(running.output().contains("ready: extra"));
    running.wait_for_line(|line| line == "attaching").unwrap();
    let words = format!("status -j --socket {}", running.socket().display());
    let said = running.command(["status", "-j"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&said.stdout).trim(), words);
    // It is no status.
    assert!(running.status().is_err());
    let folder = running.config().parent().unwrap().to_path_buf();
    assert!(folder.exists());
    running.stop().unwrap();
    assert!(!folder.exists());

    let through = node("good").through(["setpriv", "--nnp"]).start().unwrap();
    let status = fs::read_to_string(format!("/proc/{}/status", through.id())).unwrap();
    assert!(status.contains("NoNewPrivs:\t1"), "it went through setpriv");
    through.kill();

    let error = node("bad").start().unwrap_err();
    assert!(
        format!("{error:#}").contains("error: bad config"),
        "{error:#}"
    );
    let mut failed = node("bad").launch().unwrap();
    assert_eq!(failed.wait().unwrap().code(), Some(2));
}

/// Not a test: what `hogs_die_with_a_killed_test` starts and kills.
#[test]
#[ignore = "started by another test"]
fn start_hogs_and_wait() {
    let hogs = Hogs::start(2).unwrap();
    println!("\nhogs {:?}", hogs.ids());
    std::thread::sleep(Duration::from_mins(1));
}

#[test]
fn hogs_die_with_a_killed_test() {
    let mut test = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--nocapture", "--exact", "start_hogs_and_wait"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(test.stdout.take().unwrap()).lines();
    let hogs: Vec<u32> = lines
        .map(Result::unwrap)
        .find_map(|line| line.strip_prefix("hogs ").map(str::to_owned))
        .map(|ids| {
            let ids = ids.trim_matches(['[', ']']);
            ids.split(", ").map(|id| id.parse().unwrap()).collect()
        })
        .unwrap();
    assert_eq!(hogs.len(), 2);
    test.kill().unwrap();
    test.wait().unwrap();
    let end = Instant::now() + Duration::from_secs(10);
    while hogs.iter().any(|id| is_busy(*id)) {
        assert!(Instant::now() < end, "the hogs outlived their test");
        std::thread::yield_now();
    }
}

/// Whether the process runs: a killed one may wait for init as a zombie.
fn is_busy(id: u32) -> bool {
    fs::read_to_string(format!("/proc/{id}/stat"))
        .is_ok_and(|stat| !stat.contains(") Z ") && !stat.contains(") X "))
}
