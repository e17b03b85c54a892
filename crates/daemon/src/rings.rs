//! Messages out of the instances' rings (rungs with XDP).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use ashway_abi::{Count, trusted};
use ashway_kernel::Program;
use ashway_memory::AllegedOffset;
use ashway_modules::Message;
use ashway_path::time::Time;
use ashway_ring::{Passer, SendError, TxSocket};

use crate::bug::{self, Bug};
use crate::counters::UserRows;
use crate::instance::Instance;
use crate::live::Live;
use crate::observe::{What, tap};
use crate::runner::{Entrance, PathRun, Port, RunInstance, is_down};
use crate::share::Admission;
use crate::turns::LOOK;
use crate::visit::visit;

/// Messages taken from one ring before the next gets its turn.
const BATCH: u32 = 32;

/// Longest frame that can wait in a ring.
const FRAME_BYTES: usize = trusted::SLOT_HEADERS_BYTES + 4096;

/// The way out of an interface with XDP: its transmit socket, and the way back
/// into the host.
#[derive(Debug)]
pub(crate) struct XdpPort {
    /// Transmit only.
    pub(crate) tx: TxSocket,
    /// How messages are passed on.
    pub(crate) pass_by: PassBy,
}

/// How a message is given to the host's stack.
#[derive(Debug)]
pub(crate) enum PassBy {
    /// As a live frame of a program that returns `XDP_PASS`: it goes on behind
    /// the driver, where native XDP has already been.
    Frame {
        /// The program.
        program: Program,
        /// The interface it arrives by once more.
        ifindex: u32,
        /// How many of them a second may see.
        pace: Pace,
        /// Takes the rest, if there is one.
        passer: Option<Passer>,
    },
    /// By a raw socket. Generic XDP sits behind the driver and would meet a
    /// live frame again, and again.
    Socket(Passer),
}

impl Port for XdpPort {
    fn send(&mut self, frame: &[u8]) -> Count {
        // A full ring is emptied by a kick (copy mode sends at once), so one
        // more try is fair; beyond that the message is lost and counted.
        for _ in 0..2 {
            match self.tx.send(frame) {
                Ok(()) => return Count::OutHandedOver,
                Err(SendError::TxFull) => {
                    if self.tx.kick().is_err_and(|error| is_down(&error)) {
                        return Count::OutDroppedIfaceDown;
                    }
                }
                Err(SendError::TooLong { .. }) => return Count::OutDroppedTooLong,
                Err(SendError::Os(_)) => break,
            }
        }
        Count::OutDroppedTxFull
    }

    fn pass(&mut self, frame: &[u8]) -> bool {
        // Earlier replies leave first.
        let _ = self.tx.kick();
        match &mut self.pass_by {
            PassBy::Frame {
                program,
                ifindex,
                pace,
                passer,
            } => {
                // One that does not fit a page is refused as a live frame.
                (pace.allows(Instant::now()) && program.run_live(frame, 1, *ifindex).is_ok())
                    || passer
                        .as_ref()
                        .is_some_and(|passer| by_socket(passer, frame))
            }
            PassBy::Socket(passer) => by_socket(passer, frame),
        }
    }
}

fn by_socket(passer: &Passer, frame: &[u8]) -> bool {
    frame
        .get(ashway_wire::eth::HEADER_BYTES..)
        .is_some_and(|packet| passer.pass(packet).is_ok())
}

/// Limits live frames to [`Pace::PER_SECOND`].
///
/// For each the kernel makes a page pool, which lives for at least a second if
/// the frame waits in a socket meanwhile. With some ten thousand of them it
/// takes hundreds of milliseconds to make the next
/// (`mem_id_lock` in net/core/xdp.c; seen on Linux 6.18).
#[derive(Debug, Default)]
pub(crate) struct Pace {
    second: Option<Instant>,
    count: u32,
}

impl Pace {
    const PER_SECOND: u32 = 1000;

    fn allows(&mut self, now: Instant) -> bool {
        if self
            .second
            .is_none_or(|begin| now.duration_since(begin) >= Duration::from_secs(1))
        {
            self.second = Some(now);
            self.count = 0;
        }
        self.count += 1;
        self.count <= Self::PER_SECOND
    }
}

