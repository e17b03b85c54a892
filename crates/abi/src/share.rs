//! A path's share of the tier that it runs in: how much its handler may run there.
//!
//! In the kernel tier a handler runs in softirq, before anything that the CPU's scheduler decides, so
//! whoever sends enough of its messages has the CPU. A path with a share is *eager*
//! while it keeps to it: its handler runs at once. Above it is *lazy*: what comes
//! goes to the user tier, where the scheduler sees it, and is dropped once there is
//! no room, before any work is done (ASHs, "Scheduling": refuse handlers of those who
//! receive more than their share, enable them at light load and disable them at high
//! load; P. Druschel and G. Banga, *Lazy Receiver Processing*, 1996, for the lazy way).
//!
//! The share is a token bucket in its "virtual scheduling" form (ITU-T I.371,
//! annex A): one word says until when the past is paid for. A run of 10 us at 20 %
//! moves that by 50 us. Runs, too, can have a rate; then each moves it by at least the
//! rate's distance. What is here is what the generated programs do
//! (`codegen::instance`), and a test holds the two together.
//!
//! In the user tier the worker keeps the same account of the paths that run there: what is
//! above the share waits in front of the path, and is dropped once there is no room.

/// How far ahead of its share a path may run, in ns: bursts up to this times the share
/// are run at once, and this times the share is what a flood takes in one piece from
/// the others of its queue.
pub const AHEAD_NS: u64 = 2_000_000;

/// A lazy path is eager again when it is ahead by no more than this, in ns. Between the
/// two it stays as it is, so it changes a thousand times a second at most.
pub const BACK_NS: u64 = 1_000_000;

/// What a path could not use since a message was last led to the user tier is its due,
/// up to this, in ns: none may overtake such messages, and while the worker does them, or
/// waits for a CPU, the kernel tier stands still.
pub const DUE_NS: u64 = 20_000_000;

/// Where the messages of a path above its share have filled their room, it
/// [drains](crate::trusted::DRAINING), so that the kernel tier has its due: not sooner than
/// this after it was found above, in ns. While it drains the worker gets nothing new, so with
/// each full room a flood would have less done than a lower load. What a worker that is
/// short of a CPU then takes for the rest is to be over within [`DUE_NS`], too.
pub const DRAIN_NS: u64 = DUE_NS / 8;

/// How long a path is said to be lazy behind the last message that was led to the user
/// tier for it, in ns: what is shown does not flicker with every burst.
pub const HOLD_NS: u64 = 1_000_000_000;

/// One, in the fraction of [`Terms::price`].
pub const UNIT: u32 = 1 << UNIT_BITS;
/// Bits of that fraction.
pub const UNIT_BITS: u32 = 10;

/// What a run costs its path, in ns of [`Account::paid`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// For each ns of it, in [`UNIT`]s: 5 at a share of 20 %.
    pub price: u32,
    /// At least.
    pub least_ns: u32,
}

impl Terms {
    /// For so many thousandths of a CPU (1 to 1,000) and so many runs a second.
    #[must_use]
    pub const fn new(per_mille: u32, runs_per_second: Option<u32>) -> Self {
        Self {
            price: 1_000 * UNIT / per_mille,
            least_ns: match runs_per_second {
                Some(runs) => 1_000_000_000 / runs,
                None => 0,
            },
        }
    }

    /// What a run of so many ns costs.
    #[must_use]
    pub const fn cost(self, ns: u64) -> u64 {
        let cost = (ns * self.price as u64) >> UNIT_BITS;
        let least = self.least_ns as u64;
        if cost > least { cost } else { least }
    }
}

/// How a path stands with its share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Until when it is paid for, in ns.
    pub paid: u64,
    /// Whether it is above its share.
    pub lazy: bool,
    /// When a message was last led to the user tier for that, in ns.
    pub lazy_at: u64,
}

impl Account {
    /// Whether a message that is here `now` may be run.
    pub const fn may_run(&mut self, now: u64) -> bool {
        self.lazy = now < self.due();
        if self.lazy {
            self.lazy_at = now;
        }
        !self.lazy
    }

    /// When a message may be run again, or could have been.
    #[must_use]
    pub const fn due(&self) -> u64 {
        let ahead = if self.lazy { BACK_NS } else { AHEAD_NS };
        self.paid.saturating_sub(ahead)
    }

