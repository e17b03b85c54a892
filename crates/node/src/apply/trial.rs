//! Everything that can fail when a node is brought to another configuration, tried
//! before anything changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::Node;
use super::super::hook_move::{HookMove, HookSet};
use super::super::iface_set::Coming;
use super::super::swap::{self, Candidate};
use super::super::world::Changed;
use super::order::Compiled;
use super::routes::Fresh;
use super::words::{of_handler, refused};
use crate::request::Refusal;
use ashway_config::{
    Act, Config, Difference, HandlerConfig, Mistake, NodeGraph, PathConfig, Tier, What,
    instance_name, whole_name,
};
use ashway_path::places::Ids;
use ashway_worker::handle::HandlerHandle;
use ashway_worker::instance::{Instance, InstanceError, NotPromoted, Promoted};
use ashway_worker::plan::{InstancePlan, NoRoom};
use ashway_worker::rows::CounterRow;

/// What was tried, and can be done.
pub(super) struct Tried {
    pub(super) next: Config,
    /// The graph that follows.
    pub(super) graph: NodeGraph,
    pub(super) difference: Difference,
    /// How interfaces move to another hook, and the programs for it.
    pub(super) hook: Option<(HookMove, Vec<HookSet>)>,
    /// Interfaces that come.
    pub(super) coming: Vec<Coming>,
    /// Handlers that come.
    pub(super) fresh: Vec<(HandlerConfig, InstancePlan, HandlerHandle)>,
    /// Versions that take over.
    pub(super) swaps: Vec<(Arc<Instance>, Candidate)>,
    /// What paths run in the kernel tier, or why they do not.
    pub(super) programs: BTreeMap<String, Result<Promoted, NotPromoted>>,
}

impl Node {
    /// Tries everything that has to change.
    ///
    /// # Errors
    ///
    /// Every mistake; nothing has changed.
    pub(super) fn attempt(
        &mut self,
        next: Config,
        mut difference: Difference,
        moving: Result<Option<HookMove>, Mistake>,
        compiled: Compiled,
    ) -> Result<Tried, Refusal> {
        let mut mistakes = std::mem::take(&mut difference.mistakes);
        let Compiled {
            fresh,
            swaps,
            mut programs,
            hook,
        } = compiled;
        let hook = match (moving, hook.transpose()) {
            (Ok(Some(moving)), Ok(sets)) => {
                self.describe_move(&moving, &mut difference);
                Some((moving, sets.unwrap_or_default()))
            }
            (Ok(Some(moving)), Err(not_loaded)) => {
                mistakes.push(not_loaded.at(&moving));
                None
            }
            (Ok(None), _) => None,
            (Err(mistake), _) => {
                mistakes.push(mistake);
                None
            }
        };
        let swaps = self.try_swaps(&next, swaps, &mut mistakes);
        let mut changed = Changed {
            anew: difference.names(What::Handler, &[Act::Change]),
            ..Changed::default()
        };
        let mut made = Vec::new();
        for (name, fresh) in fresh {
            let handler = next
                .handler(&name)
                .expect("it was compiled for its section");
            match fresh {
                Ok((plan, new)) => {
                    let bindable = HandlerHandle::new(new, &self.rows, &self.faults);
                    made.push((handler.clone(), plan, bindable));
                }
                Err(error) => {
                    mistakes.push(of_handler(handler.line, error));
                    changed.stubs.insert(name);
                }
            }
        }
        let coming = self.try_ifaces(&next, &difference, &mut mistakes);
        let fresh = Fresh {
            handlers: &made,
            changed: &changed,
            links: coming.as_deref(),
        };
        let graph = self.try_graph(&next, &mut difference, &fresh, &mut mistakes);
        self.try_filters(&next, &difference, &mut mistakes);
        let come = coming.as_deref().unwrap_or_default();
        // Whoever is tried gets an id that nobody has, and that is not taken from the node.
        let ids = self.paths.ids().clone();
        self.try_room(&next, &difference, come, &made, ids, &mut mistakes);
        if let Some(graph) = &graph {
            let programs = &mut programs;
            self.try_programs(graph, &next, &mut difference, programs);
        }
        match graph {
            Some(graph) if mistakes.is_empty() => Ok(Tried {
                hook,
                coming: coming.unwrap_or_default(),
                next,
                graph,
                difference,
                fresh: made,
                swaps,
                programs,
            }),
            _ => Err(refused(&next.file, mistakes)),
        }
    }

