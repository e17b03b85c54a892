//! `cargo xtask handlers`: the C handlers and applications under `apps/`, and the
//! C handlers of `tests/hostile`.
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

/// What handlers and applications include.
const HEADERS: [&str; 4] = [
    "sdk/c/ashway.h",
    "sdk/c/ashway_app.h",
    "apps/handlers/ledger.h",
    "apps/handlers/zone.h",
];

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

/// Handlers that run on several CPUs at once, and what they are compiled with besides. Without, the
/// compiler makes loads and stores of atomic operations, and says nothing.
const PARALLEL: [&str; 1] = ["tally"];
const ATOMICS: [&str; 2] = ["-matomics", "-mbulk-memory"];

/// Builds what is older than its sources into `out`.
pub(crate) fn build(out: &Path) -> Result<()> {
    let out = &std::path::absolute(out)?;
    for (folder, out) in [
        ("apps/handlers", out),
        ("tests/hostile", &out.join("hostile")),
    ] {
        fs::create_dir_all(out).with_context(|| format!("cannot make `{}`", out.display()))?;
        for source in sources(folder)? {
            let name = source.file_stem().expect("a file");
            let is_parallel = PARALLEL.iter().any(|one| name == *one);
            let more = if is_parallel { &ATOMICS[..] } else { &[] };
            let more: Vec<_> = more.iter().map(|&option| option.to_owned()).collect();
            compile_handler(&source, &more, &out.join(name).with_extension("wasm"))?;
        }
    }
    for source in sources("apps")? {
        let program = out.join(source.file_stem().expect("a file"));
        let product = Product {
            file: &program,
            sources: &[&source],
        };
        product.make(|| compile(CC, &["-O2", "-g"], &[], &source, &program))?;
    }
    Ok(())
}

/// Compiles a handler, with further options and files, if it is not current.
pub(crate) fn compile_handler(source: &Path, more: &[String], wasm: &Path) -> Result<()> {
    let product = Product {
        file: wasm,
        sources: &[source],
    };
    product.make(|| {
        require(CLANG)?;
        require(LINKER)?;
        compile(CLANG, &WASM, more, source, wasm)
    })
}

fn compile(
    compiler: &str,
    options: &[&str],
    more: &[String],
    source: &Path,
    product: &Path,
) -> Result<()> {
    run(Command::new(compiler)
        .args(options)
        .args(WARNINGS)
        .args(["-Isdk/c", "-o"])
        .arg(product)
        .arg(source)
        .args(more))
}

/// The C files of a folder, relative to the root, in order of their names.
pub(crate) fn sources(folder: &str) -> Result<Vec<PathBuf>> {
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

/// A file that is made from others.
pub(crate) struct Product<'p> {
    /// The file.
    pub(crate) file: &'p Path,
    /// What it is made from, beside the headers and the options in here.
    pub(crate) sources: &'p [&'p Path],
}

impl Product<'_> {
    /// Makes it, unless it is newer than all that it depends on.
    pub(crate) fn make(&self, make: impl FnOnce() -> Result<()>) -> Result<()> {
        if self.is_current()? {
            return Ok(());
        }
        println!("building {}", self.file.display());
        make()
    }

    fn is_current(&self) -> Result<bool> {
        if !self.file.exists() {
            return Ok(false);
        }
        let mut newest = modified(&std::env::current_exe()?)?;
        for source in self.sources.iter().copied().chain(HEADERS.map(Path::new)) {
            newest = newest.max(modified(&root().join(source))?);
        }
        Ok(modified(self.file)? > newest)
    }
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
