//! Which messages a path takes, and what is known of those that wait.

use ashway_abi::share::Mode;
use ashway_abi::trusted::LAZY_MESSAGES;

use super::*;
use crate::engine::Full;
use crate::stage::Direction::Forward;

impl World {
    fn account(&self, id: PathId) -> &crate::account::Account {
        self.engine.path(id).expect("it is there").account()
    }

    /// What becomes of a message; that it was foretold, and is counted.
    fn tried(&mut self, id: PathId, direction: Direction) -> Result<(), Count> {
        let now = self.around.now;
        let said = self.engine.admits(id, direction, now);
        let (received, open) = (self.account(id).received(), self.account(id).open());
        let trail = Trail::default();
        let done = match self.engine.offer(id, direction, 7, trail, now) {
            Ok(()) => Ok(()),
            Err((7, Full::Dropped(fate))) => Err(fate),
            other => panic!("{other:?}"),
        };
        assert_eq!(said, done);
        assert_eq!(self.account(id).received(), received + 1);
        assert_eq!(self.account(id).open(), open + u64::from(done.is_ok()));
        done
    }

    fn waiting(&self, id: PathId) -> u64 {
        self.engine.path(id).expect("it is there").waiting()
    }

    /// Those of all paths, which is what the engine says.
    fn all_waiting(&self) -> u64 {
        assert_eq!(self.engine.waiting(), self.engine.census().waiting);
        self.engine.waiting()
    }
}

/// So little that one run uses it up for a second.
fn small_share() -> Arc<ShareAccount> {
    Arc::new(ShareAccount::of_modules(Terms::new(1, Some(1))))
}

#[test]
fn a_full_queue_takes_nothing() {
    let mut world = World::new();
    let id = world.add(None);
    for _ in 0..1000 {
        assert_eq!(world.tried(id, Backward), Ok(()));
    }
    assert_eq!(world.tried(id, Backward), Err(Count::DroppedQueueFull));
    // There is no queue in this direction.
    assert_eq!(world.tried(id, Forward), Err(Count::DroppedQueueFull));
    assert_eq!(world.all_waiting(), 1000);
}

#[test]
fn a_failed_path_takes_nothing() {
    let mut world = World::new();
    let id = world.add(None);
    world.offer(id, 13);
    world.run();
    assert_eq!(world.tried(id, Backward), Err(Count::DroppedFault));
}

/// A message that was not made, because it would have been dropped, is counted like one
/// that was.
#[test]
fn what_was_refused_beforehand_is_counted() {
    let mut world = World::new();
    let id = world.add(None);
    world.engine.refuse(id, Count::DroppedQueueFull);
    let account = world.account(id);
    assert_eq!((account.received(), account.open()), (1, 0));
    assert_eq!(account.fate(Count::DroppedQueueFull), 1);
}

/// Nobody can say what becomes of a message for a path that is gone: it is for `offer`.
#[test]
fn a_path_that_is_gone_refuses_nothing() {
    let mut world = World::new();
    let id = world.ids.take();
    let now = world.around.now;
    assert_eq!(world.engine.admits(id, Backward, now), Ok(()));
    world.engine.refuse(id, Count::DroppedQueueFull);
    assert!(!world.offer(id, 1));
}

/// A share that is not used up limits nothing, however many wait.
#[test]
fn who_keeps_to_a_share_has_all_the_room() {
    let mut world = World::new();
    let id = world.add(Some(small_share()));
    for _ in 0..3 * LAZY_MESSAGES {
        assert_eq!(world.tried(id, Backward), Ok(()));
    }
}

/// Used up elsewhere (at another interface), it limits a path that was not yet held back;
/// and one that is held back until it is let go.
#[test]
fn who_has_used_up_a_share_has_little_room() {
    let mut world = World::new();
    let share = small_share();
    let id = world.add(Some(Arc::clone(&share)));
    let now = world.around.now.0;
    share.ran(now, now + 1);
    for _ in 0..LAZY_MESSAGES {
        assert_eq!(world.tried(id, Backward), Ok(()));
    }
    assert_eq!(world.tried(id, Backward), Err(Count::DroppedOverShare));
    world.run();
    assert_eq!(world.waiting(id), u64::from(LAZY_MESSAGES));
    // It is paid for, but those that wait have not had their turn.
    world.around.now = world.engine.due_at().expect("it is held back");
    assert!(share.may_run(world.around.now.0));
    assert_eq!(world.tried(id, Backward), Err(Count::DroppedOverShare));
    world.run();
    assert_eq!(world.tried(id, Backward), Ok(()));
}

