//! Rules: what they do to a path, that they do nothing to its messages, and
//! that they come to an end (SCT-9).

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod scout;

use std::any::Any;
use std::collections::BTreeSet;
use std::iter;
use std::ops::Range;
use std::sync::Arc;

use ashway_abi::Count;
use ashway_path::attrs::Attrs;
use ashway_path::path::{Exit, Limits, Path};
use ashway_path::rules::{self, NotTransformed, Rule};
use ashway_path::sim::Single;
use ashway_path::stage::{Cx, Direction, Stage, Step, Traits};
use ashway_path::time::Time;
use proptest::prelude::*;
use scout::{Header, Scout, Tally, read};

type Message = Vec<u8>;

/// Stages of every behaviour a path knows.
#[derive(Clone, Copy, Debug)]
enum Does {
    /// Nothing, and says so.
    Idle,
    /// Adds a byte going forward, and takes it off going backward.
    Header(u8),
    /// Turns every message of odd length around.
    Turn,
    /// Absorbs every second message.
    Absorb,
    /// Sends each message on, and a copy of it the other way.
    Multiply,
}

struct Odd {
    does: Does,
    messages: u64,
}

impl Stage<Message> for Odd {
    fn name(&self) -> &'static str {
        "odd"
    }

    fn traits(&self) -> Traits {
        Traits {
            idle: matches!(self.does, Does::Idle),
            ..Traits::default()
        }
    }

    fn take(
        &mut self,
        mut message: Message,
        direction: Direction,
        cx: &mut Cx<'_, Message>,
    ) -> Step<Message> {
        self.messages += 1;
        match (self.does, direction) {
            (Does::Header(header), Direction::Forward) => {
                message.push(header);
                Step::On(message)
            }
            (Does::Header(header), Direction::Backward) => {
                if message.pop() == Some(header) {
                    Step::On(message)
                } else {
                    Step::End(message, Count::DroppedBadLength)
                }
            }
            (Does::Turn, _) if message.len() % 2 == 1 => Step::Back(message, Count::Answered),
            (Does::Absorb, _) if self.messages.is_multiple_of(2) => Step::Absorbed,
            (Does::Multiply, _) => {
                cx.also.push((direction.opposite(), message.clone()));
                Step::On(message)
            }
            _ => Step::On(message),
        }
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

fn path(stages: Vec<Box<dyn Stage<Message>>>) -> Single<Message> {
    let mut path = Path::assemble("p", stages, Attrs::new(), Limits::default()).unwrap();
    path.establish().unwrap();
    Single::new(path)
}

fn odd(stages: &[Does]) -> Single<Message> {
    let stages = stages.iter().map(|does| -> Box<dyn Stage<Message>> {
        Box::new(Odd {
            does: *does,
            messages: 0,
        })
    });
    path(stages.collect())
}

/// Everything that comes out of a path, and its books.
fn outcome(
    path: &mut Single<Message>,
    messages: &[(bool, Message)],
) -> (Vec<Exit<Message>>, Vec<(Count, u64)>) {
    let mut exits = Vec::new();
    for (forward, message) in messages {
        let direction = if *forward {
            Direction::Forward
        } else {
            Direction::Backward
        };
        exits.extend(path.pass(direction, message.clone(), Time(0)));
        // Whoever is behind the path takes what waits there, at once.
        exits.extend(iter::from_fn(|| path.take_output()));
    }
    (exits, path.account().fates().collect())
}

fn does() -> impl Strategy<Value = Does> {
    prop_oneof![
        3 => Just(Does::Idle),
        3 => (0..3u8).prop_map(Does::Header),
        1 => Just(Does::Turn),
        1 => Just(Does::Absorb),
        1 => Just(Does::Multiply),
    ]
}

fn messages() -> impl Strategy<Value = Vec<(bool, Message)>> {
    let message = prop::collection::vec(0..3u8, 0..6);
    prop::collection::vec((any::<bool>(), message), 0..12)
}

proptest! {
    #[test]
    fn leaving_out_idle_stages_changes_no_message(
        stages in prop::collection::vec(does(), 1..8),
        messages in messages(),
    ) {
        let mut plain = odd(&stages);
        let mut short = odd(&stages);
        let applied = rules::apply(&[Rule::LEAVE_OUT_IDLE], &mut short).unwrap();
        let idle = stages.iter().filter(|does| matches!(does, Does::Idle)).count();
        let kept = (stages.len() - idle).max(1);
        prop_assert_eq!(short.len(), kept);
        prop_assert_eq!(applied.len(), stages.len() - kept);
        prop_assert_eq!(outcome(&mut short, &messages), outcome(&mut plain, &messages));
    }

    #[test]
    fn leaving_out_queues_changes_no_message(
        ends in any::<[bool; 2]>(),
        messages in messages(),
    ) {
        let make = || {
            let tally = Arc::<Tally>::default();
            let stages = ends.map(|transmits| -> Box<dyn Stage<Message>> {
                let mut stage = Header::new("h", &tally);
                stage.traits.transmits = transmits;
                Box::new(stage)
            });
            let mut path = path(stages.into());
            path.limit(Limits { queue: [4, 4, 4, 4], ..Limits::default() }).unwrap();
            path
        };
        let (mut plain, mut direct) = (make(), make());
        rules::apply(&[Rule::LEAVE_OUT_QUEUES], &mut direct).unwrap();
        // Forward leaves behind the last stage, backward before the first.
        let [first, last] = ends;
        let kept = |transmits| if transmits { 4 } else { 0 };
        prop_assert_eq!(direct.limits().queue, [4, 4, kept(last), kept(first)]);
        prop_assert_eq!(outcome(&mut direct, &messages), outcome(&mut plain, &messages));
    }
}

#[test]
fn a_queue_in_which_a_message_waits_stays() {
    let stage = Header::new("h", &Arc::default());
    let mut path = path(vec![Box::new(stage)]);
    let queue = [4, 4, 4, 0];
    path.limit(Limits {
        queue,
        ..Limits::default()
    })
    .unwrap();
    path.pass(Direction::Forward, vec![1], Time(0));
    assert_eq!(
        rules::apply(&[Rule::LEAVE_OUT_QUEUES], &mut path).unwrap(),
        []
    );
    assert_eq!(path.limits().queue, queue);
    path.take_output().expect("it waits there");
    let applied = rules::apply(&[Rule::LEAVE_OUT_QUEUES], &mut path).unwrap();
    assert_eq!((applied[0].before, applied[0].after), (1, 1));
    assert_eq!(path.limits().queue, [4, 4, 0, 0]);
}

/// UDP's checksum, inbound: the sum over the message is its last byte.
struct Checksum;

/// A decoder, inbound: each byte is the difference to the one before.
struct Decoder;

/// Both in one pass over the bytes (Scout §4.1, "integrate the (optional) UDP
/// checksum with the reading of the MPEG data").
struct Fused;

fn decode(sum: &mut u8, last: &mut u8, byte: &mut u8) {
    *sum = sum.wrapping_add(*byte);
    *last = last.wrapping_add(*byte);
    *byte = *last;
}

macro_rules! inbound {
    ($($stage:ident $name:literal $take:expr;)*) => {$(
        impl Stage<Message> for $stage {
            fn name(&self) -> &'static str {
                $name
            }

            fn traits(&self) -> Traits {
                Traits { touches_data: true, ..Traits::default() }
            }

            fn take(&mut self, message: Message, _: Direction, _: &mut Cx<'_, Message>) -> Step<Message> {
                let take: fn(Message) -> Step<Message> = $take;
                take(message)
            }

            fn as_any(&mut self) -> &mut dyn Any {
                self
            }
        }
    )*};
}

