//! Shapes as data: for those that came after a program was made.
//!
//! A program that looks a shape up has the shape's fields and masks in its instructions;
//! to make one takes the verifier milliseconds. A *spare* is a look-up whose masks lie in
//! memory: what a frame says of itself is gathered at fixed places ([`WORDS`]), and a
//! shape is a mask over all of them. So a new shape is a few words that are written, and
//! it is found by the same rule, at its place in the same order, until a program has it.
//!
//! Guards are part of the mask and of the key, so shapes that differ only in the values
//! of their guards (`udp port 53` over IPv4 and over IPv6) share one spare. Whether a
//! field is there is a bit like others ([`fact::REACH`], [`fact::RAWS`]).
//!
//! [`Spares`] says what has to be written; `codegen` makes the program that reads it.

use ashway_abi::context::fact;

use super::filter::{Base, Field, Layer, Specificity, Test};
use super::shape::Shape;

/// Words of 8 bytes that a frame is gathered in: the facts from the sender's address on,
/// then [`RAWS`] places of four bytes.
pub const WORDS: usize = (RAW_AT + 4 * RAWS) / 8;
/// Shapes at a time.
pub const SLOTS: usize = 8;
/// Places of a frame that are asked for beside its headers' fields.
pub const RAWS: usize = 8;
/// Exclusions (`not`), of all shapes together.
pub const EXCLUSIONS: usize = 8;
/// Bytes of the key of an entry: the number of its slot, then the masked words.
pub const KEY_BYTES: usize = 8 + 8 * WORDS;

/// Where the first of the places begins in the words.
const RAW_AT: usize = (fact::END - fact::SOURCE) as usize;
/// Bytes of the words.
const BYTES_OF_WORDS: usize = 8 * WORDS;

/// How it all lies in memory; offsets are in bytes.
pub mod layout {
    use super::{BYTES_OF_WORDS, EXCLUSIONS, RAWS, SLOTS};

    /// `u64`: the slots in the order they are tried, a byte each from the lowest on: the
    /// number and 1. 0 ends it, so there is none where it is 0.
    pub const ORDER: usize = 0;
    /// The places, [`RAW_BYTES`] each; the others are written seldom, so they do not
    /// share a cache line with the order.
    pub const RAWS_AT: usize = 64;
    /// Of a place: `u16` offset, `u8` what it counts from ([`base`](super::base)), `u8`
    /// width; 0 if there is none.
    pub const RAW_BYTES: usize = 8;
    /// The exclusions, [`EXCLUSION_BYTES`] each.
    pub const EXCLUSIONS_AT: usize = RAWS_AT + RAWS * RAW_BYTES;
    /// Of an exclusion: `u64`, not 0 if there is one; the mask; the value.
    pub const EXCLUSION_BYTES: usize = 8 + 2 * BYTES_OF_WORDS;
    /// The slots, [`SLOT_BYTES`] each.
    pub const SLOTS_AT: usize = EXCLUSIONS_AT + EXCLUSIONS * EXCLUSION_BYTES;
    /// Of a slot: `u64` with a bit for each exclusion of which none may hold; `u32` its
    /// [rank](super::rank); `u32`; the mask.
    pub const SLOT_BYTES: usize = 128;
    /// Where a slot's mask begins.
    pub const MASK: usize = 16;
    /// All of it.
    pub const BYTES: usize = SLOTS_AT + SLOTS * SLOT_BYTES;

    const _: () = assert!(SLOTS.is_power_of_two() && SLOTS <= 8);
    const _: () = assert!(MASK + BYTES_OF_WORDS <= SLOT_BYTES);
}

/// A specificity as a number that orders alike, above 0.
#[must_use]
pub fn rank(specificity: Specificity) -> u32 {
    (specificity.bits << 12 | specificity.exclusions.min(0xffe)) + 1
}

/// The number of what a place counts from.
#[must_use]
pub const fn base(base: Base) -> u8 {
    match base {
        Base::Eth => 0,
        Base::L3 => 1,
        Base::L4 => 2,
    }
}

/// What a frame's words have to be under a mask.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Masked {
    mask: [u8; BYTES_OF_WORDS],
    value: [u8; BYTES_OF_WORDS],
}

/// A shape as data.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Slot {
    rank: u32,
    mask: [u8; BYTES_OF_WORDS],
    /// A bit for each exclusion.
    excluded: u64,
}

/// The spares of one program. What is written stays: a shape that goes leaves a slot in
/// which nothing is found.
#[derive(Clone, Debug, Default)]
pub struct Spares {
    raws: Vec<Field>,
    exclusions: Vec<Masked>,
    slots: Vec<Slot>,
}

