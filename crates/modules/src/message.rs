//! A frame on its way through a path.
//!
//! One buffer from the driver to the driver: a layer takes its header off by
//! moving the front, and puts one on by moving it back. Stages hand the buffer
//! on, they never copy it (Scout's fbufs: accessible to all modules of the path
//! already).

use std::net::SocketAddr;
use std::ops::{Deref, DerefMut, Range};

pub use ashway_abi::memory::HEADROOM_BYTES;
use ashway_memory::messages::Buffer;
use ashway_path::time::Time;
use ashway_wire::ipv4::PROTOCOL_UDP;
use ashway_wire::reply::is_host;

/// A message: a handle of one word, so that handing it from stage to stage
/// costs next to nothing. By default it is empty and holds no buffer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message(Box<Body>);

/// What a message is made of. What the present layer sees is
/// [`bytes`](Self::bytes); the rest of the frame stays where it is.
#[derive(Clone, Debug, Default)]
pub struct Body {
    buffer: Buffer,
    /// Invariant: `front <= end <= buffer.len()`.
    front: usize,
    end: usize,
    /// Where the frame ended as it came; within the buffer.
    received: usize,
    /// What the layers below have learned.
    pub meta: Meta,
}

impl Deref for Message {
    type Target = Body;

    fn deref(&self) -> &Body {
        &self.0
    }
}

impl DerefMut for Message {
    fn deref_mut(&mut self) -> &mut Body {
        &mut self.0
    }
}

/// What is known of a message beside its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// Number of the interface it came in by, or is to leave by.
    pub iface: u32,
    /// Receive queue.
    pub queue: u32,
    /// When it arrived.
    pub arrived: Time,
    /// Where the headers of the received frame lie in the buffer, as far as
    /// they were taken off. They are what an answer is made from.
    pub eth: Option<u16>,
    /// The same for IP.
    pub ip: Option<u16>,
    /// The same for the transport protocol.
    pub transport: Option<u16>,
    /// What the present layer is called by its neighbour: on the way up the
    /// `EtherType` behind a link's header and the protocol number behind IP's, on
    /// the way down the number that the layer below has to write; 0 if nobody
    /// said.
    pub protocol: u16,
    /// Sender and receiver, once IP has seen it; ports are 0 until the transport
    /// protocol has.
    pub flow: Option<Flow>,
    /// Bits of [`ashway_abi::context::flag`].
    pub flags: u32,
    /// Its number while somebody observes ([`ashway_abi::observe`]), else 0; what
    /// becomes of its buffer has it, too.
    pub observed: u64,
    /// Its number if what becomes of it is recorded, to be compared; else 0.
    pub recorded: u64,
    /// The fragments that it was put together from, if it was.
    pub parts: Option<Parts>,
    /// How often its payload has been copied since the driver wrote the frame.
    pub copies: u8,
}

/// What is still known of fragments that have become one packet: enough to make
/// them again, for whoever was to have them as they were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// The longest of them in bytes, with IP's header.
    pub longest: u32,
    /// The number that they had in common.
    pub identification: u32,
}

/// Who sends to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Sender.
    pub source: SocketAddr,
    /// Receiver.
    pub destination: SocketAddr,
}

impl Flow {
    /// The way back.
    #[must_use]
    pub const fn turned(self) -> Self {
        Self {
            source: self.destination,
            destination: self.source,
        }
    }
}

impl Message {
    /// A message that holds a copy of `frame`. Allocates.
    #[must_use]
    pub fn of_frame(frame: &[u8]) -> Self {
        let mut message = Self::with_room(frame.len());
        message.fill(frame.len(), |into| into.copy_from_slice(frame));
        message
    }

    /// An empty message with room for a frame of so many bytes. Allocates.
    #[must_use]
    pub fn with_room(frame_bytes: usize) -> Self {
        Self(Box::new(Body {
            buffer: Buffer::new(HEADROOM_BYTES + frame_bytes),
            front: HEADROOM_BYTES,
            end: HEADROOM_BYTES,
            received: HEADROOM_BYTES,
            meta: Meta::default(),
        }))
    }
}

impl Body {
    /// Starts anew with a frame of `len` bytes that `write` copies. Allocates
    /// only if the message never held so long a frame.
    pub fn fill(&mut self, len: usize, write: impl FnOnce(&mut [u8])) {
        if self.buffer.len() < HEADROOM_BYTES + len {
            self.buffer = Buffer::new(HEADROOM_BYTES + len);
        }
        self.meta = Meta {
            copies: 1,
            ..Meta::default()
        };
        self.front = HEADROOM_BYTES;
        self.end = HEADROOM_BYTES + len;
        self.received = self.end;
        write(&mut self.buffer[self.front..self.end]);
    }

