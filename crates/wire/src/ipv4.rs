//! IPv4.
//!
//! ```text
//!  0         1     2            4     6                8     9          10         12       16            20
//! | ver, IHL | TOS | total len. | id. | flags, offset | TTL | protocol | checksum | source | destination | options ...
//! ```
//!
//! Options are kept and never read.
//!
//! Source: RFC 791 §3.1.

use crate::checksum::Sum;
use crate::eth::array;

/// Bytes of a header without options.
pub const HEADER_BYTES: usize = 20;
/// The flag by which nobody may fragment a packet, in the header's byte 6.
pub const DONT_FRAGMENT: u8 = 0x40;
/// Protocol number of UDP (RFC 768).
pub const PROTOCOL_UDP: u8 = 17;
/// Protocol number of TCP (RFC 9293).
pub const PROTOCOL_TCP: u8 = 6;
/// Protocol number of SCTP (RFC 9260).
pub const PROTOCOL_SCTP: u8 = 132;
/// Protocol number of ICMP (RFC 792).
pub const PROTOCOL_ICMP: u8 = 1;

/// Whether the protocol's header starts with two ports.
#[must_use]
pub const fn has_ports(protocol: u8) -> bool {
    matches!(protocol, PROTOCOL_UDP | PROTOCOL_TCP | PROTOCOL_SCTP)
}

/// A view of bytes as a packet.
#[derive(Debug)]
pub struct Packet<T>(T);

impl<T: AsRef<[u8]>> Packet<T> {
    /// The view, if the bytes hold a header without options.
    pub fn new_checked(bytes: T) -> Option<Self> {
        (bytes.as_ref().len() >= HEADER_BYTES).then_some(Self(bytes))
    }

    /// Version, 4 in a true packet.
    #[must_use]
    pub fn version(&self) -> u8 {
        self.0.as_ref()[0] >> 4
    }

    /// Bytes of the header with options, 20 to 60 in a true packet; the view
    /// may hold fewer.
    #[must_use]
    pub fn header_len(&self) -> usize {
        usize::from(self.0.as_ref()[0] & 0x0f) * 4
    }

    /// Bytes of header and payload.
    #[must_use]
    pub fn total_len(&self) -> u16 {
        u16::from_be_bytes(array(self.0.as_ref(), 2))
    }

    /// What fragments of this packet have in common.
    #[must_use]
    pub fn identification(&self) -> u16 {
        u16::from_be_bytes(array(self.0.as_ref(), 4))
    }

    /// Whether more fragments follow.
    #[must_use]
    pub fn more_fragments(&self) -> bool {
        self.0.as_ref()[6] & 0x20 != 0
    }

    /// Place of this fragment in the datagram, in units of 8 bytes.
    #[must_use]
    pub fn fragment_offset(&self) -> u16 {
        u16::from_be_bytes(array(self.0.as_ref(), 6)) & 0x1fff
    }

    /// Time to live, in hops.
    #[must_use]
    pub fn ttl(&self) -> u8 {
        self.0.as_ref()[8]
    }

    /// Protocol of the payload.
    #[must_use]
    pub fn protocol(&self) -> u8 {
        self.0.as_ref()[9]
    }

    /// Where the packet comes from.
    #[must_use]
    pub fn source(&self) -> [u8; 4] {
        array(self.0.as_ref(), 12)
    }

    /// Where the packet goes.
    #[must_use]
    pub fn destination(&self) -> [u8; 4] {
        array(self.0.as_ref(), 16)
    }

