//! Paths that are made, removed and exchanged in random order under traffic, handlers that
//! are loaded and swapped, and files that are applied: a path that nobody touched loses no
//! message. And a creation that fails leaves nothing.
//!
//! `ASHWAY_SEED` repeats a run; without it the clock chooses, and the seed is printed.
//! `ASHWAY_STEPS` says how many steps it has ([`STEPS`] if it does not): all of them are made,
//! however long that takes.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use ashway_netns::node::{Config, PATIENCE, entry, run, text, until};
use ashway_netns::traffic::Over;
use ashway_rig::{Node, Rig, RigOptions, UdpClient, handler, skip_unless_root};
use serde_json::{Value, json};

/// Steps of a run.
const STEPS: u32 = 10_000;

/// Messages to each path that nobody touches that are on their way at most: fewer than a path's
/// part of a ring, so that none is dropped on the way to a worker that has no CPU for a while.
const WINDOW: u64 = 64;

/// A message that does not come in this time is lost.
const LOST: Duration = Duration::from_secs(10);

/// Paths that come and go, of one flow each.
const FLOWS: u32 = 60;

/// Where nobody touches anything: a live path, and one that ends in a handler.
const STEADY: u16 = 5000;
const BOUND: u16 = 7777;

/// A mistake on purpose: without one that shows, the test tests nothing.
#[derive(Clone, Copy, PartialEq)]
enum Mistake {
    None,
    /// One of the paths that come and go takes the steady path's messages.
    Steals,
}

fn config() -> Config {
    Config::on_b0("native")
        .handler("counter")
        .unwrap()
        .path("counter", BOUND, "auto")
        .text(
            r#"
[module.end]
kind = "sink"
down = "udp.up"
[module.frag]
kind = "fragment"
down = "eth:b0.up"
[path.steady]
from = "end"
attrs = { local = "10.7.0.2:5000", pathname = "eth:b0" }
"#,
        )
}

/// A request, and the answer: the document, or the error.
fn ask(node: &Node, request: &Value) -> Result<Value, Value> {
    let mut stream = UnixStream::connect(node.socket()).unwrap();
    let request = format!("{request}\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    let mut answer: Value = serde_json::from_str(&line).unwrap();
    match answer.get("error") {
        None => Ok(answer["ok"].take()),
        Some(_) => Err(answer["error"].take()),
    }
}

fn done(node: &Node, request: &Value) -> Value {
    ask(node, request).unwrap_or_else(|error| panic!("{request:.300}: {error:#}"))
}

fn received(node: &Node, path: &str) -> u64 {
    let status = node.status().unwrap();
    let path = entry(&status, "paths", path);
    path["received"].as_u64().unwrap()
}

/// `SplitMix64` (Steele, Lea and Flood 2014).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((word ^ (word >> 31)) % u64::from(end)) as u32
    }
}

fn flow(number: u32, name: &str) -> Value {
    json!({
        "module": "end",
        "name": name,
        "attrs": {
            "local": "10.7.0.2:6000",
            "remote": format!("10.7.0.1:{}", 20_000 + number),
            "pathname": "eth:b0",
        },
    })
}

/// Who walks.
struct Walk<'r> {
    node: &'r Node,
    random: Random,
    /// The flows that have a path, and its name.
    live: BTreeMap<u32, String>,
    named: u32,
    /// What comes and goes in turn, if it is there.
    there: BTreeSet<&'static str>,
    counts: BTreeMap<&'static str, u32>,
}

