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

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use rustix::event::{EventfdFlags, eventfd};

/// Work for the thread.
type Job<S> = Box<dyn FnOnce() -> Then<S> + Send>;

/// What becomes of its result.
type Then<S> = Box<dyn FnOnce(&mut S) + Send>;

/// The thread, as the owner of the state `S` sees it.
///
/// When dropped, jobs that have not begun are dropped too. Nobody waits for the
/// one that has: a node ends at once, and the process takes its threads along
/// (the verifier gives up when its process is killed).
#[derive(Debug)]
pub(crate) struct CompileThread<S> {
    jobs: Sender<Job<S>>,
    results: Receiver<Then<S>>,
    bell: Arc<OwnedFd>,
}

impl<S: 'static> CompileThread<S> {
    /// Starts it.
    ///
    /// # Errors
    ///
    /// When no thread or no event descriptor can be had.
    pub(crate) fn start() -> std::io::Result<Self> {
        let bell = Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?);
        let (jobs, queue) = channel::<Job<S>>();
        let (done, results) = channel();
        let ring = Arc::clone(&bell);
        std::thread::Builder::new()
            .name("ashway-compile".to_owned())
            .spawn(move || {
                for job in queue {
                    // A panic has been printed by then. It costs the node this
                    // result, and not its other paths.
                    let Ok(then) = catch_unwind(AssertUnwindSafe(job)) else {
                        continue;
                    };
                    if done.send(then).is_err() {
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

    /// Has the thread do `job`, behind those that wait; `then` gets the result
    /// when the owner [asks](Self::next_result). A job that panics has none, and
    /// `then` is dropped.
    pub(crate) fn submit<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
        then: impl FnOnce(&mut S, T) + Send + 'static,
    ) {
        let job: Job<S> = Box::new(move || {
            let result = job();
            Box::new(move |state| then(state, result))
        });
        // The thread ends behind us.
        let _ = self.jobs.send(job);
    }

    /// What is to become of the next result, if there is one; does not wait. The
    /// descriptor ([`AsFd`]) becomes readable again only when this is asked until
    /// there is none.
    pub(crate) fn next_result(&self) -> Option<Then<S>> {
        // First, so that a result that comes now rings again. Not rung: there
        // is nothing to read.
        let _ = rustix::io::read(&self.bell, &mut [0_u8; 8]);
        self.results.try_recv().ok()
    }
}

impl<S> AsFd for CompileThread<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::sync_channel;

    type Said = Vec<&'static str>;

    /// Waits for the next result and lets it happen.
    fn let_happen(thread: &CompileThread<Said>, said: &mut Said) {
        loop {
            if let Some(then) = thread.next_result() {
                return then(said);
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
        let mut said = Said::new();
        let (go, wait) = sync_channel(0);
        thread.submit(
            move || wait.recv().unwrap(),
            |said: &mut Said, ()| said.push("first"),
        );
        let (dropped, seen) = sync_channel::<()>(0);
        thread.submit(
            || panic!("on purpose"),
            move |said: &mut Said, ()| {
                said.push("never");
                drop(dropped);
            },
        );
        thread.submit(|| "third", |said: &mut Said, word| said.push(word));
        // The owner is free while the first job is at work.
        assert!(thread.next_result().is_none());
        go.send(()).unwrap();
        let_happen(&thread, &mut said);
        let_happen(&thread, &mut said);
        assert_eq!(said, ["first", "third"]);
        // Nothing is kept of what panicked.
        seen.recv().unwrap_err();
    }

    #[test]
    fn what_has_not_begun_is_dropped_with_the_thread() {
        let thread = CompileThread::<Said>::start().unwrap();
        let (go, wait) = sync_channel(0);
        let (begun, seen) = sync_channel(0);
        thread.submit(
            move || {
                begun.send(()).unwrap();
                wait.recv().unwrap();
            },
            |_, ()| {},
        );
        let (kept, waiting) = sync_channel::<()>(0);
        thread.submit(move || kept.send(()).unwrap(), |_, ()| {});
        seen.recv().unwrap();
        drop(thread);
        go.send(()).unwrap();
        // Not done, but dropped.
        waiting.recv().unwrap_err();
    }
}
