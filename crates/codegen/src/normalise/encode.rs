//! The normal form as Wasm, for Wasmtime: the meaning of each pseudo operation.
//!
//! ```text
//! import  ashway.trap (cause: i32, at: i32), returns only with fuel
//!         ashway.now () -> i64 (`host.rs`)
//! memory  0 "_ashway_memory": the handler's · 1 "_ashway_messages" · 2 "_ashway_state"
//!         · 3, if it uses it, the outbox
//! global  "_ashway_fuel" i64 · "_ashway_message_len" i32 · "_ashway_dirty" i32
//!         · slots of the call stack in use, i32 · bytes before the message, i32
//!         · where the message is in its memory, i32
//!         · if it resizes messages, how long they can be, i32
//! func    the author's, under their own names; the start function, if any,
//!         as "_ashway_start", called by the host once fuel is set
//!         for each handler `name` also
//!         "_ashway_enter_name" (len: i32, channel: i32, fuel: i64, front: i32, at: i32)
//!                              -> (verdict: i32, dirty: i32, fuel: i64)
//! ```
//!
//! A message lies where the host says, in a memory that has all messages of the process;
//! before it are as many bytes of headers as there are. What keeps a handler to its own is
//! the check before each access (`message.rs`), not the end of that memory.
//!
//! The last kind exists for speed: one call sets the globals, runs the handler
//! and reads the globals, where the host would need six.
//!
//! A section `metadata.code.branch_hint` (WebAssembly's branch hinting) names each
//! branch to a trap and to the host.
//!
//! Tables hold what `call_indirect` needs: the author's constant tables at
//! their own indices, then the functions by number, then tables for single
//! types where types look alike (`identity.rs`). A stored table's place among
//! them is empty.

use super::expand::Expander;
use super::host::HOST;
use super::identity::{CallTables, indirect};
use super::ir::{FileOffset, Global, Module, OpKind};
use ashway_abi::host_call::MODULE;
use ashway_abi::memory::{MESSAGES_BYTES, WASM_PAGE};
use ashway_abi::outbox;
use std::borrow::Cow;
use wasm_encoder::reencode::Reencode;
use wasm_encoder::{
    BranchHint, BranchHints, CodeSection, ConstExpr, DataSection, ElementSection, Elements,
    EntityType, ExportKind, ExportSection, Function, FunctionSection, GlobalSection, GlobalType,
    ImportSection, MemorySection, MemoryType, RefType, TableSection, TableType, TypeSection,
    ValType,
};
use wasmparser::Operator;

/// The export name of the author's start function.
pub const START_EXPORT: &str = "_ashway_start";

/// What stands before a handler's name in the export that sets its globals.
pub const ENTER_PREFIX: &str = "_ashway_enter_";

/// A module for Wasmtime, and the way back to the author's file.
#[derive(Clone, Debug)]
pub struct Encoded {
    /// The module.
    pub wasm: Vec<u8>,
    /// Offset in `wasm` of each operation's first byte, and its
    /// [`Op::at`](super::ir::Op::at); sorted by the first.
    pub offsets: Vec<(u32, FileOffset)>,
    /// Where in the author's file the body of each function of `wasm` begins,
    /// without the imports.
    pub functions: Vec<FileOffset>,
}

impl Encoded {
    /// Where in the author's file the instruction at this offset of `wasm`
    /// comes from.
    #[must_use]
    pub fn author_offset(&self, encoded: u32) -> Option<FileOffset> {
        let after = self
            .offsets
            .partition_point(|(offset, _)| *offset <= encoded);
        Some(self.offsets[after.checked_sub(1)?].1)
    }

    /// Where in the author's file the function with this index in `wasm` is.
    #[must_use]
    pub fn function_offset(&self, index: u32) -> Option<FileOffset> {
        let own = (index as usize).checked_sub(HOST.len())?;
        self.functions.get(own).copied()
    }
}

/// Index arithmetic between the author's module and ours: the host's functions
/// stand before the author's, everything else keeps its place.
pub(super) struct Shift;

impl Reencode for Shift {
    type Error = std::convert::Infallible;

    fn function_index(
        &mut self,
        function: u32,
    ) -> Result<u32, wasm_encoder::reencode::Error<Self::Error>> {
        Ok(shifted(function))
    }
}

/// Our index of the author's function.
const fn shifted(function: u32) -> u32 {
    function + HOST.len() as u32
}

