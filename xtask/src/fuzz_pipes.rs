//! `cargo xtask fuzz-pipes`: random lists of pipes in every form, for as long as one
//! likes. `./test` runs 20,000 cases of the same.
//!
//! Parts of a campaign are processes of their own, whose seeds follow each other. A
//! line is printed when one has ended: so it can be stopped at any time, and the last
//! line says what was done; `--seed` goes on from there.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::{bugs, output, root, run};

/// Cases without `--count`: about an hour of one CPU.
const COUNT: u64 = 10_000_000;
/// Cases of one process: what a failure costs to be run again.
const PART: u64 = 50_000;
/// Lists of the kernel tier among as many cases of the others.
const CASES_A_KERNEL_LIST: u64 = 200;

/// Runs the campaign in parts and prints a line for each.
pub(crate) fn campaign(args: &[&str]) -> Result<()> {
    let (mut seed, mut count) = (1, COUNT);
    for pair in args.chunks(2) {
        let number = |text: &str| {
            text.parse()
                .with_context(|| format!("`{text}` is no number"))
        };
        match pair {
            ["--seed", text] => seed = number(text)?,
            ["--count", text] => count = number(text)?,
            other => bail!("`{}` is not --seed N or --count M", other.join(" ")),
        }
    }
    // A copy, which no build of the next hours replaces.
    let tests = root().join(format!("target/fuzz-pipes-{seed}"));
    std::fs::copy(build(false)?, &tests).context("cannot copy the tests")?;
    let done = parts(&tests, seed, count);
    // Of no use to anybody else.
    std::fs::remove_file(tests)?;
    done
}

fn parts(tests: &PathBuf, mut seed: u64, count: u64) -> Result<()> {
    let mut done = 0;
    while done < count {
        let cases = PART.min(count - done);
        let lists = cases.div_ceil(CASES_A_KERNEL_LIST);
        run(Command::new(tests)
            .args(["--quiet", "every_list_gives_the_same"])
            .arg("our_interpreter_copies")
            .env("PIPE_SEED", seed.to_string())
            .env("PIPE_CASES", cases.to_string())
            .env("PIPE_LISTS", lists.to_string()))?;
        done += cases;
        println!(
            "seed {seed}: {cases} cases and {lists} lists of the kernel tier are equal; {done} of {count}"
        );
        seed += 1;
    }
    Ok(())
}

/// Builds the tests of pipes and says where they are. With `bugs` they have the seeded
/// ones, of which `ASHWAY_BUG` names the one that a process has.
pub(crate) fn build(bugs: bool) -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .args(["test", "--quiet", "--release", "--package"])
        .args(["ashway-codegen", "--test", "pipe", "--no-run"])
        .args(["--message-format", "json"])
        .current_dir(root());
    if bugs {
        bugs::seeded(&mut command);
    }
    output(&mut command)?
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|message| message["target"]["name"] == "pipe")
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .context("cargo names no executable")
}
