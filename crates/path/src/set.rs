//! All paths of a node (or of one worker), by id and by name.
//!
//! Creating and removing are O(1). Ids carry a generation: that of a path that
//! is gone never means another one. A message can go from one path straight
//! into the next, on the same call (Scout §3.4: "execute a path, enter a
//! router, and then continue execution in another path").

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use ashway_abi::Count;

use crate::path::{Exit, Path};
pub use crate::places::PathId;
use crate::places::{Ids, Places};
use crate::queue::Refused;
use crate::stage::Direction;
use crate::time::Time;

/// How many times messages go from path to path on one call. Beyond it paths
/// lead into each other in a circle.
pub const MAX_CROSSINGS: u32 = 4096;

/// The paths.
pub struct Paths<M> {
    ids: Ids,
    /// Boxed: a path is about 1 KiB, and growing must not copy them.
    places: Places<Box<Path<M>>>,
    names: HashMap<Arc<str>, PathId>,
    created: u64,
    strays: u64,
    circles: u64,
    /// Empty between two calls.
    crossing: VecDeque<(PathId, Direction, M)>,
}

/// A name that another path has.
#[derive(Debug, thiserror::Error)]
#[error("there is a path `{name}` already (id {by}); choose another name or remove it first")]
pub struct Taken {
    /// The name.
    pub name: String,
    /// Who has it.
    pub by: PathId,
}

/// What is alive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Paths now.
    pub paths: usize,
    /// Stages now, by the name of their module.
    pub stages: BTreeMap<String, usize>,
    /// Messages in input queues.
    pub waiting_in: u64,
    /// Messages in output queues.
    pub waiting_out: u64,
    /// Bytes that the paths have allocated.
    pub memory_bytes: usize,
    /// Paths ever created.
    pub created: u64,
    /// Messages that were to go on into a path that is gone.
    pub strays: u64,
    /// Messages dropped because paths led into each other in a circle.
    pub circles: u64,
}

impl<M> Paths<M> {
    /// No paths.
    #[must_use]
    pub fn new() -> Self {
        Self {
            ids: Ids::default(),
            places: Places::new(),
            names: HashMap::new(),
            created: 0,
            strays: 0,
            circles: 0,
            crossing: VecDeque::new(),
        }
    }

    /// Takes a path in. O(1) but for growing the table.
    ///
    /// # Errors
    ///
    /// [`Taken`] if the name is in use; the path is dropped.
    pub fn insert(&mut self, path: Path<M>) -> Result<PathId, Taken> {
        let name = path.shared_name();
        if let Some(by) = self.names.get(&name) {
            return Err(Taken {
                name: name.to_string(),
                by: *by,
            });
        }
        let id = self.ids.take();
        self.places.put(id, Box::new(path));
        self.names.insert(name, id);
        self.created += 1;
        Ok(id)
    }

    /// Takes a path out. It is destroyed when it is dropped; what waits in its
    /// queues is still there (see [`Path::drain`]). O(1).
    pub fn remove(&mut self, id: PathId) -> Option<Path<M>> {
        let path = self.places.remove(id)?;
        self.names.remove(path.name());
        self.ids.give_back(id);
        Some(*path)
    }

    /// The path of this id.
    #[must_use]
    pub fn path(&self, id: PathId) -> Option<&Path<M>> {
        self.places.at(id).map(|path| &**path)
    }

    /// The path of this id, to be changed or run.
    pub fn path_mut(&mut self, id: PathId) -> Option<&mut Path<M>> {
        self.places.at_mut(id).map(|path| &mut **path)
    }

