//! The worker with handlers whose rings programs fill; these are [played](crate::played).

use ashway_abi::{flow, trusted};
use ashway_demux::{Replica, Table};

use super::*;
use crate::bug::{self, Bug};
use crate::faults::tests::new_instance;
use crate::handle::HandlerHandle;
use crate::instance::{Instance, NewInstance};
use crate::keys;
use crate::plan::HandlerId;
use crate::played::{self, Ringer, Slot, take_wish};
use crate::swap;
use crate::target::{DemuxChange, Target};

/// The number of each handler's path.
const LOCAL: usize = 3;

/// The bucket of its flow.
const BUCKET: u32 = 7;

/// A worker's work with two handlers, each with a queue, and a path that consumes its messages.
struct Fed {
    work: Work,
    rows: Arc<UserRows>,
    orders: Sender<Order>,
    ringer: Ringer,
    ids: Ids,
    handlers: [Arc<Instance>; 2],
    paths: [PathId; 2],
}

fn handler_id(number: u32) -> HandlerId {
    serde_json::from_value(number.into()).unwrap()
}

/// A handler's instance, with a queue or without one.
fn run_instance(number: u32, has_queue: bool, rows: &Arc<UserRows>) -> RunInstance {
    let made = new_instance("h");
    let made = NewInstance {
        instance: if has_queue {
            made.instance.with_queue(played::handler_queue("h"))
        } else {
            made.instance
        },
        ..made
    };
    let handle = HandlerHandle::new(made, rows, &Arc::default());
    RunInstance::new(handler_id(number), handle)
}

fn fed() -> Fed {
    let rows = Arc::new(UserRows::new(4));
    let (orders, receiver) = channel();
    let table = Replica::of(&Table::default());
    let paths = Paths::new(
        [(0, table)].into_iter().collect(),
        CounterRow(0),
        receiver,
        Arc::default(),
    );
    let ringer = Ringer::new();
    let mut work = Work {
        wake: Some(Arc::clone(&ringer.bell)),
        ..work(paths, &rows)
    };
    let mut ids = Ids::default();
    let made = [0, 1].map(|number| {
        let instance = run_instance(number, true, &rows);
        let (shared, id) = (Arc::clone(instance.shared()), ids.take());
        work.instances.push(instance);
        work.bind(HandlerPath {
            id,
            handler: handler_id(number),
            local: LOCAL,
            iface: 0,
            row: CounterRow(1 + number),
            path: new(id, Box::new(Gone(Arc::default()))).path,
            share: None,
        });
        (shared, id)
    });
    work.list();
    Fed {
        work,
        rows,
        orders,
        ringer,
        ids,
        paths: made.each_ref().map(|(_, path)| *path),
        handlers: made.map(|(shared, _)| shared),
    }
}

impl Fed {
    fn queue(&self, handler: usize) -> &Queue {
        self.handlers[handler].queue.as_ref().unwrap()
    }

    /// A program puts a message into the ring of a handler. Whether it rings.
    fn put(&self, handler: usize) -> bool {
        let queue = self.queue(handler);
        played::put(queue, LOCAL, BUCKET, b"message");
        self.ringer.ring_for(queue)
    }

    /// Messages of each handler that were consumed.
    fn consumed(&self) -> [u64; 2] {
        let row = |number| self.rows.row(CounterRow(number));
        [1, 2].map(|number| row(number).get(Count::Consumed))
    }

    /// Messages of each handler in the user tier: those of its path, and those of all flows.
    fn in_user(&self) -> [[u32; 2]; 2] {
        [0, 1].map(|handler| {
            let queue = self.queue(handler);
            [queue.in_user(LOCAL), queue.in_flows()]
        })
    }

    /// Which instances sleep.
    fn asleep(&self) -> Vec<bool> {
        let instances = self.work.instances.iter();
        instances.map(|instance| instance.asleep).collect()
    }

    /// Gives the worker a queue of whole frames.
    fn frame_queue(&mut self) -> Arc<Queue> {
        let queue = Arc::new(played::frame_queue());
        let resource = Resource::FrameQueue(Arc::clone(&queue));
        self.work.answer(resource.into());
        queue
    }

    fn start(self) -> (Worker, Arc<UserRows>) {
        let bell = Arc::new(Bell::new().unwrap());
        let worker = Worker::start(self.work, self.orders, bell).unwrap();
        (worker, self.rows)
    }
}

