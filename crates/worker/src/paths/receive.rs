//! Messages that come: each is counted, and queued for its path, or ended with a fate.
//!
//! Of what comes from a ring a program has counted the message already; of what comes from an
//! interface without a kernel tier it is done here.

use ashway_abi::{Count, trusted};
use ashway_modules::{Flow, Message};
use ashway_path::engine::Full;
use ashway_path::path::Trail;
use ashway_path::places::PathId;
use ashway_path::stage::Direction;
use ashway_path::time::Time;
use ashway_wire::{Datagram, udp};

use super::{Paths, Seat};
use crate::bug::{self, Bug};
use crate::counters::UserRows;
use crate::in_user;
use crate::keys;
use crate::observe::{What, trace};
use crate::queue::Queue;
use crate::rows::CounterRow;
use crate::target::Target;
use crate::ticket::Ticket;
use crate::witness::Sights;

impl Paths {
    /// The path that a frame which came by this interface belongs to.
    pub(crate) fn find(&mut self, iface: usize, frame: &[u8], rows: &UserRows) -> Option<Target> {
        self.apply_pending(rows);
        self.around.demux(iface, frame)
    }

    /// Whether a handler's rings feed what demux leads to.
    pub(crate) fn is_fed(&self, target: Target) -> bool {
        self.around.feeds.at(target.row).is_some()
    }

    /// Queues a frame from a ring, which has been counted as received in the common row.
    /// A program counts it under this key, until it has left the user tier. Its path waits for
    /// `after`.
    pub(crate) fn receive(
        &mut self,
        mut message: Message,
        key: usize,
        after: &mut Sights,
        now: Time,
        rows: &UserRows,
    ) {
        // It was classified when it arrived. If its path has gone since, it is another's.
        let target = self.route(key).or_else(|| {
            let iface = message.meta.iface as usize;
            self.around.demux(iface, message.bytes())
        });
        if let Some(target) = target {
            self.wait_for(target.path, after);
            let recorder = &mut self.around.recorder;
            recorder.received(target.path, target.direction, &mut message);
        }
        let ticket = Ticket::Frame(key as u32);
        let trail = trail(ticket, None);
        self.offer(target, message, trail, now, rows);
    }

    /// Whether the input queue of a handler's path holds less than a ring.
    pub(crate) fn has_short_queue(&self, path: PathId) -> bool {
        let path = self.engine.path(path);
        let queue = path.map(|path| path.input(Direction::Backward));
        queue.is_some_and(|queue| (queue.maximum() as usize) < trusted::RING_SLOTS)
    }

    /// Where a program leads the messages of this key; `None` if it is that of all paths
    /// without one, or its path has gone. O(1).
    pub(super) fn route(&self, key: usize) -> Option<Target> {
        let (path, direction) = match keys::of_key(key) {
            Some((number, direction)) => (self.routes.get(number).copied()??, direction),
            None => self.around.relays.as_ref()?.route(key)?,
        };
        Some(Target {
            path,
            direction,
            row: self.around.row,
        })
    }

    /// A frame that a program has counted as one message, under this key of `queue`, is so many:
    /// the others are received now, where that one was counted, and in the user tier. `path` is
    /// that of a handler, with the bucket of the flow.
    pub(crate) fn come_apart(
        &self,
        path: Option<(PathId, u32)>,
        queue: &Queue,
        key: usize,
        messages: usize,
        rows: &UserRows,
    ) {
        let others = messages - 1;
        let row = match path {
            Some((path, _)) => self.engine.data(path).map(|seat| seat.row),
            None if bug::is(Bug::SegmentsElsewhere) => None,
            None => self.around.relays.as_ref().and_then(|it| it.row(key)),
        };
        let row = row.unwrap_or(self.around.row);
        rows.add_many(row, Count::Received, others as u64);
        // Before the first of them leaves.
        let flow = path.and_then(|(_, bucket)| queue.flow_word(bucket));
        in_user::add(queue.in_user_word(key), flow, others as u32);
    }

    /// Ends a message with this fate that a handler's program has counted, and that cannot come
    /// to its path.
    pub(crate) fn refuse_from_handler(
        &mut self,
        path: PathId,
        bucket: u32,
        message: Message,
        fate: Count,
        rows: &UserRows,
    ) {
        let Some(Seat { row, .. }) = self.engine.data(path) else {
            return;
        };
        let row = *row;
        self.engine.refuse(path, fate);
        self.refuse(row, Ticket::Handler(row, bucket), message, fate, rows);
    }

