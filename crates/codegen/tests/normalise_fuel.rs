//! What fuel is taken for: naming an operand is free, and nothing that can be
//! repeated is.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use ashway_codegen::normalise::ir::OpKind;
use ashway_codegen::normalise::{Module, encode, static_bound};
use common::{function, module, on_rx, parse};
use wasmparser::{KnownCustom, Operator, Parser, Payload};

/// All charges of a function, in order.
fn charges(module: &Module<'_>, name: &str) -> Vec<u32> {
    let code = function(module, name).code.iter();
    code.filter_map(|op| match op.kind {
        OpKind::Charge { cost } => Some(cost),
        _ => None,
    })
    .collect()
}

/// What a charge costs by itself.
const CHARGE: u32 = 4;

/// What a turn of this body costs beyond its charges.
fn turn(fields: &str, body: &str) -> u32 {
    let wasm = parse(&format!(
        "{fields} {}",
        on_rx(&format!("(loop $turn {body}) (i32.const 1)"))
    ));
    let charges = charges(&module(&wasm), "on_rx");
    charges.iter().map(|cost| cost - CHARGE).sum()
}

#[test]
fn naming_an_operand_is_free() {
    for (body, expected) in [
        ("(local.set $i (local.get 0))", 1),
        ("(local.set $i (i32.add (local.get $i) (i32.const 1)))", 2),
        ("(i32.store (local.get 0) (local.get 1)) (br $turn)", 4),
        ("(drop (i32.load (i64.const 1) (i32.wrap_i64)))", 4),
        (
            "(drop (select (local.get 0) (local.get 1) (local.get $i)))",
            1,
        ),
    ] {
        assert_eq!(turn("", body), expected, "{body}");
    }
}

/// A charge of nothing would let a loop or a recursion run without end.
#[test]
fn a_turn_and_a_call_of_nothing_are_not_free() {
    for body in [
        "",
        "(nop)",
        "(drop (local.get 0))",
        "(block) (drop (i64.const 0))",
    ] {
        let wasm = parse(&format!(
            "(func $called (param i32) {body}) {}",
            on_rx("(call $called (local.get 0)) (call $called (i32.const 0)) (i32.const 1)"),
        ));
        let module = module(&wasm);
        assert_eq!(charges(&module, "called"), [CHARGE], "{body}");
        // The bound counts what is taken: two calls with a value, and at each
        // entry; a charge for the handler itself, which is not taken, is in it.
        let bound = static_bound(&module, module.exports[0].1);
        assert_eq!(bound, Some(2 * (4 + 1 + 4) + 4), "{body}");

        let wasm = parse(&on_rx(&format!("(loop {body}) (i32.const 1)")));
        assert_eq!(charges(&common::module(&wasm), "on_rx"), [CHARGE], "{body}");
    }
}

/// Operands that wait while blocks begin are put aside, each by an instruction
/// or two: a turn that does nothing else would be long for one unit.
#[test]
fn operands_without_end_are_not_free() {
    let named = "(local.get 0)".repeat(4_000);
    let dropped = "drop ".repeat(4_000);
    assert_eq!(turn("", &format!("{named} (block) {dropped}")), 1_000);
    let wasm = parse(&on_rx(&format!(
        "(loop {}) (i32.const 1)",
        format!("{named} {dropped}").repeat(3)
    )));
    let parts = charges(&module(&wasm), "on_rx");
    let work: u32 = parts.iter().map(|cost| cost - CHARGE).sum();
    assert_eq!(work, 3_000);
    assert!(parts.iter().all(|cost| *cost < 600), "{parts:?}");
}

#[test]
fn values_that_are_carried_are_paid_by_their_carrier() {
    let many = "(type $many (func (param i32 i32 i32) (result i32 i32)))";
    let callee = "(func $f (type $many) (local.get 0) (local.get 1))";
    let arguments = "(local.get 0) (local.get 1) (i32.const 2)";
    for (fields, body, expected) in [
        // Five values, and 4 for a call or 8 for finding out whom.
        (callee, format!("{arguments} (call $f) drop drop"), 9),
        (
            "(table 1 funcref)",
            format!("{arguments} (call_indirect (type $many) (i32.const 0)) drop drop"),
            13,
        ),
        (
            "",
            format!("{arguments} (block (type $many) drop) drop drop"),
            5,
        ),
        ("", "(block (result i32) (local.get 0)) drop".to_owned(), 1),
        // What the next turn gets is paid by each turn.
        (
            "",
            format!("{arguments} (loop (type $many) drop) drop drop"),
            3,
        ),
    ] {
        assert_eq!(turn(&format!("{many} {fields}"), &body), expected, "{body}");
    }
}

/// A hint at another offset would put the handler's own code out of the way.
#[test]
fn each_way_to_the_host_is_said_to_be_unlikely() {
    let body = "(loop $again (i32.store (i32.const 0) (call $load32be (i32.const 0)))
                    (br_if $again (local.get 0)))
                (if (local.get 1) (then (return (i32.const 2))))
                (i32.const 1)";
    let other = "(func $other (param i32) (result i32) (local.get 0))";
    let again = "(drop (call $other (i32.const 1))) (drop (call $other (i32.const 1)))";
    let wasm = parse(&format!("{other} {}", on_rx(&format!("{again} {body}"))));
    let encoded = encode(&module(&wasm)).wasm;
    let mut hints = Vec::new();
    let mut bodies = Vec::new();
    for payload in Parser::new(0).parse_all(&encoded) {
        match payload.unwrap() {
            Payload::CustomSection(section) => {
                assert!(bodies.is_empty(), "it stands before the code");
                let KnownCustom::BranchHints(functions) = section.as_known() else {
                    continue;
                };
                for function in functions {
                    let function = function.unwrap();
                    let all = function.hints.into_iter().map(Result::unwrap);
                    hints.extend(all.map(|hint| (function.func, hint)));
                }
            }
            Payload::CodeSectionEntry(body) => bodies.push(body),
            _ => {}
        }
    }
    for (function, hint) in &hints {
        // Three functions are the host's.
        let body = &bodies[*function as usize - 3];
        let mut operators = body.get_operators_reader().unwrap();
        let wanted = body.range().start + u64::from(hint.func_offset);
        let at = loop {
            let (operator, at) = operators.read_with_offset().unwrap();
            if at == wanted {
                break operator;
            }
        };
        assert!(matches!(at, Operator::If { .. }) && !hint.taken, "{at:?}");
    }
    // The loop's charge, the message's bounds, and the charge of `$other`.
    let in_functions: Vec<u32> = hints.iter().map(|(function, _)| *function).collect();
    assert_eq!(in_functions, [3, 4, 4]);
}
