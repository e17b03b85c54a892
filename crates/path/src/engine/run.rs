//! A turn: some messages of one path, and the paths that they go on to.
//!
//! Order of events for each message: it is taken from its queue; it travels; each
//! message that comes out is shown to the shell at once, in order; then those that go
//! on to other paths travel there, first come, first served; then the next message of
//! the turn is taken.

use std::any::Any;
use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use ashway_abi::Count;

use super::alarms::Alarms;
use super::{Engine, Entry, From, Full, Requeued, Shell, ended, show};
use crate::bug::{self, Bug};
use crate::path::{Exit, Trail};
use crate::places::PathId;
use crate::sched::{Policy, Turn};
use crate::stage::Direction;
use crate::time::Time;
use crate::watch::Watch;

/// Messages between two looks at the clock within a turn.
pub const LOOK: u32 = 4;

/// How many paths a message goes along at most, from where it was received. Beyond it
/// paths lead into each other in a circle.
pub const MAX_CROSSINGS: u8 = 8;

/// Paths that are woken at most before messages have their turn: one that is always due
/// must not keep them waiting.
pub const MAX_WOKEN: usize = 64;

/// The same in time: no path is woken after it.
pub const WAKING: Duration = Duration::from_micros(50);

/// After what time a path is tried again that could not run.
pub const ASIDE: Duration = Duration::from_micros(20);

/// What runs, so that a panic has a name.
#[derive(Clone, Copy)]
pub(super) struct Running {
    path: PathId,
    /// That of the message that is under way.
    ticket: Option<NonZeroU32>,
}

/// A message on its way to the next path.
pub(super) struct Crossing<M> {
    onward: Requeued<M>,
    /// Where it has been.
    trail: Trail,
}

impl<M, D, P: Policy> Engine<M, D, P> {
    /// Runs messages of the path that the policy picks, at most as long as it says, and
    /// at least one. False if no path has a message that may run.
    ///
    /// Bounded by the turn, and by what the stages do with the last message of it.
    pub fn turn<S: Shell<M, D>>(&mut self, shell: &mut S) -> bool {
        let begin = shell.now();
        self.release(begin);
        while !(bug::is(Bug::AsideHoldsUp) && self.sets_aside())
            && let Some(turn) = self.policy.pick(begin)
        {
            self.begin(turn.path, begin);
            let ran = self.guard(shell, |engine, shell| engine.run(turn, begin, shell));
            let end = shell.now();
            // A message whose stage has panicked was one.
            self.used_until(end, ran.unwrap_or(1));
            let more = self
                .entries
                .at(turn.path)
                .is_some_and(|entry| entry.has_work());
            self.policy.ended(turn, end.since(begin), more);
            // With none the path is gone, or cannot run now: another's turn.
            if ran != Some(0) {
                return true;
            }
        }
        false
    }

    /// Runs the timers that are due, of [`MAX_WOKEN`] paths at most, the first due first, and
    /// none that would begin after [`WAKING`] or when an output queue has filled. False if none
    /// was.
    pub fn wake<S: Shell<M, D>>(&mut self, shell: &mut S) -> bool {
        let begin = shell.now();
        let mut now = begin;
        let mut woken = 0;
        while woken < MAX_WOKEN
            && (now.since(begin) < WAKING || bug::is(Bug::WakesWithoutEnd))
            && (woken == 0 || !self.pressed)
            && let Some(id) = self.alarms.take(now)
        {
            woken += 1;
            self.begin(id, now);
            self.guard(shell, |engine, shell| engine.wake_one(id, now, shell));
            let end = shell.now();
            self.used_until(end, 1);
            self.policy.used(id, end.since(now));
            self.arm(id, end);
            now = end;
        }
        woken > 0
    }

    /// When [`Engine::wake`] or [`Engine::turn`] has something to do that no message
    /// brings about.
    #[must_use]
    pub fn due_at(&self) -> Option<Time> {
        let all = [&self.alarms, &self.parked, &self.aside];
        all.into_iter().filter_map(Alarms::next).min()
    }

    /// Charges the paths with the CPU time of the thread, if the last time was long enough
    /// ago. To be called when everything that the turns have sent is on its way.
    pub fn settle<S: Shell<M, D>>(&mut self, shell: &mut S) {
        if self.meter.is_due(self.mark) {
            self.charge(shell);
        }
    }

    /// The same, whenever the last time was: the thread is about to sleep, or to do what is
    /// no path's work. If no path has run, what the thread has used is nobody's.
    pub fn pause<S: Shell<M, D>>(&mut self, shell: &mut S) {
        self.charge(shell);
        self.meter.stop();
    }

