//! Values: ports, protocols, addresses and networks.
//!
//! Each reads one literal as its [`Kind`] has it, checks what only the value can
//! be wrong in, and makes the tests.

use std::net::{Ipv4Addr, Ipv6Addr};

use ashway_wire::{eth, ipv4, ipv6};

use super::error::FilterError;
use super::primitives::{Kind, Qualifiers};
use super::words::number;
use super::{Parsed, Parser};
use crate::filter::left;
use crate::normal::Any;
use crate::primitive::{self, Family, Maker, Proto, Side, blocks};

impl Parser<'_> {
    /// One value, with the words of [`Parser::qualifiers`].
    pub(super) fn one_value(&mut self) -> Parsed<Any> {
        let Some(qualifiers) = self.qualifiers else {
            let word = self.peek().unwrap_or_default();
            return Err(FilterError {
                span: self.span(),
                message: format!("`{word}` stands alone"),
                hint: "say what it is: `port …`, `host …` or `net …`".to_owned(),
            });
        };
        match qualifiers.kind {
            Kind::Port => self.port(qualifiers, false),
            Kind::Portrange => self.port(qualifiers, true),
            Kind::Proto => self.proto(qualifiers),
            Kind::Host | Kind::Net if qualifiers.proto == Some(Proto::Ether) => {
                self.mac(qualifiers.side)
            }
            Kind::Host | Kind::Net => self.address(qualifiers),
        }
    }

    fn port(&mut self, qualifiers: Qualifiers, range: bool) -> Parsed<Any> {
        let port = |word| number(word).and_then(|port| u16::try_from(port).ok());
        let hint = "ports are numbers from 0 to 65535; service names are not looked up";
        let (low, high) = if range {
            self.literal("range of ports", "write `portrange 1000-1999`", |word| {
                let (low, high) = word.split_once('-').unwrap_or((word, word));
                let (low, high) = (port(low)?, port(high)?);
                Some((low.min(high), low.max(high)))
            })?
        } else {
            let port = self.literal("port number", hint, port)?;
            (port, port)
        };
        let one;
        let protocols: &[u8] = match qualifiers.proto {
            Some(Proto::Over(_, number)) => {
                one = [number];
                &one
            }
            _ => &[ipv4::PROTOCOL_TCP, ipv4::PROTOCOL_UDP, ipv4::PROTOCOL_SCTP],
        };
        let both = qualifiers.side == Side::Both;
        let mut any = Vec::new();
        for side in if both {
            vec![Side::Source, Side::Destination]
        } else {
            vec![qualifiers.side]
        } {
            let mut here = Vec::new();
            for (mask, value) in blocks(u32::from(low), u32::from(high), 16) {
                let (mask, value) = (mask as u16, value as u16);
                let bytes = |number: u16| left(number.to_be_bytes());
                here.extend(self.maker.port(protocols, side, bytes(mask), bytes(value)));
            }
            any = if side == Side::Destination && both {
                let joined = self.budget.and(&any, &here);
                self.normal(self.next.saturating_sub(1), joined)?
            } else {
                here
            };
        }
        Ok(any)
    }

    fn proto(&mut self, qualifiers: Qualifiers) -> Parsed<Any> {
        if qualifiers.proto == Some(Proto::Ether) {
            let hint =
                "types are numbers from 1501 to 65535, or `\\ip`, `\\ip6`, `\\arp`, `\\rarp`";
            let ethertype = self.literal("type of Ethernet II", hint, |word| match word {
                "\\ip" => Some(eth::TYPE_IPV4),
                "\\ip6" => Some(eth::TYPE_IPV6),
                "\\arp" => Some(eth::TYPE_ARP),
                "\\rarp" => Some(eth::TYPE_RARP),
                // Smaller ones are lengths: IEEE 802.3 with LLC.
                _ => number(word)
                    .and_then(|number| u16::try_from(number).ok())
                    .filter(|&number| number > 1500),
            })?;
            return Ok(self.maker.ether_proto(ethertype));
        }
        let hint = "protocols are numbers from 0 to 255, or names as `\\tcp`";
        let number = self.literal("protocol number", hint, |word| {
            match word.strip_prefix('\\') {
                // As /etc/protocols has it.
                Some("ipv6-icmp") => Some(ipv6::ICMPV6),
                Some("icmp6") => None,
                Some(name) => match primitive::proto(name)? {
                    Proto::Over(_, number) => Some(number),
                    _ => None,
                },
                None => number(word).and_then(|number| u8::try_from(number).ok()),
            }
        })?;
        let family = match qualifiers.proto {
            Some(Proto::Ip) => Family::V4,
            Some(Proto::Ip6) => Family::V6,
            _ => Family::Any,
        };
        Ok(self.maker.ip_proto(family, number))
    }

    fn mac(&mut self, side: Side) -> Parsed<Any> {
        let hint = "write six bytes, as 02:00:00:00:00:01";
        let address = self.literal("hardware address", hint, |word| {
            let mut address = [0; 6];
            let mut parts = word.split(':');
            for byte in &mut address {
                let part = parts.next().filter(|part| (1..=2).contains(&part.len()))?;
                *byte = u8::from_str_radix(part, 16).ok()?;
            }
            parts.next().is_none().then_some(address)
        })?;
        Ok(Maker::mac(side, address))
    }

    fn address(&mut self, qualifiers: Qualifiers) -> Parsed<Any> {
        let first = self.next;
        let net = qualifiers.kind == Kind::Net;
        let hint = "write the address itself, such as 10.0.0.1 or fd00::1; names are not looked up";
        let what = if net {
            "network"
        } else {
            "IPv4 or IPv6 address"
        };
        if let Some(Ok(address)) = self.peek().map(str::parse::<Ipv6Addr>) {
            self.next += 1;
            return self.ipv6(qualifiers, address, first);
        }
        let (value, known) = self.literal(what, hint, |word| ipv4_part(word, net))?;
        if let Some(Proto::Ip6) = qualifiers.proto {
            return Err(self.wrong_family("ip6", first));
        }
        let all = u32::MAX;
        let mut mask = all << (32 - known);
        if self.peek() == Some("/") {
            self.only_nets(net, first)?;
            self.next += 1;
            let hint = "an IPv4 network has 0 to 32 bits";
            let bits = self.literal("length of a network", hint, |word| {
                number(word).filter(|&bits| bits <= 32)
            })?;
            mask = all.checked_shl(32 - bits).unwrap_or(0);
        } else if self.peek() == Some("mask") {
            self.only_nets(net, first)?;
            self.next += 1;
            mask = self.literal("network mask", "write `mask 255.255.255.0`", |word| {
                ipv4_part(word, false).map(|(mask, _)| mask)
            })?;
        }
        if value & !mask != 0 {
            return Err(self.bits_outside(first, &Ipv4Addr::from(value & mask).to_string()));
        }
        Ok(self
            .maker
            .ipv4(qualifiers.proto, qualifiers.side, mask, value))
    }

    fn ipv6(&mut self, qualifiers: Qualifiers, address: Ipv6Addr, first: usize) -> Parsed<Any> {
        if let Some(proto) = qualifiers.proto.filter(|&proto| proto != Proto::Ip6) {
            let word = if proto == Proto::Ip { "ip" } else { "arp" };
            return Err(self.wrong_family(word, first));
        }
        let mut bits = 128;
        if self.peek() == Some("/") {
            self.only_nets(qualifiers.kind == Kind::Net, first)?;
            self.next += 1;
            let hint = "an IPv6 network has 0 to 128 bits";
            bits = self.literal("length of a network", hint, |word| {
                number(word).filter(|&bits| bits <= 128)
            })?;
        }
        let value = u128::from(address);
        let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
        if value & !mask != 0 {
            return Err(self.bits_outside(first, &Ipv6Addr::from(value & mask).to_string()));
        }
        Ok(self.maker.ipv6(qualifiers.side, bits as u8, address))
    }

    fn wrong_family(&self, word: &str, first: usize) -> FilterError {
        FilterError {
            span: self.since(first),
            message: format!("this is no address of `{word}`"),
            hint: "leave the protocol out: the address says which version of IP it is".to_owned(),
        }
    }

    fn only_nets(&self, net: bool, first: usize) -> Parsed<()> {
        if net {
            return Ok(());
        }
        Err(FilterError {
            span: self.words[first].span.start..self.span().end,
            message: "a host has no network mask".to_owned(),
            hint: format!("write `net {} …`", self.words[first].text),
        })
    }

    fn bits_outside(&self, first: usize, network: &str) -> FilterError {
        FilterError {
            span: self.since(first),
            message: "the address has bits outside its network".to_owned(),
            hint: format!("the network itself is {network}"),
        }
    }
}

/// An IPv4 address, and how many of its bits were written. Only a network may
/// leave bytes out.
fn ipv4_part(word: &str, net: bool) -> Option<(u32, u32)> {
    if let Ok(address) = word.parse::<Ipv4Addr>() {
        return Some((u32::from(address), 32));
    }
    let bytes: Vec<u8> = word
        .split('.')
        .map(|part| number(part).and_then(|byte| u8::try_from(byte).ok()))
        .collect::<Option<_>>()?;
    let known = 8 * bytes.len() as u32;
    let value = bytes
        .iter()
        .fold(0_u32, |value, &byte| value << 8 | u32::from(byte));
    (net && bytes.len() < 4).then(|| (value << (32 - known), known))
}
