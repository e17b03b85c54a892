//! The maps of a node, and programs loaded over them.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ashway_abi::{Leaf, context, leaf};
use ashway_check::bpf::{Hook, Image, MapRef};
use ashway_codegen::demux::compiled::{self, CELL_BYTES, Compiled, Entries, GONE};
use ashway_codegen::instance::QueueSpec;
use ashway_codegen::{demux, exit, forward, moving};
use ashway_demux::spare::{self, Spares, layout};
use ashway_demux::{Key, Shape, ShapeId, Update};
use ashway_kernel::{LoadError, Map, MapSpec, Program, shared};
use ashway_memory::{Memory, SharedArray, WakeBell};

use crate::entry_changes::EntryChanges;

/// The maps that all programs of a node share.
#[derive(Debug)]
pub struct NodeMaps {
    /// Where all its programs run.
    pub hook: Hook,
    /// Whether they take frames in several buffers, under XDP.
    pub frags: bool,
    /// A context for each of [`Self::cpus`]. Not mapped by anybody.
    pub context: Arc<Map>,
    /// Possible CPUs.
    pub cpus: u32,
    /// Counters, a row each.
    pub counters: Arc<Map>,
    /// Wakes the worker.
    pub wake: Arc<WakeBell>,
}

impl NodeMaps {
    /// The same maps for programs that run elsewhere.
    #[must_use]
    pub fn at(&self, hook: Hook, frags: bool) -> Self {
        Self {
            hook,
            frags,
            context: Arc::clone(&self.context),
            cpus: self.cpus,
            counters: Arc::clone(&self.counters),
            wake: Arc::clone(&self.wake),
        }
    }
}

/// The maps a program can name; those it does not name may be absent.
#[derive(Clone, Copy, Debug)]
pub struct Maps<'a> {
    /// Of the node.
    pub node: &'a NodeMaps,
    /// The queue's trusted words.
    pub trusted: Option<&'a SharedArray>,
    /// The handler's memory.
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
                .expect("only programs of a queue name trusted words")
                .fd(),
            MapRef::Memory => self
                .memory
                .expect("only programs of handlers name a memory")
                .fd(),
            MapRef::Slots | MapRef::Shape(_) | MapRef::Hits => {
                unreachable!("only entry programs name the maps of an interface")
            }
            MapRef::Hops => unreachable!("only forward programs name the hops"),
            MapRef::Notes => unreachable!("only programs that observe name the ring of notes"),
        }
    }
}

/// The kernel keeps 15 characters: `ashway_k_` and the start of the name.
pub(crate) fn program_name(tier: &str, handler: &str) -> String {
    format!("ashway_{tier}_{handler}")
}

/// Loads `image`. `name` begins with `ashway`: that is how `iface detach` knows
/// a program of ours.
///
/// # Errors
///
/// What the kernel said ([`LoadError`]).
pub fn load(name: &str, image: &Image, maps: &Maps) -> Result<Program, LoadError> {
    load_with(name, image, maps.node, |map| maps.fd(map))
}

/// The same over any maps: as all programs of the node are loaded.
fn load_with<'m>(
    name: &str,
    image: &Image,
    node: &NodeMaps,
    fd: impl Fn(MapRef) -> BorrowedFd<'m>,
) -> Result<Program, LoadError> {
    if node.frags {
        ashway_trial::program::load_for_frags(name, image, fd)
    } else {
        ashway_trial::program::load(name, image, fd)
    }
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
    load_with(name, image, maps.node, |map| match map {
        MapRef::Notes => notes,
        other => maps.fd(other),
    })
}

/// The maps of an interface's demux, filled. They follow the table while the program
/// stays: a shape of the program is known by its number there, whatever id it has in the
/// table by now, and one that came later is [data](ashway_demux::spare).
#[derive(Debug)]
pub struct DemuxMaps {
    /// Those of the program's shapes that have a map, by their numbers.
    shapes: BTreeMap<u32, ShapeMap>,
    /// The others of the program: all their entries are constants.
    closed: BTreeMap<u32, Shape>,
    /// The numbers of the table's shapes.
    numbers: BTreeMap<ShapeId, u32>,
    hits: SharedArray,
    /// The entries that are part of the program, each with its cell in `hits`.
    constants: HashMap<(u32, Key), usize>,
    spares: SpareMap,
    /// Whether the program knows handlers that have an instance for each CPU.
    per_cpu: bool,
}

