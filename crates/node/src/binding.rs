//! Changing a running node: [`load`](super::load) makes an instance that nothing reaches,
//! `bind` leads messages to it, `unbind` leads them back to the host (ASH-2).
//!
//! What has to be compiled is, on its own thread, before anything else is
//! touched; a caller waits for that, the node does not. By then the node may
//! have changed: the request is checked against it again.
//!
//! Everything that can fail is made first; then one exchange for each interface
//! puts the new entry program in place of the old one (`BPF_LINK_UPDATE`). Each
//! message meets one of the two, so other paths notice nothing.

use std::iter;
use std::sync::Arc;
use std::time::Instant;

use ashway_abi::leaf::MAX_SLOTS;
use ashway_api::answer::{Because, Bound, Unbound};
use ashway_api::request::Bind;
use ashway_handler::Function;
use ashway_path::places::PathId;
use rustix::thread::{MembarrierCommand, membarrier};

use super::authority::Authority;
use super::node_path::BoundPath;
use super::operation::{Operation, Report};
use super::{Node, Owner, RunError, dispatch};
use crate::control::Caller;
use crate::request::{self, Code, Refusal};
use ashway_config::{PathConfig, Tier, suggest, whole_name};
use ashway_worker::instance::{NotPromoted, Promoted};
use ashway_worker::order::Order;
use ashway_worker::plan::{NoRoom, PathPlan};
use ashway_worker::target::DemuxChange;
use ashway_worker::worker::command::{Call, Command, Resource};

/// A path that is to be made, to one instance of its handler, and what was compiled for it, if
/// anything was.
pub(super) type NewPath = (Arc<PathConfig>, Option<Result<Promoted, NotPromoted>>);

/// A path that is to be made, while its program is compiled.
pub(super) struct PendingBind {
    request: Box<Bind>,
    owner: Option<Owner>,
}

impl Node {
    /// Makes a path that ends in a handler that is there, and answers `caller`.
    /// A handler for the kernel tier is compiled first; the path is made, and
    /// `request` read once more, when that is done.
    pub(super) fn bind(&mut self, request: Bind, caller: Caller) {
        let begin = Instant::now();
        let wanted = request::path(&request, &self.config).and_then(|path| {
            let paths = self.each_path(path);
            self.function(&paths[0])?;
            self.comes_by_cpus(&paths)?;
            Ok((paths, self.owners.of(request.owner, &caller, &self.deaths)?))
        });
        let (paths, owner) = match wanted {
            Ok(wanted) => wanted,
            Err(refusal) => return caller.answer(refusal),
        };
        let compiled = match paths[0].tier {
            Tier::User => None,
            _ => match self.programs_of(&paths) {
                Ok(job) => {
                    let report = Report::Caller(caller);
                    let name = whole_name(&paths[0].name);
                    let operation = self.operations.next("bind", name, report);
                    let request = Box::new(request);
                    return self.submit(operation, PendingBind { request, owner }, job);
                }
                Err(refused) => Some(paths.iter().map(|_| Err(refused.clone())).collect()),
            },
        };
        caller.answer(self.add_path(&request, compiled, owner.as_ref(), begin));
    }

    /// Goes on when its program is compiled.
    pub(super) fn bind_compiled(
        &mut self,
        operation: Operation,
        PendingBind { request, owner }: PendingBind,
        compiled: Vec<Result<Promoted, NotPromoted>>,
    ) {
        let begun = operation.begun();
        operation.end(self.add_path(&request, Some(compiled), owner.as_ref(), begun));
    }

    /// Adds a path; `compiled` is for the kernel tier, if that is wanted.
    fn add_path(
        &mut self,
        request: &Bind,
        compiled: Option<Vec<Result<Promoted, NotPromoted>>>,
        owner: Option<&Owner>,
        begin: Instant,
    ) -> Result<Bound, Refusal> {
        let path = request::path(request, &self.config)?;
        let paths = self.each_path(path).into_iter();
        let compiled = compiled.into_iter().flatten().map(Some);
        let each = paths.zip(compiled.chain(iter::repeat_with(|| None)));
        self.put_path(each.collect(), owner, begin)
    }

