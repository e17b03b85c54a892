//! The table for people and as JSON.
//!
//! Both show the shapes with the rank in which they are tried, what their keys
//! are made of, how many entries they have and, from whoever counts them, how
//! many frames they caught. For people, guards that shapes share stand once, as
//! a tree.
//!
//! ```text
//! no tag
//!   type ip
//!     protocol udp
//!       not a later fragment
//!         1. key source, destination port: 3 entries, 75 bits
//! ```

use std::fmt::{self, Write};
use std::net::IpAddr;

use ashway_wire::{Fragment, eth, ipv4, ipv6};

use super::filter::{Base, Conjunction, Field, Test, left, number};
use super::shape::{KeyField, Shape, ShapeId};
use super::table::{Entries, Table};

/// The table as a tree. `hits` says how many frames a shape's entries caught,
/// where that is known.
#[must_use]
pub fn tree<T: Copy + Eq + std::hash::Hash>(
    table: &Table<T>,
    hits: impl Fn(ShapeId) -> Option<u64>,
) -> String {
    let mut ranked: Vec<(usize, &Entries<T>)> = table.shapes().iter().enumerate().collect();
    ranked.sort_by(|(_, a), (_, b)| a.shape().guards.cmp(&b.shape().guards));
    let mut text = String::new();
    let mut above: &[Test] = &[];
    for (rank, entries) in ranked {
        let shape = entries.shape();
        let shared = above.iter().zip(&shape.guards).take_while(|(a, b)| a == b);
        for depth in shared.count()..shape.guards.len() {
            line(&mut text, depth, &shape.guards[depth].to_string());
        }
        above = &shape.guards;
        let six = shape.guards.iter().any(Test::is_ipv6);
        let mut words: Vec<String> = shape
            .not
            .iter()
            .map(|exclusion| format!("not ({})", Tests(exclusion, six)))
            .collect();
        let key: Vec<String> = shape.key.iter().map(ToString::to_string).collect();
        if !key.is_empty() {
            words.push(format!("key {}", key.join(", ")));
        }
        let entry = if entries.len() == 1 {
            "entry"
        } else {
            "entries"
        };
        let mut counts = vec![
            format!("{} {entry}", entries.len()),
            format!("{} bits", entries.specificity().bits),
        ];
        counts.extend(hits(entries.id()).map(|hits| format!("{hits} hits")));
        let colon = if words.is_empty() { "" } else { ": " };
        let leaf = format!(
            "{}. {}{colon}{}",
            rank + 1,
            words.join(", "),
            counts.join(", ")
        );
        line(&mut text, shape.guards.len(), &leaf);
    }
    text
}

fn line(text: &mut String, depth: usize, words: &str) {
    for _ in 0..depth {
        text.push_str("  ");
    }
    text.push_str(words);
    text.push('\n');
}

/// A shape's words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShapeText {
    /// Its guards: tests that all its filters make.
    pub guards: Vec<String>,
    /// What must not hold.
    pub not: Vec<String>,
    /// The fields whose values are looked up.
    pub key: Vec<String>,
}

/// Says what the filters of a shape test.
#[must_use]
pub fn shape(shape: &Shape) -> ShapeText {
    let six = shape.guards.iter().any(Test::is_ipv6);
    let not = shape.not.iter();
    ShapeText {
        guards: shape.guards.iter().map(ToString::to_string).collect(),
        not: not.map(|tests| Tests(tests, six).to_string()).collect(),
        key: shape.key.iter().map(ToString::to_string).collect(),
    }
}

/// Tests joined by `and`, and whether addresses are IPv6's.
struct Tests<'t>(&'t [Test], bool);

impl fmt::Display for Tests<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, test) in self.0.iter().enumerate() {
            f.write_str(if i == 0 { "" } else { " and " })?;
            match test.field {
                Field::Source | Field::Destination => with_address(f, test, self.1)?,
                _ => write!(f, "{test}")?,
            }
        }
        Ok(())
    }
}

impl Test {
    /// Whether it says that addresses are IPv6's.
    fn is_ipv6(&self) -> bool {
        *self == Self::whole(Field::EtherType, eth::TYPE_IPV6.to_be_bytes())
    }
}

