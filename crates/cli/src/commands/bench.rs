//! `ashway bench`: measurements on this host.

use clap::Subcommand;

use crate::face::Face;
use crate::failure::{Exit, Failure};
use crate::pending::bench;

/// Measure on this host, in network namespaces of its own (root)
#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// Remote increment: a socket server, the user tier and the kernel tier
    Counter,
}

impl Bench {
    pub(crate) fn run(self, face: Face) -> Result<(), Failure> {
        let Self::Counter = self;
        let report = bench::counter(face.json).map_err(|error| {
            Failure::new(Exit::Failed, "the measurement failed").because(&error)
        })?;
        face.text(&report);
        Ok(())
    }
}
