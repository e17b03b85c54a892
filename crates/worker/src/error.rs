//! Why a handler cannot run, or runs in the user tier only.

use ashway_abi::Cause;
use ashway_api::answer::Refused;
use ashway_check::Violation;
use ashway_codegen::normalise::{NormaliseError, ParallelError};
use ashway_codegen::promote::PromoteError;
use ashway_handler::{InstantiateError, ParamError};
use ashway_kernel::{LoadError, verifier_log};

use ashway_config::NotGranted;

/// Why a handler cannot run at all.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InstanceError {
    /// The file cannot be read.
    #[error("cannot read `{file}`")]
    Read {
        /// The file, as the configuration names it.
        file: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The module is not one of ours.
    #[error("`{file}` is no handler")]
    Refused {
        /// The file.
        file: String,
        /// What is wrong with it.
        #[source]
        source: NormaliseError,
        /// The next step.
        hint: String,
    },
    /// It was not built to run on several CPUs at once.
    #[error("`{file}` cannot have `instances = \"parallel\"`: {source}")]
    NotParallel {
        /// The file.
        file: String,
        /// Why.
        source: ParallelError,
    },
    /// Nobody says how many CPUs there are.
    #[error("the machine's CPUs are not known")]
    Cpus {
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The function a path names is not there.
    #[error("`{file}` exports no function `{function}` of type (i32, i32) -> i32")]
    NoFunction {
        /// The file.
        file: String,
        /// The function.
        function: String,
    },
    /// Host calls that nobody granted.
    #[error(transparent)]
    NotGranted(#[from] NotGranted),
    /// A parameter that the handler does not take.
    #[error("handler `{handler}` {source}")]
    Param {
        /// The handler.
        handler: String,
        /// Why.
        source: ParamError,
    },
    /// Wasmtime could not start it.
    #[error("handler `{handler}` cannot be started")]
    Start {
        /// The handler.
        handler: String,
        /// Why.
        #[source]
        source: InstantiateError,
    },
    /// The kernel tier has the instance.
    #[error("handler `{handler}` runs in the kernel tier at this moment")]
    Busy {
        /// The handler.
        handler: String,
    },
    /// A version could not take the state of another over.
    #[error("`migrate` of handler `{handler}` from version {from} was stopped{line}: {}", cause.name())]
    Migrate {
        /// The handler.
        handler: String,
        /// The version of the state that was there.
        from: u32,
        /// Why.
        cause: Cause,
        /// Where, with a word before it; may be empty.
        line: String,
    },
    /// No memory of the wanted kind.
    #[error("no memory of {bytes} bytes for handler `{handler}`")]
    Memory {
        /// The handler.
        handler: String,
        /// How much.
        bytes: usize,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// No socket to send by.
    #[error("no socket for the channels of handler `{handler}`, from port {port}")]
    Channels {
        /// The handler.
        handler: String,
        /// The local port; 0 for any.
        port: u16,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The program that fills its ring was not taken.
    #[error("the ring program of handler `{handler}` was not accepted")]
    Load {
        /// The handler.
        handler: String,
        /// Why.
        #[source]
        source: LoadError,
    },
}

/// Why a handler stays in the user tier. Not its fault: it runs unchanged.
#[derive(Clone, Debug)]
pub struct NotPromoted {
    /// Why, in a sentence.
    pub because: String,
    /// The source line, `file:line`, if known.
    pub line: Option<String>,
    /// The next step.
    pub hint: String,
}

impl NotPromoted {
    /// One that no line of a source is to blame for.
    pub fn new(because: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            because: because.into(),
            line: None,
            hint: hint.into(),
        }
    }

    /// As it is answered.
    #[must_use]
    pub fn describe(&self) -> Refused {
        Refused {
            because: self.because.clone(),
            line: self.line.clone(),
            hint: self.hint.clone(),
        }
    }
}

pub(crate) fn not_translated(error: &PromoteError) -> NotPromoted {
    let place = error.place().map(ToString::to_string);
    let words = error.to_string();
    // The place is told apart from the reason, and not twice.
    let begin = place.as_ref().map(|place| format!("{place}: "));
    let because = begin.and_then(|begin| words.strip_prefix(&begin).map(str::to_owned));
    NotPromoted {
        because: because.unwrap_or(words),
        line: place,
        hint: error.hint().to_owned(),
    }
}

pub(crate) fn not_checked(violation: &Violation) -> NotPromoted {
    NotPromoted {
        because: violation.because(),
        line: violation
            .line
            .as_ref()
            .map(|(file, line)| format!("{file}:{line}")),
        hint: violation.hint().to_owned(),
    }
}

pub(crate) fn not_loaded(error: &LoadError) -> NotPromoted {
    let summary = verifier_log::summary(error.log());
    NotPromoted {
        because: match error {
            LoadError::NotAMapLoad { .. } | LoadError::Exhausted { .. } => error.to_string(),
            LoadError::TooLong { .. } => error.reason(),
            _ => format!("the kernel verifier rejected it: {}", summary.reason),
        },
        line: summary.source.map(str::to_owned),
        hint: error.hint().to_owned(),
    }
}

impl From<NotPromoted> for ashway_api::Refusal {
    fn from(why: NotPromoted) -> Self {
        let message = match why.line {
            Some(line) => format!("{line}: {}", why.because),
            None => why.because,
        };
        Self::new(ashway_api::Code::HandlerRefused, message, why.hint)
    }
}
