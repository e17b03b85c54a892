//! Which instances the worker looks at.
//!
//! A look at an instance is a look at memory that programs of other CPUs write. With hundreds
//! of handlers, of which one has messages, the worker would spend its time on the others. So
//! one that has had nothing while others had messages, [`LINGER`] times, is left alone: it
//! *sleeps*. Its programs then do for it what they do for a worker that sleeps: the first that
//! has something takes the wish away ([`NEED_WAKE`](ashway_abi::trusted::NEED_WAKE)) and rings the bell, at which the
//! worker looks each time. So a message waits no longer than for an instance that is looked
//! at: until the next look.
//!
//! No message is lost between the two, by the protocol of the bell
//! ([`ashway_memory::WakeBell`]). The worker writes the wish, and *then* looks once more; a
//! program publishes its message, and *then* looks at the wish: there is a full barrier on
//! either side, so one of the two sees the other. And a program takes the wish away *before*
//! it rings: whoever sees the ring sees which instances have rung. If the bell's buffer is
//! full, the program does not ring, but then the bell has rung already, and the barrier behind
//! [`Awake::rouse`]'s drain has one of the two see the other again.

use std::sync::atomic::{Ordering, fence};

use crate::bug::{self, Bug};
use crate::queue::Queue;
use crate::rings;
use crate::run_instance::RunInstance;

/// For how many looks that have found messages elsewhere an instance is looked at in vain. A
/// program that rings costs its message a microsecond, and these looks cost less.
const LINGER: u64 = 64;

/// Something that is looked at while it is awake, and rings while it sleeps.
pub(super) trait Sleeper {
    /// Whether it can have messages at all.
    fn is_fed(&self) -> bool;

    /// Says whether to ring for the next message.
    fn want_wake(&self, wanted: bool);

    /// Whether it has rung, or was never asked to.
    fn is_rung(&self) -> bool;

    /// Whether it has something for the worker.
    fn waiting(&self) -> bool;

    /// Whether it sleeps.
    fn asleep(&mut self) -> &mut bool;
}

impl Sleeper for RunInstance {
    fn is_fed(&self) -> bool {
        self.shared().queue.is_some()
    }

    fn want_wake(&self, wanted: bool) {
        if let Some(queue) = &self.shared().queue {
            queue.want_wake(wanted);
        }
    }

    fn is_rung(&self) -> bool {
        self.shared().queue.as_ref().is_some_and(Queue::is_rung)
    }

    fn waiting(&self) -> bool {
        self.handler.look_at_fault();
        rings::waiting(self.shared())
    }

    fn asleep(&mut self) -> &mut bool {
        &mut self.asleep
    }
}

/// The instances that are looked at, by their places in the list of all.
#[derive(Debug, Default)]
pub struct Awake {
    all: Vec<One>,
    /// Looks that have found a message.
    looks: u64,
}

#[derive(Clone, Copy, Debug)]
struct One {
    at: usize,
    /// The look that has last found a message of it.
    last: u64,
}

impl Awake {
    /// The list of all instances has changed.
    pub(super) fn list<S: Sleeper>(&mut self, instances: &mut [S]) {
        self.all.clear();
        for (at, instance) in instances.iter_mut().enumerate() {
            if instance.is_fed() && !*instance.asleep() {
                self.all.push(One {
                    at,
                    last: self.looks,
                });
            }
        }
    }

    /// Looks at each that is awake, by way of `look`, which says whether there was anything;
    /// whether there was anything at all.
    pub(super) fn look<S: Sleeper>(
        &mut self,
        instances: &mut [S],
        mut look: impl FnMut(&mut S) -> bool,
    ) -> bool {
        let mut any = false;
        let looks = self.looks;
        self.all.retain_mut(|one| {
            let instance = &mut instances[one.at];
            if look(instance) {
                any = true;
                one.last = looks;
            }
            let lingers = looks - one.last < LINGER;
            lingers || !lie_down(instance)
        });
        any
    }

