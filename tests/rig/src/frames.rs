//! Raw Ethernet frames with a UDP datagram, and ways to spoil them.
//!
//! Written from the RFCs and shared with nothing: what the product accepts is
//! tested against frames it had no part in. Sources: RFC 791, RFC 8200, RFC 768,
//! RFC 1071.

use std::net::IpAddr;

use crate::{A4, A6, B4, B6, MAC_A, MAC_B};

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const ETHERTYPE_VLAN: u16 = 0x8100;
const EXPERIMENT: u8 = 0x1e;
const NO_OPERATION: u8 = 1;
const PROTOCOL_UDP: u8 = 17;
const PROTOCOL_FRAGMENT: u8 = 44;
const PROTOCOL_DESTINATION_OPTIONS: u8 = 60;

/// One way to make a frame wrong, or merely unusual.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spoil {
    /// The IPv4 header checksum is off by one bit. IPv6 has none.
    IpChecksum,
    /// The UDP checksum is off by one bit.
    UdpChecksum,
    /// The UDP checksum is 0: not computed (allowed over IPv4, RFC 768; not over
    /// IPv6, RFC 8200 §8.1).
    NoUdpChecksum,
    /// Only so many bytes of the frame are sent; the lengths inside still
    /// promise the rest.
    Truncate(usize),
    /// The datagram is said to be a fragment: its offset in units of 8 bytes,
    /// and whether more follow. IPv6: by an extension header.
    Fragment(u16, bool),
    /// So many units of options before UDP: IPv4 4 bytes of no-operation each,
    /// IPv6 8 bytes of a destination options header.
    Options(u8),
    /// Another IP version number.
    IpVersion(u8),
    /// Another IPv4 header length, in 32-bit words. Nothing on IPv6.
    IpHeaderWords(u8),
    /// Another IPv4 total length or IPv6 payload length.
    IpLength(u16),
    /// Another UDP length.
    UdpLength(u16),
    /// Another transport protocol number.
    Protocol(u8),
    /// Another ethertype.
    Ethertype(u16),
    /// A VLAN tag with this id before the ethertype (IEEE 802.1Q).
    Vlan(u16),
    /// So many zero bytes after the IP datagram, as Ethernet pads short frames.
    Padding(usize),
}

/// A UDP datagram in its frame.
#[derive(Clone, Debug)]
pub struct Frame {
    /// Hardware address of the sender.
    pub eth_source: [u8; 6],
    /// Hardware address of the receiver.
    pub eth_destination: [u8; 6],
    /// The sender; of the same family as `destination`.
    pub source: IpAddr,
    /// The receiver.
    pub destination: IpAddr,
    /// Port of the sender.
    pub source_port: u16,
    /// Port of the receiver.
    pub destination_port: u16,
    /// What the datagram carries.
    pub payload: Vec<u8>,
    /// What is wrong with it; all are applied.
    pub spoils: Vec<Spoil>,
}

impl Frame {
    /// A good frame from A to B's UDP `port`, over IPv4.
    #[must_use]
    pub fn to_b(port: u16, payload: &[u8]) -> Self {
        Self {
            eth_source: MAC_A,
            eth_destination: MAC_B,
            source: A4.into(),
            destination: B4.into(),
            source_port: 40_000,
            destination_port: port,
            payload: payload.to_vec(),
            spoils: Vec::new(),
        }
    }

    /// A good frame from A to B's UDP `port`, over IPv6.
    #[must_use]
    pub fn to_b_v6(port: u16, payload: &[u8]) -> Self {
        Self {
            source: A6.into(),
            destination: B6.into(),
            ..Self::to_b(port, payload)
        }
    }

    /// Sets the port of the sender.
    #[must_use]
    pub fn from_port(mut self, port: u16) -> Self {
        self.source_port = port;
        self
    }

    /// Spoils it in one more way.
    #[must_use]
    pub fn spoil(mut self, spoil: Spoil) -> Self {
        self.spoils.push(spoil);
        self
    }

