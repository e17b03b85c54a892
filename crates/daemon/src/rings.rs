//! Messages out of the instances' rings (rungs with XDP).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ashway_abi::{Count, trusted};
use ashway_kernel::{AllegedOffset, Program};
use ashway_ring::{Passer, SendError, TxSocket};

use crate::counters::UserRows;
use crate::runner::{self, Port, RunInstance};

/// Messages taken from one ring before the next gets its turn.
const BATCH: u32 = 32;

/// Longest frame that can wait in a ring.
pub(crate) const FRAME_BYTES: usize = trusted::SLOT_HEADERS_BYTES + 4096;

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
    },
    /// By a raw socket. Generic XDP sits behind the driver and would meet a
    /// live frame again, and again.
    Socket(Passer),
}

impl Port for XdpPort {
    fn send(&mut self, frame: &[u8]) -> bool {
        // A full ring is emptied by a kick (copy mode sends at once), so one
        // more try is fair; beyond that the message is lost and counted.
        for _ in 0..2 {
            match self.tx.send(frame) {
                Ok(()) => return true,
                Err(SendError::TxFull) => {
                    let _ = self.tx.kick();
                }
                Err(_) => return false,
            }
        }
        false
    }

    fn pass(&mut self, frame: &[u8]) -> bool {
        // Earlier replies leave first.
        let _ = self.tx.kick();
        match &self.pass_by {
            PassBy::Frame { program, ifindex } => program.run_live(frame, 1, *ifindex).is_ok(),
            PassBy::Socket(passer) => frame
                .get(ashway_wire::eth::HEADER_BYTES..)
                .is_some_and(|packet| passer.pass(packet).is_ok()),
        }
    }
}

/// Takes up to a batch from each ring of `instance`. Says whether there was
/// anything. Bounded by the batch; does not allocate.
pub(crate) fn drain(
    instance: &mut RunInstance,
    ports: &mut [Option<XdpPort>],
    rows: &UserRows,
    frame: &mut [u8; FRAME_BYTES],
) -> bool {
    let mut any = false;
    for ring in 0..instance.shared.layout.rings {
        let iface = instance.shared.plan.iface_of(ring);
        let Some(port) = &mut ports[iface] else {
            continue;
        };
        any |= drain_ring(instance, ring, port, rows, frame);
    }
    any
}

/// Whether any ring of `instance` holds a message.
#[must_use]
pub(crate) fn waiting(instance: &RunInstance) -> bool {
    let Some(kernel) = &instance.shared.kernel else {
        return false;
    };
    (0..instance.shared.layout.rings).any(|ring| {
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
    frame: &mut [u8; FRAME_BYTES],
) -> bool {
    let shared = Arc::clone(&instance.shared);
    let Some(kernel) = &shared.kernel else {
        return false;
    };
    let control = trusted::RINGS + ring * trusted::RING_STRIDE;
    let produced = kernel
        .trusted
        .u32_at(control + trusted::RING_PRODUCED)
        .load(Ordering::Acquire);
    let consumed_word = kernel.trusted.u32_at(control + trusted::RING_CONSUMED);
    let consumed = consumed_word.load(Ordering::Relaxed);
    let count = produced.wrapping_sub(consumed).min(BATCH);
    for i in 0..count {
        let slot = consumed.wrapping_add(i) as usize % trusted::RING_SLOTS;
        take(instance, ring, slot, port, rows, frame);
        consumed_word.store(consumed.wrapping_add(i + 1), Ordering::Release);
    }
    if count > 0 {
        // A failed kick leaves the frames in the ring for the next one.
        let _ = port.tx.kick();
    }
    count > 0
}

/// Copies one message out and runs its path's handler.
fn take(
    instance: &mut RunInstance,
    ring: usize,
    slot: usize,
    port: &mut XdpPort,
    rows: &UserRows,
    frame: &mut [u8; FRAME_BYTES],
) {
    let shared = Arc::clone(&instance.shared);
    let kernel = shared.kernel.as_ref().expect("a ring has a kernel side");
    let descriptor = trusted::SLOTS + (ring * trusted::RING_SLOTS + slot) * trusted::SLOT_BYTES;
    let word = |offset| {
        kernel
            .trusted
            .u32_at(descriptor + offset)
            .load(Ordering::Relaxed) as usize
    };
    let payload = word(trusted::SLOT_PAYLOAD_OFF).min(trusted::SLOT_HEADERS_BYTES);
    let len = word(trusted::SLOT_PAYLOAD_LEN).min(shared.layout.slot_bytes);
    let local = word(trusted::SLOT_LOCAL_PATH).min(instance.paths.len() - 1);
    let at = AllegedOffset(shared.layout.slot_offset(ring, slot) as u32);
    let whole = payload + len;
    let copied = kernel
        .trusted
        .copy_out(descriptor + trusted::SLOT_HEADERS, &mut frame[..payload])
        .and_then(|()| shared.memory.copy_out(at, &mut frame[payload..whole]));
    if copied.is_ok() {
        runner::run(instance, local, &mut frame[..whole], payload, port, rows);
    } else {
        // Only a layout that disagrees with the memory could get here.
        rows.add(instance.paths[local].row, Count::DroppedBadLength);
    }
    // After the reply has been handed over: the kernel tier must not overtake.
    kernel
        .trusted
        .u32_at(trusted::PATHS + local * trusted::PATH_STRIDE)
        .fetch_sub(1, Ordering::AcqRel);
}
