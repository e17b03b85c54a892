//! `ashway doctor --measure`: each way holds the interface while its traffic goes on, and the
//! interface is as it was when it ends.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ashway_kernel::{Attached, Mode};
use ashway_netns::node::{assert_free, counter, index, run, stock, stranger, text};
use ashway_rig::{Rig, skip_unless_root};
use serde_json::Value;

/// What it says of each way, nobody first.
fn measured(rig: &Rig) -> Vec<Value> {
    let mut doctor = rig.ashway_b().unwrap();
    doctor.args(["doctor", "b0", "--measure", "--rounds", "1", "-j"]);
    let output = run(&mut doctor);
    assert!(output.status.success(), "{}", text(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let ways = report["interfaces"][0]["measured"].as_array();
    ways.unwrap_or_else(|| panic!("{report:#}")).clone()
}

/// The ways that were refused, with why.
fn refused(ways: &[Value]) -> Vec<(&str, &str)> {
    let refused = ways.iter().filter_map(|way| {
        let why = way["refused"].as_str()?;
        Some((way["attach"].as_str().unwrap(), why))
    });
    refused.collect()
}

#[test]
fn each_way_is_measured_on_the_traffic_that_there_is() {
    if skip_unless_root() {
        return;
    }
    let rig = stock("doctor");
    let over = AtomicBool::new(false);
    let ways = std::thread::scope(|scope| {
        // Bounded by the measurement, which ends by itself.
        scope.spawn(|| {
            let client = rig.client_a(9).unwrap();
            while !over.load(Ordering::Relaxed) {
                // A port that nobody has answers by an ICMP error, which `send` then tells.
                let _ = client.socket().send(&[0; 100]);
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let ways = measured(&rig);
        over.store(true, Ordering::Relaxed);
        ways
    });
    let words = ways.iter().map(|way| way["attach"].as_str());
    let words: Vec<_> = words.collect();
    assert_eq!(
        words,
        [
            None,
            Some("tcx"),
            Some("xdp"),
            Some("generic"),
            Some("packet")
        ]
    );
    assert_eq!(refused(&ways), []);
    for way in &ways {
        let round = &way["rounds"][0];
        assert!(round["frames"].as_u64().unwrap() > 0, "{way:#}");
        assert_eq!(way["mtu_bytes"], 1500, "{way:#}");
        // Programs run for frames; with packet sockets, and for nobody, there is none.
        let programs = matches!(way["attach"].as_str(), Some("tcx" | "xdp" | "generic"));
        let runs = round["program_runs"].as_u64();
        assert_eq!(runs.is_some_and(|runs| runs > 0), programs, "{way:#}");
    }
    assert_free(&rig, "b0");
}

#[test]
fn what_stands_in_the_way_is_said_and_stays() {
    if skip_unless_root() {
        return;
    }
    let rig = stock("doctored");
    // A stranger's program at XDP: TCX is behind it, and packet sockets are, too.
    let theirs = rig.in_b(|| Attached::xdp(&stranger(), index(&rig, "b0"), Mode::Generic));
    let theirs = theirs.unwrap();
    let ways = measured(&rig);
    let names: Vec<_> = refused(&ways).into_iter().map(|(way, _)| way).collect();
    assert_eq!(names, ["xdp", "generic"], "{ways:#?}");
    let (_, why) = refused(&ways)[0];
    assert!(why.contains("`b0`") && why.contains("program"), "{why}");
    drop(theirs);

    // A node of ours is not pushed aside: it has the queue that answers leave by.
    let node = rig.node(counter("auto").unwrap()).start().unwrap();
    let ways = measured(&rig);
    let names: Vec<_> = refused(&ways).into_iter().map(|(way, _)| way).collect();
    assert_eq!(names, ["tcx", "xdp", "generic"], "{ways:#?}");
    assert_eq!(rig.client_a(7777).unwrap().ask_number(1).unwrap(), 1);
    node.stop().unwrap();
    assert_free(&rig, "b0");
}
