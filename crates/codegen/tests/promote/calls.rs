//! Calls, returns, frames.

use super::harness::{IMPORTS, module, run};
use ashway_abi::Cause;

fn verdicts(functions: &str, inputs: &[u8]) -> Vec<Result<u32, Cause>> {
    let wasm = module(&format!(
        "(module {IMPORTS} (memory (export \"memory\") 1 1) {functions})"
    ));
    let messages: Vec<[u8; 1]> = inputs.iter().map(|input| [*input]).collect();
    let messages: Vec<&[u8]> = messages.iter().map(<[u8; 1]>::as_slice).collect();
    let outcomes = run(&wasm, &messages);
    outcomes
        .iter()
        .map(|outcome| outcome.result.map_err(|(cause, _)| cause))
        .collect()
}

#[test]
fn callers_keep_their_locals_and_operands() {
    let functions = r#"
        (func $square (param $x i32) (result i32) (local $y i32)
            (local.set $y (local.get $x))
            (i32.mul (local.get $x) (local.get $y)))
        (func $both (param $x i32) (param $y i64) (result i32) (local $t i32)
            (local.set $t (call $square (local.get $x)))
            (i32.add (i32.add (local.get $t) (call $square (i32.wrap_i64 (local.get $y)))) (local.get $x)))
        (func (export "on_rx") (param i32 i32) (result i32) (local $a i32) (local $b i32)
            (local.set $a (call $load8 (i32.const 0)))
            (local.set $b (i32.const 1000))
            (i32.add (local.get $b) (i32.add (local.get $a)
                (i32.add (call $both (local.get $a) (i64.const 4))
                         (call $both (i32.const 5) (i64.extend_i32_u (local.get $a))))))
            (drop (local.get $b)))"#;
    let expected = |a: u32| 1000 + a + (a * a + 16 + a) + (25 + a * a + 5);
    assert_eq!(
        verdicts(functions, &[0, 7]),
        [Ok(expected(0)), Ok(expected(7))]
    );
}

#[test]
fn calls_in_loops_return_where_they_came_from() {
    let functions = r#"
        (func $leaf (param $x i32) (result i32) (i32.add (local.get $x) (i32.const 1)))
        (func $twice (param $x i32) (result i32) (call $leaf (call $leaf (local.get $x))))
        (func (export "on_rx") (param i32 i32) (result i32) (local $i i32) (local $n i32) (local $sum i32)
            (local.set $n (call $load8 (i32.const 0)))
            (loop $l
                (local.set $sum (call $twice (local.get $sum)))
                (local.set $sum (i32.add (local.get $sum) (call $leaf (local.get $i))))
                (br_if $l (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (local.get $n))))
            (i32.add (local.get $sum) (i32.sub (call $load8 (i32.const 0)) (local.get $n))))"#;
    let expected = |n: u32| (0..n).map(|i| 2 + i + 1).sum::<u32>();
    assert_eq!(
        verdicts(functions, &[1, 10, 100]),
        [Ok(expected(1)), Ok(expected(10)), Ok(expected(100))]
    );
}

#[test]
fn several_results_come_back() {
    let functions = r#"
        (func $mixed (param i32 i64) (result i64 i32 i64) (local.get 1) (local.get 0) (i64.const 3))
        (func $none (param i32))
        (func (export "on_rx") (param i32 i32) (result i32) (local $w i64)
            (call $none (i32.const 1))
            (call $mixed (call $load8 (i32.const 0)) (i64.const 9))
            (local.set $w)
            (i32.mul (i32.wrap_i64 (local.get $w)))
            (local.set 0)
            (i32.add (i32.wrap_i64) (local.get 0)))"#;
    assert_eq!(verdicts(functions, &[5]), [Ok(24)]);
}

#[test]
fn call_indirect_goes_through_the_table() {
    let functions = r#"
        (type $op (func (param i32 i32) (result i32)))
        (table 6 funcref)
        (elem (i32.const 1) $add $mul $other $add)
        (func $add (type $op) (i32.add (local.get 0) (local.get 1)))
        (func $mul (type $op) (i32.mul (local.get 0) (local.get 1)))
        (func $other (param i32) (result i32) (local.get 0))
        (func (export "on_rx") (param i32 i32) (result i32)
            (i32.add (i32.const 100)
                (call_indirect (type $op) (i32.const 6) (i32.const 7) (call $load8 (i32.const 0)))))"#;
    let trap = Err(Cause::IndirectCall);
    assert_eq!(
        verdicts(functions, &[0, 1, 2, 3, 4, 5, 6, 255]),
        [trap, Ok(113), Ok(142), trap, Ok(113), trap, trap, trap]
    );
}

