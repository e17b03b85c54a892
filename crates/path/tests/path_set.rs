//! Many paths: ids, names, a message that goes through two of them, a census.

use std::collections::HashSet;
use std::sync::mpsc::sync_channel;

use ashway_abi::Count;
use ashway_path::path::{Exit, Limits};
use ashway_path::set::{MAX_CROSSINGS, Paths};
use ashway_path::stage::{Direction::Backward, Direction::Forward, Step};
use ashway_path::time::Time;

mod stages;
use stages::{limited, on, path, stage};

const NOW: Time = Time(0);

#[test]
fn ten_thousand_come_and_go_and_no_id_means_another() {
    let mut paths: Paths<u32> = Paths::new();
    let mut ids = Vec::new();
    for at in 0..10_000 {
        let path = path(&format!("p{at}"), vec![on("ip"), on("eth")]);
        ids.push(paths.insert(path).unwrap());
    }
    assert_eq!(paths.len(), 10_000);
    assert_eq!(paths.census().stages["eth"], 10_000);
    for id in ids.iter().step_by(2) {
        assert!(paths.remove(*id).is_some());
        assert!(paths.remove(*id).is_none());
    }
    let before: HashSet<_> = ids.iter().copied().collect();
    for at in 0..5_000 {
        let id = paths
            .insert(path(&format!("q{at}"), vec![on("ip")]))
            .unwrap();
        assert!(!before.contains(&id), "{id} was there before");
    }
    let census = paths.census();
    assert_eq!((census.paths, census.created), (10_000, 15_000));
    assert_eq!((census.stages["ip"], census.stages["eth"]), (10_000, 5_000));
    for (at, id) in ids.iter().enumerate() {
        let found = paths.path(*id).map(|path| path.name().to_owned());
        assert_eq!(found, (at % 2 == 1).then(|| format!("p{at}")));
        assert_eq!(paths.path_mut(*id).is_some(), at % 2 == 1);
        assert_eq!(paths.find(&format!("p{at}")), (at % 2 == 1).then_some(*id));
    }
    let all: Vec<_> = paths.iter().map(|(id, _)| id).collect();
    for id in all {
        paths.remove(id);
    }
    let census = paths.census();
    assert!(paths.is_empty() && census.stages.is_empty());
    assert_eq!(census.memory_bytes, 0);
}

/// 100,000 paths of six stages are to fit into 250 MB; `examples/cost.rs`
/// measures what the allocator adds.
#[test]
fn a_path_is_light() {
    let stages = (0..6).map(|_| on::<Box<[u8; 64]>>("stage")).collect();
    let path = path("path-12345", stages);
    assert!(size_of_val(&path) <= 640, "{}", size_of_val(&path));
    assert!(path.memory_bytes() <= 1024, "{}", path.memory_bytes());
}

#[test]
fn a_place_is_used_again() {
    let mut paths: Paths<u32> = Paths::new();
    for life in 0..50_000 {
        let id = paths.insert(path("p", vec![on("a")])).unwrap();
        assert_eq!(id.to_string(), format!("0.{life}"));
        paths.remove(id);
    }
    assert_eq!(paths.census().created, 50_000);
    assert_eq!(paths.census().memory_bytes, 0);
}

#[test]
fn a_name_belongs_to_one() {
    let mut paths: Paths<u32> = Paths::new();
    let id = paths.insert(path("video", vec![on("a")])).unwrap();
    let taken = paths.insert(path("video", vec![on("b")])).unwrap_err();
    assert_eq!(taken.by, id);
    assert!(taken.to_string().contains("`video`"));
    assert_eq!(paths.census().stages.len(), 1);
    paths.remove(id);
    assert!(paths.insert(path("video", vec![on("b")])).is_ok());
}

#[test]
fn two_paths_between_the_same_ends_have_policies_of_their_own() {
    let mut paths: Paths<u32> = Paths::new();
    let drop = stage("policy", |message, _, _| {
        Step::End(message, Count::DroppedHandler)
    });
    let strict = paths
        .insert(path("strict", vec![on("up"), drop, on("eth0")]))
        .unwrap();
    let easy = paths
        .insert(path("easy", vec![on("up"), on("policy"), on("eth0")]))
        .unwrap();
    for id in [strict, easy, easy] {
        paths.pass(id, Backward, 1, NOW, &mut |_, _| None);
    }
    let fate = |id, fate| paths.path(id).unwrap().account().fate(fate);
    assert_eq!(fate(strict, Count::DroppedHandler), 1);
    assert_eq!(fate(easy, Count::Forwarded), 2);
}

/// How often this thread has given up the processor of its own accord.
fn switches() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").expect("this is Linux");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.and_then(|count| count.trim().parse().ok())
        .expect("it is a number")
}