    /// The same, of a path that was checked: one to each instance of its handler, each with what
    /// was compiled for it.
    pub(super) fn put_path(
        &mut self,
        each: Vec<NewPath>,
        owner: Option<&Owner>,
        begin: Instant,
    ) -> Result<Bound, Refusal> {
        let mut instances = Vec::with_capacity(each.len());
        for (path, _) in &each {
            self.name_is_free(&path.name)?;
            self.function(path)?;
            instances.push(self.find_handler(&path.handler)?.0);
        }
        let path = Arc::clone(&each[0].0);
        let ifaces: Vec<usize> = path
            .ifaces
            .iter()
            .map(|name| self.iface_number(name))
            .collect::<Option<_>>()
            .expect("a checked request names what the node has");
        let row = self.next_rows(each.len())?;
        let placed = self
            .plan
            .place(
                self.paths.ids(),
                row,
                &instances,
                &ifaces,
                |handler, local| self.handlers[&handler].shared.in_user(local) == 0,
            )
            .map_err(|what| self.no_room(&what))?;

        let mut made = Vec::with_capacity(each.len());
        for ((path, compiled), numbers) in each.into_iter().zip(placed) {
            let shared = Arc::clone(&self.handlers[&numbers.handler].shared);
            if let Some(queue) = &shared.queue {
                queue.forget_share(numbers.local);
            }
            self.take_row(&numbers);
            let id = numbers.id;
            self.plan.add_path(numbers);
            self.config.paths.push(Arc::clone(&path));
            let from = self.graph.module_above_udp(&path.handler);
            let bound = BoundPath::new(Arc::clone(&path), Some(&shared));
            self.paths.insert_bound(id, from, bound, owner.cloned());
            made.push((id, compiled));
        }
        let id = made[0].0;
        let all: Vec<PathId> = made.iter().map(|(id, _)| *id).collect();
        // To the first leads demux: by then the others are there.
        let connected = made.into_iter().rev();
        let connected = connected.map(|(id, compiled)| self.connect(id, compiled));
        let connected: Result<Vec<_>, Refusal> = connected.collect();
        match connected.map(|mut each| each.pop().unwrap_or_default()) {
            Ok((stays, exchange_us)) => Ok(Bound {
                path: whole_name(&path.name).to_owned(),
                handler: whole_name(&path.handler).to_owned(),
                filter: path.filter.text.clone(),
                iface: path.ifaces.clone(),
                tier: self.paths.bound(id).tier.word().into(),
                why: Because {
                    because: stays.as_ref().map(|stays| stays.because.clone().into()),
                    hint: stays.as_ref().map(|stays| stays.hint.clone().into()),
                },
                line: stays.and_then(|stays| stays.line),
                took_us: begin.elapsed().as_micros() as u64,
                exchange_us,
            }),
            Err(refusal) => {
                for id in all {
                    self.forget_path(id);
                }
                Err(refusal)
            }
        }
    }

    /// Whether messages come so to all interfaces of paths to the instances of a handler.
    pub(super) fn comes_by_cpus(&self, paths: &[Arc<PathConfig>]) -> Result<(), Refusal> {
        let mut several = paths.iter().filter(|path| path.cpu.is_some());
        match several.find(|path| !self.has_xdp(path)) {
            None => Ok(()),
            Some(path) => Err(without_programs(path)),
        }
    }

    /// Takes a path away: its messages are the host's again. What has been
    /// received is still worked on; its counters end with it.
    ///
    /// # Errors
    ///
    /// Why not; nothing has changed.
    pub(super) fn unbind(&mut self, name: &str, authority: &Authority) -> Result<Unbound, Refusal> {
        let begin = Instant::now();
        let ids = self.whole_paths_for(authority, name)?;
        self.take(&ids)?;
        Ok(Unbound {
            path: name.to_owned(),
            took_us: begin.elapsed().as_micros() as u64,
        })
    }

    /// Takes paths away, all of them or none. What has been received is still worked
    /// on. One exchange for each interface and one grace period, however many they are.
    ///
    /// # Errors
    ///
    /// Why not; nothing has changed.
    pub(super) fn take_paths(&mut self, paths: &[PathId]) -> Result<(), Refusal> {
        let demux_changes: Vec<_> = paths
            .iter()
            .flat_map(|path| self.remove_filters(*path))
            .collect();
        // The host first: a message it gets twice is better than one that
        // nobody gets.
        let away = self.show_host().and_then(|()| self.follow(&demux_changes));
        if let Err(refusal) = away {
            self.add_filters(paths, &demux_changes);
            return Err(refusal);
        }
        // A worker that does not answer works for nobody any more.
        let _ = self.change_demux(demux_changes);
        // A poll that began before the exchange may be in the old entry
        // program; an RCU grace period ends behind every such poll. Then the
        // numbers are free for the next path.
        let _ = membarrier(MembarrierCommand::Global);
        for path in paths {
            self.forget_path(*path);
        }
        self.forget_observed();
        Ok(())
    }

    /// Forgets a path that nothing leads to any more.
    fn forget_path(&mut self, id: PathId) {
        let gone = self.plan.remove_path(id);
        self.close(&gone);
        self.clear_slots(&gone.slots);
        self.leave_row(&gone);
        if let Some(path) = self.paths.remove(id) {
            let configs = &mut self.config.paths;
            configs.retain(|known| *known.name != *path.name);
        }
    }

