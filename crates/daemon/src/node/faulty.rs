//! What stops of a handler lead to: its paths are demoted, and bypassed
//! ([`crate::breaker`]).
//!
//! The worker counts what is stopped in the user tier, where it happens. What is stopped
//! in the kernel tier the node finds here, once in a [`TICK`](super::serve::TICK): there is
//! a number for each instance, and only if that has changed the counters are read.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Node, say};
use crate::config::{FaultLimit, OnFault, PathConfig, Tier};
use crate::counters::Row;
use crate::ends::PathEnd;
use crate::request::Refusal;
use crate::units;

/// How often a path's handler was stopped.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stops {
    /// In either tier.
    all: u64,
    /// In the kernel tier.
    kernel: u64,
}

impl Node {
    /// What the worker has of a path that ends in a handler.
    pub(super) fn end(&self, path: usize) -> Option<Arc<PathEnd>> {
        let plan = &self.plan.paths[path];
        self.instances[plan.instance].ends.find(plan.row)
    }

    /// Has paths whose handlers were stopped too often leave the kernel tier, and says
    /// where messages go by one.
    pub(super) fn look_at_faults(&mut self) {
        let now = Instant::now();
        for path in 0..self.paths.len() {
            let instance = self.plan.paths[path].instance;
            let faults = self.instances[instance].faults();
            let known = &mut self.paths[path];
            let seen = std::mem::replace(&mut known.faults_seen, faults);
            if (seen != faults || known.bypassed)
                && let Some(end) = self.end(path)
            {
                self.look_at_path(path, &end, now);
            }
        }
    }

    fn look_at_path(&mut self, path: usize, end: &PathEnd, now: Instant) {
        let number = self.plan.paths[path].row;
        let mut row = Row::empty();
        if let Some(maps) = &self.maps {
            // The map is ours and the row exists: this does not fail.
            let _ = row.add_kernel(&maps.counters, number);
        }
        let kernel = row.stops();
        let all = kernel + self.rows.row(number).stops();
        let seen = std::mem::replace(&mut self.paths[path].stops_seen, Stops { all, kernel });
        let more = u32::try_from(kernel - seen.kernel).unwrap_or(u32::MAX);
        end.gate.stopped(more, now);
        let config = &self.config.paths[path];
        let at_once = config.on_fault == OnFault::Demote && all != seen.all;
        let too_often = end.gate.take_demote();
        let because = if too_often {
            often(config)
        } else {
            "its handler was stopped".to_owned()
        };
        if (at_once || too_often)
            && self.paths[path].tier == Tier::Kernel
            && self.demote(path).is_ok()
        {
            let name = &self.config.paths[path].name;
            say(&format!("path `{name}` demoted: {because}"));
            self.paths[path].demoted = Some(because);
        }
        self.say_bypass(path, end, now);
    }

    fn say_bypass(&mut self, path: usize, end: &PathEnd, now: Instant) {
        let left = end.gate.left(now);
        let was = std::mem::replace(&mut self.paths[path].bypassed, left.is_some());
        let config = &self.config.paths[path];
        match left {
            Some(left) if !was => say(&format!(
                "path `{}` bypassed for {}: {}",
                config.name,
                units::show(rest(config, left)),
                often(config)
            )),
            None if was => say(&format!("path `{}` has its handler again", config.name)),
            _ => {}
        }
    }

    /// Gives a path's handler its messages again.
    pub(super) fn enable(&self, path: usize) -> Result<Value, Refusal> {
        let name = &self.config.paths[path].name;
        let end = self.end(path).ok_or_else(|| {
            Refusal::failed(format!("path `{name}` is not there yet"), "ask once more")
        })?;
        Ok(json!({
            "path": name,
            "tier": self.paths[path].tier.word(),
            "was_bypassed": end.gate.open(),
        }))
    }

    /// A path's limit and what has come of it, for its document.
    pub(super) fn describe_faults(&self, path: usize) -> (Value, Value) {
        let config = &self.config.paths[path];
        let limit = config.faults.map(|FaultLimit { most, within, rest }| {
            json!({
                "limit": most,
                "within_ms": within.as_millis() as u64,
                "rest_ms": rest.as_millis() as u64,
            })
        });
        let left = self.end(path).and_then(|end| end.gate.left(Instant::now()));
        let bypass = left.map(|left| {
            json!({
                "because": often(config),
                "left_ms": left.as_millis() as u64,
                "hint": format!("`ashway path enable {}` ends it now", config.name),
            })
        });
        (json!(limit), json!(bypass))
    }
}

/// How long a bypass is of which so much is left, soon after it began: each may be
/// twice as long as the one before.
fn rest(config: &PathConfig, left: Duration) -> Duration {
    let mut rest = config.faults.unwrap_or_default().rest;
    while rest < left {
        rest *= 2;
    }
    rest
}

/// Why a path was demoted or is bypassed.
fn often(config: &PathConfig) -> String {
    let FaultLimit { most, within, .. } = config.faults.unwrap_or_default();
    let times = if most == 1 { "time" } else { "times" };
    format!(
        "its handler was stopped {most} {times} within {}",
        units::show(within)
    )
}
