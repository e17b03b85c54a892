//! `msg_resize` in every engine: the same answers, lengths and bytes.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use ashway_abi::{Cause, Verdict, resize};
use ashway_codegen::normalise::{Limits, NormaliseError, normalise};
use ashway_trial::Trial;
use common::{engines, wasm};

/// By how many bytes [`SCRIPT`] makes a message longer.
const GROWS: usize = 40;

/// The message is a list of lengths, of two bytes each: it takes one after the other.
/// Keeps the answers from 4096 on and reads the message to 8192 each time, then puts
/// a byte at its end.
const SCRIPT: &str = r#"(module
    (import "ashway" "msg_resize" (func $resize (param i32) (result i32)))
    (import "ashway" "msg_read" (func $read (param i32 i32 i32)))
    (import "ashway" "msg_store8" (func $store (param i32 i32)))
    (memory (export "memory") 1 1)
    (@custom "ashway.grows" "\28\00\00\00")
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (local $i i32) (local $now i32) (local $wanted i32) (local $answer i32)
        (call $read (i32.const 0) (i32.const 0) (local.get $len))
        (local.set $now (local.get $len))
        (block $over
            (loop $next
                (br_if $over
                    (i32.ge_u (i32.add (local.get $i) (i32.const 1)) (local.get $len)))
                (local.set $wanted (i32.load16_u (local.get $i)))
                (local.set $answer (call $resize (local.get $wanted)))
                (i32.store8 offset=4096 (local.get $i) (local.get $answer))
                (if (i32.eqz (local.get $answer))
                    (then (local.set $now (local.get $wanted))))
                (call $read (i32.const 0) (i32.const 8192) (local.get $now))
                (if (local.get $now)
                    (then
                        (call $store
                            (i32.sub (local.get $now) (i32.const 1)) (local.get $i))))
                (local.set $i (i32.add (local.get $i) (i32.const 2)))
                (br $next)))
        (i32.const 1)))"#;

/// What [`SCRIPT`] answers.
fn expected(message: &[u8]) -> Vec<u8> {
    let mut now = message.to_vec();
    for (i, wanted) in message.chunks_exact(2).enumerate() {
        let wanted = usize::from(u16::from_le_bytes([wanted[0], wanted[1]]));
        if wanted <= message.len() + GROWS {
            now.resize(wanted, 0);
        }
        if let Some(last) = now.last_mut() {
            *last = 2 * i as u8;
        }
    }
    now
}

#[test]
fn lengths_one_after_the_other_are_the_same_everywhere() {
    let wasm = wasm(SCRIPT);
    let module = normalise(&wasm, &Limits::default()).unwrap();
    let mut random = 1_u64;
    let mut next = |below: u64| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (random >> 33) % below
    };
    let messages: Vec<Vec<u8>> = (0..60)
        .map(|_| {
            let words = next(40);
            let most = 2 * words + GROWS as u64 + 3;
            (0..words)
                .flat_map(|_| (next(most) as u16).to_le_bytes())
                .collect()
        })
        .collect();
    let mut agreed = None;
    for (name, engine, setup) in engines() {
        let mut trial = Trial::new(&module, engine, &setup).unwrap();
        let ends: Vec<_> = messages
            .iter()
            .map(|message| {
                let end = trial.activate("on_rx", message, 0).unwrap();
                assert_eq!(end.verdict(), Some(Verdict::Reply), "{name}");
                assert_eq!(end.message, expected(message), "{name}: {message:?}");
                assert_eq!(end.dirty, message.len() > 1, "{name}");
                (end, trial.guest())
            })
            .collect();
        assert!(
            *agreed.get_or_insert_with(|| ends.clone()) == ends,
            "{name}: another end, fuel or memory"
        );
    }
}

