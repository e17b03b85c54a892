//! What belongs to a process goes when that has gone (ASH §II: the kernel frees the
//! handlers of an application that exits).
//!
//! What a configuration names, and what the commands make, belongs to the node. A
//! request may say that a handler or a path belongs to a process instead: `owner` is
//! its number, or `caller` for whoever asks. The process is known by a pidfd, so that
//! none of the same number is taken for it, and it matters not how it ends.
//!
//! Each of its objects holds the process; there is no second list that could disagree.
//! With a handler go its paths, whoever made them. Their messages then have the next
//! best path that matches, or the host.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ashway_path::places::PathId;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::Node;
use super::looks::Deaths;
use crate::bug::{self, Bug};
use crate::control::Caller;
use crate::request::{self, Refusal};
use ashway_worker::peer::Peer;
use ashway_worker::plan::HandlerId;
use ashway_worker::say::{plural, say};

/// When what could not be taken away is tried again: each time twice as long after the
/// last, from the first to the second of these.
const AGAIN: [Duration; 2] = [Duration::from_millis(200), Duration::from_mins(1)];

/// A process that something may belong to.
pub(crate) type Owner = Arc<Peer>;

/// The processes that something belongs to.
#[derive(Debug, Default)]
pub(super) struct Owners {
    all: Vec<Owned>,
}

#[derive(Debug)]
struct Owned {
    owner: Owner,
    /// What came of the last try, if that could not take all.
    stays: Option<PendingRemoval>,
}

/// That something stays which belongs to nobody any more.
#[derive(Debug)]
struct PendingRemoval {
    because: String,
    /// When it is tried again.
    again: Instant,
    /// How long that was put off.
    wait: Duration,
}

impl Owners {
    /// The owner that a request names, if it names one. The same process has one.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub(super) fn of(
        &mut self,
        owner: Option<request::Owner>,
        caller: &Caller,
        deaths: &Deaths,
    ) -> Result<Option<Owner>, Refusal> {
        let hint = "give the number of a process of the node's PID namespace; a process that asks \
                    for itself, by the socket, can write `caller`";
        let usage = |message: String| Refusal::usage(message, hint);
        let peer = match owner {
            None => return Ok(None),
            Some(request::Owner::Caller) => caller.peer().map_err(|error| {
                usage(format!("the calling process cannot be an owner: {error}"))
            })?,
            Some(request::Owner::Process(pid)) => Peer::of(pid)
                .map_err(|error| usage(format!("process {pid} cannot be an owner: {error}")))?,
        };
        let owner = self.one(peer);
        deaths.watch(&owner);
        // It may have ended before; from now on that is told.
        if owner.is_gone() {
            return Err(usage(format!("process {} has ended", owner.pid)));
        }
        Ok(Some(owner))
    }

    /// The one owner that is this process.
    fn one(&mut self, peer: Peer) -> Owner {
        let same = |known: &&Owned| known.owner.pid == peer.pid && !known.owner.is_gone();
        if let Some(known) = self.all.iter().find(same) {
            return Arc::clone(&known.owner);
        }
        let owner = Arc::new(peer);
        self.all.push(Owned {
            owner: Arc::clone(&owner),
            stays: None,
        });
        owner
    }

    /// Those that have ended and still own something, but for what is not to be tried
    /// again yet. One system call if there are any owners.
    fn gone(&mut self, now: Instant) -> Vec<Owner> {
        self.all.retain(|known| Arc::strong_count(&known.owner) > 1);
        let waits = |known: &Owned| known.stays.as_ref().is_some_and(|it| now < it.again);
        let one_waits = self.all.iter().any(waits);
        let all_wait = one_waits && bug::is(Bug::OwnerHoldsUpAll);
        let due: Vec<&Owner> = self
            .all
            .iter()
            .filter(|known| !all_wait && !waits(known))
            .map(|known| &known.owner)
            .collect();
        if due.is_empty() {
            return Vec::new();
        }
        let mut fds: Vec<_> = due
            .iter()
            .map(|owner| PollFd::new(&owner.pidfd, PollFlags::IN))
            .collect();
        // Interrupted: as if none had ended; the epoll tells of a later one.
        if bug::is(Bug::OwnerForgotten)
            || !poll(&mut fds, Some(&Timespec::default())).is_ok_and(|n| n > 0)
        {
            return Vec::new();
        }
        let ended = fds.iter().map(|fd| !fd.revents().is_empty());
        let owners = due.iter().zip(ended);
        owners
            .filter(|(_, ended)| *ended)
            .map(|(owner, _)| Arc::clone(owner))
            .collect()
    }

    /// When something is tried again that could not be taken away.
    pub(super) fn next_try(&self) -> Option<Instant> {
        let waits = self.all.iter().filter_map(|known| known.stays.as_ref());
        waits.map(|stays| stays.again).min()
    }

    /// Notes that something of an owner could not be taken away; whether that is to be
    /// said: once for each reason.
    fn stays(&mut self, owner: &Owner, because: &str, now: Instant) -> bool {
        let mut all = self.all.iter_mut();
        let Some(known) = all.find(|known| Arc::ptr_eq(&known.owner, owner)) else {
            return true;
        };
        let [first, longest] = AGAIN;
        let last = known.stays.as_ref();
        let wait = last.map_or(first, |last| (last.wait * 2).min(longest));
        let is_new = last.is_none_or(|last| last.because != because);
        known.stays = Some(PendingRemoval {
            because: because.to_owned(),
            again: now + wait,
            wait,
        });
        is_new
    }
}

