//! Paths of the user tier while the node runs: created from a module and
//! attributes, and removed.
//!
//! All of them share one row of counters, one place in each interface's program
//! array, and one program; so a path of a known shape is an object in the worker's
//! hands and a map entry for each of its ends.

use std::ptr;
use std::sync::Arc;
use std::time::Instant;

use ashway_abi::trusted::MAX_RINGS;
use ashway_api::answer::{Created, CreatedPath, Removed};
use ashway_api::request::{Create, NewPath};
use ashway_demux::{self as demux, Filter, Replica};
use ashway_modules::relay::NotPromotable;
use ashway_modules::{Message, datagram, eth, fragment, tap};
use ashway_path::attrs::{Attrs, Value as Attr};
use ashway_path::create::Log;
use ashway_path::path::Path;
use ashway_path::places::PathId;
use ashway_path::stage::{Direction, Stage};

use super::binding::refusal;
use super::dispatch::{self, LIVE_SLOT};
use super::path_registry::{Attachment, NodeModulePath};
use super::{Node, Owner, RunError, say};
use crate::control::Caller;
use crate::request::{self, Refusal, Scalar};
use ashway_config::{Entrance, LongPath, Tier, is_name};
use ashway_worker::activation::ROW;
use ashway_worker::instance::Instance;
use ashway_worker::order::{ModulePath, Order};
use ashway_worker::plan::{HandlerId, InstancePlan};
use ashway_worker::target::{DemuxChange, Target};
use ashway_worker::worker::command::Command;

/// A path that somebody asks for.
pub(super) struct Wanted {
    pub(super) name: String,
    pub(super) from: String,
    pub(super) attrs: Attrs,
    /// Whose it is to be.
    pub(super) domain: Option<String>,
    /// What must be true of a message besides, where the path begins.
    pub(super) filter: Option<String>,
    pub(super) tier: Tier,
    /// The process it is to belong to, if not to the node.
    pub(super) owner: Option<Owner>,
    /// Whether every step of its creation is to be told.
    pub(super) logs: bool,
}

impl Wanted {
    /// What a path of the configuration is to be.
    pub(super) fn of(path: &LongPath) -> Self {
        Self {
            name: path.name.clone(),
            from: path.from.clone(),
            attrs: path.attrs.clone(),
            domain: path.domain.clone(),
            filter: path.filter.as_ref().map(ToString::to_string),
            tier: path.tier,
            owner: None,
            logs: false,
        }
    }
}

/// A path that is made and not there yet.
pub(super) struct Made {
    from: String,
    pub(super) path: Box<Path<Message>>,
    pub(super) ends: Vec<(Attachment, Filter)>,
    domain: Option<String>,
    owner: Option<Owner>,
    runs: Box<[HandlerId]>,
    log: Log,
    tier: Tier,
    fits: Result<(), NotPromotable>,
}

/// Says that a name is taken.
pub(super) fn taken(name: &str) -> Refusal {
    Refusal::failed(
        format!("there is a path `{name}` already"),
        "give this one another name",
    )
}

impl Node {
    /// Creates the paths of the configuration's long form.
    pub(super) fn create_configured(&mut self) -> Result<(), RunError> {
        let wanted = self.config.long_paths.iter().map(Wanted::of);
        for wanted in wanted.collect::<Vec<_>>() {
            let (name, tier) = (wanted.name.clone(), wanted.tier);
            self.create_live(vec![wanted])
                .map_err(|refusal| RunError::Paths {
                    path: name.clone(),
                    because: refusal.message,
                    hint: refusal.hint,
                })?;
            let live = self
                .module_paths
                .find(&name)
                .and_then(|id| self.module_paths.at(id));
            if let Some(stays) = live.and_then(|live| live.stays.as_ref())
                && tier == Tier::Kernel
            {
                let because = &stays.because;
                say(&format!("path `{name}` stays in the user tier: {because}"));
                say(&format!("  hint: {}", stays.hint));
            }
        }
        Ok(())
    }

