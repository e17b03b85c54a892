//! How late timers are: `bpf_timer` beside the user tier's.
//!
//! A request sets one, and its answer says how late the last one was, by the clock of
//! whoever set it. The client sleeps until it is over: nothing else is done meanwhile
//! but what busy loops do, if there are any.

use std::time::Duration;

use anyhow::{Context, Result};
use ashway_kernel::{Program, TestRun};
use ashway_rig::{B4, Hogs};
use serde_json::{Value, json};

use super::{ASKED, World, receive};
use crate::forward::thread_cpu;
use crate::peers::Object;
use crate::stats::{Spread, Summary, Times};
use crate::table;

/// Timers of each row in a round.
pub(super) const SAMPLES: usize = 200;

/// What they are set for, in us, and beside how many busy loops.
const SET_US: [u32; 3] = [100, 1_000, 10_000];
const HOGS: [usize; 2] = [0, 4];

/// How long a client waits longer than a timer is set for: an idle worker sleeps by then.
/// What is not over by then was at least so late.
const REST: Duration = Duration::from_millis(2);

/// What the answer says of a timer that is not over.
const PENDING: u32 = u32::MAX;

/// Runs for one figure of what setting one takes, and how many figures.
const BATCH: u32 = 20_000;
const BATCHES: usize = 20;

/// Sets one for as many ns as the request begins with, and says how late the last was.
pub(super) const HANDLER: &str = r#"(module
    (import "ashway" "msg_load32be" (func $load (param i32) (result i32)))
    (import "ashway" "msg_store32be" (func $store (param i32 i32)))
    (import "ashway" "now_ns" (func $now (result i64)))
    (import "ashway" "timer_set" (func $set (param i32 i64) (result i32)))
    (memory (export "memory") 1 1)
    (global $due (mut i64) (i64.const 0))
    (global $late (mut i64) (i64.const 0))
    (func (export "on_rx") (param i32 i32) (result i32) (local $ns i64)
        (local.set $ns (i64.extend_i32_u (call $load (i32.const 0))))
        (call $store (i32.const 0) (i32.wrap_i64 (global.get $late)))
        (global.set $late (i64.const 0xffffffff))
        (global.set $due (i64.add (call $now) (local.get $ns)))
        (drop (call $set (i32.const 0) (local.get $ns)))
        (i32.const 1))
    (func (export "on_timer") (param i32 i32) (result i32)
        (global.set $late (i64.sub (call $now) (global.get $due)))
        (i32.const 0)))"#;

/// One kind of timer, set for so long, beside so many busy loops.
pub(super) struct Row {
    node: bool,
    set_us: u32,
    hogs: usize,
    rounds: Vec<Summary>,
}

pub(super) fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for hogs in HOGS {
        for set_us in SET_US {
            rows.extend([true, false].map(|node| Row {
                node,
                set_us,
                hogs,
                rounds: Vec::new(),
            }));
        }
    }
    rows
}

/// One figure of every row.
pub(super) fn round(world: &World, rows: &mut [Row], samples: usize) -> Result<()> {
    for hogs in HOGS {
        let _hogs = Hogs::start(hogs).context("cannot start busy loops")?;
        for row in rows.iter_mut().filter(|row| row.hogs == hogs) {
            let times = late(world, row, samples);
            let times = times.with_context(|| format!("the timer of {}", row.name()))?;
            row.rounds.push(times.summary());
        }
    }
    Ok(())
}

fn late(world: &World, row: &Row, samples: usize) -> Result<Times> {
    let socket = world.client(row.node)?;
    let port = if row.node { 7104 } else { 7202 };
    let mut request = [0; ASKED];
    request[..4].copy_from_slice(&(row.set_us * 1_000).to_be_bytes());
    let mut times = Times::new();
    for sample in 0..=samples {
        socket.send_to(&request, (B4, port))?;
        let mut answer = [0; ASKED];
        receive(&socket, &mut answer)?;
        // The first says what an earlier row left.
        if sample > 0 {
            let late = answer[..4].try_into().map(u32::from_be_bytes)?;
            times.record(match late {
                PENDING => REST.as_nanos() as u64,
                late => late.into(),
            });
        }
        std::thread::sleep(Duration::from_micros(row.set_us.into()) + REST);
    }
    Ok(times)
}

/// What setting a `bpf_timer` takes, in ns: the median of batches, each less one of
/// a program that does not.
pub(super) fn arm(object: &Object) -> Result<f64> {
    let programs = [object.program("arm")?, object.program("arm_not")?];
    let mut differences = Vec::new();
    for _ in 0..BATCHES {
        let [arm, not] = [time(&programs[0])?, time(&programs[1])?];
        differences.push(arm - not);
    }
    Ok(Spread::of(differences).context("no batches")?.median)
}

/// CPU time of one run, in ns.
fn time(program: &Program) -> Result<f64> {
    let start = thread_cpu();
    program.test_run(&TestRun {
        packet: &[0; ASKED],
        context: None,
        repeat: BATCH,
    })?;
    Ok((thread_cpu() - start) as f64 / f64::from(BATCH))
}

impl Row {
    fn name(&self) -> &'static str {
        if self.node {
            "user tier: timer_set"
        } else {
            "by hand: bpf_timer"
        }
    }

    fn spread(&self, of: fn(&Summary) -> u64) -> Spread {
        let values = self.rounds.iter().map(|round| of(round) as f64);
        Spread::of(values).expect("there is a round")
    }

    fn spreads(&self) -> [(&'static str, Spread); 3] {
        [
            ("late_p50_ns", self.spread(|late| late.p50)),
            ("late_p99_ns", self.spread(|late| late.p99)),
            ("late_max_ns", self.spread(|late| late.max)),
        ]
    }

    pub(super) fn to_json(&self) -> Value {
        let mut value =
            json!({ "timer": self.name(), "set_ns": self.set_us * 1_000, "hogs": self.hogs });
        for (name, spread) in self.spreads() {
            value[name] = spread.to_json();
        }
        value
    }
}

pub(super) fn render(rows: &[Row]) -> String {
    let line = |row: &Row| {
        let [p50, p99, max] = row.spreads().map(|(_, spread)| spread);
        let us = |ns: f64| table::digits(ns / 1e3);
        let mut line = vec![row.name().to_owned()];
        line.extend([row.set_us.to_string(), row.hogs.to_string()]);
        line.extend([p50.median, p50.min, p50.max, p99.median, max.median].map(us));
        line
    };
    let lines: Vec<_> = rows.iter().map(line).collect();
    let header = [
        "TIMER",
        "SET us",
        "HOGS",
        "LATE P50 us",
        "MIN",
        "MAX",
        "P99 us",
        "LONGEST us",
    ];
    table::render(&header, 1, &lines)
}
