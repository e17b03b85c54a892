//! Commands that come by a path: the worker hands them to the node's loop, which
//! alone changes the node, and goes on.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use ashway_modules::shell::{Commands, Outcome, Request};
use rustix::event::{EventfdFlags, eventfd};

/// What a shell asks the node for.
#[derive(Debug)]
pub(crate) struct Asked {
    /// For whom the shell acts.
    pub(crate) domain: Arc<str>,
    pub(crate) request: Request,
    pub(crate) outcome: Sender<Outcome>,
}

/// Where the shells of a node ask. Each of them has a bounded number of commands
/// underway, so that the queue is bounded too.
#[derive(Debug)]
pub(crate) struct Shells {
    queue: Receiver<Asked>,
    asking: Sender<Asked>,
    bell: Arc<OwnedFd>,
}

impl Shells {
    /// Nobody asks yet.
    ///
    /// # Errors
    ///
    /// When no event descriptor can be had.
    pub(crate) fn new() -> std::io::Result<Self> {
        let bell = Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?);
        let (asking, queue) = channel();
        Ok(Self {
            queue,
            asking,
            bell,
        })
    }

    /// Who takes the commands of a shell that acts for this domain.
    pub(crate) fn of(&self, domain: &str) -> Arc<dyn Commands> {
        Arc::new(Shell {
            domain: domain.into(),
            asking: self.asking.clone(),
            bell: Arc::clone(&self.bell),
        })
    }

    /// What has waited longest, if anything; does not wait. The descriptor
    /// ([`AsFd`]) becomes readable again only when this is asked until there is
    /// nothing.
    pub(crate) fn next(&self) -> Option<Asked> {
        // First, so that who asks now rings again. Not rung: there is nothing to
        // read.
        let _ = rustix::io::read(&self.bell, &mut [0_u8; 8]);
        self.queue.try_recv().ok()
    }
}

impl AsFd for Shells {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

struct Shell {
    domain: Arc<str>,
    asking: Sender<Asked>,
    bell: Arc<OwnedFd>,
}

impl Commands for Shell {
    fn begin(&self, _from: SocketAddr, request: Request) -> Receiver<Outcome> {
        let (outcome, receiver) = channel();
        let asked = Asked {
            domain: Arc::clone(&self.domain),
            request,
            outcome,
        };
        // A node that ends answers nobody, and its shells say so.
        let _ = self.asking.send(asked);
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
        receiver
    }
}
