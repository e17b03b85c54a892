//! The worker's side: what it says of messages while somebody observes.
//!
//! The tap is a value of the worker's thread, not an argument of everything that
//! carries a message: while there is none, all this costs one look at a flag for
//! each message. With one, what happens is copied and sent off; where the channel
//! is full it is counted as lost. So an observed worker allocates.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;

use ashway_abi::{Cause, Count, observe};
use ashway_memory::clock::monotonic_ns;
use ashway_modules::Message;
use ashway_path::stage::{Direction, Stage};
use ashway_path::watch::Watch;

use super::{Event, FramePrefix, What};

/// The CPU in the numbers of messages that no program has numbered.
const NO_CPU: u16 = u16::MAX;

/// Where the worker says what happens.
#[derive(Debug)]
pub struct TraceSink {
    /// To whoever observes.
    pub to: SyncSender<Event>,
    /// What could not be said.
    pub lost: Arc<AtomicU64>,
    /// The observation's number.
    pub session: u16,
}

thread_local! {
    static ON: Cell<bool> = const { Cell::new(false) };
    static TAP: RefCell<Option<TraceSink>> = const { RefCell::new(None) };
    static NUMBERED: Cell<u32> = const { Cell::new(0) };
    /// The handler that ran last, for [`Watcher::answered`].
    static RAN: RefCell<Option<What>> = const { RefCell::new(None) };
}

/// Puts a tap in, or takes it out; for the thread that calls it.
pub(crate) fn set(trace: Option<TraceSink>) {
    ON.set(trace.is_some());
    TAP.set(trace);
}

/// Whether this thread has one.
#[inline]
pub(crate) fn on() -> bool {
    ON.get()
}

/// A number for a message that has none; 0 without a tap.
pub(crate) fn number() -> u64 {
    TAP.with_borrow(|trace| {
        trace.as_ref().map_or(0, |trace| {
            let next = NUMBERED.get().wrapping_add(1).max(1);
            NUMBERED.set(next);
            observe::base(NO_CPU, trace.session) | u64::from(next)
        })
    })
}

/// The number that a program has given to a message, or 0 if that was for an
/// earlier observation, or none.
pub(crate) fn numbered(sequence: u64) -> u64 {
    TAP.with_borrow(|trace| {
        let ours = trace
            .as_ref()
            .is_some_and(|trace| trace.session == observe::session(sequence));
        if ours { sequence } else { 0 }
    })
}

/// Says that something happened to the message of this number; nothing if that is
/// 0 or there is no tap. Does not wait.
#[inline]
pub(crate) fn note(sequence: u64, what: impl FnOnce() -> What) {
    if on() && sequence != 0 {
        say(sequence, what());
    }
}

#[cold]
fn say(sequence: u64, what: What) {
    TAP.with_borrow(|trace| {
        let Some(trace) = trace else { return };
        let at = monotonic_ns();
        let event = Event { sequence, at, what };
        if trace.to.try_send(event).is_err() {
            trace.lost.fetch_add(1, Ordering::Relaxed);
        }
    });
}

/// Says how a message ended.
pub(crate) fn fate(message: &Message, fate: Count) {
    note(message.meta.observed, || What::Fate(fate));
}

/// Says which path a message goes.
pub(crate) fn path(message: &Message, name: &str) {
    note(message.meta.observed, || What::Path(Some(name.into())));
}

/// Says that a frame went out, or could not. One that nobody received, because a
/// path made it, gets its number here.
pub(crate) fn sent(message: &Message, handed_over: bool) {
    if on() {
        let sequence = match message.meta.observed {
            0 => number(),
            known => known,
        };
        note(sequence, || What::Sent {
            iface: message.meta.iface,
            frame: FramePrefix::of(message.bytes()),
            handed_over,
            copies: message.meta.copies,
        });
    }
}

/// Says that a handler ran, by way of the stage that ran it.
pub(crate) fn ran(handler: &str, fuel: u64, stopped: Option<Cause>, copies: u8) {
    if on() {
        RAN.set(Some(What::Ran {
            handler: handler.into(),
            fuel,
            stopped,
            copies,
        }));
    }
}

/// Says that what ran belongs to no message.
pub(crate) fn ran_by_itself() {
    RAN.set(None);
}

/// Watches a path's messages.
#[derive(Debug, Default)]
pub(crate) struct Watcher {
    /// The message that is with a stage.
    observed: u64,
}

impl Watch<Message> for Watcher {
    fn stage(&mut self, stage: &dyn Stage<Message>, direction: Direction, message: &Message) {
        self.observed = message.meta.observed;
        note(self.observed, || What::Stage {
            name: stage.name().into(),
            forward: direction == Direction::Forward,
        });
    }

    fn answered(&mut self, _: Option<&Message>) {
        if let Some(ran) = RAN.take() {
            note(self.observed, || ran);
        }
    }

    fn end(&mut self, fate: Count) {
        // Whether a message could be passed on is known when it has been tried.
        if fate != Count::Passed {
            note(self.observed, || What::Fate(fate));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::sync_channel;

    #[test]
    fn what_does_not_fit_is_counted_and_nothing_waits() {
        let (to, from) = sync_channel(1);
        let lost = Arc::new(AtomicU64::new(0));
        note(7, || unreachable!("there is no tap"));
        assert_eq!(number(), 0);
        set(Some(TraceSink {
            to,
            lost: Arc::clone(&lost),
            session: 3,
        }));
        let number = number();
        assert_eq!(observe::session(number), 3);
        assert_eq!(numbered(number), number);
        assert_eq!(numbered(number + (1 << 32)), 0, "of another observation");
        note(0, || unreachable!("nobody observes this message"));
        for _ in 0..3 {
            note(number, || What::Taken { copies: 2 });
        }
        assert_eq!(lost.load(Ordering::Relaxed), 2);
        assert_eq!(from.try_recv().unwrap().sequence, number);
        set(None);
        note(number, || unreachable!("the tap is out"));
    }
}
