//! The paths of a node, as the node knows them.
//!
//! A path itself is the worker's. What its ends ask for is in the tables of their
//! interfaces, and the rest in the path; so one whose messages come as whole frames is
//! small here, 100,000 times.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ashway_modules::relay::NotPromotable;
use ashway_path::places::{IdMap, Ids, PathId};
use ashway_path::stage::Direction;
use indexmap::IndexSet;

use super::node_path::{Attachment, BoundPath, Feed, FramePath, NodePath, RelaySlot};
use super::owners::Owner;
use ashway_worker::keys::MOST;
use ashway_worker::plan::HandlerId;

/// How long a number is nobody's that a path had. A program that was entered before
/// demux forgot the path may still count a message under it, and ends long before.
const REST: Duration = Duration::from_secs(1);

/// Most reasons that paths share.
const REASONS: usize = 64;

/// All paths of a node, by name and by id.
#[derive(Debug, Default)]
pub(super) struct PathRegistry {
    ids: Ids,
    names: HashMap<Arc<str>, PathId>,
    paths: IdMap<NodePath>,
    /// Those that are bound to a handler, in the order in which they came.
    bound: IndexSet<PathId>,
    /// The modules that paths were created from; few.
    modules: Vec<Box<str>>,
    /// Why paths stay in the user tier, the first [`REASONS`] that were said.
    reasons: Vec<Arc<NotPromotable>>,
    numbers: Numbers,
}

/// Numbers of paths: each is one path's at a time.
#[derive(Debug, Default)]
struct Numbers {
    /// All below have been given.
    given: u32,
    /// Those of paths that are gone, and since when.
    free: VecDeque<(Instant, u32)>,
}

impl Numbers {
    /// A number that no path has, and of which nothing is left, as `is_idle` says; none
    /// if there are [`MOST`] paths. O(1).
    fn take(&mut self, now: Instant, is_idle: impl Fn(u32) -> bool) -> Option<u32> {
        let rested = |(since, _): &&(Instant, u32)| now.duration_since(*since) >= REST;
        if let Some((_, number)) = self.free.front().filter(rested).copied() {
            self.free.pop_front();
            if is_idle(number) {
                return Some(number);
            }
            self.free.push_back((now, number));
        }
        let fresh = (self.given < MOST as u32).then_some(self.given)?;
        self.given += 1;
        Some(fresh)
    }
}

impl PathRegistry {
    /// Takes a path in whose messages come as whole frames; `None` if its name is taken.
    pub(super) fn insert_frames(
        &mut self,
        name: Arc<str>,
        from: &str,
        domain: Option<Arc<str>>,
        ends: impl IntoIterator<Item = Attachment>,
        is_idle: impl Fn(u32) -> bool,
    ) -> Option<PathId> {
        let Entry::Vacant(free) = self.names.entry(Arc::clone(&name)) else {
            return None;
        };
        let id = *free.insert(self.ids.take());
        let mut ends = ends.into_iter();
        let frames = FramePath {
            number: self.numbers.take(Instant::now(), is_idle),
            runs: Box::default(),
            ends: [ends.next(), ends.next()],
            place: None,
            stays: None,
        };
        let path = NodePath {
            name,
            from: self.module(from),
            domain,
            owner: None,
            feed: Feed::Frames(frames),
        };
        self.paths.put(id, path);
        Some(id)
    }

    /// Takes a path in that is bound to a handler; its name is free, and the id is one of
    /// [`Self::ids`].
    pub(super) fn insert_bound(
        &mut self,
        id: PathId,
        from: &str,
        bound: BoundPath,
        owner: Option<Owner>,
    ) {
        let path = NodePath {
            name: Arc::from(&*bound.config.name),
            from: self.module(from),
            domain: bound.config.domain.as_deref().map(Arc::from),
            owner,
            feed: Feed::Handler(Box::new(bound)),
        };
        self.bound.insert(id);
        self.names.insert(Arc::clone(&path.name), id);
        self.paths.put(id, path);
    }

    /// The number of a module that paths are created from.
    fn module(&mut self, name: &str) -> u16 {
        let known = self.modules.iter().position(|module| **module == *name);
        let at = known.unwrap_or_else(|| {
            self.modules.push(name.into());
            self.modules.len() - 1
        });
        at as u16
    }

    /// Hands out the ids of all paths.
    pub(super) const fn ids(&mut self) -> &mut Ids {
        &mut self.ids
    }

    /// Takes a path out. Its id is given back, unless it is bound to a handler: then the
    /// worker has more ids of it, and they are given back together.
    pub(super) fn remove(&mut self, id: PathId) -> Option<NodePath> {
        let path = self.paths.remove(id)?;
        self.names.remove(&path.name);
        match &path.feed {
            Feed::Handler(_) => {
                self.bound.shift_remove(&id);
            }
            Feed::Frames(frames) => {
                self.ids.give_back(id);
                let number = frames.number.map(|number| (Instant::now(), number));
                self.numbers.free.extend(number);
            }
        }
        Some(path)
    }

    /// Numbers that paths have or had: all below.
    pub(super) const fn numbers(&self) -> u32 {
        self.numbers.given
    }

    pub(super) fn find(&self, name: &str) -> Option<PathId> {
        self.names.get(name).copied()
    }

    /// The path of this name, with its id.
    pub(super) fn named(&self, name: &str) -> Option<(PathId, &NodePath)> {
        let id = self.find(name)?;
        Some((id, self.paths.at(id)?))
    }

    pub(super) fn at(&self, id: PathId) -> Option<&NodePath> {
        self.paths.at(id)
    }

    pub(super) fn at_mut(&mut self, id: PathId) -> Option<&mut NodePath> {
        self.paths.at_mut(id)
    }

