//! One frame for each form of header, cut at every length.

extern crate std;

use super::*;
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

/// Ethernet with these types, each tag's control information being 0x6000 + its
/// place.
fn link(types: &[u16]) -> Vec<u8> {
    let mut frame = vec![0; 12];
    for (i, ethertype) in types.iter().enumerate() {
        frame.extend(ethertype.to_be_bytes());
        if i + 1 < types.len() {
            frame.extend((0x6001 + i as u16).to_be_bytes());
        }
    }
    frame
}

fn v4(words: u8, protocol: u8, fragment: u16) -> Vec<u8> {
    let mut header = vec![0; 20.max(usize::from(words) * 4)];
    header[0] = 0x40 | words;
    header[6..8].copy_from_slice(&fragment.to_be_bytes());
    header[9] = protocol;
    header[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    header
}

fn v6(next: u8) -> Vec<u8> {
    let mut header = vec![0x60, 0, 0, 0, 0, 0, next, 64];
    header.extend((1..=32).collect::<Vec<u8>>());
    header
}

const PORTS: [u8; 8] = [0, 7, 0x1e, 0x61, 0, 8, 0, 0];

fn join(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

#[test]
fn a_header_counts_only_when_it_is_whole() {
    let frame = join(&[&link(&[0x0800]), &v4(6, 17, 0x4000), &PORTS]);
    for len in 0..=frame.len() {
        let headers = Headers::parse(&frame[..len]);
        let ipv4 = len >= 34;
        let ports = len >= 42;
        let expected = Headers {
            ethertype: if len >= 14 { 0x0800 } else { 0 },
            l3: if ipv4 { 14 } else { 0 },
            protocol: if ipv4 { 17 } else { 0 },
            source: headers.source,
            destination: headers.destination,
            l4: if ports { 38 } else { 0 },
            source_port: if ports { 7 } else { 0 },
            destination_port: if ports { 7777 } else { 0 },
            ..Headers::default()
        };
        assert_eq!(headers, expected, "{len} bytes");
        let addresses = if ipv4 { [10, 0, 0, 1] } else { [0; 4] };
        assert_eq!(headers.source[..4], addresses);
    }
}

#[test]
fn tags_are_looked_behind_and_the_third_is_the_payload() {
    let one = Headers::parse(&link(&[0x8100, 0x0806]));
    assert_eq!((one.vlans, one.vlan, one.l3), (1, [0x6001, 0], 18));
    assert_eq!(one.ethertype, 0x0806);
    let three = Headers::parse(&link(&[0x88a8, 0x9100, 0x8100, 0x0800]));
    assert_eq!((three.vlans, three.vlan), (2, [0x6001, 0x6002]));
    assert_eq!((three.ethertype, three.l3), (0x8100, 22));
    let half = Headers::parse(&link(&[0x8100, 0x0800])[..17]);
    assert_eq!(half, Headers::default());
}

#[test]
fn later_fragments_and_impossible_lengths_have_no_ports() {
    for (words, fragment, l4, part) in [
        (5, 0x2000, 34, Fragment::First),
        (5, 0x2001, 0, Fragment::Later),
        (5, 0x0001, 0, Fragment::Later),
        (4, 0, 0, Fragment::No),
        (0, 0, 0, Fragment::No),
        (15, 0, 74, Fragment::No),
    ] {
        let frame = join(&[&link(&[0x0800]), &v4(words, 6, fragment), &PORTS]);
        let headers = Headers::parse(&frame);
        assert_eq!((headers.l4, headers.fragment), (l4, part));
        assert_eq!(headers.source_port, if l4 == 0 { 0 } else { 7 });
        assert_eq!(headers.protocol, 6);
    }
}

#[test]
fn extension_headers_are_walked_to_a_bound() {
    let options = |next: u8| [next, 0, 1, 4, 0, 0, 0, 0];
    let walk = |next: u8, behind: &[&[u8]]| {
        Headers::parse(&join(&[&link(&[0x86dd]), &v6(next), &behind.concat()]))
    };
    let plain = walk(17, &[&PORTS]);
    assert_eq!((plain.l4, plain.destination_port), (54, 7777));
    assert_eq!((plain.source[0], plain.destination[15]), (1, 32));

    let three = walk(0, &[&options(43), &options(60), &options(132), &PORTS]);
    assert_eq!((three.l4, three.protocol, three.source_port), (78, 132, 7));

    let long = [17, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(walk(60, &[&long, &PORTS]).l4, 70);
    let cut = walk(60, &[&long[..15]]);
    assert_eq!((cut.l4, cut.protocol), (0, 60));

    let atomic = walk(44, &[&[17, 0, 0, 0, 0, 0, 0, 1], &PORTS]);
    assert_eq!((atomic.fragment, atomic.l4), (Fragment::No, 62));
    let first = walk(44, &[&[17, 0, 0, 1, 0, 0, 0, 1], &PORTS]);
    assert_eq!((first.fragment, first.l4), (Fragment::First, 62));
    let later = walk(44, &[&[17, 0, 0, 8, 0, 0, 0, 1], &PORTS]);
    assert_eq!((later.fragment, later.l4), (Fragment::Later, 0));
    assert_eq!((later.protocol, later.source_port), (17, 0));

    // Eight are walked, a ninth is where it ends; AH is not walked at all.
    let mut chain = vec![options(60); 7];
    chain.push(options(17));
    let eight = walk(60, &[&chain.concat(), &PORTS]);
    assert_eq!((eight.l4, eight.protocol), (118, 17));
    chain[7] = options(60);
    chain.push(options(17));
    let nine = walk(60, &[&chain.concat(), &PORTS]);
    assert_eq!((nine.l4, nine.protocol), (0, 60));
    let ah = walk(51, &[&options(17), &PORTS]);
    assert_eq!((ah.l4, ah.protocol), (54, 51));
}

#[test]
fn a_network_identifier_needs_its_flag() {
    let mut vxlan = vec![0, 7, 0x12, 0xb5, 0, 16, 0, 0];
    vxlan.extend([0x08, 0, 0, 0, 0x12, 0x34, 0x56, 0]);
    let parse = |bytes: &[u8]| Headers::parse(&join(&[&link(&[0x0800]), &v4(5, 17, 0), bytes]));
    assert_eq!(parse(&vxlan).vni, Some(0x0012_3456));
    assert_eq!(parse(&vxlan[..15]).vni, None);
    vxlan[8] = 0;
    assert_eq!(parse(&vxlan).vni, None);
    vxlan[8] = 8;
    vxlan[2] = 0;
    assert_eq!(parse(&vxlan).vni, None);
}

proptest! {
    #[test]
    fn every_place_lies_in_the_frame(
        bytes in prop::collection::vec(any::<u8>(), 0..120),
        ethertype in prop::sample::select(vec![0x0800, 0x86dd, 0x8100, 0x88a8, 0x0806]),
        next in prop::sample::select(vec![0, 6, 17, 43, 44, 58, 60]),
    ) {
        let mut frame = bytes;
        if frame.len() >= 21 {
            frame[12..14].copy_from_slice(&u16::to_be_bytes(ethertype));
            frame[20] = next;
        }
        let headers = Headers::parse(&frame);
        let (l3, l4) = (usize::from(headers.l3), usize::from(headers.l4));
        prop_assert!(l3 <= frame.len() && l4 <= frame.len());
        prop_assert!(l4 == 0 || l4 >= l3 + 20);
        if l4 != 0 && ipv4::has_ports(headers.protocol) {
            prop_assert!(l4 + 4 <= frame.len());
        } else {
            prop_assert_eq!((headers.source_port, headers.destination_port), (0, 0));
        }
    }
}
