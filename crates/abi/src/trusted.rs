//! The trusted words of an instance.
//!
//! One mmapable array map per instance that only kernel programs and the
//! daemon can touch. What must be believed lives here and never in the
//! instance's own memory: the lock, the counts that keep order, ring indices,
//! and the messages that wait: a reply is built from their headers, so an application
//! that could write them could send as anybody; and `pass` hands their payloads, which
//! lie in a pool behind the words, to the host.
//!
//! All fields are offsets in bytes from the start of the map's one value, and
//! are read and written with atomics on both sides. A field that one side writes
//! shares no cache line with a field that the other writes; the line of faults is
//! written by both, and seldom.

/// `u32`: while an activation of the instance runs, in which tier: [`IN_USER`] or [`IN_KERNEL`];
/// [`HELD`]; else 0.
pub const LOCK: usize = 0;
/// [`LOCK`] while the worker has it, which may be preempted.
pub const IN_USER: u32 = 1;
/// [`LOCK`] while what stopped an activation in the kernel tier lies in
/// [`fault_at`] and nobody may run the handler until the worker has taken it, with the
/// memory as it is.
pub const HELD: u32 = 2;
/// [`LOCK`] while an activation in the kernel tier has it: a program on another CPU waits for
/// that, for a short time.
pub const IN_KERNEL: u32 = 3;
/// `u32`: 1 while the worker wants the lock and an activation in the kernel tier had it when
/// the worker tried. Programs leave the lock alone until the worker has had it: they take it by
/// an exchange of both words at once, from 0 to [`IN_KERNEL`]. Written by the worker.
pub const WANTED: usize = 4;

/// Distance of two locks of a handler that runs on several CPUs at once: it has one for each CPU
/// ([`QueueLayout::cpu_lock`](crate::QueueLayout::cpu_lock)), with the words [`LOCK`] and [`WANTED`]
/// from there on, and leaves those above alone. An activation in the kernel tier takes that of its
/// own CPU. The worker runs the handler without any, and takes all of them for what nobody may
/// run it meanwhile. A cache line, which is that CPU's until the worker wants it.
pub const LOCK_STRIDE: usize = 64;
/// `u32`: 1 while the worker does not look at the instance, because it sleeps or because the
/// instance has had nothing for a while, and wants the wake ring to be rung.
pub const NEED_WAKE: usize = 64;
/// `u32`: 1 while messages of more than one path of the handler come into the rings, so that
/// each has its part of them; a path that is alone has them for itself. Written by the worker,
/// before messages of a second path come.
pub const PARTED: usize = 68;
/// `u32`: how many faults there were, in either tier; the fields below are of
/// the last, and written by both sides.
pub const FAULT_COUNT: usize = 128;
/// `u32`: the [`Cause`](crate::Cause) of the last fault. Whoever writes these words makes it
/// 0 first, and writes it last, behind the count: a reader that finds the same cause and
/// the same count before and behind the rest has words of one fault.
pub const FAULT_CAUSE: usize = 132;
/// `u32`: its offset in the Wasm file.
pub const FAULT_AT: usize = 136;
/// `u32`: the row of the path it happened on.
pub const FAULT_ROW: usize = 140;
/// `u32`: the version of the handler that it happened to, as the daemon counts them.
pub const FAULT_VERSION: usize = 144;
/// `u32`: 1 if the next message that stops the handler in the kernel tier is to be
/// [held](HELD). Set by the daemon, taken away by the program that keeps one. Where a handler runs on
/// several CPUs at once, whoever makes it [`FAULT_WRITTEN`] from 1 may write the words above and
/// [what is kept](fault_at); others count their fault, and write nothing.
pub const FAULT_WANTED: usize = 148;

