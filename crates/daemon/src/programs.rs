//! The maps of a node, and programs loaded over them.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::io;
use std::os::fd::BorrowedFd;

use ashway_abi::{Leaf, leaf};
use ashway_check::bpf::{Image, MapRef};
use ashway_codegen::demux::emit::{Compiled, Entries};
use ashway_codegen::instance::Spec;
use ashway_codegen::{exit, forward};
use ashway_demux::{Change, Key, ShapeId, Table};
use ashway_kernel::{LoadError, Map, MapSpec, Program, ProgramKind};
use ashway_memory::{Memory, SharedArray, WakeBell};

/// The maps that all programs of a node share.
#[derive(Debug)]
pub struct NodeMaps {
    /// A context for each of [`Self::cpus`]. Not mapped by anybody.
    pub context: Map,
    /// Possible CPUs.
    pub cpus: u32,
    /// Counters, a row each.
    pub counters: Map,
    /// Wakes the worker.
    pub wake: WakeBell,
}

/// The maps a program can name; those it does not name may be absent.
#[derive(Clone, Copy, Debug)]
pub struct Maps<'a> {
    /// Of the node.
    pub node: &'a NodeMaps,
    /// The instance's trusted words.
    pub trusted: Option<&'a SharedArray>,
    /// The instance's memory.
    pub memory: Option<&'a Memory>,
}

impl<'a> Maps<'a> {
    fn fd(&self, map: MapRef) -> BorrowedFd<'a> {
        match map {
            MapRef::Context => self.node.context.fd(),
            MapRef::Counters => self.node.counters.fd(),
            MapRef::Wake => self.node.wake.fd(),
            MapRef::Trusted => self
                .trusted
                .expect("only instance programs name trusted words")
                .fd(),
            MapRef::Memory => self
                .memory
                .expect("only instance programs name a memory")
                .fd(),
            MapRef::Slots | MapRef::Shape(_) | MapRef::Hits => {
                unreachable!("only entry programs name the maps of an interface")
            }
            MapRef::Hops => unreachable!("only forward programs name the hops"),
            MapRef::Notes => unreachable!("only programs that observe name the ring of notes"),
        }
    }
}

/// Loads `image`. `name` begins with `ashway`: that is how `iface detach` knows
/// a program of ours.
///
/// # Errors
///
/// What the kernel said ([`LoadError`]).
pub fn load(
    name: &str,
    kind: ProgramKind,
    image: &Image,
    maps: &Maps,
) -> Result<Program, LoadError> {
    ashway_trial::program::load(name, kind, image, |map| maps.fd(map))
}

/// The same for a program that observes, and says what it does into `notes`.
///
/// # Errors
///
/// What the kernel said ([`LoadError`]).
pub(crate) fn load_noting(
    name: &str,
    image: &Image,
    maps: &Maps,
    notes: BorrowedFd<'_>,
) -> Result<Program, LoadError> {
    ashway_trial::program::load(name, ProgramKind::Xdp, image, |map| match map {
        MapRef::Notes => notes,
        other => maps.fd(other),
    })
}

/// The maps of an interface's demux, filled.
#[derive(Debug)]
pub struct DemuxMaps {
    /// By the shape's number.
    shapes: HashMap<u32, Map>,
    hits: Map,
    /// The entries that are part of the program, by the number of their hits.
    constants: Vec<(ShapeId, Key)>,
}

impl DemuxMaps {
    /// Makes the maps that a program of `compiled`, which is `table`'s, names, with
    /// all entries. About 0.1 us for each.
    ///
    /// # Errors
    ///
    /// What the kernel said.
    pub fn create<T: Copy + Eq + Hash>(
        table: &Table<T>,
        compiled: &[Compiled],
        leaf: impl Fn(T) -> Leaf,
    ) -> io::Result<Self> {
        let mut shapes = HashMap::new();
        let mut constants = Vec::new();
        for (one, entries) in compiled.iter().zip(table.shapes()) {
            let number = match &one.entries {
                Entries::Hash(number) => *number,
                Entries::Constants(list) => {
                    // They are numbered in this order.
                    constants.extend(list.iter().map(|one| (entries.id(), one.key.into())));
                    continue;
                }
            };
            let map = Map::create(&MapSpec::hash(
                "ashway_shape",
                one.shape.key_bytes() as u32,
                leaf::BYTES as u32,
                room(entries.len()),
            ))?;
            let (mut keys, mut values) = (Vec::new(), Vec::new());
            for (key, path) in entries.iter() {
                keys.extend_from_slice(key);
                values.extend_from_slice(&leaf(path).to_bytes());
            }
            map.update_batch(&keys, &values)?;
            shapes.insert(number, map);
        }
        let room = 8 * constants.len().max(1) as u32;
        let hits = Map::create(&MapSpec::array("ashway_hits", room, 1))?;
        Ok(Self {
            shapes,
            hits,
            constants,
        })
    }

