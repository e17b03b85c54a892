//! What tests with real messages share: where to run, the ledger checked from
//! outside, and clients that notice a lost, doubled or overtaken message.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ashway_kernel::iface;
use ashway_rig::{B4, Node, Rig, RigOptions, UdpClient, realtime};
use serde_json::Value;

use crate::node::{Config, PATIENCE, entry, until};

/// Where a handler runs: a mode of the interface and a tier of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// `mode` of `[iface]`.
    pub mode: &'static str,
    /// `tier` of `[path]`.
    pub tier: &'static str,
}

impl Place {
    /// This mode, and this tier.
    #[must_use]
    pub const fn new(mode: &'static str, tier: &'static str) -> Self {
        Self { mode, tier }
    }

    /// A configuration of one interface in this mode.
    #[must_use]
    pub fn config(self) -> Config {
        Config::on_b0(self.mode)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tier, mode {}", self.tier, self.mode)
    }
}

/// The two tiers, in the mode that a veth has.
pub const TIERS: [Place; 2] = [Place::new("native", "user"), Place::new("native", "kernel")];

/// Every place there is: what a handler means must be the same in all.
pub const PLACES: [Place; 7] = [
    TIERS[0],
    TIERS[1],
    Place::new("generic", "user"),
    Place::new("generic", "kernel"),
    Place::new("packet", "user"),
    Place::new("tcx", "user"),
    Place::new("tcx", "kernel"),
];

/// A path on `b0` of a name of its own, so that a handler can have several.
/// `more` is further lines of its section.
#[must_use]
pub fn path(
    config: Config,
    name: &str,
    handler: &str,
    port: u16,
    place: Place,
    more: &str,
) -> Config {
    config.text(&format!(
        "[path.{name}]\niface = \"b0\"\nmatch = \"udp and dst port {port}\"\n\
         handler = {handler:?}\ntier = {:?}\n{more}",
        place.tier
    ))
}

/// A wire with two queues into B. On one queue concurrency bugs cannot show
/// (docs/facts.md, "One queue hides races"). What is overtaken on it was sent so.
///
/// # Panics
///
/// If it cannot be made.
#[must_use]
pub fn two_queues(name: &str, gro_on_client: bool) -> Rig {
    let options = RigOptions {
        queues: 2,
        gro_on_client,
        in_order: true,
        ..RigOptions::default()
    };
    Rig::new(name, options).expect("root can make a wire")
}

/// A wire with one queue into B. What is overtaken on it was sent so.
///
/// # Panics
///
/// If it cannot be made.
#[must_use]
pub fn in_order(name: &str) -> Rig {
    let options = RigOptions {
        in_order: true,
        ..RigOptions::default()
    };
    Rig::new(name, options).expect("root can make a wire")
}

/// A path's counters, added up here and not by the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ledger {
    /// Messages that matched.
    pub received: u64,
    /// Messages in the user tier.
    pub waiting: u64,
    /// Fates that are not zero; drops as `dropped_REASON`.
    pub fates: BTreeMap<String, u64>,
    /// Aborts by cause.
    pub aborts: BTreeMap<String, u64>,
    /// What is in no sum.
    pub notes: BTreeMap<String, u64>,
    originated: u64,
    sent: BTreeMap<String, u64>,
    balanced: bool,
}

impl Ledger {
    /// The ledger of a path in the status document.
    ///
    /// # Panics
    ///
    /// If there is no such path.
    #[must_use]
    pub fn of(status: &Value, path: &str) -> Self {
        let path = entry(status, "paths", path);
        let mut sent = numbers(&path["out"]);
        Self {
            received: number(&path["received"]),
            waiting: number(&path["waiting"]),
            fates: numbers(&path["fates"]),
            aborts: numbers(&path["aborts"]),
            notes: numbers(&path["notes"]),
            originated: sent.remove("originated").unwrap_or(0),
            sent,
            balanced: path["balanced"] == true,
        }
    }

