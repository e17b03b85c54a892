//! Frames that nobody here made, whole and cut at every length, through every
//! module: up a path, down a path, and into the middle of one.
//!
//! No stage panics, both ledgers close after each, and what means the same comes
//! to the same: with and without rules, IP of both versions and of one.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod world;

use std::net::SocketAddr;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ashway_abi::Count;
use ashway_modules::fault::{Fault, Settings};
use ashway_modules::forward::Forward;
use ashway_modules::fragment::{Fragment, Limits as FragmentLimits};
use ashway_modules::handler::Act;
use ashway_modules::host::Host;
use ashway_modules::ipv4::Ipv4;
use ashway_modules::ipv6::Ipv6;
use ashway_modules::shell::{Commands, Outcome, Request, Shell};
use ashway_modules::sink::Sink;
use ashway_modules::source::Source;
use ashway_modules::tap::pcapng::Writer;
use ashway_modules::tap::{Layer, Tap};
use ashway_modules::{Message, rules};
use ashway_path::attrs::Attrs;
use ashway_path::module::Module;
use ashway_path::path::{Exit, Limits, Path};
use ashway_path::sim::Single;
use ashway_path::stage::Direction;
use ashway_path::time::Time;
use ashway_rig::captures::{Captures, Links};
use world::{End, Fake, attrs, books_close, end, eth, graph, ip, udp_module};

/// One frame in so many is cut at every length.
const SHARE: usize = 100;

type Boxed = Box<dyn Module<Message>>;

/// Obeys everything.
struct Obeys;

impl Commands for Obeys {
    fn begin(&self, _: SocketAddr, _: Request) -> Receiver<Outcome> {
        let (send, receive) = mpsc::channel();
        send.send(Ok("done".to_owned())).unwrap();
        receive
    }
}

fn us() -> End {
    end(2, "10.0.0.2:53")
}

/// A module of each kind that a path may end in or go through, by name.
fn module(kind: &str) -> Boxed {
    let name = || kind.into();
    match kind {
        "ip" => ip(),
        "ipv4" => Box::new(Ipv4 { name: name() }),
        "ipv6" => Box::new(Ipv6 { name: name() }),
        "udp" => udp_module(),
        "sink" => Box::new(Sink { name: name() }),
        "source" => Box::new(Source { name: name() }),
        "host" => Box::new(Host { name: name() }),
        "relay" => Box::new(Forward { name: name() }),
        "echo" => Fake::new(|_| Act::Reply).module(kind),
        // Changes what it passes on.
        "spoil" => Fake::new(|message| {
            for byte in message {
                *byte ^= 0x55;
            }
            Act::Forward
        })
        .module(kind),
        "fragment" => Box::new(Fragment {
            name: name(),
            limits: FragmentLimits::default(),
            identification: Arc::default(),
        }),
        "fault" => Box::new(Fault {
            name: name(),
            settings: Settings {
                loss_ppm: 50_000,
                duplicate_ppm: 50_000,
                corrupt_ppm: 50_000,
                reorder_ppm: 50_000,
                delay_us: 5,
                jitter_us: 5,
                max_bytes: 1000,
                ..Settings::default()
            }
            .into(),
        }),
        "shell" => Box::new(Shell {
            name: (*name()).into(),
            allow: [us().address.ip()].into(),
            commands: Arc::new(Obeys),
        }),
        "packets" | "payloads" => Box::new(Tap {
            name: (*name()).into(),
            layer: if kind == "packets" {
                Layer::Network
            } else {
                Layer::Payload
            },
            watch: Arc::new(Mutex::new(
                Writer::new(std::io::sink(), 96, Duration::ZERO).unwrap(),
            )),
        }),
        other => panic!("no module `{other}`"),
    }
}

/// A path from the link through these modules.
struct Recipe {
    modules: &'static [&'static str],
    attrs: fn() -> Attrs,
}

fn none() -> Attrs {
    Attrs::new()
}

fn narrow() -> Attrs {
    attrs(&[
        ("local", "10.0.0.2:53"),
        ("remote", "10.0.0.1:1000"),
        ("next_mac", "02:00:00:00:00:01"),
        ("vlan", "5"),
    ])
}

