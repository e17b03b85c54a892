//! `cargo xtask bugs`: shows that each seeded bug turns a test red.
//!
//! The bugs (`src/bug.rs` of `codegen`, `check` and `demux`) exist only in this build, which has
//! a target folder of its own.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::root;

/// The test that goes through them.
const DRIVER: &str = "each_bug_turns_its_test_red";

/// Prints a line for each bug, and last `N passed, N failed`.
pub(crate) fn run() -> Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
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
