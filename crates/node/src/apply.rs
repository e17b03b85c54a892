//! Bringing a running node to another configuration: `plan` says what would change,
//! `apply` and SIGHUP do it.
//!
//! 1. The file is read and the handlers' files are, on the compile thread.
//! 2. What is different is compared with what the node does now ([`difference`]).
//! 3. What comes is compiled, on the compile thread.
//! 4. Everything that can fail is tried ([`trial`]): nothing has changed until then, and
//!    every mistake is said at once, by its line.
//! 5. It is done. Interfaces [move](super::hook_move) to another hook with nothing else beside.
//!    Else: interfaces that come and swaps first, because the kernel, and a version's
//!    own code, may still refuse; then all that goes, in one exchange for each interface; then
//!    all that comes. A path that is the same
//!    in both is in no step, so nothing of it is lost.
//!
//! What was loaded and bound by hand is in no file, and stays.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ashway_api::answer;
use ashway_handler::Engine;
use ashway_path::places::PathId;

use super::authority::Authority;
use super::binding::NewPath;
use super::hook_move::HookMove;
use super::operation::{Operation, Report};
use super::swap::Candidate;
use super::{Node, patterns, say};
use crate::control::Caller;
use crate::request::{self, Refusal};
use ashway_config::{
    Act, Config, Difference, Facts, LongPath, Mistake, PathConfig, Tier, What, difference,
    whole_name,
};
use ashway_worker::instance::{Instance, NotPromoted, Promoted};
use ashway_worker::plan::{HandlerId, Plan};
use ashway_worker::version::Version;
use order::{Compiled, Next, ReadJob};
use trial::Tried;
use words::{describe, half_done};

pub(super) mod order;
mod routes;
mod trial;
pub(super) mod words;

/// How long a path may wait until the messages of one that is gone have left its place
/// in the handler.
const PATIENCE: Duration = Duration::from_secs(1);

/// A configuration that is to be applied, while it is read.
pub(super) struct Reading {
    only_plan: bool,
}

/// A configuration that is to be applied, while what comes with it is compiled.
pub(super) struct Applying {
    next: Next,
    asked: Difference,
    /// How interfaces move to another hook, if they do, or why they cannot.
    moving: Result<Option<HookMove>, Mistake>,
    only_plan: bool,
}

impl Node {
    /// Does what a request says.
    pub(super) fn apply_asked(&mut self, file: &str, only_plan: bool, caller: Caller) {
        match request::file(file) {
            Ok(file) => self.apply(file, only_plan, Report::Caller(caller)),
            Err(refusal) => caller.answer(refusal),
        }
    }

    /// Reads the file that the node was started with, or brought to, once more.
    pub(super) fn apply_again(&mut self) {
        let file = self.config.file.clone();
        let file = std::path::absolute(&file).unwrap_or(file);
        say(&format!("SIGHUP: reading `{}` again", file.display()));
        self.apply(file, false, Report::Applied);
    }

    /// Brings the node to what a file says, or says what that would change. Others are
    /// served meanwhile.
    fn apply(&mut self, file: PathBuf, only_plan: bool, report: Report) {
        let verb = if only_plan { "plan" } else { "apply" };
        let about = file.display().to_string();
        let operation = self.operations.next(verb, about, report);
        let cpus = self.cpus();
        self.submit(operation, Reading { only_plan }, ReadJob { file, cpus });
    }

    /// Goes on when the file is read: has compiled what comes.
    pub(super) fn prepare(
        &mut self,
        operation: Operation,
        Reading { only_plan }: Reading,
        next: Result<Next, Refusal>,
        engine: &Engine,
    ) {
        let next = match next {
            Ok(next) => Next {
                // What matches and is not the node's yet is taken when this is done.
                config: next.config.resolve(self.iface_names()),
                ..next
            },
            Err(refusal) => return operation.end(refusal),
        };
        let asked = self.difference_to(&next);
        let moving = self.hook_move(&next.config, &asked);
        let mut order = self.order_of(&next.config, &asked, engine);
        if let Ok(Some(moving)) = &moving {
            order.hook = self.hook_job(moving);
        }
        let applying = Applying {
            next,
            asked,
            moving,
            only_plan,
        };
        self.submit(operation, Box::new(applying), order);
    }

    /// Goes on when it is compiled.
    pub(super) fn finish(
        &mut self,
        operation: Operation,
        applying: Applying,
        compiled: Compiled,
        engine: &Engine,
    ) {
        let begin = operation.begun();
        let outcome = self.try_and_do(applying, compiled, engine);
        operation.end(outcome.map(|plan| answer::Plan {
            took_us: Some(begin.elapsed().as_micros() as u64),
            ..plan
        }));
    }

