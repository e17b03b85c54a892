//! The normal form as Wasm, for Wasmtime: the meaning of each pseudo operation.
//!
//! ```text
//! import  ashway.trap (cause: i32, at: i32), never returns
//! memory  0 "memory": the handler's · 1 "message" · 2 "state"
//! global  "fuel" i64 · "message_len" i32 · "dirty" i32
//! func    the author's, under their own names; the start function, if any,
//!         as "_ashway_start", called by the host once fuel is set
//!         for each handler `name` also
//!         "_ashway_enter_name" (len: i32, channel: i32, fuel: i64)
//!                              -> (verdict: i32, dirty: i32, fuel: i64)
//! ```
//!
//! The last kind exists for speed: one call sets the globals, runs the handler
//! and reads the globals, where the host would need six.
//!
//! A table cannot grow (`table.grow` gives -1, as the specification allows).

use super::expand::Expander;
use super::ir::{FileOffset, Global, Module, OpKind, Table};
use ashway_abi::host_call::MODULE;
use std::borrow::Cow;
use wasm_encoder::reencode::Reencode;
use wasm_encoder::{
    CodeSection, ConstExpr, DataCountSection, DataSection, ElementSection, Elements, EntityType,
    ExportKind, ExportSection, Function, FunctionSection, GlobalSection, GlobalType, ImportSection,
    MemorySection, MemoryType, RefType, TableSection, TableType, TypeSection, ValType,
};
use wasmparser::Operator;

/// The export name of the author's start function.
pub const START_EXPORT: &str = "_ashway_start";

/// What stands before a handler's name in the export that sets its globals.
pub const ENTER_PREFIX: &str = "_ashway_enter_";

/// Pages of the message memory and of the state memory.
const ONE_PAGE: u32 = 1;

/// A module for Wasmtime, and the way back to the author's file.
#[derive(Clone, Debug)]
pub struct Encoded {
    /// The module.
    pub wasm: Vec<u8>,
    /// Offset in `wasm` of each operation's first byte, and its
    /// [`Op::at`](super::ir::Op::at); sorted by the first.
    pub offsets: Vec<(u32, FileOffset)>,
    /// Where in the author's file the body of each function of `wasm` begins,
    /// without the import.
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
        self.functions.get(index.checked_sub(1)? as usize).copied()
    }
}

/// Index arithmetic between the author's module and ours: one import stands
/// before the author's functions, everything else keeps its place.
pub(super) struct Shift;

impl Reencode for Shift {
    type Error = std::convert::Infallible;

    fn function_index(
        &mut self,
        function: u32,
    ) -> Result<u32, wasm_encoder::reencode::Error<Self::Error>> {
        Ok(function + 1)
    }
}

