//! One operation: a request that the node finishes later, and who is told how it has ended.
//!
//! What it waits for is in the [table](super::operations), which knows every kind. Who
//! begins an operation, and who goes on with it, knows this and no
//! other kind. What it prints of its end is here, too: the lines of an `apply` and of a start.

use std::sync::Arc;
use std::time::Instant;

use ashway_api::Answer as Done;
use ashway_api::answer::{self, Plan};

use super::authority::Authority;
use crate::control::{Answer, Caller};
use crate::request::Refusal;
use ashway_config::Act;
use ashway_worker::say::{plural, say};

/// An operation, but for the step that it waits for.
#[derive(Debug)]
pub(super) struct Operation {
    number: u64,
    /// The request's name, or what the node does by itself.
    verb: &'static str,
    /// A handler, a path or a file.
    about: String,
    authority: Authority,
    begun: Instant,
    report: Report,
    /// While this is held the compile thread has a reason to begin a job of it.
    wanted: Arc<()>,
}

/// Who is told how an operation has ended.
#[derive(Debug)]
pub(super) enum Report {
    /// Who has asked.
    Caller(Caller),
    /// Whoever reads the node's lines: what became of applying a file.
    Applied,
    /// The same: why a path, which this names, was not promoted when the node started.
    StartPromotion(String),
    /// Nobody; `status` shows what came of it.
    Nobody,
}

impl Operation {
    /// One that begins now.
    pub(super) fn new(number: u64, verb: &'static str, about: String, report: Report) -> Self {
        Self {
            number,
            verb,
            about,
            authority: match &report {
                Report::Caller(caller) => caller.authority.clone(),
                _ => Authority::Node,
            },
            begun: Instant::now(),
            report,
            wanted: Arc::default(),
        }
    }

    /// Its number.
    pub(super) const fn number(&self) -> u64 {
        self.number
    }

    /// When it began.
    pub(super) const fn begun(&self) -> Instant {
        self.begun
    }

    /// What is held while somebody waits for it.
    pub(super) const fn wanted(&self) -> &Arc<()> {
        &self.wanted
    }

    /// Tells how it has ended.
    pub(super) fn end(self, answer: impl Into<Answer>) {
        match (self.report, answer.into()) {
            (Report::Caller(caller), answer) => caller.answer(answer),
            (Report::Applied, Answer::Ok(Done::Plan(done))) => tell(&done),
            (Report::Applied, Answer::Refused(refusal)) => tell_refused(&refusal),
            (Report::StartPromotion(path), Answer::Refused(Refusal { message, hint, .. })) => {
                say(&format!("path {path} stays in the user tier: {message}"));
                say(&format!("  hint: {hint}"));
            }
            (Report::Applied | Report::StartPromotion(_) | Report::Nobody, _) => {}
        }
    }

    /// As answers have it.
    pub(super) fn describe(&self) -> answer::Operation {
        answer::Operation {
            operation: self.number,
            does: self.verb.into(),
            about: self.about.clone(),
            by: self.authority.to_string(),
        }
    }
}

/// Says on the node's own output what was done, which nobody waits for.
fn tell(done: &Plan) {
    let steps = done.steps.iter();
    let changes: Vec<_> = steps.filter(|step| step.act != Act::Stay.word()).collect();
    let (count, unchanged) = (plural(changes.len(), "step"), done.unchanged);
    say(&format!(
        "applied `{}`: {count}, {unchanged} unchanged",
        done.file
    ));
    for change in changes {
        say(&format!("  {}", change.text));
    }
}

/// The same of what was not done.
fn tell_refused(refusal: &Refusal) {
    say(&format!("not applied: {}", refusal.message));
    for error in &refusal.errors {
        let line = error
            .line
            .map_or(String::new(), |line| format!("line {line}: "));
        say(&format!("  {line}{}", error.message));
    }
    if !refusal.hint.is_empty() {
        say(&format!("  hint: {}", refusal.hint));
    }
}
