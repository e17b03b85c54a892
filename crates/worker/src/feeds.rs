//! Which instances of handlers feed which paths: where the messages of a path are counted
//! while they are in the user tier.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ashway_abi::share::Account;
use ashway_abi::trusted;
use ashway_memory::SharedArray;
use ashway_path::sched::share::ShareAccount;

use crate::in_user;
use crate::instance::Instance;
use crate::rows::CounterRow;

/// Which instances feed which paths, by the rows of these.
#[derive(Debug, Default)]
pub(crate) struct Feeds(Vec<Option<Feed>>);

/// Where the messages of a handler's path are counted while they are in the user tier.
#[derive(Debug)]
pub(crate) struct Feed {
    instance: Arc<Instance>,
    /// The path's number within the instance.
    local: usize,
    /// How many interfaces the path is at.
    ifaces: u32,
}

impl Feeds {
    /// A path of this row begins at one more interface.
    pub(crate) fn insert(&mut self, row: CounterRow, instance: &Arc<Instance>, local: usize) {
        let at = row.0 as usize;
        if at >= self.0.len() {
            self.0.resize_with(at + 1, || None);
        }
        let feed = &mut self.0[at];
        match feed {
            Some(feed) if feed.is(instance, local) => feed.ifaces += 1,
            // Nothing of a path that had the row before is underway: the node has seen to it.
            _ => {
                *feed = Some(Feed {
                    instance: Arc::clone(instance),
                    local,
                    ifaces: 1,
                });
            }
        }
    }

    /// A path of this row is gone from one of its interfaces.
    pub(crate) fn remove(&mut self, row: CounterRow) {
        if let Some(feed) = self.0.get_mut(row.0 as usize) {
            feed.take_if(|feed| {
                feed.ifaces -= 1;
                feed.ifaces == 0
            });
        }
    }

    /// What feeds the path with this row, if a handler's rings do.
    #[must_use]
    pub(crate) fn at(&self, row: CounterRow) -> Option<&Feed> {
        self.0.get(row.0 as usize)?.as_ref()
    }

    /// Says that messages have left the user tier which programs count, by the rows of
    /// their paths and the buckets of their flows.
    pub(crate) fn leave(&self, ended: &[(CounterRow, u32)]) {
        let queue = |row| self.at(row)?.instance.queue.as_ref();
        in_user::leave_flows(ended.iter().copied(), |row, flow| {
            queue(row)?.flow_word(flow)
        });
        let rows = ended.iter().map(|(row, _)| *row);
        in_user::leave(rows, |row| self.at(row).and_then(Feed::word));
    }
}

impl Feed {
    fn is(&self, instance: &Arc<Instance>, local: usize) -> bool {
        Arc::ptr_eq(&self.instance, instance) && self.local == local
    }

    /// The instance.
    pub(crate) const fn instance(&self) -> &Arc<Instance> {
        &self.instance
    }

    /// How many interfaces the path is at.
    pub(crate) const fn ifaces(&self) -> usize {
        self.ifaces as usize
    }

    /// The path's number within it.
    pub(crate) const fn local(&self) -> usize {
        self.local
    }

    /// Counts a message that no program counts.
    pub(crate) fn count(&self) {
        self.instance
            .frames(self.local)
            .fetch_add(1, Ordering::AcqRel);
    }

    /// Such a message has left the user tier.
    pub(crate) fn uncount(&self) {
        self.instance
            .frames(self.local)
            .fetch_sub(1, Ordering::AcqRel);
    }

    /// Where programs count the path's messages in the user tier.
    fn word(&self) -> Option<&AtomicU32> {
        let queue = self.instance.queue.as_ref()?;
        Some(queue.in_user_word(self.local))
    }

    /// Tells the programs how the path stands with its share, so that they drop what the
    /// worker would have no room for.
    pub(crate) fn tell(&self, share: &ShareAccount) {
        let Some(queue) = self.instance.queue.as_ref().filter(|_| !share.is_open()) else {
            return;
        };
        write_standing(queue.words(), queue.path_word(self.local), &share.stands());
    }
}

/// How a path stands, to its words, which begin at `word`.
pub(crate) fn write_standing(words: &SharedArray, word: usize, stands: &Account) {
    let lazy_at = words.u64_at(word + trusted::PATH_LAZY_AT);
    lazy_at.store(stands.lazy_at, Ordering::Relaxed);
    let lazy = words.u32_at(word + trusted::PATH_LAZY);
    lazy.store(u32::from(stands.lazy), Ordering::Release);
}

