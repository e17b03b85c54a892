//! Paths that cannot run now: what a stage has in common with others is theirs at this moment,
//! or the shell says so.

use std::collections::BTreeMap;
use std::sync::Mutex;

use super::*;
use crate::engine::ASIDE;
use crate::sim::Random;

/// What a stage has in common with somebody else.
#[derive(Default)]
struct Common {
    /// Whether the other has it.
    theirs: bool,
    /// How often the path has it.
    held: i32,
    /// How often it was asked for.
    asked: u32,
}

/// Lets what comes go on; a multiple of 100 only after 30 us, by a timer.
struct Gate {
    common: Arc<Mutex<Common>>,
    later: VecDeque<u32>,
}

impl Gate {
    fn assert_held(&self) {
        assert!(self.common.lock().unwrap().held > 0, "it is not acquired");
    }
}

impl Stage<u32> for Gate {
    fn name(&self) -> &'static str {
        "gate"
    }

    fn traits(&self) -> Traits {
        Traits {
            acquires: true,
            ..Traits::default()
        }
    }

    fn acquire(&mut self) -> bool {
        let mut common = self.common.lock().unwrap();
        common.asked += 1;
        common.held += i32::from(!common.theirs);
        !common.theirs
    }

    fn release(&mut self) {
        self.common.lock().unwrap().held -= 1;
    }

    fn take(&mut self, message: u32, _: Direction, cx: &mut Cx<'_, u32>) -> Step<u32> {
        self.assert_held();
        if !message.is_multiple_of(100) {
            return Step::On(message);
        }
        self.later.push_back(message);
        *cx.wake_at = Some(cx.now + Duration::from_micros(30));
        Step::Absorbed
    }

    fn wake(&mut self, cx: &mut Cx<'_, u32>) {
        self.assert_held();
        let later = self.later.drain(..);
        cx.also.extend(later.map(|message| (Backward, message)));
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

impl World {
    fn gate(&mut self, stages: usize) -> (PathId, Arc<Mutex<Common>>) {
        let common = Arc::new(Mutex::new(Common::default()));
        let gate = || -> Box<dyn Stage<u32>> {
            Box::new(Gate {
                common: Arc::clone(&common),
                later: VecDeque::new(),
            })
        };
        let id = self.put((0..stages).map(|_| gate()).collect(), None);
        (id, common)
    }

    /// As the worker does until nothing is left, or this time has passed.
    fn drive(&mut self, most: Duration) {
        let end = self.around.now + most;
        loop {
            while self.engine.round(&mut self.around) {}
            let due = self.engine.due_at().filter(|due| *due < end);
            let Some(due) = due else {
                return;
            };
            self.around.now = self.around.now.max(due);
            self.engine.wake(&mut self.around);
        }
    }

    fn out(&mut self) -> Vec<u32> {
        self.around.out.drain(..).collect()
    }
}

/// While one waits the other runs; it is tried again by and by, and has its turn when it can.
fn others_run_meanwhile() -> bool {
    let mut world = World::new();
    let (gate, common) = world.gate(1);
    let other = world.add(None);
    common.lock().unwrap().theirs = true;
    for message in [1, 2, 3] {
        world.offer(gate, message);
    }
    for message in [7, 8, 9] {
        world.offer(other, message);
    }
    world.engine.round(&mut world.around);
    world.engine.round(&mut world.around);
    let meanwhile = world.out() == [7, 8, 9];
    let asked = common.lock().unwrap().asked;
    world.drive(10 * ASIDE);
    let seldom = common.lock().unwrap().asked - asked <= 10;
    let waits = world.engine.waiting() == 3
        && world.engine.backlog(gate) == 3
        && world.engine.sets_aside()
        && world.out().is_empty();
    common.lock().unwrap().theirs = false;
    world.offer(gate, 4);
    world.drive(10 * ASIDE);
    let common = common.lock().unwrap();
    let free = common.held == 0 && !world.engine.sets_aside();
    meanwhile && asked <= 2 && seldom && waits && free && world.out() == [1, 2, 3, 4]
}

/// The timer is late, and the message behind it has not overtaken what it sends.
fn timers_wait_with_the_messages() -> bool {
    let mut world = World::new();
    let (gate, common) = world.gate(1);
    world.offer(gate, 100);
    world.run();
    common.lock().unwrap().theirs = true;
    let held = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        world.drive(10 * ASIDE);
        world.out().is_empty() && world.engine.due_at().is_some()
    }));
    common.lock().unwrap().theirs = false;
    world.drive(10 * ASIDE);
    held.unwrap_or(false) && world.around.failed == 0 && world.out() == [100]
}

