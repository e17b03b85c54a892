//! Captures of others: `cargo xtask corpora` fetches them.

use std::collections::HashSet;
use std::fs::File;
use std::path::{Path, PathBuf};

use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::PcapNgReader;
use pcap_file::{DataLink, pcapng};

use super::libpcap;
use super::oracle::Frames;

/// Most frames of one capture: the large ones repeat themselves.
const OF_ONE: usize = 400;

/// Filters for traffic that nobody here made.
const FILTERS: &[&str] = &[
    "udp",
    "tcp",
    "sctp",
    "icmp",
    "icmp6",
    "igmp",
    "ip",
    "ip6",
    "arp",
    "port 53",
    "tcp port 80 or 443",
    "udp dst port 53",
    "src portrange 1024-65535",
    "net 192.168.0.0/16",
    "src net 10.0.0.0/8",
    "ip6 net fe80::/10",
    "host 192.168.1.1",
    "not tcp and not udp",
    "ip and not (tcp or udp or icmp)",
    "vlan",
    "vlan and ip",
    "vlan and vlan",
    "vlan and tcp port 80",
    "proto 47",
    "ip proto 50",
    "ip6 proto 44",
    "ip6 proto 0",
    "multicast",
    "ip multicast",
    "tcp[tcpflags] & (tcp-syn|tcp-ack) = tcp-syn",
    "ip[6:2] & 0x3fff != 0",
    "ip[0] & 15 != 5",
    "ip[8] < 10",
    "icmp[icmptype] != icmp-echo",
    "ether proto 0x8864",
    "udp[4:2] > 1000",
    "ether[0] & 1 = 1",
    "portrange 5000-6000 and not net 10.0.0.0/8",
];

#[test]
fn filters_mean_what_libpcap_means_on_captures_of_others() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/corpora");
    if !libpcap::available() {
        return;
    }
    if !folder.join("done").exists() {
        eprintln!("skipped: there are no captures (cargo xtask corpora)");
        return;
    }
    let (mut frames, mut files) = (Vec::new(), 0);
    for package in ["tcpdump", "ndpi"] {
        for path in captures(&folder.join(package)) {
            let of_one = ethernet(&path);
            files += usize::from(!of_one.is_empty());
            frames.extend(of_one);
        }
    }
    let frames: HashSet<Vec<u8>> = frames.into_iter().collect();
    let mut frames: Vec<Vec<u8>> = frames.into_iter().collect();
    frames.sort_unstable();
    println!("{} different frames of {files} captures", frames.len());
    assert!(
        files > 300 && frames.len() > 20_000,
        "{files} captures are too few"
    );
    let frames = Frames::new("corpora", frames);
    for text in FILTERS {
        frames.check(text);
    }
}

/// Captures in a folder and those below.
fn captures(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(captures(&path));
        } else if path.extension().is_some_and(|end| end != "txt") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The first frames of a capture of Ethernet, up to where it is broken.
fn ethernet(path: &Path) -> Vec<Vec<u8>> {
    if let Ok(mut reader) = PcapReader::new(File::open(path).unwrap()) {
        if reader.header().datalink != DataLink::ETHERNET {
            return Vec::new();
        }
        let mut frames = Vec::new();
        while let Some(Ok(packet)) = reader.next_packet() {
            frames.push(packet.data.into_owned());
            if frames.len() == OF_ONE {
                break;
            }
        }
        return frames;
    }
    let Ok(mut reader) = PcapNgReader::new(File::open(path).unwrap()) else {
        return Vec::new();
    };
    let mut frames = Vec::new();
    let mut ethernet = false;
    while let Some(Ok(block)) = reader.next_block() {
        match block {
            pcapng::Block::InterfaceDescription(interface) => {
                ethernet = interface.linktype == DataLink::ETHERNET;
            }
            pcapng::Block::EnhancedPacket(packet) if ethernet => {
                frames.push(packet.data.into_owned());
            }
            _ => {}
        }
        if frames.len() == OF_ONE {
            break;
        }
    }
    frames
}