/// Writes the module. Costs time and memory in proportion to it.
#[must_use]
pub fn encode(module: &Module<'_>) -> Encoded {
    let mut out = wasm_encoder::Module::new();
    let trap_type = module.types.len() as u32;
    out.section(&types(module));

    let mut imports = ImportSection::new();
    imports.import(MODULE, "trap", EntityType::Function(trap_type));
    out.section(&imports);

    let mut functions = FunctionSection::new();
    for function in &module.functions {
        functions.function(function.type_index);
    }
    for _ in handlers(module) {
        functions.function(trap_type + 1);
    }
    out.section(&functions);
    out.section(&tables(module));
    out.section(&memories(module));
    out.section(&globals());
    out.section(&exports(module));
    out.section(&elements(module));
    out.section(&DataCountSection {
        count: module.data.len() as u32,
    });

    let before = out.len() as u32;
    let (code, mut offsets) = bodies(module);
    out.section(&code);
    // The section's id and size stand before its contents.
    let contents = before + 1 + leb_len(code.byte_len() as u32 + leb_len(code.len()));
    for (offset, _) in &mut offsets {
        *offset += contents + leb_len(code.len());
    }
    out.section(&data(module));
    let entered = handlers(module).map(|(_, function)| *function as usize);
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

/// The bodies, and operations' offsets from the first body on.
fn bodies(module: &Module<'_>) -> (CodeSection, Vec<(u32, FileOffset)>) {
    let mut section = CodeSection::new();
    let mut offsets = Vec::new();
    for function in &module.functions {
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
        for op in &function.code {
            own.push((expander.byte_len() as u32, op.at));
            match &op.kind {
                OpKind::Wasm(Operator::GlobalGet { global_index }) => {
                    expander.constant(&module.globals[*global_index as usize]);
                }
                kind => expander.op(kind, op.at),
            }
        }
        let before = section.byte_len() as u32;
        let start = before + leb_len(body.byte_len() as u32);
        // A stack overflow happens before the first operation.
        offsets.push((before, function.at));
        offsets.extend(own.iter().map(|(offset, at)| (start + offset, *at)));
        section.function(&body);
    }
    for (_, function) in handlers(module) {
        let at = module.functions[*function as usize].at;
        offsets.push((section.byte_len() as u32, at));
        section.function(&super::expand::enter(*function + 1));
    }
    (section, offsets)
}

/// Exports of handler type.
fn handlers<'m>(module: &'m Module<'_>) -> impl Iterator<Item = &'m (String, u32)> {
    module.exports.iter().filter(|(_, function)| {
        let type_index = module.functions[*function as usize].type_index;
        super::imports::is_handler(&module.types[type_index as usize])
    })
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
    section.ty().function([i32, i32], []);
    section.ty().function([i32, i32, i64], [i32, i32, i64]);
    section
}

fn tables(module: &Module<'_>) -> TableSection {
    let mut section = TableSection::new();
    for Table { entries, .. } in &module.tables {
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
    for (minimum, maximum) in [author, (ONE_PAGE, ONE_PAGE), (ONE_PAGE, ONE_PAGE)] {
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

fn globals() -> GlobalSection {
    let mut section = GlobalSection::new();
    let mutable = |val_type| GlobalType {
        val_type,
        mutable: true,
        shared: false,
    };
    section.global(mutable(ValType::I64), &ConstExpr::i64_const(0));
    section.global(mutable(ValType::I32), &ConstExpr::i32_const(0));
    section.global(mutable(ValType::I32), &ConstExpr::i32_const(0));
    section
}

fn exports(module: &Module<'_>) -> ExportSection {
    let mut section = ExportSection::new();
    section.export("memory", ExportKind::Memory, 0);
    section.export("message", ExportKind::Memory, 1);
    section.export("state", ExportKind::Memory, 2);
    section.export("fuel", ExportKind::Global, super::expand::FUEL);
    section.export(
        "message_len",
        ExportKind::Global,
        super::expand::MESSAGE_LEN,
    );
    section.export("dirty", ExportKind::Global, super::expand::DIRTY);
    for (name, function) in &module.exports {
        section.export(name, ExportKind::Func, function + 1);
    }
    for (position, (name, _)) in handlers(module).enumerate() {
        let function = 1 + module.functions.len() + position;
        let name = format!("{ENTER_PREFIX}{name}");
        section.export(&name, ExportKind::Func, function as u32);
    }
    if let Some(start) = module.start {
        section.export(START_EXPORT, ExportKind::Func, start + 1);
    }
    section
}

/// The author's segments at their own indices, then the tables' contents, then
/// a declaration of every function that is named by `ref.func`.
fn elements(module: &Module<'_>) -> ElementSection {
    let mut section = ElementSection::new();
    for element in &module.elements {
        section.passive(items(&element.items));
    }
    for (number, table) in module.tables.iter().enumerate() {
        if table.entries.iter().any(Option::is_some) {
            let start = ConstExpr::i32_const(0);
            section.active(Some(number as u32), &start, items(&table.entries));
        }
    }
    let operators = module.functions.iter().flat_map(|f| &f.code);
    let mut named: Vec<u32> = operators
        .filter_map(|op| match op.kind {
            OpKind::Wasm(Operator::RefFunc { function_index }) => Some(function_index + 1),
            _ => None,
        })
        .collect();
    named.sort_unstable();
    named.dedup();
    section.declared(Elements::Functions(Cow::Owned(named)));
    section
}

fn items(items: &[Option<u32>]) -> Elements<'static> {
    let expressions = items.iter().map(|item| match item {
        Some(function) => ConstExpr::ref_func(function + 1),
        None => ConstExpr::ref_null(wasm_encoder::HeapType::FUNC),
    });
    Elements::Expressions(RefType::FUNCREF, Cow::Owned(expressions.collect()))
}

fn data(module: &Module<'_>) -> DataSection {
    let mut section = DataSection::new();
    for data in &module.data {
        let bytes = data.bytes.iter().copied();
        match data.offset {
            Some(offset) => section.active(0, &ConstExpr::i32_const(offset as i32), bytes),
            None => section.passive(bytes),
        };
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
