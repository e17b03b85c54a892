//! Tests that cannot run here, said and counted.
//!
//! `cargo test` shows nothing of a test that passed, and one that returned early for
//! want of root or of a program passed. So each says it here: in a line on stderr, and
//! in the same line at the end of the file that `ASHWAY_SKIPS` names, from which
//! `cargo xtask tally` counts. With `ASHWAY_NO_SKIP=1` it fails instead, unless only
//! another CPU could run it ([`Cpu`]).
//!
//! ```no_run
//! # use ashway_rig::skip::{skip_unless_root, skip_without};
//! if skip_unless_root() || skip_without("nft", "nftables") {
//!     return;
//! }
//! ```

use std::fmt;
use std::fs::OpenOptions;
use std::io::Write;
use std::panic::Location;
use std::process::Command;

/// The file to which lines are appended.
const SKIPS: &str = "ASHWAY_SKIPS";
/// Makes a skip a failure.
const NO_SKIP: &str = "ASHWAY_NO_SKIP";

/// What a CPU may lack: the one reason that `ASHWAY_NO_SKIP` forgives, because
/// nobody can install it. All of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cpu {
    /// Vectors of 256 bits, for pipes.
    Avx2,
    /// Vectors of 512 bits, for pipes; `cargo xtask avx512` emulates them.
    Avx512,
}

impl fmt::Display for Cpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Avx2 => "this CPU has no AVX2",
            Self::Avx512 => "this CPU has no AVX-512",
        })
    }
}

/// Why a test cannot run.
#[derive(Debug)]
pub enum Why {
    /// Only another CPU could run it.
    Cpu(Cpu),
    /// Something that can be had: rights, a program, a file that is built.
    Missing(String),
}

impl From<Cpu> for Why {
    fn from(cpu: Cpu) -> Self {
        Self::Cpu(cpu)
    }
}

impl From<&str> for Why {
    fn from(why: &str) -> Self {
        Self::Missing(why.to_owned())
    }
}

impl From<String> for Why {
    fn from(why: String) -> Self {
        Self::Missing(why)
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu(cpu) => cpu.fmt(f),
            Self::Missing(why) => f.write_str(why),
        }
    }
}

/// Says that the calling test tests nothing; it then returns.
///
/// # Panics
///
/// With `ASHWAY_NO_SKIP=1`, unless only another CPU could run it. If the line cannot
/// be written.
#[track_caller]
pub fn skip(why: impl Into<Why>) {
    say("skipped", &why.into());
}

/// Says that the calling test leaves out a part of what it tests, and goes on.
///
/// # Panics
///
/// As [`skip`].
#[track_caller]
pub fn skip_part(why: impl Into<Why>) {
    say("skipped in part", &why.into());
}

/// Whether a test must be skipped because it needs root (`bpf(2)`, network
/// namespaces); says so.
///
/// # Panics
///
/// As [`skip`].
#[must_use]
#[track_caller]
pub fn skip_unless_root() -> bool {
    let root = is_root();
    if !root {
        skip("needs root");
    }
    !root
}

/// Whether a test can also run its part in the kernel, for which it needs root; says
/// so if not.
///
/// # Panics
///
/// As [`skip`].
#[must_use]
#[track_caller]
pub fn root_for_a_part() -> bool {
    let root = is_root();
    if !root {
        skip_part("needs root");
    }
    root
}

/// Whether a test must be skipped because there is no `program`, which the Debian
/// package `package` has; says so.
///
/// # Panics
///
/// As [`skip`].
#[must_use]
#[track_caller]
pub fn skip_without(program: &str, package: &str) -> bool {
    let missing = Command::new(program).arg("--version").output().is_err();
    if missing {
        skip(format!("needs {program} (apt-get install {package})"));
    }
    missing
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[track_caller]
fn say(what: &str, why: &Why) {
    let line = format!("{what} {}: {why}\n", test(Location::caller()));
    eprint!("{line}");
    if let Some(path) = std::env::var_os(SKIPS) {
        // One write to the end, so that lines of other threads and processes stay whole.
        OpenOptions::new()
            .append(true)
            .create(true)
            .open(&path)
            .and_then(|mut file| file.write_all(line.as_bytes()))
            .unwrap_or_else(|error| panic!("cannot append to {SKIPS}: {error}"));
    }
    let wanted = std::env::var_os(NO_SKIP).is_some_and(|value| value == "1");
    assert!(
        !wanted || matches!(why, Why::Cpu(_)),
        "{why}, and {NO_SKIP}=1 allows no skip"
    );
}

/// The test that runs: package, binary and the name by which its thread is known, or
/// where it called from if the runner gives it no thread of its own.
fn test(at: &Location<'_>) -> String {
    let package = std::env::var("CARGO_PKG_NAME").unwrap_or_default();
    let binary = std::env::current_exe().expect("a running program has a file");
    let binary = binary.file_name().unwrap_or_default().to_string_lossy();
    // Cargo appends a hash.
    let binary = binary.rsplit_once('-').map_or(&*binary, |(name, _)| name);
    let thread = std::thread::current();
    match thread.name().filter(|name| *name != "main") {
        Some(name) => format!("{package}/{binary}::{name}"),
        None => format!("{package}/{binary}::{}:{}", at.file(), at.line()),
    }
}
