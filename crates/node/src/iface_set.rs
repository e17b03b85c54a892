//! Interfaces that come to a running node, and go.
//!
//! One that comes is taken with an empty demux, so that nothing leads anywhere, and then
//! [paths are led to it](Node::extend) one by one. One that goes is let go of first: behind a
//! grace period no program sees a message of it any more, and each path that was at it is closed
//! there, and nowhere else, when what had come is done. Nothing is left of it but its
//! number, which is no other's ([`IfaceMap`](ashway_worker::iface_map::IfaceMap)).

use std::sync::Arc;

use ashway_demux::Replica;
use ashway_kernel::Iface;
use ashway_path::places::PathId;
use rustix::thread::{MembarrierCommand, membarrier};

use super::node_path::FramePath;
use super::program_array::{FRAMES_SLOT, RELAY_SLOT};
use super::rows::Former;
use super::taken::{self, Common};
use super::world::Link;
use super::{Node, NodeIface, RunError, State, dispatch, say};
use crate::request::Refusal;
use crate::rung::{Choice, Rung, beside, cost};
use ashway_config::{IfaceConfig, PathConfig, Tier, whole_name};
use ashway_worker::order::Order;
use ashway_worker::target::DemuxChange;
use ashway_worker::worker::command::{Command, Resource};

/// An interface that is to come: nothing has been done to it.
pub(super) struct Coming {
    pub(super) asked: IfaceConfig,
    found: Iface,
    choice: Choice,
    /// As modules know it; the number is its own already.
    pub(super) link: Link,
}

impl Node {
    /// Looks whether an interface is there, and how this node would take it.
    ///
    /// # Errors
    ///
    /// That it is not there, or cannot be taken at the hook of the node's programs.
    pub(super) fn look_at_coming(&mut self, asked: &IfaceConfig) -> Result<Coming, Refusal> {
        if asked.attach.is_own() {
            let (name, word) = (&asked.name, asked.attach.word());
            let message =
                format!("interface `{name}` has `attach = {word:?}`: a node makes it at its start");
            return Err(Refusal::failed(
                message,
                "start the node anew with this file",
            ));
        }
        let found = Iface::by_name(&asked.name).map_err(|source| {
            let iface = asked.name.clone();
            RunError::NoInterface { iface, source }.refusal()
        })?;
        let hook = self.maps.as_ref().map(|maps| maps.hook);
        let choice = beside(hook, asked.attach, &found).map_err(|because| {
            let message = format!("cannot take interface `{}`: {because}", asked.name);
            let hint = "leave `attach` out, or start the node anew with this file";
            Refusal::failed(message, hint)
        })?;
        let link = Link::new(self.plan.take_iface_number(), &found, choice.rung);
        Ok(Coming {
            asked: asked.clone(),
            found,
            choice,
            link,
        })
    }

    /// Takes an interface that no path is at yet; its number.
    ///
    /// # Errors
    ///
    /// Whose it is, or what the kernel refused: nothing of it is left.
    pub(super) fn add_iface(&mut self, coming: Coming) -> Result<usize, Refusal> {
        let Coming {
            asked,
            found,
            choice,
            link,
        } = coming;
        let number = link.number();
        let row = self.next_rows(1)?;
        if asked.pattern.is_none() {
            say(&format!("{}: {}", found.name, cost(&found, choice.rung)));
            if let Some(because) = &choice.because {
                say(&format!("  because {because}"));
            }
        }
        self.counter_rows.take(row);
        self.plan.add_iface(number, row);
        let taken = self.take_coming(&asked, &found, choice, &link);
        link.set_down(!found.up);
        self.links.insert(number, link);
        let taken = taken.and_then(|iface| {
            let state = if found.up { State::Up } else { State::Down };
            self.ifaces.insert(number, NodeIface { state, ..iface });
            self.config.ifaces.push(asked);
            self.enter(number)
        });
        if let Err(refusal) = taken {
            self.remove_iface(number);
            return Err(refusal);
        }
        Ok(number)
    }

    /// Attaches what an interface is taken by, and gives the worker its ends.
    fn take_coming(
        &mut self,
        asked: &IfaceConfig,
        found: &Iface,
        choice: Choice,
        link: &Link,
    ) -> Result<NodeIface, Refusal> {
        let number = link.number();
        let failed = |error: RunError| error.refusal();
        let (iface, port) = match (choice.rung, &self.maps) {
            (Rung::Packet, _) | (_, None) => {
                let (plan, paths) = (&self.plan, &self.paths);
                // What a node makes itself it makes at its start.
                let (made, bell) = (None, &self.bell);
                let taken =
                    taken::without_programs(plan, paths, link, found, asked, choice, made, bell);
                let (iface, port, rule) = taken.map_err(failed)?;
                if let Some(rule) = rule {
                    self.drop_rules.insert(number, rule);
                }
                (iface, Resource::FramePort(Box::new(port)))
            }
            (_, Some(maps)) => {
                let common = Common {
                    asked,
                    plan: &self.plan,
                    paths: &self.paths,
                    maps,
                    handlers: &self.handlers,
                    arena: self.arena,
                };
                let taken = taken::with_programs(&common, number, found, choice);
                let (iface, port) = taken.map_err(failed)?;
                (iface, Resource::XdpPort(number, Box::new(port)))
            }
        };
        // The worker looks frames up in its table, which has to be there before a port is.
        let empty = DemuxChange::Anew(Replica::of(&iface.table));
        self.post_to_worker(Order {
            demux_changes: vec![(number, empty)],
            ..Order::default()
        })?;
        self.call_worker(port)?;
        Ok(iface)
    }

