//! Keys of paths that take whole frames: their numbers within the frame queue.
//!
//! Programs count the messages of a path that are in the user tier, in each direction, by
//! these. The first are those of [relays].

use ashway_path::stage::Direction;

use crate::relays;

/// Most paths that have a number, and with it a part of each ring of whole frames. What
/// comes for a further one is looked up again by the worker, and may fill the ring.
pub const MOST: usize = 1 << 16;

/// Keys of those paths, behind those of relays.
pub(crate) const KEYS: usize = 2 * MOST;

/// The key of a path's messages in a direction, by the path's number: where programs count
/// how many of them are in the user tier.
#[must_use]
pub const fn key(number: u32, direction: Direction) -> usize {
    relays::KEYS + 2 * number as usize + direction as usize
}

/// The number and the direction of a key; `None` if it is a relay's.
#[must_use]
pub(crate) fn of_key(key: usize) -> Option<(usize, Direction)> {
    let key = key.checked_sub(relays::KEYS)?;
    Some((key / 2, relays::direction(key)))
}
