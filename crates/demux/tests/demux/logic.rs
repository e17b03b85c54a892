//! `overlaps` and `implies` against all frames of a small world.
//!
//! The world is two bytes of Ethernet addresses of which two bits each vary,
//! and which may be missing.

use ashway_demux::{Base, Conjunction, Field, Filter, Test};
use ashway_wire::Headers;
use proptest::prelude::*;

const BYTES: [Field; 2] = [field(0), field(1)];

const fn field(offset: u16) -> Field {
    Field::Raw {
        base: Base::Eth,
        offset,
        width: 1,
    }
}

/// Every frame there is: a byte can only be there if the one before is.
fn world() -> Vec<Vec<u8>> {
    let mut frames = vec![Vec::new()];
    for a in 0..4 {
        frames.push(vec![a]);
        frames.extend((0..4).map(|b| vec![a, b]));
    }
    frames
}

fn tests() -> impl Strategy<Value = Vec<Test>> {
    let test = prop::option::of((0_u8..4, 0_u8..4));
    (test.clone(), test).prop_map(|(a, b)| {
        [a, b]
            .into_iter()
            .zip(BYTES)
            .filter_map(|(test, field)| {
                let (mask, value) = test?;
                let left = |byte| {
                    let mut bytes = [0; 16];
                    bytes[0] = byte;
                    bytes
                };
                Some(Test::new(field, left(mask), left(value)))
            })
            .collect()
    })
}

fn filter(alternatives: usize) -> impl Strategy<Value = Filter> {
    let exclusions = prop::collection::vec(tests(), 0..3);
    let one = (tests(), exclusions).prop_map(|(tests, not)| Conjunction { tests, not });
    prop::collection::vec(one, 1..=alternatives).prop_map(|any| Filter {
        text: String::new(),
        any,
    })
}

/// Numbers of the world's frames that match. The bits that do not vary are free
/// in the world, so each stands for many.
fn matching(filter: &Filter) -> Vec<usize> {
    world()
        .iter()
        .enumerate()
        .filter(|(_, frame)| filter.matches(&Headers::parse(frame), frame))
        .map(|(i, _)| i)
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn overlap_is_a_common_frame(one in filter(2), other in filter(2)) {
        let theirs = matching(&other);
        let common = matching(&one).iter().any(|i| theirs.contains(i));
        let overlap = one.overlaps(&other);
        // Never unseen; and where nothing depends on a byte being there while
        // the one before is not, seen only if so.
        prop_assert!(overlap || !common);
        prop_assert_eq!(overlap, other.overlaps(&one));
        let plain = |filter: &Filter| filter.any.iter().all(|one| one.not.is_empty());
        if plain(&one) && plain(&other) {
            prop_assert_eq!(overlap, common);
        }
    }

    #[test]
    fn implication_is_containment(one in filter(2), other in filter(3)) {
        let theirs = matching(&other);
        let contained = matching(&one).iter().all(|i| theirs.contains(i));
        prop_assert!(contained || !one.implies(&other));
        // With both bytes there, nothing is left undecided.
        let there = |filter: &Filter| filter.any.iter().all(|one| one.tests.len() == 2);
        if there(&one) {
            prop_assert_eq!(one.implies(&other), contained);
        }
    }

    #[test]
    fn narrower_is_more_specific(tests in tests(), more in tests()) {
        let all = |tests: Vec<Test>| Filter {
            text: String::new(),
            any: vec![Conjunction { tests, not: Vec::new() }],
        };
        let (wide, narrow) = (all(tests), all(more));
        if narrow.implies(&wide) && !wide.implies(&narrow) {
            let bits = |filter: &Filter| filter.any[0].specificity();
            prop_assert!(bits(&narrow) >= bits(&wide));
        }
    }
}
