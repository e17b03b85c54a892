//! Blocks, branches, values on the way, and fuel.

use super::harness::{PLENTY, handler, run, run_with};
use ashway_abi::Budget;
use ashway_abi::Cause;

/// The verdict for each first byte of a one-byte message.
fn verdicts(body: &str, inputs: &[u8]) -> Vec<u32> {
    let messages: Vec<[u8; 1]> = inputs.iter().map(|input| [*input]).collect();
    let messages: Vec<&[u8]> = messages.iter().map(<[u8; 1]>::as_slice).collect();
    let outcomes = run(&handler(body), &messages);
    outcomes
        .iter()
        .map(|outcome| outcome.result.unwrap())
        .collect()
}

const INPUT: &str = "(call $load8 (i32.const 0))";

#[test]
fn values_pass_through_blocks_and_branches() {
    let body = format!(
        "(i32.const 100)
         (block $out (result i32)
            (i32.const 7)
            (block $in (result i32)
                (br_if $in (i32.const 1) (i32.eqz {INPUT}))
                drop
                (br_if $out (i32.const 2) (i32.eq {INPUT} (i32.const 1)))
                drop
                (br_if $in {INPUT} (i32.gt_u {INPUT} (i32.const 9)))
                (i32.add (i32.const 1)))
            i32.add)
         i32.add"
    );
    assert_eq!(verdicts(&body, &[0, 1, 2, 50]), [108, 102, 110, 157]);
}

#[test]
fn blocks_take_parameters_and_give_several_results() {
    let body = format!(
        "(local $t i32)
         {INPUT} (i32.const 3)
         (block (param i32 i32) (result i32 i32)
            (local.set $t)
            (if (param i32) (result i32 i32) (i32.lt_u (local.get $t) {INPUT})
                (then (local.get $t))
                (else (i32.const 1) (i32.add) (i32.const 10))))
         i32.mul"
    );
    assert_eq!(verdicts(&body, &[0, 3, 4, 9]), [10, 40, 12, 27]);
}

#[test]
fn loops_carry_values_around() {
    let body = format!(
        "(local $n i32)
         (local.set $n {INPUT})
         (i32.const 1)
         (loop $again (param i32) (result i32)
            (i32.mul (i32.const 3))
            (br_if $again (local.tee $n (i32.sub (local.get $n) (i32.const 1)))))"
    );
    assert_eq!(verdicts(&body, &[1, 2, 5, 12]), [3, 9, 243, 531_441]);
}

#[test]
fn loops_nest() {
    let body = format!(
        "(local $i i32) (local $j i32) (local $k i32) (local $sum i32) (local $n i32)
         (local.set $n {INPUT})
         (loop $a
            (local.set $j (i32.const 0))
            (loop $b
                (local.set $k (i32.const 0))
                (loop $c
                    (local.set $sum (i32.add (local.get $sum) (i32.mul (local.get $i) (local.get $k))))
                    (br_if $c (i32.lt_u (local.tee $k (i32.add (local.get $k) (i32.const 1))) (local.get $n))))
                (br_if $b (i32.lt_u (local.tee $j (i32.add (local.get $j) (i32.const 1))) (local.get $n))))
            (br_if $a (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (local.get $n))))
         (local.get $sum)"
    );
    let expected = |n: u32| (0..n).sum::<u32>().pow(2) * n;
    assert_eq!(
        verdicts(&body, &[1, 2, 9, 20]),
        [expected(1), expected(2), expected(9), expected(20)]
    );
}

#[test]
fn br_table_finds_every_target() {
    let body = format!(
        "(block $d (block $c (block $b (block $a
            (br_table $a $b $c $c $a $d {INPUT}))
            (return (i32.const 1)))
            (return (i32.const 2)))
            (return (i32.const 3)))
         (i32.const 4)"
    );
    assert_eq!(
        verdicts(&body, &[0, 1, 2, 3, 4, 5, 6, 255]),
        [1, 2, 3, 3, 1, 4, 4, 4]
    );
    let carrying = format!(
        "(i32.add (i32.const 1000)
         (block $b (result i32)
            (i32.add (i32.const 10)
            (block $a (result i32)
                (br_table $a 2 $b (i32.add {INPUT} (i32.const 1)) {INPUT})))))"
    );
    assert_eq!(verdicts(&carrying, &[0, 1, 2, 9]), [1011, 2, 1003, 1010]);
    let alone = format!("(block $a (br_table $a {INPUT})) (i32.const 5)");
    assert_eq!(verdicts(&alone, &[0, 1]), [5, 5]);
}

#[test]
fn select_takes_any_operands() {
    for (first, second) in [
        ("(local.get $a)", "(local.get $b)"),
        ("(local.get $b)", "(local.get $a)"),
        ("(i32.const 7)", "(local.get $a)"),
        ("(local.get $a)", "(i32.const 7)"),
        (
            "(i32.add (local.get $a) (i32.const 1))",
            "(i32.add (local.get $b) (i32.const 2))",
        ),
    ] {
        for to in ["$a", "$b"] {
            let body = format!(
                "(local $a i32) (local $b i32)
                 (local.set $a {INPUT}) (local.set $b (i32.const 20))
                 (local.set {to} (select {first} {second} (i32.lt_s (local.get $a) (i32.const 10))))
                 (local.get {to})"
            );
            let value = |text: &str, a: u32| match text {
                "(local.get $a)" => a,
                "(local.get $b)" => 20,
                "(i32.const 7)" => 7,
                text if text.contains("$a") => a + 1,
                _ => 22,
            };
            let expected = [3, 30].map(|a| value(if a < 10 { first } else { second }, a));
            assert_eq!(verdicts(&body, &[3, 30]), expected, "{first} {second} {to}");
        }
    }
}

