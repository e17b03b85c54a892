//! Writes a whole UDP frame from nothing.
//!
//! For messages that answer nobody, and for tests.

use core::net::{IpAddr, SocketAddr};

use crate::checksum::{pseudo_v4, pseudo_v6};
use crate::{eth, ipv4, ipv6, udp};

/// Hops a packet of ours may take (the default of RFC 1700).
pub const TTL: u8 = 64;

/// Everything a frame says besides its payload.
#[derive(Clone, Copy, Debug)]
pub struct Headers {
    /// Hardware address of the sender.
    pub source_mac: eth::Address,
    /// Hardware address of the receiver.
    pub destination_mac: eth::Address,
    /// Sender.
    pub source: SocketAddr,
    /// Receiver, of the same address family.
    pub destination: SocketAddr,
}

impl Headers {
    /// Writes the frame with whole checksums and says how long it is. `None` if
    /// it does not fit into `frame` or into the protocols' length fields, or if
    /// the address families differ. Linear in the payload, allocates nothing.
    pub fn emit(&self, frame: &mut [u8], payload: &[u8]) -> Option<usize> {
        let udp_len = u16::try_from(udp::HEADER_BYTES + payload.len()).ok()?;
        let header_len = match self.destination.ip() {
            IpAddr::V4(_) => ipv4::HEADER_BYTES,
            IpAddr::V6(_) => ipv6::HEADER_BYTES,
        };
        let end = eth::HEADER_BYTES + header_len + usize::from(udp_len);
        let mut eth = eth::Packet::new_checked(frame.get_mut(..end)?)?;
        eth.set_destination(self.destination_mac);
        eth.set_source(self.source_mac);
        let pseudo = match (self.source.ip(), self.destination.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                eth.set_ethertype(eth::TYPE_IPV4);
                let mut ip = ipv4::Packet::new_checked(eth.payload_mut())?;
                ip.clear();
                ip.set_total_len(udp_len.checked_add(ipv4::HEADER_BYTES as u16)?);
                ip.set_ttl(TTL);
                ip.set_protocol(ipv4::PROTOCOL_UDP);
                ip.set_source(source.octets());
                ip.set_destination(destination.octets());
                ip.fill_checksum();
                pseudo_v4(
                    source.octets(),
                    destination.octets(),
                    ipv4::PROTOCOL_UDP,
                    udp_len,
                )
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                eth.set_ethertype(eth::TYPE_IPV6);
                let mut ip = ipv6::Packet::new_checked(eth.payload_mut())?;
                ip.clear();
                ip.set_payload_len(udp_len);
                ip.set_next_header(ipv4::PROTOCOL_UDP);
                ip.set_hop_limit(TTL);
                ip.set_source(source.octets());
                ip.set_destination(destination.octets());
                pseudo_v6(
                    source.octets(),
                    destination.octets(),
                    ipv4::PROTOCOL_UDP,
                    udp_len.into(),
                )
            }
            _ => return None,
        };
        let datagram = &mut eth.payload_mut()[header_len..];
        datagram[udp::HEADER_BYTES..].copy_from_slice(payload);
        let mut udp = udp::Packet::new_checked(datagram)?;
        udp.set_source_port(self.source.port());
        udp.set_destination_port(self.destination.port());
        udp.set_length(udp_len);
        udp.fill_checksum(pseudo);
        Some(end)
    }
}
