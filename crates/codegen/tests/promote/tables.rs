//! Tables that change: their words, and calls by what is in them.

use super::harness::{IMPORTS, Outcome, module, run};
use ashway_abi::Cause;

fn outcomes(functions: &str, messages: &[&[u8]]) -> Vec<Outcome> {
    let wasm = module(&format!(
        "(module {IMPORTS} (memory (export \"memory\") 1 1) {functions})"
    ));
    run(&wasm, messages)
}

fn verdicts(functions: &str, messages: &[&[u8]]) -> Vec<Result<u32, Cause>> {
    let results = outcomes(functions, messages).into_iter();
    results
        .map(|outcome| outcome.result.map_err(|(cause, _)| cause))
        .collect()
}

/// Copies entry `from` to entry `to`, then calls entry `at`.
const MOVE_AND_CALL: &str = r#"
    (type $op (func (param i32) (result i32)))
    (type $other (func (param i32)))
    (table $t 8 8 funcref)
    (elem (i32.const 1) $double $square $nothing)
    (func $double (type $op) (i32.mul (local.get 0) (i32.const 2)))
    (func $square (type $op) (i32.mul (local.get 0) (local.get 0)))
    (func $nothing (type $other))
    (func (export "on_rx") (param i32 i32) (result i32)
        (table.set $t (call $load8 (i32.const 1)) (table.get $t (call $load8 (i32.const 0))))
        (i32.add (i32.const 100)
            (call_indirect $t (type $op) (i32.const 7) (call $load8 (i32.const 2)))))"#;

#[test]
fn calls_follow_what_was_stored() {
    let trap = Err(Cause::IndirectCall);
    assert_eq!(
        verdicts(
            MOVE_AND_CALL,
            &[
                &[1, 7, 7],
                &[2, 7, 7],
                &[2, 2, 1],
                // Null, another type, behind the end.
                &[0, 6, 6],
                &[3, 5, 5],
                &[2, 2, 8],
                &[2, 2, 255],
                // What the third message left is still there.
                &[7, 1, 1],
            ]
        ),
        [Ok(114), Ok(149), Ok(114), trap, trap, trap, trap, Ok(149)]
    );
}

#[test]
fn entries_outside_trap_and_change_nothing() {
    let trap = Err(Cause::TableBounds);
    let messages: [&[u8]; 4] = [&[8, 0, 1], &[1, 8, 1], &[255, 255, 1], &[1, 7, 7]];
    assert_eq!(
        verdicts(MOVE_AND_CALL, &messages),
        [trap, trap, trap, Ok(114)]
    );
    let found = outcomes(MOVE_AND_CALL, &messages);
    assert!(found[0].memory == found[1].memory && found[1].memory == found[2].memory);
}

#[test]
fn entries_known_now() {
    let functions = r#"
        (type $op (func (result i32)))
        (table $t 4 4 funcref)
        (elem (i32.const 0) $one $two)
        (func $one (type $op) (i32.const 1))
        (func $two (type $op) (i32.const 2))
        (func (export "on_rx") (param i32 i32) (result i32)
            (table.set $t (i32.const 3) (table.get $t (i32.const 1)))
            (table.set $t (i32.const 1) (ref.null func))
            (table.set $t (i32.const 2) (ref.func $one))
            (if (i32.eqz (ref.is_null (table.get $t (i32.const 1)))) (then (unreachable)))
            (if (i32.eq (call $load8 (i32.const 0)) (i32.const 9))
                (then (drop (table.get $t (i32.const 4)))))
            (i32.add (i32.mul (call_indirect $t (type $op) (i32.const 3)) (i32.const 10))
                (call_indirect $t (type $op) (i32.const 2))))"#;
    assert_eq!(
        verdicts(functions, &[&[0], &[9]]),
        [Ok(21), Err(Cause::TableBounds)]
    );
}

/// Through a stored table a function can always call itself.
#[test]
fn recursion_through_a_stored_table() {
    let functions = r#"
        (type $op (func (param i32) (result i32)))
        (table $t 2 2 funcref)
        (elem (i32.const 0) $down $leaf)
        (func $down (type $op)
            (if (i32.eqz (local.get 0)) (then (return (i32.const 3))))
            (i32.add (local.get 0)
                (call_indirect $t (type $op) (i32.sub (local.get 0) (i32.const 1)) (i32.const 0))))
        (func $leaf (type $op) (i32.const 50))
        (func (export "on_rx") (param i32 i32) (result i32)
            (if (i32.eq (call $load8 (i32.const 1)) (i32.const 1))
                (then (table.set $t (i32.const 0) (ref.func $leaf))))
            (call_indirect $t (type $op) (call $load8 (i32.const 0)) (i32.const 0)))"#;
    assert_eq!(
        verdicts(functions, &[&[0, 0], &[40, 0], &[40, 1], &[40, 0]]),
        [Ok(3), Ok(40 * 41 / 2 + 3), Ok(50), Ok(50)]
    );
}