    /// The worker has had a message, of whomever: those that have none come nearer to sleep.
    /// While nobody has any they are looked at as often as the worker likes.
    pub(super) const fn was_busy(&mut self) {
        self.looks += 1;
    }

    /// Lets all sleep. Whether none had anything: then the worker may, too.
    pub(super) fn all_lie_down<S: Sleeper>(&mut self, instances: &mut [S]) -> bool {
        self.all.retain(|one| !lie_down(&mut instances[one.at]));
        self.all.is_empty()
    }

    /// Looks for those that have rung, once the bell has been drained. Whether there were any.
    pub(super) fn rouse<S: Sleeper>(&mut self, instances: &mut [S]) -> bool {
        // Behind the drain: a program that found the bell's buffer full has taken the wish
        // away before, or finds room.
        fence(Ordering::SeqCst);
        let before = self.all.len();
        for (at, instance) in instances.iter_mut().enumerate() {
            if *instance.asleep() && instance.is_rung() {
                *instance.asleep() = false;
                self.all.push(One {
                    at,
                    last: self.looks,
                });
            }
        }
        self.all.len() > before
    }

    /// Has all looked at, whether they have rung or not.
    pub(super) fn rouse_all<S: Sleeper>(&mut self, instances: &mut [S]) {
        for instance in &mut *instances {
            *instance.asleep() = false;
        }
        self.list(instances);
    }
}

