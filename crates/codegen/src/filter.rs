//! The words of a path's `match`: which messages belong to it.
//!
//! A subset of pcap-filter(7), so that what is written here can be given to
//! `tcpdump` unchanged and means the same there:
//!
//! ```text
//! filter  = clause { ("and" | "&&") clause }
//! clause  = "udp" | "ip" | "ip6"
//!         | [ "udp" ]        ("dst" | "src") "port" NUMBER
//!         | [ "ip" | "ip6" ] ("dst" | "src") "host" ADDRESS
//! ```
//!
//! Clauses stand in any order; `udp` must be among them, because UDP is what
//! paths are made of today. Addresses and ports are literals: a name could
//! change its meaning between `check` and `run`.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

/// Version of the Internet protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// `ip`: version 4.
    Ipv4,
    /// `ip6`: version 6.
    Ipv6,
}

impl Family {
    /// The version of this address.
    #[must_use]
    pub const fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::Ipv4,
            IpAddr::V6(_) => Self::Ipv6,
        }
    }

    /// The word of pcap-filter.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Ipv4 => "ip",
            Self::Ipv6 => "ip6",
        }
    }
}

/// A conjunction of tests on a UDP datagram; `None` is "any".
///
/// Invariant of parsed filters: an address implies `family`, so that filters
/// that mean the same are equal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Version of the Internet protocol.
    pub family: Option<Family>,
    /// Destination address.
    pub dst_addr: Option<IpAddr>,
    /// Source address.
    pub src_addr: Option<IpAddr>,
    /// Destination port, in host byte order.
    pub dst_port: Option<u16>,
    /// Source port, in host byte order.
    pub src_port: Option<u16>,
}

impl Filter {
    /// How many tests the filter makes, `udp` included; of two filters that
    /// match one message, the one with more tests gets it.
    #[must_use]
    pub fn specificity(&self) -> u32 {
        1 + u32::from(self.family.is_some())
            + u32::from(self.dst_addr.is_some())
            + u32::from(self.src_addr.is_some())
            + u32::from(self.dst_port.is_some())
            + u32::from(self.src_port.is_some())
    }

    /// Whether a datagram between these two belongs to the filter. Constant
    /// time; the kernel tier's entry program makes the same tests.
    #[must_use]
    pub fn matches(&self, source: SocketAddr, destination: SocketAddr) -> bool {
        agree(self.family, Family::of(destination.ip()))
            && agree(self.dst_addr, destination.ip())
            && agree(self.src_addr, source.ip())
            && agree(self.dst_port, destination.port())
            && agree(self.src_port, source.port())
    }

    /// Whether some datagram matches both.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        compatible(self.family, other.family)
            && compatible(self.dst_addr, other.dst_addr)
            && compatible(self.src_addr, other.src_addr)
            && compatible(self.dst_port, other.dst_port)
            && compatible(self.src_port, other.src_port)
    }
}

fn agree<T: PartialEq + Copy>(test: Option<T>, value: T) -> bool {
    test.is_none_or(|wanted| wanted == value)
}

fn compatible<T: PartialEq>(one: Option<T>, other: Option<T>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one == other,
        _ => true,
    }
}

/// The canonical order: family, `udp`, destination, source.
impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(family) = self.family {
            write!(f, "{} and ", family.word())?;
        }
        f.write_str("udp")?;
        if let Some(address) = self.dst_addr {
            write!(f, " and dst host {address}")?;
        }
        if let Some(port) = self.dst_port {
            write!(f, " and dst port {port}")?;
        }
        if let Some(address) = self.src_addr {
            write!(f, " and src host {address}")?;
        }
        if let Some(port) = self.src_port {
            write!(f, " and src port {port}")?;
        }
        Ok(())
    }
}

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

const AVAILABLE: &str = "available are `udp`, `ip`, `ip6`, `dst port N`, `src port N`, \
     `dst host ADDRESS` and `src host ADDRESS`, joined by `and`";