    /// What is known of a path whose messages come as whole frames.
    pub(super) fn frames(&self, id: PathId) -> Option<&FramePath> {
        self.paths.at(id)?.frames()
    }

    /// The same, to change it.
    pub(super) fn frames_mut(&mut self, id: PathId) -> Option<&mut FramePath> {
        self.paths.at_mut(id)?.frames_mut()
    }

    /// What is known of a path that is bound to a handler.
    ///
    /// # Panics
    ///
    /// If it is not.
    pub(super) fn bound(&self, id: PathId) -> &BoundPath {
        let bound = self.paths.at(id).and_then(NodePath::bound);
        bound.expect("the plan has this path")
    }

    /// The same, to change it.
    ///
    /// # Panics
    ///
    /// If it is not.
    pub(super) fn bound_mut(&mut self, id: PathId) -> &mut BoundPath {
        match self.paths.at_mut(id).map(|path| &mut path.feed) {
            Some(Feed::Handler(bound)) => bound,
            _ => unreachable!("the plan has this path"),
        }
    }

    /// The paths that are bound to handlers, in the order in which they came.
    pub(super) fn all_bound(&self) -> impl Iterator<Item = (PathId, &BoundPath)> {
        self.bound.iter().map(|id| (*id, self.bound(*id)))
    }

    /// Notes a path's place in the kernel tier, or why it has none; says whether it
    /// has.
    pub(super) fn place(&mut self, id: PathId, placed: Result<RelaySlot, NotPromotable>) -> bool {
        let has = placed.is_ok();
        let (place, stays) = match placed {
            Ok(place) => (Some(place), None),
            Err(stays) => (None, Some(self.shared(stays))),
        };
        if let Some(path) = self.frames_mut(id) {
            (path.place, path.stays) = (place, stays);
        }
        has
    }

    /// Thousands of paths stay for the same reason.
    fn shared(&mut self, stays: NotPromotable) -> Arc<NotPromotable> {
        if let Some(known) = self.reasons.iter().find(|known| ***known == stays) {
            return Arc::clone(known);
        }
        let stays = Arc::new(stays);
        if self.reasons.len() < REASONS {
            self.reasons.push(Arc::clone(&stays));
        }
        stays
    }

    /// The module that a path was created from.
    pub(super) fn from(&self, path: &NodePath) -> &str {
        &self.modules[usize::from(path.from)]
    }

    /// The names of all paths, in no order.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.keys().map(|name| &**name)
    }

    /// Those whose messages come as whole frames. Linear in all of them.
    pub(super) fn all_frames(&self) -> impl Iterator<Item = (PathId, &NodePath)> {
        let paths = self.paths.iter();
        paths.filter(|(_, path)| path.frames().is_some())
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.paths.len()
    }

    /// How many there are whose messages come as whole frames.
    pub(super) fn frames_len(&self) -> usize {
        self.len() - self.bound.len()
    }

    /// Those of a domain. Linear in all of them.
    pub(super) fn of_domain(&self, domain: &str) -> impl Iterator<Item = &NodePath> {
        let paths = self.paths.iter().map(|(_, path)| path);
        paths.filter(move |path| path.domain.as_deref() == Some(domain))
    }

    /// Those of a process. Linear in all of them.
    pub(super) fn of_owner(&self, owner: &Owner) -> impl Iterator<Item = PathId> {
        let paths = self.paths.iter();
        let of = paths.filter(move |(_, path)| {
            let known = path.owner.as_ref();
            known.is_some_and(|known| Arc::ptr_eq(known, owner))
        });
        of.map(|(id, _)| id)
    }

    /// Those with a stage that runs a handler and is not bound to it. Linear in all of them.
    pub(super) fn running(&self, handler: HandlerId) -> impl Iterator<Item = PathId> {
        let paths = self.paths.iter();
        let of = paths.filter(move |(_, path)| {
            let frames = path.frames();
            frames.is_some_and(|frames| frames.runs.contains(&handler))
        });
        of.map(|(id, _)| id)
    }

    /// The instances that any of them runs so. Linear in all of them.
    pub(super) fn run(&self) -> HashSet<HandlerId> {
        let paths = self.paths.iter().filter_map(|(_, path)| path.frames());
        paths.flat_map(|path| path.runs.iter().copied()).collect()
    }

    /// Everything that leads to paths of whole frames at an interface. Linear in all of them.
    pub(super) fn targets(&self, iface: usize) -> impl Iterator<Item = (PathId, Direction)> {
        self.paths.iter().flat_map(move |(id, path)| {
            let ends = path.frames().into_iter().flat_map(FramePath::ends);
            let here = ends.filter(move |end| end.iface() == iface);
            here.map(move |end| (id, end.direction))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_rests_before_it_is_given_again() {
        let (begin, mut numbers) = (Instant::now(), Numbers::default());
        let first = numbers.take(begin, |_| true);
        assert_eq!((first, numbers.take(begin, |_| true)), (Some(0), Some(1)));
        numbers.free.push_back((begin, 0));
        assert_eq!(numbers.take(begin, |_| true), Some(2));
        let later = begin + REST;
        assert_eq!(numbers.take(later, |_| true), Some(0));
        // One of which a message is left rests again.
        numbers.free.push_back((begin, 1));
        assert_eq!(numbers.take(later, |_| false), Some(3));
        assert_eq!(numbers.free, [(later, 1)]);
    }

    #[test]
    fn there_is_an_end_of_numbers() {
        let (now, mut numbers) = (Instant::now(), Numbers::default());
        let given = (0..=MOST).filter(|_| numbers.take(now, |_| true).is_some());
        assert_eq!(given.count(), MOST);
    }
}
