//! From a file to tables of values, each of which knows its place.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::Path as FsPath;

use ashway_handler::Param;
use ashway_path::attrs::Attrs;
use ashway_path::problem::suggest;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::attributes::attribute;
use crate::diagnostics::{Diagnostic, Diagnostics};
use crate::files::{open, open_or_pipe};
use crate::sections;
use crate::types::Config;

/// Largest configuration that is read. A thousand paths need 150 kB.
const MAX_BYTES: u64 = 4 << 20;

/// Reads and checks a configuration. Also looks whether the handlers' files
/// exist, but not into them.
///
/// # Errors
///
/// Every error in the file, or the one reason why it cannot be read.
pub fn load(file: &FsPath) -> Result<Config, Diagnostics> {
    load_from(file, open_or_pipe(file))
}

/// The same for a node that runs, which waits for no pipe.
///
/// # Errors
///
/// As [`load`]; also if it is no regular file.
pub fn reload(file: &FsPath) -> Result<Config, Diagnostics> {
    load_from(file, open(file))
}

fn load_from(file: &FsPath, opened: std::io::Result<File>) -> Result<Config, Diagnostics> {
    let mut bytes = Vec::new();
    opened
        .and_then(|opened| opened.take(MAX_BYTES + 1).read_to_end(&mut bytes))
        .map_err(|error| {
            Diagnostics::whole_file(
                file,
                "unreadable",
                format!("cannot read `{}`: {error}", file.display()),
                "name a configuration file, or `/dev/stdin` for a pipe; `paths/` has examples",
            )
        })?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(Diagnostics::whole_file(
            file,
            "too_large",
            format!("`{}` is larger than {MAX_BYTES} bytes", file.display()),
            "a configuration is a small TOML file; is this another kind of file?",
        ));
    }
    parse(file, &bytes)
}

/// Checks the bytes of a configuration that came from `file`.
///
/// # Errors
///
/// Every error in it.
pub fn parse(file: &FsPath, bytes: &[u8]) -> Result<Config, Diagnostics> {
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            let lossy = String::from_utf8_lossy(bytes);
            let at = error.valid_up_to();
            let diagnostic = Diagnostic {
                code: "syntax",
                message: "this is not UTF-8 text".to_owned(),
                span: Some(at..at + 1),
                hint: Some("save the file as UTF-8".to_owned()),
                ..Diagnostic::default()
            };
            return Err(Diagnostics::new(file, &lossy, vec![diagnostic]));
        }
    };
    let (root, syntax) = DeTable::parse_recoverable(text);
    let mut errors: Vec<_> = syntax
        .iter()
        .map(|error| Diagnostic {
            code: "syntax",
            message: error.message().to_owned(),
            span: error.span(),
            ..Diagnostic::default()
        })
        .collect();
    let mut reader = Reader::new(text);
    let config = sections::config(file, root.get_ref(), &mut reader);
    let found = reader.errors;
    if errors.is_empty() {
        errors = found;
    } else {
        // The parser went on after a syntax error by leaving something out:
        // what is said about that line, or about something missing or unknown
        // elsewhere, may only follow from it.
        let lines: Vec<_> = errors.iter().map(|error| line_of(text, error)).collect();
        errors.extend(found.into_iter().filter(|error| {
            !FOLLOWING.contains(&error.code) && !lines.contains(&line_of(text, error))
        }));
    }
    if errors.is_empty() {
        Ok(config)
    } else {
        Err(Diagnostics::new(file, text, errors))
    }
}

/// Errors that may only follow from what was left out.
const FOLLOWING: [&str; 4] = ["missing_key", "unknown_name", "no_path", "not_owned"];

fn line_of(text: &str, error: &Diagnostic) -> Option<usize> {
    let span = error.span.as_ref()?;
    Some(crate::diagnostics::place(text, span.start).0)
}

/// The text, and the errors found in it so far.
pub(super) struct Reader<'t> {
    text: &'t str,
    /// Every start of a line, for [`Self::line`].
    lines: Vec<usize>,
    pub(super) errors: Vec<Diagnostic>,
}

