//! Time as this crate sees it: a number that the caller brings.

use std::ops::Add;
use std::time::Duration;

/// Nanoseconds on the clock of whoever runs the paths: `CLOCK_MONOTONIC` in the
/// daemon, the virtual clock in the simulator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    /// The time from `earlier` to this; zero if that is not earlier.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Time {
    type Output = Self;

    /// Ends at the end of time, 584 years after its begin.
    fn add(self, span: Duration) -> Self {
        let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanos))
    }
}
