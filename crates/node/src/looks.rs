//! When the node's loop looks at what no request brings about.
//!
//! An idle node does not wake. Each thing that the loop looks after has a descriptor that
//! says when it may have changed, and then it is looked at, but at most once in a while:
//! what changes without end does not take the loop's time without end.
//!
//! | looked at | because | at most |
//! | --- | --- | --- |
//! | faults, bypasses, owners, readers, the worker | the [bell](ashway_worker::bell::Bell), a pidfd, a request | [`TICK`] |
//! | the same | somebody observes, messages are compared before a promotion, the worker has an unloaded handler: these say nothing by themselves and end | each [`TICK`] meanwhile |
//! | interfaces | rtnetlink, a request | [`IFACE_LOOK`] |
//! | the same | a link that is detached by others than `ashway iface detach` says nothing; an interface that matches a pattern could not be taken | each [`UNTOLD`] |
//! | neighbours | rtnetlink, while a path wants some | [`neighbours::LOOK`] |
//! | the same | while one is not known, or the kernel is not sure of it | each [`neighbours::ASK`] |

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use super::{Node, neighbours};
use ashway_worker::peer::Peer;

/// How often the loop looks at what is looked after beside requests, at most.
pub(super) const TICK: Duration = Duration::from_millis(10);

/// How often it looks whether its interfaces are still there, at most: it costs some ten
/// microseconds for each.
pub(super) const IFACE_LOOK: Duration = Duration::from_millis(100);

/// How often a handler's fault in the kernel tier is kept, at most.
const KEEP: Duration = Duration::from_millis(100);

/// How often it looks for what nothing tells of.
const UNTOLD: Duration = Duration::from_mins(1);

/// A look that is taken when there is a reason, and seldom enough.
#[derive(Debug)]
pub(super) struct Look {
    /// The least time between two.
    every: Duration,
    /// The earliest time of the next.
    next: Instant,
    /// Whether there is a reason.
    wanted: bool,
    /// When there will be one.
    at: Option<Instant>,
}

impl Look {
    const fn new(every: Duration, now: Instant) -> Self {
        Self {
            every,
            next: now,
            wanted: true,
            at: None,
        }
    }

    /// There is a reason to look.
    pub(super) const fn want(&mut self) {
        self.wanted = true;
    }

    /// Whether there is one: what brings another need not be listened to.
    pub(super) const fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// There will be a reason at this time, or there is one before.
    pub(super) fn want_at(&mut self, at: Instant) {
        self.at = Some(self.at.map_or(at, |before| before.min(at)));
    }

    /// When to [take](Self::take) it.
    fn due(&self) -> Option<Instant> {
        match self.at {
            _ if self.wanted => Some(self.next),
            at => Some(at?.max(self.next)),
        }
    }

    /// Whether to look now; then there is no reason any more.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        let is_due = self.due().is_some_and(|due| due <= now);
        if is_due {
            *self = Self {
                every: self.every,
                next: now + self.every,
                wanted: false,
                at: None,
            };
        }
        is_due
    }
}

/// Everything that the loop looks at. All of it once when it begins: what came before is
/// not told any more.
#[derive(Debug)]
pub(super) struct Looks {
    /// At what is looked after beside requests.
    pub(super) tick: Look,
    /// Whether interfaces are there, and as they were.
    pub(super) ifaces: Look,
    /// At hardware addresses of next hops.
    pub(super) neighbours: Look,
    /// Whether a fault may be kept again.
    pub(super) faults: Look,
}

impl Looks {
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            tick: Look::new(TICK, now),
            ifaces: Look::new(IFACE_LOOK, now),
            neighbours: Look::new(neighbours::LOOK, now),
            faults: Look::new(KEEP, now),
        }
    }

    /// When the first of them is due.
    pub(super) fn due(&self) -> Option<Instant> {
        let all = [&self.tick, &self.ifaces, &self.neighbours, &self.faults];
        all.into_iter().filter_map(Look::due).min()
    }
}

impl Node {
    /// What the loop looks after beside requests; `Err` if the worker has ended.
    pub(super) fn tick(&mut self, looks: &mut Looks) -> Result<(), super::RunError> {
        self.bell.take();
        self.deaths.take();
        self.look_at_faults();
        self.look_who_observes();
        self.look_who_reads();
        self.look_at_shadows();
        self.look_who_died();
        self.look_who_left();
        self.look_at_captures();
        if !self.worker.is_alive() {
            return Err(super::RunError::Worker);
        }
        self.worker.catch_up();
        let now = Instant::now();
        // None of these says that it has come to its end, and each does, but for observing,
        // as what is observed is read by time, too, and for a process that cannot be watched.
        let is_busy = self.observation.is_some()
            || self.operations.wait_for_messages()
            || !self.leaving.is_empty()
            || self.deaths.is_blind();
        // A program that has kept a fault has rung for it, by way of the worker. From then
        // on until the next may be kept, faults are counted and nobody rings.
        let is_silent = self.instances().any(|it| !it.wants_fault());
        if is_silent {
            looks.faults.want();
        }
        if is_busy || is_silent {
            looks.tick.want();
        }
        let rests = self.resting.iter().filter_map(|end| {
            let left = end.upgrade()?.gate.left(now)?;
            Some(now + left)
        });
        for at in rests.chain(self.owners.next_try()) {
            looks.tick.want_at(at);
        }
        Ok(())
    }

