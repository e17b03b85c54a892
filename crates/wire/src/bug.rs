//! The seeded bugs of this crate ([`ashway_abi::bug`]).

ashway_abi::seeded_bugs! {
    /// The last of many messages behind one header says that it is as long as the others.
    LastSegmentLength,
    /// Each of them has the flags that are the last one's.
    SegmentFlags,
    /// A frame stands for as many messages as it says.
    SegmentsUnbounded,
}
