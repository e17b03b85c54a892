//! What paths cost: time per message, bytes per path, time per life.
//!
//! `cargo run --release -p ashway-path --example cost`

use std::any::Any;
use std::hint::black_box;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use ashway_path::attrs::{Attrs, names};
use ashway_path::engine::{Engine, From, Requeued, Shell};
use ashway_path::path::{Exit, Limits, Path, Trail};
use ashway_path::places::{Ids, PathId};
use ashway_path::sched::drr::Drr;
use ashway_path::stage::{Cx, Direction, Stage, Step};
use ashway_path::time::Time;
use ashway_path::watch::Nobody;

/// A handle to a buffer, as in the daemon.
type Message = Box<[u8; 64]>;

const MESSAGES: u32 = 20_000_000;
const ALIVE: usize = 100_000;
const LIVES: u32 = 1_000_000;

/// The least a stage can do that is something: looks at the message and at the
/// time, and counts.
struct Least {
    seen: u64,
}

impl Least {
    #[inline]
    fn look(&mut self, message: &mut Message, now: Time) {
        self.seen += u64::from(message[0]) + now.0;
        message[1] = self.seen as u8;
    }
}

impl Stage<Message> for Least {
    fn name(&self) -> &'static str {
        "least"
    }

    fn take(
        &mut self,
        mut message: Message,
        _: Direction,
        cx: &mut Cx<'_, Message>,
    ) -> Step<Message> {
        self.look(&mut message, cx.now);
        Step::On(message)
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

fn path(name: &str, stages: usize) -> Path<Message> {
    let stages = (0..stages)
        .map(|_| Box::new(Least { seen: 0 }) as Box<dyn Stage<Message>>)
        .collect();
    let mut attrs = Attrs::new();
    attrs.set(names::PROTOCOL, 17);
    attrs.set(names::IFACE, "veth0");
    let mut path = Path::assemble(name, stages, attrs, Limits::default()).expect("64 KiB suffice");
    path.establish().expect("nothing to establish");
    path
}

/// Nanoseconds for each of `times`; the best of a hundred stretches, because
/// others use this machine too.
fn best(times: u32, mut run: impl FnMut(u32)) -> f64 {
    let stretch = times / 100;
    (0..100)
        .map(|_| {
            let start = Instant::now();
            (0..stretch).for_each(&mut run);
            start.elapsed().as_nanos() as f64 / f64::from(stretch)
        })
        .fold(f64::INFINITY, f64::min)
}

/// What is around an engine that runs one message after the other.
struct Around {
    began: Instant,
    spare: Vec<Message>,
}

impl Shell<Message, ()> for Around {
    type Watch = Nobody;

    fn now(&mut self) -> Time {
        Time::default() + self.began.elapsed()
    }

    fn cpu_time(&mut self) -> Duration {
        self.began.elapsed()
    }

    fn watch(&mut self, _: &Path<Message>, (): &(), _: Option<&Message>) -> Nobody {
        Nobody
    }

    fn exit(&mut self, _: From<'_, ()>, exit: Exit<Message>) -> Option<Requeued<Message>> {
        if let Exit::Left { message, .. } = exit {
            self.spare.push(black_box(message));
        }
        None
    }

    fn done(&mut self, _: NonZeroU32) {}
    fn ran(&mut self, _: PathId, _: &mut Path<Message>, (): &mut ()) {}
    fn stray(&mut self, _: Message, _: Trail) {}
    fn failed(&mut self, _: PathId, _: &Path<Message>) {}
}

/// An engine with so many paths of six stages that nobody uses, and one of so many
/// stages: ns for a message of that one, from its offer to its exit.
fn through_engine(stages: usize, idle: usize) -> f64 {
    let (mut engine, mut ids) = (Engine::<Message, (), Drr>::default(), Ids::default());
    for at in 0..idle {
        engine.insert(ids.take(), path(&format!("idle-{at}"), 6), (), None);
    }
    let busy = ids.take();
    engine.insert(busy, path("busy", stages), (), None);
    let mut around = Around {
        began: Instant::now(),
        spare: (0..32).map(|_| Box::new([1_u8; 64])).collect(),
    };
    let time = best(MESSAGES / 4 / 32, |_| {
        let now = around.now();
        for _ in 0..32 {
            let message = around.spare.pop().expect("it comes back");
            let trail = Trail::default();
            let _ = engine.offer(busy, Direction::Forward, message, trail, now);
        }
        while engine.turn(&mut around) {}
        engine.settle(&mut around);
    });
    time / 32.0
}

/// Bytes of this process that are in memory.
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|word| word.parse().ok());
    pages.unwrap_or(0) * 4096
}

fn main() {
    let mut spare: Option<Message> = Some(Box::new([1; 64]));
    let mut least = Least { seen: 0 };
    let direct = best(MESSAGES, |at| {
        let mut message = spare.take().expect("it comes back");
        black_box(&mut least).look(&mut message, Time(u64::from(at)));
        spare = Some(black_box(message));
    });
    println!("direct call        {direct:6.1} ns/message");
    for stages in 0..=8 {
        let time = through_engine(stages, 0);
        println!("{stages} stages, by the engine: {time:5.1} ns/message");
    }
    let idle = 10_000;
    let time = through_engine(6, idle);
    println!("6 stages, beside {idle} idle paths: {time:.1} ns/message");

    let empty = resident_bytes();
    let (mut engine, mut ids) = (Engine::<Message, (), Drr>::default(), Ids::default());
    let start = Instant::now();
    for at in 0..ALIVE {
        engine.insert(ids.take(), path(&format!("path-{at}"), 6), (), None);
    }
    let each = start.elapsed().as_nanos() as f64 / ALIVE as f64;
    let bytes = resident_bytes() - empty;
    println!(
        "{ALIVE} paths of 6 stages: {:.1} MB resident, {} bytes each ({} in the path itself), \
         {each:.0} ns to create each",
        bytes as f64 / 1e6,
        bytes / ALIVE,
        size_of::<Path<Message>>(),
    );
    drop(engine);

    let (mut engine, mut ids) = (Engine::<Message, (), Drr>::default(), Ids::default());
    let mut around = Around {
        began: Instant::now(),
        spare: Vec::new(),
    };
    let mut life = || {
        let id = ids.take();
        engine.insert(id, path("short", 6), (), None);
        let (message, trail) = (Box::new([1; 64]), Trail::default());
        let _ = engine.offer(id, Direction::Backward, message, trail, Time::default());
        engine.turn(&mut around);
        around.spare.clear();
        engine.take(id);
        ids.give_back(id);
    };
    (0..LIVES / 10).for_each(|_| life());
    let before = resident_bytes();
    let start = Instant::now();
    (0..LIVES).for_each(|_| life());
    let each = start.elapsed().as_nanos() as f64 / f64::from(LIVES);
    println!(
        "{LIVES} lives of 6 stages and one message: {each:.0} ns each, memory grew by {} bytes",
        resident_bytes().saturating_sub(before),
    );
}
