//! `ashway confirm`: keep a node that was started with `--try`.

use ashway_api::request;
use clap::Args;

use super::Node;
use crate::face::Face;
use crate::failure::Failure;

/// Keep a node that was started with `run --try`
#[derive(Debug, Args)]
pub(crate) struct Confirm {
    #[command(flatten)]
    node: Node,
}

impl Confirm {
    pub(crate) fn run(self, face: Face) -> Result<(), Failure> {
        let said = self.node.connect()?.request(request::Confirm {})?;
        face.show(&said.document, || {
            let words = if said.answer.was_on_trial {
                "confirmed: the node stays"
            } else {
                "the node is not on trial, or not any more: it stays"
            };
            words.to_owned()
        })?;
        Ok(())
    }
}
