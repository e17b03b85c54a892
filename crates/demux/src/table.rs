//! All filters of one interface, and which of them a frame belongs to.
//!
//! Conjunctions of one [`Shape`] share a hash table. Shapes are tried in one
//! order, the most specific first; the first entry found wins. So a lookup
//! costs as much as there are shapes, from one filter to a hundred thousand,
//! and a filter of a shape that is there is one insertion ([`Entries`]).
//!
//! That "most specific" always has one answer is kept by [`Table::insert`]: two
//! alternatives that match one frame may not be equally specific. It is as cheap:
//! shapes count their entries by the bits that they share with others (`meeting`).
//! Only the *same* alternative may be in several filters, if each of these implies
//! the next (`ip and udp dst port 7`, `udp dst port 7`): it is the narrowest's, and
//! the others wait beneath.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;

use ashway_wire::Headers;

pub use super::entries::Entries;
use super::entries::Facts;
use super::filter::{Conjunction, Filter, Specificity};
use super::hash::Seed;
use super::meeting::{self, Meeting};
use super::shape::{Key, Shape, ShapeId};
use crate::bug::{self, Bug};

/// Filters, each with what it leads to. `T` also names the filter.
#[derive(Clone, Debug)]
pub struct Table<T> {
    /// In the order they are tried.
    shapes: Vec<Entries<T>>,
    /// Where each filter's conjunctions are, and its text.
    filters: HashMap<T, Placed, Seed>,
    /// Wider filters that have an entry's alternative too, the narrowest first.
    beneath: HashMap<(ShapeId, Key), Vec<T>>,
    next: u32,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self {
            shapes: Vec::new(),
            filters: HashMap::default(),
            beneath: HashMap::new(),
            next: 0,
        }
    }
}

impl<T: Copy + Eq + Hash> Table<T> {
    /// What the frame belongs to, if to anything: the value of the most
    /// specific filter that matches it. Linear in the shapes; allocates nothing.
    #[must_use]
    pub fn find(&self, headers: &Headers, frame: &[u8]) -> Option<T> {
        let facts = Facts::of(headers);
        self.shapes
            .iter()
            .find_map(|entries| entries.find(facts, headers, frame))
    }

