//! Messages out of captures, and captures out of verdicts.

use std::fs::File;
use std::io::BufWriter;
use std::os::unix::fs::MetadataExt;
use std::path::Path as FsPath;
use std::time::Duration;

use ashway_abi::Verdict;
use ashway_config as config;
use ashway_trial::Activation;
use ashway_wire::{Datagram, Malformed, Message, make_reply};
use ashway_worker::capture::{CaptureReader, CapturedFrame};
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use pcap_file::{DataLink, TsResolution};

use crate::failure::{Exit, Failure};

/// What the handler sees of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(in crate::commands) enum Layer {
    /// The payload of each UDP datagram, as on a path
    Udp,
    /// The whole frame
    Eth,
}

/// A frame, or bytes that never were in one.
#[derive(Clone, Debug)]
pub(in crate::commands) struct Packet {
    time: Duration,
    /// As captured.
    pub(in crate::commands) frame: Vec<u8>,
    pub(super) content: Content,
}

/// What is in a packet for the handler.
#[derive(Clone, Copy, Debug)]
pub(super) enum Content {
    /// All of it.
    Whole,
    /// A UDP payload, in the frame without its VLAN tags.
    Udp { message: Message, tags: usize },
    /// No UDP datagram: the host's business.
    NotUdp,
    /// The capture has not all of the frame.
    Cut,
    /// A datagram that a node drops.
    Malformed(Malformed),
}

/// What a capture held.
#[derive(Debug, Default)]
pub(in crate::commands) struct Capture {
    pub(in crate::commands) packets: Vec<Packet>,
    /// Why it could not be read to its end.
    pub(in crate::commands) broken: Option<String>,
}

impl Packet {
    /// A message from the command line.
    pub(super) fn bytes(frame: Vec<u8>) -> Self {
        Self {
            time: Duration::ZERO,
            frame,
            content: Content::Whole,
        }
    }

    /// A frame that had `bytes` on the wire.
    fn frame(time: Duration, frame: Vec<u8>, bytes: u32, layer: Layer) -> Self {
        let content = match layer {
            _ if frame.len() < bytes as usize => Content::Cut,
            Layer::Eth => Content::Whole,
            Layer::Udp => udp(&frame),
        };
        Self {
            time,
            frame,
            content,
        }
    }

    /// What the handler gets, if it gets any.
    pub(super) fn message(&self) -> Option<&[u8]> {
        match self.content {
            Content::Whole => Some(&self.frame),
            Content::Udp { message, tags } => {
                let start = message.payload_off + tags;
                Some(&self.frame[start..start + message.payload_len])
            }
            Content::NotUdp | Content::Cut | Content::Malformed(_) => None,
        }
    }

    /// Why the handler gets nothing.
    pub(super) fn skipped(&self) -> Option<&'static str> {
        match self.content {
            Content::Whole | Content::Udp { .. } => None,
            Content::NotUdp => Some("not UDP, passed"),
            Content::Cut => Some("cut short in the capture"),
            Content::Malformed(Malformed::Fragment) => Some("fragment, dropped"),
            Content::Malformed(Malformed::BadLength) => Some("bad length, dropped"),
            Content::Malformed(Malformed::BadIpChecksum) => Some("bad IP checksum, dropped"),
            Content::Malformed(Malformed::BadUdpChecksum) => Some("bad UDP checksum, dropped"),
        }
    }

    /// The frame that leaves, if one does: an answer, or what the host gets.
    pub(super) fn output(&self, activation: Option<&Activation>) -> Option<Vec<u8>> {
        let Some(activation) = activation else {
            return matches!(self.content, Content::NotUdp).then(|| self.frame.clone());
        };
        match activation.verdict() {
            Some(Verdict::Reply) => self.reply(&activation.message),
            // What a handler has changed is never passed on, and a path's
            // `on_fault` is `pass` unless it says otherwise.
            Some(Verdict::Pass | Verdict::Abort) | None if !activation.is_spoiled() => {
                Some(self.frame.clone())
            }
            _ => None,
        }
    }

    /// The answer, with addresses swapped and new checksums; as the handler
    /// made it if it saw all of the frame.
    fn reply(&self, message: &[u8]) -> Option<Vec<u8>> {
        let Content::Udp {
            message: place,
            tags,
        } = self.content
        else {
            return Some(message.to_vec());
        };
        let mut frame = untagged(&self.frame, tags);
        frame[place.payload_off..][..place.payload_len].copy_from_slice(message);
        let len = make_reply(&mut frame, place.payload_off, place.payload_len).ok()?;
        frame.truncate(len);
        frame.splice(12..12, self.frame[12..12 + tags].iter().copied());
        Some(frame)
    }
}

/// Bytes of the VLAN tags (IEEE 802.1Q, 802.1ad), of which there are at most two.
fn tags(frame: &[u8]) -> usize {
    let tagged = |at: usize| matches!(frame.get(at..at + 2), Some([0x81, 0x00] | [0x88, 0xa8]));
    match (tagged(12), tagged(16)) {
        (false, _) => 0,
        (true, false) => 4,
        (true, true) => 8,
    }
}

fn untagged(frame: &[u8], tags: usize) -> Vec<u8> {
    [&frame[..12], &frame[12 + tags..]].concat()
}

