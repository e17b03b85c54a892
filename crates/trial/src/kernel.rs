//! The kernel: programs verified and run by it, over a memory that it shares.

use std::os::fd::BorrowedFd;
use std::sync::OnceLock;
use std::time::Instant;

use ashway_abi::context;
use ashway_abi::{Budget, MemoryKind};
use ashway_check::bpf::{Image, MapRef};
use ashway_codegen::normalise::Module;
use ashway_codegen::promote::Checks;
use ashway_codegen::stub;
use ashway_kernel::{Feature, LoadError, Map, MapSpec, Probe, Program, TestRun, shared};
use ashway_memory::{AllegedOffset, Memory};

use crate::promoted::{Loaded, MemoryChoice, Setup, translate};
use crate::{NotRun, activation::Activation, program};

/// Maps that all handlers of a trial share.
#[derive(Debug)]
pub(crate) struct Kernel {
    context: Map,
    cpus: u32,
    memory: Memory,
    locals_in_memory: Option<bool>,
    checks: Checks,
}

impl Kernel {
    /// Makes the maps, and writes what the module has before its start function.
    pub(crate) fn new(module: &Module<'_>, setup: &Setup) -> Result<Self, NotRun> {
        let failed = |what, bytes| move |errno| NotRun::Memory { what, bytes, errno };
        let cpus = ashway_kernel::maps::possible_cpus().map_err(failed("list of CPUs", 0))?;
        let bytes = context::BYTES * cpus;
        let context = MapSpec::array("ashway_context", bytes as u32, 1);
        let context = Map::create(&context).map_err(failed("context", bytes))?;
        let first = stub::first_memory(module);
        let arena = match setup.memory {
            MemoryChoice::Auto => arenas_work(),
            MemoryChoice::Arena => true,
            MemoryChoice::Array => false,
        };
        let memory = if arena {
            shared::arena(first.len()).map_err(failed("arena", first.len()))?
        } else {
            shared::array(first.len()).map_err(failed("array", first.len()))?
        };
        memory
            .copy_in(AllegedOffset(0), &first)
            .expect("it has that size");
        Ok(Self {
            context,
            cpus: cpus as u32,
            memory,
            locals_in_memory: setup.locals_in_memory,
            checks: setup.checks,
        })
    }

    pub(crate) const fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Translates and loads a handler; with locals in memory if it is refused
    /// otherwise.
    pub(crate) fn load(
        &self,
        module: &Module<'_>,
        entry: u32,
        budget: Budget,
    ) -> Result<(Loaded, Program), NotRun> {
        match self.load_once(module, entry, budget, self.locals_in_memory == Some(true)) {
            Err(NotRun::Kernel(
                error @ (LoadError::Rejected { .. } | LoadError::TooLong { .. }),
            )) if self.locals_in_memory.is_none() => {
                let (mut loaded, program) = self.load_once(module, entry, budget, true)?;
                loaded.second_try = Some(error.reason());
                Ok((loaded, program))
            }
            result => result,
        }
    }

    fn load_once(
        &self,
        module: &Module<'_>,
        entry: u32,
        budget: Budget,
        locals_in_memory: bool,
    ) -> Result<(Loaded, Program), NotRun> {
        let kind = match self.memory.kind() {
            ashway_memory::MemoryKind::Arena => MemoryKind::Arena,
            _ => MemoryKind::Array,
        };
        let mut loaded = translate(
            module,
            entry,
            kind,
            budget,
            locals_in_memory,
            self.checks,
            self.cpus,
        )?;
        let start = Instant::now();
        let program = program::load(NAME, &loaded.image, |map| self.fd(map))?;
        loaded.loading = Some(start.elapsed());
        loaded.verified_insns = Some(program.verified_insns());
        Ok((loaded, program))
    }

    /// Everything that the verifier says about a program.
    pub(crate) fn verifier_log(&self, image: &Image) -> Result<String, LoadError> {
        program::verifier_log(NAME, image, |map| self.fd(map))
    }

    fn fd(&self, map: MapRef) -> BorrowedFd<'_> {
        match map {
            MapRef::Context => self.context.fd(),
            MapRef::Memory => self.memory.fd(),
            other => unreachable!("a stub has no {other:?}"),
        }
    }
}

/// As `bpftool prog` shows it.
const NAME: &str = "ashway_trial";

/// Whether this process may load programs that use an arena; found out once.
fn arenas_work() -> bool {
    static WORK: OnceLock<bool> = OnceLock::new();
    *WORK.get_or_init(|| Probe::run().has(Feature::ArenaProgram))
}

/// Runs a program on one message, which lies in `frame`.
pub(crate) fn activate(
    program: &Program,
    frame: &[u8],
    message: &[u8],
    at: u32,
) -> Result<Activation, NotRun> {
    let run = test_run(program, frame, message.len(), 1)?;
    let outcome = stub::outcome(&run.packet).filter(|_| run.retval == stub::RETURNED);
    let outcome = outcome.ok_or(NotRun::Frame)?;
    Ok(Activation::judge(outcome, message, at))
}

/// Runs it `repeat` times; ns per run.
pub(crate) fn time(
    program: &Program,
    message: &[u8],
    grows: u32,
    repeat: u32,
) -> Result<f64, NotRun> {
    let frame = stub::frame_with_room(message, grows);
    let run = test_run(program, &frame, message.len(), repeat)?;
    Ok(f64::from(run.duration_ns))
}

fn test_run(
    program: &Program,
    frame: &[u8],
    len: usize,
    repeat: u32,
) -> Result<ashway_kernel::TestResult, NotRun> {
    if frame.len() > stub::FRAME_BYTES {
        let around = frame.len() - len;
        let most = stub::FRAME_BYTES.saturating_sub(around);
        return Err(NotRun::MessageTooLong { len, most });
    }
    let run = TestRun {
        packet: frame,
        context: None,
        repeat,
    };
    program.test_run(&run).map_err(NotRun::TestRun)
}
