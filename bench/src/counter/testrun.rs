//! The kernel tier beside an XDP program written by hand, by
//! `BPF_PROG_TEST_RUN`.
//!
//! Both run on the same request, from and to the same port: the reply is then
//! the next request, and each run does the whole work. Times are the system
//! call's own, divided by the number of runs: the kernel's mean is in whole ns,
//! too coarse for programs of 40 ns. The empty program is run beside them, since
//! half of those 40 ns are the test run's own.

use std::time::Instant;

use anyhow::{Context, Result, bail};
use ashway_kernel::{Program, TestRun};
use ashway_rig::Frame;
use serde_json::json;

use super::{Options, Section};
use crate::hosts::{self, COUNTER_PORT};
use crate::peers::ByHand;
use crate::ratio::{Ratio, Target};
use crate::stats::Spread;
use crate::table;
use crate::xdp::{self, Attached};

/// Runs in one call, about 1 ms: long beside the call, short beside a time slice.
const REPEAT: u32 = 20_000;

/// Calls per program and round. They alternate, so that a slow moment of the
/// machine meets all three.
const CALLS: u32 = 200;

pub(super) fn measure(options: &Options) -> Result<Section> {
    let rig = hosts::stock("testrun")?;
    for tap in ["t0", "t1", "t2"] {
        xdp::add_tap(&rig, tap)?;
    }
    let node = options.node(&rig, hosts::config("t0")?)?.start()?;
    let entry = xdp::entry(&rig, "t0")?;
    let by_hand = ByHand::load()?;
    // A run of a program that is attached nowhere begins and ends by patching it
    // into the kernel's dispatcher for XDP, which takes ms.
    let _attached = [
        Attached::to_host(&rig, "t1", &by_hand.counter)?,
        Attached::to_host(&rig, "t2", &by_hand.empty)?,
    ];
    let packet = request(1);
    for (name, program) in [("Ashway's", &entry), ("the hand-written", &by_hand.counter)] {
        let result = program.test_run(&TestRun {
            packet: &packet,
            context: None,
            repeat: 1,
        })?;
        if result.retval != xdp::TX {
            bail!(
                "{name} program does not answer: it returned {}",
                result.retval
            );
        }
    }

    let programs = [&entry, &by_hand.counter, &by_hand.empty];
    let mut rounds = Vec::new();
    for _ in 0..options.rounds {
        let mut best = [f64::INFINITY; 3];
        for _ in 0..options.scaled(CALLS) {
            for (program, best) in programs.iter().zip(&mut best) {
                *best = best.min(ns_per_run(program, &packet)?);
            }
        }
        rounds.push(best);
    }
    node.stop()?;

    let spread = |of: usize| Spread::of(rounds.iter().map(|round| round[of])).context("no rounds");
    let (ashway, hand, empty) = (spread(0)?, spread(1)?, spread(2)?);
    let line = |name: &str, spread: Spread| {
        let net = spread.median - empty.median;
        let cells = [spread.median, net, spread.min, spread.max].map(|ns| format!("{ns:.1}"));
        [vec![name.to_owned()], cells.to_vec()].concat()
    };
    let header = ["PROGRAM", "NS", "LESS EMPTY", "MIN", "MAX"];
    let lines = [
        line("ashway", ashway),
        line("by hand", hand),
        line("empty", empty),
    ];
    let whole = rounds.iter().map(|[ashway, hand, _]| ashway / hand);
    let net = rounds
        .iter()
        .map(|[ashway, hand, empty]| (ashway - empty) / (hand - empty));
    Ok(Section {
        document: json!({
            "packet_bytes": packet.len(),
            "ashway_ns": ashway.to_json(),
            "by_hand_ns": hand.to_json(),
            "empty_ns": empty.to_json(),
        }),
        text: format!(
            "One remote increment in the kernel, {} bytes, best calls of each round:\n\n{}",
            packet.len(),
            table::render(&header, 1, &lines)
        ),
        ratios: [
            Ratio::of("ashway_over_by_hand_whole", Target::AtMost(1.25), whole),
            Ratio::of("ashway_over_by_hand_less_empty", Target::AtMost(1.25), net),
        ]
        .into_iter()
        .flatten()
        .collect(),
    })
}

/// A request from the counter's port to the counter's port.
/// A request whose reply is a request again, for the next repetition: the same
/// port and the same hardware address at both ends.
fn request(number: u32) -> Vec<u8> {
    let mut frame = Frame::to_b(COUNTER_PORT, &number.to_be_bytes()).from_port(COUNTER_PORT);
    frame.eth_source = frame.eth_destination;
    frame.bytes()
}

fn ns_per_run(program: &Program, packet: &[u8]) -> Result<f64> {
    let begin = Instant::now();
    program.test_run(&TestRun {
        packet,
        context: None,
        repeat: REPEAT,
    })?;
    Ok(begin.elapsed().as_nanos() as f64 / f64::from(REPEAT))
}
