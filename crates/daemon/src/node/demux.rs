//! The demux of a running node, for people: its structure, and how many frames each
//! entry caught.

use ashway_abi::Count;
use ashway_api::answer::{Demux, DemuxOfInterface};
use ashway_wire::Headers;

use super::{Node, NodeIface, status};
use crate::demux;
use crate::live::Target;
use crate::request::{Refusal, unknown};
use crate::why::Looked;

/// Most entries of a shape that are shown, those that caught most first.
const SHOWN: usize = 1000;

impl Node {
    /// What demux has on each interface, or on one.
    ///
    /// # Errors
    ///
    /// If there is no such interface, or if the kernel does not say what was caught.
    pub(super) fn show_demux(&self, iface: Option<&str>) -> Result<Demux, Refusal> {
        let names: Vec<&str> = self.config.ifaces.iter().map(|i| &*i.name).collect();
        let shown = match iface {
            None => (0..names.len()).collect(),
            Some(name) => {
                let at = names.iter().position(|known| name == *known);
                vec![at.ok_or_else(|| unknown("interface", name, &names))?]
            }
        };
        let interfaces = shown.into_iter().map(|iface| self.demux_of(iface));
        Ok(Demux {
            interfaces: interfaces.collect::<Result<_, _>>()?,
        })
    }

    /// Looks a frame up in the node's own tables.
    pub(super) fn looks(&self) -> impl Fn(usize, &Headers, &[u8]) -> Looked {
        |iface, headers, frame| {
            let table = &self.ifaces[iface].table;
            let name = |target| self.lead_name(target);
            Looked::of(table, self.leads(iface), name, headers, frame)
        }
    }

    fn demux_of(&self, iface: usize) -> Result<DemuxOfInterface, Refusal> {
        let NodeIface { table, xdp, .. } = &self.ifaces[iface];
        let name = &self.config.ifaces[iface].name;
        // Nobody counts by entry where frames come by a socket.
        let hits = xdp.as_ref().map(|xdp| xdp.demux.hits()).transpose();
        let hits = hits.map_err(|error| {
            let message = format!("the maps of `{name}` cannot be read: {error}");
            Refusal::failed(message, "this is a bug of Ashway; please report it")
        })?;
        let of = |id, key: &[u8]| {
            let hits = hits.as_ref()?;
            Some(hits.get(&(id, key.into())).copied().unwrap_or(0))
        };
        let lead = |target| self.lead_name(target);
        let unmatched = status::row(self, self.plan.ifaces[iface].unmatched_row);
        Ok(DemuxOfInterface {
            unmatched: Some(unmatched.get(Count::Passed)),
            ..demux::describe(name, table, of, lead, SHOWN)
        })
    }

    /// The name of the path that something leads to, for people.
    pub(super) fn lead_name(&self, target: Target) -> &str {
        match self.plan.path_of(target.path) {
            Some(path) => &self.paths[&path].config.name,
            None => self.live.at(target.path).map_or("?", |live| &live.name),
        }
    }
}
