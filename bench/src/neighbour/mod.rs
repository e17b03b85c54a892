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
//! different ways. Beside them stands a *control*, whose messages come alike and whose
//! handler returns at once: what the traffic costs by itself.
//!
//! A machine has a tail of its own, which on a virtual one can be longer than a budget
//! and changes from second to second. So cases take turns of a tenth of a second, each
//! is compared with the victim alone in the same pass over all of them, and what counts
//! is the median of these differences ([`report`]). Turns are short also because the
//! kernel stops who spins above all others for nearly a second.

mod report;

use std::io::ErrorKind;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ashway_rig::{Node, Rig, realtime};
use rustix::thread::{CpuSet, sched_setaffinity};
use serde_json::Value;

use crate::Report;
use crate::hosts::{self, Hosts, named, status};
use crate::rtt::{self, Client, Plan};
use crate::stats::{Summary, Times};

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

/// How long the victim is asked in one turn, and how long the CPU is left to others
/// behind it.
const LASTS: Duration = Duration::from_millis(100);
const RESTS: Duration = Duration::from_millis(10);

/// How long promoting all handlers may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Turns of each case in a round.
const TURNS: usize = 18;

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

/// The control.
const RETURNS: &str = r#"(module (memory (export "memory") 1 1)
    (func (export "on_rx") (param i32 i32) (result i32) (i32.const 0)))"#;

/// Budgets in us: a node's default, and a small one.
const BUDGETS: [u32; 2] = [50, 10];

/// Who disturbs the victim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beside {
    Nobody,
    Control,
    /// By its place in [`HANDLERS`], and its budget in us.
    Hostile(usize, u32),
}

/// Who disturbs it where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Case {
    tier: &'static str,
    beside: Beside,
}

impl Case {
    /// The victim alone, the control, then each neighbour with each budget, in the
    /// kernel tier; in the user tier only one, since its clock is coarse by nature.
    fn all() -> Vec<Self> {
        let mut cases = Vec::new();
        for (tier, handlers) in [("kernel", HANDLERS.len()), ("user", 1)] {
            let hostile = |budget| (0..handlers).map(move |at| Beside::Hostile(at, budget));
            let hostile = BUDGETS.into_iter().flat_map(hostile);
            let beside = [Beside::Nobody, Beside::Control].into_iter().chain(hostile);
            cases.extend(beside.map(|beside| Self { tier, beside }));
        }
        cases
    }

    fn name(self) -> &'static str {
        match self.beside {
            Beside::Nobody => "(alone)",
            Beside::Control => "(control)",
            Beside::Hostile(handler, _) => HANDLERS[handler].name,
        }
    }

    /// The neighbour's budget in us, if it spends one.
    fn budget(self) -> Option<u32> {
        match self.beside {
            Beside::Hostile(_, budget) => Some(budget),
            _ => None,
        }
    }

    /// The neighbour's path, and its handler's.
    fn path(self) -> Option<String> {
        let tier = self.tier;
        match self.beside {
            Beside::Nobody => None,
            Beside::Control => Some(format!("control-{tier}")),
            Beside::Hostile(_, budget) => Some(format!("{}-{tier}-{budget}", self.name())),
        }
    }

    fn victim(self) -> (&'static str, u16) {
        if self.tier == "kernel" {
            ("victim-kernel", KERNEL_PORT)
        } else {
            ("victim-user", USER_PORT)
        }
    }
}

/// One case.
struct Row {
    case: Case,
    port: u16,
    rounds: Vec<Round>,
    /// Of the victim's: answered for its client; received and answered by its path.
    answered: u64,
    received: u64,
    replied: u64,
    /// Answers that did not come. A turn ends with the first.
    lost: u64,
    /// Messages of the neighbour's, and how many of them were stopped.
    sent: u64,
    stopped: u64,
    /// Those of them that the worker ran, by the reason.
    queued: Vec<(String, u64)>,
}

/// What one round measured of a case.
#[derive(Default)]
struct Round {
    /// All of its turns together.
    all: Times,
    /// One in each pass; without times where an answer was lost.
    turns: Vec<Pass>,
}

