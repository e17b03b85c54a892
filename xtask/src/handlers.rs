//! `cargo xtask handlers`: the C handlers and applications under `apps/`.
//!
//! Built from source each time something changed; no `.wasm` file is committed.
//! File names given to the compiler are relative to the root, so that the debug
//! information names lines as `apps/handlers/counter.c:25` on every machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::SystemTime;

use anyhow::{Context, Result, bail};

use crate::{root, run};

/// Compiler of the handlers.
const CLANG: &str = "clang-19";

/// Its linker for Wasm, found by clang on its own.
const LINKER: &str = "wasm-ld-19";

/// What brings both on Debian 12.
const INSTALL: &str = "apt-get install clang-19 lld-19";

/// Compiler of the applications.
const CC: &str = "cc";

/// Warnings are errors: these files are what people copy. A handler need not
/// look at its length or channel.
const WARNINGS: [&str; 4] = ["-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter"];

/// How a handler is compiled, except for file names.
///
/// Memory: 128 KiB, defined here and exported with a maximum; the shadow stack
/// lies lowest, so that it overflows into a trap and not into variables.
const WASM: [&str; 15] = [
    "--target=wasm32",
    "-O2",
    "-g",
    "-nostdlib",
    "-ffreestanding",
    "-fvisibility=hidden",
    "-fdebug-compilation-dir=.",
    "-fuse-ld=lld",
    "-Wl,--no-entry",
    "-Wl,--export=on_rx",
    "-Wl,--export-dynamic",
    "-Wl,--stack-first",
    "-Wl,-z,stack-size=16384",
    "-Wl,--initial-memory=131072",
    "-Wl,--max-memory=131072",
];

/// Builds what is older than its sources into `out`.
pub(crate) fn build(out: &Path) -> Result<()> {
    let out = &std::path::absolute(out)?;
    fs::create_dir_all(out).with_context(|| format!("cannot make `{}`", out.display()))?;
    let common = newest_common()?;
    for source in sources("apps/handlers")? {
        let wasm = out.join(source.with_extension("wasm").file_name().expect("a file"));
        if is_current(&wasm, &source, common)? {
            continue;
        }
        require(CLANG)?;
        require(LINKER)?;
        compile(CLANG, &WASM, &source, &wasm)?;
    }
    for source in sources("apps")? {
        let program = out.join(source.file_stem().expect("a file"));
        if !is_current(&program, &source, common)? {
            compile(CC, &["-O2", "-g"], &source, &program)?;
        }
    }
    Ok(())
}

fn compile(compiler: &str, options: &[&str], source: &Path, product: &Path) -> Result<()> {
    println!("building {}", product.display());
    run(Command::new(compiler)
        .args(options)
        .args(WARNINGS)
        .args(["-Isdk/c", "-o"])
        .arg(product)
        .arg(source))
}

/// The C files of a folder, relative to the root, in order of their names.
fn sources(folder: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in
        fs::read_dir(root().join(folder)).with_context(|| format!("cannot read `{folder}`"))?
    {
        let name = entry?.file_name();
        if Path::new(&name).extension().is_some_and(|end| end == "c") {
            found.push(Path::new(folder).join(name));
        }
    }
    found.sort();
    Ok(found)
}

/// When something changed that every product depends on: the headers, or the
/// options in this file.
fn newest_common() -> Result<SystemTime> {
    let mut newest = modified(&std::env::current_exe()?)?;
    for header in ["sdk/c/ashway.h", "sdk/c/ashway_app.h"] {
        newest = newest.max(modified(&root().join(header))?);
    }
    Ok(newest)
}

fn is_current(product: &Path, source: &Path, common: SystemTime) -> Result<bool> {
    if !product.exists() {
        return Ok(false);
    }
    let product = modified(product)?;
    Ok(product > common && product > modified(&root().join(source))?)
}

fn modified(file: &Path) -> Result<SystemTime> {
    fs::metadata(file)
        .and_then(|metadata| metadata.modified())
        .with_context(|| format!("cannot look at `{}`", file.display()))
}

/// Names the one line that helps if `program` is not installed.
fn require(program: &str) -> Result<()> {
    let started = Command::new(program)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if started.is_err() {
        bail!("`{program}` is not installed; run `{INSTALL}`");
    }
    Ok(())
}