/// A message that comes from another path waits behind none and overtakes none.
#[test]
fn what_crosses_to_a_path_that_cannot_run_waits_there() {
    let mut world = World::new();
    world.around.cost = Duration::ZERO;
    let (gate, common) = world.gate(1);
    let low = world.add(None);
    world.around.lead = Some((low, gate));
    common.lock().unwrap().theirs = true;
    for message in [1, 2] {
        world.offer(low, message);
    }
    world.run();
    assert_eq!(world.engine.backlog(gate), 2);
    common.lock().unwrap().theirs = false;
    world.offer(low, 3);
    world.run();
    assert_eq!(world.engine.backlog(gate), 3);
    world.drive(2 * ASIDE);
    assert_eq!(world.out(), [1, 2, 3]);
    // Tickets of the way and of their arrival.
    assert_eq!(world.around.tickets, 6);
}

/// The same question to the shell.
#[test]
fn the_shell_can_keep_a_path_back() {
    let mut world = World::new();
    let (kept, other) = (world.add(None), world.add(None));
    world.around.kept_back = Some(kept);
    for id in [kept, other] {
        world.offer(id, 1);
    }
    world.run();
    assert_eq!((world.out().len(), world.engine.backlog(kept)), (1, 1));
    world.around.kept_back = None;
    world.drive(2 * ASIDE);
    assert_eq!((world.out().len(), world.engine.backlog(kept)), (1, 0));
}

/// One that is held twice is released twice; where the second of two cannot be had, the
/// first is given back.
#[test]
fn all_or_none_of_a_path_is_acquired() {
    let mut world = World::new();
    let (twice, common) = world.gate(2);
    world.offer(twice, 1);
    world.run();
    assert_eq!(common.lock().unwrap().asked, 2);
    assert_eq!((common.lock().unwrap().held, world.out().len()), (0, 1));

    let commons = [(); 2].map(|()| Arc::new(Mutex::new(Common::default())));
    let stages = commons.iter().map(|common| -> Box<dyn Stage<u32>> {
        Box::new(Gate {
            common: Arc::clone(common),
            later: VecDeque::new(),
        })
    });
    let both = world.put(stages.collect(), None);
    commons[1].lock().unwrap().theirs = true;
    world.offer(both, 1);
    world.run();
    let held = |common: &Arc<Mutex<Common>>| common.lock().unwrap().held;
    assert_eq!(
        (commons.each_ref().map(held), world.out().len()),
        ([0, 0], 0)
    );
    commons[1].lock().unwrap().theirs = false;
    world.drive(2 * ASIDE);
    assert_eq!(
        (commons.each_ref().map(held), world.out().len()),
        ([0, 0], 1)
    );
}

/// A stage that panics has given back what it had; a path that goes leaves nothing to try.
#[test]
fn who_fails_or_goes_is_not_tried_again() {
    let mut world = World::new();
    let common = Arc::new(Mutex::new(Common::default()));
    let stages: Vec<Box<dyn Stage<u32>>> = vec![
        Box::new(Plain),
        Box::new(Gate {
            common: Arc::clone(&common),
            later: VecDeque::new(),
        }),
    ];
    let fails = world.put(stages, None);
    world.offer(fails, 13);
    world.run();
    assert_eq!((world.around.failed, common.lock().unwrap().held), (1, 0));

    let (goes, common) = world.gate(1);
    common.lock().unwrap().theirs = true;
    world.offer(goes, 1);
    world.run();
    assert!(world.engine.sets_aside());
    let fate = Count::DroppedNoEndpoint;
    world.engine.remove(goes, fate, &mut world.around);
    assert_eq!(world.around.ended.last(), Some(&(goes, 1, fate)));
    world.drive(2 * ASIDE);
    assert!(!world.engine.sets_aside());
}

