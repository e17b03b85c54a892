//! `ashway doctor`: what this host can do.

use clap::Args;

use crate::face::Face;
use crate::failure::{Exit, Failure};
use crate::pending::doctor;

/// Say what this host can do, what follows, and how to get more
///
/// Kernel features with the version that brings each, capabilities held and
/// needed, and for each interface its driver, queues, MTU and who holds its XDP
/// hook. Each line is `ok`, `degraded` (what follows) or `missing` (what helps).
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
    pub(crate) fn run(self, face: Face) -> Result<(), Failure> {
        let report = doctor::run(face.json, &self.ifaces).map_err(|error| {
            Failure::new(Exit::Failed, "the examination failed").because(&error)
        })?;
        face.text(&report);
        Ok(())
    }
}
