//! Clients on CPUs of their own, for handlers that several CPUs run.

use std::sync::atomic::{AtomicBool, Ordering};

use ashway_rig::skip::skip;
use ashway_rig::{Rig, UdpClient, skip_unless_root};
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::traffic::{Over, Place, client_of_queue, stream};

/// The port at which the handler is asked.
pub const PORT: u16 = 7777;

/// Messages of a client, and how many of them are unanswered at most.
pub const EACH: u32 = 4_000;
const WINDOW: u32 = 16;

/// CPUs whose clients ask.
pub const CPUS: usize = 2;

/// Where messages tell their CPU. Under native XDP and at TCX a veth takes a message on the CPU of
/// who sent it.
pub const PLACES: [Place; 4] = [
    Place::new("native", "user"),
    Place::new("native", "kernel"),
    Place::new("tcx", "user"),
    Place::new("tcx", "kernel"),
];

/// Whether there is no root, or one CPU alone.
///
/// # Panics
///
/// If the system does not say how many CPUs there are.
#[must_use]
pub fn skip_here() -> bool {
    if skip_unless_root() {
        return true;
    }
    let cpus = std::thread::available_parallelism().expect("the system knows its CPUs");
    let alone = cpus.get() < CPUS;
    if alone {
        skip("two CPUs are needed, each with a client");
    }
    alone
}

/// A client for each CPU, under XDP by a queue of its own; how many messages, which add nothing,
/// that took.
///
/// # Panics
///
/// If there is no such client.
#[must_use]
pub fn clients(rig: &Rig, place: Place) -> (Vec<UdpClient>, u64) {
    if place.mode == "tcx" {
        let clients = (0..CPUS).map(|_| rig.client_a(PORT).expect("a client"));
        return (clients.collect(), 0);
    }
    let found = (0..CPUS as u32).map(|queue| client_of_queue(rig, queue, PORT));
    let (clients, probes): (Vec<_>, Vec<u64>) = found.unzip();
    (clients, probes.iter().sum())
}

/// Does something on a CPU, where the thread stays.
///
/// # Panics
///
/// If the thread cannot be there.
pub fn on_cpu<T>(cpu: usize, work: impl FnOnce() -> T) -> T {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).expect("there is such a CPU");
    work()
}

/// Each client counts by one on its CPU, in so many messages of which none is lost, doubled or
/// overtaken; for as long as `meanwhile` does something, and at least once. How many each sent.
///
/// # Panics
///
/// If a message is.
pub fn count(clients: &[UdpClient], meanwhile: impl FnOnce()) -> Vec<u64> {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let over = &over;
        let threads: Vec<_> = clients
            .iter()
            .enumerate()
            .map(|(cpu, client)| {
                scope.spawn(move || {
                    on_cpu(cpu, || {
                        let mut sent = 0;
                        while sent == 0 || !over.load(Ordering::Acquire) {
                            let _sums = stream(client, 1, EACH, WINDOW);
                            sent += u64::from(EACH);
                        }
                        sent
                    })
                })
            })
            .collect();
        {
            let _over = Over(over);
            meanwhile();
        }
        let sent = threads.into_iter();
        sent.map(|thread| thread.join().expect("no message is"))
            .collect()
    })
}
