//! IPv6.
//!
//! ```text
//!  0                       4              6             7           8        24            40
//! | ver, class, flow label | payload len. | next header | hop limit | source | destination | payload ...
//! ```
//!
//! Extension headers are not walked: a datagram whose next header is not UDP is
//! the host's.
//!
//! Source: RFC 8200 §3.

use crate::eth::array;

/// Bytes of the header.
pub const HEADER_BYTES: usize = 40;
/// Next header: hop-by-hop options (§4.3).
pub const HOP_BY_HOP: u8 = 0;
/// Next header: routing (§4.4).
pub const ROUTING: u8 = 43;
/// Next header: fragment (§4.5).
pub const FRAGMENT: u8 = 44;
/// Next header: destination options (§4.6).
pub const DESTINATION_OPTIONS: u8 = 60;
/// Next header: `ICMPv6` (RFC 4443).
pub const ICMPV6: u8 = 58;

/// Whether [`crate::headers`] looks behind a header of this number.
#[must_use]
pub const fn is_walked(next_header: u8) -> bool {
    matches!(
        next_header,
        HOP_BY_HOP | ROUTING | FRAGMENT | DESTINATION_OPTIONS
    )
}

/// A view of bytes as a packet.
#[derive(Debug)]
pub struct Packet<T>(T);

impl<T: AsRef<[u8]>> Packet<T> {
    /// The view, if the bytes hold a header.
    pub fn new_checked(bytes: T) -> Option<Self> {
        (bytes.as_ref().len() >= HEADER_BYTES).then_some(Self(bytes))
    }

    /// Version, 6 in a true packet.
    #[must_use]
    pub fn version(&self) -> u8 {
        self.0.as_ref()[0] >> 4
    }

    /// Bytes after the header.
    #[must_use]
    pub fn payload_len(&self) -> u16 {
        u16::from_be_bytes(array(self.0.as_ref(), 4))
    }

    /// Protocol of what follows the header.
    #[must_use]
    pub fn next_header(&self) -> u8 {
        self.0.as_ref()[6]
    }

    /// Hops left.
    #[must_use]
    pub fn hop_limit(&self) -> u8 {
        self.0.as_ref()[7]
    }

    /// Where the packet comes from.
    #[must_use]
    pub fn source(&self) -> [u8; 16] {
        array(self.0.as_ref(), 8)
    }

    /// Where the packet goes.
    #[must_use]
    pub fn destination(&self) -> [u8; 16] {
        array(self.0.as_ref(), 24)
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Packet<T> {
    /// Sets version 6, everything else 0.
    pub fn clear(&mut self) {
        self.0.as_mut()[..HEADER_BYTES].fill(0);
        self.0.as_mut()[0] = 0x60;
    }

    /// Sets the bytes after the header.
    pub fn set_payload_len(&mut self, bytes: u16) {
        self.0.as_mut()[4..6].copy_from_slice(&bytes.to_be_bytes());
    }

    /// Sets the protocol of what follows.
    pub fn set_next_header(&mut self, protocol: u8) {
        self.0.as_mut()[6] = protocol;
    }

    /// Sets the hops left.
    pub fn set_hop_limit(&mut self, hops: u8) {
        self.0.as_mut()[7] = hops;
    }

    /// Sets where the packet comes from.
    pub fn set_source(&mut self, address: [u8; 16]) {
        self.0.as_mut()[8..24].copy_from_slice(&address);
    }

    /// Sets where the packet goes.
    pub fn set_destination(&mut self, address: [u8; 16]) {
        self.0.as_mut()[24..40].copy_from_slice(&address);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn fields_lie_where_the_rfc_puts_them() {
        let mut bytes = [0xaa; HEADER_BYTES];
        let mut packet = Packet::new_checked(&mut bytes).unwrap();
        packet.clear();
        packet.set_payload_len(0x0123);
        packet.set_next_header(17);
        packet.set_hop_limit(64);
        packet.set_source([1; 16]);
        packet.set_destination([2; 16]);
        let mut expected = [0; HEADER_BYTES];
        expected[..8].copy_from_slice(&[0x60, 0, 0, 0, 0x01, 0x23, 17, 64]);
        expected[8..24].fill(1);
        expected[24..].fill(2);
        assert_eq!(bytes, expected);

        let packet = Packet::new_checked(&bytes).unwrap();
        assert_eq!((packet.version(), packet.payload_len()), (6, 0x0123));
        assert_eq!((packet.next_header(), packet.hop_limit()), (17, 64));
        assert_eq!(packet.source(), [1; 16]);
        assert_eq!(packet.destination(), [2; 16]);
        assert!(Packet::new_checked(&bytes[..39]).is_none());
    }
}