fn relayed() -> Attrs {
    attrs(&[
        ("next_hop", "10.0.3.2:9000"),
        ("from", "10.0.3.1:9001"),
        ("next_hop_mac", "02:00:00:00:00:03"),
        ("out", "out"),
    ])
}

fn relayed_to_v6() -> Attrs {
    attrs(&[
        ("next_hop", "[fd00::2]:9000"),
        ("from", "[fd00::1]:9001"),
        ("next_hop_mac", "02:00:00:00:00:03"),
        ("next_hop_vlan", "7"),
        ("out", "out"),
    ])
}

const PATHS: &[Recipe] = &[
    Recipe {
        modules: &["ip", "udp", "sink"],
        attrs: none,
    },
    Recipe {
        modules: &["ip", "udp", "echo"],
        attrs: none,
    },
    Recipe {
        modules: &["ip", "udp", "echo"],
        attrs: narrow,
    },
    Recipe {
        modules: &["ip", "udp", "relay"],
        attrs: relayed,
    },
    Recipe {
        modules: &["ip", "udp", "relay"],
        attrs: relayed_to_v6,
    },
    Recipe {
        modules: &["ip", "udp", "spoil", "relay"],
        attrs: relayed,
    },
    Recipe {
        modules: &["ip", "udp", "shell"],
        attrs: none,
    },
    Recipe {
        modules: &["ip", "udp", "payloads", "fault", "echo"],
        attrs: none,
    },
    Recipe {
        modules: &["fragment", "ip", "udp", "echo"],
        attrs: none,
    },
    Recipe {
        modules: &["fragment", "ip", "udp", "sink"],
        attrs: narrow,
    },
    Recipe {
        modules: &["fragment", "ip", "udp", "fault", "payloads", "echo"],
        attrs: none,
    },
    Recipe {
        modules: &["ipv4", "udp", "echo"],
        attrs: none,
    },
    Recipe {
        modules: &["ipv6", "udp", "echo"],
        attrs: none,
    },
    Recipe {
        modules: &["ip", "echo"],
        attrs: none,
    },
    Recipe {
        modules: &["ip", "host"],
        attrs: none,
    },
    Recipe {
        modules: &["ip", "source"],
        attrs: narrow,
    },
    Recipe {
        modules: &["packets", "host"],
        attrs: none,
    },
    Recipe {
        modules: &["fault", "host"],
        attrs: none,
    },
    Recipe {
        modules: &["echo", "sink"],
        attrs: none,
    },
];

impl Recipe {
    fn path(&self, ruled: bool) -> Path<Message> {
        let them = end(4, "10.0.3.1:9001");
        let mut modules = vec![("in", eth("in", 3, us())), ("out", eth("out", 4, them))];
        let mut edges = Vec::new();
        let mut below = "in";
        for kind in self.modules {
            modules.push((kind, module(kind)));
            edges.push((format!("{kind}.down"), format!("{below}.up")));
            if ["ip", "ipv4", "ipv6"].contains(kind) && below == "in" {
                edges.push((format!("{kind}.down"), "out.up".to_owned()));
            }
            below = kind;
        }
        let edges: Vec<_> = edges
            .iter()
            .map(|(a, b)| (a.as_str(), b.as_str()))
            .collect();
        let graph = graph(modules, &edges);
        let limits = Limits {
            memory_bytes: 1 << 20,
            ..Limits::default()
        };
        let rules = if ruled { &rules::RULES[..] } else { &[] };
        let created = graph.create("p", "in", (self.attrs)(), limits, rules);
        created
            .unwrap_or_else(|error| panic!("{:?}: {error}; {}", self.modules, error.hint))
            .path
    }
}

/// What came out, as far as it can be compared.
fn shown(exits: &[Exit<Message>]) -> Vec<Result<(u32, &[u8]), Count>> {
    exits
        .iter()
        .map(|exit| match exit {
            Exit::Left { message, .. } => Ok((message.meta.iface, message.bytes())),
            Exit::Ended { fate, .. } => Err(*fate),
        })
        .collect()
}

/// A path, and everything that came out of it for one message.
struct Running {
    path: Single<Message>,
    exits: Vec<Exit<Message>>,
}

