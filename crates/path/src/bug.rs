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
    /// A path whose output queue holds messages is taken from until it is empty.
    OutputUnfair,
    /// A path's turn goes on when its output queue fills.
    OutputPressesNobody,
    /// Unwinding forgets the first stage.
    UnwindForgetsFirst,
    /// Replacing does not destroy the old stages.
    ReplaceForgetsOld,
    /// A refused replacement leaves its attributes.
    ReplaceLeavesAttrs,
    /// An attribute is forgotten with another that has its bit.
    AttrForgotten,
    /// A path that took more than its turn need not skip any.
    DebtForgotten,
    /// A path's share pays for the paths that its messages go on to.
    ShareForOthers,
    /// What the timers of a path take is owed however much that is.
    DebtWithoutEnd,
    /// Paths are woken however long that takes.
    WakesWithoutEnd,
    /// A turn is a batch of messages, however long they take.
    TurnWithoutEnd,
    /// A run of a path with a share is not charged.
    RunNotCharged,
    /// A run of a path with a share is charged as one, and not the time that it took.
    TimeNotCharged,
    /// A message that comes from another path runs before those that wait.
    CrossingOvertakes,
    /// Any number of messages wait for their path's share.
    WaitsWithoutBound,
    /// What was under way when a stage panicked has no fate.
    PanicUncounted,
    /// A path whose stage has panicked runs on.
    PanicForgotten,
    /// A path that is always overdue is woken before all others.
    OldestTimerFirst,
    /// The ticket of a message that waits when its path goes is lost.
    TicketLost,
    /// The ticket that a message was given for its next path is not given back.
    TicketOfTheWayLost,
    /// Each path that has a share in common with others has room for as many that wait.
    RoomForEach,
    /// A share that was opened is not looked at before it would be anyway.
    OpenShareForgotten,
    /// A path that was set aside is not tried again.
    AsideForgotten,
    /// While a path is set aside no other has a turn.
    AsideHoldsUp,
    /// Timers of a path run that could not be acquired.
    AsideTimersRun,
    /// What a stage has in common with others is not given back behind a run.
    StageNotReleased,
    /// An edit of the graph makes every module anew.
    EditRebuilds,
    /// A module that came with an edit is not initialised.
    EditUninitialised,
    /// What others refer to can be removed from the graph.
    EditRemovesUsed,
    /// What passes while the CPU clock is read belongs to the window behind it.
    LookIsCharged,
    /// A look at the CPU clock charges the time of the wall.
    WallTimeCharged,
    /// What the thread uses between turns is charged to nobody.
    TimeBesideTurnsLost,
}
