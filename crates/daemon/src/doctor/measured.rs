//! What was measured, for a person and for a program.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::checks::words;
use super::measure::{Host, Measured, Way, Window};

impl Measured {
    /// A row for each way.
    pub(super) fn render(&self) -> String {
        let rounds = self.ways.iter().map(|way| way.windows.len()).max();
        let mut text = format!(
            "  measured by a node without paths, {} rounds of {} s for each way; medians of the \
             rounds, (least to most)\n",
            rounds.unwrap_or(0),
            self.window.as_secs_f64(),
        );
        let header = ["WAY", "MBIT/S", "FRAMES/S", "BYTES", "PROGRAM NS", "HOST"];
        let mut rows = vec![header.map(str::to_owned).to_vec()];
        let before = self.ways.first().and_then(|way| way.host);
        rows.extend(self.ways.iter().map(|way| way.row(before)));
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
        let widths: Vec<usize> = (0..header.len()).map(|at| width(at).unwrap_or(0)).collect();
        for row in &rows {
            let cells = row.iter().zip(&widths);
            let cells: Vec<_> = cells
                .map(|(cell, width)| format!("{cell:<width$}"))
                .collect();
            let _ = writeln!(text, "    {}", cells.join("  ").trim_end());
        }
        if self
            .ways
            .iter()
            .all(|way| way.windows.iter().all(|window| window.frames == 0))
        {
            text += "  nothing came in, so this says nothing of what the traffic would lose\n";
        }
        text
    }

    /// `[{ "attach": S|null, "rounds": [{ ... }], "refused": S|null, ... }]`, in the order of the
    /// rows; `null` is nobody.
    pub(super) fn to_json(&self) -> Value {
        self.ways.iter().map(Way::to_json).collect()
    }
}

impl Way {
    fn row(&self, before: Option<Host>) -> Vec<String> {
        let word = self.word.unwrap_or("(nobody)").to_owned();
        if let Some(refused) = &self.refused {
            let mut row = vec![word, "-".into(), "-".into(), "-".into(), "-".into()];
            row.push(format!("refused: {refused}"));
            return row;
        }
        let host = match (self.host, before) {
            (Some(now), Some(before)) if now != before => changed(before, now),
            _ => "as before".to_owned(),
        };
        vec![
            word,
            self.spread(0, |window| Some(window.mbit_per_s())),
            self.spread(0, |window| Some(window.frames_per_s())),
            self.spread(0, Window::bytes_a_frame),
            self.spread(0, Window::program_ns),
            host,
        ]
    }

    /// The median of the rounds, least and most; a dash if there is none.
    fn spread(&self, decimals: usize, of: impl Fn(&Window) -> Option<f64>) -> String {
        let mut values: Vec<f64> = self.windows.iter().filter_map(of).collect();
        values.sort_by(f64::total_cmp);
        let (Some(least), Some(most)) = (values.first(), values.last()) else {
            return "-".to_owned();
        };
        let median = values[values.len() / 2];
        format!("{median:.decimals$} ({least:.decimals$}-{most:.decimals$})")
    }

    fn to_json(&self) -> Value {
        let rounds = self.windows.iter().map(|window| {
            json!({
                "seconds": window.seconds,
                "frames": window.frames,
                "bytes": window.bytes,
                "program_runs": window.program.map(|time| time.runs),
                "program_ns": window.program.map(|time| time.ns),
            })
        });
        json!({
            "attach": self.word,
            "refused": self.refused,
            "rounds": rounds.collect::<Vec<_>>(),
            "mtu_bytes": self.host.map(|host| host.mtu),
            "offloads": self.host.map(|host| json!({
                "tso": host.offloads.tso,
                "gro": host.offloads.gro,
                "lro": host.offloads.lro,
            })),
        })
    }
}

fn changed(before: Host, now: Host) -> String {
    let mut changes = Vec::new();
    if now.mtu != before.mtu {
        changes.push(format!("MTU {} (was {})", now.mtu, before.mtu));
    }
    if now.offloads != before.offloads {
        changes.push(words(now.offloads));
    }
    changes.join(", ")
}
