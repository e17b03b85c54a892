//! What demux leads to a path that ends in a handler: its filters in the tables of its interfaces, who
//! competes with them, and what of that the host's stack hears.

use std::collections::HashSet;

use ashway_demux::{self as demux, Conflict, Filter};
use ashway_path::places::PathId;
use ashway_ring::IngressDropError;

use super::{Node, dispatch};
use crate::request::Refusal;
use ashway_worker::drop_rule;
use ashway_worker::target::{DemuxChange, Target};
use ashway_worker::worker::command::Command;

impl Node {
    /// Takes a path that ends in a handler out of the tables.
    pub(super) fn remove_filters(&mut self, path: PathId) -> Vec<(usize, DemuxChange)> {
        let mut demux_changes = Vec::new();
        for (iface, target) in self.targets_of(path) {
            self.remove_filter(iface, target, &mut demux_changes);
        }
        demux_changes
    }

    /// Where demux leads for a path that ends in a handler, at each of its interfaces.
    pub(super) fn targets_of(&self, path: PathId) -> Vec<(usize, Target)> {
        let slots = self.plan.paths[&path].slots.iter();
        let targets = slots.filter_map(|&(iface, _)| {
            let target = self.plan.target(path, iface)?;
            Some((iface, target))
        });
        targets.collect()
    }

    /// Puts paths that could not be taken away back.
    pub(super) fn add_filters(&mut self, paths: &[PathId], demux_changes: &[(usize, DemuxChange)]) {
        for &path in paths {
            for (iface, target, filter) in self.filters_of(path) {
                // It was there until a moment ago, and the worker has it still.
                let _ = self.ifaces[iface].table.insert(&filter, target);
            }
        }
        self.put_back(demux_changes);
        let _ = self.show_host();
    }

    /// What the demux of its interfaces has of a path that ends in a handler.
    pub(super) fn filters_of(&self, path: PathId) -> Vec<(usize, Target, Filter)> {
        let filter = &self.paths.bound(path).config.filter;
        let targets = self.targets_of(path).into_iter();
        targets
            .map(|(iface, target)| (iface, target, self.filter_at(iface, filter.clone())))
            .collect()
    }

    /// Says that the path that `target` leads to wants what another has.
    pub(super) fn rivalry(
        &self,
        name: &str,
        target: Target,
        conflict: &Conflict<Target>,
    ) -> Refusal {
        let domain = self.domain_of(target);
        if domain.is_some() && domain != self.domain_of(conflict.with) {
            // A domain does not learn what others have.
            let message = format!("path `{name}` asks for messages that another's path has");
            return Refusal::usage(message, conflict.hint());
        }
        self.competition(name, conflict)
    }

    /// The domain of the path that something leads to.
    fn domain_of(&self, target: Target) -> Option<&str> {
        let path = self.plan.path_of(target.path).unwrap_or(target.path);
        self.paths.at(path)?.domain.as_deref()
    }

    /// Says that a path wants what another has, which it names.
    pub(super) fn competition(&self, name: &str, conflict: &Conflict<Target>) -> Refusal {
        let rival = self.target_name(conflict.with);
        let message = format!("paths `{rival}` and `{name}` cannot be told apart: {conflict}");
        Refusal::usage(message, conflict.hint())
    }

    /// Keeps what the tables have, and nothing else, from the host's stack, where
    /// XDP does not do so. What cannot be kept from it, and leads to a path of the
    /// user tier, the host hears too.
    pub(super) fn show_host(&mut self) -> Result<(), Refusal> {
        let mut heard = HashSet::new();
        for iface in self.ifaces.numbers() {
            if self.drop_rules.get(iface).is_none() || self.ifaces[iface].state.is_lost() {
                continue;
            }
            let name = &self.ifaces[iface].name;
            let mut matches = Vec::new();
            for (lead, filter) in self.filters(iface) {
                match (drop_rule::drop_matches(&filter), lead) {
                    (Some(more), _) => matches.extend(more),
                    (None, lead) if self.paths.frames(lead.path).is_some() => {
                        heard.insert(lead.path);
                    }
                    (None, _) => {
                        let message =
                            format!("on `{name}` the host would see what the path consumes");
                        return Err(Refusal::failed(message, drop_rule::NO_DROP_HINT));
                    }
                }
            }
            let failed = |error: IngressDropError| {
                Refusal::failed(
                    format!("cannot change the drop rule of `{name}`: {error}"),
                    error.hint(),
                )
            };
            if let Some(rule) = self.drop_rules.get_mut(iface) {
                rule.replace(&matches).map_err(failed)?;
            }
        }
        if !self.drop_rules.is_empty() {
            self.call_worker(Command::SetHostCopies(heard))?;
        }
        Ok(())
    }

    /// Everything that leads somewhere on an interface, as it was written. Reads
    /// each again: for what is rare.
    pub(super) fn filters(&self, iface: usize) -> Vec<(Target, Filter)> {
        let filters = self.targets(iface).filter_map(|lead| {
            let text = self.ifaces[iface].table.text(lead)?;
            Some((lead, self.filter_of(iface, lead, text)?))
        });
        filters.collect()
    }

    /// All that may lead somewhere on an interface.
    pub(super) fn targets(&self, iface: usize) -> impl Iterator<Item = Target> {
        let bound = self.plan.ifaces[iface].paths.iter();
        let bound = bound.filter_map(move |&path| self.plan.target(path, iface));
        let framed = self.paths.targets(iface);
        bound.chain(framed.map(|(id, direction)| self.frame_target(id, direction)))
    }

    fn filter_of(&self, iface: usize, target: Target, text: &str) -> Option<Filter> {
        if self.catches(target.path, iface) {
            return Some(dispatch::fragments());
        }
        // What is in the table could be read once.
        demux::parse(text).ok()
    }
}
