//! A handler instance: a [memory](HandlerMemory), a [queue](Queue) where there are programs,
//! the [versions](Versions) that it runs and has run, and the paths that end in it.

pub mod faults;
mod promote;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use ashway_abi::share::Mode;
use ashway_abi::trusted;
use ashway_config::{Grant, HandlerConfig};
use ashway_handler::Engine;
use ashway_kernel::Program;

use crate::before::Watch;
use crate::bindings::HandlerBindings;
use crate::bug::{self, Bug};
use crate::channels::Channels;
use crate::endpoint::{Endpoint, EndpointPlace};
use crate::handler_memory::HandlerMemory;
use crate::log;
use crate::peer::Peer;
use crate::programs::NodeMaps;
use crate::queue::Queue;
use crate::queue_plan::QueuePlan;
use crate::timers::Timers;
use crate::version::Version;
use crate::versions::Versions;

pub use crate::error::{InstanceError, NotPromoted};
pub use promote::{Allowance, Promoted};

/// A handler instance; see the module's documentation.
#[derive(Debug)]
pub struct Instance {
    /// The handler's name.
    pub name: String,
    /// The handler's memory.
    pub memory: HandlerMemory,
    /// Where its programs put messages. Absent on rungs without XDP.
    pub queue: Option<Queue>,
    /// What it runs, and has run.
    pub versions: Versions,
    /// The paths that end in it.
    pub bindings: HandlerBindings,
    /// By their numbers: their messages that wait for their turn as whole frames, which no
    /// program counts.
    frames: Box<[AtomicU32]>,
    /// Where faults are recorded without a queue.
    faults: [AtomicU32; 5],
    /// Which activations are copied before they run.
    pub(crate) watch: Watch,
    /// Where lines are kept without one.
    log: Box<[AtomicU32]>,
    /// Where `send` leads, if anywhere.
    pub(crate) channels: Option<Channels>,
    /// When `on_timer` is to run.
    pub(crate) timers: Timers,
    /// The process that it belongs to, if not to the node.
    pub owner: Option<Arc<Peer>>,
    /// Whether the node has forgotten it, and the worker has not yet.
    unloaded: AtomicBool,
    may_reply: bool,
}

/// An instance that nobody runs yet, and what was made with it.
#[derive(Debug)]
pub struct NewInstance {
    /// The instance.
    pub instance: Instance,
    /// Its version, over its memory.
    pub wasm: ashway_handler::Instance,
    /// Puts messages into its queue. Absent where that is.
    pub user_program: Option<Program>,
}

impl Instance {
    /// Makes everything but the promoted program, for a version that was read for it. `node` is
    /// absent on rungs without XDP.
    ///
    /// # Errors
    ///
    /// [`InstanceError`]; nothing is left behind.
    pub fn create(
        config: &HandlerConfig,
        version: Arc<Version>,
        functions: &[&str],
        plan: &QueuePlan,
        engine: &Engine,
        node: Option<&NodeMaps>,
        arena_allowed: bool,
    ) -> Result<NewInstance, InstanceError> {
        let file = config.file.display().to_string();
        let (compiled, cpus) = (&version.compiled, version.cpus);
        let memory = HandlerMemory::create(
            config,
            compiled,
            plan,
            node.map(|node| node.hook),
            arena_allowed,
        )?;
        let mut wasmtime =
            ashway_handler::Instance::begin(engine, compiled, &memory.region(), memory.layout)
                .map_err(|source| InstanceError::Start {
                    handler: config.name.clone(),
                    source,
                })?;
        for function in functions {
            if compiled.function(function).is_none() {
                return Err(InstanceError::NoFunction {
                    file,
                    function: (*function).to_owned(),
                });
            }
        }
        set_params(config, &version, &mut wasmtime)?;
        let channels = (!config.channels.is_empty())
            .then(|| Channels::open(&config.channels, config.send_port))
            .transpose()
            .map_err(|source| InstanceError::Channels {
                handler: config.name.clone(),
                port: config.send_port,
                source,
            })?;
        let instance = Self {
            name: config.name.clone(),
            memory,
            queue: None,
            versions: Versions::begin(version),
            bindings: HandlerBindings::default(),
            frames: (0..plan.most_paths).map(|_| AtomicU32::new(0)).collect(),
            faults: Default::default(),
            watch: Watch::default(),
            log: log::own(),
            channels,
            timers: Timers::default(),
            owner: None,
            unloaded: AtomicBool::new(false),
            may_reply: config.allow.contains(&Grant::Reply),
        };
        let (instance, user_program) = match node {
            None => (instance, None),
            Some(node) => {
                let plan = plan.clone().on_cpus(cpus.unwrap_or(0) as usize);
                let queue = Queue::of_handler(&config.name, plan, instance.memory.kind())?;
                let user_program = queue.load_user(node)?;
                (instance.with_queue(queue), Some(user_program))
            }
        };
        Ok(NewInstance {
            instance,
            wasm: wasmtime,
            user_program,
        })
    }

