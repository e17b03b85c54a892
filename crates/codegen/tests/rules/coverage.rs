//! No operator is accepted without a rule.
//!
//! Goes over every operator that `wasmparser` knows. One that stands in no
//! table here, and is no matter of structure, must be refused by name.

use super::access::ACCESSES;
use super::atomic::atomics;
use super::table::rules;
use ashway_abi::{Budget, MemoryKind};
use ashway_codegen::normalise::Module;
use ashway_codegen::normalise::ir::{Function, Op, OpKind};
use ashway_codegen::promote::{PromoteError, Shape};
use ashway_codegen::stub;
use std::collections::BTreeSet;
use wasmparser::{FuncType, Operator, ValType};

/// Operators that compute nothing, or nothing on numbers alone. What they do
/// is tested by the files of `tests/promote/` and by the spec tests; their
/// refusals when their types are refused, below.
const STRUCTURE: [&str; 28] = [
    "unreachable",
    "nop",
    "block",
    "loop",
    "if",
    "else",
    "end",
    "br",
    "br_if",
    "br_table",
    "return",
    "call",
    "call_indirect",
    "drop",
    "select",
    "typed_select",
    "local_get",
    "local_set",
    "local_tee",
    "global_get",
    "i32_const",
    "i64_const",
    "memory_size",
    "memory_grow",
    "memory_copy",
    "memory_fill",
    "atomic_fence",
    "try_table",
];

/// An immediate, if one can be made up.
trait Sample: Sized {
    fn sample() -> Option<Self>;
}

macro_rules! samples {
    ($($ty:ty = $value:expr;)*) => {
        $(impl Sample for $ty {
            fn sample() -> Option<Self> {
                $value
            }
        })*
    };
}

samples! {
    u8 = Some(0);
    u32 = Some(0);
    i32 = Some(0);
    i64 = Some(0);
    [u8; 16] = Some([0; 16]);
    Vec<ValType> = Some(vec![ValType::I32]);
    ValType = Some(ValType::I32);
    wasmparser::BlockType = Some(wasmparser::BlockType::Empty);
    wasmparser::HeapType = Some(wasmparser::HeapType::FUNC);
    wasmparser::RefType = Some(wasmparser::RefType::FUNCREF);
    wasmparser::Ieee32 = Some(0.0.into());
    wasmparser::Ieee64 = Some(0.0.into());
    wasmparser::V128 = Some(0_i128.into());
    wasmparser::Ordering = Some(wasmparser::Ordering::SeqCst);
    // Nothing outside the parser can make these.
    wasmparser::BrTable<'_> = None;
    wasmparser::TryTable = None;
    wasmparser::ResumeTable = Some(wasmparser::ResumeTable { handlers: Vec::new() });
    wasmparser::MemArg = Some(wasmparser::MemArg {
        align: 0,
        max_align: 3,
        offset: 0,
        target: wasmparser::MemArgTarget::Memory(0),
        ordering: None,
    });
}

/// Every operator by its visitor's name, with made-up immediates; `None` where
/// they cannot be made.
fn operators<'a>() -> Vec<(&'static str, Option<Operator<'a>>)> {
    let mut operators = Vec::new();
    macro_rules! list {
        ($(@$proposal:ident $op:ident $({ $($arg:ident: $ty:ty),* })? => $visit:ident ($($ann:tt)*))*) => {
            $(
                let sample = || Some(Operator::$op $({ $($arg: <$ty>::sample()?),* })?);
                operators.push((stringify!($visit), sample()));
            )*
        };
    }
    wasmparser::for_each_operator!(list);
    operators
}

/// The name in the text format, as far as the tables go: `visit_i32_div_s` is
/// `i32_div_s` there too, with dots for some of the lines.
fn underlined(name: &str) -> String {
    name.replace('.', "_")
}

/// Translates the operator behind as many operands as any takes.
fn translate(operator: Operator<'static>) -> Result<(), PromoteError> {
    let number = || OpKind::Wasm(Operator::I32Const { value: 0 });
    let mut code: Vec<OpKind<'_>> = (0..8).map(|_| number()).collect();
    code.extend([
        OpKind::Wasm(operator),
        number(),
        OpKind::Wasm(Operator::End),
    ]);
    let code = code.into_iter().map(|kind| Op { kind, at: 0 });
    let module = Module {
        types: vec![FuncType::new([ValType::I32; 2], [ValType::I32])],
        functions: vec![Function {
            name: None,
            type_index: 0,
            locals: Vec::new(),
            code: code.collect(),
            at: 0,
        }],
        initial_pages: 1,
        maximum_pages: 1,
        state_bytes: 65_536,
        canonical: vec![0],
        ..Module::default()
    };
    let shape = Shape {
        module: &module,
        entry: 0,
        memory: MemoryKind::Arena,
        layout: stub::layout(&module),
        budget: Budget {
            fuel: 1,
            slice: 1,
            ns: 1,
        },
        locals_in_memory: false,
        checks: ashway_codegen::promote::Checks::default(),
    };
    stub::generate(&shape, 1).map(|_| ())
}

/// Names of all tables.
fn with_rules() -> BTreeSet<String> {
    let integers = rules().into_iter().map(|rule| underlined(&rule.name));
    let accesses = ACCESSES.iter().map(|access| underlined(access.name));
    let atomics = atomics().into_iter().map(|atomic| underlined(&atomic.name));
    integers.chain(accesses).chain(atomics).collect()
}

#[test]
fn what_has_no_rule_is_refused() {
    let with_rules = with_rules();
    let mut refused = 0;
    for (visitor, operator) in operators() {
        let name = visitor.strip_prefix("visit_").unwrap();
        if with_rules.contains(name) || STRUCTURE.contains(&name) {
            continue;
        }
        let operator = operator.unwrap_or_else(|| panic!("`{name}` is in no table"));
        let found = translate(operator);
        assert!(
            matches!(found, Err(PromoteError::NoCounterpart { .. })),
            "`{name}` has no rule in tests/rules/, but promotion says {found:?}"
        );
        refused += 1;
    }
    // Floating point alone has more than a hundred.
    assert!(refused > 400, "{refused}");
}

#[test]
fn every_rule_is_one_of_an_operator_that_is_accepted() {
    let operators = operators();
    for name in with_rules() {
        let operator = operators
            .iter()
            .find(|(visitor, _)| visitor.strip_prefix("visit_") == Some(&name));
        let (_, operator) = operator.unwrap_or_else(|| panic!("there is no operator `{name}`"));
        let found = translate(operator.clone().unwrap());
        assert_eq!(found, Ok(()), "{name}");
    }
}
