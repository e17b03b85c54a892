//! Where demux leads, and how that changes.

use std::sync::Arc;

use ashway_demux::{Replica, Update};
use ashway_path::places::PathId;
use ashway_path::stage::Direction;

use crate::rows::CounterRow;

/// Where demux leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// The path.
    pub path: PathId,
    /// Which way messages go there.
    pub direction: Direction,
    /// Where they are counted.
    pub row: CounterRow,
}

/// A change of an interface's demux.
#[derive(Clone, Debug)]
pub enum DemuxChange {
    /// A filter came or went. The worker, and the programs, follow the same.
    Update(Arc<Update<Target>>),
    /// All of it is new.
    Anew(Replica<Target>),
}