/// Whether something belongs to this process.
fn is_of(owner: Option<&Owner>, process: &Owner) -> bool {
    owner.is_some_and(|owner| Arc::ptr_eq(owner, process))
}

impl Node {
    /// Takes away what belongs to processes that have ended.
    pub(super) fn look_who_died(&mut self) {
        let now = Instant::now();
        for owner in self.owners.gone(now) {
            let pid = owner.pid;
            match self.take_all_of(&owner) {
                Ok(Some(what)) => say(&format!("process {pid} has ended: {what} gone with it")),
                Ok(None) => {}
                Err(Refusal { message, .. }) => {
                    if self.owners.stays(&owner, &message, now) {
                        say(&format!(
                            "process {pid} has ended, but what it owned could not be removed yet: {message}"
                        ));
                    }
                }
            }
        }
    }

    /// Takes everything away that belongs to a process; says what that was. Nothing, if
    /// what is left of it is on its way out.
    fn take_all_of(&mut self, owner: &Owner) -> Result<Option<String>, Refusal> {
        let handlers: Vec<HandlerId> = self
            .handlers
            .iter()
            .filter(|(_, handler)| is_of(handler.shared.owner.as_ref(), owner))
            .map(|(id, _)| *id)
            .collect();
        let its = |id: &PathId| handlers.contains(&self.plan.paths[id].handler);
        let mut paths: HashSet<PathId> = self.paths.of_owner(owner).collect();
        paths.extend(self.paths.all_bound().map(|(id, _)| id).filter(its));
        for &handler in &handlers {
            paths.extend(self.paths.running(handler));
        }
        if handlers.is_empty() && paths.is_empty() {
            return Ok(None);
        }
        let what = format!(
            "{} and {}",
            plural(handlers.len(), "handler"),
            plural(paths.len(), "path"),
        );
        self.take(&paths.into_iter().collect::<Vec<_>>())?;
        if !handlers.is_empty() {
            self.take_handlers(&handlers)?;
        }
        Ok(Some(what))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    fn process() -> Child {
        Command::new("sleep").arg("1000").spawn().unwrap()
    }

    /// A process is found gone when it has ended, as long as something is its own, and
    /// another of its number is not taken for it.
    fn is_noticed() -> bool {
        let mut owners = Owners::default();
        let (mut one, mut other) = (process(), process());
        let object = owners.one(Peer::of(one.id()).unwrap());
        let also = owners.one(Peer::of(one.id()).unwrap());
        let unused = owners.one(Peer::of(other.id()).unwrap());
        assert!(Arc::ptr_eq(&object, &also), "one process is one owner");
        drop(unused);
        assert!(owners.gone(Instant::now()).is_empty());
        assert_eq!(owners.all.len(), 1, "who owns nothing is forgotten");
        one.kill().unwrap();
        other.kill().unwrap();
        // Before anybody waits for it, too.
        let end = Instant::now() + Duration::from_secs(10);
        let mut gone = owners.gone(Instant::now());
        while gone.is_empty() && Instant::now() < end && !bug::is(Bug::OwnerForgotten) {
            gone = owners.gone(Instant::now());
        }
        one.wait().unwrap();
        other.wait().unwrap();
        let noticed = gone.len() == 1 && is_of(Some(&object), &gone[0]);
        drop((object, also, gone));
        owners.gone(Instant::now());
        noticed && owners.all.is_empty()
    }

    #[test]
    fn an_owner_is_one_process_and_its_end_is_noticed() {
        assert!(is_noticed());
        assert!(!bug::with(Bug::OwnerForgotten, is_noticed));
    }

    /// Of two that have ended, one keeps what it has: the other goes at once, and it is
    /// tried again after a while, and then after twice as long.
    fn one_holds_up_nobody() -> bool {
        let mut owners = Owners::default();
        let mut children = [process(), process()];
        let [stuck, other] = [0, 1].map(|at: usize| {
            let peer = Peer::of(children[at].id()).unwrap();
            owners.one(peer)
        });
        for child in &mut children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let begin = Instant::now();
        assert_eq!(owners.gone(begin).len(), 2);
        assert!(owners.stays(&stuck, "busy", begin));
        let alone = owners.gone(begin);
        let goes_on = alone.len() == 1 && Arc::ptr_eq(&alone[0], &other);
        drop((alone, other));
        let [first, longest] = AGAIN;
        assert!(owners.gone(begin + first / 2).is_empty());
        assert_eq!(owners.gone(begin + first).len(), 1);
        // Said once for a reason, and tried later and later.
        assert!(!owners.stays(&stuck, "busy", begin));
        assert!(owners.gone(begin + first).is_empty());
        assert_eq!(owners.gone(begin + 2 * first).len(), 1);
        assert!(owners.stays(&stuck, "another reason", begin));
        for _ in 0..20 {
            owners.stays(&stuck, "busy", begin);
        }
        assert_eq!(owners.gone(begin + longest).len(), 1);
        goes_on
    }

    #[test]
    fn what_cannot_be_taken_from_one_owner_holds_up_no_other() {
        assert!(one_holds_up_nobody());
        assert!(!bug::with(Bug::OwnerHoldsUpAll, one_holds_up_nobody));
    }

    #[test]
    fn nobody_owns_for_a_process_that_is_not_there() {
        let mut child = process();
        let pid = child.id();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(Peer::of(pid).is_err());
        assert!(Peer::of(0).is_err() && Peer::of(u32::MAX).is_err());
    }
}
