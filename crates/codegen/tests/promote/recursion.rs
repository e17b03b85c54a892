//! Functions that call themselves, directly or through others.

use super::harness::{Budget, IMPORTS, Outcome, PLENTY, module, run, run_with};
use ashway_abi::MemoryKind;
use ashway_abi::{Cause, context};
use ashway_codegen::normalise::ir::OpKind;
use ashway_codegen::normalise::{Limits, normalise};
use ashway_codegen::promote::{Checks, PromoteError, Shape};
use ashway_codegen::stub;

/// What a handler with these functions makes of one byte.
fn outcomes(functions: &str, inputs: &[u8]) -> Vec<Outcome> {
    let wasm = module(&format!(
        "(module {IMPORTS} (memory (export \"memory\") 1 1) {functions})"
    ));
    let messages: Vec<[u8; 1]> = inputs.iter().map(|input| [*input]).collect();
    let messages: Vec<&[u8]> = messages.iter().map(<[u8; 1]>::as_slice).collect();
    run(&wasm, &messages)
}

fn verdicts(functions: &str, inputs: &[u8]) -> Vec<Result<u32, Cause>> {
    let results = outcomes(functions, inputs).into_iter();
    results
        .map(|outcome| outcome.result.map_err(|(cause, _)| cause))
        .collect()
}

/// A handler that calls `$f` with the first byte of the message.
const CALL_F: &str = r#"
    (func (export "on_rx") (param i32 i32) (result i32) (call $f (call $load8 (i32.const 0))))"#;

#[test]
fn factorial() {
    let functions = format!(
        "(func $fac (param $n i64) (result i64)
            (if (result i64) (i64.eqz (local.get $n))
                (then (i64.const 1))
                (else (i64.mul (local.get $n) (call $fac (i64.sub (local.get $n) (i64.const 1)))))))
        (func $f (param $n i32) (result i32) (local $fac i64)
            (local.set $fac (call $fac (i64.extend_i32_u (local.get $n))))
            (i32.xor (i32.wrap_i64 (local.get $fac))
                (i32.wrap_i64 (i64.shr_u (local.get $fac) (i64.const 32)))))
        {CALL_F}"
    );
    let expected = |n: u64| {
        let product: u64 = (1..=n).product();
        Ok(product as u32 ^ (product >> 32) as u32)
    };
    assert_eq!(
        verdicts(&functions, &[0, 1, 5, 20]),
        [expected(0), expected(1), expected(5), expected(20)]
    );
}

#[test]
fn fibonacci_keeps_an_operand_below() {
    let functions = format!(
        "(func $f (param $n i32) (result i32)
            (if (i32.lt_u (local.get $n) (i32.const 2)) (then (return (local.get $n))))
            (i32.add
                (call $f (i32.sub (local.get $n) (i32.const 1)))
                (call $f (i32.sub (local.get $n) (i32.const 2)))))
        {CALL_F}"
    );
    assert_eq!(
        verdicts(&functions, &[0, 1, 2, 10, 17]),
        [Ok(0), Ok(1), Ok(1), Ok(55), Ok(1597)]
    );
}

#[test]
fn ackermann_calls_itself_for_an_argument() {
    let functions = format!(
        "(func $a (param $m i32) (param $n i32) (result i32)
            (if (i32.eqz (local.get $m))
                (then (return (i32.add (local.get $n) (i32.const 1)))))
            (if (i32.eqz (local.get $n))
                (then (return (call $a (i32.sub (local.get $m) (i32.const 1)) (i32.const 1)))))
            (call $a (i32.sub (local.get $m) (i32.const 1))
                (call $a (local.get $m) (i32.sub (local.get $n) (i32.const 1)))))
        (func $f (param i32) (result i32) (call $a (i32.const 2) (local.get 0)))
        {CALL_F}"
    );
    assert_eq!(
        verdicts(&functions, &[0, 1, 5, 20]),
        [Ok(3), Ok(5), Ok(13), Ok(43)]
    );
}

#[test]
fn even_and_odd_two_hundred_deep() {
    let functions = format!(
        "(func $even (param $n i32) (result i32)
            (if (result i32) (local.get $n)
                (then (call $odd (i32.sub (local.get $n) (i32.const 1)))) (else (i32.const 1))))
        (func $odd (param $n i32) (result i32)
            (if (result i32) (local.get $n)
                (then (call $even (i32.sub (local.get $n) (i32.const 1)))) (else (i32.const 0))))
        (func $f (param i32) (result i32) (call $even (local.get 0)))
        {CALL_F}"
    );
    assert_eq!(
        verdicts(&functions, &[0, 1, 199, 200]),
        [Ok(1), Ok(0), Ok(0), Ok(1)]
    );
}

