//! From a handler's name to eBPF that may be run: what the kernel and the
//! interpreter have in common.

use std::time::{Duration, Instant};

use ashway_abi::{Budget, MemoryKind};
use ashway_check::bpf::Image;
use ashway_check::{Around, check};
use ashway_codegen::normalise::Module;
use ashway_codegen::promote::{Checks, Shape, Summary};
use ashway_codegen::stub;

use crate::NotRun;

/// How a trial runs.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// What one activation may use.
    pub budget: Budget,
    /// What the memory is, in the kernel and the interpreter.
    pub memory: MemoryChoice,
    /// Whether locals stay out of registers (`Shape::locals_in_memory`).
    /// `None`: only if the verifier refuses the handler otherwise.
    pub locals_in_memory: Option<bool>,
    /// What promoted code checks. Anything but all of it is for measurements,
    /// and our own checker is then not asked.
    pub checks: Checks,
}

impl Default for Setup {
    /// Ten million units of fuel and a second, over an arena if there is one.
    fn default() -> Self {
        Self {
            budget: Budget {
                fuel: 10_000_000,
                slice: 20_000,
                ns: 1_000_000_000,
            },
            memory: MemoryChoice::Auto,
            locals_in_memory: None,
            checks: Checks::default(),
        }
    }
}

/// What a trial's memory is; the user engine's is always plain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemoryChoice {
    /// An arena if programs may use one, else an array.
    #[default]
    Auto,
    /// A BPF arena.
    Arena,
    /// The one value of an array map.
    Array,
}

/// A promoted handler.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// Its instructions, the trusted ones around the handler included.
    pub image: Image,
    /// What was translated.
    pub summary: Summary,
    /// What its memory is.
    pub memory: MemoryKind,
    /// Whether its locals are out of registers.
    pub locals_in_memory: bool,
    /// Why the first try, with locals in registers, was refused.
    pub second_try: Option<String>,
    /// How long the translation took.
    pub translating: Duration,
    /// How long our own checker took.
    pub checking: Duration,
    /// How long the kernel took to verify and compile it; `None` if it was
    /// not asked.
    pub loading: Option<Duration>,
    /// How many instructions the kernel's verifier processed.
    pub verified_insns: Option<u32>,
}

/// Translates a handler and has it checked.
pub(crate) fn translate(
    module: &Module<'_>,
    entry: u32,
    memory: MemoryKind,
    budget: Budget,
    locals_in_memory: bool,
    checks: Checks,
    cpus: u32,
) -> Result<Loaded, NotRun> {
    let layout = stub::layout(module);
    let shape = Shape {
        module,
        entry,
        memory,
        layout,
        budget,
        locals_in_memory,
        checks,
    };
    let start = Instant::now();
    let (image, summary) = stub::generate(&shape, cpus)?;
    let translated = Instant::now();
    if checks == Checks::default() {
        check(
            &image,
            &ashway_check::Shape {
                around: Around::Stub,
                memory,
                layout,
                cpus,
                budget,
                resizes: module.resizes(),
            },
        )?;
    }
    Ok(Loaded {
        image,
        summary,
        memory,
        locals_in_memory,
        second_try: None,
        translating: translated - start,
        checking: translated.elapsed(),
        loading: None,
        verified_insns: None,
    })
}