/// Takes up to a batch from each ring of `instance`, if it is its turn. Says whether
/// there is anything. Bounded by the turn and [`LOOK`] messages, by the batch where
/// there are more rings; does not allocate.
pub(crate) fn drain(
    instance: &mut RunInstance,
    ports: &mut [Option<XdpPort>],
    rows: &UserRows,
    spare: &mut Option<Message>,
) -> bool {
    let Some(turn) = instance.turns.next() else {
        return waiting(&instance.shared) || instance.waits();
    };
    let waits = instance.waits();
    if !waits && !waiting(&instance.shared) {
        return false;
    }
    let begin = Instant::now();
    let is_over = || begin.elapsed() >= turn;
    let mut any = waits && work_off(instance, ports, rows, is_over);
    let rings = instance.shared.layout.rings;
    for _ in 0..rings {
        // Behind the ring where the last turn ended, so that none is always the last.
        let ring = instance.ring % rings;
        instance.ring = ring + 1;
        let iface = instance.shared.plan.iface_of(ring);
        if let Some(port) = &mut ports[iface]
            && drain_ring(instance, ring, port, rows, spare, is_over)
        {
            any = true;
            if is_over() {
                break;
            }
        }
    }
    instance.turns.took(begin.elapsed());
    any
}

/// Runs what waits for its path's share and may run now. Says whether there was anything.
fn work_off(
    instance: &mut RunInstance,
    ports: &mut [Option<XdpPort>],
    rows: &UserRows,
    is_over: impl Fn() -> bool,
) -> bool {
    let mut any = false;
    for (local, at) in instance.paths.iter_mut().enumerate() {
        // Those of a path draw on one account: another comes first each time.
        if at.len() > 1 {
            at.rotate_left(1);
        }
        for (iface, path) in at {
            let Some(port) = &mut ports[*iface] else {
                continue;
            };
            if let Some(ended) = path.work_off(port, rows, &is_over) {
                any = true;
                // As at the end of a batch: what is sent leaves first.
                let _ = port.tx.kick();
                if let (Some(kernel), 1..) = (&instance.shared.kernel, ended) {
                    let word = instance.shared.path_word(local);
                    subtract(kernel.trusted.u32_at(word), ended);
                }
                tell(&instance.shared, local, path);
            }
        }
    }
    any
}

/// Tells the programs how a path stands with its share, so that they drop what the worker
/// would have no room for.
fn tell(shared: &Instance, local: usize, path: &PathRun) {
    if let (Some(kernel), Some(stands)) = (&shared.kernel, path.stands()) {
        let word = shared.path_word(local);
        let lazy_at = kernel.trusted.u64_at(word + trusted::PATH_LAZY_AT);
        lazy_at.store(stands.lazy_at, Ordering::Relaxed);
        let lazy = kernel.trusted.u32_at(word + trusted::PATH_LAZY);
        lazy.store(u32::from(stands.lazy), Ordering::Release);
    }
}

/// Whether any ring of `instance` holds a message, a program has kept a fault, or the
/// reader of its endpoint is to be woken.
#[must_use]
pub(crate) fn waiting(instance: &Instance) -> bool {
    let Some(kernel) = &instance.kernel else {
        return false;
    };
    let wake = kernel.trusted.u32_at(trusted::ENDPOINT_WAKE);
    if wake.load(Ordering::Acquire) != 0 || instance.keeps_fault() {
        return true;
    }
    (0..instance.layout.rings).any(|ring| {
        let control = trusted::RINGS + ring * trusted::RING_STRIDE;
        let word = |offset| {
            kernel
                .trusted
                .u32_at(control + offset)
                .load(Ordering::Acquire)
        };
        word(trusted::RING_PRODUCED) != word(trusted::RING_CONSUMED)
    })
}

fn drain_ring(
    instance: &mut RunInstance,
    ring: usize,
    port: &mut XdpPort,
    rows: &UserRows,
    spare: &mut Option<Message>,
    is_over: impl Fn() -> bool,
) -> bool {
    let shared = Arc::clone(&instance.shared);
    let batch = take_batch(&shared, ring, is_over, |slot| {
        take(instance, ring, slot, port, rows, spare)
    });
    if batch.count > 0 {
        // A failed kick leaves the frames in the ring for the next one.
        let _ = port.tx.kick();
    }
    // Only now that the replies have left: the kernel tier must not overtake.
    batch.end(&shared)
}

/// Takes up to a batch of whole frames from each ring of `carrier` and queues them for
/// their paths. Says whether there was anything.
pub(crate) fn drain_frames(
    carrier: &Instance,
    live: &mut Live,
    rows: &UserRows,
    now: impl Fn() -> Time,
) -> bool {
    let mut any = false;
    for ring in 0..carrier.layout.rings {
        let iface = carrier.plan.iface_of(ring);
        let batch = take_batch(
            carrier,
            ring,
            || false,
            |slot| {
                if let Some(cpu) = behind(carrier, ring, slot) {
                    visit(cpu);
                }
                let (key, _, message) = copy_out(carrier, ring, slot, || live.buffer())?;
                let Ok(mut message) = message else {
                    rows.add(live.row(), Count::DroppedBadLength);
                    return Some(key);
                };
                message.meta.iface = iface as u32;
                observe(carrier, ring, slot, &mut message);
                live.receive(message, key, now(), rows);
                None
            },
        );
        any |= batch.end(carrier);
    }
    any
}

