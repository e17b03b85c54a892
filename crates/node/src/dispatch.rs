//! How messages find their paths: the demux of each interface, and the programs
//! and maps that follow it.
//!
//! The [`Table`] is the truth. The worker has a [replica](ashway_demux::Replica),
//! an interface with XDP has it as an entry program with maps. A change within shapes that
//! the program has is one map update for each entry; a new shape is data, until a
//! [program that has it](super::entry) has been made, and one exchange (`BPF_LINK_UPDATE`)
//! puts that in place of the old one.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use super::path_registry::PathRegistry;
use super::program_array::{FRAMES_SLOT, RELAY_SLOT};
use super::relay::NodeRelays;
use super::{Node, RunError};
use crate::request::Refusal;
use ashway_abi::Leaf;
use ashway_abi::context::flag;
use ashway_codegen::demux::compiled;
use ashway_codegen::entry::{self, Packet, Reply};
use ashway_config::{NodeGraph, PathConfig};
use ashway_demux::{Conflict, Conjunction, Entries, Field, Filter, Layer, Table, Test, Update};
use ashway_kernel::{Map, Program};
use ashway_modules::tap;
use ashway_path::attrs::Attrs;
use ashway_path::create::NotCreated;
use ashway_wire::Fragment;
use ashway_worker::activation::{LOCAL, ROW};
use ashway_worker::bindings::HandlerBindings;
use ashway_worker::keys;
use ashway_worker::order::Order;
use ashway_worker::plan::{PathPlan, Plan};
use ashway_worker::programs::{self, DemuxMaps, Followed, NodeMaps};
use ashway_worker::queue_plan::QueuePlan;
use ashway_worker::relays;
use ashway_worker::run_instance::HandlerPath;
use ashway_worker::target::{DemuxChange, Target};

/// How the programs of a node read packets that may use arenas, or not.
pub(super) const fn packet(arena: bool) -> Packet {
    if arena {
        Packet::Pointers
    } else {
        Packet::Helpers
    }
}

/// What an entry program needs to know of the paths behind it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leaves<'a> {
    pub(super) plan: &'a Plan,
    pub(super) paths: &'a PathRegistry,
    /// The queue of whole frames.
    pub(super) frame_queue: Option<&'a QueuePlan>,
    pub(super) relays: Option<&'a NodeRelays>,
    pub(super) iface: usize,
}

impl Leaves<'_> {
    /// Where frames are counted that match no path.
    pub(super) fn unmatched_row(&self) -> u32 {
        self.plan.ifaces[self.iface].unmatched_row.0
    }

    /// What stands at the end of demux.
    pub(super) fn leaf(&self, target: Target) -> Leaf {
        let Target {
            path: id,
            direction,
            ..
        } = target;
        if let Some(path) = self.plan.path_of(id) {
            return self
                .plan
                .leaf(self.iface, path, &self.paths.bound(path).config);
        }
        let number = self.paths.frames(id).and_then(|path| path.number);
        let frame_queue = self.frame_queue.expect("paths of modules have one");
        let rings = frame_queue.rings_at(self.iface);
        let row = self.plan.module_row.0;
        let whole = Leaf {
            row,
            local: number.map_or(0, |number| keys::key(number, direction) as u32),
            ring_base: rings.start as u16,
            ring_count: rings.len() as u16,
            flags: flag::RAW,
            slot: FRAMES_SLOT,
            tag: self.iface as u32,
        };
        let number = self.relays.and_then(|relays| relays.number(id));
        number.map_or(whole, |number| Leaf {
            row: self.plan.relay_row(number).0,
            local: relays::key(number, direction) as u32,
            flags: 0,
            slot: RELAY_SLOT,
            ..whole
        })
    }
}

/// What an entry program needs beside the paths.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry<'a> {
    pub(super) name: &'a str,
    pub(super) maps: &'a NodeMaps,
    pub(super) slots: &'a Map,
    pub(super) unmatched_row: u32,
    pub(super) mac: [u8; 6],
    pub(super) reply: Reply,
    pub(super) arena: bool,
    /// The observation's number, and where it is said, if the program is to observe.
    pub(super) observe: Option<(u16, BorrowedFd<'a>)>,
}