/// The map of a shape.
#[derive(Debug)]
struct ShapeMap {
    shape: Shape,
    map: Map,
    /// The cell that counts what is in it, if the program looks at that first.
    count: Option<usize>,
}

/// What has no place in the program.
#[derive(Debug)]
struct SpareMap {
    /// What lies in `hits` of it, and where.
    spares: Spares,
    at: usize,
    entries: Map,
    /// The slots of the table's shapes that have one.
    slots: BTreeMap<ShapeId, (usize, Shape)>,
    /// Whose each entry is.
    whose: HashMap<SpareKey, (ShapeId, Key)>,
}

/// The key of an entry of [`SpareMap`].
type SpareKey = [u8; spare::KEY_BYTES];

/// How a program has followed a change of its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Followed {
    /// It cannot: it has to be made again, with maps of its own.
    No,
    /// By entries of its shapes.
    Yes,
    /// By a shape that is data, which costs every message: a program that has the shape
    /// is to follow.
    AsData,
}

/// What follows changes, not done yet.
#[derive(Default)]
pub struct Steps<'a> {
    numbers: Option<BTreeMap<ShapeId, u32>>,
    spares: Option<Spares>,
    slots: Option<BTreeMap<ShapeId, (usize, Shape)>>,
    /// For the map of each shape, by its number; few.
    entries: Vec<(u32, EntryChanges<&'a Key, Leaf>)>,
    /// Cells of constants.
    gone: Vec<usize>,
    as_data: EntryChanges<SpareKey, (ShapeId, &'a Key, Leaf)>,
}

impl<'a> Steps<'a> {
    /// The changes of a shape's map.
    fn of(&mut self, number: u32) -> &mut EntryChanges<&'a Key, Leaf> {
        let known = self.entries.iter().position(|(known, _)| *known == number);
        let at = known.unwrap_or_else(|| {
            self.entries.push((number, EntryChanges::default()));
            self.entries.len() - 1
        });
        &mut self.entries[at].1
    }

    fn settle(&mut self) {
        for (_, changes) in &mut self.entries {
            changes.settle();
        }
        self.as_data.settle();
    }
}

