//! One packet becomes several.
//!
//! Source: RFC 791 §3.2 ("An Example Fragmentation Procedure"), RFC 8200 §4.5.

use ashway_wire::{ipv4, ipv6};

use super::packet::{self, FRAGMENT_BYTES};
use crate::Message;

/// Bit of an IPv4 option's type: fragments behind the first have it too.
const COPIED: u8 = 0x80;
/// The options without a length.
const END_OF_LIST: u8 = 0;
const NO_OPERATION: u8 = 1;

/// The fragments of a packet, none longer than `mtu`, in their order, each in a
/// message of its own with the link's header that the packet came with. `None`
/// if there is no room for data, or the headers make no sense. Allocates each.
pub(super) fn cut(message: &Message, mtu: usize, identification: u32) -> Option<Vec<Message>> {
    let packet = message.bytes();
    let (first, later, data) = match packet.first()? >> 4 {
        4 => {
            let header_len = ipv4::Packet::new_checked(packet)?.header_len();
            let header = packet.get(..header_len)?;
            (header.to_vec(), copied_options(header)?, header_len)
        }
        6 => {
            let before = packet::before_fragments(packet)?;
            let mut header = packet.get(..before.len)?.to_vec();
            let next_header = std::mem::replace(&mut header[before.next_header], ipv6::FRAGMENT);
            header.extend([next_header, 0, 0, 0, 0, 0, 0, 0]);
            (header.clone(), header, before.len)
        }
        _ => return None,
    };
    // All but the last are multiples of 8 bytes.
    if mtu < first.len().max(later.len()) + 8 {
        return None;
    }
    let data = &packet[data..];
    let mut pieces = Vec::new();
    let mut start = 0;
    while start < data.len() {
        let (header, rest) = (if start == 0 { &first } else { &later }, &data[start..]);
        let room = mtu - header.len();
        let len = if rest.len() <= room {
            rest.len()
        } else {
            room & !7
        };
        let mut piece = message.with_packet(&[header, &rest[..len]]);
        let more = len < rest.len();
        mark(piece.bytes_mut(), header.len(), start, more, identification);
        pieces.push(piece);
        start += len;
    }
    Some(pieces)
}

/// Writes what is different in each fragment.
fn mark(packet: &mut [u8], header_len: usize, start: usize, more: bool, identification: u32) {
    let len = packet.len();
    if packet[0] >> 4 == 4 {
        let place = (start / 8) as u16 | u16::from(more) << 13;
        packet[4..6].copy_from_slice(&(identification as u16).to_be_bytes());
        packet[6..8].copy_from_slice(&place.to_be_bytes());
        if let Some(mut ip) = ipv4::Packet::new_checked(packet) {
            ip.set_total_len(len as u16);
            ip.fill_checksum();
        }
    } else {
        let fragment = &mut packet[header_len - FRAGMENT_BYTES..header_len];
        fragment[2..4].copy_from_slice(&(start as u16 | u16::from(more)).to_be_bytes());
        fragment[4..8].copy_from_slice(&identification.to_be_bytes());
        if let Some(mut ip) = ipv6::Packet::new_checked(packet) {
            ip.set_payload_len((len - ipv6::HEADER_BYTES) as u16);
        }
    }
}

/// An IPv4 header with only the options that every fragment has (RFC 791 §3.1).
/// `None` if the header is shorter than it can be.
fn copied_options(header: &[u8]) -> Option<Vec<u8>> {
    let (fixed, mut options) = header.split_at_checked(ipv4::HEADER_BYTES)?;
    let mut later = fixed.to_vec();
    while let Some(&number) = options.first().filter(|number| **number != END_OF_LIST) {
        let len = match (number, options.get(1)) {
            (NO_OPERATION, _) => 1,
            (_, Some(len)) => usize::from(*len).max(2),
            _ => break,
        };
        let Some((option, rest)) = options.split_at_checked(len) else {
            break;
        };
        if number & COPIED != 0 {
            later.extend(option);
        }
        options = rest;
    }
    later.resize(later.len().next_multiple_of(4), 0);
    later[0] = 0x40 | (later.len() / 4) as u8;
    Some(later)
}
