//! `ashway bench neighbour`: what a handler costs the paths beside it.
//!
//! A victim, the counter, is asked in turn from CPU 0. A neighbour's messages come
//! from CPU 1, 1,000 a second, and its handler uses all of its budget each time.
//! Both arrive at the one receive queue of a veth, as on a network card with one:
//! while the neighbour's handler runs, on CPU 1, the queue is taken, and a message
//! of the victim's waits until it has ended. A budget is inflicted latency; this
//! says how much of it arrives.
//!
//! The victim's client spins, above ordinary processes: one that sleeps is woken by
//! the other CPU just when it had to wait, which takes 30 us of a guest's and is no
//! doing of the neighbour's.
//!
//! The handlers are those of `tests/hostile` that spend a budget in the most
//! different ways. Each round measures every one, and the victim alone.

use std::net::UdpSocket;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ashway_rig::{Node, Rig, realtime};
use rustix::thread::{CpuSet, sched_setaffinity};
use serde_json::{Value, json};

use crate::Report;
use crate::hosts::{self, Hosts, status};
use crate::ratio::{self, Ratio, Target};
use crate::rtt::{self, Client, Plan};
use crate::stats::{Spread, Summary};
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

/// How long the victim is asked for one figure.
const LASTS: Duration = Duration::from_secs(1);

/// A neighbour's messages come so far apart.
const APART: Duration = Duration::from_millis(1);

/// The victim's client, and the neighbour's sender.
const CPUS: [usize; 2] = [0, 1];

/// A handler of the corpus.
struct Hostile {
    name: &'static str,
    text: &'static str,
}

macro_rules! hostile {
    ($($name:literal)*) => {
        [$(Hostile {
            name: $name,
            text: include_str!(concat!("../../../tests/hostile/", $name, ".wat")),
        }),*]
    };
}

const HANDLERS: [Hostile; 5] = hostile! {
    "loop-empty" "slow-cache-miss" "slow-pointer-chase" "bulk-copy-64k" "recursion-up-and-down"
};

/// Who disturbs the victim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Case {
    /// Where both run.
    tier: &'static str,
    /// The neighbour's handler, by its place in [`HANDLERS`], and its budget in us.
    neighbour: Option<(usize, u32)>,
}

/// Budgets in us: a node's default, and a small one.
const BUDGETS: [u32; 2] = [50, 10];

impl Case {
    /// The victim alone, then each neighbour with each budget, in the kernel tier;
    /// in the user tier only one, since its clock is coarse by nature.
    fn all() -> Vec<Self> {
        let mut cases = Vec::new();
        for (tier, handlers) in [("kernel", HANDLERS.len()), ("user", 1)] {
            cases.push(Self {
                tier,
                neighbour: None,
            });
            for budget in BUDGETS {
                let with = |handler| Self {
                    tier,
                    neighbour: Some((handler, budget)),
                };
                cases.extend((0..handlers).map(with));
            }
        }
        cases
    }

    fn name(self) -> String {
        match self.neighbour {
            None => "(alone)".to_owned(),
            Some((handler, _)) => HANDLERS[handler].name.to_owned(),
        }
    }

    /// The neighbour's path, and its handler.
    fn path(self) -> Option<String> {
        let (handler, budget) = self.neighbour?;
        Some(format!("{}-{}-{budget}", HANDLERS[handler].name, self.tier))
    }
}

/// One case, round by round.
struct Row {
    case: Case,
    port: u16,
    rounds: Vec<Summary>,
    /// Messages of the neighbour's, and how many of them were stopped.
    sent: u64,
    stopped: u64,
}

/// The victim's port in each tier; the neighbours' follow.
const KERNEL_PORT: u16 = 7777;
const USER_PORT: u16 = 7778;