    /// Whether the header's checksum is right. A header that the view does not
    /// hold whole has no right checksum.
    #[must_use]
    pub fn verify_checksum(&self) -> bool {
        self.0
            .as_ref()
            .get(..self.header_len())
            .is_some_and(|header| Sum::new().bytes(header).fold() == 0xffff)
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Packet<T> {
    /// Sets version 4 and a header without options, of a datagram that is not to be
    /// fragmented; everything else 0. Without that mark a datagram needs an
    /// identification that differs from others' (RFC 6864 §4.1, §4.2).
    pub fn clear(&mut self) {
        let header = &mut self.0.as_mut()[..HEADER_BYTES];
        header.fill(0);
        header[0] = 0x45;
        header[6] = DONT_FRAGMENT;
    }

    /// Sets the bytes of header and payload.
    pub fn set_total_len(&mut self, bytes: u16) {
        self.0.as_mut()[2..4].copy_from_slice(&bytes.to_be_bytes());
    }

    /// Sets what fragments of this packet have in common.
    pub fn set_identification(&mut self, number: u16) {
        self.0.as_mut()[4..6].copy_from_slice(&number.to_be_bytes());
    }

    /// Sets the time to live, in hops.
    pub fn set_ttl(&mut self, hops: u8) {
        self.0.as_mut()[8] = hops;
    }

    /// Sets the protocol of the payload.
    pub fn set_protocol(&mut self, protocol: u8) {
        self.0.as_mut()[9] = protocol;
    }

    /// Sets where the packet comes from.
    pub fn set_source(&mut self, address: [u8; 4]) {
        self.0.as_mut()[12..16].copy_from_slice(&address);
    }

    /// Sets where the packet goes.
    pub fn set_destination(&mut self, address: [u8; 4]) {
        self.0.as_mut()[16..20].copy_from_slice(&address);
    }

    /// Computes the header's checksum whole, as far as the view holds the
    /// header.
    pub fn fill_checksum(&mut self) {
        self.0.as_mut()[10..12].fill(0);
        let end = self.header_len().min(self.0.as_ref().len());
        let checksum = Sum::new().bytes(&self.0.as_ref()[..end]).checksum();
        self.0.as_mut()[10..12].copy_from_slice(&checksum.to_be_bytes());
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    const HEADER: [u8; 20] = [
        0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8, 0x00,
        0x01, 0xc0, 0xa8, 0x00, 0xc7,
    ];

    #[test]
    fn fields_lie_where_the_rfc_puts_them() {
        let packet = Packet::new_checked(HEADER).unwrap();
        assert_eq!((packet.version(), packet.header_len()), (4, 20));
        assert_eq!(packet.total_len(), 0x73);
        assert_eq!(
            (packet.more_fragments(), packet.fragment_offset()),
            (false, 0)
        );
        assert_eq!((packet.ttl(), packet.protocol()), (64, PROTOCOL_UDP));
        assert_eq!(packet.source(), [192, 168, 0, 1]);
        assert_eq!(packet.destination(), [192, 168, 0, 199]);
        assert!(packet.verify_checksum());
    }

    #[test]
    fn fragments_are_told_apart() {
        let mut bytes = HEADER;
        bytes[6] = 0x3f;
        bytes[7] = 0xff;
        let packet = Packet::new_checked(bytes).unwrap();
        assert!(packet.more_fragments());
        assert_eq!(packet.fragment_offset(), 0x1fff);
    }

    #[test]
    fn the_checksum_covers_options_and_fails_without_them() {
        let mut bytes = [0; 24];
        bytes[..20].copy_from_slice(&HEADER);
        bytes[0] = 0x46;
        bytes[20..].copy_from_slice(&[1, 1, 1, 0]);
        let mut packet = Packet::new_checked(&mut bytes).unwrap();
        packet.fill_checksum();
        assert!(packet.verify_checksum());
        assert!(!Packet::new_checked(&bytes[..20]).unwrap().verify_checksum());
        bytes[22] = 0;
        assert!(!Packet::new_checked(&bytes).unwrap().verify_checksum());
    }

    #[test]
    fn clear_and_set_rebuild_the_header() {
        let mut bytes = [0xaa; 20];
        let mut packet = Packet::new_checked(&mut bytes).unwrap();
        packet.clear();
        packet.set_total_len(0x73);
        packet.set_ttl(64);
        packet.set_protocol(PROTOCOL_UDP);
        packet.set_source([192, 168, 0, 1]);
        packet.set_destination([192, 168, 0, 199]);
        packet.fill_checksum();
        assert_eq!(bytes, HEADER);
    }
}
