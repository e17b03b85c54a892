//! What the normaliser makes of a module, and what it refuses.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use ashway_abi::memory::STATE_GLOBALS;
use ashway_codegen::normalise::ir::{Op, OpKind};
use ashway_codegen::normalise::{Limits, Module, NormaliseError, encode, normalise, static_bound};
use ashway_rig::skip::skip_part;
use common::{IMPORTS, check_encoded, for_each_operator, function, module, on_rx, parse, show};
use std::fmt::Write;
use wasmparser::{MemArgTarget, Operator as O};

fn code(text: &str) -> Vec<String> {
    let wasm = parse(text);
    let module = module(&wasm);
    check_encoded(&module);
    let (_, index) = *module
        .exports
        .iter()
        .find(|(name, _)| name == "on_rx")
        .unwrap();
    show(&module.functions[index as usize].code)
}

/// The charge at the start of the function with this name.
fn entry_charge(module: &Module<'_>, name: &str) -> Option<u32> {
    match function(module, name).code[0].kind {
        OpKind::Charge { cost } => Some(cost),
        _ => None,
    }
}

#[test]
fn message_access_stays_in_place_as_one_operation() {
    let code = code(&on_rx(
        "(call $store32be (i32.const 0) (call $load32be (i32.const 4))) (i32.const 1)",
    ));
    assert_eq!(
        code,
        [
            "I32Const { value: 0 }",
            "I32Const { value: 4 }",
            "Host(Load32Be)",
            "Host(Store32Be)",
            "I32Const { value: 1 }",
            "End",
        ]
    );
}

#[test]
fn no_processor_guesses_an_address_beyond_the_message() {
    let calls = [
        ("(drop (call $load8 (local.get 0)))", 1),
        ("(drop (call $load32be (local.get 0)))", 1),
        ("(call $store32be (local.get 0) (i32.const 1))", 1),
        ("(call $read (local.get 0) (i32.const 8) (local.get 1))", 2),
        ("(call $write (local.get 0) (i32.const 8) (local.get 1))", 2),
        (
            "(call $read (local.get 0) (i32.const 8) (i32.const 512))",
            1,
        ),
        (
            "(call $write (local.get 0) (i32.const 8) (i32.const 513))",
            2,
        ),
    ];
    for (call, chosen) in calls {
        let wasm = parse(&on_rx(&format!("{call} (i32.const 1)")));
        let encoded = encode(&module(&wasm)).wasm;
        let (mut selects, mut accesses) = (0, 0);
        for_each_operator(&encoded, |_, operator| {
            accesses += usize::from(match operator {
                // What begins behind a branch, nothing has chosen.
                O::If { .. } => {
                    selects = 0;
                    false
                }
                O::Select => {
                    selects += 1;
                    false
                }
                O::I32Load8U { memarg } | O::I32Load { memarg } | O::I32Store { memarg } => {
                    memarg.target == MemArgTarget::Memory(1)
                }
                O::MemoryCopy { dst_mem, src_mem } => [dst_mem, src_mem].contains(&&1),
                _ => false,
            });
            if accesses == 1 {
                assert_eq!(selects, chosen, "{call}");
                accesses += 1;
            }
        });
        assert_eq!(accesses, 2, "{call}");
    }
}

#[test]
fn bulk_operations_are_charged_by_length() {
    let text = on_rx(
        "(call $read (i32.const 0) (i32.const 8) (local.get 0))
         (memory.fill (i32.const 0) (i32.const 8) (local.get 0)) (i32.const 1)",
    );
    let code = code(&text);
    let bulk: Vec<_> = code
        .iter()
        .enumerate()
        .filter(|(_, op)| *op == "ChargeBulk")
        .collect();
    assert_eq!(bulk.len(), 2);
    assert_eq!(code[bulk[0].0 + 1], "Host(Read)");
    assert_eq!(code[bulk[1].0 + 1], "MemoryFill { mem: 0 }");
}

