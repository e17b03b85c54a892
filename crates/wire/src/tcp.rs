//! TCP.
//!
//! ```text
//!  0             2                  4          8                 12            14       16         18       20
//! | source port | destination port | sequence | acknowledgement | lengths, .. | window | checksum | urgent | options, payload ...
//! ```
//!
//! A segment does not say how long it is: it ends where its packet ends. Options are kept and
//! never read.
//!
//! Source: RFC 9293 §3.1.

use crate::checksum::Sum;
use crate::eth::array;

/// Bytes of a header without options.
pub const HEADER_BYTES: usize = 20;

/// Flags, in the header's byte 13: no more data is to come.
const FIN: u8 = 0x01;
/// What has come is to be handed on.
const PSH: u8 = 0x08;
/// The sender has slowed down (RFC 3168 §6.1.2).
const CWR: u8 = 0x80;

/// A view of bytes as a segment, all of them.
#[derive(Debug)]
pub struct Packet<T>(T);

impl<T: AsRef<[u8]>> Packet<T> {
    /// The view, if the bytes hold a header without options.
    pub fn new_checked(bytes: T) -> Option<Self> {
        (bytes.as_ref().len() >= HEADER_BYTES).then_some(Self(bytes))
    }

    /// Bytes of the header with options, 20 to 60 in a true segment; the view may hold
    /// fewer.
    #[must_use]
    pub fn header_len(&self) -> usize {
        usize::from(self.0.as_ref()[12] >> 4) * 4
    }

    /// The checksum field.
    #[must_use]
    pub fn checksum(&self) -> u16 {
        u16::from_be_bytes(array(self.0.as_ref(), 16))
    }

    /// Whether the checksum is the sum of the pseudo-header and nothing else
    /// ([`udp::Checksum::Partial`](crate::udp::Checksum::Partial)). A right one may be
    /// so by chance, and completing that leaves it right. Constant time.
    #[must_use]
    pub fn is_partial(&self, pseudo: Sum) -> bool {
        self.checksum() == pseudo.fold()
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Packet<T> {
    /// Says that its first byte of payload comes so many later.
    pub fn move_sequence(&mut self, bytes: u32) {
        let sequence = u32::from_be_bytes(array(self.0.as_ref(), 4)).wrapping_add(bytes);
        self.0.as_mut()[4..8].copy_from_slice(&sequence.to_be_bytes());
    }

    /// Of a segment that is a part of a longer one, leaves the flags that are the first part's
    /// (CWR) or the last one's (FIN, PSH) where it is that.
    pub fn keep_flags(&mut self, is_first: bool, is_last: bool) {
        let flags = &mut self.0.as_mut()[13];
        if !is_first {
            *flags &= !CWR;
        }
        if !is_last {
            *flags &= !(FIN | PSH);
        }
    }

    /// Computes the checksum whole; `pseudo` is the sum of the pseudo-header. Linear in
    /// the segment. A checksum of 0 is one like any other here.
    pub fn fill_checksum(&mut self, pseudo: Sum) {
        self.0.as_mut()[16..18].fill(0);
        let checksum = pseudo.bytes(self.0.as_ref()).checksum();
        self.0.as_mut()[16..18].copy_from_slice(&checksum.to_be_bytes());
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use crate::checksum::pseudo_v4;

    #[test]
    fn the_checksum_lies_where_the_rfc_puts_it() {
        let mut bytes = [0; HEADER_BYTES];
        bytes[16..18].copy_from_slice(&[0x12, 0x34]);
        assert_eq!(Packet::new_checked(&bytes).unwrap().checksum(), 0x1234);
        assert!(Packet::new_checked(&bytes[..19]).is_none());
    }

    #[test]
    fn a_segment_sums_up_to_all_ones_once_its_checksum_is_filled_in() {
        let pseudo = pseudo_v4([10, 0, 0, 1], [10, 0, 0, 2], 6, 23);
        let mut bytes = [0xa5; 23];
        Packet::new_checked(&mut bytes)
            .unwrap()
            .fill_checksum(pseudo);
        assert_eq!(pseudo.bytes(&bytes).fold(), 0xffff);
        assert!(!Packet::new_checked(&bytes).unwrap().is_partial(pseudo));
        bytes[16..18].copy_from_slice(&pseudo.fold().to_be_bytes());
        assert!(Packet::new_checked(&bytes).unwrap().is_partial(pseudo));
    }
}
