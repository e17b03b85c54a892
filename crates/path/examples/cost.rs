//! What paths cost: time per message, bytes per path, time per life.
//!
//! `cargo run --release -p ashway-path --example cost`

use std::any::Any;
use std::hint::black_box;
use std::time::Instant;

use ashway_path::attrs::{Attrs, names};
use ashway_path::path::{Limits, Path};
use ashway_path::set::Paths;
use ashway_path::stage::{Cx, Direction, Stage, Step};
use ashway_path::time::Time;

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
    for stages in 1..=8 {
        let mut path = path("p", stages);
        let inject = best(MESSAGES / 4, |at| {
            let message = black_box(spare.take().expect("it comes back"));
            path.inject(
                0,
                Direction::Forward,
                message,
                Time(u64::from(at)),
                &mut |exit| {
                    if let ashway_path::path::Exit::Left { message, .. } = exit {
                        spare = Some(black_box(message));
                    }
                },
            );
        });
        let queued = best(MESSAGES / 4, |at| {
            let message = black_box(spare.take().expect("it comes back"));
            let _ = path.offer(Direction::Forward, message);
            path.run(Direction::Forward, Time(u64::from(at)), &mut |exit| {
                if let ashway_path::path::Exit::Left { message, .. } = exit {
                    spare = Some(black_box(message));
                }
            });
        });
        println!("{stages} stages: injected {inject:6.1}, queued {queued:6.1} ns/message");
    }

    let empty = resident_bytes();
    let mut paths = Paths::new();
    let start = Instant::now();
    for at in 0..ALIVE {
        paths
            .insert(path(&format!("path-{at}"), 6))
            .expect("new name");
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
    drop(paths);

    let mut paths = Paths::new();
    let life = |paths: &mut Paths<Message>, at: u32| {
        let id = paths.insert(path("short", 6)).expect("the last is gone");
        let path = paths.path_mut(id).expect("it is here");
        path.pass(
            Direction::Backward,
            Box::new([1; 64]),
            Time(u64::from(at)),
            &mut |exit| {
                black_box(exit);
            },
        );
        paths.remove(id);
    };
    (0..LIVES / 10).for_each(|at| life(&mut paths, at));
    let before = resident_bytes();
    let start = Instant::now();
    (0..LIVES).for_each(|at| life(&mut paths, at));
    let each = start.elapsed().as_nanos() as f64 / f64::from(LIVES);
    println!(
        "{LIVES} lives of 6 stages and one message: {each:.0} ns each, memory grew by {} bytes",
        resident_bytes().saturating_sub(before),
    );
}