/// Measures; some two minutes. Needs root, two CPUs and the built handlers.
///
/// The document: `{"rows":[...],"ratios":{...}}`; times in ns.
///
/// # Errors
///
/// If an answer of the victim's is missing or wrong, if a message of a neighbour's
/// was not stopped, and without the right to make namespaces.
pub fn run(options: &Options) -> Result<Report> {
    let (rounds, lasts) = if options.quick {
        (1, LASTS / 10)
    } else {
        (options.rounds.max(1), LASTS)
    };
    let rig = hosts::stock("neighbour")?;
    let mut rows: Vec<Row> = Case::all()
        .into_iter()
        .zip(USER_PORT + 1..)
        .map(|(case, port)| Row {
            case,
            port,
            rounds: Vec::new(),
            sent: 0,
            stopped: 0,
        })
        .collect();
    let folder = std::env::temp_dir().join(format!("ashway-neighbour-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let config = config(&rows, &folder)?;
    let mut builder = rig.node(config);
    if let Some(binary) = &options.binary {
        builder = builder.binary(binary);
    }
    let node = builder.start()?;
    for round in 1..=rounds {
        eprintln!("round {round} of {rounds} ...");
        // Rounds start at another case each, so that none always comes first.
        rows.rotate_left(1);
        for row in &mut rows {
            turn(&rig, row, lasts)
                .with_context(|| format!("{} tier, {}", row.case.tier, row.case.name()))?;
        }
    }
    account(&node, &mut rows)?;
    node.stop()?;
    std::fs::remove_dir_all(&folder)?;
    rows.sort_by_key(|row| row.port);
    Ok(report(&rows))
}

/// The victim in both tiers, and all neighbours: each handler an instance of its
/// own for each path, so that nothing but the CPU is shared.
fn config(rows: &[Row], folder: &std::path::Path) -> Result<String> {
    let counter = ashway_rig::handler("counter")?;
    let section = |name: &str, file: &std::path::Path, port: u16, tier: &str, more: &str| {
        let file = file.display();
        format!(
            "[handler.{name}]\nfile = \"{file}\"\nallow = [\"reply\"]\n\n[path.{name}]\n\
             iface = \"b0\"\nmatch = \"udp and dst port {port}\"\nhandler = \"{name}\"\n\
             tier = \"{tier}\"\n{more}\n"
        )
    };
    let mut config = "[iface.b0]\n\n".to_owned();
    for (tier, port) in [("kernel", KERNEL_PORT), ("user", USER_PORT)] {
        config += &section(&format!("victim-{tier}"), &counter, port, tier, "");
    }
    for row in rows {
        let Some((path, (handler, budget))) = row.case.path().zip(row.case.neighbour) else {
            continue;
        };
        let file = folder.join(&path).with_extension("wasm");
        std::fs::write(&file, wat::parse_str(HANDLERS[handler].text)?)?;
        // It is to be stopped all the time.
        let more = format!("on_fault = \"drop\"\nfaults = \"off\"\nbudget = \"{budget} us\"\n");
        config += &section(&path, &file, row.port, row.case.tier, &more);
    }
    Ok(config)
}

/// Asks the victim for a while, beside the row's neighbour if it has one.
fn turn(rig: &Rig, row: &mut Row, lasts: Duration) -> Result<()> {
    let port = if row.case.tier == "kernel" {
        KERNEL_PORT
    } else {
        USER_PORT
    };
    let victim = rig.client(port)?;
    let neighbour = row
        .case
        .neighbour
        .map(|_| rig.client(row.port))
        .transpose()?;
    let plan = Plan {
        requests: u32::MAX,
        longest: lasts,
        client: Client::Spinning,
    };
    let over = AtomicBool::new(false);
    let (run, sent) = std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            neighbour.map_or(Ok(0), |socket| {
                pin(CPUS[1]).and_then(|()| disturb(&socket, &over))
            })
        });
        let asker = scope.spawn(|| {
            pin(CPUS[0])?;
            Ok::<_, anyhow::Error>(realtime(|| rtt::run(&victim, plan))??)
        });
        let run = asker.join().expect("a client does not panic");
        over.store(true, Ordering::Release);
        let sent = sender.join().expect("a sender does not panic");
        (run, sent)
    });
    row.rounds.push(run?.times.summary());
    row.sent += sent?;
    Ok(())
}

/// Sends until the other is done, at a fixed pace and above ordinary processes.
fn disturb(socket: &UdpSocket, over: &AtomicBool) -> Result<u64> {
    let sent = realtime(|| {
        let mut sent = 0;
        while !over.load(Ordering::Acquire) {
            let due = Instant::now() + APART;
            socket.send(&[0; 64])?;
            sent += 1;
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
        }
        Ok::<_, std::io::Error>(sent)
    })?;
    Ok(sent?)
}