impl Spares {
    /// The number of the slot for a shape: the one that it has or shares, else the next;
    /// `None`, and nothing has changed, if there is no room.
    #[must_use]
    pub fn place(&mut self, shape: &Shape) -> Option<usize> {
        let mut next = self.clone();
        let mask = next.masked(&tests(shape, &[]))?.mask;
        let mut excluded = 0;
        for not in &shape.not {
            let not = next.masked(not)?;
            let known = next.exclusions.iter().position(|one| *one == not);
            let number = known.unwrap_or_else(|| {
                next.exclusions.push(not);
                next.exclusions.len() - 1
            });
            if number >= EXCLUSIONS {
                return None;
            }
            excluded |= 1 << number;
        }
        let slot = Slot {
            rank: rank(shape.specificity()),
            mask,
            excluded,
        };
        let known = next.slots.iter().position(|one| *one == slot);
        let number = known.unwrap_or_else(|| {
            next.slots.push(slot);
            next.slots.len() - 1
        });
        if number >= SLOTS {
            return None;
        }
        *self = next;
        Some(number)
    }

    /// The key by which an entry of a shape in this slot is found.
    #[must_use]
    pub fn key(&self, slot: usize, shape: &Shape, key: &[u8]) -> [u8; KEY_BYTES] {
        let mut bytes = [0; KEY_BYTES];
        bytes[..8].copy_from_slice(&(slot as u64).to_ne_bytes());
        let value = self.clone().masked(&tests(shape, key)).map(|one| one.value);
        bytes[8..].copy_from_slice(&value.unwrap_or([0; BYTES_OF_WORDS]));
        bytes
    }

    /// What has to lie in memory: the [order](layout::ORDER) last, when the rest and the
    /// entries are there. Of what was written before, only the order changes.
    #[must_use]
    pub fn to_bytes(&self) -> Box<[u8]> {
        let mut bytes = vec![0; layout::BYTES];
        let mut order: Vec<usize> = (0..self.slots.len()).collect();
        order.sort_by_key(|number| std::cmp::Reverse(self.slots[*number].rank));
        for (place, number) in order.into_iter().enumerate() {
            // At most 8.
            bytes[place] = number as u8 + 1;
        }
        for (at, field) in steps(layout::RAWS_AT, layout::RAW_BYTES).zip(&self.raws) {
            let Field::Raw {
                base: from,
                offset,
                width,
            } = *field
            else {
                continue;
            };
            bytes[at..at + 2].copy_from_slice(&offset.to_ne_bytes());
            bytes[at + 2] = base(from);
            bytes[at + 3] = width;
        }
        let exclusions = steps(layout::EXCLUSIONS_AT, layout::EXCLUSION_BYTES);
        for (at, one) in exclusions.zip(&self.exclusions) {
            bytes[at] = 1;
            let (mask, value) = (at + 8, at + 8 + BYTES_OF_WORDS);
            bytes[mask..value].copy_from_slice(&one.mask);
            bytes[value..value + BYTES_OF_WORDS].copy_from_slice(&one.value);
        }
        for (at, slot) in steps(layout::SLOTS_AT, layout::SLOT_BYTES).zip(&self.slots) {
            bytes[at..at + 8].copy_from_slice(&slot.excluded.to_ne_bytes());
            bytes[at + 8..at + 12].copy_from_slice(&slot.rank.to_ne_bytes());
            let mask = at + layout::MASK;
            bytes[mask..mask + BYTES_OF_WORDS].copy_from_slice(&slot.mask);
        }
        bytes.into()
    }

    /// What these tests ask of a frame's words; `None` if there is no room for a place
    /// that they name.
    fn masked(&mut self, tests: &[Test]) -> Option<Masked> {
        let mut all = Masked {
            mask: [0; BYTES_OF_WORDS],
            value: [0; BYTES_OF_WORDS],
        };
        for test in tests {
            let at = self.place_of(test.field)?;
            for (i, (mask, value)) in test.mask.into_iter().zip(test.value).enumerate() {
                // Behind the field's width there is no mask.
                if mask != 0 {
                    all.mask[at + i] |= mask;
                    all.value[at + i] |= value;
                }
            }
            for (at, bit) in self.there(test.field) {
                all.mask[at] |= bit;
                all.value[at] |= bit;
            }
        }
        Some(all)
    }