    /// Has the worker let a path go as soon as it has worked on all that has come to it.
    fn close(&mut self, gone: &PathPlan) {
        if let Some(end) = self.handlers[&gone.handler]
            .shared
            .bindings
            .leave(gone.row.0)
        {
            // Nobody waits any more.
            end.moved(true);
        }
        // A worker that does not answer works for nobody any more.
        let _ = self.call_worker(Command::Close(gone.runs.clone()));
        for id in gone.ids() {
            self.paths.ids().give_back(id);
        }
    }

    /// Brings a path to life. Says why it stays in the user
    /// tier, if it was to run in the kernel tier and cannot, and how long the
    /// exchange took.
    fn connect(
        &mut self,
        path: PathId,
        compiled: Option<Result<Promoted, NotPromoted>>,
    ) -> Result<(Option<NotPromoted>, u64), Refusal> {
        let mut demux_changes = Vec::new();
        for (iface, target, filter) in self.filters_of(path) {
            if let Err(conflict) = self.add_filter(iface, &filter, target, &mut demux_changes) {
                self.remove_filters(path);
                let name = &self.paths.bound(path).config.name;
                return Err(self.rivalry(name, target, &conflict));
            }
        }
        let connected = self.connect_behind(path, compiled, &demux_changes);
        if connected.is_err() {
            let away = self.remove_filters(path);
            self.put_back(&demux_changes);
            let _ = self.show_host();
            let _ = self.change_demux(away);
        }
        connected
    }

    /// Connects a path that the tables have: the first message can come when this
    /// is done.
    fn connect_behind(
        &mut self,
        path: PathId,
        compiled: Option<Result<Promoted, NotPromoted>>,
        demux_changes: &[(usize, DemuxChange)],
    ) -> Result<(Option<NotPromoted>, u64), Refusal> {
        let stays = compiled.and_then(|compiled| self.install(path, compiled).err());
        if self.paths.bound(path).tier == Tier::User {
            self.demote(path).map_err(Refusal::from)?;
        }
        if let (Tier::Kernel, Some(why)) = (self.paths.bound(path).config.tier, &stays) {
            return Err(why.clone().into());
        }
        let plan = &self.plan.paths[&path];
        let ends = &self.handlers[&plan.handler].shared.bindings;
        let config = &self.paths.bound(path).config;
        let paths = dispatch::handler_paths(&self.graph, config, plan, ends)
            .map_err(|error| RunError::from(error).refusal())?;
        if let Some(end) = self.end(path) {
            end.moved(self.paths.bound(path).tier == Tier::Kernel);
        }
        self.call_worker(Resource::HandlerPaths(paths))?;
        self.change_demux(demux_changes.to_vec())?;
        self.show_host()?;
        let begin = Instant::now();
        self.follow(demux_changes)?;
        Ok((stays, begin.elapsed().as_micros() as u64))
    }

    /// Has the worker change its paths of modules ([`Worker::order`]).
    ///
    /// [`Worker::order`]: ashway_worker::worker::Worker::order
    pub(super) fn post_to_worker(&mut self, order: Order) -> Result<(), Refusal> {
        Ok(self.worker.post(order)?)
    }

    /// Has the worker do something, and waits for it.
    pub(super) fn call_worker(&mut self, call: impl Into<Call>) -> Result<(), Refusal> {
        Ok(self.worker.call(call)?)
    }

    fn function(&self, path: &PathConfig) -> Result<Function, Refusal> {
        let (_, handler) = self.find_handler(&path.handler)?;
        let version = handler.shared.version();
        version.compiled.function(&path.function).ok_or_else(|| {
            let known: Vec<_> = version.compiled.functions().collect();
            Refusal::new(
                Code::HandlerRefused,
                format!(
                    "handler `{}` exports no function `{}` of type (i32, i32) -> i32",
                    path.handler, path.function
                ),
                suggest(&path.function, &known),
            )
        })
    }

    pub(super) fn no_room(&self, what: &NoRoom) -> Refusal {
        let iface = |iface: usize| &self.ifaces[iface].name;
        match *what {
            NoRoom::Iface(number) => Refusal::failed(
                format!(
                    "`{}` has {MAX_SLOTS} paths, and there is no room for more",
                    iface(number)
                ),
                "unbind one that is not needed",
            ),
            NoRoom::Busy => Refusal::failed(
                "this handler still works on messages of a path that was unbound".to_owned(),
                "bind it once more in a moment",
            ),
            NoRoom::Handler(most) => Refusal::failed(
                format!("this handler has {most} paths, and there is no room for more"),
                "load its file once more, under another name, and bind that",
            ),
        }
    }
}

/// Why a path to the instances of a handler cannot be at one of its interfaces.
pub(super) fn without_programs(path: &PathConfig) -> Refusal {
    let message = format!(
        "path `{}` is on an interface that has no programs, and its handler has an instance for each \
         CPU: nobody there says by which CPU a message came",
        whole_name(&path.name)
    );
    Refusal::failed(message, "`ashway doctor` says what programs need here")
}
