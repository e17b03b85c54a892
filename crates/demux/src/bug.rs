//! The seeded bugs of this crate ([`ashway_abi::bug`]).

ashway_abi::named_bugs! {
    /// Guards are tested where there is no network header.
    DemuxLayerUnasked,
    /// A key is looked up with all its bits.
    DemuxMaskDropped,
    /// The least specific shape is tried first.
    DemuxOrderInverted,
    /// A filter that was removed is still found.
    DemuxEntryStays,
    /// A change does not say which entries went.
    DemuxChangeForgets,
    /// Of two filters with the same alternative, the one that came last wins.
    DemuxWiderWins,
    /// Entries are not counted by the bits they share with other shapes.
    DemuxMeetingMissed,
    /// The receiver's address is looked for in the sender's place.
    DemuxJoinOneSide,
}
