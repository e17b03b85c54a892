//! Whose the CPU's time was.
//!
//! Reading the thread's CPU clock costs 407 ns, `CLOCK_MONOTONIC` 22 ns (Linux 6.18,
//! x86-64). So the engine notes, at each change of path, the monotonic time since the
//! last change, and reads the CPU clock once in a [`WINDOW`].
//!
//! All CPU time of a window is charged. A path is charged with the time of its turns. What
//! the thread did not have of that time, because another thread had its CPU, is taken from
//! all paths in proportion. What the thread had beside the turns (it takes messages out of
//! rings, transmits, wakes and goes to sleep) is charged in proportion to messages.

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
    used: Vec<Used>,
    /// When the thread was first seen awake in this window.
    began: Option<Time>,
    /// What the CPU clock said last.
    cpu: Option<Duration>,
}

/// Messages of one path, or of no path, one behind the other.
#[derive(Debug)]
struct Used {
    path: Option<PathId>,
    time: Duration,
    messages: u64,
}

impl Meter {
    /// The thread is awake: a path begins to run.
    pub(super) fn begin(&mut self, now: Time) {
        self.began.get_or_insert(now);
    }

    /// Notes that a path has run so long, for so many messages. No path: the messages were
    /// no path's. Allocates the first time.
    #[inline]
    pub(super) fn used(&mut self, path: Option<PathId>, time: Duration, messages: u64) {
        match self.used.last_mut() {
            Some(last) if last.path == path => {
                last.time += time;
                last.messages += messages;
            }
            _ => {
                self.used
                    .reserve_exact(if self.used.is_empty() { ROOM } else { 0 });
                self.used.push(Used {
                    path,
                    time,
                    messages,
                });
            }
        }
    }

    /// Whether a look at the CPU clock is due.
    #[inline]
    pub(super) fn is_due(&self, now: Time) -> bool {
        self.cpu.is_none()
            || self.used.len() >= ROOM
            || self.began.is_some_and(|began| now.since(began) >= WINDOW)
    }

    /// Ends the window: the thread sleeps.
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
        let had = self.cpu.map(|before| cpu.saturating_sub(before).as_nanos());
        let wall = self.began.map_or(0, |began| now.since(began).as_nanos());
        // The clocks are not read at the very same moment: more than all is all.
        let scaled = |time: Duration| match had {
            Some(had) if had < wall && !bug::is(Bug::WallTimeCharged) => {
                time.as_nanos() * had / wall
            }
            _ => time.as_nanos(),
        };
        let turns: u128 = self.used.iter().map(|used| scaled(used.time)).sum();
        let beside = match had {
            Some(had) if !bug::is(Bug::TimeBesideTurnsLost) => had.saturating_sub(turns),
            _ => 0,
        };
        let messages: u64 = self.used.iter().map(|used| used.messages).sum();
        for used in self.used.drain(..) {
            let part = beside * u128::from(used.messages) / u128::from(messages.max(1));
            if let Some(path) = used.path {
                charge(
                    path,
                    Duration::from_nanos((scaled(used.time) + part) as u64),
                );
            }
        }
        let began = if bug::is(Bug::LookIsCharged) {
            now
        } else {
            after
        };
        self.began = Some(began);
        self.cpu = Some(cpu);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::places::Ids;

    const fn us(count: u64) -> Duration {
        Duration::from_micros(count)
    }

    const fn at(us: u64) -> Time {
        Time(us * 1000)
    }

    /// Closes the window; who is charged with what.
    fn close(meter: &mut Meter, now: Time, cpu: Duration) -> Vec<(PathId, Duration)> {
        let mut charged = Vec::new();
        meter.close(now, cpu, now, |path, time| charged.push((path, time)));
        charged
    }

