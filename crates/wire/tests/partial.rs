//! Checksums that a sender has left to its device, against the definition.

use ashway_wire::partial::complete;
use proptest::prelude::*;

const UDP: u8 = 17;
const TCP: u8 = 6;

/// A frame, and where the parts of it lie that the definition speaks of.
#[derive(Clone, Debug)]
struct MadeFrame {
    frame: Vec<u8>,
    pseudo: Vec<u8>,
    transport: usize,
    end: usize,
    /// Where the checksum lies.
    field: usize,
}

impl MadeFrame {
    /// RFC 1071 §1, word by word: the sum of the pseudo-header, and of the datagram or
    /// segment if that is wanted.
    fn sum(&self, whole: bool) -> u16 {
        let transport = &self.frame[self.transport..self.end];
        let both = [&self.pseudo[..], if whole { transport } else { &[] }].concat();
        let mut sum = 0u16;
        for pair in both.chunks(2) {
            let word = u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]);
            let (next, carry) = sum.overflowing_add(word);
            sum = next + u16::from(carry);
        }
        sum
    }

    fn set(&mut self, checksum: u16) {
        self.frame[self.field..self.field + 2].copy_from_slice(&checksum.to_be_bytes());
    }
}

/// A whole frame of `words` of options or extension headers, with `padding` behind the
/// packet; the checksum is 0.
fn make(
    v6: bool,
    protocol: u8,
    tags: usize,
    words: usize,
    payload: &[u8],
    padding: usize,
) -> MadeFrame {
    let header = if protocol == UDP { 8 } else { 20 };
    let len = header + payload.len();
    let mut frame = vec![2; 12];
    for _ in 0..tags {
        frame.extend([0x81, 0, 0, 7]);
    }
    let mut pseudo = Vec::new();
    let addresses = [10, 1, 2, 3, 10, 1, 2, 4].repeat(4);
    if v6 {
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        frame.extend(((8 * words + len) as u16).to_be_bytes());
        frame.extend([if words == 0 { protocol } else { 60 }, 64]);
        frame.extend(&addresses);
        for left in (0..words).rev() {
            frame.extend([if left == 0 { protocol } else { 60 }, 0, 1, 4, 0, 0, 0, 0]);
        }
        pseudo.extend(&addresses);
        pseudo.extend((len as u32).to_be_bytes());
        pseudo.extend([0, 0, 0, protocol]);
    } else {
        frame.extend([8, 0, 0x45 + words as u8, 0]);
        frame.extend(((20 + 4 * words + len) as u16).to_be_bytes());
        frame.extend([0, 0, 0x40, 0, 64, protocol, 0, 0]);
        frame.extend(&addresses[..8]);
        frame.extend([1].repeat(4 * words));
        pseudo.extend(&addresses[..8]);
        pseudo.extend([0, protocol]);
        pseudo.extend((len as u16).to_be_bytes());
    }
    let transport = frame.len();
    frame.extend([0x30, 0x39, 0x1f, 0x90]);
    let field = if protocol == UDP {
        frame.extend((len as u16).to_be_bytes());
        frame.extend([0, 0]);
        transport + 6
    } else {
        frame.extend([1, 2, 3, 4, 5, 6, 7, 8, 0x50, 0x18, 0xff, 0xff, 0, 0, 0, 0]);
        transport + 16
    };
    frame.extend(payload);
    let end = frame.len();
    frame.resize(end + padding, 0xee);
    MadeFrame {
        frame,
        pseudo,
        transport,
        end,
        field,
    }
}

fn any_made() -> impl Strategy<Value = MadeFrame> {
    (
        any::<bool>(),
        prop_oneof![Just(UDP), Just(TCP)],
        0..3usize,
        0..5usize,
        proptest::collection::vec(any::<u8>(), 0..1500),
        0..20usize,
    )
        .prop_map(|(v6, protocol, tags, words, payload, padding)| {
            make(v6, protocol, tags, words, &payload, padding)
        })
}

proptest! {
    #[test]
    fn a_partial_checksum_becomes_the_right_one_and_nothing_else_changes(mut made in any_made()) {
        made.set(made.sum(false));
        let before = made.clone();
        complete(&mut made.frame);
        prop_assert_eq!(made.sum(true), 0xffff);
        let checksum = &made.frame[made.field..made.field + 2];
        // Over UDP a checksum of 0 would be none (RFC 768).
        prop_assert!(made.field - made.transport == 16 || checksum != [0, 0]);
        made.set(before.sum(false));
        prop_assert_eq!(made.frame, before.frame);
    }

    /// A right one and wrong ones alike.
    #[test]
    fn a_whole_checksum_stays_as_it_is(mut made in any_made(), off in any::<u16>()) {
        let checksum = (!made.sum(true)).wrapping_add(off);
        prop_assume!(checksum != made.sum(false));
        made.set(checksum);
        let before = made.frame.clone();
        complete(&mut made.frame);
        prop_assert_eq!(made.frame, before);
    }

    #[test]
    fn what_is_not_whole_stays_as_it_is(mut made in any_made(), cut in any::<prop::sample::Index>()) {
        made.set(made.sum(false));
        made.frame.truncate(cut.index(made.end));
        let before = made.frame.clone();
        complete(&mut made.frame);
        prop_assert_eq!(made.frame, before);
    }

    #[test]
    fn no_bytes_panic(mut made in any_made(), changes in proptest::collection::vec(
        (any::<prop::sample::Index>(), any::<u8>()), 0..6)) {
        made.set(made.sum(false));
        for (at, byte) in changes {
            let at = at.index(made.frame.len());
            made.frame[at] = byte;
        }
        complete(&mut made.frame);
    }
}

#[test]
fn a_fragment_and_other_protocols_stay_as_they_are() {
    let mut made = make(false, TCP, 0, 0, b"abcd", 0);
    made.set(made.sum(false));
    for (at, byte) in [(20, 0x20), (21, 1), (23, 132), (13, 6)] {
        let mut frame = made.frame.clone();
        frame[at] = byte;
        let before = frame.clone();
        complete(&mut frame);
        assert_eq!(frame, before, "{byte} at {at}");
    }
    // So it is not for want of anything else.
    let before = made.frame.clone();
    complete(&mut made.frame);
    assert_ne!(made.frame, before);
}
