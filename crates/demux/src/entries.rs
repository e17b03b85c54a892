//! A shape's entries, ready to be looked up.
//!
//! What a frame is asked for each shape is made ready when the shape is made. All
//! guards together are one comparison of a word that is gathered once per frame;
//! a key of up to 16 bytes is gathered in a register and lies in the hash table
//! itself, so that an entry that is not in the cache costs one miss.

use std::collections::HashMap;

use ashway_wire::Headers;

use super::filter::{Field, Layer, Specificity, Test, number};
use super::hash::Seed;
use super::logic;
use super::meeting::{self, Meeting};
use super::shape::{Key, KeyField, MAX_KEY_BYTES, Shape, ShapeId};
use crate::bug::{self, Bug};

/// All guard fields of a frame in one word, and how far its headers reach.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts(u64);

impl Facts {
    const NETWORK: u64 = 1 << 40;
    const TRANSPORT: u64 = 1 << 41;

    #[inline]
    pub(super) fn of(headers: &Headers) -> Self {
        let mut word = ((1 << headers.vlans) - 1)
            | u64::from(headers.ethertype) << Self::place(Field::EtherType)
            | u64::from(headers.protocol) << Self::place(Field::Protocol)
            | (headers.fragment as u64) << Self::place(Field::Fragment);
        if headers.l3 != 0 {
            word |= Self::NETWORK;
        }
        if headers.l4 != 0 {
            word |= Self::TRANSPORT;
        }
        Self(word)
    }

    /// The field's lowest bit.
    const fn place(field: Field) -> u32 {
        match field {
            Field::EtherType => 8,
            Field::Protocol => 24,
            Field::Fragment => 32,
            _ => 0,
        }
    }

    /// The word's bit that says that a field may be there.
    fn reach(field: Field) -> u64 {
        match field.layer() {
            Layer::Link => 0,
            Layer::Network if bug::is(Bug::DemuxLayerUnasked) => 0,
            Layer::Network => Self::NETWORK,
            Layer::Transport => Self::TRANSPORT,
        }
    }
}

/// Which bits of [`Facts`] count for a shape, and what they have to be.
#[derive(Clone, Copy, Debug)]
struct Gate {
    mask: u64,
    value: u64,
}

impl Gate {
    fn of(shape: &Shape) -> Self {
        let mut gate = Self { mask: 0, value: 0 };
        let guards = shape.guards.iter().map(|test| test.field);
        for field in guards.chain(shape.key.iter().map(|part| part.field)) {
            gate.mask |= Facts::reach(field);
        }
        gate.value = gate.mask;
        for test in &shape.guards {
            let bits = |bytes| {
                let right = 128 - 8 * test.field.width() as u32;
                ((number(bytes) >> right) as u64) << Facts::place(test.field)
            };
            gate.mask |= bits(test.mask);
            gate.value |= bits(test.value);
        }
        gate
    }

    #[inline]
    fn admits(self, facts: Facts) -> bool {
        facts.0 & self.mask == self.value
    }
}

/// A field of a key of at most 16 bytes: its masked value goes to the right by
/// `shift` bits.
#[derive(Clone, Copy, Debug)]
struct Part {
    field: Field,
    mask: u128,
    shift: u32,
}

impl Part {
    /// Of keys beyond 16 bytes there are none.
    fn of(shape: &Shape) -> Vec<Self> {
        if shape.key_bytes() > 16 {
            return Vec::new();
        }
        let mut at = 0;
        let parts = shape.key.iter().map(|part: &KeyField| {
            let shift = 8 * at as u32;
            at += part.width();
            Self {
                field: part.field,
                mask: if bug::is(Bug::DemuxMaskDropped) {
                    u128::MAX << (128 - 8 * part.width())
                } else {
                    number(part.mask)
                },
                shift,
            }
        });
        parts.collect()
    }
}

/// Entries by key: filled up with zeros to 8 or 16 bytes, or beyond these in a
/// box.
#[derive(Clone, Debug)]
enum Values<T> {
    Eight(HashMap<[u8; 8], T, Seed>),
    Sixteen(HashMap<[u8; 16], T, Seed>),
    Long(HashMap<Key, T, Seed>),
}

/// The key, filled up.
fn padded<const N: usize>(key: &[u8]) -> [u8; N] {
    let mut bytes = [0; N];
    bytes[..key.len()].copy_from_slice(key);
    bytes
}

impl<T: Copy> Values<T> {
    /// For keys of so many bytes.
    fn of(bytes: usize) -> Self {
        match bytes {
            0..=8 => Self::Eight(HashMap::default()),
            9..=16 => Self::Sixteen(HashMap::default()),
            _ => Self::Long(HashMap::default()),
        }
    }

    fn get(&self, key: &[u8]) -> Option<T> {
        let value = match self {
            Self::Eight(values) => values.get(&padded(key)),
            Self::Sixteen(values) => values.get(&padded(key)),
            Self::Long(values) => values.get(key),
        };
        value.copied()
    }

    fn insert(&mut self, key: &Key, value: T) {
        match self {
            Self::Eight(values) => values.insert(padded(key), value),
            Self::Sixteen(values) => values.insert(padded(key), value),
            Self::Long(values) => values.insert(key.clone(), value),
        };
    }

