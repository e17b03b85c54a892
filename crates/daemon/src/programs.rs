//! The maps of a node, and programs loaded over them.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering;

use ashway_abi::{Leaf, leaf};
use ashway_check::bpf::{Image, MapRef};
use ashway_codegen::demux::emit::{self, CELL_BYTES, Compiled, Entries, GONE};
use ashway_codegen::instance::Spec;
use ashway_codegen::{exit, forward};
use ashway_demux::{Key, Shape, ShapeId, Table, Update};
use ashway_kernel::{LoadError, Map, MapSpec, Program, ProgramKind, shared};
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

/// The maps of an interface's demux, filled. They follow the table while the program
/// stays: a shape of the program is known by its number there, whatever id it has in the
/// table by now.
#[derive(Debug)]
pub struct DemuxMaps {
    /// Those of the program's shapes that have a map, by their numbers.
    shapes: HashMap<u32, ShapeMap>,
    /// The numbers of the table's shapes.
    numbers: HashMap<ShapeId, u32>,
    hits: SharedArray,
    /// The entries that are part of the program, each with its cell in `hits`.
    constants: HashMap<(u32, Key), usize>,
}

/// The map of a shape.
#[derive(Debug)]
struct ShapeMap {
    shape: Shape,
    map: Map,
    /// The cell that counts what is in it, if the program looks at that first.
    count: Option<usize>,
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
        let mut all = Self {
            shapes: HashMap::new(),
            numbers: HashMap::new(),
            hits: shared::words("ashway_hits", emit::hits_bytes(compiled))?,
            constants: HashMap::new(),
        };
        let cell = |number: u32| number as usize * CELL_BYTES;
        for (one, entries) in compiled.iter().zip(table.shapes()) {
            let number = entries.id().0;
            all.numbers.insert(entries.id(), number);
            let constants = one.entries.constants().iter();
            let constants = constants.map(|one| ((number, one.key.into()), cell(one.hits)));
            all.constants.extend(constants);
            if one.entries.map().is_none() {
                continue;
            }
            let (len, count) = match &one.entries {
                Entries::Open(_, later) => (0, Some(cell(later.count))),
                _ => (entries.len(), None),
            };
            let map = Map::create(&MapSpec::hash(
                "ashway_shape",
                one.shape.key_bytes() as u32,
                leaf::BYTES as u32,
                room(len),
            ))?;
            if len > 0 {
                let (mut keys, mut values) = (Vec::new(), Vec::new());
                for (key, path) in entries.iter() {
                    keys.extend_from_slice(key);
                    values.extend_from_slice(&leaf(path).to_bytes());
                }
                map.update_batch(&keys, &values)?;
            }
            let shape = one.shape.clone();
            all.shapes.insert(number, ShapeMap { shape, map, count });
        }
        Ok(all)
    }

    /// Follows changes of the table by map updates, one call for all entries of a
    /// shape; what was added leads to the leaf beside it. 0.1 us for each entry, and
    /// a microsecond for each call. False if that is not enough: the program has to
    /// be made again, with maps of its own.
    ///
    /// A shape that the program has is known to it also when its last entry has gone.
    ///
    /// # Errors
    ///
    /// What the kernel said; `E2BIG` if a map is full. Some may be done by then.
    pub fn follow<T: Copy + Eq + Hash>(
        &mut self,
        updates: &[(&Update<T>, Leaf)],
    ) -> io::Result<bool> {
        let mut numbers = Cow::Borrowed(&self.numbers);
        let mut added: BTreeMap<u32, (Vec<u8>, Vec<u8>)> = BTreeMap::new();
        let mut removed: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
        let mut gone = Vec::new();
        for (update, leaf) in updates {
            let change = update.change();
            // Who has a turned entry now, the leaf need not say.
            if !change.turned.is_empty() {
                return Ok(false);
            }
            for (id, shape) in update.made() {
                let mut known = self.shapes.iter();
                let Some((number, _)) = known.find(|(_, one)| one.shape == *shape) else {
                    return Ok(false);
                };
                numbers.to_mut().insert(id, *number);
            }
            let number = |id: &ShapeId| {
                let number = numbers.get(id)?;
                self.shapes.contains_key(number).then_some(*number)
            };
            for (id, key) in &change.added {
                let Some(number) = number(id) else {
                    return Ok(false);
                };
                let (keys, values) = added.entry(number).or_default();
                keys.extend_from_slice(key);
                values.extend_from_slice(&leaf.to_bytes());
            }
            for (id, key) in &change.removed {
                let Some(number) = number(id) else {
                    return Ok(false);
                };
                match self.constants.get(&(number, key.clone())) {
                    Some(cell) if !self.is_gone(*cell) => gone.push(*cell),
                    _ => removed.entry(number).or_default().extend_from_slice(key),
                }
            }
            for id in &change.unmade {
                numbers.to_mut().remove(id);
            }
        }
        let numbers = match numbers {
            Cow::Borrowed(_) => None,
            Cow::Owned(numbers) => Some(numbers),
        };
        for (number, (keys, values)) in &added {
            let one = &self.shapes[number];
            one.map.update_batch(keys, values)?;
            if let Some(count) = one.count {
                let more = keys.len() / one.shape.key_bytes();
                let count = self.hits.u64_at(count);
                count.fetch_add(more as u64, Ordering::Release);
            }
        }
        for cell in gone {
            let word = self.hits.u64_at(cell + GONE as usize);
            word.store(1, Ordering::Release);
        }
        for (number, keys) in &removed {
            let one = &self.shapes[number];
            one.map.delete_batch(keys)?;
            if let Some(count) = one.count {
                let fewer = keys.len() / one.shape.key_bytes();
                let count = self.hits.u64_at(count);
                count.fetch_sub(fewer as u64, Ordering::Release);
            }
        }
        if let Some(numbers) = numbers {
            self.numbers = numbers;
        }
        Ok(true)
    }

    /// Whether the constant of this cell is no entry any more.
    fn is_gone(&self, cell: usize) -> bool {
        let word = self.hits.u64_at(cell + GONE as usize);
        word.load(Ordering::Acquire) != 0
    }
}

impl DemuxMaps {
    /// How many frames each entry caught since its program was made; for one that came
    /// later, since it came. CPUs count without atomics, so a few may be
    /// missing. About 0.2 us for each entry.
    ///
    /// # Errors
    ///
    /// What the kernel said.
    pub fn hits(&self) -> io::Result<HashMap<(ShapeId, Key), u64>> {
        let mut hits = HashMap::new();
        let ids: HashMap<u32, ShapeId> = self.numbers.iter().map(|(id, at)| (*at, *id)).collect();
        for ((number, key), cell) in &self.constants {
            if let Some(id) = ids.get(number)
                && !self.is_gone(*cell)
            {
                let caught = self.hits.u64_at(*cell).load(Ordering::Relaxed);
                hits.insert((*id, key.clone()), caught);
            }
        }
        for (number, one) in &self.shapes {
            let Some(id) = ids.get(number) else {
                continue;
            };
            for (key, value) in one.map.entries()? {
                let value: [u8; leaf::BYTES] = value.try_into().map_err(|_| {
                    io::Error::new(io::ErrorKind::InvalidData, "a leaf of another length")
                })?;
                let (_, caught) = Leaf::from_bytes(&value);
                hits.insert((*id, key.into()), caught);
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
        MapRef::Shape(number) => demux.shapes[&number].map.fd(),
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
