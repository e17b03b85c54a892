//! A filter that is made test by test, for whom has values and no text.
//!
//! It means what [`parse()`](super::parse()) makes of the same tests joined by `and` in the
//! same order, and has the same form. A path that comes while the node runs has its key
//! from here: reading what its stages wrote took a fifth of its creation.

use std::net::IpAddr;

use ashway_wire::{eth, ipv4};

use super::filter::{Base, Conjunction, Field, Filter, Test, not_later};
use super::primitive::{Maker, raw};
use crate::bug::{self, Bug};

/// Tests joined so far; at first none, so that every frame passes.
#[derive(Debug)]
pub struct Join {
    maker: Maker,
    any: Vec<Alternative>,
}

/// Tests that have room without another allocation: those of a path of one flow.
const USUAL_TESTS: usize = 8;

impl Default for Join {
    fn default() -> Self {
        Self {
            maker: Maker::default(),
            any: vec![Alternative {
                tests: Vec::with_capacity(USUAL_TESTS),
                link: None,
                protocol: None,
            }],
        }
    }
}

/// Tests of which all have to hold.
#[derive(Clone, Debug)]
struct Alternative {
    /// By field, each field once.
    tests: Vec<Test>,
    /// The tags and the type behind them that the tests ask for, if they do.
    link: Option<(u8, u16)>,
    /// The same of the protocol.
    protocol: Option<u8>,
}

/// What a word asks for in one kind of packet.
struct Part<'t> {
    ethertype: u16,
    protocol: Option<u8>,
    rest: &'t [Test],
}

impl Alternative {
    /// Whether a frame may pass these tests and the part's. Most parts are of another kind of
    /// packet, and ruled out without making their tests.
    fn fits(&self, maker: Maker, part: &Part<'_>) -> bool {
        let link = || {
            maker
                .link(part.ethertype)
                .iter()
                .all(|test| self.agrees(test))
        };
        let is_link = |known| known == (maker.tags, part.ethertype);
        self.link.map_or_else(link, is_link)
            && (self.protocol.is_none()
                || part.protocol.is_none()
                || self.protocol == part.protocol)
            && part.rest.iter().all(|test| self.agrees(test))
    }

    /// Adds the tests of a part that [fits](Self::fits).
    fn add_part(&mut self, maker: Maker, part: &Part<'_>) {
        if self.link.is_none() {
            self.link = Some((maker.tags, part.ethertype));
            for test in maker.link(part.ethertype) {
                self.add(test);
            }
        }
        if let (None, Some(protocol)) = (self.protocol, part.protocol) {
            self.protocol = part.protocol;
            self.add(Test::whole(Field::Protocol, [protocol]));
        }
        for test in part.rest {
            self.add(*test);
        }
    }

    /// Whether a test can hold where all of these do.
    fn agrees(&self, test: &Test) -> bool {
        let mut tests = self.tests.iter();
        let known = tests.find(|known| known.field == test.field);
        known.is_none_or(|known| known.agrees(test))
    }

    /// Adds a test that [agrees](Self::agrees).
    fn add(&mut self, test: Test) {
        let mut tests = self.tests.iter();
        let at = tests.position(|known| known.field >= test.field);
        let at = at.unwrap_or(self.tests.len());
        match self.tests.get_mut(at) {
            Some(known) if known.field == test.field => {
                *known = known.merge(&test).expect("the two agree");
            }
            _ => self.tests.insert(at, test),
        }
    }
}

impl Join {
    /// `vlan N`. There is no id above 4095 and no third tag: nothing can match that.
    pub fn vlan(&mut self, id: u16) {
        if id > 0x0fff || usize::from(self.maker.tags) == eth::MAX_TAGS {
            self.any.clear();
            return;
        }
        for tagged in self.maker.vlan(Some(id)) {
            let tests = &tagged.tests;
            self.any
                .retain(|one| tests.iter().all(|test| one.agrees(test)));
            for one in &mut self.any {
                for test in tests {
                    one.add(*test);
                }
            }
        }
    }

    /// `ip`.
    pub fn ip(&mut self) {
        self.link(eth::TYPE_IPV4);
    }

