//! What is given to Wasmtime ends, or comes to a charge: and the look at that finds
//! each charge that is missing.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use ashway_codegen::normalise::ir::{Module, Op, OpKind};
use ashway_codegen::normalise::{Unbounded, check_bounded, encode};
use common::{module, on_rx, parse};
use wasmparser::Operator;

/// Everything that takes fuel: loops in loops, functions that are called twice, in a
/// loop, by themselves, in a ring and through a table, every bulk operation, and runs of
/// pipes with a list that is known and with one that is not.
const ALL: &str = r#"
    (import "ashway" "pipe_read" (func $pipe_read (param i32 i32 i32 i32)))
    (import "ashway" "pipe_in_place" (func $pipe_in_place (param i32 i32 i32)))
    (import "ashway" "msg_resize" (func $resize (param i32) (result i32)))
    (import "ashway" "log" (func $log (param i32 i32)))
    (@custom "ashway.pipes" "cksum16\0acksum16 | bswap32")
    (table $constant 4 4 funcref)
    (elem $constant (i32.const 0) $tabled)
    (table $stored 4 8 funcref)
    (elem $passive func $tabled)
    (data $bytes "bytes")
    (type $plain (func (param i32) (result i32)))
    (func $tabled (type $plain) (local.get 0))
    (func $twice (type $plain) (i32.add (local.get 0) (i32.const 1)))
    (func $in_loop (type $plain) (i32.add (local.get 0) (i32.const 1)))
    (func $once (type $plain) (call $in_loop (local.get 0)))
    (func $itself (type $plain)
        (if (result i32) (local.get 0)
            (then (call $itself (i32.sub (local.get 0) (i32.const 1))))
            (else (i32.const 0))))
    (func $ring (type $plain)
        (if (result i32) (local.get 0) (then (call $round (local.get 0))) (else (i32.const 0))))
    (func $round (type $plain) (call $ring (i32.sub (local.get 0) (i32.const 1))))
    (func (export "other") (param i32 i32) (result i32)
        (drop (call $ring (local.get 0)))
        (local.get 1))
"#;

const BODY: &str = "
    (loop $outer
        (loop $inner (br_if $inner (call $once (i32.const 0))))
        (drop (call $twice (i32.const 1)))
        (br_if $outer (call_indirect $constant (type $plain) (i32.const 0) (i32.const 1))))
    (drop (call $twice (i32.const 2)))
    (drop (call $itself (i32.const 3)))
    (call $read (i32.const 0) (i32.const 0) (local.get 0))
    (call $write (i32.const 0) (i32.const 0) (local.get 0))
    (memory.copy (i32.const 0) (i32.const 8) (local.get 0))
    (memory.fill (i32.const 0) (i32.const 8) (local.get 0))
    (memory.init $bytes (i32.const 0) (i32.const 0) (local.get 1))
    (table.init $stored $passive (i32.const 0) (i32.const 0) (local.get 1))
    (table.fill $stored (i32.const 0) (ref.func $tabled) (local.get 1))
    (table.copy $stored $stored (i32.const 0) (i32.const 1) (local.get 1))
    (drop (table.grow $stored (ref.null func) (local.get 1)))
    (drop (call $resize (local.get 1)))
    (call $log (i32.const 0) (local.get 1))
    (call $pipe_read (i32.const 4) (i32.const 64) (local.get 1) (i32.const 1))
    (call $pipe_in_place (i32.const 0) (local.get 1) (local.get 0))
    (i32.const 1)";

fn check(module: &Module<'_>) -> Result<(), Unbounded> {
    check_bounded(&encode(module))
}