#[test]
fn mutable_globals_move_to_the_state_region_and_constants_stay() {
    let wasm = parse(&format!(
        r#"(global $a (mut i32) (i32.const 7)) (global $k (export "shared") i32 (i32.const 1024))
           (global $b (mut i64) (i64.const -1)) (global $f f32 (f32.const 1.5)) {}"#,
        on_rx(
            "(global.set $a (global.get $k)) (global.set $b (i64.const 1))
             (drop (global.get $f)) (global.get $a)"
        )
    ));
    let module = module(&wasm);
    check_encoded(&module);
    assert_eq!(module.symbols, [("shared".to_owned(), 1024)]);
    let code = show(&function(&module, "on_rx").code);
    let (a, b) = (STATE_GLOBALS, STATE_GLOBALS + 8);
    assert_eq!(
        code,
        [
            "GlobalGet { global_index: 1 }",
            &format!("StateSet {{ offset: {a}, ty: I32 }}"),
            "I64Const { value: 1 }",
            &format!("StateSet {{ offset: {b}, ty: I64 }}"),
            "GlobalGet { global_index: 3 }",
            "Drop",
            &format!("StateGet {{ offset: {a}, ty: I32 }}"),
            "End",
        ]
    );
}

#[test]
fn a_loop_pays_for_its_own_turn_and_not_for_inner_loops() {
    let wasm = parse(&on_rx(
        "(loop $outer
            (local.set $i (i32.div_u (local.get 0) (i32.const 3)))
            (loop $inner (br_if $inner (local.get $i)))
            (br_if $outer (local.get $i)))
         (i32.const 1)",
    ));
    let module = module(&wasm);
    check_encoded(&module);
    let code = &function(&module, "on_rx").code;
    let loops: Vec<usize> = (0..code.len())
        .filter(|i| {
            matches!(
                &code[*i].kind,
                OpKind::Wasm(wasmparser::Operator::Loop { .. })
            )
        })
        .collect();
    let charge = |i: usize| match code[i + 1].kind {
        OpKind::Charge { cost } if code[i + 1].at == code[i].at => cost,
        _ => panic!("no charge at {i}"),
    };
    // The charge itself (4), i32.div_u (8), local.set, br_if.
    assert_eq!(charge(loops[0]), 14);
    assert_eq!(charge(loops[1]), 5);
    assert_eq!(static_bound(&module, module.exports[0].1), None);
}

#[test]
fn a_turn_is_never_free() {
    let code = code(&on_rx("(loop) (i32.const 1)"));
    assert_eq!(code[1], "Charge { cost: 4 }");
}

#[test]
fn functions_that_run_often_pay_at_their_entry() {
    let wasm = parse(&format!(
        "(func $once (nop) (drop (i32.const 1)))
         (func $in_loop (call $below))
         (func $below)
         (func $recursive (call $recursive))
         (func $even (call $odd)) (func $odd (call $even))
         {}",
        on_rx("(call $once) (loop (call $in_loop)) (call $recursive) (call $even) (i32.const 1)")
    ));
    let module = module(&wasm);
    check_encoded(&module);
    let charged = [
        "once",
        "in_loop",
        "below",
        "recursive",
        "even",
        "odd",
        "on_rx",
    ]
    .map(|name| entry_charge(&module, name).is_some());
    assert_eq!(charged, [false, true, true, true, true, true, false]);
    let index = |name: &str| {
        module
            .functions
            .iter()
            .position(|f| f.name.as_deref() == Some(name))
    };
    let bound = |name| static_bound(&module, index(name).unwrap() as u32);
    assert_eq!(bound("once"), Some(4));
    assert_eq!(bound("in_loop"), Some(4 + 4 + 4));
    assert_eq!((bound("recursive"), bound("on_rx")), (None, None));
}

#[test]
fn functions_in_tables_pay_at_their_entry() {
    let wasm = parse(&format!(
        "(table 2 funcref) (elem (i32.const 0) $listed) (type $t (func))
         (func $listed) (func $free) {}",
        on_rx("(call_indirect (type $t) (i32.const 0)) (call $free) (i32.const 1)")
    ));
    let module = module(&wasm);
    check_encoded(&module);
    assert_eq!(entry_charge(&module, "listed"), Some(4));
    assert_eq!(entry_charge(&module, "free"), None);
    assert_eq!(module.tables[0].entries, [Some(0), None]);
    assert_eq!(module.tables[0].place, None);
    assert_eq!(module.referenced, [0]);
}

