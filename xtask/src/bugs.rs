//! `cargo xtask bugs`: shows that each seeded bug turns a test red.
//!
//! The bugs (`src/bug.rs` of `codegen`, `check` and `demux`) exist only in this build, which has
//! a target folder of its own. The last of it is a whole node, which network tests give
//! one of them: they run as root, with the tests' own build.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::root;

/// The test that goes through them.
const DRIVER: &str = "each_bug_turns_its_test_red";

/// The network tests of nodes with bugs, each in the file of this name.
const ON_A_NODE: [[&str; 2]; 2] = [
    ["shadow", "a_mistranslated_handler_does_not_get_its_slot"],
    ["moving", "a_message_that_two_hooks_work_on_is_noticed"],
];

/// Prints a line for each bug, and last `N passed, N failed`; then runs nodes with one.
pub(crate) fn run() -> Result<()> {
    each()?;
    let mut build = Command::new(cargo());
    build.args(["build", "--release", "--package", "ashway-cli"]);
    build.args(["--bin", "ashway"]).current_dir(root());
    seeded(&mut build);
    let runs = ON_A_NODE.map(|[file, test]| {
        let mut run = Command::new(cargo());
        run.args(["test", "--release", "--workspace", "--test", file, "--"]);
        run.args(["--ignored", "--exact", test]).current_dir(root());
        run
    });
    for mut command in std::iter::once(build).chain(runs) {
        let status = command.status().context("cannot start cargo")?;
        anyhow::ensure!(status.success(), "the node with a seeded bug: {status}");
    }
    Ok(())
}

fn cargo() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

fn each() -> Result<()> {
    let mut command = Command::new(cargo());
    command
        .args([
            "test",
            "--quiet",
            "--release",
            "--package",
            "ashway-codegen",
        ])
        .args(["--test", "bugs", "--", "--exact", DRIVER, "--nocapture"])
        .current_dir(root());
    seeded(&mut command);
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start cargo")?;
    let stdout = child.stdout.take().context("cargo has no output")?;
    let mut last = None;
    for line in BufReader::new(stdout).lines() {
        let line = line?;
        if line.ends_with(" failed") && line.contains(" passed, ") {
            last = Some(line);
        } else if line.contains(" red ") || line.contains(" green ") {
            println!("{line}");
        }
    }
    let status = child.wait()?;
    let Some(last) = last else {
        bail!("the bugs were not tried: {status}");
    };
    println!("{last}");
    if !status.success() {
        bail!("a seeded bug was not noticed, or a test fails without one");
    }
    Ok(())
}

/// Has cargo build with the seeded bugs.
pub(crate) fn seeded(command: &mut Command) {
    command
        .env("RUSTFLAGS", "--cfg ashway_bugs")
        .env("CARGO_TARGET_DIR", root().join("target/bugs"))
        // Built for one run: as fast to build as to run.
        .env("CARGO_PROFILE_RELEASE_DEBUG", "false")
        .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1");
}
