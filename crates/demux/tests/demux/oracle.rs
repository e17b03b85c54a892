//! The set of matching frames is libpcap's.

use ashway_demux::{self as demux, Filter};
use ashway_rig::skip::skip_without;
use ashway_wire::Headers;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use super::frames;
use super::libpcap::{Capture, Program};

/// Frames as Ashway gets them, and the same for libpcap, in three forms.
pub(crate) struct Frames {
    frames: Vec<(Headers, Vec<u8>)>,
    forms: [(Vec<Vec<u8>>, Capture); 3],
}

impl Frames {
    pub(crate) fn new(name: &str, frames: Vec<Vec<u8>>) -> Self {
        let form = |kind: &str, of: &dyn Fn(&[u8]) -> Vec<u8>| {
            let frames: Vec<Vec<u8>> = frames.iter().map(|frame| of(frame)).collect();
            let capture = Capture::write(&format!("{name}-{kind}"), frames.iter().map(|f| &f[..]));
            (frames, capture)
        };
        Self {
            forms: [
                form("given", &<[u8]>::to_vec),
                form("whole", &|frame| frames::normal(frame, false)),
                form("walked", &|frame| frames::normal(frame, true)),
            ],
            frames: frames
                .into_iter()
                .map(|frame| (Headers::parse(&frame), frame))
                .collect(),
        }
    }

    /// The filter means to libpcap what it means here. Which form libpcap gets
    /// depends on what the filter looks at: bytes of the frame have to be
    /// where they are, a next header of IPv6 what it is.
    pub(crate) fn check(&self, text: &str) {
        let extension = ["proto 0", "proto 43", "proto 44", "proto 60", "ip6["];
        let form = if text.contains("ether[") || text.contains("ether proto") {
            0
        } else if extension.iter().any(|word| text.contains(word)) {
            1
        } else {
            2
        };
        let (frames, capture) = &self.forms[form];
        let filter = demux::parse(text);
        let theirs = match (&filter, capture.matching(text)) {
            (_, Ok(theirs)) => theirs,
            (_, Err(complaint)) if complaint.contains("rejects all packets") => Vec::new(),
            (Ok(_), Err(complaint)) => panic!("libpcap refuses `{text}`: {complaint}"),
            (Err(_), Err(_)) => return,
        };
        let filter = match filter {
            Ok(filter) => filter,
            Err(error) if error.message == "nothing can match this" => {
                assert!(theirs.is_empty(), "`{text}` can match");
                return;
            }
            Err(error) => panic!("`{text}`: {error} at {:?}", error.span),
        };
        let mut matching = vec![false; self.frames.len()];
        for number in theirs {
            matching[number] = true;
        }
        let one = !text.contains("not") && filter.any.len() == 1 && filter.any[0].not.is_empty();
        let mut program = None;
        for (i, (headers, frame)) in self.frames.iter().enumerate() {
            let ours = filter.matches(headers, frame);
            if ours == matching[i] {
                continue;
            }
            // Only ever: libpcap read beyond the frame, and so gave up.
            let program = program.get_or_insert_with(|| Program::of(text));
            assert!(
                ours && !one && program.reads_beyond(&frames[i]),
                "`{text}`: libpcap says {}, we {ours}, of {frame:02x?}, {headers:?}",
                matching[i],
            );
        }
    }
}