#[test]
fn a_trap_in_a_callee_ends_everything() {
    let functions = r#"
        (func $deep (param i32) (if (i32.eq (local.get 0) (i32.const 3)) (then (unreachable))))
        (func $less (param i32) (call $deep (local.get 0)) (call $deep (i32.add (local.get 0) (i32.const 1))))
        (func (export "on_rx") (param i32 i32) (result i32)
            (call $less (call $load8 (i32.const 0))) (i32.const 1))"#;
    let trap = Err(Cause::Unreachable);
    assert_eq!(
        verdicts(functions, &[1, 2, 3, 4]),
        [Ok(1), trap, trap, Ok(1)]
    );
}

#[test]
fn forty_functions_deep() {
    let caller = |i| {
        let callee = i - 1;
        format!(
            "(func $f{i} (param $x i32) (result i32)
                (i32.add (call $f{callee} (local.get $x)) (local.get $x)))"
        )
    };
    let callers: String = (1..40).map(caller).collect();
    let functions = format!(
        r#"(func $f0 (param i32) (result i32) (i32.add (local.get 0) (i32.const 1)))
           {callers}
           (func (export "on_rx") (param i32 i32) (result i32) (call $f39 (call $load8 (i32.const 0))))"#
    );
    assert_eq!(
        verdicts(&functions, &[2, 9]),
        [Ok(40 * 2 + 1), Ok(40 * 9 + 1)]
    );
}

#[test]
fn what_a_callee_checked_does_not_hold_after_another_call() {
    let functions = r#"
        (func $peek (param $deep i32) (result i32)
            (if (result i32) (local.get $deep)
                (then (call $load32 (i32.const 0)))
                (else (call $load8 (i32.const 0)))))
        (func (export "on_rx") (param $len i32) (param i32) (result i32)
            (drop (call $peek (i32.const 0)))
            (loop $l
                (drop (call $load8 (i32.const 0)))
                (drop (call $peek (i32.ge_u (local.get $len) (i32.const 4))))
                (br_if $l (i32.eqz (local.tee $len (i32.sub (local.get $len) (i32.const 1))))))
            (call $load8 (i32.const 0)))"#;
    assert_eq!(verdicts(functions, &[77]), [Ok(77)]);
}

/// Each callee leaves its results in a frame of its own.
#[test]
fn several_results_come_back_from_whoever_was_called() {
    let functions = r#"
        (type $pair (func (param i32) (result i32 i64)))
        (table 2 funcref)
        (elem (i32.const 0) $small $large)
        (func $small (type $pair) (i32.add (local.get 0) (i32.const 1)) (i64.const 10))
        (func $large (type $pair) (local $x i32) (local $y i64)
            (local.set $x (i32.mul (local.get 0) (i32.const 7)))
            (local.set $y (i64.extend_i32_u (local.get $x)))
            (local.get $x) (i64.add (local.get $y) (local.get $y)))
        (func (export "on_rx") (param i32 i32) (result i32) (local $w i64)
            (i32.const 1000)
            (call_indirect (type $pair) (i32.const 5) (call $load8 (i32.const 0)))
            (local.set $w)
            (i32.add (i32.wrap_i64 (local.get $w)))
            (i32.add))"#;
    assert_eq!(
        verdicts(functions, &[0, 1]),
        [Ok(1000 + 6 + 10), Ok(1000 + 35 + 70)]
    );
}

/// Three hundred functions, in chains of forty that meet again.
#[test]
fn deep_and_wide_call_graphs() {
    let mut functions = vec![String::from(
        "(func $f0_0 (param $x i32) (result i32) (i32.xor (local.get $x) (i32.const 0x55)))",
    )];
    let expected = |x: u32| {
        let mut row = [x ^ 0x55; 1].to_vec();
        for depth in 1..40_u32 {
            let below = row.clone();
            row = (0..8_u32)
                .map(|column| {
                    let first = below[column as usize % below.len()];
                    first.wrapping_mul(3).wrapping_add(depth + column)
                })
                .collect();
        }
        row.iter()
            .fold(0, |sum: u32, value| sum.wrapping_add(*value))
    };
    for depth in 1..40 {
        for column in 0..8 {
            let below = if depth == 1 { 0 } else { column };
            functions.push(format!(
                "(func $f{depth}_{column} (param $x i32) (result i32)
                    (i32.add (i32.mul (call $f{}_{below} (local.get $x)) (i32.const 3))
                        (i32.const {})))",
                depth - 1,
                depth + column
            ));
        }
    }
    let calls: Vec<String> = (0..8)
        .map(|column| format!("(i32.add (call $f39_{column} (local.get $x)))"))
        .collect();
    functions.push(format!(
        r#"(func (export "on_rx") (param i32 i32) (result i32) (local $x i32)
            (local.set $x (call $load8 (i32.const 0)))
            (i32.const 0) {})"#,
        calls.concat()
    ));
    assert_eq!(
        verdicts(&functions.concat(), &[2, 9]),
        [Ok(expected(2)), Ok(expected(9))]
    );
}
