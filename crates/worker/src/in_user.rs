//! How many messages of a path are in the user tier: a word that programs add to and the
//! worker subtracts from ([`trusted::PATHS`]).

use std::sync::atomic::{AtomicU32, Ordering};

use ashway_abi::trusted;

use crate::bug::{self, Bug};

/// Subtracts messages that have left the user tier from the words that count them, by
/// their paths' keys; where no program counts, there is none.
pub(crate) fn leave<'w, K: PartialEq + Copy>(
    ended: impl Iterator<Item = K>,
    word: impl Fn(K) -> Option<&'w AtomicU32>,
) {
    let mut ended = ended.peekable();
    while let Some(key) = ended.next() {
        let mut messages = 1;
        while ended.next_if_eq(&key).is_some() {
            // Programs write that word, too: it changes hands once.
            messages += 1;
        }
        if bug::is(Bug::RunCountedOnce) {
            messages = 1;
        }
        if let Some(word) = word(key) {
            subtract(word, messages);
        }
    }
}

/// Subtracts messages from the buckets of their flows, before [`leave`] does from their paths'
/// words: where a path has none in the user tier, no bucket has one of it. What stands in the
/// place of a bucket has no word.
pub(crate) fn leave_flows<'w, K: PartialEq + Copy>(
    ended: impl Iterator<Item = (K, u32)>,
    word: impl Fn(K, u32) -> Option<&'w AtomicU32>,
) {
    if !bug::is(Bug::FlowNotSubtracted) {
        leave(ended, |(key, flow)| word(key, flow));
    }
}

/// Counts so many messages more, of a path and, behind that, of a flow, one of which is counted.
pub(crate) fn add(path: &AtomicU32, flow: Option<&AtomicU32>, messages: u32) {
    path.fetch_add(messages, Ordering::AcqRel);
    if let Some(flow) = flow
        && !bug::is(Bug::OneOfManyCounted)
    {
        flow.fetch_add(messages, Ordering::AcqRel);
    }
}

/// Says that so many messages of a path, or a flow, are in the user tier no more: until that is
/// all, the kernel tier runs none of the flow.
fn subtract(word: &AtomicU32, messages: u32) {
    if !bug::is(Bug::CountNotSubtracted) {
        let less = |word| Some(trusted::less(word, messages));
        let _ = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Once all have left, nobody is counted; a path that drains may be run again.
    fn all_that_left_is_subtracted() -> bool {
        let draining = trusted::DRAINING;
        [&[0, 0, 1, 1, 1, 0, 2][..], &[2; 32], &[1, 2, 1, 2], &[]]
            .into_iter()
            .all(|ended: &[usize]| {
                let of = |path| ended.iter().filter(|known| **known == path).count() as u32;
                let words = [of(0), of(1) | draining, of(2) + 1].map(AtomicU32::new);
                leave(ended.iter().copied(), |path| Some(&words[path]));
                let left = words.map(AtomicU32::into_inner);
                // Of a path that drains and had none, nobody has left.
                let drained = if of(1) == 0 { draining } else { 0 };
                left == [0, drained, 1]
            })
    }

    /// Each flow's messages leave its bucket, also those that came as many behind one header, and
    /// one that drains may be run again; what has no bucket leaves none.
    fn flows_leave_their_buckets() -> bool {
        let path = AtomicU32::new(7);
        let words = [1 | trusted::DRAINING, 3].map(AtomicU32::new);
        add(&path, Some(&words[0]), 2);
        let ended = [(0, 0), (0, 0), (0, 1), (1, 1), (0, 9), (0, 0), (1, 1)];
        leave_flows(ended.into_iter(), |_, flow: u32| words.get(flow as usize));
        path.into_inner() == 9 && words.map(AtomicU32::into_inner) == [0, 0]
    }

    #[test]
    fn what_has_left_is_not_counted_in_its_flow() {
        assert!(flows_leave_their_buckets());
        for bug in [
            Bug::FlowNotSubtracted,
            Bug::OneOfManyCounted,
            Bug::CountNotSubtracted,
            Bug::RunCountedOnce,
        ] {
            assert!(!bug::with(bug, flows_leave_their_buckets), "{bug:?}");
        }
    }

    #[test]
    fn what_has_left_the_user_tier_is_not_counted_there() {
        assert!(all_that_left_is_subtracted());
        for bug in [Bug::CountNotSubtracted, Bug::RunCountedOnce] {
            assert!(!bug::with(bug, all_that_left_is_subtracted), "{bug:?}");
        }
    }
}
