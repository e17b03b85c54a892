//! `cargo xtask replay`: captures of others, all of them.
//!
//! What `./test` does with a share of the frames, with every frame cut at every
//! length. About an hour.

use std::process::Command;

use anyhow::Result;

use crate::{corpora, root, run};

/// The tests that replay, and their crates.
const TESTS: [&str; 2] = ["ashway-codegen", "ashway-modules"];

/// Replays everything.
pub(crate) fn run_all() -> Result<()> {
    corpora::fetch(&root().join("target/corpora"))?;
    for package in TESTS {
        let mut command = Command::new(env!("CARGO"));
        command
            .args(["test", "--release", "--test", "captures", "-p", package])
            .args(["--", "--nocapture"])
            // The name is in tests/rig/src/captures.rs.
            .env("ASHWAY_REPLAY_WHOLE", "1");
        run(&mut command)?;
    }
    Ok(())
}
