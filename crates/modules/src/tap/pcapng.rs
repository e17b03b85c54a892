//! Capture files: pcapng, with what became of each message.
//!
//! One section; an interface for each name and layer, described when it is first
//! used. Times are in nanoseconds. A message's direction is in `epb_flags`; its
//! fate is in `epb_verdict`, as the nearest XDP action, and by its own name in the
//! comment.
//!
//! Source: draft-ietf-opsawg-pcapng, sections 4.1 to 4.3; linktypes of
//! tcpdump.org.

use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ashway_abi::Count;
use ashway_path::time::Time;

use super::{Bound, Layer, Seen, Watch};

/// Block types.
const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const PACKET: u32 = 6;

/// Options: of every block, of a section, of an interface, of a packet.
const COMMENT: u16 = 1;
const APPLICATION: u16 = 4;
const NAME: u16 = 2;
const RESOLUTION: u16 = 9;
const FLAGS: u16 = 2;
const VERDICT: u16 = 7;

/// A kind of verdict: what an XDP program returned.
const VERDICT_XDP: u8 = 2;

/// Interfaces in one file at most: each is searched for by each message.
const MOST_INTERFACES: usize = 256;

/// Writes a capture file. Each message is one write.
///
/// # Examples
///
/// ```
/// use ashway_abi::Count;
/// use ashway_modules::tap::{Bound, Layer, pcapng::{Record, Writer}};
/// use ashway_path::time::Time;
/// use std::time::Duration;
///
/// let mut writer = Writer::new(Vec::new(), 96, Duration::ZERO)?;
/// writer.write(&Record {
///     at: Time(1_500_000_000),
///     bound: Bound::Inbound,
///     interface: "veth0",
///     layer: Layer::Link,
///     bytes: &[0; 60],
///     fate: Some(Count::DroppedBadLength),
///     comment: "path relay",
/// })?;
/// assert_eq!(writer.into_inner()[..4], [0x0a, 0x0d, 0x0d, 0x0a]);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Writer<W> {
    to: W,
    snaplen: u32,
    epoch: Duration,
    interfaces: Vec<(Box<str>, Layer)>,
    block: Vec<u8>,
    /// Messages that were not written, because of `error`.
    lost: u64,
    error: Option<io::Error>,
}

/// A message to write.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// When it was seen.
    pub at: Time,
    /// Which way it went.
    pub bound: Bound,
    /// Where: an interface's name, or a tap's.
    pub interface: &'a str,
    /// What its bytes begin with.
    pub layer: Layer,
    /// Its bytes.
    pub bytes: &'a [u8],
    /// What became of it, if that is known.
    pub fate: Option<Count>,
    /// Anything else; may be empty.
    pub comment: &'a str,
}

impl<W: Write> Writer<W> {
    /// Begins a file. Of each message at most `snaplen` bytes are kept; `epoch` is
    /// what the Unix clock (UTC) shows at [`Time`] 0.
    ///
    /// # Errors
    ///
    /// What writing returns.
    pub fn new(to: W, snaplen: u32, epoch: Duration) -> io::Result<Self> {
        let mut writer = Self {
            to,
            snaplen,
            epoch,
            interfaces: Vec::new(),
            block: Vec::new(),
            lost: 0,
            error: None,
        };
        writer.begin(SECTION);
        writer.number(0x1a2b_3c4d);
        writer.number(1); // Version 1.0: major and minor, 16 bits each.
        writer.block.extend([0xff; 8]); // Length of the section: not said.
        writer.option(APPLICATION, b"ashway");
        writer.end()?;
        Ok(writer)
    }

