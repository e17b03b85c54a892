//! `ashway bench cpus`: one handler in the kernel tier, asked from one CPU and from two.
//!
//! A veth with two queues, and a handler that takes about 1 us and answers. A client on CPU 0 asks
//! one question after the other; then a second one does so on CPU 1 at the same time, by the other
//! queue. On a veth the handler runs on the CPU of who asks, so the two meet at its instance,
//! which runs one message at a time. How long answers take, and how many messages went to the
//! user tier for it, at TCX and under native XDP; with `ASHWAY_BEFORE` also those of another
//! `ashway`. Then the same of a handler that has an instance for each CPU, of one that runs on all
//! CPUs at once, and of a program by hand that does the same: by how much two clients
//! have more of it than one. Clients are ordinary processes: real-time ones on all CPUs would leave
//! the worker none. They need the CPUs that the handler runs on, so a client whose handler takes
//! 1 us shows more of itself than of it: for the rate the handler takes about 10.

use std::fs;
use std::io::{self, ErrorKind};
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ashway_kernel::{Attached, Iface, iface};
use ashway_rig::{Node, Rig, RigOptions, UdpClient};
use rustix::thread::{CpuSet, sched_setaffinity};
use serde_json::{Value, json};

use crate::Report;
use crate::hosts::{named, status};
use crate::peers::Object;
use crate::ratio::{self, Ratio, Target};
use crate::stats::{Spread, Times};
use crate::table;

/// How much to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Rounds; a ratio is their median.
    pub rounds: usize,
    /// One round and a tenth of everything: whether it works, not how fast.
    pub quick: bool,
    /// The `ashway` to measure; the release build unless told otherwise.
    pub binary: Option<PathBuf>,
}

/// How long one figure is measured.
const LASTS: Duration = Duration::from_millis(1500);

const PORT: u16 = 7777;

/// How long an answer may take; what has not come by then, its handler was stopped.
const PATIENCE: Duration = Duration::from_millis(200);

/// Counts, takes some thousand turns of a loop over a word of its stack, about 1 us, and answers
/// with the message as it is.
const ABOUT_1_US: &str = r#"(module (memory (export "memory") 1 1)
    (global $__stack_pointer (mut i32) (i32.const 4096))
    (func (export "on_rx") (param i32 i32) (result i32) (local $left i32) (local $frame i32)
        (local.set $frame (i32.sub (global.get $__stack_pointer) (i32.const 64)))
        (global.set $__stack_pointer (local.get $frame))
        (drop (i32.atomic.rmw.add (i32.const 8192) (i32.const 1)))
        (local.set $left (i32.const 1500))
        (loop $on
            (i32.store (local.get $frame) (local.get $left))
            (br_if $on (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))
        (global.set $__stack_pointer (i32.add (local.get $frame) (i32.const 64)))
        (i32.const 1)))"#;

/// The same of about 10 us; the loop of `bench/peers/tc_busy.c` takes as long.
const ABOUT_10_US: u32 = 7_500;

/// Where it runs, which `ashway` it is, and what runs there.
#[derive(Clone, Debug)]
struct Case {
    name: &'static str,
    attach: &'static str,
    binary: Option<PathBuf>,
    handler: Handler,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Handler {
    /// Of about 1 us, with one instance.
    Short,
    /// The same, which runs on all CPUs at once.
    ShortParallel,
    /// Of about 10 us, with one.
    Long,
    /// The same with one for each CPU.
    LongPerCpu,
    /// The same, which runs on all CPUs at once.
    LongParallel,
    /// A loop that takes as long, in C and without Ashway.
    LongByHand,
}

impl Handler {
    const fn file(self) -> &'static str {
        match self {
            Self::Short | Self::ShortParallel => "about1us.wasm",
            Self::Long | Self::LongPerCpu | Self::LongParallel | Self::LongByHand => {
                "about10us.wasm"
            }
        }
    }

    /// What its path says besides. A message that is stopped costs its client as long as it waits,
    /// so one that is long has time for when its CPU is taken away.
    const fn path(self) -> &'static str {
        match self {
            Self::Short | Self::ShortParallel => "",
            Self::Long | Self::LongPerCpu | Self::LongParallel | Self::LongByHand => {
                "budget = \"1 ms\"\n"
            }
        }
    }

    const fn instances(self) -> &'static str {
        match self {
            Self::Short | Self::Long | Self::LongByHand => "",
            Self::ShortParallel | Self::LongParallel => "instances = \"parallel\"\n",
            Self::LongPerCpu => "instances = \"per-cpu\"\n",
        }
    }
}

/// What one or two clients saw.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// Round trips, in ns.
    p50: u64,
    p99: u64,
    /// Answers, a second.
    rate: f64,
    /// Part of the messages that went to the user tier.
    crossed: f64,
    /// The kernel tier's time for a message, in ns.
    kernel_ns: f64,
    /// Messages whose handler was stopped.
    stopped: f64,
}