impl<'t> Reader<'t> {
    fn new(text: &'t str) -> Self {
        let newlines = text.match_indices('\n').map(|(at, _)| at + 1);
        Self {
            text,
            lines: std::iter::once(0).chain(newlines).collect(),
            errors: Vec::new(),
        }
    }

    /// The whole text.
    pub(super) fn text(&self) -> &'t str {
        self.text
    }

    /// Line of a byte, from 1. Logarithmic.
    pub(super) fn line(&self, byte: usize) -> usize {
        self.lines.partition_point(|start| *start <= byte)
    }

    /// Notes an error at `span`.
    pub(super) fn error(
        &mut self,
        code: &'static str,
        span: Range<usize>,
        message: String,
        hint: Option<String>,
    ) {
        self.errors.push(Diagnostic {
            code,
            message,
            span: Some(span),
            hint,
            ..Diagnostic::default()
        });
    }

    /// Where bytes of a string's *value* stand in the text: exact for strings
    /// without escapes, else the whole string.
    pub(super) fn within(
        &self,
        string: Range<usize>,
        value: &str,
        part: Range<usize>,
    ) -> Range<usize> {
        let raw = self.text.get(string.clone()).unwrap_or("");
        for quote in ["\"\"\"", "'''", "\"", "'"] {
            let inner = raw
                .strip_prefix(quote)
                .and_then(|raw| raw.strip_suffix(quote));
            if inner == Some(value) {
                let start = string.start + quote.len();
                return start + part.start..start + part.end;
            }
        }
        string
    }
}

/// One table of the file, read key by key.
pub(super) struct Section<'r, 'v, 't> {
    pub(super) reader: &'r mut Reader<'t>,
    table: &'v DeTable<'v>,
    /// How messages call it: `path.inc`.
    title: String,
    /// Its name in the file.
    span: Range<usize>,
}

/// A value and where it stands.
pub(super) type WithSpan<T> = Option<(T, Range<usize>)>;

impl<'r, 'v, 't> Section<'r, 'v, 't> {
    /// Opens the table `value` and refuses keys that are not in `keys`. `None`
    /// (and an error) if it is no table.
    pub(super) fn open(
        reader: &'r mut Reader<'t>,
        title: String,
        span: Range<usize>,
        value: &'v Spanned<DeValue<'_>>,
        keys: &[&str],
    ) -> Option<Self> {
        Self::open_knowing(reader, title, span, value, keys, |_| None)
    }

    /// The same where some keys belong elsewhere: `elsewhere` says what to write there.
    pub(super) fn open_knowing(
        reader: &'r mut Reader<'t>,
        title: String,
        span: Range<usize>,
        value: &'v Spanned<DeValue<'_>>,
        keys: &[&str],
        elsewhere: impl Fn(&str) -> Option<String>,
    ) -> Option<Self> {
        let Some(table) = value.get_ref().as_table() else {
            let found = value.get_ref().type_str();
            reader.error(
                "wrong_type",
                value.span(),
                format!("`{title}` must be a table, not {}", article(found)),
                Some(format!("write a section `[{title}]`")),
            );
            return None;
        };
        for key in table.keys() {
            if !keys.contains(&key.get_ref().as_ref()) {
                reader.error(
                    "unknown_key",
                    key.span(),
                    format!("`{title}` has no key `{}`", key.get_ref()),
                    elsewhere(key.get_ref()).or_else(|| Some(suggest(key.get_ref(), keys))),
                );
            }
        }
        Some(Self {
            reader,
            table,
            title,
            span,
        })
    }

    fn value(&self, key: &str) -> Option<&'v Spanned<DeValue<'v>>> {
        self.table.get(key)
    }

    /// Whether the key is there.
    pub(super) fn has(&self, key: &str) -> bool {
        self.value(key).is_some()
    }

    /// Where a key's value stands, or the section's name if it has none.
    pub(super) fn place(&self, key: &str) -> Range<usize> {
        self.value(key)
            .map_or_else(|| self.span.clone(), Spanned::span)
    }