    /// The thread was busy with a message that is no path's.
    pub fn unmatched(&mut self) {
        self.meter.used(None, Duration::ZERO, 1);
    }

    fn charge<S: Shell<M, D>>(&mut self, shell: &mut S) {
        let (now, cpu, after) = (shell.now(), shell.cpu_time(), shell.now());
        let entries = &mut self.entries;
        self.meter.close(now, cpu, after, |id, time| {
            if let Some(entry) = entries.at_mut(id) {
                entry.path.charge(time);
            }
        });
    }

    /// A path begins to use time.
    fn begin(&mut self, id: PathId, now: Time) {
        self.current = Some(id);
        self.mark = now;
        self.meter.begin(now);
    }

    /// The path that used time last did so until now, for so many messages.
    fn used_until(&mut self, now: Time, messages: u32) {
        if self.current.is_some() {
            let time = now.since(self.mark);
            self.meter.used(self.current, time, messages.into());
        }
        self.mark = now;
    }

    /// Runs messages of one path; gives back how many.
    fn run<S: Shell<M, D>>(&mut self, turn: Turn, begin: Time, shell: &mut S) -> u32 {
        let mut now = begin;
        let mut ran = 0;
        while ran < turn.messages {
            let Some(entry) = self.entries.at_mut(turn.path) else {
                break;
            };
            let Some(direction) = turn.direction.or_else(|| entry.path.next_input()) else {
                break;
            };
            let share = entry.share.clone().filter(|share| !share.is_open());
            if let Some(share) = &share {
                now = shell.now();
                if !share.may_run(now.0) {
                    self.park(turn.path, Time(share.due()), shell);
                    break;
                }
            }
            if !entry.acquire(turn.path, shell) {
                self.set_aside(turn.path, shell);
                break;
            }
            let Some((message, trail)) = entry.path.dequeue(direction) else {
                entry.path.release();
                break;
            };
            self.waiting -= 1;
            ran += 1;
            self.pass(turn.path, direction, message, trail, now, shell);
            if let Some(share) = &share {
                // The paths that it goes on to pay for themselves.
                if bug::is(Bug::ShareForOthers) {
                    self.cross(now, shell);
                }
                share.ran(now.0, shell.now().0);
                self.show_charged(turn.path, shell);
            }
            self.cross(now, shell);
            if self.pressed && !bug::is(Bug::OutputPressesNobody) {
                break;
            }
            if ran.is_multiple_of(LOOK) && ran < turn.messages {
                now = shell.now();
                if now.since(begin) >= turn.time {
                    break;
                }
            }
        }
        ran
    }

    /// Sends a message along a path that has received it, and was [acquired](Entry::acquire).
    fn pass<S: Shell<M, D>>(
        &mut self,
        id: PathId,
        direction: Direction,
        message: M,
        trail: Trail,
        now: Time,
        shell: &mut S,
    ) {
        let Some(entry) = self.entries.at_mut(id) else {
            return;
        };
        self.running = Some(Running {
            path: id,
            ticket: trail.ticket,
        });
        let trail = entry.after(trail);
        let Entry { path, data, .. } = &mut **entry;
        let mut watch = shell.watch(path, data, Some(&message));
        let crossing = &mut self.crossing;
        let mut out = |exit| route(id, data, trail, exit, crossing, shell);
        path.carry(trail.stage, direction, message, now, &mut watch, &mut out);
        path.release();
        shell.ran(id, path, data);
        if let Some(ticket) = trail.ticket {
            shell.done(ticket);
        }
        self.running = None;
        self.pressed |= entry.list_output(id, &mut self.outgoing);
        entry.arm(id, now, &mut self.alarms);
    }

    fn wake_one<S: Shell<M, D>>(&mut self, id: PathId, now: Time, shell: &mut S) {
        let Some(entry) = self.entries.at_mut(id) else {
            return;
        };
        if !entry.acquire(id, shell) && !bug::is(Bug::AsideTimersRun) {
            return self.set_aside(id, shell);
        }
        self.running = Some(Running {
            path: id,
            ticket: None,
        });
        let trail = entry.after(Trail::default());
        let Entry { path, data, .. } = &mut **entry;
        let mut watch = shell.watch(path, data, None);
        let crossing = &mut self.crossing;
        let mut out = |exit| route(id, data, trail, exit, crossing, shell);
        path.wake(now, &mut watch, &mut out);
        path.release();
        shell.ran(id, path, data);
        self.running = None;
        self.pressed |= entry.list_output(id, &mut self.outgoing);
        self.cross(now, shell);
    }

