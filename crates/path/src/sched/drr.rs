//! Deficit round robin: each path that has messages gets the same time.
//!
//! If a turn were a number of messages, a path whose stages take long would have
//! most of the CPU, and what the others wait would be its to choose. So a turn is a
//! time, [`QUANTUM`]. A message is not divided: a path that takes longer owes the
//! excess and skips as many turns (M. Shreedhar and G. Varghese, *Efficient Fair
//! Queuing Using Deficit Round Robin*, 1996, §III, with ns for bytes).
//!
//! Where all paths that have messages owe more than a turn, as many rounds as the
//! least of them owes are skipped at once: a pick costs at most three looks at each
//! of these paths.

use std::collections::VecDeque;
use std::time::Duration;

use super::{Policy, Turn};
use crate::bug::{self, Bug};
use crate::places::{IdMap, PathId};
use crate::stage::Direction;
use crate::time::Time;

/// What a path may take in a turn: the default budget of one message of a handler.
pub const QUANTUM: Duration = Duration::from_micros(50);

/// What a path owes at most for what it has done outside its turns. Its messages wait no
/// longer for that than for so much of others'.
pub const MOST_OWED: Duration = Duration::from_millis(1);

/// Most messages in a turn. Cheap messages are over long before the quantum is;
/// what they send should not wait for that.
pub const BATCH: u32 = 32;

/// The paths that have messages, in turn.
#[derive(Debug, Default)]
pub struct Drr {
    ready: VecDeque<PathId>,
    accounts: IdMap<Account>,
}

/// What the policy keeps of a path.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    /// What it took beyond its turns.
    owed: Duration,
    /// Whether it is in `ready`, or has the turn.
    listed: bool,
}

impl Drr {
    #[inline]
    fn account(&mut self, path: PathId) -> &mut Account {
        self.accounts.get_or_put(path, Account::default)
    }

    /// Skips the rounds in which every path would pay off a part of what it owes
    /// and none could run.
    fn skip_rounds(&mut self) {
        let owed = self.ready.iter().filter_map(|path| self.accounts.at(*path));
        let least = owed.map(|account| account.owed).min().unwrap_or_default();
        let rounds = least.as_nanos() / QUANTUM.as_nanos();
        let paid = QUANTUM.saturating_mul(u32::try_from(rounds).unwrap_or(u32::MAX));
        for path in &self.ready {
            if let Some(account) = self.accounts.at_mut(*path) {
                account.owed = account.owed.saturating_sub(paid);
            }
        }
    }

    /// The next path of this round that may run.
    fn next(&mut self) -> Option<Turn> {
        for _ in 0..self.ready.len() {
            let path = self.ready.pop_front()?;
            // One that was removed has no account.
            let Some(account) = self.accounts.at_mut(path) else {
                continue;
            };
            if account.owed >= QUANTUM && !bug::is(Bug::DebtForgotten) {
                account.owed -= QUANTUM;
                self.ready.push_back(path);
                continue;
            }
            let time = if bug::is(Bug::TurnWithoutEnd) {
                Duration::MAX
            } else {
                QUANTUM.saturating_sub(account.owed)
            };
            return Some(Turn {
                path,
                direction: None,
                messages: BATCH,
                time,
            });
        }
        None
    }
}

impl Policy for Drr {
    #[inline]
    fn arrived(&mut self, path: PathId, _direction: Direction, _now: Time) {
        let account = self.account(path);
        if !account.listed {
            account.listed = true;
            self.ready.push_back(path);
        }
    }

    /// Bounded by the paths that have messages.
    fn pick(&mut self, _now: Time) -> Option<Turn> {
        self.next().or_else(|| {
            self.skip_rounds();
            self.next()
        })
    }

    fn ready(&self) -> usize {
        self.ready.len()
    }

    fn ended(&mut self, turn: Turn, took: Duration, more: bool) {
        if let Some(account) = self.accounts.at_mut(turn.path) {
            account.owed = (account.owed + took).saturating_sub(QUANTUM);
            account.listed = more;
            if more {
                self.ready.push_back(turn.path);
            }
        }
    }

    fn used(&mut self, path: PathId, time: Duration) {
        let account = self.account(path);
        // A path that has no messages skips no turns, so what it owes would have no end.
        let most = if bug::is(Bug::DebtWithoutEnd) {
            Duration::MAX
        } else {
            account.owed.max(MOST_OWED)
        };
        account.owed = (account.owed + time).min(most);
    }

