//! Messages from interfaces without a kernel tier.

use std::mem;

use ashway_abi::Count;
use ashway_abi::memory::HEADROOM_BYTES;
use ashway_memory::messages::Buffer;
use ashway_modules::Message;
use ashway_modules::message::Meta;
use ashway_path::time::Time;
use ashway_ring::BATCH;
use ashway_wire::Datagram;

use crate::counters::UserRows;
use crate::frame_port::FramePort;
use crate::medium::Received;
use crate::observe::{FramePrefix, What, trace};
use crate::paths::Paths;
use crate::segments;

/// A buffer for a frame of `len` bytes, of which a room had no room for the rest.
fn joined(room: &Buffer, len: usize, rest: &[u8]) -> Buffer {
    let mut whole = Buffer::new(HEADROOM_BYTES + len);
    whole[..room.len()].copy_from_slice(room);
    whole[room.len()..][..rest.len()].copy_from_slice(rest);
    whole
}

/// Most batches that are taken at a look.
const LOOK: usize = 16;

/// Takes a batch from the port, and more behind it while fewer have found room with their paths:
/// what is nobody's, and what a flooded path has no room for, keeps no other path's waiting until
/// a socket itself is full. Says whether there was anything.
///
/// # Errors
///
/// What the medium said.
pub(crate) fn drain(
    port: &mut FramePort,
    paths: &mut Paths,
    rows: &UserRows,
    now: impl Fn() -> Time,
) -> std::io::Result<bool> {
    let mut any = false;
    let mut queued = 0;
    for _ in 0..LOOK {
        if port.is_held_back(paths.engine.waiting()) {
            break;
        }
        let taken = port.medium.receive(&mut port.rooms.all)?;
        any |= taken > 0;
        for at in 0..taken {
            queued += take(port, at, paths, rows, &now);
        }
        // Whose they were nobody has looked.
        let lost = port.medium.lost();
        rows.add_many(port.unmatched_row, Count::Received, lost);
        rows.add_many(port.unmatched_row, Count::DroppedRingFull, lost);
        if taken < BATCH || queued >= BATCH {
            break;
        }
    }
    Ok(any)
}

/// Takes a frame of the batch to its path; how many messages have found room there.
fn take(
    port: &mut FramePort,
    at: usize,
    paths: &mut Paths,
    rows: &UserRows,
    now: impl Fn() -> Time,
) -> usize {
    let iface = port.iface;
    let long = port.rooms.long;
    let room = &mut port.rooms.all[at];
    let Received { len, gso_size } = port.medium.received(at);
    let rest = port.medium.rest(at, room.len() - HEADROOM_BYTES);
    // Whose it is, its headers say.
    let frame = &room[HEADROOM_BYTES..][..len - rest.len()];
    let observed = if trace::on() { trace::number() } else { 0 };
    trace::note(observed, || What::Received {
        iface: iface as u32,
        frame: FramePrefix {
            len,
            ..FramePrefix::of(frame)
        },
    });
    let ours = frame.first_chunk().is_some_and(|to| port.mac.accepts(*to));
    let target = ours.then(|| paths.find(iface, frame, rows)).flatten();
    let long_frame = (target.is_some() && !rest.is_empty()).then(|| joined(room, len, rest));
    let frame = match &long_frame {
        Some(whole) => &whole[HEADROOM_BYTES..][..len],
        None => frame,
    };
    // As in the kernel tier: what is no UDP datagram a handler of the short form does
    // not get, even if its filter matches.
    let target = target.filter(|to| !paths.is_fed(*to) || Datagram::parse(frame).is_ok());
    let Some(target) = target else {
        let fate = port.medium.leave(at, frame);
        paths.engine.unmatched();
        rows.add(port.unmatched_row, Count::Received);
        rows.add(port.unmatched_row, fate);
        trace::note(observed, || What::Path(None));
        trace::note(observed, || What::Fate(fate));
        return 0;
    };
    let whole = Meta {
        iface: iface as u32,
        observed,
        copies: 1,
        ..Meta::default()
    };
    match segments::of(frame, gso_size) {
        Some(Ok(segments)) => {
            let has_room = |number: &usize| {
                let is_observed = observed != 0 && *number == 0;
                let put = |into| segments::nth(&segments, *number, &whole, into);
                paths.receive_for(target, is_observed, now(), rows, put)
            };
            return (0..segments.count()).filter(has_room).count();
        }
        Some(Err(fate)) => {
            paths.refuse_for(target, observed, fate, rows);
            return 0;
        }
        None => {}
    }
    let put = |mut message: Message| {
        // Copied once, out of the driver's frame or whatever there is in its place.
        if let Some(whole) = long_frame {
            message.put(whole, len);
            message.copied();
        } else {
            message.exchange(len, |own| {
                if own.len() < long || own.is_of_pool() {
                    *own = Buffer::new(long);
                }
                mem::swap(own, room);
                Some(())
            });
        }
        message.meta.iface = iface as u32;
        message.meta.observed = observed;
        message
    };
    usize::from(paths.receive_for(target, observed != 0, now(), rows, put))
}
