//! `cargo xtask programs`: what the promotion is measured and tried with.
//!
//! The programs of `apps/programs`, as handlers and as ordinary programs; a
//! handler in Rust (`apps/rust`); and zlib's own inflate (`apps/zlib`), whose
//! sources come with the crate `libz-sys` and are not in this repository.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::handlers::{Product, compile_handler, sources};
use crate::{root, run};

/// zlib's files that a decoder is made of.
const INFLATE: [&str; 4] = ["adler32.c", "inffast.c", "inflate.c", "inftrees.c"];

/// What brings a Rust compiler for Wasm on Debian 12. (With `rustup`:
/// `rustup target add wasm32-unknown-unknown`.)
const RUST_INSTALL: &str = "apt-get install rustc libstd-rust-dev-wasm32 lld-14";

/// Builds what is older than its sources into `out`.
pub(crate) fn build(out: &Path) -> Result<()> {
    let out = &std::path::absolute(out)?;
    std::fs::create_dir_all(out).with_context(|| format!("cannot make `{}`", out.display()))?;
    for source in sources("apps/programs")? {
        let name = source.file_stem().expect("a file");
        compile_handler(&source, &[], &out.join(name).with_extension("wasm"))?;
        native(&source, &out.join(name))?;
    }
    inflate(&out.join("inflate.wasm"))?;
    rust(&out.join("words.wasm"))
}

/// The same file as an ordinary program, to see what the machine can do.
fn native(source: &Path, program: &Path) -> Result<()> {
    let main = Path::new("bench/peers/native_main.c");
    let header = Path::new("apps/programs/native.h");
    let product = Product {
        file: program,
        sources: &[source, main, header],
    };
    product.make(|| {
        // The header is for the handler alone.
        let object = program.with_extension("o");
        run(Command::new("cc")
            .args([
                "-O2",
                "-g",
                "-Wall",
                "-Wextra",
                "-Werror",
                "-Wno-unused-parameter",
            ])
            .arg("-include")
            .arg(header)
            .args(["-Isdk/c", "-c", "-o"])
            .args([&object, source]))?;
        run(Command::new("cc")
            .args(["-O2", "-o"])
            .args([program, main, &object]))
    })
}

fn inflate(wasm: &Path) -> Result<()> {
    let zlib = zlib()?;
    let mut options = vec![
        "-mbulk-memory".into(),
        "-DZ_SOLO".into(),
        "-DNO_GZIP".into(),
    ];
    options.push("-isystem".into());
    options.push(zlib.display().to_string());
    // Its window, its state, the output: more than other handlers need.
    options.extend(["-Wl,--initial-memory=262144", "-Wl,--max-memory=262144"].map(String::from));
    options.extend(INFLATE.map(|file| zlib.join(file).display().to_string()));
    compile_handler(Path::new("apps/zlib/inflate.c"), &options, wasm)
}

/// Where cargo keeps the sources of zlib.
fn zlib() -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--locked"])
        .current_dir(root())
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start `cargo metadata`")?;
    ensure!(output.status.success(), "`cargo metadata` failed");
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let manifest = packages
        .filter(|package| package["name"] == "libz-sys")
        .find_map(|package| package["manifest_path"].as_str())
        .context("no package `libz-sys` in Cargo.lock")?;
    Ok(Path::new(manifest).with_file_name("src/zlib"))
}

/// With whatever Rust compiler has the target: the workspace's own, or
/// Debian's.
fn rust(wasm: &Path) -> Result<()> {
    let source = Path::new("apps/rust/words.rs");
    let product = Product {
        file: wasm,
        sources: &[source],
    };
    product.make(|| {
        const TARGET: &str = "wasm32-unknown-unknown";
        let has_target = |rustc: &&str| {
            let output = Command::new(rustc)
                .args(["--print", "target-libdir", "--target", TARGET])
                .output();
            output.is_ok_and(|output| {
                Path::new(String::from_utf8_lossy(&output.stdout).trim()).is_dir()
            })
        };
        let Some(rustc) = ["rustc", "/usr/bin/rustc"].into_iter().find(has_target) else {
            bail!("no Rust compiler has the target {TARGET}; run `{RUST_INSTALL}`");
        };
        run(Command::new(rustc)
            .args([
                "--target",
                TARGET,
                "--crate-type",
                "cdylib",
                "-O",
                "-g",
                "-Cpanic=abort",
            ])
            .arg("-Clink-args=--initial-memory=196608 --max-memory=196608 -z stack-size=65536")
            .arg("-o")
            .args([wasm, source]))
    })
}
