//! `cargo xtask bless`: writes what is found into the golden files.

use std::process::Command;

use anyhow::Result;

use crate::run;

/// Runs the golden tests so that they write; `git diff` shows what.
pub(crate) fn golden() -> Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    run(Command::new(cargo)
        .args([
            "test",
            "--quiet",
            "--release",
            "--package",
            "ashway-codegen",
        ])
        .args(["--test", "golden"])
        .env("ASHWAY_BLESS", "1"))
}
