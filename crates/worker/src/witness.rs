//! Knowing that what ran on a CPU in softirq has ended.
//!
//! What programs send, redirect or pass leaves the driver at the end of its poll, where no
//! program of ours runs. But user code does not preempt a poll: where it runs, no poll is in
//! progress, and what programs of an earlier one sent has left. So each CPU has a *witness*, a
//! thread that stays there, sleeps, and runs for a moment when it is asked. Only the paths
//! wait for it whose messages have to come behind what that CPU sent; the worker does not.
//!
//! The worker does not go there itself: that takes it from all other paths, and a thread with
//! a deadline (`SCHED_DEADLINE`) may not. Nor does it wait for a grace period of RCU, which ends
//! behind all polls (docs/facts.md, "The end of a softirq").

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;

use rustix::thread::{CpuSet, MembarrierCommand, membarrier, sched_getcpu, sched_setaffinity};

use crate::bug::{self, Bug};

/// Bytes of a witness's stack: it calls next to nothing.
const STACK_BYTES: usize = 64 * 1024;

/// How long the kernel polls at most before it lets others run, and much more: 8 ms
/// (`netdev_budget_usecs`) if nobody has changed it.
const LONGEST_POLL: Duration = Duration::from_millis(100);

/// A witness for each CPU, and one for those that have none.
#[derive(Debug)]
pub struct Witnesses {
    /// By CPU.
    here: Vec<Option<Witness>>,
    /// It waits for a grace period, which takes 50 to 200 ms.
    elsewhere: Witness,
}

#[derive(Debug)]
struct Witness {
    words: Arc<Words>,
    thread: Thread,
}

/// What a witness and who asks it have in common.
#[derive(Debug, Default)]
struct Words {
    /// How often it was asked (wraps).
    asked: AtomicU32,
    /// The last question that it has answered.
    seen: AtomicU32,
    /// Nobody asks any more.
    over: AtomicBool,
}

/// What a witness was asked for: that what its CPU did before has ended.
#[derive(Clone, Debug)]
pub(crate) struct Sight {
    words: Arc<Words>,
    number: u32,
    /// The witness's CPU: whoever looks and runs there has seen it, too.
    cpu: Option<usize>,
}

/// What a path waits for, or what comes by a ring.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sights(Vec<Sight>);

impl Witnesses {
    /// Starts the threads, for so many CPUs: also for those that this process does not run
    /// on. One that cannot be had leaves its CPU to the one for all.
    ///
    /// # Errors
    ///
    /// When not even that can be had.
    pub fn start(cpus: usize) -> std::io::Result<Self> {
        let here = (0..cpus.min(CpuSet::MAX_CPU)).map(|cpu| Witness::start(Some(cpu)).ok());
        Ok(Self {
            here: here.collect(),
            elsewhere: Witness::start(None)?,
        })
    }

    /// Asks that what runs on a CPU in softirq has ended. `None` if it has: whoever asks runs
    /// there. Wakes a thread, which takes some 10 us, and does not wait for it.
    pub(crate) fn ask(&self, cpu: usize) -> Option<Sight> {
        if sched_getcpu() == cpu {
            return None;
        }
        let witness = self.here.get(cpu).and_then(Option::as_ref);
        let its = witness.map(|_| cpu);
        let Witness { words, thread } = witness.unwrap_or(&self.elsewhere);
        let sight = Sight::ask(words, its);
        thread.unpark();
        Some(sight)
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.words.over.store(true, Ordering::Release);
        // Not waited for: others may want its CPU.
        self.thread.unpark();
    }
}

impl Witness {
    fn start(cpu: Option<usize>) -> std::io::Result<Self> {
        let words = Arc::new(Words::default());
        let its = Arc::clone(&words);
        let name = cpu.map_or_else(|| "ashway-cpus".into(), |cpu| format!("ashway-cpu{cpu}"));
        let thread = thread::Builder::new()
            .name(name)
            .stack_size(STACK_BYTES)
            .spawn(move || its.witness(cpu))?;
        Ok(Self {
            words,
            thread: thread.thread().clone(),
        })
    }
}

impl Words {
    fn witness(&self, cpu: Option<usize>) {
        if let Some(cpu) = cpu {
            let mut only = CpuSet::new();
            only.set(cpu);
            // Where it runs is looked at below.
            let _ = sched_setaffinity(None, &only);
        }
        while !self.over.load(Ordering::Acquire) {
            let asked = self.asked.load(Ordering::Acquire);
            if asked == self.seen.load(Ordering::Relaxed) {
                thread::park();
                continue;
            }
            // A CPU that went away, or is not ours any more, has it run elsewhere.
            if cpu.is_none_or(|cpu| sched_getcpu() != cpu)
                && membarrier(MembarrierCommand::Global).is_err()
            {
                // With `nohz_full` there is none.
                thread::sleep(LONGEST_POLL);
            }
            self.seen.store(asked, Ordering::Release);
        }
    }
}