    /// Carries messages into their next paths until all are out.
    fn cross<S: Shell<M, D>>(&mut self, now: Time, shell: &mut S) {
        while let Some(crossing) = self.crossing.pop_front() {
            let Crossing { onward, trail } = crossing;
            let Requeued {
                path: to,
                direction,
                message,
                ticket,
            } = onward;
            let ticket = ticket.filter(|_| !bug::is(Bug::TicketOfTheWayLost));
            let trail = Trail { ticket, ..trail };
            let Some(entry) = self.entries.at_mut(to) else {
                self.strays += 1;
                shell.stray(message, trail);
                if let Some(ticket) = ticket {
                    shell.done(ticket);
                }
                continue;
            };
            if trail.paths >= MAX_CROSSINGS {
                self.circles += 1;
                let fate = Count::DroppedNoNextHop;
                entry.path.refuse(fate);
                self.show_end(to, trail, message, fate, shell);
                continue;
            }
            // Never overtake: what waits there goes first.
            let first = entry.path.waiting() == 0 || bug::is(Bug::CrossingOvertakes);
            let may_run = first && entry.may_run(now);
            if may_run && entry.acquire(to, shell) {
                entry.path.receive();
                let share = entry.share.clone();
                let before = self.current;
                let now = shell.now();
                self.used_until(now, 0);
                self.current = Some(to);
                self.pass(to, direction, message, trail, now, shell);
                let end = shell.now();
                self.used_until(end, 1);
                self.current = before;
                if let Some(share) = share {
                    share.ran(now.0, end.0);
                    self.show_charged(to, shell);
                }
                continue;
            }
            if may_run {
                self.set_aside(to, shell);
            }
            let offered = self.offer(to, direction, message, trail, now);
            if let Err((message, Full::Dropped(fate))) = offered {
                self.show_end(to, trail, message, fate, shell);
            }
        }
    }

    /// Ends a message that a path has received and counted, and no stage has seen.
    fn show_end<S: Shell<M, D>>(
        &self,
        id: PathId,
        trail: Trail,
        message: M,
        fate: Count,
        shell: &mut S,
    ) {
        if let Some(entry) = self.entries.at(id) {
            let Entry { path, data, .. } = &**entry;
            shell.watch(path, data, Some(&message)).end(fate);
            show(id, data, trail, ended(message, fate), shell);
        }
        trail
            .ticket
            .into_iter()
            .for_each(|ticket| shell.done(ticket));
    }

    /// Shows the shell how a path stands with its share.
    fn show_charged<S: Shell<M, D>>(&self, id: PathId, shell: &mut S) {
        if let Some(entry) = self.entries.at(id)
            && let Some(share) = &entry.share
        {
            shell.charged(id, &entry.data, share);
        }
    }

    /// No message of the path runs, and no timer, before it is tried again.
    fn set_aside<S: Shell<M, D>>(&mut self, id: PathId, shell: &mut S) {
        if let Some(entry) = self.entries.at_mut(id).filter(|entry| !entry.aside) {
            entry.aside = true;
            self.aside.set(id, shell.now() + ASIDE);
        }
    }

    /// Sees to it that the path is woken when one of its stages wants to be.
    pub(super) fn arm(&mut self, id: PathId, now: Time) {
        if let Some(entry) = self.entries.at(id) {
            entry.arm(id, now, &mut self.alarms);
        }
    }

    /// The path's share is used up until this time.
    fn park<S: Shell<M, D>>(&mut self, id: PathId, until: Time, shell: &mut S) {
        if let Some(entry) = self.entries.at_mut(id) {
            entry.parked = true;
            entry.report(entry.path.waiting());
            self.parked.set(id, until);
        }
        self.show_charged(id, shell);
    }

    /// Lets the paths run whose shares allow it by now, and tries those again that could not.
    fn release(&mut self, now: Time) {
        while let Some(id) = self.parked.take(now) {
            if let Some(entry) = self.entries.at_mut(id) {
                entry.parked = false;
                entry.report(0);
                self.announce(id, now);
            }
        }
        while let Some(id) = self.aside.take(now) {
            if let Some(entry) = self.entries.at_mut(id) {
                entry.aside = bug::is(Bug::AsideForgotten);
                self.announce(id, now);
                self.arm(id, now);
            }
        }
    }

    /// Tells the policy of all messages of a path that wait, if they may be picked.
    fn announce(&mut self, id: PathId, now: Time) {
        let entry = self.entries.at(id).filter(|entry| entry.has_work());
        let Some(Entry { path, .. }) = entry.map(|entry| &**entry) else {
            return;
        };
        for direction in [Direction::Forward, Direction::Backward] {
            for _ in 0..path.input(direction).len() {
                self.policy.arrived(id, direction, now);
            }
        }
    }

