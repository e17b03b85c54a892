//! Where a program has each shape's entries: as constants, in a hash, or both.
//!
//! A shape of few entries is compared with constants, which costs less than a
//! hash; a larger one is one look-up, whatever the number of its entries. A program
//! that is to be [open](compile_open) for entries that come later has a hash beside
//! the constants, which costs two instructions as long as it is empty. For shapes that
//! come later it has [spares](super::spare).

use std::cmp::Reverse;
use std::collections::HashSet;

use ashway_abi::Leaf;
use ashway_demux::spare::layout;
use ashway_demux::{Shape, ShapeId};

/// Most entries of a shape that are compared with constants.
pub const FEW: usize = 8;

/// Most shapes that are hashes. A program names at most 64 maps (`MAX_USED_MAPS`,
/// Linux 6.18), and the entry program has others too.
pub const MOST_HASHES: usize = 56;

/// Most shapes of constants that have a map beside these. Each look-up is read by the
/// verifier again for each way that leads to it: with 68 of them beside one another a
/// program took 5 s to load that takes 0.3 s without.
pub const MOST_OPEN: usize = 8;

/// A shape as the program has it.
#[derive(Clone, Debug)]
pub struct Compiled<'t> {
    /// The shape.
    pub shape: &'t Shape,
    /// Where its entries are.
    pub entries: Entries<'t>,
}

/// Where a shape's entries are.
#[derive(Clone, Debug)]
pub enum Entries<'t> {
    /// In the program: compared one after another. A few, at most [`FEW`] where
    /// speed matters.
    Constants(Vec<Constant<'t>>),
    /// In the map [`MapRef::Shape`](ashway_check::bpf::MapRef::Shape) of this number.
    Hash(u32),
    /// In the program, unless the cell of one says that it is [`GONE`], and those that
    /// came later in a map.
    Open(Vec<Constant<'t>>, Later),
}

impl<'t> Entries<'t> {
    /// Those that are in the program.
    #[must_use]
    pub fn constants(&self) -> &[Constant<'t>] {
        match self {
            Self::Constants(list) | Self::Open(list, _) => list,
            Self::Hash(_) => &[],
        }
    }

    /// The number of the map `MapRef::Shape`, if there is one.
    #[must_use]
    pub const fn map(&self) -> Option<u32> {
        match self {
            Self::Constants(_) => None,
            Self::Hash(map) => Some(*map),
            Self::Open(_, later) => Some(later.map),
        }
    }
}

/// Where entries are that came after the program was made.
#[derive(Clone, Copy, Debug)]
pub struct Later {
    /// The number of their map, `MapRef::Shape`.
    pub map: u32,
    /// The number of the cell that counts them: the map is looked into unless that is 0.
    pub count: u32,
}

/// Bytes of a cell in the map [`MapRef::Hits`](ashway_check::bpf::MapRef::Hits).
pub const CELL_BYTES: usize = 16;

/// Where a cell says that its constant is no entry any more: a double word that is not 0.
/// The hits of the constant, or the number of entries, are in front.
pub const GONE: i16 = 8;

/// Bytes of `MapRef::Hits` for these shapes: a cell for each constant, and for what
/// may come later of each shape; then the [spares](ashway_demux::spare).
#[must_use]
pub fn hits_bytes(shapes: &[Compiled]) -> usize {
    spares_at(shapes) as usize + layout::BYTES
}

/// Where the spares of a program of these shapes lie in `MapRef::Hits`: in cache lines
/// that no hit is counted in.
#[must_use]
pub fn spares_at(shapes: &[Compiled]) -> u32 {
    let cells = |one: &Compiled| {
        let later = matches!(one.entries, Entries::Open(..));
        one.entries.constants().len() + usize::from(later)
    };
    let cells = shapes.iter().map(cells).sum::<usize>();
    (CELL_BYTES * cells).next_multiple_of(64) as u32
}

/// An entry that is part of the program.
#[derive(Clone, Copy, Debug)]
pub struct Constant<'t> {
    /// Its key.
    pub key: &'t [u8],
    /// What it leads to.
    pub leaf: Leaf,
    /// The number of its cell in the map `MapRef::Hits`.
    pub hits: u32,
}

/// The shapes of a table as a program has them: those of more than `few` entries
/// as hashes named by their [`ShapeId`], the others as constants whose cells of
/// hits are numbered in this order, each shape's by key. If that were more than
/// [`MOST_HASHES`], the largest are.
pub fn compile<'t, T: Copy + 't>(
    table: &'t (impl AsRef<[ashway_demux::Entries<T>]> + ?Sized),
    few: usize,
    leaf: impl Fn(T) -> Leaf,
) -> Vec<Compiled<'t>> {
    compile_as(table.as_ref(), few, false, leaf)
}

/// The same for a program that takes entries without being made anew: constants have a
/// map beside them for those that come later, in [`MOST_OPEN`] shapes: the largest, and
/// among equals the latest.
pub fn compile_open<'t, T: Copy + 't>(
    table: &'t (impl AsRef<[ashway_demux::Entries<T>]> + ?Sized),
    few: usize,
    leaf: impl Fn(T) -> Leaf,
) -> Vec<Compiled<'t>> {
    compile_as(table.as_ref(), few, true, leaf)
}

fn compile_as<T: Copy>(
    shapes: &[ashway_demux::Entries<T>],
    few: usize,
    open: bool,
    leaf: impl Fn(T) -> Leaf,
) -> Vec<Compiled<'_>> {
    // A shape without a key has one entry, which needs no look-up.
    let keyed = shapes.iter();
    let keyed = keyed.filter(|entries| !entries.shape().key.is_empty());
    let mut maps: Vec<_> = keyed.collect();
    maps.sort_by_key(|entries| Reverse((entries.len(), entries.id())));
    let large = maps
        .iter()
        .take_while(|entries| entries.len() > few)
        .count();
    let open = if open { MOST_OPEN } else { 0 };
    maps.truncate((large + open).min(MOST_HASHES));
    let maps: HashSet<ShapeId> = maps.into_iter().map(ashway_demux::Entries::id).collect();
    let mut cells = 0..;
    let compiled = shapes.iter().map(|entries| {
        let map = maps.contains(&entries.id()).then_some(entries.id().0);
        if let (Some(map), true) = (map, entries.len() > few) {
            return Compiled {
                shape: entries.shape(),
                entries: Entries::Hash(map),
            };
        }
        let mut constants: Vec<_> = entries.iter().collect();
        constants.sort_by_key(|(key, _)| *key);
        let constants = constants.into_iter().zip(&mut cells);
        let constant = |((key, value), hits)| Constant {
            key,
            leaf: leaf(value),
            hits,
        };
        let constants = constants.map(constant).collect();
        let later = map.and_then(|map| {
            let count = cells.next()?;
            Some(Later { map, count })
        });
        Compiled {
            shape: entries.shape(),
            entries: match later {
                Some(later) => Entries::Open(constants, later),
                None => Entries::Constants(constants),
            },
        }
    });
    compiled.collect()
}
