//! Host calls in every engine: the same answers, and the same memory.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use ashway_codegen::normalise::{Limits, normalise};
use ashway_trial::{Engine, Trial};
use common::{engines, wasm};

/// Reads the clock while operands wait and locals are in registers, then once
/// more; both readings, and what came of the rest, are in memory.
const TIME: &str = r#"(module
    (import "ashway" "now_ns" (func $now (result i64)))
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (local $a i64) (local $b i64) (local $c i32) (local $d i32) (local $e i32)
        (local.set $c (i32.mul (local.get $len) (i32.const 3)))
        (local.set $d (i32.mul (local.get $len) (i32.const 5)))
        (local.set $e (i32.mul (local.get $len) (i32.const 7)))
        (i64.store (i32.const 16)
            (i64.add
                (i64.extend_i32_u (i32.add (local.get $c) (local.get $d)))
                (i64.mul
                    (i64.extend_i32_u (local.get $e))
                    (i64.extend_i32_u
                        (i64.ne (local.tee $a (call $now)) (i64.const -1))))))
        (i64.store (i32.const 0) (local.get $a))
        (i64.store (i32.add (local.get $len) (i32.const 4)) (call $now))
        (drop (call $now))
        (i32.const 0)))"#;

#[test]
fn the_clock_is_the_one_that_applications_read() {
    let wasm = wasm(TIME);
    let module = normalise(&wasm, &Limits::default()).unwrap();
    for (name, engine, setup) in engines() {
        let mut trial = Trial::new(&module, engine, &setup).unwrap();
        let before = ashway_memory::clock::monotonic_ns();
        let end = trial.activate("on_rx", b"four", 0).unwrap();
        let after = ashway_memory::clock::monotonic_ns();
        assert_eq!(end.result, Ok(0), "{name}");
        assert_eq!(end.fuel_left, setup.budget.fuel as i64, "{name}: no loop");
        let guest = trial.guest();
        let word = |at: usize| u64::from_le_bytes(guest[at..at + 8].try_into().unwrap());
        assert_eq!(word(16), 4 * (3 + 5 + 7), "{name}");
        assert!(word(8) >= word(0), "{name}: {} {}", word(0), word(8));
        // The interpreter's clock counts its readings.
        if engine != Engine::Interpreter {
            assert!(before <= word(0) && word(8) <= after, "{name}");
        }
    }
}

/// A loop of readings spends fuel as every other.
#[test]
fn a_loop_of_readings_ends_at_the_same_one() {
    let wasm = wasm(
        r#"(module
        (import "ashway" "now_ns" (func $now (result i64)))
        (memory (export "memory") 1 1)
        (func (export "on_rx") (param i32 i32) (result i32)
            (loop $ever
                (i32.store (i32.const 0) (i32.add (i32.load (i32.const 0)) (i32.const 1)))
                (drop (call $now))
                (br $ever))
            (i32.const 0)))"#,
    );
    let module = normalise(&wasm, &Limits::default()).unwrap();
    let mut agreed = None;
    for (name, engine, mut setup) in engines() {
        // 1,000 readings are at most some 0.1 ms.
        setup.budget.fuel = 140_000;
        setup.budget.ns = 1_000_000_000;
        let mut trial = Trial::new(&module, engine, &setup).unwrap();
        let end = trial.activate("on_rx", b"", 0).unwrap();
        let found = (end, trial.guest());
        assert_eq!(
            *agreed.get_or_insert_with(|| found.clone()),
            found,
            "{name}"
        );
    }
    let (end, guest) = agreed.unwrap();
    assert_eq!(end.result.unwrap_err().cause, ashway_abi::Cause::Fuel);
    let turns = u32::from_le_bytes(guest[..4].try_into().unwrap());
    assert!((900..1_100).contains(&turns), "{turns}");
}

/// Copies its message to one place after the other, until its time is over.
const COPIES: &str = r#"(module
    (import "ashway" "msg_read" (func $read (param i32 i32 i32)))
    (memory (export "memory") 16 16)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (local $at i32)
        (loop $next
            (call $read (i32.const 0) (local.get $at) (local.get $len))
            (br_if $next
                (i32.lt_u (local.tee $at (i32.add (local.get $at) (local.get $len)))
                    (i32.const 1040000))))
        (i32.const 0)))"#;

