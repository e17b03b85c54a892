//! The engine's seeded bugs: each has to turn a property false. More of what the engine
//! does is in `tests/engine.rs`, and what `cargo xtask mutants` found untested is in
//! `admission`, `turns` and `timers`.

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use ashway_abi::Count;
use ashway_abi::share::Terms;

use super::{Engine, From, Requeued, Shell, WAKING};
use crate::attrs::Attrs;
use crate::bug::{self, Bug};
use crate::path::{Exit, Limits, Path, Trail};
use crate::places::{Ids, PathId};
use crate::sched::drr::Drr;
use crate::sched::share::ShareAccount;
use crate::stage::{Cx, Direction, Direction::Backward, Stage, Step, Traits};
use crate::time::Time;
use crate::watch::Nobody;

mod admission;
mod aside;
mod outputs;
mod timers;
mod turns;

/// Panics at 13, and lets everything else go on.
struct Plain;

impl Stage<u32> for Plain {
    fn name(&self) -> &'static str {
        "plain"
    }

    fn take(&mut self, message: u32, _: Direction, _: &mut Cx<'_, u32>) -> Step<u32> {
        assert!(message != 13, "13 came");
        Step::On(message)
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

/// Does this when it is woken, for the first time at once.
struct Woken(fn(&mut Cx<'_, u32>));

impl Stage<u32> for Woken {
    fn name(&self) -> &'static str {
        "woken"
    }

    fn traits(&self) -> Traits {
        Traits {
            starts: true,
            ..Traits::default()
        }
    }

    fn take(&mut self, message: u32, _: Direction, _: &mut Cx<'_, u32>) -> Step<u32> {
        Step::On(message)
    }

    fn wake(&mut self, cx: &mut Cx<'_, u32>) {
        (self.0)(cx);
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

/// Has something to do at any time.
fn busy() -> Box<dyn Stage<u32>> {
    Box::new(Woken(|cx| *cx.wake_at = Some(cx.now)))
}

/// What leaves the first path goes on to the second, with a ticket; the thread has half of
/// the time.
#[derive(Default)]
struct Around {
    now: Time,
    /// What a run takes.
    cost: Duration,
    lead: Option<(PathId, PathId)>,
    out: VecDeque<u32>,
    /// What has ended within a path.
    ended: Vec<(PathId, u32, Count)>,
    /// With what each message came out.
    trails: Vec<Trail>,
    tickets: u32,
    failed: u32,
    /// A path that may not run.
    kept_back: Option<PathId>,
    /// How often each clock was read.
    looks: u32,
    cpu_looks: u32,
}

impl Shell<u32, ()> for Around {
    type Watch = Nobody;

    fn now(&mut self) -> Time {
        self.looks += 1;
        self.now
    }

    fn cpu_time(&mut self) -> Duration {
        self.cpu_looks += 1;
        Duration::from_nanos(self.now.0 / 2)
    }

    fn may_run(&mut self, path: PathId, (): &mut ()) -> bool {
        self.kept_back != Some(path)
    }

    fn watch(&mut self, _: &Path<u32>, (): &(), _: Option<&u32>) -> Nobody {
        Nobody
    }

    fn exit(&mut self, from: From<'_, ()>, exit: Exit<u32>) -> Option<Requeued<u32>> {
        self.trails.push(from.trail);
        match (exit, self.lead) {
            (Exit::Ended { message, fate, .. }, _) => {
                self.ended.push((from.path, message, fate));
            }
            (Exit::Left { message, .. }, Some((low, path))) if low == from.path => {
                return Some(Requeued {
                    path,
                    direction: Backward,
                    message,
                    ticket: NonZeroU32::new(2),
                });
            }
            (Exit::Left { message, .. }, _) => self.out.push_back(message),
        }
        None
    }

    fn done(&mut self, _: NonZeroU32) {
        self.tickets += 1;
    }

    fn ran(&mut self, _: PathId, _: &mut Path<u32>, (): &mut ()) {
        self.now = self.now + self.cost;
    }

    fn stray(&mut self, _: u32, _: Trail) {}
    fn failed(&mut self, _: PathId, _: &Path<u32>) {
        self.failed += 1;
    }
}

struct World {
    engine: Engine<u32, (), Drr>,
    around: Around,
    ids: Ids,
}

impl World {
    fn new() -> Self {
        let around = Around {
            now: Time(1_000_000_000),
            cost: Duration::from_micros(10),
            ..Around::default()
        };
        Self {
            engine: Engine::default(),
            around,
            ids: Ids::default(),
        }
    }

    fn add(&mut self, share: Option<Arc<ShareAccount>>) -> PathId {
        self.put(vec![Box::new(Plain)], share)
    }

    fn put(
        &mut self,
        stages: Vec<Box<dyn Stage<u32>>>,
        share: Option<Arc<ShareAccount>>,
    ) -> PathId {
        let limits = Limits {
            queue: [0, 1000, 0, 0],
            ..Limits::default()
        };
        let mut path = Path::assemble("p", stages, Attrs::new(), limits).expect("enough memory");
        path.establish().expect("nothing to establish");
        let id = self.ids.take();
        self.engine.insert(id, path, (), share);
        id
    }

    fn offer(&mut self, id: PathId, message: u32) -> bool {
        let trail = Trail {
            ticket: NonZeroU32::new(1),
            ..Trail::default()
        };
        let now = self.around.now;
        let offered = self.engine.offer(id, Backward, message, trail, now);
        offered.is_ok()
    }

    /// Runs all that may run. A test that never ends says nothing.
    fn run(&mut self) {
        let turns = (0..10_000).take_while(|_| self.engine.turn(&mut self.around));
        assert!(turns.count() < 10_000, "there is no end of turns");
        self.engine.settle(&mut self.around);
    }
}

/// A message that waits in a path goes before one that comes from another path later.
fn nobody_is_overtaken() -> bool {
    let mut world = World::new();
    let (low, high) = (world.add(None), world.add(None));
    world.around.lead = Some((low, high));
    world.offer(low, 2);
    world.offer(high, 1);
    world.run();
    world.around.out == [1, 2]
}

fn few_wait_for_a_share() -> bool {
    let mut world = World::new();
    let share = Arc::new(ShareAccount::of_modules(Terms::new(1, None)));
    let id = world.add(Some(share));
    for _ in 0..500 {
        world.offer(id, 1);
        world.run();
    }
    world
        .engine
        .path(id)
        .is_some_and(|path| path.waiting() == 32)
}

/// At all paths that have a share in common, as many wait as at one.
fn one_share_has_one_room() -> bool {
    let mut world = World::new();
    let share = Arc::new(ShareAccount::of_modules(Terms::new(1, None)));
    let paths = [(); 2].map(|()| world.add(Some(Arc::clone(&share))));
    for _ in 0..500 {
        for id in paths {
            world.offer(id, 1);
        }
        world.run();
    }
    // A path does not know of what came to the other since it was parked.
    let waiting = world.engine.waiting();
    (32..=33).contains(&waiting) && u64::from(share.queued()) == waiting
}

/// A path with a share whose messages go on to another pays for itself: 10 us of the 20.
fn a_share_pays_for_its_own_path() -> bool {
    let mut world = World::new();
    let share = Arc::new(ShareAccount::of_modules(Terms::new(500, None)));
    let [low, high] = [Some(Arc::clone(&share)), None].map(|share| world.add(share));
    world.around.lead = Some((low, high));
    let begin = world.around.now;
    world.offer(low, 1);
    world.run();
    // At half of the CPU, 10 us are paid for after 20.
    world.around.out.len() == 1 && share.stands().paid == begin.0 + 20_000
}

/// A share that is opened lets all run that wait for it, and its path's messages are not
/// refused.
fn an_opened_share_is_looked_at() -> bool {
    let mut world = World::new();
    let share = Arc::new(ShareAccount::of_modules(Terms::new(1, None)));
    let id = world.add(Some(Arc::clone(&share)));
    for _ in 0..500 {
        world.offer(id, 1);
        world.run();
    }
    share.set_open(true);
    let refused = !world.offer(id, 1);
    let now = world.around.now;
    world.engine.look_at_share(id, now);
    world.run();
    !refused && world.engine.waiting() == 0 && share.queued() == 0
}

/// A run takes 10 us, and paths are woken for 50 us.
fn waking_ends() -> bool {
    let mut world = World::new();
    for _ in 0..3 {
        world.put(vec![busy()], None);
    }
    let begin = world.around.now;
    world.engine.wake(&mut world.around);
    world.around.now.since(begin) == WAKING
}

/// Received = fates + waiting, and the path runs no more.
fn a_panic_is_counted_and_the_last() -> bool {
    let mut world = World::new();
    let id = world.add(None);
    for message in [1, 13, 2] {
        world.offer(id, message);
    }
    world.run();
    let refused = !world.offer(id, 3);
    let account = world.engine.path(id).expect("it is there").account();
    refused && account.open() == 0 && world.around.tickets == 3
}

fn tickets_come_back() -> bool {
    let mut world = World::new();
    let id = world.add(None);
    world.offer(id, 1);
    let mut around = Around::default();
    world
        .engine
        .remove(id, Count::DroppedNoEndpoint, &mut around);
    around.tickets == 1
}

/// A message that goes on has the ticket that it was given for its next path, and gives it
/// back wherever it ends.
fn tickets_of_the_way_come_back() -> bool {
    let mut world = World::new();
    let [low, high] = [(); 2].map(|()| world.add(None));
    world.around.lead = Some((low, high));
    let back = |world: &mut World| {
        world.offer(low, 1);
        world.run();
        std::mem::take(&mut world.around.tickets)
    };
    let ran = back(&mut world);
    world.offer(high, 13);
    world.run();
    world.around.tickets = 0;
    let refused = back(&mut world);
    let _ = world.engine.take(high);
    let stray = back(&mut world);
    [ran, refused, stray] == [2, 2, 2]
}

/// The thread had half of the time.
fn others_time_is_not_charged() -> bool {
    let mut world = World::new();
    let id = world.add(None);
    world.engine.settle(&mut world.around);
    for _ in 0..1000 {
        world.offer(id, 1);
        world.run();
    }
    world.engine.pause(&mut world.around);
    let account = world.engine.path(id).expect("it is there").account();
    account.time == Duration::from_millis(5)
}

type Property = fn() -> bool;

#[test]
fn bugs_are_noticed() {
    let properties: [(Property, &[Bug]); 10] = [
        (nobody_is_overtaken, &[Bug::CrossingOvertakes]),
        (few_wait_for_a_share, &[Bug::WaitsWithoutBound]),
        (
            a_panic_is_counted_and_the_last,
            &[Bug::PanicUncounted, Bug::PanicForgotten],
        ),
        (tickets_come_back, &[Bug::TicketLost]),
        (tickets_of_the_way_come_back, &[Bug::TicketOfTheWayLost]),
        (one_share_has_one_room, &[Bug::RoomForEach]),
        (a_share_pays_for_its_own_path, &[Bug::ShareForOthers]),
        (an_opened_share_is_looked_at, &[Bug::OpenShareForgotten]),
        (waking_ends, &[Bug::WakesWithoutEnd]),
        (others_time_is_not_charged, &[Bug::WallTimeCharged]),
    ];
    for (holds, bugs) in properties {
        assert!(holds());
        for bug in bugs {
            assert!(!bug::with(*bug, holds), "{bug:?}");
        }
    }
}