/// Writes the module. Costs time and memory in proportion to it.
#[must_use]
pub fn encode(module: &Module<'_>) -> Encoded {
    let mut out = wasm_encoder::Module::new();
    let host_types = module.types.len() as u32;
    let calls = CallTables::new(module);
    let contents = table_contents(module, &calls);
    out.section(&types(module));

    let mut imports = ImportSection::new();
    for ((name, ..), number) in HOST.iter().zip(host_types..) {
        imports.import(MODULE, name, EntityType::Function(number));
    }
    out.section(&imports);

    let mut functions = FunctionSection::new();
    for function in &module.functions {
        functions.function(function.type_index);
    }
    for _ in module.handlers() {
        functions.function(host_types + HOST.len() as u32);
    }
    out.section(&functions);
    out.section(&tables(&contents));
    out.section(&memories(module));
    out.section(&globals(module));
    out.section(&exports(module));
    out.section(&elements(&contents));

    let (code, mut offsets, hints) = bodies(module, &calls);
    out.section(&hints);
    let before = out.len() as u32;
    out.section(&code);
    // The section's id and size stand before its contents.
    let start = before + 1 + leb_len(code.byte_len() as u32 + leb_len(code.len()));
    for (offset, _) in &mut offsets {
        *offset += start + leb_len(code.len());
    }
    out.section(&data(module));
    let entered = module.handlers().map(|(_, function)| function as usize);
    let functions = (0..module.functions.len()).chain(entered);
    Encoded {
        wasm: out.finish(),
        offsets,
        functions: functions.map(|index| module.functions[index].at).collect(),
    }
}

/// Bytes of an unsigned LEB128 number.
fn leb_len(number: u32) -> u32 {
    (32 - (number | 1).leading_zeros()).div_ceil(7)
}

/// The bodies, operations' offsets from the first body on, and which branches are
/// hardly ever taken: to an end or to the host, for more fuel.
fn bodies(
    module: &Module<'_>,
    calls: &CallTables,
) -> (CodeSection, Vec<(u32, FileOffset)>, BranchHints) {
    let mut section = CodeSection::new();
    let mut hints = BranchHints::new();
    let mut offsets = Vec::new();
    for (index, function) in (0..).zip(&module.functions) {
        let params = module.types[function.type_index as usize].params().len();
        let first_temporary = (params + function.locals.len()) as u32;
        let locals = function.locals.iter().map(|ty| {
            Shift
                .val_type(*ty)
                .expect("converting a type that WebAssembly 2.0 has cannot fail")
        });
        let locals = locals.chain(Expander::TEMPORARIES);
        let mut body = Function::new_with_locals_types(locals);
        let mut own = Vec::with_capacity(function.code.len());
        let mut expander = Expander::new(&mut body, first_temporary);
        expander.stacks = module.stacks();
        for op in &function.code {
            own.push((expander.byte_len() as u32, op.at));
            match &op.kind {
                OpKind::Wasm(Operator::GlobalGet { global_index }) => {
                    expander.constant(&module.globals[*global_index as usize]);
                }
                kind if let Some((source, type_index)) = indirect(kind) => {
                    let table = calls.table(module, source, type_index);
                    expander.ins().call_indirect(table, type_index);
                }
                kind => expander.op(kind, op.at),
            }
            expander.done(&op.kind);
        }
        let unlikely = expander.unlikely.iter().map(|at| BranchHint {
            branch_func_offset: *at,
            branch_hint_value: 0,
        });
        if unlikely.len() > 0 {
            hints.function_hints(shifted(index), unlikely);
        }
        let before = section.byte_len() as u32;
        let start = before + leb_len(body.byte_len() as u32);
        // A stack overflow happens before the first operation.
        offsets.push((before, function.at));
        offsets.extend(own.iter().map(|(offset, at)| (start + offset, *at)));
        section.function(&body);
    }
    for (_, function) in module.handlers() {
        let at = module.functions[function as usize].at;
        offsets.push((section.byte_len() as u32, at));
        let grows = module.resizes().then_some(module.grows);
        let enter = super::expand::enter(shifted(function), grows, module.stacks());
        section.function(&enter);
    }
    (section, offsets, hints)
}

fn types(module: &Module<'_>) -> TypeSection {
    let mut section = TypeSection::new();
    for ty in &module.types {
        let ty = Shift.func_type(ty.clone());
        section
            .ty()
            .func_type(&ty.expect("converting a type that WebAssembly 2.0 has cannot fail"));
    }
    let (i32, i64) = (ValType::I32, ValType::I64);
    for (_, params, results) in HOST {
        let (params, results) = (params.iter().copied(), results.iter().copied());
        section.ty().function(params, results);
    }
    section
        .ty()
        .function([i32, i32, i64, i32, i32], [i32, i32, i64]);
    section
}

