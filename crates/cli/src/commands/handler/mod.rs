//! `ashway handler`: handlers, in a running node or without any.

use ashway_api::request;
use clap::Subcommand;
use serde_json::json;

use super::{Node, load, map, status};
use crate::face::Face;
use crate::failure::Failure;

pub(super) mod check;
mod fault;
mod faults;
pub(super) mod file;
mod hex;
mod invoke;
mod log;
pub(super) mod packets;
mod run;
mod show;
mod swap;
mod tier;
mod unload;

/// Handlers: in a running node (ls, load, swap, rollback, unload, faults, log, map), or
/// a file alone (check, run, show, invoke)
///
/// A handler of a node lives so: `handler load`, `bind` (a path leads messages to it),
/// `path promote` and `path demote` (to the kernel tier and back), `handler swap` and
/// `handler rollback` (another version of it), `unbind`, `handler unload`. Each works
/// while messages come, and is done whole or refused whole.
#[derive(Debug, Subcommand)]
pub(crate) enum Handler {
    /// List those of a node, with tier, memory and promotion
    Ls {
        #[command(flatten)]
        node: Node,
    },
    Load(load::Load),
    Swap(swap::Swap),
    Rollback(swap::Rollback),
    Unload(unload::Unload),
    Faults(faults::Faults),
    Replay(faults::Replay),
    Log(log::Log),
    Map(map::Map),
    Check(check::Check),
    Run(run::Run),
    Show(show::Show),
    Invoke(invoke::Invoke),
}

impl Handler {
    pub(crate) fn run(self, face: Face) -> Result<u8, Failure> {
        match self {
            Self::Ls { node } => {
                let said = node.connect()?.request(request::Status {})?;
                let list = json!({ "handlers": said.document["handlers"] });
                face.show(&list, || status::handlers(&said.answer))?;
                Ok(0)
            }
            Self::Load(command) => command.run(face).map(|()| 0),
            Self::Swap(command) => command.run(face).map(|()| 0),
            Self::Rollback(command) => command.run(face).map(|()| 0),
            Self::Unload(command) => command.run(face).map(|()| 0),
            Self::Faults(command) => command.run(face).map(|()| 0),
            Self::Replay(command) => command.run(face),
            Self::Log(command) => command.run(face).map(|()| 0),
            Self::Map(command) => command.run().map(|()| 0),
            Self::Check(command) => command.run(face).map(|()| 0),
            Self::Run(command) => command.run(face),
            Self::Show(command) => command.run(face).map(|()| 0),
            Self::Invoke(command) => command.run(face),
        }
    }
}
