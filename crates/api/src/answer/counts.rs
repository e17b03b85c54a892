//! What became of messages: the counters of a path, by name.
//!
//! [`Count`] has the names and says which ledger each belongs to; this is where each stands
//! in a document, for those who write it and for those who look one up.

use std::collections::BTreeMap;

use ashway_abi::Count;
use ashway_abi::count::Ledger;
use serde::{Deserialize, Serialize};

use super::Word;

/// How often, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Tally(pub BTreeMap<Word, u64>);

impl Tally {
    /// How often this; 0 if the name is not there.
    #[must_use]
    pub fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// The sum of all.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.0.values().sum()
    }

    /// In the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(name, times)| (&**name, *times))
    }

    /// Adds to one, which is there from then on.
    pub fn add(&mut self, name: &'static str, times: u64) {
        *self.0.entry(name.into()).or_default() += times;
    }

    fn add_all(&mut self, other: &Self) {
        for (name, times) in &other.0 {
            *self.0.entry(name.clone()).or_default() += times;
        }
    }

    /// Adds to one that is only there when it has something to say.
    fn add_some(&mut self, name: &'static str, times: u64) {
        if times > 0 {
            self.add(name, times);
        }
    }
}

/// The ends that messages came to: the common ones always, the rare ones when they happened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Fates {
    /// Messages dropped, by reason.
    pub dropped: Tally,
    /// Messages of the other ends, by end (`answered`, `handed_over`, ...).
    #[serde(flatten)]
    pub others: Tally,
}

impl Fates {
    /// All messages that have come to an end.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.dropped.sum() + self.others.sum()
    }

    fn add_all(&mut self, other: &Self) {
        self.dropped.add_all(&other.dropped);
        self.others.add_all(&other.others);
    }

    fn add(&mut self, name: &'static str, times: u64) {
        match name.strip_prefix("dropped_") {
            Some(reason) => self.dropped.add_some(reason, times),
            None => self.others.add(name, times),
        }
    }

    fn get(&self, name: &str) -> u64 {
        match name.strip_prefix("dropped_") {
            Some(reason) => self.dropped.get(reason),
            None => self.others.get(name),
        }
    }
}

/// How often a handler ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Activations {
    /// Messages that a handler has looked at: the sum of the other two.
    pub examined: u64,
    /// Activations that ended with a verdict.
    pub committed: u64,
    /// Activations that gave up or were stopped; [`Counts::aborts`] says why.
    pub aborted: u64,
}

/// What a path has received and made, and what became of it. All are messages since the
/// path came.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Counts {
    /// Messages received.
    pub received: u64,
    /// Of these, those that have no fate yet: they are in the user tier.
    pub waiting: u64,
    /// What became of those that have one.
    pub fates: Fates,
    /// What happened on the way, by name; a message can be in several, or in none.
    pub notes: Tally,
    /// How often the handler ran.
    pub activations: Activations,
    /// Activations that ended without a verdict, by cause.
    pub aborts: Tally,
    /// What the path made and sent: `originated`, `handed_over`, and `dropped` by reason.
    /// Absent of a path of modules, whose frames are counted with those of all such paths.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub out: Option<Fates>,
    /// Whether the sums close: received = fates + waiting, originated = sent + dropped.
    pub balanced: bool,
}

impl Counts {
    /// What a row of counters says; `waiting` is the number of its messages in the user tier.
    #[must_use]
    pub fn of(row: impl Fn(Count) -> u64, waiting: u64) -> Self {
        let mut all = Self {
            received: row(Count::Received),
            waiting,
            ..Self::default()
        };
        let (mut out, mut fates, mut originated, mut sent) = (Fates::default(), 0, 0, 0);
        for &which in Count::ALL {
            let (name, times) = (which.name(), row(which));
            match which.ledger() {
                Ledger::Received => {}
                Ledger::Fate => {
                    fates += times;
                    all.fates.add(name, times);
                }
                Ledger::Note if which == Count::Committed => all.activations.committed = times,
                Ledger::Note => match name.strip_prefix("abort_") {
                    Some(cause) => all.aborts.add_some(cause, times),
                    None => all.notes.add_some(name, times),
                },
                Ledger::Originated => {
                    originated += times;
                    out.add(out_name(name), times);
                }
                Ledger::Sent => {
                    sent += times;
                    out.add(out_name(name), times);
                }
            }
        }
        all.activations.aborted = all.aborts.sum();
        all.activations.examined = all.activations.committed + all.activations.aborted;
        all.balanced = all.received == fates + waiting && originated == sent;
        all.out = Some(out);
        all
    }

    /// Adds messages that came to an end.
    pub fn add_fate(&mut self, fate: Count, times: u64) {
        self.fates.add(fate.name(), times);
    }

    /// How often this was counted.
    #[must_use]
    pub fn get(&self, count: Count) -> u64 {
        let name = count.name();
        match count.ledger() {
            Ledger::Received => self.received,
            Ledger::Fate => self.fates.get(name),
            Ledger::Note if count == Count::Committed => self.activations.committed,
            Ledger::Note => match name.strip_prefix("abort_") {
                Some(cause) => self.aborts.get(cause),
                None => self.notes.get(name),
            },
            Ledger::Originated | Ledger::Sent => {
                let out = self.out.as_ref();
                out.map_or(0, |out| out.get(out_name(name)))
            }
        }
    }
}

impl std::ops::AddAssign<&Self> for Counts {
    /// Adds what another path has counted; each message is in one of the two.
    fn add_assign(&mut self, other: &Self) {
        self.received += other.received;
        self.waiting += other.waiting;
        self.fates.add_all(&other.fates);
        self.notes.add_all(&other.notes);
        self.activations.examined += other.activations.examined;
        self.activations.committed += other.activations.committed;
        self.activations.aborted += other.activations.aborted;
        self.aborts.add_all(&other.aborts);
        match (&mut self.out, &other.out) {
            (Some(out), Some(other)) => out.add_all(other),
            (out, other) => *out = out.take().or_else(|| other.clone()),
        }
        self.balanced &= other.balanced;
    }
}

/// The name of a counter of messages out, where it stands below `out`.
fn out_name(name: &'static str) -> &'static str {
    name.strip_prefix("out_").unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows in which each of these was counted so often.
    fn counts(counted: &[(Count, u64)], waiting: u64) -> Counts {
        let of = |count| {
            let mut all = counted.iter();
            all.find(|(known, _)| *known == count)
                .map_or(0, |(_, times)| *times)
        };
        Counts::of(of, waiting)
    }

    #[test]
    fn a_message_without_a_fate_shows() {
        let row = [(Count::Received, 2), (Count::Consumed, 1)];
        assert!(!counts(&row, 0).balanced);
        assert!(counts(&row, 1).balanced);
        let row = [row[0], row[1], (Count::DroppedTooLong, 1)];
        let counts = counts(&row, 0);
        assert!(counts.balanced);
        let dropped = Tally([("too_long".into(), 1)].into());
        assert_eq!(counts.fates.dropped, dropped);
    }

    #[test]
    fn each_counter_is_found_where_it_was_put() {
        for &count in Count::ALL {
            assert_eq!(counts(&[(count, 7)], 0).get(count), 7, "{}", count.name());
        }
    }
}
