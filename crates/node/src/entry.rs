//! Entry programs that are made while the node goes on.
//!
//! A path of a shape that an interface's program does not have is data to it at once
//! ([`ashway_demux::spare`]), and gets its messages. But then every message is looked up
//! so, which costs more than a program of that very table. So one is made on the compile
//! thread. What the table becomes meanwhile is kept, and the new maps follow it before
//! the program takes the other's place, by one exchange: each message meets one of them,
//! and both lead it to the same path. The exchange is that thread's too, since it takes an
//! RCU grace period; as long as nobody knows which of the two a message meets, the maps of
//! both follow the table.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::{io, mem};

use ashway_abi::Leaf;
use ashway_codegen::entry::Reply;
use ashway_demux::{Entries, Update};
use ashway_kernel::{Map, Program};

use super::dispatch::Entry;
use super::operation::{Operation, Report};
use super::{Node, NodeIface, RunError, XdpSide, say};
use crate::compile::Job;
use crate::request::Refusal;
use ashway_worker::programs::{DemuxMaps, Followed, NodeMaps};
use ashway_worker::target::Target;

/// An interface's next entry program.
#[derive(Debug, Default)]
pub(super) enum NextProgram {
    /// None: this one has all shapes.
    #[default]
    None,
    /// This one has some as data.
    Wanted,
    /// The compile thread makes it.
    Compiling {
        /// For this operation.
        operation: u64,
        /// How the table has changed since it was begun, request by request: what one has
        /// taken away the next may have given back.
        since: Vec<Vec<(Update<Target>, Leaf)>>,
    },
    /// It is made, and is about to take the place of this one: which of the two a message
    /// meets is not known.
    Replacing(Box<Replacing>),
}

/// A program that is about to be the interface's, or is already.
#[derive(Debug)]
pub(super) struct Replacing {
    operation: u64,
    program: Program,
    demux: DemuxMaps,
    /// Whether this one, too, has some shapes as data.
    again: bool,
}

/// An interface waits for its next entry program.
pub(super) struct EntryProgram {
    pub(super) iface: usize,
}

/// It waits for that program to be in its place.
pub(super) struct EntryExchange {
    pub(super) iface: usize,
}

/// What an entry program is made of, away from the node.
pub(super) struct Making {
    name: String,
    maps: Arc<NodeMaps>,
    slots: Arc<Map>,
    unmatched_row: u32,
    mac: [u8; 6],
    reply: Reply,
    arena: bool,
    observe: Option<(u16, Arc<OwnedFd>)>,
    shapes: Vec<Entries<Leaf>>,
}

impl Job for Making {
    type Outcome = Result<(Program, DemuxMaps), RunError>;

    fn run(self) -> Self::Outcome {
        let observe = self.observe.as_ref();
        let entry = Entry {
            name: &self.name,
            maps: &self.maps,
            slots: &self.slots,
            unmatched_row: self.unmatched_row,
            mac: self.mac,
            reply: self.reply,
            arena: self.arena,
            observe: observe.map(|(session, notes)| (*session, notes.as_fd())),
        };
        entry.load(&self.shapes[..], |leaf| leaf)
    }
}

impl XdpSide {
    /// Has the maps follow changes, and those of the next program. Where one's cannot,
    /// neither's do.
    pub(super) fn follow(&mut self, changes: &[(&Update<Target>, Leaf)]) -> Followed {
        let Some(steps) = self.demux.plan(changes) else {
            return Followed::No;
        };
        let next_steps = match &self.next {
            NextProgram::Replacing(replacing) => match replacing.demux.plan(changes) {
                None => return Followed::No,
                steps => steps,
            },
            _ => None,
        };
        // Whatever the reason, a new program with maps of its own is the way.
        let Ok(followed) = self.demux.go(steps) else {
            return Followed::No;
        };
        match (&mut self.next, next_steps) {
            (NextProgram::Compiling { since, .. }, _) => {
                let changes = changes.iter();
                let changes = changes.map(|(update, leaf)| ((*update).clone(), *leaf));
                since.push(changes.collect());
            }
            (NextProgram::Replacing(replacing), Some(steps)) => match replacing.demux.go(steps) {
                Ok(Followed::AsData) => replacing.again = true,
                Ok(_) => {}
                Err(_) => return Followed::No,
            },
            (next @ NextProgram::None, _) if followed == Followed::AsData => {
                *next = NextProgram::Wanted;
            }
            _ => {}
        }
        followed
    }
}

impl Node {
    /// Has the programs made that are wanted. A snapshot of each interface's table is
    /// taken here: 0.1 us for each of its entries.
    pub(super) fn begin_entries(&mut self) {
        for iface in self.ifaces.numbers() {
            let xdp = self.ifaces[iface].xdp.as_ref();
            if xdp.is_some_and(|xdp| matches!(xdp.next, NextProgram::Wanted)) {
                self.begin_entry(iface);
            }
        }
    }