/// The verifier would follow a number that grows by 1 on each way back.
#[test]
fn depth_is_counted_on_the_way_back() {
    let functions = format!(
        "(func $f (param $n i32) (result i32)
            (if (i32.eqz (local.get $n)) (then (return (i32.const 0))))
            (i32.add (i32.const 1) (call $f (i32.sub (local.get $n) (i32.const 1)))))
        {CALL_F}"
    );
    assert_eq!(verdicts(&functions, &[0, 255]), [Ok(0), Ok(255)]);
}

#[test]
fn through_a_table() {
    fn down(n: u32) -> u32 {
        if n == 0 { 7 } else { n + twice(n - 1) }
    }
    fn twice(n: u32) -> u32 {
        1000 + if n < 3 { n * 100 } else { down(n) }
    }
    let functions = format!(
        "(type $op (func (param i32 i32) (result i32)))
        (table 3 funcref)
        (elem (i32.const 0) $down $twice $leaf)
        (func $down (type $op)
            (if (result i32) (local.get 0)
                (then (i32.add (local.get 0) (call_indirect (type $op)
                    (i32.sub (local.get 0) (i32.const 1)) (i32.const 1) (i32.const 1))))
                (else (i32.const 7))))
        (func $twice (type $op)
            (i32.add (i32.mul (local.get 1) (i32.const 1000))
                (call_indirect (type $op) (local.get 0) (local.get 1)
                    (i32.mul (i32.const 2) (i32.lt_u (local.get 0) (i32.const 3))))))
        (func $leaf (type $op) (i32.mul (local.get 0) (i32.const 100)))
        (func $f (param i32) (result i32) (call $down (local.get 0) (i32.const 0)))
        {CALL_F}"
    );
    assert_eq!(
        verdicts(&functions, &[0, 1, 2, 9, 60]),
        [
            Ok(down(0)),
            Ok(down(1)),
            Ok(down(2)),
            Ok(down(9)),
            Ok(down(60))
        ]
    );
}

/// Arguments that are the function's own parameters, in every order.
#[test]
fn arguments_change_places() {
    fn turn(n: u32, a: u32, b: u32, c: u32) -> u32 {
        if n == 0 {
            a * 10_000 + b * 100 + c
        } else {
            turn(n - 1, c, a, b)
        }
    }
    fn swap(a: u32, b: u32, n: u32) -> u32 {
        if n == 0 {
            a * 3 - b
        } else {
            a + swap(b, a, n - 1)
        }
    }
    let functions = format!(
        "(func $turn (param $n i32) (param $a i32) (param $b i64) (param $c i32) (result i32)
            (if (i32.eqz (local.get $n))
                (then (return (i32.add (i32.mul (local.get $a) (i32.const 10000))
                    (i32.add (i32.mul (i32.wrap_i64 (local.get $b)) (i32.const 100)) (local.get $c))))))
            (call $turn (i32.sub (local.get $n) (i32.const 1))
                (local.get $c) (i64.extend_i32_u (local.get $a)) (i32.wrap_i64 (local.get $b))))
        (func $swap (param $a i32) (param $b i32) (param $n i32) (result i32)
            (if (i32.eqz (local.get $n))
                (then (return (i32.sub (i32.mul (local.get $a) (i32.const 3)) (local.get $b)))))
            (i32.add (local.get $a)
                (call $swap (local.get $b) (local.get $a) (i32.sub (local.get $n) (i32.const 1)))))
        (func $f (param $n i32) (result i32)
            (i32.add
                (call $turn (local.get $n) (i32.const 1) (i64.const 2) (i32.const 3))
                (call $swap (i32.const 50) (i32.const 60) (local.get $n))))
        {CALL_F}"
    );
    let expected = |n| Ok(turn(n, 1, 2, 3) + swap(50, 60, n));
    assert_eq!(
        verdicts(&functions, &[0, 1, 2, 3, 4]),
        [0, 1, 2, 3, 4].map(expected)
    );
}

