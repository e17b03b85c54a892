//! Whether a filter meets filters of another shape, without asking each.
//!
//! Two entries of different shapes can match one frame if they agree in the bits
//! that both shapes test. So a shape counts its entries by what these bits are,
//! once for each set of bits that it has in common with some other shape that is
//! equally specific.

use std::collections::HashMap;

use super::hash::Seed;
use super::shape::{Key, KeyField, Shape};
use crate::bug::{self, Bug};

/// A shape's entries by some of their bits.
#[derive(Clone, Debug)]
pub(super) struct Meeting {
    /// Which bits of a key count.
    mask: Key,
    /// How many entries have them so.
    counts: HashMap<Key, u32, Seed>,
}

impl Meeting {
    pub(super) fn new(mask: Key) -> Self {
        Self {
            mask,
            counts: HashMap::default(),
        }
    }

    pub(super) fn mask(&self) -> &[u8] {
        &self.mask
    }

    pub(super) fn add(&mut self, key: &[u8]) {
        if !bug::is(Bug::DemuxMeetingMissed) {
            *self.counts.entry(masked(key, &self.mask)).or_default() += 1;
        }
    }

    /// Takes one out that was added.
    pub(super) fn take(&mut self, key: &[u8]) {
        let key = masked(key, &self.mask);
        if let Some(count) = self.counts.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&key);
            }
        }
    }

    /// Whether some entry has the bits that count as this key has them.
    pub(super) fn meets(&self, key: &[u8]) -> bool {
        self.counts.contains_key(&masked(key, &self.mask))
    }
}

fn masked(key: &[u8], mask: &[u8]) -> Key {
    key.iter().zip(mask).map(|(key, mask)| key & mask).collect()
}

/// The bits of a key of `shape` that `other` tests too.
pub(super) fn common(shape: &Shape, other: &Shape) -> Key {
    arranged(shape, |part| {
        let other = other.key.iter().find(|other| other.field == part.field);
        let both = |i: usize| other.map_or(0, |other| other.mask[i] & part.mask[i]);
        std::array::from_fn(both)
    })
}

/// The other shape's `key` with its bits where keys of `shape` have them.
pub(super) fn translated(shape: &Shape, other: &Shape, key: &[u8]) -> Key {
    arranged(shape, |part| {
        let mut at = 0;
        let mut value = [0; 16];
        for other in &other.key {
            if other.field == part.field {
                value[..other.width()].copy_from_slice(&key[at..at + other.width()]);
            }
            at += other.width();
        }
        value
    })
}

/// Values of the fields of `shape` as a key.
fn arranged(shape: &Shape, value: impl Fn(&KeyField) -> [u8; 16]) -> Key {
    let mut key = Vec::with_capacity(shape.key_bytes());
    for part in &shape.key {
        key.extend_from_slice(&value(part)[..part.width()]);
    }
    key.resize(shape.key_bytes(), 0);
    key.into()
}
