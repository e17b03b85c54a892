//! What becomes of tables, references, passive segments and recursion.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use ashway_abi::memory::{STATE_BYTES, STATE_GLOBALS};
use ashway_codegen::normalise::ir::{OpKind, TablePlace};
use ashway_codegen::normalise::{Limits, Module, Profile, normalise_as};
use common::{check_encoded, function, show};
use wasmparser::{Operator, ValType};

fn library(wasm: &[u8]) -> Module<'_> {
    let module = normalise_as(wasm, &Limits::default(), Profile::Library)
        .unwrap_or_else(|error| panic!("{error}"));
    check_encoded(&module);
    module
}

fn text(fields: &str) -> Vec<u8> {
    wat::parse_str(format!("(module {fields})")).unwrap_or_else(|error| panic!("{error}"))
}

/// Bytes of the state region at first.
fn state(module: &Module<'_>) -> Vec<u8> {
    let mut state = vec![0; module.state_bytes];
    for data in &module.state {
        state[data.at as usize..][..data.bytes.len()].copy_from_slice(&data.bytes);
    }
    state
}

fn word(state: &[u8], at: u32) -> u32 {
    u32::from_le_bytes(state[at as usize..][..4].try_into().unwrap())
}

#[test]
fn nothing_is_left_of_references() {
    let wasm = text(
        r#"(table $t 4 funcref) (table $x 2 externref) (elem $e func $f) (data $d "ab") (memory 1 1)
           (global $g (mut funcref) (ref.null func)) (global $h externref (ref.null extern))
           (func $f (export "f") (param externref funcref) (result funcref externref)
              (local externref)
              (table.set $t (i32.const 0) (table.get $t (i32.const 1)))
              (table.set $x (i32.const 0) (local.get 0))
              (table.copy $t $t (i32.const 0) (i32.const 1) (i32.const 2))
              (table.init $t $e (i32.const 0) (i32.const 0) (i32.const 1))
              (table.fill $x (i32.const 0) (ref.null extern) (table.size $x))
              (drop (table.grow $t (ref.func $f) (i32.const 1)))
              (elem.drop $e)
              (memory.init $d (i32.const 0) (i32.const 0) (i32.const 1)) (data.drop $d)
              (global.set $g (local.get 1))
              (block (result funcref)
                 (select (result funcref) (global.get $g) (local.get 1)
                    (ref.is_null (global.get $h))))
              (local.get 2))"#,
    );
    let module = library(&wasm);
    let number = |ty: &ValType| *ty == ValType::I32;
    for ty in &module.types {
        assert!(ty.params().iter().chain(ty.results()).all(number));
    }
    assert!(module.functions[0].locals.iter().all(number));
    let left = [
        "RefNull",
        "RefIsNull",
        "RefFunc",
        "TableGet",
        "TableSet",
        "TableSize",
        "TableGrow",
        "TableFill",
        "TableCopy",
        "TableInit",
        "ElemDrop",
        "MemoryInit",
        "DataDrop",
        "Ref(",
    ];
    for op in show(&module.functions[0].code) {
        assert!(left.iter().all(|name| !op.contains(name)), "{op}");
    }
    assert_eq!(module.referenced, [0]);
}

