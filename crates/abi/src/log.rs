//! Lines that a handler logs: where they wait, and the ring that keeps the last ones.
//!
//! While the handler runs its lines lie in a *stage* that it cannot name: in the user
//! tier a part of the [outbox](crate::outbox), in the kernel tier one of the per-CPU
//! [`context`](crate::context). When it has ended, whichever way, those that fit go into
//! the instance's *ring*, under the instance's lock, so that there is one writer. Nobody
//! has to take them out: the ring keeps the last [`RING_LINES`], and whoever looks sees by
//! the numbers how many are gone.

/// Lines that an activation logs at most; more are counted, and lost.
pub const MOST: usize = 4;
/// Bytes of a line at most; what is behind is cut.
pub const LINE_BYTES: usize = 104;

/// Whether a character would do something to the terminal that shows it: control
/// characters, marks that turn the direction of writing, and what cannot be seen. Lines,
/// names in debug information and names on the wire come from strangers.
#[must_use]
pub fn acts_on_terminal(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// The stage.
pub mod stage {
    /// `u32`: lines of this activation so far.
    pub const COUNT: usize = 0;
    /// First line, of [`STRIDE`] bytes each: `u32` length, and its bytes at [`TEXT`].
    /// Behind the last is a place for those that are too many.
    pub const LINES: usize = 64;
    /// Distance of two lines.
    pub const STRIDE: usize = 128;
    /// Where in a line its bytes begin.
    pub const TEXT: usize = 8;
    /// Bytes of it.
    pub const BYTES: usize = LINES + (super::MOST + 1) * STRIDE;
}

/// Lines that the ring keeps; a power of two.
pub const RING_LINES: usize = 64;

/// The ring.
pub mod ring {
    /// `u32`: lines written so far (wraps).
    pub const PRODUCED: usize = 0;
    /// `u32`: lines that were too many for their activation (wraps).
    pub const LOST: usize = 4;
    /// First line, of [`STRIDE`] bytes each.
    pub const LINES: usize = 64;
    /// Distance of two lines.
    pub const STRIDE: usize = 128;
    /// `u32` in a line: its number, from 1, once it is written; 0 while it is not.
    pub const READY: usize = 0;
    /// `u32` in a line: its length.
    pub const LEN: usize = 4;
    /// `u64` in a line: when its activation ended, in ns on `CLOCK_MONOTONIC`.
    pub const AT: usize = 8;
    /// `u32` in a line: the path's row of counters.
    pub const ROW: usize = 16;
    /// Where in a line its bytes begin.
    pub const TEXT: usize = 24;
    /// Bytes of it.
    pub const BYTES: usize = LINES + super::RING_LINES * STRIDE;
}

const _: () = assert!(stage::TEXT + LINE_BYTES <= stage::STRIDE);
const _: () = assert!(ring::TEXT + LINE_BYTES <= ring::STRIDE);
const _: () = assert!(LINE_BYTES.is_multiple_of(8) && RING_LINES.is_power_of_two());
