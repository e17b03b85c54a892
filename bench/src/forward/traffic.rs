//! Numbered, time-stamped datagrams from A to C, and what they cost.

use std::fs;
use std::net::UdpSocket;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use ashway_kernel::iface;
use ashway_rig::realtime;

use super::relay::{Contender, Relay};
use super::world::World;
use crate::stats::{Summary, Times};

/// Length of a payload.
const BYTES: usize = 172;

/// Datagrams per second of a paced stream.
const RATE: u32 = 5_000;

/// How long C waits for what is still under way.
const PATIENCE: Duration = Duration::from_millis(100);

/// How often C looks for the datagrams of a flat stream.
const LOOK: Duration = Duration::from_millis(1);

/// Room in C's socket for what comes meanwhile.
const BUFFER_BYTES: usize = 8 << 20;

/// What one stream came to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    pub(super) sent: u64,
    /// Datagrams that reached C's interface; what its socket has no room for is
    /// not the way's fault.
    pub(super) received: u64,
    /// Mean change of the transit time from one datagram to the next, in ns: what
    /// RFC 3550 §6.4.1 smooths.
    pub(super) jitter: f64,
    /// Transit times.
    pub(super) transit: Summary,
    /// CPU time of all who took part, in ns per datagram that reached C's
    /// interface.
    pub(super) cpu: f64,
    /// Datagrams that reached C's interface, per second of sending.
    pub(super) rate: f64,
}

impl Stream {
    /// What of all that was sent reached C's interface: 1 is all.
    pub(super) fn goodput(&self) -> f64 {
        self.received as f64 / self.sent.max(1) as f64
    }
}

/// Whether A waits between datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    /// [`RATE`], and C waits for each.
    Paced,
    /// As fast as one socket can, and C looks every [`LOOK`]: else most of what is
    /// measured is how its thread is woken.
    Flat,
}

/// Sends for a while and looks at what arrives. Both ends have a real-time priority, as
/// if they were machines of their own: what competes with the busy loops is B.
pub(super) fn stream(
    world: &World,
    way: Contender,
    relay: &Relay,
    pace: Pace,
    lasts: Duration,
) -> Result<Stream> {
    let from = world.a.run(|| -> Result<_> {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        socket.connect(way.target())?;
        Ok(socket)
    })?;
    let to = world.c.run(|| UdpSocket::bind("0.0.0.0:9001"))?;
    to.set_read_timeout(Some(PATIENCE))?;
    rustix::net::sockopt::set_socket_recv_buffer_size_force(&to, BUFFER_BYTES)?;
    greet(&from, &to).with_context(|| format!("nothing arrives by `{}`", way.name()))?;
    to.set_nonblocking(pace == Pace::Flat)?;
    let over = AtomicBool::new(false);
    let others = others(relay)?;
    let before = cpu_of(&others);
    let frames = reached(world, way)?;
    let (sent, received) = std::thread::scope(|scope| -> Result<_> {
        let receiver = scope.spawn(|| realtime(|| receive(&to, pace, &over)));
        let sender = scope.spawn(|| realtime(|| send(&from, pace, lasts)));
        let sent = sender.join().expect("the sender does not panic")?;
        std::thread::sleep(PATIENCE);
        over.store(true, Ordering::Relaxed);
        let received = receiver.join().expect("the receiver does not panic")??;
        Ok((sent, received))
    })?;
    let others = cpu_of(&others) - before;
    let frames = reached(world, way)? - frames;
    let arrived = received.times.summary().n;
    ensure!(arrived > 0, "nothing arrives any more by `{}`", way.name());
    Ok(Stream {
        sent: sent.datagrams,
        received: frames,
        jitter: received.changes as f64 / (arrived - 1).max(1) as f64,
        transit: received.times.summary(),
        cpu: (sent.cpu + received.cpu + others) as f64 / frames.max(1) as f64,
        rate: frames as f64 / sent.took.as_secs_f64(),
    })
}

/// Frames that C has received by this way so far.
fn reached(world: &World, way: Contender) -> Result<u64> {
    let iface = if way == Contender::Direct { "c1" } else { "c0" };
    Ok(world.c.run(|| iface::stats(iface))?.rx_packets)
}

