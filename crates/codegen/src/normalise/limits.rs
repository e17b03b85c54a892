//! How big a handler's file may be, part by part.
//!
//! Each number is checked before anything of that size is allocated, so that a
//! hostile file costs no more than its own length.

use ashway_abi::memory::{STATE_BYTES, STATE_GLOBALS};

/// Upper bounds; [`Limits::default`] is what the daemon uses when the
/// configuration says nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the file. The normalised form takes about 20 times as much.
    pub file_bytes: usize,
    /// Declared maximum of the memory, in Wasm pages of 64 KiB.
    pub memory_pages: u32,
    /// Function types.
    pub types: u32,
    /// Functions, imports included.
    pub functions: u32,
    /// Locals of one function, declared ones only.
    pub locals: u32,
    /// Globals; those that are mutable must fit the state region.
    pub globals: u32,
    /// Tables.
    pub tables: u32,
    /// Entries of all tables together, and of all element segments together.
    pub table_entries: u32,
    /// Data segments, and element segments.
    pub segments: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            file_bytes: 4 << 20,
            memory_pages: 256,
            types: 4_096,
            functions: 10_000,
            locals: 4_096,
            globals: MOST_STATE_GLOBALS,
            tables: 16,
            table_entries: 10_000,
            segments: 4_096,
        }
    }
}

/// Mutable globals that fit the state region.
pub(super) const MOST_STATE_GLOBALS: u32 = ((STATE_BYTES - STATE_GLOBALS) / 8) as u32;