/// [`FAULT_WANTED`] while one of several CPUs, or the worker, writes the words of its fault.
pub const FAULT_WRITTEN: u32 = 2;
/// `u32`: the version that runs. Written by the worker, under the lock.
pub const VERSION: usize = 152;
/// `u32`: 1 once a program has put a message into the endpoint whose reader sleeps:
/// the worker signals it, since programs cannot. It stands with the faults because
/// both sides write it and seldom: the worker looks at it at each turn.
pub const ENDPOINT_WAKE: usize = 156;
/// `u32`: slots of the [endpoint](crate::endpoint) taken so far, by either tier
/// (wraps).
pub const ENDPOINT_PRODUCED: usize = 192;
/// `u32`: 1 while a process reads the endpoint. Written by the daemon when one comes
/// or goes, read with the word before it.
pub const ENDPOINT_OPEN: usize = 196;
/// `u64`: a number drawn by chance, by which [buckets of flows](crate::flow) are chosen. Written
/// by the daemon, once.
pub const FLOW_SEED: usize = 200;
/// First of [`MAX_PATHS`] path words, [`PATH_STRIDE`] bytes apart; each starts
/// with the `u32` number of the path's messages in the user tier (`in_user`) and
/// [`DRAINING`]. Where there are more, they lie at the end: [`paths_at`].
pub const PATHS: usize = 256;
/// Bit of a path word's `in_user`, and of a [flow bucket](flows_at): a message found the ring full, or
/// its path's part of it, so the kernel tier drops what comes, until none of the path, or of the
/// bucket, is in the user tier and it goes on.
/// Else a flood would keep them in the user tier as long as it lasts. Set by
/// programs of the kernel tier while there are messages, and gone with the last.
pub const DRAINING: u32 = 1 << 31;
/// `u32` in a path word: 1 + the CPU on which the last message of the path ran in
/// the kernel tier, 0 once a later one is in a ring. Only forward paths have it;
/// handlers, which share an instance's memory, have [`RING_BEHIND_KERNEL`].
pub const PATH_BEHIND_KERNEL: usize = 4;
/// `u64` in a path word: when what the path has used of its [share](crate::share) is
/// paid for, in ns of `CLOCK_MONOTONIC`. Written by the kernel tier under the
/// instance's lock, as are the next two; those the worker writes while the path is in the
/// user tier. A relay, which has no lock, has them in the word of its forward direction, for
/// both, and this one is changed atomically.
pub const PATH_PAID: usize = 8;
/// `u32` in a path word: 1 while the path is above its share.
pub const PATH_LAZY: usize = 16;
/// `u64` in a path word: when a message was last led to the user tier for that, on
/// the same clock; 0 if none was.
pub const PATH_LAZY_AT: usize = 24;
/// `u64` in a path word: messages of the path that were dropped on arrival because it had
/// its part of the ring. Only paths that share a row of counters have it: those that take whole
/// frames, but for relays.
pub const PATH_DROPPED: usize = 32;
/// `u32` in a path word: slots of rings that hold rests of the path's long messages
/// ([`SLOT_LONG`]). Programs add to it, the worker subtracts when it takes a message out.
pub const PATH_CHAINED: usize = 40;
/// Messages that a path above its share has in the user tier, at most: a turn of the
/// worker's. None may overtake them, so the kernel tier waits for so many; and who
/// shares the ring with it finds room.
pub const LAZY_MESSAGES: u32 = 32;
/// Distance of two path words: a cache line.
pub const PATH_STRIDE: usize = 64;
/// Most paths of one handler's instance.
pub const MAX_PATHS: usize = 60;
/// First ring control block, [`RING_STRIDE`] bytes apart.
pub const RINGS: usize = 4096;
/// Distance of two ring control blocks.
pub const RING_STRIDE: usize = 128;
/// Most rings of one instance. Each interface has one for each of its receive queues, as
/// far as there are enough: else, and where queues or interfaces come later, some queues
/// share one.
pub const MAX_RINGS: usize = 64;
/// `u32` in a ring control block: slots taken by the kernel so far (wraps). A
/// slot is filled once its [`SLOT_READY`] says so.
pub const RING_PRODUCED: usize = 0;
/// First of [`RING_MARKS`] `u32` in a ring control block, one for each queue whose ring it
/// is: 1 while the last message of that queue went through the kernel tier, 0 once a later
/// one is in the ring. The last of them is that of all further queues: nobody takes it
/// away, as a message of another queue would.
pub const RING_BEHIND_KERNEL: usize = 4;
/// How many there are.
pub const RING_MARKS: usize = 15;
/// `u32` in a ring control block: slots given back so far, by the daemon.
pub const RING_CONSUMED: usize = 64;
/// Slots of a ring; a power of two.
pub const RING_SLOTS: usize = 256;
/// First slot descriptor; ring `r`, slot `s` is number `r * RING_SLOTS + s`.
pub const SLOTS: usize = RINGS + MAX_RINGS * RING_STRIDE;
/// Size of a slot descriptor: a cache line, which the program's CPU writes and the worker's
/// reads.
pub const SLOT_BYTES: usize = 64;
/// Blocks of the [pool](crate::queue::QueueLayout::pool_offset) for each ring beyond those in its
/// slots: so many messages of it can be in the user tier without a copy. More than the worker
/// takes at once.
pub const SPARE_BLOCKS: usize = 64;