    /// Creates paths: all of them, or none.
    ///
    /// # Errors
    ///
    /// Why not; nothing has changed.
    pub(super) fn create(&mut self, request: Create, caller: &Caller) -> Result<Created, Refusal> {
        let begin = Instant::now();
        let Create { paths, log: logs } = request;
        let wanted = paths
            .into_iter()
            .map(|path| self.wanted(path, caller, logs));
        let wanted: Vec<Wanted> = wanted.collect::<Result<_, _>>()?;
        let made = self.create_live(wanted)?;
        let took = begin.elapsed();
        let created = made.into_iter().filter_map(|(name, log)| {
            let live = self
                .module_paths
                .find(&name)
                .and_then(|id| self.module_paths.at(id));
            let (tier, promotion) = live?.tier();
            Some(CreatedPath {
                path: name.to_string(),
                tier: tier.word().into(),
                promotion,
                log: logs.then(|| log.to_string()),
            })
        });
        Ok(Created {
            created: created.collect(),
            took_ns: took.as_nanos() as u64,
        })
    }

    /// Reads what a path is to be.
    fn wanted(&mut self, path: NewPath, caller: &Caller, logs: bool) -> Result<Wanted, Refusal> {
        let name = self.name_of(path.name, &path.module)?;
        let mut attrs = Attrs::new();
        for (key, value) in path.attrs {
            let value = match value {
                Scalar::Number(number) => Attr::Number(number),
                Scalar::Text(text) => Attr::of_text(&text),
            };
            let value = request::attribute(&key, &value)?;
            attrs.set(key, value);
        }
        Ok(Wanted {
            name,
            from: path.module,
            attrs,
            domain: None,
            filter: path.filter,
            tier: path.tier,
            owner: self.owners.of(path.owner, caller, &self.deaths)?,
            logs,
        })
    }

    /// The name that somebody wants for a path from this module, or one that the
    /// node makes up.
    pub(super) fn name_of(
        &mut self,
        wanted: Option<String>,
        from: &str,
    ) -> Result<String, Refusal> {
        let name = wanted.unwrap_or_else(|| {
            self.named += 1;
            let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
            let module: String = from.to_lowercase().chars().map(plain).take(20).collect();
            format!("{module}-{}", self.named)
        });
        if !is_name(&name) {
            let message = format!("`{}` cannot be the name of a path", request::short(&name));
            return Err(Refusal::usage(message, ashway_config::NAME_HINT));
        }
        Ok(name)
    }

    /// Makes paths, hands them to the worker, and leads messages to them.
    pub(super) fn create_live(
        &mut self,
        wanted: Vec<Wanted>,
    ) -> Result<Vec<(Arc<str>, Log)>, Refusal> {
        let made = wanted.into_iter().map(|wanted| self.make(wanted));
        let made: Vec<Made> = made.collect::<Result<_, _>>()?;
        self.put_live(made)
    }