    /// The interfaces that come, if all of them can be taken as far as is known before it is
    /// done.
    fn try_ifaces(
        &mut self,
        next: &Config,
        difference: &Difference,
        mistakes: &mut Vec<Mistake>,
    ) -> Option<Vec<Coming>> {
        let come = difference.names(What::Iface, &[Act::Create]);
        let come = next.ifaces.iter().filter(|it| come.contains(&it.name));
        let looked = come.map(|iface| {
            let coming = self.look_at_coming(iface);
            let refused = |why: Refusal| Mistake::new(iface.line, why.message, why.hint);
            coming.map_err(|why| mistakes.push(refused(why))).ok()
        });
        // All mistakes are said.
        let looked: Vec<Option<Coming>> = looked.collect();
        looked.into_iter().collect()
    }

    /// Whether the versions could take over.
    fn try_swaps(
        &self,
        next: &Config,
        swaps: BTreeMap<String, Result<Candidate, InstanceError>>,
        mistakes: &mut Vec<Mistake>,
    ) -> Vec<(Arc<Instance>, Candidate)> {
        if self.observation.is_some() && !swaps.is_empty() {
            let message = "cannot swap a handler while `trace` or `capture` runs";
            let hint = "end `ashway trace` or `ashway capture` first";
            mistakes.push(Mistake::new(0, message, hint));
        }
        let mut fit = Vec::new();
        for (name, candidate) in swaps {
            let line = next.handler(&name).map_or(0, |handler| handler.line);
            let Some((_, handler)) = self.handler(&name) else {
                continue;
            };
            let instance = &handler.shared;
            let candidate = match candidate {
                Ok(candidate) => candidate,
                Err(error) => {
                    mistakes.push(of_handler(line, error));
                    continue;
                }
            };
            let checked = swap::check(handler, &instance.version(), &candidate.version);
            let stays = candidate.promoted.iter().filter_map(|(id, made)| {
                let path = &self.paths.at(*id)?.bound()?.config;
                let why = made.as_ref().err().filter(|_| path.tier == Tier::Kernel)?;
                let message = format!("path `{}` has `tier = \"kernel\"`", path.name);
                let message = format!("{message}: {}", why.because);
                Some(Mistake::new(line, message, why.hint.clone()))
            });
            mistakes.extend(stays);
            match checked {
                Ok(_) => fit.push((Arc::clone(instance), candidate)),
                Err(Refusal { message, hint, .. }) => {
                    let message = format!("handler `{name}` cannot be swapped: {message}");
                    mistakes.push(Mistake::new(line, message, hint));
                }
            }
        }
        fit
    }

    /// Whether there is room for the paths that come.
    fn try_room(
        &self,
        next: &Config,
        difference: &Difference,
        coming: &[Coming],
        made: &[(HandlerConfig, InstancePlan, HandlerHandle)],
        mut ids: Ids,
        mistakes: &mut Vec<Mistake>,
    ) {
        let mut plan = self.plan.clone();
        for iface in coming {
            plan.add_iface(iface.link.number(), CounterRow(0));
        }
        let number = |name: &String| {
            let mut come = coming.iter();
            let comes = come.find(|iface| iface.asked.name == *name);
            comes.map_or_else(|| self.iface_number(name), |it| Some(it.link.number()))
        };
        let crowded = |path: &PathConfig, what: &NoRoom| {
            let mut all = path.ifaces.iter();
            let is_it =
                |name: &&String| matches!(what, NoRoom::Iface(it) if number(name) == Some(*it));
            crowded(path, all.find(is_it), what)
        };
        let gone = difference.names(What::Path, &[Act::Remove, Act::Change]);
        for path in gone.iter().filter_map(|name| self.bound_path(name)) {
            plan.remove_path(path);
        }
        let gone = difference.names(What::Handler, &[Act::Remove, Act::Change]);
        let mut handlers = BTreeMap::new();
        for (&id, handler) in &self.handlers {
            let name = &handler.shared.name;
            if !gone.contains(name) {
                handlers.insert(name.as_str(), id);
            } else if plan.instances[&id].paths.is_empty() {
                plan.remove_instance(id);
            } else {
                // Who is still bound to it is said.
                return;
            }
        }
        for (handler, numbers, _) in made {
            handlers.insert(&handler.name, plan.add_instance(numbers.clone()));
        }
        let come = difference.names(What::Path, &[Act::Create, Act::Change]);
        for path in next.paths.iter().filter(|path| come.contains(&path.name)) {
            // Those to the other instances of a handler have their places with the first.
            if path.cpu.is_some_and(|cpu| cpu > 0) {
                continue;
            }
            if let Err(refusal) = self.comes_by_cpus(&[Arc::clone(path)]) {
                mistakes.push(Mistake::new(path.line, refusal.message, refusal.hint));
                continue;
            }
            let ifaces = path.ifaces.iter();
            let ifaces: Option<Vec<usize>> = ifaces.map(number).collect();
            let name = |cpu| instance_name(whole_name(&path.handler), cpu);
            let each = (0..).map_while(|cpu| handlers.get(&*name(cpu)).copied());
            let instances: Vec<_> = match path.cpu {
                Some(_) => each.collect(),
                None => handlers.get(&*path.handler).copied().into_iter().collect(),
            };
            let Some(ifaces) = ifaces.filter(|_| !instances.is_empty()) else {
                continue;
            };
            let placed = plan.place(&mut ids, CounterRow(0), &instances, &ifaces, |_, _| true);
            match placed {
                Ok(each) => each.into_iter().for_each(|numbers| plan.add_path(numbers)),
                Err(what) => mistakes.push(crowded(path, &what)),
            }
        }
        let reach = difference.names(What::Path, &[Act::Reach]);
        for path in next.paths.iter().filter(|path| reach.contains(&path.name)) {
            let Some(id) = self.bound_path(&path.name) else {
                continue;
            };
            for iface in path.ifaces.iter().filter_map(number) {
                if plan.target(id, iface).is_none()
                    && let Err(what) = plan.extend_path(&mut ids, id, iface)
                {
                    mistakes.push(crowded(path, &what));
                }
            }
        }
        let most = self.counter_rows.all();
        if plan.paths.len() > most {
            let message = format!("this node has rows of counters for {most} paths with handlers");
            let hint = "start the node anew with this file";
            mistakes.push(Mistake::new(0, message, hint));
        }
    }