/// What one turn measured.
struct Pass {
    summary: Summary,
    /// A message that found the queue taken: of the victim's some 1 in 130 do.
    struck: u64,
}

/// Among the slowest messages, that of those which found the queue taken: 1 in 200 is
/// slower. The machine's own tail is behind it.
const STRUCK: f64 = 0.995;

/// The victim's port in each tier; the neighbours' follow.
const KERNEL_PORT: u16 = 7777;
const USER_PORT: u16 = 7778;

/// Measures; three and a half minutes with five rounds. Needs root, two CPUs and the
/// built handlers.
///
/// The document: `{"rows":[...],"ratios":{...}}`; times in ns.
///
/// # Errors
///
/// If an answer of the victim's is wrong, if a message of a neighbour's was not
/// stopped, and without the right to make namespaces.
pub fn run(options: &Options) -> Result<Report> {
    let (rounds, turns) = if options.quick {
        (1, TURNS / 10)
    } else {
        (options.rounds.max(1), TURNS)
    };
    let rig = hosts::stock("neighbour")?;
    let mut rows: Vec<Row> = (Case::all().into_iter().zip(USER_PORT + 1..))
        .map(|(case, port)| Row::new(case, port))
        .collect();
    let folder = std::env::temp_dir().join(format!("ashway-neighbour-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let config = config(&rows, &folder)?;
    let mut builder = rig.node(config);
    if let Some(binary) = &options.binary {
        builder = builder.binary(binary);
    }
    let node = builder.start()?;
    in_their_tiers(&node, &rows)?;
    for round in 1..=rounds {
        eprintln!("round {round} of {rounds} ...");
        for row in &mut rows {
            row.rounds.push(Round::default());
        }
        for _ in 0..turns {
            for row in &mut rows {
                turn(&rig, &node, row)
                    .with_context(|| format!("{} tier, {}", row.case.tier, row.case.name()))?;
            }
            // The other way round, so that each comes behind another, and begun
            // elsewhere, so that none always comes first.
            rows.reverse();
            rows.rotate_left(1);
        }
    }
    account(&node, &mut rows)?;
    node.stop()?;
    std::fs::remove_dir_all(&folder)?;
    rows.sort_by_key(|row| row.port);
    Ok(report::report(&rows))
}

impl Row {
    fn new(case: Case, port: u16) -> Self {
        Self {
            case,
            port,
            rounds: Vec::new(),
            answered: 0,
            received: 0,
            replied: 0,
            lost: 0,
            sent: 0,
            stopped: 0,
            queued: Vec::new(),
        }
    }
}

/// The victim in both tiers, and all neighbours: each handler an instance of its
/// own for each path, so that nothing but the CPU is shared.
fn config(rows: &[Row], folder: &Path) -> Result<String> {
    let counter = ashway_rig::handler("counter")?;
    let section = |name: &str, file: &Path, port: u16, tier: &str, more: &str| {
        let file = file.display();
        format!(
            "[handler.{name}]\nfile = \"{file}\"\nallow = [\"reply\"]\n\n[path.{name}]\n\
             iface = \"b0\"\nmatch = \"udp and dst port {port}\"\nhandler = \"{name}\"\n\
             tier = \"{tier}\"\n{more}\n"
        )
    };
    let mut config = "[iface.b0]\nattach = \"xdp\"\n\n".to_owned();
    for row in rows {
        let tier = row.case.tier;
        let Some(path) = row.case.path() else {
            let (name, port) = row.case.victim();
            config += &section(name, &counter, port, tier, "");
            continue;
        };
        let (text, more) = match row.case.beside {
            // It is to be stopped all the time.
            Beside::Hostile(handler, budget) => (
                HANDLERS[handler].text,
                format!("on_fault = \"drop\"\nfaults = \"off\"\nbudget = \"{budget} us\"\n"),
            ),
            _ => (RETURNS, String::new()),
        };
        let file = folder.join(&path).with_extension("wasm");
        std::fs::write(&file, wat::parse_str(text)?)?;
        config += &section(&path, &file, row.port, tier, &more);
    }
    Ok(config)
}

/// Asks the victim for a while, beside the row's neighbour if it has one.
fn turn(rig: &Rig, node: &Node, row: &mut Row) -> Result<()> {
    let (path, port) = row.case.victim();
    let victim = rig.client(port)?;
    let beside = (row.case.beside != Beside::Nobody).then(|| rig.client(row.port));
    let beside = beside.transpose()?;
    let plan = Plan {
        requests: u32::MAX,
        longest: LASTS,
        client: Client::Spinning,
    };
    let before = ledger(node, path)?;
    let over = AtomicBool::new(false);
    let (run, sent) = std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            beside.map_or(Ok(0), |socket| {
                pin(CPUS[1]).and_then(|()| disturb(&socket, &over))
            })
        });
        let asker = scope.spawn(|| {
            pin(CPUS[0])?;
            Ok::<_, anyhow::Error>(realtime(|| rtt::run(&victim, plan))?)
        });
        let run = asker.join().expect("a client does not panic");
        over.store(true, Ordering::Release);
        let sent = sender.join().expect("a sender does not panic");
        (run, sent)
    });
    row.sent += sent?;
    let after = ledger(node, path)?;
    row.received += after[0] - before[0];
    row.replied += after[1] - before[1];
    let times = match run? {
        Ok(run) => {
            // The first question is how the counter stands.
            row.answered += u64::from(run.increments) + 1;
            run.times
        }
        Err(error) if error.kind() == ErrorKind::TimedOut => {
            row.lost += 1;
            Times::new()
        }
        Err(error) => return Err(error.into()),
    };
    let round = row.rounds.last_mut().expect("a round has begun");
    round.all.add(&times)?;
    round.turns.push(Pass {
        summary: times.summary(),
        struck: times.quantile(STRUCK),
    });
    std::thread::sleep(RESTS);
    Ok(())
}