    /// All that the frame matches, in the order they are tried: how specific, and
    /// what it leads to. The first is what [`find`](Self::find) says; one filter may
    /// come more than once, by several alternatives.
    pub fn matches<'t>(
        &'t self,
        headers: &'t Headers,
        frame: &'t [u8],
    ) -> impl Iterator<Item = (Specificity, T)> + 't {
        let facts = Facts::of(headers);
        self.shapes.iter().filter_map(move |entries| {
            let value = entries.find(facts, headers, frame)?;
            Some((entries.specificity(), value))
        })
    }

    /// Adds a filter. For each of its conjunctions one step per shape; one per
    /// entry only of a shape that is new to another that is equally specific, and
    /// of one whose entries agree with the filter and only their exclusions
    /// (`not`) keep them apart. Where an alternative is here already, whether one
    /// filter implies the other is decided too ([`Filter::implies`]).
    ///
    /// # Errors
    ///
    /// Another filter matches some of the same frames and is equally specific,
    /// or is the same, or `value` is already here. The table is then unchanged.
    pub fn insert(&mut self, filter: &Filter, value: T) -> Result<Change, Conflict<T>> {
        if self.filters.contains_key(&value) {
            return Err(self.conflict(filter, value));
        }
        let places: Vec<TablePlace> = filter.any.iter().map(|one| self.place_of(one)).collect();
        let rival = places.iter().find_map(|place| self.rival(filter, place));
        if let Some(with) = rival {
            return Err(self.conflict(filter, with));
        }
        let mut all = filter.any.iter().zip(&places);
        if let Some(with) = all.find_map(|(one, place)| self.equal(one, place)) {
            for place in &places {
                self.part(&place.shape);
            }
            return Err(self.conflict(filter, with));
        }
        let mut change = Change::default();
        let mut at = Vec::with_capacity(filter.any.len());
        for place in places {
            let (index, key) = self.make_place(place, &mut change);
            let id = self.shapes[index].id();
            at.push((id, key.clone()));
            let Some(top) = self.shapes[index].get(&key) else {
                self.shapes[index].insert(&key, value);
                change.added.push((id, key));
                continue;
            };
            let narrower = |other: &T| {
                !bug::is(Bug::DemuxWiderWins) && {
                    let other = self.filter(*other);
                    other.implies(filter)
                }
            };
            let place = (id, key);
            let others = self.beneath.get(&place).map_or(&[][..], |others| others);
            let depth = [top]
                .iter()
                .chain(others)
                .filter(|one| narrower(one))
                .count();
            let others = self.beneath.entry(place.clone()).or_default();
            if depth == 0 {
                others.insert(0, top);
                self.shapes[index].turn(&place.1, value);
                change.turned.push(place);
            } else {
                others.insert(depth - 1, value);
            }
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
            let Some(index) = self.shapes.iter().position(|entries| entries.id() == id) else {
                continue;
            };
            let place = (id, key);
            if let Some(others) = self.beneath.get_mut(&place) {
                if self.shapes[index].get(&place.1) == Some(value) {
                    self.shapes[index].turn(&place.1, others.remove(0));
                    change.turned.push(place.clone());
                } else {
                    others.retain(|other| *other != value);
                }
                if others.is_empty() {
                    self.beneath.remove(&place);
                }
                continue;
            }
            let (_, key) = place;
            self.shapes[index].remove(&key);
            if self.shapes[index].len() == 0 {
                let gone = self.shapes.remove(index);
                self.part(&gone.shape);
                change.unmade.push(id);
            }
            if !bug::is(Bug::DemuxChangeForgets) {
                change.removed.push((id, key));
            }
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

    /// The filter that leads to `value`, as far as its meaning goes.
    fn filter(&self, value: T) -> Filter {
        let placed = self.filters.get(&value);
        let at = placed.into_iter().flat_map(|placed| &placed.at);
        let any = at.filter_map(|(id, key)| {
            let entries = self.shapes.iter().find(|entries| entries.id() == *id)?;
            Some(entries.shape.conjunction(key))
        });
        Filter {
            text: String::new(),
            any: any.collect(),
        }
    }

    /// Where an alternative belongs, made or not.
    fn place_of(&self, conjunction: &Conjunction) -> TablePlace {
        let (shape, key) = Shape::of(conjunction);
        let known = self.shapes.iter().find(|entries| entries.shape == shape);
        TablePlace {
            specificity: known.map_or_else(|| shape.specificity(), Entries::specificity),
            known: known.map(Entries::id),
            shape,
            key,
        }
    }

    /// What has the alternative of `filter` too that has its place here, and is neither
    /// narrower nor wider.
    fn rival(&self, filter: &Filter, place: &TablePlace) -> Option<T> {
        let TablePlace { known, key, .. } = place;
        let id = (*known)?;
        let entries = self.shapes.iter().find(|entries| entries.id() == id)?;
        let top = entries.get(key)?;
        let others = self.beneath.get(&(id, key.clone()));
        let mut all = [top]
            .into_iter()
            .chain(others.into_iter().flatten().copied());
        all.find(|with| {
            let other = self.filter(*with);
            other.implies(filter) == filter.implies(&other)
        })
    }

    /// What else matches a frame of this conjunction, which has its place there, tests
    /// other bits and is equally specific.
    fn equal(&mut self, conjunction: &Conjunction, place: &TablePlace) -> Option<T> {
        let TablePlace { shape, key, .. } = place;
        for entries in equals(&mut self.shapes, place.specificity) {
            // In one shape only the same key meets.
            if Some(entries.id()) != place.known && entries.meets(shape, key) {
                let overlaps = |(key, with)| {
                    let other = entries.shape.conjunction(key);
                    other.overlaps(conjunction).then_some(with)
                };
                if let Some(with) = entries.iter().find_map(overlaps) {
                    return Some(with);
                }
            }
        }
        None
    }

    /// Takes out what equally specific shapes counted for the sake of this one,
    /// if it is not, or no longer, here.
    fn part(&mut self, gone: &Shape) {
        let specificity = gone.specificity();
        let left: Vec<Shape> = equals(&mut self.shapes, specificity)
            .map(|entries| entries.shape.clone())
            .collect();
        for entries in equals(&mut self.shapes, specificity) {
            let shape = &entries.shape;
            let wanted: Vec<Key> = left
                .iter()
                .filter(|other| *other != shape)
                .map(|other| meeting::common(shape, other))
                .collect();
            let is_wanted = |meeting: &Meeting| wanted.iter().any(|mask| **mask == *meeting.mask());
            entries.meetings.retain(is_wanted);
        }
    }

    fn conflict(&self, filter: &Filter, with: T) -> Conflict<T> {
        Conflict {
            with,
            with_filter: self.text(with).unwrap_or_default().to_owned(),
            filter: filter.text.clone(),
        }
    }

    /// Where the place's shape is, made if need be, and the key there.
    fn make_place(&mut self, place: TablePlace, change: &mut Change) -> (usize, Key) {
        let TablePlace {
            shape,
            key,
            specificity,
            known,
        } = place;
        let mut shapes = self.shapes.iter();
        if let Some(id) = known
            && let Some(index) = shapes.position(|entries| entries.id() == id)
        {
            return (index, key);
        }
        // Most specific first; equals, which do not meet, by what they test.
        let place = self.shapes.binary_search_by(|entries| {
            let order = specificity.cmp(&entries.specificity());
            let order = if bug::is(Bug::DemuxOrderInverted) {
                order.reverse()
            } else {
                order
            };
            order.then_with(|| entries.shape.cmp(&shape))
        });
        let index = place.unwrap_or_else(|index| {
            let id = ShapeId(self.next);
            self.next += 1;
            change.made.push(id);
            self.shapes.insert(index, Entries::new(id, shape));
            index
        });
        (index, key)
    }
}

impl<T> AsRef<[Entries<T>]> for Table<T> {
    fn as_ref(&self) -> &[Entries<T>] {
        &self.shapes
    }
}

/// The shapes that are so specific.
fn equals<T: Copy>(
    shapes: &mut [Entries<T>],
    specificity: Specificity,
) -> impl Iterator<Item = &mut Entries<T>> {
    shapes
        .iter_mut()
        .filter(move |entries| entries.specificity() == specificity)
}

/// Where an alternative belongs.
struct TablePlace {
    shape: Shape,
    key: Key,
    specificity: Specificity,
    /// The shape's name, if it is here.
    known: Option<ShapeId>,
}

#[derive(Clone, Debug)]
struct Placed {
    text: String,
    at: Vec<(ShapeId, Key)>,
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
    /// Entries that lead elsewhere now: to a narrower filter that came, or to the
    /// next wider after the one that went.
    pub turned: Vec<(ShapeId, Key)>,
}

/// Two filters match the same frame and neither is more specific.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Conflict<T> {
    /// The filter that is in the table.
    pub with: T,
    /// Its text.
    pub with_filter: String,
    /// Text of the filter that was not inserted.
    pub filter: String,
}

impl<T> fmt::Display for Conflict<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (filter, with_filter) = (&self.filter, &self.with_filter);
        if filter == with_filter {
            return write!(f, "both ask for `{filter}`");
        }
        write!(
            f,
            "`{filter}` and `{with_filter}` are equally specific and can match the same frame"
        )
    }
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
