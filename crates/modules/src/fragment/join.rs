//! Several packets become one.
//!
//! A datagram's parts are kept sorted; they do not overlap, so it is complete
//! when their lengths add up to its end. That is all RFC 815's list of holes
//! would say.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use ashway_abi::Count;
use ashway_path::stage::Step;
use ashway_path::time::Time;
use ashway_wire::{Headers, ipv4, ipv6};

use super::Limits;
use super::packet::{self, Fragmentation, Key, Part};
use crate::{Message, Parts};

/// How long a datagram may take (RFC 1122 §3.3.2, RFC 8200 §4.5).
pub(super) const TIMEOUT: Duration = Duration::from_mins(1);

/// What a kept part costs beside its bytes: its place in the list and the
/// allocator's own words.
const PART_BYTES: usize = size_of::<Piece>() + 16;

/// The same for a datagram.
const DATAGRAM_BYTES: usize = size_of::<Datagram>() + 16;

/// Incomplete datagrams of one path.
pub(super) struct Reassembly {
    limits: Limits,
    /// Oldest first.
    datagrams: VecDeque<Datagram>,
    held_bytes: usize,
    failed: u64,
}

struct Datagram {
    key: Key,
    deadline: Time,
    /// Sorted, without overlaps.
    pieces: Vec<Piece>,
    /// The first fragment's.
    header: Vec<u8>,
    /// Length of the longest fragment, with its header.
    longest: usize,
    /// Where it ends, once its last fragment is there.
    end: Option<usize>,
    data_bytes: usize,
    held_bytes: usize,
    /// Whether it was given up. It stays until its time is over, so that what
    /// still comes of it is not taken for a new one (RFC 5722).
    dead: bool,
}

struct Piece {
    start: usize,
    data: Data,
    /// How often they have been copied.
    copies: u8,
}

/// Where the bytes of a part lie.
enum Data {
    /// Still in their message.
    Lent(Message, Range<usize>),
    Copied(Box<[u8]>),
}

impl Piece {
    fn data(&self) -> &[u8] {
        match &self.data {
            Data::Lent(message, data) => &message.bytes()[data.clone()],
            Data::Copied(data) => data,
        }
    }

    fn end(&self) -> usize {
        self.start + self.data().len()
    }
}

impl Reassembly {
    pub(super) const fn new(limits: Limits) -> Self {
        Self {
            limits,
            datagrams: VecDeque::new(),
            held_bytes: 0,
            failed: 0,
        }
    }

    pub(super) const fn limits(&self) -> Limits {
        self.limits
    }

    /// Datagrams given up so far.
    pub(super) const fn failed(&self) -> u64 {
        self.failed
    }

