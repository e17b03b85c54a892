//! The worker: the thread in which the user tier runs.
//!
//! It looks at every source in turn, but for instances that have had nothing for a while
//! ([`awake`]), spins for [`SPIN`] when all are empty, and then sleeps until a program rings
//! the bell or a socket has something.

use std::convert::Infallible;
use std::io::Write as _;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::mpsc::{
    Receiver, RecvTimeoutError, Sender, SyncSender, TryRecvError, channel, sync_channel,
};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use ashway_memory::WakeBell;
use ashway_path::places::PathId;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::thread::set_current_timer_slack;

use crate::bell::Bell;
use crate::clock::now;
use crate::counters::UserRows;
use crate::error::InstanceError;
use crate::frame_port::FramePort;
use crate::iface_map::IfaceMap;
use crate::order::Order;
use crate::packets;
use crate::paths::Paths;
use crate::queue::Queue;
use crate::rings;
use crate::run_instance::{self, HandlerPath, RunInstance};
use crate::snapshot::PathSnapshot;
use crate::swap::ActivateVersion;
use crate::xdp_port::XdpPort;
use ashway_config::Config;
pub use awake::Awake;
use command::{Answer, Call, Command, Resource};

mod awake;
pub mod command;

/// How long to look before sleeping. Waking a sleeper costs 25 us and more
/// (docs/facts.md, "Waking a sleeper"), so a message that comes within about that
/// time is better waited for.
const SPIN: Duration = Duration::from_micros(20);

/// How long to wait before a version is tried again that could not take over.
const BUSY: Duration = Duration::from_micros(100);

/// How often it is tried again: what is in its way ends within its budget.
const AGAIN: u128 = Config::MAX_BUDGET.as_nanos() / BUSY.as_nanos();

/// Polls between two looks at the clock.
const LOOKS: u32 = 16;

/// What the worker works on.
#[derive(Debug)]
pub struct Work {
    /// What programs ring when it sleeps. Absent on rungs without XDP.
    pub wake: Option<Arc<WakeBell>>,
    /// All instances.
    pub instances: Vec<RunInstance>,
    /// Those that are looked at.
    pub awake: Awake,
    /// Whether there are some that leave.
    pub leaving: bool,
    /// Whose rings hold whole frames; made when the first path wants them.
    pub frame_queue: Option<Arc<Queue>>,
    /// The paths that take those.
    pub paths: Paths,
    /// Ways out of interfaces with XDP, by interface.
    pub xdp_ports: IfaceMap<XdpPort>,
    /// Interfaces without a kernel tier.
    pub frame_ports: Vec<FramePort>,
    /// Where to count.
    pub rows: Arc<UserRows>,
}

/// How long the worker may take to look at a change: handlers that are in turn
/// before it end within their budgets.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long the node waits for the worker's end: it first works on what was received.
const END_PATIENCE: Duration = Duration::from_secs(10);

/// How many paths the node may be ahead of the worker.
const AHEAD: usize = 1000;

/// How many paths the worker copies for [`Worker::snapshots`] between two looks at what
/// there is to do.
const SNAPSHOTS: usize = 32;

/// A call, and who waits for the answer.
type Asked = (Call, SyncSender<Answer>);

/// The worker has ended, or hangs.
#[derive(Debug, thiserror::Error)]
#[error("the worker does not answer")]
pub struct WorkerGone;

impl From<WorkerGone> for ashway_api::Refusal {
    fn from(gone: WorkerGone) -> Self {
        Self::failed(
            gone.to_string(),
            "start the node afresh; if no handler has a long budget and the machine is not \
             overloaded, please report it",
        )
    }
}

/// What the worker's end of [`Worker::ask`] holds.
#[derive(Debug)]
struct CommandQueue {
    commands: Receiver<Asked>,
    /// Wakes the worker.
    call: Arc<OwnedFd>,
}

/// A running worker. When dropped it is told to stop, and waited for, but not for ever.
#[derive(Debug)]
pub struct Worker {
    stop: Arc<AtomicBool>,
    /// Absent once the worker has not answered.
    commands: Option<Sender<Asked>>,
    orders: Sender<Order>,
    /// Paths that the worker may not have seen come or go.
    ahead: usize,
    /// Whether there are orders that a sleeping worker does not know of.
    behind: bool,
    call: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
    /// Its sender is dropped when the thread ends.
    ended: Receiver<Infallible>,
}

/// What the thread holds until it ends, by a panic, too.
struct ThreadEnd {
    /// Dropped before it rings.
    thread: Option<Sender<Infallible>>,
    bell: Arc<Bell>,
}

impl Drop for ThreadEnd {
    fn drop(&mut self) {
        self.thread = None;
        self.bell.ring();
    }
}

