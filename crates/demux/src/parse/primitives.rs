//! One primitive: the words before a value, and the tests that need none.
//!
//! Which words go together is said here, and what they then test in
//! [`primitive`](crate::primitive). The words are kept for the values
//! that come after `or` without any.

use ashway_wire::{eth, ipv4};

use super::error::FilterError;
use super::{Parsed, Parser};
use crate::normal::Any;
use crate::primitive::{self, Maker, Proto, Side};

/// What a value is a value of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Host,
    Net,
    Port,
    Portrange,
    Proto,
}

/// The words before a value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Qualifiers {
    pub(super) proto: Option<Proto>,
    pub(super) side: Side,
    pub(super) kind: Kind,
}

impl Parser<'_> {
    pub(super) fn primitive(&mut self) -> Parsed<Any> {
        let Some(word) = self.peek() else {
            return Err(self.unexpected("a test"));
        };
        if self.starts_arithmetic() {
            self.qualifiers = None;
            return self.arithmetic();
        }
        match word {
            "vlan" => return self.vlan(),
            "vxlan" => return self.vxlan(),
            "broadcast" | "multicast" => return self.group(Proto::Ether),
            _ => {}
        }
        let proto = primitive::proto(word);
        let named = self.next;
        self.next += usize::from(proto.is_some());
        let side_at = self.next;
        let side = self.side();
        let kind = match self.peek() {
            Some("host") => Some(Kind::Host),
            Some("net") => Some(Kind::Net),
            Some("port") => Some(Kind::Port),
            Some("portrange") => Some(Kind::Portrange),
            Some("proto") if side.is_none() => Some(Kind::Proto),
            _ => None,
        };
        match (proto, side, kind) {
            (Some(Proto::Ether), None, None) => match self.peek() {
                Some("broadcast" | "multicast") => self.group(Proto::Ether),
                _ => Err(self.unexpected("`host`, `src`, `dst` or `proto` after `ether`")),
            },
            (Some(proto @ (Proto::Ip | Proto::Ip6)), None, None)
                if matches!(self.peek(), Some("broadcast" | "multicast")) =>
            {
                self.group(proto)
            }
            (Some(proto), None, None) => {
                self.qualifiers = None;
                Ok(self.maker.all_of(proto))
            }
            (None, None, None) => Err(self.unexpected("a test")),
            (_, _, kind) => {
                self.next += usize::from(kind.is_some());
                // `src 10.0.0.1` is `src host 10.0.0.1`.
                let kind = match kind {
                    None if !self.starts_value() => {
                        let word = self.words[side_at].text;
                        return Err(self.unexpected(&format!("`port` or `host` after `{word}`")));
                    }
                    kind => kind.unwrap_or(Kind::Host),
                };
                self.fits(proto, kind, named)?;
                self.qualifiers = Some(Qualifiers {
                    proto,
                    side: side.unwrap_or(Side::Either),
                    kind,
                });
                self.value()
            }
        }
    }

    /// `src`, `dst`, and both joined by `or` or `and`.
    fn side(&mut self) -> Option<Side> {
        let one = match self.peek() {
            Some("src") => Side::Source,
            Some("dst") => Side::Destination,
            _ => return None,
        };
        self.next += 1;
        let other = if one == Side::Source { "dst" } else { "src" };
        let side = match (self.peek(), self.at(1)) {
            // `src or dst port 5` is about one test's sides; `src A or dst B`
            // are two tests, and have a value in between.
            (Some("or" | "||"), Some(word)) if word == other => Side::Either,
            (Some("and" | "&&"), Some(word)) if word == other => Side::Both,
            _ => return Some(one),
        };
        self.next += 2;
        Some(side)
    }

    /// Whether the protocol can stand before this kind of test.
    fn fits(&self, proto: Option<Proto>, kind: Kind, at: usize) -> Parsed<()> {
        let Some(proto) = proto else {
            return Ok(());
        };
        let fits = match (kind, proto) {
            (Kind::Host, Proto::Ether | Proto::Arp | Proto::Rarp | Proto::Ip | Proto::Ip6)
            | (Kind::Net, Proto::Arp | Proto::Rarp | Proto::Ip | Proto::Ip6)
            | (Kind::Proto, Proto::Ether | Proto::Ip | Proto::Ip6) => true,
            (Kind::Port | Kind::Portrange, Proto::Over(_, number)) => ipv4::has_ports(number),
            _ => false,
        };
        if fits {
            return Ok(());
        }
        let word = self.words[at].text;
        let kind = match kind {
            Kind::Host => "host",
            Kind::Net => "net",
            Kind::Port => "port",
            Kind::Portrange => "portrange",
            Kind::Proto => "proto",
        };
        Err(FilterError {
            span: self.since(at),
            message: format!("`{word}` has no `{kind}`"),
            hint: format!("join the two: `{word} and {kind} …`"),
        })
    }

    fn vlan(&mut self) -> Parsed<Any> {
        if usize::from(self.maker.tags) == eth::MAX_TAGS {
            return Err(FilterError {
                span: self.span(),
                message: "a third `vlan`: tags are looked behind twice".to_owned(),
                hint: "each `vlan` means one more tag for all that follows, also behind `or`"
                    .to_owned(),
            });
        }
        self.next += 1;
        self.qualifiers = None;
        let id = self.optional("VLAN id", "VLAN ids are numbers from 0 to 4095", 0x0fff)?;
        Ok(self.maker.vlan(id.map(|id| id as u16)))
    }

    fn vxlan(&mut self) -> Parsed<Any> {
        self.next += 1;
        self.qualifiers = None;
        let hint = "network identifiers are numbers from 0 to 16777215";
        let identifier = self.optional("network identifier", hint, 0x00ff_ffff)?;
        Ok(self.maker.vxlan(identifier))
    }

    /// `broadcast` and `multicast`.
    fn group(&mut self, proto: Proto) -> Parsed<Any> {
        self.qualifiers = None;
        let broadcast = self.peek() == Some("broadcast");
        if broadcast && proto != Proto::Ether {
            return Err(FilterError {
                span: self.span(),
                message: "the broadcast address of a network is not known here".to_owned(),
                hint: "write `dst host` and the address".to_owned(),
            });
        }
        self.next += 1;
        if broadcast {
            return Ok(Maker::mac(Side::Destination, [0xff; 6]));
        }
        Ok(self.maker.multicast(proto).unwrap_or_default())
    }
}
