//! What each counter means, in words: one table for every command that explains.

use ashway_abi::Count;

/// Why a message ends, or is noted, under a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reason {
    /// What happened, as the end of a sentence that begins with the message.
    pub sentence: &'static str,
    /// Who counts it: the count's [layer](Count::layer).
    pub stage: &'static str,
    /// The key of the path's section that has a part in it.
    pub key: &'static str,
    /// The next step.
    pub hint: &'static str,
}

/// What to do where an interface that was to be sent by is not there.
const IFACE_DOWN: &str = "`ashway status` says which; `ip link set IFACE up`; one that was deleted \
                          is taken again when it is there under its name";

/// The reason behind a counter.
#[must_use]
#[expect(
    clippy::too_many_lines,
    reason = "a table of as many rows as there are counters"
)]
pub const fn reason(count: Count) -> Reason {
    let (sentence, key, hint) = match count {
        Count::Received => (
            "matched the path's filter",
            "match",
            "`ashway why PATH` says what became of each",
        ),
        Count::Consumed => (
            "was used up by the handler, or at the end of a path without one",
            "handler",
            "nothing to do: the path wanted it so",
        ),
        Count::Answered => (
            "was sent back to its sender, as a reply of the handler or of a shell",
            "handler",
            "nothing to do: the path wanted it so",
        ),
        Count::Delivered => (
            "was handed to the application's ring",
            "handler",
            "nothing to do: the handler wanted it so",
        ),
        Count::Passed => (
            "was given to the host's own stack: the handler said pass, or was stopped before it \
             had changed the message, or a stage is not for such messages, or the path was being \
             set up",
            "on_fault",
            "if the handler was stopped, the counters `abort_…` say why",
        ),
        Count::Forwarded => (
            "went on to another path or the next hop",
            "match",
            "nothing to do: the path wanted it so",
        ),
        Count::Absorbed => (
            "was kept for later: as a part of a larger message, or as a shell's command, or because \
             a module of kind `fault` delays it",
            "match",
            "nothing to do: of what comes of it the fate is counted with that",
        ),
        Count::AbortedDirty => (
            "was dropped: the handler was stopped after it had changed the message, so \
             nothing else may see it",
            "handler",
            "`ashway status` shows the cause and the line of the handler's source",
        ),
        Count::DroppedHandler => (
            "was dropped because the handler said so",
            "handler",
            "nothing to do: the handler wanted it so",
        ),
        Count::DroppedFault => (
            "was dropped: the handler was stopped, or is bypassed, and `on_fault` says drop; or a \
             module of kind `fault` lost it; or a stage did what stages may not",
            "on_fault",
            "`on_fault = \"pass\"` gives such messages to the host; the counters `abort_…` say \
             why the handler was stopped",
        ),
        Count::DroppedBadLength => (
            "was dropped: the lengths in its headers contradict each other or the frame \
             (RFC 791 section 3.1, RFC 8200 section 3, RFC 768)",
            "match",
            "the sender is broken, or something cut the frame; `ashway capture` shows its bytes",
        ),
        Count::DroppedBadIpChecksum => (
            "was dropped: its IPv4 header checksum is wrong (RFC 791 section 3.1)",
            "match",
            "the header was damaged on the way, or the sender left its checksum to a device \
             that did not compute it",
        ),
        Count::DroppedBadUdpChecksum => (
            "was dropped: its UDP checksum is wrong (RFC 768; RFC 8200 section 8.1: over IPv6 \
             none is wrong, too)",
            "match",
            "the message was damaged on the way, or the sender left its checksum to a device \
             that did not compute it",
        ),
        Count::DroppedFragment => (
            "was dropped: it is a fragment, and nothing puts it together on this path, or it came \
             twice, contradicts other parts, or found no room among those that wait",
            "match",
            "let the sender send smaller datagrams, or add a module of kind `fragment`",
        ),
        Count::DroppedTooLong => (
            "was dropped: it is longer than a place in the application's ring (`deliver`), than any \
             IP packet, or than a stage or the link behind it takes; or it is many messages in a \
             tunnel, which is not taken apart here",
            "tier",
            "let the sender send smaller datagrams; a module of kind `fragment` cuts what is longer \
             than a link's MTU, and a tunnel's segments are cut before by `ethtool -K IFACE gro off`",
        ),
        Count::DroppedRingFull => (
            "was dropped: the ring to the user tier was full, or had been, and what the path has \
             in it is not done yet",
            "tier",
            "messages come faster than the user tier takes them: promote the path if `ashway \
             status` shows it in the user tier, or give the node more CPU",
        ),
        Count::DroppedNoEndpoint => (
            "was dropped: the handler said deliver, and no process reads the handler's endpoint; \
             or the path was removed while it waited there",
            "handler",
            "give the handler an `endpoint` and start its application by `ashway handler map \
             --endpoint`, or let the handler consume or pass",
        ),
        Count::DroppedEndpointFull => (
            "was dropped: the handler said deliver, and the application has not taken out what \
             is in its ring",
            "handler",
            "messages come faster than the application reads them: give the handler more slots \
             (`endpoint`), or the application more CPU",
        ),
        Count::DroppedNoNextHop => (
            "was dropped: the path has no next hop: a handler said forward, a relay was \
             answered before anybody had sent, a path that makes messages itself has nothing that \
             says where they go, or the next hop's hardware address is not known",
            "attrs",
            "`ashway path show` names the next hop; see that it answers `ping` from here, or give \
             its attributes (`local`, `remote`, `next_mac`; of a relay `next_hop_mac`)",
        ),
        Count::DroppedChanged => (
            "was dropped: the handler changed it and then said pass or abort",
            "handler",
            "a handler that passes a message on must leave it as it came",
        ),
        Count::DroppedNoSender => (
            "was dropped: the handler said reply, but its sender has no address of one \
             host (a group, the host itself, none)",
            "match",
            "the sender forged or lost its address; narrow the filter with `src net` if they are \
             many",
        ),
        Count::DroppedPassFailed => (
            "was dropped: the user tier could not give it back to the host",
            "tier",
            "the host's queues were full, the interface is down, or at TCX the message was for \
             another host; the kernel tier passes without a copy",
        ),
        Count::DroppedNoHost => (
            "was dropped: no path wants it, or its handler passed it, and behind this interface is \
             no host: the host has sent it itself (a TAP device), or the node has both ends",
            "iface",
            "widen the `match` of a path, or have its handler answer, if it is to be taken; a machine \
             where nobody listens drops it, too",
        ),
        Count::DroppedNoHeadroom => (
            "was dropped: there is no room in front of it for a header, or to mark it as a reply",
            "iface",
            "the driver gives no headroom: run the path with `tier = \"user\"`",
        ),
        Count::DroppedQueueFull => (
            "was dropped: the path had its part of the ring to the user tier, or had had and what it \
             has there is not done yet; or a queue of the path was full, or a module that keeps \
             messages was",
            "match",
            "messages come faster than the path takes them",
        ),
        Count::DroppedOverShare => (
            "was dropped: its path had more than its share, and as many of its messages as such a \
             path may have wait in the user tier",
            "share",
            "raise the path's `share` or `rate`, unless this is the flood that they are meant for",
        ),
        Count::DroppedIfaceDown => (
            "was dropped: the interface that it was to leave by is down or gone",
            "iface",
            IFACE_DOWN,
        ),
        Count::QueuedTier => (
            "went to the user tier: the path runs there, or of a relay the message is the first of \
             a sender or has a next hop that is not known yet",
            "tier",
            "nothing to do if `ashway status` has the path in the kernel tier; else `ashway path \
             promote PATH` moves it there, or says why it cannot",
        ),
        Count::QueuedBusy => (
            "went to the user tier because the handler was busy on another CPU for longer than a \
             message waits, or with the worker",
            "handler",
            "nothing to do: an instance runs one message at a time; `instances = \"per-cpu\"` or \
             `\"parallel\"` lets several CPUs run it",
        ),
        Count::WaitedBusy => (
            "waited a short time because the handler was busy on another CPU",
            "handler",
            "nothing to do; what waited in vain is `queued_busy`",
        ),
        Count::QueuedOrder => (
            "went to the user tier because earlier messages of its flow, or of its path, were there",
            "tier",
            "nothing to do if they are to keep their order; `order = \"none\"` of a path that is \
             bound to a handler lets them overtake each other",
        ),
        Count::QueuedRoom => (
            "went to the user tier because its frame has less room behind it than its handler may \
             make it longer, or the link would not take it then",
            "handler",
            "nothing to do; `ASHWAY_GROWS` with a smaller number asks for less room \
             (docs/abi/resize.md)",
        ),
        Count::QueuedLong => (
            "went to the user tier because it is longer than the kernel tier reads (4,088 bytes), or \
             is one of many messages that came behind one header",
            "tier",
            "nothing to do; shorter messages that come one by one run in the kernel tier",
        ),
        Count::QueuedOptions => (
            "went to the user tier because its headers are not where they mostly are, which the \
             kernel tier cannot step over without CAP_PERFMON; or because it has a VLAN tag at TCX",
            "tier",
            "give the node CAP_PERFMON (`ashway doctor` says how); for tags `attach = \"xdp\"`",
        ),
        Count::QueuedShare => (
            "went to the user tier because its path has had its share of the kernel tier",
            "share",
            "nothing to do if that is meant; else raise the path's `share` or `rate`",
        ),
        Count::Bypassed => (
            "bypassed the handler, which had been stopped as often as the path's `faults` allow",
            "faults",
            "`ashway handler faults` has what stopped it; the handler gets its messages again \
             after a rest, or by `ashway path enable PATH`",
        ),
        Count::Committed => ("ran a handler to its verdict", "handler", "nothing to do"),
        Count::RanForTimer => (
            "ran a handler for a timer that it had set",
            "handler",
            "nothing to do",
        ),
        Count::AbortVoluntary => (
            "was handed back by the handler (`abort`)",
            "handler",
            "nothing to do: the handler wanted it so",
        ),
        Count::AbortUnreachable => (
            "stopped the handler: it reached code that it says cannot be reached",
            "handler",
            "a panic or a failed assertion in the handler: `ashway status` shows the line",
        ),
        Count::AbortMemoryBounds => (
            "stopped the handler: it went outside its memory",
            "handler",
            "a bug of the handler: `ashway status` shows the line",
        ),
        Count::AbortMessageBounds => (
            "stopped the handler: it went outside the message",
            "handler",
            "let the handler look at the message's length first: `ashway status` shows the line",
        ),
        Count::AbortDivideByZero => (
            "stopped the handler: it divided by zero",
            "handler",
            "a bug of the handler: `ashway status` shows the line",
        ),
        Count::AbortOverflow => (
            "stopped the handler: a quotient or a converted number does not fit",
            "handler",
            "a bug of the handler: `ashway status` shows the line",
        ),
        Count::AbortIndirectCall => (
            "stopped the handler: it called a function that is not there, or of another type",
            "handler",
            "a bug of the handler: `ashway status` shows the line",
        ),
        Count::AbortStack => (
            "stopped the handler: its calls are nested too deeply",
            "handler",
            "bound the handler's recursion: `ashway status` shows the line",
        ),
        Count::AbortFuel => (
            "stopped the handler: its fuel was used up",
            "budget",
            "raise the path's `budget` (at most 10 ms), or let the handler do less",
        ),
        Count::AbortTime => (
            "stopped the handler: its time was used up",
            "budget",
            "raise the path's `budget` (at most 10 ms), or let the handler do less",
        ),
        Count::AbortBadVerdict => (
            "stopped the handler: what it returned is no verdict that it may give",
            "handler",
            "was it `reply`? that takes `allow = [\"reply\"]` in the handler's section",
        ),
        Count::AbortUnaligned => (
            "stopped the handler: it accessed memory atomically at an unaligned address",
            "handler",
            "a bug of the handler: `ashway status` shows the line",
        ),
        Count::AbortTableBounds => (
            "stopped the handler: it went outside a table",
            "handler",
            "a bug of the handler: `ashway status` shows the line",
        ),
        Count::OutOriginated => (
            "was made by the path, to be sent",
            "handler",
            "nothing to do",
        ),
        Count::OutHandedOver => (
            "was taken by the driver",
            "iface",
            "nothing to do: what the driver lost after that is in `lost_after_hand_over`",
        ),
        Count::OutDroppedNoRoute => (
            "was not sent: the handler sent it to a channel, and the host's stack has no way \
             there, or it is too long; or its path knows no next hop for it",
            "handler",
            "`ip route get ADDRESS` says how the host would reach the peer; the peers are the \
             handler's `channels`",
        ),
        Count::OutDroppedIfaceDown => (
            "was not sent: the interface that it was to leave by is down or gone",
            "iface",
            IFACE_DOWN,
        ),
        Count::OutDroppedTxFull => (
            "was not sent: the driver's transmit ring, or the channel's socket, stayed full",
            "iface",
            "the link is slower than the replies: slow the senders down",
        ),
        Count::OutDroppedQueueFull => (
            "was not sent: the path's output queue was full",
            "attrs",
            "a stage makes more of one message than the queue holds: send shorter messages, or \
             raise the MTU if `fragment` cuts them",
        ),
        Count::OutDroppedTooLong => (
            "was not sent: its frame is longer than the user tier sends, or than the link takes",
            "iface",
            "lower the interface's MTU, or let a module of kind `fragment` cut it (`mtu`)",
        ),
    };
    Reason {
        sentence,
        stage: count.layer().name(),
        key,
        hint,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ashway_abi::count::Ledger;
    use std::collections::BTreeSet;

    const KEYS: [&str; 9] = [
        "match", "handler", "on_fault", "faults", "budget", "share", "tier", "iface", "attrs",
    ];

    /// That every counter has one is the compiler's to see.
    #[test]
    fn every_reason_is_a_sentence_of_its_own_with_a_place_and_a_next_step() {
        let mut sentences = BTreeSet::new();
        for &count in Count::ALL {
            let reason = reason(count);
            let name = count.name();
            assert!(sentences.insert(reason.sentence), "{name}");
            assert!(KEYS.contains(&reason.key), "{name}");
            assert!(!reason.hint.is_empty(), "{name}");
            let dropped = name.contains("dropped_") || name == "aborted_dirty";
            let says = reason.sentence.contains("dropped") || reason.sentence.contains("not sent");
            assert_eq!(dropped, says, "{name}: {}", reason.sentence);
            if dropped && count.ledger() == Ledger::Fate && count != Count::DroppedHandler {
                assert!(!reason.hint.contains("nothing to do"), "{name}");
            }
        }
    }

    /// Several places end messages with the same count: its sentence names each of them.
    #[test]
    fn a_sentence_names_every_place_that_ends_with_its_count() {
        let places: [(Count, &[&str]); 11] = [
            (Count::Consumed, &["handler", "end of a path"]),
            (Count::Answered, &["handler", "shell"]),
            (Count::Passed, &["handler", "stage"]),
            (Count::Absorbed, &["part", "shell", "`fault`"]),
            (
                Count::DroppedFault,
                &["on_fault", "`fault`", "stages may not"],
            ),
            (
                Count::DroppedFragment,
                &["nothing puts", "twice", "contradicts", "room"],
            ),
            (Count::DroppedTooLong, &["ring", "stage", "link"]),
            (Count::DroppedNoEndpoint, &["deliver", "removed"]),
            (
                Count::DroppedNoNextHop,
                &["forward", "relay", "itself", "hardware"],
            ),
            (Count::DroppedNoHeadroom, &["header", "reply"]),
            (Count::DroppedQueueFull, &["queue", "keeps"]),
        ];
        for (count, words) in places {
            let sentence = reason(count).sentence;
            for word in words {
                assert!(sentence.contains(word), "no `{word}`: {sentence}");
            }
        }
    }
}
