//! `ashway bench pipes` measures every promise, and all ways do the same: its parts
//! check that themselves before they measure.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use ashway_bench::peers;
use ashway_bench::pipes::{self, Options};
use ashway_handler::native;
use ashway_rig::skip::{Cpu, skip};

#[test]
fn a_quick_run_measures_every_promise() {
    if native::cpu().is_none() {
        skip(Cpu::Avx2);
        return;
    }
    if let Err(error) = peers::build_pipes() {
        skip(format!("{error:#}"));
        return;
    }
    let report = pipes::run(&Options {
        rounds: 1,
        quick: true,
    })
    .unwrap();
    let ratios = report.document["ratios"].as_object().unwrap();
    let promised = ratios.values().filter(|ratio| !ratio["target"].is_null());
    assert_eq!(promised.count(), 11, "{}", report.text);
    for (name, ratio) in ratios {
        let median = ratio["median"].as_f64().unwrap();
        assert!(median > 0.0 && median.is_finite(), "{name}: {median}");
    }
}
