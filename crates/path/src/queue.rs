//! Bounded queues at the ends of a path.
//!
//! A path has four: for each direction one where it begins and one where it
//! ends. Each message is offered to exactly one input queue, so this is the first
//! place where overload can be seen and the last where shedding it costs
//! nothing: no stage has run yet. A queue of maximum 0 is not there.
//!
//! Source: Mosberger & Peterson 1996 ("Scout"), §3.2 for the queues and §4.4
//! for dropping on arrival. Scout leaves the discipline open but for length and
//! maximum length; ours is first in, first out: whoever runs paths decides in which order,
//! and a second order within a path would hide which of the two made a message late.

use std::collections::VecDeque;

/// A first-in, first-out queue that never grows beyond its maximum.
///
/// Memory is allocated on use and by doubling, so that a path on which nothing
/// waits costs nothing; it is kept until the queue is dropped.
#[derive(Debug)]
pub struct Queue<T> {
    /// Invariant: never more than `maximum`. Made by the first that waits.
    #[expect(
        clippy::box_collection,
        reason = "a path has four, most of which are empty for ever: 96 bytes less of each path"
    )]
    waiting: Option<Box<VecDeque<T>>>,
    maximum: u32,
}

/// What a full queue refused, handed back whole: early discard costs its buffer
/// nothing.
#[derive(Debug, PartialEq, Eq)]
pub struct Refused<T>(pub T);

impl<T> Queue<T> {
    /// An empty queue for at most `maximum`. Does not allocate.
    #[must_use]
    pub const fn new(maximum: u32) -> Self {
        Self {
            waiting: None,
            maximum,
        }
    }

    /// How many wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.as_ref().map_or(0, |waiting| waiting.len())
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many may wait; 0 if the queue is not there.
    #[must_use]
    pub const fn maximum(&self) -> u32 {
        self.maximum
    }

    /// Appends. Constant time, but for the few times it allocates.
    ///
    /// # Errors
    ///
    /// Gives it back if `maximum` wait already.
    ///
    /// # Examples
    ///
    /// ```
    /// use ashway_path::queue::{Queue, Refused};
    /// let mut queue = Queue::new(2);
    /// assert_eq!(queue.offer("first"), Ok(()));
    /// assert_eq!(queue.offer("second"), Ok(()));
    /// assert_eq!(queue.offer("late"), Err(Refused("late")));
    /// assert_eq!(queue.take(), Some("first"));
    /// ```
    pub fn offer(&mut self, item: T) -> Result<(), Refused<T>> {
        if self.len() >= self.maximum as usize {
            return Err(Refused(item));
        }
        self.waiting.get_or_insert_default().push_back(item);
        Ok(())
    }

    /// The one that has waited longest.
    pub fn take(&mut self) -> Option<T> {
        self.waiting.as_mut()?.pop_front()
    }

    /// Changes the maximum, but not to less than wait now: none is thrown out,
    /// and a queue that holds something does not cease to be there, so that
    /// nothing can overtake what is in it.
    pub(crate) fn resize(&mut self, maximum: u32) {
        self.maximum = maximum.max(self.len() as u32);
    }

    /// Bytes allocated.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.waiting.as_ref().map_or(0, |waiting| {
            size_of::<VecDeque<T>>() + waiting.capacity() * size_of::<T>()
        })
    }
}