/// Results lie where the caller's own operands do.
#[test]
fn several_results_come_back_from_below() {
    fn pair(n: u32) -> (u32, u32, u32) {
        if n == 0 {
            return (1, 2, 3);
        }
        let (a, b, c) = pair(n - 1);
        let kept = a ^ (b + c);
        (n * 5 + (n + 11 + (kept + (100 + (200 + 300)))), 4, 300)
    }
    let functions = format!(
        "(func $pair (param $n i32) (result i32 i64 i32)
            (if (i32.eqz (local.get $n))
                (then (return (i32.const 1) (i64.const 2) (i32.const 3))))
            (i32.mul (local.get $n) (i32.const 5))
            (i32.add (local.get $n) (i32.const 11))
            (call $pair (i32.sub (local.get $n) (i32.const 1)))
            (call $keep)
            (call $six (i32.const 1))
            (local.set $n)
            (i32.add (local.get $n)) (i32.add) (i32.add) (i32.add) (i32.add)
            (i64.const 4) (local.get $n))
        (func $keep (param i32 i64 i32) (result i32)
            (i32.xor (local.get 0) (i32.add (i32.wrap_i64 (local.get 1)) (local.get 2))))
        (func $six (param $more i32) (result i32 i32 i32)
            (if (local.get $more) (then (return (call $six (i32.const 0)))))
            (i32.const 100) (i32.const 200) (i32.const 300))
        (func $f (param $n i32) (result i32)
            (call $keep (call $pair (local.get $n))))
        {CALL_F}"
    );
    let expected = |n| {
        let (a, b, c) = pair(n);
        Ok(a ^ (b + c))
    };
    assert_eq!(
        verdicts(&functions, &[0, 1, 2, 30]),
        [0, 1, 2, 30].map(expected)
    );
}

/// Eight results are more than there are scratch registers.
#[test]
fn many_results_through_a_table() {
    let functions = format!(
        "(type $many (func (param i32) (result i32 i32 i32 i32 i32 i32 i32 i32)))
        (table 2 funcref)
        (elem (i32.const 0) $up $flat)
        (func $up (type $many)
            (call_indirect (type $many) (i32.sub (local.get 0) (i32.const 1))
                (i32.le_u (local.get 0) (i32.const 1)))
            (i32.add (local.get 0)))
        (func $flat (type $many)
            (i32.const 1) (i32.const 2) (i32.const 3) (i32.const 4)
            (i32.const 5) (i32.const 6) (i32.const 7) (local.get 0))
        (func $f (param $n i32) (result i32)
            (i32.const 1000)
            (call_indirect (type $many) (local.get $n) (i32.eqz (local.get $n)))
            (i32.shl (i32.const 1)) (i32.xor) (i32.shl (i32.const 1)) (i32.xor) (i32.shl (i32.const 1))
            (i32.xor) (i32.xor) (i32.xor) (i32.xor) (i32.xor) (i32.add))
        {CALL_F}"
    );
    let expected = |n: u32| {
        let last = (1..=n).sum::<u32>();
        let folded = ((((last << 1) ^ 7) << 1) ^ 6) << 1;
        Ok(1000 + (folded ^ 5 ^ 4 ^ 3 ^ 2 ^ 1))
    };
    assert_eq!(
        verdicts(&functions, &[0, 1, 2, 40]),
        [0, 1, 2, 40].map(expected)
    );
}