    /// When the oldest must be complete.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.datagrams.front().map(|datagram| datagram.deadline)
    }

    pub(super) fn clear(&mut self) {
        self.datagrams = VecDeque::new();
        self.held_bytes = 0;
    }

    /// Gives up what has taken too long.
    pub(super) fn expire(&mut self, now: Time) {
        while self.deadline().is_some_and(|deadline| deadline <= now) {
            self.drop_oldest();
        }
    }

    /// Takes a packet in. Linear in the incomplete datagrams and in the parts of its own;
    /// copies their data when they are complete, and before that what would keep much more
    /// memory than it needs.
    pub(super) fn take(&mut self, message: Message, now: Time) -> Step<Message> {
        self.expire(now);
        let part = match packet::find(message.bytes()) {
            Fragmentation::Whole => return Step::On(message),
            Fragmentation::Bad(fate) => return Step::End(message, fate),
            Fragmentation::Part(part) => part,
        };
        if part.start == 0 && !part.more {
            // RFC 6946: a fragment that is all of its datagram has nothing to
            // do with others, whatever its identification.
            let data = &message.bytes()[part.data];
            return whole(message.with_packet(&[&part.header, data]));
        }
        // RFC 7112: the first fragment has all headers.
        let headers = message.frame().map(Headers::parse);
        if part.start == 0 && headers.is_some_and(|headers| headers.l4 == 0) {
            return Step::End(message, Count::DroppedFragment);
        }
        let at = self.find(part.key, now);
        self.add(at, message, part)
    }

    /// The datagram's position; makes a new one, if need be in the place of the
    /// oldest.
    fn find(&mut self, key: Key, now: Time) -> usize {
        let known = self
            .datagrams
            .iter()
            .position(|datagram| datagram.key == key);
        if let Some(at) = known {
            return at;
        }
        while !self.datagrams.is_empty()
            && (self.datagrams.len() >= self.limits.datagrams
                || self.held_bytes + DATAGRAM_BYTES > self.limits.bytes)
        {
            self.drop_oldest();
        }
        self.held_bytes += DATAGRAM_BYTES;
        self.datagrams.push_back(Datagram {
            key,
            deadline: now + TIMEOUT,
            pieces: Vec::new(),
            header: Vec::new(),
            longest: 0,
            end: None,
            data_bytes: 0,
            held_bytes: DATAGRAM_BYTES,
            dead: false,
        });
        self.datagrams.len() - 1
    }

    fn add(&mut self, mut at: usize, message: Message, part: Part) -> Step<Message> {
        let data = &message.bytes()[part.data.clone()];
        let place = match self.datagrams[at].place(&part, data) {
            PartPlace::Free(place) => place,
            PartPlace::Known => return Step::End(message, Count::DroppedFragment),
            PartPlace::Contradicts => {
                self.kill(at);
                return Step::End(message, Count::DroppedFragment);
            }
        };
        if self.datagrams[at].completes(&part) {
            return match self.remove(at) {
                Some(datagram) => whole(datagram.join(place, &message, &part)),
                None => Step::Absorbed,
            };
        }
        let copied = PART_BYTES + data.len() + part.header.len();
        let lent = PART_BYTES + message.memory_bytes() + part.header.len();
        let is_lent = lent <= 2 * copied
            && self.held_bytes + lent <= self.limits.bytes / 2
            && !message.buffer().is_scarce();
        let cost = if is_lent { lent } else { copied };
        while self.held_bytes + cost > self.limits.bytes {
            if at == 0 {
                // It is the oldest itself.
                self.kill(at);
                return Step::End(message, Count::DroppedFragment);
            }
            self.drop_oldest();
            at -= 1;
        }
        self.held_bytes += cost;
        let datagram = &mut self.datagrams[at];
        datagram.held_bytes += cost;
        datagram.keep(place, part, message, is_lent);
        Step::Absorbed
    }

    /// Forgets a datagram's parts, and remembers that it is not to be had.
    fn kill(&mut self, at: usize) {
        let datagram = &mut self.datagrams[at];
        if !datagram.dead {
            self.failed += 1;
        }
        self.held_bytes -= datagram.held_bytes - DATAGRAM_BYTES;
        datagram.held_bytes = DATAGRAM_BYTES;
        datagram.pieces = Vec::new();
        datagram.header = Vec::new();
        datagram.dead = true;
    }

    fn drop_oldest(&mut self) {
        if self.remove(0).is_some_and(|datagram| !datagram.dead) {
            self.failed += 1;
        }
    }

    fn remove(&mut self, at: usize) -> Option<Datagram> {
        let datagram = self.datagrams.remove(at)?;
        self.held_bytes -= datagram.held_bytes;
        Some(datagram)
    }
}

/// Where a part belongs.
enum PartPlace {
    /// At this position of the list.
    Free(usize),
    /// It is there already.
    Known,
    /// It cannot belong to the same datagram.
    Contradicts,
}

impl Datagram {
    fn place(&self, part: &Part, data: &[u8]) -> PartPlace {
        if self.dead {
            return PartPlace::Contradicts;
        }
        let end = part.start + data.len();
        let at = self
            .pieces
            .partition_point(|piece| piece.start < part.start);
        let next = self.pieces.get(at);
        if next.is_some_and(|next| next.start == part.start && next.data() == data) {
            // RFC 8200 §4.5: an exact duplicate is no overlap.
            return PartPlace::Known;
        }
        let overlaps = next.is_some_and(|next| next.start < end)
            || at > 0 && self.pieces[at - 1].end() > part.start;
        let beyond = match self.end {
            Some(known) => end > known || !part.more && end != known,
            None => !part.more && self.pieces.last().is_some_and(|last| last.end() > end),
        };
        if overlaps || beyond {
            PartPlace::Contradicts
        } else {
            PartPlace::Free(at)
        }
    }

    /// Whether this part is the last that was missing.
    fn completes(&self, part: &Part) -> bool {
        let len = part.data.len();
        let end = self
            .end
            .or_else(|| (!part.more).then_some(part.start + len));
        end == Some(self.data_bytes + len)
    }

    fn keep(&mut self, place: usize, part: Part, message: Message, is_lent: bool) {
        self.data_bytes += part.data.len();
        self.longest = self.longest.max(part.data.end);
        if !part.more {
            self.end = Some(part.start + part.data.len());
        }
        if part.start == 0 {
            self.header = part.header;
        }
        let copies = message.meta.copies.saturating_add((!is_lent).into());
        let data = if is_lent {
            Data::Lent(message, part.data)
        } else {
            Data::Copied(message.bytes()[part.data].into())
        };
        let start = part.start;
        let piece = Piece {
            start,
            data,
            copies,
        };
        self.pieces.insert(place, piece);
    }

    /// The whole packet, with its last part, which belongs at this place, in `message`.
    fn join(&self, place: usize, message: &Message, part: &Part) -> Message {
        let first = if part.start == 0 {
            &part.header
        } else {
            &self.header
        };
        let (before, behind) = self.pieces.split_at(place);
        let mut parts = vec![&first[..]];
        parts.extend(before.iter().map(Piece::data));
        parts.push(&message.bytes()[part.data.clone()]);
        parts.extend(behind.iter().map(Piece::data));
        let mut packet = message.with_packet(&parts);
        let copies = self
            .pieces
            .iter()
            .map(|piece| piece.copies.saturating_add(1))
            .max();
        packet.meta.copies = packet.meta.copies.max(copies.unwrap_or(0));
        packet.meta.parts = Some(Parts {
            longest: self.longest.max(part.data.end) as u32,
            identification: self.key.identification,
        });
        packet
    }
}

