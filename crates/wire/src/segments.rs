//! Segments: many messages behind one header, taken apart.
//!
//! A sender's UDP batch (`UDP_SEGMENT`), a TCP stream that nobody has cut yet and what a
//! receiver has joined (GRO) come as one packet: one header, and beside it `gso_size`, how
//! long the payload of each message is that it stands for. This writes each of them, as a
//! device would have put it on the wire: every segment has the headers of the whole, with
//! its own lengths, its own IPv4 identification and its own checksums, whole.
//!
//! * **UDP**: each piece of the payload is a datagram. One whose whole had no checksum has
//!   none (IPv4 only).
//! * **TCP**: each has its place as its sequence number. FIN and PSH are the last one's, CWR
//!   is the first one's (RFC 3168 §6.1.2). With `AccECN`, where CWR is a part of a counter
//!   (RFC 9768), the others would have it, too; `gso_size` does not say which it is.
//! * What a tunnel carries has two headers to be written anew for each, of which the outer one
//!   says nothing: that is refused, and so is any other protocol.
//!
//! `gso_size` is believed as far as it goes: 0, or more than there is, makes one message. One
//! that no sender of Linux' has is refused ([`MOST_DATAGRAMS`], [`LEAST_OF_TCP`]): who may send by
//! packet sockets or a TAP could else have a worker make 64 Ki messages of one frame.
//!
//! Source: `Documentation/networking/segmentation-offloads.rst` in the kernel,
//! `tcp_gso_segment`, `__udp_gso_segment` and `inet_gso_segment` of Linux 6.18.

use crate::bug::{self, Bug};
use crate::checksum::{Sum, pseudo_v4, pseudo_v6};
use crate::eth::{self, array};
use crate::headers::{Fragment, Headers};
use crate::{ipv4, ipv6, tcp, udp};

/// Datagrams behind one header, at most (`UDP_MAX_SEGMENTS`, Linux 6.18; 64 before 6.9).
const MOST_DATAGRAMS: usize = 128;

/// Bytes of payload of TCP's segments, at least (`TCP_MIN_GSO_SIZE`, the same).
const LEAST_OF_TCP: usize = 8;

/// Why a packet is not taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotSegments {
    /// Its lengths contradict each other or the frame, or a header is cut, or `gso_size` is
    /// shorter than any sender's.
    BadLength,
    /// It is neither UDP nor TCP over IP, or a tunnel, or a fragment.
    Unknown,
}

/// A packet that stands for segments.
#[derive(Clone, Copy, Debug)]
pub struct Segments<'f> {
    /// Ends where the last payload does.
    frame: &'f [u8],
    headers: Headers,
    /// Where the payload starts.
    payload: usize,
    /// Bytes of payload of each but the last.
    size: usize,
}

impl<'f> Segments<'f> {
    /// What a frame stands for whose `gso_size` is this. Constant time.
    ///
    /// # Errors
    ///
    /// [`NotSegments`].
    pub fn parse(frame: &'f [u8], gso_size: usize) -> Result<Self, NotSegments> {
        let headers = Headers::parse(frame);
        let (l3, l4) = (usize::from(headers.l3), usize::from(headers.l4));
        let is_ip = matches!(headers.ethertype, eth::TYPE_IPV4 | eth::TYPE_IPV6);
        if !is_ip || headers.fragment != Fragment::No || headers.vni.is_some() {
            return Err(NotSegments::Unknown);
        }
        if l3 == 0 || l4 == 0 {
            return Err(NotSegments::BadLength);
        }
        let packet = &frame[l3..];
        let len = if headers.ethertype == eth::TYPE_IPV4 {
            ipv4::Packet::new_checked(packet).map(|ip| usize::from(ip.total_len()))
        } else {
            ipv6::Packet::new_checked(packet)
                .map(|ip| ipv6::HEADER_BYTES + usize::from(ip.payload_len()))
        };
        let end = l3 + len.ok_or(NotSegments::BadLength)?;
        let transport = frame.get(l4..end).ok_or(NotSegments::BadLength)?;
        let (header, end) = match headers.protocol {
            ipv4::PROTOCOL_UDP => {
                let udp = udp::Packet::new_checked(transport).ok_or(NotSegments::BadLength)?;
                // What is behind the datagram is of none (RFC 9868).
                (udp::HEADER_BYTES, l4 + usize::from(udp.length()))
            }
            ipv4::PROTOCOL_TCP => {
                let tcp = tcp::Packet::new_checked(transport).ok_or(NotSegments::BadLength)?;
                (tcp.header_len(), end)
            }
            _ => return Err(NotSegments::Unknown),
        };
        let least = match headers.protocol {
            ipv4::PROTOCOL_UDP => udp::HEADER_BYTES,
            _ => tcp::HEADER_BYTES,
        };
        let payload = l4 + header;
        if header < least || payload > end || end > l4 + transport.len() {
            return Err(NotSegments::BadLength);
        }
        let whole = end - payload;
        let least = match headers.protocol {
            ipv4::PROTOCOL_UDP => whole.div_ceil(MOST_DATAGRAMS),
            _ => LEAST_OF_TCP,
        };
        if (1..least).contains(&gso_size) && !bug::is(Bug::SegmentsUnbounded) {
            return Err(NotSegments::BadLength);
        }
        let size = match gso_size {
            0 => whole,
            size => size,
        };
        Ok(Self {
            frame: &frame[..end],
            headers,
            payload,
            size: size.max(1),
        })
    }

