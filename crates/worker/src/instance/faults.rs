//! What stopped a handler: the words that both tiers write of the last fault, and the
//! message that a program of the kernel tier keeps of it.

use std::sync::atomic::{AtomicU32, Ordering, fence};

use ashway_abi::{Cause, trusted};

use super::Instance;
use crate::bug::{self, Bug};
use crate::cpu_locks::CpuLocks;
use crate::queue::Queue;
use crate::version::Version;

/// A fault, as its owner is told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Faults of the instance so far.
    pub count: u32,
    /// Why the last one happened.
    pub cause: Option<Cause>,
    /// Offset in the Wasm file.
    pub at: u32,
    /// Row of the path it happened on.
    pub(crate) row: u32,
    /// Source line, if the file has DWARF.
    pub line: Option<(String, u32)>,
}

/// What a program of the kernel tier has kept of a message that stopped the handler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeptFault {
    /// Why.
    pub(crate) cause: Cause,
    /// Offset in the Wasm file.
    pub(crate) at: u32,
    /// Row of the path.
    pub(crate) row: u32,
    /// Whether the handler had changed the message: then it is as that left it.
    pub(crate) changed: bool,
    /// What was in front of the message.
    pub(crate) front: Vec<u8>,
    /// The message.
    pub(crate) message: Vec<u8>,
}

impl Instance {
    /// One of the words of the last fault, which both tiers write.
    fn fault_word(&self, offset: usize) -> &AtomicU32 {
        match &self.queue {
            Some(queue) => queue.words().u32_at(offset),
            None => &self.faults[(offset - trusted::FAULT_COUNT) / 4],
        }
    }

    /// Records a fault in the user tier, as programs do in the kernel tier: while nobody
    /// else runs the handler, or, of one that runs on several CPUs at once, while nobody else may
    /// write.
    pub(crate) fn record_fault(&self, version: &Version, cause: Cause, at: u32, row: u32) {
        let is_parallel = self.is_parallel();
        if is_parallel && !self.may_write_fault() {
            let count = self.fault_word(trusted::FAULT_COUNT);
            count.fetch_add(1, Ordering::AcqRel);
            return;
        }
        for (offset, value) in self.steps(version, cause, at, row) {
            let word = self.fault_word(offset);
            if is_parallel && offset == trusted::FAULT_COUNT {
                word.fetch_add(1, Ordering::Release);
            } else {
                word.store(value, Ordering::Release);
            }
            // Nothing that comes later is seen before it.
            fence(Ordering::Release);
        }
        if is_parallel {
            let wanted = self.fault_word(trusted::FAULT_WANTED);
            wanted.store(1, Ordering::Release);
        }
    }

    /// Takes the right to write the words of a fault, if one is wanted and nobody writes.
    fn may_write_fault(&self) -> bool {
        let wanted = self.fault_word(trusted::FAULT_WANTED);
        let (to, order) = (trusted::FAULT_WRITTEN, Ordering::AcqRel);
        let taken = wanted.compare_exchange(1, to, order, Ordering::Acquire);
        taken.is_ok()
    }

    /// What is written for a fault, in order ([`trusted::FAULT_CAUSE`]).
    fn steps(&self, version: &Version, cause: Cause, at: u32, row: u32) -> [(usize, u32); 6] {
        let begun = if bug::is(Bug::FaultInPieces) {
            cause as u32
        } else {
            0
        };
        [
            (trusted::FAULT_CAUSE, begun),
            (trusted::FAULT_AT, at),
            (trusted::FAULT_ROW, row),
            (trusted::FAULT_VERSION, version.id as u32),
            (trusted::FAULT_COUNT, self.faults().wrapping_add(1)),
            (trusted::FAULT_CAUSE, cause as u32),
        ]
    }

    /// Faults so far, in either tier.
    #[must_use]
    pub fn faults(&self) -> u32 {
        self.fault_word(trusted::FAULT_COUNT)
            .load(Ordering::Acquire)
    }

    /// The last fault in either tier, if there was one. Waits for one that is being
    /// written.
    #[must_use]
    pub fn last_fault(&self) -> Option<Fault> {
        while self.faults() > 0 {
            if let Some(fault) = self.look_at_fault() {
                return Some(fault);
            }
            // The worker may have been interrupted in the middle.
            std::thread::yield_now();
        }
        None
    }

    /// The last fault, unless another is written meanwhile.
    fn look_at_fault(&self) -> Option<Fault> {
        let word = |offset| self.fault_word(offset).load(Ordering::Acquire);
        let (count, cause) = (self.faults(), word(trusted::FAULT_CAUSE));
        let [at, row, version] = [
            trusted::FAULT_AT,
            trusted::FAULT_ROW,
            trusted::FAULT_VERSION,
        ]
        .map(word);
        let same = word(trusted::FAULT_CAUSE) == cause && self.faults() == count;
        (same && cause != 0).then(|| Fault {
            count,
            cause: Cause::from_number(cause),
            at,
            row,
            line: self.versions.place(version, at),
        })
    }