impl Worker {
    /// Starts it. What is sent by `orders` reaches `work.paths`; when it ends it rings `bell`.
    ///
    /// # Errors
    ///
    /// When no thread can be had.
    pub fn start(work: Work, orders: Sender<Order>, bell: Arc<Bell>) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let flags = EventfdFlags::NONBLOCK.union(EventfdFlags::CLOEXEC);
        let call = Arc::new(eventfd(0, flags)?);
        let (commands, receiver) = channel();
        let queue = CommandQueue {
            commands: receiver,
            call: Arc::clone(&call),
        };
        let (thread, ended) = channel();
        let running = ThreadEnd {
            thread: Some(thread),
            bell,
        };
        let thread = std::thread::Builder::new()
            .name("ashway-worker".to_owned())
            .spawn(move || {
                // A sleep that ends by the clock may end 50 us late by the kernel's default
                // (`timerslack_ns`), and a timer would, too. If this is refused, they do.
                let _ = set_current_timer_slack(NonZeroU64::new(1));
                work.run(&seen, &queue);
                drop(running);
            })?;
        Ok(Self {
            stop,
            commands: Some(commands),
            orders,
            ahead: 0,
            behind: false,
            call,
            thread: Some(thread),
            ended,
        })
    }

    /// Has the worker do something, and waits until it has. Some ten microseconds if it
    /// sleeps.
    ///
    /// # Errors
    ///
    /// [`WorkerGone`].
    pub fn call(&mut self, call: impl Into<Call>) -> Result<(), WorkerGone> {
        self.call_for_answer(call.into()).map(drop)
    }

    fn call_for_answer(&mut self, call: Call) -> Result<Answer, WorkerGone> {
        let (done, seen) = sync_channel(1);
        let commands = self.commands.as_ref().ok_or(WorkerGone)?;
        commands.send((call, done)).map_err(|_| WorkerGone)?;
        self.wake();
        let answer = seen.recv_timeout(PATIENCE).map_err(|_| {
            // Whether the change is still made is unknown: no further one may
            // build on it.
            self.commands = None;
            WorkerGone
        })?;
        self.ahead = 0;
        Ok(answer)
    }

    /// What the worker has of these paths, in this order: [`SNAPSHOTS`] at a time, with
    /// messages in between.
    ///
    /// # Errors
    ///
    /// [`WorkerGone`].
    pub fn snapshots(&mut self, paths: &[PathId]) -> Result<Vec<Option<PathSnapshot>>, WorkerGone> {
        let mut all = Vec::with_capacity(paths.len());
        for some in paths.chunks(SNAPSHOTS) {
            match self.call_for_answer(Command::Snapshots(some.to_vec()).into())? {
                Answer::Snapshots(some) => all.extend(some),
                other => unreachable!("{other:?} is no answer to this"),
            }
        }
        Ok(all)
    }

    /// Has another version of a handler take over; how long no message was taken. What the kernel
    /// tier has in hand meanwhile is waited for, by the calling thread and not by the worker.
    ///
    /// # Errors
    ///
    /// [`WorkerGone`]: nobody knows which version the memory is. Within: the version that
    /// ran runs on.
    pub fn activate_version(
        &mut self,
        next: &ActivateVersion,
    ) -> Result<Result<Duration, InstanceError>, WorkerGone> {
        let mut again = 0..AGAIN;
        loop {
            let version = Resource::Version(Box::new(next.clone()));
            let taken = match self.call_for_answer(version.into())? {
                Answer::VersionActivated(taken) => taken,
                other => unreachable!("{other:?} is no answer to this"),
            };
            match taken {
                Err(InstanceError::Busy { .. }) if again.next().is_some() => sleep(BUSY),
                taken => return Ok(taken),
            }
        }
    }

    /// Has the worker change its paths before it looks up the next frame, and
    /// does not wait, but for every thousandth path: a sleeping worker is not woken
    /// for what no message needs yet, until the node [has time](Self::catch_up).
    ///
    /// # Errors
    ///
    /// [`WorkerGone`].
    pub fn post(&mut self, order: Order) -> Result<(), WorkerGone> {
        if self.commands.is_none() {
            return Err(WorkerGone);
        }
        let (paths, starts) = (order.paths(), order.starts());
        self.orders.send(order).map_err(|_| WorkerGone)?;
        self.ahead += paths;
        self.behind = true;
        if self.ahead >= AHEAD {
            return self.call(Command::Finish);
        }
        if starts {
            self.wake();
        }
        Ok(())
    }
}

impl Worker {
    /// Wakes it if it sleeps. It fails only if it was called 2^64 times and never looked.
    fn wake(&mut self) {
        self.behind = false;
        let _ = rustix::io::write(&self.call, &1_u64.to_ne_bytes());
    }

    /// Has a sleeping worker do what it was ordered, so that nothing that is gone is kept
    /// until the next message. For when nobody waits for the node.
    pub fn catch_up(&mut self) {
        if self.behind {
            self.wake();
        }
    }

