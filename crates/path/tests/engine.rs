//! The engine: ids, a message that goes through two paths, shares, timers, a stage that
//! panics, whose the time was.

use std::collections::{BTreeMap, HashSet};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use ashway_abi::Count;
use ashway_abi::share::{Mode, Terms};
use ashway_path::engine::{Census, Engine, From, Full, MAX_CROSSINGS, Requeued, Shell};
use ashway_path::path::{Exit, Limits, Path, Trail};
use ashway_path::places::{Ids, PathId};
use ashway_path::sched::drr::{Drr, QUANTUM};
use ashway_path::sched::fifo::Fifo;
use ashway_path::sched::share::ShareAccount;
use ashway_path::stage::{Cx, Direction, Direction::Backward, Direction::Forward, Stage, Step};
use ashway_path::time::Time;
use ashway_path::watch::Nobody;

mod stages;
use stages::{limited, on, path, stage};

/// What is around an engine in these tests: paths lead into each other, and a run of a
/// path takes as long as is said.
#[derive(Default)]
struct Around {
    now: Time,
    /// CPU time is so many thousandths of time.
    cpu_per_mille: u32,
    costs: BTreeMap<PathId, Duration>,
    next: BTreeMap<PathId, PathId>,
    out: Vec<(PathId, Exit<u32>)>,
    strays: Vec<u32>,
    failed: Vec<(PathId, String)>,
    done: Vec<u32>,
    trails: Vec<Trail>,
}

impl Shell<u32, ()> for Around {
    type Watch = Nobody;

    fn now(&mut self) -> Time {
        self.now
    }

    fn cpu_time(&mut self) -> Duration {
        Duration::from_nanos(self.now.0) * self.cpu_per_mille / 1000
    }

    fn watch(&mut self, _: &Path<u32>, (): &(), _: Option<&u32>) -> Nobody {
        Nobody
    }

    fn exit(&mut self, from: From<'_, ()>, exit: Exit<u32>) -> Option<Requeued<u32>> {
        self.trails.push(from.trail);
        if let Some(next) = self.next.get(&from.path) {
            match exit {
                Exit::Left {
                    message, direction, ..
                } => return Some(onward(*next, direction, message)),
                // An answer to an end means nothing.
                Exit::Ended { message, .. } => {
                    self.out.push((from.path, exit));
                    return Some(onward(*next, Forward, message));
                }
            }
        }
        self.out.push((from.path, exit));
        None
    }

    fn done(&mut self, ticket: NonZeroU32) {
        self.done.push(ticket.get());
    }

    fn ran(&mut self, path: PathId, _: &mut Path<u32>, (): &mut ()) {
        let cost = self.costs.get(&path).copied().unwrap_or_default();
        self.now = self.now + cost;
    }

    fn stray(&mut self, message: u32, trail: Trail) {
        assert_eq!(trail.paths, 1);
        self.strays.push(message);
    }

    fn failed(&mut self, path: PathId, body: &Path<u32>) {
        let fault = body.account().fault.as_ref().expect("it has failed");
        self.failed.push((path, fault.to_string()));
    }
}

impl Around {
    fn new() -> Self {
        Self {
            cpu_per_mille: 1000,
            ..Self::default()
        }
    }

    /// The messages that came out, and how.
    fn came(&self) -> Vec<(u32, Option<Count>)> {
        let came = self.out.iter().map(|(_, exit)| match exit {
            Exit::Left { message, .. } => (*message, None),
            Exit::Ended { message, fate, .. } => (*message, Some(*fate)),
        });
        came.collect()
    }
}

fn onward(path: PathId, direction: Direction, message: u32) -> Requeued<u32> {
    Requeued {
        path,
        direction,
        message,
        ticket: None,
    }
}

fn ticket(number: u32) -> Trail {
    Trail {
        ticket: NonZeroU32::new(number),
        ..Trail::default()
    }
}

/// An engine whose paths have ids from one place.
struct World<P> {
    engine: Engine<u32, (), P>,
    ids: Ids,
}

