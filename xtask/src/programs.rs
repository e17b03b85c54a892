//! `cargo xtask programs`: what the promotion is measured and tried with.
//!
//! The programs of `apps/programs`, as handlers and as ordinary programs; a
//! handler in Rust (`apps/rust`); zlib's own inflate (`apps/zlib`), whose
//! sources come with the crate `libz-sys` and are not in this repository; and further
//! libraries (`libraries.rs`).

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::handlers::{Product, compile_handler, sources};
use crate::{libraries, root, run};

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
    rust(&out.join("words.wasm"))?;
    libraries::build(out)
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

/// A Rust compiler and what it compiles for.
pub(crate) struct Rust {
    rustc: &'static str,
    pub(crate) target: &'static str,
}

const WASM: &str = "wasm32-unknown-unknown";

/// Whatever Rust compiler has the target: the workspace's own, or Debian's.
pub(crate) fn rust_for_wasm() -> Result<Rust> {
    let has_target = |rustc: &&str| {
        let output = Command::new(rustc)
            .args(["--print", "target-libdir", "--target", WASM])
            .output();
        output
            .is_ok_and(|output| Path::new(String::from_utf8_lossy(&output.stdout).trim()).is_dir())
    };
    let Some(rustc) = ["rustc", "/usr/bin/rustc"].into_iter().find(has_target) else {
        bail!("no Rust compiler has the target {WASM}; run `{RUST_INSTALL}`");
    };
    Ok(Rust {
        rustc,
        target: WASM,
    })
}

impl Rust {
    /// The same compiler for ordinary programs.
    pub(crate) fn host(wasm: &Self) -> Self {
        Self {
            rustc: wasm.rustc,
            target: "x86_64-unknown-linux-gnu",
        }
    }

    pub(crate) fn is_host(&self) -> bool {
        self.target != WASM
    }

    /// With what is the same for all files.
    pub(crate) fn command(&self, edition: &str) -> Command {
        let mut command = Command::new(self.rustc);
        command.args(["--target", self.target, "--edition", edition]);
        command.args(["-O", "-Cpanic=abort"]);
        command
    }

    /// How a handler is linked whose memory has so many bytes. Without lines of the standard
    /// library, with which a file is too long.
    pub(crate) fn linked(&self, memory: u32) -> Vec<String> {
        if self.is_host() {
            return Vec::new();
        }
        vec![
            "-Cstrip=debuginfo".into(),
            format!(
                "-Clink-args=--initial-memory={memory} --max-memory={memory} --stack-first -z stack-size=65536"
            ),
        ]
    }
}

fn rust(wasm: &Path) -> Result<()> {
    let source = Path::new("apps/rust/words.rs");
    let product = Product {
        file: wasm,
        sources: &[source],
    };
    product.make(|| {
        run(rust_for_wasm()?
            .command("2015")
            .args(["--crate-type", "cdylib", "-g"])
            .arg("-Clink-args=--initial-memory=196608 --max-memory=196608 -z stack-size=65536")
            .arg("-o")
            .args([wasm, source]))
    })
}