    /// Starts anew with a frame of `len` bytes that was written into this buffer, behind
    /// [`HEADROOM_BYTES`]; copies nothing.
    ///
    /// # Panics
    ///
    /// If the buffer is too short for that.
    pub fn put(&mut self, buffer: Buffer, len: usize) {
        self.exchange(len, |own| {
            *own = buffer;
            Some(())
        });
    }

    /// The same of a buffer that `turn` makes of the present one, if it says so; else nothing
    /// has changed.
    ///
    /// # Panics
    ///
    /// As there.
    pub fn exchange<T>(
        &mut self,
        len: usize,
        turn: impl FnOnce(&mut Buffer) -> Option<T>,
    ) -> Option<T> {
        let turned = turn(&mut self.buffer)?;
        assert!(
            self.buffer.len() >= HEADROOM_BYTES + len,
            "the frame lies in it"
        );
        self.fill(len, |_| ());
        Some(turned)
    }

    /// The buffer: for whoever has to know where it is from.
    #[must_use]
    pub const fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    /// Back to the frame as it came, padding included: for the host, or for
    /// another path. What the layers have learned is forgotten; when, where and in
    /// which parts it came is not. Bytes that somebody has changed stay changed.
    pub fn rewind(&mut self) {
        (self.front, self.end) = (HEADROOM_BYTES, self.received);
        self.meta = Meta {
            iface: self.meta.iface,
            queue: self.meta.queue,
            arrived: self.meta.arrived,
            observed: self.meta.observed,
            parts: self.meta.parts,
            copies: self.meta.copies,
            ..Meta::default()
        };
    }

    /// Does the inbound half of a link, IP and UDP at once, for a frame whose
    /// headers somebody has found and judged: the entry program, or
    /// [`wire::Datagram`](ashway_wire::Datagram). Network, transport and payload
    /// start at `starts`, the payload ends before `end`, all counted from the
    /// frame's first byte. False if they do not lie in this order within the
    /// frame; the message is unchanged then.
    pub fn enter(&mut self, starts: [usize; 3], end: usize, flow: Flow, flags: u32) -> bool {
        let [network, transport, payload] = starts;
        let front = self.front;
        let ordered = network <= transport && transport <= payload && payload <= end;
        let places = [0, network, transport].map(|at| u16::try_from(front + at));
        let ([Ok(eth), Ok(ip), Ok(udp)], true) = (places, ordered && end <= self.len()) else {
            return false;
        };
        self.end = front + end;
        self.front = front + payload;
        let meta = &mut self.meta;
        (meta.eth, meta.ip, meta.transport) = (Some(eth), Some(ip), Some(udp));
        meta.protocol = u16::from(PROTOCOL_UDP);
        meta.flow = Some(flow);
        meta.flags |= flags;
        true
    }

