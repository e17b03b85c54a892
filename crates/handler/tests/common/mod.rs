//! A memory and a handler from text, for tests.

#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(dead_code, reason = "each test file uses a part")]

use ashway_abi::Cause;
use ashway_abi::memory::{Layout, STATE_BYTES, WASM_PAGE};
use ashway_codegen::normalise::ir::{FileOffset, OpKind};
use ashway_codegen::normalise::{
    INVOKE_PREFIX, INVOKE_SLOT, Limits, Module, Profile, encode, normalise, normalise_as,
};
use ashway_handler::{Engine, Instance, InstantiateError, Region, Stopped};
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

pub(crate) fn layout_of(module: &Module<'_>) -> Layout {
    Layout {
        state_bytes: module.state_bytes,
        ..layout(module.maximum_pages)
    }
}

/// For a module without stored tables and passive segments.
pub(crate) fn layout(pages: u32) -> Layout {
    Layout::without_endpoint(pages as usize * WASM_PAGE, STATE_BYTES)
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
    let engine = Engine::new().unwrap();
    let module = normalise(wasm, &Limits::default()).unwrap();
    let layout = layout_of(&module);
    let pages = Pages::new(layout.total_bytes());
    let region: Arc<dyn Region> = pages.clone();
    let instance = Instance::new(&engine, &module, &encode(&module), &region, layout)?;
    Ok((instance, pages))
}

/// A module whose exported functions can be called one by one.
pub(crate) struct Library {
    pub(crate) wasm: Vec<u8>,
    instance: Instance,
    /// Name, index, and slots that arguments and results need.
    exports: Vec<(String, u32, usize)>,
    pub(crate) pages: Arc<Pages>,
    pub(crate) layout: Layout,
}

/// Fuel that no test uses up.
const PLENTY: u64 = 1 << 40;

impl Library {
    /// From the fields of a text file.
    pub(crate) fn new(fields: &str) -> Self {
        let wasm = wat::parse_str(format!("(module {fields})")).unwrap();
        let mut module = normalise_as(&wasm, &Limits::default(), Profile::Library).unwrap();
        let mut exports = Vec::new();
        for (name, index) in module.exports.clone() {
            module.add_invoker(index).unwrap();
            let function = &module.functions[index as usize];
            let ty = &module.types[function.type_index as usize];
            let slots = ty.params().len().max(ty.results().len());
            exports.push((name, index, slots));
        }
        let engine = Engine::new().unwrap();
        let layout = layout_of(&module);
        let pages = Pages::new(layout.total_bytes());
        let region: Arc<dyn Region> = pages.clone();
        let encoded = encode(&module);
        let instance = Instance::new(&engine, &module, &encoded, &region, layout).unwrap();
        Self {
            wasm: wasm.clone(),
            instance,
            exports,
            pages,
            layout,
        }
    }

    /// All result slots, or why it stopped.
    pub(crate) fn call(&mut self, name: &str, args: &[u64]) -> Result<Vec<u64>, Stopped> {
        self.call_with(name, args, PLENTY)
    }

    pub(crate) fn call_with(
        &mut self,
        name: &str,
        args: &[u64],
        fuel: u64,
    ) -> Result<Vec<u64>, Stopped> {
        let found = self.exports.iter().find(|(known, ..)| known == name);
        let (_, index, slots) = found.unwrap_or_else(|| panic!("no export {name}"));
        let mut message = vec![0xee; slots * INVOKE_SLOT];
        for (slot, arg) in message.chunks_mut(INVOKE_SLOT).zip(args) {
            slot.copy_from_slice(&arg.to_le_bytes());
        }
        let handler = self.instance.function(&format!("{INVOKE_PREFIX}{index}"));
        let outcome = self
            .instance
            .activate(handler.unwrap(), &mut message, 0, fuel);
        outcome.verdict?;
        let slots = message.chunks(INVOKE_SLOT);
        Ok(slots
            .map(|slot| u64::from_le_bytes(slot.try_into().unwrap()))
            .collect())
    }

    /// The only `i32` result.
    pub(crate) fn number(&mut self, name: &str, args: &[u64]) -> Result<u32, Stopped> {
        self.call(name, args).map(|results| results[0] as u32)
    }

    /// Stops with this cause at the only author's operator of this name.
    #[track_caller]
    pub(crate) fn stops(&mut self, name: &str, args: &[u64], cause: Cause, operator: &str) {
        let at = operator_place(&self.wasm, operator);
        assert_eq!(
            self.call(name, args),
            Err(Stopped { cause, at }),
            "{name} {args:?}"
        );
    }
}

/// Offset of the only operator in the file whose `Debug` form starts so.
#[track_caller]
pub(crate) fn operator_place(wasm: &[u8], name: &str) -> FileOffset {
    let mut found = Vec::new();
    for payload in wasmparser::Parser::new(0).parse_all(wasm) {
        let wasmparser::Payload::CodeSectionEntry(body) = payload.unwrap() else {
            continue;
        };
        for operator in body
            .get_operators_reader()
            .unwrap()
            .into_iter_with_offsets()
        {
            let (operator, at) = operator.unwrap();
            if format!("{operator:?}").starts_with(name) {
                found.push(at as u32);
            }
        }
    }
    assert_eq!(found.len(), 1, "{name}");
    found[0]
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
