//! How deep recursion goes: as far as the call stack's slots, whatever the
//! functions look like, and stopped at the call that has no room.

#![allow(
    clippy::format_collect,
    clippy::format_push_string,
    reason = "modules are put together from words; nothing here has to be fast"
)]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use ashway_abi::Cause;
use ashway_abi::context::CALL_SLOTS;
use ashway_codegen::normalise::ir::OpKind;
use ashway_codegen::normalise::{Limits, Profile, normalise_as};
use ashway_handler::Stopped;
use common::Library;

/// Slots that each call takes which can come back, and where it is.
fn pushes(wasm: &[u8]) -> Vec<(u32, u32)> {
    let module = normalise_as(wasm, &Limits::default(), Profile::Library).unwrap();
    let operations = module.functions.iter().flat_map(|f| &f.code);
    let pushes = operations.filter_map(|op| match op.kind {
        OpKind::Push { slots } => Some((slots, op.at)),
        _ => None,
    });
    pushes.collect()
}

/// `down(n)` calls itself `n` times in the one call that can come back: as many
/// as fit succeed, one more stops there, and the next activation starts anew.
fn check_depth(fields: &str) -> u32 {
    let mut library = Library::new(fields);
    let pushes = pushes(&library.wasm);
    let [(slots, at)] = pushes[..] else {
        panic!("{pushes:?}");
    };
    let most = u64::from(CALL_SLOTS / slots);
    let stopped = Err(Stopped {
        cause: Cause::Stack,
        at,
    });
    for _ in 0..2 {
        assert!(library.call("down", &[most]).is_ok(), "{slots} slots");
        assert_eq!(library.call("down", &[most + 1]), stopped, "{slots} slots");
        assert_eq!(library.call("down", &[1_000_000]), stopped, "{slots} slots");
    }
    slots
}

#[test]
fn the_smallest_frames_go_deepest() {
    let slots = check_depth(
        r#"(global $left (mut i32) (i32.const 0))
           (func $down
              (if (global.get $left)
                 (then (global.set $left (i32.sub (global.get $left) (i32.const 1)))
                       (call $down))))
           (func (export "down") (param i32) (global.set $left (local.get 0)) (call $down))"#,
    );
    // The return place and two operands.
    assert_eq!(slots, 3);
}

#[test]
fn a_parameter_and_a_pending_sum() {
    let mut library = Library::new(SUM);
    assert_eq!(library.number("down", &[100]), Ok(5_050));
    check_depth(SUM);
}

const SUM: &str = r#"
    (func $down (export "down") (param i32) (result i32)
       (if (result i32) (local.get 0)
          (then (i32.add (local.get 0) (call $down (i32.sub (local.get 0) (i32.const 1)))))
          (else (i32.const 0))))"#;

/// Locals that are all alive across the call: Wasmtime must keep them too.
fn with_locals(count: usize) -> String {
    let declare = "(local i64)".repeat(count);
    let set: String = (1..=count)
        .map(|i| {
            format!("(local.set {i} (i64.mul (i64.extend_i32_u (local.get 0)) (i64.const {i})))")
        })
        .collect();
    let sum: String = (1..=count)
        .map(|i| format!("(local.get {i}) i64.add "))
        .collect();
    format!(
        r#"(func $down (export "down") (param i32) (result i64) {declare}
              {set}
              (if (result i64) (local.get 0)
                 (then (call $down (i32.sub (local.get 0) (i32.const 1))))
                 (else (i64.const 0)))
              {sum})"#
    )
}

#[test]
fn many_locals_count() {
    for count in [1, 10, 100, 1_000] {
        let slots = check_depth(&with_locals(count));
        assert!(slots as usize > count, "{slots}");
    }
}

/// Operands that are all alive across the call.
#[test]
fn many_operands_count() {
    for count in [10, 100, 1_000] {
        let push = "(i32.mul (local.get 0) (i32.load (i32.and (local.get 0) (i32.const 1020)))) "
            .repeat(count);
        let sum = "i32.add ".repeat(count);
        let slots = check_depth(&format!(
            r#"(memory 1 1) (func $down (export "down") (param i32) (result i32)
                  {push}
                  (if (result i32) (local.get 0)
                     (then (call $down (i32.sub (local.get 0) (i32.const 1))))
                     (else (i32.const 0)))
                  {sum})"#
        ));
        assert!(slots as usize > count, "{slots}");
    }
}