/// A packet that was put together, with its length and checksum. Each part fits
/// a packet, but the first may have a longer header than the last.
fn whole(mut message: Message) -> Step<Message> {
    let packet = message.bytes_mut();
    let v4 = packet[0] >> 4 == 4;
    let base = if v4 { 0 } else { ipv6::HEADER_BYTES };
    let Ok(len) = u16::try_from(packet.len() - base) else {
        return Step::End(message, Count::DroppedBadLength);
    };
    if v4 {
        if let Some(mut ip) = ipv4::Packet::new_checked(packet) {
            ip.set_total_len(len);
            ip.fill_checksum();
        }
    } else if let Some(mut ip) = ipv6::Packet::new_checked(packet) {
        ip.set_payload_len(len);
    }
    Step::On(message)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use ashway_path::sim::Random;

    use super::*;

    /// What a datagram really holds.
    fn bytes(datagram: &Datagram) -> usize {
        let pieces = datagram.pieces.iter();
        size_of::<Datagram>()
            + datagram.header.capacity()
            + pieces
                .map(|piece| match &piece.data {
                    Data::Lent(message, _) => size_of::<Piece>() + message.memory_bytes(),
                    Data::Copied(data) => size_of::<Piece>() + data.len(),
                })
                .sum::<usize>()
    }

    /// Fragments of a few datagrams, of any place and length, for as long as
    /// many time-outs: the books are right and the limits hold after each.
    #[test]
    fn the_limits_hold_after_every_fragment() {
        let limits = Limits {
            bytes: 16 << 10,
            datagrams: 8,
        };
        let mut reassembly = Reassembly::new(limits);
        let (mut random, mut whole, mut dead) = (Random(11), 0, 0);
        let (mut lent, mut copied) = (0, 0);
        for round in 0..40_000u64 {
            let (start, len, more) = match random.below(12) {
                0..4 => (0, 64, true),
                4..8 => (8, 64, false),
                8..11 => (random.below(4) as u16 * 185, 1480, true),
                _ => (
                    random.below(40) as u16,
                    random.below(60) as usize * 8 + 8,
                    true,
                ),
            };
            let mut packet = vec![0; ipv4::HEADER_BYTES + len];
            let mut ip = ipv4::Packet::new_checked(&mut packet).unwrap();
            ip.clear();
            ip.set_total_len((ipv4::HEADER_BYTES + len) as u16);
            ip.set_source([10, 0, 0, random.below(24) as u8]);
            packet[6..8].copy_from_slice(&(start | u16::from(more) << 13).to_be_bytes());
            ipv4::Packet::new_checked(&mut packet)
                .unwrap()
                .fill_checksum();
            let step = reassembly.take(Message::of_frame(&packet), Time(round * 20_000_000));
            whole += u64::from(matches!(step, Step::On(_)));

            let datagrams = &reassembly.datagrams;
            dead += datagrams.iter().filter(|datagram| datagram.dead).count();
            assert!(datagrams.len() <= limits.datagrams);
            let keeps = |piece: &&Piece| matches!(piece.data, Data::Lent(..));
            let blocks = datagrams.iter().flat_map(|datagram| &datagram.pieces);
            let blocks = blocks.filter(keeps).map(|piece| match &piece.data {
                Data::Lent(message, _) => message.memory_bytes(),
                Data::Copied(_) => 0,
            });
            assert!(blocks.sum::<usize>() <= limits.bytes / 2);
            let held: usize = datagrams.iter().map(|datagram| datagram.held_bytes).sum();
            assert_eq!(reassembly.held_bytes, held);
            assert!(held <= limits.bytes);
            for datagram in datagrams {
                assert!(bytes(datagram) <= datagram.held_bytes);
                let lends = |piece: &&Piece| matches!(piece.data, Data::Lent(..));
                lent += datagram.pieces.iter().filter(lends).count();
                let long = |piece: &&Piece| !lends(piece) && piece.data().len() == 1480;
                copied += datagram.pieces.iter().filter(long).count();
                let data: usize = datagram.pieces.iter().map(|piece| piece.data().len()).sum();
                assert_eq!(data, datagram.data_bytes * usize::from(!datagram.dead));
                assert!(datagram.pieces.is_sorted_by(|a, b| a.end() <= b.start));
            }
            assert!(
                datagrams
                    .iter()
                    .is_sorted_by_key(|datagram| datagram.deadline)
            );
        }
        assert!(whole > 100 && dead > 1000 && reassembly.failed() > 1000);
        assert!(lent > 1000 && copied > 1000, "{lent} {copied}");
    }
}
