//! Whose the CPU's time was.
//!
//! Reading the thread's CPU clock costs 407 ns, `CLOCK_MONOTONIC` 22 ns (Linux 6.18,
//! x86-64). So the engine notes, at each change of path, the monotonic time since the
//! last change, and reads the CPU clock once in a [`WINDOW`]. What the thread did not
//! have of the window's time, because another thread had its CPU, is taken from all
//! paths in proportion.

use std::time::Duration;

use crate::bug::{self, Bug};
use crate::places::PathId;
use crate::time::Time;

/// At most this long from one look at the CPU clock to the next, while paths run.
const WINDOW: Duration = Duration::from_millis(1);

/// Changes of path that are noted before a window is closed early.
const ROOM: usize = 256;

/// The time of the paths since the last look at the CPU clock.
#[derive(Debug, Default)]
pub(super) struct Meter {
    used: Vec<(PathId, Duration)>,
    /// When the window began, by both clocks.
    began: Option<(Time, Duration)>,
}

impl Meter {
    /// Notes that a path has run so long. Allocates the first time.
    pub(super) fn used(&mut self, path: PathId, time: Duration) {
        match self.used.last_mut() {
            Some((last, sum)) if *last == path => *sum += time,
            _ => {
                self.used
                    .reserve_exact(if self.used.is_empty() { ROOM } else { 0 });
                self.used.push((path, time));
            }
        }
    }

    /// Whether a look at the CPU clock is due.
    pub(super) fn is_due(&self, now: Time) -> bool {
        self.used.len() >= ROOM
            || self
                .began
                .is_none_or(|(began, _)| now.since(began) >= WINDOW)
    }

    /// Whether a path has run since the last look at the CPU clock.
    pub(super) fn has_used(&self) -> bool {
        !self.used.is_empty()
    }

    /// Ends the window: the thread sleeps. What was noted in it is charged as it is.
    pub(super) fn stop(&mut self) {
        self.began = None;
    }

    /// Closes the window and begins the next: says of each path that has run how much
    /// CPU time it had. The CPU clock was read between `now` and `after`. Reading it is a
    /// system call, behind which Linux likes to give the CPU to another thread: what passes
    /// there is in neither window, or those paths would be charged with less than they had.
    pub(super) fn close(
        &mut self,
        now: Time,
        cpu: Duration,
        after: Time,
        mut charge: impl FnMut(PathId, Duration),
    ) {
        let (wall, had) = self.began.map_or((0, 0), |(began, before)| {
            let had = cpu.saturating_sub(before);
            (now.since(began).as_nanos(), had.as_nanos())
        });
        for (path, time) in self.used.drain(..) {
            // The clocks are not read at the very same moment: more than all is all.
            let scaled = if had < wall && !bug::is(Bug::WallTimeCharged) {
                time.as_nanos() * had / wall
            } else {
                time.as_nanos()
            };
            charge(path, Duration::from_nanos(scaled as u64));
        }
        let began = if bug::is(Bug::LookIsCharged) {
            now
        } else {
            after
        };
        self.began = Some((began, cpu));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::places::Ids;

    const fn us(count: u64) -> Duration {
        Duration::from_micros(count)
    }

    #[test]
    fn time_that_another_thread_had_is_nobodys() {
        let mut ids = Ids::default();
        let (first, second) = (ids.take(), ids.take());
        let mut meter = Meter::default();
        meter.close(Time(0), us(70), Time(0), |_, _| {
            unreachable!("none has run")
        });
        meter.used(first, us(100));
        meter.used(first, us(200));
        meter.used(second, us(600));
        assert!(!meter.is_due(Time(900_000)));
        assert!(meter.is_due(Time(1_000_000)));
        // Half of the window was another thread's.
        let mut charged = Vec::new();
        meter.close(Time(1_000_000), us(570), Time(1_000_000), |path, time| {
            charged.push((path, time));
        });
        assert_eq!(charged, [(first, us(150)), (second, us(300))]);
        meter.close(Time(2_000_000), us(600), Time(2_000_000), |_, _| {
            unreachable!("none has run since")
        });
    }

    /// Asleep the thread uses no CPU, and that is not another thread's doing.
    #[test]
    fn sleep_is_not_part_of_a_window() {
        let path = Ids::default().take();
        let mut meter = Meter::default();
        meter.close(Time(0), us(0), Time(0), |_, _| {});
        meter.stop();
        meter.used(path, us(100));
        let mut charged = Vec::new();
        meter.close(
            Time(5_000_000_000),
            us(100),
            Time(5_000_000_000),
            |path, time| {
                charged.push((path, time));
            },
        );
        assert_eq!(charged, [(path, us(100))]);
    }

    #[test]
    fn a_path_that_runs_on_is_no_change() {
        let path = Ids::default().take();
        let mut meter = Meter::default();
        meter.close(Time(0), us(0), Time(0), |_, _| {});
        for _ in 0..2 * ROOM {
            meter.used(path, us(1));
        }
        assert!(!meter.is_due(Time(0)));
        let mut charged = Vec::new();
        meter.close(Time(0), us(0), Time(0), |path, time| {
            charged.push((path, time));
        });
        assert_eq!(charged, [(path, us(2 * ROOM as u64))]);
    }

    #[test]
    fn a_window_has_room_for_so_many_changes() {
        let mut ids = Ids::default();
        let paths = [ids.take(), ids.take()];
        let mut meter = Meter::default();
        meter.close(Time(0), us(0), Time(0), |_, _| {});
        let changes = (0..2 * ROOM).take_while(|at| {
            meter.used(paths[at % 2], us(0));
            !meter.is_due(Time(0))
        });
        assert_eq!(changes.count(), ROOM - 1);
    }

    /// Another thread has the CPU while the clock is read.
    fn a_look_is_in_no_window() -> bool {
        let path = Ids::default().take();
        let mut meter = Meter::default();
        meter.close(Time(0), us(0), Time(4_000_000), |_, _| {});
        meter.used(path, us(1000));
        let mut charged = us(0);
        let (now, cpu) = (Time(5_000_000), us(1000));
        meter.close(now, cpu, now, |_, time| charged += time);
        charged == us(1000)
    }

    #[test]
    fn what_passes_while_the_clock_is_read_is_nobodys() {
        assert!(a_look_is_in_no_window());
        assert!(!bug::with(Bug::LookIsCharged, a_look_is_in_no_window));
    }
}
