//! Commands of `tests/conformance`, which need Wasmtime and are therefore built
//! only when they are run.

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::root;

/// Builds a program of `tests/conformance` and runs it here.
pub(crate) fn run(program: &str, args: &[&str]) -> Result<()> {
    // Cargo names itself to the programs it runs, with the right toolchain.
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["run", "--quiet", "--release", "--manifest-path"])
        .arg(root().join("Cargo.toml"))
        .args(["--package", "ashway-conformance", "--bin", program, "--"])
        .args(args)
        .status()
        .context("cannot start cargo")?;
    if !status.success() {
        bail!("`{program}` failed: {status}");
    }
    Ok(())
}
