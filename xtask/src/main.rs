//! The one front door: `cargo xtask` lists every chore of this repository.
//!
//! Anything with logic lives here rather than in shell scripts; `./demo`,
//! `./test` and CI call these commands.

#![forbid(unsafe_code)]

mod avx512;
mod bless;
mod bugs;
mod check;
mod conformance;
mod corpora;
#[cfg(test)]
mod documents;
mod fuzz_pipes;
mod graph;
mod guest;
mod handlers;
#[cfg(test)]
mod header;
mod kernels;
mod libraries;
mod mutants;
mod programs;
mod replay;
mod tally;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail, ensure};

const USAGE: &str = "\
usage: cargo xtask COMMAND

  handlers [--out DIR]  build apps/handlers/*.c to DIR/*.wasm and the
                        applications beside them (default: target/handlers)
  check                 format, lints, unit tests, examples: what to run before a commit
  programs              build apps/programs, apps/rust, apps/zlib and apps/zstd to
                        target/programs, as handlers and as ordinary programs
  wast [--tier kernel|user|interpreter] [--json FILE] [SCRIPT...]
                        the specification's own tests in a tier
  fuzz-promote [--seed N] [--count M] [--json FILE] [--dump DIR]
                        random modules in every engine; what differs is a bug
  fuzz-pipes [--seed N] [--count M]
                        random lists of pipes in every form (./test: 20,000 cases)
  hostile               every handler of tests/hostile on a node beside a victim,
                        in both tiers (./test takes one in eight)
  corpora               fetch captures of others to target/corpora, once
  tally LOG SKIPS       what ./test came to: passed, failed and where, skipped and why
  replay                captures of others, every frame at every length, through
                        every module and program (./test: a share of them)
  bless                 write the golden files anew
  bugs                  show that each seeded bug turns a test red
  mutants               change the engine in each way that cargo-mutants knows: the tests
                        of `ashway-path` have to kill at least 90 % (half an hour)
  graph [--check]       print which crate depends on which; or compare that with
                        what ARCHITECTURE.md shows, and look for cycles of modules
  schema [WORDS]        a JSON Schema of the control socket; without words, their names
  kernels [6.12 6.1]    boot other kernels under QEMU and print what they say to
                        each built handler
  avx512 [--cases N] [--seed S] [--bug NAME]
                        the tests of pipes in vectors of 512 bits, under Bochs
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match args.as_slice() {
        ["handlers"] => handlers::build(&root().join("target/handlers")),
        ["handlers", "--out", dir] => handlers::build(Path::new(dir)),
        ["check"] => check::run(),
        ["programs"] => programs::build(&root().join("target/programs")),
        ["wast", args @ ..] => conformance::run("wast", args),
        ["fuzz-promote", args @ ..] => conformance::run("fuzz-promote", args),
        ["fuzz-pipes", args @ ..] => fuzz_pipes::campaign(args),
        ["hostile"] => hostile(),
        ["corpora"] => corpora::fetch(&root().join("target/corpora")),
        ["tally", log, skips] => tally::print(Path::new(log), Path::new(skips)),
        ["replay"] => replay::run_all(),
        ["bless"] => bless::golden(),
        ["bugs"] => bugs::run(),
        ["mutants"] => mutants::run(),
        ["graph"] => graph::print(),
        ["schema", words @ ..] => schema(words),
        ["graph", "--check"] => graph::check(),
        ["kernels", versions @ ..] => kernels::check(versions),
        ["avx512", args @ ..] => avx512::check(args),
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            for cause in error.chain().skip(1) {
                eprintln!("  because: {cause}");
            }
            ExitCode::FAILURE
        }
    }
}

/// A JSON Schema of the control socket.
fn schema(words: &[&str]) -> Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    run(Command::new(cargo)
        .args(["run", "--quiet", "--release", "--package", "ashway-api"])
        .args(["--features", "schema", "--example", "schema", "--"])
        .args(words))
}

/// The corpus on a node, all of it.
fn hostile() -> Result<()> {
    handlers::build(&root().join("target/handlers"))?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    run(Command::new(cargo)
        .args(["test", "--release", "--package", "ashway-netns"])
        .args(["--test", "hostile", "--", "--nocapture"])
        .env("ASHWAY_HOSTILE", "whole"))
}

/// The workspace's root.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask lies in the workspace's root")
        .to_path_buf()
}

/// Runs a command in the root; its output is shown, its failure is an error.
fn run(command: &mut Command) -> Result<()> {
    let shown = shown(command);
    let status = command
        .current_dir(root())
        .status()
        .with_context(|| format!("cannot start `{shown}`"))?;
    if !status.success() {
        bail!("`{shown}` failed: {status}");
    }
    Ok(())
}

/// What a command says.
fn output(command: &mut Command) -> Result<String> {
    let shown = shown(command);
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start `{shown}`"))?;
    ensure!(
        output.status.success(),
        "`{shown}` failed: {}",
        output.status
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The command as one would type it.
fn shown(command: &Command) -> String {
    let words: Vec<_> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy())
        .collect();
    words.join(" ")
}
