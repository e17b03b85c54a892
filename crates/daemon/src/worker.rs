//! The worker: the thread in which the user tier runs.
//!
//! It looks at every source in turn, spins for [`SPIN`] when all are empty, and
//! then sleeps until a program rings the bell or a socket has something.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ashway_abi::trusted;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::counters::UserRows;
use crate::packets::{self, PacketPort};
use crate::programs::NodeMaps;
use crate::rings::{self, FRAME_BYTES, XdpPort};
use crate::runner::RunInstance;

/// How long to look before sleeping. Waking a sleeper costs 25 us and more
/// (FACTS 3a), so a message that comes within about that time is better waited
/// for.
const SPIN: Duration = Duration::from_micros(20);

/// Polls between two looks at the clock.
const LOOKS: u32 = 16;

/// Longest sleep: how soon a request to stop is seen without a bell.
const NAP: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 50_000_000,
};

/// What the worker works on.
#[derive(Debug)]
pub(crate) struct Work {
    /// Absent on rungs without XDP.
    pub(crate) node: Option<Arc<NodeMaps>>,
    /// All instances.
    pub(crate) instances: Vec<RunInstance>,
    /// Ways out of interfaces with XDP, by interface.
    pub(crate) xdp_ports: Vec<Option<XdpPort>>,
    /// Interfaces on packet sockets.
    pub(crate) packet_ports: Vec<PacketPort>,
    /// Where to count.
    pub(crate) rows: Arc<UserRows>,
}

/// A running worker; stops and joins when dropped.
#[derive(Debug)]
pub(crate) struct Worker {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// Starts it.
    ///
    /// # Errors
    ///
    /// When no thread can be had.
    pub(crate) fn start(work: Work) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("ashway-worker".to_owned())
            .spawn(move || work.run(&seen))?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // A panic has been printed by then; there is nothing to add.
            let _ = thread.join();
        }
    }
}

impl Work {
    fn run(mut self, stop: &AtomicBool) {
        let mut frame = Box::new([0_u8; FRAME_BYTES]);
        let mut idle_since = Instant::now();
        while !stop.load(Ordering::Acquire) {
            let mut any = false;
            for _ in 0..LOOKS {
                any |= self.look(&mut frame);
                std::hint::spin_loop();
            }
            if any {
                idle_since = Instant::now();
            } else if idle_since.elapsed() > SPIN {
                self.sleep();
                idle_since = Instant::now();
            }
        }
        // What was taken from the driver before the end still has a fate.
        while self.look(&mut frame) {}
    }

    fn look(&mut self, frame: &mut [u8; FRAME_BYTES]) -> bool {
        let mut any = false;
        for instance in &mut self.instances {
            any |= rings::drain(instance, &mut self.xdp_ports, &self.rows, frame);
        }
        for port in &mut self.packet_ports {
            // An interface that went away has nothing more to say.
            any |= packets::drain(port, &mut self.instances, &self.rows).unwrap_or(false);
        }
        any
    }

    /// Asks to be woken, looks once more, and sleeps.
    fn sleep(&self) {
        self.want_wake(1);
        // Pairs with the exchange in the ring program: either it sees the flag
        // or we see its message.
        fence(Ordering::SeqCst);
        if let Some(node) = &self.node {
            node.wake.drain();
        }
        if !self.instances.iter().any(rings::waiting) {
            let mut fds: Vec<PollFd> = Vec::with_capacity(1 + self.packet_ports.len());
            let bell = self.node.as_ref().map(|node| node.wake.fd());
            if let Some(bell) = &bell {
                fds.push(PollFd::new(bell, PollFlags::IN));
            }
            let sockets: Vec<_> = self.packet_ports.iter().map(|p| p.socket.as_fd()).collect();
            for socket in &sockets {
                fds.push(PollFd::new(socket, PollFlags::IN));
            }
            // Interrupted or timed out: the loop looks at everything anyway.
            let _ = poll(&mut fds, Some(&NAP));
        }
        self.want_wake(0);
    }

    fn want_wake(&self, wanted: u32) {
        for instance in &self.instances {
            if let Some(kernel) = &instance.shared.kernel {
                kernel
                    .trusted
                    .u32_at(trusted::NEED_WAKE)
                    .store(wanted, Ordering::SeqCst);
            }
        }
    }
}
