//! One message along one path in the user tier: run, act, count.
//!
//! Both sources of messages, rings and packet sockets, end here, so a message
//! means the same on every rung.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ashway_abi::Count;
use ashway_abi::count::ROW_WORDS;
use ashway_abi::share::Account;
use ashway_memory::clock::monotonic_ns;
use ashway_modules::rules::INJECT_BACKWARD;
use ashway_modules::{Flow, Message, fragment};
use ashway_path::path::{Exit, Path};
use ashway_path::sched::share::ShareAccount;
use ashway_path::stage::Direction;
use ashway_path::time::Time;
use ashway_path::watch::{Nobody, Watch};
use ashway_wire::{Datagram, partial, udp};
use rustix::io::Errno;

use crate::activation::OnTimer;
use crate::counters::UserRows;
use crate::instance::Instance;
use crate::observe::tap;
use crate::share::{Admission, Waiting};
use crate::turns::Turns;
use crate::worker;

/// The way out of an interface.
pub(crate) trait Port {
    /// Sends a whole frame, and says how that ended, in the ledger of what is sent.
    fn send(&mut self, frame: &[u8]) -> Count;

    /// Gives a frame to the host's own stack, as if it had just arrived.
    /// `false` if that failed.
    fn pass(&mut self, frame: &[u8]) -> bool;
}

/// One message in so many has its time taken: a look at the clock costs 25 ns.
const SAMPLE: u32 = 64;

/// A path in the worker's hands.
pub(crate) struct PathRun {
    /// Its row of counters.
    row: u32,
    path: Path<Message>,
    /// Whether one of its stages looks at the time, which costs 25 ns.
    reads_clock: bool,
    /// What of its account is in the row already.
    counted: [u64; ROW_WORDS],
    seen: u32,
    /// What it may have of the worker, if that has a limit.
    share: Option<Arc<ShareAccount>>,
    /// When the message was admitted that is to run now.
    admitted: u64,
    /// What waits for that share, and how it comes.
    waiting: Waiting<(Message, Entrance)>,
    /// Buffers that waited.
    idle: Vec<Message>,
}

/// An instance in the worker's hands.
#[derive(Debug)]
pub(crate) struct RunInstance {
    /// Its number in the node's plan. A list of them is in its order.
    id: u32,
    /// Whether it is gone for the node: it ends when no ring of it holds a message.
    pub(crate) leaves: bool,
    /// What it shares with the rest of the node.
    pub(crate) shared: Arc<Instance>,
    /// What runs when its timers are due.
    pub(crate) on_timer: OnTimer,
    /// Its paths, by their number within the instance; each at its interfaces.
    pub(crate) paths: Vec<Vec<(usize, PathRun)>>,
    /// What it has had of the worker's time.
    pub(crate) turns: Turns,
    /// The ring that its next turn begins with.
    pub(crate) ring: usize,
}

impl RunInstance {
    /// An instance that has had nothing of the worker's time.
    #[must_use]
    pub(crate) fn new(
        id: u32,
        shared: Arc<Instance>,
        on_timer: OnTimer,
        paths: Vec<Vec<(usize, PathRun)>>,
    ) -> Self {
        Self {
            id,
            leaves: false,
            shared,
            on_timer,
            paths,
            turns: Turns::default(),
            ring: 0,
        }
    }

    /// Its number in the node's plan.
    #[must_use]
    pub(crate) const fn id(&self) -> u32 {
        self.id
    }

    fn runs(&self) -> impl Iterator<Item = &PathRun> {
        self.paths.iter().flatten().map(|(_, path)| path)
    }

    /// Whether messages wait for their paths' shares.
    #[must_use]
    pub(crate) fn waits(&self) -> bool {
        self.runs().any(|path| !path.waiting.is_empty())
    }

    /// In how long the first of those may run, if there are any.
    #[must_use]
    pub(crate) fn wakes_in(&self) -> Option<Duration> {
        let waiting = self.runs().filter(|path| !path.waiting.is_empty());
        let due = waiting.filter_map(|path| Some(path.share.as_ref()?.due()));
        let due = due.min()?;
        Some(Duration::from_nanos(due.saturating_sub(monotonic_ns())))
    }

    /// Has everything run that waits for its path's share: nobody will wait any more.
    pub(crate) fn open_shares(&self) {
        for share in self.runs().filter_map(|path| path.share.as_ref()) {
            share.set_open(true);
        }
    }

    /// The path of this number at this interface.
    pub(crate) fn path(&mut self, local: usize, iface: usize) -> Option<&mut PathRun> {
        let at = self.paths.get_mut(local)?;
        let (_, path) = at.iter_mut().find(|(known, _)| *known == iface)?;
        Some(path)
    }
}

/// The instance with this id. O(log n).
pub(crate) fn by_id(instances: &mut [RunInstance], id: u32) -> Option<&mut RunInstance> {
    let at = instances.binary_search_by_key(&id, |instance| instance.id);
    Some(&mut instances[at.ok()?])
}

