//! Messages out of the instances' rings (rungs with XDP).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ashway_abi::memory::HEADROOM_BYTES;
use ashway_abi::trusted::long;
use ashway_abi::{QueueLayout, flow, trusted};
use ashway_memory::SharedArray;
use ashway_memory::messages::Pool;
use ashway_modules::Message;
use ashway_path::time::Time;

use crate::bug::{self, Bug};
use crate::counters::UserRows;
use crate::instance::Instance;
use crate::observe::{What, trace};
use crate::paths::Paths;
use crate::queue::Queue;
use crate::run_instance::RunInstance;
use crate::segments;

/// Messages taken from one ring before the next gets its turn.
const BATCH: u32 = 32;

/// Takes up to a batch from each ring of `instance` and queues the messages for their
/// paths. The messages of a path that is alone stay in the ring where as many wait for their
/// turn: what has no room there the program drops before anything is done for it. Those of
/// several are taken as they come, since behind a message of one there may be one of another
/// that has nothing to wait for; no more of a path can come than is its part of the ring. So
/// are those of a path whose queue is shorter than the ring: what is above its maximum is
/// dropped, wherever it waits. Says whether there was anything. Bounded by the batches; does not
/// allocate but for queues that hold more than ever before, and a message where none is spare.
pub(crate) fn drain(
    instance: &mut RunInstance,
    paths: &mut Paths,
    rows: &UserRows,
    now: impl Fn() -> Time,
) -> bool {
    if !has_work(instance.shared()) {
        return false;
    }
    let rings = instance.shared().queue.as_ref();
    let rings = rings.map_or(0, |queue| queue.layout().rings);
    for _ in 0..rings {
        let backlog = || {
            let backlog = instance.paths().map(|path| paths.engine.backlog(path));
            backlog.sum()
        };
        let is_short = || instance.paths().any(|path| paths.has_short_queue(path));
        if !takes_more(instance.has_several_paths(), backlog, is_short) {
            break;
        }
        // Behind the ring where the last look ended, so that none is always the last.
        let ring = instance.ring % rings;
        instance.ring = ring + 1;
        drain_ring(instance, ring, paths, rows, now());
    }
    true
}

/// Whether messages are taken out of the rings of an instance, whose paths have such a
/// backlog; `is_short` says whether one has a shorter queue than a ring is.
fn takes_more(
    has_several_paths: bool,
    backlog: impl FnOnce() -> u64,
    is_short: impl FnOnce() -> bool,
) -> bool {
    if bug::is(Bug::BacklogStopsOthers) {
        return backlog() < u64::from(BATCH);
    }
    has_several_paths || backlog() < u64::from(BATCH) || is_short()
}

/// Whether any ring of `instance` holds a message, be it half filled, a program has kept a
/// fault, or the reader of its endpoint is to be woken.
#[must_use]
pub(crate) fn waiting(instance: &Instance) -> bool {
    let queue = instance.queue.as_ref();
    queue.is_some_and(|queue| calls(instance, queue) || holds_any(queue))
}

/// Whether any ring of a queue holds a message, be it half filled.
#[must_use]
pub(crate) fn holds_any(queue: &Queue) -> bool {
    (0..queue.layout().rings).any(|ring| holds(queue.words(), ring))
}

/// Whether there is a message to be taken, or what else [`waiting`] is about. For the look
/// that is made again and again: while nothing comes it reads words that no program writes
/// before there is a message, so that the receiving CPU keeps its line of the ring's
/// control block.
fn has_work(instance: &Instance) -> bool {
    instance.queue.as_ref().is_some_and(|queue| {
        let filled = |ring| has_message(queue.words(), ring);
        calls(instance, queue) || (0..queue.layout().rings).any(filled)
    })
}

/// Whether a program has kept a fault, or the reader of the endpoint is to be woken.
fn calls(instance: &Instance, queue: &Queue) -> bool {
    let wake = queue.words().u32_at(trusted::ENDPOINT_WAKE);
    wake.load(Ordering::Acquire) != 0 || instance.keeps_fault()
}

/// Whether a ring holds a message, be it half filled.
fn holds(words: &SharedArray, ring: usize) -> bool {
    if bug::is(Bug::HalfFilledForgotten) {
        return has_message(words, ring);
    }
    let control = trusted::RINGS + ring * trusted::RING_STRIDE;
    let produced = words.u32_at(control + trusted::RING_PRODUCED);
    produced.load(Ordering::Acquire) != consumed(words, ring).load(Ordering::Acquire)
}

