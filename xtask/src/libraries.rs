//! `cargo xtask programs`, continued: libraries as they are, as handlers.
//!
//! Their sources come from cargo (`apps/libraries`, a package of its own) and are not in this
//! repository; what is here is a file for each that makes a handler of it. Each is built as an
//! ordinary program, too, which says what it should answer. Where they cannot be fetched the
//! programs are left out, and what needs them says so.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::handlers::{Product, compile_handler};
use crate::programs::{Rust, rust_for_wasm};
use crate::{root, run};

/// zstd's files that a decoder is made of.
const ZSTD: [&str; 9] = [
    "common/entropy_common.c",
    "common/error_private.c",
    "common/fse_decompress.c",
    "common/xxhash.c",
    "common/zstd_common.c",
    "decompress/huf_decompress.c",
    "decompress/zstd_ddict.c",
    "decompress/zstd_decompress.c",
    "decompress/zstd_decompress_block.c",
];

/// Sizes of memory: for each a multiple of 64 KiB.
const ZSTD_MEMORY: u32 = 512 << 10;
const RUST_MEMORY: u32 = 1 << 20;

/// Builds what is missing into `out`.
pub(crate) fn build(out: &Path) -> Result<()> {
    let libraries = match Libraries::fetch() {
        Ok(libraries) => libraries,
        Err(error) => {
            println!("leaving out zstd, http, names and regex: {error:#}");
            return Ok(());
        }
    };
    libraries.zstd(out)?;
    let wasm = rust_for_wasm()?;
    let host = Rust::host(&wasm);
    for rust in [&wasm, &host] {
        libraries.rust(rust, out)?;
    }
    Ok(())
}

/// Where the packages' sources are.
struct Libraries(Vec<(String, PathBuf)>);

