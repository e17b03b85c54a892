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

/// Declares a crate's `Bug`, and `is(Bug) -> bool`: whether this process has this one.
///
/// For bugs that tests of other crates notice: a test that has never failed may test
/// nothing (docs/facts.md, "Tests that cannot fail"). Without `--cfg ashway_bugs` `is` is always
/// false and costs nothing; with it the variable `ASHWAY_BUG` names the one bug that the
/// process has, and `cargo xtask bugs` shows for each that the test named for it in
/// `crates/codegen/tests/bugs` passes without it and fails with it. Not hygienic about
/// `std`.
#[macro_export]
macro_rules! named_bugs {
    ($($(#[$doc:meta])* $bug:ident,)*) => {
        /// A mistake.
        #[cfg_attr(
            not(ashway_bugs),
            expect(unreachable_pub, reason = "public where one can be chosen")
        )]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Bug {
            $($(#[$doc])* $bug,)*
        }

        #[cfg(ashway_bugs)]
        impl Bug {
            /// Every bug, in the order of the table.
            pub const ALL: &[Self] = &[$(Self::$bug,)*];
        }

        /// Whether this process is to have the bug.
        #[cfg(not(ashway_bugs))]
        #[inline]
        pub(crate) const fn is(_bug: Bug) -> bool {
            false
        }

        /// Whether this process is to have the bug.
        #[cfg(ashway_bugs)]
        pub(crate) fn is(bug: Bug) -> bool {
            static CHOSEN: std::sync::OnceLock<Option<Bug>> = std::sync::OnceLock::new();
            *CHOSEN.get_or_init(|| {
                let name = std::env::var("ASHWAY_BUG").ok()?;
                // `None` for a bug of another crate.
                Bug::ALL.iter().copied().find(|bug| format!("{bug:?}") == name)
            }) == Some(bug)
        }
    };
}