#[test]
fn calls_that_double_at_each_level_do_not_run_free() {
    // 2^40 calls without a loop: only what is called once takes nothing.
    let mut text = "(func $f0 (drop (i32.const 1)))".to_owned();
    for level in 1..=40 {
        let below = level - 1;
        write!(text, "(func $f{level} (call $f{below}) (call $f{below}))").unwrap();
    }
    text += &on_rx("(call $f40) (i32.const 1)");
    let wasm = parse(&text);
    let module = module(&wasm);
    for level in 0..40 {
        assert!(entry_charge(&module, &format!("f{level}")).is_some());
    }
    assert_eq!(entry_charge(&module, "f40"), None);
    let on_rx = module.exports[0].1;
    assert!(static_bound(&module, on_rx).is_some_and(|bound| bound > 1 << 40));
}

/// No call is left in a loop over message bytes, but the one that ends the
/// activation.
#[test]
fn no_call_remains_in_a_loop_over_message_bytes() {
    let wasm = parse(&on_rx(
        "(block $done (loop $next
            (br_if $done (i32.ge_u (local.get $i) (local.get 0)))
            (i32.store (i32.const 0) (i32.add (i32.load (i32.const 0)) (call $load8 (local.get $i))))
            (local.set $i (i32.add (local.get $i) (i32.const 1)))
            (br $next)))
         (call $store32be (i32.const 0) (i32.load (i32.const 0))) (i32.const 1)",
    ));
    check_no_call(&wasm);
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../target/handlers/sum.wasm"
    );
    match std::fs::read(path) {
        Ok(wasm) => check_no_call(&wasm),
        Err(_) => skip_part("needs handlers (cargo xtask handlers)"),
    }
}

fn check_no_call(wasm: &[u8]) {
    let calls = common::calls_in_loops(&encode(&module(wasm)).wasm);
    assert!(!calls.is_empty(), "the loop checks bounds and fuel");
    // For fuel it may come back, to the end of the `if` it is in.
    let all_trap = calls
        .iter()
        .all(|(index, next)| *index == 0 && matches!(next.as_str(), "Unreachable" | "End"));
    assert!(all_trap, "{calls:?}");
}

#[test]
fn every_operation_of_the_encoded_module_leads_back_to_the_file() {
    let wasm = parse(&on_rx(
        "(loop $l (br_if $l (call $load16be (local.get 0)))) (drop (memory.grow (i32.const 0)))
         (i32.const 1)",
    ));
    let module = module(&wasm);
    let encoded = encode(&module);
    assert!(encoded.offsets.is_sorted());
    let operations: Vec<&Op<'_>> = module.functions.iter().flat_map(|f| &f.code).collect();
    let places = common::operators(&encoded.wasm);
    // A `loop` is a `loop` on both sides, and so on for what is not expanded.
    for op in operations {
        let OpKind::Wasm(operator) = &op.kind else {
            continue;
        };
        let name = format!("{operator:?}");
        let found = places
            .iter()
            .any(|(offset, other)| *other == name && encoded.author_offset(*offset) == Some(op.at));
        assert!(found, "{name} at {:#x}", op.at);
    }
}

#[test]
fn an_absent_version_is_version_1_and_another_is_refused() {
    let with = |bytes: &str| {
        format!(
            r#"(@custom "ashway.abi" "{bytes}") {}"#,
            on_rx("(i32.const 1)")
        )
    };
    assert!(normalise(&parse(&with(r"\01\00\00\00")), &Limits::default()).is_ok());
    let error = refuse(&with(r"\02\00\00\00"));
    assert!(matches!(error, NormaliseError::Version { found: 2, .. }));
    assert_eq!(
        error.to_string(),
        "built for handler ABI version 2, this is version 1"
    );
    assert!(error.hint().contains("#include <ashway.h>"));
    // Two C files that both include the header: the linker joins the sections.
    let error = refuse(&with(r"\01\00\00\00\01\00\00\00"));
    assert!(error.to_string().contains("has 8 bytes"), "{error}");
}

#[test]
fn names_come_from_the_name_section() {
    let wasm = parse(&on_rx("(i32.const 1)"));
    let module = module(&wasm);
    assert_eq!(
        function(&module, "on_rx").type_index,
        module.functions[0].type_index
    );
    assert!(module.lines.is_empty());
    assert_eq!(module.lines.at(100), None);
}

