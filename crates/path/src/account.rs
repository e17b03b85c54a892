//! What a path has received, done and used.
//!
//! **Messages in:** every received message ends in exactly one fate, so
//! `received = fates + waiting`. **Messages out:** those that the path itself
//! made, by turning a message around or from nothing, `originated = left +
//! ended`. Both hold between any two calls of the path.

use std::fmt;
use std::time::Duration;

use ashway_abi::Count;
use ashway_abi::count::{Ledger, ROW_WORDS};

/// Received messages, and each fate: what a path counts.
const COUNTS: usize = {
    let mut counts = 1;
    let mut at = 0;
    while at < Count::ALL.len() {
        counts += matches!(Count::ALL[at].ledger(), Ledger::Fate) as usize;
        at += 1;
    }
    counts
};

/// Where each counter of a row is among them; 0, where the received ones are, if it is no
/// fate.
const PLACES: [u8; ROW_WORDS] = {
    let mut places = [0; ROW_WORDS];
    let (mut at, mut next) = (0, 1);
    while at < Count::ALL.len() {
        if matches!(Count::ALL[at].ledger(), Ledger::Fate) {
            places[Count::ALL[at] as usize] = next;
            next += 1;
        }
        at += 1;
    }
    assert!(next as usize == COUNTS);
    places
};

/// Whether a received message can end in this.
#[must_use]
pub const fn is_fate(count: Count) -> bool {
    PLACES[count as usize] != 0
}

/// The books of one path.
#[derive(Clone, Debug, Default)]
pub struct Account {
    /// None before the first message: thousands of paths wait for one.
    counts: Option<Box<[u64; COUNTS]>>,
    /// Messages that the path made.
    pub originated: u64,
    /// Of those, the ones that left it at an end.
    pub left: u64,
    /// Of those, the ones that ended within: dropped, consumed or absorbed.
    pub ended: u64,
    /// Times that stages were set going, by a message or by time.
    pub runs: u64,
    /// Execution time, as charged by whoever ran it.
    pub time: Duration,
    /// The memory grant, in bytes.
    pub granted_bytes: usize,
    /// Of it, what the path as assembled may come to need.
    pub memory_bytes: usize,
    /// How often a stage misbehaved.
    pub faults: u64,
    /// The last time it did.
    pub fault: Option<Box<Fault>>,
}

impl Account {
    /// Of the received ones, or of a fate.
    fn count(&self, of: Count) -> u64 {
        let counts = self.counts.as_ref();
        counts.map_or(0, |counts| counts[usize::from(PLACES[of as usize])])
    }

    /// As there. Allocates the first time.
    #[inline]
    fn add(&mut self, to: Count, times: u64) {
        let counts = self.counts.get_or_insert_default();
        counts[usize::from(PLACES[to as usize])] += times;
    }

    /// Messages received.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.count(Count::Received)
    }

    /// Received messages that ended so.
    #[must_use]
    pub fn fate(&self, fate: Count) -> u64 {
        if is_fate(fate) { self.count(fate) } else { 0 }
    }

    /// Received messages that a stage kept.
    #[must_use]
    pub fn absorbed(&self) -> u64 {
        self.fate(Count::Absorbed)
    }

    /// The fates that occurred, and how often.
    pub fn fates(&self) -> impl Iterator<Item = (Count, u64)> {
        Count::ALL
            .iter()
            .filter(|count| is_fate(**count))
            .map(|count| (*count, self.count(*count)))
            .filter(|(_, times)| *times > 0)
    }

    /// Received messages without a fate: those that must be waiting.
    #[must_use]
    pub fn open(&self) -> u64 {
        let fates: u64 = self.fates().map(|(_, times)| times).sum();
        self.received() - fates
    }

    /// Counts a received message.
    #[inline]
    pub(crate) fn receive(&mut self) {
        self.add(Count::Received, 1);
    }

    /// Counts a received message's fate.
    #[inline]
    pub(crate) fn end(&mut self, fate: Count) {
        self.add(fate, 1);
    }

    /// Counts a message anew that was counted as passed.
    pub(crate) fn pass_failed(&mut self, fate: Count) {
        let counts = self.counts.get_or_insert_default();
        counts[usize::from(PLACES[Count::Passed as usize])] -= 1;
        self.add(fate, 1);
    }

    /// Counts so many received messages' fate.
    pub(crate) fn end_many(&mut self, fate: Count, messages: u64) {
        self.add(fate, messages);
    }

    /// Notes a misbehaviour.
    pub(crate) fn blame(&mut self, stage: &str, position: usize, what: Misbehaviour) {
        self.faults += 1;
        self.fault = Some(Box::new(Fault {
            stage: stage.into(),
            position,
            what,
        }));
    }
}

/// A stage that did what no stage may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The stage's name.
    pub stage: Box<str>,
    /// Its position in the path.
    pub position: usize,
    /// What it did.
    pub what: Misbehaviour,
}

/// What no stage may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misbehaviour {
    /// Originated more messages for one than this; the rest was dropped.
    Endless(u32),
    /// Ended a message with a count that is not a fate; the message was dropped.
    NotAFate(Count),
    /// Panicked; the path runs no more.
    Panicked,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            stage, position, ..
        } = self;
        write!(f, "stage `{stage}` at position {position} ")?;
        match self.what {
            Misbehaviour::Endless(limit) => write!(
                f,
                "made more than {limit} messages out of one, alone or by turning them around \
                 with its neighbours; the rest was dropped"
            ),
            Misbehaviour::Panicked => write!(f, "panicked; the path runs no more"),
            Misbehaviour::NotAFate(count) => write!(
                f,
                "ended a message with `{}`, which is not a fate; it was dropped",
                count.name()
            ),
        }
    }
}
