//! `ashway status`: where every message went.

mod handlers;
mod interfaces;
mod paths;
#[cfg(test)]
mod tests;

use ashway_api::answer::RanIn;
use ashway_api::{answer, request};
use clap::Args;

use super::Node;
use crate::face::{Face, clean};
use crate::failure::Failure;
use crate::table;

pub(crate) use handlers::handlers;
use interfaces::interfaces;
pub(crate) use paths::{bypass, paths, stays};
use paths::{instances, losses, shares, without_handler};

/// Say where every message went
///
/// Each message a path received is in exactly one column of fates or still
/// waiting: at rest the sums close to the message.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ashway status
  ashway status -j | jq '.paths[] | {name, received, ran_in}'")]
pub(crate) struct Status {
    #[command(flatten)]
    node: Node,
}

impl Status {
    pub(crate) fn run(self, face: Face) -> Result<(), Failure> {
        let said = self.node.connect()?.request(request::Status {})?;
        face.show(&said.document, || render(&said.answer))?;
        Ok(())
    }
}

/// All tables.
fn render(status: &answer::Status) -> String {
    let mut parts = vec![
        interfaces(status),
        handlers(status),
        paths(status),
        instances(status),
        shares(status),
        without_handler(status),
        losses(status),
        taps(status),
        operations(status),
    ];
    parts.retain(|part| !part.is_empty());
    parts.join("\n")
}

fn hint(of: &str, hint: Option<&str>) -> String {
    hint.map_or_else(String::new, |hint| format!("hint: {of}: {}\n", clean(hint)))
}

/// What is under way: `ashway cancel` ends it.
fn operations(status: &answer::Status) -> String {
    let rows: Vec<_> = status
        .operations
        .iter()
        .map(|under_way| {
            let operation = &under_way.operation;
            vec![
                operation.operation.to_string(),
                operation.does.to_string(),
                operation.about.clone(),
                operation.by.clone(),
                under_way.waits_for.to_string(),
                under_way.age_ms.to_string(),
            ]
        })
        .collect();
    let header = ["OPERATION", "DOES", "ABOUT", "BY", "WAITS FOR", "SINCE MS"];
    some_rows(&header, &rows)
}

/// What taps write, and what keeps them from it.
fn taps(status: &answer::Status) -> String {
    let rows: Vec<_> = status
        .taps
        .iter()
        .map(|tap| {
            vec![
                tap.tap.clone(),
                tap.file.clone(),
                tap.written.to_string(),
                tap.lost.to_string(),
                tap.failed.to_string(),
                tap.because.clone().unwrap_or_default(),
            ]
        })
        .collect();
    let header = ["TAP", "FILE", "WRITTEN", "LOST", "FAILED", "BECAUSE"];
    some_rows(&header, &rows)
}

/// Which share of the messages ran in the kernel tier; nothing where none ran.
fn in_kernel(ran_in: Option<RanIn>) -> String {
    let share = ran_in.and_then(RanIn::share_of_kernel);
    share.unwrap_or_default()
}

/// A table, if there is something in it.
fn some_rows(header: &[&str], rows: &[Vec<String>]) -> String {
    if rows.is_empty() {
        String::new()
    } else {
        table::render(header, rows)
    }
}