    /// Writes a message.
    ///
    /// # Errors
    ///
    /// What writing returns; the file is of no use behind that place.
    /// `InvalidInput` if it is of one interface more than 256; nothing is written
    /// then.
    pub fn write(&mut self, record: &Record<'_>) -> io::Result<()> {
        let interface = self.interface(record.interface, record.layer)?;
        let kept = record.bytes.len().min(self.snaplen as usize);
        let at = self.epoch + Duration::from_nanos(record.at.0);
        let at = at.as_nanos() as u64;
        self.begin(PACKET);
        self.number(interface);
        self.number((at >> 32) as u32);
        self.number(at as u32);
        self.number(kept as u32);
        self.number(record.bytes.len() as u32);
        self.block.extend_from_slice(&record.bytes[..kept]);
        self.pad();
        let flags = match record.bound {
            Bound::Inbound => 1_u32,
            Bound::Outbound => 2,
        };
        self.option(FLAGS, &flags.to_le_bytes());
        if let Some(fate) = record.fate {
            let mut verdict = [VERDICT_XDP, 0, 0, 0, 0, 0, 0, 0, 0];
            verdict[1] = xdp_action(fate);
            self.option(VERDICT, &verdict);
            self.option(COMMENT, fate.name().as_bytes());
        }
        if !record.comment.is_empty() {
            let longest = record.comment.floor_char_boundary(usize::from(u16::MAX));
            self.option(COMMENT, &record.comment.as_bytes()[..longest]);
        }
        self.end()
    }

    /// Messages that [`Watch::see`] could not write.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.lost
    }

    /// Why it could not.
    #[must_use]
    pub const fn error(&self) -> Option<&io::Error> {
        self.error.as_ref()
    }

    /// What is written to.
    #[must_use]
    pub const fn get_ref(&self) -> &W {
        &self.to
    }

    /// The same, to flush it. What else is written there is in the file too.
    pub const fn get_mut(&mut self) -> &mut W {
        &mut self.to
    }

    /// What was written to.
    #[must_use]
    pub fn into_inner(self) -> W {
        self.to
    }

    /// The number of an interface, which is described first if it is new.
    fn interface(&mut self, name: &str, layer: Layer) -> io::Result<u32> {
        let known = self
            .interfaces
            .iter()
            .position(|(known, at)| **known == *name && *at == layer);
        if let Some(known) = known {
            return Ok(known as u32);
        }
        if self.interfaces.len() == MOST_INTERFACES {
            let because = format!("a capture file has {MOST_INTERFACES} interfaces at most");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, because));
        }
        let linktype = match layer {
            Layer::Link => 1_u32,
            // Raw: the version is in the packet.
            Layer::Network => 101,
            // For private use.
            Layer::Payload => 147,
        };
        let snaplen = self.snaplen;
        self.begin(INTERFACE);
        self.number(linktype);
        self.number(snaplen);
        self.option(NAME, name.as_bytes());
        self.option(RESOLUTION, &[9]);
        self.end()?;
        self.interfaces.push((name.into(), layer));
        Ok(self.interfaces.len() as u32 - 1)
    }

    /// Begins a block; its length comes last.
    fn begin(&mut self, kind: u32) {
        self.block.clear();
        self.number(kind);
        self.number(0);
    }

    fn number(&mut self, number: u32) {
        self.block.extend(number.to_le_bytes());
    }

    fn option(&mut self, code: u16, value: &[u8]) {
        self.block.extend(code.to_le_bytes());
        self.block.extend((value.len() as u16).to_le_bytes());
        self.block.extend_from_slice(value);
        self.pad();
    }

    fn pad(&mut self) {
        self.block.resize(self.block.len().next_multiple_of(4), 0);
    }

    /// Ends the options and the block, and writes it.
    fn end(&mut self) -> io::Result<()> {
        self.number(0);
        let len = self.block.len() as u32 + 4;
        self.number(len);
        self.block[4..8].copy_from_slice(&len.to_le_bytes());
        self.to.write_all(&self.block)
    }
}

/// What an XDP program would have returned.
fn xdp_action(fate: Count) -> u8 {
    match fate {
        Count::Passed => 2,
        Count::Answered => 3,
        Count::Consumed | Count::Delivered | Count::Forwarded | Count::Absorbed => 4,
        _ => 1,
    }
}

/// A tap can write into a file. Behind the first error nothing is written any
/// more, and what would have been is counted.
impl<W: Write + Send> Watch for Mutex<Writer<W>> {
    fn see(&self, seen: &Seen<'_>) {
        let mut writer = self.lock().unwrap_or_else(PoisonError::into_inner);
        if writer.error.is_none() {
            let written = writer.write(&Record {
                at: seen.at,
                bound: seen.bound,
                interface: seen.tap,
                layer: seen.layer,
                bytes: seen.bytes,
                fate: None,
                comment: seen.path,
            });
            writer.error = written.err();
        }
        if writer.error.is_some() {
            writer.lost += 1;
        }
    }
}
