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
    /// Fuel between two looks at the clock.
    pub slice: u32,
    /// Time, in ns, from the end of the first slice on.
    pub ns: u64,
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
    /// too complex (FACTS 1).
    pub locals_in_memory: bool,
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