impl Libraries {
    fn fetch() -> Result<Self> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let output = Command::new(cargo)
            .args(["metadata", "--format-version", "1", "--locked"])
            .current_dir(root().join("apps/libraries"))
            .stderr(Stdio::inherit())
            .output()
            .context("cannot start `cargo metadata`")?;
        ensure!(
            output.status.success(),
            "cargo cannot fetch the packages of apps/libraries"
        );
        let metadata: serde_json::Value = serde_json::from_slice(&output.stdout)?;
        let packages = metadata["packages"].as_array().into_iter().flatten();
        let packages = packages.filter_map(|package| {
            let manifest = Path::new(package["manifest_path"].as_str()?);
            Some((
                package["name"].as_str()?.to_owned(),
                manifest.parent()?.to_owned(),
            ))
        });
        Ok(Self(packages.collect()))
    }

    fn folder(&self, package: &str) -> Result<&Path> {
        let found = self.0.iter().find(|(name, _)| name == package);
        let (_, folder) = found.with_context(|| format!("no package `{package}`"))?;
        Ok(folder)
    }

    fn zstd(&self, out: &Path) -> Result<()> {
        let library = self.folder("zstd-sys")?.join("zstd/lib");
        let shown = |path: &Path| path.display().to_string();
        let common = [
            "-isystem".into(),
            shown(&library),
            "-DZSTD_DISABLE_ASM".into(),
        ];
        let files = ZSTD.map(|file| shown(&library.join(file)));
        let source = Path::new("apps/zstd/zstd.c");
        let memory = [
            "-mbulk-memory".into(),
            "-isystem".into(),
            "apps/libc".into(),
            "apps/libc/libc.c".into(),
            format!("-Wl,--initial-memory={ZSTD_MEMORY}"),
            format!("-Wl,--max-memory={ZSTD_MEMORY}"),
        ];
        let options = [&memory[..], &common, &files].concat();
        compile_handler(source, &options, &out.join("zstd.wasm"))?;
        let program = out.join("zstd");
        let product = Product {
            file: &program,
            sources: &[source],
        };
        product.make(|| {
            let object = out.join("zstd.o");
            run(Command::new("cc")
                .args([
                    "-O2",
                    "-include",
                    "apps/programs/native.h",
                    "-Isdk/c",
                    "-c",
                    "-o",
                ])
                .arg(&object)
                .args(&common)
                .arg(source))?;
            run(Command::new("cc")
                .args(["-O2", "-o"])
                .arg(&program)
                .arg("bench/peers/native_main.c")
                .arg(&object)
                .args(&common)
                .args(&files))
        })
    }

    /// Handlers in Rust and the crates they are made of, for one target.
    fn rust(&self, rust: &Rust, out: &Path) -> Result<()> {
        let crates = out.join("crates").join(rust.target);
        std::fs::create_dir_all(&crates)?;
        let build = |name: &str, edition, more: &[&str]| {
            let library = crates.join(format!("lib{}.rlib", name.replace('-', "_")));
            if library.exists() {
                return Ok(());
            }
            let source = self.folder(name)?.join("src/lib.rs");
            run(rust
                .command(edition)
                .args(["--crate-type", "rlib", "--cap-lints", "allow"])
                .args(["--crate-name", &name.replace('-', "_"), "-L"])
                .arg(&crates)
                .arg("-o")
                .args([&library, &source])
                .args(more))
        };
        let std = &["--cfg", r#"feature="std""#][..];
        build("httparse", "2018", &[])?;
        build("byteorder", "2021", std)?;
        build("quick-error", "2015", &[])?;
        let uses = ["--extern", "byteorder", "--extern", "quick_error"];
        build("dns-parser", "2015", &uses)?;
        build("regex-automata", "2015", &[])?;
        let automata = [out.join("forward.dfa"), out.join("reverse.dfa")];
        self.pattern(&Rust::host(rust), out, &automata)?;
        for (name, uses) in [
            ("http", "httparse"),
            ("names", "dns_parser"),
            ("regex", "regex_automata"),
        ] {
            let source = format!("apps/rust/{name}.rs");
            let product = out.join(if rust.is_host() {
                format!("lib{name}.a")
            } else {
                format!("{name}.wasm")
            });
            let program = out.join(name);
            let made = Product {
                file: &product,
                sources: &[Path::new(&source), Path::new("apps/rust/answer.rs")],
            };
            made.make(|| {
                run(rust
                    .command("2018")
                    .args(["--crate-name", &format!("{name}_handler"), "--crate-type"])
                    .arg(if rust.is_host() {
                        "staticlib"
                    } else {
                        "cdylib"
                    })
                    .args(rust.linked(RUST_MEMORY))
                    .env("ASHWAY_FORWARD", &automata[0])
                    .env("ASHWAY_REVERSE", &automata[1])
                    .arg("-L")
                    .arg(&crates)
                    .args(["--extern", uses, "-o"])
                    .arg(&product)
                    .arg(&source))?;
                if rust.is_host() {
                    run(Command::new("cc")
                        .args(["-O2", "-o"])
                        .arg(&program)
                        .args(["bench/peers/native_main.c", "bench/peers/native_calls.c"])
                        .arg(&product)
                        .args(["-lpthread", "-ldl", "-lm"]))?;
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// The automata of the pattern.
    fn pattern(&self, host: &Rust, out: &Path, automata: &[PathBuf; 2]) -> Result<()> {
        if automata.iter().all(|file| file.exists()) {
            return Ok(());
        }
        // With the standard library here, so in a folder of its own.
        let crates = out.join("crates/pattern");
        std::fs::create_dir_all(&crates)?;
        for (name, more) in [
            ("regex-syntax", &[][..]),
            (
                "regex-automata",
                &["--cfg", r#"feature="std""#, "--extern", "regex_syntax"],
            ),
        ] {
            let snake = name.replace('-', "_");
            let edition = if name == "regex-syntax" {
                "2018"
            } else {
                "2015"
            };
            run(host
                .command(edition)
                .args([
                    "--crate-type",
                    "rlib",
                    "--cap-lints",
                    "allow",
                    "--crate-name",
                    &snake,
                    "-L",
                ])
                .arg(&crates)
                .arg("-o")
                .arg(crates.join(format!("lib{snake}.rlib")))
                .arg(self.folder(name)?.join("src/lib.rs"))
                .args(more))?;
        }
        let program = crates.join("pattern");
        run(host
            .command("2018")
            .arg("-L")
            .arg(&crates)
            .args(["--extern", "regex_automata", "-o"])
            .arg(&program)
            .arg("apps/rust/pattern.rs"))?;
        run(Command::new(program).args(automata))
    }
}
