//! Captures that nobody here made: `cargo xtask corpora` fetches them.
//!
//! Those of tcpdump, many of them crashers, and of nDPI. A replay takes every
//! frame whole and cut at every length; of most frames only a share is cut unless
//! [`WHOLE`] asks for all of it (`cargo xtask replay`).

use std::collections::HashSet;
use std::fs::File;
use std::path::{Path, PathBuf};

use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::PcapNgReader;
use pcap_file::{DataLink, pcapng};

/// Environment variable: cut every frame, not a share of them.
pub const WHOLE: &str = "ASHWAY_REPLAY_WHOLE";

/// Whose captures.
const PACKAGES: [&str; 2] = ["tcpdump", "ndpi"];

/// What the captures hold.
#[derive(Debug)]
pub struct Captures {
    /// How many captures had a frame.
    pub files: usize,
    /// Different frames, sorted.
    pub frames: Vec<Vec<u8>>,
}

/// Which frames of a capture are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    /// Those of Ethernet.
    Ethernet,
    /// Those of any link, as if they were Ethernet's: bytes are bytes.
    Any,
}

impl Captures {
    /// The first `of_one` frames of each capture (the large ones repeat
    /// themselves), up to where it is broken. `None`, with a [skip](crate::skip) said, if
    /// nobody has fetched the captures.
    ///
    /// # Panics
    ///
    /// If the folder cannot be read.
    #[must_use]
    pub fn read(links: Links, of_one: usize) -> Option<Self> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/corpora");
        if !folder.join("done").exists() {
            crate::skip::skip("needs captures (cargo xtask corpora)");
            return None;
        }
        let (mut frames, mut files) = (HashSet::new(), 0);
        for package in PACKAGES {
            for path in captures(&folder.join(package)) {
                let of_one = read(&path, links, of_one);
                files += usize::from(!of_one.is_empty());
                frames.extend(of_one);
            }
        }
        let mut frames: Vec<Vec<u8>> = frames.into_iter().collect();
        frames.sort_unstable();
        Some(Self { files, frames })
    }

    /// Every frame whole, and one in `share` (all if [`WHOLE`] is set) at every
    /// shorter length. Frames are made to be for the station `mac`: what is not is
    /// the host's at the first look.
    pub fn replay(&self, share: usize, mac: [u8; 6], mut each: impl FnMut(&[u8])) -> Replayed {
        let whole = std::env::var_os(WHOLE).is_some();
        let mut done = Replayed::default();
        for (at, frame) in self.frames.iter().enumerate() {
            let mut frame = frame.clone();
            let head = frame.len().min(6);
            frame[..head].copy_from_slice(&mac[..head]);
            let cut = whole || at % share == 0;
            for len in if cut { 0 } else { frame.len() }..=frame.len() {
                each(&frame[..len]);
                done.lengths += 1;
            }
            done.cut += usize::from(cut);
        }
        done
    }
}

/// How much was replayed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Replayed {
    /// Frames at every length.
    pub cut: usize,
    /// Frames and parts of frames.
    pub lengths: usize,
}

/// Captures in a folder and those below.
fn captures(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder of captures") {
        let path = entry.expect("an entry of a folder").path();
        if path.is_dir() {
            found.extend(captures(&path));
        } else if path.extension().is_some_and(|end| end != "txt") {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn read(path: &Path, links: Links, most: usize) -> Vec<Vec<u8>> {
    let wanted = |link| links == Links::Any || link == DataLink::ETHERNET;
    let open = || File::open(path).expect("a capture that can be read");
    let mut frames = Vec::new();
    if let Ok(mut reader) = PcapReader::new(open()) {
        if !wanted(reader.header().datalink) {
            return frames;
        }
        while frames.len() < most
            && let Some(Ok(packet)) = reader.next_packet()
        {
            frames.push(packet.data.into_owned());
        }
    } else if let Ok(mut reader) = PcapNgReader::new(open()) {
        let mut of_link = false;
        while frames.len() < most
            && let Some(Ok(block)) = reader.next_block()
        {
            match block {
                pcapng::Block::InterfaceDescription(interface) => {
                    of_link = wanted(interface.linktype);
                }
                pcapng::Block::EnhancedPacket(packet) if of_link => {
                    frames.push(packet.data.into_owned());
                }
                _ => {}
            }
        }
    }
    frames
}
