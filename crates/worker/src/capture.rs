//! Reads a capture, frame by frame: pcap and pcapng.
//!
//! What a capture says is alleged: it may be cut anywhere, or nonsense. Reading ends at the first
//! thing that is broken, and says what that is.
//!
//! Source: draft-ietf-opsawg-pcap, draft-ietf-opsawg-pcapng (sections 4.1 to 4.4).

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::time::Duration;

use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::{Block, PcapNgReader};
use pcap_file::{DataLink, PcapError};

/// What a pcapng file begins with.
const PCAPNG: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

/// A capture of Ethernet frames. Holds 8 MB of it in memory.
pub struct CaptureReader {
    source: Source,
    ended: bool,
}

enum Source {
    Pcap(PcapReader<File>),
    PcapNg(PcapNgReader<File>, Vec<Interface>),
}

/// What a section says of an interface.
#[derive(Clone, Copy)]
struct Interface {
    link: DataLink,
    /// Units of its time stamps in a second.
    ticks: u128,
    /// Seconds to add to them.
    offset: i64,
}

/// What is said of a frame beside its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapturedFrame {
    /// When it was seen, since 1970 (UTC); 0 if that is not said.
    pub time: Duration,
    /// How long it was on the wire: more than there is of it if the capture has cut it.
    pub bytes: u32,
}

impl std::fmt::Debug for CaptureReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match self.source {
            Source::Pcap(_) => "pcap",
            Source::PcapNg(..) => "pcapng",
        };
        f.debug_tuple("CaptureReader").field(&kind).finish()
    }
}

impl CaptureReader {
    /// Begins to read.
    ///
    /// # Errors
    ///
    /// Why it is no capture of Ethernet frames, in words.
    pub fn new(mut file: File) -> Result<Self, String> {
        // It is read from its start twice.
        let is_file = file.metadata().is_ok_and(|metadata| metadata.is_file());
        if !is_file {
            return Err("it is no file that can be read twice".to_owned());
        }
        let mut magic = [0; 4];
        let start = file.read_exact(&mut magic);
        start.map_err(|_| "it is too short for a capture".to_owned())?;
        let back = file.seek(SeekFrom::Start(0));
        back.map_err(|error| error.to_string())?;
        let source = if magic == PCAPNG {
            let reader = PcapNgReader::new(file).map_err(|error| in_words(&error))?;
            Source::PcapNg(reader, Vec::new())
        } else {
            let reader = PcapReader::new(file).map_err(|error| in_words(&error))?;
            let link = reader.header().datalink;
            if link != DataLink::ETHERNET {
                return Err(link_words(link));
            }
            Source::Pcap(reader)
        };
        Ok(Self {
            source,
            ended: false,
        })
    }

    /// Reads the next frame into `into`; `None` at the end of the file. May wait for the disk.
    ///
    /// # Errors
    ///
    /// What is broken there, in words. Nothing is read behind it.
    pub fn next(&mut self, into: &mut Vec<u8>) -> Result<Option<CapturedFrame>, String> {
        into.clear();
        if self.ended {
            return Ok(None);
        }
        let next = match &mut self.source {
            Source::Pcap(reader) => next_packet(reader, into),
            Source::PcapNg(reader, interfaces) => next_block(reader, interfaces, into),
        };
        self.ended = !matches!(next, Ok(Some(_)));
        next
    }
}

fn next_packet(
    reader: &mut PcapReader<File>,
    into: &mut Vec<u8>,
) -> Result<Option<CapturedFrame>, String> {
    let header = reader.header();
    let Some(packet) = reader.next_raw_packet() else {
        return Ok(None);
    };
    let packet = packet.and_then(|mut packet| {
        let bytes = packet.orig_len;
        // The library takes a frame that was cut to this for an error.
        packet.orig_len = bytes.min(header.snaplen);
        let packet = packet.try_into_pcap_packet(header.ts_resolution, header.snaplen)?;
        into.extend_from_slice(&packet.data);
        Ok(CapturedFrame {
            time: packet.timestamp,
            bytes,
        })
    });
    packet.map(Some).map_err(|error| in_words(&error))
}

