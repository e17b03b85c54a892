//! The word that is read next, and where it stands.
//!
//! A filter may end anywhere. Who asks here for a word that is not there gets
//! `None`, or an error that points behind the last one.

use std::ops::Range;

use super::error::FilterError;
use super::words::{constant, number};
use super::{Parsed, Parser};

impl<'t> Parser<'t> {
    pub(super) fn peek(&self) -> Option<&'t str> {
        self.at(0)
    }

    pub(super) fn at(&self, ahead: usize) -> Option<&'t str> {
        self.words.get(self.next + ahead).map(|word| word.text)
    }

    pub(super) fn span(&self) -> Range<usize> {
        let word = self.words.get(self.next);
        word.map_or_else(|| self.end.clone(), |word| word.span.clone())
    }

    /// From a word to the last one read.
    pub(super) fn since(&self, first: usize) -> Range<usize> {
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

    pub(super) fn take(&mut self, text: &str) -> bool {
        let found = self.peek() == Some(text);
        self.next += usize::from(found);
        found
    }

    pub(super) fn expect(&mut self, text: &str) -> Parsed<()> {
        if self.take(text) {
            return Ok(());
        }
        Err(self.unexpected(&format!("`{text}`")))
    }

    /// Takes the next word as `what`, or says what it should have been.
    pub(super) fn literal<T>(
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

    /// A number, if one stands here.
    pub(super) fn optional(&mut self, what: &str, hint: &str, most: u32) -> Parsed<Option<u32>> {
        if !self.peek().is_some_and(is_value) {
            return Ok(None);
        }
        let read = |word| number(word).filter(|&number| number <= most);
        self.literal(what, hint, read).map(Some)
    }

    /// A number, a constant's name, or several joined by `|` in parentheses.
    pub(super) fn constant(&mut self, what: &str, hint: &str) -> Parsed<u32> {
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
}

/// Whether the word can only be a number or an address.
pub(super) fn is_value(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_digit() || c == '\\') || word.contains(':') && word != ":"
}
