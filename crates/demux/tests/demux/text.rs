//! What people write, and what they are told when it is wrong.

use ashway_demux::{self as demux, MAX_ALTERNATIVES, MAX_KEY_BYTES, Shape};
use ashway_wire::Headers;
use proptest::prelude::*;

use super::frames;

#[test]
fn each_mistake_is_named_and_shown() {
    for (text, at, message) in [
        ("", "", "the filter ends where a test should follow"),
        ("udp and", "", "the filter ends where a test should follow"),
        (
            "udp dst",
            "",
            "the filter ends where `port` or `host` after `dst` should follow",
        ),
        (
            "udp dst port",
            "",
            "the filter ends where a port number should follow",
        ),
        (
            "udp dst prot 53",
            "prot",
            "expected `port` or `host` after `dst`, found `prot`",
        ),
        ("udp dst port dns", "dns", "`dns` is no port number"),
        ("udp dst port 65536", "65536", "`65536` is no port number"),
        ("port 010", "010", "`010` is no port number"),
        ("udp 53", "53", "expected `and` or `or` before `53`"),
        ("udp or 53", "53", "`53` stands alone"),
        (
            "host example.org",
            "example.org",
            "`example.org` is no IPv4 or IPv6 address",
        ),
        ("host 10.0", "10.0", "`10.0` is no IPv4 or IPv6 address"),
        ("host 10.0.0.0/8", "10.0.0.0/", "a host has no network mask"),
        (
            "net 10.0.0.1/8",
            "10.0.0.1/8",
            "the address has bits outside its network",
        ),
        ("net 10.0.0.0/33", "33", "`33` is no length of a network"),
        (
            "ip6 net fd00::1/64",
            "fd00::1/64",
            "the address has bits outside its network",
        ),
        ("ip host fd00::1", "fd00::1", "this is no address of `ip`"),
        ("tcp host 10.0.0.1", "tcp host", "`tcp` has no `host`"),
        ("icmp port 5", "icmp port", "`icmp` has no `port`"),
        ("udp and tcp", "tcp", "nothing can match this"),
        (
            "udp dst port 1 and dst port 2",
            "dst port 2",
            "nothing can match this",
        ),
        ("ip[0] = 256", "ip[0] = 256", "nothing can match this"),
        ("(udp", "", "the filter ends where `)` should follow"),
        ("udp)", ")", "expected `and` or `or`, found `)`"),
        ("less 64", "less", "`less` is not available"),
        (
            "ip protochain 6",
            "protochain",
            "`protochain` is not available",
        ),
        ("vlan 4096", "4096", "`4096` is no VLAN id"),
        (
            "vlan and vlan and vlan",
            "vlan",
            "a third `vlan`: tags are looked behind twice",
        ),
        ("ip[0:3] = 1", "3", "`3` is no number of bytes"),
        (
            "ip[0] * 4 = 20",
            "*",
            "`*` on bytes of a frame is not available",
        ),
        ("ip[0] & 15 > 5", ">", "`>` under a mask is not available"),
        ("ip[ip[0]] = 1", "ip", "`ip` is no offset"),
        ("ether proto 64", "64", "`64` is no type of Ethernet II"),
        ("proto 256", "256", "`256` is no protocol number"),
        ("udp änd tcp", "änd", "expected `and` or `or` before `änd`"),
    ] {
        let error = demux::parse(text).expect_err(text);
        assert_eq!(error.message, message, "{text}");
        let shown = text.get(error.span.clone()).unwrap_or_default();
        assert_eq!(shown, at, "{text}: {:?}", error.span);
        assert!(!error.hint.is_empty() && !error.span.is_empty(), "{text}");
    }
}

#[test]
fn a_key_has_room_for_all_that_is_tested() {
    let words = |n: usize| {
        let tests: Vec<String> = (0..n).map(|i| format!("ip[{}:4] = 1", 4 * i)).collect();
        tests.join(" and ")
    };
    let filter = demux::parse(&words(24)).unwrap();
    assert_eq!(Shape::of(&filter.any[0]).1.len(), MAX_KEY_BYTES);
    let error = demux::parse(&words(25)).unwrap_err();
    assert_eq!(
        error.message,
        "this tests more than 96 bytes of a frame at once"
    );
}

#[test]
fn what_expands_to_too_much_is_refused_soon() {
    let alternatives = |n: usize| {
        let ports: Vec<String> = (0..n).map(|port| port.to_string()).collect();
        format!("udp and ip and dst port ({})", ports.join(" or "))
    };
    assert_eq!(demux::parse(&alternatives(1000)).unwrap().any.len(), 1000);
    let started = std::time::Instant::now();
    for text in [
        ["(src portrange 1-65534 or dst portrange 1-65534)"; 6].join(" and "),
        ["(ip[0] = 1 or ip[1] = 1 or ip[2] != 1)"; 200].join(" or not "),
        format!("{}udp{}", "(".repeat(1000), ")".repeat(1000)),
        "not ".repeat(1000) + "udp",
        "(".repeat(10_000),
        "a".repeat(20_000),
        (0..300)
            .map(|i| format!("(ip[{i}] = 1 or ip[{i}] = 2)"))
            .collect::<Vec<_>>()
            .join(" and "),
        (0..300)
            .map(|i| format!("not (ip[{i}] = 1 and ip[{i}:2] = 2)"))
            .collect::<Vec<_>>()
            .join(" and "),
    ] {
        match demux::parse(&text) {
            Err(error) => assert!(!error.hint.is_empty()),
            Ok(filter) => assert!(filter.any.len() <= MAX_ALTERNATIVES),
        }
    }
    assert!(
        started.elapsed().as_secs() < 120,
        "took {:?}",
        started.elapsed()
    );
}

fn soup() -> impl Strategy<Value = String> {
    let word = prop::sample::select(vec![
        "udp",
        "tcp",
        "ip",
        "ip6",
        "arp",
        "ether",
        "and",
        "or",
        "not",
        "(",
        ")",
        "!",
        "&&",
        "||",
        "src",
        "dst",
        "host",
        "net",
        "port",
        "portrange",
        "proto",
        "vlan",
        "vxlan",
        "10.0.0.1",
        "10.0.0.0",
        "/",
        "8",
        "mask",
        "255.0.0.0",
        "fd00::1",
        "53",
        "1-9",
        "9-",
        "[",
        "]",
        ":",
        "&",
        "=",
        "!=",
        "<",
        ">=",
        "0",
        "2",
        "0xff",
        "broadcast",
        "multicast",
        "\\tcp",
        "tcp-syn",
        "02:00:00:00:00:01",
        "len",
        "ö",
        "4294967295",
        "99999999999",
    ]);
    prop::collection::vec(word, 0..24).prop_map(|words| words.join(" "))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_text_is_read_or_refused_in_place(text in prop_oneof![any::<String>(), soup()]) {
        match demux::parse(&text) {
            Ok(filter) => {
                prop_assert!(!filter.any.is_empty());
                for frame in frames::whole() {
                    let _ = filter.matches(&Headers::parse(&frame), &frame);
                }
            }
            Err(error) => {
                prop_assert!(error.span.start < error.span.end && error.span.end <= text.len() + 1);
                prop_assert!(!error.hint.is_empty());
            }
        }
    }
}