#[test]
fn an_old_value_survives_a_new_one() {
    let body = format!(
        "(local $a i32)
         (local.set $a {INPUT})
         (local.get $a)
         (local.get $a)
         (local.set $a (i32.add (local.get $a) (i32.const 1)))
         (i32.sub (i32.shl (local.tee $a (i32.mul (local.get $a) (i32.const 2))) (i32.const 8)))
         i32.add
         (i32.add (local.get $a))"
    );
    let expected = |a: u32| {
        a.wrapping_add(a.wrapping_sub(((a + 1) * 2) << 8))
            .wrapping_add((a + 1) * 2)
    };
    assert_eq!(verdicts(&body, &[5, 9]), [expected(5), expected(9)]);
}

#[test]
fn many_operands_wait() {
    let push = |i| {
        format!(
            "(i32.add {INPUT} (i32.const {i})) (i64.extend_i32_u (i32.mul {INPUT} (i32.const {i})))"
        )
    };
    let pushes: String = (0..20).map(push).collect();
    let fold = "i32.wrap_i64 (i32.add (local.get $x)) i32.xor (local.set $x)";
    let body = format!("(local $x i32) {pushes} {} (local.get $x)", fold.repeat(20));
    let expected = |a: u32| (0..20).rev().fold(0, |x, i| (a * i + x) ^ (a + i));
    assert_eq!(verdicts(&body, &[3, 200]), [expected(3), expected(200)]);
}

#[test]
fn unreachable_code_is_left_out() {
    let body = "(block $a
                    (br $a)
                    i32.add
                    if i64.const 1 drop else block end end
                    (loop $b (br $b))
                    i32.eqz
                    br_if $a)
                (if (result i32) (i32.const 1) (then (return (i32.const 3))) (else (unreachable)))";
    assert_eq!(verdicts(body, &[0]), [3]);
}

#[test]
fn fuel_runs_out_at_the_same_turn_whatever_the_slices() {
    let wasm = handler(
        "(local $i i32) (loop $l (i32.store (i32.const 0) (local.tee $i (i32.add (local.get $i) (i32.const 1)))) (br $l)) (i32.const 0)",
    );
    let mut turns = Vec::new();
    for slice in [1, 7, 50, 1_000, 20_000] {
        let budget = Budget {
            fuel: 1_000,
            slice,
            ..PLENTY
        };
        let outcome = &run_with(&wasm, &[b""], budget)[0];
        assert_eq!(outcome.result.unwrap_err().0, Cause::Fuel);
        turns.push(u32::from_le_bytes(outcome.memory[..4].try_into().unwrap()));
    }
    turns.dedup();
    // Ten units each: the charge itself 4, store 3, add, tee, br.
    assert_eq!(turns, [100]);
}

#[test]
fn time_runs_out_at_the_end_of_a_slice() {
    let wasm = handler("(loop $l (br $l)) (i32.const 0)");
    let budget = Budget {
        fuel: 1 << 40,
        slice: 1_000,
        ns: 1,
    };
    let promoted = super::harness::promote(&wasm, ashway_abi::MemoryKind::Arena, false, budget);
    let outcome = &promoted.unwrap().interpret(&[b""])[0];
    assert_eq!(outcome.result.unwrap_err().0, Cause::Time);
    // Not the kernel's own bound of loops, which has the same cause.
    assert!(outcome.fuel > (1 << 40) - 10_000, "{}", outcome.fuel);
}

#[test]
fn behind_a_slow_stretch_comes_a_short_slice() {
    // A turn is five units: the charge 4, br.
    let wasm = handler("(loop $l (br $l)) (i32.const 0)");
    let spent = |step, ns| {
        let budget = Budget {
            fuel: 1 << 40,
            slice: 16_000,
            ns,
        };
        let kind = ashway_abi::MemoryKind::Arena;
        let promoted = super::harness::promote(&wasm, kind, false, budget).unwrap();
        let outcome = &promoted.interpret_by(step, &[b""])[0];
        assert_eq!(outcome.result.unwrap_err().0, Cause::Time);
        ((1_i64 << 40) - outcome.fuel) as u64
    };
    // Whatever has run, the clock goes on by 10 us with each look, where 2 are aimed at:
    // a stretch is a fifth of the one before, and 250 units, where it would be 12,000.
    // Near the end it is as much less as there is less time.
    let step = 10_000;
    let grown = spent(step, 20 * step) - spent(step, 10 * step);
    assert!((10 * 250..=10 * 330).contains(&grown), "{grown}");
    // At 100 ns with each look it is the most there is.
    let step = 100;
    let grown = spent(step, 200 * step) - spent(step, 100 * step);
    assert!((100 * 11_900..=100 * 12_100).contains(&grown), "{grown}");
}
