//! Where things are that come and go, by ids that never mean another one.
//!
//! An id is a place and how many had it before. Who hands ids out ([`Ids`]) and who
//! keeps things by them ([`IdMap`]) are two, because they may be two threads: one
//! names a path at once, the other takes it in when it gets to it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A path's id. Never that of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PathId {
    index: u32,
    generation: u32,
}

impl fmt::Display for PathId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.index, self.generation)
    }
}

/// Hands ids out.
#[derive(Clone, Debug, Default)]
pub struct Ids {
    /// By place: the generation of who is there, or comes next.
    generations: Vec<u32>,
    free: Vec<u32>,
}

impl Ids {
    /// An id that nobody has or had. O(1).
    pub fn take(&mut self) -> PathId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.generations.push(0);
            self.generations.len() as u32 - 1
        });
        PathId {
            index,
            generation: self.generations[index as usize],
        }
    }

    /// Takes an id back whose owner is gone; again, or somebody else's, does
    /// nothing. O(1).
    pub fn give_back(&mut self, id: PathId) {
        let Some(generation) = self.generations.get_mut(id.index as usize) else {
            return;
        };
        // A place whose generations are used up is not used again.
        if *generation == id.generation
            && let Some(next) = generation.checked_add(1)
        {
            *generation = next;
            self.free.push(id.index);
        }
    }
}

/// Things by id.
#[derive(Clone, Debug)]
pub struct IdMap<T> {
    entries: Vec<Option<(u32, T)>>,
    len: usize,
}

impl<T> Default for IdMap<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> IdMap<T> {
    /// None.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            entries: Vec::new(),
            len: 0,
        }
    }

    /// Puts something in its place; what was there before is given back. O(1) but
    /// for growing.
    pub fn put(&mut self, id: PathId, thing: T) -> Option<T> {
        let index = id.index as usize;
        if index >= self.entries.len() {
            self.entries.resize_with(index + 1, || None);
        }
        let before = self.entries[index].replace((id.generation, thing));
        self.len += usize::from(before.is_none());
        before.map(|(_, thing)| thing)
    }

    /// What has this id; if nothing, what `new` makes is put there first. O(1) but for
    /// growing.
    ///
    /// # Panics
    ///
    /// Never: what is asked for has been put there.
    pub fn get_or_put(&mut self, id: PathId, new: impl FnOnce() -> T) -> &mut T {
        if self.at(id).is_none() {
            self.put(id, new());
        }
        self.at_mut(id)
            .expect("it was put there if it was not there")
    }

    /// Takes something out. O(1).
    pub fn remove(&mut self, id: PathId) -> Option<T> {
        let entry = self.entries.get_mut(id.index as usize)?;
        let (_, thing) = entry.take_if(|(generation, _)| *generation == id.generation)?;
        self.len -= 1;
        Some(thing)
    }

    /// What has this id.
    #[must_use]
    pub fn at(&self, id: PathId) -> Option<&T> {
        let (generation, thing) = self.entries.get(id.index as usize)?.as_ref()?;
        (*generation == id.generation).then_some(thing)
    }

    /// What has this id, to be changed.
    pub fn at_mut(&mut self, id: PathId) -> Option<&mut T> {
        let (generation, thing) = self.entries.get_mut(id.index as usize)?.as_mut()?;
        (*generation == id.generation).then_some(thing)
    }

    /// All of them, by place.
    pub fn iter(&self) -> impl Iterator<Item = (PathId, &T)> {
        self.entries
            .iter()
            .enumerate()
            .filter_map(|(index, entry)| {
                let (generation, thing) = entry.as_ref()?;
                let id = PathId {
                    index: index as u32,
                    generation: *generation,
                };
                Some((id, thing))
            })
    }

    /// How many there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_given_back_once() {
        let mut ids = Ids::default();
        let first = ids.take();
        ids.give_back(first);
        ids.give_back(first);
        let (second, third) = (ids.take(), ids.take());
        assert_eq!(second.index, first.index);
        assert_ne!(second, first);
        assert_ne!(third.index, second.index);
        // Of a place that has another owner by now.
        ids.give_back(first);
        assert_ne!(ids.take().index, second.index);
    }

    #[test]
    fn a_place_knows_whose_it_is() {
        let mut ids = Ids::default();
        let mut places = IdMap::new();
        let first = ids.take();
        assert_eq!(places.put(first, "first"), None);
        ids.give_back(first);
        let second = ids.take();
        // It comes before the first has gone.
        assert_eq!(places.put(second, "second"), Some("first"));
        assert_eq!(places.remove(first), None);
        assert_eq!(
            (places.at(first), places.at(second)),
            (None, Some(&"second"))
        );
        assert_eq!(places.len(), 1);
        assert_eq!(places.iter().collect::<Vec<_>>(), [(second, &"second")]);
        assert_eq!(places.remove(second), Some("second"));
        assert!(places.is_empty());
    }
}
