//! A time limit for one system call.
//!
//! Some calls take as long as what they were given asks for, and look for signals
//! meanwhile: the verifier gives up with `EAGAIN` (`do_check` in
//! `kernel/bpf/verifier.c`). An [`Alarm`] is a timer of the kernel's that sends the
//! thread that set it a signal when its time is up, and again and again from then on:
//! one that comes before the call begins would be lost. It is wall time, since a timer
//! over a thread's CPU time rings only when the call has ended.
//!
//! The signal is `SIGURG`: nothing else here uses it, and it does nothing by default,
//! so that one that comes late harms nobody. It has a handler all the same, because
//! the kernel does not deliver what is ignored.

use std::ffi::c_int;
use std::io;
use std::mem;
use std::ptr;
use std::time::{Duration, Instant};

const SIGNAL: c_int = libc::SIGURG;

/// How soon it rings again.
const AGAIN: Duration = Duration::from_millis(10);

/// An alarm of the thread that set it; silent when dropped.
#[derive(Debug)]
pub(crate) struct Alarm {
    timer: libc::timer_t,
    end: Instant,
}

impl Alarm {
    /// Sets it for the calling thread.
    ///
    /// # Errors
    ///
    /// What the kernel said: `EAGAIN` if the user has too many timers
    /// (`RLIMIT_SIGPENDING`).
    pub(crate) fn set(after: Duration) -> io::Result<Self> {
        handle_signal()?;
        let alarm = Self {
            timer: timer_for_this_thread()?,
            end: Instant::now() + after,
        };
        let times = libc::itimerspec {
            it_value: timespec(after),
            it_interval: timespec(AGAIN),
        };
        // SAFETY: the timer is ours, `times` lives across the call, and null asks for
        // nothing back.
        done(unsafe { libc::timer_settime(alarm.timer, 0, &raw const times, ptr::null_mut()) })?;
        Ok(alarm)
    }

    /// Whether its time is up.
    pub(crate) fn is_over(&self) -> bool {
        Instant::now() >= self.end
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        // SAFETY: the timer is ours and is not used afterwards. It is there, so this
        // does not fail.
        unsafe { libc::timer_delete(self.timer) };
    }
}

/// Makes the signal one that the kernel delivers. Idempotent.
fn handle_signal() -> io::Result<()> {
    extern "C" fn nothing(_: c_int) {}
    // SAFETY: any bits are a valid `sigaction`; zeros mean no flags and an empty mask.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    let nothing: extern "C" fn(c_int) = nothing;
    action.sa_sigaction = nothing as libc::sighandler_t;
    // The verifier gives up in any case; a call that can go on does.
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: the handler touches nothing, so it may run at any point of any thread;
    // null asks for nothing back.
    done(unsafe { libc::sigaction(SIGNAL, &raw const action, ptr::null_mut()) })
}

/// A timer that sends the signal to the calling thread; not started.
fn timer_for_this_thread() -> io::Result<libc::timer_t> {
    // SAFETY: any bits are a valid `sigevent`.
    let mut event: libc::sigevent = unsafe { mem::zeroed() };
    event.sigev_notify = libc::SIGEV_THREAD_ID;
    event.sigev_signo = SIGNAL;
    event.sigev_notify_thread_id = rustix::thread::gettid().as_raw_nonzero().get();
    let mut timer = ptr::null_mut();
    // SAFETY: both pointers are good for the call, which writes the timer's id.
    done(unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer) })?;
    Ok(timer)
}

fn timespec(time: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: time.as_secs() as libc::time_t,
        tv_nsec: time.subsec_nanos().into(),
    }
}

fn done(result: c_int) -> io::Result<()> {
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sleep is cut short by the first ring, and by a later one if the first came
    /// before it began.
    #[test]
    fn a_call_of_this_thread_is_interrupted() {
        let alarm = Alarm::set(Duration::from_millis(1)).unwrap();
        for _ in 0..2 {
            let hour = timespec(Duration::from_hours(1));
            // SAFETY: `hour` lives across the call; null asks for nothing back.
            let result = unsafe { libc::nanosleep(&raw const hour, ptr::null_mut()) };
            assert_eq!(result, -1);
            assert_eq!(
                io::Error::last_os_error().kind(),
                io::ErrorKind::Interrupted
            );
        }
        assert!(alarm.is_over());
    }

    #[test]
    fn a_call_that_can_go_on_does() {
        let (reader, mut writer) = io::pipe().unwrap();
        let alarm = Alarm::set(Duration::from_millis(1)).unwrap();
        let ringing = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            io::Write::write_all(&mut writer, b"x").unwrap();
        });
        let mut read = [0];
        assert_eq!(io::Read::read(&mut &reader, &mut read).unwrap(), 1);
        assert!(alarm.is_over());
        drop(alarm);
        ringing.join().unwrap();
    }
}
