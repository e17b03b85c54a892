//! What programs tell of a message while somebody observes.
//!
//! A program that observes makes its *note* in the per-CPU context, behind the
//! call stack ([`context::OBSERVE`](crate::context::OBSERVE)), and sends it through
//! a ring buffer. The entry program makes one when it knows the path (or that there
//! is none), with the frame as it came; whoever ends the message's way through the
//! kernel tier makes a second one, with the frame as it leaves. Programs without
//! observation know nothing of this.
//!
//! Offsets are in bytes from the begin of a note; numbers are in the CPU's order.

use crate::context;

/// `u64`: which message: the CPU (16 bits), the observation (16 bits), and a count
/// that begins at 1 (32 bits). While no message is observed on this CPU, 0.
pub const SEQUENCE: i16 = 0;
/// `u64`: when the program began, `CLOCK_MONOTONIC` in ns.
pub const BEGAN: i16 = 8;
/// `u64`: when the handler was done; 0 if none ran.
pub const RAN: i16 = 16;
/// `u64`: fuel that it took; [`NO_FUEL`] if it counts none.
pub const FUEL: i16 = 24;
/// `u64`: when the note was made.
pub const TIME: i16 = 32;
/// `u32`: the row of counters.
pub const ROW: i16 = 40;
/// `u32`: the interface the message came by.
pub const IFINDEX: i16 = 44;
/// `u32`: length of the frame.
pub const FRAME_LEN: i16 = 48;
/// `u32`: bytes of the frame behind the note, at most [`MOST_BYTES`].
pub const CAPTURED: i16 = 52;
/// `u32`: a [`step`].
pub const STEP: i16 = 56;
/// `u32`: the [`Count`](crate::Count) that the message ended with in this program,
/// or the note of why it went to the user tier; 0 if neither.
pub const COUNT: i16 = 60;
/// `u32`: another count beside it (an abort's cause); 0 for none.
pub const BESIDE: i16 = 64;
/// `u32`: notes of this CPU that had no room in the ring so far; wraps.
pub const LOST: i16 = 68;
/// Length of a note without the frame.
pub const BYTES: usize = 72;
/// Most bytes of a frame: linear frames fit a page.
pub const MOST_BYTES: usize = 4096;

/// `u32`: messages numbered so far on this CPU, behind the note.
pub const NUMBERED: i16 = (BYTES + MOST_BYTES) as i16;

/// [`FUEL`] of a handler that counts none, because it is straight.
pub const NO_FUEL: u64 = u64::MAX;

/// What a note tells of.
pub mod step {
    /// The entry program knows the path; another program goes on.
    pub const CLASSIFIED: u32 = 1;
    /// The entry program knows that there is none; the host gets the message.
    pub const UNMATCHED: u32 = 2;
    /// The message's way through the kernel tier ends: with a fate, or in a ring for
    /// the user tier. If there is a frame with the note, it goes out.
    pub const ENDED: u32 = 3;
}

const _: () = assert!(context::OBSERVE + BYTES + MOST_BYTES + 8 <= context::BYTES);

/// A note, read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note<'a> {
    /// [`SEQUENCE`].
    pub sequence: u64,
    /// [`BEGAN`].
    pub began: u64,
    /// [`RAN`].
    pub ran: u64,
    /// [`FUEL`].
    pub fuel: u64,
    /// [`TIME`].
    pub time: u64,
    /// [`ROW`].
    pub row: u32,
    /// [`IFINDEX`].
    pub ifindex: u32,
    /// [`FRAME_LEN`].
    pub frame_len: u32,
    /// [`STEP`].
    pub step: u32,
    /// [`COUNT`].
    pub count: u32,
    /// [`BESIDE`].
    pub beside: u32,
    /// [`LOST`].
    pub lost: u32,
    /// The frame, as far as it was captured.
    pub frame: &'a [u8],
}

impl<'a> Note<'a> {
    /// Reads a note; `None` if it is shorter than it says.
    #[must_use]
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let word = |at: i16| {
            let at = at as usize;
            let bytes = bytes.get(at..at + 4)?.try_into().ok()?;
            Some(u32::from_ne_bytes(bytes))
        };
        let double = |at: i16| {
            let at = at as usize;
            let bytes = bytes.get(at..at + 8)?.try_into().ok()?;
            Some(u64::from_ne_bytes(bytes))
        };
        let captured = word(CAPTURED)? as usize;
        Some(Self {
            sequence: double(SEQUENCE)?,
            began: double(BEGAN)?,
            ran: double(RAN)?,
            fuel: double(FUEL)?,
            time: double(TIME)?,
            row: word(ROW)?,
            ifindex: word(IFINDEX)?,
            frame_len: word(FRAME_LEN)?,
            step: word(STEP)?,
            count: word(COUNT)?,
            beside: word(BESIDE)?,
            lost: word(LOST)?,
            frame: bytes.get(BYTES..BYTES.checked_add(captured)?)?,
        })
    }
}

/// The part of a [`SEQUENCE`] that says which observation it belongs to.
#[must_use]
pub const fn session(sequence: u64) -> u16 {
    (sequence >> 32) as u16
}

/// The same for all messages of a CPU, but for the count.
#[must_use]
pub const fn base(cpu: u16, session: u16) -> u64 {
    (cpu as u64) << 48 | (session as u64) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_read_as_far_as_it_goes() {
        let mut bytes = [0; BYTES + 3];
        bytes[SEQUENCE as usize..][..8].copy_from_slice(&(base(1, 2) | 3).to_ne_bytes());
        bytes[CAPTURED as usize..][..4].copy_from_slice(&3_u32.to_ne_bytes());
        bytes[BYTES..].copy_from_slice(b"abc");
        let note = Note::parse(&bytes).unwrap();
        assert_eq!(
            (note.sequence, note.frame),
            (0x0001_0002_0000_0003, &b"abc"[..])
        );
        assert_eq!(session(note.sequence), 2);
        assert_eq!(Note::parse(&bytes[..BYTES + 2]), None);
        bytes[CAPTURED as usize..][..4].fill(0xff);
        assert_eq!(Note::parse(&bytes), None);
    }
}
