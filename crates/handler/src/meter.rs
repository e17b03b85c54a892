//! The budget of an activation: fuel in slices, and a look at the clock between
//! two of them.
//!
//! The module holds a slice of its fuel in a global and asks for the next one
//! when it is spent (`trap` with [`Cause::Fuel`] comes back if there is one).
//! All fuel is the slice and the reserve, so its end stays at the same operator
//! as in the kernel tier, however it is sliced.
//!
//! Time is the thread's own CPU time: the worker is preempted, and what others
//! run meanwhile is not the handler's. Reading it is a system call (460 ns, where
//! the wall clock takes 34), and it never goes on faster than the wall clock:
//! so the wall clock is asked first, and its yes is confirmed. A hypervisor's time is in both:
//! so the first stretch that ends behind the time is not charged, as in the kernel tier
//! (`codegen/src/promote/fuel.rs`).

use crate::bug::{self, Bug};
use ashway_abi::Cause;
use ashway_memory::clock;

/// Units of fuel between two looks at the clock: 4 to 8 us of an endless loop.
pub const SLICE: u64 = 8_192;

/// What an activation may use. A number is so many units of fuel, and time
/// without end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Units of fuel.
    pub fuel: u64,
    /// CPU time in ns, from the first look at the clock on: that is after
    /// [`SLICE`] units. It is over at the first look behind its end.
    pub ns: u64,
}

impl From<u64> for Budget {
    fn from(fuel: u64) -> Self {
        Self { fuel, ns: u64::MAX }
    }
}

/// The two clocks of a thread, in ns from any beginning.
#[derive(Clone, Copy, Debug)]
pub struct Clocks {
    /// The wall clock. Cheap.
    pub wall: fn() -> u64,
    /// What this thread has run; not faster than `wall`.
    pub thread: fn() -> u64,
}

impl Default for Clocks {
    fn default() -> Self {
        Self {
            wall: clock::monotonic_ns,
            thread: clock::thread_ns,
        }
    }
}

/// What the current activation has left beside its slice.
#[derive(Debug)]
pub(crate) struct Meter {
    clocks: Clocks,
    reserve: i64,
    ns: u64,
    /// Set by the first look.
    end: Option<End>,
}

/// When the time is over; by the wall clock not before that.
#[derive(Debug)]
struct End {
    wall: u64,
    thread: u64,
    /// The last look at the wall clock; not behind `wall`.
    seen: u64,
    /// Whether a stretch was not charged.
    graced: bool,
}

impl Meter {
    pub(crate) fn new(clocks: Clocks) -> Self {
        Self {
            clocks,
            reserve: 0,
            ns: 0,
            end: None,
        }
    }

    /// Begins an activation. Returns its first slice.
    pub(crate) fn begin(&mut self, budget: Budget) -> i64 {
        let slice = budget.fuel.min(SLICE);
        self.reserve = i64::try_from(budget.fuel - slice).unwrap_or(i64::MAX);
        self.ns = budget.ns;
        self.end = None;
        slice as i64
    }

    /// The next slice, where the last one ended with `fuel`, which is negative.
    /// When it says why there is none, nothing has changed.
    pub(crate) fn refill(&mut self, fuel: i64) -> Result<i64, Cause> {
        let left = self.left(fuel);
        if left < 0 {
            return Err(Cause::Fuel);
        }
        if self.is_over() && !bug::is(Bug::ClockIgnored) {
            return Err(Cause::Time);
        }
        let slice = if bug::is(Bug::RefillWhole) {
            SLICE as i64
        } else {
            left.min(SLICE as i64)
        };
        if !bug::is(Bug::ReserveKept) {
            self.reserve = left - slice;
        }
        Ok(slice)
    }

    /// All that is left where `fuel` is left of the slice.
    pub(crate) fn left(&self, fuel: i64) -> i64 {
        fuel.saturating_add(self.reserve)
    }