inbound! {
    Checksum "udp" |mut message| match message.pop() {
        Some(sum) if sum == message.iter().fold(0, |sum: u8, byte| sum.wrapping_add(*byte)) => {
            Step::On(message)
        }
        Some(sum) => {
            message.push(sum);
            Step::End(message, Count::DroppedBadUdpChecksum)
        }
        None => Step::End(message, Count::DroppedBadLength),
    };
    Decoder "mpeg" |mut message| {
        let (mut sum, mut last) = (0, 0);
        for byte in &mut message {
            decode(&mut sum, &mut last, byte);
        }
        Step::On(message)
    };
    Fused "mpeg+udp" |mut message| {
        let Some(expected) = message.pop() else {
            return Step::End(message, Count::DroppedBadLength);
        };
        let (mut sum, mut last) = (0, 0);
        for byte in &mut message {
            decode(&mut sum, &mut last, byte);
        }
        if sum == expected {
            return Step::On(message);
        }
        // A message that goes nowhere is handed back as it came.
        for at in (1..message.len()).rev() {
            message[at] = message[at].wrapping_sub(message[at - 1]);
        }
        message.push(expected);
        Step::End(message, Count::DroppedBadUdpChecksum)
    };
}

/// "A path-transformation rule that matches for MPEG being run directly on top
/// of UDP."
const FUSE: Rule<Message> = Rule {
    name: "fuse-checksum",
    about: "checks the checksum while decoding",
    guard: |path| {
        let names: Vec<_> = path.stages().map(|stage| stage.name().to_owned()).collect();
        let at = names.windows(2).position(|pair| pair == ["mpeg", "udp"])?;
        Some(at..at + 2)
    },
    rewrite: |path, range| {
        let replaced = path.replace(range, vec![Box::new(Fused)]);
        replaced.map_err(|error| error.to_string())
    },
};

