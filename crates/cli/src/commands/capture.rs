//! `ashway capture`: messages and what became of them, in a file for Wireshark.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, ErrorKind, IsTerminal as _};
use std::os::fd::AsFd as _;
use std::path::PathBuf;

use ashway_abi::Count;
use ashway_api::answer::Packet;
use ashway_api::request;
use ashway_modules::tap::pcapng::{Record, Writer};
use ashway_modules::tap::{Bound, Layer};
use ashway_path::time::Time;
use clap::Args;
use serde_json::json;

use super::Node;
use super::handler::file;
use super::observe::{Enough, Heard, filter};
use crate::face::Face;
use crate::failure::{Exit, Failure};

/// Most bytes of a frame that are kept.
const SNAPLEN: u32 = 262_144;

/// What is said where the disk is full.
const NO_ROOM: &str = "the last packet may be cut off; make room, or keep less: `--count`, \
                       `--seconds`, a filter";

/// Write messages into a capture file, with what became of them
///
/// The file is pcapng: each frame as it came (inbound), with the fate of its message
/// as a verdict and, with its path and tier, as a comment; and each frame that went
/// out for it (outbound). Wireshark, tshark and tcpdump read it.
///
/// As for `ashway trace`, the node observes only meanwhile. The file is complete up
/// to the last message whenever this ends.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ashway capture -i veth0 -w all.pcapng               what an interface sees, to Ctrl-C
  ashway capture -i inc -w inc.pcapng --count 100     messages of a path
  ashway capture -i veth0 'udp and dst port 7777' -w some.pcapng --seconds 10
  tshark -r all.pcapng -T fields -e frame.number -e frame.comment
  ashway capture -i veth0 -w - | tcpdump -n -r -")]
pub(crate) struct Capture {
    /// An interface of the node, or a path
    #[arg(short = 'i', long = "on", value_name = "IFACE|PATH")]
    on: String,
    /// The file to write; replaced if it is there, and for its owner alone (mode 0600); `-`
    /// is standard output
    #[arg(short = 'w', long = "write", value_name = "FILE")]
    file: PathBuf,
    /// A filter in the words of pcap-filter(7), or a flow; asked of frames as they came
    #[arg(value_name = "FILTER")]
    filter: Vec<String>,
    #[command(flatten)]
    enough: Enough,
    #[command(flatten)]
    node: Node,
}

impl Capture {
    pub(crate) fn run(self, face: Face) -> Result<(), Failure> {
        let request = request::Observe {
            count: self.enough.count,
            on: Some(self.on),
            filter: filter(&self.filter)?,
            frames: true,
            ..request::Observe::default()
        };
        let name = self.file.display().to_string();
        let failed = |error: io::Error| {
            let hint = match error.kind() {
                ErrorKind::StorageFull => NO_ROOM,
                _ => "is the folder there, and may you write in it?",
            };
            Failure::new(Exit::Failed, format!("cannot write `{name}`"))
                .because(&error)
                .hint(hint)
        };
        let to_stdout = self.file.as_os_str() == "-";
        if to_stdout && (face.json || io::stdout().is_terminal()) {
            return Err(Failure::new(
                Exit::Usage,
                "standard output cannot take the capture as well as what this says",
            )
            .hint("name a file, or leave `-j` out and send it on: `-w - | tcpdump -n -r -`"));
        }
        // A pipe is waited for while Ctrl-C ends this, and nobody is observed for it.
        let create = || {
            let created = if to_stdout {
                io::stdout().as_fd().try_clone_to_owned().map(File::from)
            } else {
                file::create_private(&self.file)
            };
            created.map_err(failed)
        };
        let pipe = file::is_pipe(&self.file).then(create).transpose()?;
        let mut heard = Heard::new(self.node, request, &self.enough)?;
        let to = pipe.map_or_else(create, Ok)?;
        let mut writer = Writer::new(to, SNAPLEN, heard.epoch).map_err(failed)?;
        let (mut packets, mut frames) = (0_u64, 0_u64);
        while let Some(packet) = heard.next()? {
            packets += 1;
            match write(&mut writer, &packet.answer) {
                // Who reads it has had enough.
                Err(error) if to_stdout && error.kind() == ErrorKind::BrokenPipe => break,
                written => frames += written.map_err(failed)?,
            }
        }
        let document = json!({
            "file": name, "packets": packets, "frames": frames, "lost": heard.lost,
        });
        let sum = format!("{packets} messages, {frames} frames in `{name}`");
        if to_stdout {
            eprintln!("{sum}");
        } else {
            face.show(&document, || sum)?;
        }
        if !face.json {
            heard.say_lost();
        }
        Ok(())
    }
}

/// Writes what there is of a message; says how many frames.
fn write(writer: &mut Writer<File>, packet: &Packet) -> io::Result<u64> {
    let mut count = 0;
    let fate = packet.fate.as_deref();
    let fate = Count::ALL.iter().find(|count| Some(count.name()) == fate);
    let mut comment = match &packet.path {
        Some(path) => format!("path {path}"),
        None => "no path".to_owned(),
    };
    if let Some(tier) = &packet.tier {
        // Writing to a string does not fail.
        let _ = write!(comment, ", {tier} tier");
    }
    let received = packet.received.iter();
    let frames = received
        .map(|frame| (Bound::Inbound, frame))
        .chain(packet.sent.iter().map(|frame| (Bound::Outbound, frame)));
    for (bound, frame) in frames {
        let bytes = bytes(frame.frame.as_deref().unwrap_or_default());
        writer.write(&Record {
            at: Time(frame.monotonic_ns),
            bound,
            interface: &frame.iface,
            layer: Layer::Link,
            bytes: &bytes,
            fate: match bound {
                Bound::Inbound => fate.copied(),
                Bound::Outbound => None,
            },
            comment: &comment,
        })?;
        count += 1;
    }
    Ok(count)
}

/// The bytes of hexadecimal digits; a frame that is none is empty.
fn bytes(digits: &str) -> Vec<u8> {
    let pairs = digits.as_bytes().chunks_exact(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    pairs.map(byte).collect::<Option<_>>().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_bytes() {
        assert_eq!(bytes("00ff1a"), [0, 255, 26]);
        assert!(bytes("0g").is_empty());
    }
}