/// Filters people write, and each word at least once.
const PICKED: &[&str] = &[
    "udp",
    "tcp",
    "sctp",
    "icmp",
    "icmp6",
    "igmp",
    "esp",
    "ah",
    "pim",
    "vrrp",
    "ip",
    "ip6",
    "arp",
    "rarp",
    "udp and dst port 53",
    "udp dst port 53",
    "dst port 53",
    "port 53",
    "src port 7 or 53",
    "src or dst port 53",
    "src and dst port 53",
    "tcp port 53 or 7777",
    "not port 53",
    "port (53 or 7777)",
    "udp port 7 and not 53",
    "portrange 1024-2047",
    "udp src portrange 1000-1999",
    "dst portrange 53",
    "portrange 7777-53",
    "host 10.0.0.1",
    "src host 10.0.0.1",
    "dst 10.0.0.2",
    "src 10.0.0.1 or 10.0.0.3",
    "ip host 10.0.0.2",
    "arp host 10.0.0.1",
    "rarp src host 10.0.0.1",
    "host fd00::1",
    "ip6 src host fd00::2",
    "src and dst host 10.0.0.2",
    "net 10.0.0.0/8",
    "net 10",
    "net 10.0",
    "src net 10.0.0.0/30",
    "dst net 10.0.0.0 mask 255.255.255.0",
    "net 10.0.0.0 mask 255.0.0.255",
    "net 0.0.0.0/0",
    "ip6 net fd00::/8",
    "src net fd00::/127",
    "dst net fd00::2",
    "ip net 10.0.0.0/8 and not host 10.0.0.3",
    "arp net 10.0.0.0/24",
    "proto 17",
    "ip proto 6",
    "ip6 proto 17",
    "ip proto 0",
    "ip6 proto 0",
    "ip6 proto 44",
    "proto 60",
    "proto 43",
    "ip proto \\udp",
    "proto \\tcp",
    "ip6 proto \\ipv6-icmp",
    "ip6 proto 59",
    "proto 50",
    "ether proto 0x88cc",
    "ether proto \\arp",
    "ether proto 0x8100",
    "ether proto 0x88a8",
    "ether proto \\ip",
    "ether host 02:00:00:00:00:01",
    "ether src 2:0:0:0:0:1",
    "ether dst 02:00:00:00:00:01",
    "broadcast",
    "multicast",
    "ether multicast",
    "ether broadcast",
    "ip multicast",
    "ip6 multicast",
    "not multicast and udp",
    "vlan",
    "vlan 5",
    "vlan 6",
    "vlan and vlan",
    "vlan 5 and vlan 6",
    "vlan 5 and udp",
    "vlan and ip",
    "vlan and vlan and udp dst port 53",
    "vlan 5 and not udp",
    "vlan and port 53",
    "vlan and ether proto 0x8100",
    "vlan and vlan and ether proto 0x8100",
    "not vlan",
    "vlan 5 and host 10.0.0.1",
    "vlan and arp",
    "vlan and ip6 and udp[0:2] = 7",
    "vlan and ip[8] = 64",
    "udp or vlan 5",
    "ip[0] & 0xf = 5",
    "ip[0] & 15 != 5",
    "ip[6:2] & 0x1fff = 0",
    "ip[6:2] & 0x3fff != 0",
    "ip[8] < 65",
    "ip[8] > 64",
    "ip[8] <= 63",
    "ip[8] >= 64",
    "ip[12:4] = 0x0a000001",
    "(ip[0] & 0xf) != 5",
    "ip[9] = 17",
    "ip6[6] = 0",
    "ip6[7] = 64",
    "ip6[40] = 17",
    "tcp[tcpflags] & tcp-syn != 0",
    "tcp[13] & (tcp-syn|tcp-ack) = 18",
    "tcp[tcpflags] & (tcp-syn|tcp-fin) != 0",
    "udp[0:2] = 7",
    "udp[2:2] >= 53 and udp",
    "icmp[icmptype] = icmp-echo",
    "icmp[0] != 8",
    "icmp6[icmp6type] = icmp6-neighborsolicit",
    "arp[6:2] = 1",
    "arp[7] > 1",
    "sctp[0:2] = 53",
    "ether[0] & 1 = 0",
    "ether[12:2] = 0x0800",
    "ether[12:2] > 0x0800",
    "ether[14:2] & 0xfff = 5",
    "ip[50] = 0",
    "ip[50] != 0",
    "ip[0] = 300",
    "ip[0] != 300",
    "ip[20:4] > 0x00070034",
    "ip[4:4] < 5 or udp",
    "udp or tcp and ip6",
    "(udp or tcp) and ip6",
    "udp or (tcp and ip6)",
    "not (udp and ip6)",
    "not udp and ip",
    "! udp && ip || arp",
    "not not udp",
    "ip and not (port 53 or port 7)",
    "udp and not udp",
    "ip and ip6",
    "not (host 10.0.0.1 and port 53)",
    "not (ip and not udp)",
    "udp and not src net 10.0.0.0/31",
    "udp and not (src host 10.0.0.1 and dst port 53) and not (src host 10.0.0.1 and dst port 7)",
    "host 10.0.0.1 and not 10.0.0.2",
    "tcp or udp port 53",
    "ip host 10.0.0.1 and udp",
];

