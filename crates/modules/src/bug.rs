//! Seeded bugs: places that can be broken on purpose, to see a test turn red.
//!
//! A property that no mistake violates tests nothing. Each bug here is a
//! mistake that somebody could make, at the line where it would be made; the
//! tests choose one and expect their property to fail. Outside of tests [`is`]
//! is always false and costs nothing.

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// A fused pass sums and does not look at the sum.
    SumIgnored,
    /// What comes out of a fused pass is seen before the sum is.
    SeenBeforeSum,
    /// A pipe fused with UDP lets answers go by.
    AnswersSkipped,
}

/// Whether this one is chosen on this thread.
#[cfg(not(test))]
#[inline]
pub(crate) const fn is(_bug: Bug) -> bool {
    false
}

#[cfg(test)]
pub(crate) use chosen::{is, with};

#[cfg(test)]
mod chosen {
    use std::cell::Cell;

    use super::Bug;

    thread_local! {
        static CHOSEN: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    pub(crate) fn is(bug: Bug) -> bool {
        CHOSEN.get() == Some(bug)
    }

    /// Runs something with this bug in place.
    pub(crate) fn with<T>(bug: Bug, run: impl FnOnce() -> T) -> T {
        CHOSEN.set(Some(bug));
        let result = run();
        CHOSEN.set(None);
        result
    }
}
