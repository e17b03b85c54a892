//! How a command can fail: the exit codes, and what is said with them.

use std::fmt::Display;
use std::path::Path;

use ashway_api::client::{ControlError, NotReachable};
use ashway_api::{Code, Misread, Refusal};
use ashway_config::diagnostics::Diagnostics;
use ashway_path::problem::suggest;
use serde_json::{Value, json};

/// What the exit code says. Scripts rely on it, so numbers are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    /// It was tried, and failed.
    Failed = 1,
    /// The command line or the configuration is wrong; nothing was tried.
    Usage = 2,
    /// The handler cannot be accepted.
    HandlerRefused = 3,
    /// A privilege is missing; the message names it.
    PrivilegeMissing = 4,
    /// No node answers.
    NotReachable = 5,
    /// This kernel, or what is installed, cannot do it; the message names what is
    /// missing.
    NotSupported = 6,
}

impl Exit {
    /// Every failure, in numerical order.
    const ALL: [Self; 6] = [
        Self::Failed,
        Self::Usage,
        Self::HandlerRefused,
        Self::PrivilegeMissing,
        Self::NotReachable,
        Self::NotSupported,
    ];

    /// The stable name in JSON.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Usage => "usage",
            Self::HandlerRefused => "handler_refused",
            Self::PrivilegeMissing => "privilege_missing",
            Self::NotReachable => "not_reachable",
            Self::NotSupported => "not_supported",
        }
    }

    /// The failure of this number; unknown ones are [`Self::Failed`].
    pub(crate) fn from_number(number: u8) -> Self {
        let mut all = Self::ALL.into_iter();
        all.find(|exit| *exit as u8 == number)
            .unwrap_or(Self::Failed)
    }

    /// The failure that a node reports so.
    const fn of_code(code: Code) -> Self {
        match code {
            Code::Usage => Self::Usage,
            Code::HandlerRefused => Self::HandlerRefused,
            Code::PrivilegeMissing => Self::PrivilegeMissing,
            Code::NotSupported => Self::NotSupported,
            Code::BadRequest | Code::Failed => Self::Failed,
        }
    }
}

/// Why a command failed.
#[derive(Debug)]
pub(crate) struct Failure {
    /// What the exit code says.
    pub(crate) exit: Exit,
    /// What went wrong, in one line.
    pub(crate) error: String,
    /// Causes, the nearest first.
    pub(crate) because: Vec<String>,
    /// The next step.
    pub(crate) hint: Option<String>,
    /// The file at fault, if one is.
    pub(crate) file: Option<String>,
    /// The errors of a configuration, which take the place of the above.
    pub(crate) diagnostics: Option<Box<Diagnostics>>,
    /// What a node has found wrong with one, each with its line.
    pub(crate) errors: Vec<Refusal>,
}

impl Failure {
    /// A failure with nothing but a message.
    pub(crate) fn new(exit: Exit, error: impl Into<String>) -> Self {
        Self {
            exit,
            error: error.into(),
            because: Vec::new(),
            hint: None,
            file: None,
            diagnostics: None,
            errors: Vec::new(),
        }
    }

    /// Adds a cause.
    pub(crate) fn because(mut self, because: &dyn Display) -> Self {
        self.because.push(because.to_string());
        self
    }

    /// Adds the next step.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Names the file at fault.
    pub(crate) fn in_file(mut self, file: &Path) -> Self {
        self.file = Some(file.display().to_string());
        self
    }

    /// `{"error":{code,message,because,file,line,hint}}`; a configuration's
    /// errors also stand under `errors`, each with its place.
    pub(crate) fn to_json(&self) -> Value {
        let all = self
            .diagnostics
            .as_ref()
            .map(|all| all.to_json()["errors"].clone());
        let first = all.as_ref().map_or(Value::Null, |all| all[0].clone());
        let or_first = |own: Option<&String>, key: &str| match own {
            Some(own) => Value::from(own.as_str()),
            None => first[key].clone(),
        };
        let mut document = json!({ "error": {
            "code": self.exit.name(),
            "message": self.error,
            "because": self.because,
            "file": or_first(self.file.as_ref(), "file"),
            "line": first["line"],
            "hint": or_first(self.hint.as_ref(), "hint"),
        }});
        if let Some(all) = all {
            document["errors"] = all;
        } else if !self.errors.is_empty() {
            document["errors"] = json!(self.errors);
            document["error"]["line"] = json!(self.errors[0].line);
        }
        document
    }
}

impl From<Diagnostics> for Failure {
    fn from(diagnostics: Diagnostics) -> Self {
        let count = diagnostics.list().len();
        let file = diagnostics.file().display();
        let plural = if count == 1 { "" } else { "s" };
        let mut failure = Self::new(Exit::Usage, format!("{count} error{plural} in `{file}`"));
        failure.diagnostics = Some(Box::new(diagnostics));
        failure
    }
}

impl From<NotReachable> for Failure {
    fn from(error: NotReachable) -> Self {
        let failure = match error.source.kind() {
            std::io::ErrorKind::PermissionDenied => {
                Self::new(Exit::PrivilegeMissing, error.to_string())
                    .hint("only the user who started the node may ask it; try `sudo`")
            }
            _ => Self::new(Exit::NotReachable, error.to_string())
                .hint("start one with `ashway run CONFIG`, or name its socket with `--socket`"),
        };
        failure.because(&error.source)
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        let mut failure = Self::new(Exit::of_code(refusal.code), refusal.message);
        failure.hint = Some(refusal.hint).filter(|hint| !hint.is_empty());
        failure.file = refusal.file;
        failure.errors = refusal.errors;
        failure
    }
}

impl From<Misread> for Failure {
    fn from(misread: Misread) -> Self {
        let near = misread.word.map(|(word, words)| suggest(&word, words));
        Refusal::usage(misread.message, near.unwrap_or(misread.hint)).into()
    }
}

impl From<ControlError> for Failure {
    fn from(error: ControlError) -> Self {
        match error {
            ControlError::Refused(refusal) => refusal.into(),
            ControlError::Broken(source) => {
                // It may be busy with a handler, or stopped in a debugger.
                Self::new(Exit::NotReachable, "the node did not answer")
                    .because(&source)
                    .hint("what was asked for may still be done: `ashway status` will tell")
            }
            malformed @ ControlError::Malformed(_) => {
                Self::new(Exit::Failed, malformed.to_string())
                    .hint("are the node and this command of the same version?")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_lead_back_to_the_failure() {
        for exit in Exit::ALL {
            assert_eq!(Exit::from_number(exit as u8), exit);
        }
        assert_eq!(Exit::from_number(99), Exit::Failed);
    }
}
