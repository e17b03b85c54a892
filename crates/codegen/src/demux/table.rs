//! All filters of one interface, and which of them a frame belongs to.
//!
//! Conjunctions of one [`Shape`] share a hash table. Shapes are tried in one
//! order, the most specific first; the first entry found wins. So a lookup
//! costs as much as there are shapes, from one filter to a hundred thousand,
//! and a filter of a shape that is there is one insertion.
//!
//! That "most specific" always has one answer is kept by [`Table::insert`]: two
//! filters that match one frame may not be equally specific.

use std::collections::HashMap;
use std::hash::Hash;

use ashway_wire::Headers;

use super::filter::{Conjunction, Filter, Specificity};
use super::logic;
use super::shape::{Key, MAX_KEY_BYTES, Shape, ShapeId};

/// Filters, each with what it leads to. `T` also names the filter.
#[derive(Clone, Debug)]
pub struct Table<T> {
    /// In the order they are tried.
    shapes: Vec<Entries<T>>,
    /// Where each filter's conjunctions are, and its text.
    filters: HashMap<T, Placed>,
    next: u32,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self {
            shapes: Vec::new(),
            filters: HashMap::new(),
            next: 0,
        }
    }
}

impl<T: Copy + Eq + Hash> Table<T> {
    /// What the frame belongs to, if to anything: the value of the most
    /// specific filter that matches it. Linear in the shapes; allocates nothing.
    #[must_use]
    pub fn find(&self, headers: &Headers, frame: &[u8]) -> Option<T> {
        let mut bytes = [0; MAX_KEY_BYTES];
        self.shapes.iter().find_map(|entries| {
            if !entries.shape.admits(headers, frame) {
                return None;
            }
            let key = entries.shape.read_key(headers, frame, &mut bytes)?;
            entries.values.get(key).copied()
        })
    }

    /// Adds a filter. For each of its conjunctions one step per shape, and one
    /// per entry of other shapes that are equally specific and can meet.
    ///
    /// # Errors
    ///
    /// Another filter matches some of the same frames and is equally specific,
    /// or is the same, or `value` is already here. The table is then unchanged.
    pub fn insert(&mut self, filter: &Filter, value: T) -> Result<Change, Conflict<T>> {
        if self.filters.contains_key(&value) {
            return Err(self.conflict(filter, value));
        }
        for conjunction in &filter.any {
            if let Some(with) = self.equal(conjunction) {
                return Err(self.conflict(filter, with));
            }
        }
        let mut change = Change::default();
        let mut at = Vec::with_capacity(filter.any.len());
        for conjunction in &filter.any {
            let (shape, key) = Shape::of(conjunction);
            let index = self.place(shape, &mut change);
            let entries = &mut self.shapes[index];
            entries.values.insert(key.clone(), value);
            change.added.push((entries.id, key.clone()));
            at.push((entries.id, key));
        }
        let text = filter.text.clone();
        self.filters.insert(value, Placed { text, at });
        Ok(change)
    }

    /// Takes out the filter that leads to `value`; an empty change if there is
    /// none. One step per shape for each of its conjunctions.
    pub fn remove(&mut self, value: T) -> Change {
        let mut change = Change::default();
        let Some(placed) = self.filters.remove(&value) else {
            return change;
        };
        for (id, key) in placed.at {
            let Some(index) = self.shapes.iter().position(|entries| entries.id == id) else {
                continue;
            };
            self.shapes[index].values.remove(&key);
            if self.shapes[index].values.is_empty() {
                self.shapes.remove(index);
                change.unmade.push(id);
            }
            change.removed.push((id, key));
        }
        change
    }

    /// Shapes with their entries, in the order they are tried.
    #[must_use]
    pub fn shapes(&self) -> &[Entries<T>] {
        &self.shapes
    }

    /// The text of the filter that leads to `value`.
    #[must_use]
    pub fn text(&self, value: T) -> Option<&str> {
        self.filters.get(&value).map(|placed| &placed.text[..])
    }

    /// Number of filters.
    #[must_use]
    pub fn len(&self) -> usize {
        self.filters.len()
    }

