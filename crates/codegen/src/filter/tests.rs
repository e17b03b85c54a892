use super::*;
use proptest::prelude::*;

fn sample() -> impl Strategy<Value = Filter> {
    let address = prop_oneof![
        any::<u32>().prop_map(|bits| IpAddr::V4(bits.into())),
        any::<u128>().prop_map(|bits| IpAddr::V6(bits.into())),
    ];
    let family = prop_oneof![Just(Family::Ipv4), Just(Family::Ipv6)];
    (
        proptest::option::of(family),
        proptest::option::of(address.clone()),
        proptest::option::of(address),
        proptest::option::of(any::<u16>()),
        proptest::option::of(any::<u16>()),
    )
        .prop_map(|(family, dst_addr, src_addr, dst_port, src_port)| {
            let family = dst_addr.or(src_addr).map(Family::of).or(family);
            Filter {
                family,
                dst_addr,
                src_addr: src_addr.filter(|address| Some(Family::of(*address)) == family),
                dst_port,
                src_port,
            }
        })
}

proptest! {
    #[test]
    fn what_is_shown_can_be_read_back(filter in sample()) {
        prop_assert_eq!(parse(&filter.to_string()), Ok(filter));
    }

    #[test]
    fn no_text_is_too_much(text in "\\PC*") {
        if let Err(error) = parse(&text) {
            prop_assert!(error.span.start <= error.span.end);
        }
    }

    #[test]
    fn no_heap_of_words_is_too_much(words in proptest::collection::vec(
        proptest::sample::select(&["udp", "ip", "ip6", "dst", "src", "port", "host", "and", "7",
            "::1", "10.0.0.1", "(", "not", "é"][..]), 0..9)) {
        let text = words.join(" ");
        match parse(&text) {
            Ok(filter) => prop_assert_eq!(parse(&filter.to_string()), Ok(filter)),
            Err(error) => prop_assert!(text.get(error.span.start..).is_some()),
        }
    }

    #[test]
    fn two_filters_overlap_when_a_datagram_says_so(
        one in sample(), other in sample(), ports in any::<(u16, u16)>(), six in any::<bool>(),
    ) {
        let any = if six { "::9" } else { "9.9.9.9" }.parse().unwrap();
        let pick = |one: Option<IpAddr>, other: Option<IpAddr>| one.or(other).unwrap_or(any);
        let source = SocketAddr::new(
            pick(one.src_addr, other.src_addr),
            one.src_port.or(other.src_port).unwrap_or(ports.0),
        );
        let destination = SocketAddr::new(
            pick(one.dst_addr, other.dst_addr),
            one.dst_port.or(other.dst_port).unwrap_or(ports.1),
        );
        if one.matches(source, destination) && other.matches(source, destination) {
            prop_assert!(one.overlaps(&other));
        }
    }
}

fn udp() -> Filter {
    Filter::default()
}

#[test]
fn the_forms_of_pcap_filter() {
    let port = |port| Filter {
        dst_port: Some(port),
        ..udp()
    };
    let cases = [
        ("udp", udp()),
        ("  udp\tand dst port 7777 ", port(7777)),
        ("udp dst port 7777", port(7777)),
        ("dst port 7777 and udp", port(7777)),
        ("udp && dst port 7777", port(7777)),
        ("udp&&dst port 7777", port(7777)),
        ("udp and dst port 7777 and udp dst port 7777", port(7777)),
        (
            "ip6 and udp dst port 53",
            Filter {
                family: Some(Family::Ipv6),
                ..port(53)
            },
        ),
        (
            "udp src port 9 and ip src host 10.0.0.1 and dst host 10.0.0.2",
            Filter {
                family: Some(Family::Ipv4),
                src_port: Some(9),
                src_addr: Some([10, 0, 0, 1].into()),
                dst_addr: Some([10, 0, 0, 2].into()),
                ..udp()
            },
        ),
    ];
    for (text, filter) in cases {
        assert_eq!(parse(text), Ok(filter), "{text}");
    }
}

#[test]
fn errors_point_at_the_words_and_say_what_to_write() {
    let cases = [
        ("", "", "ends where a test should follow"),
        ("dst port 7", "dst port 7", "`udp` is missing"),
        ("udp and", "", "ends where a test should follow"),
        ("udp and dst", "", "ends where `port` or `host` after `dst`"),
        ("udp and dst port", "", "ends where a port number"),
        ("udp dst port 70000", "70000", "no port number"),
        ("udp dst port 070", "070", "no port number"),
        ("udp dst port domain", "domain", "no port number"),
        ("udp and dst host example", "example", "no IPv4 or IPv6"),
        ("udp or dst port 7", "or", "`or` is not available"),
        ("udp and not dst port 7", "not", "`not` is not available"),
        ("udp and !dst port 7", "!", "`!` is not available"),
        ("udp and (dst port 7)", "(", "`(` is not available"),
        ("tcp and dst port 7", "tcp", "`tcp` is not available"),
        ("udp and port 7", "port", "without a direction"),
        ("udp and dst net 10.0.0.0", "net", "`net` is not available"),
        ("udp and dst portrange 1-9", "portrange", "not available"),
        ("ip6 udp", "udp", "expected `and` before `udp`"),
        ("udp dst host 10.0.0.1", "host", "`udp` has no `dst host`"),
        ("udp and bogus", "bogus", "expected a test, found `bogus`"),
        (
            "udp dst port 7 and dst port 8",
            "dst port 8",
            "cannot be both 7 and 8",
        ),
        (
            "ip6 and udp and dst host 10.0.0.1",
            "dst host 10.0.0.1",
            "nothing can match",
        ),
        ("ip and ip6 and udp", "ip6", "nothing can match"),
    ];
    for (text, at, message) in cases {
        let error = parse(text).unwrap_err();
        assert!(error.message.contains(message), "{text}: {error}");
        assert!(!error.hint.is_empty(), "{text}");
        assert_eq!(text.get(error.span).unwrap_or(""), at, "{text}");
    }
}

#[test]
fn more_tests_are_more_specific_and_an_address_implies_its_family() {
    let specificity = |text| parse(text).unwrap().specificity();
    assert_eq!(specificity("udp"), 1);
    assert_eq!(specificity("udp dst port 7"), 2);
    assert_eq!(specificity("udp and dst host ::1"), 3);
    assert_eq!(specificity("ip6 and udp and dst host ::1"), 3);
}

#[test]
fn matching_looks_at_all_five() {
    let filter = parse("udp dst port 7 and src host 10.0.0.1").unwrap();
    let at = |text: &str| text.parse::<SocketAddr>().unwrap();
    assert!(filter.matches(at("10.0.0.1:9"), at("10.0.0.2:7")));
    assert!(!filter.matches(at("10.0.0.3:9"), at("10.0.0.2:7")));
    assert!(!filter.matches(at("10.0.0.1:9"), at("10.0.0.2:8")));
    assert!(!filter.matches(at("[::1]:9"), at("[::2]:7")));
}
