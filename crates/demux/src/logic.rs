//! Whether one conjunction meets or implies another.
//!
//! Both are one question: can a frame pass these tests and yet fail each of
//! those conjunctions? A conjunction fails if one bit of one test differs, if
//! one of its fields is not there, or if one of its exclusions holds. The search
//! tries these ways one by one; as a bit that nobody else tests is nearly always
//! at hand, it nearly always ends with the first.
//!
//! Fields count as independent of each other. So "can" may be said where the
//! truth is "cannot" (`ip[9] = 17` and `not udp`), never the other way round.

use std::cmp::Ordering;

use super::filter::{Conjunction, Field, Test, number, u128_bytes};

/// Most tests looked at before the answer is the careful one ("can").
const STEPS: u32 = 200_000;

/// Most conjunctions avoided at once, for the stack's sake.
const DEPTH: usize = 1000;

/// Whether a frame may match both.
pub(super) fn overlap(one: &Conjunction, other: &Conjunction) -> bool {
    let Some(tests) = both(&one.tests, &other.tests) else {
        return false;
    };
    let exclusions: Vec<Conjunction> = one
        .not
        .iter()
        .chain(&other.not)
        .map(|tests| only(tests))
        .collect();
    can_avoid(&tests, &exclusions)
}

/// Whether every frame of `one` matches one of `others`.
pub(super) fn implies(one: &Conjunction, others: &[Conjunction]) -> bool {
    let mut avoid: Vec<Conjunction> = one.not.iter().map(|tests| only(tests)).collect();
    avoid.extend_from_slice(others);
    !can_avoid(&one.tests, &avoid)
}

/// Whether nothing at all can match.
pub(super) fn impossible(one: &Conjunction) -> bool {
    let exclusions: Vec<Conjunction> = one.not.iter().map(|tests| only(tests)).collect();
    !can_avoid(&one.tests, &exclusions)
}

fn only(tests: &[Test]) -> Conjunction {
    Conjunction {
        tests: tests.to_vec(),
        not: Vec::new(),
    }
}

/// The tests of both lists, by field; `None` if they cannot all hold, and then nothing
/// is allocated: of the pairs of alternatives that a parser joins, most contradict each
/// other.
pub(super) fn both(one: &[Test], other: &[Test]) -> Option<Vec<Test>> {
    if contradict(one, other) {
        return None;
    }
    let mut merged = Vec::with_capacity(one.len() + other.len());
    let (mut i, mut j) = (0, 0);
    while let (Some(a), Some(b)) = (one.get(i), other.get(j)) {
        merged.push(match a.field.cmp(&b.field) {
            Ordering::Less => *a,
            Ordering::Equal => a.merge(b)?,
            Ordering::Greater => *b,
        });
        i += usize::from(a.field <= b.field);
        j += usize::from(b.field <= a.field);
    }
    merged.extend_from_slice(&one[i..]);
    merged.extend_from_slice(&other[j..]);
    Some(merged)
}

/// Whether a field of both lists cannot have the values that each asks for.
fn contradict(one: &[Test], other: &[Test]) -> bool {
    let (mut i, mut j) = (0, 0);
    while let (Some(a), Some(b)) = (one.get(i), other.get(j)) {
        let order = a.field.cmp(&b.field);
        if order == Ordering::Equal && !a.agrees(b) {
            return true;
        }
        i += usize::from(order != Ordering::Greater);
        j += usize::from(order != Ordering::Less);
    }
    false
}

/// What is known of the frame that is looked for.
#[derive(Clone)]
struct FrameFacts {
    tests: Vec<Test>,
    absent: Vec<Field>,
}

impl FrameFacts {
    /// With these tests as well, if that is possible.
    fn and(&self, tests: &[Test]) -> Option<Self> {
        let there = tests.iter().all(|test| !self.absent.contains(&test.field));
        let tests = there.then(|| both(&self.tests, tests))??;
        Some(Self {
            tests,
            absent: self.absent.clone(),
        })
    }

    /// The ways to fail these tests that are open, given that all can hold: a
    /// field that nothing is known of may be absent, and each bit that is
    /// tested there and free here may be the other way.
    fn ways<'k>(&'k self, wanted: &'k [Test]) -> impl Iterator<Item = Self> + 'k {
        wanted.iter().flat_map(move |test| {
            let here = self.tests.iter().find(|here| here.field == test.field);
            let always = matches!(test.field, Field::Vlans | Field::EtherType);
            let absent = (here.is_none() && !always).then(|| {
                let mut other = self.clone();
                other.absent.push(test.field);
                other
            });
            let free = number(test.mask) & !here.map_or(0, |here| number(here.mask));
            let flips = (0..128)
                .map(|bit| 1_u128 << bit)
                .filter(move |bit| free & bit != 0)
                .filter_map(move |bit| {
                    let other = u128_bytes(!number(test.value));
                    self.and(&[Test::new(test.field, u128_bytes(bit), other)])
                });
            flips.chain(absent)
        })
    }
}

/// Whether a frame can pass `tests` and match none of `avoid`.
fn can_avoid(tests: &[Test], avoid: &[Conjunction]) -> bool {
    let known = FrameFacts {
        tests: tests.to_vec(),
        absent: Vec::new(),
    };
    // Conjunctions that contradict the tests are avoided already; one that the
    // tests alone imply settles it. What is left is few.
    let mut open = Vec::new();
    for conjunction in avoid {
        if both(tests, &conjunction.tests).is_some() {
            if conjunction.not.is_empty() && known.ways(&conjunction.tests).next().is_none() {
                return false;
            }
            open.push(conjunction);
        }
    }
    open.len() > DEPTH || search(&known, &open, &mut { STEPS })
}

fn search(known: &FrameFacts, avoid: &[&Conjunction], steps: &mut u32) -> bool {
    let Some((first, rest)) = avoid.split_first() else {
        return true;
    };
    let Some(left) = steps.checked_sub(1 + known.tests.len() as u32) else {
        return true;
    };
    *steps = left;
    if known.and(&first.tests).is_none() {
        return search(known, rest, steps);
    }
    known
        .ways(&first.tests)
        .chain(first.not.iter().filter_map(|tests| known.and(tests)))
        .any(|known| search(&known, rest, steps))
}

/// Whether the first test, which agrees with the second, leaves it nothing to
/// ask.
pub(super) fn covers(known: &Test, test: &Test) -> bool {
    known.field == test.field && number(test.mask) & !number(known.mask) == 0
}
