//! Reads a filter.
//!
//! The grammar is pcap-filter(7)'s: `and` and `or` bind alike and to the left,
//! `not` binds more tightly, and a value that stands alone takes the words of
//! the test before it (`tcp port 80 or 443`). `vlan` moves all that follows, to
//! the end of the text, behind one more tag.
//!
//! Here is how tests are joined. `words` divides the text and `cursor` moves over
//! them; `primitives` reads a test's words, `values` what follows these, and
//! `arithmetic` the tests of bytes; `error` says what is wrong.

mod arithmetic;
mod cursor;
mod error;
mod primitives;
mod values;
mod words;

use std::ops::Range;

use super::filter::{Conjunction, Filter};
use super::logic;
use super::normal::{Any, Budget};
use super::primitive::Maker;
use cursor::is_value;
use primitives::Qualifiers;
use words::{Word, words};

pub use error::FilterError;

/// Most bytes of a filter's text.
pub const MAX_TEXT_BYTES: usize = 16_384;

/// Most parentheses and `not`s inside each other.
const MAX_DEPTH: u32 = 64;

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
/// [`MAX_ALTERNATIVES`](super::MAX_ALTERNATIVES) alternatives and about a second.
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
/// use ashway_demux::parse;
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

impl Parser<'_> {
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
}