    /// Tries everything, and does it.
    fn try_and_do(
        &mut self,
        applying: Applying,
        compiled: Compiled,
        engine: &Engine,
    ) -> Result<answer::Plan, Refusal> {
        let Applying {
            next,
            asked,
            moving,
            only_plan,
        } = applying;
        // What was compiled is for the node as it was.
        if self.difference_to(&next) != asked {
            return Err(Refusal::failed(
                "the node was changed meanwhile",
                "ask once more",
            ));
        }
        let tried = self.attempt(next.config, asked, moving, compiled)?;
        let answer = describe(&tried, !only_plan);
        if !only_plan {
            self.bring_about(tried, engine)?;
        }
        Ok(answer)
    }

    fn difference_to(&self, next: &Next) -> Difference {
        let other = |handler: &&Arc<Instance>| {
            let digest = next.digests.get(&handler.name);
            digest.is_some_and(|digest| *digest != handler.version().digest)
        };
        let others = self.instances().filter(other);
        let in_file = self.config.long_paths.iter();
        let in_file: HashSet<&str> = in_file.map(|path| path.name.as_str()).collect();
        let by_hand = self.paths.all_frames().map(|(_, path)| &*path.name);
        let by_hand = by_hand.filter(|name| !in_file.contains(name));
        let domain = |name: &str| {
            let (_, path) = self.paths.named(name)?;
            path.domain.as_deref().map(str::to_owned)
        };
        let facts = Facts {
            other_files: others.map(|handler| handler.name.clone()).collect(),
            module_paths_by_hand: by_hand
                .map(|name| (name.to_owned(), domain(name)))
                .collect(),
        };
        difference(&self.config, &next.config, &facts)
    }

    /// Does what was tried. What fails now is the system's: then the configuration of
    /// the node says what it does, and another `apply` does the rest.
    fn bring_about(&mut self, mut tried: Tried, engine: &Engine) -> Result<(), Refusal> {
        if let Some((moving, sets)) = tried.hook.take() {
            self.move_hook(moving, sets)?;
        }
        if !tried.next.patterns.is_empty() {
            patterns::raise_descriptors();
        }
        let mut came = Vec::new();
        let coming = std::mem::take(&mut tried.coming);
        let swaps = std::mem::take(&mut tried.swaps);
        let mut coming = coming.into_iter();
        let begun = coming.try_for_each(|iface| {
            came.push(self.add_iface(iface)?);
            Ok(())
        });
        if let Err(refusal) = begun.and_then(|()| self.swap_all(swaps, engine)) {
            for number in came {
                self.remove_iface(number);
            }
            return Err(refusal);
        }
        match self.change_over(tried) {
            Ok(failed) => {
                // Also where a path could not be made: the modules are there.
                let begun = self.served.taps.begin();
                half_done(failed)?;
                begun.map_err(|error| {
                    let hint = "all else is done; what the tap sees is counted as failed or lost";
                    Refusal::failed(format!("cannot begin {error}"), hint)
                })
            }
            Err(refusal) => Err(Refusal {
                message: format!(
                    "`apply` stopped before it was complete: {}",
                    refusal.message
                ),
                ..refusal
            }),
        }
    }

