//! What several changes of a map come to.
//!
//! A request may take an entry away that it has put there, or put one back: the map is to
//! have the last of it, by one update for all entries that come and one for all that go.

use crate::bug::{self, Bug};

/// What becomes of entries of a map by changes one after the other, of which the last of an
/// entry counts: whether it was there before them, and what it is after them.
pub(crate) struct EntryChanges<K, V> {
    all: Vec<EntryChange<K, V>>,
}

/// Of an entry.
struct EntryChange<K, V> {
    key: K,
    was: bool,
    is: Option<V>,
}

impl<K, V> Default for EntryChanges<K, V> {
    fn default() -> Self {
        Self { all: Vec::new() }
    }
}

impl<K: Ord, V> EntryChanges<K, V> {
    /// An entry comes that was not there.
    pub(crate) fn add(&mut self, key: K, value: V) {
        self.all.push(EntryChange {
            key,
            was: false,
            is: Some(value),
        });
    }

    /// An entry goes.
    pub(crate) fn remove(&mut self, key: K) {
        self.all.push(EntryChange {
            key,
            was: true,
            is: None,
        });
    }

    /// Makes one change for each entry, of all that were noted. To be called before the rest
    /// is asked for.
    pub(crate) fn settle(&mut self) {
        if self.all.len() < 2 {
            return;
        }
        // Those of one entry stay in their order.
        self.all.sort_by(|one, other| one.key.cmp(&other.key));
        self.all.dedup_by(|later, first| {
            let is_same = later.key == first.key;
            if is_same && !bug::is(Bug::FirstChangeCounts) {
                first.is = later.is.take();
            }
            is_same
        });
    }

    /// Entries that are there behind all, with what they lead to.
    pub(crate) fn added(&self) -> impl Iterator<Item = (&K, &V)> {
        let all = self.all.iter();
        all.filter_map(|change| Some((&change.key, change.is.as_ref()?)))
    }

    /// Entries that were there, and are not behind all.
    pub(crate) fn removed(&self) -> impl Iterator<Item = &K> {
        let gone = self.all.iter();
        let gone = gone.filter(|change| change.was && change.is.is_none());
        gone.map(|change| &change.key)
    }

    /// How many entries there are more for those that are new.
    pub(crate) fn more(&self) -> usize {
        let new = |change: &&EntryChange<_, _>| !change.was && change.is.is_some();
        self.all.iter().filter(new).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of each entry the last change counts, and whether it was there before the first.
    fn the_last_counts() -> bool {
        let mut changes = EntryChanges::default();
        changes.add("comes", 1);
        changes.remove("goes");
        changes.add("comes and goes", 2);
        changes.remove("stays");
        changes.add("is turned", 3);
        changes.remove("comes and goes");
        changes.add("stays", 4);
        changes.remove("is turned");
        changes.add("is turned", 5);
        changes.settle();
        let added: Vec<_> = changes.added().collect();
        let removed: Vec<_> = changes.removed().collect();
        added == [(&"comes", &1), (&"is turned", &5), (&"stays", &4)]
            && removed == [&"goes"]
            && changes.more() == 2
    }

    #[test]
    fn an_entry_is_changed_once() {
        assert!(the_last_counts());
        assert!(!bug::with(Bug::FirstChangeCounts, the_last_counts));
    }

    #[test]
    fn one_change_is_itself() {
        let mut changes = EntryChanges::<u32, ()>::default();
        changes.remove(7);
        changes.settle();
        assert_eq!(changes.removed().collect::<Vec<_>>(), [&7]);
        assert_eq!((changes.added().count(), changes.more()), (0, 0));
        let mut none = EntryChanges::<u32, ()>::default();
        none.settle();
        assert_eq!(none.removed().count(), 0);
    }
}
