//! What memory and message were before an activation, so that a fault is replayed as it happened:
//! also of a handler that has cleared on its way what led there.
//!
//! A copy for each message would cost every handler 10 us for 128 KiB, and only what is stopped
//! needs one. So a handler is watched once it has been stopped: its next activations in the user
//! tier are copied before they begin, until one is stopped at the same place or [`MOST_BYTES`]
//! have been copied. A handler that stops at one place again and again, as most that are stopped
//! do, is kept exactly from the second time on; one that was stopped once is kept as it
//! was left. In the kernel tier there is no room for a copy, and none is made.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::bug::{self, Bug};
use crate::handler_memory::HandlerMemory;

/// What is copied for one stop at most, in bytes: some milliseconds of the worker's time, and not
/// in a row.
const MOST_BYTES: usize = 32 << 20;

/// How many activations are copied at most.
const MOST: usize = 1_024;

/// How often what is kept of a place may have a handler watched: one whose stops are further
/// apart than what is copied for one will not be kept exactly.
pub(crate) const MOST_WATCHES: u32 = 4;

/// How many of a handler's next activations are copied.
#[derive(Debug, Default)]
pub(crate) struct Watch(AtomicU32);

impl Watch {
    /// Has the next activations copied of a handler with a memory of so many bytes.
    pub(crate) fn begin(&self, memory_bytes: usize) {
        let most = (MOST_BYTES / memory_bytes.max(1)).clamp(1, MOST);
        self.0.store(most as u32, Ordering::Relaxed);
    }

    /// Whether one that begins is copied. Only the worker takes any away.
    fn take(&self) -> bool {
        let left = self.0.load(Ordering::Relaxed);
        if left > 0 {
            self.0.store(left - 1, Ordering::Relaxed);
        }
        left > 0
    }

    /// Has no more copied.
    pub(crate) fn end(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// A copy of what there was when an activation began.
#[derive(Debug)]
pub(crate) struct Before {
    /// The handler's memory and its state region.
    pub(crate) memory: Vec<u8>,
    pub(crate) message: Vec<u8>,
}

impl Before {
    /// Copies if the handler is watched. While nobody else runs it.
    pub(crate) fn copy(watch: &Watch, memory: &HandlerMemory, message: &[u8]) -> Option<Self> {
        watch.take().then(|| Self {
            memory: memory.snapshot(),
            message: message.to_vec(),
        })
    }

    /// What is kept of one that was stopped.
    pub(crate) fn of_stopped(self, memory: &HandlerMemory) -> Self {
        if bug::is(Bug::BeforeIsAfter) {
            let memory = memory.snapshot();
            return Self { memory, ..self };
        }
        self
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::sync::Arc;

    use ashway_modules::Message;
    use ashway_modules::handler::Instance as _;
    use ashway_path::attrs::Attrs;

    use crate::bug::with;
    use crate::counters::UserRows;
    use crate::faults::Faults;
    use crate::faults::tests::new_instance_of;
    use crate::handle::HandlerHandle;

    use super::*;

    /// A message of 1 arms it; one of 2 stops it if it is armed, and disarms it before, and
    /// writes over the message.
    const ONCE: &str = r#"(module
        (import "ashway" "msg_load8" (func $load (param i32) (result i32)))
        (import "ashway" "msg_store8" (func $store (param i32 i32)))
        (memory (export "memory") 1 1)
        (func (export "on_rx") (param i32 i32) (result i32)
          (local $armed i32)
          (if (i32.eq (call $load (i32.const 0)) (i32.const 1)) (then
            (i32.store (i32.const 64) (i32.const 7))
            (return (i32.const 0))))
          (local.set $armed (i32.load (i32.const 64)))
          (i32.store (i32.const 64) (i32.const 0))
          (call $store (i32.const 0) (i32.const 9))
          (if (local.get $armed) (then unreachable))
          (i32.const 0)))"#;

    /// The first bytes of memory and message that are kept of each of these stops.
    fn kept(messages: &[u8]) -> Vec<(String, String, bool)> {
        let rows = Arc::new(UserRows::new(1));
        let faults = Arc::new(Faults::default());
        let handle = HandlerHandle::new(new_instance_of("once", ONCE), &rows, &faults);
        let mut bound = handle.bind("on_rx", &Attrs::default()).unwrap();
        let mut seen = Vec::new();
        for byte in messages {
            let mut message = Message::with_room(1);
            message.fill(1, |bytes| bytes[0] = *byte);
            assert!(bound.acquire());
            bound.activate(&mut message);
            bound.release();
            if *byte == 2 {
                let all = faults.list(None).0;
                let last = all.last().expect("it was stopped");
                let kept = faults.export(last.fault).unwrap();
                let word = kept.memory[2 * 64..][..2].to_owned();
                seen.push((word, kept.message, last.exact));
            }
        }
        seen
    }

    #[test]
    fn from_the_second_time_on_a_stop_is_kept_as_it_began() {
        let of = |word: &str, message: &str, exact| (word.to_owned(), message.to_owned(), exact);
        let messages = [1, 2, 1, 2, 1, 2];
        let right = [
            of("00", "09", false),
            of("07", "02", true),
            of("07", "02", true),
        ];
        assert_eq!(kept(&messages), right);
        assert_ne!(with(Bug::BeforeIsAfter, || kept(&messages)), right);
    }

    #[test]
    fn no_more_is_copied_than_is_said() {
        let watch = Watch::default();
        assert!(!watch.take());
        watch.begin(MOST_BYTES / 3);
        assert_eq!((0..9).filter(|_| watch.take()).count(), 3);
        watch.begin(1);
        watch.end();
        assert!(!watch.take());
        watch.begin(usize::MAX);
        assert_eq!((0..9).filter(|_| watch.take()).count(), 1);
    }
}
