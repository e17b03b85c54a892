//! What an IP packet says about fragments.

use std::net::IpAddr;

use ashway_abi::Count;
use ashway_wire::headers::EXTENSION_HEADERS;
use ashway_wire::{ipv4, ipv6};

/// Bytes of IPv6's fragment header (RFC 8200 §4.5).
pub(super) const FRAGMENT_BYTES: usize = 8;

/// Which datagram a fragment is of (RFC 791 §3.2; RFC 8200 §4.5, where the
/// protocol has no part in it and is 0).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    pub(super) identification: u32,
}

/// One fragment of a datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) key: Key,
    /// The header that the whole packet would have, lengths and checksum open.
    pub(super) header: Vec<u8>,
    /// Where the data lies in the packet.
    pub(super) data: std::ops::Range<usize>,
    /// Where the data belongs in the datagram, in bytes.
    pub(super) start: usize,
    /// Whether more follows.
    pub(super) more: bool,
}

/// What a packet is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fragmentation {
    /// No fragment.
    Whole,
    /// A fragment.
    Part(Part),
    /// A fragment of nothing.
    Bad(Count),
}

/// Looks at a packet. Lengths and IPv4's checksum are checked only of
/// fragments; of whole packets IP does it.
pub(super) fn find(packet: &[u8]) -> Fragmentation {
    match packet.first().map(|first| first >> 4) {
        Some(4) => find_v4(packet),
        Some(6) => find_v6(packet),
        _ => Fragmentation::Whole,
    }
}

fn find_v4(packet: &[u8]) -> Fragmentation {
    let Some(ip) = ipv4::Packet::new_checked(packet) else {
        return Fragmentation::Whole;
    };
    let start = usize::from(ip.fragment_offset()) * 8;
    let more = ip.more_fragments();
    if start == 0 && !more {
        return Fragmentation::Whole;
    }
    let (header_len, total_len) = (ip.header_len(), usize::from(ip.total_len()));
    if header_len < ipv4::HEADER_BYTES || total_len <= header_len || total_len > packet.len() {
        return Fragmentation::Bad(Count::DroppedBadLength);
    }
    if !ip.verify_checksum() {
        return Fragmentation::Bad(Count::DroppedBadIpChecksum);
    }
    let mut header = packet[..header_len].to_vec();
    header[6..8].fill(0);
    part(Part {
        key: Key {
            source: ip.source().into(),
            destination: ip.destination().into(),
            protocol: ip.protocol(),
            identification: u32::from(u16::from_be_bytes([packet[4], packet[5]])),
        },
        header,
        data: header_len..total_len,
        start,
        more,
    })
}

fn find_v6(packet: &[u8]) -> Fragmentation {
    let Some((ip, before)) = ipv6::Packet::new_checked(packet).zip(before_fragments(packet)) else {
        return Fragmentation::Whole;
    };
    if packet[before.next_header] != ipv6::FRAGMENT {
        return Fragmentation::Whole;
    }
    let whole = ipv6::HEADER_BYTES + usize::from(ip.payload_len());
    let data = before.len + FRAGMENT_BYTES..whole;
    if data.is_empty() || whole > packet.len() {
        return Fragmentation::Bad(Count::DroppedBadLength);
    }
    let fragment = &packet[before.len..data.start];
    let place = u16::from_be_bytes([fragment[2], fragment[3]]);
    let mut header = packet[..before.len].to_vec();
    header[before.next_header] = fragment[0];
    part(Part {
        key: Key {
            source: ip.source().into(),
            destination: ip.destination().into(),
            protocol: 0,
            identification: u32::from_be_bytes([
                fragment[4],
                fragment[5],
                fragment[6],
                fragment[7],
            ]),
        },
        header,
        data,
        start: usize::from(place & !7),
        more: place & 1 != 0,
    })
}

/// A part that can be one: all but the last are multiples of 8 bytes, and the
/// whole packet fits its length field (the "ping of death" does not).
fn part(part: Part) -> Fragmentation {
    let base = match part.header[0] >> 4 {
        4 => part.header.len(),
        _ => part.header.len() - ipv6::HEADER_BYTES,
    };
    let len = part.data.len();
    if part.more && !len.is_multiple_of(8) || base + part.start + len > usize::from(u16::MAX) {
        return Fragmentation::Bad(Count::DroppedBadLength);
    }
    Fragmentation::Part(part)
}

/// The headers that every fragment of an IPv6 packet has: up to the routing
/// header if there is one, else to hop-by-hop options, else the first. In a
/// fragment: all that stand before the fragment header.
#[derive(Clone, Copy)]
pub(super) struct Before {
    /// Their bytes.
    pub(super) len: usize,
    /// Where the number of what follows them stands.
    pub(super) next_header: usize,
}

/// Finds them; `None` if the packet ends within.
pub(super) fn before_fragments(packet: &[u8]) -> Option<Before> {
    let mut at = Before {
        len: ipv6::HEADER_BYTES,
        next_header: 6,
    };
    let mut before = at;
    for _ in 0..EXTENSION_HEADERS {
        let number = *packet.get(at.next_header)?;
        match number {
            ipv6::FRAGMENT => return Some(at),
            ipv6::HOP_BY_HOP | ipv6::ROUTING | ipv6::DESTINATION_OPTIONS => {}
            _ => break,
        }
        at = Before {
            len: at.len + 8 + usize::from(*packet.get(at.len + 1)?) * 8,
            next_header: at.len,
        };
        if at.len > packet.len() {
            return None;
        }
        // Destination options are for those before the routing header only if
        // one follows.
        if number != ipv6::DESTINATION_OPTIONS {
            before = at;
        }
    }
    Some(before)
}