#[test]
fn stored_tables_and_segments_have_their_places() {
    let wasm = text(
        r#"(memory 1 1) (global (mut i64) (i64.const 1)) (global (mut i32) (i32.const 1))
           (table $constant 2 funcref) (table $fixed 3 9 funcref) (table $grown 2 5 funcref)
           (table $endless 1 externref)
           (elem (table $constant) (i32.const 0) func $f)
           (elem (table $fixed) (i32.const 1) func $f $g)
           (elem $used func $g $f $g) (elem $unused func $f)
           (data $unused "zz") (data (i32.const 0) "active") (data $kept "hello")
           (data $dropped "again")
           (func $f
              (call_indirect $constant (i32.const 0))
              (call_indirect $fixed (i32.const 0))
              (drop (table.size $fixed))
              (drop (table.grow $grown (ref.null func) (i32.const 1)))
              (drop (table.grow $endless (ref.null extern) (i32.const 1)))
              (table.init $fixed $used (i32.const 0) (i32.const 0) (i32.const 0))
              (memory.init $kept (i32.const 0) (i32.const 0) (i32.const 0))
              (memory.init $dropped (i32.const 0) (i32.const 0) (i32.const 0))
              (data.drop $dropped))
           (func $g)"#,
    );
    let module = library(&wasm);
    let first = STATE_GLOBALS as u32 + 16;
    let place = |size, capacity| TablePlace {
        size,
        entries: size + 4,
        capacity,
    };
    let places: Vec<_> = module.tables.iter().map(|table| table.place).collect();
    let grown = first + 4 + 12;
    let endless = grown + 4 + 20;
    assert_eq!(
        places,
        [
            None,
            Some(place(first, 3)),
            Some(place(grown, 5)),
            Some(place(endless, 10_000)),
        ]
    );
    assert_eq!(module.tables[0].entries, [Some(0), None]);
    let state = state(&module);
    let words = |at: u32, count: u32| -> Vec<u32> {
        (0..count).map(|i| word(&state, at + 4 * i)).collect()
    };
    assert_eq!(words(first, 4), [3, 0, 1, 2]);
    assert_eq!(words(grown, 6), [2, 0, 0, 0, 0, 0]);
    assert_eq!(words(endless, 2), [1, 0]);
    let used = endless + 4 + 40_000;
    assert_eq!(words(used, 3), [2, 1, 2]);
    let kept = used as usize + 12;
    assert_eq!(&state[kept..][..5], b"hello");
    assert_eq!(&state[kept + 8..][..5], b"again");
    assert_eq!(word(&state, kept as u32 + 16), 5);
    assert!(state[kept + 20..].iter().all(|byte| *byte == 0));
    assert_eq!(module.state_bytes, STATE_BYTES);
    assert_eq!(module.data.len(), 1);
    // A constant table is called as it is, a stored one by number.
    let code = &function(&library(&wasm), "f").code.clone();
    let constant = |kind: &OpKind<'_>| {
        matches!(
            kind,
            OpKind::Wasm(Operator::CallIndirect { table_index: 0, .. })
        )
    };
    assert_eq!(code.iter().filter(|op| constant(&op.kind)).count(), 1);
    let by_number = |kind: &OpKind<'_>| matches!(kind, OpKind::CallNumber { .. });
    assert_eq!(code.iter().filter(|op| by_number(&op.kind)).count(), 1);
}

#[test]
fn types_keep_the_identity_that_they_had() {
    let wasm = text(
        r"(type (func (param funcref))) (type (func (param externref)))
           (type (func (param i32))) (type (func (param externref))) (type (func))",
    );
    let module = library(&wasm);
    assert_eq!(module.canonical, [0, 1, 2, 1, 4]);
    assert!(module.types[..4].iter().all(|ty| *ty == module.types[0]));
}

/// In each function, the calls and what stands around them.
fn calls(module: &Module<'_>, name: &str) -> Vec<(String, Option<u32>)> {
    let code = &function(module, name).code;
    let is_call = |kind: &OpKind<'_>| {
        matches!(
            kind,
            OpKind::CallNumber { .. }
                | OpKind::Wasm(Operator::Call { .. } | Operator::CallIndirect { .. })
        )
    };
    let mut found = Vec::new();
    for (position, op) in code.iter().enumerate().filter(|(_, op)| is_call(&op.kind)) {
        let before = position.checked_sub(1).map(|i| &code[i]);
        let pushed = before.and_then(|before| match before.kind {
            OpKind::Push { slots } => {
                assert_eq!(before.at, op.at);
                let behind = &code[position + 1];
                assert!(matches!(behind.kind, OpKind::Pop { slots: s } if s == slots));
                assert_eq!(behind.at, op.at);
                Some(slots)
            }
            _ => None,
        });
        let name = show(std::slice::from_ref(op)).remove(0);
        found.push((name.split(' ').next().unwrap().to_owned(), pushed));
    }
    let marks = code
        .iter()
        .filter(|op| matches!(op.kind, OpKind::Push { .. } | OpKind::Pop { .. }))
        .count();
    let pushed = found.iter().filter(|(_, slots)| slots.is_some()).count();
    assert_eq!(marks, 2 * pushed);
    found
}

