//! `ashway bench drain`: how fast the user tier takes messages, when more come than it can
//! take.
//!
//! Live frames, each written anew ([`xdp::rewriting`]), come from CPU 0, where the veth
//! receives them in softirq, too. Whoever takes them has one thread, kept on CPU 1. Cases,
//! in turn in each round, each on hosts of its own:
//!
//! * `socket`: a program in C that calls recvmmsg(2) again and again (`peers/udp_drain.c`);
//! * `consume`: a handler that takes each message and does nothing with it;
//! * `answer`: the counter, which changes each message and sends it back;
//! * `loop`: a path of modules whose first stage ends each message, since the datagram's
//!   checksum is wrong: what the worker's loop costs, from the descriptor in the ring to the
//!   first stage and back to the ring, without any handler. The stage's own work (the headers
//!   of a frame of 64 bytes, both checksums) is in it. The worker is faster than live frames
//!   come, and would be found waiting for them; so these are test runs of the node's entry
//!   program, which puts the frame into the ring and nothing else.
//!
//! With `ASHWAY_BEFORE` the last three are also those of another `ashway`.
//!
//! Beside the socket, messages a second are compared: it is not the thread that limits that,
//! but the host's stack on the sender's CPU. The other ratios are of messages for each second
//! of CPU time that the thread has had, so that a thread that was interrupted costs nobody.
//! `OFFERED` is what came meanwhile: where no more was offered than taken, the thread could
//! have done more.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ashway_kernel::iface;
use ashway_rig::{Frame, Node, Process, Rig, Spoil};
use rustix::thread::{CpuSet, Pid, sched_setaffinity};
use serde_json::{Value, json};

use crate::Report;
use crate::hosts::{self, named, status};
use crate::peers;
use crate::ratio::{self, Ratio, Target};
use crate::stats::Spread;
use crate::table;
use crate::xdp::{self, Attached};

/// How much to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Rounds; a ratio is their median.
    pub rounds: usize,
    /// One round and a tenth of everything: whether it works, not how fast.
    pub quick: bool,
    /// The `ashway` to measure; the release build unless told otherwise.
    pub binary: Option<PathBuf>,
    /// Another one, to be compared with.
    pub before: Option<PathBuf>,
}

/// How long one case is flooded in one pass.
const LASTS: Duration = Duration::from_millis(500);

/// Passes over all cases in a round: on a machine that others use, cases that take turns
/// quickly meet the same of them.
const PASSES: u32 = 4;

/// Frames in one call, which ends in a wait of about 24 ms.
const CALL: u32 = 1_000_000;

/// Length of each frame.
const FRAME_BYTES: usize = 64;

/// Where all of them are sent to.
const PORT: u16 = 7777;

/// The CPU of whoever takes; the sender has 0.
const CPU: usize = 1;

/// Takes each message and does nothing.
const CONSUMES: &str = r#"(module (memory (export "memory") 1 1)
    (func (export "on_rx") (param i32 i32) (result i32) (i32.const 0)))"#;

/// What is done with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Consume,
    Answer,
    Loop,
}

/// Who takes the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Case {
    Socket,
    Now(Work),
    Before(Work),
}

impl Case {
    const ALL: [Self; 7] = [
        Self::Socket,
        Self::Now(Work::Consume),
        Self::Before(Work::Consume),
        Self::Now(Work::Answer),
        Self::Before(Work::Answer),
        Self::Now(Work::Loop),
        Self::Before(Work::Loop),
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Socket => "socket",
            Self::Now(Work::Consume) => "consume",
            Self::Now(Work::Answer) => "answer",
            Self::Now(Work::Loop) => "loop",
            Self::Before(Work::Consume) => "consume_before",
            Self::Before(Work::Answer) => "answer_before",
            Self::Before(Work::Loop) => "loop_before",
        }
    }
}

/// What came of floods.
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    /// How long they lasted.
    lasted: Duration,
    /// Messages that were taken.
    messages: u64,
    /// CPU time of the thread.
    thread_ns: u64,
    /// Messages that came.
    accepted: u64,
}

