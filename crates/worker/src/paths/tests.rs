//! Which path a whole frame from a ring is for.

use std::any::Any;
use std::sync::mpsc::channel;

use ashway_abi::hop;
use ashway_path::attrs::Attrs;
use ashway_path::path::{Limits, Path};
use ashway_path::places::Ids;
use ashway_path::stage::{Cx, Direction, Stage, Step};

use super::*;
use crate::bug::{self, Bug};
use crate::{keys, played, relays};

/// Ends each message in this.
struct Ends(Count);

impl Stage<Message> for Ends {
    fn name(&self) -> &'static str {
        "ends"
    }

    fn take(&mut self, message: Message, _: Direction, _: &mut Cx<'_, Message>) -> Step<Message> {
        Step::End(message, self.0)
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

fn path(id: PathId, number: Option<u32>) -> ModulePath {
    ending(Count::Consumed, id, number)
}

fn ending(fate: Count, id: PathId, number: Option<u32>) -> ModulePath {
    let stages: Vec<Box<dyn Stage<Message>>> = vec![Box::new(Ends(fate))];
    let mut path = Path::assemble("path", stages, Attrs::new(), Limits::default()).unwrap();
    path.establish().unwrap();
    ModulePath {
        id,
        number,
        path: Box::new(path),
        awaits_next_mac: false,
    }
}

/// No interface has a table here, so whoever looks a frame up panics.
fn paths() -> Paths {
    let (_, orders) = channel();
    let mut paths = Paths::new(IfaceMap::default(), CounterRow(0), orders, Arc::default());
    let bytes = relays::KEYS * hop::BYTES;
    let hops = Arc::new(played::words(bytes));
    paths.set_relays(Relays::new(hops, CounterRow(1), IfaceMap::default()));
    paths
}

#[test]
fn a_frame_is_classified_when_it_arrives_and_not_again() {
    let (mut paths, mut ids) = (paths(), Ids::default());
    let rows = UserRows::new(1);
    let [relay, other] = [ids.take(), ids.take()];
    paths.insert(path(relay, Some(3)));
    paths.insert(path(other, Some(4)));
    paths.relays().unwrap().add(relay, 7);
    for (id, direction, key) in [
        (
            relay,
            Direction::Forward,
            relays::key(7, Direction::Forward),
        ),
        (
            relay,
            Direction::Backward,
            relays::key(7, Direction::Backward),
        ),
        (
            other,
            Direction::Backward,
            keys::key(4, Direction::Backward),
        ),
    ] {
        let mut after = Sights::default();
        paths.receive(Message::default(), key, &mut after, Time(0), &rows);
        let waits = paths.engine.path(id).unwrap().input(direction).len();
        assert_eq!(waits, 1, "{direction:?}, key {key}");
    }
    assert_eq!(paths.engine.path(relay).unwrap().waiting(), 2);
}

#[test]
fn the_number_of_a_relay_leads_nowhere_when_that_has_gone() {
    let (mut paths, id) = (paths(), Ids::default().take());
    paths.insert(path(id, None));
    let key = relays::key(0, Direction::Backward);
    assert_eq!(paths.route(key), None, "it has no number yet");
    paths.relays().unwrap().add(id, 0);
    assert_eq!(paths.route(key).map(|target| target.path), Some(id));
    paths.remove(id, &UserRows::new(1));
    assert_eq!(paths.route(key), None);
    assert_eq!(paths.route(0), None, "it is that of all without a number");
}

/// There is no interface by which the host's stack could have it.
#[test]
fn what_the_host_did_not_take_has_not_passed() {
    let (mut paths, id) = (paths(), Ids::default().take());
    let rows = UserRows::new(1);
    paths.insert(ending(Count::Passed, id, Some(3)));
    let key = keys::key(3, Direction::Forward);
    paths.receive(
        Message::of_frame(&[0; 60]),
        key,
        &mut Sights::default(),
        Time(0),
        &rows,
    );
    paths.run(&rows);
    paths.flush(&mut IfaceMap::default(), &mut [], None, &rows);
    let account = paths.engine.path(id).unwrap().account();
    for (fate, times) in [(Count::Passed, 0), (Count::DroppedPassFailed, 1)] {
        assert_eq!(rows.row(CounterRow(0)).get(fate), times);
        assert_eq!(account.fate(fate), times);
    }
    assert_eq!(account.open(), 0);
}

/// A frame of four segments is received four times, where its program has counted the first:
/// so a relay's row says how many came.
fn segments_are_counted_where_the_first_is() -> bool {
    let (paths, queue) = (paths(), played::frame_queue());
    let rows = UserRows::new(9);
    let received = |row| rows.row(CounterRow(row)).get(Count::Received);
    let relay = relays::key(7, Direction::Backward);
    paths.come_apart(None, &queue, relay, 4, &rows);
    let in_user = queue.in_user(relay);
    let relays_row = received(8) == 3 && received(0) == 0 && in_user == 3;
    // Of a path without a number where all those are counted.
    paths.come_apart(None, &queue, 0, 4, &rows);
    relays_row && received(0) == 3
}

#[test]
fn segments_of_a_relay_are_counted_in_its_row() {
    assert!(segments_are_counted_where_the_first_is());
    assert!(!bug::with(
        Bug::SegmentsElsewhere,
        segments_are_counted_where_the_first_is
    ));
}

#[test]
fn a_path_runs_when_its_next_hop_has_been_looked_up() {
    let (sender, orders) = channel();
    let mut paths = Paths::new(IfaceMap::default(), CounterRow(0), orders, Arc::default());
    let (id, rows) = (Ids::default().take(), UserRows::new(1));
    paths.insert(ModulePath {
        awaits_next_mac: true,
        ..path(id, Some(0))
    });
    let left_over = |paths: &mut Paths| {
        let key = keys::key(0, Direction::Backward);
        paths.receive(
            Message::default(),
            key,
            &mut Sights::default(),
            Time(0),
            &rows,
        );
        paths.run(&rows);
        paths.engine.path(id).unwrap().waiting()
    };
    assert_eq!(left_over(&mut paths), 1, "it waits");
    let order = Order {
        next_macs: vec![(id, None)],
        ..Order::default()
    };
    sender.send(order).unwrap();
    while paths.due_at().is_some() {
        paths.wake(&rows);
        paths.run(&rows);
    }
    assert_eq!(paths.engine.path(id).unwrap().waiting(), 0);
}