/// Whether the next message of a ring is there.
fn has_message(words: &SharedArray, ring: usize) -> bool {
    let next = consumed(words, ring).load(Ordering::Relaxed);
    is_filled(words, ring, next)
}

fn drain_ring(
    instance: &mut RunInstance,
    ring: usize,
    paths: &mut Paths,
    rows: &UserRows,
    now: Time,
) {
    // Whatever its path, what comes behind a message that waits has to wait, too.
    let mut after = std::mem::take(instance.after(ring));
    let shared = instance.shared();
    let Some(queue) = &shared.queue else {
        return;
    };
    take_batch(queue.words(), ring, fetch(queue, ring), |slot| {
        let bucket = bucket(queue, ring, slot);
        if let Some(cpu) = after_cpu(queue, ring, slot) {
            // What the kernel tier answered before this message leaves first.
            paths.ask_witness(cpu, &mut after);
        }
        let Some(taken) = take(queue, ring, slot, || paths.message()) else {
            return;
        };
        let mut message = taken.message;
        message.meta.iface = tag(queue, ring, slot);
        let Some(path) = instance.path(taken.key, message.meta.iface as usize) else {
            return;
        };
        observe(queue, ring, slot, &mut message);
        if bucket != flow::UNORDERED {
            paths.wait_for(path, &mut after);
        }
        let checked = taken.checked.then_some(taken.payload);
        match segments::of(message.bytes(), taken.gso_size) {
            None => paths.receive_from_handler(path, bucket, message, checked, now, rows),
            Some(Ok(segments)) => {
                paths.come_apart(
                    Some((path, bucket)),
                    queue,
                    taken.key,
                    segments.count(),
                    rows,
                );
                for number in 0..segments.count() {
                    let one = segments::nth(&segments, number, &message.meta, paths.message());
                    paths.receive_from_handler(path, bucket, one, None, now, rows);
                }
            }
            Some(Err(fate)) => paths.refuse_from_handler(path, bucket, message, fate, rows),
        }
    });
    *instance.after(ring) = after;
}

/// Takes up to a batch of whole frames from each ring of `frame_queue` and queues them for
/// their paths. Says whether there was anything.
pub(crate) fn drain_frames(
    frame_queue: &Queue,
    paths: &mut Paths,
    rows: &UserRows,
    now: impl Fn() -> Time,
) -> bool {
    let words = frame_queue.words();
    let mut any = false;
    for ring in 0..frame_queue.layout().rings {
        if !has_message(words, ring) {
            continue;
        }
        any = true;
        // A path whose frames are there was ordered before.
        paths.apply_pending(rows);
        let now = now();
        let mut after = std::mem::take(&mut paths.after);
        take_batch(words, ring, fetch(frame_queue, ring), |slot| {
            after.clear();
            if let Some(cpu) = after_cpu(frame_queue, ring, slot) {
                paths.ask_witness(cpu, &mut after);
            }
            let Some(taken) = take(frame_queue, ring, slot, || paths.message()) else {
                return;
            };
            let mut message = taken.message;
            message.meta.iface = tag(frame_queue, ring, slot);
            observe(frame_queue, ring, slot, &mut message);
            match segments::of(message.bytes(), taken.gso_size) {
                None => paths.receive(message, taken.key, &mut after, now, rows),
                Some(Ok(segments)) => {
                    paths.come_apart(None, frame_queue, taken.key, segments.count(), rows);
                    for number in 0..segments.count() {
                        let one = segments::nth(&segments, number, &message.meta, paths.message());
                        paths.receive(one, taken.key, &mut after, now, rows);
                    }
                }
                Some(Err(fate)) => paths.refuse_frame(message, taken.key, fate, rows),
            }
        });
        paths.after = after;
    }
    any
}

