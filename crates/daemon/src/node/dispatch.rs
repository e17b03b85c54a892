//! How messages find their paths, as a plan has it: the entry program of an
//! interface with XDP, and the list of matches of one without.

use ashway_codegen::entry::{self, Packet, Reply};
use ashway_handler::Function;
use ashway_kernel::{Map, Program, ProgramKind};

use super::RunError;
use crate::config::{Config, OnFault, PathConfig};
use crate::decide::Rules;
use crate::instance::{Instance, fuel};
use crate::packets::{Matched, drop_match};
use crate::plan::{PathPlan, Plan};
use crate::programs::{self, Maps, NodeMaps};
use crate::runner::PathRun;

/// What an entry program needs beside the plan.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry<'a> {
    pub(super) maps: &'a NodeMaps,
    pub(super) slots: &'a Map,
    pub(super) mac: [u8; 6],
    pub(super) reply: Reply,
    pub(super) arena: bool,
}

impl Entry<'_> {
    /// Loads the entry program of `iface` for the paths that `plan` has there.
    /// Nothing runs it yet. Takes milliseconds: the verifier reads it.
    pub(super) fn load(
        &self,
        config: &Config,
        paths: &[PathConfig],
        plan: &Plan,
        iface: usize,
    ) -> Result<Program, RunError> {
        let image = entry::generate(&entry::Spec {
            paths: plan.entry_paths(iface, paths),
            cpus: self.maps.cpus,
            unmatched_row: plan.ifaces[iface].unmatched_row,
            mac: self.mac,
            reply: self.reply,
            packet: if self.arena {
                Packet::Pointers
            } else {
                Packet::Helpers
            },
        });
        let maps = Maps {
            node: self.maps,
            slots: Some(self.slots),
            trusted: None,
            memory: None,
        };
        programs::load("ashway_entry", ProgramKind::Xdp, &image, &maps).map_err(|source| {
            RunError::Load {
                what: "entry",
                iface: config.ifaces[iface].name.clone(),
                source,
            }
        })
    }
}

/// The paths of an interface as its packet socket sees them, most specific
/// first.
pub(super) fn matched(paths: &[PathConfig], plan: &Plan, iface: usize) -> Vec<Matched> {
    let mut matched: Vec<Matched> = plan.ifaces[iface]
        .paths
        .iter()
        .map(|path| Matched {
            filter: paths[*path].filter,
            instance: plan.paths[*path].instance,
            local: plan.paths[*path].local,
            row: plan.paths[*path].row,
        })
        .collect();
    matched.sort_by_key(|path| std::cmp::Reverse(path.filter.specificity()));
    matched
}

/// The same in the words of the drop rule.
pub(super) fn drop_matches(paths: &[Matched]) -> Vec<ashway_ring::Match> {
    paths.iter().map(|path| drop_match(&path.filter)).collect()
}

/// A path in the worker's hands.
pub(super) fn path_run(
    config: &PathConfig,
    plan: &PathPlan,
    instance: &Instance,
    function: Function,
) -> PathRun {
    PathRun {
        row: plan.row,
        function,
        rules: Rules {
            may_reply: instance.may_reply(),
            on_fault_drop: config.on_fault == OnFault::Drop,
        },
        fuel: fuel(config.budget),
    }
}
