//! Loading: a handler gets its instances, which no message reaches before a path is
//! [bound](super::binding) to it.
//!
//! It is read and compiled on the compile thread, and by then the node may have changed: its name
//! is looked at again.

use std::sync::Arc;
use std::time::Instant;

use ashway_api::answer::Loaded;
use ashway_api::request::Load;
use ashway_handler::Engine;

use super::operation::{Operation, Report};
use super::world::{self, Changed};
use super::{Node, Owner, RunError};
use crate::compile::Job;
use crate::control::Caller;
use crate::request::{self, Refusal};
use ashway_config::{HandlerConfig, Instances, MOST_CPUS, Placement, whole_name};
use ashway_worker::handle::HandlerHandle;
use ashway_worker::instance::{Instance, InstanceError, NewInstance};
use ashway_worker::plan::InstancePlan;
use ashway_worker::programs::NodeMaps;
use ashway_worker::run_instance::RunInstance;
use ashway_worker::version::Version;
use ashway_worker::worker::command::Resource;

/// A handler that is being made: its instances, of which most have one.
pub(super) struct Loading {
    handlers: Vec<HandlerConfig>,
    placement: Option<Placement>,
    plan: InstancePlan,
    owner: Option<Owner>,
}

/// Instances of a handler that are to be made.
pub(super) struct LoadJob {
    handlers: Vec<HandlerConfig>,
    plan: InstancePlan,
    engine: Engine,
    maps: Option<Arc<NodeMaps>>,
    arena: bool,
}

impl Job for LoadJob {
    type Outcome = Result<Vec<NewInstance>, InstanceError>;

    fn run(self) -> Self::Outcome {
        let (queue, maps) = (&self.plan.queue, self.maps.as_deref());
        let mut version = None;
        let made = self.handlers.iter().map(|handler| {
            let version = Version::shared(&mut version, handler, &self.engine)?;
            Instance::create(handler, version, &[], queue, &self.engine, maps, self.arena)
        });
        made.collect()
    }
}

impl Node {
    /// Makes an instance of a handler and answers `caller`. No message reaches
    /// it before [`bind`](Self::bind).
    pub(super) fn load(&mut self, request: &Load, engine: &Engine, caller: Caller) {
        let asked = request::handler(request, &self.config).and_then(|handler| {
            let placement = request::placement(request, &handler.name)?;
            if handler.instances == Instances::PerCpu {
                self.has_cpus(&handler.name)?;
            }
            Ok((
                handler,
                placement,
                self.owners.of(request.owner, &caller, &self.deaths)?,
            ))
        });
        let (handler, placement, owner) = match asked {
            Ok(asked) => asked,
            Err(refusal) => return caller.answer(refusal),
        };
        let name = handler.name.clone();
        let loading = Loading {
            handlers: handler.each(self.cpus()),
            placement,
            plan: InstancePlan::unbound(&self.iface_facts()),
            owner,
        };
        let job = LoadJob {
            handlers: loading.handlers.clone(),
            plan: loading.plan.clone(),
            engine: engine.clone(),
            maps: self.maps.clone(),
            arena: self.arena,
        };
        let operation = self.operations.next("load", name, Report::Caller(caller));
        self.submit(operation, Box::new(loading), job);
    }

    /// Goes on when it is made.
    pub(super) fn loaded(
        &mut self,
        operation: Operation,
        loading: Loading,
        made: Result<Vec<NewInstance>, InstanceError>,
    ) {
        let Loading {
            handlers,
            placement,
            plan,
            owner,
        } = loading;
        let begin = operation.begun();
        let added = made
            .map_err(|error| RunError::Instance(error).refusal())
            .and_then(|mut made| {
                for made in &mut made {
                    made.instance.owner.clone_from(&owner);
                }
                self.add_instances((handlers, placement), &plan, made, begin)
            });
        operation.end(added);
    }

    fn add_instances(
        &mut self,
        (handlers, placement): (Vec<HandlerConfig>, Option<Placement>),
        plan: &InstancePlan,
        made: Vec<NewInstance>,
        begin: Instant,
    ) -> Result<Loaded, Refusal> {
        // Another file may have got the name while this one was compiled.
        for handler in &handlers {
            request::check_free(whole_name(&handler.name), &self.config)?;
        }
        let made = made.into_iter();
        let made: Vec<_> = made
            .map(|made| HandlerHandle::new(made, &self.rows, &self.faults))
            .collect();
        let shared = Arc::clone(&made[0].shared);
        let mut config = self.config.clone();
        config.placements.extend(placement);
        config.handlers.extend(handlers);
        let handlers = self.handlers.values().chain(&made);
        let handlers: Vec<HandlerHandle> = handlers.cloned().collect();
        let (links, served) = (&self.links, &self.served);
        let none = Changed::default();
        let graph = world::graph_behind(&self.graph, &config, links, &handlers, served, &none)
            .map_err(|error| misplaced(&error))?;
        for made in made {
            self.put_instance(plan.clone(), made)?;
        }
        (self.config, self.graph) = (config, graph);
        let version = shared.version();
        let functions = version.compiled.functions();
        Ok(Loaded {
            handler: whole_name(&shared.name).to_owned(),
            digest: version.digest.clone(),
            functions: functions.map(str::to_owned).collect(),
            took_us: begin.elapsed().as_micros() as u64,
        })
    }

    /// Gives an instance to the worker and to the node; its configuration is still to
    /// follow.
    pub(super) fn put_instance(
        &mut self,
        plan: InstancePlan,
        made: HandlerHandle,
    ) -> Result<(), Refusal> {
        let id = self.plan.add_instance(plan);
        let run = RunInstance::new(id, made.clone());
        if let Err(refusal) = self.call_worker(Resource::Instance(run)) {
            self.plan.remove_instance(id);
            return Err(refusal);
        }
        self.handlers.insert(id, made);
        Ok(())
    }

    /// Whether messages come to a node by the CPUs on which they arrive.
    fn has_cpus(&self, handler: &str) -> Result<(), Refusal> {
        let cpus = self.cpus();
        if self.maps.is_none() {
            return Err(no_cpus(handler));
        }
        if cpus > MOST_CPUS {
            return Err(Refusal::failed(
                format!(
                    "this machine has {cpus} CPUs, and a handler has {MOST_CPUS} instances at most"
                ),
                "leave `instances` out: one instance serves all CPUs, one at a time",
            ));
        }
        Ok(())
    }
}

/// Why a handler cannot have an instance for each CPU.
pub(super) fn no_cpus(handler: &str) -> Refusal {
    let message = format!(
        "handler `{handler}` is to have an instance for each CPU, and no interface of this node has \
         programs, which know by which CPU a message came"
    );
    Refusal::failed(message, "`ashway doctor` says what programs need here")
}

/// Why a module of no file cannot be where it was to stand: without a place in one.
fn misplaced(error: &RunError) -> Refusal {
    let mistakes = match error {
        RunError::Mistakes(mistakes) => mistakes.list(),
        _ => &[],
    };
    match mistakes.first() {
        Some(first) => Refusal::usage(
            first.message.clone(),
            first.hint.clone().unwrap_or_default(),
        ),
        None => error.refusal(),
    }
}
