//! Round trips: every case, client and load in turn.

use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};

use super::{Options, Section};
use crate::contest::{self, Case, Contest, Row};
use crate::hosts::{self, COUNTER_PORT};
use crate::ratio::{Ratio, Target};
use crate::rtt::Client;
use crate::stats::{Spread, Summary};
use crate::table;

/// Busy loops of the second half.
const HOGS: usize = 8;

/// Those of one more row, of the kernel tier.
const MANY_HOGS: usize = 16;

/// A run ends after this time: beside busy loops an ordinary server may answer
/// fifty requests a second.
const LONGEST: Duration = Duration::from_secs(3);

/// A paced client sends so many times fewer: it takes a ms for each.
const PACED_FEWER: u32 = 10;

/// The rows of every round, in the order of the table.
struct Table(Vec<(Row, Vec<Summary>)>);

pub(super) fn measure(options: &Options) -> Result<Section> {
    let plain = hosts::stock("plain")?;
    let ashway = hosts::stock("rows")?;
    let node = options.node(&ashway, hosts::config("b0")?)?.start()?;
    let contest = Contest {
        plain: &plain,
        plain_port: COUNTER_PORT,
        ashway: &ashway,
        control: node.socket(),
        kernel: true,
    };
    let requests = options.requests / options.rounds.max(1) as u32;
    let mut table = Table(Vec::new());
    for number in 0..options.rounds {
        contest::each(&rows(number), |row| {
            let requests = match row.client {
                Client::Paced => requests.div_ceil(PACED_FEWER),
                _ => requests,
            };
            let run = contest.run(row, requests, LONGEST)?;
            table.add(row, run.times.summary());
            Ok(())
        })?;
    }
    let hook = hosts::hook(node.socket())?;
    node.stop()?;
    Ok(Section {
        document: table.to_json(),
        text: format!("{}\nThe node was at {hook}, by `auto`.\n", table.render()),
        ratios: table.ratios(),
    })
}

/// Two clients without load that the promises name, then the whole table.
fn rows(number: usize) -> Vec<Row> {
    let hot = [Case::SocketBusy, Case::User];
    let asleep = [Case::Socket, Case::Kernel];
    let mut rows = contest::round(&hot, &[Client::Spinning], &[0], number);
    rows.extend(contest::round(&asleep, &[Client::Paced], &[0], number));
    let clients = [Client::Fifo, Client::Other];
    rows.extend(contest::round(&Case::ALL, &clients, &[0, HOGS], number));
    let many = [MANY_HOGS];
    rows.extend(contest::round(
        &[Case::Kernel],
        &[Client::Fifo],
        &many,
        number,
    ));
    rows
}

impl Table {
    fn add(&mut self, row: Row, summary: Summary) {
        match self.0.iter_mut().find(|(known, _)| *known == row) {
            Some((_, rounds)) => rounds.push(summary),
            None => self.0.push((row, vec![summary])),
        }
    }

    fn rounds(&self, case: Case, client: Client, hogs: usize) -> &[Summary] {
        let row = Row { case, client, hogs };
        let found = self.0.iter().find(|(known, _)| *known == row);
        found.map_or(&[], |(_, rounds)| rounds)
    }

    /// One row over another, round by round.
    fn over(&self, over: Row, under: Row, of: fn(&Summary) -> u64) -> Vec<f64> {
        let over = self.rounds(over.case, over.client, over.hogs);
        let under = self.rounds(under.case, under.client, under.hogs);
        let pairs = over.iter().zip(under);
        pairs
            .map(|(over, under)| of(over) as f64 / of(under).max(1) as f64)
            .collect()
    }

