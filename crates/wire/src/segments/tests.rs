//! Taken apart, and together again.

extern crate std;

use std::vec;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;

const UDP: u8 = ipv4::PROTOCOL_UDP;
const TCP: u8 = ipv4::PROTOCOL_TCP;
const FLAGS: usize = 13;

/// What a sender has left whole.
#[derive(Clone, Debug)]
struct Whole {
    v6: bool,
    protocol: u8,
    tags: usize,
    /// Four bytes of options of IPv4 each, or an extension header.
    words: usize,
    /// Of TCP.
    flags: u8,
    payload: Vec<u8>,
    size: usize,
    no_checksum: bool,
}

impl Whole {
    /// The frame, with a partial checksum, and where its transport's header starts.
    fn frame(&self) -> (Vec<u8>, usize) {
        let header = if self.protocol == UDP { 8 } else { 24 };
        let len = header + self.payload.len();
        let mut frame = vec![2; 12];
        for _ in 0..self.tags {
            frame.extend([0x81, 0, 0, 7]);
        }
        let addresses = [10, 1, 2, 3, 10, 1, 2, 4].repeat(4);
        if self.v6 {
            let next = |left| if left == 0 { self.protocol } else { 60 };
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend(((8 * self.words + len) as u16).to_be_bytes());
            frame.extend([next(self.words), 64]);
            frame.extend(&addresses);
            for left in (0..self.words).rev() {
                frame.extend([next(left), 0, 1, 4, 0, 0, 0, 0]);
            }
        } else {
            frame.extend([8, 0, 0x45 + self.words as u8, 0]);
            frame.extend(((20 + 4 * self.words + len) as u16).to_be_bytes());
            frame.extend([0xff, 0xfe, 0x40, 0, 64, self.protocol, 0, 0]);
            frame.extend(&addresses[..8]);
            frame.extend(vec![1; 4 * self.words]);
        }
        let transport = frame.len();
        frame.extend([0x30, 0x39, 0x1f, 0x90]);
        if self.protocol == UDP {
            frame.extend((len as u16).to_be_bytes());
            frame.extend(if self.no_checksum { [0, 0] } else { [1, 2] });
        } else {
            frame.extend([0xff, 0xff, 0xff, 0xf0, 5, 6, 7, 8, 0x60, self.flags]);
            frame.extend([0xff, 0xff, 1, 2, 0, 0, 1, 1, 1, 0]);
        }
        frame.extend(&self.payload);
        (frame, transport)
    }

    /// Every frame that it stands for.
    fn apart(&self) -> Vec<Vec<u8>> {
        let (frame, _) = self.frame();
        let segments = Segments::parse(&frame, self.size).unwrap();
        let all = 0..segments.count();
        all.map(|number| {
            let mut one = vec![0xaa; segments.frame_len(number)];
            segments.write(number, &mut one);
            one
        })
        .collect()
    }

    /// Whether a receiver can make of the segments what the sender left, and each is a good
    /// packet by itself: its own lengths, checksums, place and flags.
    fn comes_together(&self) -> bool {
        let (whole, transport) = self.frame();
        let header = if self.protocol == UDP { 8 } else { 24 };
        let network = 14 + 4 * self.tags;
        let apart = self.apart();
        let mut payload: Vec<u8> = Vec::new();
        for (number, frame) in apart.iter().enumerate() {
            let is_last = number + 1 == apart.len();
            let piece = &frame[transport + header..];
            if !is_last && piece.len() != self.size {
                return false;
            }
            // What a receiver would judge.
            let headers = Headers::parse(frame);
            let ip = &frame[network..];
            let word = |at: usize| u16::from_be_bytes(array(frame, at));
            let is_whole = if self.v6 {
                usize::from(word(network + 4)) + 40 == ip.len()
            } else {
                let packet = ipv4::Packet::new_checked(ip).unwrap();
                let identification = 0xfffe_u16.wrapping_add(number as u16);
                usize::from(packet.total_len()) == ip.len()
                    && packet.verify_checksum()
                    && word(network + 4) == identification
            };
            if !is_whole {
                return false;
            }
            let bytes = &frame[transport..];
            let pseudo = if self.v6 {
                pseudo_v6(
                    headers.source,
                    headers.destination,
                    self.protocol,
                    bytes.len() as u32,
                )
            } else {
                let [source, destination] = [headers.source, headers.destination];
                let len = bytes.len() as u16;
                pseudo_v4(
                    array(&source, 0),
                    array(&destination, 0),
                    self.protocol,
                    len,
                )
            };
            let is_good = pseudo.bytes(bytes).fold() == 0xffff;
            if self.protocol == UDP {
                let absent = self.no_checksum && !self.v6;
                let checksum = u16::from_be_bytes(array(bytes, 6));
                if usize::from(u16::from_be_bytes(array(bytes, 4))) != bytes.len()
                    || absent != (checksum == 0)
                    || !(absent || is_good)
                {
                    return false;
                }
            } else {
                let sequence = u32::from_be_bytes(array(bytes, 4));
                let place = 0xffff_fff0_u32.wrapping_add(payload.len() as u32);
                let mut flags = self.flags;
                if number > 0 {
                    flags &= !0x80;
                }
                if !is_last {
                    flags &= !0x09;
                }
                if sequence != place || bytes[FLAGS] != flags || !is_good {
                    return false;
                }
            }
            payload.extend(piece);
        }
        payload == self.payload && whole[..network] == apart[0][..network]
    }
}

