//! How long programs run, as the kernel counts it while it is asked to.

use std::io;
use std::os::fd::OwnedFd;

use crate::owner::program_by_id;
use crate::sys::{self, Command};

/// While this is held the kernel counts how often each program of the machine runs, and for how
/// long, which costs every run two looks at the clock (`BPF_ENABLE_STATS`, Linux 5.8).
#[derive(Debug)]
pub struct RunTimes(#[allow(dead_code, reason = "the kernel counts until it is closed")] OwnedFd);

/// What a program has run since it was loaded, as far as it was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunTime {
    /// Time, in ns, of programs that it has called by a tail call, too.
    pub ns: u64,
    /// How often.
    pub runs: u64,
}

impl RunTimes {
    /// Has them counted. Needs `CAP_SYS_ADMIN`.
    ///
    /// # Errors
    ///
    /// What `bpf(2)` returned: `EPERM` without the capability, `EINVAL` before Linux 5.8.
    pub fn count() -> io::Result<Self> {
        let mut attr = sys::EnableStats::default();
        // SAFETY: the block holds no pointers, and the command returns an fd.
        unsafe { sys::bpf_fd(Command::EnableStats, &mut attr) }.map(Self)
    }

    /// What the program with this id has run. Needs `CAP_SYS_ADMIN`.
    ///
    /// # Errors
    ///
    /// What `bpf(2)` returned: `ENOENT` if there is no such program.
    pub fn of(&self, prog_id: u32) -> io::Result<RunTime> {
        let info = program_by_id(prog_id)?;
        Ok(RunTime {
            ns: info.run_time_ns,
            runs: info.run_count,
        })
    }
}
