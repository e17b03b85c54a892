//! What one primitive of a filter tests: `dst port 53`, `ip6`, `vlan 7`.
//!
//! The meaning is pcap-filter(7)'s, and where the manual leaves it open that of
//! libpcap's code generator (`gencode.c`, libpcap 1.10, Ethernet, files). What
//! differs is in the documentation of [`parse()`](super::parse()).

use std::net::Ipv6Addr;

use ashway_wire::{eth, ipv4, ipv6, vxlan};

use super::filter::{Base, Conjunction, Field, Test, left, not_later, u128_bytes};
use super::normal::Any;

/// Which end of a message a test is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Source,
    Destination,
    Either,
    Both,
}

/// Protocols that are words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Proto {
    Ether,
    Arp,
    Rarp,
    Ip,
    Ip6,
    /// A transport by number: over which versions of IP.
    Over(Family, u8),
}

/// Versions of the Internet protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    V4,
    V6,
    Any,
}

/// The protocol that a word names.
pub(super) fn proto(word: &str) -> Option<Proto> {
    Some(match word {
        "ether" | "link" => Proto::Ether,
        "arp" => Proto::Arp,
        "rarp" => Proto::Rarp,
        "ip" => Proto::Ip,
        "ip6" => Proto::Ip6,
        "tcp" => Proto::Over(Family::Any, ipv4::PROTOCOL_TCP),
        "udp" => Proto::Over(Family::Any, ipv4::PROTOCOL_UDP),
        "sctp" => Proto::Over(Family::Any, ipv4::PROTOCOL_SCTP),
        "icmp" => Proto::Over(Family::V4, ipv4::PROTOCOL_ICMP),
        "icmp6" => Proto::Over(Family::V6, ipv6::ICMPV6),
        "igmp" => Proto::Over(Family::V4, 2),
        "esp" => Proto::Over(Family::Any, 50),
        "ah" => Proto::Over(Family::Any, 51),
        "pim" => Proto::Over(Family::Any, 103),
        "vrrp" => Proto::Over(Family::V4, 112),
        _ => return None,
    })
}

/// Makes tests; knows how many `vlan` stood before.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Maker {
    /// Tags that the filter has asked for so far: what follows is behind them.
    pub(super) tags: u8,
}

impl Maker {
    /// The frame has this type behind exactly the tags asked for.
    pub(super) fn link(self, ethertype: u16) -> [Test; 2] {
        let tags = [(1 << self.tags) - 1];
        [
            Test::new(Field::Vlans, left([3]), left(tags)),
            Test::whole(Field::EtherType, ethertype.to_be_bytes()),
        ]
    }

    /// `ether proto N`. A tag's type is a type like others to libpcap.
    pub(super) fn ether_proto(self, ethertype: u16) -> Any {
        if !eth::is_tag(ethertype) || self.tags == 2 {
            return one(self.link(ethertype).into());
        }
        let offset = 12 + 4 * u16::from(self.tags);
        let mut tests = self.tagged();
        tests.push(Test::whole(
            raw(Base::Eth, offset, 2),
            ethertype.to_be_bytes(),
        ));
        one(tests)
    }

    /// At least the tags asked for.
    fn tagged(self) -> Vec<Test> {
        let tags = left([(1 << self.tags) - 1]);
        match self.tags {
            0 => Vec::new(),
            _ => vec![Test::new(Field::Vlans, tags, tags)],
        }
    }

    /// `vlan` and `vlan N`: one more tag. There are at most two.
    pub(super) fn vlan(&mut self, id: Option<u16>) -> Any {
        let field = [Field::Vlan0, Field::Vlan1][usize::from(self.tags)];
        self.tags += 1;
        let mut tests = self.tagged();
        if let Some(id) = id {
            tests.push(Test::new(
                field,
                left(0x0fff_u16.to_be_bytes()),
                left(id.to_be_bytes()),
            ));
        }
        one(tests)
    }

    /// `vxlan` and `vxlan N`: UDP to its port with a valid identifier.
    pub(super) fn vxlan(self, identifier: Option<u32>) -> Any {
        let port = left(vxlan::PORT.to_be_bytes());
        let mask = if identifier.is_some() {
            [0xff; 4]
        } else {
            [0; 4]
        };
        let value = identifier.unwrap_or(0).to_be_bytes();
        let udp = [ipv4::PROTOCOL_UDP];
        let mut any = self.port(&udp, Side::Destination, left([0xff; 2]), port);
        for one in &mut any {
            one.tests
                .push(Test::new(Field::Vni, left(mask), left(value)));
        }
        any
    }