impl Entry<'_> {
    /// Loads the entry program for what `table` has. Nothing runs it yet. Takes
    /// milliseconds: the verifier reads it.
    pub(super) fn load<T: Copy>(
        &self,
        table: &(impl AsRef<[Entries<T>]> + ?Sized),
        leaf: impl Fn(T) -> Leaf,
    ) -> Result<(Program, DemuxMaps), RunError> {
        let shapes = compiled::compile_open(table, compiled::FEW, &leaf);
        let demux =
            DemuxMaps::create(table, &shapes, &leaf).map_err(|source| RunError::System {
                doing: "create the maps of an interface's demux",
                source,
            })?;
        let spec = entry::Spec {
            hook: self.maps.hook,
            shapes: &shapes,
            spares: Some(compiled::spares_at(&shapes)),
            cpus: self.maps.cpus,
            per_cpu: demux.is_per_cpu(),
            unmatched_row: self.unmatched_row,
            mac: self.mac,
            reply: self.reply,
            packet: packet(self.arena),
        };
        let image = match self.observe {
            None => entry::generate(&spec),
            Some((session, _)) => entry::generate_observed(&spec, session),
        };
        let notes = self.observe.map(|(_, notes)| notes);
        let program = programs::load_entry_with(&image, self.maps, self.slots, &demux, notes);
        let program = program.map_err(|source| RunError::Load {
            what: "entry",
            iface: self.name.to_owned(),
            source,
        })?;
        Ok((program, demux))
    }
}

/// The demux of an interface of this name for the paths that the plan has there.
///
/// # Errors
///
/// [`RunError::Demux`].
pub(super) fn table(
    name: &str,
    plan: &Plan,
    paths: &PathRegistry,
    iface: usize,
) -> Result<Table<Target>, RunError> {
    let mut table = Table::default();
    for path in &plan.ifaces[iface].paths {
        // To those behind the first instance of a handler the entry program leads.
        let Some(target) = plan.target(*path, iface) else {
            continue;
        };
        table
            .insert(&paths.bound(*path).config.filter, target)
            .map_err(|conflict| RunError::Demux {
                iface: name.to_owned(),
                because: conflict.to_string(),
            })?;
    }
    Ok(table)
}

/// All fragments: for the path that puts them together.
pub(super) fn fragments() -> Filter {
    let one = |fragment: Fragment| Conjunction {
        tests: vec![Test::whole(Field::Fragment, [fragment as u8])],
        not: Vec::new(),
    };
    Filter {
        text: "fragments".to_owned(),
        any: vec![one(Fragment::First), one(Fragment::Later)],
    }
}

/// A filter without the fragments it may match; `None` if nothing else is left.
/// For the other paths of an interface on which one takes all fragments.
pub(super) fn whole(filter: &Filter) -> Option<Filter> {
    let whole = Test::whole(Field::Fragment, [Fragment::No as u8]);
    let mut any = Vec::new();
    for conjunction in &filter.any {
        let mut conjunction = conjunction.clone();
        // What asks for no network header is no fragment's, and a test of one
        // would ask for it.
        let link = |test: &Test| test.field.layer() == Layer::Link;
        let no_network = conjunction.tests.iter().all(link);
        let tests = &mut conjunction.tests;
        match tests.binary_search_by_key(&Field::Fragment, |test| test.field) {
            // It asks for fragments only.
            Ok(at) if tests[at].value != whole.value => continue,
            Ok(at) => tests[at] = whole,
            Err(_) if no_network => {}
            Err(at) => tests.insert(at, whole),
        }
        any.push(conjunction);
    }
    (!any.is_empty()).then(|| Filter {
        text: filter.text.clone(),
        any,
    })
}

impl Node {
    /// Adds a filter to an interface's table. The worker and the program are still
    /// to follow.
    pub(super) fn add_filter(
        &mut self,
        iface: usize,
        filter: &Filter,
        target: Target,
        demux_changes: &mut Vec<(usize, DemuxChange)>,
    ) -> Result<(), Conflict<Target>> {
        let table = &mut self.ifaces[iface].table;
        let change = table.insert(filter, target)?;
        demux_changes.push((
            iface,
            DemuxChange::Update(Update::of(table, change, target).into()),
        ));
        Ok(())
    }

    /// Takes a filter out of an interface's table.
    pub(super) fn remove_filter(
        &mut self,
        iface: usize,
        target: Target,
        demux_changes: &mut Vec<(usize, DemuxChange)>,
    ) {
        let table = &mut self.ifaces[iface].table;
        let change = table.remove(target);
        demux_changes.push((
            iface,
            DemuxChange::Update(Update::of(table, change, target).into()),
        ));
    }

    /// Has the worker follow these changes.
    pub(super) fn change_demux(
        &mut self,
        demux_changes: Vec<(usize, DemuxChange)>,
    ) -> Result<(), Refusal> {
        self.post_to_worker(Order {
            demux_changes,
            ..Order::default()
        })
    }

