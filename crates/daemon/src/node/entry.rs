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
use super::operations::{Job, Operation, Report, Step};
use super::{Node, NodeIface, RunError, XdpSide, binding, say};
use crate::live::Target;
use crate::programs::{DemuxMaps, Followed, NodeMaps};
use crate::request::Refusal;

/// An interface's next entry program.
#[derive(Debug, Default)]
pub(super) enum Coming {
    /// None: this one has all shapes.
    #[default]
    No,
    /// This one has some as data.
    Wanted,
    /// The compile thread makes it.
    Made {
        /// For this operation.
        operation: u64,
        /// How the table has changed since it was begun.
        since: Vec<(Update<Target>, Leaf)>,
    },
    /// It is made, and takes the place of this one.
    Placed(Box<Placed>),
}

/// A program that is about to be the interface's, or is already.
#[derive(Debug)]
pub(super) struct Placed {
    operation: u64,
    program: Program,
    demux: DemuxMaps,
    /// Whether this one, too, has some shapes as data.
    again: bool,
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

impl Making {
    pub(super) fn make(&self) -> Result<(Program, DemuxMaps), RunError> {
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
    /// Has the maps follow changes, and those of the program to come.
    pub(super) fn follow(&mut self, changes: &[(&Update<Target>, Leaf)]) -> Followed {
        // Whatever the reason, a new program with maps of its own is the way.
        let followed = self.demux.follow(changes).unwrap_or(Followed::No);
        match &mut self.coming {
            Coming::Made { since, .. } => {
                let changes = changes.iter();
                since.extend(changes.map(|(update, leaf)| ((*update).clone(), *leaf)));
            }
            Coming::Placed(placed) => match placed.demux.follow(changes) {
                Ok(Followed::Yes) => {}
                Ok(Followed::AsData) => placed.again = true,
                Ok(Followed::No) | Err(_) => return Followed::No,
            },
            coming @ Coming::No if followed == Followed::AsData => *coming = Coming::Wanted,
            Coming::No | Coming::Wanted => {}
        }
        followed
    }
}

impl Node {
    /// Has the programs made that are wanted. A snapshot of each interface's table is
    /// taken here: 0.1 us for each of its entries.
    pub(super) fn begin_entries(&mut self) {
        for iface in 0..self.ifaces.len() {
            let xdp = self.ifaces[iface].xdp.as_ref();
            if xdp.is_some_and(|xdp| matches!(xdp.coming, Coming::Wanted)) {
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
        let name = &self.config.ifaces[iface].name;
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
            xdp.coming = Coming::Made {
                operation: operation.number(),
                since: Vec::new(),
            };
        }
        self.submit(
            operation,
            Step::Entry { iface },
            Job::Entry(Box::new(making)),
        );
    }

    /// Goes on when an entry program is made: its maps follow what the table is by now, and
    /// it takes its place.
    pub(super) fn entry_made(
        &mut self,
        operation: Operation,
        iface: usize,
        made: Result<(Program, DemuxMaps), RunError>,
    ) {
        let NodeIface { xdp, state, .. } = &mut self.ifaces[iface];
        let Some(xdp) = xdp.as_mut().filter(|_| !state.is_lost()) else {
            return self.forget_entry(iface);
        };
        let Coming::Made { since, .. } = mem::take(&mut xdp.coming) else {
            return;
        };
        let (program, mut demux) = match made {
            Ok(made) => made,
            Err(error) => return self.entry_kept(iface, &binding::refusal(&error)),
        };
        let since: Vec<_> = since.iter().map(|(update, leaf)| (update, *leaf)).collect();
        let again = match demux.follow(&since) {
            Ok(Followed::Yes) => false,
            Ok(Followed::AsData) => true,
            Ok(Followed::No) | Err(_) => {
                if let Err(refusal) = self.exchange(iface) {
                    self.entry_kept(iface, &refusal);
                }
                return;
            }
        };
        let exchange = match xdp.link.exchange(&xdp.entry, &program) {
            Ok(exchange) => exchange,
            Err(error) => {
                let refusal = self.not_exchanged(iface, &error);
                return self.entry_kept(iface, &refusal);
            }
        };
        xdp.coming = Coming::Placed(Box::new(Placed {
            operation: operation.number(),
            program,
            demux,
            again,
        }));
        self.submit(operation, Step::Exchange { iface }, Job::Exchange(exchange));
    }

    /// Goes on when it is in its place.
    pub(super) fn entry_placed(&mut self, iface: usize, exchanged: io::Result<()>) {
        if let Err(error) = exchanged {
            self.forget_entry(iface);
            let refusal = self.not_exchanged(iface, &error);
            return self.entry_kept(iface, &refusal);
        }
        if let Some(xdp) = &mut self.ifaces[iface].xdp
            && let Coming::Placed(placed) = mem::take(&mut xdp.coming)
        {
            (xdp.entry, xdp.demux) = (placed.program, placed.demux);
            if placed.again {
                xdp.coming = Coming::Wanted;
            }
        }
    }

    /// An interface keeps its entry program, and what it has as data.
    fn entry_kept(&self, iface: usize, refusal: &Refusal) {
        // Of one that has gone, that is said.
        if !self.ifaces[iface].state.is_lost() {
            let name = &self.config.ifaces[iface].name;
            let because = &refusal.message;
            say(&format!("`{name}` keeps its entry program: {because}"));
            say("  hint: its paths get their messages, each at a higher cost");
        }
    }

    /// Has no program made any more: of one that is about to be in its place it is not known
    /// whether it is.
    pub(super) fn stop_entry(&mut self, iface: usize) {
        let xdp = self.ifaces[iface].xdp.as_ref();
        if !xdp.is_some_and(|xdp| matches!(xdp.coming, Coming::Placed(_))) {
            self.forget_entry(iface);
        }
    }

    /// Ends the wait for a program, wherever it is by now, for the good of another.
    pub(super) fn leave_entry(&mut self, iface: usize) {
        if let Err(refusal) = self.exchange(iface) {
            say(&refusal.message);
        }
    }

    /// Nobody waits for a program that is being made any more.
    pub(super) fn forget_entry(&mut self, iface: usize) {
        let Some(xdp) = &mut self.ifaces[iface].xdp else {
            return;
        };
        let operation = match mem::take(&mut xdp.coming) {
            Coming::No | Coming::Wanted => return,
            Coming::Made { operation, .. } => operation,
            Coming::Placed(placed) => placed.operation,
        };
        self.operations.take(operation);
    }
}