    /// The frame's bytes. Checksums are right for what is in the frame, also
    /// after other spoils, unless they are spoiled themselves.
    ///
    /// # Panics
    ///
    /// If the two addresses are of different families, or the datagram is
    /// longer than 65,535 bytes.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let shape = Shape::of(&self.spoils);
        let udp = self.udp(&shape);
        let (ethertype, ip) = match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let header = ipv4(source.octets(), destination.octets(), udp.len(), &shape);
                (ETHERTYPE_IPV4, header)
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let header = ipv6(source.octets(), destination.octets(), udp.len(), &shape);
                (ETHERTYPE_IPV6, header)
            }
            _ => panic!("addresses of two families"),
        };
        let mut frame = [self.eth_destination, self.eth_source].concat();
        if let Some(id) = shape.vlan {
            frame.extend(ETHERTYPE_VLAN.to_be_bytes());
            frame.extend(id.to_be_bytes());
        }
        frame.extend(shape.ethertype.unwrap_or(ethertype).to_be_bytes());
        frame.extend(ip);
        frame.extend(udp);
        frame.resize(frame.len() + shape.padding, 0);
        frame.truncate(shape.truncate.unwrap_or(usize::MAX));
        frame
    }

    /// UDP header and payload (RFC 768).
    fn udp(&self, shape: &Shape) -> Vec<u8> {
        let real_len = fits(8 + self.payload.len());
        let len = shape.udp_length.unwrap_or(real_len);
        let mut udp = Vec::new();
        for field in [self.source_port, self.destination_port, len, 0] {
            udp.extend(field.to_be_bytes());
        }
        udp.extend(&self.payload);

        let mut pseudo = match (self.source, self.destination) {
            (IpAddr::V4(from), IpAddr::V4(to)) => [from.octets(), to.octets()].concat(),
            (IpAddr::V6(from), IpAddr::V6(to)) => [from.octets(), to.octets()].concat(),
            _ => panic!("addresses of two families"),
        };
        pseudo.extend([0, PROTOCOL_UDP]);
        pseudo.extend(len.to_be_bytes());
        pseudo.extend(&udp);
        let checksum = match checksum(&pseudo) {
            0 => 0xffff,
            other => other,
        };
        let checksum = if shape.no_udp_checksum {
            0
        } else {
            checksum ^ shape.udp_checksum_error
        };
        udp[6..8].copy_from_slice(&checksum.to_be_bytes());
        udp
    }
}

/// The list of spoils as the values they put in place.
#[derive(Default)]
struct Shape {
    ip_checksum_error: u16,
    udp_checksum_error: u16,
    no_udp_checksum: bool,
    truncate: Option<usize>,
    fragment: Option<(u16, bool)>,
    options: u8,
    ip_version: Option<u8>,
    ip_header_words: Option<u8>,
    ip_length: Option<u16>,
    udp_length: Option<u16>,
    protocol: Option<u8>,
    ethertype: Option<u16>,
    vlan: Option<u16>,
    padding: usize,
}

impl Shape {
    fn of(spoils: &[Spoil]) -> Self {
        let mut shape = Self::default();
        for spoil in spoils {
            match *spoil {
                Spoil::IpChecksum => shape.ip_checksum_error = 1,
                Spoil::UdpChecksum => shape.udp_checksum_error = 1,
                Spoil::NoUdpChecksum => shape.no_udp_checksum = true,
                Spoil::Truncate(bytes) => shape.truncate = Some(bytes),
                Spoil::Fragment(offset, more) => shape.fragment = Some((offset, more)),
                Spoil::Options(units) => shape.options = units,
                Spoil::IpVersion(version) => shape.ip_version = Some(version),
                Spoil::IpHeaderWords(words) => shape.ip_header_words = Some(words),
                Spoil::IpLength(bytes) => shape.ip_length = Some(bytes),
                Spoil::UdpLength(bytes) => shape.udp_length = Some(bytes),
                Spoil::Protocol(number) => shape.protocol = Some(number),
                Spoil::Ethertype(number) => shape.ethertype = Some(number),
                Spoil::Vlan(id) => shape.vlan = Some(id),
                Spoil::Padding(bytes) => shape.padding = bytes,
            }
        }
        shape
    }
}

/// An IPv4 header (RFC 791 §3.1) for so many bytes after it.
fn ipv4(source: [u8; 4], destination: [u8; 4], after: usize, shape: &Shape) -> Vec<u8> {
    let real_words = 5 + shape.options;
    let version = shape.ip_version.unwrap_or(4);
    let words = shape.ip_header_words.unwrap_or(real_words);
    let real_len = fits(usize::from(real_words) * 4 + after);
    let (offset, more) = shape.fragment.unwrap_or((0, false));

    let mut header = vec![version << 4 | words & 0x0f, 0];
    header.extend(shape.ip_length.unwrap_or(real_len).to_be_bytes());
    header.extend(0x1234_u16.to_be_bytes());
    header.extend((offset & 0x1fff | u16::from(more) << 13).to_be_bytes());
    header.extend([64, shape.protocol.unwrap_or(PROTOCOL_UDP), 0, 0]);
    header.extend(source);
    header.extend(destination);
    header.resize(usize::from(real_words) * 4, NO_OPERATION);
    let checksum = checksum(&header) ^ shape.ip_checksum_error;
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    header
}

