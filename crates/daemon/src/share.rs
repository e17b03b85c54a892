//! A path's share of the user tier: the worker's account of it.
//!
//! It is the bucket of the kernel tier ([`ashway_abi::share`]), for paths whose messages
//! come to the worker whatever they have used: on packet sockets, and by a program of the
//! user tier. Of a path in the kernel tier programs keep the account, and what they lead
//! here is the lazy way already.
//!
//! Paths of modules have theirs, too, whatever they end in: it is for the messages that come
//! to the path, not for what its stages do by themselves.
//!
//! What may not run yet waits, [`LAZY_MESSAGES`] at most, in the order it came; the rest is
//! dropped before anything is done for it. With XDP the program drops it, by the two words
//! that it is told.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ashway_abi::share::{Account, Mode, Terms};
use ashway_abi::trusted::LAZY_MESSAGES;

use crate::bug::{self, Bug};

/// A path's account, which its runs at all interfaces draw on.
#[derive(Debug)]
pub(crate) struct Purse {
    terms: Terms,
    /// The most that a run is charged, in ns: the worker is a process, and for the rest of
    /// a longer time somebody else had its CPU.
    most: u64,
    /// Only the worker writes it; the node looks at it when it is asked.
    account: Mutex<Account>,
    /// Whether messages run whatever was used.
    open: AtomicBool,
    /// Messages that wait, at all interfaces.
    queued: AtomicU32,
    /// Those of them that no program counts: its number's, or of all paths that have this
    /// in common.
    waiting: Arc<AtomicU32>,
}

/// What a message is charged beyond its handler's budget, at most, in ns: slices that begin
/// within it, the stages below, and sending. Measured: 6 to 16 us.
const BESIDE_NS: u64 = 50_000;

/// The most that a message of a path of modules is charged, in ns.
const MODULES_NS: u64 = 1_000_000;

impl Purse {
    /// Of a path in the user tier that ends in a handler with this budget, in ns, and has
    /// used nothing. What waits and no program counts is counted in `waiting`.
    #[must_use]
    pub(crate) fn new(terms: Terms, budget: u64, waiting: Arc<AtomicU32>) -> Self {
        Self::charging(terms, budget + BESIDE_NS, waiting)
    }

    /// Of a path of modules, one of several whose waiting messages are counted together.
    #[must_use]
    pub(crate) fn of_modules(terms: Terms, waiting: Arc<AtomicU32>) -> Self {
        Self::charging(terms, MODULES_NS, waiting)
    }

    fn charging(terms: Terms, most: u64, waiting: Arc<AtomicU32>) -> Self {
        Self {
            terms,
            most,
            account: Mutex::default(),
            open: AtomicBool::new(false),
            queued: AtomicU32::new(0),
            waiting,
        }
    }

    fn account(&self) -> MutexGuard<'_, Account> {
        // It is consistent between any two statements.
        self.account.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has messages run whatever was used, or no longer: in the kernel tier programs keep
    /// the account, and of a path that goes nobody waits for what is paid.
    pub(crate) fn set_open(&self, open: bool) {
        self.open.store(open, Ordering::Release);
    }

    /// Whether messages run whatever was used.
    #[must_use]
    pub(crate) fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    /// Whether a message may run `now`, in ns.
    pub(crate) fn may_run(&self, now: u64) -> bool {
        self.is_open() || self.account().may_run(now)
    }

    /// A message was run from `began` to `ended`, in ns.
    pub(crate) fn ran(&self, began: u64, ended: u64) {
        if !self.is_open() && !bug::is(Bug::RunNotCharged) {
            let most = if bug::is(Bug::TimeNotCharged) {
                0
            } else {
                self.most
            };
            let ended = ended.min(began.saturating_add(most));
            self.account().ran(self.terms, began, ended);
        }
    }

    /// How the path stands.
    #[must_use]
    pub(crate) fn stands(&self) -> Account {
        *self.account()
    }

    /// When a message that waits may run, in ns.
    #[must_use]
    pub(crate) fn due(&self) -> u64 {
        if self.is_open() {
            0
        } else {
            self.account().due()
        }
    }

