//! Modules from text, and a look into encoded ones.

#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(dead_code, reason = "each test file uses a part")]

use ashway_codegen::normalise::ir::{Function, Op, OpKind};
use ashway_codegen::normalise::{Limits, Module, encode, normalise};
use wasmparser::{Operator, Parser, Payload, Validator, WasmFeatures};

/// All host calls, by short names.
pub(crate) const IMPORTS: &str = r#"
    (import "ashway" "msg_load8" (func $load8 (param i32) (result i32)))
    (import "ashway" "msg_load16be" (func $load16be (param i32) (result i32)))
    (import "ashway" "msg_load32be" (func $load32be (param i32) (result i32)))
    (import "ashway" "msg_load64le" (func $load64le (param i32) (result i64)))
    (import "ashway" "msg_store8" (func $store8 (param i32 i32)))
    (import "ashway" "msg_store32be" (func $store32be (param i32 i32)))
    (import "ashway" "msg_store64be" (func $store64be (param i32 i64)))
    (import "ashway" "msg_read" (func $read (param i32 i32 i32)))
    (import "ashway" "msg_write" (func $write (param i32 i32 i32)))"#;

/// A file with these fields, the host calls they use, and a memory of one page
/// unless they bring their own.
pub(crate) fn parse(fields: &str) -> Vec<u8> {
    let own_memory = fields.contains("memory (export") || fields.contains("(memory ");
    let memory = if own_memory {
        ""
    } else {
        r#"(memory (export "memory") 1 1)"#
    };
    let imports: String = IMPORTS
        .lines()
        .filter(|line| {
            let name = line.split_whitespace().find(|word| word.starts_with('$'));
            name.is_some_and(|name| {
                fields.contains(&format!("{name} ")) || fields.contains(&format!("{name})"))
            })
        })
        .collect();
    let text = format!("(module {imports} {fields} {memory})");
    wat::parse_str(&text).unwrap_or_else(|error| panic!("{error}"))
}

/// `on_rx` with this body and an `i32` local `$i`.
pub(crate) fn on_rx(body: &str) -> String {
    format!(r#"(func $on_rx (export "on_rx") (param i32 i32) (result i32) (local $i i32) {body})"#)
}

pub(crate) fn module(wasm: &[u8]) -> Module<'_> {
    normalise(wasm, &Limits::default()).unwrap_or_else(|error| panic!("{error}"))
}

pub(crate) fn function<'m, 'a>(module: &'m Module<'a>, name: &str) -> &'m Function<'a> {
    let found = module
        .functions
        .iter()
        .find(|f| f.name.as_deref() == Some(name));
    found.unwrap_or_else(|| panic!("no function {name}"))
}

/// Operations in `Debug` form, the outer `Wasm(..)` left out.
pub(crate) fn show(code: &[Op<'_>]) -> Vec<String> {
    code.iter()
        .map(|op| match &op.kind {
            OpKind::Wasm(operator) => format!("{operator:?}"),
            other => format!("{other:?}"),
        })
        .collect()
}

/// The encoded module must be valid.
pub(crate) fn check_encoded(module: &Module<'_>) {
    let features = WasmFeatures::WASM2 | WasmFeatures::MULTI_MEMORY | WasmFeatures::THREADS;
    let wasm = encode(module).wasm;
    let result = Validator::new_with_features(features).validate_all(&wasm);
    result.unwrap_or_else(|error| panic!("{error}"));
}

/// All operators of a file with their offsets.
pub(crate) fn operators(wasm: &[u8]) -> Vec<(u32, String)> {
    let mut found = Vec::new();
    for_each_operator(wasm, |offset, operator| {
        found.push((offset, format!("{operator:?}")));
    });
    found
}

/// Calls inside loops: the function, and the operator that follows.
pub(crate) fn calls_in_loops(wasm: &[u8]) -> Vec<(u32, String)> {
    let mut found = Vec::new();
    let mut open = Vec::new();
    let mut call = None;
    for_each_operator(wasm, |_, operator| {
        if let Some(function) = call.take() {
            found.push((function, format!("{operator:?}")));
        }
        match operator {
            Operator::Block { .. } | Operator::If { .. } => open.push(false),
            Operator::Loop { .. } => open.push(true),
            Operator::End => drop(open.pop()),
            Operator::Call { function_index } if open.contains(&true) => {
                call = Some(*function_index);
            }
            _ => {}
        }
    });
    found
}

pub(crate) fn for_each_operator(wasm: &[u8], mut each: impl FnMut(u32, &Operator<'_>)) {
    for payload in Parser::new(0).parse_all(wasm) {
        if let Payload::CodeSectionEntry(body) = payload.unwrap() {
            for operator in body
                .get_operators_reader()
                .unwrap()
                .into_iter_with_offsets()
            {
                let (operator, offset) = operator.unwrap();
                each(offset as u32, &operator);
            }
        }
    }
}
