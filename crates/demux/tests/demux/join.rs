//! Filters made of values are those that their words are read as.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ashway_demux::{Join, parse};

const NEAR: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const FAR: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
const NEAR6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1));
const FAR6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2));

/// Adds a test.
type Add = fn(&mut Join);

/// Tests with their words: what stages ask, and what contradicts it.
const TESTS: [(&str, Add); 13] = [
    ("vlan 5", |join| join.vlan(5)),
    ("ip", |join| join.ip()),
    ("ip6", |join| join.ip6()),
    ("dst host 10.0.0.1", |join| join.destination(NEAR)),
    ("src host 10.0.0.2", |join| join.source(FAR)),
    ("src host 10.0.0.1", |join| join.source(NEAR)),
    ("dst host fd00::1", |join| join.destination(NEAR6)),
    ("src host fd00::2", |join| join.source(FAR6)),
    ("udp", |join| join.udp()),
    ("dst port 53", |join| join.destination_port(53)),
    ("src port 7000", |join| join.source_port(7000)),
    ("src port 53", |join| join.source_port(53)),
    ("dst port 0", |join| join.destination_port(0)),
];

/// Compares these tests, joined, with what is read of their words.
fn same(tests: &[&(&str, Add)]) {
    let words: Vec<&str> = tests.iter().map(|(words, _)| *words).collect();
    let text = words.join(" and ");
    let mut join = Join::default();
    for (_, add) in tests {
        add(&mut join);
    }
    assert_eq!(join.finish(&text), parse(&text).ok(), "{text}");
}

#[test]
fn tests_without_a_text_mean_what_their_text_says() {
    for one in &TESTS {
        same(&[one]);
        for two in &TESTS {
            same(&[one, two]);
            for three in &TESTS {
                same(&[one, two, three]);
            }
        }
    }
    // Each set in the order of headers, and from the other end.
    for set in 0..1_u32 << TESTS.len() {
        let tests = TESTS.iter().enumerate();
        let tests = tests.filter(|(at, _)| set & 1 << at != 0);
        let mut tests: Vec<_> = tests.map(|(_, test)| test).collect();
        if tests.is_empty() {
            continue;
        }
        same(&tests);
        tests.reverse();
        same(&tests);
    }
}

#[test]
fn what_is_no_tag_matches_nothing() {
    for ids in [&[0x1000][..], &[1, 2, 3]] {
        let mut join = Join::default();
        for id in ids {
            join.vlan(*id);
        }
        assert_eq!(join.finish(""), None, "{ids:?}");
    }
    let mut join = Join::default();
    join.vlan(0);
    join.vlan(0x0fff);
    assert!(join.finish("").is_some());
}
