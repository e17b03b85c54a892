//! Rows of counters: how the node reads them, and those of paths that are bound while it
//! runs ([`ashway_worker::rows`]).
//!
//! A row that a path had is taken back only when there is no other left, with all that can
//! be: to know that nothing is underway costs a grace period.

use std::sync::{Arc, Weak};

use ashway_abi::count::KERNEL_BYTES;
use rustix::thread::{MembarrierCommand, membarrier};

use super::Node;
use crate::request::Refusal;
use ashway_worker::counters::Row;
use ashway_worker::instance::Instance;
use ashway_worker::plan::PathPlan;
use ashway_worker::rows::CounterRow;
use ashway_worker::worker::command::Command;

/// Who had a row.
#[derive(Debug)]
pub(super) struct Former {
    /// The path's instance, until that has gone with all that it received.
    instance: Weak<Instance>,
    /// The path's number within it, until that is another's: it is nobody's while a
    /// message of the path is underway.
    local: Option<usize>,
}

impl Former {
    /// No path: nothing of it is underway behind a grace period.
    pub(super) const fn nobody() -> Self {
        Self {
            instance: Weak::new(),
            local: None,
        }
    }

    /// Whether nothing of the path is underway any more.
    fn is_idle(&self) -> bool {
        self.instance.upgrade().is_none_or(|instance| {
            let none_in_user = self.local.is_none_or(|local| instance.in_user(local) == 0);
            // What a program keeps of a fault names the path by its row.
            none_in_user && !instance.keeps_fault()
        })
    }
}

impl Node {
    /// A row of counters, of both tiers together.
    pub(super) fn row(&self, of: CounterRow) -> Row {
        let mut row = self.rows.row(of);
        self.add_kernel_row(of, &mut row);
        row
    }

    /// A row of counters, of the kernel tier alone.
    pub(super) fn kernel_row(&self, of: CounterRow) -> Row {
        let mut row = Row::empty();
        self.add_kernel_row(of, &mut row);
        row
    }

    fn add_kernel_row(&self, of: CounterRow, row: &mut Row) {
        if let Some(maps) = &self.maps {
            // The map is ours and the row exists: this does not fail.
            let _ = row.add_kernel(&maps.counters, of);
        }
    }

    /// The row for the next path. It is still to be taken.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub(super) fn next_rows(&mut self, count: usize) -> Result<CounterRow, Refusal> {
        if self.counter_rows.next(count).is_none() {
            self.take_rows_back()?;
        }
        self.counter_rows.next(count).ok_or_else(|| {
            let all = self.counter_rows.all();
            match self.counter_rows.waiting() {
                0 => Refusal::failed(
                    format!(
                        "this node has {all} paths that end in a handler, and rows of counters \
                         for no more"
                    ),
                    "unbind one that is not needed",
                ),
                left => Refusal::failed(
                    format!(
                        "this node has {all} rows of counters, and still works on messages of \
                         {left} paths that were unbound"
                    ),
                    "bind it once more in a moment",
                ),
            }
        })
    }

    /// A path with these numbers takes its row. Whoever had its number within the instance
    /// has nothing underway, or it would not have got that.
    pub(super) fn take_row(&mut self, plan: &PathPlan) {
        let was_free = self.counter_rows.take(plan.row);
        debug_assert!(was_free);
        let instance = Arc::downgrade(&self.handlers[&plan.handler].shared);
        for former in self.counter_rows.left() {
            former.local = former
                .local
                .filter(|local| *local != plan.local || !Weak::ptr_eq(&former.instance, &instance));
        }
    }

    /// A path that had these numbers has gone.
    pub(super) fn leave_row(&mut self, plan: &PathPlan) {
        let former = Former {
            instance: Arc::downgrade(&self.handlers[&plan.handler].shared),
            local: Some(plan.local),
        };
        self.counter_rows.leave(plan.row, former);
    }

    /// Takes back all rows whose paths have nothing underway.
    fn take_rows_back(&mut self) -> Result<(), Refusal> {
        // Behind it no program counts for a path that has gone.
        let _ = membarrier(MembarrierCommand::Global);
        let idle = self.counter_rows.idle(Former::is_idle);
        let zeroed: Vec<CounterRow> = idle.into_iter().map(|(row, _)| row).collect();
        self.call_worker(Command::ClearRows(zeroed.clone()))?;
        for row in zeroed {
            if let Some(maps) = &self.maps {
                let zeros = vec![0; KERNEL_BYTES * maps.cpus as usize];
                // The map is ours and the row exists: this does not fail.
                let _ = maps.counters.update(&row.0.to_ne_bytes(), &zeros);
            }
            self.counter_rows.give_back(row);
        }
        Ok(())
    }
}
