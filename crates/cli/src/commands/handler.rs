//! `ashway handler`: the handlers of a running node.

use clap::Subcommand;
use serde_json::json;

use super::{Node, load, map, status};
use crate::face::Face;
use crate::failure::Failure;

/// Handlers of a running node
#[derive(Debug, Subcommand)]
pub(crate) enum Handler {
    /// List them, with tier, memory and promotion
    Ls {
        #[command(flatten)]
        node: Node,
    },
    Load(load::Load),
    Map(map::Map),
}

impl Handler {
    pub(crate) fn run(self, face: Face) -> Result<(), Failure> {
        match self {
            Self::Ls { node } => {
                let document = node.connect()?.request(&json!({ "request": "status" }))?;
                let list = json!({ "handlers": document["handlers"] });
                face.show(&list, || status::handlers(&document));
                Ok(())
            }
            Self::Load(command) => command.run(face),
            Self::Map(command) => command.run(),
        }
    }
}
