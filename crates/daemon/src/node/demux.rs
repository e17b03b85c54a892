//! The demux of a running node, for people: its structure, and how many frames each
//! entry caught.

use std::cmp::Reverse;
use std::collections::HashMap;

use ashway_demux::print;
use ashway_wire::Headers;
use serde_json::{Value, json};

use super::{Node, NodeIface, serve};
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
    pub(super) fn show_demux(&self, iface: Option<&str>) -> Result<Value, Refusal> {
        let names: Vec<&str> = self.config.ifaces.iter().map(|i| &*i.name).collect();
        let shown = match iface {
            None => (0..names.len()).collect(),
            Some(name) => {
                let at = names.iter().position(|known| name == *known);
                vec![at.ok_or_else(|| unknown("interface", name, &names))?]
            }
        };
        let interfaces: Result<Vec<Value>, Refusal> = shown
            .into_iter()
            .map(|iface| self.demux_of(iface))
            .collect();
        Ok(json!({ "interfaces": interfaces? }))
    }

    /// Looks a frame up in the node's own tables.
    pub(super) fn looks(&self) -> impl Fn(usize, &Headers, &[u8]) -> Looked {
        |iface, headers, frame| {
            let table = &self.ifaces[iface].table;
            let name = |target| self.lead_name(target);
            Looked::of(table, self.leads(iface), name, headers, frame)
        }
    }

    fn demux_of(&self, iface: usize) -> Result<Value, Refusal> {
        use ashway_abi::Count;
        let NodeIface { table, xdp, .. } = &self.ifaces[iface];
        let name = &self.config.ifaces[iface].name;
        // Nobody counts by entry where frames come by a socket.
        let hits = xdp.as_ref().map(|xdp| xdp.demux.hits()).transpose();
        let hits = hits.map_err(|error| {
            let message = format!("the maps of `{name}` cannot be read: {error}");
            Refusal::failed(message, "this is a bug of Ashway; please report it")
        })?;
        let mut lists = Vec::new();
        let mut sums = HashMap::new();
        for entries in table.shapes() {
            let of = |key: &[u8]| {
                let hits = hits.as_ref()?;
                Some(hits.get(&(entries.id(), key.into())).copied().unwrap_or(0))
            };
            let mut list: Vec<_> = entries
                .iter()
                .map(|(key, lead)| (of(key), key, lead))
                .collect();
            list.sort_unstable_by_key(|(hits, key, _)| (Reverse(*hits), *key));
            let sum = list
                .iter()
                .try_fold(0, |sum, (hits, ..)| Some(sum + (*hits)?));
            sums.insert(entries.id(), sum);
            list.truncate(SHOWN);
            let shown = list.into_iter().map(|(hits, key, lead)| {
                let tests = entries.shape().conjunction(key).to_string();
                json!({ "tests": tests, "path": self.lead_name(lead), "hits": hits })
            });
            lists.push(shown.collect::<Vec<_>>());
        }
        let hits = |id| sums.get(&id).copied().flatten();
        let mut document: Value =
            serde_json::from_str(&print::json(table, hits)).unwrap_or_default();
        document["name"] = json!(name);
        document["tree"] = json!(print::tree(table, hits));
        let unmatched = serve::row(self, self.plan.ifaces[iface].unmatched_row);
        document["unmatched"] = json!(unmatched.get(Count::Passed));
        let shapes = document["shapes"].as_array_mut().into_iter().flatten();
        for (shape, list) in shapes.zip(lists) {
            shape["paths"] = json!(list);
        }
        Ok(document)
    }

    /// The name of the path that something leads to, for people.
    pub(super) fn lead_name(&self, target: Target) -> &str {
        match self.plan.path_of(target.path) {
            Some(path) => &self.paths[&path].config.name,
            None => self.live.at(target.path).map_or("?", |live| &live.name),
        }
    }
}
