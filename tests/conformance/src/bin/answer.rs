//! Answers one file and says what it cost, for tests that bound it.
//!
//! Prints `MILLISECONDS PEAK_KIB CHECKER_MILLISECONDS CHECKER_KIB ANSWER`: of all
//! of it, and of our own checker alone what it adds. Time is that on a CPU, so
//! that a busy machine changes nothing. A process of its own, because the peak
//! of memory is a process's.

#![forbid(unsafe_code)]

use anyhow::{Context, Result};
use ashway_conformance::answer::answer;

fn main() -> Result<()> {
    let file = std::env::args().nth(1).context("usage: answer FILE")?;
    let wasm = std::fs::read(&file).with_context(|| format!("cannot read {file}"))?;
    let start = milliseconds()?;
    let mut checker = None;
    let answer = answer(&wasm, || checker = Some(Checker::begins()));
    let end = milliseconds()?;
    let mut peak = kib("VmHWM:")?;
    let (mut checking, mut added) = (0, 0);
    if let Some(checker) = checker {
        let checker = checker?;
        checking = end - checker.begun;
        added = peak.saturating_sub(checker.memory);
        peak = peak.max(checker.peak_before);
    }
    println!("{} {peak} {checking} {added} {answer}", end - start);
    Ok(())
}

/// When our own checker began.
struct Checker {
    begun: u64,
    /// KiB in use then, and most there were before.
    memory: u64,
    peak_before: u64,
}

impl Checker {
    /// Has the kernel find the peak anew from here on (proc(5), `clear_refs`).
    fn begins() -> Result<Self> {
        let peak_before = kib("VmHWM:")?;
        std::fs::write("/proc/self/clear_refs", "5").context("cannot reset the peak")?;
        Ok(Self {
            begun: milliseconds()?,
            memory: kib("VmRSS:")?,
            peak_before,
        })
    }
}

/// Time on a CPU so far (proc(5), `schedstat`).
fn milliseconds() -> Result<u64> {
    let times = std::fs::read_to_string("/proc/self/schedstat")?;
    let ns = times.split_whitespace().next();
    let ns: u64 = ns.context("/proc/self/schedstat is empty")?.parse()?;
    Ok(ns / 1_000_000)
}

/// A size of this process.
fn kib(name: &str) -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.split_whitespace().next());
    let number = number.with_context(|| format!("/proc/self/status has no {name}"))?;
    Ok(number.parse()?)
}
