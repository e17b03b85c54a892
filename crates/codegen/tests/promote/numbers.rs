//! Integer operators against Rust's, over the values where they go wrong.

use super::harness::{handler, run};
use ashway_abi::Cause;

const VALUES: [u64; 20] = [
    0,
    1,
    2,
    7,
    31,
    32,
    33,
    63,
    64,
    0x7f,
    0x80,
    0xffff,
    0x8000,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x1_0000_0000,
    0x7fff_ffff_ffff_ffff,
    0x8000_0000_0000_0000,
    0xffff_ffff_ffff_ffff,
];

/// Constants: those that fit an immediate, and those that do not.
const CONSTANTS: [u64; 9] = [
    0,
    1,
    5,
    33,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    u64::MAX,
    1 << 63,
];

type Binary = fn(u64, u64) -> Result<u64, Cause>;
type Unary = fn(u64) -> u64;

/// The two types' operators by their common name.
macro_rules! binaries {
    ($signed:ty, $unsigned:ty) => {{
        type S = $signed;
        type U = $unsigned;
        let table: &[(&str, Binary)] = &[
            ("add", |a, b| Ok((a as U).wrapping_add(b as U) as u64)),
            ("sub", |a, b| Ok((a as U).wrapping_sub(b as U) as u64)),
            ("mul", |a, b| Ok((a as U).wrapping_mul(b as U) as u64)),
            ("and", |a, b| Ok((a as U & b as U) as u64)),
            ("or", |a, b| Ok((a as U | b as U) as u64)),
            ("xor", |a, b| Ok((a as U ^ b as U) as u64)),
            ("shl", |a, b| Ok((a as U).wrapping_shl(b as u32) as u64)),
            ("shr_u", |a, b| Ok((a as U).wrapping_shr(b as u32) as u64)),
            ("shr_s", |a, b| {
                Ok((a as S).wrapping_shr(b as u32) as U as u64)
            }),
            ("rotl", |a, b| {
                Ok((a as U).rotate_left(b as u32 % U::BITS) as u64)
            }),
            ("rotr", |a, b| {
                Ok((a as U).rotate_right(b as u32 % U::BITS) as u64)
            }),
            ("div_u", |a, b| {
                (a as U)
                    .checked_div(b as U)
                    .map(|r| r as u64)
                    .ok_or(Cause::DivideByZero)
            }),
            ("rem_u", |a, b| {
                (a as U)
                    .checked_rem(b as U)
                    .map(|r| r as u64)
                    .ok_or(Cause::DivideByZero)
            }),
            ("div_s", |a, b| match (a as S, b as S) {
                (_, 0) => Err(Cause::DivideByZero),
                (a, b) => a
                    .checked_div(b)
                    .map(|r| r as U as u64)
                    .ok_or(Cause::Overflow),
            }),
            ("rem_s", |a, b| match (a as S, b as S) {
                (_, 0) => Err(Cause::DivideByZero),
                (a, b) => Ok(a.wrapping_rem(b) as U as u64),
            }),
        ];
        table
    }};
}

macro_rules! comparisons {
    ($signed:ty, $unsigned:ty) => {{
        type S = $signed;
        type U = $unsigned;
        let table: &[(&str, Binary)] = &[
            ("eq", |a, b| Ok(u64::from(a as U == b as U))),
            ("ne", |a, b| Ok(u64::from(a as U != b as U))),
            ("lt_s", |a, b| Ok(u64::from((a as S) < b as S))),
            ("lt_u", |a, b| Ok(u64::from((a as U) < b as U))),
            ("gt_s", |a, b| Ok(u64::from(a as S > b as S))),
            ("gt_u", |a, b| Ok(u64::from(a as U > b as U))),
            ("le_s", |a, b| Ok(u64::from(a as S <= b as S))),
            ("le_u", |a, b| Ok(u64::from(a as U <= b as U))),
            ("ge_s", |a, b| Ok(u64::from(a as S >= b as S))),
            ("ge_u", |a, b| Ok(u64::from(a as U >= b as U))),
        ];
        table
    }};
}

