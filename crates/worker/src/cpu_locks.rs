//! The locks of a handler that runs on several CPUs at once, as the worker takes them.
//!
//! There is [one for each CPU](trusted::LOCK_STRIDE), which an activation in the kernel tier has
//! while it runs there. The worker runs the handler without any, as one CPU more. For what nobody
//! may run it meanwhile it takes all of them: it says first that it wants them, so that none is
//! taken anew, and has them when the activations that had begun have ended.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ashway_abi::trusted;
use ashway_memory::clock::monotonic_ns;

use crate::bug::{self, Bug};
use crate::queue::Queue;

/// How long the worker looks at the locks of all CPUs, before it tries again later.
const LOOK: Duration = Duration::from_micros(5);

/// See the [module](self).
pub(crate) struct CpuLocks<'q>(&'q Queue);

impl<'q> CpuLocks<'q> {
    /// Those of this queue, if its handler has them.
    pub(crate) fn of(queue: &'q Queue) -> Option<Self> {
        (queue.layout().locks > 0).then_some(Self(queue))
    }

    fn each(&self, word: usize) -> impl Iterator<Item = &'q AtomicU32> {
        let (layout, words) = (self.0.layout(), self.0.words());
        (0..layout.locks).map(move |cpu| words.u32_at(layout.cpu_lock(cpu) + word))
    }

    /// Takes all or none, and then says that it wants them. Looks for [`LOOK`] at most.
    pub(crate) fn take(&self) -> bool {
        self.want(1);
        let until = monotonic_ns() + LOOK.as_nanos() as u64;
        for (cpu, lock) in self.each(trusted::LOCK).enumerate() {
            let take = || {
                let to = trusted::IN_USER;
                let taken = lock.compare_exchange(0, to, Ordering::Acquire, Ordering::Relaxed);
                taken.is_ok() || bug::is(Bug::OneLockOfAll) && cpu > 0
            };
            while !take() {
                if monotonic_ns() >= until {
                    for taken in self.each(trusted::LOCK).take(cpu) {
                        taken.store(0, Ordering::Release);
                    }
                    return false;
                }
                std::hint::spin_loop();
            }
        }
        self.want(0);
        true
    }

    /// Gives all back.
    pub(crate) fn release(&self) {
        for lock in self.each(trusted::LOCK) {
            lock.store(0, Ordering::Release);
        }
    }

    /// Says whether the worker wants them.
    pub(crate) fn want(&self, wanted: u32) {
        for word in self.each(trusted::WANTED) {
            word.store(wanted, Ordering::Release);
        }
    }

    /// Whether a program has [kept](trusted::HELD) a fault under one.
    pub(crate) fn keep_fault(&self) -> bool {
        let mut locks = self.each(trusted::LOCK);
        locks.any(|lock| lock.load(Ordering::Acquire) == trusted::HELD)
    }

    /// Frees those under which one was kept, when it has been taken.
    pub(crate) fn free_kept(&self) {
        for lock in self.each(trusted::LOCK) {
            let held = trusted::HELD;
            let _ = lock.compare_exchange(held, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iface_map::IfaceMap;
    use crate::instance_lock::Holds;
    use crate::played;
    use crate::queue_plan::QueuePlan;
    use ashway_codegen::entry::Packet;

    const CPUS: usize = 3;

    fn queue() -> Queue {
        let plan = QueuePlan::unbound(&IfaceMap::default()).on_cpus(CPUS);
        let words = played::words(plan.layout().bytes());
        Queue::over(words, "h", plan, Packet::Pointers).unwrap()
    }

    /// What a program on this CPU does: whether it begins an activation.
    fn begins(queue: &Queue, cpu: usize) -> bool {
        let at = queue.layout().cpu_lock(cpu);
        let (lock, wanted) = (queue.words().u32_at(at), queue.words().u32_at(at + 4));
        let free = wanted.load(Ordering::Relaxed) == 0 && lock.load(Ordering::Relaxed) == 0;
        if free {
            lock.store(trusted::IN_KERNEL, Ordering::Relaxed);
        }
        free
    }

    fn ends(queue: &Queue, cpu: usize) {
        let lock = queue.words().u32_at(queue.layout().cpu_lock(cpu));
        lock.store(0, Ordering::Relaxed);
    }

    /// The worker has all locks or none, and no program begins while it has them.
    fn nobody_runs_beside_it() -> bool {
        let queue = queue();
        let locks = CpuLocks::of(&queue).unwrap();
        let met = begins(&queue, 1) && !locks.take();
        // Programs leave them alone until the worker has had them, on every CPU.
        let asked = (0..CPUS).filter(|cpu| *cpu != 1);
        let left_alone = asked.clone().all(|cpu| !begins(&queue, cpu));
        ends(&queue, 1);
        let taken = !begins(&queue, 1) && locks.take();
        let alone = (0..CPUS).all(|cpu| !begins(&queue, cpu));
        locks.release();
        let again = (0..CPUS).all(|cpu| begins(&queue, cpu));
        met && left_alone && taken && alone && again
    }

    #[test]
    fn the_worker_takes_all_locks_or_none() {
        assert!(nobody_runs_beside_it());
        assert!(!bug::with(Bug::OneLockOfAll, nobody_runs_beside_it));
    }

    #[test]
    fn the_worker_is_one_cpu_more_and_takes_back_what_it_wanted() {
        let queue = queue();
        let locks = CpuLocks::of(&queue).unwrap();
        let holds = Holds::default();
        // Beside two activations, which end and begin as they like.
        assert!(begins(&queue, 0) && holds.try_share(&locks, false));
        assert!(begins(&queue, 1));
        holds.release_share(&locks);
        // For a message that is recorded nobody may run beside it.
        assert!(!holds.try_share(&locks, true));
        ends(&queue, 0);
        assert!(!begins(&queue, 0));
        // Nothing is recorded any more.
        assert!(holds.try_share(&locks, false) && begins(&queue, 0));
        holds.release_share(&locks);
        ends(&queue, 0);
        ends(&queue, 1);
        assert!(holds.try_share(&locks, true) && !begins(&queue, 2));
        assert!(holds.try_share(&locks, true));
        holds.release_share(&locks);
        assert!(!begins(&queue, 2));
        holds.release_share(&locks);
        assert!(begins(&queue, 2));
    }

    #[test]
    fn what_is_kept_on_one_cpu_is_freed_there() {
        let queue = queue();
        let locks = CpuLocks::of(&queue).unwrap();
        assert!(begins(&queue, 0) && !locks.keep_fault());
        let lock = queue.words().u32_at(queue.layout().cpu_lock(2));
        lock.store(trusted::HELD, Ordering::Relaxed);
        assert!(locks.keep_fault() && !locks.take());
        locks.want(0);
        locks.free_kept();
        assert!(!locks.keep_fault() && begins(&queue, 2) && !begins(&queue, 0));
    }
}
