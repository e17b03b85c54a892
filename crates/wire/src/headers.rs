//! What the outer headers of a frame say, found once.
//!
//! Demux asks the same questions of every frame: which tags, which protocol,
//! which addresses and ports. This walk answers them all, so that a thousand
//! filters do not each walk again, and it is the definition that the kernel
//! tier's walk has to equal.
//!
//! It believes what stands there (a version field or a length that lies is the
//! matter of [`crate::datagram`]), with three exceptions that keep every later
//! read inside the frame and inside the right header:
//!
//! * A header counts only if its fixed part is whole: 4 bytes of a VLAN tag, 20
//!   of IPv4, 40 of IPv6, the ports of UDP, TCP and SCTP, 8 of VXLAN. Half a
//!   header is no header.
//! * An IPv4 header that says it is shorter than 20 bytes (RFC 791 §3.1) has
//!   nothing behind it.
//! * IPv6 extension headers (RFC 8200 §4) are walked, at most
//!   [`EXTENSION_HEADERS`] of them: hop-by-hop options, routing, fragment and
//!   destination options. Others, AH and ESP among them, are where the walk
//!   ends: what they protect is not ours to sort by.
//!
//! Tags: IEEE 802.1Q §9.6. VXLAN: RFC 7348 §5.

use crate::eth::{self, array};
use crate::{ipv4, ipv6, vxlan};

/// Most IPv6 extension headers that are walked; a packet with more has no
/// transport header here.
pub const EXTENSION_HEADERS: usize = 8;

/// Which part of a datagram a packet holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Fragment {
    /// All of it.
    #[default]
    No = 0,
    /// The beginning: the transport header is here.
    First = 1,
    /// A later part: there are no ports.
    Later = 2,
}

/// The headers of one frame. What is not there is 0 or `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Headers {
    /// VLAN tags that were looked behind, at most
    /// [`eth::MAX_TAGS`].
    pub vlans: u8,
    /// The tags' control information, outermost first: priority (3 bits), drop
    /// eligible (1), VLAN id (12).
    pub vlan: [u16; eth::MAX_TAGS],
    /// Type of the payload, behind the tags; 0 in a frame that ends before it.
    pub ethertype: u16,
    /// Where the network header starts, in bytes from the frame's first; 0 if
    /// the frame ends before it does. For anything but IPv4 and IPv6, where the
    /// payload starts.
    pub l3: u16,
    /// Source address; IPv4's in the first four bytes.
    pub source: [u8; 16],
    /// Destination address; IPv4's in the first four bytes.
    pub destination: [u8; 16],
    /// Protocol number (IANA), for IPv6 of the first header that was not walked.
    pub protocol: u8,
    /// Where the transport header starts; 0 if there is none.
    pub l4: u16,
    /// Whether this is all of a datagram.
    pub fragment: Fragment,
    /// Source port of UDP, TCP and SCTP.
    pub source_port: u16,
    /// Destination port of UDP, TCP and SCTP.
    pub destination_port: u16,
    /// VXLAN network identifier, of UDP to port 4789 with a valid one.
    pub vni: Option<u32>,
}

impl Headers {
    /// Reads the headers of any bytes. Never fails, does not allocate; the work
    /// is bounded whatever the frame says.
    ///
    /// # Examples
    ///
    /// ```
    /// use ashway_wire::headers::Headers;
    /// let mut frame = [0; 34];
    /// frame[12..15].copy_from_slice(&[0x08, 0x00, 0x45]);
    /// frame[23] = 1;
    /// let headers = Headers::parse(&frame);
    /// assert_eq!((headers.ethertype, headers.l3, headers.protocol), (0x0800, 14, 1));
    /// assert_eq!(Headers::parse(&frame[..33]).l3, 0);
    /// ```
    #[must_use]
    pub fn parse(frame: &[u8]) -> Self {
        let mut headers = Self::default();
        headers.link(frame);
        match headers.ethertype {
            eth::TYPE_IPV4 => headers.ipv4(frame),
            eth::TYPE_IPV6 => headers.ipv6(frame),
            _ => {}
        }
        headers
    }

