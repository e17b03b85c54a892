//! A handler's timers: when its `on_timer` is to run.
//!
//! They are set by activations in the user tier and run by the worker, so one thread
//! is at both ends. Each is set for once; a handler that wants it again sets it again.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ashway_abi::outbox::{MOST_TIMERS, NEVER};
use ashway_path::time::Time;

use crate::ends::PathEnd;
use crate::worker;

/// Soonest that a timer runs, so that one that sets itself again at once is not always
/// due.
const SOONEST: Duration = Duration::from_micros(100);

/// How long one that may not run waits until it is looked at again: a bypass may be
/// ended by hand.
const PUT_OFF: Duration = Duration::from_millis(100);

/// Whose activation has set a timer.
#[derive(Clone, Debug)]
pub(crate) struct Setter {
    /// The row of the path.
    pub(crate) row: u32,
    /// The path, at the stage that runs the handler.
    pub(crate) end: Option<Arc<PathEnd>>,
}

/// An instance's timers.
#[derive(Debug)]
pub(crate) struct Timers {
    /// When, and who has set it.
    set: Mutex<[Option<(Time, Setter)>; MOST_TIMERS]>,
    /// The first of them in ns, [`NEVER`] if none is set: what the worker looks at.
    next: AtomicU64,
}

impl Default for Timers {
    fn default() -> Self {
        Self {
            set: Mutex::new([const { None }; MOST_TIMERS]),
            next: AtomicU64::new(NEVER),
        }
    }
}

impl Timers {
    /// Sets a timer to run in so many ns, or off with [`NEVER`].
    pub(crate) fn set(&self, id: u32, ns: u64, setter: Setter) {
        self.set_from(worker::now(), id, ns, setter);
    }

    /// Sets one that may not run now, unless it is set again already.
    pub(crate) fn put_off(&self, now: Time, id: u32, setter: Setter) {
        let mut set = self.set.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(timer @ None) = set.get_mut(id as usize) {
            *timer = Some((now + PUT_OFF, setter));
        }
        self.note_next(&set);
    }

    fn set_from(&self, now: Time, id: u32, ns: u64, setter: Setter) {
        let mut set = self.set.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(timer) = set.get_mut(id as usize) {
            let after = Duration::from_nanos(ns).max(SOONEST);
            *timer = (ns != NEVER).then(|| (now + after, setter));
        }
        self.note_next(&set);
    }

    /// When the next one is due.
    pub(crate) fn next(&self) -> Option<Time> {
        let next = self.next.load(Ordering::Relaxed);
        (next != NEVER).then_some(Time(next))
    }

    /// Takes the first of those that are due: its number, and who has set it.
    pub(crate) fn take_due(&self, now: Time) -> Option<(u32, Setter)> {
        let mut set = self.set.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, id) = (0..)
            .zip(&*set)
            .filter_map(|(id, timer)| Some((timer.as_ref()?.0, id)))
            .filter(|(time, _)| *time <= now)
            .min()?;
        let (_, setter) = set[id as usize].take()?;
        self.note_next(&set);
        Some((id, setter))
    }

    /// Sets all off that were set with this row.
    pub(crate) fn forget(&self, row: u32) {
        self.forget_if(|of| of.row == row);
    }

    /// Sets all off that were set by this path, at this stage.
    pub(crate) fn forget_of(&self, end: &Arc<PathEnd>) {
        self.forget_if(|of| of.end.as_ref().is_some_and(|of| Arc::ptr_eq(of, end)));
    }

    fn forget_if(&self, goes: impl Fn(&Setter) -> bool) {
        let mut set = self.set.lock().unwrap_or_else(PoisonError::into_inner);
        for timer in set.iter_mut() {
            timer.take_if(|(_, of)| goes(of));
        }
        self.note_next(&set);
    }

    fn note_next(&self, set: &[Option<(Time, Setter)>; MOST_TIMERS]) {
        let first = set.iter().flatten().map(|(time, _)| *time).min();
        let ns = first.map_or(NEVER, |Time(ns)| ns);
        self.next.store(ns, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn of(row: u32) -> Setter {
        Setter { row, end: None }
    }

    /// The number and the row of the one that is due.
    fn due(timers: &Timers, at: Time) -> Option<(u32, u32)> {
        timers.take_due(at).map(|(id, setter)| (id, setter.row))
    }

    #[test]
    fn a_timer_runs_once_when_it_is_due_and_not_when_it_was_set_off() {
        let timers = Timers::default();
        assert_eq!(timers.next(), None);
        let begin = Time::default() + Duration::from_secs(1);
        let at = |us| begin + Duration::from_micros(us);
        timers.set_from(begin, 5, 300_000, of(7));
        timers.set_from(begin, 63, 0, of(8));
        timers.set_from(begin, 1, 200_000, of(9));
        timers.set_from(begin, 64, 0, of(9));
        assert_eq!(timers.next(), Some(at(100)), "not sooner");
        assert_eq!(due(&timers, at(99)), None);
        assert_eq!(
            due(&timers, at(250)),
            Some((63, 8)),
            "the first comes first"
        );
        assert_eq!(timers.next(), Some(at(200)), "one at a time");
        timers.set_from(begin, 1, NEVER, of(9));
        assert_eq!(timers.next(), Some(at(300)));
        // Set again: the last time counts.
        timers.set_from(begin, 5, 400_000, of(6));
        assert_eq!(due(&timers, at(399)), None);
        assert_eq!(due(&timers, at(400)), Some((5, 6)));
        assert_eq!(timers.next(), None);
        timers.set_from(begin, 2, 0, of(6));
        timers.set_from(begin, 3, 0, of(7));
        timers.forget(6);
        assert_eq!(due(&timers, at(500)), Some((3, 7)));
        assert_eq!(timers.next(), None);
        // Put off, unless it was set again meanwhile.
        timers.put_off(begin, 4, of(6));
        timers.set_from(begin, 5, 200_000, of(6));
        timers.put_off(begin, 5, of(7));
        assert_eq!(due(&timers, at(200)), Some((5, 6)));
        assert_eq!(timers.next(), Some(begin + PUT_OFF));
    }

    #[test]
    fn a_time_beyond_all_clocks_is_not_soon() {
        let timers = Timers::default();
        timers.set_from(
            Time::default() + Duration::from_secs(1),
            0,
            NEVER - 1,
            of(0),
        );
        let later = Time::default() + Duration::from_secs(1 << 30);
        assert_eq!(due(&timers, later), None);
    }
}
