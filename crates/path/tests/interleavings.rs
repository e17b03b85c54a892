//! Ten thousand random interleavings of create, remove, swap and traffic.
//!
//! Each flow of messages belongs to the path of its name. A path that nobody
//! removes loses none of its messages and keeps their order, also when its
//! stages are replaced or another path takes its place; what waited on a path
//! that is removed comes back. The mistakes at the end are each one that a
//! shell around this crate could make.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use ashway_abi::Count;
use ashway_path::path::{Exit, Limits, Path};
use ashway_path::sim::{Classifier, Happened, Link, LinkId, Random, Sim};
use ashway_path::stage::{Direction::Backward, Direction::Forward, Step};
use ashway_path::time::Time;

mod stages;
use stages::{limited, on, stage};

/// Flow above, number within it below.
type Message = u64;

/// What is known of the flows apart from the paths.
#[derive(Default)]
struct Books {
    sent: BTreeMap<u64, u64>,
    removed: Vec<u64>,
}

/// A mistake of the shell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mistake {
    /// Removes a path and forgets what waits on it.
    RemoveForgets,
    /// Puts another path in the place of one and forgets what waits.
    SwapForgets,
    /// Puts what waited behind what came later.
    SwapReorders,
    /// Finds the wrong path for some.
    WrongPath,
    /// A stage drops some messages and says that it keeps them.
    StageLies,
    /// A link loses some.
    LosesSome,
}

fn name(flow: u64) -> String {
    format!("f{flow}")
}

/// A path that turns every fifth message around, so that both directions and
/// both ledgers are in use.
fn flow_path(flow: u64, mistake: Option<Mistake>) -> Path<Message> {
    let limits = Limits {
        queue: [0, 400, 0, 0],
        ..Limits::default()
    };
    let turn = stage("turn", move |message, _, _| {
        if mistake == Some(Mistake::StageLies) && message % 13 == 12 {
            return Step::Absorbed;
        }
        if message % 5 == 4 {
            Step::Back(message, Count::Answered)
        } else {
            Step::On(message)
        }
    });
    limited(&name(flow), vec![turn, on("ip"), on("eth")], limits)
}

/// One thing that a person does.
fn act(
    sim: &mut Sim<Message>,
    what: u64,
    flow: u64,
    books: &Rc<RefCell<Books>>,
    mistake: Option<Mistake>,
) {
    let Some(id) = sim.names.find(&name(flow)) else {
        // Gone paths come back now and then; their flows stay touched.
        if what == 0 {
            sim.create(flow_path(flow, mistake))
                .expect("its name is free");
        }
        return;
    };
    match what {
        0 => {
            books.borrow_mut().removed.push(flow);
            if mistake == Some(Mistake::RemoveForgets) {
                sim.take(id);
            } else {
                sim.remove(id, Count::DroppedNoEndpoint);
            }
        }
        1 | 2 => {
            let (path, ()) = sim.engine.path_mut(id).expect("it was found");
            let at = what as usize;
            path.replace(at..at + 1, vec![on("new"), on("er")])
                .expect("it fits");
            // Back to three, so that many swaps make no long path.
            path.replace(at..at + 1, Vec::new()).expect("it fits");
        }
        _ => swap(sim, flow, mistake),
    }
}

/// Puts a new path in the place of an old one; it takes over what waits.
fn swap(sim: &mut Sim<Message>, flow: u64, mistake: Option<Mistake>) {
    let id = sim.names.find(&name(flow)).expect("it is there");
    let before = sim.out.len();
    sim.remove(id, Count::Forwarded);
    let waiting = sim.out.split_off(before).into_iter();
    let mut waiting: Vec<_> = waiting
        .map(|(_, exit)| match exit {
            Exit::Left { message, .. } | Exit::Ended { message, .. } => message,
        })
        .collect();
    let new = sim
        .create(flow_path(flow, mistake))
        .expect("its name is free");
    match mistake {
        Some(Mistake::SwapForgets) => waiting.clear(),
        Some(Mistake::SwapReorders) => waiting.reverse(),
        _ => {}
    }
    for message in waiting {
        assert_eq!(sim.offer(new, Backward, message), Ok(()));
    }
}

