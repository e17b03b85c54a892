//! The demux of an interface as a document: of a running node, or as it follows from a
//! configuration.

use std::cmp::Reverse;
use std::hash::Hash;

use ashway_api::answer::{DemuxOfInterface, Shape, ShapeEntry};
use ashway_demux::{ShapeId, Table, print};

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