    fn wrong_type(&mut self, key: &str, wanted: &str, value: &Spanned<DeValue<'_>>) {
        let found = value.get_ref().type_str();
        self.reader.error(
            "wrong_type",
            value.span(),
            format!("`{key}` must be {wanted}, not {}", article(found)),
            None,
        );
    }

    /// A string, if the key is there.
    pub(super) fn string(&mut self, key: &str) -> WithSpan<&'v str> {
        let value = self.value(key)?;
        let Some(string) = value.get_ref().as_str() else {
            self.wrong_type(key, "a string", value);
            return None;
        };
        Some((string, value.span()))
    }

    /// A name, if the key is there.
    pub(super) fn name(&mut self, key: &str) -> Option<String> {
        self.string(key).map(|(name, _)| name.to_owned())
    }

    /// A string that must be there; `example` is shown if it is not.
    pub(super) fn required(&mut self, key: &str, example: &str) -> WithSpan<&'v str> {
        if self.is_missing(key, example) {
            return None;
        }
        self.string(key)
    }

    /// Whether a required key is missing, which is then noted.
    fn is_missing(&mut self, key: &str, example: &str) -> bool {
        let missing = self.value(key).is_none();
        if missing {
            self.reader.error(
                "missing_key",
                self.span.clone(),
                format!("`{}` needs the key `{key}`", self.title),
                Some(format!("add `{key} = {example}`")),
            );
        }
        missing
    }

    /// A table in the place of a value, if the key is there and is not this word.
    pub(super) fn table_or(
        &mut self,
        key: &str,
        word: &str,
        keys: &[&str],
    ) -> Option<Section<'_, 'v, 't>> {
        let value = self.value(key)?;
        match value.get_ref() {
            DeValue::Table(_) => {
                let title = format!("{}.{key}", self.title);
                Section::open(self.reader, title, value.span(), value, keys)
            }
            _ if self.is_word(key, word) => None,
            _ => {
                self.wrong_type(key, &format!("a table or \"{word}\""), value);
                None
            }
        }
    }

    /// Whether a key is this word.
    pub(super) fn is_word(&self, key: &str, word: &str) -> bool {
        let value = self.value(key);
        value.is_some_and(|value| value.get_ref().as_str() == Some(word))
    }

    /// One of a closed list of words, or `None` if the key is missing or bad.
    pub(super) fn word<T: Copy>(&mut self, key: &str, words: &[(&str, T)]) -> Option<T> {
        let (string, span) = self.string(key)?;
        self.one_of(key, string, span, words)
    }

    fn one_of<T: Copy>(
        &mut self,
        key: &str,
        string: &str,
        span: Range<usize>,
        words: &[(&str, T)],
    ) -> Option<T> {
        let found = words.iter().find(|(word, _)| *word == string);
        if found.is_none() {
            let names: Vec<_> = words.iter().map(|(word, _)| *word).collect();
            self.reader.error(
                "bad_value",
                span,
                format!("`{key}` cannot be `{string}`"),
                Some(suggest(string, &names)),
            );
        }
        found.map(|(_, value)| *value)
    }

    /// A required string or array of strings, each with its place.
    pub(super) fn strings(&mut self, key: &str, example: &str) -> Vec<(&'v str, Range<usize>)> {
        if self.is_missing(key, example) {
            return Vec::new();
        }
        match self.value(key) {
            Some(value)
                if value
                    .get_ref()
                    .as_array()
                    .is_some_and(|list| list.is_empty()) =>
            {
                let span = value.span();
                self.reader.error(
                    "bad_value",
                    span,
                    format!("`{key}` names nothing"),
                    Some(format!("write `{key} = {example}`")),
                );
                Vec::new()
            }
            Some(value) if value.get_ref().is_array() => self.array(key),
            Some(value) if !value.get_ref().is_str() => {
                self.wrong_type(key, "a string or an array of strings", value);
                Vec::new()
            }
            _ => self.string(key).into_iter().collect(),
        }
    }

    /// An array of strings, each with its place; empty if the key is missing.
    pub(super) fn array(&mut self, key: &str) -> Vec<(&'v str, Range<usize>)> {
        let Some(value) = self.value(key) else {
            return Vec::new();
        };
        let Some(array) = value.get_ref().as_array() else {
            self.wrong_type(key, "an array of strings", value);
            return Vec::new();
        };
        let mut found = Vec::new();
        for item in array {
            match item.get_ref().as_str() {
                Some(string) => found.push((string, item.span())),
                None => self.wrong_type(key, "an array of strings", item),
            }
        }
        found
    }

    /// An array of words from a closed list; empty if the key is missing.
    pub(super) fn words<T: Copy + PartialEq>(&mut self, key: &str, words: &[(&str, T)]) -> Vec<T> {
        let mut found = Vec::new();
        for (string, span) in self.array(key) {
            if let Some(value) = self.one_of(key, string, span, words)
                && !found.contains(&value)
            {
                found.push(value);
            }
        }
        found
    }

    /// A table of attributes; empty if the key is missing.
    pub(super) fn attrs(&mut self, key: &str) -> Attrs {
        let Some(value) = self.value(key) else {
            return Attrs::new();
        };
        let Some(table) = value.get_ref().as_table() else {
            self.wrong_type(key, "a table of attributes", value);
            return Attrs::new();
        };
        let given = Attrs::read(table).unwrap_or_else(|problems| {
            let problems = problems.into_iter().map(Into::into);
            self.reader.errors.extend(problems);
            Attrs::new()
        });
        let mut attrs = Attrs::new();
        for (key, written) in table {
            let name = key.get_ref().as_ref();
            match given
                .value(name)
                .map(|value| attribute(name, value.clone()))
            {
                None => {}
                Some(Ok((name, value))) => drop(attrs.set(name, value)),
                Some(Err(wrong)) => {
                    let (code, at) = if wrong.name {
                        ("unknown_name", key.span())
                    } else {
                        ("bad_value", written.span())
                    };
                    self.reader.error(code, at, wrong.message, Some(wrong.hint));
                }
            }
        }
        attrs
    }

    /// An integer, if the key is there.
    pub(super) fn integer(&mut self, key: &str) -> WithSpan<i64> {
        let value = self.value(key)?;
        let Some(integer) = value.get_ref().as_integer() else {
            self.wrong_type(key, "an integer", value);
            return None;
        };
        // One that does not fit 64 bits is out of every range.
        let number = i64::from_str_radix(integer.as_str(), integer.radix());
        Some((number.unwrap_or(i64::MAX), value.span()))
    }

    /// A table of integers and texts; empty if the key is missing.
    pub(super) fn params(&mut self, key: &str) -> BTreeMap<String, Param> {
        let mut found = BTreeMap::new();
        let Some(value) = self.value(key) else {
            return found;
        };
        let Some(table) = value.get_ref().as_table() else {
            self.wrong_type(key, "a table of integers and texts", value);
            return found;
        };
        for (name, value) in table {
            if let Some(text) = value.get_ref().as_str() {
                found.insert(name.get_ref().to_string(), Param::Text(text.to_owned()));
                continue;
            }
            let Some(integer) = value.get_ref().as_integer() else {
                let place = format!("{key}.{}", name.get_ref());
                self.wrong_type(&place, "an integer or a text", value);
                continue;
            };
            match i64::from_str_radix(integer.as_str(), integer.radix()) {
                Ok(integer) => {
                    found.insert(name.get_ref().to_string(), Param::Number(integer));
                }
                Err(_) => self.reader.error(
                    "bad_value",
                    value.span(),
                    format!("`{}` does not fit 64 bits", name.get_ref()),
                    Some(format!(
                        "a number is from {} to {}; a text of digits stands in quotation marks",
                        i64::MIN,
                        i64::MAX
                    )),
                ),
            }
        }
        found
    }
}

fn article(type_name: &str) -> String {
    let vowel = type_name.starts_with(['a', 'i']);
    format!("{} {type_name}", if vowel { "an" } else { "a" })
}
