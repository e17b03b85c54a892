//! A handler's ring of lines ([`ashway_abi::log`]): written under the instance's lock by
//! whichever tier runs it, read by whoever asks, at any time.

use std::sync::atomic::{AtomicU32, Ordering, fence};

use ashway_abi::log::{LINE_BYTES, RING_LINES, acts_on_terminal, ring};
use ashway_memory::SharedArray;

/// Where it lies.
#[derive(Clone, Copy)]
pub enum Ring<'a> {
    /// From this offset of the trusted words on.
    Shared(&'a SharedArray, usize),
    /// In the daemon's own memory, where there are no kernel programs.
    Own(&'a [AtomicU32]),
}

/// Words of a ring of one's own.
#[must_use]
pub(crate) fn own() -> Box<[AtomicU32]> {
    (0..ring::BYTES / 4).map(|_| AtomicU32::new(0)).collect()
}

/// A line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Its number, from 1 (wraps).
    pub number: u32,
    /// When its activation ended, in ns on `CLOCK_MONOTONIC`.
    pub at_ns: u64,
    /// The path's row.
    pub row: u32,
    /// What the handler said.
    pub bytes: Vec<u8>,
}

impl Line {
    /// Whether it was written behind the line of this number.
    #[must_use]
    pub const fn is_behind(&self, number: u32) -> bool {
        matches!(self.number.wrapping_sub(number), 1..=0x7fff_ffff)
    }
}

/// What a look at a ring finds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// The lines behind the one that was asked from, as far as they are there.
    pub lines: Vec<Line>,
    /// The last line's number.
    pub last: u32,
    /// How many were written over before this look.
    pub overwritten: u32,
    /// How many were too many for their activations, in all.
    pub too_many: u32,
}

impl<'a> Ring<'a> {
    fn word(self, at: usize) -> &'a AtomicU32 {
        match self {
            Self::Shared(words, base) => words.u32_at(base + at),
            Self::Own(words) => &words[at / 4],
        }
    }

    fn line(number: u32) -> usize {
        ring::LINES + number as usize % RING_LINES * ring::STRIDE
    }

    /// Writes a line, beside programs of other CPUs if the handler runs on several at once. Else
    /// the caller holds the instance's lock. Does not allocate.
    pub(crate) fn push(self, row: u32, at_ns: u64, bytes: &[u8]) {
        let number = self.word(ring::PRODUCED).fetch_add(1, Ordering::AcqRel);
        let at = Self::line(number);
        self.word(at + ring::READY).store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        let set = |offset, value| self.word(at + offset).store(value, Ordering::Relaxed);
        let bytes = &bytes[..bytes.len().min(LINE_BYTES)];
        set(ring::LEN, bytes.len() as u32);
        set(ring::AT, at_ns as u32);
        set(ring::AT + 4, (at_ns >> 32) as u32);
        set(ring::ROW, row);
        for (word, piece) in bytes.chunks(4).enumerate() {
            let mut value = [0; 4];
            value[..piece.len()].copy_from_slice(piece);
            set(ring::TEXT + 4 * word, u32::from_le_bytes(value));
        }
        let next = number.wrapping_add(1);
        self.word(at + ring::READY).store(next, Ordering::Release);
    }

    /// Counts lines that were too many for their activation.
    pub(crate) fn lose(self, lines: u32) {
        if lines > 0 {
            self.word(ring::LOST).fetch_add(lines, Ordering::Relaxed);
        }
    }

    /// The number of the last line.
    #[must_use]
    pub fn last(self) -> u32 {
        self.word(ring::PRODUCED).load(Ordering::Acquire)
    }

    /// The lines behind number `after`, at most [`RING_LINES`]. Nobody waits for it; a
    /// line that is being written over counts as gone.
    #[must_use]
    pub fn look(self, after: u32) -> Look {
        let last = self.last_written(after);
        let behind = match last.wrapping_sub(after) {
            // A number from a ring before this one.
            ahead if ahead > u32::MAX / 2 => last,
            behind => behind,
        };
        let there = behind.min(RING_LINES as u32);
        let lines: Vec<_> = (0..there)
            .filter_map(|back| self.read(last.wrapping_sub(there - back)))
            .collect();
        Look {
            last,
            overwritten: behind - lines.len() as u32,
            too_many: self.word(ring::LOST).load(Ordering::Relaxed),
            lines,
        }
    }

    /// The number of the last line behind number `after` that is written: a program may have taken
    /// one, and not written it yet.
    fn last_written(self, after: u32) -> u32 {
        let mut last = self.last();
        for _ in 0..RING_LINES {
            let at = Self::line(last.wrapping_sub(1)) + ring::READY;
            let ready = self.word(at).load(Ordering::Acquire);
            let is_older = ready == 0 || last.wrapping_sub(ready).cast_signed() > 0;
            if last == 0 || last == after || !is_older {
                break;
            }
            last = last.wrapping_sub(1);
        }
        last
    }

    /// The line of this number, from 0, if all of it is there.
    fn read(self, number: u32) -> Option<Line> {
        let at = Self::line(number);
        let wanted = number.wrapping_add(1);
        let ready = self.word(at + ring::READY);
        if ready.load(Ordering::Acquire) != wanted {
            return None;
        }
        let word = |offset| self.word(at + offset).load(Ordering::Relaxed);
        let text = (0..LINE_BYTES).step_by(4);
        let mut bytes: Vec<u8> = text
            .flat_map(|piece| word(ring::TEXT + piece).to_le_bytes())
            .collect();
        bytes.truncate(word(ring::LEN) as usize);
        let line = Line {
            number: wanted,
            at_ns: u64::from(word(ring::AT)) | u64::from(word(ring::AT + 4)) << 32,
            row: word(ring::ROW),
            bytes,
        };
        fence(Ordering::Acquire);
        (ready.load(Ordering::Relaxed) == wanted).then_some(line)
    }
}

