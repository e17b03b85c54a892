//! A child process that cannot outlive its owner.
//!
//! It is killed when the [`Process`] is dropped, and by the kernel when the
//! owner dies without dropping anything: a test that was killed must not leave a
//! busy loop on the machine. Nor does it inherit a real-time policy: busy loops of one
//! (`chrt -f 10 ashway bench counter`) would leave a CPU to nobody.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, kill_process, pidfd_open, set_parent_process_death_signal,
};

use crate::realtime;

/// A running child; killed on drop.
#[derive(Debug)]
pub struct Process {
    child: Child,
    /// Lets the thread that made the child end, after the child.
    _keeper: mpsc::Sender<()>,
}

impl Process {
    /// Starts `command`.
    ///
    /// # Errors
    ///
    /// As [`Command::spawn`].
    pub fn spawn(mut command: Command) -> io::Result<Self> {
        let die_with_parent = || Ok(set_parent_process_death_signal(Some(Signal::KILL))?);
        // SAFETY: between fork and exec only one prctl(2) is done, which is
        // async-signal-safe and allocates nothing.
        unsafe { command.pre_exec(die_with_parent) };
        // SAFETY: two more system calls, which allocate nothing either.
        unsafe { command.pre_exec(realtime::become_ordinary) };

        // The death signal follows the *thread* that made the child, not the
        // process (prctl(2)), so that thread lives as long as the child.
        let (born, child) = mpsc::channel();
        let (keeper, dropped) = mpsc::channel::<()>();
        std::thread::Builder::new()
            .name("keeper".into())
            .spawn(move || {
                let child = command.spawn();
                // The pipes' far ends go with the command.
                drop(command);
                if born.send(child).is_ok() {
                    let _ = dropped.recv();
                }
            })?;
        let child = child.recv().map_err(io::Error::other)??;
        Ok(Self {
            child,
            _keeper: keeper,
        })
    }

    /// Its process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The child as std sees it, for its pipes.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Sends a signal.
    ///
    /// # Errors
    ///
    /// As kill(2), for instance if the child was already waited for.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(kill_process(self.pid(), signal)?)
    }

    /// Waits until the child ends, `patience` at most; `None` if it still runs.
    ///
    /// # Errors
    ///
    /// What the system calls said.
    pub fn wait(&mut self, patience: Duration) -> io::Result<Option<ExitStatus>> {
        if let Some(status) = self.child.try_wait()? {
            return Ok(Some(status));
        }
        // The child has not been waited for, so the pid is still its own.
        let ended = pidfd_open(self.pid(), PidfdFlags::empty())?;
        let patience = Timespec::try_from(patience).map_err(io::Error::other)?;
        poll(&mut [PollFd::new(&ended, PollFlags::IN)], Some(&patience))?;
        self.child.try_wait()
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeper() -> Process {
        let mut command = Command::new("sleep");
        command.arg("1000");
        Process::spawn(command).unwrap()
    }

    #[test]
    fn is_gone_after_drop() {
        let process = sleeper();
        let proc = format!("/proc/{}", process.id());
        assert!(std::fs::exists(&proc).unwrap());
        drop(process);
        assert!(!std::fs::exists(&proc).unwrap());
    }

    #[test]
    fn waits_no_longer_than_told() {
        let mut process = sleeper();
        assert!(process.wait(Duration::from_millis(1)).unwrap().is_none());
        process.signal(Signal::TERM).unwrap();
        let status = process.wait(Duration::from_secs(10)).unwrap();
        assert!(status.is_some_and(|status| !status.success()));
    }

    /// The 41st field of its stat file: proc(5).
    fn policy(pid: u32) -> i32 {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let behind_name = stat.rsplit_once(") ").unwrap().1;
        behind_name.split(' ').nth(38).unwrap().parse().unwrap()
    }

    #[test]
    fn a_real_time_policy_is_not_inherited() {
        let thread = std::thread::spawn(|| {
            if let Err(why) = realtime::become_fifo(0) {
                return crate::skip::skip(why.to_string());
            }
            assert_eq!(
                policy(rustix::thread::gettid().as_raw_nonzero().get() as u32),
                libc::SCHED_FIFO
            );
            assert_eq!(policy(sleeper().id()), libc::SCHED_OTHER);
        });
        thread.join().unwrap();
    }

    #[test]
    fn survives_the_thread_that_asked_for_it() {
        let mut process = std::thread::spawn(sleeper).join().unwrap();
        assert!(process.wait(Duration::from_millis(20)).unwrap().is_none());
    }
}
