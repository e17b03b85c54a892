//! What is counted, and in which ledger.
//!
//! A *row* is [`ROW_WORDS`] `u64` counters. There is one row per path and one
//! per interface (for what matched no path); the kernel programs keep one copy
//! per CPU of what they count, which is each row's beginning, the user tier keeps its own,
//! and `status` adds them up.
//!
//! A counter has two levels: the [layer](Layer) that counts, and the reason.
//!
//! **Messages in:** each received message ends in exactly one *fate*, so
//! `received = sum of fates + waiting`. **Messages out:** `originated = handed
//! over + dropped`. Everything else is a note: true, but in no sum.

/// Counters in a row.
pub const ROW_WORDS: usize = 256;

/// Of these, those that programs count: the first ones.
pub const KERNEL_WORDS: usize = 64;

/// Bytes in a row of the programs.
pub const KERNEL_BYTES: usize = KERNEL_WORDS * 8;

/// Word of a program's row, beside the counters: how many messages of the row's CPU will have
/// been received when one is timed again.
pub const NEXT_TIMED: usize = 54;

/// Word of a program's row, beside the counters: how long the kernel tier has taken for its
/// messages, in ns, by those that were timed.
pub const KERNEL_NS: usize = 55;

/// Which sum a counter belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ledger {
    /// The left side of the ledger of messages in.
    Received,
    /// One of the ends a received message can come to.
    Fate,
    /// The left side of the ledger of messages out.
    Originated,
    /// One of the ends an originated message can come to.
    Sent,
    /// In no sum.
    Note,
}

/// Who counts: a kind of module, or what is around the stages. A count is a layer and, within
/// it, a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Layer {
    /// What finds a frame's path.
    Demux,
    /// The path's queues.
    Queue,
    /// The ring to the user tier.
    Ring,
    /// The way to the host's own stack.
    Host,
    /// The way out, by a socket or the driver.
    Port,
    /// Ethernet.
    Eth,
    /// IPv4.
    Ip,
    /// UDP.
    Udp,
    /// What puts fragments together.
    Fragment,
    /// What sends on to another path or a next hop.
    Forward,
    /// The handler, and what it delivers to.
    Handler,
}

impl Layer {
    /// The name used in documents: of a kind of module, its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Demux => "demux",
            Self::Queue => "queue",
            Self::Ring => "ring",
            Self::Host => "host",
            Self::Port => "port",
            Self::Eth => "eth",
            Self::Ip => "ip",
            Self::Udp => "udp",
            Self::Fragment => "fragment",
            Self::Forward => "forward",
            Self::Handler => "handler",
        }
    }
}