impl<P: ashway_path::sched::Policy + Default> World<P> {
    fn new() -> Self {
        Self {
            engine: Engine::default(),
            ids: Ids::default(),
        }
    }

    fn add(&mut self, path: Path<u32>) -> PathId {
        self.add_sharing(path, None)
    }

    fn add_sharing(&mut self, path: Path<u32>, share: Option<Arc<ShareAccount>>) -> PathId {
        let id = self.ids.take();
        self.engine.insert(id, path, (), share);
        id
    }

    fn offer(&mut self, id: PathId, message: u32, now: Time) -> Result<(), (u32, Full)> {
        let trail = Trail::default();
        self.engine.offer(id, Backward, message, trail, now)
    }

    fn remove(&mut self, id: PathId) -> bool {
        let mut around = Around::new();
        let removed = self
            .engine
            .remove(id, Count::DroppedNoEndpoint, &mut around);
        self.ids.give_back(id);
        removed.is_some()
    }

    fn fate(&self, id: PathId, fate: Count) -> u64 {
        self.engine
            .path(id)
            .expect("it is there")
            .account()
            .fate(fate)
    }
}

#[test]
fn ten_thousand_come_and_go_and_no_id_means_another() {
    let mut world = World::<Drr>::new();
    let two = |at| path(&format!("p{at}"), vec![on("ip"), on("eth")]);
    let ids: Vec<PathId> = (0..10_000).map(|at| world.add(two(at))).collect();
    assert_eq!(world.engine.census().stages, 20_000);
    for id in ids.iter().step_by(2) {
        assert!(world.remove(*id));
        assert!(!world.remove(*id));
    }
    let before: HashSet<_> = ids.iter().copied().collect();
    for at in 0..5_000 {
        let id = world.add(path(&format!("q{at}"), vec![on("ip")]));
        assert!(!before.contains(&id), "{id} was there before");
    }
    let census = world.engine.census();
    assert_eq!((census.paths, census.stages), (10_000, 15_000));
    for (at, id) in ids.iter().enumerate() {
        let found = world.engine.path(*id).map(|path| path.name().to_owned());
        assert_eq!(found, (at % 2 == 1).then(|| format!("p{at}")));
    }
    let all: Vec<_> = world.engine.iter().map(|(id, _)| id).collect();
    for id in all {
        world.remove(id);
    }
    assert!(world.engine.is_empty());
    assert_eq!(world.engine.census(), Census::default());
}

/// 100,000 paths of six stages are to fit into 250 MB; `examples/cost.rs`
/// measures what the allocator adds.
#[test]
fn a_path_is_light() {
    let stages = (0..6).map(|_| on::<Box<[u8; 64]>>("stage")).collect();
    let path = path("path-12345", stages);
    assert!(size_of_val(&path) <= 660, "{}", size_of_val(&path));
    assert!(path.memory_bytes() <= 1024, "{}", path.memory_bytes());
}

#[test]
fn a_place_is_used_again() {
    let mut world = World::<Drr>::new();
    for life in 0..50_000 {
        let id = world.add(path("p", vec![on("a")]));
        assert_eq!(id.to_string(), format!("0.{life}"));
        world.offer(id, 1, Time(0)).unwrap();
        world.remove(id);
    }
    assert_eq!(world.engine.census(), Census::default());
    // Nothing of those that went is picked.
    assert!(!world.engine.turn(&mut Around::new()));
}

