//! Turns: how much runs in one, when the clocks are read, and where messages go that leave
//! a path.

use super::*;
use crate::engine::{LOOK, ROUND};
use crate::sched::drr::{BATCH, QUANTUM};
use crate::sched::fifo::Fifo;

impl World {
    fn runs(&self, id: PathId) -> u64 {
        self.engine.path(id).expect("it is there").account().runs
    }

    fn fill(&mut self, id: PathId, messages: u32) {
        for _ in 0..messages {
            assert!(self.offer(id, 1));
        }
    }
}

/// Whoever drives the engine looks at other things after each path had one turn.
#[test]
fn a_round_is_one_turn_for_each_path() {
    let mut world = World::new();
    assert!(!world.engine.round(&mut world.around));
    assert_eq!(world.around.looks, 0, "who spins asks without end");
    let ids = [(); 3].map(|()| world.add(None));
    for id in ids {
        world.fill(id, 100);
    }
    assert!(world.engine.round(&mut world.around));
    // A look at the clock each 4 messages, of 10 us each.
    let turn = (QUANTUM.as_micros() as u64 / 10).next_multiple_of(u64::from(LOOK));
    assert_eq!(ids.map(|id| world.runs(id)), [turn; 3]);
    let rounds = (0..100).take_while(|_| world.engine.round(&mut world.around));
    assert!(rounds.count() < 100, "there is no end of rounds");
    assert_eq!(ids.map(|id| world.runs(id)), [100; 3]);
}

#[test]
fn a_round_has_an_end_however_many_paths_there_are() {
    let mut world = World::new();
    let ids: Vec<_> = (0..=ROUND).map(|_| world.add(None)).collect();
    for id in &ids {
        world.fill(*id, 1);
    }
    assert!(world.engine.round(&mut world.around));
    assert_eq!(world.around.out.len(), ROUND);
    assert!(world.engine.round(&mut world.around));
    assert!(!world.engine.round(&mut world.around));
}

/// In the order of arrival a turn is a message, and a round all that wait.
#[test]
fn a_round_in_order_of_arrival_is_all_that_has_arrived() {
    let mut engine: Engine<u32, (), Fifo> = Engine::default();
    let mut ids = Ids::default();
    let mut path = Path::assemble("p", vec![Box::new(Plain)], Attrs::new(), Limits::default())
        .expect("enough memory");
    path.establish().expect("nothing to establish");
    let id = ids.take();
    engine.insert(id, path, (), None);
    let mut around = Around::default();
    for message in 0..5 {
        let trail = Trail::default();
        let offered = engine.offer(id, Backward, message, trail, Time(0));
        assert_eq!(offered, Ok(()));
    }
    assert!(engine.round(&mut around));
    assert_eq!(around.out, [0, 1, 2, 3, 4]);
    assert!(!engine.round(&mut around));
}

/// Messages that take no time run in batches. The clock is read before and after, and within
/// a turn where [`LOOK`] messages have run and others follow.
#[test]
fn a_turn_is_a_batch_and_reads_the_clock_so_often() {
    let mut world = World::new();
    world.around.cost = Duration::ZERO;
    let id = world.add(None);
    world.fill(id, 2 * BATCH + 1);
    for (ran, looks) in [(BATCH, BATCH / LOOK - 1), (BATCH, BATCH / LOOK - 1), (1, 0)] {
        let before = (world.runs(id), world.around.looks);
        assert!(world.engine.turn(&mut world.around));
        assert_eq!(world.runs(id), before.0 + u64::from(ran));
        assert_eq!(world.around.looks, before.1 + 2 + looks);
    }
}

/// The CPU's clock is the expensive one: it is read once in a window, and when the thread
/// goes to sleep.
#[test]
fn the_cpu_clock_is_read_seldom() {
    let mut world = World::new();
    let id = world.add(None);
    world.run();
    assert_eq!(world.around.cpu_looks, 1);
    // 990 us.
    for _ in 0..99 {
        world.fill(id, 1);
        world.run();
    }
    assert_eq!(world.around.cpu_looks, 1);
    world.fill(id, 3);
    world.run();
    assert_eq!(world.around.cpu_looks, 2);
    world.fill(id, 1);
    world.run();
    assert_eq!(world.around.cpu_looks, 2);
    world.engine.pause(&mut world.around);
    assert_eq!(world.around.cpu_looks, 3);
}

