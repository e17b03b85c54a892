//! `ashway bench`: measurements on this host.

use std::path::PathBuf;

use ashway_bench::{counter, demux, forward, neighbour, path, promote, sandbox};
use clap::{Args, Subcommand};
use serde_json::Value;

use crate::face::Face;
use crate::failure::{Exit, Failure};

/// Measure on this host, in network namespaces of its own (root)
#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// Remote increment: socket servers, the user tier and the kernel tier
    Counter(Counter),
    /// Finding a frame's path among one to 100,000
    Demux(Demux),
    /// A UDP relay: sockets, Linux, XDP by hand and the kernel tier
    Forward(Forward),
    /// What a handler that spends its budget costs the paths beside it
    Neighbour(Neighbour),
    /// Creating and removing paths on a running node, one to 100,000
    Path(Path),
    /// Programs in the kernel tier, in Wasmtime and as native code
    Promote(Promote),
    /// A remote write with and without what keeps a handler from harm
    Sandbox(Sandbox),
}

/// Remote increment: socket servers, the user tier and the kernel tier
///
/// Every promised number as a ratio measured side by side: round trips beside 0
/// and 8 busy loops, the kernel tier beside a program written by hand, a flood,
/// start and promotion, and TCP through the host's own stack. Takes some
/// minutes. Needs the built handlers (`cargo xtask handlers`), clang-19,
/// libbpf-dev and iperf3.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ashway bench counter
  ashway bench counter --quick
  ashway bench counter -j > counter.json")]
pub(crate) struct Counter {
    /// Alternating rounds; a ratio is their median
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Requests of each row, all rounds together
    #[arg(long, default_value_t = 20_000)]
    requests: u32,
    /// One round and a tenth of everything: whether it works, not how fast
    #[arg(long)]
    quick: bool,
    /// Only this part: rows, testrun, flood, promotion or tcp
    #[arg(long, value_name = "PART")]
    only: Option<String>,
}

/// Finding a frame's path among one to 100,000
///
/// Runs without an interface (`BPF_PROG_TEST_RUN`), alternating with a program
/// that only looks the same keys up in a hash map. Takes about a minute.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ashway bench demux
  ashway bench demux -j > demux.json")]
pub(crate) struct Demux {
    /// Alternating rounds; a ratio is their median
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// One round and a tenth of everything: whether it works, not how fast
    #[arg(long)]
    quick: bool,
}

/// A UDP relay: sockets, Linux, XDP by hand and the kernel tier
///
/// From A through B to C, three network namespaces: rate, CPU time, jitter and
/// transit, beside 0 and 8 busy loops. Takes about three minutes. Needs clang-19,
/// libbpf-dev and gcc.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ashway bench forward
  ashway bench forward -j > forward.json")]
pub(crate) struct Forward {
    /// Alternating rounds; a ratio is their median
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// One round and a tenth of everything: whether it works, not how fast
    #[arg(long)]
    quick: bool,
}

/// What a handler that spends its budget costs the paths beside it
///
/// A counter asked in turn, beside neighbours that spend 50 us or 10 us of the same
/// receive queue 1,000 times a second: p50 and p99.9 beside those of the counter
/// alone. Takes about two minutes and two CPUs. Needs the built handlers (`cargo
/// xtask handlers`).
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ashway bench neighbour
  ashway bench neighbour -j > neighbour.json")]
pub(crate) struct Neighbour {
    /// Alternating rounds; a ratio is their median
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// One round and a tenth of everything: whether it works, not how fast
    #[arg(long)]
    quick: bool,
}

/// A remote write with and without what keeps a handler from harm
///
/// Runs without an interface (`BPF_PROG_TEST_RUN`), alternating with a build for
/// measuring only, without bounds of memory and fuel. Takes about two minutes.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ashway bench sandbox
  ashway bench sandbox -j > sandbox.json")]
pub(crate) struct Sandbox {
    /// Alternating rounds; a ratio is their median
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// One round and a tenth of everything: whether it works, not how fast
    #[arg(long)]
    quick: bool,
}

