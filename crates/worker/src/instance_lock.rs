//! An instance's lock, as the worker takes it.
//!
//! Programs of the kernel tier try the lock and lead their message to the user tier if they
//! do not get it. The worker, too, only tries: while an activation in the kernel tier has the
//! lock, the path that wants it is [set aside](ashway_path::stage::Stage::acquire), and others
//! run. It says [that it wants the lock](trusted::WANTED), and programs that begin from then on
//! leave it alone: so it is free for the worker as soon as the activations that have begun have
//! ended, however many messages come.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ashway_abi::trusted;
use ashway_memory::clock::monotonic_ns;

use crate::activation::HandlerHandle;
use crate::bug::{self, Bug};
use crate::instance::Instance;

/// How long the worker looks at a lock that somebody has: most activations are shorter, and
/// to set a path aside costs its message [more](ashway_path::engine::ASIDE).
const LOOK: Duration = Duration::from_micros(1);

/// How often the worker has the lock: a path may lead through one handler twice. Only the
/// worker writes it.
#[derive(Debug, Default)]
pub(crate) struct Holds(AtomicU32);

/// The lock is the worker's, for as long as this lives.
#[derive(Debug)]
pub(crate) struct InstanceLock<'a>(&'a HandlerHandle);

impl Drop for InstanceLock<'_> {
    fn drop(&mut self) {
        self.0.release();
    }
}

/// How the worker found the lock that it took.
#[derive(Debug, PartialEq, Eq)]
enum Taken {
    /// Nobody had it.
    Free,
    /// A program had [kept](trusted::KEPT) a fault under it.
    Kept,
}

impl HandlerHandle {
    /// Takes the lock for the worker, if no activation in the kernel tier has it; takes what
    /// a program has [kept](trusted::KEPT) under it. Looks for [`LOOK`] at most.
    pub(crate) fn try_acquire(&self) -> bool {
        let Some(kernel) = &self.shared.kernel else {
            return true;
        };
        let holds = self.holds.0.load(Ordering::Relaxed);
        if holds == 0 {
            let word = |offset| kernel.trusted.u32_at(offset);
            let taken = take(word(trusted::LOCK), word(trusted::WANTED), LOOK);
            match taken {
                None => return false,
                Some(Taken::Free) => {}
                Some(Taken::Kept) => self.take_kept(),
            }
        }
        self.holds.0.store(holds + 1, Ordering::Relaxed);
        true
    }

    /// The same, until what it gives back is dropped.
    pub(crate) fn hold(&self) -> Option<InstanceLock<'_>> {
        self.try_acquire().then_some(InstanceLock(self))
    }

    /// Gives back what [`try_acquire`](Self::try_acquire) has taken.
    pub(crate) fn release(&self) {
        let Some(kernel) = &self.shared.kernel else {
            return;
        };
        let holds = self.holds.0.load(Ordering::Relaxed) - 1;
        self.holds.0.store(holds, Ordering::Relaxed);
        if holds == 0 {
            let lock = kernel.trusted.u32_at(trusted::LOCK);
            lock.store(0, Ordering::Release);
        }
    }

    /// Whether the worker may run the handler.
    pub(crate) fn is_held(&self) -> bool {
        let Instance { kernel, .. } = &*self.shared;
        kernel.is_none() || self.holds.0.load(Ordering::Relaxed) > 0
    }
}

/// Takes the lock, looking for so long; if it cannot be had, says that it is wanted.
fn take(lock: &AtomicU32, wanted: &AtomicU32, look: Duration) -> Option<Taken> {
    // Who looked before looked for all: a path of the same handler, or this one.
    let is_known = wanted.load(Ordering::Relaxed) != 0;
    let look = if is_known { Duration::ZERO } else { look };
    let mut until = None;
    let taken = loop {
        let try_from = |from| lock.compare_exchange(from, 1, Ordering::Acquire, Ordering::Relaxed);
        match try_from(0) {
            Ok(_) => break Taken::Free,
            // Only the worker takes it from there.
            Err(trusted::KEPT) if try_from(trusted::KEPT).is_ok() => break Taken::Kept,
            Err(_) => {}
        }
        let now = monotonic_ns();
        if now >= *until.get_or_insert(now + look.as_nanos() as u64) {
            if !bug::is(Bug::LockNotWanted) {
                wanted.store(1, Ordering::Release);
            }
            return None;
        }
        std::hint::spin_loop();
    };
    // The line is this CPU's by now, and seldom has anything to be taken away.
    if wanted.load(Ordering::Relaxed) != 0 && !bug::is(Bug::LockWantedForEver) {
        wanted.store(0, Ordering::Release);
    }
    Some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words, and what a program does with them.
    #[derive(Default)]
    struct Words {
        lock: AtomicU32,
        wanted: AtomicU32,
    }

    impl Words {
        /// Whether a program begins an activation.
        fn begins(&self) -> bool {
            let free = self.wanted.load(Ordering::Relaxed) == 0;
            let try_take = || {
                self.lock
                    .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
            };
            free && try_take().is_ok()
        }

        fn ends(&self) {
            self.lock.store(0, Ordering::Release);
        }

        fn take(&self) -> Option<Taken> {
            take(&self.lock, &self.wanted, Duration::ZERO)
        }
    }

    /// A message comes whenever the lock is free, so a worker that only tries never finds
    /// it free; it gets it behind the activation that it has met.
    fn a_flood_does_not_keep_the_worker_out() -> bool {
        let words = Words::default();
        (0..10).all(|_| {
            let met = words.begins() && words.take().is_none();
            words.ends();
            let next = words.begins();
            let taken = words.take() == Some(Taken::Free);
            words.ends();
            met && !next && taken
        })
    }

    #[test]
    fn the_worker_gets_the_lock_behind_one_activation() {
        assert!(a_flood_does_not_keep_the_worker_out());
        for bug in [Bug::LockNotWanted, Bug::LockWantedForEver] {
            assert!(!bug::with(bug, a_flood_does_not_keep_the_worker_out));
        }
    }

    #[test]
    fn what_a_program_has_kept_is_the_workers() {
        let words = Words::default();
        words.lock.store(trusted::KEPT, Ordering::Release);
        assert!(!words.begins());
        assert_eq!(words.take(), Some(Taken::Kept));
        assert_eq!(words.take(), None);
        words.ends();
        assert_eq!(words.take(), Some(Taken::Free));
    }
}
