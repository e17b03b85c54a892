//! Attributes: the name-value pairs that describe a path.
//!
//! Given at creation, they are what the whole path may rely on (Scout's
//! invariants); modules rewrite them on the way (the protocol id of the layer
//! below), and the stages of a finished path share them without knowing each
//! other (§3.2, "anonymously").

use std::borrow::Cow;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use crate::bug::{self, Bug};

/// An attribute's name. Those that several modules agree on stand in [`names`].
pub type Name = Cow<'static, str>;

/// Names that modules agree on.
pub mod names {
    /// Endpoint: the far end (Scout's `PA_NET_PARTICIPANTS`).
    pub const REMOTE: &str = "remote";
    /// Endpoint: the near end.
    pub const LOCAL: &str = "local";
    /// Number: what the layer above is called by the layer below; each layer
    /// replaces it on the way down (Scout's `PA_PROTID`).
    pub const PROTOCOL: &str = "protocol";
    /// Text: where the path is to lead, module by module, separated by `/`
    /// (Scout's `PA_PATHNAME`).
    pub const PATHNAME: &str = "pathname";
    /// Text: the interface the path begins or ends at.
    pub const IFACE: &str = "iface";
    /// Number: largest packet of the layer below, in bytes.
    pub const MTU: &str = "mtu";
}

/// An attribute's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A number, a length in bytes, a protocol id, a truth (0 or 1).
    Number(u64),
    /// A word or a name. Thousands of paths share that of their interface.
    Text(Arc<str>),
    /// An IPv4 or IPv6 address.
    Address(IpAddr),
    /// Address and port.
    Endpoint(SocketAddr),
}

impl Value {
    /// What a text most probably means: a number (`17`, `0x800`), an address, an
    /// address with port, else the text itself. For command lines and
    /// configurations, where attributes have no declared type.
    #[must_use]
    pub fn of_text(text: &str) -> Self {
        // How many colons there are tells the forms apart, so that one or two are tried.
        let colons = text.bytes().filter(|byte| *byte == b':').count();
        let read = match colons {
            0 => match text.strip_prefix("0x") {
                Some(digits) => u64::from_str_radix(digits, 16).ok(),
                None => text.parse().ok(),
            }
            .map(Self::Number)
            .or_else(|| text.parse().map(IpAddr::V4).map(Self::Address).ok()),
            1 => text.parse().map(SocketAddr::V4).map(Self::Endpoint).ok(),
            _ if text.starts_with('[') => text.parse().map(SocketAddr::V6).map(Self::Endpoint).ok(),
            _ => text.parse().map(IpAddr::V6).map(Self::Address).ok(),
        };
        read.unwrap_or_else(|| Self::Text(text.into()))
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) => f.write_str(text),
            Self::Address(address) => write!(f, "{address}"),
            Self::Endpoint(endpoint) => write!(f, "{endpoint}"),
        }
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl From<Arc<str>> for Value {
    fn from(text: Arc<str>) -> Self {
        Self::Text(text)
    }
}

impl From<IpAddr> for Value {
    fn from(address: IpAddr) -> Self {
        Self::Address(address)
    }
}

impl From<SocketAddr> for Value {
    fn from(endpoint: SocketAddr) -> Self {
        Self::Endpoint(endpoint)
    }
}

/// A set of attributes, in the order of their names.
///
/// Looking up compares the name with those of the (few) attributes that are as long, and mostly
/// with none where there is no such attribute; setting may allocate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attrs {
    entries: Vec<(Name, Value)>,
    /// The [bits](bit) of all names. Most look-ups of a creation are for names that are not
    /// there: each module asks for all that it knows.
    known: u64,
}

/// The bit of a name among 64; two names may share one.
fn bit(name: &str) -> u64 {
    let bytes = name.as_bytes();
    let ends = bytes.first().zip(bytes.last());
    let (first, last) = ends.map_or((0, 0), |(first, last)| (*first, *last));
    let number = usize::from(first)
        .wrapping_mul(7)
        .wrapping_add(usize::from(last).wrapping_mul(3))
        .wrapping_add(bytes.len());
    1 << (number % 64)
}

