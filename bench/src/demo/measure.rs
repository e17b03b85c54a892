//! The table: remote increments, side by side.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};

use super::{RUNS, Stage};
use crate::contest::{self, Case, Row};
use crate::rtt::Client;
use crate::stats::{Summary, Times};
use crate::table;

/// Busy loops of the second half.
const HOGS: usize = 8;

/// A run ends after this time. Beside busy loops a request to an ordinary
/// process can cost tens of ms, and the whole demonstration has a minute.
const LONGEST: Duration = Duration::from_millis(1200);

/// The rows with all times of their runs.
pub struct Measured {
    rows: Vec<(Row, Times)>,
    /// By how much Ashway's counter rose.
    pub increments: u32,
    requests: u32,
}

/// Measures `requests` of each row in five alternating runs.
pub(super) fn measure(stage: &Stage<'_>, requests: u32) -> Result<Measured> {
    let rows = |round| contest::round(stage.cases, stage.clients, &[0, HOGS], round);
    let mut measured = Measured {
        rows: rows(0).into_iter().map(|row| (row, Times::new())).collect(),
        increments: 0,
        requests,
    };
    for run in 0..RUNS {
        progress(&format!("Remote increments, run {} of {RUNS} ...", run + 1));
        contest::each(&rows(run as usize), |row| {
            let done = stage.contest.run(row, requests / RUNS, LONGEST)?;
            if matches!(row.case, Case::User | Case::Kernel) {
                measured.increments = measured.increments.wrapping_add(done.increments);
            }
            let found = measured.rows.iter_mut().find(|(known, _)| *known == row);
            let (_, times) = found.expect("every round has the rows of the first");
            times.add(&done.times)
        })?;
    }
    progress("");
    Ok(measured)
}

/// On a terminal one line that changes, elsewhere nothing.
fn progress(text: &str) {
    let mut out = std::io::stdout();
    if out.is_terminal() {
        // Where there is no one left to read, there is no one to tell.
        let _ = write!(out, "\r\x1b[K{text}").and_then(|()| out.flush());
    }
}

impl Measured {
    fn summary(&self, row: Row) -> Option<Summary> {
        let found = self.rows.iter().find(|(known, _)| *known == row);
        found.map(|(_, times)| times.summary())
    }

    /// The table, and what follows from it.
    #[must_use]
    pub fn render(&self) -> String {
        let cells = |(row, times): &(Row, Times)| {
            let summary = times.summary();
            vec![
                row.case.to_string(),
                row.client.to_string(),
                row.hogs.to_string(),
                summary.n.to_string(),
                table::time(summary.p50),
                table::time(summary.p99),
                table::time(summary.p999),
                table::time(summary.max),
            ]
        };
        let header = ["CASE", "CLIENT", "HOGS", "N", "P50", "P99", "P99.9", "MAX"];
        let rows: Vec<_> = self.rows.iter().map(cells).collect();
        let mut text = String::from("Remote increment, A to B, round trip:\n\n");
        text += &table::render(&header, 2, &rows);
        text += "\nCLIENT fifo: SCHED_FIFO; other: an ordinary process, whose own waiting for a\n\
                 CPU beside busy loops (HOGS) is part of the time.\n";
        if self
            .rows
            .iter()
            .any(|(_, times)| times.summary().n < u64::from(self.requests))
        {
            text += "Rows with a smaller N were cut short: each run has 1.2 s.\n";
        }
        text += &self.ratios();
        text
    }

    /// Median over median, as far as the rows are there.
    fn ratios(&self) -> String {
        let client = self
            .rows
            .first()
            .map_or(Client::Other, |(row, _)| row.client);
        let over = |case, hogs| {
            let row = |case| Row { case, client, hogs };
            let socket = self.summary(row(Case::Socket))?.p50 as f64;
            Some(socket / self.summary(row(case))?.p50 as f64)
        };
        let mut text = format!("\nThe socket server's median over ours ({client} client):\n\n");
        for case in [Case::Kernel, Case::User] {
            if let (Some(alone), Some(beside)) = (over(case, 0), over(case, HOGS)) {
                let (alone, beside) = (table::digits(alone), table::digits(beside));
                let line = format!("  {case:<6}  {alone}, beside busy loops {beside}\n");
                text.push_str(&line);
            }
        }
        text
    }

    /// The rows as `--json` has them.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let rows = self.rows.iter().map(|(row, times)| {
            let summary = times.summary();
            json!({
                "case": row.case.name(),
                "client": row.client.name(),
                "hogs": row.hogs,
                "n": summary.n,
                "p50_ns": summary.p50,
                "p99_ns": summary.p99,
                "p999_ns": summary.p999,
                "max_ns": summary.max,
            })
        });
        rows.collect()
    }
}
