//! What waits for its path's share of the user tier, on paths that end in a handler.
//!
//! The account is [`ShareAccount`]. What may not run yet waits, [`LAZY_MESSAGES`] at most, in the
//! order it came; the rest is dropped before anything is done for it. With XDP the program
//! drops it, by the two words that it is told.

use std::collections::VecDeque;

use ashway_abi::trusted::LAZY_MESSAGES;
use ashway_path::sched::share::ShareAccount;

use crate::bug::{self, Bug};

/// What is to become of a message that has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// It runs.
    Runs,
    /// It [waits](Waiting::push).
    Waits,
    /// There is no room for it.
    Over,
}

/// What waits for its path's share: messages, and whether a program counts them.
#[derive(Debug)]
pub(crate) struct Waiting<T>(VecDeque<(T, bool)>);

impl<T> Default for Waiting<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T> Waiting<T> {
    /// Whether none waits.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What becomes of a message that comes `now`, in ns: none overtakes another.
    pub(crate) fn admit(&self, share: &ShareAccount, now: u64) -> Admission {
        let first = self.is_empty() || bug::is(Bug::WaitingOvertaken);
        if first && share.may_run(now) {
            Admission::Runs
        } else if share.queued() < LAZY_MESSAGES || bug::is(Bug::WaitsWithoutBound) {
            Admission::Waits
        } else {
            Admission::Over
        }
    }

    /// Has it wait, behind all others.
    pub(crate) fn push(&mut self, share: &ShareAccount, message: T, counted: bool) {
        share.enqueued(counted);
        self.0.push_back((message, counted));
    }

    /// The next message, if it may run `now`, in ns; and whether a program counts it.
    pub(crate) fn take(&mut self, share: &ShareAccount, now: u64) -> Option<(T, bool)> {
        if self.is_empty() || !share.may_run(now) {
            return None;
        }
        let (message, counted) = self.0.pop_front()?;
        share.dequeued(counted);
        Some((message, counted))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ashway_abi::share::{Mode, Terms};

    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const BUDGET: u64 = 50_000;

    fn share(per_mille: u32) -> ShareAccount {
        ShareAccount::new(Terms::new(per_mille, None), BUDGET, Arc::default())
    }

    /// Messages of 10 us each, so many a second for two seconds; those that ran, were
    /// dropped, and wait, and whether they ran in order.
    fn offer(share: &ShareAccount, per_second: u64) -> ([u64; 3], bool) {
        let mut waiting = Waiting::default();
        let ([mut ran, mut dropped], mut last, mut in_order) = ([0; 2], None, true);
        for message in 0..2 * per_second {
            let now = SECOND + message * SECOND / per_second;
            let mut run = |message: u64| {
                in_order &= last < Some(message);
                last = Some(message);
                ran += 1;
                share.ran(now, now + 10_000);
            };
            match waiting.admit(share, now) {
                Admission::Runs => run(message),
                Admission::Waits => waiting.push(share, message, false),
                Admission::Over => dropped += 1,
            }
            while let Some((message, _)) = waiting.take(share, now) {
                run(message);
            }
        }
        let waits = u64::from(share.uncounted());
        assert_eq!(waits, waiting.0.len() as u64);
        ([ran, dropped, waits], in_order)
    }

    fn few_wait() -> bool {
        let share = share(10);
        let ([_, dropped, waits], _) = offer(&share, 50_000);
        dropped > 0 && waits <= u64::from(LAZY_MESSAGES)
    }

    fn none_is_overtaken() -> bool {
        [15_000, 30_000].into_iter().all(|load| {
            let share = share(200);
            offer(&share, load).1
        })
    }

    #[test]
    fn few_wait_and_in_order() {
        assert!(few_wait());
        assert!(none_is_overtaken());
    }

    #[test]
    fn all_interfaces_have_one_room() {
        let share = share(1);
        let mut queues = [(); 2].map(|()| Waiting::default());
        share.ran(SECOND, SECOND + BUDGET);
        let mut now = SECOND;
        while share.may_run(now) {
            share.ran(now, now + BUDGET);
            now += BUDGET;
        }
        for message in 0..LAZY_MESSAGES {
            let queue = &mut queues[message as usize % 2];
            assert_eq!(queue.admit(&share, now), Admission::Waits);
            queue.push(&share, message, false);
        }
        assert_eq!(queues[0].admit(&share, now), Admission::Over);
        assert_eq!(share.mode(now + 100 * SECOND), Mode::Lazy);
    }

    /// What waits as a whole frame is in the user tier, like what a program counts there.
    fn frames_keep_the_number() -> bool {
        let instance = crate::faults::tests::instance("frames");
        let share = ShareAccount::new(Terms::new(1, None), BUDGET, instance.frames(3));
        let mut waiting = Waiting::default();
        for counted in [false, true, false] {
            waiting.push(&share, (), counted);
        }
        let kept = instance.in_user(3) == 2 && instance.in_user(2) == 0;
        while waiting.take(&share, 0).is_some() {}
        kept && instance.in_user(3) == 0
    }

    #[test]
    fn what_waits_keeps_its_paths_number() {
        assert!(frames_keep_the_number());
        assert!(!bug::with(Bug::FramesForgotten, frames_keep_the_number));
    }

    #[test]
    fn bugs_are_noticed() {
        assert!(!bug::with(Bug::WaitsWithoutBound, few_wait));
        assert!(!bug::with(Bug::WaitingOvertaken, none_is_overtaken));
    }
}