/// ASH-26: a handler whose time is over while a host call is under way is stopped behind it: each
/// copy is whole, or has not begun; by the clock of the machine, in either tier, and the next
/// message is like the first.
#[test]
fn a_host_call_is_not_stopped_in_its_middle() {
    const BYTES: usize = 3_000;
    let wasm = wasm(COPIES);
    let module = normalise(&wasm, &Limits::default()).unwrap();
    let message = [7; BYTES];
    for (name, engine, mut setup) in engines() {
        let mut stopped = 0;
        for number in 0..10 {
            setup.budget.ns = 1_000 + 500 * number;
            let mut trial = Trial::new(&module, engine, &setup).unwrap();
            for _ in 0..20 {
                trial.write_guest(0, &vec![0; 16 * 65_536]);
                let end = trial.activate("on_rx", &message, 0).unwrap();
                let copied = trial.guest();
                let copied = copied.iter().take_while(|byte| **byte == 7).count();
                assert_eq!(copied % BYTES, 0, "{name}: the last copy is half done");
                if let Err(why) = end.result {
                    assert_eq!(why.cause, ashway_abi::Cause::Time, "{name}");
                    assert!(copied > 0, "{name}: it has run");
                    stopped += 1;
                }
            }
        }
        println!("{name}: stopped {stopped} of 200 times");
        assert!(stopped > 100, "{name}: {stopped}");
    }
}

/// Reads all that is in front, by constants and by numbers from memory.
const FRONT: &str = r#"(module
    (import "ashway" "msg_read" (func $read (param i32 i32 i32)))
    (import "ashway" "msg_load32le" (func $load (param i32) (result i32)))
    (import "ashway" "msg_load8" (func $byte (param i32) (result i32)))
    (import "ashway" "msg_store8" (func $store (param i32 i32)))
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (local $at i32)
        (call $read (i32.const -64) (i32.const 0) (i32.add (local.get $len) (i32.const 64)))
        (i32.store (i32.const 256) (call $load (i32.const -64)))
        (i32.store (i32.const 260) (call $load (i32.const -2)))
        (local.set $at (i32.const -64))
        (loop $next
            (i32.store8 (i32.add (local.get $at) (i32.const 576)) (call $byte (local.get $at)))
            (br_if $next
                (i32.lt_s (local.tee $at (i32.add (local.get $at) (i32.const 1)))
                    (local.get $len))))
        (i32.const 0))
    (func (export "before") (param $len i32) (param $channel i32) (result i32)
        (call $byte (i32.const -65)))
    (func (export "read_before") (param $len i32) (param $channel i32) (result i32)
        (call $read (i32.const -65) (i32.const 0) (i32.const 66))
        (i32.const 0))
    (func (export "behind") (param $len i32) (param $channel i32) (result i32)
        (call $load (i32.sub (local.get $len) (i32.const 3))))
    (func (export "store_before") (param $len i32) (param $channel i32) (result i32)
        (call $store (i32.const -1) (i32.const 0))
        (i32.const 0)))"#;

#[test]
fn what_is_in_front_can_be_read_and_not_written() {
    let wasm = wasm(FRONT);
    let module = normalise(&wasm, &Limits::default()).unwrap();
    let message = b"a message";
    let frame = ashway_codegen::stub::frame(message);
    let frame = &frame[..64 + message.len()];
    let mut agreed = None;
    for (name, engine, setup) in engines() {
        let mut trial = Trial::new(&module, engine, &setup).unwrap();
        let end = trial.activate("on_rx", message, 0).unwrap();
        assert_eq!(end.result, Ok(0), "{name}");
        let guest = trial.guest();
        assert_eq!(&guest[..frame.len()], frame, "{name}: read at once");
        assert_eq!(&guest[256..260], &frame[..4], "{name}");
        assert_eq!(&guest[260..264], &frame[62..66], "{name}");
        assert_eq!(
            &guest[512..512 + frame.len()],
            frame,
            "{name}: byte by byte"
        );
        for handler in ["before", "read_before", "behind", "store_before"] {
            let end = trial.activate(handler, message, 0).unwrap();
            let cause = end.result.unwrap_err().cause;
            assert_eq!(cause, ashway_abi::Cause::MessageBounds, "{name}: {handler}");
            assert!(!end.dirty, "{name}");
        }
        assert!(
            *agreed.get_or_insert_with(|| trial.guest()) == trial.guest(),
            "{name}"
        );
    }
}
