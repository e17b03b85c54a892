//! A handler instance: one module, one memory, and its programs.

pub mod faults;

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use ashway_abi::Budget;
use ashway_abi::memory::{Layout, STATE_BYTES, WASM_PAGE};
use ashway_abi::share::Mode;
use ashway_abi::trusted;
use ashway_check::{Around, Shape, check};
use ashway_codegen::instance::{self, Handler, Spec};
use ashway_codegen::normalise::{self, normalise};
use ashway_handler::{Engine, Region};
use ashway_kernel::{LoadError, Program, ProgramKind, shared};
use ashway_memory::messages::Pool;
use ashway_memory::{Memory, MemoryKind, SharedArray};
use ashway_path::stage::Direction;

use crate::bindings::HandlerBindings;
use crate::bug::{self, Bug};
use crate::channels::Channels;
use crate::endpoint::{self, Endpoint};
use crate::error::{not_checked, not_loaded, not_translated};
use crate::peer::Peer;
use crate::plan::InstancePlan;
use crate::programs::{self, Maps, NodeMaps};
use crate::timers::Timers;
use crate::version::{Version, Versions};
use crate::{in_user, keys, log};
use ashway_config::{Grant, HandlerConfig, MemoryMode, PathConfig, Share};

pub use crate::error::{InstanceError, NotPromoted};

/// Fuel for each ns of budget: enough that the clock, not the fuel, ends honest
/// code. Of the programs of `ashway bench promote` most spend 5 to 17 units a
/// ns, and `inflate` up to 40, because a turn of its loop is charged for all
/// cases of a large `switch` and runs one.
const FUEL_PER_NS: u64 = 48;

/// Fuel that may be spent without a look at the clock, in two parts
/// ([`Budget`]): 0.1 us (`inflate`) to 0.8 us (`crc32`), against 33 ns for the
/// look. Twice as much makes these programs 0 to 15 % faster (5 % in the
/// middle), and a handler that waits for memory with each load outlast its
/// budget by twice as long.
const SLICE: u32 = 4_096;

/// What a handler may use that has this much time: fuel, and how often it is
/// looked at the clock.
#[must_use]
pub fn budget(time: Duration) -> Budget {
    Budget {
        fuel: fuel(time),
        slice: SLICE,
        ns: time.as_nanos() as u64,
    }
}

/// What the budget buys in fuel.
#[must_use]
pub(crate) fn fuel(budget: Duration) -> u64 {
    (budget.as_nanos() as u64).saturating_mul(FUEL_PER_NS)
}

/// What a path's handler may use in the kernel tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// For one message.
    pub(crate) budget: Duration,
    /// For all, if that has a limit.
    pub(crate) share: Option<Share>,
    /// The path's number within the instance, if it has one yet.
    path: Option<usize>,
}

impl Allowance {
    /// What the configuration gives it.
    #[must_use]
    pub fn of(path: &PathConfig) -> Self {
        Self {
            budget: path.budget,
            share: path.share,
            path: None,
        }
    }

    /// The same of a path that has this number within the instance: the program is for it
    /// alone, which takes 0.7 ns less for a message.
    #[must_use]
    pub fn numbered(self, local: usize) -> Self {
        Self {
            path: Some(local),
            ..self
        }
    }
}

/// The process can have an arena, and no program that works in it.
fn without_perfmon() -> io::Error {
    let because = "a program that uses an arena takes CAP_PERFMON";
    io::Error::new(io::ErrorKind::PermissionDenied, because)
}

/// The kernel's half of an instance.
#[derive(Debug)]
pub struct KernelSide {
    /// Words that only trusted code touches.
    pub(crate) trusted: SharedArray,
    /// The blocks behind them, where messages lie.
    pub(crate) pool: Arc<Pool>,
    /// Fills the rings.
    pub user_program: Program,
}

