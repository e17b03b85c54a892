//! The clocks that programs and the daemon share.

use std::time::Duration;

/// What `bpf_ktime_get_ns` gives to programs, in ns: `CLOCK_MONOTONIC`. Some 25 ns.
#[must_use]
#[inline]
pub fn monotonic_ns() -> u64 {
    ns(libc::CLOCK_MONOTONIC)
}

/// What the calling thread has run, in ns: `CLOCK_THREAD_CPUTIME_ID`. A system call.
#[must_use]
pub fn thread_ns() -> u64 {
    ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// What `CLOCK_REALTIME` (UTC) shows when the other clock shows 0.
#[must_use]
pub fn epoch() -> Duration {
    Duration::from_nanos(ns(libc::CLOCK_REALTIME).saturating_sub(monotonic_ns()))
}

fn ns(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is a timespec to write to, and lives until the call returns.
    // All three clocks are on every Linux, so it does not fail.
    unsafe { libc::clock_gettime(clock, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_clocks_tell_the_same_time() {
        let wall = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap();
        let ours = epoch() + Duration::from_nanos(monotonic_ns());
        assert!(ours.abs_diff(wall) < Duration::from_secs(5));
        let before = monotonic_ns();
        assert!(monotonic_ns() >= before);
    }
}
