//! Handlers that are loaded, bound, promoted, demoted, swapped, rolled back, unbound and
//! unloaded in random order under traffic: each request is done whole or refused whole, every handler
//! knows how many messages it has answered whatever version it is, and a path that
//! nobody touches loses nothing.
//!
//! `ASHWAY_SEED` repeats a run, `ASHWAY_STEPS` makes it longer; the seed is printed. The
//! whole of it, 10,000 steps:
//! `cargo test --release -p ashway-netns --test changes -- --ignored --nocapture`.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use std::collections::BTreeMap;
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use ashway_netns::node::{Config, at_rest, control as ask, entry};
use ashway_netns::traffic::{Over, Random, request, settle};
use ashway_rig::{Node, Rig, RigOptions, UdpClient, handler, skip_unless_root};
use serde_json::{Value, json};

/// Steps of a run, and when it ends at the latest.
const STEPS: u32 = 300;
const LONGEST: Duration = Duration::from_secs(12);

/// Handlers that come and change. Each has one path, or none.
const HANDLERS: usize = 3;

/// Files, and the version of the state that each has.
const FILES: [(&str, u32); 3] = [("ledger", 1), ("ledger_2", 2), ("ledger_traps", 2)];

/// What a handler should be.
#[derive(Default)]
struct Model {
    /// Its versions, by [`FILES`]; the last one runs. Empty if it is not loaded.
    versions: Vec<usize>,
    bound: bool,
    answered: u32,
    place: u32,
}

impl Model {
    fn state(&self) -> u32 {
        self.versions.last().map_or(0, |file| FILES[*file].1)
    }

    /// Whether the state of the version that runs can be handed on to this one:
    /// `ledger_traps` takes no other over.
    fn takes(&self, file: usize) -> bool {
        self.state() == FILES[file].1 || FILES[file].0 != "ledger_traps"
    }
}

struct Walk<'r> {
    node: &'r Node,
    clients: Vec<UdpClient>,
    models: Vec<Model>,
    counts: BTreeMap<String, u32>,
}

impl Walk<'_> {
    /// Asks the node, which must agree with the model.
    fn step(&mut self, what: &str, request: &Value, possible: bool) {
        let answer = ask(self.node, request);
        assert_eq!(answer.is_ok(), possible, "{request}: {answer:?}");
        if let Err(why) = &answer {
            let says = why["message"].as_str().unwrap();
            assert!(!says.is_empty(), "{request}: no word why");
            assert!(says.len() < 500, "{request}: {says}");
        }
        let end = if possible { "" } else { " (refused)" };
        *self.counts.entry(format!("{what}{end}")).or_default() += 1;
    }

    fn change(&mut self, random: &mut Random) {
        let number = random.below(HANDLERS);
        let (name, path) = (format!("h{number}"), format!("p{number}"));
        let model = &self.models[number];
        let (loaded, bound) = (!model.versions.is_empty(), model.bound);
        match random.below(12) {
            0 => {
                let file = handler("ledger").unwrap();
                let request =
                    json!({ "request": "load", "file": file, "name": name, "allow": ["reply"] });
                self.step("load", &request, !loaded);
                if !loaded {
                    self.models[number].versions.push(0);
                }
            }
            1 => {
                let tier = ["user", "kernel", "auto"][random.below(3)];
                let request = json!({
                    "request": "bind", "handler": name, "path": path, "iface": ["b0"],
                    "match": format!("udp and dst port {}", 8000 + number), "tier": tier,
                });
                self.step("bind", &request, loaded && !bound);
                self.models[number].bound |= loaded;
            }
            2 => {
                self.step(
                    "unbind",
                    &json!({ "request": "unbind", "path": path }),
                    bound,
                );
                self.models[number].bound = false;
            }
            3 => {
                let request = json!({ "request": "promote", "path": path, "shadow": 0 });
                self.step("promote", &request, bound);
            }
            4 => self.step(
                "demote",
                &json!({ "request": "demote", "path": path }),
                bound,
            ),
            5..8 => {
                let file = random.below(FILES.len());
                let wasm = handler(FILES[file].0).unwrap();
                let possible = loaded && self.models[number].takes(file);
                let request = json!({ "request": "swap", "handler": name, "file": wasm });
                self.step("swap", &request, possible);
                if possible {
                    let versions = &mut self.models[number].versions;
                    versions.push(file);
                    // The node keeps eight of them.
                    let surplus = versions.len().saturating_sub(9);
                    versions.drain(..surplus);
                }
            }
            8 => {
                let before = self.models[number].versions.iter().rev().nth(1);
                let possible = before.is_some_and(|file| self.models[number].takes(*file));
                let request = json!({ "request": "rollback", "handler": name });
                self.step("rollback", &request, possible);
                if possible {
                    self.models[number].versions.pop();
                }
            }
            9 | 10 => {
                let possible = loaded && !bound;
                let request = json!({ "request": "unload", "handler": name });
                self.step("unload", &request, possible);
                if possible {
                    self.models[number] = Model::default();
                }
            }
            _ => self.nonsense(random),
        }
    }

    /// Requests that nobody should send.
    fn nonsense(&mut self, random: &mut Random) {
        let names = [
            "../../etc/passwd".to_owned(),
            "h0\0".to_owned(),
            "\u{1b}[31mh0".to_owned(),
            String::new(),
            "-h0".to_owned(),
            "x".repeat(40_000),
        ];
        let name = &names[random.below(names.len())];
        let file = handler("ledger").unwrap();
        let requests = [
            json!({ "request": "load", "file": file, "name": name }),
            json!({ "request": "load", "file": name }),
            json!({ "request": "swap", "handler": name, "file": file }),
            json!({ "request": "swap", "handler": "h0", "file": name }),
            json!({ "request": "swap", "handler": "h0", "file": "/dev/zero" }),
            json!({ "request": "swap", "handler": "h0", "file": "/etc" }),
            json!({ "request": "swap", "handler": ["h0"] }),
            json!({ "request": "rollback", "handler": name }),
            json!({ "request": "bind", "handler": name, "iface": ["b0"], "match": "udp" }),
            json!({ "request": "promote", "path": name }),
            json!({ "request": "unbind", "path": name }),
            json!({ "request": "unload", "handler": name }),
        ];
        let request = &requests[random.below(requests.len())];
        self.step("nonsense", request, false);
        // A client that hangs up in the middle of its request.
        let mut stream = UnixStream::connect(self.node.socket()).unwrap();
        stream
            .write_all(br#"{"request":"swap","handler":"h"#)
            .unwrap();
    }

    /// Every path answers by the version that the model says.
    fn look(&mut self) {
        for (model, client) in self.models.iter_mut().zip(&self.clients) {
            if !model.bound {
                continue;
            }
            let answer = client.ask(&request(1, model.place)).unwrap();
            model.place += 1;
            model.answered += 1;
            assert_eq!(u32::from(answer[3] % 2) + 1, model.state());
        }
    }
}