    /// Calls something that runs stages. If one of them panics its path has failed, and
    /// everything else goes on.
    fn guard<S: Shell<M, D>, T>(
        &mut self,
        shell: &mut S,
        what: impl FnOnce(&mut Self, &mut S) -> T,
    ) -> Option<T> {
        let mut what = Some(what);
        loop {
            // What a panic may leave half done is the path's own, which is not run again,
            // and what `running` names.
            let done = catch_unwind(AssertUnwindSafe(|| {
                if let Some(what) = what.take() {
                    return Some(what(self, shell));
                }
                // What had left the path before the panic is on its way still.
                self.cross(self.mark, shell);
                None
            }));
            match done {
                Ok(done) => return done,
                Err(panic) => self.fail(panic, shell),
            }
        }
    }

    /// Ends the path whose stage has panicked. A panic of the shell is not the path's: it
    /// goes on.
    fn fail<S: Shell<M, D>>(&mut self, panic: Box<dyn Any + Send>, shell: &mut S) {
        let running = self.running.take();
        let Some(Running { path: id, ticket }) = running else {
            resume_unwind(panic);
        };
        let Some(entry) = self.entries.at_mut(id) else {
            return;
        };
        entry.failed = !bug::is(Bug::PanicForgotten);
        entry.path.release();
        let lost = entry.path.fail();
        let mut watch = shell.watch(&entry.path, &entry.data, None);
        (0..lost).for_each(|_| watch.end(Count::DroppedFault));
        if let Some(ticket) = ticket {
            shell.done(ticket);
        }
        self.alarms.remove(id);
        self.drain(id, Count::DroppedFault, shell);
        if let Some(entry) = self.entries.at(id) {
            shell.failed(id, &entry.path);
        }
    }
}

impl<M, D> Entry<M, D> {
    /// The trail of what leaves the path, having come by this one.
    fn after(&self, trail: Trail) -> Trail {
        Trail {
            paths: trail.paths.saturating_add(1),
            host_copy: trail.host_copy || self.host_copy,
            ..trail
        }
    }

    /// Takes what it needs to run; if that cannot be had now, it is to be set aside.
    fn acquire<S: Shell<M, D>>(&mut self, id: PathId, shell: &mut S) -> bool {
        !self.aside && shell.may_run(id, &mut self.data) && self.path.acquire()
    }

    /// Notes the path in this list if its output queues hold messages; whether one of them
    /// [presses](Path::output_presses).
    fn list_output(&mut self, id: PathId, outgoing: &mut VecDeque<PathId>) -> bool {
        if !self.path.has_output() {
            return false;
        }
        if !self.outgoing {
            self.outgoing = true;
            outgoing.push_back(id);
        }
        self.path.output_presses()
    }

    /// Notes when the path is to be woken. One that is set aside is woken when it may run. A
    /// failed path is not run, so what its stages wanted would be due forever. And what was due
    /// before `now` is due now, behind what others have waited for: the oldest goes first, so a
    /// path that never catches up would hold up the timers of all others.
    fn arm(&self, id: PathId, now: Time, alarms: &mut Alarms) {
        if self.failed || self.aside {
            return;
        }
        if let Some(time) = self.path.wake_at() {
            let now = if bug::is(Bug::OldestTimerFirst) {
                time
            } else {
                now
            };
            alarms.set(id, time.max(now));
        }
    }

    /// Whether a message that is here may run.
    fn may_run(&self, now: Time) -> bool {
        let share = self.share.as_ref();
        !self.failed && share.is_none_or(|share| share.may_run(now.0))
    }

    /// Whether it has messages that may be picked.
    pub(super) fn has_work(&self) -> bool {
        !self.parked && !self.aside && !self.failed && self.path.waiting() > 0
    }
}

/// Asks the shell where a message goes, and notes it.
fn route<M, D, S: Shell<M, D>>(
    path: PathId,
    data: &D,
    trail: Trail,
    exit: Exit<M>,
    crossing: &mut VecDeque<Crossing<M>>,
    shell: &mut S,
) {
    let left = matches!(exit, Exit::Left { .. });
    let next = shell.exit(From { path, data, trail }, exit);
    if let Some(onward) = next.filter(|_| left) {
        let trail = Trail {
            stage: None,
            ..trail
        };
        crossing.push_back(Crossing { onward, trail });
    }
}