    /// A protocol's name alone: all of its messages.
    pub(super) fn all_of(self, proto: Proto) -> Any {
        match proto {
            Proto::Ether => one(Vec::new()),
            Proto::Arp => one(self.link(eth::TYPE_ARP).into()),
            Proto::Rarp => one(self.link(eth::TYPE_RARP).into()),
            Proto::Ip => one(self.link(eth::TYPE_IPV4).into()),
            Proto::Ip6 => one(self.link(eth::TYPE_IPV6).into()),
            Proto::Over(family, number) => self.ip_proto(family, number),
        }
    }

    /// `proto N`, over one version or both.
    pub(super) fn ip_proto(self, family: Family, number: u8) -> Any {
        let mut any = Vec::new();
        if family != Family::V6 {
            any.push(all(self.transport(eth::TYPE_IPV4, number).into()));
        }
        if family != Family::V4 {
            if ipv6::is_walked(number) {
                // An extension header, which the walk goes through: it is the
                // first, or the first after a fragment header.
                let next = |number| Test::whole(raw(Base::L3, 6, 1), [number]);
                let ip6 = self.link(eth::TYPE_IPV6);
                any.extend(one([&ip6[..], &[next(number)]].concat()));
                let behind = Test::whole(raw(Base::L3, 40, 1), [number]);
                any.extend(one([&ip6[..], &[next(ipv6::FRAGMENT), behind]].concat()));
            } else {
                any.push(all(self.transport(eth::TYPE_IPV6, number).into()));
            }
        }
        any
    }

    pub(super) fn transport(self, ethertype: u16, number: u8) -> [Test; 3] {
        let [tags, ethertype] = self.link(ethertype);
        [tags, ethertype, Test::whole(Field::Protocol, [number])]
    }

    /// `port` of these protocols, over both versions of IP.
    pub(super) fn port(self, protocols: &[u8], side: Side, mask: [u8; 16], value: [u8; 16]) -> Any {
        let mut any = Vec::with_capacity(2 * protocols.len());
        for ethertype in [eth::TYPE_IPV4, eth::TYPE_IPV6] {
            for &number in protocols {
                let [tags, ethertype, protocol] = self.transport(ethertype, number);
                let tests = [tags, ethertype, protocol, not_later()];
                let fields = [Field::SourcePort, Field::DestinationPort];
                sided(&mut any, &tests, side, fields, mask, value);
            }
        }
        any
    }

    /// An IPv4 address under a mask: of IPv4, or the protocol addresses of ARP
    /// and RARP (RFC 826), all three unless one is named.
    pub(super) fn ipv4(self, proto: Option<Proto>, side: Side, mask: u32, value: u32) -> Any {
        let (mask, value) = (left(mask.to_be_bytes()), left(value.to_be_bytes()));
        let mut any = Vec::new();
        for (of, ethertype) in [
            (Proto::Ip, eth::TYPE_IPV4),
            (Proto::Arp, eth::TYPE_ARP),
            (Proto::Rarp, eth::TYPE_RARP),
        ] {
            if proto.is_none_or(|proto| proto == of) {
                let fields = match of {
                    Proto::Ip => [Field::Source, Field::Destination],
                    _ => [raw(Base::L3, 14, 4), raw(Base::L3, 24, 4)],
                };
                sided(&mut any, &self.link(ethertype), side, fields, mask, value);
            }
        }
        any
    }

    /// An IPv6 address, of which this many bits count.
    pub(super) fn ipv6(self, side: Side, bits: u8, address: Ipv6Addr) -> Any {
        let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
        let (tests, mask) = (self.link(eth::TYPE_IPV6), u128_bytes(mask));
        let fields = [Field::Source, Field::Destination];
        let mut any = Vec::new();
        sided(&mut any, &tests, side, fields, mask, address.octets());
        any
    }

