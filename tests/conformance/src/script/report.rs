//! What came of many scripts: a table for people, a document for programs.

use super::reason::Reason;
use super::tally::{ScriptResult, Tally};
use ashway_trial::Engine;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;

/// Results of scripts in one engine.
#[derive(Clone, Debug)]
pub struct Report {
    /// The engine.
    pub engine: Engine,
    /// In the order in which they ran.
    pub scripts: Vec<ScriptResult>,
}

impl Report {
    /// All counts together.
    #[must_use]
    pub fn totals(&self) -> Tally {
        let mut totals = Tally::default();
        for script in &self.scripts {
            totals.add(&script.tally);
        }
        totals
    }

    /// Counts by suite: what stands before the slash of a script's name.
    #[must_use]
    pub fn suites(&self) -> BTreeMap<&str, Tally> {
        let mut suites: BTreeMap<&str, Tally> = BTreeMap::new();
        for script in &self.scripts {
            let suite = script.name.rsplit_once('/').map_or("", |(suite, _)| suite);
            suites.entry(suite).or_default().add(&script.tally);
        }
        suites
    }

    /// One document: tier, version, totals, suites, files, failures.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let file = |script: &ScriptResult| {
            let mut counts = script.tally.to_json();
            counts["file"] = script.name.clone().into();
            counts
        };
        let failure = |script: &ScriptResult| {
            let failures = script.failures.iter();
            let document = failures.map(|failure| {
                json!({ "file": failure.script, "line": failure.line, "what": failure.what })
            });
            document.collect::<Vec<_>>()
        };
        let suites: BTreeMap<_, _> = self
            .suites()
            .into_iter()
            .map(|(suite, tally)| (suite, tally.to_json()))
            .collect();
        json!({
            "tier": self.engine.name(),
            "version": env!("CARGO_PKG_VERSION"),
            "totals": self.totals().to_json(),
            "suites": suites,
            "files": self.scripts.iter().map(file).collect::<Vec<_>>(),
            "failures": self.scripts.iter().flat_map(failure).collect::<Vec<_>>(),
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:44} {:>7} {:>7} {:>7} {:>8} {:>7}  REFUSED BY REASON",
            "SCRIPT", "PASSED", "FAILED", "REFUSED", "INVALID", "TEXT"
        )?;
        for script in &self.scripts {
            row(f, &script.name, &script.tally, true)?;
        }
        writeln!(f)?;
        for (suite, tally) in self.suites() {
            row(f, suite, &tally, false)?;
        }
        let totals = self.totals();
        row(f, "all", &totals, false)?;
        writeln!(f)?;
        reasons(f, &totals.refused)?;
        for failure in self.scripts.iter().flat_map(|script| &script.failures) {
            writeln!(
                f,
                "failed: {}:{}: {}",
                failure.script, failure.line, failure.what
            )?;
        }
        writeln!(
            f,
            "{} tier: {} passed ({} in modules that change tables), {} failed, {} refused; \
             {} invalid or malformed modules refused, {} unlinkable ones, {} that an older \
             version calls invalid taken; {} malformed texts left to the text parser",
            self.engine.name(),
            totals.passed,
            totals.table_changing,
            totals.failed,
            totals.refusals(),
            totals.invalid,
            totals.unlinkable,
            totals.valid_today,
            totals.text,
        )
    }
}

fn row(f: &mut fmt::Formatter<'_>, name: &str, tally: &Tally, why: bool) -> fmt::Result {
    let refused = tally.refusals();
    write!(
        f,
        "{name:44} {:>7} {:>7} {refused:>7} {:>8} {:>7}",
        tally.passed, tally.failed, tally.invalid, tally.text
    )?;
    if why {
        for (number, (reason, count)) in tally.refused.iter().enumerate() {
            let separator = if number == 0 { "  " } else { ", " };
            write!(f, "{separator}{reason} {count}")?;
        }
    }
    writeln!(f)
}

fn reasons(f: &mut fmt::Formatter<'_>, refused: &BTreeMap<Reason, u64>) -> fmt::Result {
    let mut reasons: Vec<_> = refused.iter().collect();
    reasons.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
    for (reason, count) in reasons {
        writeln!(f, "refused: {count:>7}  {reason}")?;
    }
    writeln!(f)
}
