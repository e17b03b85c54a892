//! `ashway bench flood`: a path that is flooded, and the one beside it.
//!
//! A neighbour, the echo, is asked 20,000 times a second from CPU 0, in open loop: the
//! next message comes whether the last was answered or not. Beside it another path of
//! the same receive queue is flooded from CPU 1. Its handler takes 10 us, so at ten
//! times a share of 10 % the flood wants all of the CPU. Cases, in turn in each round:
//! the neighbour alone; the flood on a path with a share; the same without; and, as the
//! least that a flood can cost, one whose handler drops everything at once, as a filter
//! by hand would.
//!
//! Then the load of the flooded path rises from half its share to ten times as much,
//! without a neighbour: what is done for it in both tiers must not fall.
//!
//! A figure is short, and a rest follows: the client spins above all other processes, and
//! of each second the scheduler keeps 50 ms for those (`sched_rt_runtime_us`, and the
//! server of fair tasks since Linux 6.12). A client that met that would time it.

use std::io::ErrorKind;
use std::net::UdpSocket;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ashway_rig::{Node, Rig, realtime};
use serde_json::{Value, json};

use crate::Report;
use crate::hosts::{self, Hosts, named, status};
use crate::neighbour::pin;
use crate::ratio::{self, Ratio, Target};
use crate::stats::{Spread, Summary, Times};
use crate::table;

/// How much to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Rounds; a ratio is their median.
    pub rounds: usize,
    /// One round and a tenth of the time: whether it works, not how fast.
    pub quick: bool,
    /// The `ashway` to measure; the release build unless told otherwise.
    pub binary: Option<PathBuf>,
}

/// How long one figure is measured, and how long nothing is measured behind it.
const LASTS: Duration = Duration::from_millis(600);
const REST: Duration = Duration::from_millis(400);

/// Figures of the neighbour in each round.
const FIGURES: usize = 3;

/// The default budget of a handler.
const BUDGET_NS: f64 = 50_000.0;

/// The neighbour's messages come so far apart.
const APART: Duration = Duration::from_micros(50);

/// The flood's come in lots so far apart.
const LOTS: Duration = Duration::from_micros(200);

/// Messages a second of which all runs of 10 us take 10 % of a CPU.
const SHARE: f64 = 10_000.0;

/// Loads of the flooded path, in shares.
const LOADS: [f64; 6] = [0.5, 1.0, 2.0, 4.0, 7.0, 10.0];

/// The neighbour's client, and the flood's sender.
const CPUS: [usize; 2] = [0, 1];

/// The neighbour's port.
const PORT: u16 = 7777;

/// Takes 10 us by the clock, in whichever tier.
const BUSY: &str = r#"(module (import "ashway" "now_ns" (func $now (result i64)))
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param i32 i32) (result i32) (local $end i64)
        (local.set $end (i64.add (call $now) (i64.const 10000)))
        (loop $on (br_if $on (i64.lt_u (call $now) (local.get $end))))
        (i32.const 0)))"#;

/// Drops.
const DROPS: &str = r#"(module (memory (export "memory") 1 1)
    (func (export "on_rx") (param i32 i32) (result i32) (i32.const 5)))"#;

/// Who is flooded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Case {
    Alone,
    Share,
    Open,
    Dropped,
}

impl Case {
    const ALL: [Self; 4] = [Self::Alone, Self::Share, Self::Open, Self::Dropped];

    const fn path(self) -> &'static str {
        match self {
            Self::Alone => "alone",
            Self::Share => "share",
            Self::Open => "open",
            Self::Dropped => "dropped",
        }
    }

    const fn says(self) -> &'static str {
        match self {
            Self::Alone => "(no flood)",
            Self::Share => "share = \"10 %\"",
            Self::Open => "no share",
            Self::Dropped => "dropped at once",
        }
    }

    const fn port(self) -> u16 {
        PORT + 1 + self as u16
    }
}

/// One case, figure by figure.
struct Row {
    case: Case,
    turns: Vec<Sample>,
}

