//! A handler's timers: when its `on_timer` is to run.
//!
//! They are set by activations in the user tier and run by the stage whose activation
//! has set them, when the engine wakes its path; so one thread is at both ends. Each is
//! set for once; a handler that wants it again sets it again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ashway_abi::outbox::{MOST_TIMERS, NEVER};
use ashway_path::time::Time;

use crate::bindings::HandlerBinding;

/// Soonest that a timer runs, so that one that sets itself again at once is not always
/// due.
const SOONEST: Duration = Duration::from_micros(100);

/// How long one that may not run waits until it is looked at again: a bypass may be
/// ended by hand.
const PUT_OFF: Duration = Duration::from_millis(100);

/// When a timer is due, and the path, at the stage whose activation has set it.
type Set = [Option<(Time, Arc<HandlerBinding>)>; MOST_TIMERS];

/// An instance's timers.
#[derive(Debug)]
pub(crate) struct Timers {
    set: Mutex<Set>,
}

impl Default for Timers {
    fn default() -> Self {
        Self {
            set: Mutex::new([const { None }; MOST_TIMERS]),
        }
    }
}

impl Timers {
    /// Sets a timer to run in so many ns from `now`, or off with [`NEVER`].
    pub(crate) fn set(&self, now: Time, id: u32, ns: u64, setter: &Arc<HandlerBinding>) {
        if let Some(timer) = self.lock().get_mut(id as usize) {
            let after = Duration::from_nanos(ns).max(SOONEST);
            *timer = (ns != NEVER).then(|| (now + after, Arc::clone(setter)));
        }
    }

    /// Sets one that may not run now, unless it is set again already.
    pub(crate) fn put_off(&self, now: Time, id: u32, setter: &Arc<HandlerBinding>) {
        if let Some(timer @ None) = self.lock().get_mut(id as usize) {
            *timer = Some((now + PUT_OFF, Arc::clone(setter)));
        }
    }

    /// When the next one is due that was set there.
    pub(crate) fn next_of(&self, setter: &Arc<HandlerBinding>) -> Option<Time> {
        let set = self.lock();
        let of = set.iter().flatten();
        let of = of.filter(|(_, by)| Arc::ptr_eq(by, setter));
        of.map(|(time, _)| *time).min()
    }

    /// Takes the first of those that were set there and are due: its number.
    pub(crate) fn take_due(&self, now: Time, setter: &Arc<HandlerBinding>) -> Option<u32> {
        let mut set = self.lock();
        let (_, id) = (0..)
            .zip(&*set)
            .filter_map(|(id, timer)| {
                let (time, by) = timer.as_ref()?;
                (*time <= now && Arc::ptr_eq(by, setter)).then_some((*time, id))
            })
            .min()?;
        set[id as usize] = None;
        Some(id)
    }

    /// Sets all off that were set there.
    pub(crate) fn forget(&self, setter: &Arc<HandlerBinding>) {
        for timer in self.lock().iter_mut() {
            timer.take_if(|(_, by)| Arc::ptr_eq(by, setter));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Set> {
        // It is consistent between any two statements.
        self.set.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Time {
        Time::default() + Duration::from_secs(1) + Duration::from_micros(us)
    }

    #[test]
    fn a_timer_runs_once_when_it_is_due_and_not_when_it_was_set_off() {
        let (timers, here) = (Timers::default(), HandlerBinding::of_tests("p"));
        let set = |id, ns| timers.set(at(0), id, ns, &here);
        let due = |us| timers.take_due(at(us), &here);
        assert_eq!(timers.next_of(&here), None);
        set(5, 300_000);
        set(63, 0);
        set(1, 200_000);
        set(64, 0);
        assert_eq!(timers.next_of(&here), Some(at(100)), "not sooner");
        assert_eq!(due(99), None);
        assert_eq!(due(250), Some(63), "the first comes first");
        assert_eq!(timers.next_of(&here), Some(at(200)), "one at a time");
        set(1, NEVER);
        assert_eq!(timers.next_of(&here), Some(at(300)));
        // Set again: the last time counts.
        set(5, 400_000);
        assert_eq!(due(399), None);
        assert_eq!(due(400), Some(5));
        assert_eq!(timers.next_of(&here), None);
        // Put off, unless it was set again meanwhile.
        timers.put_off(at(0), 4, &here);
        set(5, 200_000);
        timers.put_off(at(0), 5, &here);
        assert_eq!(due(200), Some(5));
        assert_eq!(timers.next_of(&here), Some(at(0) + PUT_OFF));
    }

    #[test]
    fn a_timer_is_that_of_the_path_which_set_it_last() {
        let (timers, [one, other]) = (Timers::default(), ["p", "q"].map(HandlerBinding::of_tests));
        timers.set(at(0), 2, 200_000, &one);
        timers.set(at(0), 3, 300_000, &one);
        timers.set(at(0), 2, 400_000, &other);
        assert_eq!(timers.next_of(&one), Some(at(300)));
        assert_eq!(timers.take_due(at(500), &one), Some(3));
        assert_eq!(timers.take_due(at(500), &one), None);
        timers.set(at(0), 3, 300_000, &one);
        timers.forget(&other);
        assert_eq!(timers.next_of(&other), None);
        assert_eq!(timers.next_of(&one), Some(at(300)));
    }

    #[test]
    fn a_time_beyond_all_clocks_is_not_soon() {
        let (timers, here) = (Timers::default(), HandlerBinding::of_tests("p"));
        timers.set(at(0), 0, NEVER - 1, &here);
        let later = Time::default() + Duration::from_secs(1 << 30);
        assert_eq!(timers.take_due(later, &here), None);
    }
}
