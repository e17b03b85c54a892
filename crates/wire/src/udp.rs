//! UDP.
//!
//! ```text
//!  0             2                  4        6          8
//! | source port | destination port | length | checksum | payload ...
//! ```
//!
//! Source: RFC 768.

use crate::checksum::Sum;
use crate::eth::array;

/// Bytes of the header.
pub const HEADER_BYTES: usize = 8;

/// What the checksum field of a datagram turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// The field is 0: the sender computed none.
    Absent,
    /// The field holds the sum of the pseudo-header and nothing else: the sender
    /// left the rest to a device that has not done it (`CHECKSUM_PARTIAL` in
    /// Linux; what a veth peer's own sockets send).
    Partial,
    /// Right.
    Right,
    /// Wrong.
    Wrong,
}

/// A view of bytes as a datagram.
#[derive(Debug)]
pub struct Packet<T>(T);

impl<T: AsRef<[u8]>> Packet<T> {
    /// The view, if the bytes hold a header.
    pub fn new_checked(bytes: T) -> Option<Self> {
        (bytes.as_ref().len() >= HEADER_BYTES).then_some(Self(bytes))
    }

    /// The sender's port; 0 means that it takes no answer.
    #[must_use]
    pub fn source_port(&self) -> u16 {
        u16::from_be_bytes(array(self.0.as_ref(), 0))
    }

    /// The receiver's port.
    #[must_use]
    pub fn destination_port(&self) -> u16 {
        u16::from_be_bytes(array(self.0.as_ref(), 2))
    }

    /// Bytes of header and payload.
    #[must_use]
    pub fn length(&self) -> u16 {
        u16::from_be_bytes(array(self.0.as_ref(), 4))
    }

    /// The checksum field.
    #[must_use]
    pub fn checksum(&self) -> u16 {
        u16::from_be_bytes(array(self.0.as_ref(), 6))
    }

    /// Judges the checksum; `pseudo` is the sum of the pseudo-header. Reads the
    /// datagram unless the field is 0 or partial. A datagram that the view does
    /// not hold whole is [`Checksum::Wrong`].
    ///
    /// A right checksum may by chance (1 in 65,536) look partial. Either
    /// judgement accepts it, and what is sent on gets a whole one in any case.
    #[must_use]
    pub fn judge_checksum(&self, pseudo: Sum) -> Checksum {
        let field = self.checksum();
        if field == 0 {
            return Checksum::Absent;
        }
        if field == pseudo.fold() {
            return Checksum::Partial;
        }
        match self.0.as_ref().get(..usize::from(self.length())) {
            Some(bytes) if pseudo.bytes(bytes).fold() == 0xffff => Checksum::Right,
            _ => Checksum::Wrong,
        }
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Packet<T> {
    /// Sets the sender's port.
    pub fn set_source_port(&mut self, port: u16) {
        self.0.as_mut()[..2].copy_from_slice(&port.to_be_bytes());
    }

    /// Sets the receiver's port.
    pub fn set_destination_port(&mut self, port: u16) {
        self.0.as_mut()[2..4].copy_from_slice(&port.to_be_bytes());
    }

    /// Sets the bytes of header and payload.
    pub fn set_length(&mut self, bytes: u16) {
        self.0.as_mut()[4..6].copy_from_slice(&bytes.to_be_bytes());
    }

    /// Computes the checksum whole, as far as the view holds the datagram. A
    /// checksum that comes to 0 is written as its other form, `0xffff`, because
    /// 0 says that there is none (RFC 768).
    pub fn fill_checksum(&mut self, pseudo: Sum) {
        self.0.as_mut()[6..8].fill(0);
        let end = usize::from(self.length()).min(self.0.as_ref().len());
        let checksum = match pseudo.bytes(&self.0.as_ref()[..end]).checksum() {
            0 => 0xffff,
            checksum => checksum,
        };
        self.0.as_mut()[6..8].copy_from_slice(&checksum.to_be_bytes());
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use crate::checksum::pseudo_v4;

    #[test]
    fn fields_lie_where_the_rfc_puts_them() {
        let mut bytes = [0; 9];
        let mut packet = Packet::new_checked(&mut bytes).unwrap();
        packet.set_source_port(0x1234);
        packet.set_destination_port(0x5678);
        packet.set_length(9);
        assert_eq!(bytes, [0x12, 0x34, 0x56, 0x78, 0, 9, 0, 0, 0]);
        let packet = Packet::new_checked(&bytes).unwrap();
        assert_eq!(
            (packet.source_port(), packet.destination_port()),
            (0x1234, 0x5678)
        );
        assert_eq!((packet.length(), packet.checksum()), (9, 0));
        assert!(Packet::new_checked(&bytes[..7]).is_none());
    }

    #[test]
    fn a_sum_of_zero_is_sent_as_its_other_form() {
        // One payload word runs through all values, so one of them makes the
        // checksum come to 0.
        let pseudo = pseudo_v4([10, 0, 0, 1], [10, 0, 0, 2], 17, 10);
        let mut other_form = 0;
        for word in 0..=u16::MAX {
            let mut bytes = [0, 7, 0, 8, 0, 10, 0, 0, 0, 0];
            bytes[8..].copy_from_slice(&word.to_be_bytes());
            let mut packet = Packet::new_checked(&mut bytes).unwrap();
            packet.fill_checksum(pseudo);
            assert_ne!(packet.checksum(), 0);
            other_form += u32::from(packet.checksum() == 0xffff);
            assert!(matches!(
                packet.judge_checksum(pseudo),
                Checksum::Right | Checksum::Partial
            ));
        }
        assert_eq!(other_form, 1);
    }

    #[test]
    fn each_kind_of_checksum_is_named() {
        let pseudo = pseudo_v4([10, 0, 0, 1], [10, 0, 0, 2], 17, 12);
        let mut bytes = [0, 7, 0, 8, 0, 12, 0, 0, b'a', b'b', b'c', b'd'];
        let judge = |bytes: &[u8]| Packet::new_checked(bytes).unwrap().judge_checksum(pseudo);
        assert_eq!(judge(&bytes), Checksum::Absent);
        bytes[6..8].copy_from_slice(&pseudo.fold().to_be_bytes());
        assert_eq!(judge(&bytes), Checksum::Partial);
        Packet::new_checked(&mut bytes)
            .unwrap()
            .fill_checksum(pseudo);
        assert_eq!(judge(&bytes), Checksum::Right);
        assert_eq!(judge(&bytes[..11]), Checksum::Wrong);
        bytes[9] ^= 1;
        assert_eq!(judge(&bytes), Checksum::Wrong);
    }
}
