//! `ashway plan` and `ashway apply`: a running node is brought to a configuration.

use std::path::{Path, PathBuf};

use ashway_api::{Ask, answer, request};
use ashway_config as config;
use clap::Args;

use super::{Node, check, load};
use crate::face::Face;
use crate::failure::Failure;

/// Say what `ashway apply` would do to a running node, and change nothing
///
/// A line for each step: what is removed, changed, swapped, moved and created; what
/// was loaded or made by hand is in no file, and stays. Everything that can fail is
/// tried, so that a plan that is shown can be applied as long as the node stays as it is.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ashway plan node.toml                what would change
  ashway plan node.toml -j | jq '.steps[] | select(.do == \"remove\").name'
  ashway apply node.toml               change it")]
pub(crate) struct Plan {
    /// The configuration
    config: PathBuf,
    #[command(flatten)]
    node: Node,
}

/// Bring a running node to a configuration
///
/// What the node does already is left alone, and loses nothing. A handler whose file
/// or parameters change is swapped and keeps its state; a path that changes is removed
/// and created, and in between its messages are the host's. What was loaded or made by
/// hand stays. Every mistake is said at once, with its line, and then nothing has
/// changed. Interfaces come and go; `[node]`, and how an interface is attached, cannot change
/// while the node runs.
///
/// SIGHUP has a node read the file again that it was started with, or brought to last.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ashway plan node.toml && ashway apply node.toml
  kill -HUP PID                        the same, for the file that the node knows")]
pub(crate) struct Apply {
    /// The configuration
    config: PathBuf,
    #[command(flatten)]
    node: Node,
}

impl Plan {
    pub(crate) fn run(self, face: Face) -> Result<(), Failure> {
        let file = checked(&self.config)?;
        ask(self.node, request::Plan { file }, face)
    }
}

impl Apply {
    pub(crate) fn run(self, face: Face) -> Result<(), Failure> {
        let file = checked(&self.config)?;
        ask(self.node, request::Apply { file }, face)
    }
}

/// The file's name for the node. What is wrong with the file by itself is said here,
/// with its lines.
fn checked(file: &Path) -> Result<String, Failure> {
    let config = config::load(file)?;
    check::agrees(&config)?;
    load::absolute(file)
}

fn ask(node: Node, request: impl Ask<Answer = answer::Plan>, face: Face) -> Result<(), Failure> {
    let said = node.connect()?.request(request)?;
    face.show(&said.document, || words(&said.answer))
}

fn words(plan: &answer::Plan) -> String {
    let steps = plan.steps.iter();
    let changes = steps.clone().filter(|step| step.act != "stay").count();
    let plural = if changes == 1 { "" } else { "s" };
    let done = if plan.applied { "applied" } else { "planned" };
    let unchanged = plan.unchanged;
    let mut text = format!("{changes} change{plural} {done}, {unchanged} unchanged\n");
    let lines = steps.map(|step| &*step.text);
    let more = Some(plan.not_listed).filter(|more| *more > 0);
    let more = more.map(|more| format!("and {more} more that are in no file, and stay"));
    for line in lines.chain(more.as_deref()) {
        text.push_str("  ");
        text.push_str(line);
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use ashway_api::answer::PlanStep;

    use super::*;

    #[test]
    fn a_plan_is_a_line_for_each_step() {
        let step = |act: &'static str, text: &str| PlanStep {
            act: act.into(),
            text: text.to_owned(),
            ..PlanStep::default()
        };
        let plan = answer::Plan {
            steps: vec![
                step("swap", "swap   handler h: `file`"),
                step("stay", "stay   path p: it is in no file"),
            ],
            unchanged: 3,
            not_listed: 2,
            ..answer::Plan::default()
        };
        assert_eq!(
            words(&plan),
            "1 change planned, 3 unchanged\n  swap   handler h: `file`\n  \
             stay   path p: it is in no file\n  and 2 more that are in no file, and stay\n"
        );
    }
}