impl Attrs {
    /// No attributes.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            entries: Vec::new(),
            known: 0,
        }
    }

    /// No attributes, and room for so many.
    #[must_use]
    pub fn with_capacity(count: usize) -> Self {
        Self {
            entries: Vec::with_capacity(count),
            known: 0,
        }
    }

    /// The value of this name.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&Value> {
        self.find(name).map(|at| &self.entries[at].1)
    }

    /// The number of this name.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<u64> {
        match self.value(name) {
            Some(Value::Number(number)) => Some(*number),
            _ => None,
        }
    }

    /// The text of this name.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.value(name) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// The address and port of this name.
    #[must_use]
    pub fn endpoint(&self, name: &str) -> Option<SocketAddr> {
        match self.value(name) {
            Some(Value::Endpoint(endpoint)) => Some(*endpoint),
            _ => None,
        }
    }

    /// Sets an attribute and returns what it was before.
    pub fn set(&mut self, name: impl Into<Name>, value: impl Into<Value>) -> Option<Value> {
        self.put(name.into(), value.into())
    }

    /// The same, once for all types.
    fn put(&mut self, name: Name, value: Value) -> Option<Value> {
        if let Some(at) = self.find(&name) {
            return Some(std::mem::replace(&mut self.entries[at].1, value));
        }
        let at = self.entries.partition_point(|(known, _)| *known < name);
        self.known |= bit(&name);
        self.entries.insert(at, (name, value));
        None
    }

    /// Sets an attribute that is there to a number; false if it is not. Never
    /// allocates: for what changes with each message.
    pub fn renew(&mut self, name: &str, number: u64) -> bool {
        let found = self.find(name);
        if let Some(at) = found {
            self.entries[at].1 = Value::Number(number);
        }
        found.is_some()
    }

    /// Removes an attribute and returns it.
    pub fn remove(&mut self, name: &str) -> Option<Value> {
        let (_, value) = self.entries.remove(self.find(name)?);
        // Another name may have the same bit.
        self.known = if bug::is(Bug::AttrForgotten) {
            self.known & !bit(name)
        } else {
            let entries = self.entries.iter();
            entries.fold(0, |all, (name, _)| all | bit(name))
        };
        Some(value)
    }

    /// All of them, in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.entries
            .iter()
            .map(|(name, value)| (name.as_ref(), value))
    }

    /// What is different in `after`: for each name, the value before and after,
    /// in the order of the names. Linear.
    #[must_use]
    pub fn changes(&self, after: &Self) -> Vec<Change> {
        let mut old = self.entries.iter().peekable();
        let mut new = after.entries.iter().peekable();
        let mut changes = Vec::new();
        loop {
            // The lesser of the two names; both if they are the same.
            let (before, after) = match (old.peek(), new.peek()) {
                (None, None) => return changes,
                (Some(a), Some(b)) if a.0 == b.0 => (old.next(), new.next()),
                (Some(a), Some(b)) if a.0 > b.0 => (None, new.next()),
                (None, Some(_)) => (None, new.next()),
                (Some(_), _) => (old.next(), None),
            };
            let Some((name, _)) = before.or(after) else {
                return changes;
            };
            let value = |found: Option<&(Name, Value)>| found.map(|(_, value)| value.clone());
            let (before, after) = (value(before), value(after));
            if before != after {
                changes.push(Change {
                    name: name.clone(),
                    before,
                    after,
                });
            }
        }
    }

    /// Gives back room for more of them.
    pub(crate) fn shrink(&mut self) {
        self.entries.shrink_to_fit();
    }

    fn find(&self, name: &str) -> Option<usize> {
        if self.known & bit(name) == 0 {
            return None;
        }
        let mut entries = self.entries.iter();
        entries.position(|(known, _)| *known == *name)
    }
}

/// What became of one attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Its name.
    pub name: Name,
    /// Its value before; `None` if it is new.
    pub before: Option<Value>,
    /// Its value after; `None` if it is gone.
    pub after: Option<Value>,
}

/// `protocol 17 -> 0x800`; `-` where there is no value.
impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = |value: &Option<Value>| match value {
            Some(value) => Shown(&self.name, value).to_string(),
            None => "-".to_owned(),
        };
        let (before, after) = (side(&self.before), side(&self.after));
        write!(f, "{} {before} -> {after}", self.name)
    }
}

/// A value as people know it: protocol ids from 0x600 are `EtherType`s (IEEE
/// 802.3 §3.2.6), which are written in hexadecimal.
struct Shown<'a>(&'a str, &'a Value);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self(names::PROTOCOL, Value::Number(id @ 0x600..)) => write!(f, "{id:#x}"),
            Self(_, value) => value.fmt(f),
        }
    }
}