fn decoding(between: Option<Does>) -> Single<Message> {
    let mut stages: Vec<Box<dyn Stage<Message>>> = vec![Box::new(Decoder)];
    stages.extend(
        between.map(|does| -> Box<dyn Stage<Message>> { Box::new(Odd { does, messages: 0 }) }),
    );
    stages.push(Box::new(Checksum));
    path(stages)
}

proptest! {
    #[test]
    fn a_fused_checksum_is_bit_identical(
        payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..8),
        wrong in any::<u8>(),
    ) {
        let messages: Vec<_> = payloads.into_iter().enumerate().map(|(at, mut message)| {
            let sum = message.iter().fold(0, |sum: u8, byte| sum.wrapping_add(*byte));
            message.push(if at % 3 == 0 { wrong } else { sum });
            (false, message)
        }).chain([(false, Vec::new())]).collect();
        let (mut plain, mut fused) = (decoding(None), decoding(None));
        let applied = rules::apply(&[FUSE], &mut fused).unwrap();
        prop_assert_eq!(applied.len(), 1);
        prop_assert_eq!(fused.len(), plain.len() - 1);
        prop_assert_eq!(outcome(&mut fused, &messages), outcome(&mut plain, &messages));
    }
}

#[test]
fn one_rule_makes_room_for_another() {
    // Fusing needs neighbours; an idle stage between them must go first.
    let rules = [FUSE, Rule::LEAVE_OUT_IDLE];
    let mut path = decoding(Some(Does::Idle));
    let applied = rules::apply(&rules, &mut path).unwrap();
    let names: Vec<_> = applied.iter().map(|step| step.rule).collect();
    assert_eq!(names, ["leave-out-idle", "fuse-checksum"]);
    assert_eq!(applied[1].rewrote, ["mpeg".into(), "udp".into()]);
    assert_eq!(
        path.stages().map(Stage::name).collect::<Vec<_>>(),
        ["mpeg+udp"]
    );
    // With a header between them the guard does not hold.
    let mut path = decoding(Some(Does::Header(1)));
    assert_eq!(rules::apply(&rules, &mut path).unwrap(), []);
}

fn first_named(path: &Path<Message>, name: &str) -> Option<Range<usize>> {
    let at = path.stages().position(|stage| stage.name() == name)?;
    Some(at..at + 1)
}

fn rename(path: &mut Path<Message>, range: Range<usize>, name: &str) -> Result<(), String> {
    let stage = Header::new(name, &Arc::default());
    let replaced = path.replace(range, vec![Box::new(stage)]);
    replaced.map_err(|error| error.to_string())
}