    /// What the entry program of an interface needs.
    pub(super) fn leaves(&self, iface: usize) -> Leaves<'_> {
        Leaves {
            plan: &self.plan,
            paths: &self.paths,
            frame_queue: self
                .frame_queue
                .as_ref()
                .map(|frame_queue| &frame_queue.queue.plan),
            relays: self.relays.as_ref(),
            iface,
        }
    }

    /// Loads the entry program for an interface's present table; nothing runs it
    /// yet. `None` without a kernel tier.
    pub(super) fn load_entry(
        &self,
        iface: usize,
    ) -> Result<Option<(Program, DemuxMaps)>, RunError> {
        let (Some(xdp), Some(maps)) = (&self.ifaces[iface].xdp, &self.maps) else {
            return Ok(None);
        };
        let leaves = self.leaves(iface);
        let observe = self.entries_observe();
        let entry = Entry {
            name: &self.ifaces[iface].name,
            maps,
            slots: &xdp.slots,
            unmatched_row: leaves.unmatched_row(),
            mac: self.links[iface].mac().get(),
            reply: xdp.reply,
            arena: self.arena,
            observe: observe
                .as_ref()
                .map(|(session, notes)| (*session, notes.as_fd())),
        };
        let table = &self.ifaces[iface].table;
        entry.load(table, |target| leaves.leaf(target)).map(Some)
    }

    /// Puts an interface's present table into its program: by a new one, in place also of
    /// one that is being made. Refused, it has changed nothing.
    pub(super) fn exchange(&mut self, iface: usize) -> Result<(), Refusal> {
        let loaded = self.load_entry(iface);
        let Some((program, demux)) = loaded.map_err(|error| error.refusal())? else {
            return Ok(());
        };
        let Some(xdp) = &mut self.ifaces[iface].xdp else {
            return Ok(());
        };
        if let Err(error) = xdp.link.update(&program) {
            return Err(self.not_exchanged(iface, &error));
        }
        (xdp.entry, xdp.demux) = (program, demux);
        // That one puts nothing in this one's place any more.
        self.drop_next(iface);
        Ok(())
    }

    /// Says that an interface does not take an entry program.
    pub(super) fn not_exchanged(&self, iface: usize, error: &io::Error) -> Refusal {
        let name = &self.ifaces[iface].name;
        Refusal::failed(
            format!("`{name}` does not take another entry program: {error}"),
            "was Ashway detached from it? `ashway doctor` shows who has it",
        )
    }

    /// Has the programs follow these changes: by map updates where that is
    /// enough, else by one new program for each interface. What is data to a program
    /// [is to be had](Node::begin_entries) by one of its own.
    ///
    /// # Errors
    ///
    /// Why not. Some interfaces may follow already: put the tables back, then call
    /// [`put_back`](Self::put_back).
    pub(super) fn follow(&mut self, demux_changes: &[(usize, DemuxChange)]) -> Result<(), Refusal> {
        for iface in touched(demux_changes) {
            // To one that is gone nothing leads any more.
            if self.ifaces[iface].xdp.is_none() || self.ifaces[iface].state.is_lost() {
                continue;
            }
            let leaves = self.leaves(iface);
            let here = demux_changes.iter().filter(|(at, _)| *at == iface);
            let changes: Option<Vec<_>> = here
                .map(|(_, turn)| match turn {
                    DemuxChange::Update(update) if update.change().added.is_empty() => {
                        Some((&**update, Leaf::default()))
                    }
                    DemuxChange::Update(update) => Some((&**update, leaves.leaf(update.value()))),
                    DemuxChange::Anew(_) => None,
                })
                .collect();
            let xdp = self.ifaces[iface].xdp.as_mut();
            let followed = changes.zip(xdp).map(|(all, xdp)| xdp.follow(&all));
            if followed.is_none_or(|followed| followed == Followed::No) {
                self.exchange(iface)?;
            }
        }
        Ok(())
    }

    /// Has the programs of these interfaces follow tables that were put back.
    pub(super) fn put_back(&mut self, demux_changes: &[(usize, DemuxChange)]) {
        for iface in touched(demux_changes) {
            // One that cannot be changed has not been changed either.
            let _ = self.exchange(iface);
        }
    }
}

/// The interfaces that these change.
fn touched(demux_changes: &[(usize, DemuxChange)]) -> Vec<usize> {
    let mut ifaces: Vec<usize> = demux_changes.iter().map(|(iface, _)| *iface).collect();
    ifaces.sort_unstable();
    ifaces.dedup();
    ifaces
}

/// A path that ends in a handler, for the worker: at each of its interfaces.
///
/// # Errors
///
/// Which module could not take part in it, and why.
pub(super) fn handler_paths(
    graph: &NodeGraph,
    config: &PathConfig,
    plan: &PathPlan,
    ends: &HandlerBindings,
) -> Result<Vec<HandlerPath>, NotCreated> {
    let at = plan.slots.iter().zip(&plan.runs);
    config
        .ifaces
        .iter()
        .zip(at)
        .map(|(name, (&(iface, _), &id))| {
            let mut attrs = Attrs::new();
            attrs.set(ROW, u64::from(plan.row.0));
            attrs.set(LOCAL, plan.local as u64);
            attrs.set(tap::PATH, config.name.as_str());
            let created = graph.create(config, name, attrs)?;
            let end = ends.find(plan.row.0);
            Ok(HandlerPath {
                id,
                handler: plan.handler,
                local: plan.local,
                iface,
                row: plan.row,
                path: Box::new(created.path),
                share: end.and_then(|end| end.share.clone()),
            })
        })
        .collect()
}
