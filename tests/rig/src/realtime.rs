//! A client above ordinary processes.

use std::io;

/// Above kernel threads of priority 1, below interrupt threads (50).
const PRIORITY: i32 = 40;

/// Runs `work` in a thread with `SCHED_FIFO` and returns its value.
///
/// A measured client must not itself wait for a CPU: beside eight busy loops an
/// ordinary one adds 12 to 24 ms of its own. The kernel still leaves 5 % of the
/// time to others (`sched_rt_runtime_us`), so `work` should block, not spin.
///
/// # Errors
///
/// Names `SCHED_FIFO` if it is not permitted; `work` is not run then.
///
/// # Panics
///
/// If `work` panics.
pub fn realtime<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let above = scope.spawn(|| {
            // Children of this thread must not inherit it.
            become_fifo(libc::SCHED_RESET_ON_FORK)?;
            Ok(work())
        });
        above
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Gives the calling thread `SCHED_FIFO`, and these flags.
pub(crate) fn become_fifo(flags: i32) -> io::Result<()> {
    set_policy(libc::SCHED_FIFO | flags, PRIORITY).map_err(|why| {
        let text = format!("SCHED_FIFO is not permitted (CAP_SYS_NICE or RLIMIT_RTPRIO): {why}");
        io::Error::new(why.kind(), text)
    })
}

/// Takes a real-time policy from the calling thread. Allocates nothing.
pub(crate) fn become_ordinary() -> io::Result<()> {
    // SAFETY: the call takes no pointers; 0 is the calling thread.
    match unsafe { libc::sched_getscheduler(0) } {
        libc::SCHED_FIFO | libc::SCHED_RR => set_policy(libc::SCHED_OTHER, 0),
        _ => Ok(()),
    }
}

fn set_policy(policy: i32, priority: i32) -> io::Result<()> {
    let parameters = libc::sched_param {
        sched_priority: priority,
    };
    // SAFETY: `parameters` lives across the call; 0 is the calling thread.
    match unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
