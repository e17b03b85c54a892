//! An instance's lock, as the worker takes it.
//!
//! Programs of the kernel tier try the lock, look at it for [a short
//! time](trusted::IN_KERNEL) while another CPU has it, and lead their message to the user tier
//! if they do not get it. The worker, too, only tries: while an activation in the kernel tier has the
//! lock, the path that wants it is [set aside](ashway_path::stage::Stage::acquire), and others
//! run. It says [that it wants the lock](trusted::WANTED), and programs that begin from then on
//! leave it alone: so it is free for the worker as soon as the activations that have begun have
//! ended, however many messages come. A handler that runs on several CPUs at once has
//! [a lock for each](crate::cpu_locks).

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use ashway_abi::trusted;
use ashway_memory::SharedArray;
use ashway_memory::clock::monotonic_ns;

use crate::bug::{self, Bug};
use crate::cpu_locks::CpuLocks;

/// How long the worker looks at a lock that somebody has: most activations are shorter, and
/// to set a path aside costs its message [more](ashway_path::engine::ASIDE).
const LOOK: Duration = Duration::from_micros(1);

/// How often the worker has the lock: a path may lead through one handler twice. Only the
/// worker writes it.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    /// How often.
    times: AtomicU32,
    /// Of a handler that runs on several CPUs at once: whether it keeps all of them out.
    alone: AtomicBool,
    /// Whether it has wanted to, and they are told so still.
    wants: AtomicBool,
}

impl Holds {
    /// Takes the lock among these words, unless the worker has it, looking for [`LOOK`] at
    /// most. `None` if an activation in the kernel tier has it.
    pub(crate) fn try_acquire(&self, words: &SharedArray) -> Option<Taken> {
        let holds = self.times.load(Ordering::Relaxed);
        let taken = if holds == 0 {
            let word = |offset| words.u32_at(offset);
            match take(word(trusted::LOCK), word(trusted::WANTED), LOOK) {
                Some(taken) => taken,
                None if bug::is(Bug::LockOfAnother) => Taken::Free,
                None => return None,
            }
        } else {
            Taken::Free
        };
        self.times.store(holds + 1, Ordering::Relaxed);
        Some(taken)
    }

    /// Gives back what [`try_acquire`](Self::try_acquire) has taken.
    pub(crate) fn release(&self, words: &SharedArray) {
        let holds = self.times.load(Ordering::Relaxed) - 1;
        self.times.store(holds, Ordering::Relaxed);
        if holds == 0 {
            let lock = words.u32_at(trusted::LOCK);
            lock.store(0, Ordering::Release);
        }
    }

    /// The same of a handler that runs on several CPUs at once: the worker runs it beside them, or,
    /// to be `alone`, when it has got [their locks](CpuLocks::take).
    pub(crate) fn try_share(&self, locks: &CpuLocks<'_>, alone: bool) -> bool {
        if alone && !self.alone.load(Ordering::Relaxed) {
            let taken = locks.take();
            self.wants.store(!taken, Ordering::Relaxed);
            if !taken {
                return false;
            }
            self.alone.store(true, Ordering::Relaxed);
        } else if self.wants.swap(false, Ordering::Relaxed) {
            locks.want(0);
        }
        self.times.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Gives back what [`try_share`](Self::try_share) has taken.
    pub(crate) fn release_share(&self, locks: &CpuLocks<'_>) {
        let last = self.times.fetch_sub(1, Ordering::Relaxed) == 1;
        if last && self.alone.swap(false, Ordering::Relaxed) {
            locks.release();
        }
    }

    /// Whether the worker has the lock.
    pub(crate) fn any(&self) -> bool {
        self.times.load(Ordering::Relaxed) > 0
    }
}

/// How the worker found the lock that it took.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// Nobody had it.
    Free,
    /// A program had [kept](trusted::HELD) a fault under it.
    Held,
}

/// Takes the lock, looking for so long; if it cannot be had, says that it is wanted.
fn take(lock: &AtomicU32, wanted: &AtomicU32, look: Duration) -> Option<Taken> {
    // Who looked before looked for all: a path of the same handler, or this one.
    let is_known = wanted.load(Ordering::Relaxed) != 0;
    let look = if is_known { Duration::ZERO } else { look };
    let mut until = None;
    let taken = loop {
        let try_from = |from| {
            lock.compare_exchange(from, trusted::IN_USER, Ordering::Acquire, Ordering::Relaxed)
        };
        match try_from(0) {
            Ok(_) => break Taken::Free,
            // Only the worker takes it from there.
            Err(trusted::HELD) if try_from(trusted::HELD).is_ok() => break Taken::Held,
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
                let to = trusted::IN_KERNEL;
                self.lock
                    .compare_exchange(0, to, Ordering::Acquire, Ordering::Relaxed)
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
        words.lock.store(trusted::HELD, Ordering::Release);
        assert!(!words.begins());
        assert_eq!(words.take(), Some(Taken::Held));
        assert_eq!(words.take(), None);
        words.ends();
        assert_eq!(words.take(), Some(Taken::Free));
    }
}