    /// The same of a whole frame, which a program counts under this key.
    pub(crate) fn refuse_frame(
        &mut self,
        message: Message,
        key: usize,
        fate: Count,
        rows: &UserRows,
    ) {
        let row = self.around.row;
        if let Some(target) = self.route(key) {
            self.engine.refuse(target.path, fate);
        }
        self.refuse(row, Ticket::Frame(key as u32), message, fate, rows);
    }

    fn refuse(
        &mut self,
        row: CounterRow,
        ticket: Ticket,
        message: Message,
        fate: Count,
        rows: &UserRows,
    ) {
        trace::fate(&message, fate);
        rows.add(row, fate);
        self.around.keep(message);
        self.around.end(ticket.pack());
    }

    /// Queues a message that a handler's program has counted, in this bucket. If the entry program
    /// has checked it, `checked` bytes stand in front of what it carries; else the path's stages
    /// check it.
    pub(crate) fn receive_from_handler(
        &mut self,
        path: PathId,
        bucket: u32,
        mut message: Message,
        checked: Option<usize>,
        now: Time,
        rows: &UserRows,
    ) {
        let Some(Seat { row, inner, .. }) = self.engine.data(path) else {
            return;
        };
        let (row, inner) = (*row, *inner);
        let inner = inner.filter(|_| checked.is_some_and(|front| enter(&mut message, front)));
        let target = Target {
            path,
            direction: Direction::Backward,
            row,
        };
        let trail = trail(Ticket::Handler(row, bucket), inner);
        self.offer(Some(target), message, trail, now, rows);
    }

    /// Queues a frame from an interface without a kernel tier for the path that it was found to belong to;
    /// `put` makes the message, if there is room for it. Says whether there was.
    pub(crate) fn receive_for(
        &mut self,
        target: Target,
        observed: bool,
        now: Time,
        rows: &UserRows,
        put: impl FnOnce(Message) -> Message,
    ) -> bool {
        rows.add(target.row, Count::Received);
        let admitted = self.engine.admits(target.path, target.direction, now);
        if !observed && let Err(fate) = admitted {
            self.engine.refuse(target.path, fate);
            rows.add(target.row, fate);
            return false;
        }
        let message = put(self.message());
        let ticket = self.around.count(target.row);
        self.offer(Some(target), message, trail(ticket, None), now, rows);
        admitted.is_ok()
    }

    /// Ends a frame from such an interface with this fate, which cannot come to the path that it
    /// belongs to.
    pub(crate) fn refuse_for(
        &mut self,
        target: Target,
        observed: u64,
        fate: Count,
        rows: &UserRows,
    ) {
        rows.add(target.row, Count::Received);
        self.engine.refuse(target.path, fate);
        rows.add(target.row, fate);
        trace::note(observed, || What::Fate(fate));
    }

    /// Queues a message for its path, or posts it to where it ends.
    fn offer(
        &mut self,
        target: Option<Target>,
        mut message: Message,
        trail: Trail,
        now: Time,
        rows: &UserRows,
    ) {
        message.meta.arrived = now;
        let (engine, mut around) = self.split(rows);
        let row = target.map_or(around.row, |target| target.row);
        let offered = if let Some(target) = target {
            engine.offer(target.path, target.direction, message, trail, now)
        } else {
            engine.unmatched();
            Err((message, Full::NoPath))
        };
        let Err((message, full)) = offered else {
            return;
        };
        match (full, target) {
            (Full::Dropped(fate), Some(target)) => {
                if let Some(path) = engine.path(target.path) {
                    trace::path(&message, path.name());
                }
                trace::fate(&message, fate);
                rows.add(row, fate);
                around.keep(message);
            }
            _ => around.give_back(row, None, trail, message),
        }
        if let Some(ticket) = trail.ticket {
            around.end(ticket);
        }
    }
}

/// The trail of a message that has just come.
fn trail(ticket: Ticket, stage: Option<u8>) -> Trail {
    Trail {
        stage,
        ticket: Some(ticket.pack()),
        ..Trail::default()
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