impl fmt::Display for Conjunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let six = self.tests.iter().any(Test::is_ipv6);
        write!(f, "{}", Tests(&self.tests, six))?;
        for (i, exclusion) in self.not.iter().enumerate() {
            let and = if i == 0 && self.tests.is_empty() {
                ""
            } else {
                " and "
            };
            write!(f, "{and}not ({})", Tests(exclusion, six))?;
        }
        Ok(())
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Vlans => "tags",
            Self::EtherType => "type",
            Self::Protocol => "protocol",
            Self::Fragment => "fragment",
            Self::Vlan0 => "vlan",
            Self::Vlan1 => "inner vlan",
            Self::Source => "source",
            Self::Destination => "destination",
            Self::SourcePort => "source port",
            Self::DestinationPort => "destination port",
            Self::Vni => "vxlan",
            Self::Raw {
                base,
                offset,
                width,
            } => {
                let base = match base {
                    Base::Eth => "ether",
                    Base::L3 => "network",
                    Base::L4 => "transport",
                };
                return write!(f, "{base}[{offset}:{width}]");
            }
        })
    }
}

/// The bits under a mask, as a number.
fn bits(f: &mut impl Write, field: Field, mask: [u8; 16]) -> fmt::Result {
    let all = left_ones(field.width());
    match field {
        _ if mask == all => Ok(()),
        Field::Vlan0 | Field::Vlan1 if mask == left([0x0f, 0xff]) => Ok(()),
        Field::Source | Field::Destination => {
            let mask = number(mask);
            // A network's length says it; anything else is shown whole.
            if mask.leading_ones() + mask.trailing_zeros() >= 128 {
                write!(f, "/{}", mask.leading_ones())
            } else {
                write!(f, " & {mask:#034x}")
            }
        }
        _ => write!(f, " & {:#x}", aligned(field, mask)),
    }
}

fn left_ones(bytes: usize) -> [u8; 16] {
    let mut ones = [0; 16];
    ones[..bytes].fill(0xff);
    ones
}

/// The value as a number of the field's width.
fn aligned(field: Field, value: [u8; 16]) -> u128 {
    number(value) >> (128 - 8 * field.width())
}

impl fmt::Display for KeyField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.field)?;
        bits(f, self.field, self.mask)
    }
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = aligned(self.field, self.value);
        let field = self.field;
        if self.mask == [0; 16] {
            return write!(f, "{field} there");
        }
        match field {
            Field::Vlans => f.write_str(match (self.mask[0], value) {
                (3, 0) => "no tag",
                (3, 1) => "one tag",
                (_, 3) => "two tags",
                _ => "a tag",
            }),
            Field::Fragment if value == 0 && self.mask[0] & Fragment::Later as u8 != 0 => {
                f.write_str("not a later fragment")
            }
            Field::EtherType if self.mask == left_ones(2) => match value as u16 {
                eth::TYPE_IPV4 => f.write_str("type ip"),
                eth::TYPE_IPV6 => f.write_str("type ip6"),
                eth::TYPE_ARP => f.write_str("type arp"),
                other => write!(f, "type {other:#06x}"),
            },
            Field::Protocol if self.mask == left_ones(1) => match value as u8 {
                ipv4::PROTOCOL_UDP => f.write_str("protocol udp"),
                ipv4::PROTOCOL_TCP => f.write_str("protocol tcp"),
                ipv4::PROTOCOL_SCTP => f.write_str("protocol sctp"),
                ipv4::PROTOCOL_ICMP => f.write_str("protocol icmp"),
                ipv6::ICMPV6 => f.write_str("protocol icmp6"),
                other => write!(f, "protocol {other}"),
            },
            Field::Source | Field::Destination => with_address(f, self, false),
            Field::Raw { .. } => {
                write!(f, "{field}")?;
                bits(f, field, self.mask)?;
                write!(f, " = {value:#x}")
            }
            _ => {
                write!(f, "{field} {value}")?;
                bits(f, field, self.mask)
            }
        }
    }
}

/// A test of an address. Which version it is, only the type says (`six`); if no bit
/// behind the fourth byte counts, both are the same to the test alone.
fn with_address(into: &mut impl Write, test: &Test, six: bool) -> fmt::Result {
    let address: IpAddr = match test.value {
        [a, b, c, d, ..] if !six && test.mask[4..] == [0; 12] => [a, b, c, d].into(),
        whole => whole.into(),
    };
    write!(into, "{} {address}", test.field)?;
    if !six && test.mask == left_ones(4) {
        return Ok(());
    }
    bits(into, test.field, test.mask)
}
