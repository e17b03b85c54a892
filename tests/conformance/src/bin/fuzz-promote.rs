//! `cargo xtask fuzz-promote`: differential fuzzing of the engines.

#![forbid(unsafe_code)]

use anyhow::{Context, Result, bail};
use ashway_conformance::fuzz::{Campaign, Case};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask fuzz-promote [--seed N] [--count M] [--json FILE] [--dump DIR]

Makes M modules (default 1000) from the seeds N (default 1), N+1, ... and runs
each in Wasmtime, in the interpreter, and as root in the kernel. Prints what
differs, with its seed: --seed S --count 1 repeats it. --dump writes the module
of each difference, or with --count 1 the module, to DIR as .wasm and .wat.
Exit 1 if anything differs, 2 for a wrong command.
";

fn main() -> ExitCode {
    match main_or() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            for cause in error.chain().skip(1) {
                eprintln!("  because: {cause}");
            }
            ExitCode::from(2)
        }
    }
}

fn main_or() -> Result<bool> {
    let (mut seed, mut count) = (1, 1_000);
    let (mut json, mut dump): (Option<String>, Option<PathBuf>) = (None, None);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().with_context(|| format!("{arg} wants a value"));
        match arg.as_str() {
            "--seed" => seed = value()?.parse().context("--seed wants a number")?,
            "--count" => count = value()?.parse().context("--count wants a number")?,
            "--json" => json = Some(value()?),
            "--dump" => dump = Some(value()?.into()),
            "--help" | "-h" => {
                print!("{USAGE}");
                return Ok(true);
            }
            _ => bail!("unknown option `{arg}`\n{USAGE}"),
        }
    }
    let kernel = rustix::process::geteuid().is_root();
    if !kernel {
        eprintln!("without the kernel: loading programs needs root");
    }
    let mut campaign = Campaign::new(seed, kernel);
    for _ in 0..count {
        let before = campaign.differences.len();
        let case = campaign.step();
        for (seed, what) in &campaign.differences[before..] {
            eprintln!("different: seed {seed}: {what}");
        }
        let differs = campaign.differences.len() > before;
        if let (Some(dir), Some(case)) = (&dump, case)
            && (differs || count == 1)
        {
            write(dir, &case)?;
        }
        if campaign.modules.is_multiple_of(1_000) {
            let differences = campaign.differences.len();
            eprintln!(
                "{} modules, {differences} differences, {:.1}/s",
                campaign.modules,
                campaign.rate()
            );
        }
    }
    print!("{campaign}");
    if let Some(file) = json {
        let text = serde_json::to_string_pretty(&campaign.to_json())? + "\n";
        std::fs::write(&file, text).with_context(|| format!("cannot write {file}"))?;
    }
    Ok(campaign.differences.is_empty())
}

fn write(dir: &Path, case: &Case) -> Result<()> {
    std::fs::create_dir_all(dir)?;
    let name = dir.join(format!("seed-{}", case.seed));
    std::fs::write(name.with_extension("wasm"), &case.wasm)?;
    // With the offsets that stops name.
    let mut text = String::new();
    wasmprinter::Config::new()
        .print_offsets(true)
        .print(&case.wasm, &mut wasmprinter::PrintFmtWrite(&mut text))?;
    std::fs::write(name.with_extension("wat"), text)?;
    Ok(())
}