#[cfg(test)]
mod tests {
    use ashway_abi::share::Terms;

    use super::*;
    use crate::bug::{self, Bug};
    use crate::played;

    const ROW: CounterRow = CounterRow(9);

    /// What waits as a whole frame is in the user tier, like what a program counts there.
    fn frames_keep_the_number() -> bool {
        let instance = Arc::new(crate::faults::tests::instance("frames"));
        let mut feeds = Feeds::default();
        feeds.insert(ROW, &instance, 3);
        let feed = feeds.at(ROW).expect("it was put there");
        (0..2).for_each(|_| feed.count());
        let kept = instance.in_user(3) == 2 && instance.in_user(2) == 0;
        (0..2).for_each(|_| feed.uncount());
        kept && instance.in_user(3) == 0
    }

    #[test]
    fn what_waits_keeps_its_paths_number() {
        assert!(frames_keep_the_number());
        assert!(!bug::with(Bug::FramesForgotten, frames_keep_the_number));
    }

    /// A row that another path has now is that path's alone, however many interfaces the one
    /// before it was at.
    #[test]
    fn a_row_is_fed_for_the_path_that_has_it() {
        let [first, second] =
            ["first", "second"].map(|name| Arc::new(crate::faults::tests::instance(name)));
        let mut feeds = Feeds::default();
        for (instance, local) in [(&first, 0), (&first, 1), (&second, 1)] {
            (0..2).for_each(|_| feeds.insert(ROW, instance, local));
            let feed = feeds.at(ROW).expect("it was put there");
            assert!(Arc::ptr_eq(feed.instance(), instance));
            assert_eq!((feed.local(), feed.ifaces), (local, 2));
        }
        (0..2).for_each(|_| feeds.remove(ROW));
        assert!(feeds.at(ROW).is_none());
        // It is gone already.
        feeds.remove(ROW);
    }

    #[test]
    fn programs_read_how_a_path_stands_in_its_own_words() {
        let words = played::words(4096);
        let word = trusted::PATHS + 2 * trusted::PATH_STRIDE;
        let stands = Account {
            lazy: true,
            lazy_at: 77,
            ..Account::default()
        };
        write_standing(&words, word, &stands);
        for at in (0..4096_usize).step_by(8) {
            let expected = match at.checked_sub(word) {
                Some(trusted::PATH_LAZY) => 1,
                Some(trusted::PATH_LAZY_AT) => 77,
                _ => 0,
            };
            assert_eq!(words.u64_at(at).load(Ordering::Relaxed), expected, "{at}");
        }
    }

    /// What a path has used of its share its programs read, while the worker keeps the account.
    #[test]
    fn programs_are_told_how_a_path_stands() {
        let instance = crate::faults::tests::instance("told");
        let instance = Arc::new(instance.with_queue(played::handler_queue("told")));
        let mut feeds = Feeds::default();
        feeds.insert(ROW, &instance, 4);
        let feed = feeds.at(ROW).expect("it was put there");
        let queue = instance.queue.as_ref().expect("it was given one");
        let said = || {
            let lazy = queue.path_word(4) + trusted::PATH_LAZY;
            queue.words().u32_at(lazy).load(Ordering::Acquire)
        };
        // A thousandth: a message of 10 us uses up what there is for ten milliseconds.
        let share = ShareAccount::of_handler(Terms::new(1, None), 10_000);
        let mut now = 1_000_000_000;
        while share.may_run(now) {
            share.ran(now, now + 10_000);
            now += 10_000;
        }
        assert!(share.stands().lazy);
        // Programs keep the account of one that is open.
        share.set_open(true);
        feed.tell(&share);
        assert_eq!(said(), 0);
        share.set_open(false);
        feed.tell(&share);
        assert_eq!(said(), 1);
    }

    #[test]
    fn a_path_feeds_until_it_has_left_its_last_interface() {
        let instance = Arc::new(crate::faults::tests::instance("feeds"));
        let mut feeds = Feeds::default();
        feeds.insert(ROW, &instance, 0);
        feeds.insert(ROW, &instance, 0);
        assert!(feeds.at(CounterRow(8)).is_none());
        feeds.remove(ROW);
        assert_eq!(feeds.at(ROW).map(Feed::local), Some(0));
        feeds.remove(ROW);
        assert!(feeds.at(ROW).is_none());
        // Without a kernel tier no program counts.
        feeds.leave(&[(ROW, 0)]);
    }
}
