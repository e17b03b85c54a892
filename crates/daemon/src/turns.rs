//! Whose turn it is: the worker's time, shared by deficit round robin.
//!
//! One worker looks at all instances' rings, one after the other. If a turn were a
//! number of messages, an instance whose handler uses all of a long budget would
//! have most of the time, and what the others wait would be its to choose. So a
//! turn is a time, [`QUANTUM`]: whoever takes longer, because a message is not
//! divided, owes the rest and stands back for as many turns (M. Shreedhar and G.
//! Varghese, *Efficient Fair Queuing Using Deficit Round Robin*, 1996, §III, with ns
//! for bytes). A turn in which there is nothing to do is over in tens of ns, so
//! nobody stands back for long while nobody else has work.

use std::time::Duration;

use crate::bug::{self, Bug};

/// What an instance may take in a turn: the default budget of one message.
const QUANTUM: Duration = Duration::from_micros(50);

/// Messages between two looks at the clock, which cost 34 ns each.
pub(crate) const LOOK: u32 = 4;

/// An instance's account with the worker.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// What it took beyond its turns.
    owed: Duration,
}

impl Turns {
    /// Its turn, and how long that is; none if it stands back.
    pub(crate) fn next(&mut self) -> Option<Duration> {
        if bug::is(Bug::TurnWithoutEnd) {
            return Some(Duration::MAX);
        }
        if self.owed >= QUANTUM && !bug::is(Bug::DebtForgotten) {
            self.owed -= QUANTUM;
            return None;
        }
        Some(QUANTUM.saturating_sub(self.owed))
    }

    /// It took so long in its turn.
    pub(crate) fn took(&mut self, time: Duration) {
        self.owed = (self.owed + time).saturating_sub(QUANTUM);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Messages that a ring gives in a turn, at most.
    const BATCH: u32 = 32;

    /// What each of these gets of 10 s, if all have messages without end that take
    /// so many us; and the longest that the first waits for its next turn.
    fn shares<const N: usize>(costs: [u64; N]) -> ([Duration; N], Duration) {
        let mut turns: [Turns; N] = std::array::from_fn(|_| Turns::default());
        let mut got = [Duration::ZERO; N];
        let (mut now, mut last, mut longest) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
        while now < Duration::from_secs(10) {
            for (i, turns) in turns.iter_mut().enumerate() {
                let Some(turn) = turns.next() else { continue };
                if i == 0 {
                    longest = now.saturating_sub(last).max(longest);
                }
                let mut taken = Duration::ZERO;
                for message in 0..BATCH {
                    if message > 0 && message.is_multiple_of(LOOK) && taken >= turn {
                        break;
                    }
                    taken += Duration::from_micros(costs[i]);
                }
                turns.took(taken);
                got[i] += taken;
                now += taken;
                if i == 0 {
                    last = now;
                }
            }
        }
        (got, longest)
    }

    /// Who has short messages gets as much time as who has long ones.
    fn time_is_shared() -> bool {
        let (got, _) = shares([2, 60, 50, 10_000]);
        let fair = got.iter().sum::<Duration>() / got.len() as u32;
        got.iter().all(|time| time.abs_diff(fair) < fair / 20)
    }

    /// What the others take in between is a few of their messages.
    fn nobody_waits_long() -> bool {
        let (_, longest) = shares([1, 60, 60]);
        longest <= 2 * LOOK * Duration::from_micros(60)
    }

    /// Alone, it stands back for looks that cost nothing, four for each message of
    /// many turns.
    #[test]
    fn alone_it_has_all_the_time() {
        let mut turns = Turns::default();
        let looks = (0..1_000).filter(|_| match turns.next() {
            Some(_) => {
                turns.took(Duration::from_micros(240));
                true
            }
            None => false,
        });
        assert!(looks.count() > 1_000 / 5);
    }

    #[test]
    fn shares_and_waits() {
        assert!(time_is_shared());
        assert!(nobody_waits_long());
    }

    #[test]
    fn bugs_are_noticed() {
        assert!(!bug::with(Bug::DebtForgotten, time_is_shared));
        assert!(!bug::with(Bug::TurnWithoutEnd, nobody_waits_long));
    }
}
