//! The seeded bugs of this crate ([`ashway_abi::bug`]).

ashway_abi::seeded_bugs! {
    /// Of several changes of an entry the first counts.
    FirstChangeCounts,
    /// A version begins without the state of the one before.
    StateForgotten,
    /// The state is written before the version's own first values.
    StateOverwritten,
    /// What is no state stays too.
    RestKept,
    /// The state is not migrated.
    NotMigrated,
    /// After a version that could not begin, the memory stays as that left it.
    NotPutBack,
    /// A version that could not begin runs nevertheless.
    RunsNevertheless,
    /// While the words of a fault are written, nothing says so.
    FaultInPieces,
    /// That a handler was stopped does not count towards its path's limit.
    FaultsNotCounted,
    /// A bypass that has come to nothing is followed by one as long.
    RestNotDoubled,
    /// Messages that have left the user tier are still counted there.
    CountNotSubtracted,
    /// Messages that have left the user tier are still counted in the buckets of their flows.
    FlowNotSubtracted,
    /// Of many messages behind one header, one is counted in the bucket of their flow.
    OneOfManyCounted,
    /// Of messages of a path that leave together, one is subtracted.
    RunCountedOnce,
    /// What waits as a whole frame does not keep its path's number.
    FramesForgotten,
    /// The other segments of a relay's frame are not counted where the first is.
    SegmentsElsewhere,
    /// An instance is left alone though a message came just before.
    SleepsOnMessage,
    /// The worker takes the lock that an activation in the kernel tier has.
    LockOfAnother,
    /// The worker wants all CPUs' locks, and takes the first CPU's.
    OneLockOfAll,
    /// Programs are not told that the worker wants an instance's lock.
    LockNotWanted,
    /// The worker has the lock, and programs are still told that it wants it.
    LockWantedForEver,
    /// A path that waits for two CPUs waits for the last only.
    LastSightOnly,
    /// Of messages of a ring that have to wait for a CPU only the first does.
    FirstWaitsOnly,
    /// A slot keeps the block that its message lies in.
    BlockNotExchanged,
    /// Where one path of a handler has a backlog, no message of another is taken.
    BacklogStopsOthers,
    /// A message is taken that a program has not written yet.
    HalfFilledTaken,
    /// A ring is empty whose message a program has not written yet.
    HalfFilledForgotten,
    /// Of the frames that a relay sends in both tiers the bytes are not compared.
    FramesNotCompared,
    /// Of a long message's slots only the first is stepped over.
    RestNotSteppedOver,
    /// What is kept of memory as it was before an activation is as that left it.
    BeforeIsAfter,
    /// A message came by the interface whose ring it lies in was when the queue was made.
    InterfaceOfRing,
    /// The number of an interface that has gone is the next one's.
    IfaceNumberReturns,
    /// A run for a timer counts as one for a message.
    TimersAreMessages,
    /// A message whose handler was stopped, or aborted, is not among those it ran for.
    AbortedNotRun,
    /// What finds no room in a link in memory is not counted.
    OverflowNotCounted,
    /// A frame of a capture comes while paths have the one before.
    CaptureNotHeldBack,
}
