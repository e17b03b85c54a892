//! Reads a list of pipes: `cksum16 | bswap32 | xor(0xdeadbeef)`.
//!
//! ```text
//! list = pipe ("|" pipe)*
//! pipe = name [ "(" argument ("," argument)* ")" ]
//! ```
//!
//! Names and what they do: [`builtin`]. An argument is a number, decimal or `0x`
//! hexadecimal; a cipher's keys, nonces and counters are hexadecimal digits, two
//! for each byte.

use std::ops::Range;

use super::builtin;
use super::ir::{Gauge, Pipe};
use super::list::List;

/// Most bytes of a list's text.
pub const MAX_TEXT_BYTES: usize = 4096;

/// The built-in pipes, as they are written, and what they do; `N` is 8, 16, 32 or
/// 64, except that bytes cannot be swapped.
pub const PIPES: &[(&str, &str)] = &[
    ("copy", "the data as it is"),
    ("cksum16", "Internet checksum (RFC 1071)"),
    ("crc32", "CRC-32 of Ethernet and gzip"),
    ("crc32c", "CRC-32C of SCTP and iSCSI"),
    ("adler32", "Adler-32 (RFC 1950)"),
    ("bswapN", "bytes of each word in reverse order"),
    (
        "xorN(K)",
        "each word xor K, whose lowest byte meets the word's first; `xor` is `xor32`",
    ),
    ("addN(K)", "each word plus K"),
    (
        "mask(K)",
        "xor with a rolling key of 4 bytes (RFC 6455), K's highest byte first",
    ),
    ("alaw2ulaw", "A-law to mu-law (G.711)"),
    ("ulaw2alaw", "mu-law to A-law"),
    ("sumN", "sum of all words"),
    ("minN", "least word"),
    ("maxN", "greatest word"),
    ("countN(K)", "how many words are K"),
    ("chacha20(KEY,NONCE,BLOCK)", "ChaCha20 (RFC 8439)"),
    ("aesctr(KEY,COUNTER)", "AES in counter mode"),
];

/// What is wrong with a list's text, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ParseError {
    /// Bytes of the text that are at fault; may lie one behind its end.
    pub span: Range<usize>,
    /// What is wrong.
    pub message: String,
    /// What to write instead.
    pub hint: String,
}

impl ParseError {
    /// The text with carets under what is at fault.
    ///
    /// # Examples
    ///
    /// ```
    /// # use ashway_codegen::pipe::parse;
    /// let text = "cksum16 | bswap33";
    /// assert_eq!(
    ///     parse(text).unwrap_err().caret(text),
    ///     "cksum16 | bswap33\n          ^^^^^^^ there is no pipe `bswap33`"
    /// );
    /// ```
    #[must_use]
    pub fn caret(&self, text: &str) -> String {
        let before = text.get(..self.span.start).unwrap_or(text);
        let under = text.get(self.span.clone()).unwrap_or_default();
        format!(
            "{text}\n{:indent$}{} {}",
            "",
            "^".repeat(under.chars().count().max(1)),
            self.message,
            indent = before.chars().count()
        )
    }
}

/// Reads a list. Linear in the text.
///
/// # Errors
///
/// The first thing that is wrong.
pub fn parse(text: &str) -> Result<List, ParseError> {
    parse_with(text, &[])
}

/// As [`parse`], with more pipes than the built-in ones: by their names, without
/// arguments. They hide built-in ones of the same name.
///
/// # Errors
///
/// The first thing that is wrong.
pub fn parse_with(text: &str, more: &[Pipe]) -> Result<List, ParseError> {
    if text.len() > MAX_TEXT_BYTES {
        return Err(error(
            0..0,
            format!(
                "the list has {} bytes; at most {MAX_TEXT_BYTES}",
                text.len()
            ),
            "make two lists of it",
        ));
    }
    let mut list = List::new();
    let mut at = 0;
    for part in text.split('|') {
        let trimmed = part.trim();
        let start = at + part.len() - part.trim_start().len();
        // Between two bars, or behind the last, the fault is the space itself.
        let span = if trimmed.is_empty() {
            at..at + part.len().max(1)
        } else {
            start..start + trimmed.len()
        };
        let pipe = match more.iter().find(|pipe| pipe.name() == trimmed) {
            Some(pipe) => pipe.clone(),
            None => one(trimmed, span.clone())?,
        };
        list.push(pipe)
            .map_err(|why| error(span, why.to_string(), why.hint()))?;
        at += part.len() + 1;
    }
    Ok(list)
}