fn load(ty: &str, at: usize) -> String {
    let name = if ty == "i64" { "load64" } else { "load32" };
    format!("(call ${name} (i32.const {at}))")
}

fn constant(ty: &str, value: u64) -> String {
    let value = if ty == "i64" {
        value as i64
    } else {
        i64::from(value as i32)
    };
    format!("({ty}.const {value})")
}

/// Stores the value of `expression` at the message's start.
fn store(result: &str, expression: &str) -> String {
    if result == "i64" {
        format!("(call $store64 (i32.const 0) {expression})")
    } else {
        format!("(call $store64 (i32.const 0) (i64.extend_i32_u {expression}))")
    }
}

fn pairs() -> Vec<(u64, u64)> {
    VALUES
        .iter()
        .flat_map(|a| VALUES.map(|b| (*a, b)))
        .collect()
}

/// Runs a body on pairs of numbers in 16-byte messages.
fn check(
    what: &str,
    body: &str,
    pairs: &[(u64, u64)],
    expected: impl Fn(u64, u64) -> Result<u64, Cause>,
) {
    let messages: Vec<Vec<u8>> = pairs
        .iter()
        .map(|(a, b)| [a.to_le_bytes(), b.to_le_bytes()].concat())
        .collect();
    let messages: Vec<&[u8]> = messages.iter().map(Vec::as_slice).collect();
    let wasm = handler(&format!("{body} (i32.const 1)"));
    for (outcome, (a, b)) in run(&wasm, &messages).iter().zip(pairs) {
        let found = u64::from_le_bytes(outcome.message[..8].try_into().unwrap());
        let found = outcome.result.map(|_| found).map_err(|(cause, _)| cause);
        assert_eq!(found, expected(*a, *b), "{what} of {a:#x} and {b:#x}");
    }
}

fn check_binary(ty: &str, result: &str, name: &str, function: Binary) {
    let (a, b) = (load(ty, 0), load(ty, 8));
    let op = format!("{ty}.{name}");
    check(
        &op,
        &store(result, &format!("({op} {a} {b})")),
        &pairs(),
        function,
    );
    // Into a local that is an operand too, and the other one.
    let locals = format!("(local $a {ty}) (local $b {ty}) (local.set $a {a}) (local.set $b {b})");
    for to in ["a", "b"] {
        let get = "(local.get $a) (local.get $b)";
        let body = if result == ty {
            let stored = store(result, &format!("(local.get ${to})"));
            format!("{locals} (local.set ${to} ({op} {get})) {stored}")
        } else {
            // A comparison that is jumped on, both ways.
            let select = format!("(select (i32.const 1) (i32.const 0) ({op} {get}))");
            let branch = format!(
                "(if (result i32) (i32.eqz ({op} {get})) (then (i32.const 0)) (else {select}))"
            );
            format!("{locals} {}", store("i32", &branch))
        };
        check(&op, &body, &pairs(), function);
    }
    check_constants(ty, result, name, function);
}

/// The operator with a constant on either side. Where it can trap, each in a
/// handler of its own; else all in one, each with its place in the message.
fn check_constants(ty: &str, result: &str, name: &str, function: Binary) {
    let op = format!("{ty}.{name}");
    let a = load(ty, 0);
    let expressions = CONSTANTS.map(|value| {
        let c = constant(ty, value);
        [format!("({op} {a} {c})"), format!("({op} {c} {a})")]
    });
    let expected = |a: u64| CONSTANTS.map(|value| [function(a, value), function(value, a)]);
    if name.starts_with("div") || name.starts_with("rem") {
        let firsts: Vec<(u64, u64)> = VALUES.map(|a| (a, 0)).into();
        for (index, sides) in expressions.iter().enumerate() {
            for (side, expression) in sides.iter().enumerate() {
                check(&op, &store(result, expression), &firsts, |a, _| {
                    expected(a)[index][side]
                });
            }
        }
        return;
    }
    let stores = expressions
        .iter()
        .flatten()
        .zip(1..)
        .map(|(expression, place)| {
            store(result, expression).replacen(
                "i32.const 0",
                &format!("i32.const {}", place * 8),
                1,
            )
        });
    let wasm = handler(&format!("{} (i32.const 1)", stores.collect::<String>()));
    let messages = VALUES.map(|a| {
        let mut message = a.to_le_bytes().to_vec();
        message.resize(8 + 16 * CONSTANTS.len(), 0);
        message
    });
    let messages: Vec<&[u8]> = messages.iter().map(Vec::as_slice).collect();
    for (outcome, a) in run(&wasm, &messages).iter().zip(VALUES) {
        let found = outcome.message[8..].chunks(8);
        let found: Vec<u64> = found
            .map(|word| u64::from_le_bytes(word.try_into().unwrap()))
            .collect();
        let expected: Vec<u64> = expected(a)
            .into_iter()
            .flatten()
            .map(Result::unwrap)
            .collect();
        assert_eq!(found, expected, "{op} of {a:#x}");
    }
}

