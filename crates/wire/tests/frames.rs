//! Frames in, judgements and answers out: exact vectors, then any bytes at all.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::SocketAddr;

use ashway_abi::context::flag;
use ashway_wire::emit::Headers;
use ashway_wire::{Datagram, Malformed, Message, NotOurs, ReplyError, make_reply};
use proptest::prelude::*;

/// `10.0.0.1:1000 -> 10.0.0.2:7777`, payload `abcd`, checksums added up by hand.
const V4: [u8; 46] = [
    0x02, 0, 0, 0, 0, 0x02, 0x02, 0, 0, 0, 0, 0x01, 0x08, 0x00, // eth
    0x45, 0, 0, 32, 0, 0, 0x40, 0, 64, 17, 0x26, 0xcb, 10, 0, 0, 1, 10, 0, 0, 2, // ip, DF
    0x03, 0xe8, 0x1e, 0x61, 0, 12, 0x04, 0xc4, b'a', b'b', b'c', b'd', // udp
];

fn headers(v6: bool) -> Headers {
    let (source, destination) = if v6 {
        ("[fd00::1]:1000", "[fd00::2]:7777")
    } else {
        ("10.0.0.1:1000", "10.0.0.2:7777")
    };
    Headers {
        source_mac: [2, 0, 0, 0, 0, 1],
        destination_mac: [2, 0, 0, 0, 0, 2],
        source: source.parse().unwrap(),
        destination: destination.parse().unwrap(),
    }
}

fn frame(v6: bool, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; 2000];
    let len = headers(v6).emit(&mut frame, payload).unwrap();
    frame.truncate(len);
    frame
}

fn judge(frame: &[u8]) -> Result<Message, Malformed> {
    Datagram::parse(frame).unwrap().validate(frame)
}

/// Sets a byte and makes the IPv4 header checksum right again.
fn with_ip_byte(at: usize, value: u8) -> Vec<u8> {
    let mut frame = V4.to_vec();
    frame[at] = value;
    ashway_wire::ipv4::Packet::new_checked(&mut frame[14..])
        .unwrap()
        .fill_checksum();
    frame
}

#[test]
fn the_emitted_frame_is_the_written_one() {
    assert_eq!(frame(false, b"abcd"), V4);
}

#[test]
fn a_good_datagram_is_found_and_valid() {
    let datagram = Datagram::parse(&V4).unwrap();
    assert_eq!(
        datagram.source,
        "10.0.0.1:1000".parse::<SocketAddr>().unwrap()
    );
    assert_eq!(
        datagram.destination,
        "10.0.0.2:7777".parse::<SocketAddr>().unwrap()
    );
    let message = Message {
        payload_off: 42,
        payload_len: 4,
        flags: 0,
        end: 46,
    };
    assert_eq!(datagram.validate(&V4), Ok(message));
    let mut padded = V4.to_vec();
    padded.resize(60, 0);
    assert_eq!(judge(&padded), Ok(message));

    let v6 = frame(true, b"abcd");
    assert_eq!(
        judge(&v6),
        Ok(Message {
            payload_off: 62,
            payload_len: 4,
            flags: flag::IPV6,
            end: 66
        })
    );
}

#[test]
fn what_is_not_ours_is_named() {
    let changed = |at: usize, value: u8| {
        let mut frame = V4;
        frame[at] = value;
        Datagram::parse(&frame).unwrap_err()
    };
    assert_eq!(changed(0, 3), NotOurs::NotForUs);
    assert_eq!(changed(13, 6), NotOurs::NotIp);
    assert_eq!(changed(14, 0x55), NotOurs::NotUdp);
    assert_eq!(changed(14, 0x44), NotOurs::NotUdp);
    assert_eq!(changed(23, 6), NotOurs::NotUdp);
    assert_eq!(changed(21, 1), NotOurs::NotUdp);
    assert_eq!(changed(14, 0x4f), NotOurs::TooShort);
    for len in 0..42 {
        assert_eq!(Datagram::parse(&V4[..len]), Err(NotOurs::TooShort));
    }
    assert!(Datagram::parse(&V4[..42]).is_ok());

    let mut v6 = frame(true, b"abcd");
    assert_eq!(Datagram::parse(&v6[..61]), Err(NotOurs::TooShort));
    v6[20] = 44;
    assert_eq!(Datagram::parse(&v6), Err(NotOurs::NotUdp));
}

