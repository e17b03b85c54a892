//! The paths that end in an instance, as the worker and the node share them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::breaker::Gate;

/// What both know of such a path.
#[derive(Debug)]
pub(crate) struct PathEnd {
    /// The function that it ends in.
    pub(crate) function: String,
    /// The time that this has for a message.
    pub(crate) budget_ns: u64,
    /// Whether its messages get there.
    pub(crate) gate: Gate,
}

/// Those of an instance, by the rows of their counters: no two paths ever have the
/// same.
#[derive(Debug, Default)]
pub(crate) struct Ends(Mutex<BTreeMap<u32, Arc<PathEnd>>>);

impl Ends {
    fn list(&self) -> MutexGuard<'_, BTreeMap<u32, Arc<PathEnd>>> {
        // It is consistent between any two statements.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The path with this row: what is known of it (a path on two interfaces ends
    /// twice), else `end`.
    #[must_use]
    pub(crate) fn join(&self, row: u32, end: PathEnd) -> Arc<PathEnd> {
        let mut list = self.list();
        Arc::clone(list.entry(row).or_insert_with(|| Arc::new(end)))
    }

    /// The path with this row, if it ends here.
    #[must_use]
    pub(crate) fn find(&self, row: u32) -> Option<Arc<PathEnd>> {
        self.list().get(&row).cloned()
    }

    /// Forgets a path that is gone.
    pub(crate) fn leave(&self, row: u32) {
        self.list().remove(&row);
    }
}
