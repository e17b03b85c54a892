//! The way out of an interface with XDP.

use std::time::{Duration, Instant};

use ashway_abi::Count;
use ashway_kernel::Program;
use ashway_ring::{Passer, SendError, TxSocket};

use crate::port::{Port, is_down};

/// Its transmit socket, and the way back into the host.
#[derive(Debug)]
pub struct XdpPort {
    /// Transmit only.
    pub tx: TxSocket,
    /// How messages are passed on.
    pub pass_by: PassBy,
}

/// How a message is given to the host's stack.
#[derive(Debug)]
pub enum PassBy {
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

    fn pass(&mut self, frame: &[u8]) -> Count {
        // Earlier replies leave first.
        let _ = self.tx.kick();
        let is_passed = match &mut self.pass_by {
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
        };
        if is_passed {
            Count::Passed
        } else {
            Count::DroppedPassFailed
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
pub struct Pace {
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
}
