//! A flood: more requests than anybody can serve, and where each of them went.
//!
//! Live frames (`BPF_PROG_TEST_RUN`) leave A by `XDP_TX` on `a0`, faster than any
//! socket could send them. What the receiving veth has no room for is refused
//! there, before anything of Ashway; what it accepts must be in the ledger.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ashway_kernel::{Iface, iface};
use ashway_rig::{Frame, Rig};
use rustix::thread::{CpuSet, sched_setaffinity};
use serde_json::{Value, json};

use super::{Options, Section};
use crate::contest::Contest;
use crate::hosts::{self, COUNTER_PATH, COUNTER_PORT, Hosts};
use crate::ratio::{Ratio, Target};
use crate::rtt;
use crate::socket_server::{SocketServer, Waiting};
use crate::stats::Spread;
use crate::table;
use crate::xdp::{self, Attached};

/// Length of each frame.
const FRAME_BYTES: usize = 64;

/// How long one flood lasts, in ms.
const LASTS_MS: u32 = 1500;

/// Frames in one call. Each call ends in a wait of about 24 ms, so not too few.
const CALL: u32 = 2_000_000;

pub(super) fn measure(options: &Options) -> Result<Section> {
    let lasts = Duration::from_millis(u64::from(options.scaled(LASTS_MS)));
    let mut rounds = Vec::new();
    for _ in 0..options.rounds.min(3) {
        rounds.push((user(options, lasts)?, socket(lasts)?));
    }

    let spread = |of: fn(&(User, Socket)) -> f64| Spread::of(rounds.iter().map(of));
    let user = spread(|(user, _)| user.delivered).context("no rounds")?;
    let socket = spread(|(_, socket)| socket.delivered).context("no rounds")?;
    let accounts: Vec<Value> = rounds
        .iter()
        .map(|(user, _)| user.account.to_json())
        .collect();
    let line = |name: &str, spread: Spread| {
        let cells = [spread.median, spread.min, spread.max];
        let cells = cells.map(|rate| format!("{:.3}", rate / 1e6));
        [vec![name.to_owned()], cells.to_vec()].concat()
    };
    let header = ["CASE", "MPPS", "MIN", "MAX"];
    let lines = [line("user", user), line("socket_busy", socket)];
    let last = rounds.last().map(|(user, _)| user.account.clone());
    let text = format!(
        "Requests of {FRAME_BYTES} bytes answered under a flood:\n\n{}{}",
        table::render(&header, 1, &lines),
        last.map_or(String::new(), |account| account.render())
    );
    let ratio = rounds
        .iter()
        .map(|(user, socket)| user.delivered / socket.delivered.max(1.0));
    let unaccounted = rounds
        .iter()
        .map(|(user, _)| user.account.unaccounted() as f64);
    Ok(Section {
        document: json!({
            "frame_bytes": FRAME_BYTES,
            "user_pps": user.to_json(),
            "socket_busy_pps": socket.to_json(),
            "accounts": accounts,
        }),
        text,
        ratios: [
            Ratio::of("flood_user_over_socket_busy", Target::AtLeast(2.5), ratio),
            Ratio::of("flood_unaccounted", Target::AtMost(0.0), unaccounted),
        ]
        .into_iter()
        .flatten()
        .collect(),
    })
}

/// Sends increments of 1 from A for that long; how many frames, and the time it
/// took. Needs a program on `a0`.
fn flood(rig: &Rig, lasts: Duration) -> Result<(u64, Duration)> {
    let headers = 14 + 20 + 8;
    let mut payload = 1_u32.to_be_bytes().to_vec();
    payload.resize(FRAME_BYTES - headers, 0);
    let frame = Frame::to_b(COUNTER_PORT, &payload).bytes();
    let sender = xdp::constant("ashway_flood", xdp::TX)?;
    rig.in_a(|| -> Result<_> {
        let ifindex = Iface::by_name("a0")?.ifindex;
        // What it sends is received in softirq on its own CPU. Kept in one
        // place, it leaves the other CPUs to whoever answers.
        let mut first = CpuSet::new();
        first.set(0);
        sched_setaffinity(None, &first).context("cannot stay on one CPU")?;
        let begin = Instant::now();
        let mut sent = 0;
        while begin.elapsed() < lasts {
            sender.run_live(&frame, CALL, ifindex)?;
            sent += u64::from(CALL);
        }
        Ok((sent, begin.elapsed()))
    })
}

/// Frames that B's veth accepted so far.
fn accepted(rig: &Rig) -> Result<u64> {
    let stats = rig.in_b(|| iface::stats("b0"))?;
    stats
        .xdp_sum("_xdp_packets")
        .context("this veth does not count what it receives")
}

/// A flood of the user tier.
struct User {
    /// Answered requests per second.
    delivered: f64,
    account: Account,
}

/// Where the frames of a flood went.
#[derive(Clone, Debug, Default)]
struct Account {
    sent: u64,
    accepted: u64,
    unmatched: u64,
    received: u64,
    answered: u64,
    passed: u64,
    dropped: Vec<(String, u64)>,
    other: u64,
    waiting: u64,
}

