//! `ashway bench swap`: versions of a handler that take over from each other while
//! messages come.
//!
//! Two flows, one on each receive queue of a veth, ask a ledger
//! (`apps/handlers/ledger.h`) as fast as they are answered. Meanwhile its two versions
//! take turns, and its path is promoted and demoted. Each answer says which version it
//! is of, and after how many swaps; the ledger itself, the state that every version
//! hands on, knows how many messages each has answered and whether one came out of
//! place.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write as _};
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use ashway_kernel::iface;
use ashway_rig::{B4, Node, Rig, RigOptions, handler};
use serde_json::{Value, json};

use crate::Report;
use crate::ratio::{self, Ratio, Target};

/// How much to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// A twentieth of everything: whether it works, not how fast.
    pub quick: bool,
    /// The `ashway` binary.
    pub binary: Option<PathBuf>,
}

/// UDP port of the ledger.
const PORT: u16 = 7777;

/// Messages and swaps of a measurement.
const MESSAGES: u64 = 1_000_000;
const SWAPS: u32 = 1_000;

/// Messages between two looks at whether it is over, and those unanswered.
const ROUND: u32 = 1_000;
const WINDOW: u32 = 32;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a flow has seen.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    sent: u64,
    lost: u64,
    doubled: u64,
    overtaken: u64,
    /// Answers of an older version than the one before, or with another's ledger.
    mixed: u64,
    /// By each version.
    by: [u64; 2],
    last: u32,
}

/// Measures; half a minute and more. Needs root and the built handlers.
///
/// # Errors
///
/// Without root, if the node refuses a swap, and if the ledger is wrong.
///
/// # Panics
///
/// Never: clients return their errors.
pub fn run(options: &Options) -> Result<Report> {
    let share = if options.quick { 20 } else { 1 };
    let (messages, swaps) = (MESSAGES / share, SWAPS / share as u32);
    let rig = Rig::new(
        "bench-swap",
        RigOptions {
            queues: 2,
            // What is heard out of order was sent so: on a stock veth A's kernel has a queue
            // for each CPU, and empties them in any order.
            in_order: true,
            ..RigOptions::default()
        },
    )?;
    let config = format!(
        "[iface.b0]\nattach = \"xdp\"\n[handler.ledger]\nfile = \"{}\"\nallow = [\"reply\"]\n[path.flow]\n\
         iface = \"b0\"\nmatch = \"udp and dst port {PORT}\"\nhandler = \"ledger\"\n\
         tier = \"kernel\"\n",
        handler("ledger")?.display()
    );
    let mut builder = rig.node(config);
    if let Some(binary) = &options.binary {
        builder = builder.binary(binary);
    }
    let node = builder.start()?;
    let mut probes = 0;
    let clients = [
        client_of_queue(&rig, 0, &mut probes)?,
        client_of_queue(&rig, 1, &mut probes)?,
    ];
    let over = AtomicBool::new(false);
    let sent = AtomicU64::new(0);
    let begin = Instant::now();
    let (changes, seen) = std::thread::scope(|scope| {
        let threads: Vec<_> = clients
            .iter()
            .zip(1..)
            .map(|(client, flow)| {
                let (over, sent) = (&over, &sent);
                scope.spawn(move || talk(client, flow, over, sent))
            })
            .collect();
        let changes = change(&node, swaps, || sent.load(Ordering::Relaxed) >= messages);
        over.store(true, Ordering::Release);
        let seen: std::io::Result<Vec<Seen>> = threads
            .into_iter()
            .map(|thread| thread.join().expect("a client does not panic"))
            .collect();
        (changes, seen)
    });
    let (mut changes, seen) = (changes?, seen?);
    let lasted = begin.elapsed();
    let [one, two, out_of_place, _] = ledger(&clients[0])?;
    node.stop()?;

    let sum = |what: fn(&Seen) -> u64| seen.iter().map(what).sum::<u64>();
    let by = [sum(|s| s.by[0]) + probes, sum(|s| s.by[1])];
    ensure!(
        [one, two].map(u64::from) == by,
        "the ledger has {one} and {two} messages of the versions, and {by:?} were answered"
    );
    changes.holds.sort_unstable();
    let at = |permille: usize| {
        let last = changes.holds.len() - 1;
        changes.holds[last * permille / 1000] as f64 / 1000.0
    };
    let never = |name, what| Ratio::exact(name, Target::AtMost(0.0), what as f64);
    let overtaken = sum(|s| s.overtaken) + u64::from(out_of_place);
    let ratios: Vec<Ratio> = [
        never("lost", sum(|s| s.lost)),
        never("doubled", sum(|s| s.doubled)),
        never("overtaken", overtaken),
        never("met_two_versions", sum(|s| s.mixed)),
    ]
    .into_iter()
    .flatten()
    .collect();
    let document = json!({
        "messages": sum(|s| s.sent),
        "swaps": changes.holds.len(),
        "promotions": changes.promotions,
        "demotions": changes.demotions,
        "lost": sum(|s| s.lost),
        "doubled": sum(|s| s.doubled),
        "overtaken": overtaken,
        "met_two_versions": sum(|s| s.mixed),
        "answered_by_version": by,
        "ratios": ratio::to_json(&ratios),
        "hold_us": { "median": at(500), "p99": at(990), "max": at(1000) },
        "seconds": lasted.as_secs_f64(),
    });
    let text = format!(
        "{} messages in {:.0} s; {} swaps, {} promotions, {} demotions meanwhile\n\
         lost {}, doubled {}, overtaken {}, met by two versions {}\n\
         messages waited for a swap {:.0} us (median), {:.0} (p99), {:.0} (max)\n\n{}",
        document["messages"],
        lasted.as_secs_f64(),
        document["swaps"],
        changes.promotions,
        changes.demotions,
        document["lost"],
        document["doubled"],
        document["overtaken"],
        document["met_two_versions"],
        at(500),
        at(990),
        at(1000),
        ratio::render(&ratios)
    );
    Ok(Report { document, text })
}