    /// What does not add up, if anything.
    #[must_use]
    pub fn gap(&self) -> Option<String> {
        let ended: u64 = self.fates.values().sum();
        let sent: u64 = self.sent.values().sum();
        if self.received != ended + self.waiting {
            return Some(format!(
                "{} received, {ended} ended, {} waiting",
                self.received, self.waiting
            ));
        }
        if self.originated != sent {
            return Some(format!("{} originated, {sent} ended", self.originated));
        }
        (!self.balanced).then(|| "it adds up, but the node says that it does not".to_owned())
    }

    /// Messages with this fate.
    #[must_use]
    pub fn fate(&self, name: &str) -> u64 {
        self.fates.get(name).copied().unwrap_or(0)
    }

    /// Asserts that these fates and no others have happened.
    ///
    /// # Panics
    ///
    /// If not.
    pub fn assert_fates(&self, expected: &[(&str, u64)], what: &dyn fmt::Display) {
        let expected: BTreeMap<String, u64> = expected
            .iter()
            .filter(|(_, count)| *count > 0)
            .map(|(name, count)| ((*name).to_owned(), *count))
            .collect();
        assert_eq!(self.fates, expected, "{what}: {self:?}");
    }
}

fn number(value: &Value) -> u64 {
    value
        .as_u64()
        .unwrap_or_else(|| panic!("no number: {value}"))
}

/// The numbers of an object that are not 0; those of its `dropped` object with
/// that word before their names.
fn numbers(object: &Value) -> BTreeMap<String, u64> {
    let mut all = BTreeMap::new();
    for (name, value) in object.as_object().into_iter().flatten() {
        if let Some(reasons) = value.as_object() {
            for (reason, count) in reasons {
                all.insert(format!("{name}_{reason}"), number(count));
            }
        } else {
            all.insert(name.clone(), number(value));
        }
    }
    all.retain(|_, count| *count > 0);
    all
}

/// The path's ledger once it has received so many messages and each of them has
/// come to an end.
///
/// # Panics
///
/// If that does not happen in time, or more than that arrive.
#[must_use]
pub fn settle(node: &Node, path: &str, received: u64) -> Ledger {
    let mut last = None;
    let end = std::time::Instant::now() + PATIENCE;
    while std::time::Instant::now() < end {
        let ledger = Ledger::of(&node.status().expect("the node answers"), path);
        assert!(ledger.received <= received, "{path}: too many: {ledger:?}");
        if ledger.received == received && ledger.waiting == 0 && ledger.gap().is_none() {
            return ledger;
        }
        last = Some(ledger);
    }
    let last = last.expect("patience is not zero");
    panic!(
        "{path}: {received} messages were sent; {}: {last:?}\n{}",
        last.gap().unwrap_or_else(|| "the ledger closes".to_owned()),
        node.output()
    );
}

/// Frames that matched no path on `b0` so far.
///
/// # Panics
///
/// If the node does not answer.
#[must_use]
pub fn unmatched(node: &Node) -> u64 {
    let status = node.status().expect("the node answers");
    number(&entry(&status, "interfaces", "b0")["unmatched"]["passed"])
}

/// Waits until so many frames have matched no path.
///
/// # Panics
///
/// If that takes too long, or more have.
pub fn until_unmatched(node: &Node, count: u64) {
    until("frames reach the host", || {
        let now = unmatched(node);
        assert!(now <= count, "{now} frames matched no path, not {count}");
        (now == count).then_some(())
    });
}

/// A client of B's `port` whose flow arrives at this receive queue of `b0`, and
/// how many requests of number 0 were answered to find it. Needs a node in
/// native mode there: what counts by queue is veth's XDP.
///
/// # Panics
///
/// If none of 64 flows does, or there is no answer.
#[must_use]
pub fn client_of_queue(rig: &Rig, queue: u32, port: u16) -> (UdpClient, u64) {
    const EACH: u64 = 4;
    let mut tries = 0;
    for source in (20_000 + 100 * queue as u16..).take(64) {
        let server = SocketAddr::new(IpAddr::V4(B4), port);
        // Another client may have the port.
        let Ok(client) = rig.in_a(|| UdpClient::connect_from(source, server)) else {
            continue;
        };
        let before = by_queue(rig);
        for _ in 0..EACH {
            client.ask(&request(0, 0)).expect("an answer comes");
        }
        tries += EACH;
        // Counted at the end of a poll, which may be after the answer: one that comes late
        // is of the flow before, or of a neighbour's question.
        let came = until("the driver counts them", || {
            let now = by_queue(rig).into_iter();
            let came: Vec<_> = now.zip(&before).map(|(now, before)| now - before).collect();
            (came.iter().sum::<u64>() >= EACH).then_some(came)
        });
        if came[queue as usize] >= EACH {
            return (client, tries);
        }
    }
    panic!("no flow arrives at queue {queue}");
}