/// Keeps this thread, and those that it starts, on a CPU.
pub(crate) fn pin(cpu: usize) -> Result<()> {
    let mut cpus = CpuSet::new();
    cpus.set(cpu);
    sched_setaffinity(None, &cpus).with_context(|| format!("cannot stay on CPU {cpu}"))
}

/// What the node has counted: every message of a neighbour's was stopped, or in the
/// user tier found its ring full.
fn account(node: &Node, rows: &mut [Row]) -> Result<()> {
    let status = status(node.socket())?;
    for row in rows {
        let Some(path) = row.case.path() else {
            continue;
        };
        let ledger = hosts::named(&status, "paths", &path)?;
        let count = |cause: &str| ledger["aborts"][cause].as_u64().unwrap_or(0);
        row.stopped = count("fuel") + count("time");
        let tier = &ledger["tier"];
        ensure!(*tier == row.case.tier, "`{path}` ran in the {tier} tier");
        let full = ledger["fates"]["dropped"]["ring_full"]
            .as_u64()
            .unwrap_or(0);
        ensure!(
            row.stopped + full == row.sent,
            "`{path}`: {} of {} messages were stopped, {full} found a full ring: {ledger}",
            row.stopped,
            row.sent
        );
    }
    Ok(())
}

fn report(rows: &[Row]) -> Report {
    let lines: Vec<Vec<String>> = rows.iter().map(|row| row.line(rows)).collect();
    let header = [
        "TIER",
        "NEIGHBOUR",
        "BUDGET us",
        "P50 us",
        "MIN",
        "MAX",
        "P99 us",
        "P99.9 us",
        "MIN",
        "MAX",
        "P50 x",
        "GROWTH",
        "STOPPED",
    ];
    let ratios = ratios(rows);
    let text = format!(
        "A victim asked in turn, beside a neighbour that spends its budget 1,000 times a \
         second on the\nsame receive queue. P50 x: over the victim alone. GROWTH: what its p99.9 \
         has grown by, in budgets\nof the neighbour. Medians of the rounds.\n\n{}\n{}",
        table::render(&header, 2, &lines),
        ratio::render(&ratios)
    );
    let documents: Vec<Value> = rows.iter().map(|row| row.to_json(rows)).collect();
    Report {
        document: json!({ "rows": documents, "ratios": ratio::to_json(&ratios) }),
        text,
    }
}

impl Row {
    fn spread(&self, of: fn(&Summary) -> u64) -> Spread {
        let values = self.rounds.iter().map(|summary| of(summary) as f64);
        Spread::of(values).expect("there is a round")
    }

