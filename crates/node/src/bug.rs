//! The seeded bugs of this crate ([`ashway_abi::bug`]).

ashway_abi::seeded_bugs! {
    /// What cannot be taken from one owner keeps all others waiting.
    OwnerHoldsUpAll,
    /// Nobody looks whether an owner has ended.
    OwnerForgotten,
    /// Each interface is taken at the hook that is the better one there.
    HookOfItsOwn,
    /// A tap is ready whether or not its file can be written.
    TapUnopened,
}