#[test]
fn rules_that_undo_each_other_are_found_and_named() {
    let rules = [
        Rule::LEAVE_OUT_IDLE,
        Rule {
            name: "there",
            about: "a to b",
            guard: |path| first_named(path, "a"),
            rewrite: |path, range| rename(path, range, "b"),
        },
        Rule {
            name: "back",
            about: "b to a",
            guard: |path| first_named(path, "b"),
            rewrite: |path, range| rename(path, range, "a"),
        },
    ];
    let tally = Arc::<Tally>::default();
    let mut idle = Header::new("idle", &tally);
    idle.traits.idle = true;
    let mut path = path(vec![Box::new(idle), Box::new(Header::new("a", &tally))]);
    let error = rules::apply(&rules, &mut path).unwrap_err();
    assert_eq!(
        error.to_string(),
        "rules `there`, `back` do not come to an end: 6 steps on a path of 2 stages"
    );
    assert_eq!(
        error.hint(),
        "leave one of them out; does one undo what the other does?"
    );
    // The path is whole: it can still be used and destroyed.
    assert_eq!(path.len(), 1);
    let (exits, _) = outcome(&mut path, &[(true, vec![1])]);
    assert_eq!(exits.len(), 1);
}

#[test]
fn each_rule_may_act_once_on_each_stage() {
    // As many steps as are allowed, and not one more needed.
    let rules = [
        Rule {
            name: "a-to-b",
            about: "",
            guard: |path| first_named(path, "a"),
            rewrite: |path, range| rename(path, range, "b"),
        },
        Rule {
            name: "b-to-c",
            about: "",
            guard: |path| first_named(path, "b"),
            rewrite: |path, range| rename(path, range, "c"),
        },
    ];
    let tally = Arc::<Tally>::default();
    let stage = || -> Box<dyn Stage<Message>> { Box::new(Header::new("a", &tally)) };
    let mut path = path((0..5).map(|_| stage()).collect());
    assert_eq!(rules::apply(&rules, &mut path).unwrap().len(), 10);
    let names: BTreeSet<_> = path.stages().map(|stage| stage.name().to_owned()).collect();
    assert_eq!(names, BTreeSet::from(["c".to_owned()]));
    assert_eq!(tally.stages.get(), 0);
}

#[test]
fn a_rule_that_fails_leaves_the_path_as_it_was() {
    let rules = [Rule {
        name: "too-big",
        about: "",
        guard: |path| first_named(path, "a"),
        rewrite: |path: &mut Path<Message>, range| {
            let mut stage = Header::new("big", &Arc::default());
            stage.memory = 1 << 20;
            let replaced = path.replace(range, vec![Box::new(stage)]);
            replaced.map_err(|error| error.to_string())
        },
    }];
    let tally = Arc::<Tally>::default();
    let mut path = path(vec![Box::new(Header::new("a", &tally))]);
    let Err(NotTransformed::Failed { rule, because }) = rules::apply(&rules, &mut path) else {
        panic!("it does not fail");
    };
    assert_eq!(rule, "too-big");
    assert!(because.contains("path `p` needs"), "{because}");
    assert_eq!(tally.alive(), (1, 1));
    let (exits, _) = outcome(&mut path, &[(true, b"m".to_vec())]);
    let message = b"a|m".to_vec();
    let direction = Direction::Forward;
    assert_eq!(
        exits,
        [Exit::Left {
            direction,
            message,
            turned: false
        }]
    );
}

#[test]
fn a_created_path_is_transformed() {
    let kinds = Scout::default();
    let text = "[module.shell]\nkind = 'shell'\ndown = 'udp.up'\n[module.udp]\nkind = 'udp'";
    let graph = read(text, &kinds).unwrap();
    let rules = [Rule {
        name: "short",
        about: "leaves out `udp`",
        guard: |path| first_named(path, "udp"),
        rewrite: |path, range| {
            path.replace(range, Vec::new())
                .map_err(|error| error.to_string())
        },
    }];
    let created = graph
        .create("p", "shell", Attrs::new(), Limits::default(), &rules)
        .unwrap();
    assert_eq!(created.path.len(), 1);
    assert_eq!(
        kinds.0.events(),
        [
            "stage shell:-",
            "stage udp:up",
            "establish shell",
            "establish udp",
            "destroy udp"
        ]
    );
    drop(created);
    assert_eq!(kinds.0.alive(), (0, 0));
}
