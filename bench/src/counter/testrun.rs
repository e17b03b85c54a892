//! The kernel tier beside an XDP program written by hand, by
//! `BPF_PROG_TEST_RUN`.
//!
//! Both run on the same request, from and to the same port: the reply is then
//! the next request, and each run does the whole work. Times are the CPU time of
//! the system call, divided by the number of runs: the kernel's mean is in whole ns,
//! too coarse for programs of 40 ns. The empty program is run beside them, since
//! half of those 40 ns are the test run's own.

use anyhow::{Context, Result, bail};
use ashway_kernel::{Program, TestRun};
use ashway_memory::clock;
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

/// Calls per program and load. They alternate, so that a slow moment of the
/// machine meets all three.
const CALLS: u32 = 200;

/// How often in a round all programs are loaded anew: where the kernel puts one is up to
/// chance, and it is up to 10 % faster in one place than in another.
const LOADS: usize = 4;

pub(super) fn measure(options: &Options) -> Result<Section> {
    let packet = request(1);
    let loads = (0..options.rounds * LOADS).map(|_| load(options, &packet));
    let loads = loads.collect::<Result<Vec<_>>>()?;
    let spread = |of: fn(&Load) -> f64| Spread::of(loads.iter().map(of)).context("no rounds");
    let (ashway, hand) = (spread(|it| it.ashway)?, spread(|it| it.hand)?);
    let (net, net_hand) = (spread(|it| it.net)?, spread(|it| it.net_hand)?);
    let empty = spread(|it| it.empty)?;
    let line = |name: &str, whole: Spread, net: Option<Spread>| {
        let cells = [Some(whole), net].map(|spread| match spread {
            Some(spread) => {
                let cells = [spread.median, spread.min, spread.max];
                cells.map(|ns| format!("{ns:.1}"))
            }
            None => Default::default(),
        });
        [vec![name.to_owned()], cells.concat()].concat()
    };
    let header = ["PROGRAM", "NS", "MIN", "MAX", "LESS EMPTY", "MIN", "MAX"];
    let lines = [
        line("ashway", ashway, Some(net)),
        line("by hand", hand, Some(net_hand)),
        line("empty", empty, None),
    ];
    let whole = |load: &Load| load.ashway / load.hand;
    let net_of = |load: &Load| load.net / load.net_hand;
    let by_rounds = |of: fn(&Load) -> f64| {
        let rounds = loads
            .chunks(LOADS)
            .filter_map(move |loads| Spread::of(loads.iter().map(of)));
        rounds.map(|spread| spread.median)
    };
    Ok(Section {
        document: json!({
            "packet_bytes": packet.len(),
            "ashway_ns": ashway.to_json(),
            "by_hand_ns": hand.to_json(),
            "empty_ns": empty.to_json(),
            "ashway_less_empty_ns": net.to_json(),
            "by_hand_less_empty_ns": net_hand.to_json(),
        }),
        text: format!(
            "One remote increment in the kernel, {} bytes; medians of {CALLS} calls in turn, and of \
             the times that the programs\nwere loaded:\n\n{}",
            packet.len(),
            table::render(&header, 1, &lines)
        ),
        ratios: [
            Ratio::of(
                "ashway_over_by_hand_whole",
                Target::AtMost(1.25),
                by_rounds(whole),
            ),
            Ratio::of(
                "ashway_over_by_hand_less_empty",
                Target::AtMost(1.25),
                by_rounds(net_of),
            ),
        ]
        .into_iter()
        .flatten()
        .collect(),
    })
}

/// What calls took, in ns: their medians, and those of what they took longer than the
/// empty program's beside them.
struct Load {
    ashway: f64,
    hand: f64,
    empty: f64,
    net: f64,
    net_hand: f64,
}

/// Loads the programs and calls them in turn.
fn load(options: &Options, packet: &[u8]) -> Result<Load> {
    let rig = hosts::stock("testrun")?;
    for tap in ["t0", "t1", "t2"] {
        xdp::add_tap(&rig, tap)?;
    }
    let node = options
        .node(&rig, hosts::config_at("t0", "xdp")?)?
        .start()?;
    let entry = xdp::entry(&rig, "t0")?;
    let by_hand = ByHand::load()?;
    // A run of a program that is attached nowhere begins and ends by patching it
    // into the kernel's dispatcher for XDP, which takes ms.
    let _attached = [
        Attached::to_host(&rig, "t1", &by_hand.counter)?,
        Attached::to_host(&rig, "t2", &by_hand.empty)?,
    ];
    for (name, program) in [("Ashway's", &entry), ("the hand-written", &by_hand.counter)] {
        let result = program.test_run(&TestRun {
            packet,
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
    let mut calls = Vec::new();
    for call in 0..options.scaled(CALLS) as usize {
        let mut times = [0.0; 3];
        for step in 0..programs.len() {
            // Begun at another each time, so that none always comes first.
            let at = (call + step) % programs.len();
            times[at] = ns_per_run(programs[at], packet)?;
        }
        calls.push(times);
    }
    node.stop()?;
    let median = |of: fn(&[f64; 3]) -> f64| {
        let spread = Spread::of(calls.iter().map(of));
        spread.map(|spread| spread.median).context("no calls")
    };
    Ok(Load {
        ashway: median(|times| times[0])?,
        hand: median(|times| times[1])?,
        empty: median(|times| times[2])?,
        net: median(|times| times[0] - times[2])?,
        net_hand: median(|times| times[1] - times[2])?,
    })
}

/// A request whose reply is a request again, for the next repetition: the same
/// port and the same hardware address at both ends.
fn request(number: u32) -> Vec<u8> {
    let mut frame = Frame::to_b(COUNTER_PORT, &number.to_be_bytes()).from_port(COUNTER_PORT);
    frame.eth_source = frame.eth_destination;
    frame.bytes()
}

fn ns_per_run(program: &Program, packet: &[u8]) -> Result<f64> {
    let begin = clock::thread_ns();
    program.test_run(&TestRun {
        packet,
        context: None,
        repeat: REPEAT,
    })?;
    Ok((clock::thread_ns() - begin) as f64 / f64::from(REPEAT))
}
