//! The seeded bugs of this crate ([`ashway_abi::bug`]).

ashway_abi::named_bugs! {
    /// Accesses through a number are let through.
    CheckNoBase,
    /// Offsets into the context are not looked at.
    CheckNoContext,
    /// Packet accesses need no comparison with the packet's end.
    CheckNoPacketEnd,
    /// Any helper may be called.
    CheckAnyHelper,
    /// A loop need not be charged.
    CheckNoCharge,
    /// A tick may be of nothing.
    CheckNoTick,
    /// Fuel may grow.
    CheckFuelGrows,
    /// The grace may be used more than once.
    CheckGraceTwice,
    /// What a subprogram sees to is believed before it was asked.
    CheckUnasked,
    /// The lock may be kept.
    CheckNoLock,
    /// The lock of any CPU is one's own.
    CheckAnyLock,
    /// A kernel pointer may be stored into the instance's memory.
    CheckPointerLeak,
}
