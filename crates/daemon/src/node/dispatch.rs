//! How messages find their paths, as a plan has it: the entry program of an
//! interface with XDP, and the list of matches of one without.

use ashway_codegen::demux::{self, Table, emit};
use ashway_codegen::entry::{self, Packet, Reply};
use ashway_kernel::{Map, Program};
use ashway_path::attrs::Attrs;
use ashway_path::create::NotCreated;

use super::RunError;
use crate::activation::ROW;
use crate::config::{Config, NodeGraph, PathConfig};
use crate::packets::{Matched, drop_match};
use crate::plan::{PathPlan, Plan};
use crate::programs::{self, DemuxMaps, NodeMaps};
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
        let name = || config.ifaces[iface].name.clone();
        let mut table = Table::default();
        for &path in &plan.ifaces[iface].paths {
            let filter = demux::parse(&paths[path].filter.to_string());
            let filter = filter.expect("the words of a path's filter are demux's");
            table
                .insert(&filter, path)
                .map_err(|source| RunError::Demux {
                    iface: name(),
                    source,
                })?;
        }
        let leaf = |path: usize| plan.leaf(iface, path, &paths[path]);
        let shapes = emit::compile(&table, emit::FEW, leaf);
        let demux =
            DemuxMaps::create(&table, &shapes, leaf).map_err(|source| RunError::System {
                doing: "create the maps of an interface's demux",
                source,
            })?;
        let image = entry::generate(&entry::Spec {
            shapes: &shapes,
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
        programs::load_entry(&image, self.maps, self.slots, &demux).map_err(|source| {
            RunError::Load {
                what: "entry",
                iface: name(),
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

/// A path in the worker's hands, at each of its interfaces.
///
/// # Errors
///
/// Which module could not take part in it, and why.
pub(super) fn path_runs(
    graph: &NodeGraph,
    config: &PathConfig,
    plan: &PathPlan,
) -> Result<Vec<(usize, PathRun)>, NotCreated> {
    config
        .ifaces
        .iter()
        .zip(&plan.slots)
        .map(|(name, (iface, _))| {
            let mut attrs = Attrs::new();
            attrs.set(ROW, u64::from(plan.row));
            let created = graph.create(config, name, attrs)?;
            Ok((*iface, PathRun::new(plan.row, created.path)))
        })
        .collect()
}