/// Frames that arrived at each receive queue of `b0` and met XDP there.
///
/// # Panics
///
/// If the driver does not say.
#[must_use]
pub fn by_queue(rig: &Rig) -> Vec<u64> {
    let stats = rig.in_b(|| iface::stats("b0")).expect("the driver counts");
    let counters = stats.xdp.into_iter();
    counters
        .filter(|(name, _)| name.starts_with("rx_queue_") && name.ends_with("_xdp_packets"))
        .map(|(_, count)| count)
        .collect()
}

/// Tells threads that it is over, also where a test fails before it gets there: its scope
/// would wait for them for ever.
#[derive(Debug)]
pub struct Over<'a>(pub &'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Sends `count` requests of eight bytes, at most `window` of them unanswered:
/// `number`, then a sequence number that the handler sends back. Returns the
/// first words of the replies.
///
/// # Panics
///
/// If a reply is lost, doubled, overtaken or of another length.
#[must_use]
pub fn stream(client: &UdpClient, number: u32, count: u32, window: u32) -> Vec<u32> {
    client.set_timeout(PATIENCE).expect("patience is not zero");
    let mut words = Vec::with_capacity(count as usize);
    let mut sent = 0;
    for expected in 0..count {
        while sent < count && sent - expected < window {
            client.send(&request(number, sent)).expect("sent");
            sent += 1;
        }
        let (word, sequence) = hear(client.socket());
        assert_eq!(sequence, expected, "a reply was lost, doubled or overtaken");
        words.push(word);
    }
    words
}

/// Waits until the kernel tier runs all of a flood: a thousand messages came between
/// two looks, and none of them went to the user tier. `look` says how many came and
/// how many of those went there, so far.
///
/// # Panics
///
/// If that takes too long.
pub fn until_the_kernel_runs_all(mut look: impl FnMut() -> (u64, u64)) {
    let mut before = look();
    until("the kernel tier runs all of the flood", || {
        let now = look();
        if now.1 > before.1 {
            before = now;
        }
        (now.0 >= before.0 + 1000).then_some(())
    });
}

/// Sends requests with this number, as fast as the socket takes them and without a
/// pause, whoever else wants the CPU: else the worker catches up meanwhile.
///
/// # Panics
///
/// If no thread can have a real-time priority.
pub fn flood(client: &UdpClient, number: u32, over: &AtomicBool) {
    let send = || {
        for sequence in 0.. {
            // What a queue on the way has no room for is lost.
            let _ = client.send(&request(number, sequence));
            if over.load(Ordering::Acquire) {
                break;
            }
        }
    };
    realtime(send).expect("root may have a real-time priority");
}

/// Eight bytes: a number and a sequence number.
#[must_use]
pub fn request(number: u32, sequence: u32) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&number.to_be_bytes());
    bytes[4..].copy_from_slice(&sequence.to_be_bytes());
    bytes
}

/// Receives eight bytes.
///
/// # Panics
///
/// If none come, or another number of them.
#[must_use]
pub fn hear(socket: &UdpSocket) -> (u32, u32) {
    let mut bytes = [0; 9];
    let len = socket.recv(&mut bytes).expect("an answer comes");
    assert_eq!(len, 8, "a reply of another length");
    let (word, sequence) = bytes[..8].split_at(4);
    let read = |half: &[u8]| u32::from_be_bytes(half.try_into().expect("half of eight bytes"));
    (read(word), read(sequence))
}