    /// Hands paths to the worker, and leads messages to them: to all, or to none.
    pub(super) fn put_live(&mut self, made: Vec<Made>) -> Result<Vec<(Arc<str>, Log)>, Refusal> {
        if made.iter().any(|path| !path.ends.is_empty()) {
            self.need_carrier(&made)?;
        }
        let mut logs = Vec::with_capacity(made.len());
        let mut paths = Vec::with_capacity(made.len());
        let mut demux_changes = Vec::new();
        let mut to_promote = Vec::new();
        for Made {
            from,
            mut path,
            ends,
            domain,
            owner,
            runs,
            log,
            tier,
            fits,
        } in made
        {
            match self.add_live(&path, &from, domain, ends, &mut demux_changes) {
                Ok(id) => {
                    if let Some(live) = self.module_paths.at_mut(id) {
                        (live.owner, live.runs) = (owner, runs);
                    }
                    if let Some(lacks) = datagram::lacks_next_mac(&mut path) {
                        let mac = self.want_neighbour(id, lacks);
                        datagram::set_next_mac(&mut path, mac);
                    }
                    if self.place(id, fits) && tier != Tier::User {
                        to_promote.push(path.shared_name());
                    }
                    logs.push((path.shared_name(), log));
                    paths.push((id, path));
                }
                Err(refusal) => {
                    // Nobody but the tables knows of them.
                    let ids: Vec<PathId> = paths.iter().map(|(id, _)| *id).collect();
                    self.take_live(&ids, &mut demux_changes);
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
        let ids: Vec<PathId> = paths.iter().map(|(id, _)| *id).collect();
        let led = self
            .hand_over(paths, demux_changes.clone())
            .and_then(|()| self.lead(&demux_changes));
        if let Err(refusal) = led {
            let mut away = Vec::new();
            self.take_live(&ids, &mut away);
            // A worker that does not answer works for nobody any more.
            let _ = self.drop_live(ids.clone(), away);
            self.put_back(&demux_changes);
            self.release(&ids);
            self.forget_neighbours(&ids);
            let _ = self.show_host();
            return Err(refusal);
        }
        for name in to_promote {
            // A worker that does not answer works for nobody any more.
            let _ = self.move_live(&name, Tier::Kernel);
        }
        Ok(logs)
    }

    /// Gives paths to the worker, which takes them in before it looks up the next
    /// frame.
    fn hand_over(
        &mut self,
        paths: Vec<(PathId, Box<Path<Message>>)>,
        demux_changes: Vec<(usize, DemuxChange)>,
    ) -> Result<(), Refusal> {
        let number = |id| self.module_paths.at(id).and_then(|path| path.number);
        let insert = paths.into_iter().map(|(id, path)| ModulePath {
            id,
            number: number(id),
            path,
        });
        self.post_to_worker(Order {
            insert: insert.collect(),
            demux_changes,
            remove: Vec::new(),
        })
    }

    /// Has what decides about messages outside the worker follow changed tables.
    fn lead(&mut self, demux_changes: &[(usize, DemuxChange)]) -> Result<(), Refusal> {
        let mut ifaces = demux_changes.iter().map(|(iface, _)| *iface);
        if ifaces.any(|iface| self.drop_rules[iface].is_some()) {
            self.show_host()?;
        }
        self.follow(demux_changes)
    }

    /// Makes a path, of which nobody knows yet.
    pub(super) fn make(&self, wanted: Wanted) -> Result<Made, Refusal> {
        let Wanted {
            name,
            from,
            mut attrs,
            domain,
            filter: also,
            tier,
            owner,
            logs,
        } = wanted;
        self.name_is_free(&name)?;
        attrs.set(ROW, u64::from(self.plan.live_row.0));
        attrs.set(tap::PATH, name.as_str());
        let created = if logs {
            self.graph.create_at(&name, &from, attrs)
        } else {
            self.graph.create_unlogged(&name, &from, attrs)
        };
        let mut created = created.map_err(|failed| {
            let message = format!("{}: {}", failed.what(), failed.because);
            Refusal::failed(message, failed.hint)
        })?;
        // What only modules had to know.
        for own in [ROW, tap::PATH] {
            created.path.attrs_mut().remove(own);
        }
        let entrances = self.graph.entrances(&created, None);
        let stages: Vec<_> = created.path.stages().collect();
        let begins = |is: &dyn Fn(&dyn Stage<Message>) -> bool| {
            stages.first().is_some_and(|stage| is(*stage))
        };
        let first = begins(&eth::is_link);
        let joins = begins(&|stage| {
            let kind = stage.kind();
            kind.is_some_and(|kind| ptr::eq(kind, &raw const fragment::KIND))
        });
        let mut ends = Vec::new();
        let many = entrances.len() > 1;
        for (at, Entrance { iface, filter }) in entrances.into_iter().enumerate() {
            let direction = if first && at == 0 {
                Direction::Forward
            } else {
                Direction::Backward
            };
            let Some(number) = self
                .config
                .ifaces
                .iter()
                .position(|known| known.name == iface)
            else {
                continue;
            };
            // Where the path begins; if it begins at no link, at its only end.
            let text = match (filter, also.as_deref()) {
                (filter, Some(also)) if at == 0 || !many => match filter {
                    Some(filter) => format!("{filter} and ({also})"),
                    None => also.to_owned(),
                },
                (Some(filter), _) => filter,
                (None, _) if joins => {
                    let end = Attachment::new(number, direction, true);
                    ends.push((end, dispatch::fragments()));
                    continue;
                }
                (None, _) => String::new(),
            };
            let filter = demux::parse(&text).map_err(|error| {
                Refusal::usage(
                    format!(
                        "path `{name}` asks for `{text}` on `{iface}`: {}",
                        error.message
                    ),
                    error.hint,
                )
            })?;
            ends.push((Attachment::new(number, direction, false), filter));
        }
        let runs = stages
            .iter()
            .filter_map(|stage| self.runs(stage.name()))
            .collect();
        drop(stages);
        Ok(Made {
            runs,
            fits: self.fits(&created.path, &ends),
            from,
            path: Box::new(created.path),
            ends,
            domain,
            owner,
            log: created.log,
            tier,
        })
    }

    /// The instance that a module runs, if it runs one.
    fn runs(&self, module: &str) -> Option<HandlerId> {
        let (id, _) = self.handler(self.graph.handler_of(module)?)?;
        Some(id)
    }

    pub(super) fn name_is_free(&self, name: &str) -> Result<(), Refusal> {
        if self.path(name).is_some() || self.module_paths.find(name).is_some() {
            return Err(taken(name));
        }
        Ok(())
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

    /// Makes the instance whose rings hold whole frames, unless it is there.
    fn need_carrier(&mut self, made: &[Made]) -> Result<(), Refusal> {
        let Some(maps) = &self.maps else {
            return Ok(());
        };
        if self.frame_queue.is_none() {
            let facts: Vec<_> = self.ifaces.iter().map(|iface| iface.facts).collect();
            let plan = InstancePlan::frame_queue(&facts);
            let frame_queue = Instance::frame_queue(&plan, maps, self.arena)
                .map_err(|error| refusal(&RunError::Instance(error)))?;
            let program = &frame_queue
                .kernel
                .as_ref()
                .expect("it has one")
                .user_program;
            for iface in &self.ifaces {
                let Some(xdp) = &iface.xdp else {
                    continue;
                };
                xdp.slots
                    .set_slot(LIVE_SLOT, program.fd())
                    .map_err(|error| {
                        Refusal::failed(
                            format!("the program array did not take the program: {error}"),
                            "this is a bug of Ashway; please report it",
                        )
                    })?;
            }
            let frame_queue = Arc::new(frame_queue);
            let shared = Arc::clone(&frame_queue);
            self.call_worker(Command::SetFrameQueue(shared))?;
            self.frame_queue = Some(frame_queue);
        }
        let frame_queue = self.frame_queue.as_ref().expect("it was made above");
        for (end, _) in made.iter().flat_map(|path| &path.ends) {
            let iface = end.iface();
            if self.ifaces[iface].xdp.is_some() && frame_queue.plan.rings_at(iface).is_none() {
                let message = format!(
                    "there are rings of whole frames for the first {MAX_RINGS} interfaces, and \
                     `{}` is not among them",
                    self.config.ifaces[iface].name
                );
                let hint = "put its section before others in the file, and start the node again";
                return Err(Refusal::failed(message, hint));
            }
        }
        Ok(())
    }

    /// Puts a path into the tables.
    fn add_live(
        &mut self,
        path: &Path<Message>,
        from: &str,
        domain: Option<String>,
        ends: Vec<(Attachment, Filter)>,
        demux_changes: &mut Vec<(usize, DemuxChange)>,
    ) -> Result<PathId, Refusal> {
        // Another of the same request may have the name by now.
        self.name_is_free(path.name())?;
        let shown = ends.iter().map(|(end, _)| *end);
        let domain = domain.map(Arc::from);
        let frame_queue = self.frame_queue.as_deref();
        let is_idle = |number| frame_queue.is_none_or(|frame_queue| frame_queue.begin_path(number));
        let name = path.shared_name();
        let id = self.module_paths.insert(name, from, domain, shown, is_idle);
        for (end, filter) in ends {
            let led = self.add_end(
                path.name(),
                self.live_target(id, end.direction),
                end,
                filter,
                demux_changes,
            );
            if let Err(refusal) = led {
                self.take_live(&[id], demux_changes);
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
            let domain = self.domain_of(target);
            let refusal = if domain.is_some() && domain != self.domain_of(conflict.with) {
                // A shell does not learn what others have.
                let message = format!("path `{name}` asks for messages that another's path has");
                Refusal::usage(message, conflict.hint())
            } else {
                self.competition(name, &conflict)
            };
            if end.catches {
                let _ = self.catch(iface, false, demux_changes);
            }
            refusal
        })
    }

    /// The domain of the path that something leads to.
    fn domain_of(&self, target: Target) -> Option<&str> {
        match self.plan.path_of(target.path) {
            Some(path) => self.paths[&path].config.domain.as_deref(),
            None => self.module_paths.at(target.path)?.domain.as_deref(),
        }
    }

    /// Where demux leads for a path of modules.
    pub(super) const fn live_target(&self, path: PathId, direction: Direction) -> Target {
        Target {
            path,
            direction,
            row: self.plan.live_row,
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
            let name = &self.config.ifaces[iface].name;
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
        let mut ends = self
            .module_paths
            .at(id)
            .into_iter()
            .flat_map(NodeModulePath::ends);
        ends.any(|end| end.catches && end.iface() == iface)
    }

    /// Takes paths out of the tables; the node does not know them any more.
    fn take_live(&mut self, ids: &[PathId], demux_changes: &mut Vec<(usize, DemuxChange)>) {
        for &id in ids {
            let Some(live) = self.module_paths.remove(id) else {
                continue;
            };
            for end in live.ends() {
                let lead = self.live_target(id, end.direction);
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
    fn drop_live(
        &mut self,
        remove: Vec<PathId>,
        demux_changes: Vec<(usize, DemuxChange)>,
    ) -> Result<(), Refusal> {
        self.post_to_worker(Order {
            insert: Vec::new(),
            demux_changes,
            remove,
        })
    }

    /// Removes paths; their messages are others' again, or the host's.
    ///
    /// # Errors
    ///
    /// Why not. If the name is wrong nothing has changed.
    pub(super) fn remove(&mut self, asked: &[String]) -> Result<Removed, Refusal> {
        let begin = Instant::now();
        let ids = asked.iter().map(|name| self.find_live(name));
        self.remove_live(&ids.collect::<Result<Vec<PathId>, _>>()?)?;
        // One of the file is not to be had again until the node is started anew.
        let long = &mut self.config.long_paths;
        long.retain(|path| !asked.contains(&path.name));
        Ok(Removed {
            removed: asked.to_vec(),
            took_ns: begin.elapsed().as_nanos() as u64,
        })
    }

    /// Removes these.
    ///
    /// # Errors
    ///
    /// If the worker does not answer, or a program or a rule does not follow: then the
    /// worker gives the host what still comes.
    pub(super) fn remove_live(&mut self, ids: &[PathId]) -> Result<(), Refusal> {
        let mut demux_changes = Vec::new();
        self.take_live(ids, &mut demux_changes);
        let led = self.lead(&demux_changes);
        self.drop_live(ids.to_vec(), demux_changes)?;
        led?;
        self.release(ids);
        self.forget_neighbours(ids);
        Ok(())
    }

    pub(super) fn find_live(&self, name: &str) -> Result<PathId, Refusal> {
        self.module_paths.find(name).ok_or_else(|| {
            if self.path(name).is_some() {
                return Refusal::failed(
                    format!("path `{name}` ends in a handler that is bound to it"),
                    format!("`ashway status` shows it, `ashway unbind {name}` takes it away"),
                );
            }
            let known: Vec<&str> = self.module_paths.names().take(20).collect();
            request::unknown("path", name, &known)
        })
    }
}