/// Creating and removing paths on a running node, one to 100,000
///
/// Times of one path, of a shape that is there (a map entry) and of a new one (a
/// new entry program); memory of 100,000 live paths; growth over 1,000,000 that come
/// and go. Takes some minutes.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ashway bench path
  ashway bench path --quick
  ashway bench path -j > path.json")]
pub(crate) struct Path {
    /// A hundredth of everything: whether it works, not how fast
    #[arg(long)]
    quick: bool,
}

/// Programs in the kernel tier, in Wasmtime and as native code
///
/// Runs without an interface (`BPF_PROG_TEST_RUN`), alternating. Compares
/// bodies: the time of a call less that of a handler that does nothing. Takes
/// about two minutes. Needs the built programs (`cargo xtask programs`).
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ashway bench promote
  ashway bench promote -j > promote.json")]
pub(crate) struct Promote {
    /// Alternating rounds; a ratio is their median
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// One round and a tenth of everything: whether it works, not how fast
    #[arg(long)]
    quick: bool,
    /// Where the built programs are
    #[arg(long, value_name = "DIR", default_value = "target/programs")]
    programs: PathBuf,
}

impl Bench {
    pub(crate) fn run(self, face: Face) -> Result<(), Failure> {
        let (document, text) = match self {
            Self::Counter(options) => options.measure(),
            Self::Demux(options) => options.measure(),
            Self::Forward(options) => options.measure(),
            Self::Neighbour(options) => options.measure(),
            Self::Path(options) => options.measure(),
            Self::Promote(options) => options.measure(),
            Self::Sandbox(options) => options.measure(),
        }
        .map_err(|error| {
            let root = rustix::process::geteuid().is_root();
            let exit = if root {
                Exit::Failed
            } else {
                Exit::PrivilegeMissing
            };
            let mut failure = Failure::new(exit, "the measurement failed");
            failure.because = error.chain().map(ToString::to_string).collect();
            if !root {
                failure.hint = Some("measuring takes root".to_owned());
            }
            failure
        })?;
        face.show(&document, || text)?;
        Ok(())
    }
}

/// A document, and the same as text.
type Measured = anyhow::Result<(Value, String)>;

impl Counter {
    fn measure(self) -> Measured {
        let report = counter::run(&counter::Options {
            rounds: self.rounds.max(1),
            requests: self.requests.max(1),
            quick: self.quick,
            only: self.only,
            binary: std::env::current_exe().ok(),
        })?;
        Ok((report.document, report.text))
    }
}

impl Demux {
    fn measure(self) -> Measured {
        let report = demux::run(&demux::Options {
            rounds: self.rounds,
            quick: self.quick,
        })?;
        Ok((report.document, report.text))
    }
}

impl Forward {
    fn measure(self) -> Measured {
        let report = forward::run(&forward::Options {
            rounds: self.rounds,
            quick: self.quick,
        })?;
        Ok((report.document, report.text))
    }
}

impl Neighbour {
    fn measure(self) -> Measured {
        let report = neighbour::run(&neighbour::Options {
            rounds: self.rounds,
            quick: self.quick,
            binary: std::env::current_exe().ok(),
        })?;
        Ok((report.document, report.text))
    }
}

impl Sandbox {
    fn measure(self) -> Measured {
        let report = sandbox::run(&sandbox::Options {
            rounds: self.rounds,
            quick: self.quick,
        })?;
        Ok((report.document, report.text))
    }
}

impl Path {
    fn measure(self) -> Measured {
        let report = path::run(&path::Options {
            quick: self.quick,
            binary: std::env::current_exe().ok(),
        })?;
        Ok((report.document, report.text))
    }
}

impl Promote {
    fn measure(self) -> Measured {
        let report = promote::run(&promote::Options {
            rounds: self.rounds.max(1),
            quick: self.quick,
            folder: self.programs,
        })?;
        Ok((report.document, report.text))
    }
}
