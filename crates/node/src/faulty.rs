//! What stops of a handler lead to: its paths are demoted, and bypassed
//! ([`ashway_worker::breaker`]).
//!
//! The worker counts what is stopped in the user tier, where it happens, and rings. What is
//! stopped in the kernel tier the node finds here: there is a number for each instance, and
//! only if that has changed the counters are read. The program rings for the first by way of
//! the worker; for a while after it the node looks once in a
//! [`TICK`](super::looks::TICK).
//! A path whose messages come as whole frames is never in the kernel tier with a handler: it
//! is bypassed alone.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ashway_api::answer::{Bypass, Enabled, FaultLimit as Limit};
use ashway_path::places::PathId;

use super::node_path::{Feed, Stops};
use super::{Node, say};
use crate::request::Refusal;
use ashway_config::units;
use ashway_config::{FaultLimit, OnFault, Tier};
use ashway_worker::bindings::HandlerBinding;

/// Most bypasses that are told one by one, of those that last at a time.
const TOLD: usize = 100;

impl Node {
    /// What the worker has of a path that ends in a handler.
    pub(super) fn end(&self, path: PathId) -> Option<Arc<HandlerBinding>> {
        let plan = &self.plan.paths[&path];
        self.handlers[&plan.handler]
            .shared
            .bindings
            .find(plan.row.0)
    }

    /// What the worker has of a path: each stage of it that runs a handler.
    fn bindings_of(&self, id: PathId) -> Vec<Arc<HandlerBinding>> {
        let Some(path) = self.paths.at(id) else {
            return Vec::new();
        };
        match &path.feed {
            Feed::Handler(_) => self.end(id).into_iter().collect(),
            Feed::Frames(frames) => {
                let run = self.handlers.iter();
                let run = run.filter(|(id, _)| frames.runs.contains(id));
                run.flat_map(|(_, handler)| handler.shared.bindings.find_named(&path.name))
                    .collect()
            }
        }
    }

    /// Has paths whose handlers were stopped too often leave the kernel tier, and says
    /// where messages go by one.
    pub(super) fn look_at_faults(&mut self) {
        let now = Instant::now();
        let mut stopped = Vec::new();
        for (id, path) in self.paths.all_bound() {
            let instance = &self.handlers[&self.plan.paths[&id].handler].shared;
            let faults = instance.faults();
            if path.faults_seen != faults {
                stopped.push((id, faults));
            }
        }
        for (path, faults) in stopped {
            self.paths.bound_mut(path).faults_seen = faults;
            if let Some(end) = self.end(path) {
                self.look_at_path(path, &end, now);
            }
        }
        self.say_bypasses(now);
    }

    fn look_at_path(&mut self, path: PathId, end: &Arc<HandlerBinding>, now: Instant) {
        let number = self.plan.paths[&path].row;
        let kernel = self.kernel_row(number).stops();
        let all = kernel + self.rows.row(number).stops();
        let seen = std::mem::replace(
            &mut self.paths.bound_mut(path).stops_seen,
            Stops { all, kernel },
        );
        let more = u32::try_from(kernel - seen.kernel).unwrap_or(u32::MAX);
        let instance = &self.handlers[&self.plan.paths[&path].handler].shared;
        instance.bindings.stopped(end, more, now);
        let at_once = self.paths.bound(path).config.on_fault == OnFault::Demote && all != seen.all;
        let too_often = end.gate.take_demote();
        let because = if too_often {
            often(end.limit)
        } else {
            "its handler was stopped".to_owned()
        };
        if (at_once || too_often)
            && self.paths.bound(path).tier == Tier::Kernel
            && self.demote(path).is_ok()
        {
            let name = &self.paths.bound(path).config.name;
            say(&format!("path `{name}` demoted: {because}"));
            self.paths.bound_mut(path).demoted = Some(because);
        }
    }

    /// Says where messages go by a handler since the last look, and where they do not any
    /// more.
    fn say_bypasses(&mut self, now: Instant) {
        let instances = self.instances();
        let closed = instances.flat_map(|instance| instance.bindings.take_closed());
        let mut more = 0;
        for (end, rest) in closed.collect::<Vec<_>>() {
            // Its path may be gone.
            let Some(path) = end.upgrade() else { continue };
            if self.resting.len() == TOLD {
                more += 1;
                continue;
            }
            let (name, rest, often) = (&path.path, units::show(rest), often(path.limit));
            say(&format!("path `{name}` bypassed for {rest}: {often}"));
            if !self.resting.iter().any(|known| known.ptr_eq(&end)) {
                self.resting.push(end);
            }
        }
        if more > 0 {
            say(&format!("{more} more bypassed; `ashway status` shows them"));
        }
        self.resting.retain(|end| {
            let Some(end) = end.upgrade() else {
                return false;
            };
            let rests = end.gate.left(now).is_some();
            if !rests {
                say(&format!("path `{}` has its handler again", end.path));
            }
            rests
        });
    }

    /// Gives the handlers of a path their messages again.
    ///
    /// # Errors
    ///
    /// If none of its modules runs a handler.
    pub(super) fn enable(&self, id: PathId) -> Result<Enabled, Refusal> {
        let (name, tier) = self.name_and_tier(id);
        let bindings = self.bindings_of(id);
        if bindings.is_empty() {
            let message = format!("no module of path `{name}` runs a handler");
            let hint = format!("`ashway path show {name}` shows its modules");
            return Err(Refusal::failed(message, hint));
        }
        // All of them, not the first alone.
        let opened = bindings.iter().filter(|end| end.gate.open()).count();
        Ok(Enabled {
            path: name.to_string(),
            tier: tier.word().into(),
            was_bypassed: opened > 0,
        })
    }

    /// A path's limit and what has come of it, for its document; both are none if none of
    /// its modules runs a handler.
    pub(super) fn describe_faults(&self, id: PathId) -> (Option<Limit>, Option<Bypass>) {
        let bindings = self.bindings_of(id);
        // It follows from the path's attributes: one for all.
        let limit = bindings.first().and_then(|end| end.limit).map(limit);
        (limit, bypass(bindings))
    }
}

fn limit(FaultLimit { most, within, rest }: FaultLimit) -> Limit {
    let ms = |time: Duration| time.as_millis() as u64;
    Limit {
        limit: most,
        within_ms: ms(within),
        rest_ms: rest.map(ms),
    }
}

/// The bypass of a path that lasts longest, if there is one at any of its stages.
fn bypass(bindings: impl IntoIterator<Item = Arc<HandlerBinding>>) -> Option<Bypass> {
    let now = Instant::now();
    let closed = bindings.into_iter();
    let closed = closed.filter_map(|end| Some((end.gate.left(now)?, end)));
    let (left, end) = closed.max_by_key(|(left, _)| *left)?;
    Some(Bypass {
        handler: end.handler.clone(),
        because: often(end.limit),
        left_ms: left.as_millis() as u64,
        hint: format!("`ashway path enable {}` ends it now", end.path),
    })
}

/// Why a path was demoted or is bypassed.
fn often(limit: Option<FaultLimit>) -> String {
    let FaultLimit { most, within, .. } = limit.unwrap_or_default();
    let times = if most == 1 { "time" } else { "times" };
    format!(
        "its handler was stopped {most} {times} within {}",
        units::show(within)
    )
}
