//! The seeded bugs of this crate ([`ashway_abi::bug`]).

ashway_abi::named_bugs! {
    // Integer operators.
    /// A signed shift right shifts zeros in.
    ShiftUnsigned,
    /// A rotation by an odd constant falls one short.
    RotateShort,
    /// An unsigned comparison is a signed one.
    CompareSigned,
    /// A comparison with its operands exchanged keeps its direction.
    CompareNotMirrored,
    /// `i32.wrap_i64` leaves the upper half.
    WrapNothing,
    /// A sign extension takes the lowest byte only.
    ExtendShort,
    /// A count of ones adds the wrong halves.
    CountShort,
    /// A division by zero gives what eBPF gives.
    DivideByZeroAllowed,
    /// The least number divided by -1 gives what eBPF gives.
    OverflowAllowed,
    /// `select` takes the other one.
    SelectOther,

    // Memory and message.
    /// `address + offset` wraps at 32 bits before it is checked.
    BoundsWrap,
    /// The last byte may lie one behind the end.
    BoundsOffByOne,
    /// A memory that can grow is checked against what it may become.
    BoundsOfMaximum,
    /// A signed load extends zeros.
    LoadUnsigned,
    /// `memory.grow` goes beyond the maximum.
    GrowFurther,
    /// `memory.copy` goes forward whatever overlaps.
    CopyForward,
    /// A bulk operation checks its bounds one byte late.
    BulkOffByOne,
    /// A copy out of the state region relies on the bounds checked before it.
    StateUnchecked,
    /// The message ends where the padded frame ends.
    MessageOfFrame,
    /// Time may be over in the middle of a copy of the message.
    CopyStopsInside,
    /// A check of the message on one way counts for both.
    FactsNotMet,
    /// What was checked of a message counts when it is shorter.
    FactsOutliveResize,
    /// A handler logs as many lines as it likes.
    LogUnbounded,
    /// A message gets as long as its handler likes.
    ResizeUnbounded,
    /// What a message gains is what lay there.
    ResizeKeepsBytes,
    /// A big-endian access is a little-endian one.
    ByteOrder,
    /// What a processor may do before it knows the message's bounds is not bounded.
    Speculated,
    /// A store into the message leaves no mark.
    DirtyNotMarked,
    /// An atomic access need not be aligned.
    UnalignedAllowed,

    // Control.
    /// The first index behind the table's last label takes that label.
    TableOffByOne,
    /// The caller's registers are not brought back after a call.
    CallKeepsRegisters,
    /// Two ways meet with an operand in different places.
    JoinNotSettled,
    /// A zero unknown to the verifier is not zero.
    LaunderChanges,
    /// Recursion goes on beyond the call stack.
    StackUnchecked,
    /// What a stopped activation has on the stack in memory stays there.
    StackKept,
    /// A module that runs on several CPUs at once has one stack in memory for all of them.
    OneStack,
    /// An activation of such a module takes the lock of the first CPU, whichever its own is.
    LockOfAnotherCpu,
    /// Two CPUs write down their faults of such a module at the same time.
    FaultOfTwo,
    /// A stored table has one entry more.
    WordOffByOne,
    /// A table's function is called whatever its type.
    CallAnyType,
    /// What the kernel would take too long to load is translated.
    LoadTimeIgnored,
    /// A trap is blamed on the file's first byte instead of the operator.
    TrapPlace,

    // Fuel.
    /// A loop takes none, in either tier.
    LoopFree,
    /// A function that runs often takes none at its entry, in either tier.
    EntryFree,
    /// A loop need not be charged, says who looks at the finished Wasm.
    BoundedLoopFree,
    /// A function that runs often need not be charged, says the same.
    BoundedEntryFree,
    /// The kernel tier forgets charges.
    ChargeForgotten,
    /// A bulk operation takes none beyond its place in the table.
    BulkFree,
    /// A bulk operation counts no ticks.
    BulkTickFree,
    /// A return counts no ticks.
    ReturnTickFree,
    /// A spent slice is refilled without a look at the clock.
    ClockIgnored,
    /// A stretch in which the CPU was taken away is charged.
    GraceForgotten,
    /// None is, however many there are.
    GraceForEver,
    /// A stretch that waited for memory is followed by a whole slice.
    SlowIgnored,
    /// A refill gives a whole slice when less is left.
    RefillWhole,

    // Demux.
    /// In a program, a failed guard counts for every test of its field.
    DemuxGuardShared,
    /// In a program, a field is taken with all its bits.
    DemuxEmitMaskDropped,
    /// In a program, an entry that was compiled in is one for ever.
    DemuxEmitGoneStays,
    /// In a program, the least specific shape is tried first.
    DemuxEmitOrderInverted,
    /// In a program, a frame is looked up among the shapes that are data with all its bits.
    DemuxSpareMaskDropped,
    /// In a program, what the program has wins over any shape that is data.
    DemuxSpareOrderIgnored,

    // Order of the tiers.
    /// A message is run whatever waits of its flow.
    OrderIgnored,
    /// The bucket that is looked at is not that in which the flow is counted.
    FlowOtherHash,
    /// A flow that fills its path's part of the ring has all of the path dropped.
    FlowDrainsPath,
    /// While a path drains, its messages are queued all the same.
    DrainQueues,
    /// While a path drains, the kernel tier runs its messages.
    DrainOvertakes,
    /// The queues of an interface without rings of its own have the marks of others' queues.
    SharedRingMarked,
    /// A program takes the lock that the worker wants.
    WantedIgnored,

    // An instance for each CPU.
    /// Every message goes to the first CPU's.
    FirstCpuAlone,

    // Waiting for an instance.
    /// A message that finds its instance busy goes to the user tier at once.
    WaitsNever,
    /// It waits as long as it takes.
    WaitsForEver,
    /// It waits for the worker as well.
    WaitsForWorker,
    /// What it waits is its handler's time.
    WaitIsTimed,

    // A path's share.
    /// What was used is never paid for.
    ShareNeverRefills,
    /// What runs is not charged.
    ShareNeverEmpties,
    /// A lazy path is eager as soon as it is not ahead any more than it may be.
    ShareFlickers,
    /// A path above its share may have the whole ring.
    ShareTakesRing,
    /// A program that knows its path's number looks at the first path's word.
    NumberForgotten,
    /// A path may fill the ring.
    PathTakesRing,
    /// A relay may fill the ring.
    RelayTakesRing,
    /// What is dropped for a share is not counted.
    ShareUncounted,
    /// A message that is timed stands for itself alone.
    TimedForOne,
    /// Many messages behind one header are handed over as one.
    SegmentWhole,
    /// The last piece of a long message is not copied.
    ChainCut,
    /// A long message takes one slot, whatever it needs.
    ChainOneSlot,
    /// Under XDP a frame ends where its first buffer does.
    FragsUnseen,
    /// A tag that lies beside the frame stays there.
    TagForgotten,
    /// A message in pieces is read as far as its first one goes.
    PieceAlone,
    /// While messages wait for each other their path is within its share.
    ShareForgotten,
    /// A path above its share drains each time that its room is full.
    ShareDrainsAtOnce,
    /// Each direction of a relay has an account of its own.
    RelayAccountForEach,
    /// A relay is charged as if no other CPU could.
    RelayChargeStored,
    /// A relay without a share is asked all the same.
    RelayAlwaysAsked,

    // Hooks.
    /// While a node moves to another hook, what XDP has had is taken at TCX once more.
    MarkUnseen,

    // Pipes.
    /// Lanes behind the end are counted.
    PipeLanesTailCounts,
    /// A partial word passes through the body of a pipe that leaves it.
    PipeLanesTailSwapped,
    /// The same, word by word.
    PipeOrderTailTaken,
    /// A CRC's constants are for another distance.
    PipeFoldShort,
    /// Adler-32 weighs each byte one less.
    PipeAdlerWeights,
    /// `ChaCha20` has 18 rounds.
    PipeCipherRounds,
    /// A user's function computes with its words' bits whatever it does.
    PipeNarrowAnything,
    /// On lanes, a shift by a value goes as far as the value says.
    PipeShiftUnmasked,
    /// Vectors of 512 bits: less is less or equal.
    PipeWideBelow,
    /// On lanes, zeros below are counted to the highest one.
    PipeCountTrailing,
    /// Word by word, zeros above are counted in 64 bits.
    PipeOrderCountWide,
    /// The last store takes a whole vector.
    PipeTailWhole,
    /// A partial word passes through the body of a pipe that leaves it, in the
    /// portable form.
    PipePortableTail,
    /// A constant is looked for in any register that holds one.
    PipePinAny,
    /// A user's function swaps if it moves all bytes, wherever to.
    PipeSwapAnyOrder,
    /// A list that is cut loses its last loop.
    PipePlanDropsLast,
    /// In the kernel tier, lanes carry into each other.
    PipeKernelCarries,
    /// In the kernel tier, what is behind the end is counted.
    PipeKernelTailCounts,
    /// In the kernel tier, a partial word passes through the body of a pipe that
    /// leaves it.
    PipeKernelTailSwapped,
    /// In the kernel tier, what a run leaves in its registers is not kept.
    PipeKernelRegistersLost,
    /// In the kernel tier, a run goes beyond the end of the message.
    PipeKernelOutside,
    /// In the kernel tier, the loop of a run counts no ticks.
    PipeKernelTickFree,
    /// Over an array, the end of a message is not sent.
    PipeKernelEndKept,
}