/// What one turn came to.
struct Sample {
    /// The neighbour's answers.
    times: Summary,
    sent: u64,
    /// Messages of the neighbour's that its path received, and did not answer.
    lost: u64,
    goodput: f64,
    /// Messages of the flood a second.
    flood: f64,
}

/// What was done for the flooded path at each of [`LOADS`], round by round: runs a
/// second in both tiers.
struct Load {
    case: Case,
    rounds: Vec<[f64; LOADS.len()]>,
}

/// Measures; two minutes. Needs root, two CPUs and the built handlers.
///
/// The document: `{"rows":[...],"loads":[...],"ratios":{...}}`; times in ns.
///
/// # Errors
///
/// Without the right to make namespaces, and what the node or a socket said.
pub fn run(options: &Options) -> Result<Report> {
    let (rounds, lasts) = if options.quick {
        (1, LASTS / 10)
    } else {
        (options.rounds.max(1), LASTS)
    };
    let rig = hosts::stock("flood-share")?;
    let folder = std::env::temp_dir().join(format!("ashway-flood-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let mut builder = rig.node(config(&folder)?);
    if let Some(binary) = &options.binary {
        builder = builder.binary(binary);
    }
    let node = builder.start()?;
    let mut rows = Case::ALL.map(|case| Row {
        case,
        turns: Vec::new(),
    });
    let mut loads = [Case::Share, Case::Open].map(|case| Load {
        case,
        rounds: Vec::new(),
    });
    for round in 1..=rounds {
        eprintln!("round {round} of {rounds} ...");
        for _ in 0..FIGURES {
            // Another case begins each time, so that none always comes first.
            rows.rotate_left(1);
            for row in &mut rows {
                let turn = beside(&rig, &node, row.case, lasts);
                row.turns.push(turn.with_context(|| row.case.says())?);
                std::thread::sleep(REST);
            }
        }
        loads.rotate_left(1);
        for load in &mut loads {
            let mut done = [0.0; LOADS.len()];
            for (done, shares) in done.iter_mut().zip(LOADS) {
                *done = alone(&rig, &node, load.case, shares * SHARE, lasts)?;
                std::thread::sleep(REST);
            }
            load.rounds.push(done);
        }
    }
    node.stop()?;
    std::fs::remove_dir_all(&folder)?;
    rows.sort_by_key(|row| row.case.port());
    loads.sort_by_key(|load| load.case.port());
    Ok(report(&rows, &loads))
}

/// The neighbour, and a path for each flood: handlers of their own, so that nothing but
/// the CPUs is shared.
fn config(folder: &std::path::Path) -> Result<String> {
    let mut config = "[iface.b0]\nattach = \"xdp\"\n".to_owned();
    let mut add = |name: &str, file: &std::path::Path, port: u16, more: &str| {
        let file = file.display();
        let section = format!(
            "[handler.{name}]\nfile = \"{file}\"\nallow = [\"reply\", \"time\"]\n[path.{name}]\n\
             iface = \"b0\"\nmatch = \"udp and dst port {port}\"\nhandler = \"{name}\"\n\
             tier = \"kernel\"\n{more}\n"
        );
        config += &section;
    };
    add("neighbour", &ashway_rig::handler("echo")?, PORT, "");
    for (case, text, more) in [
        (Case::Share, BUSY, "share = \"10 %\""),
        (Case::Open, BUSY, ""),
        (Case::Dropped, DROPS, ""),
    ] {
        let file = folder.join(case.path()).with_extension("wasm");
        std::fs::write(&file, wat::parse_str(text)?)?;
        add(case.path(), &file, case.port(), more);
    }
    Ok(config)
}

/// The neighbour for a while, beside a flood if the case has one.
fn beside(rig: &Rig, node: &Node, case: Case, lasts: Duration) -> Result<Sample> {
    let neighbour = rig.client(PORT)?;
    let flooded = rig.client(case.port())?;
    let before = status(node.socket())?;
    let over = AtomicBool::new(false);
    let ((asked, times), flood) = std::thread::scope(|scope| {
        let flooder = (case != Case::Alone).then(|| {
            scope.spawn(|| pin(CPUS[1]).and_then(|()| flood(&flooded, 10.0 * SHARE, &over)))
        });
        let asker = scope.spawn(|| {
            pin(CPUS[0])?;
            Ok::<_, anyhow::Error>(realtime(|| ask(&neighbour, lasts))??)
        });
        let asked = asker.join().expect("a client does not panic");
        over.store(true, Ordering::Release);
        let flood = flooder.map_or(Ok(0.0), |it| it.join().expect("a sender does not panic"));
        Ok::<_, anyhow::Error>((asked?, flood?))
    })?;
    let after = at_rest(node, case)?;
    let rise = |key: &str| -> Result<u64> {
        let of = |status: &Value| -> Result<u64> {
            let path = named(status, "paths", "neighbour")?;
            Ok(path.pointer(key).and_then(Value::as_u64).unwrap_or(0))
        };
        Ok(of(&after)? - of(&before)?)
    };
    let times = times.summary();
    Ok(Sample {
        sent: asked,
        lost: rise("/received")? - rise("/fates/answered")?,
        goodput: times.n as f64 / lasts.as_secs_f64(),
        times,
        flood,
    })
}

/// Asks at a fixed pace, and hears what comes; how often, and how long answers took
/// from when their message was due.
fn ask(socket: &UdpSocket, lasts: Duration) -> std::io::Result<(u64, Times)> {
    socket.set_nonblocking(true)?;
    let begin = Instant::now();
    let (mut sent, mut times) = (0_u64, Times::new());
    let mut answer = [0; 8];
    loop {
        let now = begin.elapsed();
        while let Ok(8) = socket.recv(&mut answer) {
            let due = Duration::from_nanos(u64::from_be_bytes(answer));
            times.record(begin.elapsed().saturating_sub(due).as_nanos() as u64);
        }
        // Answers that are late by more than this are lost.
        if now > lasts + Duration::from_millis(20) {
            return Ok((sent, times));
        }
        let due = APART * sent as u32;
        if now >= due && now < lasts {
            match socket.send(&(due.as_nanos() as u64).to_be_bytes()) {
                // No room: what was sent before still waits behind the flood. It counts as
                // asked, and nothing will answer it.
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                sent => drop(sent?),
            }
            sent += 1;
        }
        std::hint::spin_loop();
    }
}

/// Sends so many a second until `over`; how many there were.
fn flood(socket: &UdpSocket, per_second: f64, over: &AtomicBool) -> Result<f64> {
    let sent = realtime(|| {
        let begin = Instant::now();
        let mut sent = 0_u64;
        while !over.load(Ordering::Acquire) {
            let due = (begin.elapsed().as_secs_f64() * per_second) as u64;
            while sent < due && !over.load(Ordering::Acquire) {
                // What a queue on the way has no room for is lost there.
                let _ = socket.send(&[0; 64]);
                sent += 1;
            }
            std::thread::sleep(LOTS);
        }
        sent as f64 / begin.elapsed().as_secs_f64()
    })?;
    Ok(sent)
}

/// A flood alone: runs a second that came of it, in both tiers.
fn alone(rig: &Rig, node: &Node, case: Case, per_second: f64, lasts: Duration) -> Result<f64> {
    let flooded = rig.client(case.port())?;
    let done = |status: &Value| -> Result<u64> {
        let path = named(status, "paths", case.path())?;
        Ok(path["fates"]["consumed"].as_u64().unwrap_or(0))
    };
    let before = done(&at_rest(node, case)?)?;
    let over = AtomicBool::new(false);
    let begin = Instant::now();
    std::thread::scope(|scope| {
        let flooder =
            scope.spawn(|| pin(CPUS[1]).and_then(|()| flood(&flooded, per_second, &over)));
        std::thread::sleep(lasts);
        over.store(true, Ordering::Release);
        flooder.join().expect("a sender does not panic")
    })?;
    let took = begin.elapsed();
    let after = done(&status(node.socket())?)?;
    Ok((after - before) as f64 / took.as_secs_f64())
}

/// The status once nothing of the case waits.
fn at_rest(node: &Node, case: Case) -> Result<Value> {
    let begin = Instant::now();
    loop {
        let status = status(node.socket())?;
        let waits = |name: &str| named(&status, "paths", name).is_ok_and(|it| it["waiting"] != 0);
        let rests = !waits("neighbour") && !waits(case.path());
        if rests || begin.elapsed() > Duration::from_secs(5) {
            return Ok(status);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn report(rows: &[Row], loads: &[Load]) -> Report {
    let header = [
        "FLOOD AT 10 SHARES",
        "FLOOD /s",
        "NEIGHBOUR /s",
        "MIN",
        "OF ALONE",
        "LOST",
        "P50 us",
        "P99 us",
        "P99.9 us",
    ];
    let lines: Vec<Vec<String>> = rows.iter().map(|row| row.line(rows)).collect();
    let mut heads = vec!["RUNS /s AT".to_owned()];
    heads.extend(LOADS.map(|load| format!("{load} SHARES")));
    let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
    let load_lines: Vec<Vec<String>> = loads.iter().map(Load::line).collect();
    let ratios = ratios(rows, loads);
    let text = format!(
        "A neighbour asked 20,000 times a second, beside a flood of 100,000 a second that take \
         10 us each.\nLOST: of what its path received. Medians of the figures, {FIGURES} a round.\n\n{}\n{}\n{}",
        table::render(&header, 1, &lines),
        table::render(&heads, 1, &load_lines),
        ratio::render(&ratios)
    );
    let documents: Vec<Value> = rows.iter().map(|row| row.to_json(rows)).collect();
    let load_documents: Vec<Value> = loads.iter().map(Load::to_json).collect();
    Report {
        document: json!({
            "rows": documents,
            "loads": load_documents,
            "ratios": ratio::to_json(&ratios),
        }),
        text,
    }
}

impl Row {
    fn spread(&self, of: impl Fn(&Sample) -> f64) -> Spread {
        Spread::of(self.turns.iter().map(of)).expect("there is a figure")
    }

    /// How each figure stands to that of the neighbour alone.
    fn beside_alone(&self, rows: &[Self], how: impl Fn(&Sample, &Sample) -> f64) -> Vec<f64> {
        let alone = rows.iter().find(|row| row.case == Case::Alone);
        let alone = alone.expect("it is measured in each round");
        let pairs = self.turns.iter().zip(&alone.turns);
        pairs.map(|(with, alone)| how(with, alone)).collect()
    }

    /// The goodput over that of the neighbour alone.
    fn of_alone(&self, rows: &[Self]) -> Vec<f64> {
        self.beside_alone(rows, |with, alone| with.goodput / alone.goodput)
    }

    /// The median answer's time over that of the neighbour alone.
    fn median_grows(&self, rows: &[Self]) -> Vec<f64> {
        self.beside_alone(rows, |with, alone| {
            with.times.p50 as f64 / alone.times.p50 as f64
        })
    }

    /// By how many budgets p99.9 is above that of the neighbour alone.
    fn tail_grows(&self, rows: &[Self]) -> Vec<f64> {
        self.beside_alone(rows, |with, alone| {
            (with.times.p999 as f64 - alone.times.p999 as f64) / BUDGET_NS
        })
    }

    fn lost(&self) -> u64 {
        self.turns.iter().map(|turn| turn.lost).sum()
    }

    fn line(&self, rows: &[Self]) -> Vec<String> {
        let us = |of: fn(&Summary) -> u64| {
            let spread = self.spread(|turn| of(&turn.times) as f64);
            table::digits(spread.median / 1e3)
        };
        let goodput = self.spread(|turn| turn.goodput);
        let ratio = Spread::of(self.of_alone(rows)).expect("there is a round");
        vec![
            self.case.says().to_owned(),
            format!("{:.0}", self.spread(|turn| turn.flood).median),
            format!("{:.0}", goodput.median),
            format!("{:.0}", goodput.min),
            table::digits(ratio.median),
            self.lost().to_string(),
            us(|times| times.p50),
            us(|times| times.p99),
            us(|times| times.p999),
        ]
    }

    fn to_json(&self, rows: &[Self]) -> Value {
        let times = |of: fn(&Summary) -> u64| self.spread(|turn| of(&turn.times) as f64).to_json();
        json!({
            "flood": self.case.path(),
            "flood_per_second": self.spread(|turn| turn.flood).to_json(),
            "sent": self.turns.iter().map(|turn| turn.sent).sum::<u64>(),
            "answered": self.turns.iter().map(|turn| turn.times.n).sum::<u64>(),
            "lost_of_received": self.lost(),
            "goodput_per_second": self.spread(|turn| turn.goodput).to_json(),
            "goodput_over_alone": Spread::of(self.of_alone(rows)).map(Spread::to_json),
            "p50_ns": times(|times| times.p50),
            "p99_ns": times(|times| times.p99),
            "p999_ns": times(|times| times.p999),
        })
    }
}

impl Load {
    fn at(&self, load: usize) -> Spread {
        let values = self.rounds.iter().map(|done| done[load]);
        Spread::of(values).expect("there is a round")
    }

    /// The lowest goodput over the best at a lower load, round by round.
    fn falls_to(&self) -> Vec<f64> {
        let lowest = |done: &[f64; LOADS.len()]| {
            let (mut best, mut lowest) = (done[0], f64::INFINITY);
            for done in &done[1..] {
                lowest = f64::min(lowest, done / best);
                best = f64::max(best, *done);
            }
            lowest
        };
        self.rounds.iter().map(lowest).collect()
    }

    fn line(&self) -> Vec<String> {
        let mut line = vec![self.case.says().to_owned()];
        line.extend((0..LOADS.len()).map(|load| format!("{:.0}", self.at(load).median)));
        line
    }

    fn to_json(&self) -> Value {
        let done = |load: usize| json!({ "shares": LOADS[load], "runs_per_second": self.at(load).to_json() });
        json!({
            "flood": self.case.path(),
            "at": (0..LOADS.len()).map(done).collect::<Vec<_>>(),
            "lowest_over_best_before": Spread::of(self.falls_to()).map(Spread::to_json),
        })
    }
}

/// What is promised of the path with a share; the others are recorded. What is dropped at
/// once stands beside the tail: so much does receiving such a flood cost.
fn ratios(rows: &[Row], loads: &[Load]) -> Vec<Ratio> {
    use Target::{AtLeast, AtMost, Recorded};
    let row = |case| rows.iter().find(|row| row.case == case);
    let row = |case| row(case).expect("each case has a row");
    let [share, open, dropped] = [Case::Share, Case::Open, Case::Dropped].map(row);
    let load = loads.iter().find(|load| load.case == Case::Share);
    let lost = share.turns.iter().map(|turn| turn.lost as f64).collect();
    let ratio = Ratio::of;
    [
        ratio(
            "flood_share_neighbour_goodput",
            AtLeast(0.95),
            share.of_alone(rows),
        ),
        ratio("flood_share_neighbour_lost", AtMost(0.0), lost),
        ratio(
            "flood_share_neighbour_p50",
            AtMost(1.1),
            share.median_grows(rows),
        ),
        ratio(
            "flood_share_neighbour_p999_budgets",
            AtMost(1.1),
            share.tail_grows(rows),
        ),
        ratio(
            "flood_share_goodput_never_falls",
            AtLeast(0.95),
            load.map_or_else(Vec::new, Load::falls_to),
        ),
        ratio(
            "flood_open_neighbour_goodput",
            Recorded,
            open.of_alone(rows),
        ),
        ratio(
            "flood_dropped_neighbour_goodput",
            Recorded,
            dropped.of_alone(rows),
        ),
        ratio(
            "flood_dropped_neighbour_p50",
            Recorded,
            dropped.median_grows(rows),
        ),
        ratio(
            "flood_dropped_neighbour_p999_budgets",
            Recorded,
            dropped.tail_grows(rows),
        ),
    ]
    .into_iter()
    .flatten()
    .collect()
}
