//! Which path has which row of counters.
//!
//! Programs and the worker count what becomes of a path's messages in its row, and a
//! message may be underway when its path has gone. So the row of such a path waits until
//! nothing of it is, and is zeroed, before another path gets it: nobody's messages are
//! counted as another's. A row that was given back is the last to be given out again.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// A row of counters: its place in the kernel's map and in
/// [`UserRows`](crate::counters::UserRows).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CounterRow(pub u32);

/// The rows that nobody has, and those that somebody had; `U` says who that was.
#[derive(Debug)]
pub struct Rows<U> {
    free: VecDeque<CounterRow>,
    left: Vec<(CounterRow, U)>,
    all: usize,
}

impl<U> Rows<U> {
    /// These rows, all free, beside so many that are somebody's.
    pub(crate) fn new(free: impl Iterator<Item = u32>, taken: usize) -> Self {
        let free: VecDeque<_> = free.map(CounterRow).collect();
        Self {
            all: taken + free.len(),
            left: Vec::new(),
            free,
        }
    }

    /// How many there are, whoever has them.
    #[must_use]
    pub const fn all(&self) -> usize {
        self.all
    }

    /// How many wait until nothing of their paths is underway.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.left.len()
    }

    /// The first of so many free rows that follow each other, to be [taken](Self::take): of one
    /// that which has been free longest, of several the first. Linear in the free rows, and
    /// sorts them, for more than one.
    #[must_use]
    pub fn next(&self, count: usize) -> Option<CounterRow> {
        if count == 1 {
            return self.free.front().copied();
        }
        let mut free: Vec<CounterRow> = self.free.iter().copied().collect();
        free.sort_unstable();
        let mut runs = free.windows(count);
        let found = runs.find(|run| run[count - 1].0 - run[0].0 == count as u32 - 1);
        found.map(|run| run[0])
    }

    /// Takes a row for a path; whether it was free.
    pub fn take(&mut self, row: CounterRow) -> bool {
        let at = self.free.iter().position(|free| *free == row);
        at.is_some_and(|at| self.free.remove(at).is_some())
    }

    /// The path of this row has gone; `user` says how to see what is left of it.
    pub fn leave(&mut self, row: CounterRow, user: U) {
        debug_assert!(!self.free.contains(&row), "it was somebody's");
        self.left.push((row, user));
    }

    /// Those whose paths have gone.
    pub fn left(&mut self) -> impl Iterator<Item = &mut U> {
        self.left.iter_mut().map(|(_, user)| user)
    }

    /// Takes those out of whose paths nothing is underway. They are zeroed by whoever asks,
    /// and [given back](Self::give_back).
    pub fn idle(&mut self, is_idle: impl Fn(&U) -> bool) -> Vec<(CounterRow, U)> {
        self.left
            .extract_if(.., |(_, user)| is_idle(user))
            .collect()
    }

    /// This row is zero, and may be anybody's.
    pub fn give_back(&mut self, row: CounterRow) {
        self.free.push_back(row);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take<U>(rows: &mut Rows<U>) -> Option<CounterRow> {
        let row = rows.next(1)?;
        rows.take(row).then_some(row)
    }

    #[test]
    fn several_rows_follow_each_other() {
        let mut rows = Rows::<()>::new(0..10, 0);
        assert_eq!(rows.next(10), Some(CounterRow(0)));
        assert_eq!(rows.next(11), None);
        assert!(rows.take(CounterRow(3)));
        assert_eq!(rows.next(4), Some(CounterRow(4)));
        assert_eq!(rows.next(7), None);
        (4..8).for_each(|row| assert!(rows.take(CounterRow(row))));
        assert_eq!(
            [3, 2, 4].map(|count| rows.next(count).map(|row| row.0)),
            [Some(0), Some(0), None]
        );
        rows.give_back(CounterRow(3));
        assert_eq!(rows.next(4), Some(CounterRow(0)));
    }

    #[test]
    fn a_row_is_somebodys_until_nothing_of_its_path_is_underway() {
        let mut rows = Rows::new(5..7, 4);
        assert_eq!(rows.all(), 6);
        for row in [5, 6] {
            assert_eq!(rows.next(1), Some(CounterRow(row)));
            assert!(rows.take(CounterRow(row)));
        }
        assert_eq!((rows.next(1), rows.take(CounterRow(5))), (None, false));

        // One that was taken from the start comes back, too.
        for (row, underway) in [(5, 2), (2, 0), (6, 1)] {
            rows.leave(CounterRow(row), underway);
        }
        assert_eq!((rows.waiting(), rows.next(1)), (3, None));
        for (row, left) in [(2, 2), (6, 1), (5, 0)] {
            let idle = rows.idle(|underway| *underway == 0);
            assert_eq!(idle, [(CounterRow(row), 0)]);
            assert_eq!(
                (rows.waiting(), rows.next(1)),
                (left, None),
                "not zeroed yet"
            );
            rows.left().for_each(|underway| *underway -= 1);
        }
    }

    #[test]
    fn the_row_that_was_given_back_last_is_given_out_last() {
        let mut rows = Rows::new(0..3, 0);
        let first = take(&mut rows).unwrap();
        rows.leave(first, ());
        for (row, ()) in rows.idle(|()| true) {
            rows.give_back(row);
        }
        let all: Vec<_> = std::iter::from_fn(|| take(&mut rows)).collect();
        assert_eq!(all, [1, 2, 0].map(CounterRow));
        assert_eq!(rows.all(), 3);
    }

    /// However paths come and go, no row is two paths' at a time, and none is lost.
    #[test]
    fn no_row_is_lost_or_given_twice() {
        let mut rows = Rows::new(3..40, 3);
        let mut taken: Vec<_> = (0..3).map(CounterRow).collect();
        let mut state = 1_u64;
        let mut below = |limit: usize| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) as usize % limit
        };
        for _ in 0..10_000 {
            match below(3) {
                0 if !taken.is_empty() => {
                    let row = taken.swap_remove(below(taken.len()));
                    rows.leave(row, below(4));
                }
                1 => {
                    rows.left()
                        .for_each(|underway| *underway = underway.saturating_sub(1));
                    for (row, _) in rows.idle(|underway| *underway == 0) {
                        rows.give_back(row);
                    }
                }
                _ => taken.extend(take(&mut rows)),
            }
            let mut all = taken.clone();
            all.extend(&rows.free);
            all.extend(rows.left.iter().map(|(row, _)| row));
            all.sort();
            assert!(all.iter().map(|row| row.0).eq(0..40), "{all:?}");
        }
    }
}