fn error(span: Range<usize>, message: String, hint: &str) -> ParseError {
    ParseError {
        span,
        message,
        hint: hint.to_owned(),
    }
}

/// Reads one pipe, without spaces around it, that stands at `span`.
fn one(text: &str, span: Range<usize>) -> Result<Pipe, ParseError> {
    if text.is_empty() {
        return Err(error(
            span,
            "a pipe is missing here".to_owned(),
            "write one, for example `copy`",
        ));
    }
    let (name, argument) = match text.split_once('(') {
        None => (text, None),
        Some((name, rest)) => {
            let inside = span.start + name.len() + 1;
            let Some(number) = rest.strip_suffix(')') else {
                return Err(error(
                    span.end - 1..span.end,
                    "the parenthesis is not closed behind this".to_owned(),
                    "write `)` at the end of the pipe",
                ));
            };
            (name, Some((number, inside..inside + number.len())))
        }
    };
    let name = name.trim_end();
    let name_span = span.start..span.start + name.len();
    if let ("chacha20" | "aesctr", Some((arguments, at))) = (name, &argument) {
        return cipher(name, arguments, at.clone());
    }
    let (base, bits) = split(name);
    let unknown = || {
        error(
            name_span.clone(),
            format!("there is no pipe `{name}`"),
            "`ashway pipe list` shows those that there are",
        )
    };
    let needs = needs(base, bits).ok_or_else(unknown)?;
    let argument = match (argument, needs) {
        (None, Needs::Nothing) => 0,
        (Some((_, at)), Needs::Nothing) => {
            return Err(error(
                at.start - 1..at.end + 1,
                format!("`{name}` takes no number"),
                "leave the parentheses out",
            ));
        }
        (None, Needs::Number(_)) => {
            return Err(error(
                name_span,
                format!("`{name}` needs a number"),
                "write it in parentheses, for example `xor(0xdeadbeef)`",
            ));
        }
        (Some((number, at)), Needs::Number(gauge)) => value(number, at, gauge)?,
    };
    make(base, bits, argument).ok_or_else(unknown)
}

/// The cipher whose arguments stand at `span`.
fn cipher(name: &str, arguments: &str, span: Range<usize>) -> Result<Pipe, ParseError> {
    let wrong = || {
        let form = if name == "chacha20" {
            "chacha20(KEY,NONCE,BLOCK) with 64 and 24 hexadecimal digits and a number"
        } else {
            "aesctr(KEY,COUNTER) with 32, 48 or 64, and 32 hexadecimal digits"
        };
        error(
            span.start..span.end.max(span.start + 1),
            format!("`{name}` needs other arguments"),
            &format!("write {form}"),
        )
    };
    let arguments: Vec<&str> = arguments.split(',').map(str::trim).collect();
    let made = match (name, &arguments[..]) {
        ("chacha20", [key, nonce, block]) => {
            let key = bytes(key).and_then(|key| key.try_into().ok());
            let nonce = bytes(nonce).and_then(|nonce| nonce.try_into().ok());
            let block = value(block, span.clone(), Gauge::Bits32)?;
            key.zip(nonce)
                .map(|(key, nonce)| builtin::chacha20(key, nonce, block as u32))
        }
        ("aesctr", [key, counter]) => {
            let counter = bytes(counter).and_then(|counter| counter.try_into().ok());
            bytes(key)
                .zip(counter)
                .and_then(|(key, counter)| builtin::aes_ctr(&key, counter))
        }
        _ => None,
    };
    made.ok_or_else(wrong)
}

/// Bytes of hexadecimal digits; `None` if it is anything else.
fn bytes(text: &str) -> Option<Vec<u8>> {
    if !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let byte = |pair: &[u8; 2]| {
        let digits = std::str::from_utf8(pair).ok()?;
        u8::from_str_radix(digits, 16).ok()
    };
    rest.is_empty()
        .then(|| pairs.iter().map(byte).collect())
        .flatten()
}

/// The number `text` that stands at `span`, if it fits `gauge`.
fn value(text: &str, span: Range<usize>, gauge: Gauge) -> Result<u64, ParseError> {
    let span = span.start..span.end.max(span.start + 1);
    let trimmed = text.trim();
    let read = match trimmed.strip_prefix("0x") {
        // `from_str_radix` would take a sign.
        Some(digits) if !digits.starts_with('+') => u64::from_str_radix(digits, 16).ok(),
        None if !trimmed.starts_with('+') => trimmed.parse().ok(),
        _ => None,
    };
    match read {
        Some(number) if number <= gauge.mask() => Ok(number),
        Some(_) => Err(error(
            span,
            format!("`{trimmed}` does not fit into {gauge}"),
            "use a smaller number, or the pipe for wider words",
        )),
        None => Err(error(
            span,
            format!("`{trimmed}` is not a number"),
            "write it decimal, or hexadecimal with `0x`",
        )),
    }
}

