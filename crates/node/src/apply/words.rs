//! What is said of an `apply`: answers and refusals.

use std::fmt::Write as _;
use std::path::Path as FsPath;

use ashway_api::answer::{Plan, PlanStep};

use super::super::RunError;
use super::trial::Tried;
use crate::request::{Code, Refusal};
use ashway_config::diagnostics::Diagnostics;
use ashway_config::{Act, Mistake, Step, instance_of, whole_name};
use ashway_worker::instance::InstanceError;
use ashway_worker::say::plural;

/// Most things made by hand that a plan names.
const NAMED: usize = 100;

/// The answer: each step, and what is as it was.
pub(super) fn describe(tried: &Tried, applied: bool) -> Plan {
    let steps = &tried.difference.steps;
    let stays = |step: &&Step| step.act == Act::Stay;
    let by_hand: Vec<&Step> = steps.iter().filter(stays).collect();
    let steps = steps.iter().filter(|step| !stays(step));
    let steps = steps.chain(by_hand.iter().take(NAMED).copied());
    // What is done with one instance of a handler is done with each.
    let steps = steps.filter(|step| instance_of(&step.name).is_none_or(|(_, cpu)| cpu == 0));
    let steps = steps.map(|step| Step {
        name: whole_name(&step.name).to_owned(),
        ..step.clone()
    });
    let steps = steps.map(|step| PlanStep {
        act: step.act.word().into(),
        what: step.what.word().into(),
        name: step.name.clone(),
        line: (step.line > 0).then_some(step.line as u64),
        keys: step.keys.iter().map(|key| (*key).into()).collect(),
        because: step.because.clone(),
        text: step.to_string(),
    });
    Plan {
        file: tried.next.file.display().to_string(),
        applied,
        steps: steps.collect(),
        unchanged: tried.difference.unchanged as u64,
        not_listed: by_hand.len().saturating_sub(NAMED) as u64,
        took_us: None,
    }
}

/// Says what the system refused when everything had been tried.
pub(super) fn half_done(failed: Vec<(String, Refusal)>) -> Result<(), Refusal> {
    let mut failed = failed.into_iter();
    let Some((name, first)) = failed.next() else {
        return Ok(());
    };
    let mut message = format!("path `{name}` could not be made: {}", first.message);
    for (name, refusal) in failed {
        // Into a string: cannot fail.
        let _ = write!(message, "; nor `{name}`: {}", refusal.message);
    }
    let hint = "all else is done; apply the file once more for the rest";
    Err(Refusal {
        message,
        hint: hint.to_owned(),
        ..first
    })
}

/// Mistakes in a text, as those of a node.
pub(super) fn said(mistakes: &Diagnostics) -> Vec<Mistake> {
    let said = mistakes.by_line().map(|(line, error)| {
        let hint = error.hint.clone().unwrap_or_default();
        Mistake::new(line, error.message.clone(), hint)
    });
    said.collect()
}

/// Says everything that is wrong with a file for this node.
pub(super) fn refused(file: &FsPath, mut mistakes: Vec<Mistake>) -> Refusal {
    mistakes.sort_by_key(|mistake| mistake.line);
    mistakes.dedup();
    let count = plural(mistakes.len(), "mistake");
    let shown = file.display().to_string();
    let errors = mistakes.into_iter().map(|mistake| Refusal {
        file: Some(shown.clone()),
        line: u32::try_from(mistake.line).ok().filter(|line| *line > 0),
        ..Refusal::new(Code::Usage, mistake.message, mistake.hint)
    });
    let errors: Vec<Refusal> = errors.collect();
    Refusal {
        file: Some(shown.clone()),
        line: errors.first().and_then(|first| first.line),
        errors,
        ..Refusal::usage(
            format!("{count} in `{shown}`; nothing has changed"),
            "mend them, then ask once more",
        )
    }
}

/// A refusal of an instance, at the line of its handler.
pub(super) fn of_handler(line: usize, error: InstanceError) -> Mistake {
    let refusal = RunError::Instance(error).refusal();
    Mistake::new(line, refusal.message, refusal.hint)
}