/// A handler instance; see the module's documentation.
#[derive(Debug)]
pub struct Instance {
    /// The handler's name.
    pub name: String,
    /// Its numbers.
    pub plan: InstancePlan,
    /// Its memory's regions.
    pub layout: Layout,
    /// Its memory.
    pub memory: Arc<Memory>,
    /// Absent on rungs without XDP.
    pub kernel: Option<KernelSide>,
    /// What it runs, and has run.
    pub versions: Versions,
    /// The paths that end in it.
    pub bindings: HandlerBindings,
    /// By their numbers: their messages that wait for their turn as whole frames, which no
    /// program counts.
    frames: Box<[AtomicU32]>,
    /// Where faults are recorded without a kernel side.
    faults: [AtomicU32; 5],
    /// Where lines are kept without one.
    log: Box<[AtomicU32]>,
    /// Where `deliver` leads, if anywhere.
    pub(crate) endpoint: Option<Endpoint>,
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

/// A program that runs the handler in the kernel tier.
#[derive(Debug)]
pub struct Promoted {
    /// The [`Version::id`] of what it runs.
    pub version: u64,
    /// The loaded program.
    pub program: Program,
    /// eBPF instructions.
    pub insns: usize,
    /// Wasm to eBPF, checked.
    pub translate: Duration,
    /// The verifier and the JIT.
    pub load: Duration,
    /// Whether the verifier wanted the second, plainer translation.
    pub second_try: bool,
}

impl Instance {
    /// Makes everything but the promoted program. `node` is absent on rungs
    /// without XDP.
    ///
    /// # Errors
    ///
    /// [`InstanceError`]; nothing is left behind.
    pub fn create(
        config: &HandlerConfig,
        functions: &[&str],
        plan: &InstancePlan,
        engine: &Engine,
        node: Option<&NodeMaps>,
        arena_allowed: bool,
    ) -> Result<(Self, ashway_handler::Instance), InstanceError> {
        let file = config.file.display().to_string();
        let version = Version::read(config, &config.file, engine)?;
        let compiled = &version.compiled;
        let layout = Layout {
            endpoint_slots: config.endpoint,
            ..plan.layout(compiled.guest_bytes(), compiled.state_bytes())
        };
        let bytes = layout.total_bytes();
        let memory = match (node, config.memory) {
            (None, _) => Memory::anonymous(bytes),
            (Some(_), MemoryMode::Arena) if !arena_allowed => {
                shared::arena(bytes).and_then(|_| Err(without_perfmon()))
            }
            (Some(_), MemoryMode::Arena) => shared::arena(bytes),
            (Some(_), MemoryMode::Auto) if arena_allowed => shared::arena(bytes),
            (Some(_), MemoryMode::Array | MemoryMode::Auto) => shared::array(bytes),
        }
        .map_err(|source| InstanceError::Memory {
            handler: config.name.clone(),
            bytes,
            source,
        })?;
        let memory = Arc::new(memory);
        let region: Arc<dyn Region> = Arc::<Memory>::clone(&memory);
        let mut wasmtime = ashway_handler::Instance::begin(engine, compiled, &region, layout)
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
        let kernel = match node {
            None => None,
            Some(node) => Some(KernelSide::create(
                &config.name,
                plan,
                layout,
                &memory,
                node,
            )?),
        };
        let instance = Self {
            name: config.name.clone(),
            plan: plan.clone(),
            layout,
            memory,
            log: if kernel.is_some() {
                Box::default()
            } else {
                log::own()
            },
            kernel,
            versions: Versions::begin(Some(Arc::new(version))),
            bindings: HandlerBindings::default(),
            frames: (0..plan.most_paths).map(|_| AtomicU32::new(0)).collect(),
            faults: Default::default(),
            endpoint: (config.endpoint > 0).then(Endpoint::default),
            channels,
            timers: Timers::default(),
            owner: None,
            unloaded: AtomicBool::new(false),
            may_reply: config.allow.contains(&Grant::Reply),
        };
        instance.note_version(&instance.version());
        instance.want_fault();
        Ok((instance, wasmtime))
    }