/// Whether the worker sleeps, if it wants to now. It was called before, so a sleep is short, and
/// takes the call.
fn sleeps(work: &mut Work) -> bool {
    let call = eventfd(1, EventfdFlags::NONBLOCK).unwrap();
    work.sleep(&call);
    rustix::io::read(&call, &mut [0_u8; 8]).is_err()
}

/// What programs have counted in is counted off, for its path and for its flow, when it has left
/// the user tier.
#[test]
fn a_message_is_taken_out_of_its_ring_and_counted_off() {
    let mut fed = fed();
    assert!(!fed.work.look());
    for _ in 0..3 {
        assert!(!fed.put(1), "a worker that looks is not rung for");
    }
    assert_eq!(fed.in_user(), [[0; 2], [3; 2]]);
    assert!(fed.work.look());
    assert_eq!(fed.consumed(), [0, 3]);
    assert_eq!(fed.in_user(), [[0; 2]; 2]);
    assert!(!fed.work.look());
}

#[test]
fn a_whole_frame_is_taken_whosever_it_is() {
    let mut fed = fed();
    let queue = fed.frame_queue();
    fed.work.paths.insert(ModulePath {
        number: Some(0),
        ..new(fed.ids.take(), Box::new(Gone(Arc::default())))
    });
    let fates = [Count::Consumed, Count::DroppedPassFailed];
    let counted = |rows: &UserRows| fates.map(|fate| rows.row(CounterRow(0)).get(fate));
    let key = keys::key(0, Direction::Backward);
    for (key, expected) in [(key, [1, 0]), (0, [1, 1])] {
        played::put(&queue, key, flow::UNORDERED, b"frame");
        assert!(fed.work.look());
        // There is no interface by which the host could have what is nobody's.
        assert_eq!(counted(&fed.rows), expected);
        assert_eq!(queue.in_user(key), 0);
        assert!(!fed.work.look());
    }
}

/// A timer that is due is something to do, and the next one is not slept on.
#[test]
fn a_nap_ends_when_a_path_is_to_be_woken() {
    const HOUR: Duration = Duration::from_hours(1);
    let mut fed = fed();
    assert_eq!(fed.work.nap(), None);
    let wake = |now: Time| Some(now + HOUR);
    fed.work
        .paths
        .insert(new(fed.ids.take(), Box::new(Woken(wake))));
    assert!(fed.work.look());
    assert!(!fed.work.look());
    let nap = Duration::try_from(fed.work.nap().unwrap()).unwrap();
    assert!((HOUR / 2..=HOUR).contains(&nap), "{nap:?}");
}

/// Between the wish to be rung for and the sleep there is a look.
#[test]
fn no_message_is_slept_on() {
    let mut fed = fed();
    let frames = fed.frame_queue();
    assert!(sleeps(&mut fed.work));
    assert_eq!(fed.asleep(), [true, true]);
    assert!(!take_wish(&frames), "frames are looked for again");
    // One that rang while the worker lay down.
    assert!(fed.put(0));
    assert!(!sleeps(&mut fed.work));
    assert_eq!(fed.asleep(), [false, true]);
    assert!(fed.work.look());
    // One that came when nobody was to ring.
    assert!(!fed.put(0));
    assert!(!sleeps(&mut fed.work));
    assert!(fed.work.look());
    assert_eq!(fed.consumed(), [2, 0]);
    // One of which the half is there.
    let half = Slot::take(fed.queue(0));
    assert!(!sleeps(&mut fed.work));
    half.fill(fed.queue(0), LOCAL, BUCKET, b"message");
    assert!(!sleeps(&mut fed.work));
    assert!(fed.work.look());
    // A whole frame.
    played::put(&frames, 0, flow::UNORDERED, b"frame");
    assert!(!sleeps(&mut fed.work));
    assert!(fed.work.look());
    assert!(sleeps(&mut fed.work));
}

/// A program takes the wish away before it rings: one that has not rung yet is not looked for,
/// and one that has is found by its wish.
#[test]
fn who_has_rung_is_looked_at_and_nobody_else() {
    let mut fed = fed();
    assert!(sleeps(&mut fed.work));
    played::put(fed.queue(1), LOCAL, BUCKET, b"message");
    assert!(take_wish(fed.queue(1)));
    assert!(!fed.work.rouse() && !fed.work.look());
    assert_eq!(fed.asleep(), [true, true]);
    fed.ringer.ring();
    assert!(fed.work.rouse());
    assert_eq!(fed.asleep(), [true, false]);
    assert!(!fed.work.rouse(), "it has rung once");
    assert!(fed.work.look());
    assert_eq!(fed.consumed(), [0, 1]);
    // By the next look alone.
    assert!(fed.put(0) && fed.work.look());
    assert_eq!(fed.consumed(), [1, 1]);
}

