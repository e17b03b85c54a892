//! Turns a received frame into its answer, in place.
//!
//! The instance program in the kernel does the same for the verdict `reply`
//! (`codegen/instance`), so an answer has the same bytes whichever tier sends
//! it.
//!
//! Source: RFC 1122 §3.2.1.3 for addresses that cannot be a sender's, RFC 768
//! for the source port 0 and the checksum's other zero.

use core::net::IpAddr;

use crate::emit::TTL;
use crate::{Datagram, eth, ipv4, ipv6, udp};

/// Why a frame has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyError {
    /// The sender's address cannot be a sender's, or the receiver's cannot
    /// become one.
    NoSender,
    /// The frame is not the datagram that the arguments describe.
    Malformed,
}

/// Swaps addresses and ports, keeps VLAN tags, options and extension headers, sets
/// TTL or hop limit to [`TTL`], and computes all checksums whole: the request's may be
/// partial, so an update would make every answer wrong (docs/facts.md, "Half a checksum
/// on a veth"). Lengths stay. Returns the bytes to send: the frame ends
/// where the IP packet ends, without padding.
///
/// If the frame ends before the IP packet but holds the whole UDP datagram, the
/// surplus of RFC 9868 was not kept and the IP length is cut to what is there.
///
/// Linear in the payload, allocates nothing.
///
/// # Errors
///
/// [`ReplyError`]; the frame is unchanged then.
pub fn make_reply(
    frame: &mut [u8],
    payload_off: usize,
    payload_len: usize,
) -> Result<usize, ReplyError> {
    let datagram = Datagram::parse(frame).map_err(|_| ReplyError::Malformed)?;
    let end =
        end_of_packet(frame, &datagram, payload_off, payload_len).ok_or(ReplyError::Malformed)?;
    let frame = &mut frame[..end];
    let mut eth = eth::Packet::new_checked(&mut *frame).ok_or(ReplyError::Malformed)?;
    if eth::is_group(eth.source()) || !can_swap(&datagram) {
        return Err(ReplyError::NoSender);
    }

    let (destination, source) = (eth.source(), eth.destination());
    eth.set_destination(destination);
    eth.set_source(source);
    let packet = &mut frame[datagram.ip_off..];
    let packet_len = packet.len() as u16;
    match (datagram.source.ip(), datagram.destination.ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let mut ip = ipv4::Packet::new_checked(packet).ok_or(ReplyError::Malformed)?;
            ip.set_total_len(packet_len);
            ip.set_ttl(TTL);
            ip.set_source(destination.octets());
            ip.set_destination(source.octets());
            ip.fill_checksum();
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let mut ip = ipv6::Packet::new_checked(packet).ok_or(ReplyError::Malformed)?;
            ip.set_payload_len(packet_len - ipv6::HEADER_BYTES as u16);
            ip.set_hop_limit(TTL);
            ip.set_source(destination.octets());
            ip.set_destination(source.octets());
        }
        _ => return Err(ReplyError::Malformed),
    }
    if let Some(mut udp) = udp::Packet::new_checked(&mut frame[datagram.udp_off..]) {
        udp.set_source_port(datagram.destination.port());
        udp.set_destination_port(datagram.source.port());
    }
    datagram.fill_udp_checksum(frame);
    Ok(end)
}

/// Where the IP packet ends, if the lengths in the headers agree with the
/// arguments and the frame holds the UDP datagram.
fn end_of_packet(
    frame: &[u8],
    datagram: &Datagram,
    payload_off: usize,
    payload_len: usize,
) -> Option<usize> {
    let udp_len = payload_len.checked_add(udp::HEADER_BYTES)?;
    let udp = udp::Packet::new_checked(frame.get(datagram.udp_off..)?)?;
    let packet = frame.get(datagram.ip_off..)?;
    let ip_len = if datagram.destination.is_ipv6() {
        ipv6::HEADER_BYTES + usize::from(ipv6::Packet::new_checked(packet)?.payload_len())
    } else {
        usize::from(ipv4::Packet::new_checked(packet)?.total_len())
    };
    let end = (datagram.ip_off + ip_len).min(frame.len());
    (datagram.udp_off + udp::HEADER_BYTES == payload_off
        && usize::from(udp.length()) == udp_len
        && datagram.udp_off + udp_len <= end)
        .then_some(end)
}

/// Whether the source may be answered and the destination may answer.
fn can_swap(datagram: &Datagram) -> bool {
    is_host(datagram.source.ip())
        && is_host(datagram.destination.ip())
        && datagram.source.port() != 0
}

/// Whether a packet on a wire can be from one host, or for one (RFC 1122
/// §3.2.1.3).
#[must_use]
pub fn is_host(address: IpAddr) -> bool {
    match address {
        // 127/8 is the host itself (RFC 1122 §3.2.1.3), 224/4 is multicast, 240/4
        // reserved, the last of it broadcast.
        IpAddr::V4(address) => {
            let first = address.octets()[0];
            !address.is_unspecified() && first != 127 && first < 224
        }
        IpAddr::V6(address) => {
            !address.is_unspecified() && !address.is_multicast() && !address.is_loopback()
        }
    }
}
