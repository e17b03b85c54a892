//! What came of a script, in numbers.

use super::reason::Reason;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Counts of one script, of a suite, or of all.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Assertions about running code that held.
    pub passed: u64,
    /// Of them, those in modules that change a table.
    pub table_changing: u64,
    /// Whatever did not hold, of any kind.
    pub failed: u64,
    /// Assertions about running code that could not be tried, by reason.
    pub refused: BTreeMap<Reason, u64>,
    /// `assert_invalid` and `assert_malformed` of binary modules: the
    /// normaliser refused the module.
    pub invalid: u64,
    /// The same, of modules that are valid in WebAssembly 2.0: the script is
    /// about an older version.
    pub valid_today: u64,
    /// `assert_malformed` of text: refused by the `wast` crate, not by us.
    pub text: u64,
    /// `assert_unlinkable`: the normaliser refused the module, as it refuses
    /// all imports but host calls.
    pub unlinkable: u64,
}

impl Tally {
    /// Adds another's counts.
    pub fn add(&mut self, other: &Self) {
        self.passed += other.passed;
        self.table_changing += other.table_changing;
        self.failed += other.failed;
        self.invalid += other.invalid;
        self.valid_today += other.valid_today;
        self.text += other.text;
        self.unlinkable += other.unlinkable;
        for (reason, count) in &other.refused {
            *self.refused.entry(reason.clone()).or_default() += count;
        }
    }

    /// Counts an assertion that could not be tried.
    pub fn refuse(&mut self, reason: Reason) {
        *self.refused.entry(reason).or_default() += 1;
    }

    /// Assertions that could not be tried, for whatever reason.
    #[must_use]
    pub fn refusals(&self) -> u64 {
        self.refused.values().sum()
    }

    /// As a JSON object.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({
            "passed": self.passed,
            "passed_in_table_changing_modules": self.table_changing,
            "failed": self.failed,
            "refused": self.refused,
            "invalid_refused": self.invalid,
            "invalid_once_valid_today": self.valid_today,
            "malformed_text_refused_by_parser": self.text,
            "unlinkable_refused": self.unlinkable,
        })
    }
}

/// Something that did not hold.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The script.
    pub script: String,
    /// Its line, from 1.
    pub line: usize,
    /// What was expected and found.
    pub what: String,
}

/// What came of one script.
#[derive(Clone, Debug)]
pub struct ScriptResult {
    /// The script.
    pub name: String,
    /// Its counts.
    pub tally: Tally,
    /// What did not hold.
    pub failures: Vec<Failure>,
    /// Whether a clock is to blame for some of it.
    pub timed_out: bool,
}