macro_rules! counts {
    ($($(#[$doc:meta])* $variant:ident = $number:literal, $ledger:ident, $layer:ident,
        $name:literal;)*) => {
        /// A counter of a row; the number is its position. What programs count is below
        /// [`KERNEL_WORDS`]; anybody else's may be behind that.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub enum Count {
            $($(#[$doc])* $variant = $number,)*
        }

        impl Count {
            /// Every counter, in numerical order.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The name used in the CLI, in metrics and in documents.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// The ledger it belongs to.
            #[must_use]
            pub const fn ledger(self) -> Ledger {
                match self { $(Self::$variant => Ledger::$ledger,)* }
            }

            /// Who counts it.
            #[must_use]
            pub const fn layer(self) -> Layer {
                match self { $(Self::$variant => Layer::$layer,)* }
            }
        }
    };
}

counts! {
    /// Messages that matched the path (on an interface's row: frames that
    /// matched no path and whose fate is `Passed`).
    Received = 0, Received, Demux, "received";
    /// Used up by the handler.
    Consumed = 1, Fate, Handler, "consumed";
    /// Sent back to the sender.
    Answered = 2, Fate, Handler, "answered";
    /// Handed to the application's ring.
    Delivered = 3, Fate, Handler, "delivered";
    /// Handed to the host's own stack, unchanged.
    Passed = 4, Fate, Handler, "passed";
    /// Handed to another path or a next hop.
    Forwarded = 5, Fate, Forward, "forwarded";
    /// Kept as a part of a larger message.
    Absorbed = 6, Fate, Fragment, "absorbed";
    /// The handler was stopped after it had changed the message.
    AbortedDirty = 7, Fate, Handler, "aborted_dirty";
    /// Dropped: the handler said so.
    DroppedHandler = 8, Fate, Handler, "dropped_handler";
    /// Dropped: the handler was stopped and `on_fault` says drop.
    DroppedFault = 9, Fate, Handler, "dropped_fault";
    /// Dropped: the lengths in the headers contradict each other or the frame.
    DroppedBadLength = 10, Fate, Udp, "dropped_bad_length";
    /// Dropped: the IPv4 header checksum is wrong.
    DroppedBadIpChecksum = 11, Fate, Ip, "dropped_bad_ip_checksum";
    /// Dropped: the UDP checksum is wrong.
    DroppedBadUdpChecksum = 12, Fate, Udp, "dropped_bad_udp_checksum";
    /// Dropped: the first fragment of a datagram (nothing reassembles yet).
    DroppedFragment = 13, Fate, Ip, "dropped_fragment";
    /// Dropped: longer than a place in the application's ring, than any packet, or than a stage or
    /// the link behind it takes; or many messages behind one header that nobody takes apart.
    DroppedTooLong = 14, Fate, Ring, "dropped_too_long";
    /// Dropped: the ring to the user tier was full, which is the path's alone or where the path
    /// has no part of its own; or had been, and the kernel tier waits for the path's messages in
    /// it ([`DRAINING`](crate::trusted::DRAINING)).
    DroppedRingFull = 15, Fate, Ring, "dropped_ring_full";
    /// Dropped: `deliver`, and no process reads the handler's endpoint.
    DroppedNoEndpoint = 16, Fate, Handler, "dropped_no_endpoint";
    /// Dropped: `forward` on a path without a next hop.
    DroppedNoNextHop = 17, Fate, Forward, "dropped_no_next_hop";
    /// Dropped: `pass` or `abort` after changing the message.
    DroppedChanged = 18, Fate, Handler, "dropped_changed";
    /// Dropped: `reply` to an address that cannot be a sender.
    DroppedNoSender = 19, Fate, Handler, "dropped_no_sender";
    /// Dropped: the user tier could not give the message back to the host.
    DroppedPassFailed = 20, Fate, Host, "dropped_pass_failed";
    /// Dropped: no room in front of the frame to mark it as a reply.
    DroppedNoHeadroom = 21, Fate, Handler, "dropped_no_headroom";
    /// Dropped: a queue of the path was full (on arrival: early discard), or its part of the
    /// ring to the user tier, or that had been, as with
    /// [`DroppedRingFull`](Self::DroppedRingFull).
    DroppedQueueFull = 22, Fate, Queue, "dropped_queue_full";
    /// Dropped: the interface that it was to leave by is down or gone.
    DroppedIfaceDown = 23, Fate, Eth, "dropped_iface_down";
    /// Dropped: `deliver`, and the application has not taken out what is in its ring.
    DroppedEndpointFull = 24, Fate, Handler, "dropped_endpoint_full";
    /// Activations, of those below, that were for a timer and no message. Only the user tier has
    /// timers.
    RanForTimer = 25, Note, Handler, "ran_for_timer";
    /// Dropped: its path had more than its [share](crate::share), and as many of its
    /// messages wait as may.
    DroppedOverShare = 31, Fate, Ring, "dropped_over_share";
    /// Went to the user tier because that is where the path runs.
    QueuedTier = 32, Note, Ring, "queued_tier";
    /// Went to the user tier because the instance was busy on another CPU.
    QueuedBusy = 33, Note, Ring, "queued_busy";
    /// Went to the user tier because earlier messages of the path are there.
    QueuedOrder = 34, Note, Ring, "queued_order";
    /// Went to the user tier because its IP header has options, which array
    /// mode cannot step over in the kernel tier.
    QueuedOptions = 35, Note, Ring, "queued_options";
    /// Went to the user tier because its frame has not as much room behind it as its
    /// handler may make it longer, or the link would not take it then.
    QueuedRoom = 36, Note, Ring, "queued_room";
    /// Went to the user tier because its path has had its [share](crate::share) of
    /// the kernel tier.
    QueuedShare = 37, Note, Ring, "queued_share";
    /// Went by the path's handler, which was stopped too often: to the path's next
    /// choice, or what `on_fault` says.
    Bypassed = 38, Note, Handler, "bypassed";
    /// Activations that ended with a verdict other than `abort`. With the aborts,
    /// these are all there were.
    Committed = 39, Note, Handler, "committed";
    /// Voluntary aborts.
    AbortVoluntary = 40, Note, Handler, "abort_voluntary";
    /// Involuntary aborts: `unreachable`.
    AbortUnreachable = 41, Note, Handler, "abort_unreachable";
    /// Involuntary aborts: outside the memory.
    AbortMemoryBounds = 42, Note, Handler, "abort_memory_bounds";
    /// Involuntary aborts: outside the message.
    AbortMessageBounds = 43, Note, Handler, "abort_message_bounds";
    /// Involuntary aborts: division by zero.
    AbortDivideByZero = 44, Note, Handler, "abort_divide_by_zero";
    /// Involuntary aborts: division overflow.
    AbortOverflow = 45, Note, Handler, "abort_overflow";
    /// Involuntary aborts: indirect call.
    AbortIndirectCall = 46, Note, Handler, "abort_indirect_call";
    /// Involuntary aborts: call depth.
    AbortStack = 47, Note, Handler, "abort_stack";
    /// Involuntary aborts: fuel.
    AbortFuel = 48, Note, Handler, "abort_fuel";
    /// Involuntary aborts: time.
    AbortTime = 49, Note, Handler, "abort_time";
    /// Involuntary aborts: no such verdict.
    AbortBadVerdict = 50, Note, Handler, "abort_bad_verdict";
    /// Involuntary aborts: unaligned atomic access.
    AbortUnaligned = 51, Note, Handler, "abort_unaligned";
    /// Involuntary aborts: outside a table.
    AbortTableBounds = 52, Note, Handler, "abort_table_bounds";
    /// Waited for its instance, which was busy on another CPU in the kernel tier, whether it ran
    /// then or went to the user tier ([`QueuedBusy`](Self::QueuedBusy)).
    WaitedBusy = 53, Note, Handler, "waited_busy";
    /// Messages made by the user tier (the kernel tier's replies are counted
    /// as `Answered` alone: the verdict *is* the hand-over).
    OutOriginated = 56, Originated, Port, "out_originated";
    /// Messages taken by the driver's transmit ring or the socket.
    OutHandedOver = 57, Sent, Port, "out_handed_over";
    /// Messages dropped because the transmit ring stayed full.
    OutDroppedTxFull = 58, Sent, Port, "out_dropped_tx_full";
    /// Messages dropped because no frame to the driver is so long: 64 KiB, and 4,096 bytes
    /// before Linux 6.6.
    OutDroppedTooLong = 59, Sent, Port, "out_dropped_too_long";
    /// Messages to a channel that the host's stack would not send: no route, no
    /// such address, or too long; and those whose path knows no next hop.
    OutDroppedNoRoute = 60, Sent, Port, "out_dropped_no_route";
    /// Messages dropped because the interface that they were to leave by is down or gone.
    OutDroppedIfaceDown = 61, Sent, Port, "out_dropped_iface_down";
    /// Messages dropped because the path's output queue was full: a stage made more of one
    /// message than it holds.
    OutDroppedQueueFull = 62, Sent, Queue, "out_dropped_queue_full";
    /// Went to the user tier because it is longer than the kernel tier reads, or because it
    /// was one of many messages behind one header.
    QueuedLong = 63, Note, Ring, "queued_long";
    /// Dropped: to be passed to the host, and it came by a link behind which there is none: a
    /// TAP device, whose host has sent it, or a link between two interfaces of the node.
    DroppedNoHost = 64, Fate, Host, "dropped_no_host";
}

impl Count {
    /// Those that programs have room for, in numerical order; the others are counted by the
    /// worker alone.
    #[must_use]
    pub const fn of_programs() -> &'static [Self] {
        let mut room = 0;
        while room < Self::ALL.len() && (Self::ALL[room] as usize) < KERNEL_WORDS {
            room += 1;
        }
        Self::ALL.split_at(room).0
    }

    /// The counter of an involuntary abort.
    #[must_use]
    pub fn of_cause(cause: crate::Cause) -> Self {
        *Self::ALL
            .iter()
            .find(|count| **count as usize == Self::AbortVoluntary as usize + cause as usize)
            .unwrap_or(&Self::AbortUnreachable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cause;

    #[test]
    fn positions_fit_a_row_and_rise() {
        let mut last = None;
        for count in Count::ALL {
            assert!((*count as usize) < ROW_WORDS);
            assert!(last < Some(*count as usize));
            last = Some(*count as usize);
        }
    }

    #[test]
    fn what_programs_count_ends_where_their_rows_do() {
        let last = Count::of_programs().last().copied();
        assert_eq!(last, Some(Count::QueuedLong));
        assert!(!Count::of_programs().contains(&Count::DroppedNoHost));
    }

    #[test]
    fn each_layer_has_a_name_of_its_own() {
        for (at, count) in Count::ALL.iter().enumerate() {
            let layer = count.layer();
            let others = Count::ALL[..at].iter().map(|other| other.layer());
            for other in others {
                assert_eq!(other == layer, other.name() == layer.name());
            }
        }
    }

    #[test]
    fn every_cause_has_its_own_counter() {
        for cause in Cause::ALL {
            let name = Count::of_cause(cause).name();
            assert_eq!(name.strip_prefix("abort_"), Some(cause.name()));
        }
    }
}
