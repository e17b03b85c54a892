//! Messages from packet sockets: the rung without a kernel tier.
//!
//! The kernel still sees every frame; a drop rule at the interface's ingress
//! keeps matched messages from the host's stack, so that `consume` is true.

use std::cell::Cell;
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
use crate::observe::{FramePrefix, What, trace};
use crate::packet_port::PacketPort;
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

/// Takes a batch from the socket, and more behind it while fewer have found room with their paths:
/// what is nobody's, and what a flooded path has no room for, keeps no other path's waiting until
/// the socket itself is full. Says whether there was anything.
///
/// # Errors
///
/// What the socket said.
pub(crate) fn drain(
    port: &mut PacketPort,
    paths: &mut Paths,
    rows: &UserRows,
    now: impl Fn() -> Time,
) -> std::io::Result<bool> {
    let PacketPort {
        socket,
        rooms,
        iface,
        mac,
        unmatched_row,
        ..
    } = port;
    let mac = mac.get();
    let long = rooms.long;
    let queued = Cell::new(0);
    let mut receive = |room: &mut Buffer, len: usize, rest: &[u8], gso_size: usize| {
        // Whose it is, its headers say.
        let frame = &room[HEADROOM_BYTES..][..len - rest.len()];
        let observed = if trace::on() { trace::number() } else { 0 };
        trace::note(observed, || What::Received {
            iface: *iface as u32,
            frame: FramePrefix {
                len,
                ..FramePrefix::of(frame)
            },
        });
        let ours = frame.get(..6) == Some(&mac[..]);
        let target = ours.then(|| paths.find(*iface, frame, rows)).flatten();
        let long_frame = (target.is_some() && !rest.is_empty()).then(|| joined(room, len, rest));
        let frame = match &long_frame {
            Some(whole) => &whole[HEADROOM_BYTES..][..len],
            None => frame,
        };
        // As in the kernel tier: what is no UDP datagram a handler of the short form does
        // not get, even if its filter matches.
        let target = target.filter(|to| !paths.is_fed(*to) || Datagram::parse(frame).is_ok());
        if let Some(target) = target {
            let whole = Meta {
                iface: *iface as u32,
                observed,
                copies: 1,
                ..Meta::default()
            };
            match segments::of(frame, gso_size) {
                Some(Ok(segments)) => {
                    for number in 0..segments.count() {
                        let is_observed = observed != 0 && number == 0;
                        let put = |into| segments::nth(&segments, number, &whole, into);
                        let has_room = paths.receive_for(target, is_observed, now(), rows, put);
                        queued.set(queued.get() + usize::from(has_room));
                    }
                    return;
                }
                Some(Err(fate)) => return paths.refuse_for(target, observed, fate, rows),
                None => {}
            }
            let put = |mut message: Message| {
                // Copied by Linux, out of the driver's frame.
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
                message.meta.iface = *iface as u32;
                message.meta.observed = observed;
                message
            };
            let has_room = paths.receive_for(target, observed != 0, now(), rows, put);
            queued.set(queued.get() + usize::from(has_room));
            return;
        }
        paths.engine.unmatched();
        rows.add(*unmatched_row, Count::Received);
        rows.add(*unmatched_row, Count::Passed);
        trace::note(observed, || What::Path(None));
        trace::note(observed, || What::Fate(Count::Passed));
    };
    let mut any = false;
    for _ in 0..LOOK {
        let taken = socket.recv_batch(&mut rooms.all, HEADROOM_BYTES, &mut receive)?;
        any |= taken > 0;
        // Whose they were nobody has looked.
        let lost = socket.lost().unwrap_or(0);
        rows.add_many(*unmatched_row, Count::Received, lost);
        rows.add_many(*unmatched_row, Count::DroppedRingFull, lost);
        if taken < BATCH || queued.get() >= BATCH {
            break;
        }
    }
    Ok(any)
}
