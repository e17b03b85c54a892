//! When paths are to be woken.
//!
//! A heap of times, and for each path the time that counts: a path that asks for an
//! earlier time gets another entry, and the entry that it had is skipped when it
//! comes up. So the heap holds one entry for each path that wants to be woken, and
//! one for each time such a wish moved forward.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::places::{IdMap, PathId};
use crate::time::Time;

/// The wishes of all paths.
#[derive(Debug, Default)]
pub(super) struct Alarms {
    heap: BinaryHeap<Reverse<(Time, PathId)>>,
    /// By path, the entry that counts.
    armed: IdMap<Time>,
}

impl Alarms {
    /// Wakes the path at this time, or earlier if it was to be woken earlier.
    /// O(log n).
    #[inline]
    pub(super) fn set(&mut self, path: PathId, time: Time) {
        if self.armed.at(path).is_none_or(|armed| time < *armed) {
            self.armed.put(path, time);
            self.heap.push(Reverse((time, path)));
        }
    }

    /// A path that is due by `now`; it has to be set again. O(log n) for each entry
    /// that is skipped.
    pub(super) fn take(&mut self, now: Time) -> Option<PathId> {
        while let Some(Reverse((time, path))) = self.heap.peek().copied() {
            if time > now {
                return None;
            }
            self.heap.pop();
            if self.armed.at(path) == Some(&time) {
                self.armed.remove(path);
                return Some(path);
            }
        }
        None
    }

    /// When to call [`Alarms::take`]; it may find nothing then.
    #[inline]
    pub(super) fn next(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse((time, _))| *time)
    }

    /// Whether there is nothing to wait for.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// Forgets a path.
    pub(super) fn remove(&mut self, path: PathId) {
        self.armed.remove(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::places::Ids;

    #[test]
    fn the_earliest_wish_counts_and_counts_once() {
        let mut ids = Ids::default();
        let (first, second) = (ids.take(), ids.take());
        let mut alarms = Alarms::default();
        for (path, time) in [(first, 9), (first, 5), (first, 7), (second, 6)] {
            alarms.set(path, Time(time));
        }
        assert_eq!(alarms.next(), Some(Time(5)));
        assert_eq!(alarms.take(Time(4)), None);
        assert_eq!(alarms.take(Time(6)), Some(first));
        assert_eq!(alarms.take(Time(6)), Some(second));
        assert_eq!(alarms.take(Time(100)), None);
        assert_eq!(alarms.next(), None);
    }

    /// A stage says again with each message when it wants to be woken.
    #[test]
    fn a_wish_that_is_repeated_takes_no_room() {
        let path = Ids::default().take();
        let mut alarms = Alarms::default();
        for _ in 0..1000 {
            alarms.set(path, Time(5));
            alarms.set(path, Time(9));
        }
        assert_eq!(alarms.heap.len(), 1);
    }

    #[test]
    fn a_path_that_is_gone_is_not_woken() {
        let path = Ids::default().take();
        let mut alarms = Alarms::default();
        alarms.set(path, Time(1));
        alarms.remove(path);
        assert_eq!(alarms.take(Time(2)), None);
    }
}