/// `u32` in a slot: the path's position within the instance.
pub const SLOT_LOCAL_PATH: usize = 0;
/// `u32` in a slot: bytes of headers in front of the payload; 0 if there is no message after
/// all.
pub const SLOT_PAYLOAD_OFF: usize = 4;
/// `u32` in a slot: length of the payload.
pub const SLOT_PAYLOAD_LEN: usize = 8;
/// `u32` in a slot: 1 + the CPU that put the message here right behind one of the
/// kernel tier, else 0. What that one sent leaves when the driver's poll on that
/// CPU ends, so this message must not be run before.
pub const SLOT_AFTER_CPU: usize = 12;
/// `u32` in a slot: the slot's place in the ring's sequence, plus 1, once the
/// message is here.
pub const SLOT_READY: usize = 16;
/// `u32` in a slot: 0 for a message that has been checked and lies in this slot alone. Else how
/// many slots behind it hold the rest ([`long::SLOTS`]), whether it is [`long::UNCHECKED`], and in
/// the upper half its `gso_size`: how long each payload is of the many messages behind the one
/// header, 0 if it is one message.
pub const SLOT_LONG: usize = 20;

/// Parts of [`SLOT_LONG`].
pub mod long {
    /// How many slots follow. Their descriptors say nothing: the first one's [`READY`](super::SLOT_READY)
    /// is that of all.
    pub const SLOTS: u32 = 0xff;
    /// Lengths and checksums are for the user tier to check.
    pub const UNCHECKED: u32 = 0x100;
    /// Where `gso_size` begins.
    pub const GSO_SHIFT: u32 = 16;
    /// The longest message: an IPv6 packet without a jumbo payload (RFC 8200 §3) behind two
    /// VLAN tags.
    pub const MOST_BYTES: usize = 40 + 65_535 + 2 * 4;
}

/// Most bytes of headers in front of a payload: Ethernet 14, two VLAN tags 8, IPv4 with options 60 or IPv6
/// 40, UDP 8, and for extension headers what is left. A datagram with longer
/// headers has a bad length.
pub const HEADERS_BYTES: usize = 224;

/// `u64` in a slot: the message's number while somebody
/// [observes](crate::observe); else whatever was there.
pub const SLOT_SEQUENCE: usize = 24;
/// `u32` in a slot of a handler's queue: the [bucket](crate::flow) that the message is counted
/// in, or what stands in its place.
pub const SLOT_FLOW: usize = 32;
/// `u32` in a slot: the [tag](crate::Leaf::tag) of the path at the interface that the message
/// came by. The ring does not say which that is: interfaces may share one.
pub const SLOT_TAG: usize = 36;