/// How a message comes to its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entrance {
    /// As a frame from the driver, to the last stage.
    Frame,
    /// Validated by the entry program, which has cut the frame behind the
    /// payload.
    Validated {
        /// Bytes in front of the payload.
        payload: usize,
    },
}

impl fmt::Debug for PathRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PathRun")
            .field("row", &self.row)
            .field("path", &self.path.name())
            .finish_non_exhaustive()
    }
}

impl PathRun {
    /// Takes a path over.
    #[must_use]
    pub(crate) fn new(row: u32, path: Path<Message>, share: Option<Arc<ShareAccount>>) -> Self {
        let reads_clock = path.stages().any(|stage| stage.traits().reads_clock);
        Self {
            row,
            path,
            reads_clock,
            counted: [0; ROW_WORDS],
            seen: 0,
            share,
            admitted: 0,
            waiting: Waiting::default(),
            idle: Vec::new(),
        }
    }

    /// What is to become of a message that has come: [`run`](Self::run) it,
    /// [`hold`](Self::hold) it, or [`refuse`](Self::refuse) it as over the share.
    pub(crate) fn admit(&mut self) -> Admission {
        let Some(share) = &self.share else {
            return Admission::Runs;
        };
        self.admitted = monotonic_ns();
        self.waiting.admit(share, self.admitted)
    }

    /// Has a message wait for the path's share. Gives back a buffer for the next; allocates
    /// only if more wait than ever before.
    pub(crate) fn hold(&mut self, message: Message, entrance: Entrance) -> Option<Message> {
        if let Some(share) = &self.share {
            let counted = entrance != Entrance::Frame;
            self.waiting.push(share, (message, entrance), counted);
        }
        self.idle.pop()
    }

    /// Does with a whole frame as was decided. Gives a buffer back.
    pub(crate) fn follow(
        &mut self,
        admission: Admission,
        message: Message,
        port: &mut impl Port,
        rows: &UserRows,
    ) -> Option<Message> {
        match admission {
            Admission::Runs => self.run(message, Entrance::Frame, port, rows),
            Admission::Waits => self.hold(message, Entrance::Frame),
            Admission::Over => Some(self.over(message, rows)),
        }
    }

    /// How the path stands with its share, if the worker keeps that.
    pub(crate) fn stands(&self) -> Option<Account> {
        let share = self.share.as_ref().filter(|share| !share.is_open());
        share.map(|share| share.stands())
    }

    /// Runs what waits and may run now, until `is_over`. How many programs count of what
    /// has ended; `None` if nothing has.
    pub(crate) fn work_off(
        &mut self,
        port: &mut impl Port,
        rows: &UserRows,
        is_over: impl Fn() -> bool,
    ) -> Option<u32> {
        let mut ended = None;
        while !self.waiting.is_empty() && !is_over() {
            let share = self.share.as_ref()?;
            self.admitted = monotonic_ns();
            let Some(((message, entrance), counted)) = self.waiting.take(share, self.admitted)
            else {
                break;
            };
            if let Some(buffer) = self.run(message, entrance, port, rows) {
                self.idle.push(buffer);
            }
            *ended.get_or_insert(0) += u32::from(counted);
        }
        ended
    }

    /// Runs the message along the path and does what comes of it. Gives the
    /// buffer back, unless the path keeps it. Bounded by the budgets of the path's
    /// handlers and the length of the message; does not allocate.
    pub(crate) fn run(
        &mut self,
        message: Message,
        entrance: Entrance,
        port: &mut impl Port,
        rows: &UserRows,
    ) -> Option<Message> {
        let begin = self.seen.is_multiple_of(SAMPLE).then(Instant::now);
        self.seen = self.seen.wrapping_add(1);
        let row = self.row;
        let now = if self.reads_clock {
            worker::now()
        } else {
            Time::default()
        };
        let (mut spare, mut last) = (None, None);
        let ended = self.path.account().ended;
        let mut out = |exit| {
            if let Exit::Ended { fate, .. } = &exit {
                last = Some(*fate);
            }
            spare = Some(act(exit, row, port, rows));
        };
        if tap::on() {
            tap::path(&message, self.path.name());
            let watcher = &mut tap::Watcher::default();
            travel(&mut self.path, message, entrance, now, watcher, &mut out);
        } else {
            travel(
                &mut self.path,
                message,
                entrance,
                now,
                &mut Nobody,
                &mut out,
            );
        }
        if self.path.account().ended > ended {
            // An answer that a stage on its way down could not send.
            rows.add(row, Count::OutOriginated);
            rows.add(row, unsent(last));
        }
        self.publish(rows);
        if let Some(begin) = begin {
            self.path.charge(begin.elapsed() * SAMPLE);
        }
        if let Some(share) = &self.share
            && !share.is_open()
        {
            share.ran(self.admitted, monotonic_ns());
        }
        spare
    }