fn refuse(text: &str) -> NormaliseError {
    let wasm = parse(text);
    match normalise(&wasm, &Limits::default()) {
        Ok(_) => panic!("accepted: {text}"),
        Err(error) => {
            assert!(!error.hint().is_empty());
            error
        }
    }
}

/// Each file is refused with exactly this text.
#[test]
fn refusals_say_what_is_wrong() {
    let body = on_rx("(i32.const 1)");
    let cases = [
        (
            "(memory 1 1)".to_owned() + &body,
            "the module does not define a memory and export it as `memory`",
        ),
        (
            r#"(memory (export "mem") 1 1)"#.to_owned() + &body,
            "the module does not define a memory and export it as `memory`",
        ),
        (
            r#"(import "env" "memory" (memory 1 1))"#.to_owned() + &body,
            "the memory is imported; a handler defines its own and exports it",
        ),
        (
            r#"(memory (export "memory") 1)"#.to_owned() + &body,
            "the memory has no maximum",
        ),
        (
            r#"(memory (export "memory") 1 1000)"#.to_owned() + &body,
            "1000 pages of declared memory maximum, at most 256 are allowed",
        ),
        ("(func)".into(), "no exported function `on_rx`"),
        (
            r#"(func (export "on_rx") (param i32 i64))"#.into(),
            "`on_rx` has type (i32, i64) -> (), a handler has type (i32, i32) -> i32",
        ),
        (
            r#"(import "ashway" "msg_load128" (func)) "#.to_owned() + &body,
            "unknown import `ashway.msg_load128`",
        ),
        (
            r#"(import "env" "puts" (func)) "#.to_owned() + &body,
            "unknown import `env.puts`",
        ),
        (
            r#"(import "ashway" "msg_load8" (func (param i64) (result i32))) "#.to_owned() + &body,
            "import `msg_load8` is (i64) -> i32, it should be (i32) -> i32",
        ),
        (
            r#"(import "ashway" "msg_load8" (global i32)) "#.to_owned() + &body,
            "import `msg_load8` is a global, it should be (i32) -> i32",
        ),
        (
            "(global v128 (v128.const i64x2 0 0))".to_owned() + &body,
            "immutable global 0 of type v128",
        ),
        (
            "(global (mut v128) (v128.const i64x2 0 0))".to_owned() + &body,
            "mutable global 0 of type v128",
        ),
        (
            "(table 20000 funcref)".to_owned() + &body,
            "20000 table entries, at most 10000 are allowed",
        ),
        (
            r#"(func (export "_ashway_fuel"))"#.to_owned() + &body,
            "exported function `_ashway_fuel`: the name is taken",
        ),
        (
            r#"(data (i32.const 65535) "ab")"#.to_owned() + &body,
            "data segment 0 does not fit: instantiating the module would always fail",
        ),
        (
            "(table 1 funcref) (elem (i32.const 1) $f) (func $f)".to_owned() + &body,
            "element segment 0 does not fit: instantiating the module would always fail",
        ),
        (
            format!("(table 1 funcref) (elem (i32.const 0) $load8) {body}"),
            "`msg_load8` is used other than by calling it directly",
        ),
        (
            r#"(memory (export "memory") 1 1) (memory 1 1)"#.to_owned() + &body,
            "more than one memory",
        ),
        (
            on_rx("(i32.const 1) (i32.const 1)"),
            "not a valid Wasm module: type mismatch: values remaining on stack at end of block",
        ),
        (
            on_rx("(memory.atomic.notify (i32.const 0) (i32.const 1))"),
            "waiting and waking (`memory.atomic.wait`, `memory.atomic.notify`)",
        ),
        (
            on_rx("(memory.atomic.wait32 (i32.const 0) (i32.const 1) (i64.const 0))"),
            "waiting and waking",
        ),
        ("(tag)".to_owned() + &body, "exceptions"),
        (
            on_rx("(block $h (try_table (catch_all $h))) (i32.const 1)"),
            "exceptions",
        ),
        (
            "(type (struct (field i32)))".to_owned() + &body,
            "garbage-collected types",
        ),
        (
            r#"(memory (export "memory") i64 1 1)"#.to_owned() + &body,
            "64-bit memories and tables (memory64)",
        ),
        (
            "(func $f (param i32 i32) (result i32)
                (return_call $f (i32.const 1) (i32.const 1)))"
                .to_owned()
                + &body,
            "tail calls",
        ),
        (
            "(type $t (func)) (func (param (ref $t)))".to_owned() + &body,
            "typed function references",
        ),
    ];
    for (text, expected) in cases {
        let error = refuse(&text);
        let found = error.to_string();
        assert!(
            found.starts_with(expected),
            "{text}\n found {found}\n expected {expected}"
        );
    }
}

