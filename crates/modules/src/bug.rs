//! The seeded bugs of this crate ([`ashway_abi::bug`]).

ashway_abi::seeded_bugs! {
    /// A fused pass sums and does not look at the sum.
    SumIgnored,
    /// What comes out of a fused pass is seen before the sum is.
    SeenBeforeSum,
    /// A pipe fused with UDP lets answers go by.
    AnswersSkipped,
}