/// Waits until every path is where it is to be measured: handlers begin in the user tier
/// and are promoted one after the other.
fn in_their_tiers(node: &Node, rows: &[Row]) -> Result<()> {
    let until = Instant::now() + PATIENCE;
    loop {
        let status = status(node.socket())?;
        let mut left = None;
        for row in rows {
            let path = row.case.path();
            let path = path.unwrap_or_else(|| row.case.victim().0.to_owned());
            if named(&status, "paths", &path)?["tier"] != row.case.tier {
                left = Some(path);
            }
        }
        let Some(path) = left else {
            return Ok(());
        };
        ensure!(
            Instant::now() < until,
            "`{path}` does not get into its tier"
        );
        std::thread::sleep(RESTS);
    }
}

/// Messages that a path has received, and answered.
fn ledger(node: &Node, path: &str) -> Result<[u64; 2]> {
    let status = status(node.socket())?;
    let ledger = named(&status, "paths", path)?;
    let count = |at: &str| ledger.pointer(at).and_then(Value::as_u64);
    let counts = count("/received").zip(count("/fates/answered"));
    let (received, answered) = counts.context("the status does not say what it received")?;
    Ok([received, answered])
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

/// What the node has counted: every message of a hostile neighbour's was stopped, or in
/// the user tier found its ring full.
fn account(node: &Node, rows: &mut [Row]) -> Result<()> {
    let status = status(node.socket())?;
    for row in rows {
        let Some(path) = row.case.path().filter(|_| row.case.budget().is_some()) else {
            continue;
        };
        let ledger = named(&status, "paths", &path)?;
        let count = |cause: &str| ledger["aborts"][cause].as_u64().unwrap_or(0);
        row.stopped = count("fuel") + count("time");
        let notes = ledger["notes"].as_object().into_iter().flatten();
        let queued = notes.filter(|(name, _)| name.starts_with("queued_"));
        row.queued = queued
            .map(|(name, count)| (name.clone(), count.as_u64().unwrap_or(0)))
            .collect();
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
