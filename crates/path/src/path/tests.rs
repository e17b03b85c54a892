//! Properties of paths under random traffic, each with the mistakes that must
//! turn it red.

use std::any::Any;
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::*;
use crate::bug;
use crate::sim::Single;
use crate::stage::{Cx, Step};

/// What a test and its stages share.
#[derive(Default)]
struct Cell<T>(Mutex<T>);

impl<T: Copy> Cell<T> {
    fn get(&self) -> T {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, value: T) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = value;
    }
}

/// A message that knows where it must turn up next, and can be counted.
#[derive(Debug)]
struct Parcel {
    next: Option<usize>,
    _alive: Arc<()>,
}

/// What all stages of a test share.
#[derive(Default)]
struct World {
    alive: Arc<()>,
    /// What stages do, over and over.
    script: Vec<u8>,
    at: Cell<usize>,
    made: Cell<u64>,
    held: Cell<u64>,
    gone: Cell<u64>,
    astray: Cell<bool>,
}

impl World {
    fn parcel(&self, next: Option<usize>) -> Parcel {
        self.made.set(self.made.get() + 1);
        Parcel {
            next,
            _alive: Arc::clone(&self.alive),
        }
    }

    fn byte(&self) -> u8 {
        let at = self.at.get();
        self.at.set(at + 1);
        self.script[at % self.script.len()]
    }
}

/// Does what the script says.
struct Actor {
    world: Arc<World>,
    position: usize,
    held: Vec<Parcel>,
}

impl Actor {
    fn send(&self, mut parcel: Parcel, direction: Direction) -> Parcel {
        parcel.next = match direction {
            Direction::Forward => Some(self.position + 1),
            Direction::Backward => self.position.checked_sub(1),
        };
        parcel
    }

    fn also(&self, cx: &mut Cx<'_, Parcel>) {
        for direction in [Direction::Backward, Direction::Forward] {
            let parcel = self.send(self.world.parcel(None), direction);
            cx.also.push((direction, parcel));
        }
    }
}

