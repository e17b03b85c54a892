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
            become_fifo()?;
            Ok(work())
        });
        above
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn become_fifo() -> io::Result<()> {
    let parameters = libc::sched_param {
        sched_priority: PRIORITY,
    };
    // Children of this thread must not inherit it.
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: `parameters` lives across the call; 0 is the calling thread.
    let failed = unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) } != 0;
    if failed {
        let why = io::Error::last_os_error();
        let text = format!("SCHED_FIFO is not permitted (CAP_SYS_NICE or RLIMIT_RTPRIO): {why}");
        return Err(io::Error::new(why.kind(), text));
    }
    Ok(())
}
