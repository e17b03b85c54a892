//! Errors in a text file, each with its place.
//!
//! All of them are collected before any is shown: a configuration is repaired
//! in one round, not in as many as it has mistakes.

use std::fmt;
use std::ops::Range;
use std::path::{Path as FsPath, PathBuf};

use annotate_snippets::renderer::DecorStyle;
use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};
use ashway_abi::log::acts_on_terminal;

/// Without what [acts on a terminal](acts_on_terminal), where the place counts and not
/// what it was.
#[must_use]
pub fn clean(text: &str) -> String {
    let shown = |c| if acts_on_terminal(c) { '\u{fffd}' } else { c };
    text.chars().map(shown).collect()
}

/// One error.
#[derive(Clone, Debug, Default)]
pub struct Diagnostic {
    /// A stable name for programs, e.g. `unknown_key`.
    pub code: &'static str,
    /// What is wrong, in one line.
    pub message: String,
    /// The bytes at fault; `None` if it is the file as a whole.
    pub span: Option<Range<usize>>,
    /// What stands below the caret.
    pub label: Option<String>,
    /// A second place that has a part in it.
    pub also: Option<(Range<usize>, String)>,
    /// The next step.
    pub hint: Option<String>,
}

/// The errors of one file, in the order of their places.
#[derive(Clone, Debug)]
pub struct Diagnostics {
    file: PathBuf,
    text: String,
    list: Vec<Diagnostic>,
}

impl Diagnostics {
    /// Collects errors about `text`, which came from `file`.
    #[must_use]
    pub fn new(file: &FsPath, text: &str, mut list: Vec<Diagnostic>) -> Self {
        list.sort_by_key(|diagnostic| diagnostic.span.as_ref().map_or(0, |span| span.start));
        Self {
            file: file.to_owned(),
            text: text.to_owned(),
            list,
        }
    }

    /// An error about a file that could not be read at all.
    #[must_use]
    pub fn whole_file(file: &FsPath, code: &'static str, message: String, hint: &str) -> Self {
        let diagnostic = Diagnostic {
            code,
            message,
            hint: Some(hint.to_owned()),
            ..Diagnostic::default()
        };
        Self::new(file, "", vec![diagnostic])
    }

    /// The file.
    #[must_use]
    pub fn file(&self) -> &FsPath {
        &self.file
    }

    /// The errors.
    #[must_use]
    pub fn list(&self) -> &[Diagnostic] {
        &self.list
    }

    /// For people: each error with its line, a caret and what would help.
    #[must_use]
    pub fn render(&self, coloured: bool) -> String {
        let renderer = if coloured {
            Renderer::styled()
        } else {
            Renderer::plain()
        };
        let renderer = renderer.decor_style(DecorStyle::Ascii);
        // Texts name what stands in the file, and the renderer takes most as they are.
        let clean_of = |text: &Option<String>| text.as_deref().map(clean);
        let file = clean(&self.file.to_string_lossy());
        // Of the text itself the renderer shows controls by name, but for those behind
        // ASCII; as long as they are in UTF-8, so that places stay.
        let text = self
            .text
            .replace(|c| matches!(c, '\u{80}'..='\u{9f}'), "\u{b7}");
        let mut out = String::new();
        for diagnostic in &self.list {
            let title = Level::ERROR.primary_title(clean(&diagnostic.message));
            let mut group = match &diagnostic.span {
                Some(span) => {
                    let mut primary = AnnotationKind::Primary.span(self.clamp(span));
                    if let Some(label) = clean_of(&diagnostic.label) {
                        primary = primary.label(label);
                    }
                    let mut snippet = Snippet::source(text.as_str())
                        .path(file.as_str())
                        .annotation(primary);
                    if let Some((place, label)) = &diagnostic.also {
                        let context = AnnotationKind::Context.span(self.clamp(place));
                        snippet = snippet.annotation(context.label(clean(label)));
                    }
                    title.element(snippet)
                }
                None => Group::with_title(title),
            };
            if let Some(hint) = clean_of(&diagnostic.hint) {
                group = group.element(Level::HELP.message(hint));
            }
            out.push_str(&renderer.render(&[group]));
            out.push_str("\n\n");
        }
        out.truncate(out.trim_end().len());
        out.push('\n');
        out
    }

    /// The first of them in one line, with its place.
    #[must_use]
    pub fn first_line(&self) -> String {
        let file = self.file.display();
        let Some(first) = self.list.first() else {
            return format!("`{file}` has mistakes");
        };
        match &first.span {
            Some(span) => format!("{file}:{}: {}", self.place(span.start).0, first.message),
            None => format!("{file}: {}", first.message),
        }
    }

    /// For programs: `{"errors":[{code,message,file,line,column,hint}]}`, with
    /// 1-based lines and columns; `null` where there is none.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        let errors: Vec<_> = self
            .list
            .iter()
            .map(|diagnostic| {
                let place = diagnostic.span.as_ref().map(|span| self.place(span.start));
                serde_json::json!({
                    "code": diagnostic.code,
                    "message": diagnostic.message,
                    "file": self.file.to_string_lossy(),
                    "line": place.map(|(line, _)| line),
                    "column": place.map(|(_, column)| column),
                    "hint": diagnostic.hint,
                })
            })
            .collect();
        serde_json::json!({ "errors": errors })
    }

    /// The errors, each with its line, from 1; 0 where there is none.
    pub fn by_line(&self) -> impl Iterator<Item = (usize, &Diagnostic)> {
        self.list.iter().map(|error| {
            // What nobody wrote stands nowhere.
            let span = error.span.as_ref().filter(|span| **span != (0..0));
            (span.map_or(0, |span| self.place(span.start).0), error)
        })
    }

    /// Line and column of a byte, both from 1; columns count characters.
    fn place(&self, byte: usize) -> (usize, usize) {
        place(&self.text, byte)
    }

    /// The renderer panics on spans outside the text or inside a character.
    fn clamp(&self, span: &Range<usize>) -> Range<usize> {
        let start = self.text.floor_char_boundary(span.start);
        let end = self.text.ceil_char_boundary(span.end);
        start..end.max(start)
    }
}

/// Line and column of a byte of `text`, both from 1; columns count characters.
#[must_use]
pub fn place(text: &str, byte: usize) -> (usize, usize) {
    let before = &text[..text.floor_char_boundary(byte)];
    let line = before.matches('\n').count() + 1;
    let start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (line, before[start..].chars().count() + 1)
}

/// Plain, as for a file or a pipe.
impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.render(false).trim_end())
    }
}

impl std::error::Error for Diagnostics {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_file_moves_the_cursor() {
        let text = "[iface.\"\u{1b}[31ma\u{7}\"]\nfile = \"\u{9b}2J\"\n";
        let said = || "`\u{1b}[31ma\u{7}\u{9b}2J`".to_owned();
        let first = Diagnostic {
            message: said(),
            span: Some(7..12),
            label: Some(said()),
            also: Some((20..24, said())),
            hint: Some(said()),
            ..Diagnostic::default()
        };
        let second = Diagnostic {
            span: None,
            ..first.clone()
        };
        let file = FsPath::new("\u{1b}[31m.toml");
        let all = Diagnostics::new(file, text, vec![first, second]).to_string();
        let raw = |c: char| acts_on_terminal(c) && c != '\n';
        assert!(!all.contains(raw), "{all:?}");
    }
}
