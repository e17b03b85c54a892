//! What is translated, for what, and what came of it.

use crate::normalise::Module;
use ashway_abi::memory::{Layout, WASM_PAGE};

/// What an instance's memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryKind {
    /// A BPF arena.
    Arena,
    /// The one value of a mmapable array.
    Array,
}

/// How much an activation may use.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Fuel in all.
    pub fuel: u64,
    /// Fuel that may be spent without a look at the clock.
    pub slice: u32,
    /// Time, in ns.
    pub ns: u64,
}

/// The clock starts with the first look at it, so a part of the slice is for what
/// comes before that, and three quarters are for what comes between two looks: a
/// handler that is stopped has run, beyond its time, for less than one slice in
/// all. How much it is then goes by the clock ([`super::fuel`]).
impl Budget {
    /// Fuel before the first look.
    pub(crate) fn first(&self) -> u64 {
        self.fuel.min(u64::from(self.slice / 8))
    }

    /// Most fuel between two looks.
    pub(super) fn next(&self) -> u32 {
        self.slice - self.slice / 4
    }

    /// Fuel behind the first look, when nothing is known.
    pub(super) fn second(&self) -> u32 {
        self.slice.div_ceil(16)
    }

    /// Fuel between two looks beyond what the clock leaves time for.
    pub(super) fn least(&self) -> u32 {
        self.slice.div_ceil(64)
    }
}

/// Time between two looks that is aimed at, in ns: one takes a 60th of that.
pub(super) const STRETCH_NS: u32 = 2_000;

/// What a handler is kept from by its own code. All of it, unless what that
/// costs is to be measured: a program without is never attached to anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checks {
    /// Loads and stores are compared with the memory's size. Without, those
    /// outside read 0 or are lost; only in an arena does the kernel accept that.
    pub bounds: bool,
    /// Fuel is taken for loops and functions. Without, only the kernel's own
    /// bound ends them: 250 ms for each loop.
    pub fuel: bool,
}

impl Default for Checks {
    fn default() -> Self {
        Self {
            bounds: true,
            fuel: true,
        }
    }
}

/// What to translate.
#[derive(Clone, Copy, Debug)]
pub struct Shape<'m> {
    /// The module.
    pub module: &'m Module<'m>,
    /// Index of the function to run; its type is `(i32, i32) -> i32`.
    pub entry: u32,
    /// What its memory is.
    pub memory: MemoryKind,
    /// Where the memory's regions lie.
    pub layout: Layout,
    /// How much it may use.
    pub budget: Budget,
    /// Keeps every local in the context, where the verifier knows nothing
    /// about it: up to 30 % slower, and accepted where the first try was found
    /// too complex (docs/facts.md, "Locals in memory").
    pub locals_in_memory: bool,
    /// What is checked.
    pub checks: Checks,
}

impl Shape<'_> {
    /// Bytes that guest memory has from the start and never loses.
    pub(super) fn initial_bytes(&self) -> u64 {
        u64::from(self.module.initial_pages) * WASM_PAGE as u64
    }

    /// Whether `memory.grow` can ever succeed.
    pub(super) fn growable(&self) -> bool {
        self.module.initial_pages != self.module.maximum_pages
    }

    /// Bytes that guest memory can have at most.
    pub(super) fn maximum_bytes(&self) -> u64 {
        u64::from(self.module.maximum_pages) * WASM_PAGE as u64
    }
}

/// What was translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Functions that the handler can reach.
    pub functions: usize,
    /// Instructions, before the assembler drops what cannot be reached.
    pub insns: usize,
    /// Bytes of frames in the context.
    pub frame_bytes: usize,
}
