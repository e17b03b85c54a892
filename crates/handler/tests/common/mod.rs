//! A memory and a handler from text, for tests.

#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(dead_code, reason = "each test file uses a part")]

use ashway_abi::memory::{Layout, WASM_PAGE};
use ashway_codegen::normalise::ir::{FileOffset, OpKind};
use ashway_codegen::normalise::{Limits, encode, normalise};
use ashway_handler::{Engine, Instance, InstantiateError, Region};
use std::alloc;
use std::ptr::NonNull;
use std::sync::Arc;

/// Zeroed, page-aligned memory in the place of an arena.
pub(crate) struct Pages {
    base: NonNull<u8>,
    layout: alloc::Layout,
}

// SAFETY: it owns its allocation; all accesses are copies.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

// SAFETY: allocated readable and writable until dropped, page-aligned, and
// only ever copied to and from.
unsafe impl Region for Pages {
    fn base(&self) -> NonNull<u8> {
        self.base
    }
    fn len(&self) -> usize {
        self.layout.size()
    }
}

impl Pages {
    pub(crate) fn new(len: usize) -> Arc<Self> {
        let layout = alloc::Layout::from_size_align(len, 4096).unwrap();
        // SAFETY: no test asks for a size of zero.
        let base = unsafe { alloc::alloc_zeroed(layout) };
        let base = NonNull::new(base).unwrap();
        Arc::new(Self { base, layout })
    }

    pub(crate) fn read<const N: usize>(&self, at: usize) -> [u8; N] {
        assert!(at + N <= self.len());
        // SAFETY: within the allocation by the assertion.
        let from = unsafe { self.base.add(at) };
        // SAFETY: readable bytes, and an array of bytes needs no alignment.
        unsafe { from.cast().read_unaligned() }
    }

    pub(crate) fn read_u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.read(at))
    }

    pub(crate) fn write(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.len());
        // SAFETY: within the allocation by the assertion.
        let to = unsafe { self.base.add(at) };
        // SAFETY: writable bytes that no slice overlaps.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.as_ptr(), bytes.len()) };
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { alloc::dealloc(self.base.as_ptr(), self.layout) };
    }
}

pub(crate) fn layout(pages: u32) -> Layout {
    Layout {
        guest_bytes: pages as usize * WASM_PAGE,
        rings: 1,
        slot_bytes: 2048,
    }
}

/// A file around `fields`, with one memory of one page.
pub(crate) fn file(fields: &str) -> Vec<u8> {
    let text = format!(
        r#"(module
            (import "ashway" "msg_load8" (func $load8 (param i32) (result i32)))
            (import "ashway" "msg_load16le" (func $load16le (param i32) (result i32)))
            (import "ashway" "msg_load16be" (func $load16be (param i32) (result i32)))
            (import "ashway" "msg_load32le" (func $load32le (param i32) (result i32)))
            (import "ashway" "msg_load32be" (func $load32be (param i32) (result i32)))
            (import "ashway" "msg_load64le" (func $load64le (param i32) (result i64)))
            (import "ashway" "msg_load64be" (func $load64be (param i32) (result i64)))
            (import "ashway" "msg_store8" (func $store8 (param i32 i32)))
            (import "ashway" "msg_store16le" (func $store16le (param i32 i32)))
            (import "ashway" "msg_store16be" (func $store16be (param i32 i32)))
            (import "ashway" "msg_store32le" (func $store32le (param i32 i32)))
            (import "ashway" "msg_store32be" (func $store32be (param i32 i32)))
            (import "ashway" "msg_store64le" (func $store64le (param i32 i64)))
            (import "ashway" "msg_store64be" (func $store64be (param i32 i64)))
            (import "ashway" "msg_read" (func $read (param i32 i32 i32)))
            (import "ashway" "msg_write" (func $write (param i32 i32 i32)))
            {}
            {fields})"#,
        if fields.contains("(memory (export") {
            ""
        } else {
            r#"(memory (export "memory") 1 1)"#
        },
    );
    wat::parse_str(&text).unwrap()
}

/// [`file`] whose `on_rx` has this body.
pub(crate) fn handler(body: &str) -> Vec<u8> {
    file(&on_rx(body))
}

pub(crate) fn on_rx(body: &str) -> String {
    format!(
        r#"(func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
            (local $i i32) {body})"#
    )
}

/// An instance over a memory of its own.
pub(crate) fn load(wasm: &[u8]) -> (Instance, Arc<Pages>) {
    try_load(wasm).unwrap()
}

pub(crate) fn try_load(wasm: &[u8]) -> Result<(Instance, Arc<Pages>), InstantiateError> {
    let engine = Engine::new(1).unwrap();
    let module = normalise(wasm, &Limits::default()).unwrap();
    let layout = layout(module.maximum_pages);
    let pages = Pages::new(layout.total_bytes());
    let region: Arc<dyn Region> = pages.clone();
    let instance = Instance::new(&engine, &module, &encode(&module), &region, layout)?;
    Ok((instance, pages))
}

/// Offset of the only operation in the file whose `Debug` form starts so.
pub(crate) fn place(wasm: &[u8], kind: &str) -> FileOffset {
    let module = normalise(wasm, &Limits::default()).unwrap();
    let operations = module.functions.iter().flat_map(|f| &f.code);
    let found: Vec<_> = operations
        .filter(|op| match &op.kind {
            OpKind::Wasm(operator) => format!("{operator:?}").starts_with(kind),
            other => format!("{other:?}").starts_with(kind),
        })
        .map(|op| op.at)
        .collect();
    assert_eq!(found.len(), 1, "{kind} in {:?}", module.functions);
    found[0]
}