    /// What the present layer sees.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[self.front..self.end]
    }

    /// The same, to write.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[self.front..self.end]
    }

    /// What lies in front of it in the frame, and what the present layer sees, to
    /// write.
    pub fn split(&mut self) -> (&[u8], &mut [u8]) {
        let (before, here) = self.buffer[..self.end].split_at_mut(self.front);
        (before.get(HEADROOM_BYTES..).unwrap_or_default(), here)
    }

    /// The frame's bytes and the room behind it, and where in them lies what the present
    /// layer sees: for whoever works on that in its place, and may make it
    /// [longer](Self::set_len).
    pub fn whole(&mut self) -> (&mut [u8], usize) {
        let first = HEADROOM_BYTES.min(self.front);
        (&mut self.buffer[first..], self.front - first)
    }

    /// Makes sure that there is room for so many bytes behind what the present layer sees.
    /// Copies and allocates if there is not.
    pub fn make_room(&mut self, bytes: usize) {
        if self.buffer.grow(self.end + bytes) {
            self.copied();
        }
    }

    /// Says how long the message is that somebody has worked on in its place.
    ///
    /// # Panics
    ///
    /// If there is no room for so many bytes.
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= self.buffer.len() - self.front, "there is room");
        self.end = self.front + len;
    }

    /// Length of what the present layer sees, in bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.end - self.front
    }

    /// Whether the present layer sees nothing.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.front == self.end
    }

    /// Takes a header of so many bytes off the front and says where in the
    /// buffer it lies; `None` if the message is shorter.
    pub fn pop(&mut self, header_bytes: usize) -> Option<u16> {
        if header_bytes > self.len() {
            return None;
        }
        let place = u16::try_from(self.front).ok()?;
        self.front += header_bytes;
        Some(place)
    }

    /// Puts a header of so many bytes in front, with whatever lies there, and
    /// returns it with the rest behind it; `None` if there is no room.
    pub fn push(&mut self, header_bytes: usize) -> Option<&mut [u8]> {
        self.front = self.front.checked_sub(header_bytes)?;
        Some(self.bytes_mut())
    }

    /// Goes back to a header that lies in front, from where it was popped;
    /// `None` if `place` is not in front.
    pub fn back_to(&mut self, place: u16) -> Option<&mut [u8]> {
        self.push(self.front.checked_sub(usize::from(place))?)
    }

    /// Cuts what lies behind the first `len` bytes: padding, surplus.
    pub fn truncate(&mut self, len: usize) {
        self.end = self.end.min(self.front + len);
    }

    /// Makes the message `len` bytes long; new bytes are 0. Allocates if it
    /// never was so long.
    pub fn resize(&mut self, len: usize) {
        let end = self.front + len;
        if self.buffer.grow(end) {
            self.copied();
        }
        if end > self.end {
            self.buffer[self.end..end].fill(0);
        }
        self.end = end;
    }

    /// Writes part of what the present layer sees anew: `write` makes what comes into
    /// its place, in another buffer, of what is there. If it says so, that becomes the
    /// message's buffer, with the rest of the frame copied to it; else nothing has
    /// changed. Says which. Takes a buffer.
    ///
    /// # Panics
    ///
    /// If the present layer does not see `part`.
    pub fn rewrite(
        &mut self,
        part: Range<usize>,
        write: impl FnOnce(&[u8], &mut [u8]) -> bool,
    ) -> bool {
        assert!(part.end <= self.len(), "part of the message");
        let (start, end) = (self.front + part.start, self.front + part.end);
        let mut other = Buffer::new(self.buffer.len());
        let written = write(&self.buffer[start..end], &mut other[start..end]);
        if written {
            let last = self.received.max(self.end);
            other[..start].copy_from_slice(&self.buffer[..start]);
            other[end..last].copy_from_slice(&self.buffer[end..last]);
            self.buffer = other;
            self.copied();
        }
        written
    }

    /// Notes that somebody has copied the payload.
    pub const fn copied(&mut self) {
        self.meta.copies = self.meta.copies.saturating_add(1);
    }

    /// Forgets the headers it came with: the layers below will write new ones.
    pub fn forget_headers(&mut self) {
        self.meta.eth = None;
        self.meta.ip = None;
        self.meta.transport = None;
    }

    /// The bytes of the header at `place`, as long as it is in front.
    #[must_use]
    pub fn header(&self, place: u16) -> &[u8] {
        self.buffer
            .get(usize::from(place)..self.front)
            .unwrap_or(&[])
    }

    /// A message like this one (link's header, where and when it came) that
    /// has these bytes, one behind the other, instead of what the present layer
    /// sees. Allocates and copies.
    #[must_use]
    pub fn with_packet(&self, parts: &[&[u8]]) -> Message {
        let link = self.meta.eth.map_or(&[][..], |place| self.header(place));
        let len = link.len() + parts.iter().map(|part| part.len()).sum::<usize>();
        let mut message = Message::with_room(len);
        message.fill(len, |mut into| {
            for part in std::iter::once(&link).chain(parts) {
                let (here, rest) = into.split_at_mut(part.len());
                here.copy_from_slice(part);
                into = rest;
            }
        });
        message.meta = Meta {
            eth: message.pop(link.len()).filter(|_| self.meta.eth.is_some()),
            ip: None,
            transport: None,
            copies: self.meta.copies.saturating_add(1),
            ..self.meta
        };
        message
    }

    /// The frame from its link's header to the end of what the present layer
    /// sees; `None` if no link's header was taken off.
    #[must_use]
    pub fn frame(&self) -> Option<&[u8]> {
        self.buffer.get(usize::from(self.meta.eth?)..self.end)
    }

    /// The same with what is behind: padding, surplus.
    #[must_use]
    pub fn received(&self) -> Option<&[u8]> {
        self.buffer.get(usize::from(self.meta.eth?)..self.received)
    }

    /// Whether it is an answer, made of a frame that came in one part, and not longer
    /// than that.
    #[must_use]
    pub const fn came_so_long(&self) -> bool {
        self.meta.eth.is_some() && self.meta.parts.is_none() && self.end <= self.received
    }

    /// Bytes of memory that the message holds.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        size_of::<Message>() + size_of::<Self>() + self.buffer.len()
    }

    /// Whether an answer can be sent to where the message came from: RFC 1122
    /// §3.2.1.3 and a sender's port (RFC 768); of what only a link has seen, whether
    /// its sender is a station.
    #[must_use]
    pub fn can_be_answered(&self) -> bool {
        let from_group = self.meta.eth.is_some_and(|place| {
            self.header(place)
                .get(6..12)
                .is_none_or(|source| source[0] & 1 != 0)
        });
        let has_sender = match self.meta.flow {
            None => self.meta.eth.is_some() && self.meta.ip.is_none(),
            Some(flow) => {
                is_host(flow.source.ip())
                    && is_host(flow.destination.ip())
                    && (self.meta.transport.is_none() || flow.source.port() != 0)
            }
        };
        has_sender && !from_group
    }
}