    /// Whether it still runs; it ends by itself only by a bug.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        !matches!(self.ended.try_recv(), Err(TryRecvError::Disconnected))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.wake();
        if let Some(thread) = self.thread.take()
            && let Err(hangs) = join_within(END_PATIENCE, thread, &self.ended)
        {
            // The process takes the thread along.
            let _ = writeln!(std::io::stderr(), "{hangs}");
        }
    }
}

/// The worker has not ended when it was told to.
#[derive(Debug, thiserror::Error)]
#[error(
    "the worker does not end within {} s: the node ends without it, and messages that it had \
     are lost; please report this",
    .0.as_secs()
)]
struct Hangs(Duration);

/// Waits for the end of the thread, which drops the sender of `ended`, for so long.
fn join_within(
    time: Duration,
    thread: JoinHandle<()>,
    ended: &Receiver<Infallible>,
) -> Result<(), Hangs> {
    if let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(time) {
        return Err(Hangs(time));
    }
    // A panic has been printed by then; there is nothing to add.
    let _ = thread.join();
    Ok(())
}

/// Whether to sleep, when there has been nothing for so long.
fn is_idle(time: Duration) -> bool {
    time > SPIN
}

/// Whether an instance leaves, and nothing is left of it.
fn is_gone(instance: &RunInstance) -> bool {
    instance.leaves && instance.paths().next().is_none() && !rings::waiting(instance.shared())
}

impl Work {
    fn run(mut self, stop: &AtomicBool, queue: &CommandQueue) {
        let mut idle_since = Instant::now();
        self.list();
        while !stop.load(Ordering::Acquire) {
            if self.turn(stop, queue) {
                idle_since = Instant::now();
            } else if is_idle(idle_since.elapsed()) {
                self.paths.pause(&self.rows);
                self.sleep(&queue.call);
                idle_since = Instant::now();
            }
        }
        self.finish();
    }

    /// Does what it is called for, once, and looks at the sources [`LOOKS`] times, unless it is
    /// to stop. Whether there was anything.
    fn turn(&mut self, stop: &AtomicBool, queue: &CommandQueue) -> bool {
        let mut any = false;
        // One command a turn: who asks for much asks piece by piece, and messages come
        // in between. Another may be there, so the worker does not sleep after one.
        if let Ok((call, done)) = queue.commands.try_recv() {
            any = true;
            // What was ordered before has been done when this begins.
            self.paths.apply_pending(&self.rows);
            if matches!(call, Call::Do(Command::Snapshots(_))) {
                // What it sends is transmitted by the next look: until then it is seen in
                // the output queues.
                self.run_paths();
            }
            // What the node asks for is no path's work: charged before, and nobody's.
            self.paths.pause(&self.rows);
            let answer = self.answer(call);
            self.list();
            self.paths.pause(&self.rows);
            // Who asked may have stopped waiting.
            let _ = done.try_send(answer);
        }
        self.paths.apply_pending(&self.rows);
        for _ in 0..LOOKS {
            if stop.load(Ordering::Acquire) {
                break;
            }
            any |= self.look();
            std::hint::spin_loop();
        }
        any
    }

    /// Works on what has come before the end.
    fn finish(&mut self) {
        // What was taken from the driver before the end still has a fate, and what waits
        // for a share has it now. The links are gone by now, so the rings run dry; a
        // socket would not.
        self.paths.engine.open_shares(now());
        self.awake.rouse_all(&mut self.instances);
        self.take();
        self.frame_ports.clear();
        // No path is woken any more: one that is always due would never let it end.
        while self.take() || self.is_awaited() || self.paths.engine.sets_aside() {}
    }

    /// Takes a batch from each source, and wakes the paths whose time has come.
    fn look(&mut self) -> bool {
        let mut any = self.take();
        if self.paths.due_at().is_some_and(|time| time <= now()) {
            any |= self.paths.wake(&self.rows);
            self.flush();
        }
        any
    }

    /// Takes a batch from each source, runs what has come, and transmits what it sends.
    fn take(&mut self) -> bool {
        let any = self.run_paths();
        self.flush();
        self.let_go();
        any
    }

    /// Takes a batch from each source, and runs what has come. What it sends by links waits in
    /// the output queues of its paths.
    fn run_paths(&mut self) -> bool {
        if self.wake.as_ref().is_some_and(|bell| bell.has_rung()) {
            self.rouse();
        }
        let Self {
            instances,
            awake,
            frame_queue,
            paths,
            frame_ports,
            rows,
            ..
        } = self;
        let mut any = awake.look(instances, |instance| {
            instance.handler.look_at_fault();
            let any = rings::drain(instance, paths, rows, now);
            if let Some((endpoint, place)) = instance.shared().endpoint() {
                endpoint.wake(place);
            }
            any
        });
        if let Some(frame_queue) = frame_queue {
            any |= rings::drain_frames(frame_queue, paths, rows, now);
        }
        // Those of a path draw on one account: another comes first each time.
        let by = frame_ports.len().min(1);
        frame_ports.rotate_left(by);
        for port in frame_ports.iter_mut() {
            // An interface that went away has nothing more to say.
            any |= packets::drain(port, paths, rows, now).unwrap_or(false);
        }
        any |= paths.run(rows);
        if any {
            awake.was_busy();
        }
        any
    }

