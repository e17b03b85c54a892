//! `ashway bench initiation`: what a handler begins by itself, beside what the kernel
//! has for it.
//!
//! `send`, `msg_clone` and `timer_set` are of the user tier only. Whether that has to be
//! so is decided by what an XDP program could do instead (`peers/xdp_initiation.c`, by
//! hand, on a pair of hosts of its own) and what that costs:
//!
//! * **broadcast**: a redirect of the frame to all entries of a devmap; the same bytes.
//! * **each**: the same with a program at each entry, which writes a message of its own.
//! * **tc**: XDP lets the frame pass to a program of traffic control, which writes a
//!   message and clones it by `bpf_clone_redirect`, so many times.
//! * **resized**: the frame itself becomes a message of its own: one, and no other.
//! * **`bpf_timer`** in a map's value ([`timers`]).
//!
//! A client asks, spinning, and has an answer when as many messages as it wanted are in
//! its socket. All go to that one socket: receiving is in each of them alike. So CPU time
//! is taken where nobody receives, because a program at the client's interface drops all
//! ([`cost`]). Messages by hand have no UDP checksum and are not counted, which favours
//! them.

mod cost;
mod report;
mod timers;

use std::fmt::Write as _;
use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use ashway_kernel::{Iface, TcxLink};
use ashway_rig::{A4, B4, Rig, RigOptions, realtime};

use crate::Report;
use crate::neighbour::pin;
use crate::peers::{self, Object};
use crate::stats::{Spread, Summary, Times};
use crate::xdp::Attached;

/// How much to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Rounds; a figure is their median.
    pub rounds: usize,
    /// One round and a tenth of the time: whether it works, not how fast.
    pub quick: bool,
    /// The `ashway` to measure; the release build unless told otherwise.
    pub binary: Option<PathBuf>,
}

/// The client's port, which is every channel's.
const PORT: u16 = 9001;

/// Bytes of a request, and so of a copy of it; of a message of one's own.
const ASKED: usize = 64;
const OWN: usize = 200;

/// How long a case is asked in one turn, and how long the CPU is left to others behind
/// it: the kernel stops who spins above all others for nearly a second.
const LASTS: Duration = Duration::from_millis(100);
const RESTS: Duration = Duration::from_millis(10);

/// How long the messages of one request may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// Messages wanted.
const WANTED: [u8; 4] = [1, 2, 4, 16];

/// Sends or clones as many as the request's first byte says.
fn many(import: &str, call: &str) -> String {
    format!(
        r#"(module (import "ashway" "msg_load8" (func $load8 (param i32) (result i32))) {import}
        (memory (export "memory") 1 1)
        (func (export "on_rx") (param i32 i32) (result i32) (local $i i32)
            (loop $next
                (i32.store8 (i32.const 0) (local.get $i))
                (drop {call})
                (local.set $i (i32.add (local.get $i) (i32.const 1)))
                (br_if $next (i32.lt_u (local.get $i) (call $load8 (i32.const 0)))))
            (i32.const 0)))"#
    )
}

/// Answers.
const REPLIES: &str = r#"(module (memory (export "memory") 1 1)
    (func (export "on_rx") (param i32 i32) (result i32) (i32.const 1)))"#;

/// The node's paths: name, port, tier, handler.
fn paths() -> [(&'static str, u16, &'static str, String); 5] {
    let sends = many(
        r#"(import "ashway" "send" (func $send (param i32 i32 i32) (result i32)))"#,
        "(call $send (local.get $i) (i32.const 0) (i32.const 200))",
    );
    let clones = many(
        r#"(import "ashway" "msg_clone" (func $clone (param i32) (result i32)))"#,
        "(call $clone (local.get $i))",
    );
    [
        ("reply_kernel", 7100, "kernel", REPLIES.to_owned()),
        ("reply_user", 7101, "user", REPLIES.to_owned()),
        ("send", 7102, "user", sends),
        ("clone", 7103, "user", clones),
        ("timer", 7104, "user", timers::HANDLER.to_owned()),
    ]
}

/// A way to several messages.
struct Way {
    name: &'static str,
    port: u16,
    /// Whether the node's hosts are asked, or those with the programs by hand.
    node: bool,
    /// Whether each message is another one, or all are the request.
    own: bool,
    several: bool,
}

