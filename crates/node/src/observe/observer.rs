//! The observer's thread: reads what is said, and tells the clients.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ashway_abi::context;
use ashway_abi::observe::{self, Note};
use ashway_memory::NoteRing;
use ashway_memory::clock::monotonic_ns;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::audience::{Client, Subscription};
use super::message_trace::{MessageTraces, Names};
use ashway_worker::observe::Event;
use ashway_worker::observe::trace::TraceSink;
use ashway_worker::programs::NodeMaps;

/// Events that wait for the thread at most; 32 MiB if each has a long frame.
const EVENTS: usize = 1 << 13;

/// How often it reads: nobody has to be woken for what is only looked at.
const EVERY_NS: i64 = 2_000_000;

/// The same while nobody wants to know.
const IDLE_NS: i64 = 50_000_000;

/// How often it looks what programs have lost.
const LOOK: Duration = Duration::from_millis(200);

/// What programs say.
#[derive(Debug)]
pub(crate) struct Kernel {
    /// Where.
    pub(crate) ring: NoteRing,
    /// Where they count what they could not say.
    pub(crate) maps: Arc<NodeMaps>,
}

enum Order {
    /// With what the worker had lost when it came.
    Client(UnixStream, Subscription, u64),
    Names(Names),
    End,
}

/// The thread; ends when dropped.
#[derive(Debug)]
pub(crate) struct Observer {
    orders: Sender<Order>,
    bell: Arc<OwnedFd>,
    /// Clients that are there.
    clients: Arc<AtomicUsize>,
    events: SyncSender<Event>,
    lost: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Observer {
    /// Starts it.
    ///
    /// # Errors
    ///
    /// When no thread can be had.
    pub(crate) fn start(kernel: Option<Kernel>, names: Names) -> io::Result<Self> {
        let (orders, from_node) = channel();
        let (events, from_worker) = sync_channel(EVENTS);
        let bell = Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?);
        let clients = Arc::new(AtomicUsize::new(0));
        let lost = Arc::new(AtomicU64::new(0));
        let mut traces = MessageTraces::default();
        traces.names = names;
        let run = ObserverThread {
            orders: from_node,
            bell: Arc::clone(&bell),
            events: from_worker,
            late: Vec::new(),
            lost_before: kernel.as_ref().map_or(0, Kernel::lost),
            kernel,
            lost_by_worker: Arc::clone(&lost),
            lost_by_kernel: 0,
            clients: Vec::new(),
            count: Arc::clone(&clients),
            traces,
        };
        let thread = std::thread::Builder::new()
            .name("ashway-observe".to_owned())
            .spawn(move || run.run())?;
        Ok(Self {
            orders,
            bell,
            clients,
            events,
            lost,
            thread: Some(thread),
        })
    }

    /// A tap for the worker.
    pub(crate) fn trace(&self, session: u16) -> TraceSink {
        TraceSink {
            to: self.events.clone(),
            lost: Arc::clone(&self.lost),
            session,
        }
    }

    /// Tells somebody at the other end of `stream` from now on.
    pub(crate) fn add(&self, stream: UnixStream, mut wanted: Subscription) {
        self.clients.fetch_add(1, Ordering::Relaxed);
        let lost = self.lost.load(Ordering::Relaxed);
        wanted.since = monotonic_ns();
        self.order(Order::Client(stream, wanted, lost));
    }

    /// What is known by number from now on.
    pub(crate) fn names(&self, names: Names) {
        self.order(Order::Names(names));
    }

    /// Whether somebody is there.
    pub(crate) fn has_clients(&self) -> bool {
        self.clients.load(Ordering::Relaxed) > 0
    }

    fn order(&self, order: Order) {
        // It ends only when we say so, or by a bug that has been printed.
        let _ = self.orders.send(order);
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.order(Order::End);
        if let Some(thread) = self.thread.take() {
            // A panic has been printed by then.
            let _ = thread.join();
        }
    }
}

/// What the thread has.
struct ObserverThread {
    orders: Receiver<Order>,
    bell: Arc<OwnedFd>,
    events: Receiver<Event>,
    /// Of messages that nothing was known of when it was read.
    late: Vec<Event>,
    kernel: Option<Kernel>,
    lost_by_worker: Arc<AtomicU64>,
    lost_before: u64,
    lost_by_kernel: u64,
    clients: Vec<Client>,
    count: Arc<AtomicUsize>,
    traces: MessageTraces,
}