fn whole() -> impl Strategy<Value = Whole> {
    (
        any::<bool>(),
        prop_oneof![Just(UDP), Just(TCP)],
        0..3_usize,
        0..3_usize,
        any::<u8>(),
        proptest::collection::vec(any::<u8>(), 0..5000),
        // 5,000 bytes are 128 datagrams of 40.
        40..2000_usize,
        any::<bool>(),
    )
        .prop_map(
            |(v6, protocol, tags, words, flags, payload, size, no_checksum)| Whole {
                v6,
                protocol,
                tags,
                words,
                flags,
                payload,
                size,
                no_checksum,
            },
        )
}

/// Two and a half segments with all flags.
fn some(protocol: u8) -> Whole {
    Whole {
        v6: false,
        protocol,
        tags: 0,
        words: 0,
        flags: 0xff,
        payload: (0..250).collect(),
        size: 100,
        no_checksum: false,
    }
}

proptest! {
    #[test]
    fn segments_come_together_again(whole in whole()) {
        prop_assert!(whole.comes_together());
    }

    #[test]
    fn no_bytes_make_it_panic(
        frame in proptest::collection::vec(any::<u8>(), 0..200),
        size in 0..70_000_usize,
    ) {
        if let Ok(segments) = Segments::parse(&frame, size) {
            for number in 0..segments.count() {
                let mut one = vec![0; segments.frame_len(number)];
                segments.write(number, &mut one);
            }
        }
    }
}

#[test]
fn the_last_ones_length_and_the_flags_are_watched() {
    assert!(some(UDP).comes_together() && some(TCP).comes_together());
    for (bug, protocol) in [(Bug::LastSegmentLength, UDP), (Bug::SegmentFlags, TCP)] {
        assert!(
            !bug::with(bug, || some(protocol).comes_together()),
            "{bug:?}"
        );
    }
}

#[test]
fn a_size_that_lies_makes_one_message() {
    for protocol in [UDP, TCP] {
        for size in [0, 250, 251, 65_535, usize::MAX] {
            let whole = Whole {
                size,
                ..some(protocol)
            };
            let apart = whole.apart();
            assert_eq!(apart.len(), 1);
            assert_eq!(apart[0][apart[0].len() - 250..], whole.payload);
        }
        // Without payload, too.
        let empty = Whole {
            payload: Vec::new(),
            ..some(protocol)
        };
        assert_eq!(empty.apart().len(), 1);
    }
}

/// No frame stands for more messages than one of a sender's can: 128 datagrams, or 8,190
/// segments of TCP of 8 bytes.
fn is_bounded(protocol: u8) -> bool {
    (0..1500).all(|len| {
        let (frame, _) = Whole {
            payload: vec![7; len],
            ..some(protocol)
        }
        .frame();
        (1..200).all(|size| match Segments::parse(&frame, size) {
            Ok(segments) => match protocol {
                UDP => segments.count() <= 128,
                _ => segments.count() <= len.div_ceil(8).max(1),
            },
            Err(because) => {
                let too_short = match protocol {
                    UDP => size * 128 < len,
                    _ => size < 8,
                };
                because == NotSegments::BadLength && too_short
            }
        })
    })
}

#[test]
fn a_size_that_no_sender_has_is_refused() {
    for protocol in [UDP, TCP] {
        assert!(is_bounded(protocol));
        assert!(!bug::with(Bug::SegmentsUnbounded, || is_bounded(protocol)));
    }
}

#[test]
fn what_is_cut_anywhere_is_refused() {
    for v6 in [false, true] {
        for protocol in [UDP, TCP] {
            let whole = Whole {
                v6,
                words: 1,
                ..some(protocol)
            };
            let (frame, _) = whole.frame();
            for len in 0..frame.len() {
                assert!(Segments::parse(&frame[..len], 100).is_err(), "{len}");
            }
        }
    }
}

#[test]
fn a_length_that_lies_is_refused() {
    let (frame, transport) = some(UDP).frame();
    for len in [0_u16, 7, 259, 65_535] {
        let mut frame = frame.clone();
        frame[transport + 4..transport + 6].copy_from_slice(&len.to_be_bytes());
        let refused = Segments::parse(&frame, 100);
        assert_eq!(refused.err(), Some(NotSegments::BadLength), "{len}");
    }
    let (frame, transport) = some(TCP).frame();
    for words in [0_u8, 4] {
        let mut frame = frame.clone();
        frame[transport + 12] = words << 4;
        let refused = Segments::parse(&frame, 100);
        assert_eq!(refused.err(), Some(NotSegments::BadLength), "{words}");
    }
}

#[test]
fn tunnels_fragments_and_other_protocols_are_refused() {
    let unknown = |frame: &[u8]| Segments::parse(frame, 100).err() == Some(NotSegments::Unknown);
    let (mut tunnel, transport) = some(UDP).frame();
    tunnel[transport + 2..transport + 4].copy_from_slice(&crate::vxlan::PORT.to_be_bytes());
    tunnel[transport + 8] = 0x08;
    assert!(unknown(&tunnel));
    let (mut other, _) = some(UDP).frame();
    other[23] = 47;
    assert!(unknown(&other));
    let (mut fragment, _) = some(UDP).frame();
    fragment[20] = 0x20;
    assert!(unknown(&fragment));
    let (mut arp, _) = some(UDP).frame();
    arp[13] = 6;
    assert!(unknown(&arp));
}
