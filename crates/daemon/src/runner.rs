//! One message through one handler in the user tier: run, decide, act, count.
//!
//! Both sources of messages, rings and packet sockets, end here, so a message
//! means the same on every rung.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ashway_abi::{Count, trusted};
use ashway_wire::{Datagram, make_reply};

use crate::counters::UserRows;
use crate::decide::{Act, Rules, decide};
use crate::instance::Instance;

/// The way out of an interface.
pub(crate) trait Port {
    /// Sends a whole frame. `false` if there was no room for it.
    fn send(&mut self, frame: &[u8]) -> bool;

    /// Gives a frame to the host's own stack, as if it had just arrived.
    /// `false` if that failed.
    fn pass(&mut self, frame: &[u8]) -> bool;
}

/// What the worker needs to know of a path.
#[derive(Clone, Debug)]
pub(crate) struct PathRun {
    /// Its row of counters.
    pub(crate) row: u32,
    /// The handler's function.
    pub(crate) function: ashway_handler::Function,
    /// What its configuration says.
    pub(crate) rules: Rules,
    /// What a message may use.
    pub(crate) fuel: u64,
}

/// An instance in the worker's hands.
#[derive(Debug)]
pub(crate) struct RunInstance {
    /// What it shares with the rest of the node.
    pub(crate) shared: Arc<Instance>,
    /// The Wasm side, which only the worker touches.
    pub(crate) wasm: ashway_handler::Instance,
    /// Its paths, by their number within the instance.
    pub(crate) paths: Vec<PathRun>,
}

/// Runs the path's handler on the message at `payload` of `frame` and does what
/// it decides. The frame ends where the message ends. Bounded by the handler's
/// budget plus two copies; does not allocate.
pub(crate) fn run(
    instance: &mut RunInstance,
    local: usize,
    frame: &mut [u8],
    payload: usize,
    port: &mut impl Port,
    rows: &UserRows,
) {
    let RunInstance {
        shared,
        wasm,
        paths,
    } = instance;
    let path = &paths[local];
    let outcome = {
        let _turn = Turn::take(shared);
        wasm.activate(path.function, &mut frame[payload..], 0, path.fuel)
    };
    let at = outcome
        .verdict
        .as_ref()
        .err()
        .map_or(0, |stopped| stopped.at);
    let verdict = outcome.verdict.map_err(|stopped| stopped.cause);
    let decision = decide(verdict, outcome.dirty, path.rules);
    if let Some(cause) = decision.stopped {
        shared.record_fault(cause, at, path.row);
    }
    if let Some(note) = decision.note {
        rows.add(path.row, note);
    }
    let fate = match decision.act {
        Act::Done => decision.fate,
        Act::Reply => reply(frame, payload, port, rows, path.row),
        Act::Pass => {
            // The host checks what the sender's device would have filled in.
            if let Ok(datagram) = Datagram::parse(frame) {
                datagram.fill_udp_checksum(frame);
            }
            if port.pass(frame) {
                decision.fate
            } else {
                Count::DroppedPassFailed
            }
        }
    };
    rows.add(path.row, fate);
}

fn reply(
    frame: &mut [u8],
    payload: usize,
    port: &mut impl Port,
    rows: &UserRows,
    row: u32,
) -> Count {
    let Ok(bytes) = make_reply(frame, payload, frame.len() - payload) else {
        return Count::DroppedNoSender;
    };
    rows.add(row, Count::OutOriginated);
    rows.add(
        row,
        if port.send(&frame[..bytes]) {
            Count::OutHandedOver
        } else {
            Count::OutDroppedTxFull
        },
    );
    Count::Answered
}

/// The instance's lock, held while its handler runs in the user tier.
struct Turn<'a>(Option<&'a AtomicU32>);

impl<'a> Turn<'a> {
    /// Waits for an activation in the kernel tier to end: at most its budget,
    /// because it cannot be interrupted by us.
    fn take(instance: &'a Instance) -> Self {
        let Some(kernel) = &instance.kernel else {
            return Self(None);
        };
        let lock = kernel.trusted.u32_at(trusted::LOCK);
        while lock
            .compare_exchange_weak(0, 1, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            std::hint::spin_loop();
        }
        Self(Some(lock))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if let Some(lock) = self.0 {
            lock.store(0, Ordering::Release);
        }
    }
}
