//! A filter that is made test by test, for whom has values and no text.
//!
//! It means what [`parse()`](super::parse()) makes of the same tests joined by `and` in the
//! same order, and has the same form. A path that comes while the node runs has its key
//! from here: reading what its stages wrote took a fifth of its creation.

use std::net::IpAddr;

use ashway_wire::{eth, ipv4};

use super::filter::{Base, Conjunction, Field, Filter, Test, not_later};
use super::logic;
use super::primitive::{Maker, raw};
use crate::bug::{self, Bug};

/// Tests joined so far; at first none, so that every frame passes.
#[derive(Debug)]
pub struct Join {
    maker: Maker,
    any: Vec<Conjunction>,
}

impl Default for Join {
    fn default() -> Self {
        Self {
            maker: Maker::default(),
            any: vec![Conjunction::default()],
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
        let tagged = self.maker.vlan(Some(id)).into_iter();
        let tagged: Vec<_> = tagged.map(|one| one.tests).collect();
        self.narrow(&tagged);
    }

    /// `ip`.
    pub fn ip(&mut self) {
        let maker = self.maker;
        self.narrow(&[maker.link(eth::TYPE_IPV4)]);
    }

    /// `ip6`.
    pub fn ip6(&mut self) {
        let maker = self.maker;
        self.narrow(&[maker.link(eth::TYPE_IPV6)]);
    }

    /// `udp`.
    pub fn udp(&mut self) {
        let maker = self.maker;
        let over = |ethertype| maker.transport(ethertype, ipv4::PROTOCOL_UDP);
        self.narrow(&[over(eth::TYPE_IPV4), over(eth::TYPE_IPV6)]);
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

    /// The filter, under what people are to read of it; `None` if nothing can match.
    #[must_use]
    pub fn finish(self, text: &str) -> Option<Filter> {
        let mut any = self.any;
        any.sort_unstable();
        any.dedup();
        (!any.is_empty()).then(|| Filter {
            text: text.to_owned(),
            any,
        })
    }

    /// An address in a field of IP; an IPv4 one also behind that many bytes of ARP and RARP
    /// (RFC 826).
    fn host(&mut self, field: Field, offset: u16, address: IpAddr) {
        let maker = self.maker;
        let with = |ethertype, test| {
            let [tags, ethertype] = maker.link(ethertype);
            [tags, ethertype, test]
        };
        match address {
            IpAddr::V4(address) => {
                let address = address.octets();
                let raw = Test::whole(raw(Base::L3, offset, 4), address);
                self.narrow(&[
                    with(eth::TYPE_IPV4, Test::whole(field, address)),
                    with(eth::TYPE_ARP, raw),
                    with(eth::TYPE_RARP, raw),
                ]);
            }
            IpAddr::V6(address) => {
                let test = Test::whole(field, address.octets());
                self.narrow(&[with(eth::TYPE_IPV6, test)]);
            }
        }
    }

    /// A port of each protocol that has ports, over both versions of IP.
    fn port(&mut self, field: Field, port: u16) {
        let maker = self.maker;
        let port = Test::whole(field, port.to_be_bytes());
        let with = |ethertype, protocol| {
            let [tags, ethertype, protocol] = maker.transport(ethertype, protocol);
            [tags, ethertype, protocol, not_later(), port]
        };
        let (v4, v6) = (eth::TYPE_IPV4, eth::TYPE_IPV6);
        let (tcp, udp, sctp) = (ipv4::PROTOCOL_TCP, ipv4::PROTOCOL_UDP, ipv4::PROTOCOL_SCTP);
        self.narrow(&[
            with(v4, tcp),
            with(v4, udp),
            with(v4, sctp),
            with(v6, tcp),
            with(v6, udp),
            with(v6, sctp),
        ]);
    }

    /// Keeps what passes one of these lists of tests as well, each of which is by field.
    fn narrow(&mut self, parts: &[impl AsRef<[Test]>]) {
        let mut any = Vec::with_capacity(self.any.len());
        for one in &self.any {
            let parts = parts.iter();
            let both = parts.filter_map(|part| logic::both(&one.tests, part.as_ref()));
            any.extend(both.map(|tests| Conjunction {
                tests,
                not: Vec::new(),
            }));
        }
        self.any = any;
    }
}