impl Stage<Parcel> for Actor {
    fn name(&self) -> &'static str {
        "actor"
    }

    fn take(
        &mut self,
        parcel: Parcel,
        direction: Direction,
        cx: &mut Cx<'_, Parcel>,
    ) -> Step<Parcel> {
        if parcel.next != Some(self.position) {
            self.world.astray.set(true);
        }
        match self.world.byte() {
            0..140 => Step::On(self.send(parcel, direction)),
            140..160 => Step::Back(self.send(parcel, direction.opposite()), Count::Answered),
            160..180 => {
                self.world.held.set(self.world.held.get() + 1);
                self.held.push(parcel);
                Step::Absorbed
            }
            180..200 => Step::End(parcel, Count::Consumed),
            200..210 => Step::End(parcel, Count::QueuedTier),
            210..220 => Step::Back(parcel, Count::Received),
            220..240 => {
                self.also(cx);
                Step::On(self.send(parcel, direction))
            }
            _ => {
                *cx.wake_at = Some(Time(cx.now.0 + 1));
                Step::On(self.send(parcel, direction))
            }
        }
    }

    fn wake(&mut self, cx: &mut Cx<'_, Parcel>) {
        self.also(cx);
    }

    fn destroy(&mut self) {
        let gone = self.held.drain(..).len() as u64;
        self.world.held.set(self.world.held.get() - gone);
        self.world.gone.set(self.world.gone.get() + gone);
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

#[derive(Clone, Debug)]
enum Op {
    Offer(Direction),
    Run,
    Inject(usize, Direction),
    Pass(Direction),
    Wake,
    Take,
    Drain,
    Limit([u32; 4]),
    Replace(usize),
}

fn op() -> impl Strategy<Value = Op> {
    let direction = prop_oneof![Just(Direction::Forward), Just(Direction::Backward)];
    let way = direction.clone();
    prop_oneof![
        8 => way.clone().prop_map(Op::Offer),
        8 => Just(Op::Run),
        4 => (0..4usize, way.clone()).prop_map(|(stage, way)| Op::Inject(stage, way)),
        2 => way.prop_map(Op::Pass),
        4 => Just(Op::Wake),
        2 => Just(Op::Take),
        1 => Just(Op::Drain),
        1 => proptest::array::uniform4(0..4u32).prop_map(Op::Limit),
        1 => (0..4usize).prop_map(Op::Replace),
    ]
}

/// What came out, as the test itself saw it, against which the account is held.
#[derive(Default)]
struct Seen {
    forwarded: u64,
    left: u64,
    back: u64,
}

impl Seen {
    fn note(&mut self, exits: Vec<Exit<Parcel>>) {
        for exit in exits {
            self.back += 1;
            match exit {
                Exit::Left { turned: true, .. } => self.left += 1,
                Exit::Left { turned: false, .. } => self.forwarded += 1,
                Exit::Ended { .. } => {}
            }
        }
    }
}

/// Any traffic, any stages: no message is lost or doubled, none skips a stage,
/// and both ledgers close at every step.
fn ledgers_close(script: Vec<u8>, ops: Vec<Op>) -> Result<(), TestCaseError> {
    let world = Arc::new(World {
        script,
        ..World::default()
    });
    let actor = |position| -> Box<dyn Stage<Parcel>> {
        Box::new(Actor {
            world: Arc::clone(&world),
            position,
            held: Vec::new(),
        })
    };
    let limits = Limits {
        queue: [3, 2, 0, 2],
        ..Limits::default()
    };
    let mut path = Path::assemble("p", (0..4).map(actor).collect(), Attrs::new(), limits).unwrap();
    path.establish().unwrap();
    let mut path = Single::new(path);
    let parcel_for = |direction| match direction {
        Direction::Forward => world.parcel(Some(0)),
        Direction::Backward => world.parcel(Some(3)),
    };
    let mut seen = Seen::default();
    let mut given = 0;
    for (at, op) in ops.into_iter().enumerate() {
        let now = Time(at as u64);
        let mut out = Vec::new();
        match op {
            Op::Offer(direction) => {
                given += 1;
                if path.offer(direction, parcel_for(direction)).is_err() {
                    seen.back += 1;
                }
            }
            Op::Run => {
                let waiting = path.waiting();
                out = path.run(now);
                prop_assert_eq!(path.waiting(), waiting.saturating_sub(1));
            }
            Op::Inject(stage, direction) => {
                given += 1;
                out = path.inject(stage, direction, world.parcel(Some(stage)), now);
            }
            Op::Pass(direction) => {
                given += 1;
                out = path.pass(direction, parcel_for(direction), now);
            }
            Op::Wake => out = path.wake(now),
            Op::Take => out.extend(path.take_output()),
            Op::Drain => out = path.drain(Count::DroppedNoEndpoint),
            Op::Limit(queue) => {
                let limits = path.limits();
                path.limit(Limits { queue, ..limits }).unwrap();
            }
            Op::Replace(stage) => {
                path.replace(stage..stage + 1, vec![actor(stage)]).unwrap();
            }
        }
        seen.note(out);
        let outputs = path.outputs.iter().map(Queue::len).sum::<usize>() as u64;
        let alive = Arc::strong_count(&world.alive) as u64 - 1;
        let account = path.account();
        prop_assert_eq!(account.received(), given);
        prop_assert_eq!(account.open(), path.waiting());
        prop_assert_eq!(account.originated, account.left + account.ended);
        prop_assert_eq!(alive, path.waiting() + outputs + world.held.get());
        prop_assert_eq!(world.made.get() - alive, seen.back + world.gone.get());
        prop_assert!(!world.astray.get(), "a message came to a wrong stage");
    }
    let rest = path.drain(Count::DroppedNoEndpoint);
    seen.note(rest);
    prop_assert_eq!(path.account.fate(Count::Forwarded), seen.forwarded);
    prop_assert_eq!(path.account.left, seen.left);
    drop(path);
    prop_assert_eq!(Arc::strong_count(&world.alive), 1);
    Ok(())
}

/// Tries the property on `cases` random runs, the same each time.
fn try_ledgers(cases: u32) -> Result<(), String> {
    let config = Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let runs = (
        proptest::collection::vec(any::<u8>(), 1..64),
        proptest::collection::vec(op(), 1..80),
    );
    TestRunner::new_with_rng(config, rng)
        .run(&runs, |(script, ops)| ledgers_close(script, ops))
        .map_err(|error| error.to_string())
}

#[test]
fn ledgers_close_under_random_traffic() {
    assert_eq!(try_ledgers(2000), Ok(()));
}

#[test]
fn mistakes_in_the_books_turn_it_red() {
    for bug in [
        Bug::DiscardUncounted,
        Bug::AbsorbUncounted,
        Bug::TurnedStaysReceived,
        Bug::AlsoUncounted,
        Bug::StageSkipped,
        Bug::AnyCountIsFate,
        Bug::OutputSwallows,
    ] {
        assert!(bug::with(bug, || try_ledgers(500)).is_err(), "{bug:?}");
    }
}

/// Splits a message `[first, behind]` in three.
struct Split;

impl Stage<[u32; 2]> for Split {
    fn name(&self) -> &'static str {
        "split"
    }

    fn take(
        &mut self,
        [first, behind]: [u32; 2],
        direction: Direction,
        cx: &mut Cx<'_, [u32; 2]>,
    ) -> Step<[u32; 2]> {
        let third = (behind - first) / 3;
        let (second, last) = (first + third, behind - third);
        cx.also.push((direction, [second, last]));
        cx.also.push((direction, [last, behind]));
        Step::On([first, second])
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

/// Fragments of fragments of fragments come out in order.
fn in_order() -> bool {
    let stages: Vec<Box<dyn Stage<[u32; 2]>>> =
        vec![Box::new(Split), Box::new(Split), Box::new(Split)];
    let mut path = Path::assemble("p", stages, Attrs::new(), Limits::default()).unwrap();
    path.establish().unwrap();
    let mut path = Single::new(path);
    let mut at = 0;
    let mut ordered = true;
    for exit in path.pass(Direction::Forward, [0, 81], Time(0)) {
        if let Exit::Left { message, .. } = exit {
            ordered &= message == [at, at + 3];
            at += 3;
        }
    }
    ordered && at == 81 && path.account().originated == 26
}

#[test]
fn what_is_multiplied_stays_in_order() {
    assert!(in_order());
    assert!(!bug::with(Bug::AlsoReversed, in_order));
}

/// Writes down when it is established and destroyed.
struct Diary {
    name: &'static str,
    log: Arc<Mutex<String>>,
    memory: usize,
}

impl Diary {
    fn write(&self, sign: char) {
        let mut log = self.log.lock().expect("nobody panics");
        log.push(sign);
        log.push_str(self.name);
    }
}

impl Stage<()> for Diary {
    fn name(&self) -> &str {
        self.name
    }

    fn memory_bytes(&self) -> usize {
        self.memory
    }

    fn establish(&mut self, attrs: &mut Attrs) -> Result<(), String> {
        if self.name == "bad" {
            return Err("it is bad".into());
        }
        attrs.set(self.name, 1);
        self.write('+');
        Ok(())
    }

    fn destroy(&mut self) {
        self.write('-');
    }

    fn take(&mut self, (): (), _: Direction, _: &mut Cx<'_, ()>) -> Step<()> {
        Step::On(())
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

/// Every stage that is established is destroyed once, last first, whatever
/// fails on the way; and what fails leaves no trace.
fn life_of_stages() -> (String, String) {
    let log = Arc::new(Mutex::new(String::new()));
    let stage = |name, memory| -> Box<dyn Stage<()>> {
        Box::new(Diary {
            name,
            log: Arc::clone(&log),
            memory,
        })
    };
    let assemble = |names: &[&'static str]| {
        let stages = names.iter().map(|name| stage(name, 0)).collect();
        Path::assemble("p", stages, Attrs::new(), Limits::default()).unwrap()
    };

    let mut path = assemble(&["a", "b", "bad", "c"]);
    let error = path.establish().unwrap_err();
    assert_eq!(
        error.to_string(),
        "stage `bad` at position 2 cannot be established: it is bad"
    );
    assert!(!path.is_established() && path.attrs() == &Attrs::new());
    drop(path);
    log.lock().expect("nobody panics").push('|');

    let mut path = assemble(&["a", "b", "c"]);
    path.establish().unwrap();
    path.replace(1..2, vec![stage("d", 0), stage("e", 0)])
        .unwrap();
    let failed = path.replace(0..1, vec![stage("f", 0), stage("bad", 0)]);
    assert!(matches!(failed, Err(NotReplaced::NotEstablished(_))));
    let failed = path.replace(0..1, vec![stage("g", 1 << 20)]);
    assert!(matches!(failed, Err(NotReplaced::TooMuch(_))));
    let attrs = path.attrs().to_string();
    drop(path);
    (mem::take(&mut *log.lock().expect("nobody panics")), attrs)
}

#[test]
fn stages_live_once_and_die_last_first() {
    let right = (
        "+a+b-b-a|+a+b+c+d+e-b+f-f+g-g-c-e-d-a".to_owned(),
        "a=1 b=1 c=1 d=1 e=1".to_owned(),
    );
    assert_eq!(life_of_stages(), right);
    for bug in [
        Bug::UnwindForgetsFirst,
        Bug::ReplaceForgetsOld,
        Bug::ReplaceLeavesAttrs,
    ] {
        assert_ne!(bug::with(bug, life_of_stages), right, "{bug:?}");
    }
}
