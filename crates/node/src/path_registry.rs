//! The paths of the user tier, as the node knows them.
//!
//! A path itself is the worker's. What its ends ask for is in the tables of their
//! interfaces, and the rest in the path; so this is small, 100,000 times.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ashway_modules::relay::NotPromotable;
use ashway_path::places::{Ids, PathId, Places};
use ashway_path::stage::Direction;

use super::owners::Owner;
use super::relay::RelaySlot;
use ashway_worker::keys::MOST;
use ashway_worker::plan::HandlerId;

/// How long a number is nobody's that a path had. A program that was entered before
/// demux forgot the path may still count a message under it, and ends long before.
const REST: Duration = Duration::from_secs(1);

/// Most reasons that paths share.
const REASONS: usize = 64;

/// Paths of the user tier, by name and by id.
#[derive(Debug, Default)]
pub(super) struct PathRegistry {
    ids: Ids,
    names: HashMap<Arc<str>, PathId>,
    paths: Places<NodeModulePath>,
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

/// A path of the user tier.
#[derive(Debug)]
pub(super) struct NodeModulePath {
    pub(super) name: Arc<str>,
    /// Its number, under which programs count its messages; none if there are too many.
    pub(super) number: Option<u32>,
    /// The module that it was created from, by its place in [`PathRegistry::modules`].
    from: u16,
    /// The domain that it belongs to.
    pub(super) domain: Option<Arc<str>>,
    /// The process that it belongs to, if not to the node.
    pub(super) owner: Option<Owner>,
    /// The instances whose handlers its stages run, by their ids.
    pub(super) runs: Box<[HandlerId]>,
    /// A path begins or ends at an interface, or both.
    ends: [Option<Attachment>; 2],
    /// Its place in the kernel tier.
    pub(super) place: Option<RelaySlot>,
    /// Why it has none.
    pub(super) stays: Option<Arc<NotPromotable>>,
}

/// An end of a path at an interface.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attachment {
    iface: u16,
    /// Which way messages go there.
    pub(super) direction: Direction,
    /// Whether it takes all fragments of the interface.
    pub(super) catches: bool,
}

impl Attachment {
    pub(super) const fn new(iface: usize, direction: Direction, catches: bool) -> Self {
        Self {
            iface: iface as u16,
            direction,
            catches,
        }
    }

    pub(super) const fn iface(self) -> usize {
        self.iface as usize
    }
}

impl NodeModulePath {
    pub(super) fn ends(&self) -> impl Iterator<Item = &Attachment> {
        self.ends.iter().flatten()
    }
}

impl PathRegistry {
    /// Takes a path in; its name is free.
    pub(super) fn insert(
        &mut self,
        name: Arc<str>,
        from: &str,
        domain: Option<Arc<str>>,
        ends: impl IntoIterator<Item = Attachment>,
        is_idle: impl Fn(u32) -> bool,
    ) -> PathId {
        let known = self.modules.iter().position(|module| **module == *from);
        let from = known.unwrap_or_else(|| {
            self.modules.push(from.into());
            self.modules.len() - 1
        });
        let mut ends = ends.into_iter();
        let path = NodeModulePath {
            name: Arc::clone(&name),
            number: self.numbers.take(Instant::now(), is_idle),
            from: from as u16,
            domain,
            owner: None,
            runs: Box::default(),
            ends: [ends.next(), ends.next()],
            place: None,
            stays: None,
        };
        let id = self.ids.take();
        self.names.insert(name, id);
        self.paths.put(id, path);
        id
    }

    /// Hands out the ids of all paths, those of handlers too.
    pub(super) const fn ids(&mut self) -> &mut Ids {
        &mut self.ids
    }

    /// Takes a path out.
    pub(super) fn remove(&mut self, id: PathId) -> Option<NodeModulePath> {
        let path = self.paths.remove(id)?;
        self.names.remove(&path.name);
        self.ids.give_back(id);
        let number = path.number.map(|number| (Instant::now(), number));
        self.numbers.free.extend(number);
        Some(path)
    }

    /// Numbers that paths have or had: all below.
    pub(super) const fn numbers(&self) -> u32 {
        self.numbers.given
    }

    pub(super) fn find(&self, name: &str) -> Option<PathId> {
        self.names.get(name).copied()
    }

    pub(super) fn at(&self, id: PathId) -> Option<&NodeModulePath> {
        self.paths.at(id)
    }

    pub(super) fn at_mut(&mut self, id: PathId) -> Option<&mut NodeModulePath> {
        self.paths.at_mut(id)
    }

    /// Notes a path's place in the kernel tier, or why it has none; says whether it
    /// has.
    pub(super) fn place(&mut self, id: PathId, placed: Result<RelaySlot, NotPromotable>) -> bool {
        let has = placed.is_ok();
        let (place, stays) = match placed {
            Ok(place) => (Some(place), None),
            Err(stays) => (None, Some(self.shared(stays))),
        };
        if let Some(path) = self.paths.at_mut(id) {
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
    pub(super) fn from(&self, path: &NodeModulePath) -> &str {
        &self.modules[usize::from(path.from)]
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.keys().map(|name| &**name)
    }

    pub(super) fn len(&self) -> usize {
        self.paths.len()
    }

    /// Those of a domain. Linear in all of them.
    pub(super) fn of_domain(&self, domain: &str) -> impl Iterator<Item = &NodeModulePath> {
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

    /// Those that run a handler. Linear in all of them.
    pub(super) fn running(&self, handler: HandlerId) -> impl Iterator<Item = PathId> {
        let paths = self.paths.iter();
        let of = paths.filter(move |(_, path)| path.runs.contains(&handler));
        of.map(|(id, _)| id)
    }

    /// The instances that any of them runs. Linear in all of them.
    pub(super) fn run(&self) -> HashSet<HandlerId> {
        let paths = self.paths.iter();
        paths
            .flat_map(|(_, path)| path.runs.iter().copied())
            .collect()
    }

    /// Everything that leads to one of them at an interface. Linear in all of them.
    pub(super) fn targets(&self, iface: usize) -> impl Iterator<Item = (PathId, Direction)> {
        self.paths.iter().flat_map(move |(id, path)| {
            let here = path.ends().filter(move |end| end.iface() == iface);
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