    /// Ethernet and its tags.
    fn link(&mut self, frame: &[u8]) {
        let mut at = eth::HEADER_BYTES;
        let Some(mut ethertype) = word(frame, at - 2) else {
            return;
        };
        while eth::is_tag(ethertype) && usize::from(self.vlans) < eth::MAX_TAGS {
            let (Some(control), Some(inner)) = (word(frame, at), word(frame, at + 2)) else {
                return;
            };
            self.vlan[usize::from(self.vlans)] = control;
            self.vlans += 1;
            ethertype = inner;
            at += eth::TAG_BYTES;
        }
        self.ethertype = ethertype;
        self.l3 = at as u16;
    }

    fn ipv4(&mut self, frame: &[u8]) {
        let at = usize::from(self.l3);
        let Some(header) = frame.get(at..at + ipv4::HEADER_BYTES) else {
            self.l3 = 0;
            return;
        };
        self.protocol = header[9];
        self.source[..4].copy_from_slice(&header[12..16]);
        self.destination[..4].copy_from_slice(&header[16..20]);
        let fragment = u16::from_be_bytes(array(header, 6));
        self.fragment = part(fragment & 0x1fff, fragment & 0x2000 != 0);
        let len = usize::from(header[0] & 0x0f) * 4;
        if len >= ipv4::HEADER_BYTES {
            self.transport(frame, at + len);
        }
    }

    fn ipv6(&mut self, frame: &[u8]) {
        let mut at = usize::from(self.l3);
        let Some(header) = frame.get(at..at + ipv6::HEADER_BYTES) else {
            self.l3 = 0;
            return;
        };
        self.protocol = header[6];
        self.source = array(header, 8);
        self.destination = array(header, 24);
        at += ipv6::HEADER_BYTES;
        for _ in 0..EXTENSION_HEADERS {
            // All four begin with the next header's number; all but the
            // fragment header (always 8 bytes) go on with their length in
            // units of 8 bytes, the first not counted.
            let Some(start) = frame.get(at..at + 8) else {
                break;
            };
            let len = match self.protocol {
                ipv6::HOP_BY_HOP | ipv6::ROUTING | ipv6::DESTINATION_OPTIONS => {
                    8 + usize::from(start[1]) * 8
                }
                ipv6::FRAGMENT => {
                    let place = u16::from_be_bytes(array(start, 2));
                    self.fragment = part(place >> 3, place & 1 != 0);
                    8
                }
                _ => break,
            };
            if at + len > frame.len() {
                break;
            }
            self.protocol = start[0];
            at += len;
            if self.fragment == Fragment::Later {
                return;
            }
        }
        if !ipv6::is_walked(self.protocol) {
            self.transport(frame, at);
        }
    }

    /// The transport header, which would start `at` this byte.
    fn transport(&mut self, frame: &[u8], at: usize) {
        if self.fragment == Fragment::Later || at > frame.len() {
            return;
        }
        if ipv4::has_ports(self.protocol) {
            let (Some(source), Some(destination)) = (word(frame, at), word(frame, at + 2)) else {
                return;
            };
            self.source_port = source;
            self.destination_port = destination;
            if self.protocol == ipv4::PROTOCOL_UDP && destination == vxlan::PORT {
                self.vni = vxlan::identifier(&frame[at..]);
            }
        }
        self.l4 = at as u16;
    }
}

/// Which part of a datagram lies at this offset, with more to follow or not.
const fn part(offset: u16, more: bool) -> Fragment {
    match (offset, more) {
        (0, false) => Fragment::No,
        (0, true) => Fragment::First,
        _ => Fragment::Later,
    }
}

/// The 16 bits at `at`, if they are there.
fn word(frame: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*frame.get(at)?, *frame.get(at + 1)?]))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests;
