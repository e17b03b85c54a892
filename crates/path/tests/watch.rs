//! Who watches sees every step, in order, and changes none.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

mod stages;

use ashway_abi::Count;
use ashway_path::path::{Exit, Path};
use ashway_path::stage::{Direction, Stage, Step};
use ashway_path::time::Time;
use ashway_path::watch::Watch;
use stages::{on, path, stage};

/// Writes everything down.
#[derive(Default)]
struct Diary(Vec<String>);

impl Watch<u32> for Diary {
    fn stage(&mut self, stage: &dyn Stage<u32>, direction: Direction, message: &u32) {
        let name = stage.name();
        self.0.push(format!("{name} {direction:?} {message}"));
    }

    fn answered(&mut self, message: Option<&u32>) {
        self.0.push(format!("gave {message:?}"));
    }

    fn end(&mut self, fate: Count) {
        self.0.push(fate.name().to_owned());
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
    let mut plain = made();
    let mut watched = made();
    let mut diary = Diary::default();
    for message in 0..5 {
        let (mut without, mut with) = (Vec::new(), Vec::new());
        let direction = Direction::Forward;
        let now = Time::default();
        plain.pass(direction, message, now, &mut |exit| without.push(exit));
        watched.pass_watched(direction, message, now, &mut diary, &mut |exit: Exit<
            u32,
        >| {
            with.push(exit);
        });
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
    assert_eq!(diary.0.join(", "), expected);
}
