//! The seeded bugs of this crate ([`ashway_abi::bug`]).

ashway_abi::seeded_bugs! {
    /// The graph of a node is built anew when a handler comes or goes.
    GraphRebuilt,
    /// What was loaded and bound by hand goes with an `apply`.
    ByHandGoes,
    /// An `apply` takes a handler away that a path by hand is bound to.
    UsedGoes,
    /// A file that was made to see whether it can be is left there.
    MadeStays,
}