/// How many operations of this kind, each taken out alone, are missed; and how many
/// there are.
fn missed(wanted: impl Fn(&[Op<'_>], usize) -> bool) -> (usize, usize) {
    let wasm = parse(&format!("{ALL} {}", on_rx(BODY)));
    let whole = module(&wasm);
    check(&whole).unwrap();
    let (mut tried, mut silent) = (0, 0);
    for function in 0..whole.functions.len() {
        for at in 0..whole.functions[function].code.len() {
            if wanted(&whole.functions[function].code, at) {
                let mut without = whole.clone();
                without.functions[function].code[at].kind = OpKind::Wasm(Operator::Nop);
                tried += 1;
                silent += usize::from(check(&without).is_ok());
            }
        }
    }
    (silent, tried)
}

fn is_charge(op: &Op<'_>) -> bool {
    matches!(op.kind, OpKind::Charge { .. })
}

#[test]
fn a_loop_without_its_charge_is_noticed() {
    let in_loop = |code: &[Op<'_>], at: usize| {
        let before = at.checked_sub(1).map(|before| &code[before].kind);
        is_charge(&code[at]) && matches!(before, Some(OpKind::Wasm(Operator::Loop { .. })))
    };
    // Two of the author's, and one for each operation on entries.
    assert_eq!(missed(in_loop), (0, 6));
}

#[test]
fn a_function_without_its_charge_is_noticed() {
    let at_entry = |code: &[Op<'_>], at: usize| at == 0 && is_charge(&code[at]);
    // More are charged than have to be: `$in_loop` is called by `$once` alone, which is
    // charged, and of `$ring` and `$round` one is enough.
    assert_eq!(missed(at_entry), (3, 7));
}

#[test]
fn a_handler_that_calls_itself_without_a_charge_is_noticed() {
    let again = "(if (result i32) (local.get 0) (then (call $on_rx (i32.const 0) (i32.const 0)))
                     (else (i32.const 1)))";
    let wasm = parse(&on_rx(again));
    let mut module = module(&wasm);
    check(&module).unwrap();
    assert!(is_charge(&module.functions[0].code[0]));
    module.functions[0].code.remove(0);
    let error = check(&module).unwrap_err();
    assert_eq!(error.what, "it calls itself and is not charged");
}

#[test]
fn a_copy_without_its_charge_is_noticed() {
    let bulk = |code: &[Op<'_>], at: usize| matches!(code[at].kind, OpKind::ChargeBulk);
    // Three of them are of runs of pipes.
    assert_eq!(missed(bulk), (0, 10));
}

/// What is paid for a run of pipes is not paid for a copy behind it, too.
#[test]
fn a_copy_behind_a_run_of_pipes_is_charged_for_itself() {
    let wasm = wat::parse_str(
        r#"(module
            (import "ashway" "pipe_in_place" (func $in_place (param i32 i32 i32)))
            (memory (export "memory") 1 1)
            (func (export "on_rx") (param i32 i32) (result i32)
                (call $in_place (i32.const 0) (local.get 0) (i32.const 0))
                (memory.copy (i32.const 0) (i32.const 8) (local.get 0))
                (i32.const 1))
            (@custom "ashway.pipes" "cksum16"))"#,
    );
    let wasm = wasm.unwrap();
    for (charge, says) in [
        (0, "a run of pipes is not charged"),
        (1, "a copy is not charged"),
    ] {
        let mut module = module(&wasm);
        check(&module).unwrap();
        let code = &mut module.functions[0].code;
        let mut charges = code
            .iter_mut()
            .filter(|op| matches!(op.kind, OpKind::ChargeBulk));
        charges.nth(charge).unwrap().kind = OpKind::Wasm(Operator::Nop);
        assert_eq!(check(&module).unwrap_err().what, says);
    }
}

#[test]
fn a_charge_of_nothing_is_none() {
    let wasm = parse(&on_rx("(loop $again (br $again)) (i32.const 1)"));
    let mut module = module(&wasm);
    let ops = module.functions.iter_mut().flat_map(|f| &mut f.code);
    for op in ops.filter(|op| is_charge(op)) {
        op.kind = OpKind::Charge { cost: 0 };
    }
    let error = check(&module).unwrap_err();
    assert_eq!(error.what, "a loop does not begin with a charge");
}

#[test]
fn a_copy_is_paid_for_on_every_way_to_it_and_once() {
    let copy = "(memory.copy (i32.const 0) (i32.const 8) (i32.const 9))";
    // Where the charge of this number stands at the function's begin instead.
    for (body, moved, enough) in [
        (copy.to_owned(), 0, true),
        (format!("(block (br_if 0 (local.get 0)) {copy})"), 0, true),
        (format!("{copy} {copy}"), 1, false),
        (format!("(if (local.get 0) (then {copy})) {copy}"), 1, false),
        (format!("(loop $again {copy} (br $again))"), 0, false),
    ] {
        let wasm = parse(&on_rx(&format!("{body} (i32.const 1)")));
        let mut module = module(&wasm);
        check(&module).unwrap();
        let code = &mut module.functions[0].code;
        let is_bulk = |op: &Op<'_>| matches!(op.kind, OpKind::ChargeBulk);
        let mut charges = (0..code.len()).filter(|at| is_bulk(&code[*at]));
        let at = charges.nth(moved).unwrap();
        let charge = code.remove(at);
        let op = |operator| Op {
            kind: OpKind::Wasm(operator),
            at: 0,
        };
        let length = op(Operator::I32Const { value: 9 });
        code.splice(..0, [length, charge, op(Operator::Drop)]);
        assert_eq!(check(&module).is_ok(), enough, "{body}");
    }
}

#[test]
fn what_goes_into_the_outbox_is_short_or_paid() {
    let wasm = wat::parse_str(
        r#"(module
            (import "ashway" "send" (func $send (param i32 i32 i32) (result i32)))
            (import "ashway" "msg_clone" (func $clone (param i32) (result i32)))
            (memory (export "memory") 1 1)
            (func (export "on_rx") (param i32 i32) (result i32)
                (drop (call $clone (i32.const 0)))
                (loop $again
                    (drop (call $send (i32.const 0) (i32.const 0) (local.get 0)))
                    (br_if $again (call $clone (i32.const 1))))
                (i32.const 1)))"#,
    );
    check(&module(&wasm.unwrap())).unwrap();
}

/// Who only the host enters may call what others call, too: it is one more time.
#[test]
fn an_invoker_may_call_what_another_function_calls() {
    let once = "(func $once (param i32) (result i32) (local.get 0))";
    let wasm = parse(&format!("{once} {}", on_rx("(call $once (i32.const 1))")));
    let mut module = module(&wasm);
    let once = module
        .functions
        .iter()
        .position(|f| f.name.as_deref() == Some("once"));
    module.add_invoker(once.unwrap() as u32).unwrap();
    check(&module).unwrap();
    // But not twice.
    let invoker = module.functions.last_mut().unwrap();
    let again = invoker.code[..3].to_vec();
    let drop = Op {
        kind: OpKind::Wasm(Operator::Drop),
        at: 0,
    };
    invoker.code.splice(..0, again.into_iter().chain([drop]));
    assert!(check(&module).is_err());
}
