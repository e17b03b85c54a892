//! When a handler that is stopped again and again is led away from: pure.
//!
//! A *circuit breaker* for each path. [`FaultLimit::most`] stops within
//! [`FaultLimit::within`] take the path out of the kernel tier. If it has a
//! [`FaultLimit::rest`], as many again, in the user tier, have its messages go by the
//! handler: a *bypass*. After the rest the handler gets them again. If that comes to nothing, the next
//! rest is twice as long, so that one that stays broken is tried less and less; if it
//! runs for as long as it has rested, all is forgotten. The kernel tier is given back by
//! hand alone: what is stopped there takes a softirq's time from everybody.
//!
//! A demotion costs the path time. A bypass switches its handler off. An attacker who knows a
//! message that stops the handler could force that with a few of them, so a path is bypassed
//! only where its `faults` have a `rest`.
//!
//! Source: Nygard, "Release It!" (2007), section 5.2; the words `limit`, `within` and
//! `rest` are nginx's `max_fails` and `fail_timeout`, told apart.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::bug::{self, Bug};
use ashway_config::FaultLimit;

/// A rest is at most so many times as long as the first.
const LONGEST: u32 = 32;

/// Parts of [`FaultLimit::within`] that are told apart: a breaker holds no more
/// numbers, however many stops it counts. One may be forgotten so much too early.
const GRAINS: u32 = 64;

/// What a path's stops have led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// It is to leave the kernel tier.
    Demote,
    /// Its messages go by the handler from now on, for so long.
    Bypass(Duration),
}

/// The stops of one path.
#[derive(Debug)]
struct Breaker {
    /// `None` counts nothing.
    limit: Option<FaultLimit>,
    /// Whether the kernel tier may run the path.
    in_kernel: bool,
    /// When, and how often; the oldest first.
    stops: VecDeque<(Instant, u32)>,
    /// When the bypass ends, while there is one.
    until: Option<Instant>,
    /// How long it lasts, or the last one did.
    rest: Duration,
    /// When that is forgotten.
    calm: Option<Instant>,
}

impl Breaker {
    /// Counts stops. Amortised constant time; holds [`GRAINS`] numbers.
    fn stopped(&mut self, times: u32, now: Instant) -> Option<Change> {
        let limit = self.limit?;
        let leads_nowhere = !self.in_kernel && limit.rest.is_none();
        if times == 0 || leads_nowhere || self.until.is_some() || bug::is(Bug::FaultsNotCounted) {
            return None;
        }
        while let Some((when, _)) = self.stops.front()
            && *when + limit.within <= now
        {
            self.stops.pop_front();
        }
        match self.stops.back_mut() {
            Some((when, known)) if now < *when + limit.within / GRAINS => {
                *known = known.saturating_add(times);
            }
            _ => self.stops.push_back((now, times)),
        }
        let all = self.stops.iter().map(|(_, times)| u64::from(*times));
        if all.sum::<u64>() < u64::from(limit.most) {
            return None;
        }
        self.stops.clear();
        if self.in_kernel {
            return Some(Change::Demote);
        }
        let rest = limit.rest?;
        let again = self.calm.is_some_and(|calm| now < calm);
        self.rest = if again && !bug::is(Bug::RestNotDoubled) {
            (self.rest * 2).min(rest * LONGEST)
        } else {
            rest
        };
        self.until = Some(now + self.rest);
        Some(Change::Bypass(self.rest))
    }

    /// Ends a bypass whose time is over; whether there is one now.
    fn rests(&mut self, now: Instant) -> bool {
        if self.until.is_some_and(|until| now >= until) {
            self.until = None;
            self.calm = Some(now + self.rest);
        }
        self.until.is_some()
    }

    /// Forgets everything but what it may do.
    fn forget(&mut self) {
        self.stops.clear();
        (self.until, self.calm) = (None, None);
    }
}

/// A path's breaker, as the worker and the node share it.
#[derive(Debug)]
pub struct Gate {
    breaker: Mutex<Breaker>,
    /// Whether there is a bypass: what each message looks at.
    closed: AtomicBool,
    /// Whether the path is to leave the kernel tier, as the worker has found.
    demote: AtomicBool,
}

impl Gate {
    /// Of a path in the user tier.
    #[must_use]
    pub(crate) fn new(limit: Option<FaultLimit>) -> Self {
        Self {
            breaker: Mutex::new(Breaker {
                limit,
                in_kernel: false,
                stops: VecDeque::new(),
                until: None,
                rest: Duration::ZERO,
                calm: None,
            }),
            closed: AtomicBool::new(false),
            demote: AtomicBool::new(false),
        }
    }

    fn with<T>(&self, what: impl FnOnce(&mut Breaker) -> T) -> T {
        // It is consistent between any two statements.
        let mut breaker = self.breaker.lock().unwrap_or_else(PoisonError::into_inner);
        let result = what(&mut breaker);
        self.closed
            .store(breaker.until.is_some(), Ordering::Release);
        result
    }

    /// Counts so many stops of the path's handler.
    #[cold]
    pub(crate) fn stopped(&self, times: u32, now: Instant) -> Option<Change> {
        let change = self.with(|breaker| breaker.stopped(times, now));
        if change == Some(Change::Demote) {
            self.demote.store(true, Ordering::Release);
        }
        change
    }

