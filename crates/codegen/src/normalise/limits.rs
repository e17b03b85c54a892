//! How big a handler's file may be, part by part.
//!
//! Each number is checked before anything of that size is allocated, so that a
//! hostile file costs no more than its own length.

use ashway_abi::memory::{STATE_BYTES, STATE_GLOBALS};

/// Upper bounds; [`Limits::default`] is what the daemon uses when the
/// configuration says nothing. With these, reading any file takes less than
/// 1 s and 64 MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the file.
    pub file_bytes: usize,
    /// Declared maximum of the memory, in Wasm pages of 64 KiB.
    pub memory_pages: u32,
    /// Function types.
    pub types: u32,
    /// Parameters and results of all function types together.
    pub type_values: u32,
    /// Functions, imports included.
    pub functions: u32,
    /// Exports.
    pub exports: u32,
    /// Operators of all functions together. Each takes about 50 bytes while
    /// the module is in use.
    pub operators: u32,
    /// Blocks, loops and ifs inside each other.
    pub nesting: u32,
    /// Locals of one function, declared ones only.
    pub locals: u32,
    /// Globals; those that are mutable must fit the state region.
    pub globals: u32,
    /// Tables.
    pub tables: u32,
    /// Entries of all tables together, and of all element segments together;
    /// also what `table.grow` can bring a table to that declares more.
    pub table_entries: u32,
    /// Data segments, and element segments.
    pub segments: u32,
    /// Bytes of the state region: mutable globals, tables that operators read
    /// or change, passive segments.
    pub state_bytes: u32,
}

impl Limits {
    /// Operations of the normal form, all functions together: twice the
    /// operators.
    pub(super) fn operations(&self) -> u64 {
        2 * u64::from(self.operators)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            file_bytes: 4 << 20,
            memory_pages: 256,
            types: 4_096,
            type_values: 65_536,
            functions: 10_000,
            exports: 10_000,
            operators: 400_000,
            nesting: 2_048,
            locals: 4_096,
            globals: MOST_STATE_GLOBALS,
            tables: 16,
            table_entries: 10_000,
            segments: 4_096,
            state_bytes: 1 << 20,
        }
    }
}

/// Mutable globals that there can be: a page of the state region.
pub(super) const MOST_STATE_GLOBALS: u32 = ((STATE_BYTES - STATE_GLOBALS) / 8) as u32;

/// Tables that [`encode`](super::encode) can add for types that differ only in
/// kinds of references. (Wasmtime has 100 tables in all.)
pub(super) const MOST_TYPED_TABLES: usize = 64;
