//! `cargo xtask mutants`: how many mistakes in the engine and the worker's loop their tests
//! notice.
//!
//! cargo-mutants changes one thing at a time in [`PARTS`] (a comparison, a sum, what a function
//! returns) and runs the tests of the package, those without root. A mutant that no test kills is behaviour that
//! no test states. Seeded bugs (`bug.rs`) are mistakes that somebody thought of; these are the
//! ones that nobody thought of.
//!
//! One job at a time. A mutant that does not end is killed by the timeout, and counts as
//! noticed; a mutant that does not compile does not count.

use std::fmt::Write as _;
use std::fs;
use std::io::{ErrorKind, stderr};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::{root, shown};

/// The program, and how to get it.
const PROGRAM: &str = "cargo-mutants";
const INSTALL: &str = "cargo install cargo-mutants --locked";

/// What is changed, by the package whose tests run.
const PARTS: [(&str, &[&str]); 2] = [
    (
        "ashway-path",
        &["crates/path/src/engine/**", "crates/path/src/sched/**"],
    ),
    (
        "ashway-worker",
        &[
            "crates/worker/src/worker.rs",
            "crates/worker/src/worker/awake.rs",
            "crates/worker/src/feeds.rs",
            "crates/worker/src/rows.rs",
            "crates/worker/src/ticket.rs",
        ],
    ),
];

/// Promised in SPECIFICATION.md, in hundredths of the mutants that compile.
const LEAST: usize = 90;

/// A test of something else, which takes minutes in a debug build.
const SLOW: &str = "plan::tests::what_is_full_is_named";

/// A mutant has five times as long as the tests take without one, and at least so many
/// seconds, because another process may have the CPU meanwhile.
const TIMEOUT: [&str; 4] = ["--timeout-multiplier", "5", "--minimum-test-timeout", "45"];

/// Tries all mutants, prints the missed ones and the sums. Takes hours.
pub(crate) fn run() -> Result<()> {
    let mut all = Sums::default();
    for (package, files) in PARTS {
        let sums = try_all(package, files)?;
        print!("{package}\n{}", sums.report());
        all.add(sums);
    }
    ensure!(
        all.suffices(),
        "fewer than {LEAST} % are killed: each one above needs a test, or simpler code"
    );
    Ok(())
}

/// Tries the mutants of one package.
fn try_all(package: &str, files: &[&str]) -> Result<Sums> {
    let folder = root().join("target/mutants").join(package);
    fs::create_dir_all(&folder)?;
    let mut command = Command::new(PROGRAM);
    command
        .args(["mutants", "--package", package])
        .args(files.iter().flat_map(|file| ["--file", file]))
        .args(["--jobs", "1", "--no-shuffle", "--colors", "never"])
        .args(TIMEOUT)
        .arg("--output")
        .arg(&folder)
        // Examples in comments are not among the tests: each is a program to be linked.
        .args(["--", "--lib", "--tests"])
        .args(["--", "--skip", SLOW])
        .current_dir(root())
        // What it says on the way is not the result.
        .stdout(stderr());
    let status = command.status().map_err(|error| {
        let missing = error.kind() == ErrorKind::NotFound;
        let context = if missing {
            format!("{PROGRAM} is not installed: `{INSTALL}`")
        } else {
            format!("cannot start `{}`", shown(&command))
        };
        anyhow::Error::from(error).context(context)
    })?;
    // 0: all were caught; 2: some were missed; 3: some took too long.
    match status.code() {
        Some(0 | 2 | 3) => {}
        Some(4) => bail!("the tests of {package} fail without a mutant: `cargo test -p {package}`"),
        _ => bail!("{PROGRAM} did not come to its end: {status}"),
    }
    let outcomes = folder.join("mutants.out/outcomes.json");
    let text = fs::read_to_string(&outcomes)
        .with_context(|| format!("cannot read {}", outcomes.display()))?;
    let document = serde_json::from_str(&text)
        .with_context(|| format!("{} is not JSON", outcomes.display()))?;
    Sums::of(&document)
}

/// What became of the mutants.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sums {
    caught: usize,
    timeout: usize,
    unviable: usize,
    /// By name: file, line, column, and what was changed.
    missed: Vec<String>,
}