/// Nothing rings for an instance without a queue, so it does not wait for that.
#[test]
fn what_has_no_queue_does_not_sleep() {
    let mut fed = fed();
    let without = run_instance(2, false, &fed.rows);
    fed.work.answer(Resource::Instance(without).into());
    fed.work.list();
    assert!(sleeps(&mut fed.work));
    assert_eq!(fed.asleep(), [true, true, false]);
}

/// The programs of whole frames are to ring while the worker sleeps, and not while it looks.
#[test]
fn a_worker_that_sleeps_is_rung_for_frames() {
    let mut fed = fed();
    let queue = fed.frame_queue();
    fed.work.want_frames(true);
    assert!(take_wish(&queue));
    fed.work.want_frames(true);
    fed.work.want_frames(false);
    assert!(!take_wish(&queue));
    // It says so by itself.
    let (mut worker, rows) = fed.start();
    until("the worker sleeps", || take_wish(&queue));
    played::put(&queue, 0, flow::UNORDERED, b"frame");
    worker.call(Command::Finish).unwrap();
    let dropped = || rows.row(CounterRow(0)).get(Count::DroppedPassFailed);
    until("the frame is taken", || dropped() == 1);
}

#[test]
fn what_is_half_filled_is_awaited() {
    let mut fed = fed();
    let frames = fed.frame_queue();
    assert!(!fed.work.is_awaited());
    let half = Slot::take(&frames);
    assert!(fed.work.is_awaited());
    half.fill(&frames, 0, flow::UNORDERED, b"frame");
    fed.work.take();
    assert!(!fed.work.is_awaited());
    let half = Slot::take(fed.queue(1));
    assert!(fed.work.is_awaited());
    half.fill(fed.queue(1), LOCAL, BUCKET, b"message");
    fed.work.take();
    assert!(!fed.work.is_awaited());
}

/// A program that is at work on a message when the node ends comes to its end.
#[test]
fn the_end_waits_for_what_is_half_filled() {
    let fed = fed();
    let handler = Arc::clone(&fed.handlers[0]);
    let queue = handler.queue.as_ref().unwrap();
    let half = Slot::take(queue);
    let (worker, rows) = fed.start();
    std::thread::scope(|scope| {
        scope.spawn(|| drop(worker));
        sleep(Duration::from_millis(20));
        half.fill(queue, LOCAL, BUCKET, b"message");
    });
    assert_eq!(rows.row(CounterRow(1)).get(Count::Consumed), 1);
    assert_eq!((queue.in_user(LOCAL), queue.in_flows()), (0, 0));
}

#[test]
fn a_turn_does_one_command_and_looks() {
    let mut fed = fed();
    let (commands, receiver) = channel();
    let flags = EventfdFlags::NONBLOCK;
    let queue = CommandQueue {
        commands: receiver,
        call: Arc::new(eventfd(0, flags).unwrap()),
    };
    let stop = AtomicBool::new(false);
    assert!(!fed.work.turn(&stop, &queue));
    let (done, answered) = sync_channel(2);
    for _ in 0..2 {
        let asked = (Command::Finish.into(), done.clone());
        commands.send(asked).unwrap();
    }
    for _ in 0..2 {
        assert!(fed.work.turn(&stop, &queue));
        assert!(answered.try_recv().is_ok() && answered.try_recv().is_err());
    }
    fed.put(0);
    assert!(fed.work.turn(&stop, &queue));
    assert!(!fed.work.turn(&stop, &queue));
    stop.store(true, Ordering::Release);
    fed.put(0);
    assert!(!fed.work.turn(&stop, &queue));
    assert_eq!(fed.consumed(), [1, 0]);
}

#[test]
fn a_worker_spins_before_it_sleeps() {
    let times = [Duration::ZERO, SPIN, SPIN + Duration::from_nanos(1)];
    assert_eq!(times.map(is_idle), [false, false, true]);
}

