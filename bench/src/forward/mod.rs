//! `ashway bench forward`: a UDP relay B between A and C, by several ways in turn.
//!
//! * **direct**: A and C share a wire: the floor.
//! * **socket**: a process of its own with two sockets (C, `-O3`).
//! * **`ip_forward`**: Linux routes; addresses and checksums stay as they are.
//! * **`xdp_by_hand`**: an XDP program for exactly this relay, in C.
//! * **kernel**: the programs of Ashway's kernel tier: entry, forward, redirect.
//! * **`kernel_exit`**: the same through the TCX exit program, as on a veth whose
//!   peer does not poll.
//!
//! Each round each way serves two streams beside 0 and 8 busy loops: one as fast as
//! one socket sends (*rate* at C's interface, *CPU per datagram* there), and one paced, with both ends at a
//! real-time priority, so that what varies is the way (*jitter*, *transit*). CPU time is that of A's and C's threads, of the forwarder's process
//! and of `ksoftirqd`: all softirq work of a veth is in one of them. It contains
//! what sending and receiving cost, which is `direct`. `ksoftirqd` serves
//! other traffic of the machine too; there should be none.
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

use crate::ratio::{self, Ratio, Target};
use crate::stats::Spread;
use crate::table;
use relay::{Relay, Way};
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

/// What was measured.
#[derive(Clone, Debug)]
pub struct Report {
    /// `{"rows":[...],"ratios":{...}}`; times in ns.
    pub document: Value,
    /// The same as tables.
    pub text: String,
}

/// One way beside so many busy loops: fast and paced, round by round.
struct Row {
    way: Way,
    hogs: usize,
    streams: Vec<[Stream; 2]>,
}

/// Measures; about two minutes. Needs root, clang-19, libbpf-dev and gcc.
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
        rows.extend(Way::ALL.map(|way| Row {
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
         one\nsocket sends; jitter and transit at 5,000 a second:\n\n{}\n{}",
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
        };
        Spread::of(self.streams.iter().map(|streams| of(&streams[at]))).unwrap_or(none)
    }

    /// In the order of the columns.
    fn spreads(&self) -> [(&'static str, Spread); 6] {
        let lost = |one: &Stream| 100.0 * (1.0 - one.received as f64 / one.sent.max(1) as f64);
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

/// The kernel tier beside the others, round by round. Nothing is promised but that
/// it comes near the program by hand.
fn ratios(rows: &[Row]) -> Vec<Ratio> {
    let row = |way, hogs| rows.iter().find(|row| row.way == way && row.hogs == hogs);
    let of =
        |name, target, one: (Way, usize), two: (Way, usize), value: fn(&[Stream; 2]) -> f64| {
            let (one, two) = (row(one.0, one.1)?, row(two.0, two.1)?);
            let pairs = one.streams.iter().zip(&two.streams);
            Ratio::of(
                name,
                target,
                pairs.map(|(one, two)| value(one) / value(two)),
            )
        };
    let rate = |streams: &[Stream; 2]| streams[0].rate;
    let cpu = |streams: &[Stream; 2]| streams[0].cpu;
    let jitter = |streams: &[Stream; 2]| streams[1].jitter;
    let kernel = (Way::Kernel, 0);
    let none = Target::Recorded;
    [
        of(
            "rate_kernel_over_by_hand",
            none,
            kernel,
            (Way::ByHand, 0),
            rate,
        ),
        of(
            "cpu_kernel_over_by_hand",
            none,
            kernel,
            (Way::ByHand, 0),
            cpu,
        ),
        of(
            "rate_kernel_over_socket",
            none,
            kernel,
            (Way::Socket, 0),
            rate,
        ),
        of(
            "cpu_kernel_over_socket",
            none,
            kernel,
            (Way::Socket, 0),
            cpu,
        ),
        of(
            "rate_kernel_over_ip_forward",
            none,
            kernel,
            (Way::Linux, 0),
            rate,
        ),
        of(
            "cpu_kernel_over_ip_forward",
            none,
            kernel,
            (Way::Linux, 0),
            cpu,
        ),
        of(
            "cpu_exit_over_redirect",
            none,
            (Way::KernelExit, 0),
            kernel,
            cpu,
        ),
        of(
            "jitter_kernel_8_over_0_hogs",
            none,
            (Way::Kernel, 8),
            kernel,
            jitter,
        ),
        of(
            "jitter_socket_8_over_0_hogs",
            none,
            (Way::Socket, 8),
            (Way::Socket, 0),
            jitter,
        ),
        of(
            "jitter_socket_over_kernel_8_hogs",
            none,
            (Way::Socket, 8),
            (Way::Kernel, 8),
            jitter,
        ),
    ]
    .into_iter()
    .flatten()
    .collect()
}