    /// Whether a ring holds a message, be it half filled.
    fn is_awaited(&self) -> bool {
        let frame_queue = self.frame_queue.as_deref();
        let mut instances = self.instances.iter().map(RunInstance::shared);
        frame_queue.is_some_and(rings::holds_any) || instances.any(|shared| rings::waiting(shared))
    }

    /// Takes a path in that ends in a handler.
    ///
    /// # Panics
    ///
    /// If the handler is none of the worker's.
    pub fn bind(&mut self, path: HandlerPath) {
        // The list still has those that were unloaded and have messages left.
        let instance = run_instance::by_id(&mut self.instances, path.handler);
        let instance = instance.expect("the node has it");
        instance.lead(path.local, path.iface, path.id);
        self.paths.insert_fed(instance.shared(), path);
    }

    /// Lets paths and instances go that the node has done with, and that have worked on all
    /// that they had received.
    fn let_go(&mut self) {
        if self.paths.is_closing() {
            for id in self.paths.closed(&self.rows) {
                for instance in &mut self.instances {
                    instance.forget(id);
                }
            }
        }
        if self.leaving {
            let gone = self.instances.extract_if(.., |instance| is_gone(instance));
            let gone: Vec<RunInstance> = gone.collect();
            for instance in &gone {
                if let Some(queue) = &instance.shared().queue {
                    queue.pool().close();
                }
            }
            if !gone.is_empty() {
                self.paths.forget_spares();
                self.list();
            }
        }
    }

    /// The list of instances, or what is to become of one, may have changed.
    fn list(&mut self) {
        self.leaving = self.instances.iter().any(|instance| instance.leaves);
        self.awake.list(&mut self.instances);
    }

    /// Drains the bell, and looks at those again that have rung. Whether there were any.
    fn rouse(&mut self) -> bool {
        let rang = self.wake.as_ref().is_some_and(|bell| bell.drain());
        rang && self.awake.rouse(&mut self.instances)
    }

    /// Sends what paths of modules have sent.
    fn flush(&mut self) {
        let (xdp, frames) = (&mut self.xdp_ports, &mut self.frame_ports);
        let frame_queue = self.frame_queue.as_deref();
        self.paths.flush(xdp, frames, frame_queue, &self.rows);
    }

    /// Asks to be woken, looks once more, and sleeps.
    fn sleep(&mut self, call: &OwnedFd) {
        for port in &mut self.frame_ports {
            port.medium.flush();
        }
        let none = self.awake.all_lie_down(&mut self.instances);
        self.want_frames(true);
        // Pairs with the exchange in the ring program: either it sees the flag
        // or we see its message.
        fence(Ordering::SeqCst);
        let roused = self.rouse();
        if none && !roused && !self.frame_queue.as_deref().is_some_and(rings::holds_any) {
            let mut fds: Vec<PollFd> = Vec::with_capacity(2 + self.frame_ports.len());
            fds.push(PollFd::new(call, PollFlags::IN));
            let bell = self.wake.as_ref().map(|bell| bell.fd());
            if let Some(bell) = &bell {
                fds.push(PollFd::new(bell, PollFlags::IN));
            }
            let sources = self.frame_ports.iter().filter_map(|port| port.medium.fd());
            fds.extend(sources.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
            // Interrupted or timed out: the loop looks at everything anyway.
            let _ = poll(&mut fds, self.nap().as_ref());
            // Not called: there is nothing to read.
            let _ = rustix::io::read(call, &mut [0_u8; 8]);
        }
        self.want_frames(false);
    }

    /// How long no path has to be woken and no frame is due; without end if none is to be.
    fn nap(&self) -> Option<Timespec> {
        let (ports, waiting) = (self.frame_ports.iter(), self.paths.engine.waiting());
        let ports = ports.filter(|port| !port.is_held_back(waiting));
        let frames = ports.filter_map(|port| port.medium.due_at());
        let next = frames.chain(self.paths.due_at()).min()?;
        Timespec::try_from(next.since(now())).ok()
    }

    /// Has the programs of whole frames ring, or not.
    fn want_frames(&self, wanted: bool) {
        if let Some(frame_queue) = &self.frame_queue {
            frame_queue.want_wake(wanted);
        }
    }
}

#[cfg(test)]
mod tests;
