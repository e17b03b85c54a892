//! The Internet checksum.
//!
//! Source: RFC 1071 for the sum, RFC 1624 for the update after a change,
//! RFC 768 and RFC 8200 §8.1 for the pseudo-headers.

/// A ones' complement sum over a stream of bytes that comes in pieces.
///
/// A piece of odd length leaves the stream in the middle of a word; the next
/// piece goes on there (RFC 1071 §2(B): its sum is added with bytes swapped).
///
/// # Examples
///
/// ```
/// # use ashway_wire::checksum::Sum;
/// // RFC 1071 §3.
/// let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
/// assert_eq!(Sum::new().bytes(&bytes).fold(), 0xddf2);
/// assert_eq!(Sum::new().bytes(&bytes[..3]).bytes(&bytes[3..]).fold(), 0xddf2);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum {
    /// In the CPU's own byte order, where the sum is the same with its bytes swapped
    /// (RFC 1071 §2(B)), and not folded: four bytes add at most 32 bits, so it cannot
    /// overflow in less than 2^34 bytes.
    sum: u64,
    odd: bool,
}

impl Sum {
    /// The sum of nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self { sum: 0, odd: false }
    }

    /// Adds the next bytes of the stream. Linear in their number.
    #[must_use]
    #[inline]
    pub fn bytes(self, bytes: &[u8]) -> Self {
        let (quads, rest) = bytes.as_chunks::<4>();
        // RFC 1071 §2(C): summing wider words and folding late is the same sum.
        let mut sum: u64 = quads
            .iter()
            .map(|quad| u64::from(u32::from_ne_bytes(*quad)))
            .sum();
        let (pairs, last) = rest.as_chunks::<2>();
        for pair in pairs {
            sum += u64::from(u16::from_ne_bytes(*pair));
        }
        if let [last] = last {
            sum += u64::from(u16::from_ne_bytes([*last, 0]));
        }
        if self.odd {
            sum = u64::from(fold(sum).swap_bytes());
        }
        Self {
            sum: self.sum + sum,
            odd: self.odd ^ (bytes.len() % 2 == 1),
        }
    }

    /// Adds one 16-bit word, at an even place of the stream.
    #[must_use]
    pub const fn word(self, word: u16) -> Self {
        Self {
            sum: self.sum + word.to_be() as u64,
            odd: self.odd,
        }
    }

    /// The sum in 16 bits, not complemented. It is `0xffff` over a stream that
    /// includes its own right checksum.
    #[must_use]
    pub const fn fold(self) -> u16 {
        u16::from_be(fold(self.sum))
    }

    /// The checksum: the complement of the sum.
    #[must_use]
    pub const fn checksum(self) -> u16 {
        !self.fold()
    }
}

/// The pseudo-header of a transport protocol over IPv4 (RFC 768).
#[must_use]
#[inline]
pub const fn pseudo_v4(source: [u8; 4], destination: [u8; 4], protocol: u8, length: u16) -> Sum {
    let addresses = u32::from_ne_bytes(source) as u64 + u32::from_ne_bytes(destination) as u64;
    let sum = Sum {
        sum: addresses,
        odd: false,
    };
    sum.word(protocol as u16).word(length)
}

/// The pseudo-header of a transport protocol over IPv6 (RFC 8200 §8.1).
#[must_use]
pub fn pseudo_v6(source: [u8; 16], destination: [u8; 16], protocol: u8, length: u32) -> Sum {
    Sum::new()
        .bytes(&source)
        .bytes(&destination)
        .bytes(&length.to_be_bytes())
        .word(u16::from(protocol))
}

/// Checksum after one 16-bit word of the packet changed from `old` to `new`.
///
/// Constant time: does not read the packet. All three values are in the same
/// byte order; which one does not matter (RFC 1071 §2(B)).
///
/// RFC 1624, equation 3. Not the older RFC 1141 form, which turns some valid
/// sums into the other zero. Never use it on a checksum that may be partial:
/// the result is as wrong as what it started from (see [`crate::datagram`]).
///
/// # Examples
///
/// ```
/// # use ashway_wire::checksum::update;
/// // TTL 64 becomes 63 in the word that holds TTL and protocol (17, UDP).
/// assert_eq!(update(0xb1e6, 0x4011, 0x3f11), 0xb2e6);
/// ```
#[must_use]
pub const fn update(checksum: u16, old: u16, new: u16) -> u16 {
    !fold(!checksum as u64 + !old as u64 + new as u64)
}

/// Adds the carries back until 16 bits are left. An addition that carries leaves room for
/// its carry.
const fn fold(sum: u64) -> u16 {
    let (sum, carry) = (sum as u32).overflowing_add((sum >> 32) as u32);
    let sum = sum + carry as u32;
    let (sum, carry) = (sum as u16).overflowing_add((sum >> 16) as u16);
    sum + carry as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition, word by word (RFC 1071 §1).
    fn definition(bytes: impl Iterator<Item = u8>) -> u16 {
        let mut sum = 0u16;
        for (at, byte) in bytes.enumerate() {
            let word = u16::from(byte) << if at % 2 == 0 { 8 } else { 0 };
            let (next, carry) = sum.overflowing_add(word);
            sum = next + u16::from(carry);
        }
        sum
    }

    #[test]
    fn an_ipv4_header_of_the_literature() {
        // The worked example of Wikipedia's "IPv4 header checksum" article.
        let header = [
            0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8,
            0x00, 0x01, 0xc0, 0xa8, 0x00, 0xc7,
        ];
        assert_eq!(Sum::new().bytes(&header).fold(), 0xffff);
    }

    #[test]
    fn update_agrees_with_recomputing_for_every_new_value() {
        let mut header = [0x45u8, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0xc0, 0xa8];
        let before = Sum::new().bytes(&header).checksum();
        for new in 0..=u16::MAX {
            header[8..10].copy_from_slice(&new.to_be_bytes());
            assert_eq!(
                update(before, 0x4011, new),
                Sum::new().bytes(&header).checksum(),
                "{new:#06x}"
            );
        }
    }

    #[test]
    fn folding_survives_the_largest_sum() {
        assert_eq!(fold(u64::MAX), 0xffff);
        assert_eq!(fold(0xffff_ffff_ffff_0000), 0xffff);
        assert_eq!(fold(0), 0);
        assert_eq!(fold(0x1_0000), 1);
    }

    proptest::proptest! {
        #[test]
        fn pieces_sum_like_the_whole(pieces in proptest::collection::vec(
            proptest::collection::vec(proptest::num::u8::ANY, 0..70), 0..6)) {
            let sum = pieces.iter().fold(Sum::new(), |sum, piece| sum.bytes(piece));
            let whole = definition(pieces.iter().flatten().copied());
            proptest::prop_assert_eq!(sum.fold(), whole);
        }
    }
}
