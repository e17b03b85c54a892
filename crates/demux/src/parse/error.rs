//! What is wrong with a filter: which words, and what to write instead.
//!
//! Apart from the grammar, because what a message says of libpcap's own words is
//! a list of its own. The party to blame is always the one who wrote the filter.

use std::ops::Range;

use super::{Parsed, Parser};
use crate::normal::{Any, MAX_ALTERNATIVES, TooMuch};
use crate::shape::MAX_KEY_BYTES;

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

const AVAILABLE: &str = "available are `ip`, `ip6`, `arp`, `tcp`, `udp`, `sctp`, `icmp`, `icmp6`, \
     `vlan N`, `vxlan N`, `[src|dst] host|net|port|portrange …`, `proto N`, `ip[0:1] & 15 = 5`, \
     joined by `and`, `or` and `not`";

impl Parser<'_> {
    pub(super) fn normal(&self, first: usize, any: Result<Any, TooMuch>) -> Parsed<Any> {
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

    /// The next word, or the end, cannot stand here.
    pub(super) fn unexpected(&self, wanted: &str) -> FilterError {
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
