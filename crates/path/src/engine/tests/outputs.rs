//! Output queues: what waits there, who is taken from first, and what happens when one fills.

use super::*;
use crate::engine::Output;

/// Messages that an output queue holds here.
const ROOM: u32 = 16;

/// Sends so many more behind each message.
struct Splits(u32);

impl Stage<u32> for Splits {
    fn name(&self) -> &'static str {
        "splits"
    }

    fn take(&mut self, message: u32, direction: Direction, cx: &mut Cx<'_, u32>) -> Step<u32> {
        let parts = (1..=self.0).map(|part| (direction, message + part));
        cx.also.extend(parts);
        Step::On(message)
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

/// Sends half a queue of messages when it is woken, which it is once.
fn bursts() -> Box<dyn Stage<u32>> {
    Box::new(Woken(|cx| {
        let half = (0..ROOM / 2).map(|message| (Backward, message));
        cx.also.extend(half);
    }))
}

impl World {
    /// A path whose messages wait to be transmitted.
    fn queues(&mut self, parts: u32) -> PathId {
        self.queues_of(Box::new(Splits(parts)))
    }

    fn queues_of(&mut self, stage: Box<dyn Stage<u32>>) -> PathId {
        let id = self.put(vec![stage], None);
        let (path, ()) = self.engine.path_mut(id).expect("it is there");
        let queue = [0, 1000, 0, ROOM];
        let limits = Limits {
            queue,
            ..Limits::default()
        };
        path.limit(limits).expect("enough memory");
        id
    }

    /// What is transmitted, in order.
    fn transmit(&mut self) -> Vec<(PathId, u32)> {
        let mut sent = Vec::new();
        while let Some(Output { path, exit, .. }) = self.engine.take_output() {
            let Exit::Left { message, .. } = exit else {
                panic!("{exit:?} has not left");
            };
            sent.push((path, message));
        }
        sent
    }

    fn queued(&self, id: PathId) -> usize {
        let path = self.engine.path(id).expect("it is there");
        path.output(Backward).len()
    }
}

/// The paths take turns, a message each, and those of a path stay in their order.
fn paths_are_taken_from_in_turn() -> bool {
    let mut world = World::new();
    let (first, second) = (world.queues(2), world.queues(0));
    world.offer(first, 10);
    world.offer(second, 20);
    world.offer(second, 30);
    world.run();
    assert_eq!((world.queued(first), world.queued(second)), (3, 2));
    assert!(world.around.out.is_empty(), "nobody has transmitted");
    let fair = [
        (first, 10),
        (second, 20),
        (first, 11),
        (second, 30),
        (first, 12),
    ];
    world.transmit() == fair && world.transmit().is_empty()
}

/// Timers go on where nobody transmits, one at a time: the queue is emptied before the next.
#[test]
fn one_timer_runs_behind_a_full_queue() {
    let mut world = World::new();
    let full = world.queues(0);
    for message in 0..ROOM {
        world.offer(full, message);
    }
    while world.engine.turn(&mut world.around) {}
    let timer = world.put(vec![busy()], None);
    let runs = |world: &mut World| {
        assert!(world.engine.wake(&mut world.around));
        world
            .engine
            .path(timer)
            .expect("it is there")
            .account()
            .runs
    };
    assert_eq!(runs(&mut world), 1);
    world.transmit();
    assert!(runs(&mut world) > 2);
}

#[test]
fn timers_wait_behind_one_that_fills_its_queue() {
    let mut world = World::new();
    let [first, second] = [(); 2].map(|()| world.queues_of(bursts()));
    assert!(world.engine.wake(&mut world.around));
    assert_eq!([world.queued(first), world.queued(second)], [8, 0]);
    world.transmit();
    assert!(world.engine.wake(&mut world.around));
    assert_eq!([world.queued(first), world.queued(second)], [0, 8]);
}

/// No message is dropped where each makes less than half a queue: a turn, and a round, ends
/// when the queue is half full, be it that of a path that others lead to.
fn a_queue_that_fills_ends_the_turn() -> bool {
    let mut world = World::new();
    world.around.cost = Duration::ZERO;
    let low = [(); 3].map(|()| world.add(None));
    let high = world.queues(ROOM / 2 - 1);
    let mut sent = 0;
    for path in low {
        for _ in 0..100 {
            world.offer(path, 1);
        }
    }
    for _ in 0..1000 {
        for path in low {
            world.around.lead = Some((path, high));
            world.engine.turn(&mut world.around);
            sent += world.transmit().len();
        }
    }
    let dropped = world.around.ended.len();
    sent + dropped == 300 * ROOM as usize / 2 && dropped == 0
}

#[test]
fn bugs_are_noticed() {
    let properties: [(Property, Bug); 2] = [
        (paths_are_taken_from_in_turn, Bug::OutputUnfair),
        (a_queue_that_fills_ends_the_turn, Bug::OutputPressesNobody),
    ];
    for (holds, bug) in properties {
        assert!(holds());
        assert!(!bug::with(bug, holds), "{bug:?}");
    }
}

#[test]
fn a_round_ends_when_a_queue_is_half_full() {
    let mut world = World::new();
    let ids = [(); 3].map(|()| world.queues(ROOM / 2 - 1));
    for id in ids {
        world.offer(id, 1);
    }
    for (round, id) in ids.iter().enumerate() {
        assert!(world.engine.round(&mut world.around), "round {round}");
        assert_eq!(world.transmit().len(), ROOM as usize / 2);
        assert_eq!(world.engine.waiting(), 2 - round as u64, "{id:?}");
    }
    // Whoever does not transmit is not stopped, and each drop is counted.
    for _ in 0..3 {
        world.offer(ids[0], 1);
    }
    let rounds = (0..10).take_while(|_| world.engine.round(&mut world.around));
    assert_eq!(rounds.count(), 3);
    let dropped = Count::DroppedQueueFull;
    let ended = world.around.ended.iter();
    assert_eq!(ended.filter(|(.., fate)| *fate == dropped).count(), 8);
    let account = world.engine.path(ids[0]).expect("it is there").account();
    assert_eq!(account.originated, account.left + account.ended);
    assert_eq!(account.fate(Count::DroppedQueueFull), 1);
    assert_eq!(account.open(), 0);
}

/// A queue of a path that goes is emptied, and nothing of it is transmitted later.
#[test]
fn what_a_removed_path_has_sent_goes_with_it() {
    let mut world = World::new();
    let (gone, stays) = (world.queues(1), world.queues(0));
    world.offer(gone, 1);
    world.offer(stays, 5);
    world.run();
    let fate = Count::DroppedNoEndpoint;
    let removed = world.engine.remove(gone, fate, &mut world.around);
    assert!(removed.is_some());
    assert_eq!(
        [gone, stays].map(|path| world.engine.data(path)),
        [None, Some(&())]
    );
    assert_eq!(world.around.out, [1, 2]);
    assert_eq!(world.transmit(), [(stays, 5)]);
}