/// One interleaving, chosen by the seed, up to its end.
fn run(seed: u64, mistake: Option<Mistake>) -> (Sim<Message>, Books) {
    let classify: Classifier<Message> = Box::new(move |names, _: LinkId, message| {
        let wrong = mistake == Some(Mistake::WrongPath) && message % 7 == 6;
        let flow = (message >> 32) + u64::from(wrong);
        Some((names.find(&name(flow))?, Backward))
    });
    let mut random = Random(seed);
    let mut sim = Sim::new(seed, |message| *message, classify);
    let link = sim.link(Link {
        delay: Duration::from_nanos(random.below(5000)),
        jitter: Duration::ZERO,
        lost_ppm: if mistake == Some(Mistake::LosesSome) {
            50_000
        } else {
            0
        },
    });
    let flows = 2 + random.below(5);
    for flow in 0..flows {
        sim.create(flow_path(flow, mistake))
            .expect("its name is free");
    }
    let books = Rc::new(RefCell::new(Books::default()));
    for _ in 0..50 {
        let time = Time(random.below(50_000));
        let flow = random.below(flows);
        let books = Rc::clone(&books);
        // Flow 0 is never removed.
        let what = random.below(10).max(u64::from(flow == 0));
        let burst = 1 + random.below(6);
        sim.at(time, move |sim: &mut Sim<Message>| {
            if what < 4 {
                return act(sim, what, flow, &books, mistake);
            }
            for _ in 0..burst {
                let mut books = books.borrow_mut();
                let number = books.sent.entry(flow).or_default();
                sim.send(link, flow << 32 | *number);
                *number += 1;
            }
        });
    }
    sim.run(Time(u64::MAX));
    let books = books.take();
    (sim, books)
}

/// What must hold at the end of every interleaving.
fn check(sim: &Sim<Message>, books: &Books) -> Result<(), String> {
    let mut came: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for (id, exit) in &sim.out {
        let (Exit::Left { message, .. } | Exit::Ended { message, .. }) = exit;
        if let Exit::Left {
            direction, turned, ..
        } = exit
            && (*turned, *direction)
                != if message % 5 == 4 {
                    (true, Forward)
                } else {
                    (false, Backward)
                }
        {
            return Err(format!("{message:#x} left {id} the wrong way"));
        }
        came.entry(message >> 32)
            .or_default()
            .push(*message & 0xffff_ffff);
    }
    for (flow, sent) in &books.sent {
        let mut came = came.remove(flow).unwrap_or_default();
        if books.removed.contains(flow) {
            // Arrived while there was no path: accounted for, not lost.
            came.extend(sim.trace.iter().filter_map(|(_, what)| match what {
                Happened::Unmatched(message) if message >> 32 == *flow => {
                    Some(message & 0xffff_ffff)
                }
                _ => None,
            }));
            came.sort_unstable();
        }
        if !came.iter().copied().eq(0..*sent) {
            return Err(format!("flow {flow}: {sent} were sent, {came:?} came"));
        }
    }
    for (id, path) in sim.engine.iter() {
        let account = path.account();
        if account.open() != 0 || account.originated != account.left + account.ended {
            return Err(format!("the books of {id} do not close: {account:?}"));
        }
        // Each path sees messages of its own flow only.
        let alien = sim.trace.iter().find(|(_, what)| {
            matches!(what, Happened::Queued(at, message)
                if *at == id && name(message >> 32) != path.name())
        });
        if let Some((time, what)) = alien {
            return Err(format!("at {time:?}: {what:?}"));
        }
    }
    Ok(())
}

#[test]
fn ten_thousand_lose_nothing() {
    let (mut messages, mut removals) = (0, 0);
    for seed in 0..10_000 {
        let (sim, books) = run(seed, None);
        assert_eq!(check(&sim, &books), Ok(()), "seed {seed}");
        messages += books.sent.values().sum::<u64>();
        removals += books.removed.len();
    }
    // It was about something.
    assert!(messages > 500_000, "{messages}");
    assert!(removals > 10_000, "{removals}");
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in (0..10_000).step_by(100) {
        assert_eq!(run(seed, None).0.trace, run(seed, None).0.trace);
    }
}

#[test]
fn mistakes_turn_it_red() {
    for mistake in [
        Mistake::RemoveForgets,
        Mistake::SwapForgets,
        Mistake::SwapReorders,
        Mistake::WrongPath,
        Mistake::StageLies,
        Mistake::LosesSome,
    ] {
        let found = (0..200).any(|seed| {
            let (sim, books) = run(seed, Some(mistake));
            check(&sim, &books).is_err()
        });
        assert!(found, "{mistake:?}");
    }
}
