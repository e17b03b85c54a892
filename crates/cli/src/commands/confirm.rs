//! `ashway confirm`: keep a node that was started with `--try`.

use clap::Args;
use serde_json::json;

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
        let answer = self
            .node
            .connect()?
            .request(&json!({ "request": "confirm" }))?;
        face.show(&answer, || "confirmed: the node stays".to_owned())?;
        Ok(())
    }
}