    /// Gives an interface the programs that paths of the node share.
    fn enter(&mut self, number: usize) -> Result<(), Refusal> {
        if let Some(xdp) = &self.ifaces[number].xdp {
            let frames = self.frame_queue.as_ref();
            let frames = frames.map(|frames| (FRAMES_SLOT, &frames.user_program));
            let relays = self.relays.as_ref();
            let relays = relays.map(|relays| (RELAY_SLOT, &relays.program));
            for (slot, program) in frames.into_iter().chain(relays) {
                let set = xdp.slots.set_slot(slot, program.fd());
                set.map_err(|error| {
                    let message = format!("the program array did not take the program: {error}");
                    Refusal::failed(message, "this is a bug of Ashway; please report it")
                })?;
            }
        }
        if self.relays.is_some() {
            let out = self.ifaces[number].way_out();
            self.call_worker(Command::SetWayOut(number, out))?;
        }
        if self.observation.is_some() {
            self.exchange(number)?;
        }
        self.names_changed();
        Ok(())
    }

    /// Leaves an interface for good: what has come by it is still worked on, at each path
    /// that was at it. A path of modules that ends there ends with it.
    pub(super) fn remove_iface(&mut self, number: usize) {
        self.take_frames_at(number);
        if self.ifaces.get(number).is_some() {
            self.drop_next(number);
        }
        let gone = self.ifaces.remove(number);
        if let Some(iface) = &gone {
            iface.leave();
            self.config.ifaces.retain(|known| known.name != iface.name);
        }
        self.drop_rules.remove(number);
        let here = self.plan.ifaces.get(number);
        let here = here.map(|plan| plan.paths.clone()).unwrap_or_default();
        if !here.is_empty() {
            // Behind it no program has a message of the interface.
            let _ = membarrier(MembarrierCommand::Global);
        }
        let name = gone.as_ref().map_or("", |iface| &iface.name);
        for id in here {
            self.close_at(id, number, name);
        }
        // A worker that does not answer works for nobody any more.
        let _ = self.call_worker(Command::LeaveIface(number));
        let _ = self.call_worker(Command::ForgetIface(number));
        self.links.remove(number);
        if let Some(row) = self.plan.remove_iface(number) {
            self.counter_rows.leave(row, Former::nobody());
        }
        // Its programs and maps end here: nobody is between them any more.
        drop(gone);
        self.names_changed();
    }

    /// Takes paths of modules away that end at an interface. None is left where `apply` has
    /// looked; of an interface that a pattern has taken, somebody may have made one.
    fn take_frames_at(&mut self, number: usize) {
        let frames = self.paths.all_frames();
        let here = frames.filter(|(_, path)| {
            let mut ends = path.frames().into_iter().flat_map(FramePath::ends);
            ends.any(|end| end.iface() == number)
        });
        let here: Vec<(PathId, Arc<str>)> =
            here.map(|(id, it)| (id, Arc::clone(&it.name))).collect();
        if here.is_empty() {
            return;
        }
        for (_, name) in &here {
            say(&format!("path `{name}` ends: its interface is gone"));
        }
        let ids: Vec<PathId> = here.into_iter().map(|(id, _)| id).collect();
        // What a program does not follow is let go of with the interface.
        let _ = self.take_frames(&ids);
    }

    /// Has a path of a handler be at an interface of the node, too.
    ///
    /// # Errors
    ///
    /// What is in its way; the path is where it was.
    pub(super) fn extend(&mut self, id: PathId, number: usize) -> Result<(), Refusal> {
        let config = &self.paths.bound(id).config;
        if config.cpu.is_some() {
            // Its instances have slots that follow each other.
            let message = format!(
                "path `{}` has an instance for each CPU",
                whole_name(&config.name)
            );
            return Err(Refusal::failed(
                message,
                "start the node anew with this file",
            ));
        }
        let extended = self.plan.extend_path(self.paths.ids(), id, number);
        extended.map_err(|what| self.no_room(&what))?;
        let name = self.ifaces[number].name.clone();
        self.set_ifaces(id, |ifaces| ifaces.push(name.clone()));
        let mut demux_changes = Vec::new();
        let led = self.lead_here(id, number, &mut demux_changes);
        if led.is_err() {
            let target = self.plan.target(id, number);
            let target = target.expect("it was extended above");
            let mut away = Vec::new();
            if self.ifaces[number].table.text(target).is_some() {
                self.remove_filter(number, target, &mut away);
            }
            self.put_back(&demux_changes);
            let _ = self.show_host();
            let _ = self.change_demux(away);
            let _ = membarrier(MembarrierCommand::Global);
            self.close_at(id, number, &name);
        }
        led
    }

