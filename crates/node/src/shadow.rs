//! Promotions that first have some messages compared: record and replay
//! (`ashway_worker::shadow`).

use std::fmt;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use ashway_path::places::PathId;

use super::Node;
use super::node_path::Promotion;
use super::operation::Operation;
use super::promote::{Promoting, swapped};
use crate::compile::Job;
use ashway_config::Tier;
use ashway_worker::dry_run::Blueprint;
use ashway_worker::handle::HandlerHandle;
use ashway_worker::instance::{NotPromoted, Promoted};
use ashway_worker::shadow::{self, Compared, PATIENCE, Recording};

/// A promotion that waits for messages.
pub(super) struct Shadow {
    promoting: Promoting,
    handler: HandlerHandle,
    promoted: Promoted,
    /// When it waits no longer.
    end: Instant,
}

impl fmt::Debug for Shadow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shadow")
            .field("promoting", &self.promoting)
            .field("handler", &self.handler)
            .finish_non_exhaustive()
    }
}

impl Shadow {
    /// Ends the recording, if it is still there: a swap ends it too, and then there may be
    /// another promotion's.
    pub(super) fn recording(&self) -> Option<Recording> {
        let running = self.handler.running.lock();
        let mut running = running.unwrap_or_else(PoisonError::into_inner);
        running.recording.take_if(|recording| self.owns(recording))
    }

    fn owns(&self, recording: &Recording) -> bool {
        recording.is_of(self.promoting.path.row.0, self.promoted.version)
    }

    /// Whether it waits no longer.
    fn is_due(&self, now: Instant) -> bool {
        let running = self.handler.running.lock();
        let running = running.unwrap_or_else(PoisonError::into_inner);
        let recording = running.recording.as_ref();
        let recording = recording.filter(|recording| self.owns(recording));
        now >= self.end || recording.is_none_or(Recording::is_full)
    }
}

/// A promotion that waits for the comparison of what was recorded.
pub(super) struct Comparing {
    promoting: Promoting,
    promoted: Promoted,
}

/// Recorded messages that the kernel is to run.
pub(super) struct CompareJob {
    function: String,
    budget: Duration,
    recording: Recording,
    blueprint: Box<Blueprint>,
}

impl Job for CompareJob {
    type Outcome = Result<Compared, NotPromoted>;

    fn run(self) -> Self::Outcome {
        shadow::compare(
            &self.function,
            self.budget,
            &self.recording,
            &self.blueprint,
        )
    }
}

impl Node {
    /// Whether nothing is left to compare: it was done before, or the path runs in the
    /// kernel tier and has no messages of the user tier.
    pub(super) fn is_compared(&self, path: PathId) -> bool {
        let known = &self.paths.bound(path);
        known.tier == Tier::Kernel
            || matches!(known.promotion, Promotion::Done(_))
                && known.compared.is_some_and(|compared| compared.equal > 0)
    }

    /// Has the worker record what comes of messages of the path, while the operation waits.
    pub(super) fn record(
        &mut self,
        operation: Operation,
        promoting: Promoting,
        promoted: Promoted,
    ) {
        let recorded = self.begin_to_record(promoting, promoted);
        match recorded {
            Ok(shadow) => self.operations.wait(operation, shadow),
            Err(refused) => operation.end(self.moved_to(Err(refused), true)),
        }
    }

    fn begin_to_record(
        &self,
        promoting: Promoting,
        promoted: Promoted,
    ) -> Result<Shadow, NotPromoted> {
        let path = self.still(promoting.path)?;
        let handler = self.handlers[&self.plan.paths[&path].handler].clone();
        {
            let running = handler.running.lock();
            let mut running = running.unwrap_or_else(PoisonError::into_inner);
            if running.version.id != promoted.version {
                return Err(swapped(&handler.shared.name));
            }
            if running.recording.is_none() {
                let version = Arc::clone(&running.version);
                let row = promoting.path.row.0;
                running.recording = Some(Recording::new(row, version, promoting.messages));
                drop(running);
                return Ok(Shadow {
                    promoting,
                    handler,
                    promoted,
                    end: Instant::now() + PATIENCE,
                });
            }
        }
        let is_other =
            |(_, other): &(u64, &Shadow)| Arc::ptr_eq(&other.handler.shared, &handler.shared);
        let mut others = self.operations.shadows().filter(is_other);
        let because = match others.find_map(|(_, other)| self.still(other.promoting.path).ok()) {
            Some(other) if other == path => "it is being promoted already".to_owned(),
            Some(other) => format!(
                "path `{}` of the same handler is being promoted",
                self.paths.bound(other).config.name
            ),
            // It was unbound or demoted a moment ago.
            None => "another path of the same handler is being promoted".to_owned(),
        };
        let hint = "ask once more when that has ended, within a second";
        Err(NotPromoted::new(because, hint))
    }

    /// Compares what has been recorded, where that is enough or has to do.
    pub(super) fn look_at_shadows(&mut self) {
        let now = Instant::now();
        self.look_at_relays(now);
        let is_due = |(_, shadow): &(u64, &Shadow)| {
            shadow.is_due(now) || self.still(shadow.promoting.path).is_err()
        };
        let due = self.operations.shadows().filter(is_due);
        let due: Vec<u64> = due.map(|(number, _)| number).collect();
        for number in due {
            if let Some((operation, shadow)) = self.operations.take_shadow(number) {
                self.compare(operation, shadow);
            }
        }
    }

    fn compare(&mut self, operation: Operation, due: Shadow) {
        let recording = due.recording();
        let Shadow {
            promoting,
            handler,
            mut promoted,
            ..
        } = due;
        // After a swap, what was recorded is gone; the version may be back by now.
        let recording = recording.ok_or_else(|| swapped(&handler.shared.name));
        match self
            .still(promoting.path)
            .and_then(|path| Ok((path, recording?)))
        {
            Ok((path, recording)) => {
                let config = &self.paths.bound(path).config;
                let blueprint = promoted.blueprint.take();
                let job = CompareJob {
                    function: config.function.clone(),
                    budget: config.budget,
                    recording,
                    blueprint: blueprint.expect("it is compared once"),
                };
                let comparing = Comparing {
                    promoting,
                    promoted,
                };
                self.submit(operation, comparing, job);
            }
            Err(why) => operation.end(self.moved_to(Err(why), true)),
        }
    }

    /// Goes on when it is compared.
    pub(super) fn compared(
        &mut self,
        operation: Operation,
        comparing: Comparing,
        compared: Result<Compared, NotPromoted>,
    ) {
        let Comparing {
            promoting,
            promoted,
        } = comparing;
        let moved = self.still(promoting.path).and_then(|path| {
            let made = compared.map(|compared| {
                self.paths.bound_mut(path).compared = Some(compared);
                promoted
            });
            self.install(path, made).map(|()| path)
        });
        operation.end(self.moved_to(moved, true));
    }
}