fn next_block(
    reader: &mut PcapNgReader<File>,
    interfaces: &mut Vec<Interface>,
    into: &mut Vec<u8>,
) -> Result<Option<CapturedFrame>, String> {
    while let Some(block) = reader.next_block() {
        let (interface, ticks, data, bytes) = match block.map_err(|error| in_words(&error))? {
            Block::SectionHeader(_) => {
                interfaces.clear();
                continue;
            }
            Block::InterfaceDescription(interface) => {
                interfaces.push(Interface::of(&interface));
                continue;
            }
            Block::EnhancedPacket(packet) => {
                // The library takes each unit for a nanosecond.
                let ticks = packet.timestamp.as_nanos();
                (packet.interface_id, ticks, packet.data, packet.original_len)
            }
            Block::SimplePacket(packet) => (0, 0, packet.data, packet.original_len),
            _ => continue,
        };
        return match interfaces.get(interface as usize) {
            Some(interface) if interface.link == DataLink::ETHERNET => {
                into.extend_from_slice(&data);
                let time = interface.time(ticks);
                Ok(Some(CapturedFrame { time, bytes }))
            }
            Some(interface) => Err(link_words(interface.link)),
            None => Err("it belongs to an interface that is not described".to_owned()),
        };
    }
    Ok(None)
}

impl Interface {
    fn of(block: &InterfaceDescriptionBlock<'_>) -> Self {
        let mut interface = Self {
            link: block.linktype,
            ticks: 1_000_000,
            offset: 0,
        };
        for option in &block.options {
            match option {
                InterfaceDescriptionOption::IfTsResol(power) => {
                    let base = if power & 0x80 == 0 { 10_u128 } else { 2 };
                    let ticks = base.checked_pow(u32::from(power & 0x7f));
                    interface.ticks = ticks.unwrap_or(u128::MAX);
                }
                InterfaceDescriptionOption::IfTsOffset(offset) => {
                    interface.offset = offset.cast_signed();
                }
                _ => {}
            }
        }
        interface
    }

    /// The time of so many units; 0 for one before 1970.
    fn time(&self, ticks: u128) -> Duration {
        let (seconds, part) = (ticks / self.ticks, ticks % self.ticks);
        // Finer than a nanosecond: the product would not fit.
        let nanos = match part.checked_mul(1_000_000_000) {
            Some(product) => product / self.ticks,
            None => part / (self.ticks / 1_000_000_000),
        };
        let seconds = seconds as u64;
        let seconds = seconds.checked_add_signed(self.offset).unwrap_or(0);
        Duration::new(seconds, (nanos as u32).min(999_999_999))
    }
}

fn link_words(link: DataLink) -> String {
    format!("its packets are not Ethernet frames but of link type {link:?}")
}

fn in_words(error: &PcapError) -> String {
    match error {
        PcapError::IoError(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            "the file ends in the middle of it".to_owned()
        }
        PcapError::IoError(error) => error.to_string(),
        // The only field that is tested in a record.
        PcapError::InvalidField(what) if what.contains("snap_len") => {
            "it is longer than the capture's own limit (snaplen)".to_owned()
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_of_time_stamps_are_the_interfaces_own() {
        let time = |ticks: u128, offset, stamp| {
            let link = DataLink::ETHERNET;
            let interface = Interface {
                link,
                ticks,
                offset,
            };
            interface.time(stamp)
        };
        let second = Duration::from_millis(1500);
        assert_eq!(time(1_000_000, 0, 1_500_000), second);
        assert_eq!(time(1_000_000_000, 0, 1_500_000_000), second);
        assert_eq!(time(1 << 10, 0, 1536), second);
        assert_eq!(time(1, 7, 3), Duration::from_secs(10));
        // A capture may say anything.
        assert_eq!(time(1, i64::MIN, 3), Duration::from_nanos(0));
        for ticks in [1, 10_u128.pow(38), 1 << 127, u128::MAX] {
            time(ticks, i64::MAX, u128::from(u64::MAX));
        }
    }
}
