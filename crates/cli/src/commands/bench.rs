//! `ashway bench`: measurements on this host.

use ashway_bench::counter::{self, Options};
use clap::{Args, Subcommand};

use crate::face::Face;
use crate::failure::{Exit, Failure};

/// Measure on this host, in network namespaces of its own (root)
#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// Remote increment: socket servers, the user tier and the kernel tier
    Counter(Counter),
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

impl Bench {
    pub(crate) fn run(self, face: Face) -> Result<(), Failure> {
        let Self::Counter(counter) = self;
        let options = Options {
            rounds: counter.rounds.max(1),
            requests: counter.requests.max(1),
            quick: counter.quick,
            only: counter.only,
            binary: std::env::current_exe().ok(),
        };
        let report = counter::run(&options).map_err(|error| {
            let mut failure = Failure::new(Exit::Failed, "the measurement failed");
            failure.because = error.chain().map(ToString::to_string).collect();
            failure
        })?;
        face.show(&report.document, || report.text);
        Ok(())
    }
}
