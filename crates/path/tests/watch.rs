//! Who watches sees every step, in order, and changes none.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

mod stages;

use std::cell::RefCell;
use std::rc::Rc;

use ashway_abi::Count;
use ashway_path::path::Path;
use ashway_path::sim::Single;
use ashway_path::stage::{Direction, Stage, Step};
use ashway_path::time::Time;
use ashway_path::watch::Watch;
use stages::{on, path, stage};

/// Writes everything down.
#[derive(Clone, Default)]
struct Diary(Rc<RefCell<Vec<String>>>);

impl Diary {
    fn write(&self, line: String) {
        self.0.borrow_mut().push(line);
    }
}

impl Watch<u32> for Diary {
    fn stage(&mut self, stage: &dyn Stage<u32>, direction: Direction, message: &u32) {
        let name = stage.name();
        self.write(format!("{name} {direction:?} {message}"));
    }

    fn answered(&mut self, message: Option<&u32>) {
        self.write(format!("gave {message:?}"));
    }

    fn end(&mut self, fate: Count) {
        self.write(fate.name().to_owned());
    }
}

/// A stage in the middle that turns 1 around, drops 2, sends two more behind 3, keeps
/// 4, and lets the rest go on.
fn made() -> Path<u32> {
    let middle = stage("middle", |message, direction, cx: &mut _| match message {
        1 => Step::Back(10, Count::Answered),
        2 => Step::End(message, Count::DroppedHandler),
        3 => {
            cx.also.extend([(direction, 30), (direction, 31)]);
            Step::On(message)
        }
        4 => Step::Absorbed,
        _ => Step::On(message),
    });
    path("p", vec![on("first"), middle, on("last")])
}

#[test]
fn every_step_is_seen_and_none_is_changed() {
    let diary = Diary::default();
    let mut plain = Single::new(made());
    let mut watched = Single::watched(made(), diary.clone());
    for message in 0..5 {
        let now = Time::default();
        let without = plain.pass(Direction::Forward, message, now);
        let with = watched.pass(Direction::Forward, message, now);
        assert_eq!(without, with);
    }
    let fates = |path: &Path<u32>| path.account().fates().collect::<Vec<_>>();
    assert_eq!(fates(&plain), fates(&watched));
    assert_eq!(plain.account().originated, watched.account().originated);
    let expected = "\
        first Forward 0, gave Some(0), middle Forward 0, gave Some(0), last Forward 0, \
        gave Some(0), forwarded, \
        first Forward 1, gave Some(1), middle Forward 1, gave Some(10), answered, \
        first Backward 10, gave Some(10), \
        first Forward 2, gave Some(2), middle Forward 2, gave Some(2), dropped_handler, \
        first Forward 3, gave Some(3), middle Forward 3, gave Some(3), last Forward 3, \
        gave Some(3), forwarded, last Forward 30, gave Some(30), last Forward 31, \
        gave Some(31), \
        first Forward 4, gave Some(4), middle Forward 4, gave None, absorbed";
    assert_eq!(diary.0.borrow().join(", "), expected);
}