    /// Whether the next message that stops the handler in the kernel tier is kept, and rung
    /// for.
    #[must_use]
    pub fn wants_fault(&self) -> bool {
        self.queue.as_ref().is_none_or(|queue| {
            let wanted = queue.words().u32_at(trusted::FAULT_WANTED);
            wanted.load(Ordering::Acquire) != 0
        })
    }

    /// Lets the next message that stops the handler in the kernel tier be kept, unless
    /// one waits for the worker.
    pub fn want_fault(&self) {
        if let Some(queue) = &self.queue {
            let wanted = queue.words().u32_at(trusted::FAULT_WANTED);
            // While it is 0, no program begins to keep one.
            if wanted.load(Ordering::Acquire) == 0 && !has_kept(queue) {
                wanted.store(1, Ordering::Release);
            }
        }
    }

    /// Whether a program waits for the worker to take what it has kept: it has left its
    /// sign in the lock, and then taken the wish. That is looked at first, because the
    /// lock is written for each message.
    #[must_use]
    pub fn keeps_fault(&self) -> bool {
        self.queue.as_ref().is_some_and(|queue| {
            let wanted = queue.words().u32_at(trusted::FAULT_WANTED);
            wanted.load(Ordering::Acquire) == 0 && has_kept(queue)
        })
    }

    /// What a program has kept of the last fault, for whoever has taken the instance's
    /// lock from [`trusted::HELD`].
    #[must_use]
    pub(crate) fn kept_fault(&self) -> Option<KeptFault> {
        let queue = self.queue.as_ref()?;
        let at = trusted::fault_at(queue.layout().rings);
        let word = |offset| queue.words().u32_at(offset).load(Ordering::Relaxed);
        let front = word(at + trusted::FAULT_FRONT) as usize;
        let len = front + word(at + trusted::FAULT_LEN) as usize;
        let mut frame = vec![0; len.min(trusted::FAULT_FRAME_BYTES)];
        let copied = queue
            .words()
            .copy_out(at + trusted::FAULT_FRAME, &mut frame);
        copied.ok()?;
        Some(KeptFault {
            cause: Cause::from_number(word(trusted::FAULT_CAUSE))?,
            at: word(trusted::FAULT_AT),
            row: word(trusted::FAULT_ROW),
            changed: word(at + trusted::FAULT_CHANGED) != 0,
            message: frame.split_off(front.min(frame.len())),
            front: frame,
        })
    }
}

/// Whether a program has left its sign in a lock of the handler.
fn has_kept(queue: &Queue) -> bool {
    match CpuLocks::of(queue) {
        Some(locks) => locks.keep_fault(),
        None => queue.words().u32_at(trusted::LOCK).load(Ordering::Acquire) == trusted::HELD,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use crate::faults::tests::instance;

    /// Whoever looks between any two words of a fault finds the one before, the one
    /// after, or that there is none to be had now.
    fn faults_are_whole() -> bool {
        let instance = instance("whole");
        let version = instance.version();
        let of = |fault: Option<Fault>| fault.map(|it| (it.count, it.cause, it.at, it.row));
        let known = |number: u32, cause| Some((number, Some(cause), number, 10 * number));
        assert_eq!(of(instance.last_fault()), None);
        let mut before = None;
        let causes = [Cause::Unreachable, Cause::Time, Cause::Time, Cause::Fuel];
        for (number, cause) in (1..).zip(causes) {
            let after = known(number, cause);
            for (offset, value) in instance.steps(&version, cause, number, 10 * number) {
                instance.fault_word(offset).store(value, Ordering::Release);
                let seen = of(instance.look_at_fault());
                if seen.is_some() && seen != before && seen != after {
                    return false;
                }
            }
            assert_eq!(of(instance.last_fault()), after);
            before = after;
        }
        true
    }

    #[test]
    fn a_fault_is_read_whole_or_not() {
        assert!(faults_are_whole());
        assert!(!bug::with(Bug::FaultInPieces, faults_are_whole));
    }

    /// The same with a writer that goes on meanwhile.
    #[test]
    fn faults_are_read_beside_a_writer() {
        const FAULTS: u32 = 100_000;
        let instance = instance("beside");
        let version = instance.version();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 1..=FAULTS {
                    instance.record_fault(&version, Cause::Time, number, number);
                }
            });
            let mut last = 0;
            while last < FAULTS {
                if let Some(fault) = instance.last_fault() {
                    assert_eq!((fault.at, fault.row), (fault.count, fault.count));
                    last = fault.count;
                }
            }
        });
    }
}
