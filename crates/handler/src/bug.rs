//! The seeded bugs of this crate ([`ashway_abi::bug`]).

ashway_abi::seeded_bugs! {
    /// A refill gives a whole slice, whatever is left.
    RefillWhole,
    /// What a refill gives is not taken from the reserve.
    ReserveKept,
    /// A refill does not look at the clock.
    ClockIgnored,
    /// A stretch in which the CPU was taken away is charged.
    GraceForgotten,
    /// None is, however many there are.
    GraceForEver,
    /// The time of others, who had the CPU, counts as the handler's.
    WallBelieved,
    /// A run of pipes is let go as far as the memory can ever grow.
    PipeOutside,
    /// What a run of pipes leaves in its registers is not kept.
    RegistersLost,
}
