//! CPU time of a message that nobody receives.
//!
//! By hand all is done in the softirq of whoever sends the request, so it is the
//! sender's: of a request for 16 messages less one for 1. In the user tier it is the
//! node's, by the messages that it has sent meanwhile, under more requests than it can do:
//! a worker with nothing to do would spin.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ashway_rig::{B4, Node, realtime};
use serde_json::{Value, json};

use super::{ASKED, RESTS, TC, WANTED, WAYS, Way, World};
use crate::forward::{process_cpu, thread_cpu};
use crate::hosts::{named, status};
use crate::neighbour::pin;
use crate::stats::Spread;
use crate::table;
use crate::xdp::{self, Attached};

/// How long requests come before the node is looked at.
const BEFORE: Duration = Duration::from_millis(10);

/// A node that sends nothing for so long has done what it had.
const DRAINED: Duration = Duration::from_millis(100);

/// A way to several messages, and ns by round.
pub(super) struct Row {
    way: &'static Way,
    rounds: Vec<f64>,
}

pub(super) fn rows() -> Vec<Row> {
    let ways = WAYS.iter().chain([&TC]).filter(|way| way.several);
    ways.map(|way| Row {
        way,
        rounds: Vec::new(),
    })
    .collect()
}

/// One figure of every row.
pub(super) fn round(world: &World, node: &Node, rows: &mut [Row], lasts: Duration) -> Result<()> {
    let _node = Attached::to_client(&world.node, xdp::DROP)?;
    let _hand = Attached::to_client(&world.hand, xdp::DROP)?;
    for row in rows {
        let ns = if row.way.node {
            of_node(world, node, row.way, lasts)
        } else {
            let of = |wanted| of_sender(world, row.way, wanted, lasts);
            let others = f64::from(WANTED[3] - WANTED[0]);
            of(WANTED[3]).and_then(|most| Ok((most - of(WANTED[0])?) / others))
        };
        row.rounds.push(ns.with_context(|| row.way.name)?);
        std::thread::sleep(RESTS);
    }
    Ok(())
}

/// The sender's, for one request.
fn of_sender(world: &World, way: &Way, wanted: u8, lasts: Duration) -> Result<f64> {
    beside(world, way, wanted, || std::thread::sleep(lasts))
        .map(|((), sent)| sent.cpu as f64 / sent.requests as f64)
}

/// The node's, for one message.
fn of_node(world: &World, node: &Node, way: &Way, lasts: Duration) -> Result<f64> {
    let path = way.name.rsplit(' ').next().unwrap_or_default();
    let look = || -> Result<(u64, u64)> {
        let status = status(node.socket())?;
        let sent = named(&status, "paths", path)?["out"]["originated"].as_u64();
        Ok((sent.context("no `originated`")?, process_cpu(node.id())?))
    };
    let (looks, _) = beside(world, way, WANTED[3], || {
        std::thread::sleep(BEFORE);
        let before = look()?;
        std::thread::sleep(lasts);
        Ok::<_, anyhow::Error>((before, look()?))
    })?;
    let (before, after) = looks?;
    // What waits in the ring is not to be done at the next way's cost.
    let mut sent = after.0;
    loop {
        std::thread::sleep(DRAINED);
        let now = look()?.0;
        if std::mem::replace(&mut sent, now) == now {
            break;
        }
    }
    ensure!(after.0 > before.0, "it has sent nothing");
    Ok((after.1 - before.1) as f64 / (after.0 - before.0) as f64)
}

struct Sent {
    requests: u64,
    /// Of the sending thread, in ns.
    cpu: u64,
}

/// Sends requests as long as the work takes.
fn beside<T>(world: &World, way: &Way, wanted: u8, work: impl FnOnce() -> T) -> Result<(T, Sent)> {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| send(world, way, wanted, &over));
        let done = work();
        over.store(true, Ordering::Release);
        let sent = sender.join().expect("a sender does not panic")?;
        Ok((done, sent))
    })
}

/// Above ordinary processes: what its softirq leaves undone is then done at its next
/// request, and not by a thread of the kernel.
fn send(world: &World, way: &Way, wanted: u8, over: &AtomicBool) -> Result<Sent> {
    let socket = world.client(way.node)?;
    let mut request = [0; ASKED];
    request[0] = wanted;
    realtime(|| {
        pin(0)?;
        let (mut requests, before) = (0, thread_cpu());
        while requests == 0 || !over.load(Ordering::Acquire) {
            socket.send_to(&request, (B4, way.port))?;
            requests += 1;
        }
        Ok(Sent {
            requests,
            cpu: thread_cpu() - before,
        })
    })?
}

impl Row {
    fn spread(&self) -> Spread {
        Spread::of(self.rounds.iter().copied()).expect("there is a round")
    }

    pub(super) fn to_json(&self) -> Value {
        json!({ "way": self.way.name, "own": self.way.own, "cpu_ns": self.spread().to_json() })
    }
}

/// With `send`, the first, over each, round by round.
pub(super) fn render(rows: &[Row]) -> String {
    let line = |row: &Row| {
        let pairs = rows[0].rounds.iter().zip(&row.rounds);
        let over = Spread::of(pairs.map(|(send, it)| send / it)).expect("there is a round");
        let mut line = vec![row.way.name.to_owned()];
        for it in [row.spread(), over] {
            line.extend([it.median, it.min, it.max].map(table::digits));
        }
        line
    };
    let lines: Vec<_> = rows.iter().map(line).collect();
    let header = ["WAY", "CPU ns", "MIN", "MAX", "SEND x", "MIN", "MAX"];
    table::render(&header, 1, &lines)
}
