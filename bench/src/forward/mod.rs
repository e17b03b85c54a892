//! `ashway bench forward`: a UDP relay B between A and C, by several ways in turn.
//!
//! * **direct**: A and C share a wire: the floor.
//! * **socket**: a process of its own with two sockets (C, `-O3`).
//! * **`ip_forward`**: Linux routes; addresses and checksums stay as they are.
//! * **`xdp_by_hand`**: an XDP program for exactly this relay, in C.
//! * **kernel**: the programs of Ashway's kernel tier alone: entry, forward, redirect.
//! * **`kernel_exit`**: the same through the TCX exit program, as on a veth whose
//!   peer does not poll.
//! * **`node_kernel`**, **`node_user`**: a node with the two-line configuration, in
//!   either tier.
//!
//! Each round each way serves two streams beside 0 and 8 busy loops: one as fast as
//! one socket sends (*rate* at C's interface, *CPU per datagram* there), and one paced
//! (*jitter*, *transit*). A's and C's threads have a real-time priority, as if A and C
//! were machines of their own: what competes with the busy loops is B. CPU time is that
//! of A's and C's threads, of the forwarder's process and of `ksoftirqd`: all softirq
//! work of a veth is in one of them. It contains what sending and receiving cost, which
//! is `direct`. `ksoftirqd` serves other traffic of the machine too; there should be
//! none.
//!
//! Source: Qi, Parmer & West 2004, §4.3.

mod relay;
mod traffic;
mod world;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use ashway_rig::Hogs;
use serde_json::{Value, json};

use crate::Report;
use crate::ratio::{self, Ratio, Target};
use crate::stats::Spread;
use crate::table;
use relay::{Contender, Relay};
pub(crate) use traffic::thread_cpu;
use traffic::{Pace, Stream, stream};
use world::World;

/// Busy loops.
const HOGS: [usize; 2] = [0, 8];

/// Length of a stream, in ms.
const LASTS_MS: u64 = 1_000;

/// How much to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Rounds; a ratio is their median.
    pub rounds: usize,
    /// One round and a tenth of the time: whether it works, not how fast.
    pub quick: bool,
    /// The `ashway` binary; the release build of this workspace without it.
    pub binary: Option<PathBuf>,
}

/// One way beside so many busy loops: fast and paced, round by round.
struct Row {
    way: Contender,
    hogs: usize,
    streams: Vec<[Stream; 2]>,
}

/// Measures; about four minutes with five rounds. Needs root, clang-19, libbpf-dev and gcc.
///
/// The document: `{"rows":[...],"ratios":{...}}`; times in ns.
///
/// # Errors
///
/// Without the right to make namespaces or to load programs, or if nothing arrives
/// by one of the ways.
pub fn run(options: &Options) -> Result<Report> {
    let (rounds, lasts) = if options.quick {
        (1, LASTS_MS / 10)
    } else {
        (options.rounds.max(1), LASTS_MS)
    };
    let lasts = Duration::from_millis(lasts);
    let binary = options.binary.clone().map_or_else(ashway_rig::ashway, Ok)?;
    let world = World::new()?;
    let mut rows = Vec::new();
    for hogs in HOGS {
        rows.extend(Contender::ALL.map(|way| Row {
            way,
            hogs,
            streams: Vec::new(),
        }));
    }
    for round in 1..=rounds {
        for hogs in HOGS {
            eprintln!("round {round} of {rounds}, {hogs} busy loops ...");
            let _hogs = Hogs::start(hogs)?;
            for row in rows.iter_mut().filter(|row| row.hogs == hogs) {
                let relay = Relay::start(&world, row.way, &binary)?;
                let one = |pace| {
                    stream(&world, row.way, &relay, pace, lasts)
                        .with_context(|| format!("cannot measure `{}`", row.way.name()))
                };
                row.streams.push([one(Pace::Flat)?, one(Pace::Paced)?]);
            }
        }
    }
    Ok(report(&rows))
}

fn report(rows: &[Row]) -> Report {
    let ratios = ratios(rows);
    let header = [
        "WAY",
        "HOGS",
        "KPPS",
        "MIN",
        "MAX",
        "LOST %",
        "CPU us",
        "JITTER us",
        "MIN",
        "MAX",
        "P50 us",
        "P99.9 us",
    ];
    let lines: Vec<Vec<String>> = rows.iter().map(Row::line).collect();
    let text = format!(
        "Datagrams of 172 bytes from A through B to C; rate, loss and CPU time as fast as \
         one\nsocket sends; jitter and transit at 5,000 a second. A and C run at a \
         real-time\npriority, as if they were other machines; B competes with the busy \
         loops:\n\n{}\n{}",
        table::render(&header, 1, &lines),
        ratio::render(&ratios)
    );
    let rows: Vec<Value> = rows.iter().map(Row::to_json).collect();
    Report {
        document: json!({ "rows": rows, "ratios": ratio::to_json(&ratios) }),
        text,
    }
}

impl Row {
    fn spread(&self, pace: Pace, of: impl Fn(&Stream) -> f64) -> Spread {
        let at = usize::from(pace == Pace::Paced);
        let none = Spread {
            median: f64::NAN,
            min: f64::NAN,
            max: f64::NAN,
            apart: None,
        };
        Spread::of(self.streams.iter().map(|streams| of(&streams[at]))).unwrap_or(none)
    }

