//! The simulator: its clock, its links, its processor, and that a seed decides
//! everything.

use std::time::Duration;

use ashway_abi::Count;
use ashway_path::path::{Exit, Limits};
use ashway_path::places::PathId;
use ashway_path::sim::{Classifier, Happened, Link, Random, Sim};
use ashway_path::stage::{Cx, Direction::Backward, Direction::Forward, Stage, Step};
use ashway_path::time::Time;

mod stages;
use stages::{limited, on, path, stage};

const END: Time = Time(u64::MAX);

const fn micros(count: u64) -> Duration {
    Duration::from_micros(count)
}

/// Everything goes up the path `p`.
fn to_p() -> Classifier<u64> {
    Box::new(|names, _, _| Some((names.find("p")?, Backward)))
}

fn sim(seed: u64) -> Sim<u64> {
    Sim::new(seed, |message| *message, to_p())
}

/// The messages that left, in order.
fn left(sim: &Sim<u64>) -> Vec<u64> {
    let left = sim.out.iter().filter_map(|(_, exit)| match exit {
        Exit::Left { message, .. } => Some(*message),
        Exit::Ended { .. } => None,
    });
    left.collect()
}

/// A thousand messages over a bad link.
fn bad_link(seed: u64) -> Sim<u64> {
    let mut sim = sim(seed);
    let limits = Limits {
        queue: [0, 1000, 0, 0],
        ..Limits::default()
    };
    sim.create(limited("p", vec![on("a")], limits))
        .expect("its name is free");
    let link = sim.link(Link {
        delay: micros(10),
        jitter: micros(50),
        lost_ppm: 100_000,
    });
    for message in 0..1000 {
        sim.at(Time(message * 1000), move |sim| sim.send(link, message));
    }
    sim.run(END);
    sim
}

#[test]
fn the_seed_decides_everything() {
    assert_eq!(bad_link(7).trace, bad_link(7).trace);
    assert_ne!(bad_link(7).trace, bad_link(8).trace);
}

#[test]
fn links_delay_lose_and_reorder() {
    let sim = bad_link(7);
    let mut came = left(&sim);
    let lost = sim
        .trace
        .iter()
        .filter(|(_, what)| matches!(what, Happened::Lost(..)));
    let lost = lost.count();
    assert!((70..130).contains(&lost), "{lost}");
    assert_eq!(came.len() + lost, 1000);
    assert!(!came.is_sorted());
    came.sort_unstable();
    came.dedup();
    assert_eq!(came.len() + lost, 1000);
    for (time, what) in &sim.trace {
        if let Happened::Queued(_, message) = what {
            let sent = Time(message * 1000);
            let took = time.since(sent);
            assert!((micros(10)..=micros(60)).contains(&took), "{took:?}");
        }
    }
}

#[test]
fn a_plain_link_keeps_the_order() {
    let mut sim = sim(1);
    sim.create(path("p", vec![on("a")])).unwrap();
    let link = sim.link(Link {
        delay: micros(3),
        ..Link::default()
    });
    (0..20).for_each(|message| sim.send(link, message));
    sim.run(END);
    assert_eq!(left(&sim), (0..20).collect::<Vec<_>>());
    // One after the other on one processor.
    assert_eq!(sim.now(), Time(0) + micros(3 + 20));
}

#[test]
fn overload_is_discarded_on_arrival_and_time_is_charged() {
    let mut sim = sim(1);
    sim.cost = micros(10);
    let id = sim.create(path("p", vec![on("a")])).unwrap();
    let link = sim.link(Link::default());
    for message in 0..100 {
        sim.at(Time(0) + micros(message), move |sim| {
            sim.send(link, message);
        });
    }
    sim.run(END);
    let account = sim.engine.path(id).unwrap().account();
    let done = account.fate(Count::Forwarded);
    let early = account.fate(Count::DroppedQueueFull);
    assert_eq!((account.received(), done + early), (100, 100));
    // 32 fit into the queue, and 10 were done while 100 came.
    assert_eq!(done, 42);
    assert_eq!(account.runs, done);
    assert_eq!(account.time, micros(10) * 42);
    let discarded = |(_, what): &&_| matches!(what, Happened::Discarded(..));
    assert_eq!(sim.trace.iter().filter(discarded).count() as u64, early);
}

/// Sends what it got again each 10 us, until something comes back.
#[derive(Default)]
struct Retransmit {
    open: Option<u64>,
}