fn user(options: &Options, lasts: Duration) -> Result<User> {
    let rig = hosts::stock("flood")?;
    let attached = Attached::to_client(&rig, xdp::DROP)?;
    // Live frames are XDP's.
    let node = options
        .node(&rig, hosts::config_at("b0", "xdp")?)?
        .start()?;
    let contest = Contest {
        plain: &rig,
        plain_port: 0,
        ashway: &rig,
        control: node.socket(),
        kernel: true,
    };
    contest.ask("demote")?;
    let before = (accepted(&rig)?, hosts::status(node.socket())?);
    let (sent, took) = flood(&rig, lasts)?;
    // What waits is served within moments: the worker is alone now.
    let begin = Instant::now();
    let after = loop {
        let status = hosts::status(node.socket())?;
        let waiting = &hosts::named(&status, "paths", COUNTER_PATH)?["waiting"];
        if waiting == 0 || begin.elapsed() > Duration::from_secs(2) {
            break status;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let accepted = accepted(&rig)? - before.0;
    let account = Account::between(&before.1, &after, sent, accepted)?;
    drop(attached);
    node.stop()?;
    if account.answered == 0 {
        bail!("the user tier answered none of {sent} requests: {account:?}");
    }
    Ok(User {
        delivered: account.answered as f64 / took.as_secs_f64(),
        account,
    })
}

impl Account {
    fn between(before: &Value, after: &Value, sent: u64, accepted: u64) -> Result<Self> {
        let paths = (
            hosts::named(before, "paths", COUNTER_PATH)?,
            hosts::named(after, "paths", COUNTER_PATH)?,
        );
        let number = |value: &Value| value.as_u64().unwrap_or(0);
        let rise = |key: &str| number(&paths.1[key]) - number(&paths.0[key]);
        let unmatched = |status: &Value| number(&status["interfaces"][0]["unmatched"]["passed"]);
        let mut account = Self {
            sent,
            accepted,
            unmatched: unmatched(after) - unmatched(before),
            received: rise("received"),
            waiting: number(&paths.1["waiting"]),
            ..Self::default()
        };
        let (old, new) = (&paths.0["fates"], &paths.1["fates"]);
        for (fate, count) in new.as_object().context("no fates")? {
            let risen = |count: &Value, old: &Value| number(count) - number(old);
            match fate.as_str() {
                "answered" => account.answered = risen(count, &old[fate]),
                "passed" => account.passed = risen(count, &old[fate]),
                "dropped" => {
                    for (reason, count) in count.as_object().context("no drops")? {
                        let risen = risen(count, &old[fate][reason]);
                        account.dropped.push((reason.clone(), risen));
                    }
                }
                _ => account.other += risen(count, &old[fate]),
            }
        }
        Ok(account)
    }

    /// Frames that the veth accepted and no counter knows; negative if one was
    /// counted twice.
    fn unaccounted(&self) -> i64 {
        let dropped: u64 = self.dropped.iter().map(|(_, count)| count).sum();
        let fates = self.answered + self.passed + dropped + self.other;
        (self.accepted - self.unmatched) as i64 - (fates + self.waiting) as i64
    }

    fn render(&self) -> String {
        let dropped: Vec<_> = self
            .dropped
            .iter()
            .map(|(reason, count)| format!(", {count} dropped ({reason})"))
            .collect();
        format!(
            "\nThe last flood of the user tier: {} sent, {} refused by the veth, {} received; of \
             these\n{} answered, {} passed on{}, {} waiting, {} unaccounted for.\n",
            self.sent,
            self.sent.saturating_sub(self.accepted),
            self.received,
            self.answered,
            self.passed,
            dropped.concat(),
            self.waiting,
            self.unaccounted(),
        )
    }

    fn to_json(&self) -> Value {
        let dropped: serde_json::Map<String, Value> = self
            .dropped
            .iter()
            .map(|(reason, count)| (reason.clone(), json!(count)))
            .collect();
        json!({
            "sent": self.sent,
            "accepted": self.accepted,
            "unmatched": self.unmatched,
            "received": self.received,
            "answered": self.answered,
            "passed": self.passed,
            "dropped": dropped,
            "other": self.other,
            "waiting": self.waiting,
            "unaccounted": self.unaccounted(),
        })
    }
}

/// A flood of the busy-polling socket server.
struct Socket {
    /// Requests per second that it served.
    delivered: f64,
}

fn socket(lasts: Duration) -> Result<Socket> {
    let rig = hosts::stock("flooded")?;
    // Live frames reach a veth without an XDP program only if it has NAPI, which
    // receive offload brings.
    let gro = rig
        .b()
        .command("ethtool")
        .args(["-K", "b0", "gro", "on"])
        .status()?;
    if !gro.success() {
        bail!("`ethtool` cannot switch on receive offload");
    }
    let command = |program: &str| rig.command_b(program);
    let _server = SocketServer::start(command, COUNTER_PORT, Waiting::Spinning)?;
    let client = rig.client(COUNTER_PORT)?;
    let before = rtt::read_counter(&client)?;
    let attached = Attached::to_client(&rig, xdp::DROP)?;
    let (sent, took) = flood(&rig, lasts)?;
    drop(attached);
    // Each request added 1.
    let served = rtt::read_counter(&client)?.wrapping_sub(before);
    if served == 0 {
        bail!("the socket server served none of {sent} requests");
    }
    Ok(Socket {
        delivered: f64::from(served) / took.as_secs_f64(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_frame_must_be_in_the_ledger() {
        let status = |received: u64, answered: u64, full: u64| {
            json!({
                "interfaces": [{ "unmatched": { "passed": received / 100 } }],
                "paths": [{
                    "name": COUNTER_PATH, "received": received, "waiting": 2,
                    "fates": { "answered": answered, "passed": 0, "consumed": 0,
                               "dropped": { "ring_full": full } },
                }],
            })
        };
        let account =
            Account::between(&status(100, 90, 8), &status(1100, 590, 506), 5000, 1010).unwrap();
        assert_eq!((account.answered, account.received), (500, 1000));
        assert_eq!(account.unaccounted(), 0);
        let short =
            Account::between(&status(100, 90, 8), &status(1100, 589, 506), 5000, 1010).unwrap();
        assert_eq!(short.unaccounted(), 1);
        assert!(
            short.render().contains("498 dropped (ring_full)"),
            "{}",
            short.render()
        );
    }
}