impl DemuxMaps {
    /// Makes the maps that a program of `compiled`, which is `table`'s, names, with
    /// all entries. About 0.1 us for each.
    ///
    /// # Errors
    ///
    /// What the kernel said.
    pub fn create<T: Copy>(
        table: &(impl AsRef<[ashway_demux::Entries<T>]> + ?Sized),
        compiled: &[Compiled],
        leaf: impl Fn(T) -> Leaf,
    ) -> io::Result<Self> {
        let mut all = Self {
            shapes: BTreeMap::new(),
            closed: BTreeMap::new(),
            numbers: BTreeMap::new(),
            hits: shared::words("ashway_hits", compiled::hits_bytes(compiled))?,
            constants: HashMap::new(),
            spares: SpareMap {
                spares: Spares::default(),
                at: compiled::spares_at(compiled) as usize,
                entries: Map::create(&MapSpec::hash(
                    "ashway_spares",
                    spare::KEY_BYTES as u32,
                    leaf::BYTES as u32,
                    room(0),
                ))?,
                slots: BTreeMap::new(),
                whose: HashMap::new(),
            },
            per_cpu: false,
        };
        let is_per_cpu = |leaf: &Leaf| leaf.flags & context::flag::PER_CPU != 0;
        let cell = |number: u32| number as usize * CELL_BYTES;
        for (one, entries) in compiled.iter().zip(table.as_ref()) {
            let number = entries.id().0;
            all.numbers.insert(entries.id(), number);
            let constants = one.entries.constants().iter();
            all.per_cpu |= constants.clone().any(|one| is_per_cpu(&one.leaf));
            let constants = constants.map(|one| ((number, one.key.into()), cell(one.hits)));
            all.constants.extend(constants);
            if one.entries.map().is_none() {
                all.closed.insert(number, one.shape.clone());
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
                    let leaf = leaf(path);
                    all.per_cpu |= is_per_cpu(&leaf);
                    keys.extend_from_slice(key);
                    values.extend_from_slice(&leaf.to_bytes());
                }
                map.update_batch(&keys, &values)?;
            }
            let shape = one.shape.clone();
            all.shapes.insert(number, ShapeMap { shape, map, count });
        }
        Ok(all)
    }

    /// Whether the program that names them has to lead messages to an instance for each CPU: one
    /// that has not cannot follow a path which does.
    #[must_use]
    pub const fn is_per_cpu(&self) -> bool {
        self.per_cpu
    }

    /// Follows changes of the table by map updates, one call for all entries of a
    /// shape; what was added leads to the leaf beside it. 0.1 us for each entry, and
    /// a microsecond for each call.
    ///
    /// A shape that the program has is known to it also when its last entry has gone. One
    /// that it has not is written into its spares, as long as there is room.
    ///
    /// # Errors
    ///
    /// What the kernel said; `E2BIG` if a map is full. Some may be done by then.
    pub fn follow<T: Copy + Eq + Hash>(
        &mut self,
        updates: &[(&Update<T>, Leaf)],
    ) -> io::Result<Followed> {
        match self.plan(updates) {
            Some(steps) => self.go(steps),
            None => Ok(Followed::No),
        }
    }

    /// Finds out what follows these changes, and changes nothing; `None` if map updates
    /// are not enough.
    pub fn plan<'a, T: Copy + Eq + Hash>(
        &self,
        updates: &[(&'a Update<T>, Leaf)],
    ) -> Option<Steps<'a>> {
        let mut steps = Steps::default();
        for (update, leaf) in updates {
            self.step(update, *leaf, &mut steps)?;
        }
        steps.settle();
        Some(steps)
    }

    /// Finds out what follows one change; `None` if maps are not enough.
    fn step<'a, T: Copy + Eq + Hash>(
        &self,
        update: &'a Update<T>,
        leaf: Leaf,
        steps: &mut Steps<'a>,
    ) -> Option<()> {
        let change = update.change();
        let is_per_cpu = leaf.flags & context::flag::PER_CPU != 0;
        if is_per_cpu && !change.added.is_empty() && !self.per_cpu {
            return None;
        }
        // Who has a turned entry now, the leaf need not say.
        if !change.turned.is_empty() {
            return None;
        }
        for (id, shape) in update.made() {
            let mut known = self.shapes.iter();
            if let Some((number, _)) = known.find(|(_, one)| one.shape == *shape) {
                let numbers = &mut steps.numbers;
                let numbers = numbers.get_or_insert_with(|| self.numbers.clone());
                numbers.insert(id, *number);
            } else {
                self.as_data(id, shape, steps)?;
            }
        }
        for (id, key) in &change.added {
            if let Some(number) = self.map_of(*id, steps) {
                steps.of(number).add(key, leaf);
                continue;
            }
            if let Some(number) = self.number(*id, steps) {
                // Its constants stay as they are.
                self.as_data(*id, &self.closed[&number], steps)?;
            }
            let at = self.spare_key(*id, key, steps)?;
            steps.as_data.add(at, (*id, key, leaf));
        }
        for (id, key) in &change.removed {
            let number = self.number(*id, steps);
            let cell = number.and_then(|number| self.constants.get(&(number, key.clone())));
            if let Some(cell) = cell
                && !self.is_gone(*cell)
                && !steps.gone.contains(cell)
            {
                steps.gone.push(*cell);
            } else if let Some(number) = self.map_of(*id, steps) {
                steps.of(number).remove(key);
            } else {
                let key = self.spare_key(*id, key, steps)?;
                steps.as_data.remove(key);
            }
        }
        for id in &change.unmade {
            if self.number(*id, steps).is_some() {
                let numbers = &mut steps.numbers;
                let numbers = numbers.get_or_insert_with(|| self.numbers.clone());
                numbers.remove(id);
            }
            if self.slot(*id, steps).is_some() {
                let slots = &mut steps.slots;
                let slots = slots.get_or_insert_with(|| self.spares.slots.clone());
                slots.remove(id);
            }
        }
        Some(())
    }

    /// Gives a shape a slot among the spares; `None` if there is no room.
    fn as_data(&self, id: ShapeId, shape: &Shape, steps: &mut Steps<'_>) -> Option<()> {
        if self.slot(id, steps).is_none() {
            let spares = &mut steps.spares;
            let spares = spares.get_or_insert_with(|| self.spares.spares.clone());
            let slot = spares.place(shape)?;
            let slots = &mut steps.slots;
            let slots = slots.get_or_insert_with(|| self.spares.slots.clone());
            slots.insert(id, (slot, shape.clone()));
        }
        Some(())
    }

    /// The number of a shape of the program.
    fn number(&self, id: ShapeId, steps: &Steps<'_>) -> Option<u32> {
        let numbers = steps.numbers.as_ref().unwrap_or(&self.numbers);
        numbers.get(&id).copied()
    }

    /// The same of one that has a map.
    fn map_of(&self, id: ShapeId, steps: &Steps<'_>) -> Option<u32> {
        let number = self.number(id, steps);
        number.filter(|number| self.shapes.contains_key(number))
    }

    fn slot<'s>(&'s self, id: ShapeId, steps: &'s Steps<'_>) -> Option<&'s (usize, Shape)> {
        let slots = steps.slots.as_ref().unwrap_or(&self.spares.slots);
        slots.get(&id)
    }

    /// By what an entry of a shape that is data is found.
    fn spare_key(&self, id: ShapeId, key: &Key, steps: &Steps<'_>) -> Option<SpareKey> {
        let (slot, shape) = self.slot(id, steps)?;
        let spares = steps.spares.as_ref().unwrap_or(&self.spares.spares);
        Some(spares.key(*slot, shape, key))
    }

    /// Does what was planned for these maps as they are: what comes first, then what goes.
    ///
    /// # Errors
    ///
    /// As [`Self::follow`] has them.
    pub fn go(&mut self, steps: Steps<'_>) -> io::Result<Followed> {
        let as_data = steps.as_data.added().next().is_some();
        for (number, changes) in &steps.entries {
            let one = &self.shapes[number];
            let (mut keys, mut values) = (Vec::new(), Vec::new());
            for (key, leaf) in changes.added() {
                keys.extend_from_slice(key);
                values.extend_from_slice(&leaf.to_bytes());
            }
            one.map.update_batch(&keys, &values)?;
            if let Some(count) = one.count {
                let count = self.hits.u64_at(count);
                count.fetch_add(changes.more() as u64, Ordering::Release);
            }
        }
        if as_data {
            let (keys, values): (Vec<_>, Vec<_>) = steps
                .as_data
                .added()
                .map(|(key, (_, _, leaf))| (*key, leaf.to_bytes()))
                .unzip();
            let entries = &self.spares.entries;
            entries.update_batch(keys.as_flattened(), values.as_flattened())?;
        }
        if let Some(spares) = steps.spares {
            self.publish(spares);
        }
        let added = steps.as_data.added();
        let whose = added.map(|(at, (id, key, _))| (*at, (*id, (*key).clone())));
        self.spares.whose.extend(whose);
        if let Some(slots) = steps.slots {
            self.spares.slots = slots;
        }
        for cell in steps.gone {
            let word = self.hits.u64_at(cell + GONE as usize);
            word.store(1, Ordering::Release);
        }
        for (number, changes) in &steps.entries {
            let one = &self.shapes[number];
            let mut keys = Vec::new();
            for key in changes.removed() {
                keys.extend_from_slice(key);
            }
            if keys.is_empty() {
                continue;
            }
            one.map.delete_batch(&keys)?;
            if let Some(count) = one.count {
                let fewer = keys.len() / one.shape.key_bytes();
                let count = self.hits.u64_at(count);
                count.fetch_sub(fewer as u64, Ordering::Release);
            }
        }
        let removed: Vec<_> = steps.as_data.removed().copied().collect();
        if !removed.is_empty() {
            self.spares.entries.delete_batch(removed.as_flattened())?;
        }
        for key in &removed {
            self.spares.whose.remove(key);
        }
        if let Some(numbers) = steps.numbers {
            self.numbers = numbers;
        }
        Ok(if as_data {
            Followed::AsData
        } else {
            Followed::Yes
        })
    }

    /// Has the program look among these spares, whose entries are there.
    fn publish(&mut self, spares: Spares) {
        const { assert!(layout::ORDER == 0) };
        let bytes = spares.to_bytes();
        // The order last: then all that it names is written.
        for (word, bytes) in bytes.chunks_exact(8).enumerate().rev() {
            let word = self.hits.u64_at(self.spares.at + 8 * word);
            let mut value = [0; 8];
            value.copy_from_slice(bytes);
            word.store(u64::from_ne_bytes(value), Ordering::Release);
        }
        self.spares.spares = spares;
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
                hits.insert((*id, key.into()), caught(value)?);
            }
        }
        for (key, value) in self.spares.entries.entries()? {
            let key = SpareKey::try_from(key).map_err(|_| wrong("a key"))?;
            if let Some(whose) = self.spares.whose.get(&key) {
                hits.insert(whose.clone(), caught(value)?);
            }
        }
        Ok(hits)
    }
}

