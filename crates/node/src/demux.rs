//! The demux of an interface as a document: its structure, and of a running node how many
//! frames each entry caught, or as it follows from a configuration.

use std::cmp::Reverse;
use std::hash::Hash;

use ashway_abi::Count;
use ashway_api::answer::{Demux, DemuxOfInterface, Shape, ShapeEntry};
use ashway_demux::{ShapeId, Table, print};
use ashway_wire::Headers;

use super::{Node, NodeIface};
use crate::request::{Refusal, unknown};
use crate::why::Looked;
use ashway_config::whole_name;
use ashway_worker::target::Target;

/// What a table has, but for the frames that it does not find. `hits` says how many frames
/// an entry caught, if somebody counts; of each shape at most `most` entries are listed,
/// those that caught most first.
pub fn describe<'n, T: Copy + Eq + Hash>(
    iface: &str,
    table: &Table<T>,
    hits: impl Fn(ShapeId, &[u8]) -> Option<u64>,
    name: impl Fn(T) -> &'n str,
    most: usize,
) -> DemuxOfInterface {
    let shapes = table.shapes().iter().map(|entries| {
        let (id, shape) = (entries.id(), entries.shape());
        let mut list: Vec<_> = entries
            .iter()
            .map(|(key, lead)| (hits(id, key), key, lead))
            .collect();
        list.sort_unstable_by_key(|(hits, key, _)| (Reverse(*hits), *key));
        let sum = list
            .iter()
            .try_fold(0, |sum, (hits, ..)| Some(sum + (*hits)?));
        let paths = list.into_iter().take(most);
        let paths = paths.map(|(hits, key, lead)| ShapeEntry {
            tests: shape.conjunction(key).to_string(),
            path: name(lead).to_owned(),
            hits,
        });
        let (text, specificity) = (print::shape(shape), entries.specificity());
        Shape {
            id: id.0.into(),
            guards: text.guards,
            not: text.not,
            key: text.key,
            key_bytes: shape.key_bytes() as u64,
            bits: specificity.bits.into(),
            exclusions: specificity.exclusions.into(),
            entries: entries.len() as u64,
            hits: sum,
            paths: paths.collect(),
        }
    });
    let shapes: Vec<Shape> = shapes.collect();
    let hits = |id: ShapeId| {
        let shape = shapes.iter().find(|shape| shape.id == u64::from(id.0));
        shape.and_then(|shape| shape.hits)
    };
    let tree = print::tree(table, hits);
    DemuxOfInterface {
        name: iface.to_owned(),
        filters: table.len() as u64,
        shapes,
        tree,
        unmatched: None,
    }
}

/// Most entries of a shape that are shown, those that caught most first.
const SHOWN: usize = 1000;

impl Node {
    /// What demux has on each interface, or on one.
    ///
    /// # Errors
    ///
    /// If there is no such interface, or if the kernel does not say what was caught.
    pub(super) fn show_demux(&self, iface: Option<&str>) -> Result<Demux, Refusal> {
        let shown = match iface {
            None => self.ifaces.numbers(),
            Some(name) => {
                let unknown = || unknown("interface", name, &self.iface_names());
                vec![self.iface_number(name).ok_or_else(unknown)?]
            }
        };
        let interfaces = shown.into_iter().map(|iface| self.demux_of(iface));
        Ok(Demux {
            interfaces: interfaces.collect::<Result<_, _>>()?,
        })
    }

    /// Looks a frame up in the node's own tables.
    pub(super) fn looks(&self) -> impl Fn(&str, &Headers, &[u8]) -> Looked {
        |iface, headers, frame| {
            let iface = self.iface_number(iface);
            let iface = iface.expect("the node's interfaces are its configuration's");
            let table = &self.ifaces[iface].table;
            let name = |target| self.target_name(target);
            Looked::of(table, self.targets(iface), name, headers, frame)
        }
    }

    fn demux_of(&self, iface: usize) -> Result<DemuxOfInterface, Refusal> {
        let NodeIface { table, xdp, .. } = &self.ifaces[iface];
        let name = &self.ifaces[iface].name;
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
        let lead = |target| self.target_name(target);
        let unmatched = self.row(self.plan.ifaces[iface].unmatched_row);
        Ok(DemuxOfInterface {
            unmatched: Some(unmatched.get(Count::Passed)),
            ..describe(name, table, of, lead, SHOWN)
        })
    }

    /// The name of the path that something leads to, for people.
    pub(super) fn target_name(&self, target: Target) -> &str {
        let path = self.plan.path_of(target.path).unwrap_or(target.path);
        let path = self.paths.at(path);
        path.map_or("?", |path| whole_name(&path.name))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use ashway_demux::parse;

    use super::*;

    #[test]
    fn a_shape_is_described_by_its_numbers() {
        let mut table = Table::default();
        let of_net = "ip and udp and src net 10.0.0.0/8 and not dst port 9";
        for (name, text) in ["ip and udp dst port 53", of_net].into_iter().enumerate() {
            table.insert(&parse(text).unwrap(), name).unwrap();
        }
        let caught = |id: ShapeId, _: &[u8]| (id == ShapeId(1)).then_some(12);
        let all = describe("b0", &table, caught, |name| ["dns", "net"][name], 8);
        assert_eq!((&*all.name, all.filters, all.shapes.len()), ("b0", 2, 2));
        let shape = all.shapes.iter().find(|shape| shape.id == 1).unwrap();
        let numbers = (shape.key_bytes, shape.bits, shape.exclusions, shape.entries);
        assert_eq!((numbers, shape.hits), ((4, 34, 1, 1), Some(12)));
        assert_eq!(
            (&*shape.paths[0].path, shape.paths[0].hits),
            ("net", Some(12))
        );
        assert!(all.tree.contains("12 hits"), "{}", all.tree);
    }
}