#[test]
fn two_paths_between_the_same_ends_have_policies_of_their_own() {
    let mut world = World::<Fifo>::new();
    let drop = stage("policy", |message, _, _| {
        Step::End(message, Count::DroppedHandler)
    });
    let strict = world.add(path("strict", vec![on("up"), drop, on("eth0")]));
    let easy = world.add(path("easy", vec![on("up"), on("policy"), on("eth0")]));
    for id in [strict, easy, easy] {
        world.offer(id, 1, Time(0)).unwrap();
    }
    while world.engine.turn(&mut Around::new()) {}
    assert_eq!(world.fate(strict, Count::DroppedHandler), 1);
    assert_eq!(world.fate(easy, Count::Forwarded), 2);
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
    let mut world = World::<Drr>::new();
    let low = world.add(path("low", vec![on("ip"), on("eth")]));
    let add = stage("mpeg", |message, _, _| Step::On(message + 1));
    let high = world.add(path("high", vec![add, on("udp")]));
    let mut around = Around::new();
    around.next.insert(low, high);
    let before = switches();
    for _ in 0..100_000 {
        world.offer(low, 7, Time(0)).unwrap();
        assert!(world.engine.turn(&mut around));
        assert_eq!(around.came(), [(8, None)]);
        around.out.clear();
    }
    let crossing = switches() - before;
    assert!(crossing < 10, "{crossing} switches");
    assert_eq!(world.fate(low, Count::Forwarded), 100_000);
    assert_eq!(world.fate(high, Count::Forwarded), 100_000);
    assert_eq!(world.engine.waiting(), 0);

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
    let mut world = World::<Fifo>::new();
    let low = world.add(path("low", vec![on("ip")]));
    let limits = Limits {
        queue: [0, 2, 0, 0],
        ..Limits::default()
    };
    let high = world.add(limited("high", vec![on("udp")], limits));
    let mut around = Around::new();
    around.next.insert(low, high);
    for (id, message) in [(low, 2), (low, 3), (high, 1), (low, 4)] {
        world.offer(id, message, Time(0)).unwrap();
    }
    while world.engine.turn(&mut around) {}
    // 2 and 3 found one that waited, and 3 a full queue.
    let full = Some(Count::DroppedQueueFull);
    assert_eq!(around.came(), [(3, full), (1, None), (2, None), (4, None)]);
    let account = world.engine.path(high).unwrap().account();
    assert_eq!((account.received(), account.open()), (4, 0));
}

#[test]
fn paths_that_lead_in_a_circle_are_stopped() {
    let mut world = World::<Drr>::new();
    let a = world.add(path("a", vec![on("x")]));
    let b = world.add(path("b", vec![on("x")]));
    let mut around = Around::new();
    around.next.extend([(a, b), (b, a)]);
    world.offer(a, 1, Time(0)).unwrap();
    while world.engine.turn(&mut around) {}
    assert_eq!(around.came(), [(1, Some(Count::DroppedNoNextHop))]);
    assert_eq!(world.engine.census().circles, 1);
    let account = |id| world.engine.path(id).unwrap().account();
    let received = account(a).received() + account(b).received();
    assert_eq!(received, u64::from(MAX_CROSSINGS) + 1);
    assert_eq!(account(a).open() + account(b).open(), 0);
}

#[test]
fn a_message_for_a_path_that_is_gone_comes_back() {
    let mut world = World::<Drr>::new();
    let gone = world.add(path("gone", vec![on("x")]));
    world.remove(gone);
    let other = world.add(path("other", vec![on("x")]));
    assert_eq!(world.offer(gone, 1, Time(0)), Err((1, Full::NoPath)));
    let mut around = Around::new();
    around.next.insert(other, gone);
    world.offer(other, 2, Time(0)).unwrap();
    while world.engine.turn(&mut around) {}
    assert_eq!(around.strays, [2]);
    assert_eq!(world.engine.census().strays, 1);
}

#[test]
fn what_waits_when_a_path_goes_has_a_fate_and_its_ticket_comes_back() {
    let mut world = World::<Drr>::new();
    let id = world.add(path("p", vec![on("x")]));
    for (message, trail) in [(1, ticket(7)), (2, Trail::default()), (3, ticket(8))] {
        let offered = world.engine.offer(id, Backward, message, trail, Time(0));
        assert_eq!(offered, Ok(()));
    }
    let mut around = Around::new();
    let gone = world
        .engine
        .remove(id, Count::DroppedNoEndpoint, &mut around);
    let (path, ()) = gone.expect("it was there");
    assert_eq!(path.account().fate(Count::DroppedNoEndpoint), 3);
    assert_eq!(around.came().len(), 3);
    assert_eq!(around.done, [7, 8]);
    assert_eq!(world.engine.waiting(), 0);
}

