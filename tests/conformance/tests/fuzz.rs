//! Random modules and found ones: every engine does the same with each.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use ashway_codegen::normalise::Profile;
use ashway_conformance::fuzz::{Campaign, Case, Lane, compare};
use ashway_rig::skip::root_for_a_part;
use ashway_trial::MemoryChoice;

/// The first of the seeds; any other would do.
const SEED: u64 = 2_026;
/// How many.
const MODULES: u64 = 2_000;

#[test]
fn fuzz_2000() {
    let mut campaign = Campaign::new(SEED, root_for_a_part());
    for _ in 0..MODULES {
        campaign.step();
    }
    println!("{campaign}");
    assert!(campaign.differences.is_empty(), "{campaign}");
    // Modules that all were refused, or did nothing, would agree as well.
    assert!(campaign.compared * 10 > MODULES * 9, "{campaign}");
    for end in [
        "reply",
        "fuel",
        "memory_bounds",
        "message_bounds",
        "unreachable",
    ] {
        assert!(campaign.ends.contains_key(end), "no call ended with {end}");
    }
    let returned = campaign.ends["reply"];
    let calls: u64 = campaign.ends.values().sum();
    assert!(returned * 4 > calls, "{returned} of {calls} calls returned");
}

/// What a campaign found once, and whatever else was worth keeping: a file says
/// in `;; fuel: N` what its calls may use.
#[test]
fn regressions() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/regressions");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "wat"))
        .collect();
    files.sort();
    assert!(!files.is_empty());
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let fuel = text.lines().find_map(|line| line.strip_prefix(";; fuel: "));
        let case = Case {
            seed: 0,
            wasm: wat::parse_str(&text).unwrap(),
            profile: if text.contains("\"on_rx\"") {
                Profile::Handler
            } else {
                Profile::Library
            },
            functions: usize::MAX,
            fuel: fuel.map_or(100_000, |fuel| fuel.parse().unwrap()),
            memory: MemoryChoice::Auto,
            locals_in_memory: false,
        };
        let findings = compare(&case, &Lane::all(root_for_a_part()));
        let name = file.display();
        assert_eq!(findings.differences, Vec::<String>::new(), "{name}");
        assert_eq!(findings.refused, None, "{name}");
        assert_eq!(findings.unpromoted, [], "{name}");
        assert!(findings.timed_out || !findings.ends.is_empty(), "{name}");
    }
}
