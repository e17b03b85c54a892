//! Consumes what a [`source`](crate::source) sends, and keeps the books.
//!
//! * **Services:** `down`, to what it receives by. A leaf.
//! * **Attributes:** none to set. Published from the first message on, in
//!   messages: `received`; `lost` (numbers missing so far, those still on their
//!   way included);
//!   `duplicated`; `reordered` (came behind a later one, at most 1,024 numbers
//!   late); `damaged` (no message of a source, or changed on the way). One that
//!   is more than 1,024 late counts as duplicated: nobody knows any more.
//! * **Verdicts:** `Consumed`.
//! * **Counters:** the published attributes.
//! * **Tiers:** user.
//!
//! ```toml
//! [module.end]
//! kind = "sink"
//! down = "udp.up"
//! ```
//!
//! Source: RFC 4737 §3.3 for what is reordered (a number below the next one
//! expected), RFC 5560 for duplicates.

use std::sync::Arc;

use ashway_abi::Count;
use ashway_path::attrs::Attrs;
use ashway_path::module::{Kind, Module, Refused, StageAndNext};
use ashway_path::stage::{Cx, Direction, Stage, Step};

use crate::Message;
use crate::services;
use crate::source::Probe;
use crate::way::{Way, onward, way_of_leaf};

/// The kind.
pub static KIND: Kind = Kind {
    name: "sink",
    about: "consumes messages and checks their numbers",
    services: &services::LEAF,
    params: &[],
};

/// Published: messages that came.
pub const RECEIVED: &str = "received";
/// Published: numbers that are missing.
pub const LOST: &str = "lost";
/// Published: numbers that came again.
pub const DUPLICATED: &str = "duplicated";
/// Published: numbers that came behind later ones.
pub const REORDERED: &str = "reordered";
/// Published: messages that are not as a source made them.
pub const DAMAGED: &str = "damaged";

/// A sink.
#[derive(Clone, Debug)]
pub struct Sink {
    /// The module's name.
    pub name: Arc<str>,
}

impl Module<Message> for Sink {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    fn stage(
        &self,
        entered: Option<usize>,
        _attrs: &mut Attrs,
    ) -> Result<StageAndNext<Message>, Refused> {
        Ok(StageAndNext {
            stage: Box::new(SinkStage {
                module: self.name.clone(),
                way: way_of_leaf(entered),
                books: None,
            }),
            next: onward(entered),
        })
    }
}

struct SinkStage {
    module: Arc<str>,
    way: Way,
    /// From the first message on: most sinks of 100,000 never get one.
    books: Option<Box<Books>>,
}

impl Stage<Message> for SinkStage {
    fn name(&self) -> &str {
        &self.module
    }

    fn kind(&self) -> Option<&'static Kind> {
        Some(&KIND)
    }

    fn take(
        &mut self,
        message: Message,
        direction: Direction,
        cx: &mut Cx<'_, Message>,
    ) -> Step<Message> {
        if !self.way.is_up(direction) {
            return Step::On(message);
        }
        let books = self.books.get_or_insert_default();
        books.note(Probe::read(message.bytes()));
        books.publish(cx.attrs);
        Step::End(message, Count::Consumed)
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

/// How far back numbers are remembered.
const WINDOW: u64 = 1024;

#[derive(Default)]
struct Books {
    received: u64,
    lost: u64,
    duplicated: u64,
    reordered: u64,
    damaged: u64,
    /// One more than the highest number seen.
    next: u64,
    /// A bit for each of the last [`WINDOW`] numbers, at number % `WINDOW`.
    seen: [u64; WINDOW as usize / 64],
    /// What the attributes say.
    published: [Option<u64>; 5],
}

impl Books {
    fn note(&mut self, probe: Option<Probe>) {
        self.received += 1;
        let Some(Probe { sequence, .. }) = probe else {
            self.damaged += 1;
            return;
        };
        if sequence >= self.next {
            let missing = sequence - self.next;
            self.lost = self.lost.saturating_add(missing);
            for gone in sequence.saturating_sub(WINDOW - 1).max(self.next)..sequence {
                self.bit(gone, false);
            }
            self.bit(sequence, true);
            self.next = sequence.saturating_add(1);
        } else if self.next - sequence > WINDOW || self.bit(sequence, true) {
            self.duplicated += 1;
        } else {
            self.reordered += 1;
            self.lost = self.lost.saturating_sub(1);
        }
    }

    /// Notes whether a number was seen, and says whether it had been.
    fn bit(&mut self, sequence: u64, seen: bool) -> bool {
        let at = sequence % WINDOW;
        let (word, mask) = (&mut self.seen[at as usize / 64], 1 << (at % 64));
        let was = *word & mask != 0;
        *word = if seen { *word | mask } else { *word & !mask };
        was
    }

    /// Sets those attributes that are other than at the last time.
    fn publish(&mut self, attrs: &mut Attrs) {
        let now = [
            (RECEIVED, self.received),
            (LOST, self.lost),
            (DUPLICATED, self.duplicated),
            (REORDERED, self.reordered),
            (DAMAGED, self.damaged),
        ];
        for ((name, value), published) in now.into_iter().zip(&mut self.published) {
            if published.replace(value) != Some(value) {
                attrs.set(name, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ashway_path::time::Time;

    /// Lost, duplicated and reordered after these numbers.
    fn after(numbers: impl IntoIterator<Item = u64>) -> [u64; 3] {
        let mut books = Books::default();
        for sequence in numbers {
            let sent = Time(0);
            books.note(Some(Probe { sequence, sent }));
        }
        [books.lost, books.duplicated, books.reordered]
    }

    #[test]
    fn numbers_are_missing_until_they_come() {
        assert_eq!(after(0..5000), [0, 0, 0]);
        assert_eq!(after([0, 1, 4]), [2, 0, 0]);
        assert_eq!(after([0, 1, 4, 3]), [1, 0, 1]);
        assert_eq!(after([0, 1, 4, 3, 3, 0, 2]), [0, 2, 2]);
        assert_eq!(after([2]), [2, 0, 0]);
    }

    #[test]
    fn what_a_number_left_behind_in_the_window_is_not_taken_for_the_next_one() {
        // 5 and 1029 share a bit; 1029 is skipped, and comes late.
        let numbers = (0..1029).chain(1030..1100).chain([1029]);
        assert_eq!(after(numbers), [0, 0, 1]);
        // The same over more than a window.
        assert_eq!(after([0, 5, 5000, 4997, 4997]), [4997, 1, 1]);
        assert_eq!(after([0, 5000, 5000 - 1024, 5000 - 1023]), [4998, 1, 1]);
    }

    #[test]
    fn the_last_number_of_all_does_not_overflow() {
        assert_eq!(after([u64::MAX, 0]), [u64::MAX, 1, 0]);
    }
}
