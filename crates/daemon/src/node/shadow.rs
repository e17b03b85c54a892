//! Promotions that first have some messages compared: record and replay
//! (`crate::shadow`).

use std::fmt;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use super::{Asked, Node, Promotion};
use crate::activation::Bindable;
use crate::config::Tier;
use crate::instance::{NotPromoted, Promoted};
use crate::shadow::{PATIENCE, Recording, compare};

/// Who learns which path was promoted, or why none was.
type Then = Box<dyn FnOnce(&mut Node, Result<usize, NotPromoted>) + Send>;

/// A promotion that waits for messages.
pub(super) struct Shadow {
    path: Asked,
    handler: Bindable,
    promoted: Promoted,
    /// When it waits no longer.
    end: Instant,
    then: Then,
}

impl fmt::Debug for Shadow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shadow")
            .field("path", &self.path)
            .field("handler", &self.handler)
            .finish_non_exhaustive()
    }
}

impl Shadow {
    /// Ends the recording, if it is still there: a swap ends it too, and then there may be
    /// another promotion's.
    fn recording(&self) -> Option<Recording> {
        let running = self.handler.running.lock();
        let mut running = running.unwrap_or_else(PoisonError::into_inner);
        running.recording.take_if(|recording| self.owns(recording))
    }

    fn owns(&self, recording: &Recording) -> bool {
        recording.is_of(self.path.row.0, self.promoted.version)
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

impl Node {
    /// As [`promote`](Self::promote), but first `messages` of the path, or as many as
    /// come in time, must have the same end in the kernel tier.
    pub(super) fn promote_compared(&mut self, path: usize, messages: usize, then: Then) {
        if messages == 0 || self.is_compared(path) {
            return self.promote(path, then);
        }
        let config = self.config.paths[path].clone();
        let asked = self.asked(path);
        self.compile(&config, move |node, compiled| {
            match (node.still(asked), compiled) {
                (Err(gone), _) => then(node, Err(gone)),
                (Ok(path), Ok(promoted)) => node.record(path, promoted, messages, then),
                (Ok(path), refused) => {
                    let moved = node.install(path, refused).map(|()| path);
                    then(node, moved);
                }
            }
        });
    }

    /// Whether nothing is left to compare: it was done before, or the path runs in the
    /// kernel tier and has no messages of the user tier.
    pub(super) fn is_compared(&self, path: usize) -> bool {
        let known = &self.paths[path];
        known.tier == Tier::Kernel
            || matches!(known.promotion, Promotion::Done(_))
                && known.compared.is_some_and(|compared| compared.equal > 0)
    }

    fn record(&mut self, path: usize, promoted: Promoted, messages: usize, then: Then) {
        let plan = &self.plan.paths[path];
        let handler = self.bindable[plan.instance].clone();
        let asked = self.asked(path);
        {
            let running = handler.running.lock();
            let mut running = running.unwrap_or_else(PoisonError::into_inner);
            if running.version.id != promoted.version {
                drop(running);
                return then(self, Err(swapped(&handler)));
            }
            if running.recording.is_none() {
                let version = Arc::clone(&running.version);
                running.recording = Some(Recording::new(asked.row.0, version, messages));
                drop(running);
                return self.shadows.push(Shadow {
                    path: asked,
                    handler,
                    promoted,
                    end: Instant::now() + PATIENCE,
                    then,
                });
            }
        }
        let mut shadows = self.shadows.iter();
        let other = shadows.find(|other| Arc::ptr_eq(&other.handler.shared, &handler.shared));
        let because = match other.and_then(|other| self.still(other.path).ok()) {
            Some(other) if other == path => "it is being promoted already".to_owned(),
            Some(other) => format!(
                "path `{}` of the same handler is being promoted",
                self.config.paths[other].name
            ),
            // It was unbound or demoted a moment ago.
            None => "another path of the same handler is being promoted".to_owned(),
        };
        let hint = "ask once more when that has ended, within a second".to_owned();
        let line = None;
        then(
            self,
            Err(NotPromoted {
                because,
                line,
                hint,
            }),
        );
    }

    /// Compares what has been recorded, where that is enough or has to do.
    pub(super) fn look_at_shadows(&mut self) {
        let now = Instant::now();
        let mut next = 0;
        while next < self.shadows.len() {
            let shadow = &self.shadows[next];
            if shadow.is_due(now) || self.still(shadow.path).is_err() {
                let due = self.shadows.swap_remove(next);
                self.compare(due);
            } else {
                next += 1;
            }
        }
    }

    fn compare(&mut self, due: Shadow) {
        let recording = due.recording();
        let Shadow {
            path: asked,
            handler,
            promoted,
            then,
            ..
        } = due;
        let path = match self.still(asked) {
            Ok(path) => path,
            Err(gone) => return then(self, Err(gone)),
        };
        let Some(recording) = recording else {
            // After a swap, what was recorded is gone; the version may be back by now.
            return then(self, Err(swapped(&handler)));
        };
        let config = &self.config.paths[path];
        let (function, budget) = (config.function.clone(), config.budget);
        self.compile_thread.submit(
            move || compare(&function, budget, &recording),
            move |node, compared| {
                let path = match node.still(asked) {
                    Ok(path) => path,
                    Err(gone) => return then(node, Err(gone)),
                };
                let made = compared.map(|compared| {
                    node.paths[path].compared = Some(compared);
                    promoted
                });
                let moved = node.install(path, made).map(|()| path);
                then(node, moved);
            },
        );
    }
}

fn swapped(handler: &Bindable) -> NotPromoted {
    NotPromoted {
        because: format!("handler `{}` was swapped meanwhile", handler.shared.name),
        line: None,
        hint: "promote the path once more".to_owned(),
    }
}