    fn is_over(&mut self) -> bool {
        let wall = (self.clocks.wall)();
        let Some(end) = &mut self.end else {
            self.end = Some(End {
                wall: wall.saturating_add(self.ns),
                thread: (self.clocks.thread)().saturating_add(self.ns),
                seen: wall,
                graced: bug::is(Bug::GraceForgotten),
            });
            return false;
        };
        let left = end.wall.saturating_sub(end.seen);
        end.seen = wall;
        if wall < end.wall {
            return false;
        }
        let thread = (self.clocks.thread)();
        let mut rest = end.thread.saturating_sub(thread);
        if rest == 0 && (!end.graced || bug::is(Bug::GraceForEver)) {
            end.graced = true;
            rest = left;
            end.thread = thread.saturating_add(rest);
        }
        end.wall = wall.saturating_add(rest);
        rest == 0 || bug::is(Bug::WallBelieved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    thread_local! {
        static WALL: Cell<u64> = const { Cell::new(0) };
        static THREAD: Cell<u64> = const { Cell::new(0) };
    }

    const BUDGET: Budget = Budget {
        fuel: 100 * SLICE,
        ns: 50_000,
    };

    fn meter() -> Meter {
        WALL.set(7);
        THREAD.set(3);
        Meter::new(Clocks {
            wall: || WALL.get(),
            thread: || THREAD.get(),
        })
    }

    /// Spends charges of `cost` units, each of which takes `thread` ns of the
    /// thread's time and `wall` ns by the clock on the wall. Returns how many were
    /// paid, why it ended, and the fuel that was left.
    fn spend(budget: Budget, cost: u64, thread: u64, wall: u64) -> (u64, Cause, i64) {
        spend_beside(&[], budget, cost, thread, wall)
    }

    /// The same, where the CPU is taken away for 4 ms at these charges.
    fn spend_beside(
        thefts: &[u64],
        budget: Budget,
        cost: u64,
        thread: u64,
        wall: u64,
    ) -> (u64, Cause, i64) {
        let mut meter = meter();
        let mut fuel = meter.begin(budget);
        // More than any of these budgets pays for, so that a bug ends, too.
        for paid in 0..1_000_000 {
            fuel -= cost as i64;
            if fuel < 0 {
                match meter.refill(fuel) {
                    Ok(slice) => fuel = slice,
                    Err(cause) => return (paid, cause, meter.left(fuel)),
                }
            }
            let theft = if thefts.contains(&paid) { 4_000_000 } else { 0 };
            THREAD.set(THREAD.get() + thread + theft);
            WALL.set(WALL.get() + wall + theft);
        }
        (u64::MAX, Cause::Unreachable, fuel)
    }

    /// The end of fuel is where it would be in one piece.
    fn fuel_ends_where_it_should() -> bool {
        let fuels = [0, 1, SLICE - 1, SLICE, SLICE + 1, 3 * SLICE, 3 * SLICE + 5];
        let costs = [1, 7, 1_000, SLICE - 1, SLICE, SLICE + 1, 5 * SLICE];
        fuels.into_iter().all(|fuel| {
            costs.into_iter().all(|cost| {
                let budget = Budget { fuel, ..BUDGET };
                let whole = fuel as i64 - ((fuel / cost + 1) * cost) as i64;
                spend(budget, cost, 0, 0) == (fuel / cost, Cause::Fuel, whole)
            })
        })
    }

    /// A slice before the first look, the time, a slice that is not charged, and at most one
    /// behind it.
    fn time_ends_it() -> bool {
        let charges = SLICE / 64;
        let (paid, cause, left) = spend(BUDGET, 64, 10, 10);
        cause == Cause::Time
            && (charges + 5_000..=3 * charges + 5_000).contains(&paid)
            && left == (BUDGET.fuel - (paid + 1) * 64) as i64
    }

    /// A thread that has a tenth of the CPU has the same time.
    fn others_time_is_not_its_own() -> bool {
        let alone = spend(BUDGET, 64, 10, 10);
        let preempted = spend(BUDGET, 64, 10, 100);
        alone == preempted
    }

    /// A CPU that is taken away has run nothing of the handler.
    fn a_theft_is_not_its_own() -> bool {
        let (paid, cause, _) = spend_beside(&[1_000], BUDGET, 64, 10, 10);
        cause == Cause::Time && paid >= 5_000
    }

    /// What happens again and again is the handler.
    fn the_second_is() -> bool {
        let (paid, cause, _) = spend_beside(&[1_000, 2_000], BUDGET, 64, 10, 10);
        cause == Cause::Time && paid <= 2_000 + SLICE / 64
    }

    #[test]
    fn fuel_time_and_preemption() {
        assert!(fuel_ends_where_it_should());
        assert!(time_ends_it());
        assert!(others_time_is_not_its_own());
        assert!(a_theft_is_not_its_own());
        assert!(the_second_is());
        let endless = Budget::from(u64::MAX);
        assert_eq!(spend(endless, 64, 1 << 40, 1 << 40).1, Cause::Unreachable);
    }

    #[test]
    fn bugs_are_noticed() {
        type Property = fn() -> bool;
        let twins: [(Bug, Property); 6] = [
            (Bug::RefillWhole, fuel_ends_where_it_should),
            (Bug::ReserveKept, fuel_ends_where_it_should),
            (Bug::ClockIgnored, time_ends_it),
            (Bug::GraceForgotten, a_theft_is_not_its_own),
            (Bug::GraceForEver, the_second_is),
            (Bug::WallBelieved, others_time_is_not_its_own),
        ];
        for (bug, property) in twins {
            assert!(!bug::with(bug, property), "{bug:?}");
        }
    }
}