/// Measures; half a minute. Needs root and two CPUs.
///
/// The document: `{"cases":{...},"ratios":{...}}`; times in ns.
///
/// # Errors
///
/// Without the right to make namespaces, with one CPU, and what the node said.
pub fn run(options: &Options) -> Result<Report> {
    if std::thread::available_parallelism()?.get() < 2 {
        bail!("two clients need two CPUs");
    }
    let (rounds, lasts) = if options.quick {
        (1, LASTS / 10)
    } else {
        (options.rounds.max(1), LASTS)
    };
    let folder = std::env::temp_dir().join(format!("ashway-cpus-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let long = ABOUT_1_US.replace("1500", &ABOUT_10_US.to_string());
    for (handler, text) in [(Handler::Short, ABOUT_1_US), (Handler::Long, &long)] {
        fs::write(folder.join(handler.file()), wat::parse_str(text)?)?;
    }
    let cases = cases(options);
    let mut found: Vec<Vec<[Seen; 2]>> = vec![Vec::new(); cases.len()];
    for round in 0..rounds {
        eprintln!("round {} of {rounds} ...", round + 1);
        for number in 0..cases.len() {
            // Another case begins each time, so that none always comes first.
            let at = (number + round) % cases.len();
            let seen = measure(&cases[at], &folder, lasts);
            found[at].push(seen.with_context(|| cases[at].name)?);
        }
    }
    fs::remove_dir_all(&folder)?;
    Ok(report(&cases, &found))
}

fn cases(options: &Options) -> Vec<Case> {
    let case = |name, attach, binary: &Option<PathBuf>| Case {
        name,
        attach,
        binary: binary.clone(),
        handler: Handler::Short,
    };
    let long = |name, attach, handler| Case {
        handler,
        ..case(name, attach, &options.binary)
    };
    let mut cases = vec![
        case("tcx", "tcx", &options.binary),
        long("tcx, parallel", "tcx", Handler::ShortParallel),
        case("xdp", "xdp", &options.binary),
        long("xdp, parallel", "xdp", Handler::ShortParallel),
        long("tcx, 10 us", "tcx", Handler::Long),
        long("tcx, 10 us, per-cpu", "tcx", Handler::LongPerCpu),
        long("tcx, 10 us, parallel", "tcx", Handler::LongParallel),
        long("tcx, 10 us, by hand", "tcx", Handler::LongByHand),
        long("xdp, 10 us", "xdp", Handler::Long),
        long("xdp, 10 us, per-cpu", "xdp", Handler::LongPerCpu),
        long("xdp, 10 us, parallel", "xdp", Handler::LongParallel),
    ];
    let before = std::env::var_os("ASHWAY_BEFORE").map(PathBuf::from);
    if before.is_some() {
        cases.push(case("tcx_before", "tcx", &before));
        cases.push(case("xdp_before", "xdp", &before));
    }
    cases
}

/// One client, then two.
fn measure(case: &Case, folder: &Path, lasts: Duration) -> Result<[Seen; 2]> {
    let options = RigOptions {
        queues: 2,
        gro_on_client: false,
        ..RigOptions::default()
    };
    let rig = Rig::new("cpus", options)?;
    let mut by_hand = None;
    let node = if case.handler == Handler::LongByHand {
        let object = Object::load("tc_busy")?;
        let program = object.program("ashway_by_hand")?;
        let attach =
            || -> Result<_> { Ok(Attached::tcx(&program, Iface::by_name("b0")?.ifindex)?) };
        by_hand = Some((rig.in_b(attach)?, object));
        None
    } else {
        Some(start(&rig, case, folder)?)
    };
    let clients = if case.attach == "xdp" {
        [client_of_queue(&rig, 0)?, client_of_queue(&rig, 1)?]
    } else {
        // Behind no XDP a CPU takes what it sends, whatever the queue.
        [rig.client_a(PORT)?, rig.client_a(PORT)?]
    };
    let sockets = clients.each_ref().map(UdpClient::socket);
    let count = || -> Result<Value> {
        let Some(node) = &node else {
            return Ok(Value::Null);
        };
        let path = named(&status(node.socket())?, "paths", "h")?.clone();
        if path["tier"] != "kernel" {
            bail!("the handler is not in the kernel tier: {path:#}");
        }
        Ok(path)
    };
    // The first find caches cold, and each other's address.
    ask_all(&sockets, lasts / 10)?;
    let mut all = Vec::new();
    for sockets in [&sockets[..1], &sockets] {
        let before = count()?;
        let (times, took) = ask_all(sockets, lasts)?;
        let after = count()?;
        let risen =
            |number: fn(&Value) -> u64| number(&after).saturating_sub(number(&before)) as f64;
        let received = risen(|path| path["received"].as_u64().unwrap_or(0)).max(1.0);
        let times = times.summary();
        all.push(Seen {
            p50: times.p50,
            p99: times.p99,
            rate: times.n as f64 / took.as_secs_f64(),
            crossed: risen(queued) / received,
            kernel_ns: risen(|path| path["kernel_time_ns"].as_u64().unwrap_or(0)) / received,
            stopped: risen(|path| path["activations"]["aborted"].as_u64().unwrap_or(0)),
        });
    }
    drop(by_hand);
    if let Some(node) = node {
        node.stop()?;
    }
    Ok([all[0], all[1]])
}

/// A node with the case's handler.
fn start(rig: &Rig, case: &Case, folder: &Path) -> Result<Node> {
    let (attach, path) = (case.attach, case.handler.path());
    let instances = case.handler.instances();
    let file = folder.join(case.handler.file());
    let file = file.display();
    let mut builder = rig.node(format!(
        "[iface.b0]\nattach = {attach:?}\n[handler.h]\nfile = \"{file}\"\nallow = [\"reply\"]\n\
         {instances}[path.h]\niface = \"b0\"\nmatch = \"udp and dst port {PORT}\"\nhandler = \"h\"\n\
         tier = \"kernel\"\n{path}"
    ));
    if let Some(binary) = &case.binary {
        builder = builder.binary(binary);
    }
    builder.start()
}

/// Messages of a path that went to the user tier, whatever for.
fn queued(path: &Value) -> u64 {
    let notes = path["notes"].as_object().into_iter().flatten();
    let queued = notes.filter(|(name, _)| name.starts_with("queued_"));
    queued.filter_map(|(_, times)| times.as_u64()).sum()
}

/// A client whose flow arrives at this receive queue.
fn client_of_queue(rig: &Rig, queue: usize) -> Result<UdpClient> {
    const EACH: u64 = 4;
    let by_queue = || -> Result<Vec<u64>> {
        let stats = rig.in_b(|| iface::stats("b0"))?.xdp;
        let is_of_queue =
            |name: &str| name.starts_with("rx_queue_") && name.ends_with("_xdp_packets");
        let of_queues = stats.into_iter().filter(|(name, _)| is_of_queue(name));
        Ok(of_queues.map(|(_, count)| count).collect())
    };
    for _ in 0..64 {
        let client = rig.client_a(PORT)?;
        let before = by_queue()?;
        for _ in 0..EACH {
            client.ask(&[0; 8])?;
        }
        // Counted where a poll ends, which may be behind the answer.
        std::thread::sleep(Duration::from_millis(5));
        let now = by_queue()?;
        if now
            .get(queue)
            .zip(before.get(queue))
            .is_some_and(|(now, before)| now - before >= EACH)
        {
            return Ok(client);
        }
    }
    bail!("none of 64 flows arrives at queue {queue}");
}

/// All ask at the same time, each on a CPU of its own.
fn ask_all(sockets: &[&UdpSocket], lasts: Duration) -> Result<(Times, Duration)> {
    let barrier = Barrier::new(sockets.len());
    let begin = Instant::now();
    let times = std::thread::scope(|scope| -> Result<Times> {
        let clients: Vec<_> = sockets
            .iter()
            .enumerate()
            .map(|(cpu, socket)| {
                let barrier = &barrier;
                scope.spawn(move || -> Result<Times> {
                    let mut set = CpuSet::new();
                    set.set(cpu);
                    sched_setaffinity(None, &set)?;
                    barrier.wait();
                    Ok(ask(socket, lasts)?)
                })
            })
            .collect();
        let mut all = Times::new();
        for client in clients {
            all.add(&client.join().expect("a client does not panic")?)?;
        }
        Ok(all)
    })?;
    Ok((times, begin.elapsed()))
}

/// One question after the other.
fn ask(socket: &UdpSocket, lasts: Duration) -> io::Result<Times> {
    socket.set_read_timeout(Some(PATIENCE))?;
    let (mut times, mut number) = (Times::new(), 0_u64);
    let end = Instant::now() + lasts;
    loop {
        let sent = Instant::now();
        if sent >= end {
            return Ok(times);
        }
        number += 1;
        match exchange(socket, number) {
            Ok(()) => {}
            // Its handler was stopped, which is in the table: the host has no server, and says so,
            // or has said it too often.
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::ConnectionRefused | ErrorKind::WouldBlock
                ) =>
            {
                continue;
            }
            Err(error) => return Err(error),
        }
        times.record(sent.elapsed().as_nanos() as u64);
    }
}

/// Sends a number and waits for it to come back.
fn exchange(socket: &UdpSocket, number: u64) -> io::Result<()> {
    socket.send(&number.to_be_bytes())?;
    loop {
        let mut answer = [0; 9];
        let len = socket.recv(&mut answer)?;
        let answered = answer[..len].try_into().map(u64::from_be_bytes);
        match answered {
            Ok(answered) if answered == number => return Ok(()),
            // To a question that was given up.
            Ok(answered) if answered < number => {}
            _ => {
                let text = format!("the answer to question {number} is {:?}", &answer[..len]);
                return Err(io::Error::new(ErrorKind::InvalidData, text));
            }
        }
    }
}

fn report(cases: &[Case], found: &[Vec<[Seen; 2]>]) -> Report {
    let mut document = serde_json::Map::new();
    let (mut rows, mut ratios) = (Vec::new(), Vec::new());
    for (case, rounds) in cases.iter().zip(found) {
        let mut both = serde_json::Map::new();
        for (clients, name) in ["one", "two"].into_iter().enumerate() {
            let spread = |value: fn(&Seen) -> f64| {
                Spread::of(rounds.iter().map(|seen| value(&seen[clients])))
            };
            let spreads = [
                ("p50_ns", spread(|seen| seen.p50 as f64)),
                ("p99_ns", spread(|seen| seen.p99 as f64)),
                ("per_second", spread(|seen| seen.rate)),
                ("crossed", spread(|seen| seen.crossed)),
                ("kernel_ns", spread(|seen| seen.kernel_ns)),
                ("stopped", spread(|seen| seen.stopped)),
            ];
            let spreads = spreads.map(|(name, spread)| (name, spread.expect("there are rounds")));
            let [p50, p99, rate, crossed, kernel, stopped] = spreads.map(|(_, spread)| spread);
            rows.push(vec![
                case.name.to_owned(),
                name.to_owned(),
                table::time(p50.median as u64),
                table::time(p99.median as u64),
                table::time(p99.max as u64),
                format!("{:.0}", rate.median),
                format!("{:.3} %", crossed.median * 100.0),
                format!("{:.3} %", crossed.max * 100.0),
                format!("{:.0}", kernel.median),
                format!("{:.0}", stopped.max),
            ]);
            let entry = spreads.map(|(name, spread)| (name.to_owned(), spread.to_json()));
            both.insert(name.to_owned(), Value::Object(entry.into_iter().collect()));
        }
        document.insert(case.name.to_owned(), Value::Object(both));
        let crossed = rounds.iter().map(|[_, two]| two.crossed * 100.0);
        let p99 = rounds
            .iter()
            .map(|[one, two]| two.p99 as f64 / one.p99 as f64);
        let rate = rounds.iter().map(|[one, two]| two.rate / one.rate);
        let grows = match case.name {
            "tcx, 10 us, per-cpu" => "per_cpu_rate_of_two_over_one_at_tcx",
            "xdp, 10 us, per-cpu" => "per_cpu_rate_of_two_over_one_under_xdp",
            "tcx, 10 us, parallel" => "parallel_rate_of_two_over_one_at_tcx",
            "xdp, 10 us, parallel" => "parallel_rate_of_two_over_one_under_xdp",
            // The most that this machine has to give.
            "tcx, 10 us, by hand" => "by_hand_rate_of_two_over_one_at_tcx",
            _ => "",
        };
        if !grows.is_empty() {
            let target = match case.handler {
                Handler::LongByHand => Target::Recorded,
                _ => Target::AtLeast(1.8),
            };
            ratios.extend(Ratio::of(grows, target, rate));
        }
        let names = match case.name {
            "tcx" => ["percent_crossed_at_tcx", "p99_over_one_client_at_tcx"],
            "xdp" => ["percent_crossed_under_xdp", "p99_over_one_client_under_xdp"],
            "tcx, parallel" => [
                "parallel_percent_crossed_at_tcx",
                "parallel_p99_over_one_client_at_tcx",
            ],
            "xdp, parallel" => [
                "parallel_percent_crossed_under_xdp",
                "parallel_p99_over_one_client_under_xdp",
            ],
            _ => continue,
        };
        ratios.extend(Ratio::of(names[0], Target::AtMost(0.1), crossed));
        ratios.extend(Ratio::of(names[1], Target::AtMost(1.5), p99));
    }
    let header = [
        "CASE",
        "CLIENTS",
        "P50",
        "P99",
        "P99 MAX",
        "PER SECOND",
        "CROSSED",
        "MAX",
        "KERNEL NS",
        "STOPPED MAX",
    ];
    let text = format!(
        "One handler of the kernel tier, asked from one CPU and from two:\n\n{}\n{}",
        table::render(&header, 2, &rows),
        ratio::render(&ratios)
    );
    Report {
        document: json!({ "cases": document, "ratios": ratio::to_json(&ratios) }),
        text,
    }
}
