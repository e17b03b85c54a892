//! What a time buys: fuel, and how often the clock is looked at.

use std::time::Duration;

use ashway_abi::Budget;

/// Fuel for each ns of budget: enough that the clock, not the fuel, ends honest
/// code. Of the programs of `ashway bench promote` most spend 5 to 17 units a
/// ns, and `inflate` up to 40, because a turn of its loop is charged for all
/// cases of a large `switch` and runs one.
const FUEL_PER_NS: u64 = 48;

/// Fuel that may be spent without a look at the clock, in two parts
/// ([`Budget`]): 0.1 us (`inflate`) to 0.8 us (`crc32`), against 33 ns for the
/// look. Twice as much makes these programs 0 to 15 % faster (5 % in the
/// middle), and a handler that waits for memory with each load outlast its
/// budget by twice as long.
const SLICE: u32 = 4_096;

/// What a handler may use that has this much time: fuel, and how often it is
/// looked at the clock.
#[must_use]
pub fn budget(time: Duration) -> Budget {
    Budget {
        fuel: fuel(time),
        slice: SLICE,
        ns: time.as_nanos() as u64,
    }
}

/// What the budget buys in fuel.
#[must_use]
pub(crate) fn fuel(budget: Duration) -> u64 {
    (budget.as_nanos() as u64).saturating_mul(FUEL_PER_NS)
}