/// Takes up to a batch from a ring by way of `take`, which gets the first slot of each message;
/// all of these have been shown to `fetch` before the first is taken.
fn take_batch(
    words: &SharedArray,
    ring: usize,
    fetch: impl Fn(usize),
    mut take: impl FnMut(usize),
) {
    let consumed_word = consumed(words, ring);
    let consumed = consumed_word.load(Ordering::Relaxed);
    let slot = |ticket: u32| ticket as usize % trusted::RING_SLOTS;
    let next = |ticket: u32| {
        let long = words.u32_at(descriptor(ring, slot(ticket)) + trusted::SLOT_LONG);
        let more = if bug::is(Bug::RestNotSteppedOver) {
            0
        } else {
            long.load(Ordering::Relaxed) & long::SLOTS
        };
        ticket.wrapping_add(1 + more)
    };
    let mut end = consumed;
    while end.wrapping_sub(consumed) < BATCH && is_filled(words, ring, end) {
        fetch(slot(end));
        end = next(end);
    }
    let mut ticket = consumed;
    while ticket != end {
        take(slot(ticket));
        ticket = next(ticket);
    }
    if end != consumed {
        // Once for all: programs look at the word for each message, and each store takes
        // its line away from their CPU.
        consumed_word.store(end, Ordering::Release);
    }
}

/// Has the frame of a slot on its way to this CPU while those before it are taken.
fn fetch(queue: &Queue, ring: usize) -> impl Fn(usize) {
    move |slot| {
        let number = ring * trusted::RING_SLOTS + slot;
        queue.pool().prefetch(number, HEADROOM_BYTES);
    }
}

/// How many slots of a ring the daemon has given back.
fn consumed(words: &SharedArray, ring: usize) -> &AtomicU32 {
    let control = trusted::RINGS + ring * trusted::RING_STRIDE;
    words.u32_at(control + trusted::RING_CONSUMED)
}

/// Whether a program has filled the slot with this place in the ring's sequence.
fn is_filled(words: &SharedArray, ring: usize, ticket: u32) -> bool {
    let slot = ticket as usize % trusted::RING_SLOTS;
    let ready = words.u32_at(descriptor(ring, slot) + trusted::SLOT_READY);
    ready.load(Ordering::Acquire) == ticket.wrapping_add(1) || bug::is(Bug::HalfFilledTaken)
}

const fn descriptor(ring: usize, slot: usize) -> usize {
    trusted::SLOTS + (ring * trusted::RING_SLOTS + slot) * trusted::SLOT_BYTES
}

/// The CPU that the message before this one leaves on, if that ran in the kernel
/// tier.
fn after_cpu(queue: &Queue, ring: usize, slot: usize) -> Option<usize> {
    let word = descriptor(ring, slot) + trusted::SLOT_AFTER_CPU;
    let behind = queue.words().u32_at(word).load(Ordering::Relaxed);
    behind.checked_sub(1).map(|cpu| cpu as usize)
}

/// The bucket that the message is counted in, or what stands in its place.
fn bucket(queue: &Queue, ring: usize, slot: usize) -> u32 {
    let word = descriptor(ring, slot) + trusted::SLOT_FLOW;
    let bucket = queue.words().u32_at(word).load(Ordering::Relaxed);
    bucket.min(flow::UNORDERED)
}

/// The number of the interface that the message came by.
fn tag(queue: &Queue, ring: usize, slot: usize) -> u32 {
    if bug::is(Bug::InterfaceOfRing) {
        // That whose ring it was when the queue was made.
        return ring as u32;
    }
    let word = descriptor(ring, slot) + trusted::SLOT_TAG;
    queue.words().u32_at(word).load(Ordering::Relaxed)
}

/// A message that was taken out of its slot.
struct Taken {
    /// Whose it is: the number of its path within the instance, or its key.
    key: usize,
    /// Bytes in front of its payload.
    payload: usize,
    /// Whether the entry program has checked it.
    checked: bool,
    /// How long the payload of each is if it is many messages behind one header, else 0.
    gso_size: usize,
    message: Message,
}

/// Takes a message out of its slot. `None` if that holds none; one that lies outside of the
/// memory is empty: only a layout that disagrees with it gets there.
fn take(queue: &Queue, ring: usize, slot: usize, empty: impl FnOnce() -> Message) -> Option<Taken> {
    let (words, layout) = (queue.words(), queue.layout());
    let descriptor = descriptor(ring, slot);
    let word = |offset| words.u32_at(descriptor + offset).load(Ordering::Relaxed) as usize;
    let payload = word(trusted::SLOT_PAYLOAD_OFF).min(trusted::HEADERS_BYTES);
    if payload == 0 {
        return None;
    }
    let key = word(trusted::SLOT_LOCAL_PATH);
    let long = word(trusted::SLOT_LONG) as u32;
    let more = long & long::SLOTS;
    let most = (1 + more as usize) * layout.piece_bytes();
    let len = (payload + word(trusted::SLOT_PAYLOAD_LEN)).min(most);
    let mut message = empty();
    if more == 0 {
        let number = ring * trusted::RING_SLOTS + slot;
        take_frame(words, queue.pool(), &layout, number, len, &mut message);
    } else {
        join(
            words,
            queue.pool(),
            &layout,
            (ring, slot),
            len,
            &mut message,
        );
        queue.unchain(key, more);
    }
    Some(Taken {
        key,
        payload,
        checked: long & long::UNCHECKED == 0,
        gso_size: (long >> long::GSO_SHIFT) as usize,
        message,
    })
}

