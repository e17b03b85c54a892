//! `cargo xtask fuzz-pipes`: random lists of pipes in every form, for as long as one
//! likes. `./test` runs 20,000 cases of the same.

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::run;

/// Cases without `--count`: some hours of one CPU.
const COUNT: u64 = 10_000_000;
/// Cases of one process: what a failure costs to be run again.
const PART: u64 = 250_000;
/// Lists of the kernel tier among as many cases of the others.
const CASES_A_KERNEL_LIST: u64 = 200;

/// Runs the campaign in parts, whose seeds follow each other, and prints a line for
/// each.
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
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut done = 0;
    while done < count {
        let cases = PART.min(count - done);
        let lists = cases.div_ceil(CASES_A_KERNEL_LIST);
        run(Command::new(&cargo)
            .args([
                "test",
                "--quiet",
                "--release",
                "--package",
                "ashway-codegen",
            ])
            .args(["--test", "pipe", "--"])
            .args(["every_list_gives_the_same", "our_interpreter_copies"])
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
