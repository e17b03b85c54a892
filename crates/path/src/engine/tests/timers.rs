//! Timers: how many run at once, and those of a path that has failed.

use super::*;
use crate::engine::MAX_WOKEN;
use crate::stage::Traits;

/// Wants to be woken from the start, and always again at the next time; panics when it is
/// woken for the last time.
struct Clock {
    woken: u32,
    last: u32,
    next: fn(Time) -> Time,
}

impl Clock {
    fn boxed(next: fn(Time) -> Time, last: u32) -> Box<dyn Stage<u32>> {
        Box::new(Self {
            woken: 0,
            last,
            next,
        })
    }
}

impl Stage<u32> for Clock {
    fn name(&self) -> &'static str {
        "clock"
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
        *cx.wake_at = Some((self.next)(cx.now));
        self.woken += 1;
        assert!(self.woken < self.last, "it was the last time");
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

const SECOND: Duration = Duration::from_secs(1);

fn after_a_second(now: Time) -> Time {
    now + SECOND
}

/// What has fallen behind, and catches up.
fn overdue(_: Time) -> Time {
    Time(1)
}

impl World {
    /// A path that wants to be woken now, and every second.
    fn add_clock(&mut self) -> PathId {
        self.put(vec![Clock::boxed(after_a_second, u32::MAX)], None)
    }

    fn woken(&self, id: PathId) -> u64 {
        self.engine.path(id).expect("it is there").account().runs
    }
}

/// Messages have their turn after so many paths; the others are woken next.
#[test]
fn so_many_paths_are_woken_at_once() {
    let mut world = World::new();
    world.around.cost = Duration::ZERO;
    let ids: Vec<_> = (0..=MAX_WOKEN).map(|_| world.add_clock()).collect();
    let woken = |world: &World| ids.iter().map(|id| world.woken(*id)).sum::<u64>();
    assert!(world.engine.wake(&mut world.around));
    assert_eq!(woken(&world), MAX_WOKEN as u64);
    assert!(world.engine.wake(&mut world.around));
    assert_eq!(woken(&world), MAX_WOKEN as u64 + 1);
    assert!(!world.engine.wake(&mut world.around));
}

/// The time that a timer takes is its path's, and no other's.
#[test]
fn each_path_pays_for_its_own_timers() {
    let mut world = World::new();
    let ids = [world.add_clock(), world.add_clock()];
    assert!(world.engine.wake(&mut world.around));
    world.engine.pause(&mut world.around);
    for id in ids {
        let account = world.engine.path(id).expect("it is there").account();
        assert_eq!(account.time, Duration::from_micros(10));
    }
}

/// A source that is asked for more than it can send is always due, and always was due before
/// all others. Two of them take turns.
fn who_is_overdue_holds_up_no_timer() -> bool {
    let mut world = World::new();
    let busy = [(); 2].map(|()| world.put(vec![Clock::boxed(overdue, u32::MAX)], None));
    let good = world.add_clock();
    for _ in 0..10 {
        assert!(world.engine.wake(&mut world.around));
        world.around.now = world.around.now + SECOND;
        // A message arms its path, too.
        world.offer(busy[0], 1);
        world.run();
    }
    let [one, other] = busy.map(|id| world.woken(id));
    // One of those woken is the other path, and one of the runs is the message's.
    let runs = 10 * (WAKING.as_nanos() / world.around.cost.as_nanos()) as u64;
    world.woken(good) == 10 && one + other == runs && one.abs_diff(other) <= 10
}

#[test]
fn the_oldest_timer_is_not_always_the_first() {
    assert!(who_is_overdue_holds_up_no_timer());
    assert!(!bug::with(
        Bug::OldestTimerFirst,
        who_is_overdue_holds_up_no_timer
    ));
}

/// A path with two timers, of which one panics: the other one would be due forever. Nobody
/// would sleep, and since the oldest timer runs first those of other paths would not run.
fn a_path_that_has_failed_is_not_woken() -> bool {
    let mut world = World::new();
    let bad = vec![
        Clock::boxed(|now| now + Duration::from_micros(1), 2),
        Clock::boxed(after_a_second, u32::MAX),
    ];
    let bad = world.put(bad, None);
    // A run takes longer than until the next one.
    assert!(world.engine.wake(&mut world.around));
    assert_eq!((world.woken(bad), world.around.failed), (3, 1));
    let (good, before) = (world.add_clock(), world.woken(bad));
    for _ in 0..10 {
        world.engine.wake(&mut world.around);
        world.around.now = world.around.now + SECOND;
    }
    let sleeps = !world.engine.wake(&mut world.around) || !world.engine.wake(&mut world.around);
    sleeps && world.woken(good) == 11 && world.woken(bad) == before
}

#[test]
fn a_failed_path_holds_up_no_timer() {
    assert!(a_path_that_has_failed_is_not_woken());
    assert!(!bug::with(
        Bug::PanicForgotten,
        a_path_that_has_failed_is_not_woken
    ));
}
