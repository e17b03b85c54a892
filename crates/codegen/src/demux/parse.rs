//! Reads a filter.
//!
//! The grammar is pcap-filter(7)'s: `and` and `or` bind alike and to the left,
//! `not` binds more tightly, and a value that stands alone takes the words of
//! the test before it (`tcp port 80 or 443`). `vlan` moves all that follows, to
//! the end of the text, behind one more tag.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::Range;

use super::filter::{Conjunction, Filter, Test};
use super::logic;
use super::normal::{Any, Budget, MAX_ALTERNATIVES, TooMuch};
use super::primitive::{self, Family, Maker, Proto, Side, aligned, blocks, raw};
use super::shape::MAX_KEY_BYTES;
use super::words::{Word, constant, number, words};
use ashway_wire::{eth, ipv4, ipv6};

/// Most bytes of a filter's text.
pub const MAX_TEXT_BYTES: usize = 16_384;

/// Most parentheses and `not`s inside each other.
const MAX_DEPTH: u32 = 64;

/// What is wrong with a filter, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct FilterError {
    /// Bytes of the filter's text that are at fault.
    pub span: Range<usize>,
    /// What is wrong.
    pub message: String,
    /// What to write instead.
    pub hint: String,
}

/// Reads a filter in the words of pcap-filter(7).
///
/// Available: `ip ip6 arp rarp tcp udp sctp icmp icmp6 igmp esp ah pim vrrp`;
/// `vlan [N]`, at most twice; `[src|dst] host|net|port|portrange` with a
/// protocol before it where that makes sense; `net A/N`, `net A mask M`;
/// `ether host|src|dst`, `ether proto N`, `ip|ip6 proto N`, `proto N`;
/// `broadcast`, `multicast`; `PROTOCOL[OFFSET:SIZE] & MASK = VALUE` with `=`,
/// `!=` and, without a mask, `< <= > >=`; `and or not ( )`, `&& || !`; and
/// `vxlan [N]`, which is ours. Addresses and ports are literals: a name could
/// change its meaning between `check` and `run`.
///
/// The set of matching frames is libpcap's, except that
///
/// * a header counts only if it is whole, IPv6 extension headers are walked, and
///   behind an IPv4 header that says it is shorter than 20 bytes there is
///   nothing ([`ashway_wire::headers`]). libpcap looks for the transport header
///   of IPv6 at byte 40, so a datagram with hop-by-hop options has no ports.
/// * what follows `vlan` asks for the tag, also behind `or` and `not`. To libpcap
///   it then only stands four bytes further on: `vlan 5 or ip` would match an
///   untagged frame that happens to have 0x0800 there.
/// * a test of bytes that the frame does not have does not hold. To libpcap the
///   whole filter then fails, whatever else it says, so that `arp or ip[60] = 1`
///   and `ip[60] = 1 or arp` may differ from each other on a short frame.
///
/// Costs time and memory by what the filter expands to: at most
/// [`MAX_ALTERNATIVES`] alternatives and about a second.
///
/// # Errors
///
/// The first thing that is wrong: a word that is unknown or not available, a
/// number or address that is none, a filter that nothing can match or that
/// expands to too much.
///
/// # Examples
///
/// ```
/// use ashway_codegen::demux::parse;
/// let filter = parse("udp and dst port 53").unwrap();
/// assert_eq!(filter.any.len(), 2, "over IPv4 and over IPv6");
/// let error = parse("udp and dst prot 53").unwrap_err();
/// assert_eq!(&"udp and dst prot 53"[error.span], "prot");
/// ```
pub fn parse(text: &str) -> Result<Filter, FilterError> {
    if text.len() > MAX_TEXT_BYTES {
        return Err(FilterError {
            span: MAX_TEXT_BYTES.min(text.len())..text.len(),
            message: format!(
                "the filter has {} bytes; at most {MAX_TEXT_BYTES}",
                text.len()
            ),
            hint: "make several paths of it, or use `net` and `portrange`".to_owned(),
        });
    }
    let mut parser = Parser {
        words: words(text),
        next: 0,
        end: text.trim_end().len()..text.trim_end().len() + 1,
        maker: Maker::default(),
        budget: Budget::new(),
        qualifiers: None,
        depth: 0,
        contradiction: None,
    };
    let any = parser.expression()?;
    if parser.peek().is_some() {
        return Err(parser.unexpected("`and` or `or`"));
    }
    let any: Vec<Conjunction> = any
        .into_iter()
        .filter(|one| one.not.len() < 2 || !logic::impossible(one))
        .collect();
    if any.is_empty() {
        return Err(FilterError {
            span: parser.contradiction.unwrap_or(0..text.len()),
            message: "nothing can match this".to_owned(),
            hint: "two tests contradict each other; join alternatives by `or`".to_owned(),
        });
    }
    Ok(Filter {
        text: text.to_owned(),
        any,
    })
}

