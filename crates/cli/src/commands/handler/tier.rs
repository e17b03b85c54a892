//! `--tier`: which engines, and what to say if one cannot run the handler.

use ashway_codegen::normalise::Module;
use ashway_kernel::{LoadError, Probe};
use ashway_trial::{Blame, Engine, NotRun};
use clap::ValueEnum;

use super::file;
use crate::failure::{Exit, Failure};

/// Where a handler is to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Tier {
    /// Wasmtime; needs no privilege
    User,
    /// Promoted, in the kernel; needs `CAP_BPF` and `CAP_NET_ADMIN`
    Kernel,
    /// User and kernel, compared
    Both,
    /// Promoted, in Ashway's own eBPF interpreter; needs no privilege
    Interpreter,
}

/// The engines meant by some tiers, each once.
pub(super) fn engines(tiers: &[Tier]) -> Vec<Engine> {
    let mut engines = Vec::new();
    for tier in tiers {
        let meant: &[Engine] = match tier {
            Tier::User => &[Engine::User],
            Tier::Kernel => &[Engine::Kernel],
            Tier::Both => &[Engine::User, Engine::Kernel],
            Tier::Interpreter => &[Engine::Interpreter],
        };
        for engine in meant {
            if !engines.contains(engine) {
                engines.push(*engine);
            }
        }
    }
    engines
}

/// What keeps a handler from running in an engine.
pub(super) fn failure(module: &Module<'_>, engine: Engine, error: &NotRun) -> Failure {
    let name = engine.name();
    let exit = match error.blame() {
        Blame::Handler => Exit::HandlerRefused,
        Blame::Caller => Exit::Usage,
        Blame::Privilege => Exit::PrivilegeMissing,
        Blame::Host => Exit::NotSupported,
        Blame::Ashway => Exit::Failed,
    };
    let mut failure = Failure::new(exit, format!("it does not run in tier `{name}`"));
    failure = failure.because(&because(module, error));
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        // A start function's stop stands in the words above already.
        if !matches!(error, NotRun::Start(_)) {
            failure = failure.because(&cause);
        }
        source = cause.source();
    }
    failure.hint = hint(error);
    failure
}

/// The same where another tier can be had by `--tier`.
pub(super) fn failure_of_choice(module: &Module<'_>, engine: Engine, error: &NotRun) -> Failure {
    let mut failure = failure(module, engine, error);
    let choice = match error {
        NotRun::Promote(_) => "here, `--tier user`",
        _ if error.blame() == Blame::Privilege => {
            "without, there are `--tier user` and `--tier interpreter`"
        }
        _ => return failure,
    };
    failure.hint = failure.hint.map(|hint| format!("{hint}; {choice}"));
    failure
}

/// Why, with the author's line where there is one.
pub(super) fn because(module: &Module<'_>, error: &NotRun) -> String {
    match error {
        NotRun::Start(stopped) => format!(
            "the start function was stopped by {} at {}",
            stopped.cause.name(),
            file::place(module, stopped.at)
        ),
        NotRun::Kernel(refusal @ LoadError::Rejected { log, .. }) => {
            match ashway_kernel::verifier_log::summary(log).source {
                Some(source) => format!("{refusal} (near {})", source_of(source)),
                None => refusal.to_string(),
            }
        }
        other => other.to_string(),
    }
}

/// `text @ file:line` of the verifier's log; our text is the place already.
fn source_of(source: &str) -> &str {
    source.split(" @ ").next().unwrap_or(source)
}

/// The next step.
pub(super) fn hint(error: &NotRun) -> Option<String> {
    match error {
        NotRun::Promote(error) => Some(error.hint().to_owned()),
        NotRun::Checker(error) => Some(error.hint().to_owned()),
        NotRun::Kernel(LoadError::TooLong { .. }) => Some(
            "the handler runs in the user tier; fewer branches make the verifier's work less"
                .into(),
        ),
        NotRun::Kernel(LoadError::Rejected { .. }) => Some(
            "the handler runs in the user tier; `--verifier-log` shows the kernel's words".into(),
        ),
        _ if error.blame() == Blame::Privilege => Some(privileges()),
        NotRun::MessageTooLong { .. } => Some("`--tier user` takes any length".into()),
        NotRun::Fault(_) | NotRun::Frame => {
            Some("this is a fault of Ashway's code generator: please report it".into())
        }
        _ => None,
    }
}

/// Which capabilities are missing.
fn privileges() -> String {
    let probe = Probe::run();
    let missing: Vec<_> = probe
        .capabilities
        .iter()
        .filter(|capability| {
            !capability.held && matches!(capability.name, "CAP_BPF" | "CAP_NET_ADMIN")
        })
        .map(|capability| capability.name)
        .collect();
    let missing = if missing.is_empty() {
        "a capability over the host's BPF objects".to_owned()
    } else {
        missing.join(" and ")
    };
    format!("it takes {missing}: run it as root")
}