    /// What is said of the path `now`, in ns.
    #[must_use]
    pub(crate) fn mode(&self, now: u64) -> Mode {
        let waits = self.queued.load(Ordering::Acquire) > 0;
        Mode::at(now, self.account().lazy_at, waits)
    }
}

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
    pub(crate) fn admit(&self, purse: &Purse, now: u64) -> Admission {
        let first = self.is_empty() || bug::is(Bug::WaitingOvertaken);
        if first && purse.may_run(now) {
            Admission::Runs
        } else if purse.queued.load(Ordering::Acquire) < LAZY_MESSAGES
            || bug::is(Bug::WaitsWithoutBound)
        {
            Admission::Waits
        } else {
            Admission::Over
        }
    }

    /// Has it wait, behind all others.
    pub(crate) fn push(&mut self, purse: &Purse, message: T, counted: bool) {
        purse.queued.fetch_add(1, Ordering::AcqRel);
        if !counted {
            purse.waiting.fetch_add(1, Ordering::AcqRel);
        }
        self.0.push_back((message, counted));
    }

    /// The next message, if it may run `now`, in ns; and whether a program counts it.
    pub(crate) fn take(&mut self, purse: &Purse, now: u64) -> Option<(T, bool)> {
        if self.is_empty() || !purse.may_run(now) {
            return None;
        }
        let (message, counted) = self.0.pop_front()?;
        purse.queued.fetch_sub(1, Ordering::AcqRel);
        if !counted {
            purse.waiting.fetch_sub(1, Ordering::AcqRel);
        }
        Some((message, counted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const BUDGET: u64 = 50_000;

    fn purse(per_mille: u32) -> Purse {
        Purse::new(Terms::new(per_mille, None), BUDGET, Arc::default())
    }

    /// Messages of 10 us each, so many a second for two seconds; those that ran, were
    /// dropped, and wait, and whether they ran in order.
    fn offer(purse: &Purse, per_second: u64) -> ([u64; 3], bool) {
        let mut waiting = Waiting::default();
        let ([mut ran, mut dropped], mut last, mut in_order) = ([0; 2], None, true);
        for message in 0..2 * per_second {
            let now = SECOND + message * SECOND / per_second;
            let mut run = |message: u64| {
                in_order &= last < Some(message);
                last = Some(message);
                ran += 1;
                purse.ran(now, now + 10_000);
            };
            match waiting.admit(purse, now) {
                Admission::Runs => run(message),
                Admission::Waits => waiting.push(purse, message, false),
                Admission::Over => dropped += 1,
            }
            while let Some((message, _)) = waiting.take(purse, now) {
                run(message);
            }
        }
        let waits = u64::from(purse.waiting.load(Ordering::Acquire));
        assert_eq!(waits, waiting.0.len() as u64);
        ([ran, dropped, waits], in_order)
    }

    /// Below the share all run; above it the share, and not less at a higher load.
    fn goodput_rises_to_the_share_and_stays() -> bool {
        [10_000, 20_000, 40_000, 100_000].into_iter().all(|load| {
            let purse = purse(200);
            let ([ran, dropped, waits], _) = offer(&purse, load);
            assert_eq!(ran + dropped + waits, 2 * load);
            if load <= 20_000 {
                ran == 2 * load
            } else {
                (40_000..40_500).contains(&ran)
            }
        })
    }

    fn few_wait() -> bool {
        let purse = purse(10);
        let ([_, dropped, waits], _) = offer(&purse, 50_000);
        dropped > 0 && waits <= u64::from(LAZY_MESSAGES)
    }

    fn none_is_overtaken() -> bool {
        [15_000, 30_000].into_iter().all(|load| {
            let purse = purse(200);
            offer(&purse, load).1
        })
    }

    #[test]
    fn a_share_is_kept_in_order() {
        assert!(goodput_rises_to_the_share_and_stays());
        assert!(few_wait());
        assert!(none_is_overtaken());
    }

    #[test]
    fn an_open_purse_is_not_asked() {
        let purse = purse(1);
        purse.set_open(true);
        let ([ran, ..], _) = offer(&purse, 50_000);
        assert_eq!((ran, purse.stands()), (100_000, Account::default()));
        assert_eq!((purse.due(), purse.mode(9 * SECOND)), (0, Mode::Eager));
    }

    #[test]
    fn time_that_others_had_is_not_charged() {
        let purse = purse(500);
        purse.ran(SECOND, SECOND + BUDGET);
        assert_eq!(purse.stands().paid, SECOND + 2 * BUDGET);
        purse.ran(2 * SECOND, 3 * SECOND);
        assert_eq!(purse.stands().paid, 2 * SECOND + 2 * (BUDGET + BESIDE_NS));
    }

    #[test]
    fn all_interfaces_have_one_room() {
        let purse = purse(1);
        let mut queues = [(); 2].map(|()| Waiting::default());
        purse.ran(SECOND, SECOND + BUDGET);
        let mut now = SECOND;
        while purse.may_run(now) {
            purse.ran(now, now + BUDGET);
            now += BUDGET;
        }
        for message in 0..LAZY_MESSAGES {
            let queue = &mut queues[message as usize % 2];
            assert_eq!(queue.admit(&purse, now), Admission::Waits);
            queue.push(&purse, message, false);
        }
        assert_eq!(queues[0].admit(&purse, now), Admission::Over);
        assert_eq!(purse.mode(now + 100 * SECOND), Mode::Lazy);
    }

    /// What waits as a whole frame is in the user tier, like what a program counts there.
    fn frames_keep_the_number() -> bool {
        let instance = crate::faults::tests::instance("frames");
        let purse = Purse::new(Terms::new(1, None), BUDGET, instance.frames(3));
        let mut waiting = Waiting::default();
        for counted in [false, true, false] {
            waiting.push(&purse, (), counted);
        }
        let kept = instance.in_user(3) == 2 && instance.in_user(2) == 0;
        while waiting.take(&purse, 0).is_some() {}
        kept && instance.in_user(3) == 0
    }

    #[test]
    fn what_waits_keeps_its_paths_number() {
        assert!(frames_keep_the_number());
        assert!(!bug::with(Bug::FramesForgotten, frames_keep_the_number));
    }

    #[test]
    fn bugs_are_noticed() {
        for bug in [Bug::RunNotCharged, Bug::TimeNotCharged] {
            assert!(!bug::with(bug, goodput_rises_to_the_share_and_stays));
        }
        assert!(!bug::with(Bug::WaitsWithoutBound, few_wait));
        assert!(!bug::with(Bug::WaitingOvertaken, none_is_overtaken));
    }
}