    fn removed(&mut self, path: PathId) {
        self.accounts.remove(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::places::Ids;

    /// Messages between two looks at the clock ([`crate::engine`]).
    const LOOK: u32 = 4;

    /// What each of these gets of 10 s, if all have messages without end that take
    /// so many us; and the longest that the first waits for its next turn.
    fn shares<const N: usize>(costs: [u64; N]) -> ([Duration; N], Duration) {
        let mut ids = Ids::default();
        let paths: [PathId; N] = std::array::from_fn(|_| ids.take());
        let mut drr = Drr::default();
        for path in paths {
            drr.arrived(path, Direction::Forward, Time(0));
        }
        let mut got = [Duration::ZERO; N];
        let (mut now, mut last, mut longest) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
        while now < Duration::from_secs(10) {
            let turn = drr.pick(Time(0)).expect("all have messages");
            let i = paths.iter().position(|path| *path == turn.path).unwrap();
            if i == 0 {
                longest = now.saturating_sub(last).max(longest);
            }
            let mut took = Duration::ZERO;
            for message in 0..turn.messages {
                if message > 0 && message.is_multiple_of(LOOK) && took >= turn.time {
                    break;
                }
                took += Duration::from_micros(costs[i]);
            }
            drr.ended(turn, took, true);
            got[i] += took;
            now += took;
            if i == 0 {
                last = now;
            }
        }
        (got, longest)
    }

    /// A path with short messages gets as much time as one with long messages.
    fn time_is_shared() -> bool {
        let (got, _) = shares([2, 60, 50, 10_000]);
        let fair = got.iter().sum::<Duration>() / got.len() as u32;
        got.iter().all(|time| time.abs_diff(fair) < fair / 20)
    }

    /// What the others take between two turns of a path is a few of their messages.
    fn nobody_waits_long() -> bool {
        let (_, longest) = shares([1, 60, 60]);
        longest <= 2 * LOOK * Duration::from_micros(60)
    }

    #[test]
    fn shares_and_waits() {
        assert!(time_is_shared());
        assert!(nobody_waits_long());
    }

    /// A path whose timers have taken a second waits no longer for its turn than 1 ms of
    /// another's messages.
    fn timers_are_paid_for_and_forgotten() -> bool {
        let mut ids = Ids::default();
        let [clock, other] = [ids.take(), ids.take()];
        let mut drr = Drr::default();
        for _ in 0..20_000 {
            drr.used(clock, QUANTUM);
        }
        for path in [clock, other] {
            drr.arrived(path, Direction::Forward, Time(0));
        }
        let others = (0..20_000).take_while(|_| {
            let Some(turn) = drr.pick(Time(0)) else {
                return false;
            };
            drr.ended(turn, QUANTUM, true);
            turn.path == other
        });
        let most = MOST_OWED.as_micros() / QUANTUM.as_micros();
        others.count() as u128 == most
    }

    #[test]
    fn debts_have_an_end() {
        assert!(timers_are_paid_for_and_forgotten());
        let forever = || timers_are_paid_for_and_forgotten();
        assert!(!bug::with(Bug::DebtWithoutEnd, forever));
    }

    #[test]
    fn bugs_are_noticed() {
        assert!(!bug::with(Bug::DebtForgotten, time_is_shared));
        assert!(!bug::with(Bug::TurnWithoutEnd, nobody_waits_long));
    }

    /// However much it owes, it has the next turn at once if no other path has messages.
    #[test]
    fn a_path_alone_has_all_the_time() {
        let path = Ids::default().take();
        let mut drr = Drr::default();
        drr.arrived(path, Direction::Forward, Time(0));
        for _ in 0..1000 {
            let turn = drr.pick(Time(0)).expect("it has messages");
            assert_eq!((turn.path, turn.time <= QUANTUM), (path, true));
            drr.ended(turn, Duration::from_secs(1), true);
        }
    }

    /// Rounds that are skipped are paid by all: who took 10 quanta has the next turn when the
    /// other one has had as many.
    #[test]
    fn where_all_owe_the_one_that_owes_least_is_next() {
        let mut ids = Ids::default();
        let (much, less) = (ids.take(), ids.take());
        let mut drr = Drr::default();
        for (path, took) in [(much, 10), (less, 4)] {
            drr.arrived(path, Direction::Forward, Time(0));
            let turn = drr.pick(Time(0)).expect("it has messages");
            drr.ended(turn, took * QUANTUM, false);
        }
        for path in [much, less] {
            drr.arrived(path, Direction::Forward, Time(0));
        }
        for quantum in 4..10 {
            let turn = drr.pick(Time(0)).expect("both have messages");
            assert_eq!(turn.path, less, "after {quantum} quanta");
            drr.ended(turn, QUANTUM, true);
        }
        assert_eq!(drr.pick(Time(0)).map(|turn| turn.path), Some(much));
    }

    #[test]
    fn a_path_without_messages_is_not_picked() {
        let mut ids = Ids::default();
        let (first, second) = (ids.take(), ids.take());
        let mut drr = Drr::default();
        for path in [first, second, first] {
            drr.arrived(path, Direction::Forward, Time(0));
        }
        drr.removed(second);
        let turn = drr.pick(Time(0)).expect("it has messages");
        assert_eq!(turn.path, first);
        drr.ended(turn, Duration::ZERO, false);
        assert_eq!(drr.pick(Time(0)), None);
        drr.arrived(first, Direction::Backward, Time(0));
        assert_eq!(drr.pick(Time(0)).map(|turn| turn.path), Some(first));
    }

    /// The time of its timers is part of what a path may take.
    #[test]
    fn timers_are_paid_for() {
        let mut ids = Ids::default();
        let (timed, other) = (ids.take(), ids.take());
        let mut drr = Drr::default();
        drr.used(timed, 3 * QUANTUM);
        drr.arrived(timed, Direction::Forward, Time(0));
        drr.arrived(other, Direction::Forward, Time(0));
        for _ in 0..3 {
            let turn = drr.pick(Time(0)).expect("both have messages");
            assert_eq!(turn.path, other);
            drr.ended(turn, QUANTUM, true);
        }
        assert_eq!(drr.pick(Time(0)).map(|turn| turn.path), Some(timed));
    }
}
