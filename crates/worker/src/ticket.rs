//! Tickets: who counts a message while it is in the user tier.
//!
//! Programs count the messages that they queue, until the worker says that these have
//! left the user tier: the kernel tier must not overtake them. What no program counts the
//! worker counts itself. The ticket goes with the message through its path's queue.

use std::num::NonZeroU32;

use ashway_abi::flow;

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
    /// The program that queued it for the path of a handler with this row, in this
    /// [bucket](ashway_abi::flow) or what stands in its place.
    Handler(CounterRow, u32),
}

/// Bit of [`Ticket::Handler`], which has a bucket above its row.
const HANDLER: u32 = 1 << 31;
/// Where the bucket is.
const FLOW: u32 = 18;
/// Rows of counters of a node, at most.
pub(crate) const MOST_ROWS: usize = 1 << FLOW;
/// Where the kind of the others is, above their number.
const KIND: u32 = 29;

const _: () = assert!(flow::UNORDERED < 1 << (31 - FLOW));

impl Ticket {
    /// The ticket in the form that the engine keeps.
    ///
    /// # Panics
    ///
    /// In debug builds, if its number is too large: rows and keys are not, and a plan has no more
    /// rows than [`MOST_ROWS`].
    pub(crate) fn pack(self) -> NonZeroU32 {
        let (kind, number) = match self {
            Self::Worker => (0, 1),
            Self::WorkerFor(row) => (1, row.0),
            Self::Frame(key) => (2, key),
            Self::Handler(row, flow) => {
                debug_assert_eq!(row.0 >> FLOW, 0);
                debug_assert!(flow <= flow::UNORDERED);
                let packed = HANDLER | flow << FLOW | row.0;
                return NonZeroU32::new(packed).unwrap_or(NonZeroU32::MIN);
            }
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
            _ => {
                let row = packed.get() & ((1 << FLOW) - 1);
                Self::Handler(CounterRow(row), (packed.get() & !HANDLER) >> FLOW)
            }
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
            ] {
                assert_eq!(Ticket::unpack(ticket.pack()), ticket);
            }
        }
        for row in [0, 1, 70_000, MOST_ROWS as u32 - 1] {
            for flow in [
                0,
                1,
                flow::BUCKETS as u32 - 1,
                flow::WHOLE_PATH,
                flow::UNORDERED,
            ] {
                let ticket = Ticket::Handler(CounterRow(row), flow);
                assert_eq!(Ticket::unpack(ticket.pack()), ticket);
            }
        }
    }
}