    fn begin_entry(&mut self, iface: usize) {
        let (Some(xdp), Some(maps)) = (&self.ifaces[iface].xdp, &self.maps) else {
            return;
        };
        let leaves = self.leaves(iface);
        let shapes = self.ifaces[iface].table.shapes().iter();
        let name = &self.ifaces[iface].name;
        let making = Making {
            name: name.clone(),
            maps: Arc::clone(maps),
            slots: Arc::clone(&xdp.slots),
            unmatched_row: leaves.unmatched_row(),
            mac: self.links[iface].mac().get(),
            reply: xdp.reply,
            arena: self.arena,
            observe: self.entries_observe(),
            shapes: shapes
                .map(|entries| entries.map(|target| leaves.leaf(target)))
                .collect(),
        };
        let operation = self.operations.next("entry", name, Report::Nobody);
        if let Some(xdp) = &mut self.ifaces[iface].xdp {
            xdp.next = NextProgram::Compiling {
                operation: operation.number(),
                since: Vec::new(),
            };
        }
        self.submit(operation, EntryProgram { iface }, Box::new(making));
    }

    /// Goes on when an entry program is made: its maps follow what the table is by now, and
    /// it takes its place.
    pub(super) fn entry_made(
        &mut self,
        operation: Operation,
        iface: usize,
        made: Result<(Program, DemuxMaps), RunError>,
    ) {
        // It may have gone meanwhile.
        let Some(NodeIface { xdp, state, .. }) = self.ifaces.get_mut(iface) else {
            return;
        };
        let Some(xdp) = xdp.as_mut().filter(|_| !state.is_lost()) else {
            return self.drop_next(iface);
        };
        let NextProgram::Compiling { since, .. } = mem::take(&mut xdp.next) else {
            return;
        };
        let (program, mut demux) = match made {
            Ok(made) => made,
            Err(error) => return self.entry_kept(iface, &error.refusal()),
        };
        let mut again = false;
        for changes in &since {
            let changes: Vec<_> = changes
                .iter()
                .map(|(update, leaf)| (update, *leaf))
                .collect();
            match demux.follow(&changes) {
                Ok(Followed::Yes) => {}
                Ok(Followed::AsData) => again = true,
                Ok(Followed::No) | Err(_) => {
                    if let Err(refusal) = self.exchange(iface) {
                        self.entry_kept(iface, &refusal);
                    }
                    return;
                }
            }
        }
        let exchange = match xdp.link.exchange(&xdp.entry, &program) {
            Ok(exchange) => exchange,
            Err(error) => {
                let refusal = self.not_exchanged(iface, &error);
                return self.entry_kept(iface, &refusal);
            }
        };
        xdp.next = NextProgram::Replacing(Box::new(Replacing {
            operation: operation.number(),
            program,
            demux,
            again,
        }));
        self.submit(operation, EntryExchange { iface }, exchange);
    }

    /// Goes on when it is in its place.
    pub(super) fn entry_placed(&mut self, iface: usize, exchanged: io::Result<()>) {
        if let Err(error) = exchanged {
            self.drop_next(iface);
            let refusal = self.not_exchanged(iface, &error);
            return self.entry_kept(iface, &refusal);
        }
        if let Some(xdp) = &mut self.ifaces[iface].xdp
            && let NextProgram::Replacing(replacing) = mem::take(&mut xdp.next)
        {
            (xdp.entry, xdp.demux) = (replacing.program, replacing.demux);
            if replacing.again {
                xdp.next = NextProgram::Wanted;
            }
        }
    }

    /// An interface keeps its entry program, and what it has as data.
    fn entry_kept(&self, iface: usize, refusal: &Refusal) {
        // Of one that has gone, that is said.
        if !self.ifaces[iface].state.is_lost() {
            let name = &self.ifaces[iface].name;
            let because = &refusal.message;
            say(&format!("`{name}` keeps its entry program: {because}"));
            say(
                "  hint: its paths get their messages, each at a higher cost; the next path of a new \
                 shape asks for a program again",
            );
        }
    }

    /// Puts a program of the present table in the place of whichever is there, for the one
    /// that was to be there by now.
    pub(super) fn replace_entry(&mut self, iface: usize) {
        if let Err(refusal) = self.exchange(iface) {
            say(&refusal.message);
        }
    }

    /// Nobody waits for an interface's next program any more; what it has as data asks for
    /// one again when the next shape comes.
    pub(super) fn drop_next(&mut self, iface: usize) {
        let iface = self.ifaces.get_mut(iface);
        let Some(xdp) = iface.and_then(|iface| iface.xdp.as_mut()) else {
            return;
        };
        let operation = match mem::take(&mut xdp.next) {
            NextProgram::None | NextProgram::Wanted => return,
            NextProgram::Compiling { operation, .. } => operation,
            NextProgram::Replacing(replacing) => replacing.operation,
        };
        self.operations.take(operation);
    }
}
