//! Seeded bugs: places that can be broken on purpose, to see a test turn red.
//!
//! A property that no mistake violates tests nothing. A crate's bugs are mistakes that
//! somebody could make, each at the line where it would be made; the crate's own tests
//! choose one and expect their property to fail.

/// Declares a crate's `Bug`, and `is(Bug) -> bool`: whether this one is chosen on this
/// thread. In the crate's own tests there is `with(Bug, run)` too, which chooses one while
/// `run` goes on; elsewhere `is` is always false and costs nothing. Not hygienic about
/// `std`, which the calling crate's tests need.
#[macro_export]
macro_rules! seeded_bugs {
    ($($(#[$doc:meta])* $bug:ident,)*) => {
        /// A mistake.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Bug {
            $($(#[$doc])* $bug,)*
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
    };
}