const _: () = assert!(SLOT_BYTES == 64 && SLOTS.is_multiple_of(64));
const _: () = assert!(RING_BEHIND_KERNEL + 4 * RING_MARKS <= RING_CONSUMED);
const _: () = assert!(SLOT_SEQUENCE + 8 <= SLOT_FLOW && SLOT_SEQUENCE.is_multiple_of(8));
const _: () = assert!(SLOT_FLOW + 4 <= SLOT_TAG && SLOT_TAG + 4 <= SLOT_BYTES);

/// `u32` of a kept fault: bytes of headers in front of the message.
pub const FAULT_FRONT: usize = 0;
/// `u32` of a kept fault: bytes of the message.
pub const FAULT_LEN: usize = 4;
/// `u32` of a kept fault: 1 if the handler had changed the message.
pub const FAULT_CHANGED: usize = 8;
/// The frame of a kept fault: headers and message.
pub const FAULT_FRAME: usize = 64;
/// Room for the frame. What is longer is not kept.
pub const FAULT_FRAME_BYTES: usize = 4096;

/// Where the fault lies that is [held](HELD), with this many rings.
#[must_use]
pub const fn fault_at(rings: usize) -> usize {
    log_at(rings) + crate::log::ring::BYTES
}

/// How many messages a path has in the user tier, by its `in_user`.
#[must_use]
pub const fn in_user(word: u32) -> u32 {
    word & !DRAINING
}

/// What `in_user` becomes when so many of its messages have left the user tier.
#[must_use]
pub const fn less(word: u32, messages: u32) -> u32 {
    match word.wrapping_sub(messages) {
        DRAINING => 0,
        word => word,
    }
}

/// Offset of the array, behind the slots of this many rings, that maps each slot to its block:
/// a `u32`, the block's offset in the pool in bytes. The daemon writes another block here
/// before it gives a slot back, and keeps the one that the message lies in.
#[must_use]
pub const fn blocks_at(rings: usize) -> usize {
    SLOTS + rings * RING_SLOTS * SLOT_BYTES
}

/// Where the [ring of lines](crate::log::ring) starts, behind them.
#[must_use]
pub const fn log_at(rings: usize) -> usize {
    blocks_at(rings) + rings * RING_SLOTS * size_of::<u32>()
}

/// Size of the map's value for this many rings.
#[must_use]
pub const fn bytes(rings: usize) -> usize {
    fault_at(rings) + FAULT_FRAME + FAULT_FRAME_BYTES
}

/// Where the path words of an instance with this many paths and rings start.
#[must_use]
pub const fn paths_at(paths: usize, rings: usize) -> usize {
    if paths <= MAX_PATHS {
        PATHS
    } else {
        bytes(rings)
    }
}

/// Size of the map's value for this many paths and rings.
#[must_use]
pub const fn bytes_with(paths: usize, rings: usize) -> usize {
    if paths <= MAX_PATHS {
        bytes(rings)
    } else {
        bytes(rings) + paths * PATH_STRIDE
    }
}

/// Where the [buckets of flows](crate::flow) start, behind them: a `u32` each, the number of the
/// messages in the user tier that are counted in it, and [`DRAINING`]. A message is counted in its
/// path's word first and last: where a path has none in the user tier, no bucket has one of it.
#[must_use]
pub const fn flows_at(paths: usize, rings: usize) -> usize {
    bytes_with(paths, rings).next_multiple_of(64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_message_takes_the_mark_with_it() {
        let mut word = 3 | DRAINING;
        for left in [2, 1] {
            word = less(word, 1);
            assert_eq!((in_user(word), word & DRAINING), (left, DRAINING));
        }
        assert_eq!(less(word, 1), 0);
        assert_eq!(less(3 | DRAINING, 3), 0);
        assert_eq!((less(3, 1), less(3, 3)), (2, 0));
    }
}