impl Walk<'_> {
    /// Whether it was there; from now on it is not, or is.
    fn was_there(&mut self, what: &'static str) -> bool {
        let was = self.there.remove(what);
        if !was {
            self.there.insert(what);
        }
        was
    }

    fn create(&mut self, many: u32) {
        let mut paths = Vec::new();
        for _ in 0..many {
            let number = self.random.below(FLOWS);
            if self.live.contains_key(&number) {
                continue;
            }
            self.named += 1;
            let name = format!("flow-{}", self.named);
            paths.push(flow(number, &name));
            self.live.insert(number, name);
        }
        if !paths.is_empty() {
            done(self.node, &json!({ "request": "create", "paths": paths }));
        }
    }

    fn remove(&mut self, many: u32) {
        let mut names = Vec::new();
        for _ in 0..many {
            let number = self.random.below(FLOWS);
            names.extend(self.live.remove(&number));
        }
        if !names.is_empty() {
            done(self.node, &json!({ "request": "remove", "paths": names }));
        }
    }

    /// Another path for the same messages.
    fn exchange(&mut self) {
        let number = self.random.below(FLOWS);
        let Some(name) = self.live.remove(&number) else {
            return;
        };
        // Not while the first is there.
        let mut other = flow(number, "other");
        other["request"] = json!("create");
        assert!(ask(self.node, &other).is_err());
        done(self.node, &json!({ "request": "remove", "path": name }));
        self.named += 1;
        let name = format!("flow-{}", self.named);
        other["name"] = json!(name);
        done(self.node, &other);
        self.live.insert(number, name);
    }

    /// A path of a shape of its own, by a new entry program.
    fn widen(&mut self) {
        let request = if self.was_there("wide") {
            json!({ "request": "remove", "path": "wide" })
        } else {
            json!({ "request": "create", "name": "wide", "module": "end",
                "attrs": { "local": "10.7.0.2:6001", "pathname": "eth:b0" },
                "match": "src net 10.7.0.0/24" })
        };
        done(self.node, &request);
    }

    /// All fragments to one path: every table anew.
    fn reassemble(&mut self) {
        let request = if self.was_there("frags") {
            json!({ "request": "remove", "path": "frags" })
        } else {
            json!({ "request": "create", "name": "frags", "module": "frag",
                "attrs": { "reassembly_bytes": 40_000, "mtu": 1500 } })
        };
        done(self.node, &request);
    }

    fn bind(&mut self) {
        let request = if self.was_there("bound") {
            json!({ "request": "unbind", "path": "second" })
        } else {
            json!({ "request": "bind", "handler": "spare", "path": "second",
                "iface": ["b0"], "match": "udp and dst port 7778", "tier": "user" })
        };
        done(self.node, &request);
    }

    /// A handler that no message reaches.
    fn load(&mut self) {
        let request = if self.was_there("loaded") {
            json!({ "request": "unload", "handler": "extra" })
        } else {
            json!({ "request": "load", "file": handler("echo").unwrap(), "name": "extra",
                "allow": ["reply"] })
        };
        done(self.node, &request);
    }

    /// Another version of the handler that a path is bound to in turn.
    fn swap(&self) {
        let file = handler("counter").unwrap();
        let request = json!({ "request": "swap", "handler": "spare", "file": file });
        done(self.node, &request);
    }

    /// A file in which other paths and modules come, change and go.
    fn apply(&mut self) {
        let echo = |port| {
            let config = config().handler("echo").unwrap();
            config.path("echo", port, if port == 7779 { "user" } else { "auto" })
        };
        let file = match self.random.below(4) {
            0 => config(),
            1 => echo(7779),
            2 => echo(7780),
            _ => echo(7780).text(
                "[module.other]\nkind = 'sink'\ndown = 'udp.up'\n[path.other]\nfrom = 'other'\n\
                 attrs = { local = '10.7.0.2:6003', pathname = 'eth:b0' }",
            ),
        };
        fs::write(self.node.config(), String::from(file)).unwrap();
        done(
            self.node,
            &json!({ "request": "apply", "file": self.node.config() }),
        );
    }

    fn step(&mut self, other: &[UdpClient]) {
        let what = match self.random.below(1000) {
            0..250 => {
                let many = 1 + self.random.below(3);
                self.create(many);
                "create"
            }
            250..450 => {
                let many = 1 + self.random.below(3);
                self.remove(many);
                "remove"
            }
            450..550 => {
                self.exchange();
                "exchange"
            }
            550..555 => {
                self.widen();
                "new shape"
            }
            555..557 => {
                self.reassemble();
                "fragments"
            }
            557..560 => {
                self.bind();
                "bind"
            }
            560..563 => {
                self.load();
                "load"
            }
            563..566 => {
                self.swap();
                "swap"
            }
            566..570 => {
                self.apply();
                "apply"
            }
            _ => {
                let many = 1 + self.random.below(4);
                for _ in 0..many {
                    let client = &other[self.random.below(FLOWS) as usize];
                    // Nobody may be there: what the host says of that is not asked.
                    let _ = client.send(b"to whom it may concern");
                }
                "traffic"
            }
        };
        *self.counts.entry(what).or_default() += 1;
    }
}

