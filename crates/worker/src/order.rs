//! Changes of paths that no one waits for, as data.

use ashway_modules::Message;
use ashway_path::path::Path;
use ashway_path::places::PathId;

use crate::target::DemuxChange;

/// Paths of modules that come, then changes of what leads where, then paths that go: a
/// path is there before anything leads to it, and until nothing does any more. Last, what
/// paths have waited for.
#[derive(Default)]
pub struct Order {
    /// Paths that come.
    pub insert: Vec<ModulePath>,
    /// Changes of the interfaces' tables, by interface.
    pub demux_changes: Vec<(usize, DemuxChange)>,
    /// Paths that go; what waits in them is dropped.
    pub remove: Vec<PathId>,
    /// Hardware addresses of next hops that were looked up, if they are known.
    pub next_macs: Vec<(PathId, Option<[u8; 6]>)>,
}

/// A path of modules that the worker is to have.
pub struct ModulePath {
    /// Its id.
    pub id: PathId,
    /// Its number among the node's paths of modules, if it has one.
    pub number: Option<u32>,
    /// The path.
    pub path: Box<Path<Message>>,
    /// Whether its messages wait until its next hop has been looked up.
    pub awaits_next_mac: bool,
}

impl Order {
    /// How many paths come or go.
    pub(crate) fn paths(&self) -> usize {
        self.insert.len() + self.remove.len()
    }

    /// Whether a path that comes has something to do by itself.
    pub(crate) fn starts(&self) -> bool {
        let mut inserted = self.insert.iter();
        inserted.any(|new| new.path.wake_at().is_some())
    }
}