/// Makes one message of the `len` bytes of a frame that lie in this slot and those behind it.
fn join(
    words: &SharedArray,
    pool: &Pool,
    layout: &QueueLayout,
    (ring, slot): (usize, usize),
    len: usize,
    message: &mut Message,
) {
    message.fill(len, |into| {
        for (at, piece) in into.chunks_mut(layout.piece_bytes()).enumerate() {
            let number = ring * trusted::RING_SLOTS + (slot + at) % trusted::RING_SLOTS;
            let frame = layout.pool_offset() + pool.place(number) + HEADROOM_BYTES;
            let copied = words.copy_out(frame, piece);
            copied.expect("a block is there, and holds a piece");
        }
    });
    message.copied();
}

/// Makes a message of the `len` bytes of a frame in the block that this slot has, and leaves
/// the slot another block. If there is no other, the frame is copied.
fn take_frame(
    words: &SharedArray,
    pool: &Arc<Pool>,
    layout: &QueueLayout,
    slot: usize,
    len: usize,
    message: &mut Message,
) {
    if let Some(other) = message.exchange(len, |buffer| pool.exchange(slot, buffer)) {
        if !bug::is(Bug::BlockNotExchanged) {
            // Programs see it when the slot is given back.
            let block = words.u32_at(layout.block_word(slot));
            block.store(other as u32, Ordering::Relaxed);
        }
        // Copied by the program, from the driver's frame.
        return;
    }
    let frame = layout.pool_offset() + pool.place(slot) + HEADROOM_BYTES;
    message.fill(len, |into| {
        let copied = words.copy_out(frame, into);
        copied.expect("a block is there, and no frame is longer");
    });
    message.copied();
}