    /// The victim alone in the same tier, in the same rounds.
    fn alone<'r>(&self, rows: &'r [Self]) -> &'r Self {
        let alone = |row: &&Self| row.case.neighbour.is_none() && row.case.tier == self.case.tier;
        rows.iter()
            .find(alone)
            .expect("it is measured in each tier")
    }

    /// The p50 over that of the victim alone, round by round.
    fn slower(&self, rows: &[Self]) -> Vec<f64> {
        let pairs = self.rounds.iter().zip(&self.alone(rows).rounds);
        pairs
            .map(|(with, alone)| with.p50 as f64 / alone.p50 as f64)
            .collect()
    }

    /// What the p99.9 has grown by, in budgets.
    fn growth(&self, rows: &[Self]) -> Vec<f64> {
        let Some((_, budget)) = self.case.neighbour else {
            return Vec::new();
        };
        let pairs = self.rounds.iter().zip(&self.alone(rows).rounds);
        let grown = |(with, alone): (&Summary, &Summary)| with.p999 as f64 - alone.p999 as f64;
        pairs
            .map(|pair| grown(pair) / (f64::from(budget) * 1e3))
            .collect()
    }

    fn line(&self, rows: &[Self]) -> Vec<String> {
        let us = |value: f64| table::digits(value / 1e3);
        let p50 = self.spread(|summary| summary.p50);
        let p99 = self.spread(|summary| summary.p99);
        let p999 = self.spread(|summary| summary.p999);
        let budget = self.case.neighbour.map(|(_, budget)| budget.to_string());
        let ratio = |values: Vec<f64>| {
            let spread = Spread::of(values).filter(|_| self.case.neighbour.is_some());
            spread.map_or_else(String::new, |spread| table::digits(spread.median))
        };
        vec![
            self.case.tier.to_owned(),
            self.case.name(),
            budget.unwrap_or_default(),
            us(p50.median),
            us(p50.min),
            us(p50.max),
            us(p99.median),
            us(p999.median),
            us(p999.min),
            us(p999.max),
            ratio(self.slower(rows)),
            ratio(self.growth(rows)),
            if self.sent > 0 {
                self.stopped.to_string()
            } else {
                String::new()
            },
        ]
    }

    fn to_json(&self, rows: &[Self]) -> Value {
        let spread = |values| Spread::of(values).map(Spread::to_json);
        json!({
            "tier": self.case.tier,
            "neighbour": self.case.neighbour.map(|(handler, _)| HANDLERS[handler].name),
            "budget_ns": self.case.neighbour.map(|(_, budget)| u64::from(budget) * 1000),
            "n": self.rounds.iter().map(|summary| summary.n).sum::<u64>(),
            "p50_ns": self.spread(|s| s.p50).to_json(),
            "p99_ns": self.spread(|s| s.p99).to_json(),
            "p999_ns": self.spread(|s| s.p999).to_json(),
            "max_ns": self.spread(|s| s.max).to_json(),
            "p50_over_alone": spread(self.slower(rows)),
            "p999_growth_in_budgets": spread(self.growth(rows)),
            "neighbour_sent": self.sent,
            "neighbour_stopped": self.stopped,
        })
    }
}

/// The worst neighbour of the kernel tier with each budget, round by round; what the
/// user tier does is recorded.
fn ratios(rows: &[Row]) -> Vec<Ratio> {
    let worst = |tier: &str, budget: u32, of: &dyn Fn(&Row) -> Vec<f64>| {
        let picked = rows.iter().filter(|row| {
            row.case.tier == tier && row.case.neighbour.is_some_and(|(_, its)| its == budget)
        });
        let columns: Vec<Vec<f64>> = picked.map(of).collect();
        let rounds = 0..columns.first().map_or(0, Vec::len);
        let values = rounds.map(|round| {
            let column = columns.iter().map(|column| column[round]);
            column.fold(f64::MIN, f64::max)
        });
        values.collect::<Vec<_>>()
    };
    let slower = |row: &Row| row.slower(rows);
    let growth = |row: &Row| row.growth(rows);
    let us = |row: &Row| {
        let budgets = row
            .case
            .neighbour
            .map_or(0.0, |(_, budget)| f64::from(budget));
        row.growth(rows)
            .into_iter()
            .map(|growth| growth * budgets)
            .collect()
    };
    let (kept, grown, none) = (Target::AtMost(1.10), Target::AtMost(1.10), Target::Recorded);
    [
        Ratio::of(
            "kernel_p50_over_alone_50us",
            kept,
            worst("kernel", 50, &slower),
        ),
        Ratio::of(
            "kernel_p50_over_alone_10us",
            kept,
            worst("kernel", 10, &slower),
        ),
        Ratio::of(
            "kernel_p999_growth_in_budgets_50us",
            grown,
            worst("kernel", 50, &growth),
        ),
        Ratio::of(
            "kernel_p999_growth_in_budgets_10us",
            none,
            worst("kernel", 10, &growth),
        ),
        Ratio::of("kernel_p999_growth_us_50us", none, worst("kernel", 50, &us)),
        Ratio::of("kernel_p999_growth_us_10us", none, worst("kernel", 10, &us)),
        Ratio::of("user_p50_over_alone_50us", none, worst("user", 50, &slower)),
        Ratio::of(
            "user_p999_growth_in_budgets_50us",
            none,
            worst("user", 50, &growth),
        ),
        Ratio::of(
            "user_p999_growth_in_budgets_10us",
            none,
            worst("user", 10, &growth),
        ),
    ]
    .into_iter()
    .flatten()
    .collect()
}