/// An IPv6 header with its extensions (RFC 8200 §3) for so many bytes after it.
fn ipv6(source: [u8; 16], destination: [u8; 16], after: usize, shape: &Shape) -> Vec<u8> {
    // Built backwards: each header is named by the one before it.
    let mut next = shape.protocol.unwrap_or(PROTOCOL_UDP);
    let mut extensions = Vec::new();
    if let Some((offset, more)) = shape.fragment {
        // §4.5.
        let mut header = vec![next, 0];
        header.extend((offset << 3 | u16::from(more)).to_be_bytes());
        header.extend(0x1234_5678_u32.to_be_bytes());
        extensions.splice(0..0, header);
        next = PROTOCOL_FRAGMENT;
    }
    if shape.options > 0 {
        // §4.6, filled by options that every host skips (RFC 4727 §3.1); Linux
        // refuses more than 7 bytes of padding. The first unit holds the
        // header's own 2 bytes.
        let mut header = vec![next, shape.options - 1, EXPERIMENT, 4, 0, 0, 0, 0];
        for _ in 1..shape.options {
            header.extend([EXPERIMENT, 6, 0, 0, 0, 0, 0, 0]);
        }
        extensions.splice(0..0, header);
        next = PROTOCOL_DESTINATION_OPTIONS;
    }
    let real_len = fits(extensions.len() + after);
    let mut header = vec![shape.ip_version.unwrap_or(6) << 4, 0, 0, 0];
    header.extend(shape.ip_length.unwrap_or(real_len).to_be_bytes());
    header.extend([next, 64]);
    header.extend(source);
    header.extend(destination);
    header.extend(extensions);
    header
}

/// The Internet checksum (RFC 1071 §1).
#[must_use]
pub fn checksum(bytes: &[u8]) -> u16 {
    let mut sum = 0_u64;
    for pair in bytes.chunks(2) {
        let low = pair.get(1).copied().unwrap_or_default();
        sum += u64::from(u16::from_be_bytes([pair[0], low]));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

fn fits(bytes: usize) -> u16 {
    u16::try_from(bytes).expect("no test sends a datagram of 64 KiB")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_good_frame_has_good_checksums() {
        let frame = Frame::to_b(7777, b"odd").bytes();
        assert_eq!(frame.len(), 14 + 20 + 8 + 3);
        assert_eq!(checksum(&frame[14..34]), 0);
        let mut pseudo = frame[26..34].to_vec();
        pseudo.extend([0, 17, 0, 11]);
        pseudo.extend(&frame[34..]);
        assert_eq!(checksum(&pseudo), 0);
    }

    #[test]
    fn spoils_change_what_they_name() {
        let good = Frame::to_b(7777, b"0123");
        let spoiled = |spoil| good.clone().spoil(spoil).bytes();
        assert_ne!(checksum(&spoiled(Spoil::IpChecksum)[14..34]), 0);
        assert_eq!(spoiled(Spoil::Truncate(20)).len(), 20);
        assert_eq!(spoiled(Spoil::NoUdpChecksum)[40..42], [0, 0]);
        assert_eq!(spoiled(Spoil::Fragment(3, true))[20..22], [0x20, 3]);
        let options = spoiled(Spoil::Options(2));
        assert_eq!((options[14], options.len()), (0x47, 14 + 28 + 12));
        assert_eq!(checksum(&options[14..42]), 0);
        assert_eq!(spoiled(Spoil::Vlan(5))[12..18], [0x81, 0, 0, 5, 8, 0]);
    }

    #[test]
    fn ipv6_extensions_are_chained() {
        let frame = Frame::to_b_v6(7777, b"")
            .spoil(Spoil::Options(2))
            .spoil(Spoil::Fragment(0, false))
            .bytes();
        assert_eq!(frame[20], 60, "options come first");
        assert_eq!(frame[54..56], [44, 1], "then the fragment header");
        assert_eq!(frame[70], 17, "then UDP");
        assert_eq!(frame.len(), 14 + 40 + 16 + 8 + 8);
    }
}
