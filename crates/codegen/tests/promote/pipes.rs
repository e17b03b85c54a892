//! Lists of pipes inside handlers: what is around a run stays as it was.

use super::harness::{Budget, Outcome, PLENTY, module, promote, run_with, without_perfmon};
use ashway_abi::Cause;
use ashway_abi::MemoryKind;
use ashway_codegen::pipe::{interpret, parse};
use ashway_codegen::promote::PromoteError;
use ashway_rig::skip::root_for_a_part;

/// A module with one list and this body.
fn handler(list: &str, body: &str) -> Vec<u8> {
    module(&format!(
        r#"(module
        (import "ashway" "pipe_read" (func $read (param i32 i32 i32 i32)))
        (import "ashway" "pipe_write" (func $write (param i32 i32 i32 i32)))
        (import "ashway" "pipe_in_place" (func $in_place (param i32 i32 i32)))
        (import "ashway" "pipe_set" (func $set (param i32 i64)))
        (import "ashway" "pipe_get" (func $get (param i32) (result i64)))
        (import "ashway" "msg_load8" (func $load8 (param i32) (result i32)))
        (memory (export "memory") 1 16)
        (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
            {body})
        (@custom "ashway.pipes" "{list}"))"#
    ))
}

fn word(outcome: &Outcome, at: usize) -> u64 {
    u64::from_le_bytes(outcome.memory[at..at + 8].try_into().unwrap())
}

/// Locals in all registers, operands that wait, and frames behind the scratch: a run
/// takes every register and gives all back.
#[test]
fn what_is_around_a_run_stays_as_it_was() {
    let locals: Vec<String> = (0..12).map(|n| format!("(local $l{n} i64)")).collect();
    let locals = locals.concat();
    let set = (0..12).map(|n| {
        format!(
            "(local.set $l{n} (i64.mul (i64.extend_i32_u (local.get $len)) (i64.const {})))",
            n + 3
        )
    });
    let sum = (0..12).fold("(i64.const 0)".to_owned(), |sum, n| {
        format!(
            "(i64.add {sum} (i64.mul (local.get $l{n}) (i64.const {})))",
            1 << n
        )
    });
    let body = format!(
        "{locals} (local $turn i32) {}
         (loop $again
            (i64.store (i32.const 0) (i64.add
                (i64.mul (local.get $l1) (local.get $l2))
                (block (result i64)
                    (call $read (i32.const 1) (i32.const 4096)
                        (i32.sub (local.get $len) (i32.const 1)) (i32.const 0))
                    (call $get (i32.const 0)))))
            (i64.store (i32.const 8) {sum})
            (br_if $again (i32.lt_u
                (local.tee $turn (i32.add (local.get $turn) (i32.const 1))) (i32.const 3))))
         (i32.const 0)",
        set.collect::<String>()
    );
    // One with an accumulator in each register, one with values in all of them.
    for text in [
        "cksum16 | cksum16 | cksum16",
        "bswap32 | add16(0x7001) | cksum16",
    ] {
        let message: Vec<u8> = (0..101).map(|at| (at * 7) as u8).collect();
        let outcome = &run_with(&handler(text, &body), &[&message], PLENTY)[0];
        assert_eq!(outcome.result, Ok(0), "`{text}`");
        let list = parse(text).unwrap();
        let mut registers = list.initial();
        let mut data = Vec::new();
        for _ in 0..3 {
            data = message[1..].to_vec();
            interpret(&list, &mut registers, &mut data);
        }
        assert_eq!(outcome.memory[4096..][..100], data, "`{text}`");
        assert_eq!(
            word(outcome, 0),
            (101 * 4) * (101 * 5) + registers[0],
            "`{text}`"
        );
        let sum: u64 = (0..12).map(|n| 101 * (n + 3) * (1 << n)).sum();
        assert_eq!(word(outcome, 8), sum, "`{text}`");
    }
}

/// What a run leaves in registers the next one finds, from message to message.
#[test]
fn registers_last() {
    let body = "(call $read (i32.const 0) (i32.const 64) (local.get $len) (i32.const 0))
        (i64.store (i32.const 0) (call $get (i32.const 0))) (i32.const 0)";
    let parts: [&[u8]; 3] = [&[1; 64], &[2; 128], &[3; 7]];
    let outcomes = run_with(&handler("sum8", body), &parts, PLENTY);
    let sums: Vec<u64> = outcomes.iter().map(|outcome| word(outcome, 0)).collect();
    assert_eq!(sums, [64, 64 + 256, 64 + 256 + 21]);
}