    /// Where a field lies in the words; one that is no header's gets a place.
    fn place_of(&mut self, field: Field) -> Option<usize> {
        let fact = match field {
            Field::Vlans => fact::VLANS,
            Field::EtherType => fact::ETHERTYPE,
            Field::Protocol => fact::PROTOCOL,
            Field::Fragment => fact::FRAGMENT,
            Field::Vlan0 => fact::VLAN,
            Field::Vlan1 => fact::VLAN + 2,
            Field::Source => fact::SOURCE,
            Field::Destination => fact::DESTINATION,
            Field::SourcePort => fact::SOURCE_PORT,
            Field::DestinationPort => fact::DESTINATION_PORT,
            Field::Vni => fact::VNI,
            Field::Raw { .. } => {
                let known = self.raws.iter().position(|one| *one == field);
                let number = known.unwrap_or_else(|| {
                    self.raws.push(field);
                    self.raws.len() - 1
                });
                return (number < RAWS).then_some(RAW_AT + 4 * number);
            }
        };
        Some(place(fact))
    }

    /// The bits that say that a field is there, each with its place in the words.
    fn there(&self, field: Field) -> Vec<(usize, u8)> {
        let reach = place(fact::REACH);
        let layer = match field.layer() {
            Layer::Link => None,
            Layer::Network => Some((reach, fact::REACHES_NETWORK)),
            Layer::Transport => Some((reach, fact::REACHES_TRANSPORT)),
        };
        let own = match field {
            Field::Vlan0 => Some((reach, fact::REACHES_VLAN)),
            Field::Vlan1 => Some((reach, fact::REACHES_VLAN << 1)),
            Field::Vni => Some((place(fact::VNI_THERE), 1)),
            Field::Raw { .. } => {
                let number = self.raws.iter().position(|one| *one == field);
                number.map(|number| (place(fact::RAWS), 1 << number))
            }
            _ => None,
        };
        layer.into_iter().chain(own).collect()
    }
}

/// Where a fact lies in the words.
const fn place(fact: i16) -> usize {
    (fact - fact::SOURCE) as usize
}

fn steps(from: usize, bytes: usize) -> impl Iterator<Item = usize> {
    (from..).step_by(bytes)
}

/// What an entry of a shape asks for; without a key, any of them.
fn tests(shape: &Shape, key: &[u8]) -> Vec<Test> {
    let mut padded = key.to_vec();
    padded.resize(shape.key_bytes(), 0);
    shape.conjunction(&padded).tests
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Table, parse};

    fn shapes(text: &str) -> Vec<Shape> {
        let mut table = Table::default();
        table.insert(&parse(text).unwrap(), ()).unwrap();
        let shapes = table.shapes().iter();
        shapes.map(|entries| entries.shape().clone()).collect()
    }

    #[test]
    fn shapes_that_differ_in_their_guards_values_share_a_slot() {
        let mut spares = Spares::default();
        let all = shapes("port 53");
        assert!(all.len() > 4, "{}", all.len());
        let mut slots: Vec<_> = all.iter().map(|shape| spares.place(shape)).collect();
        slots.sort_unstable();
        slots.dedup();
        assert_eq!(slots, [Some(0), Some(1)], "the sender's and the receiver's");
    }

    #[test]
    fn what_has_no_room_changes_nothing() {
        let mut spares = Spares::default();
        let bytes_of = |at: usize| shapes(&format!("ether[{at}] = 1")).remove(0);
        for at in 0..RAWS {
            assert_eq!(spares.place(&bytes_of(at)), Some(at));
        }
        let full = spares.to_bytes();
        assert_eq!(spares.place(&bytes_of(RAWS)), None);
        assert_eq!(spares.place(&shapes("ip")[0]), None, "slots");
        assert_eq!(spares.to_bytes(), full);
        assert_eq!(spares.place(&bytes_of(3)), Some(3));
    }

    #[test]
    fn the_order_is_the_tables() {
        let mut spares = Spares::default();
        for text in ["udp dst port 7", "udp", "udp dst port 7 and src port 9"] {
            let _ = spares.place(&shapes(text)[0]);
        }
        assert_eq!(spares.to_bytes()[..8], [3, 1, 2, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn what_was_written_stays() {
        let mut spares = Spares::default();
        let _ = spares.place(&shapes("udp dst port 7")[0]);
        let before = spares.to_bytes();
        let more = &shapes("udp dst port 7 and not ether[3] = 1")[0];
        assert_eq!(spares.place(more), Some(1));
        let after = spares.to_bytes();
        let kept = |at: &usize| before[*at] != 0 && *at >= 8;
        assert!(
            (0..layout::BYTES)
                .filter(kept)
                .all(|at| before[at] == after[at])
        );
    }
}