    fn ratios(&self) -> Vec<Ratio> {
        use Target::{AtLeast, AtMost, Recorded};
        let row = |case, client, hogs| Row { case, client, hogs };
        let p50: fn(&Summary) -> u64 = |summary| summary.p50;
        let p999: fn(&Summary) -> u64 = |summary| summary.p999;
        let kernel = |hogs| row(Case::Kernel, Client::Fifo, hogs);
        let socket_over_kernel = |client| {
            let socket = row(Case::Socket, client, 0);
            self.over(socket, row(Case::Kernel, client, 0), p50)
        };
        let user_over_busy = |client| {
            let busy = row(Case::SocketBusy, client, 0);
            self.over(row(Case::User, client, 0), busy, p50)
        };
        [
            Ratio::of(
                "socket_over_kernel_p50_paced",
                AtLeast(8.0),
                socket_over_kernel(Client::Paced),
            ),
            Ratio::of(
                "socket_over_kernel_p50_fifo",
                Recorded,
                socket_over_kernel(Client::Fifo),
            ),
            Ratio::of(
                "socket_over_kernel_p50_other",
                Recorded,
                socket_over_kernel(Client::Other),
            ),
            Ratio::of(
                "kernel_p50_hogs_over_none",
                AtMost(1.1),
                self.over(kernel(HOGS), kernel(0), p50),
            ),
            Ratio::of(
                "kernel_p999_hogs_over_none",
                AtMost(2.0),
                self.over(kernel(HOGS), kernel(0), p999),
            ),
            Ratio::of(
                "kernel_p50_16_hogs_over_none",
                Recorded,
                self.over(kernel(MANY_HOGS), kernel(0), p50),
            ),
            Ratio::of(
                "user_over_socket_busy_p50_spinning",
                AtMost(0.8),
                user_over_busy(Client::Spinning),
            ),
            Ratio::of(
                "user_over_socket_busy_p50_fifo",
                Recorded,
                user_over_busy(Client::Fifo),
            ),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    fn render(&self) -> String {
        let cells = |(row, rounds): &(Row, Vec<Summary>)| {
            let median = |of: fn(&Summary) -> u64| match spread(rounds, of) {
                Some(spread) => table::time(spread.median as u64),
                None => String::new(),
            };
            let range = spread(rounds, |summary| summary.p50).map_or(String::new(), |spread| {
                let (min, max) = (spread.min as u64, spread.max as u64);
                format!("{} .. {}", table::time(min), table::time(max))
            });
            let n: u64 = rounds.iter().map(|round| round.n).sum();
            vec![
                row.case.to_string(),
                row.client.to_string(),
                row.hogs.to_string(),
                n.to_string(),
                median(|summary| summary.p50),
                range,
                median(|summary| summary.p99),
                median(|summary| summary.p999),
                median(|summary| summary.max),
            ]
        };
        let header = [
            "CASE",
            "CLIENT",
            "HOGS",
            "N",
            "P50",
            "MIN .. MAX",
            "P99",
            "P99.9",
            "LONGEST",
        ];
        let rows: Vec<_> = self.0.iter().map(cells).collect();
        format!(
            "Round trips, medians of the rounds (P50 with its lowest and highest round):\n\n{}",
            table::render(&header, 2, &rows)
        )
    }

    fn to_json(&self) -> Value {
        let rows = self.0.iter().map(|(row, rounds)| {
            let median = |of| spread(rounds, of).map(|spread| spread.median as u64);
            let whole = |of| spread(rounds, of).map(Spread::to_json);
            json!({
                "case": row.case.name(),
                "client": row.client.name(),
                "hogs": row.hogs,
                "n": rounds.iter().map(|round| round.n).sum::<u64>(),
                "p50_ns": median(|summary| summary.p50),
                "p99_ns": median(|summary| summary.p99),
                "p999_ns": median(|summary| summary.p999),
                "max_ns": median(|summary| summary.max),
                "rounds": {
                    "p50_ns": whole(|summary| summary.p50),
                    "p99_ns": whole(|summary| summary.p99),
                    "p999_ns": whole(|summary| summary.p999),
                    "max_ns": whole(|summary| summary.max),
                },
            })
        });
        rows.collect()
    }
}

fn spread(rounds: &[Summary], of: fn(&Summary) -> u64) -> Option<Spread> {
    Spread::of(rounds.iter().map(|round| of(round) as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_made_round_by_round() {
        let mut table = Table(Vec::new());
        for round in 0..3 {
            for row in rows(round) {
                let p50 = match row.case {
                    Case::Socket => 50_000,
                    Case::SocketBusy => 10_000,
                    Case::User => 5_000,
                    Case::Kernel => 4_000 + 1_000 * round as u64,
                };
                let summary = Summary {
                    n: 10,
                    p50,
                    p99: p50,
                    p999: p50,
                    max: p50,
                };
                table.add(row, summary);
            }
        }
        let ratios = table.ratios();
        let spread = |name: &str| {
            ratios
                .iter()
                .find(|ratio| ratio.name == name)
                .unwrap()
                .spread
        };
        let paced = spread("socket_over_kernel_p50_paced");
        assert_eq!((paced.median, paced.max), (10.0, 12.5));
        let near = |name: &str, value: f64| (spread(name).median - value).abs() < 1e-9;
        assert!(near("kernel_p50_hogs_over_none", 1.0));
        assert!(near("user_over_socket_busy_p50_spinning", 0.5));
        assert_eq!(table.to_json()[0]["n"], json!(30));
    }
}