/// Sends until something arrives, and takes it: the way knows its sender then.
fn greet(from: &UdpSocket, to: &UdpSocket) -> Result<()> {
    for _ in 0..50 {
        from.send(&[0; BYTES])?;
        if to.recv(&mut [0; BYTES]).is_ok() {
            while to.recv(&mut [0; BYTES]).is_ok() {}
            return Ok(());
        }
    }
    bail!("50 datagrams were lost")
}

struct Sent {
    datagrams: u64,
    cpu: u64,
    took: Duration,
}

fn send(socket: &UdpSocket, pace: Pace, lasts: Duration) -> Sent {
    let mut payload = [0; BYTES];
    let begin = Instant::now();
    let gap = Duration::from_secs(1) / RATE;
    let mut sent = 0;
    while begin.elapsed() < lasts {
        if pace == Pace::Paced {
            let due = gap * sent as u32;
            std::thread::sleep(due.saturating_sub(begin.elapsed()));
        }
        payload[..8].copy_from_slice(&u64::to_be_bytes(sent));
        payload[8..16].copy_from_slice(&now().to_be_bytes());
        // A full queue, or nobody there yet: it is lost, and counted so.
        let _ = socket.send(&payload);
        sent += 1;
    }
    Sent {
        datagrams: sent,
        cpu: thread_cpu(),
        took: begin.elapsed(),
    }
}

struct Received {
    times: Times,
    changes: u64,
    cpu: u64,
}

fn receive(socket: &UdpSocket, pace: Pace, over: &AtomicBool) -> Result<Received> {
    let mut times = Times::new();
    let (mut changes, mut last) = (0, None);
    let mut payload = [0; 2048];
    while !over.load(Ordering::Relaxed) {
        let Ok(len) = socket.recv(&mut payload) else {
            if pace == Pace::Flat {
                std::thread::sleep(LOOK);
            }
            continue;
        };
        ensure!(len == BYTES, "a datagram of {len} bytes arrived");
        let stamp: [u8; 8] = payload[8..16].try_into()?;
        let transit = now().saturating_sub(u64::from_be_bytes(stamp));
        times.record(transit);
        if let Some(last) = last.replace(transit) {
            changes += transit.abs_diff(last);
        }
    }
    Ok(Received {
        times,
        changes,
        cpu: thread_cpu(),
    })
}

/// Since the first call, in ns.
fn now() -> u64 {
    static BEGIN: OnceLock<Instant> = OnceLock::new();
    BEGIN.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// CPU time of this thread, in ns. The kernel books what softirqs do to the thread
/// they interrupt (no `CONFIG_IRQ_TIME_ACCOUNTING`), and on a veth that is mostly
/// the sender.
pub(crate) fn thread_cpu() -> u64 {
    cpu_of(&["/proc/thread-self/schedstat".to_owned()])
}

/// Files with the CPU time of the kernel's softirq threads and of the forwarder.
fn others(relay: &Relay) -> Result<Vec<String>> {
    let mut files = Vec::new();
    if let Some(id) = relay.id() {
        files.extend(tasks(id)?);
    }
    for entry in fs::read_dir("/proc").context("cannot read /proc")? {
        let name = entry?.file_name();
        let Some(id) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let comm = fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default();
        if comm.starts_with("ksoftirqd/") {
            files.push(format!("/proc/{id}/schedstat"));
        }
    }
    Ok(files)
}

/// The files of a process' threads: its own file is its first thread's.
fn tasks(id: u32) -> Result<Vec<String>> {
    let tasks = fs::read_dir(format!("/proc/{id}/task")).context("the process is gone")?;
    let file = |task: std::io::Result<fs::DirEntry>| {
        Ok(task?.path().join("schedstat").display().to_string())
    };
    tasks.map(file).collect()
}

/// Their CPU time, in ns; 0 for those that are gone.
fn cpu_of(files: &[String]) -> u64 {
    let one = |file: &String| {
        let text = fs::read_to_string(file).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    };
    files.iter().filter_map(one).sum()
}