    /// Whether a message goes by the handler. Looks at the clock only while some do.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire) && self.with(|breaker| breaker.rests(Instant::now()))
    }

    /// Whether the path is to leave the kernel tier; told once.
    pub fn take_demote(&self) -> bool {
        self.demote.swap(false, Ordering::AcqRel)
    }

    /// Notes that the path is in this tier now: a new begin.
    pub(crate) fn moved(&self, in_kernel: bool) {
        self.with(|breaker| {
            breaker.in_kernel = in_kernel;
            breaker.stops.clear();
            if in_kernel {
                breaker.forget();
            }
        });
        self.demote.store(false, Ordering::Release);
    }

    /// Lets the handler have its messages again; whether they went by it.
    pub fn open(&self) -> bool {
        self.with(|breaker| {
            let was = breaker.until.is_some();
            breaker.forget();
            was
        })
    }

    /// How long the bypass still lasts, if there is one.
    #[must_use]
    pub fn left(&self, now: Instant) -> Option<Duration> {
        self.with(|breaker| {
            breaker.rests(now);
            Some(breaker.until?.saturating_duration_since(now))
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    const LIMIT: FaultLimit = FaultLimit {
        most: 3,
        within: Duration::from_secs(1),
        rest: Some(REST),
    };
    const REST: Duration = Duration::from_secs(10);

    fn breaker(in_kernel: bool) -> Breaker {
        let gate = Gate::new(Some(LIMIT));
        gate.moved(in_kernel);
        gate.breaker.into_inner().unwrap()
    }

    fn secs(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    /// So many within the time, and not one less, nor as many over a longer time.
    fn trips_at_the_limit() -> bool {
        let begin = Instant::now();
        let mut one = breaker(false);
        let slow: Vec<_> = (0..20)
            .map(|n| one.stopped(1, begin + secs(0.5) * n))
            .collect();
        let mut two = breaker(false);
        let fast = [0.0, 0.4, 0.8].map(|at| two.stopped(1, begin + secs(at)));
        slow == vec![None; 20] && fast == [None, None, Some(Change::Bypass(REST))]
    }

    /// Out of the kernel tier first; and each time counting begins anew.
    fn first_demotes_then_bypasses() -> bool {
        let now = Instant::now();
        let mut breaker = breaker(true);
        let demoted = breaker.stopped(3, now) == Some(Change::Demote) && !breaker.rests(now);
        breaker.in_kernel = false;
        demoted
            && breaker.stopped(2, now).is_none()
            && breaker.stopped(1, now) == Some(Change::Bypass(REST))
            && breaker.rests(now)
    }

    /// 10 s, then 20 s if it comes to nothing at once; after as long without, 10 s.
    fn rests_longer_each_time() -> bool {
        let mut now = Instant::now();
        let mut breaker = breaker(false);
        let mut rests = Vec::new();
        for wait in [0, 5, 5, 500, 5] {
            now += secs(f64::from(wait));
            breaker.stopped(3, now);
            let begin = now;
            while breaker.rests(now) {
                now += Duration::from_millis(500);
            }
            rests.push((now - begin).as_secs());
        }
        rests == [10, 20, 40, 10, 20]
    }

    #[test]
    fn so_many_stops_within_a_time_demote_then_bypass() {
        assert!(trips_at_the_limit());
        assert!(first_demotes_then_bypasses());
        assert!(rests_longer_each_time());
    }

    /// Nobody is bypassed who was not to be, but everybody leaves the kernel tier.
    #[test]
    fn without_a_rest_there_is_no_bypass() {
        let now = Instant::now();
        let gate = Gate::new(Some(FaultLimit {
            rest: None,
            ..LIMIT
        }));
        gate.moved(true);
        assert_eq!(gate.stopped(3, now), Some(Change::Demote));
        gate.moved(false);
        assert_eq!(gate.stopped(u32::MAX, now), None);
        assert!(!gate.is_closed() && gate.left(now).is_none());
    }

    #[test]
    fn each_mistake_is_noticed() {
        let bugs: [(Bug, fn() -> bool); 3] = [
            (Bug::FaultsNotCounted, trips_at_the_limit),
            (Bug::FaultsNotCounted, first_demotes_then_bypasses),
            (Bug::RestNotDoubled, rests_longer_each_time),
        ];
        for (bug, property) in bugs {
            assert!(!bug::with(bug, property), "{bug:?} is not noticed");
        }
    }

    #[test]
    fn a_rest_has_a_longest_and_a_storm_takes_no_room() {
        let mut now = Instant::now();
        let mut one = breaker(false);
        for _ in 0..20 {
            one.stopped(3, now);
            now = one.until.unwrap();
            assert!(!one.rests(now));
        }
        assert_eq!(one.rest, REST * LONGEST);
        let mut two = breaker(false);
        two.limit = Some(FaultLimit {
            most: u32::MAX,
            ..LIMIT
        });
        for ms in 0..5_000 {
            assert_eq!(two.stopped(7, now + Duration::from_millis(ms)), None);
        }
        assert!(
            two.stops.len() <= GRAINS as usize + 1,
            "{}",
            two.stops.len()
        );
    }

    #[test]
    fn by_hand_a_handler_begins_anew_and_without_a_limit_nothing_is_counted() {
        let now = Instant::now();
        let gate = Gate::new(Some(LIMIT));
        assert_eq!(gate.stopped(3, now), Some(Change::Bypass(REST)));
        assert!(gate.is_closed() && gate.left(now) == Some(REST));
        assert!(gate.open() && !gate.is_closed() && !gate.open());
        gate.moved(true);
        assert_eq!(gate.stopped(9, now), Some(Change::Demote));
        assert!(!gate.is_closed() && gate.take_demote() && !gate.take_demote());
        assert_eq!(Gate::new(None).stopped(u32::MAX, now), None);
    }
}