impl World {
    fn charged(&self, id: PathId) -> Duration {
        self.engine.path(id).expect("it is there").account().time
    }
}

/// What the thread does between two turns it does for messages: those of the paths, those
/// that a path had no room for, and those of no path.
#[test]
fn time_between_turns_is_charged_by_message() {
    let mut world = World::new();
    let [one, two] = [(); 2].map(|()| world.add(None));
    world.engine.pause(&mut world.around);
    for _ in 0..3 {
        world.fill(one, 1);
        assert!(world.engine.turn(&mut world.around));
        world.around.now = world.around.now + Duration::from_micros(70);
    }
    world.engine.refuse(two, Count::DroppedQueueFull);
    world.engine.unmatched();
    world.engine.unmatched();
    world.engine.pause(&mut world.around);
    // The thread had half of 240 us: 15 us in turns, and 105 us for 6 messages.
    assert_eq!(world.charged(one), Duration::from_nanos(15_000 + 52_500));
    assert_eq!(world.charged(two), Duration::from_nanos(17_500));
}

/// A message that crosses is one of either path.
#[test]
fn time_between_turns_is_charged_to_each_path_of_a_message() {
    let mut world = World::new();
    let [low, high] = [(); 2].map(|()| world.add(None));
    world.around.lead = Some((low, high));
    world.engine.pause(&mut world.around);
    world.fill(low, 2);
    world.run();
    world.around.now = world.around.now + Duration::from_micros(160);
    world.engine.pause(&mut world.around);
    // The thread had half of 200 us.
    let charged = [low, high].map(|id| world.charged(id));
    assert_eq!(charged, [Duration::from_micros(50); 2]);
}

/// What the thread does for no path, as when it sleeps and wakes for nothing.
#[test]
fn time_without_messages_is_nobodys() {
    let mut world = World::new();
    let id = world.add(None);
    world.engine.pause(&mut world.around);
    world.around.now = world.around.now + Duration::from_millis(5);
    world.engine.pause(&mut world.around);
    world.fill(id, 1);
    world.run();
    world.engine.pause(&mut world.around);
    assert_eq!(world.charged(id), Duration::from_micros(5));
}

/// A message that goes on to a path runs there on the same turn, unless the path may not run.
#[test]
fn a_crossing_message_waits_for_the_share_of_its_next_path() {
    let mut world = World::new();
    let share = Arc::new(ShareAccount::of_modules(Terms::new(1, Some(1))));
    let (low, high) = (world.add(None), world.add(Some(Arc::clone(&share))));
    world.around.lead = Some((low, high));
    world.fill(low, 1);
    world.run();
    // It was within the share, and has used it up.
    assert_eq!((world.runs(high), world.around.out.len()), (1, 1));
    assert!(!share.may_run(world.around.now.0));
    world.fill(low, 1);
    world.run();
    assert_eq!((world.runs(high), world.engine.waiting()), (1, 1));
    world.around.now = world.engine.due_at().expect("it waits for the share");
    world.run();
    assert_eq!((world.runs(high), world.engine.waiting()), (2, 0));
}

/// The message ends there, the next path counts it, and the shell has it back.
#[test]
fn a_crossing_message_does_not_wake_a_path_that_has_failed() {
    let mut world = World::new();
    let (low, high) = (world.add(None), world.add(None));
    world.offer(high, 13);
    world.run();
    world.around.lead = Some((low, high));
    world.offer(low, 5);
    world.run();
    assert_eq!(world.around.ended, [(high, 5, Count::DroppedFault)]);
    assert_eq!((world.runs(high), world.around.failed), (1, 1));
    let account = world.engine.path(high).expect("it is there").account();
    assert_eq!((account.received(), account.open()), (2, 0));
}

/// Either path of a message says that the host has a copy, and the message remembers it.
#[test]
fn the_hosts_copy_is_remembered() {
    for copied in [None, Some(0), Some(1)] {
        let mut world = World::new();
        let ids = [world.add(None), world.add(None)];
        if let Some(copied) = copied {
            world.engine.set_host_copy(ids[copied], true);
        }
        world.around.lead = Some((ids[0], ids[1]));
        world.offer(ids[0], 1);
        world.run();
        let seen: Vec<_> = world
            .around
            .trails
            .iter()
            .map(|trail| trail.host_copy)
            .collect();
        let expected = [copied == Some(0), copied.is_some()];
        assert_eq!(seen, expected);
    }
}
