//! Where built things lie.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

/// The `ashway` binary: `ASHWAY_BIN`, or the release build of this workspace.
///
/// # Errors
///
/// If it has not been built.
pub fn ashway() -> Result<PathBuf> {
    let path = match std::env::var_os("ASHWAY_BIN") {
        Some(path) => PathBuf::from(path),
        None => target().join("release/ashway"),
    };
    existing(path, "cargo build --release")
}

/// The same with seeded bugs, of which the variable `ASHWAY_BUG` names the one that a process has.
///
/// # Errors
///
/// If it has not been built.
pub fn seeded() -> Result<PathBuf> {
    existing(target().join("bugs/release/ashway"), "cargo xtask bugs")
}

/// A handler built from `apps/handlers`, by its name: `handler("counter")`.
///
/// # Errors
///
/// If it has not been built.
pub fn handler(name: &str) -> Result<PathBuf> {
    built(&format!("{name}.wasm"))
}

/// An application built from `apps`, by its name: `application("counter_app")`.
///
/// # Errors
///
/// If it has not been built.
pub fn application(name: &str) -> Result<PathBuf> {
    built(name)
}

fn built(file: &str) -> Result<PathBuf> {
    existing(target().join("handlers").join(file), "cargo xtask handlers")
}

fn existing(path: PathBuf, made_by: &str) -> Result<PathBuf> {
    if !path.exists() {
        bail!("`{}` does not exist; run `{made_by}` first", path.display());
    }
    Ok(path)
}

/// The workspace's own `target`, wherever this crate is being built.
fn target() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("this crate lies two folders below the root")
        .join("target")
}
