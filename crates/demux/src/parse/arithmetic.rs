//! Bytes of a header compared with numbers: `ip[0] & 15 = 5`.
//!
//! A grammar of its own, with signs where the rest of a filter has words. Only
//! what a table can look up is taken: bytes that are equal under a mask, and
//! orders (`<`, `>=`) as several of these.

use super::error::FilterError;
use super::words::number;
use super::{Parsed, Parser};
use crate::filter::{Conjunction, Test};
use crate::normal::Any;
use crate::primitive::{self, aligned, blocks, raw};

impl Parser<'_> {
    /// Whether `ip[` or `(ip[0] & 15) =` stands here.
    pub(super) fn starts_arithmetic(&self) -> bool {
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
    pub(super) fn arithmetic(&mut self) -> Parsed<Any> {
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