/// How many messages wait for the share is known at each time, and says that the path is
/// lazy, long after it was last held back.
#[test]
fn what_waits_for_a_share_is_counted() {
    let mut world = World::new();
    let share = small_share();
    let id = world.add(Some(Arc::clone(&share)));
    let now = world.around.now.0;
    assert_eq!(share.mode(now), Mode::Eager);
    share.ran(now, now + 1);
    for _ in 0..3 {
        world.offer(id, 1);
    }
    // They wait for their turn, and not yet for the share.
    assert_eq!(share.queued(), 0);
    world.run();
    assert_eq!(share.queued(), 3);
    world.offer(id, 1);
    assert_eq!((share.queued(), share.mode(u64::MAX)), (4, Mode::Lazy));
    world.around.now = world.engine.due_at().expect("it is held back");
    // One second of the share is one message: the others wait for the next.
    world.run();
    assert_eq!((share.queued(), world.around.out.len()), (3, 1));
    let mut around = Around::default();
    world
        .engine
        .remove(id, Count::DroppedNoEndpoint, &mut around);
    assert_eq!((share.queued(), share.mode(u64::MAX)), (0, Mode::Eager));
}

/// While a path is held back it has no turn, and what comes for it gives it none.
#[test]
fn a_path_that_is_held_back_has_no_turn() {
    let mut world = World::new();
    let share = small_share();
    let id = world.add(Some(Arc::clone(&share)));
    let now = world.around.now.0;
    share.ran(now, now + 1);
    world.offer(id, 1);
    world.run();
    let looks = world.around.looks;
    world.offer(id, 1);
    assert!(!world.engine.turn(&mut world.around));
    assert_eq!(world.around.looks, looks + 1);
    let due = world.engine.due_at().expect("it is held back");
    assert_eq!(due, Time(share.due()));
}

/// Whatever happens to messages, the engine knows how many wait.
#[test]
fn all_that_wait_are_counted() {
    let mut world = World::new();
    let ids = [(); 4].map(|()| world.add(None));
    for id in ids {
        for message in [13, 1, 2] {
            world.offer(id, message);
        }
    }
    assert_eq!(world.all_waiting(), 12);
    // One panics, with what waits there.
    assert!(world.engine.turn(&mut world.around));
    assert_eq!((world.all_waiting(), world.around.failed), (9, 1));
    let mut around = Around::default();
    world
        .engine
        .remove(ids[1], Count::DroppedNoEndpoint, &mut around);
    assert_eq!(world.all_waiting(), 6);
    let ended = [13, 1, 2].map(|message| (ids[1], message, Count::DroppedNoEndpoint));
    assert_eq!(around.ended, ended);
    let (path, ()) = world.engine.take(ids[2]).expect("it is there");
    assert_eq!((path.waiting(), world.all_waiting()), (3, 3));
    world.run();
    assert_eq!(world.all_waiting(), 0);
}

/// What a swap needs: the body and what the shell keeps of it, to be changed.
#[test]
fn a_path_can_be_changed_while_messages_wait() {
    let mut world = World::new();
    let id = world.add(None);
    world.offer(id, 1);
    let (path, ()) = world.engine.path_mut(id).expect("it is there");
    assert_eq!(path.limit(Limits::default()), Ok(()));
    assert_eq!(world.tried(id, Forward), Ok(()));
    assert_eq!(world.all_waiting(), 2);
}

/// What a node says of itself: the sums over its paths, and whose a share is.
#[test]
fn the_engine_knows_what_it_has() {
    let mut world = World::new();
    assert!(world.engine.is_empty());
    let share = small_share();
    let ids = [world.add(Some(Arc::clone(&share))), world.add(None)];
    let known = ids.map(|id| world.engine.share(id));
    assert!(matches!(known, [Some(known), None] if Arc::ptr_eq(known, &share)));
    assert!(!world.engine.is_empty());
    world.offer(ids[1], 1);
    let bytes = ids.map(|id| world.engine.path(id).expect("it is there").memory_bytes());
    let census = world.engine.census();
    assert_eq!((census.paths, census.stages), (2, 2));
    assert_eq!(
        (census.waiting, census.memory_bytes),
        (1, bytes[0] + bytes[1])
    );
}
