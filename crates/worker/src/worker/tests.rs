//! The worker with paths and without interfaces; in [`fed`] with handlers whose rings are filled.

use std::any::Any;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicUsize};

use ashway_abi::Count;
use ashway_memory::messages::Buffer;
use ashway_modules::Message;
use ashway_path::attrs::Attrs;
use ashway_path::path::{Limits, Path};
use ashway_path::places::Ids;
use ashway_path::stage::{Cx, Direction, Stage, Step, Traits};
use ashway_path::time::Time;

use super::*;
use crate::order::ModulePath;
use crate::rows::CounterRow;
use crate::target::Target;

mod captures;
mod fed;

/// What is said of the worker's stages, in order.
type Say = Arc<dyn Fn(&'static str) + Send + Sync>;

/// Says when it is described.
struct Quiet(Say);

impl Stage<Message> for Quiet {
    fn name(&self) -> &'static str {
        (self.0)("described");
        "quiet"
    }

    fn take(&mut self, message: Message, _: Direction, _: &mut Cx<'_, Message>) -> Step<Message> {
        Step::On(message)
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

/// Has something to do at once; what it does then says when it is to be woken next.
struct Woken<F>(F);

impl<F: FnMut(Time) -> Option<Time> + Send + 'static> Stage<Message> for Woken<F> {
    fn name(&self) -> &'static str {
        "woken"
    }

    fn traits(&self) -> Traits {
        Traits {
            starts: true,
            ..Traits::default()
        }
    }

    fn take(&mut self, message: Message, _: Direction, _: &mut Cx<'_, Message>) -> Step<Message> {
        Step::On(message)
    }

    fn wake(&mut self, cx: &mut Cx<'_, Message>) {
        *cx.wake_at = (self.0)(cx.now);
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

/// Consumes messages, and panics at one that is longer than a byte. Has something in common
/// with others.
struct Fragile {
    held: Arc<AtomicUsize>,
}

impl Stage<Message> for Fragile {
    fn name(&self) -> &'static str {
        "fragile"
    }

    fn traits(&self) -> Traits {
        Traits {
            acquires: true,
            ..Traits::default()
        }
    }

    fn acquire(&mut self) -> bool {
        self.held.fetch_add(1, Ordering::SeqCst);
        true
    }

    fn release(&mut self) {
        self.held.fetch_sub(1, Ordering::SeqCst);
    }

    fn take(&mut self, message: Message, _: Direction, _: &mut Cx<'_, Message>) -> Step<Message> {
        assert!(message.len() <= 1, "it is long");
        Step::End(message, Count::Consumed)
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

fn new(id: PathId, stage: Box<dyn Stage<Message>>) -> ModulePath {
    let mut path = Path::assemble("path", vec![stage], Attrs::new(), Limits::default()).unwrap();
    path.establish().unwrap();
    ModulePath {
        id,
        number: None,
        path: Box::new(path),
        awaits_next_mac: false,
    }
}

/// A worker with a path that is always busy and so many that are not.
fn worker(quiet: usize, say: &Say) -> (Worker, Vec<PathId>) {
    let (orders, receiver) = channel();
    let mut paths = Paths::new(IfaceMap::default(), CounterRow(0), receiver, Arc::default());
    let mut ids = Ids::default();
    let said = Arc::clone(say);
    let busy = move |now: Time| {
        said("worked");
        Some(now)
    };
    paths.insert(new(ids.take(), Box::new(Woken(busy))));
    let quiet = (0..quiet).map(|_| {
        let id = ids.take();
        paths.insert(new(id, Box::new(Quiet(Arc::clone(say)))));
        id
    });
    let quiet = quiet.collect();
    let work = work(paths, &Arc::new(UserRows::new(1)));
    let bell = Arc::new(Bell::new().unwrap());
    (Worker::start(work, orders, bell).unwrap(), quiet)
}

/// A worker's work with these paths alone.
fn work(paths: Paths, rows: &Arc<UserRows>) -> Work {
    Work {
        wake: None,
        instances: Vec::new(),
        awake: Awake::default(),
        leaving: false,
        frame_queue: None,
        paths,
        xdp_ports: IfaceMap::default(),
        frame_ports: Vec::new(),
        rows: Arc::clone(rows),
    }
}

/// Has a path receive messages of these lengths, which it sees backwards.
fn receive(paths: &mut Paths, path: PathId, lengths: &[usize], rows: &UserRows) {
    let target = Target {
        path,
        direction: Direction::Backward,
        row: CounterRow(0),
    };
    for length in lengths {
        paths.receive_for(target, false, now(), rows, |mut message| {
            message.put(Buffer::new(*length), *length);
            message
        });
    }
}

/// Waits until it is so.
fn until(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_mins(1);
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::yield_now();
    }
}

/// Says `true` when it goes.
struct Gone(Arc<AtomicBool>);

impl Stage<Message> for Gone {
    fn name(&self) -> &'static str {
        "gone"
    }

    fn take(&mut self, message: Message, _: Direction, _: &mut Cx<'_, Message>) -> Step<Message> {
        Step::End(message, Count::Consumed)
    }

    fn destroy(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

/// A path whose messages wait to be transmitted when they leave it backwards.
fn sending(id: PathId) -> ModulePath {
    let mut path = new(id, Box::new(Quiet(Arc::new(|_| ()))));
    let mut limits = path.path.limits();
    limits.queue = [32, 32, 0, 8];
    path.path.limit(limits).unwrap();
    path
}

/// A worker without paths, and its bell.
fn idle() -> (Worker, Arc<Bell>) {
    let (orders, receiver) = channel();
    let paths = Paths::new(IfaceMap::default(), CounterRow(0), receiver, Arc::default());
    let bell = Arc::new(Bell::new().unwrap());
    let work = work(paths, &Arc::new(UserRows::new(1)));
    let worker = Worker::start(work, orders, Arc::clone(&bell)).unwrap();
    (worker, bell)
}

/// What is posted reaches a worker that sleeps: at once if it has something to do by itself,
/// else when the node has time, or when too much is ahead of it.
#[test]
fn a_worker_that_sleeps_is_woken_for_what_has_to_be_done() {
    let (mut worker, _bell) = idle();
    let mut ids = Ids::default();
    let (ticking, leaving) = (ids.take(), ids.take());
    let (ticks, gone) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
    let count = Arc::clone(&ticks);
    let tick = move |now: Time| {
        let is_more = count.fetch_add(1, Ordering::SeqCst) < 4;
        is_more.then_some(now + Duration::from_millis(1))
    };
    let (stage, other) = (Woken(tick), Gone(Arc::clone(&gone)));
    sleep(Duration::from_millis(20));
    let insert = |path| Order {
        insert: vec![path],
        ..Order::default()
    };
    // Its first timer has the worker woken, and each further one has it wake by itself.
    worker.post(insert(new(ticking, Box::new(stage)))).unwrap();
    until("all timers are due", || ticks.load(Ordering::SeqCst) == 5);
    worker.post(insert(new(leaving, Box::new(other)))).unwrap();
    let remove = Order {
        remove: vec![leaving],
        ..Order::default()
    };
    worker.post(remove).unwrap();
    worker.catch_up();
    until("the path is gone", || gone.load(Ordering::SeqCst));
    let shown = worker.snapshots(&[ticking, leaving]).unwrap();
    assert_eq!([true, false], [shown[0].is_some(), shown[1].is_some()]);
    // No more than so many are ahead of the worker, whether it is woken or not.
    let before = worker.ahead;
    let some: Vec<PathId> = (0..AHEAD - before - 1).map(|_| ids.take()).collect();
    let removed = some.len();
    worker
        .post(Order {
            remove: some,
            ..Order::default()
        })
        .unwrap();
    assert_eq!(worker.ahead, before + removed);
    worker
        .post(Order {
            remove: vec![ids.take()],
            ..Order::default()
        })
        .unwrap();
    assert_eq!(worker.ahead, 0);
}

/// Whoever waits for the worker's end is told, be it by a panic.
#[test]
fn an_end_rings_the_bell() {
    let (worker, bell) = idle();
    assert!(worker.is_alive() && !bell.take());
    drop(worker);
    assert!(bell.take());
    // A row of counters that is not there is the worker's own fault.
    let rows = Arc::new(UserRows::new(1));
    let (orders, receiver) = channel();
    let mut paths = Paths::new(IfaceMap::default(), CounterRow(0), receiver, Arc::default());
    let id = Ids::default().take();
    paths.insert(sending(id));
    receive(&mut paths, id, &[1], &rows);
    let none = Arc::new(UserRows::new(0));
    let mut worker = Worker::start(work(paths, &none), orders, Arc::clone(&bell)).unwrap();
    until("the thread has ended", || !worker.is_alive());
    until("the bell has rung", || bell.take());
    assert!(worker.call(Command::Finish).is_err());
    assert!(worker.post(Order::default()).is_err());
}

/// What had come before the end has a fate.
#[test]
fn what_has_come_is_worked_on_before_the_end() {
    let rows = Arc::new(UserRows::new(1));
    let tickets = Arc::<AtomicU32>::default();
    let (orders, receiver) = channel();
    let mut paths = Paths::new(
        IfaceMap::default(),
        CounterRow(0),
        receiver,
        Arc::clone(&tickets),
    );
    let mut ids = Ids::default();
    // More than one round's.
    for _ in 0..100 {
        let id = ids.take();
        paths.insert(new(id, Box::new(Gone(Arc::default()))));
        receive(&mut paths, id, &[1; 32], &rows);
    }
    drop(Worker::start(work(paths, &rows), orders, Arc::new(Bell::new().unwrap())).unwrap());
    assert_eq!(tickets.load(Ordering::SeqCst), 0);
    assert_eq!(rows.row(CounterRow(0)).get(Count::Consumed), 3200);
}

/// What a path has sent is in its output queue until it is transmitted, and is seen there.
#[test]
fn what_waits_to_be_transmitted_is_seen() {
    let rows = Arc::new(UserRows::new(1));
    let (_orders, receiver) = channel();
    let mut paths = Paths::new(IfaceMap::default(), CounterRow(0), receiver, Arc::default());
    let id = Ids::default().take();
    paths.insert(sending(id));
    receive(&mut paths, id, &[1; 3], &rows);
    let mut work = work(paths, &rows);
    let lengths = |work: &Work| {
        let queues = work.paths.snapshot(id).unwrap().queues;
        [queues.in_backward.length, queues.out_backward.length]
    };
    assert_eq!(lengths(&work), [3, 0]);
    assert!(work.run_paths());
    assert_eq!(lengths(&work), [0, 3]);
    assert!(!work.run_paths() && !work.is_awaited());
}

#[test]
fn no_more_than_some_paths_are_copied_before_the_next_message() {
    let (described, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (now, ever) = (Arc::clone(&described), Arc::clone(&most));
    let say: Say = Arc::new(move |what| {
        if what == "described" {
            let so_far = now.fetch_add(1, Ordering::SeqCst) + 1;
            ever.fetch_max(so_far, Ordering::SeqCst);
        } else {
            now.store(0, Ordering::SeqCst);
        }
    });
    let (mut worker, paths) = worker(1000, &say);
    let snapshots = worker.snapshots(&paths).unwrap();
    let modules = snapshots
        .iter()
        .flatten()
        .map(|path| &*path.stages[0].module);
    assert_eq!(modules.filter(|module| *module == "quiet").count(), 1000);
    assert_eq!(most.load(Ordering::SeqCst), SNAPSHOTS);
}

#[test]
fn messages_come_between_two_commands() {
    let said = Arc::new(Mutex::new(Vec::new()));
    let (log, (both_are_there, seen)) = (Arc::clone(&said), channel::<()>());
    let seen = Mutex::new(seen);
    let say: Say = Arc::new(move |what| {
        if what == "worked" {
            // Until the sender is gone.
            let _ = seen.lock().unwrap().recv();
        }
        let mut said = log.lock().unwrap();
        if said.last() != Some(&what) {
            said.push(what);
        }
    });
    let (worker, paths) = worker(1, &say);
    said.lock().unwrap().clear();
    let commands = worker.commands.as_ref().unwrap();
    let answers = [(); 2].map(|()| {
        let (done, answer) = sync_channel(1);
        commands
            .send((Command::Snapshots(paths.clone()).into(), done))
            .unwrap();
        answer
    });
    drop(both_are_there);
    for answer in answers {
        answer.recv().unwrap();
    }
    let said = said.lock().unwrap();
    let order: Vec<_> = said
        .iter()
        .skip_while(|what| **what != "described")
        .collect();
    assert_eq!(order[..3], [&"described", &"worked", &"described"]);
}

/// The path ends, and nothing else does: what it had taken and what waits in it is given back
/// and counted, and the worker runs the other paths.
#[test]
fn a_stage_that_panics_ends_its_path_only() {
    let row = CounterRow(0);
    let (orders, receiver) = channel();
    let (tickets, held) = (Arc::<AtomicU32>::default(), Arc::<AtomicUsize>::default());
    let rows = Arc::new(UserRows::new(1));
    let mut paths = Paths::new(IfaceMap::default(), row, receiver, Arc::clone(&tickets));
    let mut ids = Ids::default();
    let (fragile, other) = (ids.take(), ids.take());
    for id in [fragile, other] {
        let held = Arc::clone(&held);
        paths.insert(new(id, Box::new(Fragile { held })));
        let lengths = if id == fragile { [1, 2, 1] } else { [1; 3] };
        receive(&mut paths, id, &lengths, &rows);
    }
    let tickets = || tickets.load(Ordering::SeqCst);
    assert_eq!(tickets(), 6);
    let work = work(paths, &rows);
    let mut worker = Worker::start(work, orders, Arc::new(Bell::new().unwrap())).unwrap();
    until("messages of a path that ended are held", || tickets() == 0);
    let paths = worker.snapshots(&[fragile, other]).unwrap();
    let mut paths = paths.into_iter().map(Option::unwrap);
    let (fragile, other) = (paths.next().unwrap(), paths.next().unwrap());
    let fates = |path: &PathSnapshot| {
        let fates = [Count::Consumed, Count::DroppedFault];
        (path.waiting, fates.map(|fate| path.account.fate(fate)))
    };
    assert_eq!(fates(&fragile), (0, [1, 2]));
    assert_eq!(fates(&other), (0, [3, 0]));
    assert_eq!((tickets(), held.load(Ordering::SeqCst)), (0, 0));
    let counted = [Count::Received, Count::Consumed, Count::DroppedFault];
    assert_eq!(counted.map(|count| rows.row(row).get(count)), [6, 4, 2]);
    let fault = fragile.account.fault.expect("it is said").to_string();
    assert!(
        fault.contains("`fragile` at position 0 panicked"),
        "{fault}"
    );
    assert!(other.account.fault.is_none() && worker.is_alive());
}

#[test]
fn a_thread_that_hangs_is_not_waited_for() {
    let start = || {
        let (running, ended) = channel();
        let (go, wait) = sync_channel::<()>(0);
        let thread = std::thread::spawn(move || {
            // Until the sender is gone.
            wait.recv().unwrap_err();
            drop(running);
        });
        (go, thread, ended)
    };
    let (go, thread, ended) = start();
    assert!(join_within(Duration::from_millis(1), thread, &ended).is_err());
    drop(go);
    let (go, thread, ended) = start();
    drop(go);
    assert!(join_within(Duration::from_mins(1), thread, &ended).is_ok());
}