/// A path above its share that cannot run waits for both, and what waits for a moment only
/// does not count as above the share.
#[test]
fn a_share_and_a_moment_are_waited_for_apart() {
    let mut world = World::new();
    let share = Arc::new(ShareAccount::of_modules(Terms::new(500, None)));
    let common = Arc::new(Mutex::new(Common::default()));
    let gate: Box<dyn Stage<u32>> = Box::new(Gate {
        common: Arc::clone(&common),
        later: VecDeque::new(),
    });
    let id = world.put(vec![gate], Some(Arc::clone(&share)));
    common.lock().unwrap().theirs = true;
    for message in 1..=90 {
        assert!(world.offer(id, message), "within its share");
    }
    world.run();
    assert!(world.offer(id, 91) && share.queued() == 0);
    common.lock().unwrap().theirs = false;
    world.drive(Duration::from_secs(1));
    assert_eq!(world.out(), (1..=91).collect::<Vec<_>>());
    assert_eq!(share.queued(), 0);
}

/// Whatever cannot run when, each path's messages come out once and in their order, no stage
/// runs that is not acquired, and at last nothing is held.
fn nothing_is_lost_at_random() -> bool {
    const PATHS: usize = 4;
    let orderly = |seed| {
        let mut random = Random(seed);
        let mut world = World::new();
        let gates: [_; PATHS] = std::array::from_fn(|_| world.gate(1));
        let ids = gates.each_ref().map(|(id, _)| *id);
        world.around.lead = (seed % 2 == 0).then_some((ids[0], ids[1]));
        let mut sent: BTreeMap<u32, u32> = BTreeMap::new();
        for _ in 0..300 {
            let at = random.below(PATHS as u64) as usize;
            match random.below(4) {
                0 => {
                    let mut common = gates[at].1.lock().unwrap();
                    common.theirs = !common.theirs;
                }
                1 => {
                    world.engine.turn(&mut world.around);
                }
                2 => world.drive(Duration::from_micros(random.below(40))),
                _ => {
                    let flow = at as u32 * 100_000;
                    let number = sent.entry(flow).or_default();
                    // None that waits for a timer on its way: those have another order.
                    *number += 1 + u32::from((*number + 1).is_multiple_of(100));
                    assert!(world.offer(ids[at], flow + *number));
                }
            }
        }
        for (_, common) in &gates {
            common.lock().unwrap().theirs = false;
        }
        world.drive(100 * ASIDE);
        let out = world.out();
        let free = gates.iter().all(|gate| gate.1.lock().unwrap().held == 0);
        let whole = sent.iter().all(|(flow, last)| {
            let of = out.iter().filter(|it| **it / 100_000 * 100_000 == *flow);
            of.map(|it| it % 100_000)
                .eq((1..=*last).filter(|number| !number.is_multiple_of(100)))
        });
        free && whole && world.engine.waiting() == 0 && world.around.failed == 0
    };
    (0..200).all(orderly)
}

#[test]
fn bugs_are_noticed() {
    let properties: [(Property, &[Bug]); 3] = [
        (
            others_run_meanwhile,
            &[Bug::AsideForgotten, Bug::AsideHoldsUp],
        ),
        (timers_wait_with_the_messages, &[Bug::AsideTimersRun]),
        (
            nothing_is_lost_at_random,
            &[Bug::AsideForgotten, Bug::StageNotReleased],
        ),
    ];
    for (holds, bugs) in properties {
        assert!(holds());
        for bug in bugs {
            assert!(!bug::with(*bug, holds), "{bug:?}");
        }
    }
}