/// Reads a filter. Linear in the length of `text`.
///
/// # Errors
///
/// The first thing that is wrong: an unknown or unavailable word, a number or
/// address that is none, two tests that cannot both hold, `udp` missing.
///
/// # Examples
///
/// ```
/// let filter = ashway_codegen::filter::parse("udp dst port 7777").unwrap();
/// assert_eq!(filter.dst_port, Some(7777));
/// assert_eq!(filter.to_string(), "udp and dst port 7777");
/// ```
pub fn parse(text: &str) -> Result<Filter, FilterError> {
    let mut parser = Parser {
        words: words(text),
        next: 0,
        end: text.trim_end().len()..text.len().max(1),
        filter: Filter::default(),
        udp: false,
    };
    parser.clause()?;
    while let Some((word, _)) = parser.peek() {
        if matches!(word, "and" | "&&") {
            parser.next += 1;
        } else {
            return Err(parser.unexpected("`and`"));
        }
        parser.clause()?;
    }
    if !parser.udp {
        return Err(FilterError {
            span: 0..text.len().max(1),
            message: "`udp` is missing: paths are made of UDP datagrams today".to_owned(),
            hint: format!("write `udp and {}`", text.trim()),
        });
    }
    Ok(parser.filter)
}

/// Words and where they stand. Operators of pcap-filter end a word.
fn words(text: &str) -> Vec<(&str, Range<usize>)> {
    let mut found = Vec::new();
    let mut rest = 0;
    while let Some(start) = text[rest..].find(|c: char| !c.is_whitespace()) {
        let start = rest + start;
        let tail = &text[start..];
        let len = if tail.starts_with("&&") || tail.starts_with("||") {
            2
        } else if tail.starts_with(['(', ')', '!']) {
            1
        } else {
            // The first character belongs to the word whatever it is, so
            // that the loop always moves on.
            let first = tail.chars().next().map_or(1, char::len_utf8);
            tail[first..]
                .find(|c: char| c.is_whitespace() || "()!&|".contains(c))
                .map_or(tail.len(), |end| first + end)
        };
        found.push((&text[start..start + len], start..start + len));
        rest = start + len;
    }
    found
}

struct Parser<'t> {
    words: Vec<(&'t str, Range<usize>)>,
    next: usize,
    /// Where to point when something is missing at the end.
    end: Range<usize>,
    filter: Filter,
    udp: bool,
}

#[derive(Clone, Copy)]
enum Side {
    Destination,
    Source,
}

impl<'t> Parser<'t> {
    fn peek(&self) -> Option<(&'t str, Range<usize>)> {
        self.words.get(self.next).cloned()
    }

    fn clause(&mut self) -> Result<(), FilterError> {
        let Some((word, span)) = self.peek() else {
            return Err(self.unexpected("a test"));
        };
        match word {
            "udp" => self.udp = true,
            "ip" => self.set_family(Family::Ipv4, &span)?,
            "ip6" => self.set_family(Family::Ipv6, &span)?,
            "dst" | "src" => return self.test(None),
            _ => return Err(self.unexpected("a test")),
        }
        self.next += 1;
        match self.peek() {
            Some(("dst" | "src", _)) => self.test(Some(word)),
            _ => Ok(()),
        }
    }

    /// `dst port 7`, `src host ::1`; `qualifier` is the protocol before it.
    fn test(&mut self, qualifier: Option<&str>) -> Result<(), FilterError> {
        let (side_word, start) = self.peek().unwrap_or_else(|| ("", self.end.clone()));
        let side = if side_word == "dst" {
            Side::Destination
        } else {
            Side::Source
        };
        self.next += 1;
        match (self.peek(), qualifier) {
            (Some(("port", _)), None | Some("udp")) => {
                self.next += 1;
                self.port(side, start.start)
            }
            (Some(("host", _)), None | Some("ip" | "ip6")) => {
                self.next += 1;
                self.host(side, start.start)
            }
            (Some((kind @ ("port" | "host"), span)), Some(protocol)) => {
                let own = if kind == "port" { "udp" } else { "ip" };
                Err(FilterError {
                    span,
                    message: format!("`{protocol}` has no `{side_word} {kind}`"),
                    hint: format!(
                        "write `{protocol} and {side_word} {kind} …` or `{own} {side_word} {kind} …`"
                    ),
                })
            }
            _ => Err(self.unexpected(&format!("`port` or `host` after `{side_word}`"))),
        }
    }