/// A path that goes has its messages first; then nothing leads to it.
#[test]
fn a_path_goes_when_nothing_of_it_is_underway() {
    let mut fed = fed();
    let path = fed.paths[1];
    let close = |work: &mut Work| work.answer(Command::Close(vec![path]).into());
    fed.put(1);
    close(&mut fed.work);
    // Taken and run by the first look, and counted off behind it.
    fed.work.let_go();
    assert!(fed.work.paths.snapshot(path).is_some());
    assert_eq!(fed.work.instances[1].path(LOCAL, 0), Some(path));
    fed.work.take();
    assert_eq!(fed.consumed(), [0, 1]);
    assert!(fed.work.paths.snapshot(path).is_none());
    assert_eq!(fed.work.instances[1].path(LOCAL, 0), None);
    assert!(fed.work.paths.snapshot(fed.paths[0]).is_some());
}

/// Two interfaces share a ring, and each has a path of its own.
fn a_ring_is_shared() -> bool {
    let mut fed = fed();
    let id = fed.ids.take();
    fed.work.bind(HandlerPath {
        id,
        handler: handler_id(0),
        local: LOCAL,
        iface: 7,
        row: CounterRow(3),
        path: new(id, Box::new(Gone(Arc::default()))).path,
        share: None,
    });
    for (iface, times) in [(0, 2), (7, 3), (8, 1)] {
        for _ in 0..times {
            let slot = Slot::take(fed.queue(0));
            slot.by(iface)
                .fill(fed.queue(0), LOCAL, flow::UNORDERED, b"message");
        }
    }
    while fed.work.look() {}
    let consumed = |row| fed.rows.row(CounterRow(row)).get(Count::Consumed);
    // What came by an interface that it is not at is nobody's.
    [1, 3].map(consumed) == [2, 3]
}

#[test]
fn a_message_is_its_interfaces_whosever_ring_it_lies_in() {
    assert!(a_ring_is_shared());
    assert!(!bug::with(Bug::InterfaceOfRing, a_ring_is_shared));
}

/// A path is at one interface less while it is busy at another.
#[test]
fn a_path_leaves_an_interface_when_its_messages_of_there_are_done() {
    let mut fed = fed();
    let (id, row) = (fed.ids.take(), CounterRow(1));
    fed.work.bind(HandlerPath {
        id,
        handler: handler_id(0),
        local: LOCAL,
        iface: 7,
        row,
        path: new(id, Box::new(Gone(Arc::default()))).path,
        share: None,
    });
    let put = |fed: &Fed, iface| {
        let slot = Slot::take(fed.queue(0));
        slot.by(iface).fill(fed.queue(0), LOCAL, BUCKET, b"message");
    };
    put(&fed, 7);
    fed.work.answer(Command::Close(vec![id]).into());
    fed.work.let_go();
    assert!(fed.work.paths.snapshot(id).is_some(), "one is left");
    put(&fed, 0);
    // Another of the path is in the user tier whenever anybody looks.
    fed.queue(0)
        .in_user_word(LOCAL)
        .fetch_add(1, Ordering::SeqCst);
    fed.work.take();
    assert_eq!(fed.rows.row(row).get(Count::Consumed), 2);
    assert!(fed.work.paths.snapshot(id).is_none());
    assert_eq!(fed.work.instances[0].path(LOCAL, 7), None);
    // It does not leave the last one like that.
    let last = fed.paths[0];
    fed.work.answer(Command::Close(vec![last]).into());
    fed.work.take();
    assert!(fed.work.paths.snapshot(last).is_some());
    fed.queue(0)
        .in_user_word(LOCAL)
        .fetch_sub(1, Ordering::SeqCst);
    fed.work.take();
    assert!(fed.work.paths.snapshot(last).is_none());
}

/// Whether a frame that was underway when its interface and its path went is nobody's, whatever
/// interface comes behind that one.
fn a_frame_of_a_gone_interface_is_nobodys() -> bool {
    let text = "[iface.a]\n";
    let config = ashway_config::parse("test.toml".as_ref(), text.as_bytes()).unwrap();
    let one = crate::queue_plan::IfaceFacts {
        queues: 1,
        mtu: 1500,
        shares: false,
    };
    let facts = [(0, one)].into_iter().collect();
    let mut plan = crate::plan::draw(&config, &facts, &mut Ids::default());

    let mut fed = fed();
    let frames = fed.frame_queue();
    let slot = Slot::take(&frames);
    fed.work.answer(Command::LeaveIface(0).into());
    fed.work.answer(Command::ForgetIface(0).into());
    plan.remove_iface(0).unwrap();
    // The next one has a path that takes all frames.
    let next = plan.take_iface_number();
    plan.add_iface(next, CounterRow(3));
    let id = fed.ids.take();
    let mut table = Table::default();
    let target = Target {
        path: id,
        direction: Direction::Backward,
        row: CounterRow(0),
    };
    let all = ashway_demux::parse("udp or not udp").unwrap();
    table.insert(&all, target).unwrap();
    fed.work
        .paths
        .insert(new(id, Box::new(Gone(Arc::default()))));
    let order = Order {
        demux_changes: vec![(next, DemuxChange::Anew(Replica::of(&table)))],
        ..Order::default()
    };
    fed.orders.send(order).unwrap();
    slot.fill(&frames, 0, flow::UNORDERED, &[0; 60]);
    while fed.work.look() {}
    let row = fed.rows.row(CounterRow(0));
    [Count::Consumed, Count::DroppedPassFailed].map(|fate| row.get(fate)) == [0, 1]
}

