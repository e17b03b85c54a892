//! Ethernet II.
//!
//! ```text
//!  0             6             12        14
//! | destination | source      | type    | payload ...
//! ```
//!
//! A VLAN tag lies between the addresses and the type: it has a type of its own
//! (0x8100) and 16 bits, of which 12 are the VLAN's id.
//!
//! Source: IEEE 802.3 clause 3; type numbers from the IANA IEEE 802 registry.

/// Bytes of the header.
pub const HEADER_BYTES: usize = 14;
/// Type of IPv4.
pub const TYPE_IPV4: u16 = 0x0800;
/// Type of IPv6.
pub const TYPE_IPV6: u16 = 0x86dd;

/// Bytes of a VLAN tag: its type and what it says (IEEE 802.1Q §9.3).
pub const TAG_BYTES: usize = 4;
/// Type of a VLAN tag.
pub const TYPE_VLAN: u16 = 0x8100;
/// Most tags that are looked behind.
pub const MAX_TAGS: usize = 2;

/// Whether what follows a type field is a VLAN tag: customer, service (802.1ad),
/// and the older number of the latter, as libpcap has it.
#[must_use]
pub const fn is_tag(ethertype: u16) -> bool {
    matches!(ethertype, TYPE_VLAN | 0x88a8 | 0x9100)
}

/// Type of ARP (RFC 826).
pub const TYPE_ARP: u16 = 0x0806;
/// Type of RARP (RFC 903).
pub const TYPE_RARP: u16 = 0x8035;

/// A hardware address.
pub type Address = [u8; 6];

/// Whether the address names a group: multicast, broadcast included (IEEE 802
/// §8.2, the I/G bit).
#[must_use]
pub const fn is_group(address: Address) -> bool {
    address[0] & 1 != 0
}

/// A view of bytes as a frame.
#[derive(Debug)]
pub struct Packet<T>(T);

impl<T: AsRef<[u8]>> Packet<T> {
    /// The view, if the bytes hold a header.
    pub fn new_checked(bytes: T) -> Option<Self> {
        (bytes.as_ref().len() >= HEADER_BYTES).then_some(Self(bytes))
    }

    /// Where the frame goes.
    #[must_use]
    pub fn destination(&self) -> Address {
        array(self.0.as_ref(), 0)
    }

    /// Where the frame comes from.
    #[must_use]
    pub fn source(&self) -> Address {
        array(self.0.as_ref(), 6)
    }

    /// Type of the payload.
    #[must_use]
    pub fn ethertype(&self) -> u16 {
        u16::from_be_bytes(array(self.0.as_ref(), 12))
    }

    /// VLAN tags between the addresses and the type of the payload, at most
    /// [`MAX_TAGS`], as far as the view holds them.
    #[must_use]
    pub fn tags(&self) -> usize {
        let frame = self.0.as_ref();
        let at = |tag: usize| HEADER_BYTES - 2 + tag * TAG_BYTES;
        (0..MAX_TAGS)
            .take_while(|&tag| {
                frame.len() >= at(tag + 1) + 2 && is_tag(u16::from_be_bytes(array(frame, at(tag))))
            })
            .count()
    }

    /// Everything after the header, padding included.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.0.as_ref()[HEADER_BYTES..]
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Packet<T> {
    /// Sets where the frame goes.
    pub fn set_destination(&mut self, address: Address) {
        self.0.as_mut()[..6].copy_from_slice(&address);
    }

    /// Sets where the frame comes from.
    pub fn set_source(&mut self, address: Address) {
        self.0.as_mut()[6..12].copy_from_slice(&address);
    }

    /// Sets the type of the payload.
    pub fn set_ethertype(&mut self, ethertype: u16) {
        self.0.as_mut()[12..14].copy_from_slice(&ethertype.to_be_bytes());
    }

    /// Everything after the header, to write.
    pub fn payload_mut(&mut self) -> &mut [u8] {
        &mut self.0.as_mut()[HEADER_BYTES..]
    }
}

/// `N` bytes from `at`, which the caller has checked to be there.
pub(crate) fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[at..at + N]);
    array
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn fields_lie_where_the_standard_puts_them() {
        let bytes = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0x86, 0xdd, 99];
        let mut copy = [0; 15];
        let mut written = Packet::new_checked(&mut copy).unwrap();
        let read = Packet::new_checked(&bytes).unwrap();
        written.set_destination(read.destination());
        written.set_source(read.source());
        written.set_ethertype(read.ethertype());
        written.payload_mut().copy_from_slice(read.payload());
        assert_eq!(read.destination(), [1, 2, 3, 4, 5, 6]);
        assert_eq!(read.ethertype(), TYPE_IPV6);
        assert_eq!(copy, bytes);
        assert!(Packet::new_checked(&bytes[..13]).is_none());
        assert!(is_group([0xff; 6]) && !is_group([2, 0, 0, 0, 0, 1]));
    }
}