/// What each table of the encoded module holds.
fn table_contents(module: &Module<'_>, calls: &CallTables) -> Vec<Vec<Option<u32>>> {
    let own = module.tables.iter().map(|table| match table.place {
        None => table.entries.clone(),
        Some(_) => Vec::new(),
    });
    own.chain(calls.contents(module)).collect()
}

fn tables(contents: &[Vec<Option<u32>>]) -> TableSection {
    let mut section = TableSection::new();
    for entries in contents {
        section.table(TableType {
            element_type: RefType::FUNCREF,
            table64: false,
            minimum: entries.len() as u64,
            maximum: Some(entries.len() as u64),
            shared: false,
        });
    }
    section
}

fn memories(module: &Module<'_>) -> MemorySection {
    let mut section = MemorySection::new();
    let author = (module.initial_pages, module.maximum_pages);
    let fixed = |bytes: usize| ((bytes / WASM_PAGE) as u32, (bytes / WASM_PAGE) as u32);
    let outbox = module.uses_outbox().then(|| fixed(outbox::BYTES));
    let memories = [author, fixed(MESSAGES_BYTES), fixed(module.state_bytes)];
    for (minimum, maximum) in memories.into_iter().chain(outbox) {
        section.memory(MemoryType {
            minimum: u64::from(minimum),
            maximum: Some(u64::from(maximum)),
            memory64: false,
            shared: false,
            page_size_log2: None,
        });
    }
    section
}

fn globals(module: &Module<'_>) -> GlobalSection {
    let mut section = GlobalSection::new();
    let mutable = |val_type| GlobalType {
        val_type,
        mutable: true,
        shared: false,
    };
    section.global(mutable(ValType::I64), &ConstExpr::i64_const(0));
    for _ in [
        super::expand::MESSAGE_LEN,
        super::expand::DIRTY,
        super::expand::STACK,
        super::expand::MESSAGE_FRONT,
        super::expand::MESSAGE_AT,
    ] {
        section.global(mutable(ValType::I32), &ConstExpr::i32_const(0));
    }
    if module.resizes() {
        section.global(mutable(ValType::I32), &ConstExpr::i32_const(0));
    }
    section
}

fn exports(module: &Module<'_>) -> ExportSection {
    let mut section = ExportSection::new();
    section.export("_ashway_memory", ExportKind::Memory, 0);
    section.export("_ashway_state", ExportKind::Memory, 2);
    section.export("_ashway_fuel", ExportKind::Global, super::expand::FUEL);
    section.export(
        "_ashway_message_len",
        ExportKind::Global,
        super::expand::MESSAGE_LEN,
    );
    section.export("_ashway_dirty", ExportKind::Global, super::expand::DIRTY);
    for (name, function) in &module.exports {
        section.export(name, ExportKind::Func, shifted(*function));
    }
    for (position, (name, _)) in module.handlers().enumerate() {
        let function = HOST.len() + module.functions.len() + position;
        let name = format!("{ENTER_PREFIX}{name}");
        section.export(&name, ExportKind::Func, function as u32);
    }
    if let Some(start) = module.start {
        section.export(START_EXPORT, ExportKind::Func, shifted(start));
    }
    section
}

/// The tables' contents.
fn elements(contents: &[Vec<Option<u32>>]) -> ElementSection {
    let mut section = ElementSection::new();
    for (number, entries) in contents.iter().enumerate() {
        if entries.iter().any(Option::is_some) {
            let start = ConstExpr::i32_const(0);
            section.active(Some(number as u32), &start, items(entries));
        }
    }
    section
}

fn items(items: &[Option<u32>]) -> Elements<'static> {
    let expressions = items.iter().map(|item| match item {
        Some(function) => ConstExpr::ref_func(shifted(*function)),
        None => ConstExpr::ref_null(wasm_encoder::HeapType::FUNC),
    });
    Elements::Expressions(RefType::FUNCREF, Cow::Owned(expressions.collect()))
}

fn data(module: &Module<'_>) -> DataSection {
    let mut section = DataSection::new();
    for data in &module.data {
        let bytes = data.bytes.iter().copied();
        section.active(0, &ConstExpr::i32_const(data.offset as i32), bytes);
    }
    section
}

/// Only constants are left as globals of the author.
pub(super) fn constant_of(global: &Global) -> super::ir::Constant {
    match global {
        Global::Constant(constant) => *constant,
        Global::State { .. } => unreachable!("`global.get` of a mutable global became `StateGet`"),
    }
}