/// What has been in the buffer before is no part of a message.
impl PartialEq for Body {
    fn eq(&self, other: &Self) -> bool {
        let of = |body: &Self| (body.front, body.end, body.received, body.meta);
        let first = HEADROOM_BYTES.min(self.front);
        let all = first..self.end.max(self.received);
        of(self) == of(other) && self.buffer[all.clone()] == other.buffer[all]
    }
}

impl Eq for Body {}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn headers_come_off_and_go_back_on_without_a_copy() {
        let mut message = Message::of_frame(b"ethipudp!");
        let address = message.bytes().as_ptr();
        let eth = message.pop(3).unwrap();
        let ip = message.pop(2).unwrap();
        assert_eq!(message.bytes(), b"udp!");
        assert_eq!(message.header(ip), b"ip");
        assert_eq!(message.pop(5), None);
        message.truncate(3);
        message.back_to(ip).unwrap();
        message.back_to(eth).unwrap();
        assert_eq!(message.bytes(), b"ethipudp");
        assert_eq!(message.bytes().as_ptr(), address);
        assert!(message.push(HEADROOM_BYTES + 1).is_none());
        assert_eq!(message.bytes(), b"ethipudp");
        message.resize(10);
        assert_eq!(message.bytes(), b"ethipudp\0\0");
    }

    #[test]
    fn a_used_message_takes_the_next_frame_without_allocating() {
        let mut message = Message::of_frame(&[7; 100]);
        let address = message.bytes().as_ptr();
        message.pop(50).unwrap();
        message.meta.eth = Some(3);
        message.fill(60, |into| into.fill(9));
        assert_eq!(message.bytes(), [9; 60]);
        assert_eq!(message.bytes().as_ptr(), address);
        assert_eq!((message.meta.eth, message.meta.copies), (None, 1));
    }

    #[test]
    fn a_part_is_written_anew_if_the_writer_says_so() {
        let mut message = Message::of_frame(b"ethpayload..");
        message.meta.eth = message.pop(3);
        message.truncate(7);
        let mut written = message.clone();
        assert!(!written.rewrite(1..5, |_, into| {
            into.fill(b'!');
            false
        }));
        assert_eq!(written, message);
        assert!(written.rewrite(1..5, |from, into| {
            assert_eq!(from, b"aylo");
            into.copy_from_slice(b"AYLO");
            true
        }));
        assert_eq!(written.bytes(), b"pAYLOad");
        assert_eq!(written.received(), Some(&b"ethpAYLOad.."[..]));
    }

    #[test]
    fn a_message_can_be_rewound_and_get_another_packet() {
        let mut message = Message::of_frame(b"ethpacket..");
        message.meta.arrived = Time(9);
        message.meta.eth = message.pop(3);
        message.truncate(6);
        let mut other = message.with_packet(&[b"new ", b"packet"]);
        assert_eq!(other.bytes(), b"new packet");
        assert_eq!(other.frame(), Some(&b"ethnew packet"[..]));
        other.rewind();
        assert_eq!(other.bytes(), b"ethnew packet");
        assert_eq!((other.meta.arrived, other.meta.eth), (Time(9), None));
        message.rewind();
        assert_eq!(message.bytes(), b"ethpacket..");
        let bare = message.with_packet(&[b"packet"]);
        assert_eq!((bare.bytes(), bare.frame()), (&b"packet"[..], None));
    }

    #[test]
    fn only_ordered_places_within_the_frame_are_entered() {
        let flow = Flow {
            source: "10.0.0.1:1".parse().unwrap(),
            destination: "10.0.0.2:2".parse().unwrap(),
        };
        let message = Message::of_frame(b"ethipudppayload..");
        for (starts, end) in [
            ([5, 3, 8], 15),
            ([3, 8, 5], 15),
            ([3, 5, 16], 15),
            ([3, 5, 8], 18),
        ] {
            let mut same = message.clone();
            assert!(!same.enter(starts, end, flow, 0));
            assert_eq!(same, message);
        }
        let mut entered = message.clone();
        assert!(entered.enter([3, 5, 8], 15, flow, 0));
        assert_eq!(entered.bytes(), b"payload");
        assert_eq!(entered.header(entered.meta.ip.unwrap()), b"ipudp");
        assert_eq!(entered.header(entered.meta.transport.unwrap()), b"udp");
        assert_eq!(entered.frame(), Some(&b"ethipudppayload"[..]));
    }
}