    /// Lets faults of the kernel tier be kept again.
    pub(super) fn keep_faults(&self, looks: &mut Looks) {
        for instance in self.instances() {
            instance.want_fault();
        }
        // What was stopped just before, and did not see the wish, nobody has rung for.
        looks.tick.want();
    }

    /// Looks at the interfaces; whether any is left.
    pub(super) fn look_at_ifaces(&mut self, looks: &mut Looks) -> bool {
        self.link_news.take();
        let has_programs = self.ifaces.values().any(|iface| iface.xdp.is_some());
        if has_programs || !self.left_out.is_empty() {
            looks.ifaces.want_at(Instant::now() + UNTOLD);
        }
        self.look_for_ifaces(looks)
    }
}

/// Tells when processes end.
#[derive(Debug)]
pub(super) struct Deaths {
    epoll: OwnedFd,
    /// Whether there is one whose end it cannot tell.
    blind: AtomicBool,
}

impl Deaths {
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Self {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            blind: AtomicBool::new(false),
        })
    }

    /// Tells the end of this process, once, as long as somebody has the peer.
    pub(super) fn watch(&self, peer: &Peer) {
        // Told once: what cannot be taken from it at once is tried again by time.
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ONESHOT;
        let nothing = epoll::EventData::new_u64(0);
        match epoll::add(&self.epoll, &peer.pidfd, nothing, flags) {
            Ok(()) | Err(Errno::EXIST) => {}
            // Too many watches: somebody has to look, then.
            Err(_) => self.blind.store(true, Ordering::Relaxed),
        }
    }

    /// Whether there are processes whose end it does not tell.
    pub(super) fn is_blind(&self) -> bool {
        self.blind.load(Ordering::Relaxed)
    }

    /// Forgets those that have ended: who looks now finds them gone.
    pub(super) fn take(&self) {
        let mut events = Vec::with_capacity(64);
        let at_once = Timespec::default();
        loop {
            events.clear();
            let told = epoll::wait(
                &self.epoll,
                rustix::buffer::spare_capacity(&mut events),
                Some(&at_once),
            );
            if told.is_ok_and(|told| told == 0) || told.is_err_and(|error| error != Errno::INTR) {
                return;
            }
        }
    }
}

impl AsFd for Deaths {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::process::Command;

    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;

    #[test]
    fn a_look_is_taken_for_a_reason_and_seldom_enough() {
        let every = Duration::from_secs(1);
        let begin = Instant::now();
        let mut look = Look::new(every, begin);
        assert_eq!(look.due(), Some(begin));
        assert!(look.take(begin), "all is looked at once");
        assert_eq!(look.due(), None);
        assert!(!look.take(begin + 100 * every));
        look.want();
        assert_eq!(look.due(), Some(begin + every));
        assert!(!look.take(begin + every / 2));
        assert!(look.take(begin + every));
        // Reasons to come.
        let after = begin + every;
        look.want_at(after + 5 * every);
        look.want_at(after + 3 * every);
        look.want_at(after + 4 * every);
        assert_eq!(look.due(), Some(after + 3 * every));
        assert!(look.take(after + 3 * every));
        assert_eq!(look.due(), None);
        look.want_at(after);
        assert_eq!(look.due(), Some(after + 4 * every), "seldom enough");
    }

    #[test]
    fn the_end_of_a_process_is_told_once() {
        let deaths = Deaths::new().unwrap();
        let is_told = || {
            let mut fds = [PollFd::new(&deaths, PollFlags::IN)];
            poll(&mut fds, Some(&Timespec::default())).unwrap() > 0
        };
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let peer = Peer::of(child.id()).unwrap();
        deaths.watch(&peer);
        deaths.watch(&peer);
        deaths.take();
        assert!(!is_told() && !deaths.is_blind());
        child.kill().unwrap();
        let mut fds = [PollFd::new(&deaths, PollFlags::IN)];
        poll(&mut fds, None).unwrap();
        deaths.take();
        assert!(!is_told(), "it has not been waited for, and is told once");
        child.wait().unwrap();
    }
}
