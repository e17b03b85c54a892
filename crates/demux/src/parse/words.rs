//! The words of a filter, and where they stand.
//!
//! Division into words as libpcap's scanner does it (`scanner.l`, libpcap 1.10),
//! as far as the words that are available need it.

use std::ops::Range;

/// A word or sign.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word<'t> {
    pub(super) text: &'t str,
    pub(super) span: Range<usize>,
}

/// Signs of two characters; all others are one.
const PAIRS: [&str; 8] = ["&&", "||", "!=", "==", "<=", ">=", "<<", ">>"];

/// Divides the text. Linear in its length.
pub(super) fn words(text: &str) -> Vec<Word<'_>> {
    let mut found = Vec::with_capacity(text.len() / 4 + 1);
    let mut at = 0;
    let mut in_brackets = false;
    while let Some(start) = text[at..].find(|c: char| !c.is_whitespace()) {
        let start = at + start;
        let tail = &text[start..];
        // A colon belongs to an address, except in `ip[6:2]`.
        let ends = |c: char| match c {
            '.' | '_' | '-' => false,
            ':' => in_brackets,
            c => !c.is_alphanumeric(),
        };
        let first = tail.chars().next().map_or(1, char::len_utf8);
        let len = if tail.starts_with('\\') || !tail.starts_with(ends) {
            tail[first..]
                .find(ends)
                .map_or(tail.len(), |end| first + end)
        } else if PAIRS.iter().any(|pair| tail.starts_with(pair)) {
            2
        } else {
            first
        };
        at = start + len;
        let word = &text[start..at];
        in_brackets = word == "[" || in_brackets && word != "]";
        found.push(Word {
            text: word,
            span: start..at,
        });
    }
    found
}

/// A number as libpcap reads it: decimal, `0x` hexadecimal. `None` if it is
/// none, or if it is one to people and another to libpcap (`010` is eight).
pub(super) fn number(word: &str) -> Option<u32> {
    if let Some(digits) = word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")) {
        let hexadecimal = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        return u32::from_str_radix(digits, 16).ok().filter(|_| hexadecimal);
    }
    if !word.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let decimal = word.parse().ok()?;
    let octal = word.len() > 1 && word.starts_with('0');
    (!octal || u32::from_str_radix(word, 8) == Ok(decimal)).then_some(decimal)
}

/// Constants that libpcap knows by name.
pub(super) fn constant(word: &str) -> Option<u32> {
    Some(match word {
        "tcpflags" | "icmp-tstamp" => 13,
        "icmptype" | "icmp6type" | "icmp-echoreply" => 0,
        "icmpcode" | "icmp6code" | "tcp-fin" | "icmp6-destinationunreach" => 1,
        "tcp-syn" | "icmp6-packettoobig" => 2,
        "icmp-unreach" | "icmp6-timeexceeded" => 3,
        "tcp-rst" | "icmp-sourcequench" | "icmp6-parameterproblem" => 4,
        "icmp-redirect" => 5,
        "tcp-push" | "icmp-echo" => 8,
        "icmp-routeradvert" => 9,
        "icmp-routersolicit" => 10,
        "icmp-timxceed" => 11,
        "icmp-paramprob" => 12,
        "icmp-tstampreply" => 14,
        "icmp-ireq" => 15,
        "tcp-ack" | "icmp-ireqreply" => 16,
        "icmp-maskreq" => 17,
        "icmp-maskreply" => 18,
        "tcp-urg" => 32,
        "tcp-ece" => 64,
        "tcp-cwr" | "icmp6-echo" => 128,
        "icmp6-echoreply" => 129,
        "icmp6-routersolicit" => 133,
        "icmp6-routeradvert" => 134,
        "icmp6-neighborsolicit" => 135,
        "icmp6-neighboradvert" => 136,
        "icmp6-redirect" => 137,
        _ => return None,
    })
}
