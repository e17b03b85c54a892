//! What is shown: text for a person, or one JSON document for a program.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::iter;
use std::process::ExitCode;

use ashway_abi::log::acts_on_terminal;
pub(crate) use ashway_config::diagnostics::clean;
use clap::error::ErrorKind;
use serde_json::{Value, json};

use crate::failure::{Exit, Failure};

/// Which of the two the user asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Face {
    /// `-j`.
    pub(crate) json: bool,
}

impl Face {
    /// Shows the result of a command.
    ///
    /// # Errors
    ///
    /// If it cannot be written: who reads an empty file and exit code 0 would
    /// believe it. That the reader has gone (`ashway status | head -1`) is none.
    pub(crate) fn show(
        self,
        document: &Value,
        human: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        let text = if self.json {
            escaped(document)
        } else {
            let mut text = tame(human());
            if !text.ends_with('\n') && !text.is_empty() {
                text.push('\n');
            }
            text
        };
        match put(&mut io::stdout(), &text) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::new(
                Exit::Failed,
                "the result cannot be written to standard output",
            )
            .because(&error)),
            _ => Ok(()),
        }
    }

    /// Shows why a command failed.
    pub(crate) fn fail(self, failure: &Failure) -> ExitCode {
        // The exit code says it, too.
        let _ = if self.json {
            put(&mut io::stdout(), &escaped(&failure.to_json()))
        } else {
            put(&mut io::stderr(), &words(failure))
        };
        ExitCode::from(failure.exit as u8)
    }
}

/// A text for people, where it is printed: names in it come from files, and this is the
/// last place that all of them pass.
pub(crate) fn tame(text: String) -> String {
    if text.contains(|c| acts_on_terminal(c) && !matches!(c, '\n' | '\t')) {
        clean_lines(&text)
    } else {
        text
    }
}

/// A document over several lines.
fn escaped(document: &Value) -> String {
    ascii(format!("{document:#}\n"))
}

/// JSON, in ASCII wherever a character [acts on a terminal](acts_on_terminal): by itself it
/// escapes none above 0x1f. Such a character stands in a string and nowhere else.
pub(crate) fn ascii(text: String) -> String {
    if !text.contains(|c| acts_on_terminal(c) && c != '\n') {
        return text;
    }
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if acts_on_terminal(c) && c != '\n' {
            for unit in c.encode_utf16(&mut [0; 2]) {
                // Writing to a string cannot fail.
                let _ = write!(out, "\\u{unit:04x}");
            }
        } else {
            out.push(c);
        }
    }
    out
}

/// `error / because / hint`; a configuration's errors with their lines.
fn words(failure: &Failure) -> String {
    if let Some(diagnostics) = &failure.diagnostics {
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        return diagnostics.render(io::stderr().is_terminal() && !no_color);
    }
    let mut text = String::new();
    for error in &failure.errors {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "error: {}", clean(&error.message));
        if let (Some(file), Some(line)) = (&error.file, error.line) {
            let _ = writeln!(text, "  --> {}:{line}", clean(file));
        }
        if !error.hint.is_empty() {
            let _ = writeln!(text, "  hint: {}", clean(&error.hint));
        }
        text.push('\n');
    }
    let _ = writeln!(text, "error: {}", clean(&failure.error));
    for because in &failure.because {
        // What a compiler says has a line of the source below it, and a caret.
        let words = iter::once("because: ").chain(iter::repeat(""));
        for (line, word) in because.lines().zip(words) {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "  {word}{}", clean(line));
        }
    }
    if let Some(hint) = &failure.hint {
        let _ = writeln!(text, "  hint: {}", clean(hint));
    }
    text
}

/// Shows what clap found wrong with the command line, or the help asked for.
pub(crate) fn usage(error: &clap::Error) -> ExitCode {
    let asked = matches!(
        error.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
    );
    // The command line could not be read, so `-j` is looked for by hand; what
    // stands after `--` belongs to another command.
    let args = std::env::args_os().map(|arg| arg.to_string_lossy().into_owned());
    let args: Vec<_> = args.take_while(|arg| arg != "--").collect();
    let json = args.iter().any(|arg| arg == "-j" || arg == "--json");
    if !asked && json {
        let text = error.to_string();
        let message = text.lines().next().unwrap_or_default();
        let message = message.strip_prefix("error: ").unwrap_or(message);
        let document = json!({ "error": {
            "code": Exit::Usage.name(),
            "message": message,
            "because": [],
            "file": null,
            "line": null,
            "hint": "see `ashway --help`",
        }});
        let _ = put(&mut io::stdout(), &escaped(&document));
    } else if !asked && args.iter().any(|arg| arg.contains(acts_on_terminal)) {
        // clap repeats the arguments as they are.
        let _ = put(&mut io::stderr(), &clean_lines(&error.to_string()));
    } else {
        // Where there is no one left to read, there is no one to tell.
        let _ = error.print();
    }
    ExitCode::from(if asked { 0 } else { Exit::Usage as u8 })
}

/// [`clean`], for a text of several lines.
pub(crate) fn clean_lines(text: &str) -> String {
    text.lines().map(|line| clean(line) + "\n").collect()
}

fn put(to: &mut dyn Write, text: &str) -> io::Result<()> {
    to.write_all(text.as_bytes())?;
    to.flush()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn a_text_acts_on_no_terminal_and_is_else_as_it_was() {
        assert_eq!(tame("a\u{1b}[2J\nb".to_owned()), "a\u{fffd}[2J\nb\n");
        assert_eq!(tame("a\tb\n\nc".to_owned()), "a\tb\n\nc");
    }

    #[test]
    fn a_document_says_the_same_without_acting_on_a_terminal() {
        let document = json!({ "a\u{9b}": ["\u{1b}[31m\u{202e}\u{e0041}\u{e9}\n"] });
        let text = escaped(&document);
        assert!(
            !text.contains(|c| acts_on_terminal(c) && c != '\n'),
            "{text}"
        );
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), document);
    }
}