/// `name=value`, separated by blanks.
impl fmt::Display for Attrs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (name, value)) in self.iter().enumerate() {
            let blank = if at == 0 { "" } else { " " };
            write!(f, "{blank}{name}={}", Shown(name, value))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_found_by_name_and_type() {
        let mut attrs = Attrs::new();
        attrs.set(names::PROTOCOL, 21);
        attrs.set(names::IFACE, "veth0");
        assert_eq!(attrs.set(names::PROTOCOL, 6), Some(Value::Number(21)));
        assert_eq!(attrs.number(names::PROTOCOL), Some(6));
        assert_eq!(attrs.text(names::PROTOCOL), None);
        assert_eq!(attrs.to_string(), "iface=veth0 protocol=6");
        attrs.set(names::PROTOCOL, 0x800);
        assert_eq!(attrs.to_string(), "iface=veth0 protocol=0x800");
        assert!(attrs.renew(names::PROTOCOL, 17) && !attrs.renew("other", 1));
        assert_eq!(attrs.number(names::PROTOCOL), Some(17));
        assert_eq!(attrs.remove(names::IFACE), Some("veth0".into()));
        assert_eq!(attrs.value(names::IFACE), None);
    }

    /// Names that share a bit are found each for itself, whichever goes first.
    fn names_of_one_bit_are_two() -> bool {
        let names: Vec<String> = (b'a'..=b'z').map(|c| char::from(c).to_string()).collect();
        let longer = names.iter().map(|name| format!("{name}a"));
        let all: Vec<String> = names.iter().cloned().chain(longer).collect();
        let mut pairs = all.iter().flat_map(|a| all.iter().map(move |b| (a, b)));
        let pair = pairs.find(|(a, b)| a != b && bit(a) == bit(b));
        let (one, other) = pair.expect("52 names, 64 bits");
        let mut attrs = Attrs::new();
        attrs.set(one.clone(), 1);
        attrs.set(other.clone(), 2);
        let both = (attrs.number(one), attrs.number(other)) == (Some(1), Some(2));
        attrs.remove(one);
        let rest = (attrs.number(one), attrs.number(other)) == (None, Some(2));
        attrs.set(one.clone(), 3);
        attrs.remove(other);
        let again = (attrs.number(one), attrs.number(other)) == (Some(3), None);
        attrs.remove(one);
        both && rest && again && attrs == Attrs::new()
    }

    #[test]
    fn a_name_is_not_forgotten_with_another() {
        assert!(names_of_one_bit_are_two());
        assert!(!bug::with(Bug::AttrForgotten, names_of_one_bit_are_two));
    }

    #[test]
    fn changes_name_what_is_new_other_and_gone() {
        let (mut before, mut after) = (Attrs::new(), Attrs::new());
        before.set("a", 1);
        before.set("b", 2);
        before.set("c", 3);
        after.set("b", 2);
        after.set("c", 4);
        after.set("d", "new");
        let changes: Vec<_> = before
            .changes(&after)
            .iter()
            .map(Change::to_string)
            .collect();
        assert_eq!(changes, ["a 1 -> -", "c 3 -> 4", "d - -> new"]);
        assert_eq!(after.changes(&after), []);
    }

    #[test]
    fn a_text_means_what_it_looks_like() {
        assert_eq!(Value::of_text("17"), Value::Number(17));
        assert_eq!(Value::of_text("0x800"), Value::Number(0x800));
        assert!(matches!(Value::of_text("10.0.0.1"), Value::Address(_)));
        assert!(matches!(Value::of_text("[fe80::1]:53"), Value::Endpoint(_)));
        for text in ["mpeg/udp", "", "0x", "-1", "10.0.0.1:99999"] {
            assert_eq!(Value::of_text(text), Value::Text(text.into()));
        }
    }

    /// What the forms say one after the other, whatever there is of colons.
    #[test]
    fn a_text_means_the_first_form_that_it_has() {
        let parts = [
            "", "0", "17", "+5", "0x", "1f", "g", ":", "::", "[", "]", "]:53", "10.0.0.1", ".",
            "%3", "fe80", "65536", "-",
        ];
        let one_after_the_other = |text: &str| {
            let number = match text.strip_prefix("0x") {
                Some(digits) => u64::from_str_radix(digits, 16).ok(),
                None => text.parse().ok(),
            };
            let address = || text.parse().ok().map(Value::Address);
            let endpoint = || text.parse().ok().map(Value::Endpoint);
            let read = number.map(Value::Number).or_else(address);
            read.or_else(endpoint).unwrap_or_else(|| text.into())
        };
        for a in parts {
            for b in parts {
                for c in parts {
                    for d in parts {
                        let text = [a, b, c, d].concat();
                        let read = Value::of_text(&text);
                        assert_eq!(read, one_after_the_other(&text), "`{text}`");
                    }
                }
            }
        }
    }
}
