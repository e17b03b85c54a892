//! The way out of an interface, and back to the host, whatever its rung.

use ashway_abi::Count;
use ashway_modules::{Message, fragment};
use ashway_wire::partial;
use rustix::io::Errno;

/// The way out of an interface.
pub(crate) trait Port {
    /// Sends a whole frame, and says how that ended, in the ledger of what is sent.
    fn send(&mut self, frame: &[u8]) -> Count;

    /// Gives a frame to the host's own stack, as if it had just arrived. Its fate:
    /// [`Count::Passed`], or why the host does not have it.
    fn pass(&mut self, frame: &[u8]) -> Count;
}

/// The way out of an interface that the node has left.
#[derive(Debug)]
pub(crate) struct Gone;

impl Port for Gone {
    fn send(&mut self, _frame: &[u8]) -> Count {
        Count::OutDroppedIfaceDown
    }

    fn pass(&mut self, _frame: &[u8]) -> Count {
        Count::DroppedPassFailed
    }
}

/// Whether a socket says that its interface is down, or gone (packet(7), `xsk_sendmsg`).
pub(crate) fn is_down(error: &std::io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::NETDOWN | Errno::NODEV | Errno::NXIO))
}

/// How it is counted that what a path originated ended within it, with this fate: as a
/// message that could not be sent, if it was dropped.
pub(crate) fn unsent(fate: Count) -> Option<Count> {
    Some(match fate {
        Count::DroppedTooLong => Count::OutDroppedTooLong,
        Count::DroppedIfaceDown => Count::OutDroppedIfaceDown,
        Count::DroppedNoNextHop => Count::OutDroppedNoRoute,
        Count::DroppedQueueFull => Count::OutDroppedQueueFull,
        other if other.name().starts_with("dropped_") => Count::OutDroppedTxFull,
        _ => return None,
    })
}

/// Gives a message back to the host's stack, as it came; its fate, as [`Port::pass`] says it.
/// What was put together from fragments comes to it as fragments: whole it would not fit the
/// frame that a driver hands over.
pub(crate) fn give_to_host(message: &mut Message, port: &mut impl Port) -> Count {
    let parts = fragment::apart(message);
    if parts.is_empty() {
        let frame = message.bytes_mut();
        // The host checks what the sender's device would have filled in.
        partial::complete(frame);
        port.pass(frame)
    } else {
        // No device fills in the checksum of what its host cuts.
        let mut fates = parts.iter().map(|part| port.pass(part.bytes()));
        let failed = fates.find(|fate| *fate != Count::Passed);
        failed.unwrap_or(Count::Passed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_cannot_leave_is_counted_by_what_kept_it() {
        for (fate, counted) in [
            (Count::DroppedTooLong, Some(Count::OutDroppedTooLong)),
            (Count::DroppedIfaceDown, Some(Count::OutDroppedIfaceDown)),
            (Count::DroppedNoNextHop, Some(Count::OutDroppedNoRoute)),
            (Count::DroppedQueueFull, Some(Count::OutDroppedQueueFull)),
            (Count::DroppedFault, Some(Count::OutDroppedTxFull)),
            // Kept for a while by one stage, and taken by another.
            (Count::Consumed, None),
        ] {
            assert_eq!(unsent(fate), counted);
        }
        let down = [Errno::NETDOWN, Errno::NODEV, Errno::NXIO];
        assert!(down.iter().all(|errno| is_down(&(*errno).into())));
        assert!(!is_down(&Errno::NOBUFS.into()));
    }
}