/// Expressions that are computed again behind the call: Wasmtime computes them
/// once and keeps them, which is what a slot for each 64 operations is for.
#[test]
fn values_that_only_the_optimiser_keeps() {
    for count in [10, 100, 300, 1_000, 3_000] {
        let terms: String = (1..=count)
            .map(|i| {
                format!("(i32.xor (i32.mul (local.get 0) (i32.const {i})) (local.get 1)) i32.add ")
            })
            .collect();
        check_depth(&format!(
            r#"(func $down (export "down") (param i32 i32) (result i32)
                  (i32.const 0) {terms}
                  (if (result i32) (local.get 0)
                     (then (call $down (i32.sub (local.get 0) (i32.const 1)) (local.get 1)))
                     (else (i32.const 0)))
                  i32.add {terms})"#
        ));
    }
}

#[test]
fn many_parameters_and_results_count() {
    let types = "i64 ".repeat(50);
    let gets: String = (1..=50).map(|i| format!("(local.get {i})")).collect();
    let slots = check_depth(&format!(
        r#"(type $t (func (param i32 {types}) (result {types})))
           (func $wide (type $t)
              (if (type $none) (local.get 0)
                 (then (local.set 0 (i32.sub (local.get 0) (i32.const 1)))
                       (call $wide (local.get 0) {gets}) {sets}))
              {gets})
           (type $none (func))
           (func (export "down") (param i32)
              (local.get 0) {zeros} (call $wide) {drops})"#,
        sets = (1..=50)
            .map(|i| format!("(local.set {i})"))
            .collect::<String>(),
        zeros = "(i64.const 7)".repeat(50),
        drops = "drop ".repeat(50),
    ));
    assert!(slots > 100, "{slots}");
}

#[test]
fn through_tables_too() {
    let call = |table: &str, extra: &str| {
        format!(
            r#"(type $t (func (param i32) (result i32))) {table}
               (func $down (export "down") (param i32) (result i32)
                  (if (result i32) (local.get 0)
                     (then (call_indirect (type $t)
                        (i32.sub (local.get 0) (i32.const 1)) (i32.const 0)))
                     (else (i32.const 0))))
               {extra}"#
        )
    };
    check_depth(&call("(table 1 funcref) (elem (i32.const 0) $down)", ""));
    check_depth(&call(
        "(table 1 funcref) (elem (i32.const 0) $down)",
        r#"(func (export "set") (table.set (i32.const 0) (ref.null func)))"#,
    ));
}

#[test]
fn only_calls_that_can_come_back_are_counted() {
    let library = Library::new(
        r#"(type $t (func)) (table 2 funcref) (elem (i32.const 0) $leaf)
           (type $other (func (param i32)))
           (func $leaf) (func $middle (call $leaf))
           (func $even (call $leaf) (call $odd)) (func $odd (call $middle) (call $even))
           (func (export "root")
              (call $even) (call_indirect (type $t) (i32.const 0))
              (call_indirect (type $other) (i32.const 0) (i32.const 0)))"#,
    );
    assert_eq!(pushes(&library.wasm).len(), 2);
}

/// What nobody promotes may still use Wasmtime's stack as it likes, and what
/// does not recurse is as deep as it is long.
#[test]
fn a_chain_of_calls_is_no_recursion() {
    let mut text = "(func $f0 (param i32) (result i32) (local.get 0))".to_owned();
    for level in 1..=2_000 {
        let below = level - 1;
        text += &format!(
            "(func $f{level} (param i32) (result i32)
                (i32.add (local.get 0) (call $f{below} (i32.const 1))))"
        );
    }
    text += r#"(func (export "down") (param i32) (result i32) (call $f2000 (local.get 0)))"#;
    let mut library = Library::new(&text);
    assert_eq!(pushes(&library.wasm), []);
    assert_eq!(library.number("down", &[5]), Ok(2_005));
}
