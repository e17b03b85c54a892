//! `ashway doctor`: what this host can do.

use std::time::Duration;

use ashway_daemon::doctor::{self, Measuring};
use clap::Args;

use crate::face::Face;
use crate::failure::{Exit, Failure};

/// Say what this host can do, what follows, and how to get more
///
/// Kernel features with the version that brings each, capabilities held and
/// needed, and for each interface its driver, queues, MTU and who holds its XDP
/// hook. Each line is `ok`, `degraded` (what follows) or `missing` (what helps). Exit code 6 if
/// this kernel has no rung at all, 1 if an interface that was named is missing.
///
/// With --measure it also holds each interface by each way in turn, and by none, with a node
/// that lets everything pass, and prints what came in meanwhile, in how large pieces (what an
/// offload has joined counts as one), and how long the program took for each: what each way
/// costs the traffic that the interface has at that moment. XDP in a card's driver may take
/// the link down for a moment.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ashway doctor
  ashway doctor veth0 -j
  ashway doctor veth0 --measure        on its own traffic, 3 rounds of 5 windows of 1 s")]
pub(crate) struct Doctor {
    /// Interfaces to look at [default: all]
    #[arg(value_name = "IFACE")]
    ifaces: Vec<String>,
    /// Measure what each way to take the interfaces costs their traffic
    #[arg(long, requires = "ifaces")]
    measure: bool,
    /// How long each way has the interface in a round
    #[arg(long, value_name = "SECONDS", default_value_t = 1, requires = "measure",
          value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: u64,
    /// How often each way has it
    #[arg(long, value_name = "N", default_value_t = 3, requires = "measure",
          value_parser = clap::value_parser!(u64).range(1..=100))]
    rounds: u64,
}

impl Doctor {
    pub(crate) fn run(self, face: Face) -> Result<u8, Failure> {
        let measuring = self.measure.then(|| self.measuring()).transpose()?;
        let report = doctor::run(&self.ifaces, measuring.as_ref());
        face.show(&report.to_json(), || report.render())?;
        Ok(report.exit_code())
    }

    fn measuring(&self) -> Result<Measuring, Failure> {
        let program = std::env::current_exe().map_err(|error| {
            let failure = Failure::new(Exit::Failed, "cannot find the `ashway` program to measure");
            failure.because(&error)
        })?;
        Ok(Measuring {
            window: Duration::from_secs(self.seconds),
            rounds: self.rounds as usize,
            program,
        })
    }
}