    /// Follows changes of the table by map updates, one call for all entries of a
    /// shape; what was added leads to the leaf beside it. 0.1 us for each entry, and
    /// a microsecond for each call. False if that is not enough: the program has to
    /// be made again, with maps of its own.
    ///
    /// # Errors
    ///
    /// What the kernel said; `E2BIG` if a map is full. Some may be done by then.
    pub fn follow(&self, changes: &[(&Change, Leaf)]) -> io::Result<bool> {
        // Who has a turned entry now, the leaf need not say.
        if changes.iter().any(|(change, _)| !change.turned.is_empty()) {
            return Ok(false);
        }
        let mut added: BTreeMap<u32, (Vec<u8>, Vec<u8>)> = BTreeMap::new();
        let mut removed: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
        for (change, leaf) in changes {
            for (shape, key) in &change.added {
                let (keys, values) = added.entry(shape.0).or_default();
                keys.extend_from_slice(key);
                values.extend_from_slice(&leaf.to_bytes());
            }
            for (shape, key) in &change.removed {
                removed.entry(shape.0).or_default().extend_from_slice(key);
            }
        }
        let mut touched = added.keys().chain(removed.keys());
        if !touched.all(|shape| self.shapes.contains_key(shape)) {
            return Ok(false);
        }
        for (shape, (keys, values)) in &added {
            self.shapes[shape].update_batch(keys, values)?;
        }
        for (shape, keys) in &removed {
            self.shapes[shape].delete_batch(keys)?;
        }
        Ok(true)
    }
}

impl DemuxMaps {
    /// How many frames each entry caught since its program was made; for one whose
    /// shape has a map, since it came. CPUs count without atomics, so a few may be
    /// missing. About 0.2 us for each entry.
    ///
    /// # Errors
    ///
    /// What the kernel said.
    pub fn hits(&self) -> io::Result<HashMap<(ShapeId, Key), u64>> {
        let words = self.hits.lookup(&0_u32.to_ne_bytes())?.unwrap_or_default();
        let (words, _) = words.as_chunks::<8>();
        let words = words.iter().map(|word| u64::from_ne_bytes(*word));
        let mut hits: HashMap<_, _> = self.constants.iter().cloned().zip(words).collect();
        for (number, map) in &self.shapes {
            for (key, value) in map.entries()? {
                let value: [u8; leaf::BYTES] = value.try_into().map_err(|_| {
                    io::Error::new(io::ErrorKind::InvalidData, "a leaf of another length")
                })?;
                let (_, caught) = Leaf::from_bytes(&value);
                hits.insert((ShapeId(*number), key.into()), caught);
            }
        }
        Ok(hits)
    }
}

/// Entries that a map for so many has room for: paths come while a node runs, and
/// an empty place costs 16 bytes.
fn room(entries: usize) -> u32 {
    (entries * 2).next_power_of_two().max(4096) as u32
}

/// Loads the entry program of an interface.
///
/// # Errors
///
/// What the kernel said ([`LoadError`]).
pub fn load_entry(
    image: &Image,
    node: &NodeMaps,
    slots: &Map,
    demux: &DemuxMaps,
) -> Result<Program, LoadError> {
    load_entry_with(image, node, slots, demux, None)
}

/// The same; `notes` is the ring of a program that observes.
///
/// # Errors
///
/// What the kernel said ([`LoadError`]).
pub(crate) fn load_entry_with(
    image: &Image,
    node: &NodeMaps,
    slots: &Map,
    demux: &DemuxMaps,
    notes: Option<BorrowedFd<'_>>,
) -> Result<Program, LoadError> {
    let maps = Maps {
        node,
        trusted: None,
        memory: None,
    };
    ashway_trial::program::load("ashway_entry", ProgramKind::Xdp, image, |map| match map {
        MapRef::Slots => slots.fd(),
        MapRef::Hits => demux.hits.fd(),
        MapRef::Shape(number) => demux.shapes[&number].fd(),
        MapRef::Notes => notes.expect("a program that observes has a ring"),
        other => maps.fd(other),
    })
}

/// Loads the program for the slot of every relay of a node. `spec` and `maps` are of
/// the instance whose rings hold whole frames. With `notes` it observes.
///
/// # Errors
///
/// What the kernel said ([`LoadError`]).
pub fn load_forward(
    spec: &Spec,
    maps: &Maps,
    hops: &SharedArray,
    notes: Option<BorrowedFd<'_>>,
) -> Result<Program, LoadError> {
    let image = match notes {
        None => forward::generate(spec),
        Some(_) => forward::generate_observed(spec),
    };
    let name = "ashway_forward";
    ashway_trial::program::load(name, ProgramKind::Xdp, &image, |map| match (map, notes) {
        (MapRef::Hops, _) => hops.fd(),
        (MapRef::Notes, Some(notes)) => notes,
        (other, _) => maps.fd(other),
    })
}

/// Loads the program that sends out what a redirect cannot, for a TCX ingress.
///
/// # Errors
///
/// What the kernel said ([`LoadError`]).
pub fn load_exit(node: &NodeMaps) -> Result<Program, LoadError> {
    let maps = Maps {
        node,
        trusted: None,
        memory: None,
    };
    load(
        "ashway_exit",
        ProgramKind::SchedCls,
        &exit::generate(),
        &maps,
    )
}
