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

/// Says that so many messages of a path are in the user tier no more: until that is all,
/// the kernel tier runs none of the path.
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

    #[test]
    fn what_has_left_the_user_tier_is_not_counted_there() {
        assert!(all_that_left_is_subtracted());
        for bug in [Bug::CountNotSubtracted, Bug::RunCountedOnce] {
            assert!(!bug::with(bug, all_that_left_is_subtracted), "{bug:?}");
        }
    }
}