    /// Takes away what goes, then makes what comes: the paths that could not be made.
    fn change_over(&mut self, tried: Tried) -> Result<Vec<(String, Refusal)>, Refusal> {
        let Tried {
            mut next,
            graph,
            difference,
            fresh,
            hook: _,
            coming: _,
            swaps: _,
            mut programs,
        } = tried;
        let gone = difference.names(What::Path, &[Act::Remove, Act::Change]);
        let ids = gone.iter().filter_map(|name| self.paths.find(name));
        self.take(&ids.collect::<Vec<PathId>>())?;

        let gone = difference.names(What::Handler, &[Act::Remove, Act::Change]);
        let ids = gone.iter().filter_map(|name| Some(self.handler(name)?.0));
        let ids: Vec<HandlerId> = ids.collect();
        self.drop_instances(&ids)?;
        let handlers = &mut self.config.handlers;
        handlers.retain(|handler| !gone.contains(&handler.name));
        for (handler, plan, made) in fresh {
            self.put_instance(plan, made)?;
            self.config.handlers.push(handler);
        }
        self.graph = graph;
        for name in difference.names(What::Iface, &[Act::Remove]) {
            if let Some(number) = self.iface_number(&name) {
                self.remove_iface(number);
            }
        }
        let reach = difference.names(What::Path, &[Act::Reach]);
        let reach = next.paths.iter().filter(|path| reach.contains(&path.name));
        let reach: Vec<Arc<PathConfig>> = reach.cloned().collect();
        let (paths, long_paths) = self.become_next(&mut next);

        let mut failed = Vec::new();
        for path in long_paths {
            match self.create_long(&path) {
                Ok(()) => self.config.long_paths.push(path),
                Err(refusal) => failed.push((path.name, refusal)),
            }
        }
        let mut to_promote = Vec::new();
        let mut paths = paths.into_iter().peekable();
        while let Some(path) = paths.next() {
            let mut each = vec![path];
            // Those to the other instances of its handler follow.
            let follows = |path: &Arc<PathConfig>| path.cpu.is_some_and(|cpu| cpu > 0);
            each.extend(std::iter::from_fn(|| paths.next_if(follows)));
            let mut with_programs = Vec::with_capacity(each.len());
            let mut later = Vec::new();
            for path in each {
                let program = programs.remove(&path.name);
                if program.is_none() && path.tier != Tier::User && self.maps.is_some() {
                    later.push(path.name.clone());
                }
                with_programs.push((path, program));
            }
            let name = whole_name(&with_programs[0].0.name).to_owned();
            match self.put_patiently(with_programs) {
                Ok(_) => to_promote.extend(later),
                Err(refusal) => failed.push((name, refusal)),
            }
        }
        for path in reach {
            if let Err(refusal) = self.reach(&path) {
                failed.push((path.name.clone(), refusal));
            }
        }
        for name in difference.names(What::Path, &[Act::Move]) {
            if let Err(refusal) = self.move_path(&name, programs.remove(&name)) {
                failed.push((name, refusal));
            }
        }
        self.promote_later(&to_promote);
        Ok(failed)
    }

    /// Has a path be at the interfaces that its section names, and at no others.
    fn reach(&mut self, next: &PathConfig) -> Result<(), Refusal> {
        let id = self.path_for(&Authority::Node, &next.name)?;
        let now = self.paths.bound(id).config.ifaces.clone();
        let differ = |of: &[String], from: &[String]| -> Vec<usize> {
            let names = of.iter().filter(|name| !from.contains(name));
            names.filter_map(|name| self.iface_number(name)).collect()
        };
        let (come, go) = (differ(&next.ifaces, &now), differ(&now, &next.ifaces));
        for number in come {
            self.extend(id, number)?;
        }
        for number in go {
            self.shrink(id, number)?;
        }
        Ok(())
    }

    /// Puts the next versions in the place of those that run: all of them, or none.
    fn swap_all(
        &mut self,
        swaps: Vec<(Arc<Instance>, Candidate)>,
        engine: &Engine,
    ) -> Result<(), Refusal> {
        let mut done: Vec<(Arc<Instance>, Arc<Version>)> = Vec::new();
        for (instance, candidate) in swaps {
            let former = instance.version();
            let swapped = self.replace(&instance, candidate, engine, Instant::now());
            if let Err(mut refusal) = swapped {
                refusal.message = format!("handler `{}`: {}", instance.name, refusal.message);
                for (instance, former) in done.into_iter().rev() {
                    if let Err(stays) = self.swap_back(&instance, former, engine) {
                        let name = &instance.name;
                        let too = format!("; and handler `{name}` stays swapped: {stays}");
                        refusal.message.push_str(&too);
                    }
                }
                return Err(refusal);
            }
            done.push((instance, former));
        }
        Ok(())
    }

    /// Compiles here, for once: it is rare, and was compiled before.
    fn swap_back(
        &mut self,
        instance: &Arc<Instance>,
        former: Arc<Version>,
        engine: &Engine,
    ) -> Result<(), Refusal> {
        let (id, _) = self.find_handler(&instance.name)?;
        let params = self.config_of(instance).params.clone();
        let (in_kernel, maps) = (self.in_kernel(id), self.maps.as_deref());
        let back = Candidate::compile(instance, former, true, params, in_kernel, maps);
        self.replace(instance, back, engine, Instant::now())
            .map(drop)
    }