/// A line for people and programs: what is not UTF-8 is replaced, and what would
/// [act on a terminal](acts_on_terminal) is written as `\u{..}`.
#[must_use]
pub fn harmless(bytes: &[u8]) -> String {
    let mut text = String::new();
    for c in String::from_utf8_lossy(bytes).chars() {
        if acts_on_terminal(c) {
            text.extend(c.escape_unicode());
        } else {
            text.push(c);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_there_and_the_others_are_counted() {
        let words = own();
        let ring = Ring::Own(&words);
        assert_eq!(ring.look(0), Look::default());
        for number in 0..200_u32 {
            ring.push(7, 1 << 40, format!("line {number}").as_bytes());
        }
        ring.lose(3);
        let look = ring.look(0);
        assert_eq!((look.last, look.overwritten, look.too_many), (200, 136, 3));
        let texts: Vec<_> = look.lines.iter().map(|line| &line.bytes[..]).collect();
        assert_eq!(texts.len(), RING_LINES);
        assert_eq!((texts[0], texts[63]), (&b"line 136"[..], &b"line 199"[..]));
        assert_eq!((look.lines[0].number, look.lines[0].row), (137, 7));
        assert_eq!(look.lines[0].at_ns, 1 << 40);
        let look = ring.look(198);
        assert_eq!((look.lines.len(), look.overwritten), (2, 0));
        ring.push(0, 0, &[b'x'; 300]);
        assert_eq!(ring.look(200).lines[0].bytes, [b'x'; LINE_BYTES]);
    }

    #[test]
    fn a_reader_beside_a_writer_sees_whole_lines() {
        let words = own();
        let ring = Ring::Own(&words);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for byte in 0..20_000_u32 {
                    ring.push(byte, byte.into(), &[byte as u8; LINE_BYTES]);
                }
            });
            let mut last = 0;
            while last < 20_000 {
                let look = ring.look(last);
                for line in &look.lines {
                    assert_eq!(line.number, line.row + 1);
                    assert_eq!(line.bytes, [line.row as u8; LINE_BYTES]);
                }
                assert_eq!(look.last - last, look.overwritten + look.lines.len() as u32);
                last = look.last;
            }
        });
    }

    #[test]
    fn a_line_does_nothing_to_a_terminal() {
        let text = harmless(b"\x1b[2J red\n\xc2\x9b31m \xe2\x80\xae \xff 5 \xc2\xb5s");
        assert_eq!(
            text,
            "\\u{1b}[2J red\\u{a}\\u{9b}31m \\u{202e} \u{fffd} 5 \u{b5}s"
        );
    }
}
