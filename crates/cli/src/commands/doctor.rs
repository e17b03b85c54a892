//! `ashway doctor`: what this host can do.

use ashway_daemon::doctor;
use clap::Args;

use crate::face::Face;
use crate::failure::Failure;

/// Say what this host can do, what follows, and how to get more
///
/// Kernel features with the version that brings each, capabilities held and
/// needed, and for each interface its driver, queues, MTU and who holds its XDP
/// hook. Each line is `ok`, `degraded` (what follows) or `missing` (what helps). Exit code 6 if
/// this kernel has no rung at all, 1 if an interface that was named is missing.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ashway doctor
  ashway doctor veth0 -j")]
pub(crate) struct Doctor {
    /// Interfaces to look at [default: all]
    #[arg(value_name = "IFACE")]
    ifaces: Vec<String>,
}

impl Doctor {
    pub(crate) fn run(self, face: Face) -> Result<u8, Failure> {
        let report = doctor::run(&self.ifaces);
        face.show(&report.to_json(), || report.render())?;
        Ok(report.exit_code())
    }
}