/// Says that whole frames have left the user tier, by their keys.
pub(crate) fn leave_frames(carrier: &Instance, keys: impl Iterator<Item = u32>) {
    if let Some(kernel) = &carrier.kernel {
        let word = |key| kernel.trusted.u32_at(carrier.path_word(key));
        leave(keys.map(|key| key as usize), word);
    }
}

/// Messages that were taken from a ring and are not done with yet.
struct Batch {
    /// Their paths' numbers within the instance.
    ended: [Option<usize>; BATCH as usize],
    count: u32,
}

impl Batch {
    /// Says that they have ended, and whether there were any.
    fn end(self, shared: &Instance) -> bool {
        let Some(kernel) = &shared.kernel else {
            return false;
        };
        let word = |local| kernel.trusted.u32_at(shared.path_word(local));
        leave(self.ended.into_iter().flatten(), word);
        self.count > 0
    }
}

/// Subtracts messages that have left the user tier from the words that count them, by
/// their paths' numbers.
fn leave<'w>(ended: impl Iterator<Item = usize>, word: impl Fn(usize) -> &'w AtomicU32) {
    let mut ended = ended.peekable();
    while let Some(local) = ended.next() {
        let mut messages = 1;
        while ended.next_if_eq(&local).is_some() {
            // Programs write that word, too: it changes hands once.
            messages += 1;
        }
        if bug::is(Bug::RunCountedOnce) {
            messages = 1;
        }
        subtract(word(local), messages);
    }
}

/// Says that so many messages of a path are in the user tier no more: until that is all,
/// the kernel tier runs none of the path.
fn subtract(word: &AtomicU32, messages: u32) {
    if !bug::is(Bug::CountNotSubtracted) {
        let less = |word| Some(trusted::less(word, messages));
        let _ = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
    }
}

/// Takes up to a batch from a ring by way of `take`, which gets a slot and says
/// whose message was there. Ends sooner if the turn `is_over`.
fn take_batch(
    shared: &Instance,
    ring: usize,
    is_over: impl Fn() -> bool,
    mut take: impl FnMut(usize) -> Option<usize>,
) -> Batch {
    let mut batch = Batch {
        ended: [None; BATCH as usize],
        count: 0,
    };
    let Some(kernel) = &shared.kernel else {
        return batch;
    };
    let control = trusted::RINGS + ring * trusted::RING_STRIDE;
    let produced = kernel
        .trusted
        .u32_at(control + trusted::RING_PRODUCED)
        .load(Ordering::Acquire);
    let consumed_word = kernel.trusted.u32_at(control + trusted::RING_CONSUMED);
    let consumed = consumed_word.load(Ordering::Relaxed);
    let waiting = produced.wrapping_sub(consumed).min(BATCH);
    for end in &mut batch.ended[..waiting as usize] {
        if batch.count > 0 && batch.count.is_multiple_of(LOOK) && is_over() {
            break;
        }
        let ticket = consumed.wrapping_add(batch.count);
        let slot = ticket as usize % trusted::RING_SLOTS;
        let ready = kernel
            .trusted
            .u32_at(descriptor(ring, slot) + trusted::SLOT_READY);
        if ready.load(Ordering::Acquire) != ticket.wrapping_add(1) {
            // Taken, but still being filled.
            break;
        }
        *end = take(slot);
        batch.count += 1;
        consumed_word.store(consumed.wrapping_add(batch.count), Ordering::Release);
    }
    batch
}

const fn descriptor(ring: usize, slot: usize) -> usize {
    trusted::SLOTS + (ring * trusted::RING_SLOTS + slot) * trusted::SLOT_BYTES
}

/// Copies one message out and runs its path's handler; says which path it was,
/// by its number within the instance, unless the message waits for the path's share.
fn take(
    instance: &mut RunInstance,
    ring: usize,
    slot: usize,
    port: &mut XdpPort,
    rows: &UserRows,
    spare: &mut Option<Message>,
) -> Option<usize> {
    let shared = Arc::clone(&instance.shared);
    if let Some(cpu) = behind(&shared, ring, slot) {
        // What the kernel tier answered before this message leaves first.
        let _ = port.tx.kick();
        visit(cpu);
    }
    let buffer = || spare.take().unwrap_or_else(spare_message);
    let (local, payload, message) = copy_out(&shared, ring, slot, buffer)?;
    let iface = shared.plan.iface_of(ring);
    let path = instance.path(local, iface)?;
    *spare = match message {
        Ok(mut message) => {
            message.meta.iface = iface as u32;
            observe(&shared, ring, slot, &mut message);
            let entrance = Entrance::Validated { payload };
            let admission = path.admit();
            tell(&shared, local, path);
            match admission {
                Admission::Runs => path.run(message, entrance, port, rows),
                Admission::Waits => {
                    *spare = path.hold(message, entrance);
                    return None;
                }
                Admission::Over => Some(path.over(message, rows)),
            }
        }
        Err(message) => {
            // Only a layout that disagrees with the memory could get here.
            path.refuse(Count::DroppedBadLength, rows);
            Some(message)
        }
    };
    Some(local)
}

