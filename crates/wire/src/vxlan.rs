//! VXLAN.
//!
//! ```text
//!  0       1          4                    7          8
//! | flags | reserved | network identifier | reserved | Ethernet ...
//! ```
//!
//! Source: RFC 7348 §5.

/// Port of UDP that IANA assigned.
pub const PORT: u16 = 4789;
/// Bytes of the header.
pub const HEADER_BYTES: usize = 8;
/// The flag that says that the identifier is valid.
pub const FLAG_IDENTIFIER: u8 = 0x08;

/// The network identifier (24 bits), of bytes that start with the UDP header;
/// `None` if the header is not whole or calls the identifier invalid.
#[must_use]
pub fn identifier(datagram: &[u8]) -> Option<u32> {
    let header = datagram
        .get(crate::udp::HEADER_BYTES..)?
        .get(..HEADER_BYTES)?;
    let identifier = u32::from_be_bytes([0, header[4], header[5], header[6]]);
    (header[0] & FLAG_IDENTIFIER != 0).then_some(identifier)
}