    fn port(&mut self, side: Side, start: usize) -> Result<(), FilterError> {
        let Some((word, span)) = self.peek() else {
            return Err(self.unexpected("a port number"));
        };
        // To tcpdump a leading zero means octal digits: nobody means both.
        let octal = word.len() > 1 && word.starts_with('0');
        let port = word.parse::<u16>().ok().filter(|_| !octal);
        let port = port.ok_or_else(|| FilterError {
            span: span.clone(),
            message: format!("`{word}` is no port number"),
            hint: "ports are decimal numbers from 0 to 65535 without leading zeros; service names \
                   are not looked up"
                .to_owned(),
        })?;
        self.next += 1;
        let (field, name) = match side {
            Side::Destination => (&mut self.filter.dst_port, "destination port"),
            Side::Source => (&mut self.filter.src_port, "source port"),
        };
        set(field, port, name, start..span.end)
    }

    fn host(&mut self, side: Side, start: usize) -> Result<(), FilterError> {
        let Some((word, span)) = self.peek() else {
            return Err(self.unexpected("an address"));
        };
        let address = word.parse::<IpAddr>().map_err(|_| FilterError {
            span: span.clone(),
            message: format!("`{word}` is no IPv4 or IPv6 address"),
            hint: "write the address itself, such as 10.0.0.1 or fd00::1; names are not looked up"
                .to_owned(),
        })?;
        self.next += 1;
        self.set_family(Family::of(address), &(start..span.end))?;
        let (field, name) = match side {
            Side::Destination => (&mut self.filter.dst_addr, "destination address"),
            Side::Source => (&mut self.filter.src_addr, "source address"),
        };
        set(field, address, name, start..span.end)
    }

    fn set_family(&mut self, family: Family, span: &Range<usize>) -> Result<(), FilterError> {
        match self.filter.family {
            Some(already) if already != family => Err(FilterError {
                span: span.clone(),
                message: format!(
                    "this is `{}`, but the filter asks for `{}` elsewhere: nothing can match",
                    family.word(),
                    already.word()
                ),
                hint: "keep one family in a filter; make a second path for the other".to_owned(),
            }),
            _ => {
                self.filter.family = Some(family);
                Ok(())
            }
        }
    }

    /// The next word, or the end, cannot stand here.
    fn unexpected(&self, wanted: &str) -> FilterError {
        let Some((word, span)) = self.peek() else {
            return FilterError {
                span: self.end.clone(),
                message: format!("the filter ends where {wanted} should follow"),
                hint: AVAILABLE.to_owned(),
            };
        };
        let (message, hint) = match word {
            "or" | "||" => (
                "`or` is not available yet".to_owned(),
                "make one path for each alternative, with the same handler".to_owned(),
            ),
            "not" | "!" => (
                format!("`{word}` is not available yet"),
                "a path with a more specific filter can take out what this one should not get"
                    .to_owned(),
            ),
            "port" | "host" => (
                format!("`{word}` without a direction is not available yet"),
                format!("write `dst {word} …` or `src {word} …`"),
            ),
            "tcp" | "icmp" | "icmp6" | "sctp" | "arp" | "ether" | "vlan" | "net" | "portrange"
            | "proto" | "len" | "less" | "greater" | "broadcast" | "multicast" | "(" | ")" => (
                format!("`{word}` is not available yet"),
                AVAILABLE.to_owned(),
            ),
            "udp" | "ip" | "ip6" | "dst" | "src" if wanted == "`and`" => (
                format!("expected `and` before `{word}`"),
                "tests are joined by `and`".to_owned(),
            ),
            _ => (
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

fn set<T: PartialEq + fmt::Display>(
    field: &mut Option<T>,
    value: T,
    name: &str,
    span: Range<usize>,
) -> Result<(), FilterError> {
    match field {
        Some(already) if *already != value => Err(FilterError {
            span,
            message: format!("the {name} cannot be both {already} and {value}"),
            hint: "make one path for each, with the same handler".to_owned(),
        }),
        _ => {
            *field = Some(value);
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests;