/// A short frame is padded, and the padding is not the message.
#[test]
fn a_run_ends_with_the_message() {
    let body =
        "(call $read (i32.const 2) (i32.const 4096) (call $load8 (i32.const 0)) (i32.const 0))
        (i32.const 0)";
    for (len, cause) in [
        (8, None),
        (9, Some(Cause::MessageBounds)),
        (255, Some(Cause::MessageBounds)),
    ] {
        let outcome = &run_with(&handler("xor8(1)", body), &[&[len; 10]], PLENTY)[0];
        assert_eq!(outcome.result.err().map(|(cause, _)| cause), cause, "{len}");
        assert_eq!(outcome.memory[4096] != 0, cause.is_none(), "{len}");
    }
}

/// Longer than a message: the clock is looked at in the middle.
#[test]
fn a_long_run_in_memory_ends_with_its_time() {
    let body = "(memory.grow (i32.const 15)) drop
        (loop $ever
            (call $in_place (i32.const 0) (i32.const 1048576) (i32.const 0)) (br $ever))
        (i32.const 0)";
    let budget = Budget {
        fuel: u64::MAX >> 8,
        ns: 1_000_000,
        ..PLENTY
    };
    let wasm = handler("sum32 | xor8(1)", body);
    let promoted = promote(&wasm, MemoryKind::Arena, false, budget).unwrap();
    if root_for_a_part() {
        let end = &promoted.run_in_kernel(&[b""])[0];
        assert_eq!(end.result.unwrap_err().0, Cause::Time);
    }
}

/// Any length, over an arena and by the helper: the same bytes, and no more of them.
#[test]
fn what_is_written_reaches_the_message() {
    let body = "(call $read (i32.const 1) (i32.const 4096)
            (i32.sub (local.get $len) (i32.const 2)) (i32.const 0))
        (call $write (i32.const 1) (i32.const 4096)
            (i32.sub (local.get $len) (i32.const 2)) (i32.const 0))
        (i32.const 2)";
    let messages: Vec<Vec<u8>> = (2..140).step_by(3).map(|len| (0..len).collect()).collect();
    let each: Vec<&[u8]> = messages.iter().map(Vec::as_slice).collect();
    let outcomes = run_with(&handler("add8(3) | cksum16", body), &each, PLENTY);
    for (outcome, mut expected) in outcomes.into_iter().zip(messages) {
        let end = expected.len() - 1;
        for byte in &mut expected[1..end] {
            *byte += 6;
        }
        assert_eq!((outcome.result, outcome.message), (Ok(2), expected));
    }
}

/// Over an array, where the verifier is stricter: loops between memory and message,
/// inside memory, and with values in every register.
#[test]
fn array_mode_needs_no_cap_perfmon() {
    without_perfmon(|| {
        let body = "(local $at i32) (local $bytes i32)
            (local.set $at (i32.mul (call $load8 (i32.const 0)) (i32.const 16)))
            (local.set $bytes (call $load8 (i32.const 1)))
            (call $read (i32.const 2) (local.get $at) (local.get $bytes) (i32.const 0))
            (call $in_place (local.get $at) (local.get $bytes) (i32.const 0))
            (call $write (i32.const 3) (local.get $at) (local.get $bytes) (i32.const 0))
            (i64.store (i32.const 0) (call $get (i32.const 0)))
            (i32.const 2)";
        for text in [
            "cksum16",
            "cksum16 | bswap32 | xor(0xdeadbeef)",
            "bswap32 | add16(0x7001) | cksum16",
        ] {
            let wasm = handler(text, body);
            for in_memory in [false, true] {
                let promoted = promote(&wasm, MemoryKind::Array, in_memory, PLENTY).unwrap();
                let messages = [0, 1, 7, 8, 63, 64, 65, 255].map(|bytes: u8| {
                    let mut message = vec![bytes; 260];
                    message[0] = 4 + bytes % 9;
                    message
                });
                let messages = messages.each_ref().map(Vec::as_slice);
                let runs = promoted.run_in_kernel(&messages);
                assert!(runs == promoted.interpret(&messages), "`{text}`");
                assert!(runs.iter().all(|run| run.result == Ok(2)), "`{text}`");
            }
        }
    });
}

#[test]
fn what_has_no_form_is_refused_by_name() {
    let body = "(call $in_place (i32.const 0) (i32.const 64) (i32.const 0)) (i32.const 0)";
    for kind in [MemoryKind::Arena, MemoryKind::Array] {
        let error = promote(&handler("cksum16 | crc32", body), kind, false, PLENTY)
            .map(|_| ())
            .unwrap_err();
        assert!(matches!(error, PromoteError::Pipe { .. }), "{error:?}");
        let words = "`crc32` has no form in the kernel tier";
        assert!(error.to_string().contains(words), "{error}");
        assert!(error.place().is_some() && error.hint().contains("tier = \"user\""));
    }
}
