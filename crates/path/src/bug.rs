//! The seeded bugs of this crate ([`ashway_abi::bug`]).

ashway_abi::seeded_bugs! {
    /// Early discard counts no fate.
    DiscardUncounted,
    /// An absorbed message gets no fate.
    AbsorbUncounted,
    /// A message that was turned around still counts as received.
    TurnedStaysReceived,
    /// What a stage sends beside its answer is not counted.
    AlsoUncounted,
    /// Messages sent beside the answer go in reverse.
    AlsoReversed,
    /// A message steps over a stage.
    StageSkipped,
    /// A count that is not a fate is taken for one.
    AnyCountIsFate,
    /// A full output queue swallows the message.
    OutputSwallows,
    /// Unwinding forgets the first stage.
    UnwindForgetsFirst,
    /// Replacing does not destroy the old stages.
    ReplaceForgetsOld,
    /// A refused replacement leaves its attributes.
    ReplaceLeavesAttrs,
}