/// A name without the width that it ends in.
fn split(name: &str) -> (&str, &str) {
    for base in ["bswap", "xor", "add", "sum", "min", "max", "count"] {
        if let Some(bits) = name.strip_prefix(base) {
            return (base, bits);
        }
    }
    (name, "")
}

fn gauge(bits: &str) -> Option<Gauge> {
    Gauge::WORDS
        .into_iter()
        .find(|gauge| gauge.bits().to_string() == bits)
}

/// What stands in a pipe's parentheses.
#[derive(Clone, Copy)]
enum Needs {
    /// It has none.
    Nothing,
    /// A number of so many bits.
    Number(Gauge),
}

/// What a pipe needs; `None` if there is no such pipe.
fn needs(base: &str, bits: &str) -> Option<Needs> {
    match (base, bits) {
        ("mask" | "chacha20" | "aesctr", _) | ("xor", "") => Some(Needs::Number(Gauge::Bits32)),
        ("xor" | "add" | "count", bits) => gauge(bits).map(Needs::Number),
        _ => make(base, bits, 0).map(|_| Needs::Nothing),
    }
}

fn make(base: &str, bits: &str, number: u64) -> Option<Pipe> {
    Some(match base {
        "copy" => builtin::copy(),
        "cksum16" => builtin::internet_checksum(),
        "crc32" => builtin::crc32(),
        "crc32c" => builtin::crc32c(),
        "adler32" => builtin::adler32(),
        "alaw2ulaw" => builtin::alaw_to_ulaw(),
        "ulaw2alaw" => builtin::ulaw_to_alaw(),
        "mask" => builtin::mask((number as u32).to_be_bytes()),
        "xor" if bits.is_empty() => builtin::xor(Gauge::Bits32, number),
        "bswap" => match gauge(bits)? {
            Gauge::Bits8 => return None,
            gauge => builtin::swap(gauge),
        },
        "xor" => builtin::xor(gauge(bits)?, number),
        "add" => builtin::add(gauge(bits)?, number),
        "sum" => builtin::sum(gauge(bits)?),
        "min" => builtin::min(gauge(bits)?),
        "max" => builtin::max(gauge(bits)?),
        "count" => builtin::count(gauge(bits)?, number),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, at: &str, message: &str) {
        let error = parse(text).unwrap_err();
        assert_eq!(
            (&error.caret(text)[text.len() + 1..]),
            format!("{at} {message}")
        );
    }

    #[test]
    fn reads_the_list_of_the_manual() {
        let list = parse("cksum16 | bswap32 | xor(0xdeadbeef)").unwrap();
        let names: Vec<&str> = list.pipes().iter().map(|pipe| &*pipe.name).collect();
        assert_eq!(names, ["cksum16", "bswap32", "xor32"]);
        assert_eq!(list.initial(), [0, 0xdead_beef]);
    }

    #[test]
    fn points_at_what_is_wrong() {
        check(
            "copy | bswap8",
            "       ^^^^^^",
            "there is no pipe `bswap8`",
        );
        check("copy || copy", "      ^", "a pipe is missing here");
        check("copy |", "      ^", "a pipe is missing here");
        check("", "^", "a pipe is missing here");
        check("xor", "^^^", "`xor` needs a number");
        check("xor()", "    ^", "`` is not a number");
        check(
            "xor(0x1ffffffff)",
            "    ^^^^^^^^^^^",
            "`0x1ffffffff` does not fit into 32 bits",
        );
        check("xor8(+1)", "     ^^", "`+1` is not a number");
        check("copy(1)", "    ^^^", "`copy` takes no number");
        check(
            "mask(1 | copy",
            "     ^",
            "the parenthesis is not closed behind this",
        );
        check("\u{e9}t\u{e9}", "^^^", "there is no pipe `\u{e9}t\u{e9}`");
        let long = vec!["copy"; 33].join("|");
        let error = parse(&long).unwrap_err();
        assert_eq!(
            error.message,
            "`copy` would be pipe 33 of the list; at most 32"
        );
        assert_eq!(error.span, 160..164);
    }
}
