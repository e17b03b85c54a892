//! The compile thread: where files of strangers are turned into code.
//!
//! Wasmtime's compiler, our translation and checker, and the kernel's verifier
//! take milliseconds for an ordinary handler and seconds for a hostile file.
//! The node's loop answers the control socket, so it hands such work over and goes
//! on: a job takes what it needs with it, and its result comes back to the loop,
//! which alone changes the node.
//!
//! One thread, jobs in the order they come: who asks for much delays only those
//! who ask for code too, and the node uses one CPU for it at most.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};

use rustix::event::{EventfdFlags, eventfd};

/// What the thread is given to do: data, with what it needs.
pub(crate) trait Job: Send + 'static {
    /// What comes of it.
    type Outcome: Send + 'static;

    /// Does it.
    fn run(self) -> Self::Outcome;
}

/// A job, whose it is, and whether anybody still wants it.
type Queued<J> = (u64, Weak<()>, J);

/// Whose job has ended, and what came of it; nothing of one that has panicked.
pub(crate) type Ended<J> = (u64, Option<<J as Job>::Outcome>);

/// The thread, as its owner sees it.
///
/// When dropped, jobs that have not begun are dropped too. Nobody waits for the
/// one that has: a node ends at once, and the process takes its threads along
/// (the verifier gives up when its process is killed).
pub(crate) struct CompileThread<J: Job> {
    jobs: Sender<Queued<J>>,
    results: Receiver<Ended<J>>,
    bell: Arc<OwnedFd>,
}

impl<J: Job> CompileThread<J> {
    /// Starts it.
    ///
    /// # Errors
    ///
    /// When no thread or no event descriptor can be had.
    pub(crate) fn start() -> std::io::Result<Self> {
        let bell = Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?);
        let (jobs, queue) = channel::<Queued<J>>();
        let (done, results) = channel();
        let ring = Arc::clone(&bell);
        std::thread::Builder::new()
            .name("ashway-compile".to_owned())
            .spawn(move || {
                for (id, wanted, job) in queue {
                    if wanted.strong_count() == 0 {
                        continue;
                    }
                    // A panic has been printed by then. It costs the node this
                    // result, and not its other paths.
                    let outcome = catch_unwind(AssertUnwindSafe(|| job.run())).ok();
                    if done.send((id, outcome)).is_err() {
                        return;
                    }
                    // It fails only when 2^64 results wait.
                    let _ = rustix::io::write(&ring, &1_u64.to_ne_bytes());
                }
            })?;
        Ok(Self {
            jobs,
            results,
            bell,
        })
    }

    /// Has the thread do `job`, behind those that wait, for the owner's `id`. One that
    /// has not begun when `wanted` has no other holder is dropped.
    pub(crate) fn submit(&self, id: u64, wanted: &Arc<()>, job: J) {
        // The thread ends behind us.
        let _ = self.jobs.send((id, Arc::downgrade(wanted), job));
    }

    /// What came of the next job that has ended, if there is one; does not wait. The
    /// descriptor ([`AsFd`]) becomes readable again only when this is asked until
    /// there is none.
    pub(crate) fn next_ended(&self) -> Option<Ended<J>> {
        // First, so that a result that comes now rings again. Not rung: there
        // is nothing to read.
        let _ = rustix::io::read(&self.bell, &mut [0_u8; 8]);
        self.results.try_recv().ok()
    }
}

impl<J: Job> fmt::Debug for CompileThread<J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompileThread").finish_non_exhaustive()
    }
}

impl<J: Job> AsFd for CompileThread<J> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{SyncSender, sync_channel};

    enum Test {
        Wait(Receiver<()>),
        Panic,
        Say(&'static str),
        Begin(SyncSender<()>, Receiver<()>),
        Hold(SyncSender<()>),
    }

    impl Job for Test {
        type Outcome = &'static str;

        fn run(self) -> &'static str {
            match self {
                Self::Wait(go) => {
                    go.recv().unwrap();
                    "waited"
                }
                Self::Panic => panic!("on purpose"),
                Self::Say(word) => word,
                Self::Begin(begun, go) => {
                    begun.send(()).unwrap();
                    go.recv().unwrap();
                    "begun"
                }
                Self::Hold(kept) => {
                    kept.send(()).unwrap();
                    "held"
                }
            }
        }
    }

    /// Waits for the next result.
    fn ended(thread: &CompileThread<Test>) -> Ended<Test> {
        loop {
            if let Some(ended) = thread.next_ended() {
                return ended;
            }
            let mut fds = [rustix::event::PollFd::new(
                thread,
                rustix::event::PollFlags::IN,
            )];
            rustix::event::poll(&mut fds, None).unwrap();
        }
    }

    #[test]
    fn results_come_in_the_order_of_the_jobs_and_a_panic_costs_only_its_own() {
        let thread = CompileThread::start().unwrap();
        let (go, wait) = sync_channel(0);
        let wanted = Arc::new(());
        thread.submit(1, &wanted, Test::Wait(wait));
        thread.submit(2, &wanted, Test::Panic);
        thread.submit(3, &wanted, Test::Say("third"));
        // The owner is free while the first job is at work.
        assert!(thread.next_ended().is_none());
        go.send(()).unwrap();
        let all = [(); 3].map(|()| ended(&thread));
        assert_eq!(all, [(1, Some("waited")), (2, None), (3, Some("third"))]);
    }

    #[test]
    fn what_nobody_wants_any_more_is_not_begun() {
        let thread = CompileThread::start().unwrap();
        let (go, wait) = sync_channel(0);
        let [wanted, given_up] = [(); 2].map(|()| Arc::new(()));
        thread.submit(1, &wanted, Test::Wait(wait));
        thread.submit(2, &given_up, Test::Say("second"));
        thread.submit(3, &wanted, Test::Say("third"));
        drop(given_up);
        go.send(()).unwrap();
        assert_eq!(ended(&thread), (1, Some("waited")));
        assert_eq!(ended(&thread), (3, Some("third")));
    }

    #[test]
    fn what_has_not_begun_is_dropped_with_the_thread() {
        let thread = CompileThread::start().unwrap();
        let (go, wait) = sync_channel(0);
        let (begun, seen) = sync_channel(0);
        let wanted = Arc::new(());
        thread.submit(1, &wanted, Test::Begin(begun, wait));
        let (kept, waiting) = sync_channel(0);
        thread.submit(2, &wanted, Test::Hold(kept));
        seen.recv().unwrap();
        drop(thread);
        go.send(()).unwrap();
        // Not done, but dropped.
        waiting.recv().unwrap_err();
    }
}
