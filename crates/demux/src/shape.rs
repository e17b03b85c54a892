//! Which bits a group of filters tests.
//!
//! Filters of one [`Shape`] differ only in values: `udp and dst port 53` and
//! `udp and dst port 7777` do, and so do a hundred thousand more. Demux makes
//! the shape's tests once and looks the values up in a hash table, so the cost
//! is that of the shapes and not that of the filters.

use ashway_wire::Headers;

use super::filter::{Conjunction, Field, Layer, Specificity, Test, number, u128_bytes};

/// Most bytes of a key. Parsed filters keep below it.
pub const MAX_KEY_BYTES: usize = 96;

/// A shape's name in its table; never used again after the shape is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShapeId(pub u32);

/// Bytes that an entry is found by: of each field of the shape's key, in order,
/// the masked value at [`width`](KeyField::width) bytes; then zeros up to a
/// multiple of four.
pub type Key = Box<[u8]>;

/// One field of a shape's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyField {
    /// The field.
    pub field: Field,
    /// Which of its bits are part of the key.
    pub mask: [u8; 16],
}

impl KeyField {
    /// Bytes in the key: the field's own, except for addresses of which only
    /// the first four bytes count (all of IPv4's), which take four.
    #[must_use]
    pub fn width(&self) -> usize {
        match self.field.width() {
            16 if self.mask[4..] == [0; 12] => 4,
            width => width,
        }
    }
}

/// Tests that many filters have in common.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shape {
    /// Constant tests, on [guard fields](Field::is_guard) only, by field.
    pub guards: Vec<Test>,
    /// What must not hold, the same for all entries; made like guards, before
    /// the lookup.
    pub not: Vec<Vec<Test>>,
    /// The fields whose values are looked up, by field; empty for a shape whose
    /// one entry needs no lookup.
    pub key: Vec<KeyField>,
}

impl Shape {
    /// The shape of a conjunction, and its key there.
    #[must_use]
    pub fn of(conjunction: &Conjunction) -> (Self, Key) {
        // By field, and those of guards come first.
        let tests = &conjunction.tests;
        let (guards, rest) = tests.split_at(tests.partition_point(|test| test.field.is_guard()));
        let shape = Self {
            guards: guards.to_vec(),
            not: conjunction.not.clone(),
            key: rest
                .iter()
                .map(|test| KeyField {
                    field: test.field,
                    mask: test.mask,
                })
                .collect(),
        };
        let bytes = shape.key_bytes();
        let mut key = Vec::with_capacity(bytes);
        for (part, test) in shape.key.iter().zip(rest) {
            key.extend_from_slice(&test.value[..part.width()]);
        }
        key.resize(bytes, 0);
        (shape, key.into())
    }

    /// The conjunction that has this key: the inverse of [`Shape::of`].
    #[must_use]
    pub fn conjunction(&self, key: &[u8]) -> Conjunction {
        let mut tests = self.guards.clone();
        let mut at = 0;
        for part in &self.key {
            let mut value = [0; 16];
            value[..part.width()].copy_from_slice(&key[at..at + part.width()]);
            at += part.width();
            tests.push(Test::new(part.field, part.mask, value));
        }
        Conjunction {
            tests,
            not: self.not.clone(),
        }
    }

    /// Bytes of a key, padding included.
    #[must_use]
    pub fn key_bytes(&self) -> usize {
        self.key
            .iter()
            .map(KeyField::width)
            .sum::<usize>()
            .next_multiple_of(4)
    }

    /// What has to be there for any test of the shape to hold. A program can
    /// leave the shape out for frames that lack it.
    #[must_use]
    pub fn layer(&self) -> Layer {
        let guards = self.guards.iter().map(|test| test.field.layer());
        let key = self.key.iter().map(|part| part.field.layer());
        guards.chain(key).max().unwrap_or(Layer::Link)
    }

    /// How specific its entries are, all alike.
    #[must_use]
    pub fn specificity(&self) -> Specificity {
        let guards = self.guards.iter().map(|test| test.mask);
        let key = self.key.iter().map(|part| part.mask);
        Specificity::of(guards.chain(key), self.not.len())
    }

    /// Writes the frame's key into `into` and returns it; `None` if a field is
    /// not there. Allocates nothing.
    #[must_use]
    pub fn read_key<'k>(
        &self,
        headers: &Headers,
        frame: &[u8],
        into: &'k mut [u8; MAX_KEY_BYTES],
    ) -> Option<&'k [u8]> {
        let mut at = 0;
        for part in &self.key {
            let value = part.field.read(headers, frame)? & number(part.mask);
            let width = part.width();
            into.get_mut(at..at + width)?
                .copy_from_slice(&u128_bytes(value)[..width]);
            at += width;
        }
        let end = at.next_multiple_of(4);
        into.get_mut(at..end)?.fill(0);
        Some(&into[..end])
    }
}
