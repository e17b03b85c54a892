//! Which messages the rings of a queue hold at a moment: what is behind that may go on without
//! end, and is not waited for.

use std::sync::atomic::Ordering;

use ashway_abi::trusted;

use crate::queue::Queue;

/// A mark for each ring: how many slots programs had taken.
#[derive(Debug)]
pub(crate) struct RingMarks(Vec<u32>);

impl RingMarks {
    /// Those that are there now.
    pub(crate) fn of(queue: &Queue) -> Self {
        let rings = 0..queue.layout().rings;
        let produced = rings.map(|ring| word(queue, ring, trusted::RING_PRODUCED));
        Self(produced.collect())
    }

    /// Whether all of them have been taken out. The words wrap: asked within 2^31 messages.
    pub(crate) fn are_passed(&self, queue: &Queue) -> bool {
        let mut rings = self.0.iter().enumerate();
        rings.all(|(ring, mark)| {
            let taken = word(queue, ring, trusted::RING_CONSUMED);
            taken.wrapping_sub(*mark).cast_signed() >= 0
        })
    }
}

/// A word of a ring's control block.
fn word(queue: &Queue, ring: usize, offset: usize) -> u32 {
    let control = trusted::RINGS + ring * trusted::RING_STRIDE;
    let word = queue.words().u32_at(control + offset);
    word.load(Ordering::Acquire)
}