const WAYS: [Way; 8] = {
    const fn way(name: &'static str, port: u16, own: bool, several: bool) -> Way {
        let node = port < 7200;
        Way {
            name,
            port,
            node,
            own,
            several,
        }
    }
    [
        way("user tier: reply", 7101, false, false),
        way("user tier: send", 7102, true, true),
        way("user tier: clone", 7103, false, true),
        way("kernel tier: reply", 7100, false, false),
        way("by hand: reply", 7200, false, false),
        way("by hand: resized", 7201, true, false),
        way("by hand: broadcast", 7203, false, true),
        way("by hand: broadcast, each", 7204, true, true),
    ]
};

/// Apart, since it only comes where XDP lets pass.
const TC: Way = Way {
    name: "by hand: pass, clones in tc",
    port: 7205,
    node: false,
    own: true,
    several: true,
};

/// A way with so many messages, and what the rounds measured.
struct Row {
    way: &'static Way,
    wanted: u8,
    rounds: Vec<Summary>,
}

/// Both pairs of hosts, alive while this is.
pub(super) struct World {
    node: Rig,
    hand: Rig,
    object: Object,
}

/// Measures; two minutes with five rounds. Needs root, two CPUs, clang-19, gcc
/// and libbpf-dev.
///
/// The document: `{"messages":[...],"cpu":[...],"timers":[...],"arm_ns":{...},
/// "verifier":[...],"one_interface":...}`; times in ns.
///
/// # Errors
///
/// If a message does not come, or is another than it should be, and without the right to
/// make namespaces.
pub fn run(options: &Options) -> Result<Report> {
    let rounds = if options.quick {
        1
    } else {
        options.rounds.max(1)
    };
    let (lasts, timers) = if options.quick {
        (LASTS / 10, timers::SAMPLES / 10)
    } else {
        (LASTS, timers::SAMPLES)
    };
    let built = peers::build()?;
    let stated = verifier(&built)?;
    let node = Rig::new("begin-node", RigOptions::default())?;
    let hand = Rig::new("begin-hand", RigOptions::default())?;
    let mut loader = hand.command_b(&built.join("initiation").to_string_lossy());
    loader.arg(built.join("xdp_initiation.o")).arg("b0");
    let object = Object::of(loader)?;
    let world = World { node, hand, object };
    let _begin = Attached::to_host(&world.hand, "b0", &world.object.program("ashway_begin")?)?;
    let clones = world.object.program("ashway_clones")?;
    let _clones = world
        .hand
        .in_b(|| -> Result<_> { Ok(TcxLink::attach(&clones, Iface::by_name("b0")?.ifindex)?) })?;
    let folder = std::env::temp_dir().join(format!("ashway-begin-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let mut builder = world.node.node(config(&folder)?);
    if let Some(binary) = &options.binary {
        builder = builder.binary(binary);
    }
    let running = builder.start()?;
    let pair = world.pair()?;

    let ways = WAYS.iter().chain([&TC]);
    let mut rows: Vec<Row> = ways
        .flat_map(|way| {
            let wanted = if way.several {
                &WANTED[..]
            } else {
                &WANTED[..1]
            };
            wanted.iter().map(move |&wanted| Row {
                way,
                wanted,
                rounds: Vec::new(),
            })
        })
        .collect();
    let mut late = timers::rows();
    let mut costs = cost::rows();
    let mut arm = Vec::new();
    for round in 1..=rounds {
        eprintln!("round {round} of {rounds} ...");
        for row in &mut rows {
            let times = world.ask(row.way, row.wanted, lasts);
            let times = times.with_context(|| format!("{}, {}", row.way.name, row.wanted))?;
            row.rounds.push(times.summary());
            std::thread::sleep(RESTS);
        }
        // Also if quick: in a tenth of it a worker without a CPU sends nothing.
        cost::round(&world, &running, &mut costs, LASTS)?;
        timers::round(&world, &mut late, timers)?;
        arm.push(timers::arm(&world.object)?);
        // The other way round, so that each comes behind another.
        rows.reverse();
        costs.reverse();
        late.reverse();
    }
    running.stop()?;
    std::fs::remove_dir_all(&folder)?;
    if rounds % 2 == 1 {
        rows.reverse();
        costs.reverse();
        late.reverse();
    }
    Ok(report::report(&report::Found {
        rows,
        costs,
        late,
        arm: Spread::of(arm).context("no rounds")?,
        stated,
        pair,
    }))
}

/// The node's configuration: each handler on a port of its own, all channels the client.
fn config(folder: &std::path::Path) -> Result<String> {
    let channels = vec![format!("\"{A4}:{PORT}\""); usize::from(WANTED[3])].join(", ");
    let mut config = "[iface.b0]\n\n".to_owned();
    for (name, port, tier, text) in paths() {
        let file = folder.join(name).with_extension("wasm");
        std::fs::write(&file, wat::parse_str(&text)?)?;
        write!(
            config,
            "[handler.{name}]\nfile = \"{}\"\nallow = [\"reply\", \"send\", \"time\", \
             \"timer\"]\nchannels = [{channels}]\n\n[path.{name}]\niface = \"b0\"\n\
             match = \"udp and dst port {port}\"\nhandler = \"{name}\"\ntier = \"{tier}\"\n\n",
            file.display()
        )?;
    }
    Ok(config)
}

impl World {
    /// The client's socket on one of the pairs; not blocking.
    pub(super) fn client(&self, node: bool) -> Result<UdpSocket> {
        let rig = if node { &self.node } else { &self.hand };
        let socket = rig.in_a(|| UdpSocket::bind((A4, PORT)))?;
        socket.set_nonblocking(true)?;
        Ok(socket)
    }

    /// Asks for a while; times until the last message is there. Each is looked at.
    fn ask(&self, way: &Way, wanted: u8, lasts: Duration) -> Result<Times> {
        let socket = self.client(way.node)?;
        let mut request = [0; ASKED];
        request[0] = wanted;
        let len = if way.own { OWN } else { ASKED };
        realtime(|| -> Result<Times> {
            pin(0)?;
            let mut times = Times::new();
            let begin = Instant::now();
            while begin.elapsed() < lasts {
                let sent = Instant::now();
                socket.send_to(&request, (B4, way.port))?;
                for number in 0..wanted {
                    let mut message = [0; OWN + 1];
                    let got = receive(&socket, &mut message)?;
                    let first = if way.own { number } else { wanted };
                    ensure!(
                        got == len && message[0] == first,
                        "message {number} is {got} bytes long and begins with {}",
                        message[0]
                    );
                }
                times.record(sent.elapsed().as_nanos() as u64);
            }
            Ok(times)
        })?
    }

    /// Whose marks two copies bear that leave by one interface, when each entry has a
    /// program of its own.
    fn pair(&self) -> Result<[u8; 2]> {
        let socket = self.client(false)?;
        socket.send_to(&[0; ASKED], (B4, 7206))?;
        let mut marks = [0; 2];
        for mark in &mut marks {
            let mut message = [0; OWN];
            receive(&socket, &mut message)?;
            *mark = message[0];
        }
        Ok(marks)
    }
}

/// Spins until a message is there.
pub(super) fn receive(socket: &UdpSocket, into: &mut [u8]) -> Result<usize> {
    let begin = Instant::now();
    loop {
        match socket.recv(into) {
            Ok(len) => return Ok(len),
            Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => {
                return Err(error.into());
            }
            Err(_) if begin.elapsed() > PATIENCE => bail!("a message did not come"),
            Err(_) => std::hint::spin_loop(),
        }
    }
}

/// What the verifier takes: a name, and a reason if not.
fn verifier(built: &std::path::Path) -> Result<Vec<(String, String)>> {
    let mut command = Command::new(built.join("initiation"));
    let output = command.arg(built.join("xdp_initiation.o")).output()?;
    let text = String::from_utf8(output.stdout)?;
    let line = |line: &str| {
        let (name, answer) = line.split_once(' ')?;
        let name = name.strip_prefix("may_")?.replace('_', " ");
        Some((name, answer.replacen("no ", "no: ", 1)))
    };
    let lines: Vec<_> = text.lines().filter_map(line).collect();
    ensure!(!lines.is_empty(), "the loader says nothing of the verifier");
    Ok(lines)
}

impl Row {
    fn p50(&self) -> Spread {
        let values = self.rounds.iter().map(|round| round.p50 as f64);
        Spread::of(values).expect("there is a round")
    }

    fn p99(&self) -> f64 {
        let values = self.rounds.iter().map(|round| round.p99 as f64);
        Spread::of(values).expect("there is a round").median
    }
}