impl Sample {
    /// CPU time of the thread for each message.
    fn ns(&self) -> f64 {
        self.thread_ns as f64 / self.messages as f64
    }

    /// Messages a second.
    fn rate(&self) -> f64 {
        self.messages as f64 / self.lasted.as_secs_f64()
    }

    fn offered(&self) -> f64 {
        self.accepted as f64 / self.lasted.as_secs_f64()
    }

    fn add(&mut self, other: &Self) {
        self.lasted += other.lasted;
        self.messages += other.messages;
        self.thread_ns += other.thread_ns;
        self.accepted += other.accepted;
    }
}

/// Who takes the messages of a case, on hosts of its own. One that has none sleeps.
struct Taker {
    // Ends before its host does.
    node: Option<Node>,
    rig: Rig,
    work: Work,
    _attached: Attached,
}

/// A case, who it is, and what it came to in each round.
struct Row {
    case: Case,
    taker: Taker,
    turns: Vec<Sample>,
}

/// Measures; about 12 s a round, and twice that with another `ashway`. Needs root, two CPUs,
/// gcc and the built handlers.
///
/// The document: `{"cases":{...},"ratios":{...}}`; times in ns.
///
/// # Errors
///
/// Without the right to make namespaces, and what the node said.
pub fn run(options: &Options) -> Result<Report> {
    let (rounds, passes, lasts) = if options.quick {
        (1, 1, LASTS / 10)
    } else {
        (options.rounds.max(1), PASSES, LASTS)
    };
    let folder = std::env::temp_dir().join(format!("ashway-drain-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let consumes = folder.join("consumes.wasm");
    fs::write(&consumes, wat::parse_str(CONSUMES)?)?;
    let asked = |case: &Case| options.before.is_some() || !matches!(case, Case::Before(_));
    let mut rows = Vec::new();
    for case in Case::ALL.into_iter().filter(asked) {
        let taker = Taker::start(options, case, &consumes).with_context(|| case.name())?;
        rows.push(Row {
            case,
            taker,
            turns: Vec::new(),
        });
    }
    for round in 1..=rounds {
        eprintln!("round {round} of {rounds} ...");
        for row in &mut rows {
            row.turns.push(Sample::default());
        }
        for _ in 0..passes {
            // Another case begins each time, so that none always comes first.
            rows.rotate_left(1);
            for row in &mut rows {
                let turn = row.taker.turn(lasts).with_context(|| row.case.name())?;
                row.turns[round - 1].add(&turn);
            }
        }
    }
    fs::remove_dir_all(&folder)?;
    rows.sort_by_key(|row| Case::ALL.iter().position(|known| *known == row.case));
    Ok(report(&rows))
}

fn config(work: Work, consumes: &Path) -> Result<String> {
    let (file, grants) = match work {
        Work::Consume => (consumes.to_owned(), ""),
        Work::Answer => (ashway_rig::handler("counter")?, "allow = [\"reply\"]\n"),
        Work::Loop => {
            return Ok(
                "[iface.b0]\nmode = \"native\"\n[module.end]\nkind = \"sink\"\n\
                 down = \"udp.up\"\n"
                    .to_owned(),
            );
        }
    };
    Ok(format!(
        "[iface.b0]\nmode = \"native\"\n[handler.takes]\nfile = \"{}\"\n{grants}\
         [path.drain]\niface = \"b0\"\nmatch = \"udp and dst port {PORT}\"\n\
         handler = \"takes\"\ntier = \"user\"\n",
        file.display()
    ))
}

impl Taker {
    fn start(options: &Options, case: Case, consumes: &Path) -> Result<Self> {
        let (work, binary) = match case {
            Case::Socket => return Self::with_a_socket(),
            Case::Now(work) => (work, options.binary.as_deref()),
            Case::Before(work) => (work, options.before.as_deref()),
        };
        let rig = hosts::stock(&format!("drain-{}", case.name().replace('_', "-")))?;
        let mut builder = rig.node(config(work, consumes)?);
        if let Some(binary) = binary {
            builder = builder.binary(binary);
        }
        let node = builder.start()?;
        if work == Work::Loop {
            let attrs = json!({ "local": format!("10.7.0.2:{PORT}") });
            let path = json!({ "name": "drain", "module": "end", "attrs": attrs });
            hosts::ask(
                node.socket(),
                &json!({ "request": "create", "paths": [path] }),
            )?;
        }
        Ok(Self {
            _attached: Attached::to_client(&rig, xdp::DROP)?,
            node: Some(node),
            rig,
            work,
        })
    }

    /// The hosts of the program with a socket, which is there while it is flooded only: it
    /// does not sleep.
    fn with_a_socket() -> Result<Self> {
        let rig = hosts::stock("drain-socket")?;
        // Live frames reach a veth without an XDP program only if it has NAPI, which
        // receive offload brings.
        let gro = rig
            .command_b("ethtool")
            .args(["-K", "b0", "gro", "on"])
            .status()?;
        ensure!(gro.success(), "`ethtool` cannot switch on receive offload");
        Ok(Self {
            _attached: Attached::to_client(&rig, xdp::DROP)?,
            node: None,
            rig,
            work: Work::Consume,
        })
    }

    /// Floods it for a while.
    fn turn(&self, lasts: Duration) -> Result<Sample> {
        if let Some(node) = &self.node {
            return self.measure(hosts::worker(node)?, lasts);
        }
        let process = socket(&self.rig)?;
        self.measure(process.id(), lasts)
    }

    /// Says what this thread has done in a flood.
    fn measure(&self, thread: u32, lasts: Duration) -> Result<Sample> {
        let mut cpu = CpuSet::new();
        cpu.set(CPU);
        let id = i32::try_from(thread).ok().and_then(Pid::from_raw);
        sched_setaffinity(id, &cpu).context("cannot keep a thread on its CPU")?;
        // The first frames find caches and buffers cold.
        self.flood(lasts / 5)?;
        let see = || -> Result<_> { Ok((self.taken()?, hosts::cpu_ns(thread)?)) };
        let (before, begin) = (see()?, Instant::now());
        let accepted = self.flood(lasts)?;
        let (lasted, after) = (begin.elapsed(), see()?);
        let messages = after.0 - before.0;
        ensure!(messages > 0, "not a single message was taken");
        Ok(Sample {
            lasted,
            messages,
            thread_ns: after.1 - before.1,
            accepted,
        })
    }

    /// Sends for that long; says how many messages the host's veth has accepted, or its
    /// program was run for.
    fn flood(&self, lasts: Duration) -> Result<u64> {
        let mut payload = 1_u32.to_be_bytes().to_vec();
        payload.resize(FRAME_BYTES - 14 - 20 - 8, 0);
        let frame = Frame::to_b(PORT, &payload);
        if self.work == Work::Loop {
            let frame = frame.spoil(Spoil::UdpChecksum).bytes();
            let entry = xdp::entry(&self.rig, "b0")?;
            return xdp::run(&self.rig, ("b0", &entry), &frame, CALL / 10, lasts);
        }
        let frame = frame.bytes();
        let sender = xdp::rewriting("ashway_drain", &frame)?;
        let before = accepted(&self.rig)?;
        xdp::flood(&self.rig, &sender, &frame, CALL, lasts)?;
        Ok(accepted(&self.rig)? - before)
    }

    /// How many messages it has taken so far.
    fn taken(&self) -> Result<u64> {
        let Some(node) = &self.node else {
            return self.rig.in_b(datagrams);
        };
        let fate = match self.work {
            Work::Consume => "/fates/consumed",
            Work::Answer => "/fates/answered",
            Work::Loop => "/fates/dropped/bad_udp_checksum",
        };
        let status = status(node.socket())?;
        let path = named(&status, "paths", "drain")?;
        Ok(path.pointer(fate).and_then(Value::as_u64).unwrap_or(0))
    }
}

/// Datagrams that were taken from sockets of this namespace.
fn datagrams() -> Result<u64> {
    let text = fs::read_to_string("/proc/thread-self/net/snmp")?;
    let mut udp = text.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let (names, values) = udp.next().zip(udp.next()).context("no UDP counters")?;
    let at = names.split(' ').position(|name| name == "InDatagrams");
    let value = at.and_then(|at| values.split(' ').nth(at));
    Ok(value.context("UDP does not count datagrams")?.parse()?)
}

/// Starts the program with a socket.
fn socket(rig: &Rig) -> Result<Process> {
    let mut command = rig.command_b(&peers::build()?.join("udp_drain").to_string_lossy());
    command.arg(PORT.to_string());
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut process = Process::spawn(command).context("cannot start the program")?;
    let output = process.child().stdout.take().context("no output")?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    ensure!(line == "ready\n", "the program did not start");
    Ok(process)
}

/// Frames that B's veth accepted so far.
fn accepted(rig: &Rig) -> Result<u64> {
    let stats = rig.in_b(|| iface::stats("b0"))?;
    stats
        .xdp_sum("_xdp_packets")
        .context("this veth does not count what it receives")
}

fn report(rows: &[Row]) -> Report {
    use Target::{AtLeast, AtMost, Recorded};
    use Work::{Answer, Consume, Loop};
    let of = |case: Case| {
        let row = rows.iter().find(|row| row.case == case);
        row.map_or(&[][..], |row| &row.turns)
    };
    let over = |name, target, case: Case, other: Case, how: fn(&Sample) -> f64| {
        let pairs = of(case).iter().zip(of(other));
        Ratio::of(
            name,
            target,
            pairs.map(|(turn, other)| how(turn) / how(other)),
        )
    };
    let (now, before) = (Case::Now, Case::Before);
    let per_cpu_second = |turn: &Sample| 1e9 / turn.ns();
    let loop_ns = of(now(Loop)).iter().map(Sample::ns);
    let over_before = |name, work| over(name, Recorded, now(work), before(work), per_cpu_second);
    let ratios: Vec<Ratio> = [
        over(
            "consume_over_socket",
            AtLeast(4.0),
            now(Consume),
            Case::Socket,
            Sample::rate,
        ),
        Ratio::of("loop_ns", AtMost(150.0), loop_ns),
        over_before("consume_over_before", Consume),
        over_before("answer_over_before", Answer),
        over_before("loop_over_before", Loop),
    ]
    .into_iter()
    .flatten()
    .collect();
    let mut cases = serde_json::Map::new();
    let mut lines = Vec::new();
    for Row { case, turns, .. } in rows {
        let spread = |of: fn(&Sample) -> f64| Spread::of(turns.iter().map(of));
        let spreads = [Sample::ns, Sample::rate, Sample::offered].map(spread);
        let [Some(ns), Some(rate), Some(offered)] = spreads else {
            continue;
        };
        let entry = json!({
            "ns": ns.to_json(),
            "per_second": rate.to_json(),
            "offered_per_second": offered.to_json(),
        });
        cases.insert(case.name().to_owned(), entry);
        let times = [ns.median, ns.min, ns.max].map(|ns| format!("{ns:.0}"));
        let rates = [1e9 / ns.median, rate.median, offered.median];
        let rates = rates.map(|rate| format!("{:.2}", rate / 1e6));
        let name = vec![case.name().to_owned()];
        lines.push([name, times.to_vec(), rates.to_vec()].concat());
    }
    let header = ["CASE", "NS", "MIN", "MAX", "M/CPU s", "M/s", "OFFERED M/s"];
    let text = format!(
        "CPU time of the thread that takes frames of {FRAME_BYTES} bytes, for each of them, and \
         how many it takes:\n\n{}\n{}",
        table::render(&header, 1, &lines),
        ratio::render(&ratios)
    );
    Report {
        document: json!({ "cases": cases, "ratios": ratio::to_json(&ratios) }),
        text,
    }
}
