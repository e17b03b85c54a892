//! A test that stands aside is seen, and fails where nothing may be left out.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use ashway_rig::skip::{Cpu, skip, skip_part};

#[test]
#[ignore = "started by another test"]
fn stands_aside() {
    skip("needs what nobody has");
}

#[test]
#[ignore = "started by another test"]
fn leaves_a_part_out() {
    skip_part("needs what nobody has");
}

#[test]
#[ignore = "started by another test"]
fn stands_aside_on_this_cpu() {
    skip(Cpu::Avx512);
}

/// How many threads say how often that they stand aside.
const THREADS: usize = 8;
const TIMES: usize = 100;

#[test]
#[ignore = "started by another test"]
fn stands_aside_in_many_threads() {
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| (0..TIMES).for_each(|_| skip("needs what nobody has")));
        }
    });
}

/// Runs `test`: whether it passed, and the lines that it left.
fn run(test: &str, no_skip: bool) -> (bool, String) {
    let file: PathBuf =
        std::env::temp_dir().join(format!("skips-{}-{test}-{no_skip}", std::process::id()));
    let _ = fs::remove_file(&file);
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        // Two threads, or the runner would give the test none of its own.
        .args([test, "--exact", "--ignored", "--test-threads=2"])
        .env("ASHWAY_SKIPS", &file)
        .env_remove("ASHWAY_NO_SKIP");
    if no_skip {
        command.env("ASHWAY_NO_SKIP", "1");
    }
    let output = command.output().unwrap();
    let lines = fs::read_to_string(&file).unwrap();
    fs::remove_file(&file).unwrap();
    (output.status.success(), lines)
}

#[test]
fn a_test_that_stands_aside_is_seen() {
    let line = "skipped ashway-rig/skips::stands_aside: needs what nobody has\n";
    assert_eq!(run("stands_aside", false), (true, line.to_owned()));
    let line = "skipped in part ashway-rig/skips::leaves_a_part_out: needs what nobody has\n";
    assert_eq!(run("leaves_a_part_out", false), (true, line.to_owned()));
}

#[test]
fn where_nothing_may_be_left_out_it_fails() {
    for test in ["stands_aside", "leaves_a_part_out"] {
        let (passed, lines) = run(test, true);
        assert!(!passed, "{test}");
        assert!(lines.starts_with("skipped"), "{lines}");
    }
}

#[test]
fn what_only_another_cpu_could_run_is_seen_and_forgiven() {
    let line = "skipped ashway-rig/skips::stands_aside_on_this_cpu: this CPU has no AVX-512\n";
    assert_eq!(
        run("stands_aside_on_this_cpu", true),
        (true, line.to_owned())
    );
}

#[test]
fn lines_of_many_threads_stay_whole() {
    let (passed, lines) = run("stands_aside_in_many_threads", false);
    assert!(passed);
    assert_eq!(lines.lines().count(), THREADS * TIMES);
    for line in lines.lines() {
        assert!(line.starts_with("skipped ashway-rig/skips::"), "{line}");
        assert!(line.ends_with(": needs what nobody has"), "{line}");
    }
}