#[test]
fn what_is_malformed_is_named_in_order() {
    assert_eq!(judge(&with_ip_byte(20, 0x20)), Err(Malformed::Fragment));
    // Total length: shorter than the headers, longer than the frame.
    assert_eq!(judge(&with_ip_byte(17, 27)), Err(Malformed::BadLength));
    assert_eq!(judge(&with_ip_byte(17, 33)), Err(Malformed::BadLength));
    // UDP length: shorter than its header, longer than the packet.
    assert_eq!(judge(&with_ip_byte(39, 7)), Err(Malformed::BadLength));
    assert_eq!(judge(&with_ip_byte(39, 13)), Err(Malformed::BadLength));
    assert_eq!(judge(&V4[..45]), Err(Malformed::BadLength));

    let mut bad = V4;
    bad[24] ^= 1;
    assert_eq!(judge(&bad), Err(Malformed::BadIpChecksum));
    let mut bad = V4;
    bad[45] ^= 1;
    assert_eq!(judge(&bad), Err(Malformed::BadUdpChecksum));
    // A fragment with everything else wrong is a fragment.
    bad[20] = 0x20;
    bad[17] = 0;
    assert_eq!(judge(&bad), Err(Malformed::Fragment));

    let mut v6 = frame(true, b"abcd");
    v6[19] = 13;
    assert_eq!(judge(&v6), Err(Malformed::BadLength));
    v6[19] = 0;
    assert_eq!(judge(&v6), Err(Malformed::BadLength));
}

#[test]
fn an_absent_checksum_is_fine_over_ipv4_only() {
    let mut v4 = V4;
    v4[40..42].fill(0);
    assert_eq!(judge(&v4).unwrap().flags, 0);
    let mut v6 = frame(true, b"abcd");
    v6[60..62].fill(0);
    assert_eq!(judge(&v6), Err(Malformed::BadUdpChecksum));
}

#[test]
fn a_partial_checksum_is_accepted_flagged_and_can_be_completed() {
    let mut v4 = V4;
    // The pseudo-header sums to 0a00+0001+0a00+0002+0011+000c.
    v4[40..42].copy_from_slice(&[0x14, 0x20]);
    assert_eq!(judge(&v4).unwrap().flags, flag::CHECKSUM_PARTIAL);
    Datagram::parse(&v4).unwrap().fill_udp_checksum(&mut v4);
    assert_eq!(v4, V4);
}

#[test]
fn a_reply_is_exact() {
    let mut request = V4.to_vec();
    request[22] = 3;
    request[40..42].copy_from_slice(&[0x14, 0x20]);
    request.resize(60, 0xee);
    assert_eq!(make_reply(&mut request, 42, 4), Ok(46));
    let mut expected = V4;
    expected[..12].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
    expected[26..34].copy_from_slice(&[10, 0, 0, 2, 10, 0, 0, 1]);
    expected[34..38].copy_from_slice(&[0x1e, 0x61, 0x03, 0xe8]);
    assert_eq!(request[..46], expected);
}

#[test]
fn who_cannot_be_answered_is_refused_and_the_frame_kept() {
    let refused = |at: usize, bytes: &[u8], v6: bool| {
        let mut frame = frame(v6, b"abcd");
        frame[at..at + bytes.len()].copy_from_slice(bytes);
        let before = frame.clone();
        let off = if v6 { 62 } else { 42 };
        assert_eq!(
            make_reply(&mut frame, off, 4),
            Err(ReplyError::NoSender),
            "{bytes:?} at {at}"
        );
        assert_eq!(frame, before);
    };
    refused(6, &[3], false);
    refused(26, &[0, 0, 0, 0], false);
    refused(26, &[224], false);
    refused(26, &[255, 255, 255, 255], false);
    refused(30, &[239, 1, 1, 1], false);
    refused(30, &[255, 255, 255, 255], false);
    refused(34, &[0, 0], false);
    refused(22, &[0; 16], true);
    refused(22, &[0xff], true);
    refused(38, &[0xff], true);
    refused(54, &[0, 0], true);
}