const AVAILABLE: &str = "available are `ip`, `ip6`, `arp`, `tcp`, `udp`, `sctp`, `icmp`, `icmp6`, \
     `vlan N`, `vxlan N`, `[src|dst] host|net|port|portrange …`, `proto N`, `ip[0:1] & 15 = 5`, \
     joined by `and`, `or` and `not`";

/// What a value is a value of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Host,
    Net,
    Port,
    Portrange,
    Proto,
}

/// The words before a value.
#[derive(Clone, Copy, Debug)]
struct Qualifiers {
    proto: Option<Proto>,
    side: Side,
    kind: Kind,
}

struct Parser<'t> {
    words: Vec<Word<'t>>,
    next: usize,
    /// Where to point when something is missing at the end.
    end: Range<usize>,
    maker: Maker,
    budget: Budget,
    /// Those of the last test, for a value that stands alone.
    qualifiers: Option<Qualifiers>,
    depth: u32,
    /// Where the first two tests that cannot both hold met.
    contradiction: Option<Range<usize>>,
}

type Parsed<T> = Result<T, FilterError>;

impl<'t> Parser<'t> {
    fn peek(&self) -> Option<&'t str> {
        self.at(0)
    }

    fn at(&self, ahead: usize) -> Option<&'t str> {
        self.words.get(self.next + ahead).map(|word| word.text)
    }

    fn span(&self) -> Range<usize> {
        let word = self.words.get(self.next);
        word.map_or_else(|| self.end.clone(), |word| word.span.clone())
    }

    /// From a word to the last one read.
    fn since(&self, first: usize) -> Range<usize> {
        let start = self
            .words
            .get(first)
            .map_or(self.end.start, |w| w.span.start);
        let last = self
            .next
            .checked_sub(1)
            .and_then(|last| self.words.get(last));
        start
            ..last
                .map_or(self.end.end, |word| word.span.end)
                .max(start + 1)
    }

    fn take(&mut self, text: &str) -> bool {
        let found = self.peek() == Some(text);
        self.next += usize::from(found);
        found
    }

    fn expect(&mut self, text: &str) -> Parsed<()> {
        if self.take(text) {
            return Ok(());
        }
        Err(self.unexpected(&format!("`{text}`")))
    }

    fn normal(&self, first: usize, any: Result<Any, TooMuch>) -> Parsed<Any> {
        any.map_err(|much| FilterError {
            span: self.since(first),
            message: match much {
                TooMuch::Alternatives => {
                    format!("this expands to more than {MAX_ALTERNATIVES} alternatives")
                }
                TooMuch::Fields => {
                    format!("this tests more than {MAX_KEY_BYTES} bytes of a frame at once")
                }
                TooMuch::Steps => "this takes too long to expand".to_owned(),
            },
            hint: "make several paths of it, or use `net` and `portrange`".to_owned(),
        })
    }

    /// `term { (and | or) (term | value) }`, to the left.
    fn expression(&mut self) -> Parsed<Any> {
        let first = self.next;
        let mut any = self.term()?;
        loop {
            let and = match self.peek() {
                Some("and" | "&&") => true,
                Some("or" | "||") => false,
                _ => return Ok(any),
            };
            self.next += 1;
            let part = self.next;
            let other = if self.starts_value() {
                self.value()?
            } else {
                self.term()?
            };
            let joined = if and {
                self.budget.and(&any, &other)
            } else {
                self.budget.or(any, other)
            };
            any = self.normal(first, joined)?;
            if any.is_empty() && self.contradiction.is_none() {
                self.contradiction = Some(self.since(part));
            }
        }
    }

    fn deeper(&mut self) -> Parsed<()> {
        self.depth += 1;
        if self.depth <= MAX_DEPTH {
            return Ok(());
        }
        Err(FilterError {
            span: self.span(),
            message: format!("more than {MAX_DEPTH} parentheses and `not`s inside each other"),
            hint: "`and` and `or` need no parentheses around each pair".to_owned(),
        })
    }

    fn term(&mut self) -> Parsed<Any> {
        let first = self.next;
        match self.peek() {
            Some("not" | "!") => {
                self.deeper()?;
                self.next += 1;
                let any = self.term()?;
                self.depth -= 1;
                let any = self.budget.not(&any);
                self.normal(first, any)
            }
            Some("(") if !self.starts_arithmetic() => {
                self.deeper()?;
                self.next += 1;
                let before = self.qualifiers;
                let any = self.expression()?;
                self.qualifiers = before;
                self.depth -= 1;
                self.expect(")")?;
                Ok(any)
            }
            _ => self.primitive(),
        }
    }

    /// Whether a value stands here, maybe behind `not` and parentheses.
    fn starts_value(&self) -> bool {
        let skipped = self.words[self.next.min(self.words.len())..]
            .iter()
            .find(|word| !matches!(word.text, "not" | "!" | "("));
        skipped.is_some_and(|word| is_value(word.text))
    }

    /// Values in parentheses, joined by `and` and `or`: `port (53 or 54)`.
    fn values(&mut self) -> Parsed<Any> {
        let first = self.next;
        let mut any = self.value()?;
        while matches!(self.peek(), Some("and" | "&&" | "or" | "||")) {
            let and = matches!(self.peek(), Some("and" | "&&"));
            self.next += 1;
            let other = self.value()?;
            let joined = if and {
                self.budget.and(&any, &other)
            } else {
                self.budget.or(any, other)
            };
            any = self.normal(first, joined)?;
        }
        Ok(any)
    }

    /// A value that takes the words of the test before it.
    fn value(&mut self) -> Parsed<Any> {
        let first = self.next;
        match self.peek() {
            Some("not" | "!") => {
                self.deeper()?;
                self.next += 1;
                let any = self.value()?;
                self.depth -= 1;
                let any = self.budget.not(&any);
                self.normal(first, any)
            }
            Some("(") => {
                self.deeper()?;
                self.next += 1;
                let any = self.values()?;
                self.depth -= 1;
                self.expect(")")?;
                Ok(any)
            }
            _ => self.one_value(),
        }
    }

    fn primitive(&mut self) -> Parsed<Any> {
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

    /// One value, with the words of [`Parser::qualifiers`].
    fn one_value(&mut self) -> Parsed<Any> {
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

    /// Takes the next word as `what`, or says what it should have been.
    fn literal<T>(
        &mut self,
        what: &str,
        hint: &str,
        read: impl FnOnce(&'t str) -> Option<T>,
    ) -> Parsed<T> {
        let Some(word) = self.peek() else {
            return Err(self.unexpected(&format!("a {what}")));
        };
        let value = read(word).ok_or_else(|| FilterError {
            span: self.span(),
            message: format!("`{word}` is no {what}"),
            hint: hint.to_owned(),
        })?;
        self.next += 1;
        Ok(value)
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
                let bytes = |number: u16| super::filter::left(number.to_be_bytes());
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

    /// A number, if one stands here.
    fn optional(&mut self, what: &str, hint: &str, most: u32) -> Parsed<Option<u32>> {
        if !self.peek().is_some_and(is_value) {
            return Ok(None);
        }
        let read = |word| number(word).filter(|&number| number <= most);
        self.literal(what, hint, read).map(Some)
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

    /// Whether `ip[` or `(ip[0] & 15) =` stands here.
    fn starts_arithmetic(&self) -> bool {
        let words = &self.words[self.next.min(self.words.len())..];
        let open = words.iter().take_while(|word| word.text == "(").count();
        if words.get(open + 1).is_none_or(|word| word.text != "[") {
            return false;
        }
        if open == 0 {
            return true;
        }
        // The parenthesis is arithmetic's if a comparison follows its end.
        let mut depth = 0_i32;
        for (i, word) in words.iter().enumerate() {
            depth += i32::from(word.text == "(") - i32::from(word.text == ")");
            if depth == 0 {
                return words.get(i + 1).is_some_and(|next| is_sign(next.text));
            }
        }
        false
    }

    /// `proto[offset:size] & mask = value`, the left side maybe in parentheses.
    fn arithmetic(&mut self) -> Parsed<Any> {
        let first = self.next;
        let mut open = 0;
        while self.take("(") {
            open += 1;
        }
        let word = self.peek().unwrap_or_default();
        let Some(proto) = primitive::proto(word) else {
            return Err(self.unexpected("a protocol before `[`"));
        };
        self.next += 1;
        self.expect("[")?;
        let hint = "offsets are numbers from 0 to 65535";
        let offset = self.constant("offset", hint)?;
        let offset = u16::try_from(offset).map_err(|_| FilterError {
            span: self.since(self.next - 1),
            message: format!("`{offset}` is no offset"),
            hint: hint.to_owned(),
        })?;
        let width = if self.take(":") {
            self.literal(
                "number of bytes",
                "1, 2 or 4 bytes can be compared",
                |word| match number(word)? {
                    size @ (1 | 2 | 4) => Some(size as u8),
                    _ => None,
                },
            )?
        } else {
            1
        };
        self.expect("]")?;
        let widest = u32::MAX >> (32 - 8 * u32::from(width));
        let mut mask = widest;
        loop {
            if open > 0 && self.take(")") {
                open -= 1;
            } else if self.take("&") {
                mask &= self.constant("mask", "masks are numbers")?;
            } else {
                break;
            }
        }
        let sign_at = self.span();
        let sign = match self.peek() {
            Some(sign @ ("=" | "==" | "!=" | "<" | "<=" | ">" | ">=")) if open == 0 => sign,
            Some(sign @ ("+" | "-" | "*" | "/" | "%" | "|" | "^" | "<<" | ">>")) => {
                return Err(FilterError {
                    span: sign_at,
                    message: format!("`{sign}` on bytes of a frame is not available"),
                    hint: "compare bytes, under a mask if need be: `ip[0] & 15 = 5`".to_owned(),
                });
            }
            _ => return Err(self.unexpected("`=`, `!=`, `<`, `<=`, `>` or `>=`")),
        };
        self.next += 1;
        let value = self.constant("value", "values are numbers")?;
        let (tests, base) = self.maker.bytes_of(proto);
        let field = raw(base, offset, width);
        let test = |mask, value| Test::new(field, aligned(mask, field), aligned(value, field));
        let ordered = |low: u32, high: u32| -> Any {
            blocks(low, high.min(widest), 8 * u32::from(width))
                .into_iter()
                .map(|(mask, value)| with(&tests, test(mask, value)))
                .collect()
        };
        if mask != widest && !matches!(sign, "=" | "==" | "!=") {
            return Err(FilterError {
                span: sign_at,
                message: format!("`{sign}` under a mask is not available"),
                hint: "compare whole bytes, or use `=` and `!=`".to_owned(),
            });
        }
        let any = match sign {
            "=" | "==" if value & !mask == 0 => vec![with(&tests, test(mask, value))],
            "=" | "==" => Vec::new(),
            "!=" => {
                // The bytes are there, and are something else.
                let mut there = with(&tests, test(0, 0));
                if value & !mask == 0 {
                    there.not.push(vec![test(mask, value)]);
                }
                vec![there]
            }
            "<" => value
                .checked_sub(1)
                .map_or_else(Vec::new, |high| ordered(0, high)),
            "<=" => ordered(0, value),
            ">" => value
                .checked_add(1)
                .map_or_else(Vec::new, |low| ordered(low, widest)),
            _ => ordered(value, widest),
        };
        if any.is_empty() {
            let span = self.since(first);
            self.contradiction.get_or_insert(span);
        }
        Ok(any)
    }

    /// A number, a constant's name, or several joined by `|` in parentheses.
    fn constant(&mut self, what: &str, hint: &str) -> Parsed<u32> {
        let read = |word| number(word).or_else(|| constant(word));
        if !self.take("(") {
            return self.literal(what, hint, read);
        }
        let mut value = self.literal(what, hint, read)?;
        while self.take("|") {
            value |= self.literal(what, hint, read)?;
        }
        self.expect(")")?;
        Ok(value)
    }

    /// The next word, or the end, cannot stand here.
    fn unexpected(&self, wanted: &str) -> FilterError {
        let span = self.span();
        let Some(word) = self.peek() else {
            return FilterError {
                span,
                message: format!("the filter ends where {wanted} should follow"),
                hint: AVAILABLE.to_owned(),
            };
        };
        let (message, hint) = match refused(word) {
            Some(hint) => (format!("`{word}` is not available"), hint.to_owned()),
            None if wanted.starts_with("`and`") && word != ")" => (
                format!("expected {wanted} before `{word}`"),
                "tests are joined by `and` and `or`".to_owned(),
            ),
            None => (
                format!("expected {wanted}, found `{word}`"),
                AVAILABLE.to_owned(),
            ),
        };
        FilterError {
            span,
            message,
            hint,
        }
    }
}

/// Words of pcap-filter that are not taken, and what to do about it.
fn refused(word: &str) -> Option<&'static str> {
    Some(match word {
        "len" | "less" | "greater" => "demux looks at headers; let the handler look at the length",
        "gateway" => "it needs names; write `ether host` and `not host`",
        "protochain" => "`proto` already looks behind IPv6 extension headers",
        "inbound" | "outbound" | "ifname" | "on" => "a path names its interface itself",
        "mpls" | "pppoed" | "pppoes" | "geneve" => {
            "this encapsulation is not looked into; `ether[…]`, `ip[…]` and `udp[…]` compare bytes"
        }
        "iso" | "clnp" | "esis" | "isis" | "stp" | "ipx" | "netbeui" | "atalk" | "aarp"
        | "decnet" | "lat" | "sca" | "moprc" | "mopdl" | "llc" => {
            "`ether proto` and `ether[…]` compare types and bytes"
        }
        "igrp" | "carp" => "write `ip proto` and its number",
        "wlan" | "fddi" | "tr" | "type" | "subtype" | "dir" | "ra" | "ta" | "addr1" | "addr2"
        | "addr3" | "addr4" => "frames are Ethernet's here",
        "action" | "rulenum" | "rnr" | "reason" | "rset" | "ruleset" | "srnr" | "subrulenum" => {
            "this is for logs of OpenBSD's pf"
        }
        _ => return None,
    })
}

/// Whether the word can only be a number or an address.
fn is_value(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_digit() || c == '\\') || word.contains(':') && word != ":"
}

fn is_sign(word: &str) -> bool {
    matches!(
        word,
        "=" | "=="
            | "!="
            | "<"
            | "<="
            | ">"
            | ">="
            | "&"
            | "|"
            | "^"
            | "+"
            | "-"
            | "*"
            | "/"
            | "%"
            | "<<"
            | ">>"
    )
}

/// These tests and one more.
fn with(tests: &[Test], test: Test) -> Conjunction {
    primitive::all([tests, &[test]].concat())
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