    /// A hardware address. Always at the front, whatever tags there are.
    pub(super) fn mac(side: Side, address: eth::Address) -> Any {
        let at = |offset| {
            let mut high = [0; 4];
            high.copy_from_slice(&address[..4]);
            vec![
                Test::whole(raw(Base::Eth, offset, 4), high),
                Test::whole(raw(Base::Eth, offset + 4, 2), [address[4], address[5]]),
            ]
        };
        match side {
            Side::Destination => one(at(0)),
            Side::Source => one(at(6)),
            Side::Either => vec![all(at(0)), all(at(6))],
            Side::Both => one([at(0), at(6)].concat()),
        }
    }

    /// `multicast` on a link, of IPv4 or of IPv6.
    pub(super) fn multicast(self, proto: Proto) -> Option<Any> {
        let (mut tests, field, bits) = match proto {
            Proto::Ether => (Vec::new(), raw(Base::Eth, 0, 1), 0x01),
            Proto::Ip => (self.link(eth::TYPE_IPV4).into(), Field::Destination, 0xe0),
            Proto::Ip6 => (self.link(eth::TYPE_IPV6).into(), Field::Destination, 0xff),
            _ => return None,
        };
        tests.push(Test::new(field, left([bits]), left([bits])));
        Some(one(tests))
    }

    /// What `proto[...]` is about: the tests that come with it, and the base.
    pub(super) fn bytes_of(self, proto: Proto) -> (Vec<Test>, Base) {
        let (ethertype, number) = match proto {
            Proto::Ether => return (Vec::new(), Base::Eth),
            Proto::Arp => return (self.link(eth::TYPE_ARP).into(), Base::L3),
            Proto::Rarp => return (self.link(eth::TYPE_RARP).into(), Base::L3),
            Proto::Ip => return (self.link(eth::TYPE_IPV4).into(), Base::L3),
            Proto::Ip6 => return (self.link(eth::TYPE_IPV6).into(), Base::L3),
            Proto::Over(Family::V6, number) => (eth::TYPE_IPV6, number),
            // The manual: "tcp, udp and other upper-layer protocol types only
            // apply to IPv4".
            Proto::Over(_, number) => (eth::TYPE_IPV4, number),
        };
        let [tags, ethertype, protocol] = self.transport(ethertype, number);
        (vec![tags, ethertype, protocol, not_later()], Base::L4)
    }
}

/// Bytes at a constant place.
pub(super) const fn raw(base: Base, offset: u16, width: u8) -> Field {
    Field::Raw {
        base,
        offset,
        width,
    }
}

/// One alternative.
pub(super) fn one(tests: Vec<Test>) -> Any {
    vec![all(tests)]
}

pub(super) fn all(mut tests: Vec<Test>) -> Conjunction {
    tests.sort_unstable();
    Conjunction {
        tests,
        not: Vec::new(),
    }
}

/// Adds these tests and one of the source, the destination, either or both.
fn sided(
    any: &mut Any,
    tests: &[Test],
    side: Side,
    [source, destination]: [Field; 2],
    mask: [u8; 16],
    value: [u8; 16],
) {
    let mut add = |fields: &[Field]| {
        let mut with = Vec::with_capacity(tests.len() + fields.len());
        with.extend_from_slice(tests);
        with.extend(fields.iter().map(|&field| Test::new(field, mask, value)));
        any.push(all(with));
    };
    match side {
        // `net 0.0.0.0/0` asks for the protocol alone.
        _ if mask == [0; 16] => add(&[]),
        Side::Source => add(&[source]),
        Side::Destination => add(&[destination]),
        Side::Either => {
            add(&[source]);
            add(&[destination]);
        }
        Side::Both => add(&[source, destination]),
    }
}

/// The numbers from `low` to `high` as masks and values of `bits` bits: each a
/// block of a power of two. At most `2 * bits` of them.
pub(super) fn blocks(low: u32, high: u32, bits: u32) -> Vec<(u32, u32)> {
    let all = u64::MAX >> (64 - bits);
    let (mut low, end) = (u64::from(low), u64::from(high) + 1);
    let mut found = Vec::new();
    while low < end {
        let mut size = 1_u64 << low.trailing_zeros().min(bits);
        while low + size > end {
            size >>= 1;
        }
        found.push(((all & !(size - 1)) as u32, low as u32));
        low += size;
    }
    found
}

/// A number of a field's width, at the left.
pub(super) fn aligned(number: u32, field: Field) -> [u8; 16] {
    left((u64::from(number) << (32 + 8 * (4 - field.width() as u32))).to_be_bytes())
}