impl Running {
    fn pass(&mut self, direction: Direction, message: Message, now: Time) {
        self.exits = self.path.wake(now);
        self.exits.extend(self.path.pass(direction, message, now));
        books_close(&self.path);
    }

    /// Into the middle: at any stage, as if its neighbour had sent it on.
    fn inject(&mut self, stage: usize, direction: Direction, message: Message, now: Time) {
        self.exits = self.path.wake(now);
        let out = self.path.inject(stage, direction, message, now);
        self.exits.extend(out);
        books_close(&self.path);
    }
}

fn running(ruled: bool) -> Vec<Running> {
    let of = |recipe: &Recipe| Running {
        path: Single::new(recipe.path(ruled)),
        exits: Vec::new(),
    };
    PATHS.iter().map(of).collect()
}

#[test]
fn every_module_survives_every_frame_and_counts_it_once() {
    let Some(captures) = Captures::read(Links::Any, 400) else {
        return;
    };
    let (mut plain, mut ruled) = (running(false), running(true));
    let mut now = Time(0);
    let replayed = captures.replay(SHARE, us().mac, |frame| {
        now = now + Duration::from_micros(1);
        for ((a, b), recipe) in plain.iter_mut().zip(&mut ruled).zip(PATHS) {
            for one in [&mut *a, &mut *b] {
                one.pass(Direction::Forward, Message::of_frame(frame), now);
            }
            assert_eq!(
                shown(&a.exits),
                shown(&b.exits),
                "{:?}: with rules otherwise, of {frame:02x?}",
                recipe.modules
            );
        }
        one_version(&plain, frame);
    });
    println!("{replayed:?} on {} paths", plain.len());
    let mut fates = [0; 32];
    for one in &plain {
        for (fate, count) in one.path.account().fates() {
            fates[fate as usize] += count;
        }
    }
    // The frames are such that most of what can become of one did.
    for fate in [
        Count::Consumed,
        Count::Answered,
        Count::Passed,
        Count::Forwarded,
        Count::Absorbed,
        Count::DroppedBadLength,
        Count::DroppedBadIpChecksum,
        Count::DroppedBadUdpChecksum,
        Count::DroppedFragment,
        Count::DroppedNoSender,
    ] {
        assert!(fates[fate as usize] > 0, "nothing came to {}", fate.name());
    }
}

/// The modules of one version judge as the one of both does, or leave the frame to
/// the host.
fn one_version(paths: &[Running], frame: &[u8]) {
    let by = |first: &str| {
        let at = PATHS.iter().position(|recipe| {
            recipe.modules[0] == first
                && recipe.modules.ends_with(&["udp", "echo"])
                && recipe.modules.len() == 3
        });
        shown(&paths[at.unwrap()].exits)
    };
    let (both, passed) = (by("ip"), vec![Err(Count::Passed)]);
    for one in [by("ipv4"), by("ipv6")] {
        assert!(
            one == both || one == passed,
            "{one:?}, {both:?} of {frame:02x?}"
        );
    }
}

#[test]
fn what_goes_down_and_what_comes_into_the_middle_is_survived_too() {
    let Some(captures) = Captures::read(Links::Any, 40) else {
        return;
    };
    let mut paths = running(false);
    let mut now = Time(0);
    let mut left = 0_u64;
    let replayed = captures.replay(SHARE * 4, us().mac, |frame| {
        now = now + Duration::from_micros(1);
        for one in &mut paths {
            one.pass(Direction::Backward, Message::of_frame(frame), now);
            left += one.exits.len() as u64;
            for stage in 0..one.path.len() {
                for direction in [Direction::Forward, Direction::Backward] {
                    let mut message = Message::of_frame(frame);
                    // As if a link had taken its header off, and said what is next.
                    if let Some([high, low]) = frame.get(12..14) {
                        message.meta.protocol = u16::from_be_bytes([*high, *low]);
                        message.meta.eth = message.pop(14);
                    }
                    one.inject(stage, direction, message, now);
                    left += one.exits.len() as u64;
                }
            }
        }
    });
    println!("{replayed:?} on {} paths: {left} exits", paths.len());
    assert!(left > 100_000, "{left}");
}