fn udp(frame: &[u8]) -> Content {
    let tags = tags(frame);
    if frame.len() < 12 + tags {
        return Content::NotUdp;
    }
    let frame = untagged(frame, tags);
    match Datagram::parse(&frame).map(|datagram| datagram.validate(&frame)) {
        Err(_) => Content::NotUdp,
        Ok(Ok(message)) => Content::Udp { message, tags },
        Ok(Err(malformed)) => Content::Malformed(malformed),
    }
}

/// Reads a capture (pcap or pcapng) up to its end or to what is broken in it.
pub(in crate::commands) fn read(file: &FsPath, layer: Layer) -> Result<Capture, Failure> {
    let unreadable = |error: &dyn std::fmt::Display| {
        let shown = file.display().to_string();
        let mut failure =
            Failure::new(Exit::Usage, format!("cannot read `{shown}`")).because(error);
        failure.file = Some(shown);
        failure
    };
    let opened = config::open_or_pipe(file).map_err(|error| unreadable(&error))?;
    let reader = CaptureReader::new(opened);
    let mut reader = reader.map_err(|because| unreadable(&because).hint(CAPTURE))?;
    let mut capture = Capture::default();
    let mut frame = Vec::new();
    loop {
        match reader.next(&mut frame) {
            Ok(Some(CapturedFrame { time, bytes })) => {
                let frame = Packet::frame(time, frame.clone(), bytes, layer);
                capture.packets.push(frame);
            }
            Ok(None) => return Ok(capture),
            Err(broken) => {
                capture.broken = Some(broken);
                return Ok(capture);
            }
        }
    }
}

/// What is wanted.
const CAPTURE: &str = "give a pcap or pcapng file of Ethernet frames (`tcpdump -i IFACE -w FILE`)";

/// Whether both are one file, by whatever name.
pub(super) fn same(one: &FsPath, other: &FsPath) -> bool {
    let number = |file: &FsPath| {
        let metadata = file.metadata().ok()?;
        Some((metadata.dev(), metadata.ino()))
    };
    number(one).is_some_and(|one| number(other) == Some(one))
}

/// Writes what left, in the order of what came. Returns how many frames.
pub(super) fn write(
    file: &FsPath,
    packets: &[Packet],
    activations: &[Option<Activation>],
) -> Result<usize, Failure> {
    let failed = |error: &dyn std::fmt::Display| {
        let what = format!("cannot write `{}`", file.display());
        Failure::new(Exit::Failed, what)
            .because(error)
            .in_file(file)
    };
    let created = File::create(file).map_err(|error| failed(&error))?;
    let header = PcapHeader {
        snaplen: 0x4_0000,
        datalink: DataLink::ETHERNET,
        ts_resolution: TsResolution::NanoSecond,
        ..PcapHeader::default()
    };
    let mut writer =
        PcapWriter::with_header(BufWriter::new(created), header).map_err(|error| failed(&error))?;
    let mut written = 0;
    for (packet, activation) in packets.iter().zip(activations) {
        if let Some(frame) = packet.output(activation.as_ref()) {
            let frame = PcapPacket::new(packet.time, frame.len() as u32, &frame);
            let result = writer.write_packet(&frame);
            result.map_err(|error| failed(&error))?;
            written += 1;
        }
    }
    std::io::Write::flush(&mut writer.into_writer()).map_err(|error| failed(&error))?;
    Ok(written)
}

/// The bytes that hexadecimal digits say; spaces and colons may stand between.
pub(super) fn hex(text: &str) -> Result<Vec<u8>, String> {
    let text = text.trim_start_matches("0x");
    let digits: Vec<u32> = text
        .chars()
        .filter(|c| !matches!(c, ' ' | ':'))
        .map(|c| {
            c.to_digit(16)
                .ok_or_else(|| format!("`{c}` is no hexadecimal digit"))
        })
        .collect::<Result<_, _>>()?;
    let (pairs, rest) = digits.as_chunks::<2>();
    if !rest.is_empty() {
        return Err(format!(
            "{} digits; a byte takes two, so the number must be even",
            digits.len()
        ));
    }
    let byte = |[high, low]: &[u32; 2]| (high << 4 | low) as u8;
    Ok(pairs.iter().map(byte).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_digits_are_bytes_or_an_answer() {
        assert_eq!(
            hex("00ff 7F:1"),
            Err("7 digits; a byte takes two, so the number must be even".into())
        );
        assert_eq!(hex("00ff 7F:10"), Ok(vec![0, 255, 127, 16]));
        assert_eq!(hex(""), Ok(vec![]));
        assert_eq!(hex("0g"), Err("`g` is no hexadecimal digit".into()));
    }

    #[test]
    fn tags_are_counted() {
        let frame = |types: &[u16]| {
            let mut frame = vec![0; 12];
            for ty in types {
                frame.extend_from_slice(&ty.to_be_bytes());
                frame.extend_from_slice(&[0, 1]);
            }
            frame
        };
        assert_eq!(tags(&frame(&[0x0800])), 0);
        assert_eq!(tags(&frame(&[0x8100, 0x0800])), 4);
        assert_eq!(tags(&frame(&[0x88a8, 0x8100, 0x0800])), 8);
        assert_eq!(tags(&[]), 0);
    }
}