impl ObserverThread {
    fn run(mut self) {
        let mut looked = Instant::now();
        loop {
            self.sleep();
            while let Ok(order) = self.orders.try_recv() {
                match order {
                    Order::Client(stream, wanted, lost_by_worker) => {
                        let lost = self.lost_by_kernel + lost_by_worker + self.traces.lost;
                        self.clients.push(Client::new(stream, wanted, lost));
                    }
                    Order::Names(names) => self.traces.names = names,
                    Order::End => return self.end(),
                }
            }
            self.read();
            if looked.elapsed() >= LOOK {
                looked = Instant::now();
                self.look();
            }
            self.tell(monotonic_ns());
        }
    }

    /// Waits for an order, a client's end, or time.
    fn sleep(&mut self) {
        // What is said comes without a word, and while there is no client it may wait.
        let idle = self.clients.is_empty() && !self.traces.any();
        let time = Timespec {
            tv_sec: 0,
            tv_nsec: if idle { IDLE_NS } else { EVERY_NS },
        };
        let mut fds = vec![PollFd::new(&*self.bell, PollFlags::IN)];
        // A client has nothing to say: what can be read is its end.
        fds.extend(
            self.clients
                .iter()
                .map(|client| PollFd::new(client, PollFlags::IN)),
        );
        // Interrupted or timed out: it looks at everything anyway.
        let _ = poll(&mut fds, Some(&time));
        let over: Vec<bool> = fds[1..].iter().map(|fd| !fd.revents().is_empty()).collect();
        // Not rung: there is nothing to read.
        let _ = rustix::io::read(&*self.bell, &mut [0_u8; 8]);
        if over.contains(&true) {
            // The last that it hears is how much was lost.
            self.look();
        }
        for (client, over) in self.clients.iter_mut().zip(over) {
            if over {
                client.hang_up();
            }
        }
    }

    /// Reads what has been said. What the worker says of a message comes after what
    /// a program said of it, so it is fetched first. A note that is still being
    /// written holds those behind it back, so what nothing is known of gets another
    /// turn.
    fn read(&mut self) {
        let late = std::mem::take(&mut self.late);
        let events: Vec<Event> = self.events.try_iter().take(EVENTS).collect();
        let now = monotonic_ns();
        if let Some(kernel) = &mut self.kernel {
            kernel.ring.read(|bytes| {
                if let Some(note) = Note::parse(bytes) {
                    self.traces.note(&note, now);
                }
            });
        }
        for event in late {
            self.traces.event(event, now);
        }
        for event in events {
            self.late.extend(self.traces.event(event, now));
        }
    }

    /// Looks what programs have lost.
    fn look(&mut self) {
        if let Some(kernel) = &self.kernel {
            let lost = kernel.lost();
            self.lost_by_kernel = lost.wrapping_sub(self.lost_before);
        }
    }

    fn lost(&self) -> u64 {
        self.lost_by_kernel + self.lost_by_worker.load(Ordering::Relaxed) + self.traces.lost
    }

    fn tell(&mut self, now: u64) {
        let clients = &mut self.clients;
        self.traces.tell(now, |trace| {
            for client in clients.iter_mut() {
                client.tell(&trace);
            }
        });
        let lost = self.lost();
        for client in &mut self.clients {
            client.flush(lost);
        }
        let before = self.clients.len();
        self.clients.retain(|client| !client.is_gone());
        self.count
            .fetch_sub(before - self.clients.len(), Ordering::Relaxed);
    }

    /// Tells what is left.
    fn end(mut self) {
        self.read();
        self.look();
        self.tell(u64::MAX);
    }
}

impl Kernel {
    /// What programs on all CPUs have lost, ever.
    fn lost(&self) -> u64 {
        // The map has the key, and is read whole: a copy of it.
        let contexts = self.maps.context.lookup(&0_u32.to_ne_bytes());
        let contexts = contexts.ok().flatten().unwrap_or_default();
        let lost = contexts.chunks_exact(context::BYTES).map(|context| {
            let at = context::OBSERVE + observe::LOST as usize;
            let word = context[at..at + 4].try_into().expect("four bytes");
            u64::from(u32::from_ne_bytes(word))
        });
        lost.sum()
    }
}
