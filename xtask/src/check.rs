//! `cargo xtask check`: what to run before a commit; needs no root.
//!
//! Everything is built with `--release`, because Wasmtime takes minutes to
//! build and should do so once.

use std::process::Command;

use anyhow::Result;

use crate::{graph, handlers, root};

pub(crate) fn run() -> Result<()> {
    handlers::build(&root().join("target/handlers"))?;
    cargo(&["fmt", "--all", "--check"])?;
    graph::check()?;
    cargo(&[
        "clippy",
        "--workspace",
        "--all-targets",
        "--release",
        "--",
        "-D",
        "warnings",
    ])?;
    cargo(&["test", "--workspace", "--lib", "--bins", "--release"])?;
    // Examples in the documentation, which nothing above compiles.
    cargo(&["test", "--workspace", "--doc", "--release"])?;
    // Nothing else is built with this feature.
    cargo(&[
        "test",
        "-p",
        "ashway-api",
        "--features",
        "schema",
        "--release",
    ])
}

fn cargo(args: &[&str]) -> Result<()> {
    println!("cargo {}", args.join(" "));
    // Cargo names itself to the programs it runs, with the right toolchain.
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    crate::run(Command::new(cargo).args(args))
}