#[test]
fn whatever_is_asked_is_done_whole_or_refused_whole() {
    if !skip_unless_root() {
        walk(number("ASHWAY_STEPS"));
    }
}

#[test]
#[ignore = "takes minutes"]
fn ten_thousand_requests_are_done_whole_or_refused_whole() {
    if !skip_unless_root() {
        walk(Some(10_000));
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Asks so many times, or for a while.
fn walk(asked: Option<u64>) {
    let seed = number("ASHWAY_SEED").unwrap_or_else(|| {
        let since = SystemTime::UNIX_EPOCH.elapsed();
        since.unwrap().as_nanos() as u64 | 1
    });
    println!("ASHWAY_SEED={seed}");
    let rig = Rig::new("changes", RigOptions::default()).unwrap();
    let config = Config::on_b0("native").handler("counter").unwrap();
    let node = rig
        .node(config.path("counter", 7777, "auto"))
        .start()
        .unwrap();
    let steady = rig.client_a(7777).unwrap();
    let over = AtomicBool::new(false);
    let (sent, models, counts) = std::thread::scope(|scope| {
        let traffic = scope.spawn(|| {
            let mut sent = 0_u64;
            while !over.load(Ordering::Acquire) {
                steady.send(&1_u32.to_le_bytes()).unwrap();
                sent += 1;
                std::thread::sleep(Duration::from_micros(300));
            }
            sent
        });
        let ends = Over(&over);
        let clients = (0..HANDLERS as u16).map(|number| rig.client_a(8000 + number).unwrap());
        let mut walk = Walk {
            node: &node,
            clients: clients.collect(),
            models: (0..HANDLERS).map(|_| Model::default()).collect(),
            counts: BTreeMap::new(),
        };
        let mut random = Random::new(seed);
        let end = Instant::now() + LONGEST;
        for step in 0..asked.map_or(STEPS, |steps| steps as u32) {
            walk.change(&mut random);
            walk.look();
            if asked.is_none() && Instant::now() > end {
                println!("{step} steps in {LONGEST:?}");
                break;
            }
        }
        drop(ends);
        (traffic.join().unwrap(), walk.models, walk.counts)
    });
    println!("{counts:?}; {sent} messages to the path that nobody touched");
    let ledger = settle(&node, "counter", sent);
    ledger.assert_fates(&[("answered", sent)], &"counter");
    let status = at_rest(&node);
    for (model, number) in models.iter().zip(0..) {
        if !model.bound {
            continue;
        }
        let client = rig.client_a(8000 + number).unwrap();
        let answer = client.ask(&[0; 16]).unwrap();
        let word = |at: usize| u32::from_be_bytes(answer[at..at + 4].try_into().unwrap());
        let forgot = model
            .versions
            .iter()
            .any(|file| FILES[*file].0 == "ledger_traps");
        // Half of what `ledger_traps` did before it was stopped would show here.
        assert_eq!(word(0) + word(4), model.answered, "h{number}, {forgot}");
        assert_eq!(word(8), 0, "h{number}: out of place");
        let handler = entry(&status, "handlers", &format!("h{number}"));
        let former = handler["former"].as_array().unwrap().len();
        assert_eq!(former, model.versions.len() - 1);
    }
    node.stop().unwrap();
}
