//! The steps from a frame to a UDP message.
//!
//! The entry program in the kernel takes the same steps in the same order
//! (`codegen/entry`), so the rung without a kernel tier means the same by "a message":
//!
//! 1. [`Datagram::parse`] finds addresses and ports, behind whatever [`Headers`]
//!    looks behind, or says that the frame is none of our business; the host's
//!    stack keeps those.
//! 2. The caller looks for a path that matches. No match: the host keeps it.
//! 3. [`Datagram::validate`] judges lengths and checksums. From here on the
//!    frame is the path's, and what is wrong with it is counted on the path.
//!
//! Source: RFC 791, RFC 8200, RFC 768; differences stand at the lines.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ashway_abi::context::flag;
use ashway_abi::trusted::HEADERS_BYTES;

use crate::checksum::{self, Sum};
use crate::headers::{Fragment, Headers};
use crate::udp::Checksum;
use crate::{eth, ipv4, ipv6, udp};

/// Why a frame is not a datagram for us. The host's stack gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotOurs {
    /// Multicast or broadcast on the link.
    NotForUs,
    /// Neither IPv4 nor IPv6.
    NotIp,
    /// Another protocol, another version, an IPv4 header shorter than it can be,
    /// or a later fragment, which carries no ports.
    NotUdp,
    /// Ends before the ports.
    TooShort,
}

/// What is wrong with a datagram that matched a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The first fragment of a datagram; nothing reassembles yet.
    Fragment,
    /// The lengths contradict each other or the frame.
    BadLength,
    /// The IPv4 header checksum is wrong.
    BadIpChecksum,
    /// The UDP checksum is wrong, or absent where IPv6 demands one.
    BadUdpChecksum,
}

/// A datagram whose addresses and ports are known and nothing else is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Sender.
    pub source: SocketAddr,
    /// Receiver.
    pub destination: SocketAddr,
    /// Where the IP header starts in the frame: behind Ethernet and its tags.
    pub ip_off: usize,
    /// Where the UDP header starts in the frame: behind options and extension
    /// headers too.
    pub udp_off: usize,
}

/// Where the message of a valid datagram lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Where the UDP payload starts in the frame.
    pub payload_off: usize,
    /// Bytes of the UDP payload, all of them in the frame.
    pub payload_len: usize,
    /// Bits of [`ashway_abi::context::flag`].
    pub flags: u32,
    /// Where the IP packet ends in the frame; padding follows.
    pub end: usize,
}

impl Datagram {
    /// Finds addresses and ports. Constant time.
    ///
    /// # Errors
    ///
    /// Says why the frame is the host's.
    pub fn parse(frame: &[u8]) -> Result<Self, NotOurs> {
        let eth = eth::Packet::new_checked(frame).ok_or(NotOurs::TooShort)?;
        if eth::is_group(eth.destination()) {
            return Err(NotOurs::NotForUs);
        }
        let headers = Headers::parse(frame);
        let version = match headers.ethertype {
            eth::TYPE_IPV4 => 4,
            eth::TYPE_IPV6 => 6,
            // Half a VLAN tag.
            0 if eth::is_tag(eth.ethertype()) => return Err(NotOurs::TooShort),
            _ => return Err(NotOurs::NotIp),
        };
        let ip_off = usize::from(headers.l3);
        if ip_off == 0 {
            return Err(NotOurs::TooShort);
        }
        if frame[ip_off] >> 4 != version
            || headers.protocol != ipv4::PROTOCOL_UDP
            || headers.fragment == Fragment::Later
            || version == 4 && usize::from(frame[ip_off] & 15) * 4 < ipv4::HEADER_BYTES
        {
            return Err(NotOurs::NotUdp);
        }
        let udp_off = usize::from(headers.l4);
        if udp_off == 0 || udp_off + udp::HEADER_BYTES > frame.len() {
            return Err(NotOurs::TooShort);
        }
        let address = |bytes: [u8; 16]| match version {
            4 => Ipv4Addr::from(eth::array::<4>(&bytes, 0)).into(),
            _ => IpAddr::from(bytes),
        };
        Ok(Self {
            source: SocketAddr::new(address(headers.source), headers.source_port),
            destination: SocketAddr::new(address(headers.destination), headers.destination_port),
            ip_off,
            udp_off,
        })
    }

