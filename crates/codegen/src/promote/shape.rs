//! What is translated, for what, and what came of it.

use crate::normalise::Module;
use ashway_abi::memory::{Layout, WASM_PAGE};
use ashway_abi::{Budget, MemoryKind};

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