impl Sight {
    fn ask(words: &Arc<Words>, cpu: Option<usize>) -> Self {
        let number = words.asked.load(Ordering::Relaxed).wrapping_add(1);
        words.asked.store(number, Ordering::Release);
        Self {
            words: Arc::clone(words),
            number,
            cpu,
        }
    }

    fn is_over(&self) -> bool {
        let seen = self.words.seen.load(Ordering::Acquire);
        seen.wrapping_sub(self.number).cast_signed() >= 0 || self.cpu == Some(sched_getcpu())
    }
}

impl Sights {
    /// Waits for this, too; instead of what was asked of the same witness before. Allocates
    /// where more are waited for than ever before.
    pub(crate) fn add(&mut self, sight: &Sight) {
        let same = |known: &&mut Sight| Arc::ptr_eq(&known.words, &sight.words);
        if bug::is(Bug::LastSightOnly) {
            self.0.clear();
        }
        match self.0.iter_mut().find(same) {
            Some(known) => known.number = sight.number,
            None => self.0.push(sight.clone()),
        }
    }

    /// Waits for nothing.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// The same for all of those, as far as they are not over.
    pub(crate) fn add_all(&mut self, others: &mut Self) {
        if !others.are_over() && !bug::is(Bug::FirstWaitsOnly) {
            for sight in &others.0 {
                self.add(sight);
            }
        }
    }

    /// Whether there is nothing left to wait for.
    pub(crate) fn are_over(&mut self) -> bool {
        if !self.0.is_empty() {
            self.0.retain(|sight| !sight.is_over());
        }
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use rustix::thread::sched_getaffinity;

    use super::*;

    impl Words {
        fn answer(&self) {
            let asked = self.asked.load(Ordering::Relaxed);
            self.seen.store(asked, Ordering::Release);
        }
    }

    /// Who waits for two CPUs waits until both are seen, and a question is not answered by
    /// an answer to the one before.
    fn all_sights_are_waited_for() -> bool {
        let [one, two] = [(); 2].map(|()| Arc::new(Words::default()));
        // As it is after four billion questions.
        let last = u32::MAX - 1;
        one.asked.store(last, Ordering::Relaxed);
        one.seen.store(last, Ordering::Relaxed);
        let mut sights = Sights::default();
        let before = sights.are_over();
        (0..3).for_each(|_| sights.add(&Sight::ask(&one, None)));
        sights.add(&Sight::ask(&two, None));
        let some = [
            sights.are_over(),
            (two.answer(), sights.are_over()).1,
            (
                one.seen.store(u32::MAX, Ordering::Release),
                sights.are_over(),
            )
                .1,
        ];
        one.answer();
        before && some == [false; 3] && sights.are_over() && sights.0.is_empty()
    }

    /// What comes by a ring behind a message that waits, waits as well, until that is over.
    fn what_comes_behind_waits_too() -> bool {
        let cpu = Arc::new(Words::default());
        let mut ring = Sights::default();
        ring.add(&Sight::ask(&cpu, None));
        let mut path = || {
            let mut sights = Sights::default();
            sights.add_all(&mut ring);
            sights
        };
        let (mut first, mut second) = (path(), path());
        let waits = [first.are_over(), second.are_over()] == [false; 2];
        cpu.answer();
        waits && first.are_over() && second.are_over() && path().0.is_empty()
    }

    #[test]
    fn bugs_are_noticed() {
        let properties = [
            (
                all_sights_are_waited_for as fn() -> bool,
                Bug::LastSightOnly,
            ),
            (what_comes_behind_waits_too, Bug::FirstWaitsOnly),
        ];
        for (holds, bug) in properties {
            assert!(holds());
            assert!(!bug::with(bug, holds), "{bug:?}");
        }
    }

    /// Each answers for its CPU, and somebody for CPUs that are not there; nobody's affinity
    /// changes.
    #[test]
    fn every_cpu_is_seen() {
        let before = sched_getaffinity(None).unwrap();
        let witnesses = Witnesses::start(2).unwrap();
        for cpu in [0, 1, 1023, 5000].repeat(3) {
            if let Some(sight) = witnesses.ask(cpu) {
                while !sight.is_over() {
                    thread::yield_now();
                }
            }
        }
        assert_eq!(sched_getaffinity(None).unwrap(), before);
    }
}
