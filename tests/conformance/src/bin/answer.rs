//! Answers one file and says what it cost, for tests that bound it.
//!
//! Prints `MILLISECONDS PEAK_KIB ANSWER`. A process of its own, because the
//! peak of memory is a process's.

#![forbid(unsafe_code)]

use anyhow::{Context, Result};
use ashway_conformance::answer::answer;
use std::time::Instant;

fn main() -> Result<()> {
    let file = std::env::args().nth(1).context("usage: answer FILE")?;
    let wasm = std::fs::read(&file).with_context(|| format!("cannot read {file}"))?;
    let start = Instant::now();
    let answer = answer(&wasm);
    let elapsed = start.elapsed();
    println!("{} {} {answer}", elapsed.as_millis(), peak_kib()?);
    Ok(())
}

/// The largest resident size this process has had.
fn peak_kib() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    Ok(number.context("/proc/self/status has no VmHWM")?.parse()?)
}
