//! The host's own stack, as the end of a path.
//!
//! For what a path is to look at and then give back: a `tap` or a counting
//! handler below it, and the host notices nothing. The host gets the bytes as
//! they are by then: what was changed below no longer fits its checksums, and
//! the host's stack will drop it.
//!
//! * **Services:** `down`, to what it is given. A leaf.
//! * **Attributes:** none.
//! * **Verdicts:** `Passed`.
//! * **Counters:** those of the verdicts.
//! * **Tiers:** user; the kernel tier's entry program passes on what matches no
//!   path.
//!
//! ```toml
//! [module.host]
//! kind = "host"
//! down = "count.up"
//! ```
//!
//! Source: Wallach, Engler & Kaashoek 1996 ("ASHs"), section II: what no handler
//! wants goes the usual way.

use std::sync::Arc;

use ashway_abi::Count;
use ashway_path::attrs::Attrs;
use ashway_path::module::{Kind, Module, Refused, StageAndNext};
use ashway_path::stage::{Cx, Direction, Stage, Step};

use crate::Message;
use crate::services;
use crate::way::{Way, onward, way_of_leaf};

/// The kind.
pub static KIND: Kind = Kind {
    name: "host",
    about: "the host's own stack",
    services: &services::LEAF,
    params: &[],
};

/// The host.
#[derive(Clone, Debug)]
pub struct Host {
    /// The module's name.
    pub name: Arc<str>,
}

impl Module<Message> for Host {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    fn stage(
        &self,
        entered: Option<usize>,
        _attrs: &mut Attrs,
    ) -> Result<StageAndNext<Message>, Refused> {
        Ok(StageAndNext {
            stage: Box::new(HostStage {
                module: self.name.clone(),
                way: way_of_leaf(entered),
            }),
            next: onward(entered),
        })
    }
}

struct HostStage {
    module: Arc<str>,
    way: Way,
}

impl Stage<Message> for HostStage {
    fn name(&self) -> &str {
        &self.module
    }

    fn kind(&self) -> Option<&'static Kind> {
        Some(&KIND)
    }

    fn take(
        &mut self,
        message: Message,
        direction: Direction,
        _cx: &mut Cx<'_, Message>,
    ) -> Step<Message> {
        if self.way.is_up(direction) {
            Step::End(message, Count::Passed)
        } else {
            Step::On(message)
        }
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}