/// Asserts that these sums of a counter, from several clients, are all of
/// 1 to their number: a lost increment would show as a sum that came twice.
///
/// # Panics
///
/// If not.
pub fn assert_no_increment_lost(sums: impl IntoIterator<Item = Vec<u32>>, what: &dyn fmt::Display) {
    let all: Vec<u32> = sums.into_iter().flatten().collect();
    let distinct: BTreeSet<u32> = all.iter().copied().collect();
    assert_eq!(distinct.len(), all.len(), "{what}: a sum came twice");
    assert_eq!(distinct.first(), Some(&1), "{what}");
    assert_eq!(
        distinct.last().copied(),
        u32::try_from(all.len()).ok(),
        "{what}"
    );
}

/// What an ordinary socket in B has received and not been asked for yet.
///
/// # Panics
///
/// If the socket is broken.
#[must_use]
pub fn heard(host: &UdpSocket) -> VecDeque<(Vec<u8>, SocketAddr)> {
    let mut all = VecDeque::new();
    let mut bytes = [0; 4096];
    host.set_nonblocking(true).expect("a socket");
    while let Ok((len, from)) = host.recv_from(&mut bytes) {
        all.push_back((bytes[..len].to_vec(), from));
    }
    host.set_nonblocking(false).expect("a socket");
    all
}

/// Pseudo-random numbers that are the same each time (xorshift64, Marsaglia
/// 2003).
#[derive(Clone, Copy, Debug)]
pub struct Random(u64);

impl Random {
    /// From a seed that is not 0.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number below `limit`.
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % limit
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        self.below(256) as u8
    }
}

/// How long to wait for a single frame that must come.
pub const SOON: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn document() -> Value {
        json!({ "paths": [{
            "name": "p", "received": 7, "waiting": 1, "balanced": true,
            "fates": { "answered": 3, "consumed": 0, "dropped": { "fault": 2, "fragment": 1 } },
            "aborts": { "fuel": 2 }, "notes": {},
            "out": { "originated": 3, "handed_over": 2, "dropped": { "tx_full": 1 } },
        }]})
    }

    #[test]
    fn a_ledger_that_closes_has_no_gap() {
        let ledger = Ledger::of(&document(), "p");
        assert_eq!(ledger.gap(), None);
        ledger.assert_fates(
            &[
                ("answered", 3),
                ("dropped_fault", 2),
                ("dropped_fragment", 1),
            ],
            &"p",
        );
    }

    /// The twin: a node that loses, doubles or invents a message is caught,
    /// also if it says that all is well.
    #[test]
    fn a_doctored_ledger_has_a_gap() {
        for (pointer, value) in [
            ("/paths/0/received", 8),
            ("/paths/0/received", 6),
            ("/paths/0/waiting", 0),
            ("/paths/0/fates/answered", 4),
            ("/paths/0/fates/dropped/fault", 1),
            ("/paths/0/out/originated", 4),
            ("/paths/0/out/dropped/tx_full", 0),
        ] {
            let mut status = document();
            *status.pointer_mut(pointer).unwrap() = json!(value);
            assert!(Ledger::of(&status, "p").gap().is_some(), "{pointer}");
        }
        let mut status = document();
        status["paths"][0]["balanced"] = json!(false);
        assert!(Ledger::of(&status, "p").gap().is_some());
    }

    #[test]
    #[should_panic(expected = "a sum came twice")]
    fn a_lost_increment_is_noticed() {
        assert_no_increment_lost([vec![1, 2, 4], vec![2, 3]], &"");
    }

    #[test]
    #[should_panic(expected = "lost, doubled or overtaken")]
    fn an_overtaken_reply_is_noticed() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let client = UdpClient::connect(server.local_addr().unwrap()).unwrap();
        let swaps = std::thread::spawn(move || {
            let (mut first, mut second) = ([0; 8], [0; 8]);
            server.recv_from(&mut first).unwrap();
            let (_, from) = server.recv_from(&mut second).unwrap();
            server.send_to(&second, from).unwrap();
            server.send_to(&first, from).unwrap();
        });
        let _ = stream(&client, 1, 2, 2);
        swaps.join().unwrap();
    }
}