#[test]
fn a_number_of_an_interface_does_not_return() {
    assert!(a_frame_of_a_gone_interface_is_nobodys());
    let bug = Bug::IfaceNumberReturns;
    assert!(!bug::with(bug, a_frame_of_a_gone_interface_is_nobodys));
}

/// Its memory goes with it: what messages are kept for the next is not of it.
#[test]
fn an_instance_goes_when_nothing_of_it_is_left() {
    let mut fed = fed();
    (0..2).for_each(|_| played::put(fed.queue(0), LOCAL, BUCKET, b"message"));
    fed.work.take();
    let of_it = fed.work.paths.message();
    assert!(of_it.buffer().is_of_pool());
    let names = |fed: &Fed| {
        let all = fed.work.instances.iter();
        all.map(RunInstance::id).collect::<Vec<_>>()
    };
    let both = [0, 1].map(handler_id);
    let remove = Command::RemoveInstances([both[0]].into());
    fed.work.answer(remove.into());
    fed.work.list();
    fed.work.take();
    assert_eq!(names(&fed), both, "a path is left");
    let half = Slot::take(fed.queue(0));
    let close = Command::Close(vec![fed.paths[0]]);
    fed.work.answer(close.into());
    fed.work.take();
    assert!(fed.work.paths.snapshot(fed.paths[0]).is_none());
    assert_eq!(names(&fed), both, "a message comes");
    assert!(fed.work.leaving && !of_it.buffer().is_of_closed());
    half.fill(fed.queue(0), LOCAL, BUCKET, b"message");
    fed.work.take();
    assert_eq!(names(&fed), both[1..]);
    assert!(!fed.work.leaving && of_it.buffer().is_of_closed());
    assert!(!fed.work.paths.message().buffer().is_of_closed());
    // The other has another place in the list.
    fed.put(1);
    assert!(fed.work.take());
    assert_eq!(fed.consumed(), [2, 1]);
}

/// The worker tries, and goes on with its paths in between, until what the kernel tier has in
/// hand has ended.
#[test]
fn a_version_takes_over_behind_an_activation() {
    let setting = swap::tests::Setting::new("behind");
    let shared = Arc::clone(&setting.handler.shared);
    let word = |shared: &Arc<Instance>, at: usize, change: fn(&AtomicU32) -> u32| {
        let queue = shared.queue.as_ref().unwrap();
        change(queue.words().u32_at(at))
    };
    let begins = |word: &AtomicU32| word.swap(1, Ordering::SeqCst);
    let ends = |word: &AtomicU32| word.swap(0, Ordering::SeqCst);
    // One that does not end within any budget.
    word(&shared, trusted::LOCK, begins);
    let (mut worker, _bell) = idle();
    let next = setting.next(1, "");
    let taken = worker.activate_version(&next).unwrap();
    assert!(matches!(taken, Err(InstanceError::Busy { .. })));
    assert_eq!(setting.counts(), [10, 3]);
    drop(worker);
    // One that ends when the lock is wanted.
    word(&shared, trusted::WANTED, ends);
    let mut fed = fed();
    let activation = move |now: Time| {
        if word(&shared, trusted::WANTED, |word| word.load(Ordering::SeqCst)) != 0 {
            word(&shared, trusted::LOCK, ends);
        }
        Some(now)
    };
    fed.work
        .paths
        .insert(new(fed.ids.take(), Box::new(Woken(activation))));
    let (mut worker, _) = fed.start();
    let taken = worker.activate_version(&next).unwrap().unwrap();
    assert!(taken > Duration::ZERO);
    assert_eq!(setting.counts(), [10, 0]);
    assert_eq!(
        setting.handler.running.lock().unwrap().version.id,
        next.next.id
    );
}