#[test]
fn a_message_goes_through_two_paths_without_a_switch() {
    let mut paths: Paths<u32> = Paths::new();
    let low = paths
        .insert(path("low", vec![on("ip"), on("eth")]))
        .unwrap();
    let add = stage("mpeg", |message, _, _| Step::On(message + 1));
    let high = paths.insert(path("high", vec![add, on("udp")])).unwrap();
    let mut route = |from, exit| match exit {
        Exit::Left { message, .. } if from == low => Some((high, Backward, message)),
        Exit::Left { message, .. } => {
            assert_eq!(message, 8);
            None
        }
        Exit::Ended { .. } => panic!("nothing ends"),
    };
    let before = switches();
    for _ in 0..100_000 {
        paths.path_mut(low).unwrap().offer(Backward, 7).unwrap();
        assert!(paths.run(low, Backward, NOW, &mut route));
    }
    let crossing = switches() - before;
    assert!(crossing < 10, "{crossing} switches");
    assert_eq!(
        paths.path(low).unwrap().account().fate(Count::Forwarded),
        100_000
    );
    assert_eq!(paths.path(high).unwrap().account().received(), 100_000);
    assert_eq!(paths.path(high).unwrap().waiting(), 0);

    // The same from thread to thread, so that it is known that the counter
    // counts.
    let (there, taken) = sync_channel(0);
    let (back, given) = sync_channel(0);
    let other = std::thread::spawn(move || taken.iter().for_each(|at: u32| back.send(at).unwrap()));
    let before = switches();
    for at in 0..1000 {
        there.send(at).unwrap();
        assert_eq!(given.recv(), Ok(at));
    }
    drop(there);
    other.join().unwrap();
    assert!(switches() - before > 100);
}

#[test]
fn a_crossing_message_overtakes_nobody() {
    let mut paths: Paths<u32> = Paths::new();
    let low = paths.insert(path("low", vec![on("ip")])).unwrap();
    let limits = Limits {
        queue: [0, 2, 0, 0],
        ..Limits::default()
    };
    let high = limited("high", vec![on("udp")], limits);
    let high = paths.insert(high).unwrap();
    let mut out = Vec::new();
    let mut route = |from, exit| match exit {
        Exit::Left { message, .. } if from == low => Some((high, Backward, message)),
        Exit::Left { message, .. } => {
            out.push((message, Count::Forwarded));
            None
        }
        Exit::Ended { message, fate } => {
            out.push((message, fate));
            None
        }
    };
    paths.path_mut(high).unwrap().offer(Backward, 1).unwrap();
    paths.pass(low, Backward, 2, NOW, &mut route);
    paths.pass(low, Backward, 3, NOW, &mut route);
    while paths.run(high, Backward, NOW, &mut route) {}
    paths.pass(low, Backward, 4, NOW, &mut route);
    let done = Count::Forwarded;
    assert_eq!(
        out,
        [
            (3, Count::DroppedQueueFull),
            (1, done),
            (2, done),
            (4, done)
        ]
    );
    let account = paths.path(high).unwrap().account();
    assert_eq!((account.received(), account.open()), (4, 0));
}

#[test]
fn paths_that_lead_in_a_circle_are_stopped() {
    let mut paths: Paths<u32> = Paths::new();
    let a = paths.insert(path("a", vec![on("x")])).unwrap();
    let b = paths.insert(path("b", vec![on("x")])).unwrap();
    let mut ended = Vec::new();
    paths.pass(a, Forward, 1, NOW, &mut |from, exit| match exit {
        Exit::Left { message, .. } => Some((if from == a { b } else { a }, Forward, message)),
        Exit::Ended { message, fate } => {
            ended.push((message, fate));
            // An answer to an end means nothing.
            Some((a, Forward, message))
        }
    });
    assert_eq!(ended, [(1, Count::DroppedNoNextHop)]);
    assert_eq!(paths.census().circles, 1);
    let received = |id| paths.path(id).unwrap().account().received();
    assert_eq!(received(a) + received(b), u64::from(MAX_CROSSINGS) + 1);
    for id in [a, b] {
        assert_eq!(paths.path(id).unwrap().account().open(), 0);
    }
}

#[test]
fn a_message_for_a_path_that_is_gone_comes_back() {
    let mut paths: Paths<u32> = Paths::new();
    let gone = paths.insert(path("gone", vec![on("x")])).unwrap();
    paths.remove(gone);
    paths.insert(path("other", vec![on("x")])).unwrap();
    let mut out = Vec::new();
    paths.pass(gone, Forward, 1, NOW, &mut |id, exit| {
        out.push((id, exit));
        None
    });
    let fate = Count::DroppedNoNextHop;
    assert_eq!(out, [(gone, Exit::Ended { message: 1, fate })]);
    assert_eq!(paths.census().strays, 1);
    assert!(!paths.run(gone, Forward, NOW, &mut |_, _| None));
    let other = paths.find("other").unwrap();
    assert_eq!(paths.path(other).unwrap().account().received(), 0);
}
