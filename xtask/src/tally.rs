//! `cargo xtask tally LOG SKIPS`: what a run of all tests came to, for `./test`.
//!
//! The runners count a test that stood aside as passed. It left a line in the file
//! SKIPS (`tests/rig/src/skip.rs` wrote it), and here it is taken out again.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// Prints what failed and where, the reasons of what stood aside, how often each,
/// and then the sums.
pub(crate) fn print(log: &Path, skips: &Path) -> Result<()> {
    let log = fs::read_to_string(log).with_context(|| format!("cannot read {}", log.display()))?;
    // Nobody made it where nobody stood aside.
    let skips = fs::read_to_string(skips).unwrap_or_default();
    print!("{}", tally(&log, &skips));
    Ok(())
}

/// The runners' closing lines in `log` added up, less what `skips` says.
fn tally(log: &str, skips: &str) -> String {
    let mut said = String::new();
    let (mut passed, mut failed, mut ignored) = (0, 0, 0);
    let (mut running, mut in_failure) = ("", false);
    let mut lines = log.lines();
    while let Some(line) = lines.next() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |at: usize| words.get(at).and_then(|word| word.parse::<usize>().ok());
        if let ["Running" | "Doc-tests", ref names @ ..] = words[..] {
            // `Running unittests src/lib.rs (…)`: the last word has the crate's name.
            running = names.last().unwrap_or(&"");
        } else if let Some(test) = line.strip_suffix(" stdout ----") {
            // Only what failed has its output printed, up to the list of their names.
            let test = test.trim_start_matches("---- ");
            let _ = writeln!(said, "FAILED {running} {test}");
            in_failure = true;
        } else if in_failure && line.contains(" panicked at ") {
            let _ = writeln!(said, "    {line} {}", lines.next().unwrap_or_default());
        } else if line == "failures:" {
            in_failure = false;
        } else if line.starts_with("test result:") {
            passed += number(3).unwrap_or(0);
            failed += number(5).unwrap_or(0);
            ignored += number(7).unwrap_or(0);
        } else if let [some, "passed,", others, "failed"] = words[..] {
            passed += some.parse().unwrap_or(0);
            failed += others.parse().unwrap_or(0);
        }
    }
    let (mut skipped, mut reasons) = (BTreeSet::new(), BTreeMap::new());
    for line in skips.lines().collect::<BTreeSet<_>>() {
        let (start, why) = line.split_once(": ").unwrap_or((line, "for no reason"));
        let (test, how) = match start.strip_prefix("skipped in part ") {
            Some(test) => (test, "in part: "),
            None => (start.trim_start_matches("skipped "), ""),
        };
        if how.is_empty() {
            skipped.insert(test);
        }
        let tests: &mut BTreeSet<&str> = reasons.entry(format!("{how}{why}")).or_default();
        tests.insert(test);
    }
    for (why, tests) in reasons {
        // Writing to a string cannot fail.
        let _ = writeln!(said, "skipped {:>4} {why}", tests.len());
    }
    if ignored > 0 {
        let others = "(started by other tests, or by `-- --ignored`)";
        let _ = writeln!(said, "ignored {ignored:>4} {others}");
    }
    let skipped = skipped.len();
    let passed = passed - skipped.min(passed);
    let _ = writeln!(said, "{passed} passed, {failed} failed, {skipped} skipped");
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
     Running tests/bind.rs (target/release/deps/bind-0123)
running 5 tests
test result: ok. 5 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.3s
test result: FAILED. 7 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.3s
3 passed, 0 failed
";

    #[test]
    fn runs_without_skips_are_added_up() {
        assert_eq!(
            tally(LOG, ""),
            "ignored    2 (started by other tests, or by `-- --ignored`)\n\
             15 passed, 1 failed, 0 skipped\n"
        );
    }

    #[test]
    fn what_failed_is_named_with_its_panic() {
        let log = "\
     Running unittests src/lib.rs (target/release/deps/one-0123)
failures:

---- a::b stdout ----
# its words
thread 'a::b' (7) panicked at src/a.rs:3:9:
left is not right

---- a::c stdout ----
Error: no words

failures:
    a::b
thread 'other' panicked at src/b.rs:3:9:
test result: FAILED. 7 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.3s
";
        assert_eq!(
            tally(log, ""),
            "FAILED (target/release/deps/one-0123) a::b\n    \
             thread 'a::b' (7) panicked at src/a.rs:3:9: left is not right\n\
             FAILED (target/release/deps/one-0123) a::c\n\
             7 passed, 2 failed, 0 skipped\n"
        );
    }

    #[test]
    fn what_stood_aside_has_not_passed() {
        let skips = "\
skipped ashway-netns/bind::a: needs root
skipped ashway-netns/bind::b: needs root
skipped ashway-netns/bind::a: needs root
skipped in part ashway-cli/face::c: needs root
skipped ashway-codegen/pipe::parts::d: this CPU has no AVX-512
";
        assert_eq!(
            tally(LOG, skips),
            "skipped    1 in part: needs root\n\
             skipped    2 needs root\n\
             skipped    1 this CPU has no AVX-512\n\
             ignored    2 (started by other tests, or by `-- --ignored`)\n\
             12 passed, 1 failed, 3 skipped\n"
        );
    }

    /// A test that prints such words itself would be counted by nobody.
    #[test]
    fn nobody_stands_aside_uncounted() {
        for (path, text) in crate::documents::texts() {
            let counts = ["tests/rig/src/skip.rs", "xtask/src/tally.rs"];
            if counts.iter().any(|file| path == Path::new(file)) {
                continue;
            }
            for print in ["println!(\"", "print!(\""] {
                for word in ["skip", "not in the kernel", "not root"] {
                    let own = text.contains(&format!("{print}{word}"));
                    assert!(!own, "{}: see tests/rig/src/skip.rs", path.display());
                }
            }
        }
    }
}