#[test]
fn i32_arithmetic() {
    for (name, function) in binaries!(i32, u32) {
        check_binary("i32", "i32", name, *function);
    }
}

#[test]
fn i64_arithmetic() {
    for (name, function) in binaries!(i64, u64) {
        check_binary("i64", "i64", name, *function);
    }
}

#[test]
fn i32_comparisons() {
    for (name, function) in comparisons!(i32, u32) {
        check_binary("i32", "i32", name, *function);
    }
}

#[test]
fn i64_comparisons() {
    for (name, function) in comparisons!(i64, u64) {
        check_binary("i64", "i32", name, *function);
    }
}

#[test]
fn unary_operators() {
    let table: &[(&str, &str, &str, Unary)] = &[
        ("i32", "i32", "i32.clz", |a| {
            (a as u32).leading_zeros().into()
        }),
        ("i32", "i32", "i32.ctz", |a| {
            (a as u32).trailing_zeros().into()
        }),
        ("i32", "i32", "i32.popcnt", |a| {
            (a as u32).count_ones().into()
        }),
        ("i64", "i64", "i64.clz", |a| a.leading_zeros().into()),
        ("i64", "i64", "i64.ctz", |a| a.trailing_zeros().into()),
        ("i64", "i64", "i64.popcnt", |a| a.count_ones().into()),
        ("i32", "i32", "i32.eqz", |a| u64::from(a as u32 == 0)),
        ("i64", "i32", "i64.eqz", |a| u64::from(a == 0)),
        ("i64", "i32", "i32.wrap_i64", |a| u64::from(a as u32)),
        ("i32", "i64", "i64.extend_i32_u", |a| u64::from(a as u32)),
        ("i32", "i64", "i64.extend_i32_s", |a| a as i32 as i64 as u64),
        ("i32", "i32", "i32.extend8_s", |a| {
            u64::from(a as i8 as i32 as u32)
        }),
        ("i32", "i32", "i32.extend16_s", |a| {
            u64::from(a as i16 as i32 as u32)
        }),
        ("i64", "i64", "i64.extend8_s", |a| a as i8 as i64 as u64),
        ("i64", "i64", "i64.extend16_s", |a| a as i16 as i64 as u64),
        ("i64", "i64", "i64.extend32_s", |a| a as i32 as i64 as u64),
    ];
    let values: Vec<(u64, u64)> = VALUES
        .into_iter()
        .chain([0x0123_4567_89ab_cdef, 0x0f0f_0000_8000_7f80])
        .map(|a| (a, 0))
        .collect();
    for (ty, result, op, function) in table {
        let a = load(ty, 0);
        check(
            op,
            &store(result, &format!("({op} {a})")),
            &values,
            |a, _| Ok(function(a)),
        );
        let local = format!(
            "(local $a {ty}) (local $b {result}) (local.set $a {a}) (local.set $b ({op} (local.get $a))) {}",
            store(result, "(local.get $b)")
        );
        check(op, &local, &values, |a, _| Ok(function(a)));
    }
}