    /// Which of the paths that may run in the kernel tier cannot, whatever their handlers
    /// are. They run in the user tier then, as they do in a node that starts with the file;
    /// where a section asks for the kernel tier by name the step says why.
    fn try_programs(
        &self,
        graph: &NodeGraph,
        next: &Config,
        difference: &mut Difference,
        programs: &mut BTreeMap<String, Result<Promoted, NotPromoted>>,
    ) {
        let moved = difference.names(What::Path, &[Act::Move]);
        let long = next.long_paths.iter();
        let long = long.filter(|path| path.tier == Tier::Kernel && moved.contains(&path.name));
        for path in long {
            let id = self.paths.find(&path.name);
            let frames = id.and_then(|id| self.paths.frames(id));
            if let Some(stays) = frames.and_then(|frames| frames.stays.as_ref()) {
                difference.stays(&path.name, &stays.because);
            }
        }
        let come = difference.names(What::Path, &[Act::Create, Act::Change, Act::Move]);
        for path in next.paths.iter().filter(|path| come.contains(&path.name)) {
            if path.tier == Tier::User {
                continue;
            }
            let mut ifaces = path.ifaces.iter();
            let alone = ifaces.find_map(|iface| graph.user_tier_alone(path, iface));
            let without = self.maps.is_none() || !self.has_xdp(path);
            let without = without.then(|| {
                let hint = "`ashway doctor` says what the kernel tier needs here".to_owned();
                (
                    "it is on an interface without a kernel tier".to_owned(),
                    hint,
                )
            });
            if let Some((because, hint)) = alone.or(without) {
                let refused = NotPromoted {
                    because,
                    line: None,
                    hint,
                };
                programs.insert(path.name.clone(), Err(refused));
            }
            if let (Tier::Kernel, Some(Err(why))) = (path.tier, programs.get(&path.name)) {
                difference.stays(&path.name, &why.because);
            }
        }
    }
}

/// That a path has no room: at this interface, if it is that.
fn crowded(path: &PathConfig, iface: Option<&String>, what: &NoRoom) -> Mistake {
    let (name, handler) = (&path.name, &path.handler);
    let (message, hint) = match *what {
        NoRoom::Iface(_) => (
            format!(
                "`{}` has no room for path `{name}`",
                iface.map_or("its interface", String::as_str)
            ),
            "lead more messages to one path, by `or` in its `match`",
        ),
        NoRoom::Handler(most) => (
            format!("path `{name}`: handler `{handler}` has {most} paths, and no room"),
            "call the handler's section else: then it is loaded anew, and has room",
        ),
        NoRoom::Busy => (
            format!("path `{name}`: handler `{handler}` is busy with one that is gone"),
            "ask once more in a moment",
        ),
    };
    Mistake::new(path.line, message, hint)
}