    /// An instance that runs nothing: its rings hold whole frames for paths of the
    /// user tier.
    ///
    /// # Errors
    ///
    /// [`InstanceError`]; nothing is left behind.
    pub fn frame_queue(
        plan: &InstancePlan,
        node: &NodeMaps,
        arena_allowed: bool,
    ) -> Result<Self, InstanceError> {
        let name = "frames".to_owned();
        let layout = plan.layout(WASM_PAGE, STATE_BYTES);
        let bytes = layout.total_bytes();
        let memory = if arena_allowed {
            shared::arena(bytes)
        } else {
            shared::array(bytes)
        };
        let memory = memory.map_err(|source| InstanceError::Memory {
            handler: name.clone(),
            bytes,
            source,
        })?;
        Ok(Self {
            kernel: Some(KernelSide::create(&name, plan, layout, &memory, node)?),
            name,
            plan: plan.clone(),
            layout,
            memory: Arc::new(memory),
            versions: Versions::begin(None),
            bindings: HandlerBindings::default(),
            frames: Box::default(),
            faults: Default::default(),
            log: Box::default(),
            endpoint: None,
            channels: None,
            timers: Timers::default(),
            owner: None,
            unloaded: AtomicBool::new(false),
            may_reply: false,
        })
    }

    /// The version that runs.
    ///
    /// # Panics
    ///
    /// In an instance that runs nothing: [`frame_queue`](Self::frame_queue).
    #[must_use]
    pub fn version(&self) -> Arc<Version> {
        let current = self.versions.current();
        current.expect("only handlers are asked for their version")
    }

    /// Whether the handler may answer its sender.
    #[must_use]
    pub fn may_reply(&self) -> bool {
        self.may_reply
    }

    /// Its ring of lines.
    #[must_use]
    pub fn log(&self) -> log::Ring<'_> {
        match &self.kernel {
            Some(kernel) => log::Ring::Shared(&kernel.trusted, trusted::log_at(self.layout.rings)),
            None => log::Ring::Own(&self.log),
        }
    }

    /// Where its endpoint is, if it has one.
    #[must_use]
    pub fn endpoint(&self) -> Option<(&Endpoint, endpoint::EndpointPlace<'_>)> {
        let place = endpoint::EndpointPlace {
            layout: &self.layout,
            memory: &self.memory,
            trusted: self.kernel.as_ref().map(|kernel| &kernel.trusted),
        };
        self.endpoint.as_ref().map(|endpoint| (endpoint, place))
    }

    /// Translates a version of the handler and loads it for the kernel tier.
    ///
    /// # Errors
    ///
    /// [`NotPromoted`]: why it stays in the user tier.
    pub fn promote(
        &self,
        node: &NodeMaps,
        version: &Version,
        function: &str,
        allowed: Allowance,
    ) -> Result<Promoted, NotPromoted> {
        self.promote_with(node, version, function, allowed, None)
    }

    /// The same for a program that observes, and says what it does into `notes`.
    ///
    /// # Errors
    ///
    /// [`NotPromoted`]: why not.
    pub fn promote_noting(
        &self,
        node: &NodeMaps,
        function: &str,
        allowed: Allowance,
        notes: BorrowedFd<'_>,
    ) -> Result<Program, NotPromoted> {
        let version = self.version();
        let promoted = self.promote_with(node, &version, function, allowed, Some(notes))?;
        Ok(promoted.program)
    }

    /// The user tier's program, as one that observes.
    ///
    /// # Errors
    ///
    /// What the kernel said.
    ///
    /// # Panics
    ///
    /// If the instance has no kernel side.
    pub fn user_noting(
        &self,
        node: &NodeMaps,
        notes: BorrowedFd<'_>,
    ) -> Result<Program, LoadError> {
        let kernel = self.kernel.as_ref().expect("observed programs are XDP's");
        let spec = spec(node, self.memory.kind(), self.layout, &self.plan);
        let maps = Maps {
            node,
            trusted: Some(&kernel.trusted),
            memory: Some(&self.memory),
        };
        let image = instance::user_observed(&spec);
        programs::load_noting(&program_name("u", &self.name), &image, &maps, notes)
    }