#[test]
fn picked_filters_mean_what_libpcap_means() {
    if skip_without("tcpdump", "tcpdump") {
        return;
    }
    let frames = Frames::new("picked", frames::cut());
    for text in PICKED {
        demux::parse(text).map_or_else(
            |error| assert_eq!(error.message, "nothing can match this", "{text}"),
            |_: Filter| {},
        );
        frames.check(text);
    }
}

/// One test, of values that the frames have.
fn primitive() -> impl Strategy<Value = String> {
    let words = prop::sample::select(vec![
        "udp",
        "tcp",
        "ip",
        "ip6",
        "arp",
        "icmp",
        "sctp",
        "icmp6",
        "ip multicast",
    ]);
    let side = || prop::sample::select(vec!["", "src ", "dst ", "src or dst ", "src and dst "]);
    let over = prop::sample::select(vec!["", "udp ", "tcp ", "sctp "]);
    let port = || prop::sample::select(vec![0_u16, 7, 53, 1030, 1999, 7777]);
    let host = prop::sample::select(vec![
        "10.0.0.1", "10.0.0.2", "10.0.0.3", "fd00::1", "fd00::2",
    ]);
    let net = prop::sample::select(vec![
        "10.0.0.0/30",
        "10.0.0.2/31",
        "10.0.1.0/24",
        "fd00::/64",
        "fd00::2/127",
    ]);
    let bytes = prop::sample::select(vec![
        "ip[9]",
        "ip[0] & 15",
        "ip[15]",
        "ip[22:2]",
        "udp[2:2]",
        "tcp[13]",
        "icmp[0]",
        "arp[17]",
        "tcp[0:4]",
    ]);
    let sign = prop::sample::select(vec!["=", "!="]);
    prop_oneof![
        words.prop_map(str::to_owned),
        (over, side(), port()).prop_map(|(over, side, port)| format!("{over}{side}port {port}")),
        (side(), port(), port()).prop_map(|(side, a, b)| format!("{side}portrange {a}-{b}")),
        (side(), host).prop_map(|(side, host)| format!("{side}host {host}")),
        (side(), net).prop_map(|(side, net)| format!("{side}net {net}")),
        (bytes, sign, 0_u32..60).prop_map(|(bytes, sign, value)| format!("{bytes} {sign} {value}")),
    ]
}

fn expression() -> impl Strategy<Value = String> {
    let inner = primitive().prop_recursive(4, 12, 2, |inner| {
        prop_oneof![
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("{a} and {b}")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("{a} or {b}")),
            inner.clone().prop_map(|a| format!("({a})")),
            inner.prop_map(|a| format!("not ({a})")),
        ]
    });
    let tags = prop::sample::select(vec![
        "",
        "",
        "",
        "vlan and ",
        "vlan 5 and ",
        "vlan and vlan 6 and ",
    ]);
    (tags, inner).prop_map(|(tags, inner)| format!("{tags}({inner})"))
}

#[test]
fn generated_filters_mean_what_libpcap_means() {
    if skip_without("tcpdump", "tcpdump") {
        return;
    }
    let frames = Frames::new("generated", frames::cut());
    let mut runner = TestRunner::deterministic();
    for _ in 0..400 {
        let text = expression().new_tree(&mut runner).unwrap().current();
        match demux::parse(&text) {
            Err(error) if error.message.contains("expand") => {}
            _ => frames.check(&text),
        }
    }
}
