//! A path's share of the user tier: the worker's account of it.
//!
//! It is the bucket of the kernel tier ([`ashway_abi::share`]), for paths whose
//! messages come to the worker whatever they have used: on packet sockets, and by a
//! program of the user tier. For a path in the kernel tier the programs keep the
//! account, and the messages that come here have been judged already.
//!
//! A share limits the messages that come to the path, not what its stages do by
//! themselves.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ashway_abi::share::{Account, Mode, Terms};

use crate::bug::{self, Bug};

/// A path's account, which the path has in common at all its interfaces. Times are
/// in ns of `CLOCK_MONOTONIC`, which the kernel tier's programs read, too.
#[derive(Debug)]
pub struct ShareAccount {
    terms: Terms,
    /// The most that a run is charged, in ns: the worker is a process, and during a
    /// longer run somebody else had its CPU.
    most: u64,
    /// Only the worker writes it; the node reads it for `status`.
    account: Mutex<Account>,
    /// Whether messages run whatever was used.
    open: AtomicBool,
    /// Messages that wait for the share, at all interfaces.
    queued: AtomicU32,
}

/// What a message is charged beyond its handler's budget, at most, in ns: slices that
/// begin within it, the stages below, and sending. Measured: 6 to 16 us.
pub const BESIDE_NS: u64 = 50_000;

/// The most that a message of a path without a handler is charged, in ns.
const MODULES_NS: u64 = 1_000_000;

impl ShareAccount {
    /// For a path that ends in a handler with this budget, in ns.
    #[must_use]
    pub fn of_handler(terms: Terms, budget: u64) -> Self {
        Self::charging(terms, budget + BESIDE_NS)
    }

    /// For a path of modules.
    #[must_use]
    pub fn of_modules(terms: Terms) -> Self {
        Self::charging(terms, MODULES_NS)
    }

    fn charging(terms: Terms, most: u64) -> Self {
        Self {
            terms,
            most,
            account: Mutex::default(),
            open: AtomicBool::new(false),
            queued: AtomicU32::new(0),
        }
    }

    fn account(&self) -> MutexGuard<'_, Account> {
        // It is consistent between any two statements.
        self.account.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets messages run whatever was used, or no longer: in the kernel tier programs
    /// keep the account, and messages of a path that goes do not wait any more.
    pub fn set_open(&self, open: bool) {
        self.open.store(open, Ordering::Release);
    }

    /// Whether messages run whatever was used.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    /// Whether a message may run `now`.
    pub fn may_run(&self, now: u64) -> bool {
        self.is_open() || self.account().may_run(now)
    }

    /// Charges a message that was run from `began` to `ended`.
    pub fn ran(&self, began: u64, ended: u64) {
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
    pub fn stands(&self) -> Account {
        *self.account()
    }

    /// When the next queued message may run.
    #[must_use]
    pub fn due(&self) -> u64 {
        if self.is_open() {
            0
        } else {
            self.account().due()
        }
    }

    /// What is said of the path `now`.
    #[must_use]
    pub fn mode(&self, now: u64) -> Mode {
        Mode::at(now, self.account().lazy_at, self.queued() > 0)
    }

    /// Messages that wait for the share.
    #[must_use]
    pub fn queued(&self) -> u32 {
        self.queued.load(Ordering::Acquire)
    }

    /// Of one path that has this share, so many messages wait, and not as many as `before`.
    pub(crate) fn report(&self, before: u32, waiting: u32) {
        // Wraps where fewer wait: the sum does not.
        let more = waiting.wrapping_sub(before);
        self.queued.fetch_add(more, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const BUDGET: u64 = 50_000;

    fn account(per_mille: u32) -> ShareAccount {
        ShareAccount::of_handler(Terms::new(per_mille, None), BUDGET)
    }

    /// How many of the messages of 10 us each, so many a second for two seconds, run.
    fn ran(account: &ShareAccount, per_second: u64) -> u64 {
        let times = (0..2 * per_second).map(|at| SECOND + at * SECOND / per_second);
        let runs = times.filter(|now| {
            let may = account.may_run(*now);
            if may {
                account.ran(*now, now + 10_000);
            }
            may
        });
        runs.count() as u64
    }

    /// Below the share all run; above it the share, and not less at a higher load.
    fn goodput_rises_to_the_share_and_stays() -> bool {
        [10_000, 20_000, 40_000, 100_000].into_iter().all(|load| {
            let ran = ran(&account(200), load);
            if load <= 20_000 {
                ran == 2 * load
            } else {
                (40_000..40_500).contains(&ran)
            }
        })
    }

    #[test]
    fn a_share_is_kept() {
        assert!(goodput_rises_to_the_share_and_stays());
        for bug in [Bug::RunNotCharged, Bug::TimeNotCharged] {
            assert!(!bug::with(bug, goodput_rises_to_the_share_and_stays));
        }
    }

    #[test]
    fn an_open_account_is_not_asked() {
        let account = account(1);
        account.set_open(true);
        assert_eq!(ran(&account, 50_000), 100_000);
        assert_eq!(account.stands(), Account::default());
        assert_eq!((account.due(), account.mode(9 * SECOND)), (0, Mode::Eager));
    }

    /// Paths that have a share in common say each for itself how many of them wait.
    #[test]
    fn who_waits_makes_the_path_lazy() {
        let account = account(200);
        account.report(0, 3);
        account.report(0, 2);
        assert_eq!((account.queued(), account.mode(SECOND)), (5, Mode::Lazy));
        account.report(3, 1);
        account.report(2, 0);
        assert_eq!(account.queued(), 1);
        account.report(1, 0);
        assert_eq!((account.queued(), account.mode(SECOND)), (0, Mode::Eager));
    }

    #[test]
    fn time_that_others_had_is_not_charged() {
        let account = account(500);
        account.ran(SECOND, SECOND + BUDGET);
        assert_eq!(account.stands().paid, SECOND + 2 * BUDGET);
        account.ran(2 * SECOND, 3 * SECOND);
        let most = 2 * (BUDGET + BESIDE_NS);
        assert_eq!(account.stands().paid, 2 * SECOND + most);
    }
}
