//! `ashway cancel`: end an operation that waits.

use ashway_api::answer::Operation;
use ashway_api::request;
use clap::Args;

use super::Node;
use crate::face::{Face, clean};
use crate::failure::Failure;

/// End an operation that waits for a compilation or for messages
///
/// `ashway status` shows those that are under way, with their numbers. No handler, path or
/// tier has changed by then; whoever asked for it is told that it was cancelled. A job that the
/// compile thread has begun comes to its end, and what came of it is thrown away.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ashway status
  ashway cancel 7")]
pub(crate) struct Cancel {
    #[command(flatten)]
    node: Node,
    /// Its number, which `ashway status` shows
    operation: u64,
}

impl Cancel {
    pub(crate) fn run(self, face: Face) -> Result<(), Failure> {
        let operation = self.operation;
        let said = self
            .node
            .connect()?
            .request(request::Cancel { operation })?;
        face.show(&said.document, || {
            let Operation { does, about, .. } = &said.answer;
            format!("cancelled: {} {}", clean(does), clean(about))
        })?;
        Ok(())
    }
}
