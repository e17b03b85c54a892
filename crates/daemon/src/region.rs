//! The one promise the daemon makes about memory: a [`Memory`] stays mapped.

#![allow(unsafe_code, reason = "Wasmtime must be told that a mapping is one")]

use std::ptr::NonNull;
use std::sync::Arc;

use ashway_handler::Region;
use ashway_kernel::Memory;

/// An instance's memory, as the Wasm runtime wants to see it.
#[derive(Debug)]
pub(crate) struct MemoryRegion(Arc<Memory>);

impl MemoryRegion {
    /// Shares `memory`; it stays mapped as long as any region of it lives.
    #[must_use]
    pub(crate) fn of(memory: &Arc<Memory>) -> Arc<dyn Region> {
        Arc::new(Self(Arc::clone(memory)))
    }
}

// SAFETY: `Memory` is one page-aligned mapping, readable and writable from
// `base` for `len` bytes, and the `Arc` keeps it mapped.
unsafe impl Region for MemoryRegion {
    fn base(&self) -> NonNull<u8> {
        self.0.base()
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}
