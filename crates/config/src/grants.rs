//! What a handler's host calls take, and its section does not grant.

use ashway_codegen::normalise::Module;

use crate::types::{Grant, HandlerConfig};

/// Every host call that was not granted, so that all are granted in one round.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("handler `{handler}` imports {}, which {} not granted to it", self.calls(), self.verb())]
pub struct NotGranted {
    handler: String,
    calls: Vec<&'static str>,
    grants: Vec<&'static str>,
}

impl NotGranted {
    /// What is missing, if anything is.
    #[must_use]
    pub fn of(module: &Module<'_>, handler: &HandlerConfig) -> Option<Self> {
        let missing = module.not_granted(&handler.allow);
        let (mut calls, grants): (Vec<_>, Vec<Grant>) =
            missing.map(|(call, grant)| (call.name(), grant)).unzip();
        let mut grants: Vec<_> = grants.iter().map(|grant| grant.word()).collect();
        for list in [&mut calls, &mut grants] {
            list.sort_unstable();
            list.dedup();
        }
        (!calls.is_empty()).then(|| Self {
            handler: handler.name.clone(),
            calls,
            grants,
        })
    }

    /// What to add to `allow`, as a configuration writes it.
    #[must_use]
    pub fn wanted(&self) -> String {
        format!("\"{}\"", self.grants.join("\", \""))
    }

    /// The next step in a configuration or a command.
    #[must_use]
    pub fn hint(&self) -> String {
        format!(
            "add {} to `allow` in `[handler.{}]`, or `--allow {}` to its `handler load`",
            self.wanted(),
            self.handler,
            self.grants.join(",")
        )
    }

    fn calls(&self) -> String {
        format!("`{}`", self.calls.join("`, `"))
    }

    fn verb(&self) -> &'static str {
        if self.calls.len() == 1 { "was" } else { "were" }
    }
}