    fn promote_with(
        &self,
        node: &NodeMaps,
        version: &Version,
        function: &str,
        allowed: Allowance,
        notes: Option<BorrowedFd<'_>>,
    ) -> Result<Promoted, NotPromoted> {
        let kernel = self.kernel.as_ref().ok_or_else(|| NotPromoted {
            because: "the node runs without XDP".to_owned(),
            line: None,
            hint: "run `ashway doctor` to see what is missing".to_owned(),
        })?;
        let module = normalise(&version.wasm, &normalise::Limits::default())
            .expect("the file was normalised when the instance was made");
        let entry = module
            .exports
            .iter()
            .find(|(name, _)| name == function)
            .map(|(_, index)| *index)
            .expect("the function was found when the instance was made");
        let mut handler = Handler {
            module: &module,
            entry,
            path: allowed.path,
            budget: budget(allowed.budget),
            share: allowed.share.map(Share::terms),
            may_reply: self.may_reply,
            locals_in_memory: false,
        };
        let spec = spec(node, self.memory.kind(), self.layout, &self.plan);
        let shape = Shape {
            around: Around::Instance,
            memory: spec.memory,
            layout: spec.layout,
            cpus: spec.cpus,
            budget: handler.budget,
            resizes: module.resizes(),
        };
        let name = program_name("k", &self.name);
        let maps = Maps {
            node,
            trusted: Some(&kernel.trusted),
            memory: Some(&self.memory),
        };
        let mut rejected = None;
        for second_try in [false, true] {
            let begin = Instant::now();
            handler.locals_in_memory = second_try;
            let translated = match notes {
                None => instance::kernel(&spec, &handler),
                Some(_) => instance::kernel_observed(&spec, &handler),
            };
            let (image, _) = translated.map_err(|e| not_translated(&e))?;
            check(&image, &shape).map_err(|e| not_checked(&e))?;
            let translate = begin.elapsed();
            let loading = Instant::now();
            let loaded = match notes {
                None => programs::load(&name, ProgramKind::Xdp, &image, &maps),
                Some(notes) => programs::load_noting(&name, &image, &maps, notes),
            };
            match loaded {
                Ok(program) => {
                    return Ok(Promoted {
                        version: version.id,
                        program,
                        insns: image.insns.len(),
                        translate,
                        load: loading.elapsed(),
                        second_try,
                    });
                }
                Err(error) => rejected = Some(error),
            }
        }
        Err(not_loaded(&rejected.expect("both tries were rejected")))
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
        if let Some(kernel) = &self.kernel {
            let word = kernel.trusted.u32_at(trusted::VERSION);
            word.store(version.id as u32, Ordering::Release);
        }
    }

    /// Messages of a path that are in the ring, or wait for its share, now. While there are
    /// any, no other path gets its number; what the worker has in hand is done before it
    /// makes a change.
    #[must_use]
    pub fn in_user(&self, local: usize) -> u32 {
        let counted = self.kernel.as_ref().map_or(0, |kernel| {
            let word = kernel.trusted.u32_at(self.path_word(local));
            trusted::in_user(word.load(Ordering::Acquire))
        });
        let frames = self.frames.get(local);
        let frames = frames.filter(|_| !bug::is(Bug::FramesForgotten));
        counted + frames.map_or(0, |frames| frames.load(Ordering::Acquire))
    }

    /// Whether no message is left of the path of whole frames that had this number; then
    /// another path begins with it, of which none was dropped.
    #[must_use]
    pub fn begin_path(&self, number: u32) -> bool {
        let keys = [Direction::Forward, Direction::Backward].map(|way| keys::key(number, way));
        let idle = keys.iter().all(|key| self.in_user(*key) == 0);
        if let (true, Some(kernel)) = (idle, &self.kernel) {
            for key in keys {
                let at = self.path_word(key) + trusted::PATH_DROPPED;
                kernel.trusted.u64_at(at).store(0, Ordering::Relaxed);
            }
        }
        idle
    }

    /// Messages of a path of whole frames that were dropped on arrival, by its number.
    #[must_use]
    pub fn dropped_on_arrival(&self, number: u32) -> u64 {
        let dropped = |way| {
            let at = self.path_word(keys::key(number, way)) + trusted::PATH_DROPPED;
            let kernel = self.kernel.as_ref();
            kernel.map_or(0, |kernel| {
                kernel.trusted.u64_at(at).load(Ordering::Relaxed)
            })
        };
        dropped(Direction::Forward) + dropped(Direction::Backward)
    }