    fn remove(&mut self, key: &[u8]) {
        match self {
            Self::Eight(values) => values.remove(&padded(key)),
            Self::Sixteen(values) => values.remove(&padded(key)),
            Self::Long(values) => values.remove(key),
        };
    }

    fn len(&self) -> usize {
        match self {
            Self::Eight(values) => values.len(),
            Self::Sixteen(values) => values.len(),
            Self::Long(values) => values.len(),
        }
    }

    /// With keys of so many bytes.
    fn iter(&self, bytes: usize) -> impl Iterator<Item = (&[u8], T)> {
        let (eight, sixteen, long) = match self {
            Self::Eight(values) => (Some(values), None, None),
            Self::Sixteen(values) => (None, Some(values), None),
            Self::Long(values) => (None, None, Some(values)),
        };
        let eight = eight.into_iter().flatten();
        let eight = eight.map(move |(key, value)| (&key[..bytes], *value));
        let sixteen = sixteen.into_iter().flatten();
        let sixteen = sixteen.map(move |(key, value)| (&key[..bytes], *value));
        let long = long.into_iter().flatten();
        let long = long.map(|(key, value)| (&key[..], *value));
        eight.chain(sixteen).chain(long)
    }
}

/// A shape and its entries.
#[derive(Clone, Debug)]
pub struct Entries<T> {
    gate: Gate,
    parts: Vec<Part>,
    values: Values<T>,
    id: ShapeId,
    specificity: Specificity,
    pub(super) shape: Shape,
    /// Which of them other shapes' entries meet.
    pub(super) meetings: Vec<Meeting>,
}

impl<T: Copy> Entries<T> {
    pub(super) fn new(id: ShapeId, shape: Shape) -> Self {
        Self {
            gate: Gate::of(&shape),
            parts: Part::of(&shape),
            values: Values::of(shape.key_bytes()),
            id,
            specificity: shape.specificity(),
            shape,
            meetings: Vec::new(),
        }
    }

    /// The entry of a frame with these facts. Allocates nothing.
    #[inline]
    pub(super) fn find(&self, facts: Facts, headers: &Headers, frame: &[u8]) -> Option<T> {
        let holds = |test: &Test| test.holds(headers, frame);
        if !self.gate.admits(facts) || self.shape.not.iter().any(|not| not.iter().all(holds)) {
            return None;
        }
        let value = match &self.values {
            Values::Eight(values) => {
                let key = self.short_key(headers, frame)?;
                values.get(&((key >> 64) as u64).to_be_bytes())
            }
            Values::Sixteen(values) => {
                let key = self.short_key(headers, frame)?;
                values.get(&key.to_be_bytes())
            }
            Values::Long(values) => {
                let mut bytes = [0; MAX_KEY_BYTES];
                values.get(self.shape.read_key(headers, frame, &mut bytes)?)
            }
        };
        value.copied()
    }

    /// The frame's key of at most 16 bytes, from the most significant on.
    #[inline]
    fn short_key(&self, headers: &Headers, frame: &[u8]) -> Option<u128> {
        self.parts.iter().try_fold(0, |key, part| {
            let value = part.field.read(headers, frame)? & part.mask;
            Some(key | value >> part.shift)
        })
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<T> {
        self.values.get(key)
    }

    pub(super) fn insert(&mut self, key: &Key, value: T) {
        self.values.insert(key, value);
        for meeting in &mut self.meetings {
            meeting.add(key);
        }
    }

    /// Has an entry that is here lead elsewhere.
    pub(super) fn turn(&mut self, key: &Key, value: T) {
        self.values.insert(key, value);
    }

    pub(super) fn remove(&mut self, key: &[u8]) {
        if !bug::is(Bug::DemuxEntryStays) {
            self.values.remove(key);
        }
        for meeting in &mut self.meetings {
            meeting.take(key);
        }
    }

    /// Whether some entry agrees with `key` of another shape in all bits that both
    /// test. Constant time, but for the first time that this shape is asked for
    /// these bits.
    pub(super) fn meets(&mut self, other: &Shape, key: &[u8]) -> bool {
        if logic::both(&self.shape.guards, &other.guards).is_none() {
            return false;
        }
        let mask = meeting::common(&self.shape, other);
        let known = self.meetings.iter().position(|one| *one.mask() == *mask);
        let place = known.unwrap_or_else(|| {
            let mut meeting = Meeting::new(mask);
            for (key, _) in self.iter() {
                meeting.add(key);
            }
            self.meetings.push(meeting);
            self.meetings.len() - 1
        });
        self.meetings[place].meets(&meeting::translated(&self.shape, other, key))
    }

    /// The same entries, which lead to what `to` says.
    #[must_use]
    pub fn map<U: Copy>(&self, to: impl Fn(T) -> U) -> Entries<U> {
        let mut entries = Entries::new(self.id, self.shape.clone());
        for (key, value) in self.iter() {
            entries.values.insert(&key.into(), to(value));
        }
        entries
    }

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
        self.values.iter(self.shape.key_bytes())
    }
}