/// Gives the message the number that its program has given it, if somebody observes
/// and one has.
fn observe(queue: &Queue, ring: usize, slot: usize, message: &mut Message) {
    if trace::on() {
        let at = descriptor(ring, slot) + trusted::SLOT_SEQUENCE;
        // A program without observation leaves there what it finds.
        let sequence = queue.words().u64_at(at).swap(0, Ordering::Relaxed);
        message.meta.observed = trace::numbered(sequence);
        let copies = message.meta.copies;
        trace::note(message.meta.observed, || What::Taken { copies });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::played;

    /// A program has taken two slots, and the second is written first: neither is the
    /// worker's before the first is, and the ring is not empty before both were.
    fn a_slot_is_taken_when_it_is_written() -> bool {
        let bytes = descriptor(0, trusted::RING_SLOTS);
        let words = &played::words(bytes);
        let produced = words.u32_at(trusted::RINGS + trusted::RING_PRODUCED);
        let write = |ticket: u32| {
            let ready = words.u32_at(descriptor(0, ticket as usize) + trusted::SLOT_READY);
            ready.store(ticket + 1, Ordering::Release);
        };
        let taken = || {
            let mut taken = Vec::new();
            take_batch(words, 0, |_| (), |slot| taken.push(slot));
            taken
        };
        produced.store(2, Ordering::Release);
        write(1);
        let none = !has_message(words, 0) && taken().is_empty() && holds(words, 0);
        write(0);
        none && has_message(words, 0) && taken() == [0, 1] && !holds(words, 0)
    }

    /// Of more messages than there are blocks, each stays as it came however long it is kept,
    /// while programs fill the ring again and again; those beyond are copied.
    fn a_message_stays_as_it_came() -> bool {
        let layout = QueueLayout {
            paths: 1,
            rings: 1,
            slot_bytes: 2048,
            locks: 0,
        };
        let pool_at = layout.pool_offset();
        let words = played::words(layout.bytes());
        let pool = ashway_kernel::shared::pool(&words, &layout).unwrap();
        let frame = |number: usize| [number as u8, (number >> 8) as u8].repeat(30 + number % 100);
        let mut kept: Vec<(usize, Message)> = Vec::new();
        let mut copies = [0; 3];
        let mut good = true;
        for number in 0..3 * trusted::RING_SLOTS {
            let slot = number % trusted::RING_SLOTS;
            let block = words.u32_at(layout.block_word(slot));
            let at = pool_at + block.load(Ordering::Relaxed) as usize + HEADROOM_BYTES;
            let bytes = frame(number);
            words.copy_in(at, &bytes).unwrap();
            let mut message = Message::default();
            take_frame(&words, &pool, &layout, slot, bytes.len(), &mut message);
            copies[usize::from(message.meta.copies)] += 1;
            kept.push((number, message));
            if kept.len() > trusted::SPARE_BLOCKS + 20 {
                // Some to the end.
                let (number, message) = kept.swap_remove(20 + number * 7 % (kept.len() - 20));
                good &= message.bytes() == frame(number);
            }
        }
        let all = kept.iter();
        good &= all
            .clone()
            .all(|(number, message)| message.bytes() == frame(*number));
        good && copies[1] > trusted::SPARE_BLOCKS && copies[2] > 20
    }

    /// A message over several slots, around the ring's end, and one behind it.
    fn a_long_message_is_joined() -> bool {
        let layout = QueueLayout {
            paths: 1,
            rings: 2,
            slot_bytes: 2048,
            locks: 0,
        };
        let words = played::words(layout.bytes());
        let pool = ashway_kernel::shared::pool(&words, &layout).unwrap();
        let (ring, first) = (1, trusted::RING_SLOTS as u32 - 2);
        let bytes: Vec<u8> = (0..9000).map(|at| (at % 251) as u8).collect();
        let pieces = bytes.chunks(layout.piece_bytes());
        let more = pieces.len() as u32 - 1;
        for (at, piece) in pieces.enumerate() {
            let slot = (first as usize + at) % trusted::RING_SLOTS;
            let place = pool.place(ring * trusted::RING_SLOTS + slot);
            let at = layout.pool_offset() + place + HEADROOM_BYTES;
            words.copy_in(at, piece).unwrap();
        }
        consumed(&words, ring).store(first, Ordering::Relaxed);
        let write = |ticket: u32, more: u32| {
            let at = descriptor(ring, ticket as usize % trusted::RING_SLOTS);
            let long = words.u32_at(at + trusted::SLOT_LONG);
            long.store(more, Ordering::Relaxed);
            let ready = words.u32_at(at + trusted::SLOT_READY);
            ready.store(ticket.wrapping_add(1), Ordering::Release);
        };
        write(first, more);
        write(first + 1 + more, 0);
        let mut taken = Vec::new();
        take_batch(&words, ring, |_| (), |slot| taken.push(slot));
        let behind = (first + 1 + more) as usize % trusted::RING_SLOTS;
        let mut message = Message::default();
        let at = (ring, first as usize);
        join(&words, &pool, &layout, at, bytes.len(), &mut message);
        taken == [first as usize, behind]
            && message.bytes() == bytes
            && message.meta.copies == 2
            && !has_message(&words, ring)
    }

    #[test]
    fn a_long_message_comes_out_whole_and_once() {
        assert!(a_long_message_is_joined());
        assert!(!bug::with(
            Bug::RestNotSteppedOver,
            a_long_message_is_joined
        ));
    }

    #[test]
    fn what_is_kept_is_not_written_over() {
        assert!(a_message_stays_as_it_came());
        assert!(!bug::with(
            Bug::BlockNotExchanged,
            a_message_stays_as_it_came
        ));
    }

    #[test]
    fn what_is_half_written_is_neither_taken_nor_forgotten() {
        assert!(a_slot_is_taken_when_it_is_written());
        for bug in [Bug::HalfFilledTaken, Bug::HalfFilledForgotten] {
            assert!(
                !bug::with(bug, a_slot_is_taken_when_it_is_written),
                "{bug:?}"
            );
        }
    }

    /// The backlog of one path stops its own messages where they are, and nobody else's.
    fn who_waits_stops_nobody_else() -> bool {
        let backlog = || u64::from(BATCH);
        takes_more(true, backlog, || false) && takes_more(false, || backlog() - 1, || false)
    }

    #[test]
    fn a_backlog_is_that_of_its_path() {
        assert!(!takes_more(false, || u64::from(BATCH), || false));
        assert!(takes_more(false, || u64::from(BATCH), || true));
        assert!(who_waits_stops_nobody_else());
        assert!(!bug::with(
            Bug::BacklogStopsOthers,
            who_waits_stops_nobody_else
        ));
    }
}
