//! What an `apply` reads and compiles, on the compile thread.

use std::collections::BTreeMap;
use std::path::{Path as FsPath, PathBuf};
use std::sync::Arc;

use ashway_handler::{Engine, Param};

use super::super::Node;
use super::super::hook_move::{HookJob, HookSet, NotLoaded};
use super::super::swap::{Candidate, InKernel};
use super::words::{refused, said};
use crate::compile::Job;
use crate::request::Refusal;
use ashway_config::{
    self, Act, Config, Difference, HandlerConfig, Mistake, PathConfig, Tier, What,
};
use ashway_worker::instance::{
    Allowance, Instance, InstanceError, NewInstance, NotPromoted, Promoted,
};
use ashway_worker::plan::InstancePlan;
use ashway_worker::programs::NodeMaps;
use ashway_worker::shadow;
use ashway_worker::version::{self, Version};

/// What was read of a file: the configuration, and what its handlers' files are.
pub(crate) struct Next {
    pub(super) config: Config,
    pub(super) digests: BTreeMap<String, String>,
}

/// What is to be compiled.
pub(crate) struct Order {
    /// Handlers that come.
    fresh: Vec<(HandlerConfig, InstancePlan)>,
    /// Versions that are to take over, with the values of the parameters before.
    swaps: Vec<(HandlerConfig, Arc<Instance>, Vec<InKernel>)>,
    /// Paths that may run in the kernel tier, with their handler if it stays.
    programs: Vec<(Arc<PathConfig>, Option<Arc<Instance>>)>,
    /// The parameters of handlers that stay.
    inherited: BTreeMap<String, BTreeMap<String, Param>>,
    /// The node's programs for another hook.
    pub(super) hook: Option<HookJob>,
    engine: Engine,
    maps: Option<Arc<NodeMaps>>,
    arena: bool,
}

/// What was compiled, by name.
#[derive(Default)]
pub(crate) struct Compiled {
    pub(super) fresh: BTreeMap<String, Result<(InstancePlan, NewInstance), InstanceError>>,
    pub(super) swaps: BTreeMap<String, Result<Candidate, InstanceError>>,
    pub(super) programs: BTreeMap<String, Result<Promoted, NotPromoted>>,
    pub(super) hook: Option<Result<Vec<HookSet>, NotLoaded>>,
}

impl Node {
    /// What has to be compiled for a difference.
    pub(super) fn order_of(&self, next: &Config, asked: &Difference, engine: &Engine) -> Order {
        let facts = self.iface_facts();
        let of = |act: &[Act]| {
            let names = asked.names(What::Handler, act);
            let handlers = next.handlers.iter();
            handlers.filter(move |handler| names.contains(&handler.name))
        };
        let kept = |name: &str| Some(Arc::clone(&self.handler(name)?.1.shared));
        let fresh = of(&[Act::Create, Act::Change]);
        let fresh = fresh.map(|handler| (handler.clone(), InstancePlan::unbound(&facts)));
        let swaps = of(&[Act::Swap]).filter_map(|handler| {
            let (id, kept) = self.handler(&handler.name)?;
            Some((
                handler.clone(),
                Arc::clone(&kept.shared),
                self.in_kernel(id),
            ))
        });
        let anew = asked.names(What::Handler, &[Act::Change]);
        let moved = [Act::Create, Act::Change, Act::Move];
        let come = asked.names(What::Path, &moved);
        let wants = |path: &&Arc<PathConfig>| {
            let comes = come.contains(&path.name) || anew.contains(&path.handler);
            comes && path.tier != Tier::User && self.maps.is_some() && self.has_xdp(path)
        };
        let programs = next.paths.iter().filter(wants);
        let handlers = self.config.handlers.iter();
        Order {
            fresh: fresh.collect(),
            swaps: swaps.collect(),
            programs: programs
                .map(|path| (Arc::clone(path), kept(&path.handler)))
                .collect(),
            inherited: handlers
                .map(|handler| (handler.name.clone(), handler.params.clone()))
                .collect(),
            hook: None,
            engine: engine.clone(),
            maps: self.maps.clone(),
            arena: self.arena,
        }
    }
}

impl Job for Order {
    type Outcome = Compiled;

    /// Compiles all of it; what fails is said with its name.
    fn run(self) -> Compiled {
        let (engine, maps, arena) = (&self.engine, self.maps.as_deref(), self.arena);
        let mut compiled = Compiled {
            hook: self.hook.map(Job::run),
            ..Compiled::default()
        };
        let mut version = None;
        for (handler, plan) in self.fresh {
            let made = Version::shared(&mut version, &handler, engine).and_then(|version| {
                Instance::create(&handler, version, &[], &plan.queue, engine, maps, arena)
            });
            let made = made.map(|made| (plan, made));
            compiled.fresh.insert(handler.name, made);
        }
        let mut version = None;
        for (handler, instance, in_kernel) in self.swaps {
            let read = Version::shared(&mut version, &handler, engine);
            let inherited = self.inherited.get(&handler.name).cloned();
            let candidate = read.map(|version| {
                let inherited = inherited.unwrap_or_default();
                Candidate::compile(&instance, version, false, inherited, in_kernel, maps)
            });
            compiled.swaps.insert(handler.name, candidate);
        }
        for (path, kept) in self.programs {
            let Some(maps) = maps else { continue };
            let fresh = compiled.fresh.get(&path.handler);
            let swap = compiled.swaps.get(&path.handler);
            let (instance, version) = match (fresh, swap, &kept) {
                (Some(Ok((_, made))), ..) => (&made.instance, made.instance.version()),
                (None, Some(Ok(candidate)), Some(kept)) => {
                    (&**kept, Arc::clone(&candidate.version))
                }
                (None, None, Some(kept)) => (&**kept, kept.version()),
                // Why there is no handler is said of that.
                _ => continue,
            };
            if version.compiled.function(&path.function).is_none() {
                continue;
            }
            let (function, allowed) = (&path.function, Allowance::of(&path));
            let program = shadow::promote_rehearsed(instance, maps, &version, function, allowed);
            compiled.programs.insert(path.name.clone(), program);
        }
        compiled
    }
}

/// A configuration that is to be read.
pub(crate) struct ReadJob {
    pub(super) file: PathBuf,
    /// How many instances a handler has that has one for each CPU.
    pub(super) cpus: u32,
}

impl Job for ReadJob {
    type Outcome = Result<Next, Refusal>;

    fn run(self) -> Self::Outcome {
        read(&self.file, self.cpus)
    }
}

/// Reads a file and what it names.
fn read(file: &FsPath, cpus: u32) -> Result<Next, Refusal> {
    let config = ashway_config::reload(file).map_err(|mistakes| refused(file, said(&mistakes)))?;
    let config = config.on_cpus(cpus).map_err(|(line, [message, hint])| {
        refused(file, vec![Mistake::new(line, message, hint)])
    })?;
    let mut digests = BTreeMap::new();
    let mut mistakes = Vec::new();
    for handler in &config.handlers {
        match version::digest(&handler.file) {
            Ok(digest) => drop(digests.insert(handler.name.clone(), digest)),
            Err(error) => {
                let message = format!("cannot read `{}`: {error}", handler.file.display());
                let hint = "name the `.wasm` file that the compiler made";
                mistakes.push(Mistake::new(handler.line, message, hint));
            }
        }
    }
    if mistakes.is_empty() {
        Ok(Next { config, digests })
    } else {
        Err(refused(file, mistakes))
    }
}
