//! A process that something belongs to.

use std::io;
use std::os::fd::OwnedFd;

use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// The process at the other end of a connection, or one that somebody has named.
#[derive(Debug)]
pub struct Peer {
    /// Its number.
    pub pid: u32,
    /// The process itself: ready for reading when it has ended.
    pub pidfd: OwnedFd,
}

impl Peer {
    /// The process with this number, in the node's PID namespace.
    ///
    /// # Errors
    ///
    /// What the kernel said: `NotFound` (ESRCH) if there is none.
    pub fn of(pid: u32) -> io::Result<Self> {
        let number = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let number = number.ok_or(rustix::io::Errno::SRCH)?;
        let pidfd = pidfd_open(number, PidfdFlags::empty())?;
        Ok(Self { pid, pidfd })
    }
}
