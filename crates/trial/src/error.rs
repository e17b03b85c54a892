//! Why a handler was not run: never the fault of a message.

use std::io;

use ashway_check::Violation;
use ashway_check::bpf::interp::Fault;
use ashway_codegen::promote::PromoteError;
use ashway_handler::{EngineError, InstantiateError, Stopped};
use ashway_kernel::LoadError;

/// Why a trial, or a handler of it, cannot run. [`NotRun::reason`] says whether
/// that is the handler's, the host's or our own doing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotRun {
    /// The module exports no handler of this name.
    #[error("the module has no handler `{name}`")]
    NoHandler {
        /// The name.
        name: String,
        /// The names there are.
        known: Vec<String>,
    },
    /// The function has no invoker: it was not added before the trial.
    #[error("function {0} has no invoker")]
    NoInvoker(u32),
    /// An invocation with too many or too few arguments.
    #[error("{given} arguments, the function takes {wanted}")]
    Arguments {
        /// How many were given.
        given: usize,
        /// How many parameters it has.
        wanted: usize,
    },
    /// The message is longer than a test run of the kernel's takes.
    #[error("a message of {len} bytes, a test run takes at most {most}")]
    MessageTooLong {
        /// Its length.
        len: usize,
        /// The longest.
        most: usize,
    },
    /// The kernel tier has only channel 0.
    #[error("channel {0}: the kernel tier has only channel 0")]
    Channel(u32),
    /// The handler has no translation.
    #[error(transparent)]
    Promote(#[from] PromoteError),
    /// Our own checker did not follow the translation: the translator's fault,
    /// or its own.
    #[error(transparent)]
    Checker(#[from] Violation),
    /// The kernel refused the program.
    #[error(transparent)]
    Kernel(#[from] LoadError),
    /// There is no memory, or no map.
    #[error("no {what} of {bytes} bytes")]
    Memory {
        /// What was to be made.
        what: &'static str,
        /// Its size.
        bytes: usize,
        /// What the kernel returned.
        #[source]
        errno: io::Error,
    },
    /// The kernel did not run the program.
    #[error("the kernel did not run the program")]
    TestRun(#[source] io::Error),
    /// Wasmtime has no compiler for this host.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// Wasmtime refused the module.
    #[error(transparent)]
    Instantiate(InstantiateError),
    /// The start function was stopped: the module has no instance.
    #[error("the start function was stopped")]
    Start(#[source] Stopped),
    /// Promoted code did what it must not: a fault of the translator's.
    #[error("the promoted handler is wrong: {0}")]
    Fault(#[from] Fault),
    /// Promoted code wrote outside its message: a fault of the translator's.
    #[error("the promoted handler is wrong: it has written outside its message")]
    Frame,
}

/// Who is to blame that a handler was not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// The handler cannot run in this engine, or not at all.
    Handler,
    /// The caller asked for what there is not.
    Caller,
    /// A privilege is missing.
    Privilege,
    /// The host cannot do it.
    Host,
    /// We can do better.
    Ashway,
}

impl NotRun {
    /// Who is to blame.
    #[must_use]
    pub fn blame(&self) -> Blame {
        match self {
            Self::NoHandler { .. }
            | Self::NoInvoker(_)
            | Self::Arguments { .. }
            | Self::MessageTooLong { .. }
            | Self::Channel(_) => Blame::Caller,
            Self::Promote(_)
            | Self::Start(_)
            | Self::Kernel(LoadError::Rejected { .. } | LoadError::TooLong { .. }) => {
                Blame::Handler
            }
            Self::Kernel(LoadError::Denied { .. }) => Blame::Privilege,
            Self::Memory { errno, .. } | Self::TestRun(errno) => match errno.kind() {
                io::ErrorKind::PermissionDenied => Blame::Privilege,
                _ => Blame::Host,
            },
            Self::Engine(_) | Self::Kernel(LoadError::Exhausted { .. }) => Blame::Host,
            Self::Checker(_)
            | Self::Kernel(_)
            | Self::Instantiate(_)
            | Self::Fault(_)
            | Self::Frame => Blame::Ashway,
        }
    }

    /// The reason without places and names, so that equal ones can be counted.
    #[must_use]
    pub fn reason(&self) -> String {
        match self {
            Self::Promote(PromoteError::NoCounterpart { op, .. }) => {
                format!("`{op}` has no eBPF counterpart")
            }
            Self::Promote(PromoteError::Frames { .. }) => "too many bytes of frames".into(),
            Self::Kernel(LoadError::Rejected { log, .. }) => {
                let reason = ashway_kernel::verifier_log::reason(log);
                format!("the kernel verifier: {}", without_numbers(reason))
            }
            Self::Kernel(error @ LoadError::TooLong { .. }) => error.reason(),
            Self::Kernel(LoadError::Denied { .. }) => "no permission to load".into(),
            Self::Checker(violation) => format!("the checker: {}", violation.rule),
            other => other.to_string(),
        }
    }

    /// The verifier's words, if it spoke; often thousands of lines.
    #[must_use]
    pub fn verifier_log(&self) -> Option<&str> {
        match self {
            Self::Kernel(error) => Some(error.log()).filter(|log| !log.is_empty()),
            _ => None,
        }
    }
}

/// The verifier's reasons hold the numbers of instructions and registers.
fn without_numbers(reason: &str) -> String {
    let mut text = String::with_capacity(reason.len());
    for c in reason.chars() {
        if !c.is_ascii_digit() {
            text.push(c);
        } else if !text.ends_with('#') {
            text.push('#');
        }
    }
    text
}
