//! Captures of others: `cargo xtask corpora` fetches them.

use ashway_rig::captures::{Captures, Links};
use ashway_rig::skip::skip_without;

use super::oracle::Frames;

/// Most frames of one capture.
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
    if skip_without("tcpdump", "tcpdump") {
        return;
    }
    let Some(Captures { files, frames }) = Captures::read(Links::Ethernet, OF_ONE) else {
        return;
    };
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
