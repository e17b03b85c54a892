//! Tickets: who counts a message while it is in the user tier.
//!
//! Programs count the messages that they queue, until the worker says that these have
//! left the user tier: the kernel tier must not overtake them. What no program counts the
//! worker counts itself. The ticket goes with the message through its path's queue.

use std::num::NonZeroU32;

use crate::rows::CounterRow;

/// Who counts a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ticket {
    /// The worker, for all paths of modules together.
    Worker,
    /// The worker, for the path of a handler with this row.
    WorkerFor(CounterRow),
    /// The program that queued it as a whole frame, under this key.
    Frame(u32),
    /// The program that queued it for the path of a handler with this row.
    Handler(CounterRow),
}

/// Bits of the kind, above those of the number.
const KIND: u32 = 30;

impl Ticket {
    /// The ticket in the form that the engine keeps.
    ///
    /// # Panics
    ///
    /// In debug builds, if its number has more than 30 bits: rows and keys have not.
    pub(crate) fn pack(self) -> NonZeroU32 {
        let (kind, number) = match self {
            Self::Worker => (0, 1),
            Self::WorkerFor(row) => (1, row.0),
            Self::Frame(key) => (2, key),
            Self::Handler(row) => (3, row.0),
        };
        debug_assert_eq!(number >> KIND, 0);
        // Only the first kind is 0, and its number is not.
        NonZeroU32::new(kind << KIND | number).unwrap_or(NonZeroU32::MIN)
    }

    /// What [`Ticket::pack`] has made.
    pub(crate) const fn unpack(packed: NonZeroU32) -> Self {
        let number = packed.get() & ((1 << KIND) - 1);
        match packed.get() >> KIND {
            0 => Self::Worker,
            1 => Self::WorkerFor(CounterRow(number)),
            2 => Self::Frame(number),
            _ => Self::Handler(CounterRow(number)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_comes_back_as_it_was() {
        for number in [0, 1, 70_000, (1 << KIND) - 1] {
            for ticket in [
                Ticket::Worker,
                Ticket::WorkerFor(CounterRow(number)),
                Ticket::Frame(number),
                Ticket::Handler(CounterRow(number)),
            ] {
                assert_eq!(Ticket::unpack(ticket.pack()), ticket);
            }
        }
    }
}
