//! A bad network on purpose: every fault alone, and the books.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod world;

use ashway_abi::Count;
use ashway_modules::Message;
use ashway_modules::fault::{Fault, Settings};
use ashway_modules::sink::Sink;
use ashway_modules::source::Probe;
use ashway_path::attrs::Attrs;
use ashway_path::graph::Graph;
use ashway_path::path::{Exit, Limits, Path};
use ashway_path::sim::{Link, Sim, Single};
use ashway_path::stage::Direction::{Backward, Forward};
use ashway_path::time::Time;
use world::{attrs, books_close, create, end, udp};

const US: &str = "10.0.1.1:9000";
const THEM: &str = "10.0.1.2:4000";

/// A bad network under a sink.
fn graph(settings: Settings) -> Graph<Message> {
    let (bad, sink) = (
        Fault {
            name: "bad".into(),
            settings: settings.into(),
        },
        Sink {
            name: "sink".into(),
        },
    );
    world::graph(
        vec![
            ("wire", world::eth("wire", 1, end(1, US))),
            ("bad", Box::new(bad)),
            ("ip", world::ip()),
            ("udp", world::udp_module()),
            ("sink", Box::new(sink)),
        ],
        &[
            ("bad.down", "wire.up"),
            ("ip.down", "bad.up"),
            ("udp.down", "ip.up"),
            ("sink.down", "udp.up"),
        ],
    )
}

