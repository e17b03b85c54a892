//! The cases of the comparison, and how each gets its turn.
//!
//! Socket servers answer on hosts of their own where that is possible: there
//! nothing of Ashway is attached, whose entry program would be in their way. Ashway's two cases are one
//! path of one node, moved between the tiers, so one counter goes through both.

use std::fmt;
use std::path::Path as FsPath;
use std::time::Duration;

use anyhow::{Context, Result};
use ashway_rig::Hogs;
use serde_json::json;

use crate::hosts::{self, COUNTER_PATH, COUNTER_PORT, Hosts};
use crate::rtt::{self, Client, Plan, RttRun};
use crate::socket_server::{SocketServer, Waiting};

/// Who answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    /// A UDP server that sleeps between requests.
    Socket,
    /// A UDP server that spins.
    SocketBusy,
    /// Ashway's user tier: the worker spins for about 20 us, then sleeps.
    User,
    /// Ashway's kernel tier.
    Kernel,
}

impl Case {
    /// Every case.
    pub const ALL: [Self; 4] = [Self::Socket, Self::SocketBusy, Self::User, Self::Kernel];

    /// The name in tables and documents.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Socket => "socket",
            Self::SocketBusy => "socket_busy",
            Self::User => "user",
            Self::Kernel => "kernel",
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What one row of the table measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Who answers.
    pub case: Case,
    /// Who asks.
    pub client: Client,
    /// Busy loops beside them.
    pub hogs: usize,
}

/// The rows in the order of one round: first without busy loops, then beside
/// them. Rounds start at another case each, so that none always comes first.
#[must_use]
pub fn round(cases: &[Case], clients: &[Client], hogs: &[usize], round: usize) -> Vec<Row> {
    let mut rows = Vec::new();
    for &hogs in hogs {
        for &client in clients {
            for position in 0..cases.len() {
                let case = cases[(position + round) % cases.len()];
                rows.push(Row { case, client, hogs });
            }
        }
    }
    rows
}

/// Hosts with a socket server, hosts with a node; they may be the same.
#[derive(Clone, Copy)]
pub struct Contest<'h> {
    /// Where the socket servers answer.
    pub plain: &'h dyn Hosts,
    /// On which port; not the counter's, if the hosts are the same.
    pub plain_port: u16,
    /// Where the node answers.
    pub ashway: &'h dyn Hosts,
    /// The node's control socket.
    pub control: &'h FsPath,
    /// Whether the node has a kernel tier.
    pub kernel: bool,
}

impl Contest<'_> {
    /// Measures one row once; busy loops are the caller's.
    ///
    /// # Errors
    ///
    /// Names the row.
    pub fn run(&self, row: Row, requests: u32, longest: Duration) -> Result<RttRun> {
        let plan = Plan {
            requests,
            longest,
            client: row.client,
        };
        self.turn(row.case, plan).with_context(|| {
            format!(
                "case `{}`, client `{}`, {} busy loops",
                row.case, row.client, row.hogs
            )
        })
    }

    fn turn(&self, case: Case, plan: Plan) -> Result<RttRun> {
        let verb = match case {
            Case::Socket => return self.socket(Waiting::Sleeping, plan),
            Case::SocketBusy => return self.socket(Waiting::Spinning, plan),
            Case::User => "demote",
            Case::Kernel => "promote",
        };
        if self.kernel {
            self.ask(verb)?;
        }
        Ok(rtt::run(&self.ashway.client(COUNTER_PORT)?, plan)?)
    }

    fn socket(&self, waiting: Waiting, plan: Plan) -> Result<RttRun> {
        let command = |program: &str| self.plain.command_b(program);
        let _server = SocketServer::start(command, self.plain_port, waiting)?;
        Ok(rtt::run(&self.plain.client(self.plain_port)?, plan)?)
    }

    /// Moves the counter's path; `promote` or `demote`.
    ///
    /// # Errors
    ///
    /// Why it cannot move.
    pub fn ask(&self, verb: &str) -> Result<()> {
        hosts::ask(
            self.control,
            &json!({ "request": verb, "path": COUNTER_PATH }),
        )
        .map(drop)
    }
}

/// Runs `work` for each row of a round, with that many busy loops running.
///
/// # Errors
///
/// The first error of `work`, or if busy loops do not start.
pub fn each(rows: &[Row], mut work: impl FnMut(Row) -> Result<()>) -> Result<()> {
    let mut running: Option<(usize, Hogs)> = None;
    for &row in rows {
        if running.as_ref().map_or(0, |(count, _)| *count) != row.hogs {
            running = match row.hogs {
                0 => None,
                count => Some((
                    count,
                    Hogs::start(count).context("cannot start busy loops")?,
                )),
            };
        }
        work(row)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_has_every_row_and_another_first() {
        let rows = |number| round(&Case::ALL, &[Client::Fifo, Client::Other], &[0, 8], number);
        let first = rows(0);
        assert_eq!(first.len(), 16);
        for number in 1..5 {
            let other = rows(number);
            assert!(first.iter().all(|row| other.contains(row)));
            assert_eq!(other[0].case, Case::ALL[number % 4]);
            assert_eq!((other[0].hogs, other[15].hogs), (0, 8));
        }
    }
}