/// What was done to the node.
#[derive(Default)]
struct Changes {
    holds: Vec<u64>,
    promotions: u32,
    demotions: u32,
}

/// Swaps so often, and goes on until `enough` messages were sent.
fn change(node: &Node, swaps: u32, enough: impl Fn() -> bool) -> Result<Changes> {
    let versions = [handler("ledger_2")?, handler("ledger")?];
    let mut changes = Changes::default();
    for step in 0.. {
        if step >= swaps && enough() {
            break;
        }
        let file = &versions[step as usize % 2];
        let swapped = ask(
            node,
            &json!({ "request": "swap", "handler": "ledger", "file": file }),
        )?;
        changes
            .holds
            .push(swapped["hold_ns"].as_u64().context("no time")?);
        // Every other swap is of a path in the user tier.
        let (verb, count) = if step / 2 % 2 == 0 {
            ("demote", &mut changes.demotions)
        } else {
            ("promote", &mut changes.promotions)
        };
        ask(node, &json!({ "request": verb, "path": "flow" }))?;
        *count += 1;
    }
    Ok(changes)
}

fn ask(node: &Node, request: &Value) -> Result<Value> {
    let mut stream = UnixStream::connect(node.socket())?;
    writeln!(stream, "{request}")?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    let mut answer: Value = serde_json::from_str(&line)?;
    if let Some(error) = answer.get("error") {
        bail!("the node refused {request}: {error}");
    }
    Ok(answer["ok"].take())
}

/// Asks until it is over, with so many messages on their way.
fn talk(
    client: &UdpSocket,
    flow: u32,
    over: &AtomicBool,
    sent: &AtomicU64,
) -> std::io::Result<Seen> {
    let mut seen = Seen::default();
    while !over.load(Ordering::Acquire) {
        round(client, flow, &mut seen)?;
        sent.fetch_add(ROUND.into(), Ordering::Relaxed);
    }
    Ok(seen)
}

fn round(client: &UdpSocket, flow: u32, seen: &mut Seen) -> std::io::Result<()> {
    let mut heard = vec![false; ROUND as usize];
    let (mut sent, mut answered) = (0, 0);
    let mut next = 0;
    while answered < ROUND {
        while sent < ROUND && sent - answered < WINDOW {
            client.send(&words([flow, sent]))?;
            sent += 1;
            seen.sent += 1;
        }
        let mut bytes = [0; 8];
        match client.recv(&mut bytes) {
            Ok(8) => {}
            Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => return Err(error),
            // Those on their way do not come any more.
            Ok(_) | Err(_) => {
                seen.lost += u64::from(sent - answered);
                return Ok(());
            }
        }
        let (stamp, place) = bytes.split_at(4);
        let read = |half: &[u8]| u32::from_be_bytes(half.try_into().expect("four of eight"));
        let (stamp, place) = (read(stamp), read(place));
        match heard.get_mut(place as usize) {
            Some(heard) if !*heard => *heard = true,
            _ => {
                seen.doubled += 1;
                continue;
            }
        }
        answered += 1;
        seen.overtaken += u64::from(place < next);
        next = next.max(place + 1);
        seen.mixed += u64::from(stamp < seen.last || stamp / 2 % 2 != stamp % 2);
        seen.last = stamp;
        seen.by[stamp as usize % 2] += 1;
    }
    Ok(())
}

fn words<const N: usize>(numbers: [u32; N]) -> Vec<u8> {
    numbers.iter().flat_map(|n| n.to_be_bytes()).collect()
}

/// What is in the ledger: answered by each version, out of place, and messages since
/// the last swap.
fn ledger(client: &UdpSocket) -> Result<[u32; 4]> {
    client.send(&[0; 16])?;
    let mut bytes = [0; 16];
    client.recv(&mut bytes)?;
    let (words, _) = bytes.as_chunks::<4>();
    Ok(std::array::from_fn(|i| u32::from_be_bytes(words[i])))
}

/// A client whose flow arrives at this receive queue; `probes` counts what it takes to
/// find it.
fn client_of_queue(rig: &Rig, queue: u32, probes: &mut u64) -> Result<UdpSocket> {
    let name = format!("rx_queue_{queue}_xdp_packets");
    let count = || -> Result<u64> {
        let stats = rig.in_b(|| iface::stats("b0"))?;
        let xdp: HashMap<_, _> = stats.xdp.into_iter().collect();
        Ok(xdp.get(&name).copied().unwrap_or(0))
    };
    for port in (20_000 + 100 * queue as u16..).take(64) {
        let socket = rig.in_a(|| UdpSocket::bind(("0.0.0.0", port)))?;
        rig.in_a(|| socket.connect(SocketAddr::new(B4.into(), PORT)))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let before = count()?;
        socket.send(&words([0, 0]))?;
        socket.recv(&mut [0; 8])?;
        *probes += 1;
        // Counted at the end of a poll, which may be after the answer.
        let end = Instant::now() + Duration::from_millis(20);
        while Instant::now() < end {
            if count()? > before {
                return Ok(socket);
            }
        }
    }
    bail!("no flow arrives at queue {queue}")
}
