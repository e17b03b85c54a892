//! A table's copy in other hands, which only looks up.
//!
//! Who classifies frames needs no texts and no means to tell conflicts, and must not
//! wait for who changes the table. So it has a replica: a fraction of the size, and
//! made to follow the table change by change, as the kernel tier's maps are.

use std::hash::Hash;

use ashway_wire::Headers;

use super::entries::Facts;
use super::shape::{Key, Shape, ShapeId};
use super::table::{Change, Entries, Table};

/// The entries of a table, as they were when the last of its changes was
/// [followed](Self::follow).
#[derive(Clone, Debug)]
pub struct Replica<T> {
    /// In the order they are tried.
    shapes: Vec<Entries<T>>,
}

/// A change of a table, with all that a [`Replica`] needs to follow it.
#[derive(Clone, Debug)]
pub struct Update<T> {
    value: T,
    change: Change,
    /// The shapes that are new, each with its place among the others.
    made: Vec<(usize, ShapeId, Shape)>,
    /// What the turned entries lead to now.
    turned: Vec<(ShapeId, Key, T)>,
}

impl<T: Copy + Eq + Hash> Update<T> {
    /// What a change was that the table has just made, for the filter that leads to
    /// `value`.
    #[must_use]
    pub fn of(table: &Table<T>, change: Change, value: T) -> Self {
        let mut made = Vec::new();
        if !change.made.is_empty() {
            let shapes = table.shapes().iter().enumerate();
            let new = shapes.filter(|(_, entries)| change.made.contains(&entries.id()));
            made = new
                .map(|(place, entries)| (place, entries.id(), entries.shape().clone()))
                .collect();
        }
        let to = |(id, key): &(ShapeId, Key)| {
            let entries = table.shapes().iter().find(|entries| entries.id() == *id)?;
            Some((*id, key.clone(), entries.get(key)?))
        };
        let turned = change.turned.iter().filter_map(to).collect();
        Self {
            value,
            change,
            made,
            turned,
        }
    }

    /// What the filter leads to.
    #[must_use]
    pub fn value(&self) -> T {
        self.value
    }

    /// The shapes that are new.
    pub fn made(&self) -> impl Iterator<Item = (ShapeId, &Shape)> {
        self.made.iter().map(|(_, id, shape)| (*id, shape))
    }

    /// The change.
    #[must_use]
    pub fn change(&self) -> &Change {
        &self.change
    }
}

impl<T: Copy + Eq + Hash> Replica<T> {
    /// A replica of the table as it is. Linear in its entries.
    #[must_use]
    pub fn of(table: &Table<T>) -> Self {
        let mut shapes = table.shapes().to_vec();
        for entries in &mut shapes {
            entries.meetings = Vec::new();
        }
        Self { shapes }
    }

    /// What the frame belongs to, as [`Table::find`] says it. Linear in the shapes;
    /// allocates nothing.
    #[must_use]
    pub fn find(&self, headers: &Headers, frame: &[u8]) -> Option<T> {
        let facts = Facts::of(headers);
        self.shapes
            .iter()
            .find_map(|entries| entries.find(facts, headers, frame))
    }

    /// Does what the table has done. Each change has to be followed, in their order.
    /// One step per shape for each entry.
    pub fn follow(&mut self, update: &Update<T>) {
        let Update {
            value,
            change,
            made,
            turned,
        } = update;
        // From the first place on, so that each is right when it is reached.
        for (place, id, shape) in made {
            self.shapes.insert(*place, Entries::new(*id, shape.clone()));
        }
        for (id, key) in &change.added {
            if let Some(entries) = self.shapes.iter_mut().find(|e| e.id() == *id) {
                entries.insert(key, *value);
            }
        }
        for (id, key, to) in turned {
            if let Some(entries) = self.shapes.iter_mut().find(|e| e.id() == *id) {
                entries.turn(key, *to);
            }
        }
        for (id, key) in &change.removed {
            if let Some(entries) = self.shapes.iter_mut().find(|e| e.id() == *id) {
                entries.remove(key);
            }
        }
        if !change.unmade.is_empty() {
            self.shapes.retain(|e| !change.unmade.contains(&e.id()));
        }
    }
}