    /// The path of this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<PathId> {
        self.names.get(name).copied()
    }

    /// All paths, in no order that means anything.
    pub fn iter(&self) -> impl Iterator<Item = (PathId, &Path<M>)> {
        self.places.iter().map(|(id, path)| (id, &**path))
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// [`Path::run`], and the paths behind it: `onward` gets each message that
    /// comes out, and answers with the path that takes it next, if any. That
    /// one runs on this call, past its queue; nobody else's turn comes between.
    /// Only where messages wait in that queue already it goes behind them. An
    /// answer to a message that ended is ignored.
    pub fn run(
        &mut self,
        id: PathId,
        direction: Direction,
        now: Time,
        onward: &mut impl FnMut(PathId, Exit<M>) -> Option<(PathId, Direction, M)>,
    ) -> bool {
        let crossing = &mut self.crossing;
        let path = self.places.at_mut(id);
        let ran =
            path.is_some_and(|path| path.run(direction, now, &mut route(id, crossing, onward)));
        self.cross(now, onward);
        ran
    }

    /// [`Path::pass`], and the paths behind it, like [`Paths::run`]. A message
    /// for a path that is gone comes back as [`Count::DroppedNoNextHop`].
    pub fn pass(
        &mut self,
        id: PathId,
        direction: Direction,
        message: M,
        now: Time,
        onward: &mut impl FnMut(PathId, Exit<M>) -> Option<(PathId, Direction, M)>,
    ) {
        self.crossing.push_back((id, direction, message));
        self.cross(now, onward);
    }

    /// [`Path::wake`], and the paths behind it, like [`Paths::run`].
    pub fn wake(
        &mut self,
        id: PathId,
        now: Time,
        onward: &mut impl FnMut(PathId, Exit<M>) -> Option<(PathId, Direction, M)>,
    ) {
        let crossing = &mut self.crossing;
        if let Some(path) = self.places.at_mut(id) {
            path.wake(now, &mut route(id, crossing, onward));
        }
        self.cross(now, onward);
    }

    /// Carries messages into their next paths until all are out.
    fn cross(
        &mut self,
        now: Time,
        onward: &mut impl FnMut(PathId, Exit<M>) -> Option<(PathId, Direction, M)>,
    ) {
        let mut left = MAX_CROSSINGS;
        while let Some((id, direction, message)) = self.crossing.pop_front() {
            let fate = Count::DroppedNoNextHop;
            match self.places.at_mut(id) {
                None => {
                    self.strays += 1;
                    onward(id, Exit::Ended { message, fate });
                }
                Some(path) if left == 0 => {
                    self.circles += 1;
                    onward(id, path.discard(message, fate));
                }
                // Never overtake: what waits there goes first.
                Some(path) if !path.input(direction).is_empty() => {
                    if let Err(Refused(message)) = path.offer(direction, message) {
                        let fate = Count::DroppedQueueFull;
                        onward(id, Exit::Ended { message, fate });
                    }
                }
                Some(path) => {
                    left -= 1;
                    let mut out = route(id, &mut self.crossing, onward);
                    path.pass(direction, message, now, &mut out);
                }
            }
        }
    }

    /// What is alive. Walks all paths and stages.
    #[must_use]
    pub fn census(&self) -> Census {
        let mut census = Census {
            paths: self.len(),
            created: self.created,
            strays: self.strays,
            circles: self.circles,
            ..Census::default()
        };
        for (_, path) in self.iter() {
            for stage in path.stages() {
                *census.stages.entry(stage.name().to_owned()).or_default() += 1;
            }
            census.waiting_in += path.waiting();
            for direction in [Direction::Forward, Direction::Backward] {
                census.waiting_out += path.output(direction).len() as u64;
            }
            census.memory_bytes += path.memory_bytes();
        }
        census
    }
}

impl<M> Default for Paths<M> {
    fn default() -> Self {
        Self::new()
    }
}

/// Asks `onward` for each message where it goes, and notes it.
fn route<M>(
    id: PathId,
    crossing: &mut VecDeque<(PathId, Direction, M)>,
    onward: &mut impl FnMut(PathId, Exit<M>) -> Option<(PathId, Direction, M)>,
) -> impl FnMut(Exit<M>) {
    move |exit| {
        let left = matches!(exit, Exit::Left { .. });
        crossing.extend(onward(id, exit).filter(|_| left));
    }
}