fn path(pairs: &[(&'static str, &str)]) -> Single<Message> {
    let graph = graph(Settings::default());
    let limits = Limits {
        memory_bytes: 4 << 20,
        ..Limits::default()
    };
    let created = graph.create("path", "sink", attrs(pairs), limits, &[]);
    let created = created.unwrap_or_else(|failed| panic!("{failed}"));
    Single::new(created.path)
}

fn probe(sequence: u64) -> Vec<u8> {
    let mut payload = [0; 60];
    let probe = Probe {
        sequence,
        sent: Time(0),
    };
    probe.write(&mut payload);
    udp(end(2, THEM), end(1, US), None, &payload)
}

/// Sends so many, one each microsecond, waking the path in between, until all
/// that is kept is out. The fates, in order, with when they were.
fn run(path: &mut Single<Message>, count: u64) -> Vec<(u64, Count)> {
    let mut fates = Vec::new();
    for sequence in 0.. {
        let now = sequence * 1000;
        let mut out = path.wake(Time(now));
        if sequence < count {
            let message = Message::of_frame(&probe(sequence));
            out.extend(path.pass(Backward, message, Time(now)));
        }
        fates.extend(out.into_iter().map(|exit| match exit {
            Exit::Ended { fate, .. } => (now, fate),
            other @ Exit::Left { .. } => panic!("{other:?}"),
        }));
        if sequence >= count && path.wake_at().is_none() {
            break;
        }
    }
    books_close(path);
    fates
}

/// What a sink has noted; nothing before its first message.
fn found(path: &Path<Message>, name: &str) -> u64 {
    path.attrs().number(name).unwrap_or(0)
}

/// A share of so many with so much probability: within five standard
/// deviations.
fn about(found: u64, of: u64, ppm: u64) {
    let (of, p) = (of as f64, ppm as f64 / 1e6);
    let spread = 5.0 * (of * p * (1.0 - p)).sqrt();
    assert!(
        (found as f64 - of * p).abs() <= spread,
        "{found} of {of} at {p}"
    );
}

#[test]
fn without_attributes_nothing_happens() {
    let mut path = path(&[]);
    let fates = run(&mut path, 1000);
    assert!(fates.iter().all(|(_, fate)| *fate == Count::Consumed));
    assert_eq!(found(&path, "lost") + found(&path, "reordered"), 0);
}

#[test]
fn messages_are_lost_and_counted() {
    let mut path = path(&[("loss_ppm", "100000")]);
    run(&mut path, 10_000);
    let lost = path.account().fate(Count::DroppedFault);
    about(lost, 10_000, 100_000);
    assert_eq!(found(&path, "received"), 10_000 - lost);
}

#[test]
fn messages_are_doubled() {
    let mut path = path(&[("duplicate_ppm", "100000")]);
    run(&mut path, 10_000);
    let doubled = found(&path, "duplicated");
    about(doubled, 10_000, 100_000);
    assert_eq!(found(&path, "received"), 10_000 + doubled);
    let account = path.account();
    assert_eq!(account.fate(Count::Consumed), 10_000);
    assert_eq!((account.originated, account.ended), (doubled, doubled));
}

#[test]
fn one_bit_is_wrong_and_the_checksums_find_it() {
    let mut path = path(&[("corrupt_ppm", "1000000")]);
    let fates = run(&mut path, 5000);
    // The bit may lie where nothing depends on it: not at all, or so that the
    // packet is somebody else's.
    let caught = fates
        .iter()
        .filter(|(_, fate)| {
            matches!(
                fate,
                Count::DroppedBadIpChecksum
                    | Count::DroppedBadUdpChecksum
                    | Count::DroppedBadLength
            )
        })
        .count();
    assert!(caught > 4700, "{caught}");
    assert_eq!(found(&path, "damaged"), 0);
}

#[test]
fn a_delay_keeps_the_order_and_the_time() {
    let mut path = path(&[("delay_us", "50")]);
    let fates = run(&mut path, 200);
    let expected: Vec<_> = (0..200)
        .map(|sequence| ((sequence + 50) * 1000, Count::Consumed))
        .collect();
    assert_eq!(fates, expected);
    assert_eq!((found(&path, "lost"), found(&path, "reordered")), (0, 0));
    let account = path.account();
    // Kept, and sent on as the path's own.
    assert_eq!((account.absorbed(), account.originated), (200, 200));
}

#[test]
fn chance_adds_to_the_delay_within_its_bounds() {
    let mut path = path(&[("delay_us", "30"), ("jitter_us", "20")]);
    let mut delays = std::collections::BTreeSet::new();
    for sequence in 0..1000 {
        let now = sequence * 100_000;
        let message = Message::of_frame(&probe(sequence));
        assert_eq!(path.pass(Backward, message, Time(now)), []);
        let due = path.wake_at().unwrap();
        delays.insert((due.0 - now) / 1000);
        assert_eq!(path.wake(due).len(), 1);
    }
    assert!(delays.into_iter().eq(30..=50));
}

#[test]
fn reordering_lets_others_go_first() {
    let mut path = path(&[
        ("reorder_ppm", "50000"),
        ("reorder_us", "20"),
        ("hold", "1000"),
    ]);
    run(&mut path, 10_000);
    about(path.account().absorbed(), 10_000, 50_000);
    assert_eq!(found(&path, "lost"), 0);
    assert_eq!(found(&path, "received"), 10_000);
    // Nothing overtakes the last one, should it be kept.
    let reordered = found(&path, "reordered");
    assert!(path.account().absorbed() - reordered <= 20, "{reordered}");
}

#[test]
fn what_is_too_long_or_too_many_is_dropped_by_name() {
    // 60 bytes of payload, 28 of headers above the link.
    let mut short = path(&[("max_bytes", "87")]);
    run(&mut short, 10);
    assert_eq!(short.account().fate(Count::DroppedTooLong), 10);
    let mut fits = path(&[("max_bytes", "88")]);
    run(&mut fits, 10);
    assert_eq!(fits.account().fate(Count::Consumed), 10);

    let mut full = path(&[
        ("delay_us", "1000"),
        ("hold", "7"),
        ("duplicate_ppm", "1000000"),
    ]);
    run(&mut full, 100);
    let account = full.account();
    // Four and three copies; the copy that there is no room for never was.
    assert_eq!(account.absorbed(), 4);
    assert_eq!(account.fate(Count::DroppedQueueFull), 96);
    assert_eq!(account.originated, 7);
}

#[test]
fn all_at_once_from_one_seed_is_the_same_again() {
    let all = |seed: &'static str| {
        let mut path = path(&[
            ("loss_ppm", "50000"),
            ("duplicate_ppm", "50000"),
            ("corrupt_ppm", "50000"),
            ("reorder_ppm", "50000"),
            ("delay_us", "30"),
            ("jitter_us", "100"),
            ("hold", "1000"),
            ("seed", seed),
        ]);
        let fates = run(&mut path, 2000);
        (fates, path.attrs().to_string())
    };
    assert_eq!(all("7"), all("7"));
    assert_ne!(all("7").0, all("8").0);
}

#[test]
fn it_stands_in_both_directions() {
    let mut path = path(&[
        ("loss_ppm", "1000000"),
        ("local", US),
        ("remote", THEM),
        ("next_mac", "02:00:00:00:00:02"),
    ]);
    let exits = path.pass(Forward, Message::of_frame(b"down"), Time(0));
    assert!(matches!(
        exits[0],
        Exit::Ended {
            fate: Count::DroppedFault,
            ..
        }
    ));
}

/// In the simulator a kept message goes with its path, and both ledgers close
/// at any time.
#[test]
fn what_is_kept_goes_with_the_path() {
    let mut sim: Sim<Message> = Sim::new(
        1,
        |message| message.len() as u64,
        Box::new(|names, _, _| Some((names.find("path")?, Backward))),
    );
    let link = sim.link(Link::default());
    let id = sim
        .create(path(&[("delay_us", "100"), ("hold", "1000")]).into_path())
        .unwrap();
    for sequence in 0..50 {
        sim.at(Time(sequence * 10_000), move |sim| {
            sim.send(link, Message::of_frame(&probe(sequence)));
        });
    }
    sim.run(Time(300_000));
    let path = sim.engine.path(id).unwrap();
    books_close(path);
    let account = path.account();
    let kept = account.absorbed() - account.originated;
    assert!(
        account.originated > 10 && (5..=15).contains(&kept),
        "{kept}"
    );
    assert!(sim.remove(id, Count::DroppedFault));
    sim.run(Time(u64::MAX));
    assert_eq!(sim.engine.census().paths, 0);
}

#[test]
fn what_is_impossible_is_refused() {
    let graph = graph(Settings::default());
    for (name, value) in [("loss_ppm", "1000001"), ("hold", "4097")] {
        let said = create(&graph, "sink", attrs(&[(name, value)]), false);
        let said = said.err().unwrap();
        assert!(
            said.contains(&format!("`{name}` is {value}; give it a number")),
            "{said}"
        );
    }
    // What is kept counts against the path's memory.
    let greedy = attrs(&[("delay_us", "1"), ("hold", "4096")]);
    let said = create(&graph, "sink", greedy, false).err().unwrap();
    assert!(said.contains("most of it goes to stage `bad`"), "{said}");
}

#[test]
fn the_modules_settings_are_what_attributes_change() {
    let graph = graph(Settings {
        loss_ppm: 1_000_000,
        ..Settings::default()
    });
    for (attrs, fate) in [
        (Attrs::new(), Count::DroppedFault),
        (attrs(&[("loss_ppm", "0")]), Count::Consumed),
    ] {
        let mut path = create(&graph, "sink", attrs, true).unwrap();
        assert_eq!(world::fate(&mut path, Backward, &probe(0)), fate);
    }
}
