//! Modules as a compiler would write them, from random numbers.
//!
//! `wasm-smith` reaches every operator, but its code rarely turns in a loop and
//! keeps little in locals for long. This generator writes statements: nested
//! loops with counters, switches, calls with results, expressions a few levels
//! deep over a dozen locals, accesses at addresses that are mostly inside the
//! memory. It is where a local's register is taken too early or given back too
//! late.

mod body;
mod expression;
mod statement;

use super::random::Random;
use ashway_abi::host_call::{HostCall, MODULE, ValueType};
use body::Body;
use std::borrow::Cow;
use wasm_encoder::{
    CodeSection, ConstExpr, ElementSection, Elements, EntityType, ExportKind, ExportSection,
    FunctionSection, GlobalSection, GlobalType, ImportSection, MemorySection, MemoryType, Module,
    RefType, TableSection, TableType, TypeSection, ValType,
};

/// Mutable globals of each type.
const GLOBALS: u64 = 2;
/// Makes a module; `handler` with messages and `on_rx`, else with all functions
/// exported.
pub(super) fn program(random: &mut Random, handler: bool) -> Vec<u8> {
    let imports = if handler {
        HostCall::message_accesses().count()
    } else {
        0
    } as u32;
    let mut types = TypeSection::new();
    let mut import_section = ImportSection::new();
    if handler {
        for (number, call) in HostCall::message_accesses().enumerate() {
            let (params, result) = call.signature();
            types
                .ty()
                .function(params.iter().copied().map(wasm_type), result.map(wasm_type));
            let ty = EntityType::Function(number as u32);
            import_section.import(MODULE, call.name(), ty);
        }
    }
    let count = 1 + random.below(5) as u32;
    let signatures: Vec<Signature> = (0..count)
        .map(|number| Signature::new(random, handler && number == 0))
        .collect();
    let mut functions = FunctionSection::new();
    let mut exports = ExportSection::new();
    let mut code = CodeSection::new();
    for (number, signature) in (0..).zip(&signatures) {
        let (params, results) = (signature.params.clone(), signature.results.clone());
        types.ty().function(params, results);
        functions.function(imports + number);
        if !handler {
            exports.export(&format!("f{number}"), ExportKind::Func, number);
        }
    }
    if handler {
        exports.export("on_rx", ExportKind::Func, imports);
        exports.export("memory", ExportKind::Memory, 0);
    }
    let recursive = random.once_in(4);
    for number in 0..count {
        let body = Body::new(random, &signatures, number, imports, handler, recursive);
        code.function(&body.finish());
    }

    let mut module = Module::new();
    module.section(&types);
    if handler {
        module.section(&import_section);
    }
    module.section(&functions);
    module.section(&table(count));
    module.section(&memory(random));
    module.section(&globals(random));
    module.section(&exports);
    module.section(&elements(count, imports));
    module.section(&code);
    module.finish()
}

fn wasm_type(ty: ValueType) -> ValType {
    match ty {
        ValueType::I32 => ValType::I32,
        ValueType::I64 => ValType::I64,
    }
}

/// All functions, and one null behind them.
fn table(count: u32) -> TableSection {
    let mut tables = TableSection::new();
    tables.table(TableType {
        element_type: RefType::FUNCREF,
        minimum: u64::from(count) + 1,
        maximum: None,
        table64: false,
        shared: false,
    });
    tables
}

fn elements(count: u32, imports: u32) -> ElementSection {
    let functions: Vec<u32> = (imports..imports + count).collect();
    let mut elements = ElementSection::new();
    let functions = Elements::Functions(Cow::Owned(functions));
    elements.active(None, &ConstExpr::i32_const(0), functions);
    elements
}

fn memory(random: &mut Random) -> MemorySection {
    let mut memories = MemorySection::new();
    memories.memory(MemoryType {
        minimum: 1,
        maximum: Some(1 + random.below(2)),
        memory64: false,
        shared: false,
        page_size_log2: None,
    });
    memories
}

/// The `i32`s first, then the `i64`s.
fn globals(random: &mut Random) -> GlobalSection {
    let mut globals = GlobalSection::new();
    let ty = |val_type| GlobalType {
        val_type,
        mutable: true,
        shared: false,
    };
    for _ in 0..GLOBALS {
        let value = ConstExpr::i32_const(random.number() as i32);
        globals.global(ty(ValType::I32), &value);
    }
    for _ in 0..GLOBALS {
        let value = ConstExpr::i64_const(random.number() as i64);
        globals.global(ty(ValType::I64), &value);
    }
    globals
}

struct Signature {
    params: Vec<ValType>,
    results: Vec<ValType>,
}

impl Signature {
    fn new(random: &mut Random, handler: bool) -> Self {
        if handler {
            return Self {
                params: vec![ValType::I32; 2],
                results: vec![ValType::I32],
            };
        }
        let mut some = |most| {
            (0..random.below(most))
                .map(|_| random.pick(&[ValType::I32, ValType::I64]))
                .collect()
        };
        Self {
            params: some(5),
            results: some(4),
        }
    }
}
