//! Paths whose messages come as whole frames.
//!
//! All of them share one row of counters, one place in each interface's program
//! array, and one program; so a path of a known shape is an object in the worker's
//! hands and a map entry for each of its ends.

use std::sync::Arc;

use ashway_demux::{self as demux, Filter, Replica};
use ashway_kernel::Program;
use ashway_modules::{Message, datagram};
use ashway_path::path::Path;
use ashway_path::places::PathId;
use ashway_path::stage::Direction;

use super::dispatch;
use super::made_path::MadePath;
use super::neighbours::NextMac;
use super::node_path::{Attachment, FramePath, NodePath};
use super::program_array::FRAMES_SLOT;
use super::{Node, RunError};
use crate::request::{self, Refusal};
use ashway_config::Tier;
use ashway_worker::order::{ModulePath, Order};
use ashway_worker::queue::Queue;
use ashway_worker::target::{DemuxChange, Target};
use ashway_worker::worker::command::Resource;

/// The queue that whole frames come by, and the program that puts them there.
#[derive(Debug)]
pub(super) struct FrameQueue {
    pub(super) queue: Arc<Queue>,
    pub(super) user_program: Program,
}

impl Node {
    /// Hands paths to the worker, and leads whole frames to them: to all, or to none.
    pub(super) fn put_frames(&mut self, made: Vec<MadePath>) -> Result<(), Refusal> {
        if made.iter().any(|path| !path.ends.is_empty()) {
            self.need_frame_queue()?;
        }
        let mut paths = Vec::with_capacity(made.len());
        let mut demux_changes = Vec::with_capacity(made.len());
        let mut to_promote = Vec::new();
        for MadePath {
            from,
            mut path,
            ends,
            domain,
            owner,
            runs,
            tier,
            fits,
            ..
        } in made
        {
            match self.add_frame_path(&path, &from, domain, ends, &mut demux_changes) {
                Ok(id) => {
                    if let Some(path) = self.paths.at_mut(id) {
                        path.owner = owner;
                    }
                    if let Some(frames) = self.paths.frames_mut(id) {
                        frames.runs = runs;
                    }
                    let lacks = datagram::lacks_next_mac(&mut path);
                    let next_mac = lacks.map(|lacks| self.want_neighbour(id, lacks));
                    if let Some(NextMac::Known(mac)) = next_mac {
                        datagram::set_next_mac(&mut path, mac);
                    }
                    if self.place(id, fits) && tier != Tier::User {
                        to_promote.push(id);
                    }
                    paths.push(ModulePath {
                        id,
                        number: self.paths.frames(id).and_then(|path| path.number),
                        path,
                        awaits_next_mac: next_mac == Some(NextMac::Awaited),
                    });
                }
                Err(refusal) => {
                    // Nobody but the tables knows of them.
                    let ids: Vec<PathId> = paths.iter().map(|path| path.id).collect();
                    self.take_frame_paths(&ids, &mut demux_changes);
                    self.release(&ids);
                    self.forget_neighbours(&ids);
                    if demux_changes
                        .iter()
                        .any(|(_, turn)| matches!(turn, DemuxChange::Anew(_)))
                    {
                        // Then their shapes have other names than before.
                        self.put_back(&demux_changes);
                        let _ = self.change_demux(demux_changes);
                    }
                    return Err(refusal);
                }
            }
        }
        let ids: Vec<PathId> = paths.iter().map(|path| path.id).collect();
        // The worker takes them in before it looks up the next frame.
        let led = self
            .post_to_worker(Order {
                insert: paths,
                demux_changes: demux_changes.clone(),
                ..Order::default()
            })
            .and_then(|()| self.lead(&demux_changes));
        if let Err(refusal) = led {
            let mut away = Vec::new();
            self.take_frame_paths(&ids, &mut away);
            // A worker that does not answer works for nobody any more.
            let _ = self.drop_frame_paths(ids.clone(), away);
            self.put_back(&demux_changes);
            self.release(&ids);
            self.forget_neighbours(&ids);
            let _ = self.show_host();
            return Err(refusal);
        }
        if !to_promote.is_empty() {
            // In the kernel tier nothing waits for a next hop.
            self.look_up_neighbours();
        }
        for id in to_promote {
            // A worker that does not answer works for nobody any more.
            let _ = self.move_relay(id, Tier::Kernel);
        }
        Ok(())
    }

    /// Has what decides about messages outside the worker follow changed tables.
    fn lead(&mut self, demux_changes: &[(usize, DemuxChange)]) -> Result<(), Refusal> {
        let mut ifaces = demux_changes.iter().map(|(iface, _)| *iface);
        if ifaces.any(|iface| self.drop_rules.get(iface).is_some()) {
            self.show_host()?;
        }
        self.follow(demux_changes)
    }

    /// What demux has of a filter on an interface: nothing of fragments, if a path
    /// there takes them all.
    pub(super) fn filter_at(&self, iface: usize, filter: Filter) -> Filter {
        if self.ifaces[iface].catch_all {
            dispatch::whole(&filter).unwrap_or(filter)
        } else {
            filter
        }
    }

    /// Makes the queue of whole frames, unless it is there.
    fn need_frame_queue(&mut self) -> Result<(), Refusal> {
        let Some(maps) = &self.maps else {
            return Ok(());
        };
        if self.frame_queue.is_none() {
            let facts = self.iface_facts();
            let failed = |error| RunError::Instance(error).refusal();
            let queue = Queue::of_frames(&facts, dispatch::packet(self.arena)).map_err(failed)?;
            let user_program = queue.load_user(maps).map_err(failed)?;
            for iface in self.ifaces.values() {
                let Some(xdp) = &iface.xdp else {
                    continue;
                };
                xdp.slots
                    .set_slot(FRAMES_SLOT, user_program.fd())
                    .map_err(|error| {
                        Refusal::failed(
                            format!("the program array did not take the program: {error}"),
                            "this is a bug of Ashway; please report it",
                        )
                    })?;
            }
            let queue = Arc::new(queue);
            self.call_worker(Resource::FrameQueue(Arc::clone(&queue)))?;
            self.frame_queue = Some(FrameQueue {
                queue,
                user_program,
            });
        }
        Ok(())
    }