    /// A message was run from `began` to `ended`.
    pub const fn ran(&mut self, terms: Terms, began: u64, ended: u64) {
        // What was not used is not saved up, unless it could not be.
        let mut from = began;
        if began < self.lazy_at + HOLD_NS {
            from = began.saturating_sub(DUE_NS);
            if from < self.lazy_at {
                from = self.lazy_at;
            }
        }
        if self.paid < from {
            self.paid = from;
        }
        self.paid += terms.cost(ended - began);
    }
}

/// What is said of a path with a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Its handler runs at once.
    Eager,
    /// Some of its messages are more than its share.
    Lazy,
}

impl Mode {
    /// What is said `now` of a path whose message was last led to the user tier for its
    /// share `lazy_at` (0: never), and which `waits` there still or does not.
    #[must_use]
    pub const fn at(now: u64, lazy_at: u64, waits: bool) -> Self {
        let held = lazy_at > 0 && now < lazy_at + HOLD_NS;
        if held || waits {
            Self::Lazy
        } else {
            Self::Eager
        }
    }

    /// Its name in the CLI and in documents.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Eager => "eager",
            Self::Lazy => "lazy",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Runs of 10 us, asked for so many times a second for ten seconds: how many run
    /// at once, and how often the path changes.
    fn offer(terms: Terms, per_second: u64) -> (u64, u32) {
        let mut account = Account::default();
        let (mut eager, mut changes) = (0, 0);
        for message in 0..10 * per_second {
            let now = SECOND + message * SECOND / per_second;
            let was = account.lazy;
            if account.may_run(now) {
                account.ran(terms, now, now + 10_000);
                eager += 1;
            }
            changes += u32::from(was != account.lazy);
        }
        (eager / 10, changes)
    }

    #[test]
    fn goodput_rises_to_the_share_and_stays() {
        let terms = Terms::new(200, None);
        let mut before = 0;
        for per_second in [1_000, 10_000, 19_000, 20_000, 25_000, 40_000, 100_000] {
            let (eager, changes) = offer(terms, per_second);
            assert!(eager >= before, "{eager} of {per_second} behind {before}");
            before = eager;
            if per_second <= 20_000 {
                assert_eq!((eager, changes), (per_second, 0));
            } else {
                assert!((20_000..20_200).contains(&eager), "{eager} of {per_second}");
                // Not with every message.
                assert!(changes <= 2 * 10 * 1_000, "{changes} at {per_second}");
            }
        }
    }

    #[test]
    fn runs_have_a_rate() {
        let terms = Terms::new(1_000, Some(500));
        assert_eq!(offer(terms, 400), (400, 0));
        let (eager, _) = offer(terms, 50_000);
        assert!((500..502).contains(&eager), "{eager}");
    }

    #[test]
    fn what_was_not_used_is_not_saved_up() {
        let terms = Terms::new(10, None);
        let mut account = Account::default();
        // 1 % of 2 ms are two runs of 10 us, and one more begins within them.
        let burst = |account: &mut Account, now| {
            let runs = (0..100).filter(|_| {
                let may = account.may_run(now);
                if may {
                    account.ran(terms, now, now + 10_000);
                }
                may
            });
            runs.count()
        };
        assert_eq!(burst(&mut account, SECOND), 3);
        assert_eq!(burst(&mut account, 60 * SECOND), 3);
    }

    #[test]
    fn between_the_marks_it_stays_as_it_is() {
        let mut account = Account {
            paid: SECOND + AHEAD_NS,
            ..Account::default()
        };
        assert!(account.may_run(SECOND));
        account.paid += 1;
        assert!(!account.may_run(SECOND));
        assert!(!account.may_run(SECOND + AHEAD_NS - BACK_NS));
        assert!(account.may_run(SECOND + AHEAD_NS - BACK_NS + 1));
    }

    #[test]
    fn what_is_said_is_held() {
        assert_eq!(Mode::at(HOLD_NS / 2, 0, false), Mode::Eager);
        assert_eq!(Mode::at(SECOND, SECOND, false), Mode::Lazy);
        assert_eq!(Mode::at(SECOND + HOLD_NS - 1, SECOND, false), Mode::Lazy);
        assert_eq!(Mode::at(SECOND + HOLD_NS, SECOND, false), Mode::Eager);
        assert_eq!(Mode::at(SECOND + HOLD_NS, SECOND, true), Mode::Lazy);
    }
}