/// The hits of an entry's value.
fn caught(value: Vec<u8>) -> io::Result<u64> {
    let value: [u8; leaf::BYTES] = value.try_into().map_err(|_| wrong("a leaf"))?;
    Ok(Leaf::from_bytes(&value).1)
}

fn wrong(what: &str) -> io::Error {
    let message = format!("{what} of another length");
    io::Error::new(io::ErrorKind::InvalidData, message)
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
///
/// # Panics
///
/// If the image is of a program that observes, and there is no ring.
pub fn load_entry_with(
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
    load_with("ashway_entry", image, node, |map| match map {
        MapRef::Slots => slots.fd(),
        MapRef::Hits => demux.hits.fd(),
        MapRef::Shape(demux::spare::MAP) => demux.spares.entries.fd(),
        MapRef::Shape(number) => demux.shapes[&number].map.fd(),
        MapRef::Notes => notes.expect("a program that observes has a ring"),
        other => maps.fd(other),
    })
}

/// Loads the program for the slot of every relay of a node. `spec` and `maps` are of
/// the queue of whole frames. With `notes` it observes.
///
/// # Errors
///
/// What the kernel said ([`LoadError`]).
pub fn load_forward(
    spec: &QueueSpec,
    maps: &Maps,
    hops: &SharedArray,
    notes: Option<BorrowedFd<'_>>,
) -> Result<Program, LoadError> {
    let image = match notes {
        None => forward::generate(spec),
        Some(_) => forward::generate_observed(spec),
    };
    let name = "ashway_forward";
    load_with(name, &image, maps.node, |map| match (map, notes) {
        (MapRef::Hops, _) => hops.fd(),
        (MapRef::Notes, Some(notes)) => notes,
        (other, _) => maps.fd(other),
    })
}

/// Loads what stands before an entry program while the node moves to the other hook: the program
/// in the only slot of `entry` ([`moving`]). At XDP it marks frames, and has those itself that it
/// cannot mark unless `tcx_is_there`.
///
/// # Errors
///
/// What the kernel said ([`LoadError`]).
pub fn load_gate(
    node: &NodeMaps,
    mark: u32,
    tcx_is_there: bool,
    entry: &Map,
) -> Result<Program, LoadError> {
    let image = match node.hook {
        Hook::Xdp => moving::mark(mark, tcx_is_there),
        Hook::Tcx => moving::look(mark),
    };
    load_with("ashway_gate", &image, node, |_| entry.fd())
}

/// Loads an XDP program that passes everything on.
///
/// # Errors
///
/// What the kernel said ([`LoadError`]).
pub fn load_pass(node: &NodeMaps) -> Result<Program, LoadError> {
    let maps = Maps {
        node,
        trusted: None,
        memory: None,
    };
    load("ashway_pass", &moving::pass(), &maps)
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
    load("ashway_exit", &exit::generate(), &maps)
}
