//! Things by the number of an interface.
//!
//! Interfaces come and go while a node runs. A number is an id that no other interface of the
//! node ever has: a message that is underway, or a program that is still compiled, can name one
//! that has gone, and then finds nothing, where a number that was given again would lead it to
//! another's paths. So what is kept by number is a map, and nothing is left in it of those
//! that have gone.

use std::collections::BTreeMap;
use std::ops::{Index, IndexMut};

/// See the [module](self). A look-up is O(log n) in the interfaces that there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IfaceMap<T>(BTreeMap<usize, T>);

impl<T> Default for IfaceMap<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T> IfaceMap<T> {
    /// Keeps a thing for an interface; what was kept for it before.
    pub fn insert(&mut self, number: usize, thing: T) -> Option<T> {
        self.0.insert(number, thing)
    }

    /// Keeps nothing for an interface any more; what was kept.
    pub fn remove(&mut self, number: usize) -> Option<T> {
        self.0.remove(&number)
    }

    /// What is kept for an interface.
    #[must_use]
    pub fn get(&self, number: usize) -> Option<&T> {
        self.0.get(&number)
    }

    /// The same, to change it.
    pub fn get_mut(&mut self, number: usize) -> Option<&mut T> {
        self.0.get_mut(&number)
    }

    /// All, in the order in which the interfaces came.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &T)> + Clone {
        self.0.iter().map(|(number, thing)| (*number, thing))
    }

    /// The same, to change them.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (usize, &mut T)> {
        self.0.iter_mut().map(|(number, thing)| (*number, thing))
    }

    /// The same, without the numbers.
    pub fn values(&self) -> impl Iterator<Item = &T> + Clone {
        self.0.values()
    }

    /// The same, to change them.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.values_mut()
    }

    /// The numbers, for who changes things while it goes through them.
    #[must_use]
    pub fn numbers(&self) -> Vec<usize> {
        self.0.keys().copied().collect()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<T> FromIterator<(usize, T)> for IfaceMap<T> {
    fn from_iter<I: IntoIterator<Item = (usize, T)>>(all: I) -> Self {
        Self(all.into_iter().collect())
    }
}

/// For who knows that the interface is there.
///
/// # Panics
///
/// If it has gone.
impl<T> Index<usize> for IfaceMap<T> {
    type Output = T;

    fn index(&self, number: usize) -> &T {
        &self.0[&number]
    }
}

impl<T> IndexMut<usize> for IfaceMap<T> {
    fn index_mut(&mut self, number: usize) -> &mut T {
        self.get_mut(number).expect("the interface is there")
    }
}
