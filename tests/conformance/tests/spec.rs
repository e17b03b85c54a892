//! The specification's tests for WebAssembly 2.0 in each tier, and those of the
//! threads' atomics.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use ashway_conformance::script::{Report, plenty, run, select};
use ashway_rig::skip_unless_root;
use ashway_trial::Engine;

/// Assertions of the 2.0 suite in modules without floats, that change no table
/// and import from no other module (docs/facts.md, "Assertions without floats").
const PLAIN: u64 = 6_534;

fn check(engine: Engine) -> Option<Report> {
    if engine == Engine::Kernel && skip_unless_root() {
        return None;
    }
    let words = ["wasm-v2", "threads/atomic.wast"].map(str::to_owned);
    let mut report = Report {
        engine,
        scripts: Vec::new(),
    };
    for script in select(&words).unwrap() {
        report.scripts.push(run(&script, engine, &plenty()));
    }
    println!("{report}");
    assert_eq!(report.totals().failed, 0);
    assert!(report.suites()["threads"].passed > 0, "atomics were run");
    Some(report)
}

fn passed_in_2_0(report: &Report) -> (u64, u64) {
    let tally = &report.suites()["wasm-v2"];
    (tally.passed, tally.table_changing)
}

#[test]
fn spec_user() {
    let report = check(Engine::User).unwrap();
    let (passed, _) = passed_in_2_0(&report);
    // Floats included.
    assert!(passed > 20_000, "{passed}");
}

#[test]
fn spec_interpreter() {
    let report = check(Engine::Interpreter).unwrap();
    let (passed, table_changing) = passed_in_2_0(&report);
    assert!(
        passed - table_changing >= PLAIN,
        "{passed}, {table_changing}"
    );
    assert!(table_changing > 0);
}

#[test]
fn spec_kernel() {
    let Some(report) = check(Engine::Kernel) else {
        return;
    };
    let (passed, table_changing) = passed_in_2_0(&report);
    assert!(
        passed - table_changing >= PLAIN,
        "{passed}, {table_changing}"
    );
    assert!(table_changing > 0);
}