#[test]
fn a_ticket_is_given_back_behind_the_first_path() {
    let mut world = World::<Drr>::new();
    let low = world.add(path("low", vec![on("x")]));
    let high = world.add(path("high", vec![on("x")]));
    world.engine.set_host_copy(low, true);
    let mut around = Around::new();
    around.next.insert(low, high);
    let offered = world.engine.offer(low, Forward, 1, ticket(7), Time(0));
    assert_eq!(offered, Ok(()));
    while world.engine.turn(&mut around) {}
    assert_eq!(around.done, [7]);
    let seen: Vec<_> = around
        .trails
        .iter()
        .map(|trail| (trail.paths, trail.host_copy))
        .collect();
    assert_eq!(seen, [(1, true), (2, true)]);
}

/// The first of two paths has messages of 40 us, the other of 1 us: each gets half of the
/// time, and each its own time on its account.
#[test]
fn time_is_shared_and_charged_to_who_used_it() {
    let mut world = World::<Drr>::new();
    let limits = Limits {
        queue: [0, 10_000, 0, 0],
        memory_bytes: 1 << 20,
    };
    let slow = world.add(limited("slow", vec![on("x")], limits));
    let fast = world.add(limited("fast", vec![on("x")], limits));
    let mut around = Around::new();
    around.costs.insert(slow, Duration::from_micros(40));
    around.costs.insert(fast, Duration::from_micros(1));
    // They alternate, so that a sample of every other message sees one of them only.
    for message in 0..8_000 {
        world.offer(slow, message, Time(0)).unwrap();
        world.offer(fast, message, Time(0)).unwrap();
    }
    while around.now < Time(0) + 100 * QUANTUM {
        assert!(world.engine.turn(&mut around));
        world.engine.settle(&mut around);
    }
    world.engine.pause(&mut around);
    let time = |id| world.engine.path(id).unwrap().account().time;
    assert_eq!(time(slow) + time(fast), around.now.since(Time(0)));
    let runs = |id| world.engine.path(id).unwrap().account().runs as u32;
    assert_eq!(time(slow), Duration::from_micros(40) * runs(slow));
    assert_eq!(time(fast), Duration::from_micros(1) * runs(fast));
    // A turn of cheap messages is a batch, so the fast path has less than half.
    assert!(
        time(fast) * 3 > time(slow),
        "{:?} {:?}",
        time(fast),
        time(slow)
    );
}

#[test]
fn time_that_another_thread_had_is_not_charged() {
    let mut world = World::<Drr>::new();
    let id = world.add(path("p", vec![on("x")]));
    let mut around = Around::new();
    around.cpu_per_mille = 250;
    around.costs.insert(id, Duration::from_millis(2));
    // Until the CPU clock has been read there is nothing to compare with.
    world.engine.settle(&mut around);
    for _ in 0..4 {
        world.offer(id, 1, around.now).unwrap();
        assert!(world.engine.turn(&mut around));
        world.engine.settle(&mut around);
    }
    let account = world.engine.path(id).unwrap().account();
    assert_eq!(account.time, Duration::from_millis(2));
}

#[test]
fn a_crossing_is_charged_to_the_path_that_it_leads_to() {
    let mut world = World::<Drr>::new();
    let low = world.add(path("low", vec![on("x")]));
    let high = world.add(path("high", vec![on("x")]));
    let mut around = Around::new();
    around.next.insert(low, high);
    around.costs.insert(low, Duration::from_micros(3));
    around.costs.insert(high, Duration::from_micros(20));
    world.offer(low, 1, Time(0)).unwrap();
    while world.engine.turn(&mut around) {}
    world.engine.pause(&mut around);
    let time = |id| world.engine.path(id).unwrap().account().time;
    assert_eq!(time(low), Duration::from_micros(3));
    assert_eq!(time(high), Duration::from_micros(20));
}