    #[test]
    fn time_that_another_thread_had_is_nobodys() {
        let mut ids = Ids::default();
        let (first, second) = (ids.take(), ids.take());
        let mut meter = Meter::default();
        assert!(meter.is_due(at(0)), "no look so far");
        assert_eq!(close(&mut meter, at(0), us(70)), []);
        meter.used(Some(first), us(100), 1);
        meter.used(Some(first), us(200), 1);
        meter.used(Some(second), us(700), 1);
        assert!(!meter.is_due(at(900)));
        assert!(meter.is_due(at(1000)));
        // Half of the window was another thread's.
        let charged = close(&mut meter, at(1000), us(570));
        assert_eq!(charged, [(first, us(150)), (second, us(350))]);
        assert_eq!(close(&mut meter, at(2000), us(600)), []);
    }

    /// 700 us of the turns and 300 us beside them; a fourth of the messages is no path's.
    fn time_beside_turns_is_charged_by_message() -> bool {
        let mut ids = Ids::default();
        let (cheap, dear) = (ids.take(), ids.take());
        let mut meter = Meter::default();
        close(&mut meter, at(0), us(0));
        meter.used(Some(cheap), us(100), 5);
        meter.used(None, us(0), 3);
        meter.used(Some(dear), us(600), 2);
        meter.used(Some(cheap), us(0), 2);
        let charged = close(&mut meter, at(1000), us(1000));
        let sum = |path| {
            let of = charged.iter().filter(|(id, _)| *id == path);
            of.map(|(_, time)| *time).sum::<Duration>()
        };
        [sum(cheap), sum(dear)] == [us(100 + 175), us(600 + 50)]
    }

    /// Asleep the thread uses no CPU, and that is not another thread's doing. What it uses to
    /// wake is those paths' whose messages it wakes for.
    #[test]
    fn sleep_is_not_part_of_a_window() {
        let mut ids = Ids::default();
        let (dear, cheap) = (ids.take(), ids.take());
        let mut meter = Meter::default();
        close(&mut meter, at(0), us(0));
        meter.stop();
        meter.begin(at(5_000_000));
        meter.used(Some(dear), us(100), 1);
        meter.used(Some(cheap), us(0), 2);
        let charged = close(&mut meter, at(5_000_110), us(130));
        assert_eq!(charged, [(dear, us(100 + 10)), (cheap, us(20))]);
    }

    #[test]
    fn a_path_that_runs_on_is_no_change() {
        let path = Ids::default().take();
        let mut meter = Meter::default();
        close(&mut meter, at(0), us(0));
        for _ in 0..2 * ROOM {
            meter.used(Some(path), us(1), 1);
        }
        assert!(!meter.is_due(at(0)));
        let all = us(2 * ROOM as u64);
        assert_eq!(close(&mut meter, Time(0) + all, all), [(path, all)]);
    }

    #[test]
    fn a_window_has_room_for_so_many_changes() {
        let mut ids = Ids::default();
        let paths = [ids.take(), ids.take()];
        let mut meter = Meter::default();
        close(&mut meter, at(0), us(0));
        let changes = (0..2 * ROOM).take_while(|at| {
            meter.used(Some(paths[at % 2]), us(0), 1);
            !meter.is_due(Time(0))
        });
        assert_eq!(changes.count(), ROOM - 1);
    }

    /// Another thread has the CPU while the clock is read.
    fn a_look_is_in_no_window() -> bool {
        let mut ids = Ids::default();
        let (first, second) = (ids.take(), ids.take());
        let mut meter = Meter::default();
        meter.close(at(0), us(0), at(4_000), |_, _| {});
        meter.used(Some(first), us(500), 1);
        meter.used(Some(second), us(500), 9);
        let charged = close(&mut meter, at(5_000), us(1000));
        charged == [(first, us(500)), (second, us(500))]
    }

    #[test]
    fn bugs_are_noticed() {
        assert!(a_look_is_in_no_window());
        assert!(!bug::with(Bug::LookIsCharged, a_look_is_in_no_window));
        assert!(time_beside_turns_is_charged_by_message());
        assert!(!bug::with(
            Bug::TimeBesideTurnsLost,
            time_beside_turns_is_charged_by_message
        ));
    }
}