/// What the environment says, or else this.
fn number<N: FromStr>(name: &str, default: impl FnOnce() -> N) -> N {
    match std::env::var(name) {
        Ok(number) => number
            .parse()
            .unwrap_or_else(|_| panic!("{name} is no number: {number}")),
        Err(_) => default(),
    }
}

/// Walks, and says how many messages were sent to the paths that nobody touched,
/// and how many they got.
fn walk(name: &str, steps: u32, mistake: Mistake) -> [(u64, u64); 2] {
    let seed = number("ASHWAY_SEED", || {
        let since = SystemTime::UNIX_EPOCH.elapsed();
        since.unwrap().as_nanos() as u64
    });
    println!("ASHWAY_SEED={seed}");
    let rig = Rig::new(name, RigOptions::default()).unwrap();
    let node = rig.node(config()).start().unwrap();
    let file = handler("counter").unwrap();
    let load = json!({ "request": "load", "file": file, "name": "spare", "allow": ["reply"] });
    done(&node, &load);
    let others: Vec<UdpClient> = (0..FLOWS)
        .map(|number| {
            let port = 20_000 + number as u16;
            rig.in_a(|| UdpClient::connect_from(port, "10.7.0.2:6000".parse().unwrap()))
                .unwrap()
        })
        .collect();
    let clients = [STEADY, BOUND].map(|port| rig.client_a(port).unwrap());
    let over = AtomicBool::new(false);
    let begun = Instant::now();
    let got = || {
        let status = node.status().unwrap();
        let ends = [("steady", "consumed"), ("counter", "answered")];
        ends.map(|(path, fate)| {
            let fates = &entry(&status, "paths", path)["fates"];
            fates[fate].as_u64().unwrap()
        })
    };
    let (sent, counts) = std::thread::scope(|scope| {
        let traffic = scope.spawn(|| {
            let (mut sent, mut seen, mut lost) = (0_u64, 0, false);
            while !over.load(Ordering::Relaxed) {
                for client in &clients {
                    client.send(&1_u32.to_le_bytes()).unwrap();
                }
                sent += 1;
                std::thread::sleep(Duration::from_micros(500));
                let end = Instant::now() + LOST;
                while sent - seen >= WINDOW && !lost {
                    seen = got().into_iter().min().unwrap();
                    // They are missed at the end.
                    lost = Instant::now() > end;
                }
            }
            sent
        });
        let ends = Over(&over);
        let mut walk = Walk {
            node: &node,
            random: Random(seed),
            live: BTreeMap::new(),
            named: 0,
            there: BTreeSet::new(),
            counts: BTreeMap::new(),
        };
        for step in 0..steps {
            if mistake == Mistake::Steals && step == steps / 2 {
                let thief = clients[0].socket().local_addr().unwrap();
                let request = json!({ "request": "create", "name": "thief", "module": "end",
                    "attrs": { "local": format!("10.7.0.2:{STEADY}"), "remote": thief.to_string(),
                        "pathname": "eth:b0" } });
                done(&node, &request);
            }
            walk.step(&others);
        }
        drop(ends);
        (traffic.join().unwrap(), walk.counts)
    });
    let took = begun.elapsed();
    println!("{counts:?} in {took:?}, {sent} messages to each path that nobody touched");
    assert_eq!(counts.values().sum::<u32>(), steps);
    // The last ones may still be on their way.
    let end = Instant::now() + PATIENCE;
    let [steady, bound] = loop {
        let got = got();
        if got == [sent; 2] || Instant::now() > end {
            break got;
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let status = node.status().unwrap();
    assert_eq!(
        status["module_paths"]["balanced"], true,
        "{:#}",
        status["module_paths"]
    );
    node.stop().unwrap();
    [(sent, steady), (sent, bound)]
}

#[test]
fn a_path_that_nobody_touched_loses_nothing_in_ten_thousand_steps() {
    if skip_unless_root() {
        return;
    }
    let steps = number("ASHWAY_STEPS", || STEPS);
    for (sent, got) in walk("interleave", steps, Mistake::None) {
        assert_eq!(sent, got);
    }
}

#[test]
fn messages_that_another_path_takes_are_missed() {
    if skip_unless_root() {
        return;
    }
    let [steady, bound] = walk("interleave-bug", 300, Mistake::Steals);
    assert!(steady.1 < steady.0, "{steady:?}");
    assert_eq!(bound.0, bound.1);
}

/// What a process has in the kernel, and what a node knows of.
#[derive(Debug, PartialEq)]
struct Census {
    /// File descriptors by what they are.
    fds: BTreeMap<String, usize>,
    /// Ids of maps, programs and links.
    bpf: Vec<String>,
    paths: u64,
    names: Vec<String>,
}

impl Census {
    /// Once nothing is under way.
    fn of(node: &Node) -> Self {
        until("the programs have all shapes", || {
            let operations = node.status().unwrap()["operations"].clone();
            operations.as_array().unwrap().is_empty().then_some(())
        });
        let proc = Path::new("/proc").join(node.id().to_string());
        let mut fds: BTreeMap<String, usize> = BTreeMap::new();
        let mut bpf = Vec::new();
        for fd in fs::read_dir(proc.join("fd")).unwrap() {
            let fd = fd.unwrap();
            let Ok(what) = fs::read_link(fd.path()) else {
                continue;
            };
            let what = what.to_string_lossy().into_owned();
            // A socket's number tells connections apart, and one has just ended.
            if what.starts_with("socket:") {
                continue;
            }
            *fds.entry(what).or_default() += 1;
            let info = fs::read_to_string(proc.join("fdinfo").join(fd.file_name()));
            let info = info.unwrap_or_default();
            let ids = info.lines().filter(|line| {
                ["map_id:", "prog_id:", "link_id:"]
                    .iter()
                    .any(|word| line.starts_with(word))
            });
            bpf.extend(ids.map(str::to_owned));
        }
        bpf.sort_unstable();
        let status = node.status().unwrap();
        let names = status["paths"].as_array().unwrap().iter();
        Self {
            fds,
            bpf,
            paths: status["module_paths"]["paths"].as_u64().unwrap(),
            names: names.map(|path| path["name"].to_string()).collect(),
        }
    }
}

#[test]
fn a_creation_that_fails_in_any_phase_leaves_nothing() {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("census", RigOptions::default()).unwrap();
    let node = rig.node(config()).start().unwrap();
    let client = rig.client_a(STEADY).unwrap();
    // So that the shape is a map, and everything that is made once is made.
    let flows: Vec<_> = (0..20).map(|n| flow(n, &format!("flow-{n}"))).collect();
    done(&node, &json!({ "request": "create", "paths": flows }));
    let mut before = Census::of(&node);
    assert!(before.bpf.len() > 5, "{before:#?}");

    let one = |attrs: Value| json!({ "module": "end", "name": "new", "attrs": attrs });
    let local = |more: Value| {
        let mut attrs = json!({ "local": "10.7.0.2:6002", "pathname": "eth:b0" });
        let more = more.as_object().unwrap().clone();
        attrs.as_object_mut().unwrap().extend(more);
        attrs
    };
    let frag = |attrs: Value| json!({ "module": "frag", "name": "new", "attrs": attrs });
    let equal = json!({ "local": "10.7.0.2:5000", "pathname": "eth:b0" });
    let cases = [
        ("stages", "vlan", vec![one(local(json!({ "vlan": 5000 })))]),
        (
            "combine",
            "bytes of memory",
            vec![frag(json!({ "reassembly_bytes": 10_000_000 }))],
        ),
        (
            "establish",
            "fragments need",
            vec![frag(json!({ "reassembly_bytes": 9_000, "mtu": 60 }))],
        ),
        ("demux", "cannot be told apart", vec![one(equal.clone())]),
        // The first of them are made, the last cannot be.
        (
            "demux, of several",
            "cannot be told apart",
            vec![
                flow(30, "other-30"),
                json!({ "module": "end", "name": "shape", "attrs": local(json!({})) }),
                one(equal.clone()),
            ],
        ),
        (
            "demux, behind one that takes all fragments",
            "cannot be told apart",
            vec![
                json!({ "module": "frag", "name": "frags",
                    "attrs": { "reassembly_bytes": 9_000, "mtu": 1500 } }),
                one(equal),
            ],
        ),
        (
            "name",
            "already",
            vec![flow(31, "twice"), flow(32, "twice")],
        ),
    ];
    for (phase, says, paths) in cases {
        for _ in 0..3 {
            let error = ask(&node, &json!({ "request": "create", "paths": paths })).unwrap_err();
            let message = error["message"].as_str().unwrap();
            assert!(message.contains(says), "{phase}: {error:#}");
        }
        let after = Census::of(&node);
        if phase.contains("fragments") {
            // Its table was made anew and put back: another program, as many maps.
            assert_eq!(after.bpf.len(), before.bpf.len());
            before.bpf.clone_from(&after.bpf);
        }
        assert_eq!(after, before, "{phase}");
    }

    // More new shapes than there is room for as data need maps, and there is one more
    // descriptor: for who asks.
    let proc = Path::new("/proc").join(node.id().to_string());
    let used: Vec<String> = fs::read_dir(proc.join("fd"))
        .unwrap()
        .map(|fd| fd.unwrap().file_name().into_string().unwrap())
        .collect();
    let free = (0..u32::MAX).find(|fd| !used.contains(&fd.to_string()));
    let limits = fs::read_to_string(proc.join("limits")).unwrap();
    let files = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    let soft: u32 = files
        .unwrap()
        .split_whitespace()
        .nth(3)
        .unwrap()
        .parse()
        .unwrap();
    let limit = |soft: u32| {
        let words = [
            "--pid",
            &node.id().to_string(),
            &format!("--nofile={soft}:"),
        ];
        let set = run(std::process::Command::new("prlimit").args(words));
        assert!(set.status.success(), "{}", text(&set));
    };
    limit(free.unwrap() + 1);
    let shape = |bits: u32| {
        json!({ "module": "end", "name": format!("shape-{bits}"), "attrs": local(json!({})),
            "match": format!("src net 10.7.0.0/{bits}") })
    };
    let shapes: Vec<_> = (16..25).map(shape).collect();
    let refused = ask(&node, &json!({ "request": "create", "paths": shapes }));
    limit(soft);
    assert!(
        refused
            .unwrap_err()
            .to_string()
            .contains("Too many open files")
    );
    assert_eq!(Census::of(&node), before, "no descriptors");

    let got = received(&node, "steady");
    client.send(b"still here?").unwrap();
    until("the steady path works", || {
        (received(&node, "steady") == got + 1).then_some(())
    });
    for n in 0..20 {
        done(
            &node,
            &json!({ "request": "remove", "path": format!("flow-{n}") }),
        );
    }
    node.stop().unwrap();
}