    /// `ip6`.
    pub fn ip6(&mut self) {
        self.link(eth::TYPE_IPV6);
    }

    fn link(&mut self, ethertype: u16) {
        self.narrow(&[Part {
            ethertype,
            protocol: None,
            rest: &[],
        }]);
    }

    /// `udp`.
    pub fn udp(&mut self) {
        self.narrow(&[eth::TYPE_IPV4, eth::TYPE_IPV6].map(|ethertype| Part {
            ethertype,
            protocol: Some(ipv4::PROTOCOL_UDP),
            rest: &[],
        }));
    }

    /// `src host A`.
    pub fn source(&mut self, address: IpAddr) {
        self.host(Field::Source, 14, address);
    }

    /// `dst host A`.
    pub fn destination(&mut self, address: IpAddr) {
        let field = if bug::is(Bug::DemuxJoinOneSide) {
            Field::Source
        } else {
            Field::Destination
        };
        self.host(field, 24, address);
    }

    /// `src port N`.
    pub fn source_port(&mut self, port: u16) {
        self.port(Field::SourcePort, port);
    }

    /// `dst port N`.
    pub fn destination_port(&mut self, port: u16) {
        self.port(Field::DestinationPort, port);
    }

    /// Whether some frame may pass all tests.
    #[must_use]
    pub const fn is_possible(&self) -> bool {
        !self.any.is_empty()
    }

    /// The filter, under what people are to read of it; `None` if nothing can match.
    #[must_use]
    pub fn finish(self, text: impl Into<String>) -> Option<Filter> {
        let any = self.any.into_iter().map(|one| Conjunction {
            tests: one.tests,
            not: Vec::new(),
        });
        let mut any: Vec<_> = any.collect();
        any.sort_unstable();
        any.dedup();
        (!any.is_empty()).then(|| Filter {
            text: text.into(),
            any,
        })
    }

    /// An address in a field of IP; an IPv4 one also behind that many bytes of ARP and RARP
    /// (RFC 826).
    fn host(&mut self, field: Field, offset: u16, address: IpAddr) {
        let part = |ethertype, rest| Part {
            ethertype,
            protocol: None,
            rest,
        };
        match address {
            IpAddr::V4(address) => {
                let address = address.octets();
                let field = [Test::whole(field, address)];
                let raw = [Test::whole(raw(Base::L3, offset, 4), address)];
                self.narrow(&[
                    part(eth::TYPE_IPV4, &field),
                    part(eth::TYPE_ARP, &raw),
                    part(eth::TYPE_RARP, &raw),
                ]);
            }
            IpAddr::V6(address) => {
                let field = [Test::whole(field, address.octets())];
                self.narrow(&[part(eth::TYPE_IPV6, &field)]);
            }
        }
    }

    /// A port of each protocol that has ports, over both versions of IP.
    fn port(&mut self, field: Field, port: u16) {
        let rest = &[not_later(), Test::whole(field, port.to_be_bytes())];
        let over = |ethertype, protocol| Part {
            ethertype,
            protocol: Some(protocol),
            rest,
        };
        let (v4, v6) = (eth::TYPE_IPV4, eth::TYPE_IPV6);
        let (tcp, udp, sctp) = (ipv4::PROTOCOL_TCP, ipv4::PROTOCOL_UDP, ipv4::PROTOCOL_SCTP);
        self.narrow(&[
            over(v4, tcp),
            over(v4, udp),
            over(v4, sctp),
            over(v6, tcp),
            over(v6, udp),
            over(v6, sctp),
        ]);
    }

    /// Keeps what passes one of these parts as well. Of a filter that says the kind of packet
    /// first that is one, and nothing is allocated.
    fn narrow(&mut self, parts: &[Part<'_>]) {
        let maker = self.maker;
        let mut more = Vec::new();
        self.any.retain_mut(|one| {
            let mut fitting = parts.iter().filter(|part| one.fits(maker, part));
            let Some(first) = fitting.next() else {
                return false;
            };
            more.extend(fitting.map(|part| {
                let mut other = one.clone();
                other.add_part(maker, part);
                other
            }));
            one.add_part(maker, first);
            true
        });
        self.any.append(&mut more);
    }
}
