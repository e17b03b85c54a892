//! Counters of this process: many, of which few are ever counted in.

use std::sync::atomic::AtomicU64;

/// So many counters, all 0. A page of them takes memory from when one is written.
#[must_use]
pub fn counters(count: usize) -> Box<[AtomicU64]> {
    let counters = Box::new_zeroed_slice(count);
    // SAFETY: an `AtomicU64` of zeros is 0.
    unsafe { counters.assume_init() }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    #[test]
    fn all_begin_at_0() {
        let counters = super::counters(100_000);
        let sum: u64 = counters.iter().map(|one| one.load(Ordering::Relaxed)).sum();
        assert_eq!((counters.len(), sum), (100_000, 0));
    }
}