    /// How many messages it stands for, at least one.
    #[must_use]
    pub const fn count(&self) -> usize {
        let segments = (self.frame.len() - self.payload).div_ceil(self.size);
        if segments == 0 { 1 } else { segments }
    }

    /// Length of the frame of segment `number`, headers and all.
    ///
    /// # Panics
    ///
    /// If there are not so many.
    #[must_use]
    pub fn frame_len(&self, number: usize) -> usize {
        self.payload + self.piece(number).len()
    }

    /// Its part of the payload.
    fn piece(&self, number: usize) -> &'f [u8] {
        assert!(number < self.count(), "there are not so many segments");
        let rest = &self.frame[self.payload + number * self.size..];
        &rest[..self.size.min(rest.len())]
    }

    /// Writes the frame of segment `number`. Linear in its length.
    ///
    /// # Panics
    ///
    /// If there are not so many, or `into` is not as long as [`frame_len`](Self::frame_len)
    /// says.
    pub fn write(&self, number: usize, into: &mut [u8]) {
        let (front, payload) = into.split_at_mut(self.payload);
        front.copy_from_slice(&self.frame[..self.payload]);
        payload.copy_from_slice(self.piece(number));
        let l3 = usize::from(self.headers.l3);
        let transport_at = usize::from(self.headers.l4);
        let is_last = number + 1 == self.count();
        self.network(number, &mut into[l3..]);
        let transport = &mut into[transport_at..];
        let len = transport.len();
        match self.headers.protocol {
            ipv4::PROTOCOL_UDP => {
                if let Some(mut udp) = udp::Packet::new_checked(transport) {
                    let len = if is_last && bug::is(Bug::LastSegmentLength) {
                        udp::HEADER_BYTES + self.size
                    } else {
                        len
                    };
                    udp.set_length(len as u16);
                    if udp.checksum() != 0 || self.headers.ethertype != eth::TYPE_IPV4 {
                        udp.fill_checksum(self.pseudo_header(len));
                    }
                }
            }
            _ => {
                if let Some(mut tcp) = tcp::Packet::new_checked(transport) {
                    tcp.move_sequence((number * self.size) as u32);
                    tcp.keep_flags(number == 0, is_last || bug::is(Bug::SegmentFlags));
                    tcp.fill_checksum(self.pseudo_header(len));
                }
            }
        }
    }

    /// Writes lengths, identification and checksum of IP's header.
    fn network(&self, number: usize, packet: &mut [u8]) {
        let len = packet.len();
        if self.headers.ethertype == eth::TYPE_IPV4 {
            if let Some(mut ip) = ipv4::Packet::new_checked(packet) {
                ip.set_total_len(len as u16);
                let first = ip.identification();
                ip.set_identification(first.wrapping_add(number as u16));
                ip.fill_checksum();
            }
        } else if let Some(mut ip) = ipv6::Packet::new_checked(packet) {
            ip.set_payload_len((len - ipv6::HEADER_BYTES) as u16);
        }
    }

    fn pseudo_header(&self, len: usize) -> Sum {
        let Headers {
            source,
            destination,
            protocol,
            ..
        } = self.headers;
        match self.headers.ethertype {
            eth::TYPE_IPV4 => pseudo_v4(
                array(&source, 0),
                array(&destination, 0),
                protocol,
                len as u16,
            ),
            _ => pseudo_v6(source, destination, protocol, len as u32),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests;