/// Locals in registers live through calls of both kinds.
#[test]
fn helpers_that_do_not_recurse() {
    fn mix(x: u32, y: u64) -> u64 {
        y.wrapping_mul(31)
            .wrapping_add(u64::from(x.wrapping_mul(x)))
    }
    fn walk(n: u32, mut hash: u64) -> u64 {
        if n == 0 {
            return hash;
        }
        let before = n.wrapping_mul(n);
        for i in 0..3 {
            hash = mix(i, hash);
        }
        // Three at a time, so that the parts below must be multiples too.
        hash = walk(n - 3, hash);
        hash = mix(before.wrapping_add(3), hash);
        mix(n, walk((n - 1) >> 2, hash))
    }
    let functions = format!(
        "(func $square (param $x i32) (result i32) (local $y i32)
            (local.set $y (local.get $x))
            (i32.mul (local.get $x) (local.get $y)))
        (func $mix (param $x i32) (param $y i64) (result i64)
            (i64.add (i64.mul (local.get $y) (i64.const 31))
                (i64.extend_i32_u (call $square (local.get $x)))))
        (func $walk (param $n i32) (param $hash i64) (result i64) (local $before i32) (local $i i32)
            (if (i32.eqz (local.get $n)) (then (return (local.get $hash))))
            (local.set $before (call $square (local.get $n)))
            (loop $l
                (local.set $hash (call $mix (local.get $i) (local.get $hash)))
                (br_if $l (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 3))))
            (local.set $hash (call $walk (i32.sub (local.get $n) (local.get $i)) (local.get $hash)))
            (local.set $hash (call $mix (i32.add (local.get $before) (local.get $i)) (local.get $hash)))
            (call $mix (local.get $n) (call $walk (i32.shr_u (i32.sub (local.get $n) (i32.const 1)) (i32.const 2))
                (local.get $hash))))
        (func $f (param $n i32) (result i32)
            (i32.wrap_i64 (call $walk (i32.mul (local.get $n) (i32.const 3)) (i64.const 17))))
        {CALL_F}"
    );
    // Only numbers whose every part is a multiple of three end.
    let ends = |n: u32| {
        fn ok(n: u32) -> bool {
            n == 0 || n >= 3 && ok(n - 3) && ok((n - 1) >> 2)
        }
        ok(3 * n)
    };
    let inputs: Vec<u8> = (0..=60).filter(|n| ends(u32::from(*n))).collect();
    assert!(inputs.len() > 1, "{inputs:?}");
    let expected: Vec<_> = inputs
        .iter()
        .map(|n| Ok(walk(3 * u32::from(*n), 17) as u32))
        .collect();
    assert_eq!(verdicts(&functions, &inputs), expected);
}

/// A handler may be called like any other function.
#[test]
fn the_handler_calls_itself() {
    let functions = r#"
        (func $on_rx (export "on_rx") (param $len i32) (param $n i32) (result i32)
            (local.set $n (i32.add (local.get $n) (i32.const 1)))
            (if (result i32) (i32.lt_u (local.get $n) (call $load8 (i32.const 0)))
                (then (i32.add (local.get $len) (call $on_rx (local.get $n) (local.get $n))))
                (else (i32.add (i32.const 1000) (local.get $n)))))"#;
    let expected = |n: u32| {
        let n = n.max(1);
        let lens: u32 = (1..n)
            .map(|depth| if depth == 1 { 1 } else { depth - 1 })
            .sum();
        Ok(lens + 1000 + n)
    };
    assert_eq!(
        verdicts(functions, &[0, 1, 2, 3, 50]),
        [0, 1, 2, 3, 50].map(expected)
    );
}

/// What was checked before a call does not hold behind it, nor at the callee's
/// second entry.
#[test]
fn nothing_is_known_of_the_message_behind_a_call() {
    let functions = format!(
        "(func $peek (param $n i32) (result i32)
            (if (i32.eqz (local.get $n)) (then (return (i32.const 0))))
            (if (i32.eq (local.get $n) (i32.const 3))
                (then (drop (call $load32 (i32.const 0)))))
            (drop (call $peek (i32.sub (local.get $n) (i32.const 1))))
            (call $load8 (i32.const 0)))
        (func $f (param i32) (result i32) (call $peek (local.get 0)))
        {CALL_F}"
    );
    assert_eq!(
        verdicts(&functions, &[0, 2, 3, 9]),
        [
            Ok(0),
            Ok(2),
            Err(Cause::MessageBounds),
            Err(Cause::MessageBounds)
        ]
    );
}

/// The first thing of a cycle that is called can stand last in it.
#[test]
fn what_cannot_be_reached_calls_nothing() {
    fn b(n: u32) -> u32 {
        if n == 0 { 2 } else { 2 * n + 10 + b(n - 1) }
    }
    let functions = format!(
        "(func $a (param i32) (result i32)
            (i32.add (i32.const 10) (call $b (i32.sub (local.get 0) (i32.const 1)))))
        (func $b (param i32) (result i32)
            (if (i32.eqz (local.get 0)) (then (return (call $leaf (i32.const 1)))))
            (i32.add (call $leaf (local.get 0)) (call $a (local.get 0))))
        (func $leaf (param i32) (result i32) (i32.mul (local.get 0) (i32.const 2)))
        (func $f (param i32) (result i32)
            (if (i32.const 0) (then (return (i32.const 5)) (drop (call $a (i32.const 1)))))
            (call $b (local.get 0)))
        {CALL_F}"
    );
    assert_eq!(
        verdicts(&functions, &[0, 1, 30]),
        [Ok(b(0)), Ok(b(1)), Ok(b(30))]
    );
}