    /// The same with a queue, among whose words are its own from now on.
    pub(crate) fn with_queue(mut self, queue: Queue) -> Self {
        self.log = Box::default();
        self.queue = Some(queue);
        self.note_version(&self.version());
        self.want_fault();
        self
    }

    /// The version that runs.
    #[must_use]
    pub fn version(&self) -> Arc<Version> {
        self.versions.current()
    }

    /// Whether the handler may answer its sender.
    #[must_use]
    pub fn may_reply(&self) -> bool {
        self.may_reply
    }

    /// Whether it runs on several CPUs at once.
    #[must_use]
    pub fn is_parallel(&self) -> bool {
        let queue = self.queue.as_ref();
        queue.is_some_and(|queue| queue.layout().locks > 0)
    }

    /// Its ring of lines.
    #[must_use]
    pub fn log(&self) -> log::Ring<'_> {
        match &self.queue {
            Some(queue) => {
                let at = trusted::log_at(queue.layout().rings);
                log::Ring::Shared(queue.words(), at)
            }
            None => log::Ring::Own(&self.log),
        }
    }

    /// Where its endpoint is, if it has one.
    #[must_use]
    pub fn endpoint(&self) -> Option<(&Endpoint, EndpointPlace<'_>)> {
        self.memory.endpoint(self.queue.as_ref().map(Queue::words))
    }

    /// Notes that the node has forgotten it.
    pub(crate) fn unload(&self) {
        self.unloaded.store(true, Ordering::Release);
    }

    /// Whether it has.
    #[must_use]
    pub(crate) fn is_unloaded(&self) -> bool {
        self.unloaded.load(Ordering::Acquire)
    }

    /// Notes which version runs from now on, for programs to say what was stopped. Under
    /// the lock, or before anybody runs it.
    pub(crate) fn note_version(&self, version: &Version) {
        if let Some(queue) = &self.queue {
            let word = queue.words().u32_at(trusted::VERSION);
            word.store(version.id as u32, Ordering::Release);
        }
    }

    /// Messages of a path that are in the ring, or wait for its share, now. While there are
    /// any, no other path gets its number; what the worker has in hand is done before it
    /// makes a change.
    #[must_use]
    pub fn in_user(&self, local: usize) -> u32 {
        let counted = self.queue.as_ref().map_or(0, |queue| queue.in_user(local));
        let frames = self.frames.get(local);
        let frames = frames.filter(|_| !bug::is(Bug::FramesForgotten));
        counted + frames.map_or(0, |frames| frames.load(Ordering::Acquire))
    }

    /// Where those of a path are counted that no program counts.
    #[must_use]
    pub(crate) fn frames(&self, local: usize) -> &AtomicU32 {
        &self.frames[local]
    }

    /// How a path stands with its share of the kernel tier now; nothing where there is
    /// none.
    #[must_use]
    pub fn mode(&self, local: usize) -> Option<Mode> {
        let queue = self.queue.as_ref()?;
        Some(queue.mode(local, self.in_user(local) > 0))
    }
}

/// Tells a handler what the configuration says: its parameters, and how many channels
/// it has.
///
/// # Errors
///
/// [`InstanceError::Param`].
pub(crate) fn set_params(
    config: &HandlerConfig,
    version: &Version,
    wasmtime: &mut ashway_handler::Instance,
) -> Result<(), InstanceError> {
    wasmtime.set_channels(config.channels.len() as u32);
    for (param, value) in &version.params {
        wasmtime
            .set_param(param, value)
            .map_err(|source| InstanceError::Param {
                handler: config.name.clone(),
                source,
            })?;
    }
    Ok(())
}
