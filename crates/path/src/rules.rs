//! Rules: what may be done to a whole path because the whole of it is known.
//!
//! A rule is a guard and a rewriting. As long as some guard holds, its rewriting
//! is applied; a rule changes what a path costs, never what it does. Each rule
//! has a test that says so: the same messages, before and after.
//!
//! Here are the rules that know nothing of protocols.
//!
//! Source: Mosberger & Peterson 1996 ("Scout"), §2.2 and §3.3.

use std::ops::Range;

use crate::path::Path;
use crate::problem;
use crate::stage::Direction;

/// A transformation of paths. `M` is what messages are made of.
#[derive(Debug)]
pub struct Rule<M> {
    /// Its name in logs and errors.
    pub name: &'static str,
    /// One line for people.
    pub about: &'static str,
    /// The stages to rewrite, or `None` if there is nothing to do. Behind a
    /// rewriting it must sooner or later say `None`.
    pub guard: fn(&Path<M>) -> Option<Range<usize>>,
    /// Rewrites them. The path does afterwards what it did before.
    pub rewrite: fn(&mut Path<M>, Range<usize>) -> Result<(), String>,
}

impl<M> Rule<M> {
    /// Leaves out stages that do nothing in either direction, except a path's
    /// only stage.
    pub const LEAVE_OUT_IDLE: Self = Self {
        name: "leave-out-idle",
        about: "leaves out stages that do nothing",
        guard: |path| {
            let idle = path.stages().position(|stage| stage.traits().idle)?;
            (path.len() > 1).then_some(idle..idle + 1)
        },
        rewrite: |path, stages| {
            let replaced = path.replace(stages, Vec::new());
            replaced.map_err(|error| error.to_string())
        },
    };

    /// Takes away output queues behind which nobody transmits
    /// ([`Traits::transmits`](crate::stage::Traits::transmits)), so that what leaves there
    /// goes on at once; while they are empty, else the next message would overtake those in
    /// the queue.
    pub const LEAVE_OUT_QUEUES: Self = Self {
        name: "leave-out-queues",
        about: "takes away output queues behind which messages go on at once",
        guard: |path| idle_outputs(path).map(|(stage, _)| stage..stage + 1).next(),
        rewrite: |path, _| {
            let mut limits = path.limits();
            for (_, queue) in idle_outputs(path) {
                limits.queue[queue] = 0;
            }
            path.limit(limits).map_err(|error| error.to_string())
        },
    };
}

/// The stages at the ends whose output queues do nothing, with the positions of
/// these queues in [`Limits::queue`](crate::path::Limits::queue).
fn idle_outputs<M>(path: &Path<M>) -> impl Iterator<Item = (usize, usize)> {
    let last = path.len().saturating_sub(1);
    let ends = [(Direction::Forward, last, 2), (Direction::Backward, 0, 3)];
    ends.into_iter()
        .filter(|(direction, stage, _)| {
            let output = path.output(*direction);
            output.maximum() > 0
                && output.is_empty()
                && path
                    .stages()
                    .nth(*stage)
                    .is_some_and(|stage| !stage.traits().transmits)
        })
        .map(|(_, stage, queue)| (stage, queue))
}

/// A rule that was applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Its name.
    pub rule: &'static str,
    /// What it does.
    pub about: &'static str,
    /// The stages it rewrote, by name.
    pub rewrote: Vec<Box<str>>,
    /// How many stages the path had before.
    pub before: usize,
    /// How many it has now.
    pub after: usize,
}

/// Why a path could not be transformed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotTransformed {
    /// A rewriting went wrong.
    #[error("rule `{rule}` failed: {because}")]
    Failed {
        /// The rule's name.
        rule: &'static str,
        /// Its own words.
        because: String,
    },
    /// The guards never became false.
    #[error(
        "rules {} do not come to an end: {steps} steps on a path of {stages} stages",
        problem::list(rules)
    )]
    Endless {
        /// The rules that were applied to the last, in that order.
        rules: Vec<&'static str>,
        /// How many steps were made.
        steps: usize,
        /// How many stages the path had at first.
        stages: usize,
    },
}

impl NotTransformed {
    /// The rule to blame; the first, if there are several.
    #[must_use]
    pub fn rule(&self) -> &'static str {
        match self {
            Self::Failed { rule, .. } => rule,
            Self::Endless { rules, .. } => rules.first().copied().unwrap_or(""),
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Failed { .. } => "leave the rule out; the path works without it",
            Self::Endless { .. } => "leave one of them out; does one undo what the other does?",
        }
    }
}

/// Applies rules until no guard holds, the first that holds at each step.
///
/// Each rule may act once for each stage that the path has at first; that bounds
/// the time, and more than that is taken for an endless loop.
///
/// # Errors
///
/// The path is as the steps before left it: whole, but not worth keeping.
pub fn apply<M>(rules: &[Rule<M>], path: &mut Path<M>) -> Result<Vec<Applied>, NotTransformed> {
    let mut applied = Vec::new();
    transform(rules, path, Some(&mut applied))?;
    Ok(applied)
}

/// The same; what was applied is told if somebody wants to know.
pub(crate) fn transform<M>(
    rules: &[Rule<M>],
    path: &mut Path<M>,
    mut applied: Option<&mut Vec<Applied>>,
) -> Result<(), NotTransformed> {
    let stages = path.len();
    let most = stages * rules.len();
    let mut steps = Vec::new();
    while let Some((rule, range)) = first(rules, path) {
        if steps.len() == most {
            return Err(endless(&steps, stages));
        }
        steps.push(rule.name);
        let before = path.len();
        let failed = |because| NotTransformed::Failed {
            rule: rule.name,
            because,
        };
        if range.start > range.end || range.end > before {
            return Err(failed(format!(
                "its guard names stages {}..{} of {before}",
                range.start, range.end
            )));
        }
        let rewrote = applied.as_ref().map(|_| {
            let stages = path.stages().skip(range.start).take(range.len());
            stages.map(|stage| stage.name().into()).collect()
        });
        (rule.rewrite)(path, range).map_err(failed)?;
        if let Some((applied, rewrote)) = applied.as_mut().zip(rewrote) {
            applied.push(Applied {
                rule: rule.name,
                about: rule.about,
                rewrote,
                before,
                after: path.len(),
            });
        }
    }
    Ok(())
}

fn first<'r, M>(rules: &'r [Rule<M>], path: &Path<M>) -> Option<(&'r Rule<M>, Range<usize>)> {
    rules
        .iter()
        .find_map(|rule| Some((rule, (rule.guard)(path)?)))
}

/// Rules that had come to an end are not among the later half of the steps.
fn endless(steps: &[&'static str], stages: usize) -> NotTransformed {
    let mut rules = Vec::new();
    for rule in &steps[steps.len() / 2..] {
        if !rules.contains(rule) {
            rules.push(*rule);
        }
    }
    NotTransformed::Endless {
        rules,
        steps: steps.len(),
        stages,
    }
}