    /// Judges the rest of the `frame` this datagram was parsed from. Linear in
    /// the payload when there is a whole checksum to verify.
    ///
    /// # Errors
    ///
    /// Names the first thing that is wrong: fragment, IP's length and checksum, UDP's
    /// length and checksum.
    pub fn validate(&self, frame: &[u8]) -> Result<Message, Malformed> {
        let Some((packet, udp)) = self.views(frame) else {
            return Err(Malformed::BadLength);
        };
        let udp_len = usize::from(udp.length());
        let header_len = self.udp_off - self.ip_off;
        if Headers::parse(frame).fragment != Fragment::No {
            return Err(Malformed::Fragment);
        }

        let ip_len = if self.is_ipv6() {
            let ip = ipv6::Packet::new_checked(packet).ok_or(Malformed::BadLength)?;
            // A jumbogram says 0 here (RFC 2675) and so is refused.
            ipv6::HEADER_BYTES + usize::from(ip.payload_len())
        } else {
            let ip = ipv4::Packet::new_checked(packet).ok_or(Malformed::BadLength)?;
            usize::from(ip.total_len())
        };
        // Layer by layer, as the stages of a path judge: IP whole, then UDP.
        if ip_len < header_len || ip_len > packet.len() {
            return Err(Malformed::BadLength);
        }
        if !self.is_ipv6()
            && !ipv4::Packet::new_checked(packet).is_some_and(|ip| ip.verify_checksum())
        {
            return Err(Malformed::BadIpChecksum);
        }
        // An IP packet longer than its UDP datagram is legal (the surplus area
        // of RFC 9868) and the surplus is nobody's payload.
        if udp_len < udp::HEADER_BYTES
            || header_len + udp_len > ip_len
            || self.udp_off + udp::HEADER_BYTES > HEADERS_BYTES
        {
            return Err(Malformed::BadLength);
        }

        let mut flags = if self.is_ipv6() { flag::IPV6 } else { 0 };
        match udp.judge_checksum(self.pseudo_header(udp.length())) {
            Checksum::Right => {}
            Checksum::Partial => flags |= flag::CHECKSUM_PARTIAL,
            // RFC 8200 §8.1: over IPv6 the checksum is not optional. The tunnels
            // that RFC 6935 exempts are not spoken here.
            Checksum::Absent if !self.is_ipv6() => {}
            Checksum::Absent | Checksum::Wrong => return Err(Malformed::BadUdpChecksum),
        }
        Ok(Message {
            payload_off: self.udp_off + udp::HEADER_BYTES,
            payload_len: udp_len - udp::HEADER_BYTES,
            flags,
            end: self.ip_off + ip_len,
        })
    }

    /// Computes the UDP checksum of `frame` whole, for the datagram as it now
    /// lies there. What has a partial checksum needs this before it may leave
    /// by anything but the link it came from. Linear in the payload.
    pub fn fill_udp_checksum(&self, frame: &mut [u8]) {
        if let Some(mut udp) = frame
            .get_mut(self.udp_off..)
            .and_then(udp::Packet::new_checked)
        {
            let pseudo = self.pseudo_header(udp.length());
            udp.fill_checksum(pseudo);
        }
    }

    fn is_ipv6(&self) -> bool {
        self.destination.is_ipv6()
    }

    /// The IP packet and the UDP datagram, if the frame still holds both.
    fn views<'a>(&self, frame: &'a [u8]) -> Option<(&'a [u8], udp::Packet<&'a [u8]>)> {
        let packet = frame.get(self.ip_off..)?;
        let udp = udp::Packet::new_checked(frame.get(self.udp_off..)?)?;
        Some((packet, udp))
    }

    /// The sum of the pseudo-header. Addition commutes, so it is the same for
    /// the reply.
    fn pseudo_header(&self, udp_len: u16) -> Sum {
        match (self.source.ip(), self.destination.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => checksum::pseudo_v4(
                source.octets(),
                destination.octets(),
                ipv4::PROTOCOL_UDP,
                udp_len,
            ),
            (source, destination) => checksum::pseudo_v6(
                to_v6(source).octets(),
                to_v6(destination).octets(),
                ipv4::PROTOCOL_UDP,
                udp_len.into(),
            ),
        }
    }
}

/// Both addresses of a datagram are of one family, so a mapped address is never
/// made by a datagram that was parsed.
fn to_v6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}
