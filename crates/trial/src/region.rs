//! A [`Memory`] stays mapped: what Wasmtime must be promised.

use std::ptr::NonNull;
use std::sync::Arc;

use ashway_handler::Region;
use ashway_kernel::Memory;

/// A trial's memory, as the Wasm runtime wants to see it.
#[derive(Debug)]
pub(crate) struct MemoryRegion(pub(crate) Arc<Memory>);

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