    /// Has the node's configuration say what the file says, but for the paths that are
    /// still to be made, which are returned.
    fn become_next(&mut self, next: &mut Config) -> (Vec<Arc<PathConfig>>, Vec<LongPath>) {
        let config = &mut self.config;
        for known in config.handlers.iter_mut().filter(|known| known.line > 0) {
            if let Some(handler) = next.handlers.iter().find(|new| new.name == known.name) {
                known.clone_from(handler);
            }
        }
        for known in config.paths.iter_mut().filter(|known| known.line > 0) {
            if let Some(at) = next.paths.iter().position(|new| new.name == known.name) {
                let path = self.paths.find(&known.name);
                // Where it is from now on is still to follow.
                *known = Arc::new(PathConfig {
                    ifaces: known.ifaces.clone(),
                    ..PathConfig::clone(&next.paths.remove(at))
                });
                if let Some(path) = path {
                    self.paths.bound_mut(path).config = Arc::clone(known);
                }
            }
        }
        let (kept, come) = std::mem::take(&mut next.long_paths)
            .into_iter()
            .partition(|new| config.long_paths.iter().any(|known| known.name == new.name));
        config.long_paths = kept;
        config.file.clone_from(&next.file);
        config.text = std::mem::take(&mut next.text);
        config.node.clone_from(&next.node);
        config.domains = std::mem::take(&mut next.domains);
        config.layered = std::mem::take(&mut next.layered);
        for known in &mut config.ifaces {
            if let Some(new) = next.ifaces.iter().find(|new| new.name == known.name) {
                known.clone_from(new);
            }
        }
        config.patterns = std::mem::take(&mut next.patterns);
        for iface in self.ifaces.values_mut() {
            if let Some(known) = config.iface(&iface.name) {
                iface.pattern.clone_from(&known.pattern);
            }
        }
        (std::mem::take(&mut next.paths), come)
    }

    /// Makes a path that ends in a handler: one to each of its instances. One whose place another
    /// has just left may have to wait until the messages of that one are done.
    fn put_patiently(&mut self, each: Vec<NewPath>) -> Result<answer::Bound, Refusal> {
        let begin = Instant::now();
        let mut instances = Vec::with_capacity(each.len());
        for (path, _) in &each {
            let (id, handler) = self.find_handler(&path.handler)?;
            instances.push((id, Arc::clone(&handler.shared)));
        }
        let is_free = |plan: &Plan, local: usize| {
            instances.iter().all(|(id, shared)| {
                let mut paths = plan.instances[id].paths.iter();
                !paths.any(|path| plan.paths[path].local == local) && shared.in_user(local) == 0
            })
        };
        let is_busy = |plan: &Plan| {
            let most = plan.instances[&instances[0].0].queue.most_paths;
            !(0..most).any(|local| is_free(plan, local))
        };
        while is_busy(&self.plan) && begin.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut refused = Vec::new();
        let each = each.into_iter().map(|(path, program)| match program {
            Some(Err(stays)) => {
                refused.push((path.name.clone(), stays));
                (path, None)
            }
            program => (path, program),
        });
        let each = each.collect();
        let put = self.put_path(each, None, begin)?;
        for (name, stays) in refused {
            if let Some(id) = self.bound_path(&name) {
                // It has said so already.
                let _ = self.install(id, Err(stays));
            }
        }
        Ok(put)
    }

    /// Moves a path to the tier that its configuration says by now.
    fn move_path(
        &mut self,
        name: &str,
        program: Option<Result<Promoted, NotPromoted>>,
    ) -> Result<(), Refusal> {
        let path = self.path_for(&Authority::Node, name)?;
        if let Some(frames) = self.paths.frames(path) {
            let mut paths = self.config.long_paths.iter();
            let tier = paths.find(|path| path.name == name).map(|path| path.tier);
            return match tier {
                Some(Tier::User) => self.move_relay(path, Tier::User).map(drop),
                // Where it cannot run in the kernel, it stays.
                _ if frames.stays.is_some() => Ok(()),
                _ => self.move_relay(path, Tier::Kernel).map(drop),
            };
        }
        let tier = self.paths.bound(path).config.tier;
        let moved = match (tier, program) {
            (Tier::User, _) => self.demote(path),
            (_, Some(Err(stays))) => {
                // `status` says why.
                let _ = self.install(path, Err(stays));
                Ok(())
            }
            (_, Some(program)) => self.install(path, program),
            (_, None) => Ok(()),
        };
        match (tier, moved) {
            (Tier::Auto, _) | (_, Ok(())) => Ok(()),
            (_, Err(why)) => Err(why.into()),
        }
    }

    /// Promotes paths whose programs were not compiled with the others.
    pub(super) fn promote_later(&mut self, names: &[String]) {
        for name in names {
            if let Some(path) = self.bound_path(name) {
                // `status` says why one stays.
                self.promote(path, 0, Report::Nobody);
            }
        }
    }
}
