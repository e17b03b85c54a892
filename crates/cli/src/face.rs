//! What is shown: text for a person, or one JSON document for a program.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

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
    pub(crate) fn show(self, document: &Value, human: impl FnOnce() -> String) {
        if self.json {
            put(&mut io::stdout(), &format!("{document:#}\n"));
        } else {
            self.text(&human());
        }
    }

    /// Shows text that is made already.
    #[expect(clippy::unused_self, reason = "the one way out for text")]
    pub(crate) fn text(self, text: &str) {
        let end = if text.ends_with('\n') { "" } else { "\n" };
        put(&mut io::stdout(), &format!("{text}{end}"));
    }

    /// Shows why a command failed.
    pub(crate) fn fail(self, failure: &Failure) -> ExitCode {
        if self.json {
            put(&mut io::stdout(), &format!("{:#}\n", failure.to_json()));
        } else {
            put(&mut io::stderr(), &words(failure));
        }
        ExitCode::from(failure.exit as u8)
    }
}

/// `error / because / hint`; a configuration's errors with their lines.
fn words(failure: &Failure) -> String {
    if let Some(diagnostics) = &failure.diagnostics {
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        return diagnostics.render(io::stderr().is_terminal() && !no_color);
    }
    let mut text = format!("error: {}\n", clean(&failure.error));
    for because in &failure.because {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  because: {}", clean(because));
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
    let json = std::env::args()
        .take_while(|arg| arg != "--")
        .any(|arg| arg == "-j" || arg == "--json");
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
        put(&mut io::stdout(), &format!("{document:#}\n"));
    } else {
        // Where there is no one left to read, there is no one to tell.
        let _ = error.print();
    }
    ExitCode::from(if asked { 0 } else { Exit::Usage as u8 })
}

/// Without the characters that move a terminal's cursor or change its colours:
/// some texts (names in a handler's debug information) come from strangers.
pub(crate) fn clean(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

/// Writes, unless the reader has gone (`ashway status | head -1`).
fn put(to: &mut dyn Write, text: &str) {
    let _ = to.write_all(text.as_bytes()).and_then(|()| to.flush());
}
