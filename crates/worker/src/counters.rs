//! Counting in the user tier, and adding both tiers up.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use ashway_abi::{Count, count};
use ashway_kernel::Map;

use crate::bug::{self, Bug};
use crate::rows::CounterRow;

/// The user tier's rows, parallel to the kernel's.
#[derive(Debug)]
pub struct UserRows(Box<[AtomicU64]>);

/// A row as it was at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Row([u64; count::ROW_WORDS]);

impl UserRows {
    /// Rows of zeros, which take memory from when they are counted in.
    #[must_use]
    pub fn new(rows: usize) -> Self {
        Self(ashway_memory::counters(rows * count::ROW_WORDS))
    }

    fn words(&self, row: CounterRow) -> &[AtomicU64] {
        &self.0[row.0 as usize * count::ROW_WORDS..][..count::ROW_WORDS]
    }

    /// Adds 1. Constant time, never blocks. For the worker alone: with one writer no locked
    /// instruction is needed, and a reader sees the old number or the new.
    pub(crate) fn add(&self, row: CounterRow, which: Count) {
        let word = &self.0[row.0 as usize * count::ROW_WORDS + which as usize];
        word.store(word.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Adds several, likewise.
    pub(crate) fn add_many(&self, row: CounterRow, which: Count, more: u64) {
        let word = &self.0[row.0 as usize * count::ROW_WORDS + which as usize];
        word.store(word.load(Ordering::Relaxed) + more, Ordering::Relaxed);
    }

    /// Zeroes a row, for whoever has it next. Nobody counts in it meanwhile.
    pub(crate) fn clear(&self, row: CounterRow) {
        for word in self.words(row) {
            word.store(0, Ordering::Relaxed);
        }
    }

    /// The row alone, as the user tier counted it.
    #[must_use]
    pub fn row(&self, row: CounterRow) -> Row {
        let words = self.words(row);
        Row(std::array::from_fn(|i| words[i].load(Ordering::Relaxed)))
    }
}

impl Row {
    /// A counter.
    #[must_use]
    pub fn get(&self, which: Count) -> u64 {
        self.0[which as usize]
    }

    /// Adds what the kernel's programs counted on all CPUs. What the kernel tier
    /// answers or sends on is handed over with that, so it enters the ledger of
    /// messages out here.
    ///
    /// # Errors
    ///
    /// When the map cannot be read.
    ///
    /// # Panics
    ///
    /// If the map's rows are shorter than what programs count.
    pub fn add_kernel(&mut self, rows: &Map, row: CounterRow) -> io::Result<()> {
        let mut sent = 0;
        for cpu in rows.lookup_percpu(&row.0.to_ne_bytes())? {
            for (word, bytes) in self.0.iter_mut().zip(cpu.chunks_exact(8)) {
                *word += u64::from_ne_bytes(bytes.try_into().expect("chunks of eight"));
            }
            for fate in [Count::Answered, Count::Forwarded] {
                let word = cpu[fate as usize * 8..].first_chunk();
                sent += u64::from_ne_bytes(*word.expect("a row has a word for each"));
            }
        }
        self.0[Count::OutOriginated as usize] += sent;
        self.0[Count::OutHandedOver as usize] += sent;
        Ok(())
    }

    /// How long the kernel tier took for the row's messages, by those that it timed.
    #[must_use]
    pub const fn kernel_ns(&self) -> u64 {
        self.0[count::KERNEL_NS]
    }

    /// Messages that a handler was run for.
    #[must_use]
    pub fn ran(&self) -> u64 {
        let aborted = if bug::is(Bug::AbortedNotRun) {
            0
        } else {
            self.get(Count::AbortVoluntary) + self.stops()
        };
        let timers = if bug::is(Bug::TimersAreMessages) {
            0
        } else {
            self.get(Count::RanForTimer)
        };
        // A row is read while it is written: a timer may be there before its activation.
        (self.get(Count::Committed) + aborted).saturating_sub(timers)
    }

    /// How often a handler was stopped: its involuntary aborts.
    #[must_use]
    pub fn stops(&self) -> u64 {
        let causes = ashway_abi::Cause::ALL.into_iter();
        causes.map(|cause| self.get(Count::of_cause(cause))).sum()
    }

    /// A row of zeros.
    #[must_use]
    pub const fn empty() -> Self {
        Self([0; count::ROW_WORDS])
    }

    /// A row of these and nothing else.
    #[must_use]
    pub fn of_fates(fates: impl Iterator<Item = (Count, u64)>) -> Self {
        let mut row = Self::empty();
        for (fate, times) in fates {
            row.0[fate as usize] = times;
        }
        row
    }

    /// Adds another row to this one.
    pub fn add(&mut self, other: &Self) {
        for (word, more) in self.0.iter_mut().zip(other.0) {
            *word += more;
        }
    }

    /// What was counted since the row was like `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] - before.0[i]))
    }

    /// Sum of a ledger's side.
    #[must_use]
    pub fn sum(&self, ledger: count::Ledger) -> u64 {
        Count::ALL
            .iter()
            .filter(|which| which.ledger() == ledger)
            .map(|which| self.get(*which))
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use ashway_abi::Cause;

    use super::*;

    /// Whether each message that the handler was run for is counted once, however that ended, and
    /// nothing else is.
    fn counts_messages() -> bool {
        let ends = [Count::Committed, Count::AbortVoluntary].into_iter();
        let mut ends = ends.chain(Cause::ALL.map(Count::of_cause));
        let beside = [Count::Received, Count::Answered, Count::QueuedOrder];
        let beside = beside.map(|beside| (beside, 100));
        let nothing = Row::of_fates(beside.into_iter()).ran() == 0;
        let messages = ends.all(|end| Row::of_fates([(end, 3)].into_iter()).ran() == 3);
        let timers = [(Count::Committed, 5), (Count::RanForTimer, 2)];
        nothing && messages && Row::of_fates(timers.into_iter()).ran() == 3
    }

    #[test]
    fn each_message_that_a_handler_was_run_for_is_counted_once() {
        assert!(counts_messages());
        for bug in [Bug::TimersAreMessages, Bug::AbortedNotRun] {
            assert!(!bug::with(bug, counts_messages), "{bug:?}");
        }
    }
}
