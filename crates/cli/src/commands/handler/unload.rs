//! `ashway handler unload`: a handler leaves a running node.

use ashway_api::request;
use clap::Args;

use super::Node;
use crate::face::Face;
use crate::failure::Failure;

/// Take a handler out of a running node
///
/// Its memory, its programs, the versions before it and the messages that stopped it
/// are gone with it; its name is free. A process that has mapped its memory keeps what
/// it has mapped. Refused while a path leads to it: `ashway unbind` comes first.
/// Messages that have been received are still worked on.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ashway unbind inc && ashway handler unload counter")]
pub(crate) struct Unload {
    /// The handler
    name: String,
    #[command(flatten)]
    node: Node,
}

impl Unload {
    pub(crate) fn run(self, face: Face) -> Result<(), Failure> {
        let handler = self.name.clone();
        let said = self.node.connect()?.request(request::Unload { handler })?;
        face.show(&said.document, || {
            format!("handler `{}` is unloaded", self.name)
        })?;
        Ok(())
    }
}