/// The CPU that the message before this one leaves on, if that ran in the kernel
/// tier.
fn behind(shared: &Instance, ring: usize, slot: usize) -> Option<usize> {
    let kernel = shared.kernel.as_ref()?;
    let word = descriptor(ring, slot) + trusted::SLOT_BEHIND;
    let behind = kernel.trusted.u32_at(word).load(Ordering::Relaxed);
    behind.checked_sub(1).map(|cpu| cpu as usize)
}

/// Copies a message out of its slot: its path's number, the bytes in front of its
/// payload, and itself, or the empty buffer if it lies outside. `None` if the slot
/// holds none.
fn copy_out(
    shared: &Instance,
    ring: usize,
    slot: usize,
    buffer: impl FnOnce() -> Message,
) -> Option<(usize, usize, Result<Message, Message>)> {
    let kernel = shared.kernel.as_ref()?;
    let descriptor = descriptor(ring, slot);
    let word = |offset| {
        kernel
            .trusted
            .u32_at(descriptor + offset)
            .load(Ordering::Relaxed) as usize
    };
    let payload = word(trusted::SLOT_PAYLOAD_OFF).min(trusted::SLOT_HEADERS_BYTES);
    if payload == 0 {
        return None;
    }
    let len = word(trusted::SLOT_PAYLOAD_LEN).min(shared.layout.slot_bytes);
    let at = AllegedOffset(shared.layout.slot_offset(ring, slot) as u32);
    let mut message = buffer();
    let mut copied = Ok(());
    message.fill(payload + len, |frame| {
        copied = kernel
            .trusted
            .copy_out(descriptor + trusted::SLOT_HEADERS, &mut frame[..payload])
            .and_then(|()| shared.memory.copy_out(at, &mut frame[payload..]));
    });
    let message = match copied {
        Ok(()) => Ok(message),
        Err(_) => Err(message),
    };
    Some((word(trusted::SLOT_LOCAL_PATH), payload, message))
}

/// Gives the message the number that its program has given it, if somebody observes
/// and one has.
fn observe(shared: &Instance, ring: usize, slot: usize, message: &mut Message) {
    if tap::on()
        && let Some(kernel) = &shared.kernel
    {
        let at = descriptor(ring, slot) + trusted::SLOT_SEQUENCE;
        // A program without observation leaves there what it finds.
        let sequence = kernel.trusted.u64_at(at).swap(0, Ordering::Relaxed);
        message.meta.observed = tap::numbered(sequence);
        tap::note(message.meta.observed, || What::Taken);
    }
}

/// Room for the longest frame that can wait in a ring.
pub(crate) fn spare_message() -> Message {
    Message::with_room(FRAME_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_sees_so_many_live_frames_and_the_next_as_many() {
        let mut pace = Pace::default();
        let begin = Instant::now();
        for second in 0..3 {
            let now = begin + Duration::from_secs(second);
            let allowed = (0..5000).filter(|_| pace.allows(now)).count();
            assert_eq!(allowed, Pace::PER_SECOND as usize);
        }
    }

    /// Once all have left, nobody is counted; a path that drains may be run again.
    fn all_that_left_is_subtracted() -> bool {
        let draining = trusted::DRAINING;
        [&[0, 0, 1, 1, 1, 0, 2][..], &[2; 32], &[1, 2, 1, 2], &[]]
            .into_iter()
            .all(|ended: &[usize]| {
                let of = |path| ended.iter().filter(|known| **known == path).count() as u32;
                let words = [of(0), of(1) | draining, of(2) + 1].map(AtomicU32::new);
                leave(ended.iter().copied(), |path| &words[path]);
                let left = words.map(AtomicU32::into_inner);
                // Of a path that drains and had none, nobody has left.
                let drained = if of(1) == 0 { draining } else { 0 };
                left == [0, drained, 1]
            })
    }

    #[test]
    fn what_has_left_the_user_tier_is_not_counted_there() {
        assert!(all_that_left_is_subtracted());
        for bug in [Bug::CountNotSubtracted, Bug::RunCountedOnce] {
            assert!(!bug::with(bug, all_that_left_is_subtracted), "{bug:?}");
        }
    }
}