impl Sums {
    /// Adds up what cargo-mutants has written.
    fn of(document: &Value) -> Result<Self> {
        let mut sums = Self::default();
        let outcomes = document["outcomes"].as_array();
        for outcome in outcomes.context("there is no list `outcomes`")? {
            // The run without a mutant is among them.
            let mutant = &outcome["scenario"]["Mutant"];
            if mutant.is_null() {
                continue;
            }
            let name = mutant["name"].as_str().context("a mutant has no name")?;
            match outcome["summary"].as_str() {
                Some("CaughtMutant") => sums.caught += 1,
                Some("Timeout") => sums.timeout += 1,
                Some("Unviable") => sums.unviable += 1,
                Some("MissedMutant") => sums.missed.push(name.to_owned()),
                _ => bail!("`{name}` has come to `{}`", outcome["summary"]),
            }
        }
        sums.missed.sort();
        Ok(sums)
    }

    fn add(&mut self, more: Self) {
        self.caught += more.caught;
        self.timeout += more.timeout;
        self.unviable += more.unviable;
        self.missed.extend(more.missed);
    }

    const fn killed(&self) -> usize {
        self.caught + self.timeout
    }

    const fn viable(&self) -> usize {
        self.killed() + self.missed.len()
    }

    /// Whether the promise is kept. Where nothing was tried nothing is shown.
    const fn suffices(&self) -> bool {
        self.viable() > 0 && self.killed() * 100 >= self.viable() * LEAST
    }

    fn report(&self) -> String {
        let mut said = String::new();
        for name in &self.missed {
            // Writing to a string cannot fail.
            let _ = writeln!(said, "missed {name}");
        }
        let (killed, viable) = (self.killed(), self.viable());
        // Rounded down: 89.96 % are not 90.
        let per_mille = (killed * 1000).checked_div(viable).unwrap_or(0);
        let _ = writeln!(
            said,
            "{} mutants: {} caught, {} timeout, {} missed, {} unviable\n\
             killed {killed} of {viable}: {}.{} %, promised {LEAST} %",
            viable + self.unviable,
            self.caught,
            self.timeout,
            self.missed.len(),
            self.unviable,
            per_mille / 10,
            per_mille % 10,
        );
        said
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn mutant(name: &str, summary: &str) -> Value {
        json!({ "scenario": { "Mutant": { "name": name } }, "summary": summary })
    }

    #[test]
    fn outcomes_are_added_up_and_the_missed_are_named() {
        let document = json!({ "outcomes": [
            { "scenario": "Baseline", "summary": "Success" },
            mutant("a.rs:1:2: replace f with ()", "CaughtMutant"),
            mutant("b.rs:7:1: replace < with >", "MissedMutant"),
            mutant("a.rs:9:1: delete !", "MissedMutant"),
            mutant("a.rs:2:2: replace g with ()", "Timeout"),
            mutant("a.rs:3:2: replace h with None", "Unviable"),
        ] });
        let sums = Sums::of(&document).unwrap();
        assert_eq!(
            sums.report(),
            "missed a.rs:9:1: delete !\n\
             missed b.rs:7:1: replace < with >\n\
             5 mutants: 1 caught, 1 timeout, 2 missed, 1 unviable\n\
             killed 2 of 4: 50.0 %, promised 90 %\n"
        );
        assert!(!sums.suffices());
    }

    #[test]
    fn a_mutant_that_does_not_end_is_killed_and_one_that_does_not_compile_is_none() {
        let sums = |caught, timeout, missed| Sums {
            caught,
            timeout,
            unviable: 1000,
            missed: vec![String::new(); missed],
        };
        assert!(sums(80, 10, 10).suffices());
        assert!(!sums(89, 0, 10).suffices());
        assert!(sums(899, 0, 100).report().contains(": 89.9 %, "));
        assert!(!sums(0, 0, 0).suffices());
    }

    #[test]
    fn what_cannot_be_read_is_not_counted_as_good() {
        assert!(Sums::of(&json!({})).is_err());
        let document = json!({ "outcomes": [mutant("a", "Failure")] });
        let error = Sums::of(&document).unwrap_err();
        assert_eq!(error.to_string(), "`a` has come to `\"Failure\"`");
    }
}