    /// Drops a message that is more than the path's share.
    pub(crate) fn over(&self, message: Message, rows: &UserRows) -> Message {
        tap::path(&message, self.path.name());
        tap::fate(&message, Count::DroppedOverShare);
        self.refuse(Count::DroppedOverShare, rows);
        message
    }

    /// Counts the end of a message that no stage has seen.
    pub(crate) fn refuse(&self, fate: Count, rows: &UserRows) {
        rows.add(self.row, fate);
    }

    /// Brings the row up to the account. What is given to the host has been
    /// counted already, when that worked or did not.
    fn publish(&mut self, rows: &UserRows) {
        for (fate, total) in self.path.account().fates() {
            let counted = &mut self.counted[fate as usize];
            if fate != Count::Passed {
                rows.add_many(self.row, fate, total - *counted);
            }
            *counted = total;
        }
    }
}

/// Sends the message along the path, from where the entry program left off; as a frame
/// from the link on, if stages that it does not know stand below.
fn travel(
    path: &mut Path<Message>,
    mut message: Message,
    entrance: Entrance,
    now: Time,
    watch: &mut impl Watch<Message>,
    out: &mut impl FnMut(Exit<Message>),
) {
    let above = path.attrs().number(INJECT_BACKWARD);
    match (entrance, above) {
        (Entrance::Validated { payload }, Some(above)) if enter(&mut message, payload) => {
            let above = above as usize;
            path.inject_watched(above, Direction::Backward, message, now, watch, out);
        }
        _ => path.pass_watched(Direction::Backward, message, now, watch, out),
    }
}

/// Tells the message what the entry program has found out about it.
fn enter(message: &mut Message, payload: usize) -> bool {
    Datagram::parse(message.bytes()).is_ok_and(|datagram| {
        let flow = Flow {
            source: datagram.source,
            destination: datagram.destination,
        };
        let starts = [
            datagram.ip_off,
            datagram.udp_off,
            datagram.udp_off + udp::HEADER_BYTES,
        ];
        let end = message.len();
        starts[2] == payload && message.enter(starts, end, flow, 0)
    })
}

/// Whether a socket says that its interface is down, or gone (packet(7), `xsk_sendmsg`).
pub(crate) fn is_down(error: &std::io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::NETDOWN | Errno::NODEV | Errno::NXIO))
}

/// How it is counted that an answer ended within its path.
const fn unsent(fate: Option<Count>) -> Count {
    match fate {
        Some(Count::DroppedTooLong) => Count::OutDroppedTooLong,
        Some(Count::DroppedIfaceDown) => Count::OutDroppedIfaceDown,
        Some(Count::DroppedNoNextHop) => Count::OutDroppedNoRoute,
        _ => Count::OutDroppedTxFull,
    }
}

/// Does what a path's outcome asks for, and gives the buffer back.
fn act(exit: Exit<Message>, row: u32, port: &mut impl Port, rows: &UserRows) -> Message {
    match exit {
        Exit::Left { message, .. } => {
            rows.add(row, Count::OutOriginated);
            let sent = port.send(message.bytes());
            tap::sent(&message, sent == Count::OutHandedOver);
            rows.add(row, sent);
            message
        }
        Exit::Ended {
            mut message,
            fate: Count::Passed,
        } => {
            give_to_host(&mut message, row, port, rows);
            message
        }
        Exit::Ended { message, .. } => message,
    }
}

/// Gives a message back to the host's stack, as it came, and counts that. What was put
/// together from fragments comes to it as fragments: whole it would not fit the frame
/// that a driver hands over.
pub(crate) fn give_to_host(message: &mut Message, row: u32, port: &mut impl Port, rows: &UserRows) {
    let parts = fragment::apart(message);
    let given = if parts.is_empty() {
        let frame = message.bytes_mut();
        // The host checks what the sender's device would have filled in.
        partial::complete(frame);
        port.pass(frame)
    } else {
        // No device fills in the checksum of what its host cuts.
        parts.iter().all(|part| port.pass(part.bytes()))
    };
    let fate = if given {
        Count::Passed
    } else {
        Count::DroppedPassFailed
    };
    rows.add(row, fate);
    tap::fate(message, fate);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_cannot_leave_is_counted_by_what_kept_it() {
        for (fate, counted) in [
            (Count::DroppedTooLong, Count::OutDroppedTooLong),
            (Count::DroppedIfaceDown, Count::OutDroppedIfaceDown),
            (Count::DroppedNoNextHop, Count::OutDroppedNoRoute),
        ] {
            assert_eq!(unsent(Some(fate)), counted);
        }
        let down = [Errno::NETDOWN, Errno::NODEV, Errno::NXIO];
        assert!(down.iter().all(|errno| is_down(&(*errno).into())));
        assert!(!is_down(&Errno::NOBUFS.into()));
    }
}
