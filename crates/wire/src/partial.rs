//! Checksums that a sender has left to its device.
//!
//! Where the device computes the checksums of UDP and TCP, Linux writes the sum of the
//! pseudo-header there and notes beside the packet that the rest is missing
//! (`CHECKSUM_PARTIAL`); a veth does nothing about it, because the note goes across, too. A
//! frame that user space gives back to the host has no note any more, and what is
//! missing would be wrong.
//!
//! `ICMPv6` is not among them, since Linux computes its checksum in software. SCTP is, but
//! what it leaves is a 0, which may as well be a wrong one: that stays as it is.
//!
//! Source: RFC 768, RFC 9293 §3.1, RFC 8200 §8.1 for the pseudo-header;
//! `Documentation/networking/checksum-offloads.rst` in the kernel.

use core::ops::Range;

use crate::checksum::{Sum, pseudo_v4, pseudo_v6};
use crate::eth::{self, array};
use crate::headers::{Fragment, Headers};
use crate::udp::Checksum;
use crate::{ipv4, ipv6, tcp, udp};

/// Completes the checksum of a UDP datagram or TCP segment if it is partial. Any other
/// frame stays as it is: whether a whole checksum is right is for the receiver to judge.
/// Linear in the payload if there is something to do.
pub fn complete(frame: &mut [u8]) {
    let headers = Headers::parse(frame);
    let Some(place) = place(frame, &headers) else {
        return;
    };
    let transport = &mut frame[place];
    match headers.protocol {
        ipv4::PROTOCOL_UDP => {
            let bytes = transport.len();
            let packet = udp::Packet::new_checked(transport);
            let Some(mut packet) = packet.filter(|packet| usize::from(packet.length()) <= bytes)
            else {
                return;
            };
            let pseudo = pseudo_header(&headers, packet.length());
            if packet.judge_checksum(pseudo) == Checksum::Partial {
                packet.fill_checksum(pseudo);
            }
        }
        ipv4::PROTOCOL_TCP => {
            let pseudo = pseudo_header(&headers, transport.len() as u16);
            if let Some(mut packet) = tcp::Packet::new_checked(transport)
                && packet.is_partial(pseudo)
            {
                packet.fill_checksum(pseudo);
            }
        }
        _ => {}
    }
}

/// Where the datagram or segment lies in the frame, if that holds it whole; nobody
/// leaves the checksum of a fragment to a device.
fn place(frame: &[u8], headers: &Headers) -> Option<Range<usize>> {
    if headers.l4 == 0 || headers.fragment != Fragment::No {
        return None;
    }
    let ip_off = usize::from(headers.l3);
    let packet = &frame[ip_off..];
    let len = match headers.ethertype {
        eth::TYPE_IPV4 => usize::from(ipv4::Packet::new_checked(packet)?.total_len()),
        _ => ipv6::HEADER_BYTES + usize::from(ipv6::Packet::new_checked(packet)?.payload_len()),
    };
    let place = usize::from(headers.l4)..ip_off + len;
    frame.get(place.clone()).map(|_| place)
}

fn pseudo_header(headers: &Headers, length: u16) -> Sum {
    let Headers {
        source,
        destination,
        protocol,
        ..
    } = *headers;
    match headers.ethertype {
        eth::TYPE_IPV4 => pseudo_v4(array(&source, 0), array(&destination, 0), protocol, length),
        _ => pseudo_v6(source, destination, protocol, length.into()),
    }
}