impl Stage<u64> for Retransmit {
    fn name(&self) -> &'static str {
        "retransmit"
    }

    fn take(
        &mut self,
        message: u64,
        direction: ashway_path::stage::Direction,
        cx: &mut Cx<'_, u64>,
    ) -> Step<u64> {
        if direction == Backward {
            let fresh = self.open.take().is_some();
            *cx.wake_at = None;
            return if fresh {
                Step::On(message)
            } else {
                Step::End(message, Count::Consumed)
            };
        }
        self.open = Some(message);
        *cx.wake_at = Some(cx.now + micros(10));
        Step::On(message)
    }

    fn wake(&mut self, cx: &mut Cx<'_, u64>) {
        if let Some(message) = self.open {
            cx.also.push((Forward, message));
            *cx.wake_at = Some(cx.now + micros(10));
        }
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

/// A request and its reply between two ends, over links that lose half of all.
#[test]
fn a_request_gets_through_in_the_end() {
    for seed in 0..200 {
        let classify: Classifier<u64> = Box::new(|names, link, _| {
            let (client, server) = (names.find("client")?, names.find("server")?);
            // Link 0 leads to the server, link 1 back.
            let first = format!("{link:?}") == "LinkId(0)";
            Some((if first { server } else { client }, Backward))
        });
        let mut sim = Sim::new(seed, |message| *message, classify);
        let answer = stage("answer", |message, _, _| {
            Step::Back(message + 1, Count::Answered)
        });
        let client = path("client", vec![Box::<Retransmit>::default(), on("eth")]);
        let client = sim.create(client).unwrap();
        let server = sim.create(path("server", vec![answer, on("eth")])).unwrap();
        let bad = Link {
            delay: micros(2),
            jitter: micros(1),
            lost_ppm: 500_000,
        };
        let there = sim.link(bad);
        let back = sim.link(bad);
        sim.connect(client, Forward, there);
        sim.connect(server, Forward, back);
        sim.at(Time(0), move |sim: &mut Sim<u64>| {
            assert_eq!(sim.offer(client, Forward, 41), Ok(()));
        });
        sim.run(END);
        assert_eq!(left(&sim), [42], "seed {seed}");
        closed(&sim, client);
        closed(&sim, server);
    }
}

/// Both ledgers close.
fn closed(sim: &Sim<u64>, id: PathId) {
    let account = sim.engine.path(id).expect("it is there").account();
    assert_eq!(account.open(), 0);
    assert_eq!(account.originated, account.left + account.ended);
}

/// Scout §2.5: narrow paths for what is usual, a short wide one for the rest;
/// the classifier is asked again about what comes out of that.
#[test]
fn fragments_go_the_wide_way_and_the_whole_goes_on_by_the_narrow() {
    // Below 10 is a fragment; two make a whole.
    let classify: Classifier<u64> = Box::new(|names, _, message| {
        let name = if *message < 10 { "wide" } else { "narrow" };
        Some((names.find(name)?, Backward))
    });
    let mut sim = Sim::new(1, |message| *message, classify);
    let mut first = None;
    let reassemble = stage("ip", move |part: u64, _, _| {
        if let Some(first) = first.take() {
            return Step::On(first * 10 + part);
        }
        first = Some(part);
        Step::Absorbed
    });
    let wide = sim.create(path("wide", vec![reassemble])).unwrap();
    let narrow = sim.create(path("narrow", vec![on("udp")])).unwrap();
    let wire = sim.link(Link::default());
    sim.connect(wide, Backward, wire);
    for message in [50, 4, 60, 2] {
        sim.send(wire, message);
    }
    sim.run(END);
    assert_eq!(left(&sim), [50, 60, 42]);
    let account = |id| sim.engine.path(id).unwrap().account();
    assert_eq!(account(wide).absorbed(), 1);
    assert_eq!(account(wide).fate(Count::Forwarded), 1);
    assert_eq!(account(narrow).fate(Count::Forwarded), 3);
}

#[test]
fn what_matches_no_path_is_counted() {
    let mut sim = sim(1);
    let link = sim.link(Link::default());
    sim.send(link, 5);
    sim.run(END);
    assert_eq!(sim.trace[1].1, Happened::Unmatched(5));
    assert!(sim.out.is_empty());
}

#[test]
fn a_stage_that_always_wants_to_be_woken_does_not_stop_time() {
    struct Eager;
    impl Stage<u64> for Eager {
        fn name(&self) -> &'static str {
            "eager"
        }
        fn take(
            &mut self,
            message: u64,
            _: ashway_path::stage::Direction,
            cx: &mut Cx<'_, u64>,
        ) -> Step<u64> {
            *cx.wake_at = Some(Time(0));
            Step::On(message)
        }
        fn wake(&mut self, cx: &mut Cx<'_, u64>) {
            *cx.wake_at = Some(Time(0));
        }
        fn as_any(&mut self) -> &mut dyn std::any::Any {
            self
        }
    }
    let mut sim = sim(1);
    sim.create(path("p", vec![Box::new(Eager)])).unwrap();
    let link = sim.link(Link::default());
    sim.send(link, 1);
    assert!(sim.run(Time(1000)) <= 1010);
    assert_eq!(sim.now(), Time(1000));
}

/// The first numbers of the reference implementation from 1234567.
#[test]
fn chance_is_splitmix64() {
    let mut random = Random(1_234_567);
    assert_eq!(random.next(), 6_457_827_717_110_365_317);
    assert_eq!(random.next(), 3_203_168_211_198_807_973);
    assert!((0..1000).all(|_| random.below(7) < 7));
    assert_eq!(random.below(0), 0);
}