#[test]
fn a_reply_to_something_else_is_refused() {
    let mut frame = V4;
    assert_eq!(make_reply(&mut frame, 43, 4), Err(ReplyError::Malformed));
    assert_eq!(make_reply(&mut frame, 42, 5), Err(ReplyError::Malformed));
    assert_eq!(
        make_reply(&mut frame, 42, usize::MAX),
        Err(ReplyError::Malformed)
    );
    assert_eq!(
        make_reply(&mut frame[..45], 42, 4),
        Err(ReplyError::Malformed)
    );
    assert_eq!(frame, V4);
}

#[test]
fn a_lost_surplus_shortens_the_packet() {
    let mut request = with_ip_byte(17, 40);
    assert_eq!(judge(&request), Err(Malformed::BadLength));
    assert_eq!(make_reply(&mut request, 42, 4), Ok(46));
    assert!(judge(&request).is_ok());
    request.resize(54, 0xee);
    request[17] = 40;
    assert_eq!(make_reply(&mut request, 42, 4), Ok(54));
}

/// Bytes that look enough like a datagram to get past the first questions.
fn nearly_a_datagram() -> impl Strategy<Value = Vec<u8>> {
    let payload = proptest::collection::vec(any::<u8>(), 0..80);
    let changes = proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
    (
        any::<bool>(),
        payload,
        changes,
        any::<prop::sample::Index>(),
    )
        .prop_map(|(v6, payload, changes, cut)| {
            let mut frame = frame(v6, &payload);
            for (at, byte) in changes {
                let at = at.index(frame.len());
                frame[at] = byte;
            }
            frame.truncate(cut.index(frame.len() * 2).max(14));
            frame
        })
}

proptest! {
    #[test]
    fn no_bytes_panic(mut bytes in prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..200), nearly_a_datagram()
    ], len in any::<usize>()) {
        if let Ok(datagram) = Datagram::parse(&bytes) {
            if let Ok(message) = datagram.validate(&bytes) {
                prop_assert!(message.payload_off + message.payload_len <= message.end);
                prop_assert!(message.end <= bytes.len());
                if let Ok(end) = make_reply(&mut bytes, message.payload_off, message.payload_len) {
                    prop_assert_eq!(end, message.end);
                    let answer = judge(&bytes[..end]);
                    prop_assert_eq!(answer.map(|m| m.payload_len), Ok(message.payload_len));
                }
            }
            datagram.fill_udp_checksum(&mut bytes);
            let _ = make_reply(&mut bytes, datagram.udp_off + 8, len % 100);
        }
        let _ = make_reply(&mut bytes, 42, len);
    }

    #[test]
    fn answering_twice_is_the_request_again(
        v6 in any::<bool>(), payload in proptest::collection::vec(any::<u8>(), 0..1400)
    ) {
        let request = frame(v6, &payload);
        let message = judge(&request).unwrap();
        let mut copy = request.clone();
        for _ in 0..2 {
            prop_assert_eq!(
                make_reply(&mut copy, message.payload_off, payload.len()), Ok(request.len()));
        }
        prop_assert_eq!(copy, request);
    }

    #[test]
    fn one_flipped_bit_after_the_ip_header_is_noticed(
        v6 in any::<bool>(), payload in proptest::collection::vec(any::<u8>(), 1..100),
        at in any::<prop::sample::Index>(), bit in 0..8u8
    ) {
        let mut frame = frame(v6, &payload);
        let start = if v6 { 54 } else { 34 };
        let at = start + at.index(frame.len() - start);
        frame[at] ^= 1 << bit;
        // Except where the flip lands on the value that says "partial" or
        // "none", which no checksum can tell.
        match judge(&frame) {
            Err(_) => {}
            Ok(message) => prop_assert!(message.flags & flag::CHECKSUM_PARTIAL != 0
                || frame[start + 6..start + 8] == [0, 0]),
        }
    }
}