/// Has an instance ring for its next message; not if it has one already.
fn lie_down<S: Sleeper>(instance: &mut S) -> bool {
    instance.want_wake(true);
    // Either its program sees the wish, or its message is seen here.
    fence(Ordering::SeqCst);
    let sleeps = !instance.waiting() || bug::is(Bug::SleepsOnMessage);
    if !sleeps {
        instance.want_wake(false);
    }
    *instance.asleep() = sleeps;
    sleeps
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, AtomicU64};
    use std::time::{Duration, Instant};

    use super::*;

    /// What an instance shares with its programs, and the bell of all.
    #[derive(Debug, Default)]
    struct Words {
        produced: AtomicU32,
        consumed: AtomicU32,
        need_wake: AtomicU32,
    }

    #[derive(Debug)]
    struct Model<'w> {
        words: &'w Words,
        asleep: bool,
        fed: bool,
    }

    impl Model<'_> {
        /// As a look of the worker: takes all that is there.
        fn take(&self) -> bool {
            let produced = self.words.produced.load(Ordering::Acquire);
            self.words.consumed.swap(produced, Ordering::AcqRel) != produced
        }
    }

    impl Sleeper for Model<'_> {
        fn is_fed(&self) -> bool {
            self.fed
        }

        fn want_wake(&self, wanted: bool) {
            let word = &self.words.need_wake;
            word.store(wanted.into(), Ordering::SeqCst);
        }

        fn is_rung(&self) -> bool {
            self.words.need_wake.load(Ordering::SeqCst) == 0
        }

        fn waiting(&self) -> bool {
            let word = |word: &AtomicU32| word.load(Ordering::Acquire);
            word(&self.words.produced) != word(&self.words.consumed)
        }

        fn asleep(&mut self) -> &mut bool {
            &mut self.asleep
        }
    }

    /// As a program does: publishes a message, and rings if it is asked to.
    fn produce(words: &Words, bell: &AtomicU64) {
        words.produced.fetch_add(1, Ordering::SeqCst);
        if words.need_wake.load(Ordering::SeqCst) != 0
            && words.need_wake.swap(0, Ordering::SeqCst) != 0
        {
            bell.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn models(words: &[Words]) -> Vec<Model<'_>> {
        let new = |words| Model {
            words,
            asleep: false,
            fed: true,
        };
        words.iter().map(new).collect()
    }

    #[test]
    fn one_is_looked_at_as_long_as_it_has_messages_or_nobody_has() {
        let words: [Words; 2] = Default::default();
        let (bell, mut models) = (AtomicU64::new(0), models(&words));
        let mut awake = Awake::default();
        awake.list(&mut models);
        // Nobody has any, for long.
        for _ in 0..10 * LINGER {
            assert!(!awake.look(&mut models, |model| model.take()));
        }
        assert_eq!(awake.all.len(), 2);
        // One has.
        for look in 0..=LINGER {
            assert_eq!(awake.all.len(), 2, "after {look}");
            produce(&words[0], &bell);
            assert!(awake.look(&mut models, |model| model.take()));
            awake.was_busy();
        }
        assert_eq!(awake.all.len(), 1, "the other sleeps");
        assert_eq!(bell.load(Ordering::SeqCst), 0);
        // Until it has some, too.
        produce(&words[1], &bell);
        produce(&words[1], &bell);
        assert_eq!(bell.load(Ordering::SeqCst), 1, "it rings once");
        assert!(awake.rouse(&mut models) && awake.look(&mut models, |model| model.take()));
        assert_eq!(awake.all.len(), 2);
        assert!(awake.all_lie_down(&mut models) && awake.all.is_empty());
        assert!(!awake.rouse(&mut models));
        awake.rouse_all(&mut models);
        assert_eq!(awake.all.len(), 2);
    }

    #[test]
    fn those_are_listed_that_can_have_messages_and_do_not_sleep() {
        let words: [Words; 3] = Default::default();
        let mut models = models(&words);
        (models[0].fed, models[1].asleep) = (false, true);
        let mut awake = Awake::default();
        awake.list(&mut models);
        let listed: Vec<usize> = awake.all.iter().map(|one| one.at).collect();
        assert_eq!(listed, [2]);
        // One that came later has as long as those that were there.
        (0..5).for_each(|_| awake.was_busy());
        models[1].asleep = false;
        awake.list(&mut models);
        assert_eq!(
            awake.all.iter().map(|one| one.last).collect::<Vec<_>>(),
            [5, 5]
        );
    }

    /// What came just before it lay down is seen at once.
    fn nothing_is_slept_on() -> bool {
        let words: [Words; 1] = Default::default();
        let (bell, mut models) = (AtomicU64::new(0), models(&words));
        let mut awake = Awake::default();
        awake.list(&mut models);
        produce(&words[0], &bell);
        !awake.all_lie_down(&mut models) && awake.look(&mut models, |model| model.take())
    }

    #[test]
    fn a_message_that_comes_meanwhile_is_not_slept_on() {
        assert!(nothing_is_slept_on());
        assert!(!bug::with(Bug::SleepsOnMessage, nothing_is_slept_on));
    }

    /// Programs on another CPU, whose messages come one by one, each when the one before was
    /// taken: one that is slept on would be the last.
    #[test]
    fn no_message_is_lost_between_wish_and_look() {
        const MESSAGES: u32 = 200_000;
        let words: [Words; 3] = Default::default();
        let bell = AtomicU64::new(0);
        let mut models = models(&words);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for message in 0..MESSAGES {
                    let words = &words[message as usize % 3];
                    produce(words, &bell);
                    let taken = || {
                        let consumed = words.consumed.load(Ordering::Acquire);
                        consumed == words.produced.load(Ordering::Acquire)
                    };
                    // A failed test ends, too.
                    let end = Instant::now() + Duration::from_secs(20);
                    while !taken() {
                        assert!(Instant::now() < end, "message {message} is slept on");
                        std::hint::spin_loop();
                    }
                }
            });
            let (mut awake, mut heard) = (Awake::default(), 0);
            awake.list(&mut models);
            let done = || words.iter().map(|it| it.consumed.load(Ordering::Acquire));
            let end = Instant::now() + Duration::from_secs(30);
            while done().sum::<u32>() < MESSAGES && Instant::now() < end {
                if std::mem::replace(&mut heard, bell.load(Ordering::SeqCst)) != heard {
                    awake.rouse(&mut models);
                }
                awake.look(&mut models, |model| model.take());
                awake.all_lie_down(&mut models);
            }
        });
    }
}