#[test]
fn calls_that_can_come_back_take_room_and_others_do_not() {
    let wasm = text(
        r"(type $t (func)) (type $u (func (param i64)))
           (table $constant 2 funcref) (elem (table $constant) (i32.const 0) func $listed $leaf)
           (func $leaf)
           (func $self (param i32 i64) (local f32 i32)
              (call $leaf) (call $self (i32.const 1) (i64.const 2)))
           (func $even (call $odd)) (func $odd (call $even) (call $leaf))
           (func $listed (call $through))
           (func $through (call_indirect $constant (type $t) (i32.const 0))
              (call_indirect $constant (type $u) (i64.const 0) (i32.const 0)))
           (func $root (call $self (i32.const 1) (i64.const 2)) (call $even) (call $through)
              (call_indirect $constant (type $t) (i32.const 0)))",
    );
    let module = library(&wasm);
    let call = |slots| ("Call".to_owned(), slots);
    let indirect = |slots| ("CallIndirect".to_owned(), slots);
    // The return place, two parameters, two locals, two operands.
    assert_eq!(calls(&module, "self"), [call(None), call(Some(7))]);
    assert_eq!(calls(&module, "even"), [call(Some(1))]);
    assert_eq!(calls(&module, "odd"), [call(Some(1)), call(None)]);
    assert_eq!(calls(&module, "listed"), [call(Some(1))]);
    // Nothing in the table has the other type.
    assert_eq!(
        calls(&module, "through"),
        [indirect(Some(3)), indirect(None)]
    );
    let root = [call(None), call(None), call(None), indirect(None)];
    assert_eq!(calls(&module, "root"), root);
}

#[test]
fn through_a_stored_table_every_reference_of_the_type_can_be_called() {
    let wasm = text(
        r"(type $t (func)) (type $u (func (param i64))) (table $t 2 funcref)
           (elem declare func $a $b)
           (func $a (table.set $t (i32.const 0) (ref.func $b))
              (call_indirect $t (type $t) (i32.const 0)))
           (func $b)
           (func $c (call_indirect $t (type $t) (i32.const 0)))
           (func $d (param i64) (call_indirect $t (type $u) (i64.const 1) (i32.const 0)))",
    );
    let module = library(&wasm);
    let call = |slots| ("CallNumber".to_owned(), slots);
    // One for the return place, two operands, none of them kept by the
    // expansion, since the table cannot grow.
    assert_eq!(calls(&module, "a"), [call(Some(3))]);
    assert_eq!(calls(&module, "c"), [call(None)]);
    assert_eq!(calls(&module, "d"), [call(None)]);
}

/// The entry and each loop of whatever runs often, table operators' included.
#[test]
fn every_cycle_passes_a_charge() {
    let wasm = text(
        r#"(table $t 4 funcref) (elem declare func $by_number)
           (func $twice) (func $once) (func $by_number (call $below)) (func $below)
           (func $recursive (call $recursive))
           (func (export "f") (call $twice) (call $twice) (call $once) (call $recursive)
              (table.fill $t (i32.const 0) (ref.func $by_number) (i32.const 4))
              (call_indirect $t (i32.const 0)))"#,
    );
    let module = library(&wasm);
    let charged = ["twice", "once", "by_number", "below", "recursive"]
        .map(|name| matches!(function(&module, name).code[0].kind, OpKind::Charge { .. }));
    assert_eq!(charged, [true, false, true, true, true]);
    for function in &module.functions {
        for pair in function.code.windows(2) {
            if let OpKind::Wasm(Operator::Loop { .. }) = pair[0].kind {
                assert!(matches!(pair[1].kind, OpKind::Charge { cost } if cost > 1));
            }
        }
    }
}