    fn lead_here(
        &mut self,
        id: PathId,
        number: usize,
        demux_changes: &mut Vec<(usize, DemuxChange)>,
    ) -> Result<(), Refusal> {
        self.keep_tier(id, number)?;
        let tier = self.paths.bound(id).tier;
        self.put(id, tier)?;
        let target = self.plan.target(id, number);
        let target = target.expect("it was extended before");
        let config = Arc::clone(&self.paths.bound(id).config);
        let filter = self.filter_at(number, config.filter.clone());
        let led = self.add_filter(number, &filter, target, demux_changes);
        led.map_err(|conflict| self.rivalry(&config.name, target, &conflict))?;
        let plan = &self.plan.paths[&id];
        let ends = &self.handlers[&plan.handler].shared.bindings;
        let paths = dispatch::handler_paths(&self.graph, &config, plan, ends);
        let paths = paths.map_err(|error| RunError::from(error).refusal())?;
        let here = paths.into_iter().filter(|path| path.iface == number);
        self.call_worker(Resource::HandlerPaths(here.collect()))?;
        self.change_demux(demux_changes.clone())?;
        self.show_host()?;
        self.follow(demux_changes)
    }

    /// A path that is to be at an interface where it cannot run in the kernel tier leaves that.
    fn keep_tier(&mut self, id: PathId, number: usize) -> Result<(), Refusal> {
        if self.paths.bound(id).tier == Tier::User {
            return Ok(());
        }
        let (config, iface) = (&self.paths.bound(id).config, &self.ifaces[number]);
        let alone = self.graph.user_tier_alone(config, &iface.name);
        let alone = alone.map(|(because, _)| because);
        let without = || format!("`{}` has no kernel tier", iface.name);
        let Some(because) = alone.or_else(|| iface.xdp.is_none().then(without)) else {
            return Ok(());
        };
        say(&format!(
            "path `{}` runs in the user tier: {because}",
            config.name
        ));
        self.demote(id)?;
        self.paths.bound_mut(id).demoted = Some(because);
        Ok(())
    }

    /// Takes a path of a handler from an interface; it goes on at its others.
    ///
    /// # Errors
    ///
    /// What is in its way; the path is where it was.
    pub(super) fn shrink(&mut self, id: PathId, number: usize) -> Result<(), Refusal> {
        let Some(target) = self.plan.target(id, number) else {
            return Ok(());
        };
        let mut demux_changes = Vec::new();
        self.remove_filter(number, target, &mut demux_changes);
        let away = self.show_host().and_then(|()| self.follow(&demux_changes));
        if let Err(refusal) = away {
            let filter = self.paths.bound(id).config.filter.clone();
            let filter = self.filter_at(number, filter);
            // It was there until a moment ago, and the worker has it still.
            let _ = self.ifaces[number].table.insert(&filter, target);
            self.put_back(&demux_changes);
            let _ = self.show_host();
            return Err(refusal);
        }
        let _ = self.change_demux(demux_changes);
        let _ = membarrier(MembarrierCommand::Global);
        let name = self.ifaces[number].name.clone();
        self.close_at(id, number, &name);
        Ok(())
    }

    /// Nothing leads to a path at an interface any more: has the worker let it go there.
    fn close_at(&mut self, id: PathId, number: usize, name: &str) {
        let Some((run, slot)) = self.plan.shrink_path(id, number) else {
            return;
        };
        if self.ifaces.get(number).is_some() {
            self.clear_slots(&[(number, slot)]);
        }
        self.set_ifaces(id, |ifaces| ifaces.retain(|known| known != name));
        // A worker that does not answer works for nobody any more.
        let _ = self.call_worker(Command::Close(vec![run]));
        if run != id {
            self.paths.ids().give_back(run);
        }
    }

    /// Changes at which interfaces a path of a handler is, in what is known of it.
    fn set_ifaces(&mut self, id: PathId, change: impl FnOnce(&mut Vec<String>)) {
        let mut config = PathConfig::clone(&self.paths.bound(id).config);
        change(&mut config.ifaces);
        let config = Arc::new(config);
        let mut known = self.config.paths.iter_mut();
        if let Some(known) = known.find(|known| known.name == config.name) {
            known.clone_from(&config);
        }
        self.paths.bound_mut(id).config = config;
    }
}