#[test]
fn an_unknown_host_call_is_told_what_exists() {
    let error = refuse(&format!(
        r#"(import "ashway" "telephone" (func)) {}"#,
        on_rx("(i32.const 1)")
    ));
    assert!(
        error.hint().contains("msg_load8, msg_load16le"),
        "{}",
        error.hint()
    );
    assert!(error.place().is_some());
}

#[test]
fn size_is_refused_before_anything_is_read() {
    let big = vec![0; 100 << 20];
    let error = normalise(&big, &Limits::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "104857600 bytes of file, at most 4194304 are allowed"
    );
}

#[test]
fn two_to_the_32_locals_are_refused_without_making_them() {
    let mut wasm = wat::parse_str(format!("(module {IMPORTS})")).unwrap();
    wasm.truncate(8);
    wasm.extend(*b"\x01\x07\x01\x60\x02\x7f\x7f\x01\x7f"); // type (i32, i32) -> i32
    wasm.extend(*b"\x03\x02\x01\x00");
    // One function, 9 bytes, one group of 2^32 - 1 locals.
    wasm.extend(*b"\x0a\x0b\x01\x09\x01\xff\xff\xff\xff\x0f\x7f\x00\x0b");
    let error = normalise(&wasm, &Limits::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "4294967295 locals in a function, at most 4096 are allowed"
    );
}

#[test]
fn counts_are_limited() {
    let small = Limits {
        functions: 2,
        globals: 2,
        tables: 1,
        segments: 1,
        types: 6,
        ..Limits::default()
    };
    let body = on_rx("(i32.const 1)");
    let cases = [
        ("(func) (func)", "3 functions, at most 2"),
        (
            "(global i32 (i32.const 0)) (global i32 (i32.const 0)) (global i32 (i32.const 0))",
            "3 globals",
        ),
        ("(table 1 funcref) (table 1 funcref)", "2 tables"),
        (r#"(data "a") (data "b")"#, "2 data segments"),
        ("(elem func) (elem func)", "2 element segments"),
        (
            "(type (func (param f32))) (type (func (param f64))) (type (func (param f64 f32)))
          (type (func (param f64 f64))) (type (func (result f64))) (type (func (result f32)))",
            "function types",
        ),
    ];
    for (text, expected) in cases {
        let wasm = parse(&format!("{text} {body}"));
        let text = normalise(&wasm, &small).unwrap_err().to_string();
        assert!(text.contains(expected), "{text}");
    }
}

/// The kernel tier looks at the clock only where fuel is taken, so that no
/// charge may stand for a long time.
#[test]
fn long_stretches_are_charged_in_parts() {
    let turn = "(local.set 0 (i32.load (local.get 0)))".repeat(10_000);
    let arms =
        "(if (local.get 0) (then (drop (i32.load (i32.const 0)))) (else (nop)))".repeat(2_000);
    for body in [&turn, &arms] {
        let wasm = parse(&format!(
            r#"(func (export "on_rx") (param i32 i32) (result i32)
                (loop {body} (br 0)) (i32.const 0))"#
        ));
        let module = module(&wasm);
        let code = &module.functions[0].code;
        let charges: Vec<u32> = code
            .iter()
            .filter_map(|op| match op.kind {
                OpKind::Charge { cost } => Some(cost),
                _ => None,
            })
            .collect();
        assert!(charges.iter().all(|cost| *cost < 600), "{charges:?}");
        let work = code.iter().map(|op| match &op.kind {
            OpKind::Wasm(O::I32Load { .. }) => 3,
            OpKind::Wasm(O::LocalSet { .. } | O::If { .. } | O::Br { .. }) => 1,
            _ => 0,
        });
        // And 4 for each charge itself.
        let itself = 4 * charges.len() as u32;
        assert_eq!(charges.iter().sum::<u32>(), work.sum::<u32>() + itself);
    }
}