    /// Puts a path into the tables.
    fn add_frame_path(
        &mut self,
        path: &Path<Message>,
        from: &str,
        domain: Option<String>,
        ends: Vec<(Attachment, Filter)>,
        demux_changes: &mut Vec<(usize, DemuxChange)>,
    ) -> Result<PathId, Refusal> {
        let shown = ends.iter().map(|(end, _)| *end);
        let domain = domain.map(Arc::from);
        let frame_queue = self.frame_queue.as_ref();
        let is_idle = |number| frame_queue.is_none_or(|frames| frames.queue.begin_path(number));
        let name = path.shared_name();
        let id = self.paths.insert_frames(name, from, domain, shown, is_idle);
        // Another of the same request may have the name by now.
        let id = id.ok_or_else(|| request::taken(path.name()))?;
        for (end, filter) in ends {
            let led = self.add_end(
                path.name(),
                self.frame_target(id, end.direction),
                end,
                filter,
                demux_changes,
            );
            if let Err(refusal) = led {
                self.take_frame_paths(&[id], demux_changes);
                return Err(refusal);
            }
        }
        Ok(id)
    }

    fn add_end(
        &mut self,
        name: &str,
        target: Target,
        end: Attachment,
        filter: Filter,
        demux_changes: &mut Vec<(usize, DemuxChange)>,
    ) -> Result<(), Refusal> {
        let iface = end.iface();
        let filter = if end.catches {
            self.catch(iface, true, demux_changes)?;
            filter
        } else {
            self.filter_at(iface, filter)
        };
        let led = self.add_filter(iface, &filter, target, demux_changes);
        led.map_err(|conflict| {
            let refusal = self.rivalry(name, target, &conflict);
            if end.catches {
                let _ = self.catch(iface, false, demux_changes);
            }
            refusal
        })
    }

    /// Where demux leads for a path of modules.
    pub(super) const fn frame_target(&self, path: PathId, direction: Direction) -> Target {
        Target {
            path,
            direction,
            row: self.plan.module_row,
        }
    }

    /// Makes the table of an interface anew: with fragments for all paths, or for
    /// the one that takes them all.
    fn catch(
        &mut self,
        iface: usize,
        on: bool,
        demux_changes: &mut Vec<(usize, DemuxChange)>,
    ) -> Result<(), Refusal> {
        if on && self.ifaces[iface].catch_all {
            let name = &self.ifaces[iface].name;
            let message = format!("a path takes all fragments of `{name}` already");
            return Err(Refusal::failed(message, "one for each interface is enough"));
        }
        let was = std::mem::replace(&mut self.ifaces[iface].catch_all, on);
        let mut table = demux::Table::default();
        for (lead, filter) in self.filters(iface) {
            let filter = if self.catches(lead.path, iface) {
                filter
            } else {
                self.filter_at(iface, filter)
            };
            if let Err(conflict) = table.insert(&filter, lead) {
                self.ifaces[iface].catch_all = was;
                return Err(self.competition("?", &conflict));
            }
        }
        demux_changes.push((iface, DemuxChange::Anew(Replica::of(&table))));
        self.ifaces[iface].table = table;
        Ok(())
    }

    /// Whether a path takes all fragments of an interface.
    pub(super) fn catches(&self, id: PathId, iface: usize) -> bool {
        let path = self.paths.frames(id).into_iter();
        let mut ends = path.flat_map(FramePath::ends);
        ends.any(|end| end.catches && end.iface() == iface)
    }

    /// Takes paths out of the tables; the node does not know them any more.
    fn take_frame_paths(&mut self, ids: &[PathId], demux_changes: &mut Vec<(usize, DemuxChange)>) {
        for &id in ids {
            let gone = self.paths.remove(id);
            let frames = gone.as_ref().and_then(NodePath::frames);
            for end in frames.into_iter().flat_map(FramePath::ends) {
                let lead = self.frame_target(id, end.direction);
                // Nothing, if it never came into this one.
                let led = self.ifaces[end.iface()].table.text(lead).is_some();
                if led {
                    self.remove_filter(end.iface(), lead, demux_changes);
                }
                if led && end.catches {
                    // Taking away cannot compete with anybody.
                    let _ = self.catch(end.iface(), false, demux_changes);
                }
            }
        }
    }

    /// Has the worker drop paths; what waits in them is lost.
    fn drop_frame_paths(
        &mut self,
        remove: Vec<PathId>,
        demux_changes: Vec<(usize, DemuxChange)>,
    ) -> Result<(), Refusal> {
        self.post_to_worker(Order {
            demux_changes,
            remove,
            ..Order::default()
        })
    }

    /// Removes these.
    ///
    /// # Errors
    ///
    /// If the worker does not answer, or a program or a rule does not follow: then the
    /// worker gives the host what still comes.
    pub(super) fn take_frames(&mut self, ids: &[PathId]) -> Result<(), Refusal> {
        let mut demux_changes = Vec::with_capacity(ids.len());
        self.take_frame_paths(ids, &mut demux_changes);
        let led = self.lead(&demux_changes);
        self.drop_frame_paths(ids.to_vec(), demux_changes)?;
        self.forget_neighbours(ids);
        // A number that a program may still lead to stays taken.
        led?;
        self.release(ids);
        Ok(())
    }
}