    /// In the order of the columns.
    fn spreads(&self) -> [(&'static str, Spread); 6] {
        let lost = |one: &Stream| 100.0 * (1.0 - one.goodput());
        [
            ("rate_pps", self.spread(Pace::Flat, |one| one.rate)),
            ("lost_percent", self.spread(Pace::Flat, lost)),
            ("cpu_ns", self.spread(Pace::Flat, |one| one.cpu)),
            ("jitter_ns", self.spread(Pace::Paced, |one| one.jitter)),
            (
                "transit_p50_ns",
                self.spread(Pace::Paced, |one| one.transit.p50 as f64),
            ),
            (
                "transit_p999_ns",
                self.spread(Pace::Paced, |one| one.transit.p999 as f64),
            ),
        ]
    }

    fn line(&self) -> Vec<String> {
        let [rate, lost, cpu, jitter, p50, p999] = self.spreads().map(|(_, spread)| spread);
        let thousands = |value: f64| table::digits(value / 1e3);
        vec![
            self.way.name().to_owned(),
            self.hogs.to_string(),
            thousands(rate.median),
            thousands(rate.min),
            thousands(rate.max),
            table::digits(lost.median),
            thousands(cpu.median),
            thousands(jitter.median),
            thousands(jitter.min),
            thousands(jitter.max),
            thousands(p50.median),
            thousands(p999.median),
        ]
    }

    fn to_json(&self) -> Value {
        let mut value = json!({ "way": self.way.name(), "hogs": self.hogs });
        for (name, spread) in self.spreads() {
            value[name] = spread.to_json();
        }
        value
    }
}

/// What is promised, and the ways beside each other, round by round. The program by
/// hand beside busy loops says what they do to any way through the kernel.
fn ratios(rows: &[Row]) -> Vec<Ratio> {
    use Contender::{ByHand, Kernel, KernelExit, Linux, NodeKernel, NodeUser, Socket};
    use Target::{AtLeast, AtMost, Recorded};
    type Value = fn(&[Stream; 2]) -> f64;
    const RATE: Value = |streams| streams[0].rate;
    const GOODPUT: Value = |streams| streams[0].goodput();
    const CPU: Value = |streams| streams[0].cpu;
    const JITTER: Value = |streams| streams[1].jitter;
    let row = |(way, hogs)| rows.iter().find(|row| row.way == way && row.hogs == hogs);
    let of = |name, target, value: Value, one, two| {
        let (one, two) = (row(one)?, row(two)?);
        let pairs = one.streams.iter().zip(&two.streams);
        let ratios = pairs.map(|(one, two)| value(one) / value(two));
        Ratio::of(name, target, ratios)
    };
    // Without what sending and receiving cost.
    let net = |way| {
        let (way, floor) = (row((way, 0))?, row((Contender::Direct, 0))?);
        let pairs = way.streams.iter().zip(&floor.streams);
        Some(pairs.map(|(way, floor)| CPU(way) - CPU(floor)))
    };
    let net_over = |name, one, two| {
        let ratios = net(one)?.zip(net(two)?).map(|(one, two)| one / two);
        Ratio::of(name, Recorded, ratios)
    };
    let over = |name, target, value, one, two| of(name, target, value, (one, 0), (two, 0));
    let hogs = |name, target, value, way| of(name, target, value, (way, 8), (way, 0));
    // A table: one line each.
    #[rustfmt::skip]
    let ratios = [
        over("cpu_node_kernel_over_by_hand", AtMost(1.1), CPU, NodeKernel, ByHand),
        net_over("cpu_node_kernel_over_by_hand_less_direct", NodeKernel, ByHand),
        hogs("goodput_node_kernel_8_over_0_hogs", AtLeast(0.95), GOODPUT, NodeKernel),
        hogs("jitter_node_kernel_8_over_0_hogs", AtMost(1.05), JITTER, NodeKernel),
        hogs("cpu_node_kernel_8_over_0_hogs", AtMost(1.05), CPU, NodeKernel),
        over("rate_node_user_over_socket", AtLeast(1.0), RATE, NodeUser, Socket),
        over("cpu_node_user_over_socket", Recorded, CPU, NodeUser, Socket),
        over("rate_node_kernel_over_by_hand", Recorded, RATE, NodeKernel, ByHand),
        over("cpu_kernel_over_by_hand", Recorded, CPU, Kernel, ByHand),
        over("cpu_exit_over_redirect", Recorded, CPU, KernelExit, Kernel),
        over("rate_node_kernel_over_ip_forward", Recorded, RATE, NodeKernel, Linux),
        over("cpu_node_kernel_over_ip_forward", Recorded, CPU, NodeKernel, Linux),
        over("rate_node_kernel_over_socket", Recorded, RATE, NodeKernel, Socket),
        over("cpu_node_kernel_over_socket", Recorded, CPU, NodeKernel, Socket),
        hogs("jitter_by_hand_8_over_0_hogs", Recorded, JITTER, ByHand),
        hogs("cpu_by_hand_8_over_0_hogs", Recorded, CPU, ByHand),
        hogs("goodput_node_user_8_over_0_hogs", Recorded, GOODPUT, NodeUser),
        hogs("goodput_socket_8_over_0_hogs", Recorded, GOODPUT, Socket),
        hogs("jitter_node_user_8_over_0_hogs", Recorded, JITTER, NodeUser),
        hogs("jitter_socket_8_over_0_hogs", Recorded, JITTER, Socket),
    ];
    ratios.into_iter().flatten().collect()
}