    /// Says that whole frames have left the user tier, by their keys.
    pub(crate) fn leave(&self, keys: impl Iterator<Item = u32>) {
        if let Some(kernel) = &self.kernel {
            let word = |key| Some(kernel.trusted.u32_at(self.path_word(key)));
            in_user::leave(keys.map(|key| key as usize), word);
        }
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
        let words = &self.kernel.as_ref()?.trusted;
        let word = self.path_word(local);
        let lazy = words.u32_at(word + trusted::PATH_LAZY);
        let lazy_at = words.u64_at(word + trusted::PATH_LAZY_AT);
        let waits = lazy.load(Ordering::Acquire) != 0 && self.in_user(local) > 0;
        Some(Mode::at(
            ashway_memory::clock::monotonic_ns(),
            lazy_at.load(Ordering::Acquire),
            waits,
        ))
    }

    /// A new path has a number within the instance: it begins without a debt.
    pub fn forget_share(&self, local: usize) {
        let Some(kernel) = &self.kernel else { return };
        let word = self.path_word(local);
        for at in [trusted::PATH_PAID, trusted::PATH_LAZY_AT] {
            kernel.trusted.u64_at(word + at).store(0, Ordering::Relaxed);
        }
        let lazy = kernel.trusted.u32_at(word + trusted::PATH_LAZY);
        lazy.store(0, Ordering::Release);
    }

    /// Where a path's trusted word is.
    #[must_use]
    pub(crate) fn path_word(&self, local: usize) -> usize {
        let paths = trusted::paths_at(self.plan.most_paths, self.layout.rings);
        paths + local * trusted::PATH_STRIDE
    }

    /// Loads the program of relays, for the instance whose rings hold whole frames;
    /// with `notes`, as one that observes.
    ///
    /// # Errors
    ///
    /// What the kernel said.
    pub fn load_forward(
        &self,
        node: &NodeMaps,
        hops: &SharedArray,
        notes: Option<BorrowedFd<'_>>,
    ) -> Result<Program, LoadError> {
        let spec = spec(node, self.memory.kind(), self.layout, &self.plan);
        let maps = Maps {
            node,
            trusted: self.kernel.as_ref().map(|kernel| &kernel.trusted),
            memory: Some(&self.memory),
        };
        programs::load_forward(&spec, &maps, hops, notes)
    }
}

impl KernelSide {
    fn create(
        handler: &str,
        plan: &InstancePlan,
        layout: Layout,
        memory: &Memory,
        node: &NodeMaps,
    ) -> Result<Self, InstanceError> {
        // Beyond that, a ring's control block would lie in another's slots.
        assert!(layout.rings <= trusted::MAX_RINGS, "the plan gives no more");
        let bytes = layout.trusted_bytes(plan.most_paths);
        let no_memory = |source| InstanceError::Memory {
            handler: handler.to_owned(),
            bytes,
            source,
        };
        let trusted = shared::words("ashway_trusted", bytes).map_err(no_memory)?;
        let pool = shared::pool(&trusted, &layout, plan.most_paths).map_err(no_memory)?;
        let image = instance::user(&spec(node, memory.kind(), layout, plan));
        let maps = Maps {
            node,
            trusted: Some(&trusted),
            memory: Some(memory),
        };
        let name = program_name("u", handler);
        let user_program =
            programs::load(&name, ProgramKind::Xdp, &image, &maps).map_err(|source| {
                InstanceError::Load {
                    handler: handler.to_owned(),
                    source,
                }
            })?;
        Ok(Self {
            trusted,
            pool,
            user_program,
        })
    }
}

fn spec(node: &NodeMaps, kind: MemoryKind, layout: Layout, plan: &InstancePlan) -> Spec {
    Spec {
        cpus: node.cpus,
        layout,
        memory: match kind {
            MemoryKind::Arena => ashway_abi::MemoryKind::Arena,
            MemoryKind::Array | MemoryKind::Anonymous => ashway_abi::MemoryKind::Array,
        },
        paths: plan.most_paths,
        order_scope: plan.order_scope,
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

/// The kernel keeps 15 characters: `ashway_k_` and the start of the name.
fn program_name(tier: &str, handler: &str) -> String {
    format!("ashway_{tier}_{handler}")
}
