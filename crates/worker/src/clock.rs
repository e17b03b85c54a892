//! The time that paths see.

use ashway_memory::clock::monotonic_ns;
use ashway_path::time::Time;

/// Now: `CLOCK_MONOTONIC`, as the kernel tier's programs do.
#[must_use]
pub fn now() -> Time {
    Time(monotonic_ns())
}