/// Each looks at byte 7, makes the message 4 bytes long in its own way, and looks again.
const SHORTER: &str = r#"(module
    (import "ashway" "msg_resize" (func $resize (param i32) (result i32)))
    (import "ashway" "msg_load64be" (func $load (param i32) (result i64)))
    (import "ashway" "msg_store8" (func $store (param i32 i32)))
    (import "ashway" "msg_write" (func $write (param i32 i32 i32)))
    (memory (export "memory") 1 1)
    (func $shorter (drop (call $resize (i32.const 4))))
    (func (export "on_rx") (param i32 i32) (result i32)
        (drop (call $load (i32.const 0)))
        (drop (call $resize (i32.const 4)))
        (drop (call $load (i32.const 0)))
        (i32.const 1))
    (func (export "called") (param i32 i32) (result i32)
        (drop (call $load (i32.const 0)))
        (call $shorter)
        (call $shorter)
        (drop (call $load (i32.const 0)))
        (i32.const 1))
    (func (export "looped") (param i32 i32) (result i32)
        (drop (call $load (i32.const 0)))
        (loop $again
            (drop (call $load (i32.const 0)))
            (call $shorter)
            (br $again))
        (i32.const 1))
    (func (export "stored") (param i32 i32) (result i32)
        (call $store (i32.const 7) (i32.const 1))
        (call $shorter)
        (call $store (i32.const 4) (i32.const 1))
        (i32.const 1))
    (func (export "written") (param i32 i32) (result i32)
        (call $shorter)
        (call $write (i32.const 0) (i32.const 0) (i32.const 5))
        (i32.const 1))
    (func (export "longer") (param $len i32) (param i32) (result i32)
        (call $resize (i32.add (local.get $len) (i32.const 1))))
    (func (export "largest") (param $len i32) (param i32) (result i32)
        (call $resize (i32.const -1))))"#;

#[test]
fn what_a_message_has_lost_is_outside() {
    let wasm = wasm(SHORTER);
    let module = normalise(&wasm, &Limits::default()).unwrap();
    for (name, engine, mut setup) in engines() {
        setup.budget.fuel = 1 << 31;
        let mut trial = Trial::new(&module, engine, &setup).unwrap();
        for handler in ["on_rx", "called", "looped", "stored", "written"] {
            let end = trial.activate(handler, b"8 bytes.", 0).unwrap();
            let cause = end.result.unwrap_err().cause;
            assert_eq!(cause, Cause::MessageBounds, "{name}: {handler}");
            assert!(end.dirty, "{name}: {handler}");
            assert_eq!(end.message, b"8 bytes.", "{name}: {handler}");
        }
        // Nothing was declared. The answer is the verdict here.
        for (handler, fuel) in [("longer", 9), ("largest", u32::MAX / 8)] {
            let end = trial.activate(handler, b"8 bytes.", 0).unwrap();
            assert_eq!(end.result, Ok(resize::NO_ROOM), "{name}: {handler}");
            assert!(!end.dirty, "{name}: {handler}");
            let left = setup.budget.fuel as i64 - end.fuel_left;
            assert!(left >= i64::from(fuel / 8), "{name}: {handler} took {left}");
        }
    }
}

#[test]
fn a_declaration_is_believed_only_within_bounds() {
    let with = |section: &str| {
        wasm(&format!(
            r#"(module (memory (export "memory") 1 1)
                (func (export "on_rx") (param i32 i32) (result i32) (i32.const 0))
                (@custom "ashway.grows" "{section}"))"#
        ))
    };
    let said = |section: &str| match normalise(&with(section), &Limits::default()) {
        Err(NormaliseError::Invalid { message, .. }) => message,
        other => panic!("{other:?}"),
    };
    assert!(normalise(&with("\\00\\10\\00\\00"), &Limits::default()).is_ok());
    let too_much = said("\\01\\10\\00\\00");
    assert!(
        too_much.contains("grow by 4097 bytes, at most 4096"),
        "{too_much}"
    );
    let short = said("\\01\\10\\00");
    assert!(short.contains("has 3 bytes, not 4"), "{short}");
}