#[test]
fn the_call_stack_has_an_end_at_a_place() {
    // Each level leaves a mark in memory, so that memory tells how deep it was.
    let functions = format!(
        "(global $depth (mut i32) (i32.const 0))
        (func $dive (param $n i32) (result i32)
            (i32.store (i32.mul (local.get $n) (i32.const 4)) (local.get $n))
            (global.set $depth (local.get $n))
            (if (i32.eqz (local.get $n)) (then (return (i32.const 0))))
            (i32.add (i32.const 1) (call $dive (i32.add (local.get $n) (i32.const 1)))))
        (func $f (param $n i32) (result i32)
            (if (result i32) (i32.eq (local.get $n) (i32.const 1))
                (then (call $dive (i32.const 1)))
                (else (i32.add (local.get $n) (i32.load (i32.const 80))))))
        {CALL_F}"
    );
    let found = outcomes(&functions, &[2, 1, 2, 1, 3]);
    assert_eq!(found[0].result, Ok(2));
    let Err((Cause::Stack, at)) = found[1].result else {
        panic!("{:?}", found[1].result)
    };
    assert_ne!(at, 0);
    let marks = found[1].memory[..65_536]
        .chunks_exact(4)
        .map(|word| u32::from_le_bytes(word.try_into().unwrap()));
    let depth = marks.max().unwrap();
    // No frame is larger than eight slots here, or smaller than two.
    assert!(
        (context::CALL_SLOTS / 32..context::CALL_SLOTS / 2).contains(&depth),
        "{depth}"
    );
    assert_eq!(found[2].result, Ok(2 + 20), "the next message goes on");
    assert_eq!(found[3].result, found[1].result, "and gets as deep");
    assert_eq!(found[3].memory, found[1].memory);
    assert_eq!(found[4].result, Ok(3 + 20));
}

#[test]
fn recursion_without_an_end_costs_fuel() {
    let wasm = module(&format!(
        r#"(module {IMPORTS} (memory (export "memory") 1 1)
        (func $spin (param $n i32) (result i32)
            (if (i32.eqz (local.get $n)) (then (return (i32.const 0))))
            (drop (call $spin (i32.sub (local.get $n) (i32.const 1))))
            (drop (call $spin (i32.sub (local.get $n) (i32.const 1))))
            (call $spin (i32.sub (local.get $n) (i32.const 1))))
        (func (export "on_rx") (param i32 i32) (result i32) (call $spin (i32.const 40))))"#
    ));
    let budget = Budget {
        fuel: 50_000,
        ..PLENTY
    };
    let found = run_with(&wasm, &[b""], budget);
    assert!(
        matches!(found[0].result, Err((Cause::Fuel, _))),
        "{:?}",
        found[0].result
    );
}

/// A frame of more words than a cache line, saved and brought back whole.
#[test]
fn large_frames() {
    let each = |text: &dyn Fn(u32) -> String| (0..100).map(text).collect::<Vec<_>>().concat();
    let locals = each(&|i| format!("(local $l{i} i64)"));
    let set = each(&|i| {
        format!(
            "(local.set $l{i} (i64.extend_i32_u (i32.mul (local.get $n) (i32.const {}))))",
            i + 1
        )
    });
    let sum = each(&|i| format!("(i64.add (local.get $l{i}))"));
    let functions = format!(
        "(func $big (param $n i32) (result i64) {locals}
            (if (i32.eqz (local.get $n)) (then (return (i64.const 0))))
            {set}
            (i64.mul (call $big (i32.sub (local.get $n) (i32.const 1))) (i64.const 3))
            {sum})
        (func $f (param $n i32) (result i32) (i32.wrap_i64 (call $big (local.get $n))))
        {CALL_F}"
    );
    let expected = |n: u64| {
        let value = (1..=n).fold(0_u64, |below, n| {
            below.wrapping_mul(3).wrapping_add(n * 5050)
        });
        Ok(value as u32)
    };
    assert_eq!(
        verdicts(&functions, &[0, 1, 2, 30, 60]),
        [
            expected(0),
            expected(1),
            expected(2),
            expected(30),
            Err(Cause::Stack)
        ]
    );
}