    /// Whether there is no filter.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.filters.is_empty()
    }

    /// What else matches a frame of this conjunction and is equally specific.
    fn equal(&self, conjunction: &Conjunction) -> Option<T> {
        let specificity = conjunction.specificity();
        let (shape, key) = Shape::of(conjunction);
        let equals = self
            .shapes
            .iter()
            .filter(|entries| entries.specificity == specificity);
        for entries in equals {
            // In one shape only the same key meets.
            if entries.shape == shape {
                if let Some(with) = entries.values.get(&key) {
                    return Some(*with);
                }
                continue;
            }
            if logic::both(&entries.shape.guards, &conjunction.tests).is_none() {
                continue;
            }
            for (key, with) in &entries.values {
                if entries.shape.conjunction(key).overlaps(conjunction) {
                    return Some(*with);
                }
            }
        }
        None
    }

    fn conflict(&self, filter: &Filter, with: T) -> Conflict<T> {
        Conflict {
            with,
            with_filter: self.text(with).unwrap_or_default().to_owned(),
            filter: filter.text.clone(),
        }
    }

    /// Where the shape is, made if need be.
    fn place(&mut self, shape: Shape, change: &mut Change) -> usize {
        let specificity = shape.specificity();
        // Most specific first; equals, which do not meet, by what they test.
        let place = self.shapes.binary_search_by(|entries| {
            let order = specificity.cmp(&entries.specificity);
            order.then_with(|| entries.shape.cmp(&shape))
        });
        place.unwrap_or_else(|index| {
            let id = ShapeId(self.next);
            self.next += 1;
            change.made.push(id);
            self.shapes.insert(
                index,
                Entries {
                    id,
                    shape,
                    specificity,
                    values: HashMap::new(),
                },
            );
            index
        })
    }
}

#[derive(Clone, Debug)]
struct Placed {
    text: String,
    at: Vec<(ShapeId, Key)>,
}

/// A shape and its entries.
#[derive(Clone, Debug)]
pub struct Entries<T> {
    id: ShapeId,
    shape: Shape,
    specificity: Specificity,
    values: HashMap<Key, T>,
}

impl<T: Copy> Entries<T> {
    /// The shape's name.
    #[must_use]
    pub fn id(&self) -> ShapeId {
        self.id
    }

    /// The shape.
    #[must_use]
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// How specific its entries are.
    #[must_use]
    pub fn specificity(&self) -> Specificity {
        self.specificity
    }

    /// Number of entries; never 0.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// The entries, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], T)> {
        self.values.iter().map(|(key, value)| (&key[..], *value))
    }
}

/// What an insertion or removal did: all that a compiled copy has to follow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Shapes that are new: the program has to be made again.
    pub made: Vec<ShapeId>,
    /// Shapes whose last entry went.
    pub unmade: Vec<ShapeId>,
    /// Entries that are new, those of new shapes included.
    pub added: Vec<(ShapeId, Key)>,
    /// Entries that went, those of shapes that went included.
    pub removed: Vec<(ShapeId, Key)>,
}

/// Two filters match the same frame and neither is more specific.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{filter}` and `{with_filter}` are equally specific and can match the same frame")]
pub struct Conflict<T> {
    /// The filter that is in the table.
    pub with: T,
    /// Its text.
    pub with_filter: String,
    /// Text of the filter that was not inserted.
    pub filter: String,
}

impl<T> Conflict<T> {
    /// What to do next.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        "add a test to one of them, so that it is the more specific"
    }
}

/// A filter reaches beyond what its owner was given.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{filter}` matches messages that are not its owner's; owned: {owned}")]
pub struct NotOwned {
    /// The filter's text.
    pub filter: String,
    /// What is owned, each in backquotes.
    pub owned: String,
}

impl NotOwned {
    /// What to do next.
    #[must_use]
    pub fn hint(&self) -> String {
        format!("narrow the filter to a part of {}", self.owned)
    }
}

/// Checks that every message of the filter belongs to one of the owned ones:
/// how an operator keeps one domain from taking another's traffic.
///
/// # Errors
///
/// [`NotOwned`], if no single owned filter covers all of it.
pub fn owned_by(owned: &[Filter], filter: &Filter) -> Result<(), NotOwned> {
    if owned.iter().any(|one| filter.implies(one)) {
        return Ok(());
    }
    let names: Vec<String> = owned.iter().map(|one| format!("`{one}`")).collect();
    Err(NotOwned {
        filter: filter.text.clone(),
        owned: if names.is_empty() {
            "nothing".to_owned()
        } else {
            names.join(", ")
        },
    })
}