/// Its share used up, a path waits; 32 messages have room, and all that waited run in
/// order when it is paid for.
#[test]
fn a_share_holds_a_path_back_and_nobody_else() {
    let mut world = World::<Drr>::new();
    let share = Arc::new(ShareAccount::of_modules(Terms::new(100, None)));
    let limits = Limits {
        queue: [0, 1000, 0, 0],
        memory_bytes: 1 << 20,
    };
    let shared = limited("shared", vec![on("x")], limits);
    let shared = world.add_sharing(shared, Some(Arc::clone(&share)));
    let other = world.add(limited("other", vec![on("x")], limits));
    let mut around = Around::new();
    around.now = Time(1_000_000_000);
    for id in [shared, other] {
        around.costs.insert(id, Duration::from_micros(10));
    }
    let begin = around.now;
    let (mut dropped, mut most) = (0, 0);
    for message in 0..20_000 {
        for id in [shared, other] {
            match world.offer(id, message, around.now) {
                Ok(()) => {}
                Err((_, full)) => {
                    assert_eq!((id, full), (shared, Full::Dropped(Count::DroppedOverShare)));
                    dropped += 1;
                }
            }
        }
        while world.engine.path(other).unwrap().waiting() > 0 {
            assert!(world.engine.turn(&mut around));
        }
        most = most.max(world.engine.path(shared).unwrap().waiting());
    }
    assert_eq!(most, 32);
    assert_eq!(world.fate(other, Count::Forwarded), 20_000);
    assert_eq!(share.mode(around.now.0), Mode::Lazy);
    // A tenth of the time in runs of 10 us, and what the bucket lets run ahead.
    let time = around.now.since(begin).as_micros() as u64;
    let ran = world.fate(shared, Count::Forwarded);
    assert!(
        (time / 100..time / 100 + 50).contains(&ran),
        "{ran} in {time} us"
    );
    // The rest runs when the clock says so, and not before.
    let due = world.engine.due_at().expect("a path waits for its share");
    assert!(due > around.now && !world.engine.turn(&mut around));
    while let Some(due) = world.engine.due_at() {
        around.now = due;
        while world.engine.turn(&mut around) {}
    }
    let account = world.engine.path(shared).unwrap().account();
    assert_eq!((account.open(), account.received()), (0, 20_000));
    assert_eq!(account.fate(Count::DroppedOverShare), dropped);
    let left = around.out.iter().filter(|(id, _)| *id == shared);
    let left: Vec<_> = left
        .filter_map(|(_, exit)| match exit {
            Exit::Left { message, .. } => Some(*message),
            Exit::Ended { .. } => None,
        })
        .collect();
    assert!(left.is_sorted() && left.len() as u64 + dropped == 20_000);
}

#[test]
fn shares_that_are_opened_hold_nobody_back() {
    let mut world = World::<Fifo>::new();
    let share = Arc::new(ShareAccount::of_modules(Terms::new(1, None)));
    let shared = world.add_sharing(path("p", vec![on("x")]), Some(share));
    let mut around = Around::new();
    around.now = Time(1_000_000_000);
    around.costs.insert(shared, Duration::from_millis(1));
    for message in 0..20 {
        world.offer(shared, message, around.now).unwrap();
    }
    while world.engine.turn(&mut around) {}
    assert!(around.out.len() < 20);
    world.engine.open_shares(around.now);
    while world.engine.turn(&mut around) {}
    assert_eq!(
        around.came(),
        (0..20).map(|at| (at, None)).collect::<Vec<_>>()
    );
}

/// Sends one message each 10 us, once a message has come.
struct Beat;