/// Without `CAP_PERFMON` the verifier wants every way to a pointer's addition
/// to be alike, the call stack's included.
#[test]
fn array_mode_needs_no_cap_perfmon() {
    use super::harness::{promote, without_perfmon};
    use ashway_abi::MemoryKind;
    let wasm = module(&format!(
        r#"(module {IMPORTS} (memory (export "memory") 1 1)
        (type $op (func (param i32 i32) (result i32)))
        (table 2 funcref)
        (elem (i32.const 0) $down $even)
        (func $down (type $op) (local $sum i32)
            (if (i32.eqz (local.get 0)) (then (return (i32.load (local.get 1)))))
            (i32.store (local.get 1) (i32.add (local.get 0) (i32.load (local.get 1))))
            (local.set $sum (call $down (i32.shr_u (local.get 0) (i32.const 1)) (local.get 1)))
            (i32.add (local.get $sum) (call_indirect (type $op)
                (i32.sub (local.get 0) (i32.const 1)) (local.get 1) (i32.and (local.get 0) (i32.const 1)))))
        (func $even (type $op)
            (loop $l (local.set 0 (i32.sub (local.get 0) (i32.const 1)))
                (br_if $l (i32.gt_s (local.get 0) (i32.const 5))))
            (if (i32.lt_s (local.get 0) (i32.const 1)) (then (return (i32.const 9))))
            (call $down (local.get 0) (local.get 1)))
        (table $stored 4 4 funcref)
        (func (export "on_rx") (param i32 i32) (result i32) (local $i i32)
            (local.set $i (i32.and (call $load8 (i32.const 1)) (i32.const 3)))
            (table.set $stored (local.get $i) (ref.func $down))
            (i32.add
                (call_indirect $stored (type $op) (i32.const 3) (i32.const 64) (local.get $i))
                (call $down (call $load8 (i32.const 0)) (call $load8 (i32.const 1))))))"#
    ));
    without_perfmon(move || {
        for locals_in_memory in [false, true] {
            let promoted = promote(&wasm, MemoryKind::Array, locals_in_memory, PLENTY).unwrap();
            let messages: [&[u8]; 3] = [&[0, 4], &[7, 8], &[20, 100]];
            assert!(promoted.run_in_kernel(&messages) == promoted.interpret(&messages));
        }
    });
}

/// Its end would overwrite the next frame, where nobody looks: it is never
/// translated, whatever the normal form says.
#[test]
fn a_frame_is_no_larger_than_what_is_counted_for_it() {
    let wasm = module(
        r#"(module (memory (export "memory") 1 1)
            (func $f (export "on_rx") (param $a i32) (param $b i32) (result i32)
                (if (i32.eqz (local.get $a)) (then (return (local.get $b))))
                (i32.add (local.get $b)
                    (call $f (i32.sub (local.get $a) (i32.const 1)) (local.get $b)))))"#,
    );
    let mut module = normalise(&wasm, &Limits::default()).unwrap();
    let translate = |module: &_| {
        let shape = Shape {
            module,
            entry: 0,
            memory: MemoryKind::Arena,
            layout: stub::layout(module),
            budget: PLENTY,
            locals_in_memory: false,
            checks: Checks::default(),
        };
        stub::generate(&shape, 1).map(|_| ())
    };
    translate(&module).unwrap();
    for op in &mut module.functions[0].code {
        if let OpKind::Push { slots } | OpKind::Pop { slots } = &mut op.kind {
            *slots = 1;
        }
    }
    let error = translate(&module).unwrap_err();
    assert!(
        matches!(error, PromoteError::Frames { found, most: 8, .. } if found > 8),
        "{error:?}"
    );
}

/// A function takes its frame in memory from `__stack_pointer`; one that is stopped gives it back.
#[test]
fn what_is_stopped_gives_its_stack_back() {
    let functions = format!(
        "(global $__stack_pointer (mut i32) (i32.const 4096))
        (func $f (param $n i32) (result i32)
            (global.set $__stack_pointer
                (i32.sub (global.get $__stack_pointer) (i32.const 256)))
            (if (local.get $n) (then unreachable))
            (global.set $__stack_pointer
                (i32.add (global.get $__stack_pointer) (i32.const 256)))
            (global.get $__stack_pointer))
        {CALL_F}"
    );
    assert_eq!(
        verdicts(&functions, &[0, 1, 2, 0]),
        [
            Ok(4096),
            Err(Cause::Unreachable),
            Err(Cause::Unreachable),
            Ok(4096)
        ]
    );
}