impl Stage<u32> for Beat {
    fn name(&self) -> &'static str {
        "beat"
    }

    fn take(&mut self, message: u32, _: Direction, cx: &mut Cx<'_, u32>) -> Step<u32> {
        *cx.wake_at = Some(cx.now + Duration::from_micros(10));
        Step::On(message)
    }

    fn wake(&mut self, cx: &mut Cx<'_, u32>) {
        cx.also.push((Forward, cx.now.0 as u32));
        *cx.wake_at = Some(cx.now + Duration::from_micros(10));
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

#[test]
fn timers_run_when_they_are_due_and_are_charged() {
    let mut world = World::<Drr>::new();
    let id = world.add(path("p", vec![Box::new(Beat)]));
    let mut around = Around::new();
    around.costs.insert(id, Duration::from_micros(1));
    assert_eq!(world.engine.due_at(), None);
    world.offer(id, 1, Time(0)).unwrap();
    assert!(world.engine.turn(&mut around));
    for _ in 0..5 {
        let due = world.engine.due_at().expect("it beats");
        assert!(!world.engine.wake(&mut around));
        around.now = due;
        assert!(world.engine.wake(&mut around));
    }
    world.engine.pause(&mut around);
    let account = world.engine.path(id).unwrap().account();
    assert_eq!((account.originated, account.runs), (5, 6));
    assert_eq!(account.time, Duration::from_micros(6));
    world.remove(id);
    around.now = Time(u64::MAX);
    assert!(!world.engine.wake(&mut around));
}

/// Panics at 13, sends a message beside each other one.
fn unlucky() -> Box<dyn Stage<u32>> {
    stage("unlucky", |message, direction, cx: &mut Cx<'_, u32>| {
        cx.also.push((direction, message + 100));
        assert!(message != 13, "13 came");
        Step::On(message)
    })
}

#[test]
fn a_stage_that_panics_ends_its_path_and_no_other() {
    let mut world = World::<Fifo>::new();
    let bad = world.add(path("bad", vec![on("udp"), unlucky(), on("eth")]));
    let good = world.add(path("good", vec![on("eth")]));
    let mut around = Around::new();
    for message in [12, 13, 14] {
        let trail = ticket(message);
        let offered = world.engine.offer(bad, Backward, message, trail, Time(0));
        assert_eq!(offered, Ok(()));
        world.offer(good, message, Time(0)).unwrap();
    }
    while world.engine.turn(&mut around) {}
    let fault = Some(Count::DroppedFault);
    assert_eq!(
        around.came(),
        [
            (12, None),
            (112, None),
            (12, None),
            (14, fault),
            (13, None),
            (14, None)
        ]
    );
    let account = world.engine.path(bad).unwrap().account();
    assert_eq!((account.open(), account.fate(Count::DroppedFault)), (0, 2));
    assert_eq!(account.originated, account.left + account.ended);
    let words = "stage `unlucky` at position 1 panicked; the path runs no more";
    assert_eq!(around.failed, [(bad, words.to_owned())]);
    assert_eq!(around.done, [12, 13, 14]);
    // What comes later is dropped and counted, and no stage sees it.
    let late = world.offer(bad, 15, Time(0));
    assert_eq!(late, Err((15, Full::Dropped(Count::DroppedFault))));
    assert_eq!(world.fate(bad, Count::DroppedFault), 3);
    assert!(world.remove(bad));
}

/// A message that has left the path before the panic still goes on.
#[test]
fn what_has_left_before_a_panic_goes_on() {
    let mut world = World::<Drr>::new();
    let twice = stage("twice", |message, direction, cx: &mut Cx<'_, u32>| {
        cx.also.push((direction, 13));
        Step::On(message)
    });
    let bad = world.add(path("bad", vec![unlucky(), twice]));
    let next = world.add(path("next", vec![on("x")]));
    let mut around = Around::new();
    around.next.insert(bad, next);
    world.offer(bad, 1, Time(0)).unwrap();
    while world.engine.turn(&mut around) {}
    assert_eq!(around.came(), [(1, None), (101, None)]);
    assert_eq!(around.failed.len(), 1);
    let account = world.engine.path(bad).unwrap().account();
    assert_eq!((account.open(), account.ended), (0, 1));
}
