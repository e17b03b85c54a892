//! Atomic accesses: every operator against its definition, traps, and two
//! parties at one word.

use super::harness::{IMPORTS, Loaded, PLENTY, module, promote, run};
use ashway_abi::Cause;
use ashway_abi::MemoryKind;
use ashway_codegen::stub;
use ashway_kernel::TestRun;
use ashway_rig::skip_unless_root;
use std::sync::atomic::{AtomicBool, Ordering};

/// Type, suffix of its operators' width, and bytes.
const WIDTHS: [(&str, &str, u32); 7] = [
    ("i32", "", 4),
    ("i32", "8", 1),
    ("i32", "16", 2),
    ("i64", "", 8),
    ("i64", "8", 1),
    ("i64", "16", 2),
    ("i64", "32", 4),
];

const CHANGES: [&str; 9] = [
    "load", "store", "add", "sub", "and", "or", "xor", "xchg", "cmpxchg",
];

fn operator(ty: &str, width: &str, change: &str) -> String {
    let unsigned = if width.is_empty() { "" } else { "_u" };
    match change {
        "load" => format!("{ty}.atomic.load{width}{unsigned}"),
        "store" => format!("{ty}.atomic.store{width}"),
        _ => format!("{ty}.atomic.rmw{width}.{change}{unsigned}"),
    }
}

/// Address, operand and expected value are at 0, 8 and 16 of the message; the
/// result goes to 24, and what the result's local held before to 32.
fn tester(ty: &str, width: &str, change: &str, offset: u32) -> Vec<u8> {
    let operator = operator(ty, width, change);
    let (wrap, extend) = match ty {
        "i32" => ("i32.wrap_i64", "i64.extend_i32_u"),
        _ => ("", ""),
    };
    let expected = if change == "cmpxchg" {
        "local.get $expected"
    } else {
        ""
    };
    let operand = if change == "load" {
        ""
    } else {
        "local.get $value"
    };
    let result = if change == "store" {
        ""
    } else {
        "local.set $value"
    };
    module(&format!(
        r#"(module {IMPORTS}
            (memory (export "memory") 1 1)
            (data (i32.const 1000) "\01\12\23\34\45\56\67\78\89\9a\ab\bc\cd\de\ef\f0")
            (func (export "on_rx") (param i32 i32) (result i32)
                (local $at i32) (local $value {ty}) (local $expected {ty})
                (local.set $at (call $load32 (i32.const 0)))
                i32.const 8 call $load64 {wrap} local.set $value
                i32.const 16 call $load64 {wrap} local.set $expected
                i32.const 32
                local.get $value
                local.get $at {expected} {operand} {operator} offset={offset} {result}
                {extend} call $store64
                i32.const 24 local.get $value {extend} call $store64
                atomic.fence
                i32.const 7))"#
    ))
}

fn message(at: u32, value: u64, expected: u64) -> Vec<u8> {
    let mut message = vec![0; 40];
    message[..4].copy_from_slice(&at.to_le_bytes());
    message[8..16].copy_from_slice(&value.to_le_bytes());
    message[16..24].copy_from_slice(&expected.to_le_bytes());
    message
}

/// What the definition says: the result and what is in memory afterwards.
fn defined(change: &str, bits: u32, old: u64, value: u64, expected: u64) -> (u64, u64) {
    let mask = u64::MAX >> (64 - bits);
    let new = match change {
        "load" => old,
        "add" => old.wrapping_add(value),
        "sub" => old.wrapping_sub(value),
        "and" => old & value,
        "or" => old | value,
        "xor" => old ^ value,
        "cmpxchg" if old != expected & mask => old,
        _ => value,
    };
    (old, new & mask)
}

fn word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

#[test]
fn every_operator_does_what_its_definition_says() {
    for (ty, width, bytes) in WIDTHS {
        for change in CHANGES {
            let mut memory = vec![0; 0x1_0000];
            let pattern = 0xf0ef_decd_bcab_9a89_7867_5645_3423_1201_u128;
            memory[1000..1016].copy_from_slice(&pattern.to_le_bytes());
            let mut messages = Vec::new();
            let mut expectations = Vec::new();
            for (round, value) in [0x8182_8384_8586_8788_u64, 1, u64::MAX]
                .into_iter()
                .enumerate()
            {
                for place in (1000..1016).step_by(bytes as usize) {
                    let room = place as usize..place as usize + bytes as usize;
                    let old = word(&memory[room.clone()]);
                    // Compare with what is there, with what is not, and with
                    // what is there under bits that are cut off.
                    let expected = match round {
                        0 => old,
                        1 => old ^ 1,
                        _ => old | 0xa5 << (8 * bytes).min(56),
                    };
                    let (mut result, new) = defined(change, 8 * bytes, old, value, expected);
                    let argument = if ty == "i32" {
                        value & 0xffff_ffff
                    } else {
                        value
                    };
                    if change == "store" {
                        result = argument;
                    }
                    memory[room].copy_from_slice(&new.to_le_bytes()[..bytes as usize]);
                    messages.push(message(place - 3, value, expected));
                    expectations.push((result, argument, memory.clone()));
                }
            }
            let messages: Vec<&[u8]> = messages.iter().map(Vec::as_slice).collect();
            // An offset that makes an unaligned address an aligned one.
            let outcomes = run(&tester(ty, width, change, 3), &messages);
            for (outcome, (result, argument, memory)) in outcomes.iter().zip(expectations) {
                let how = operator(ty, width, change);
                assert_eq!(outcome.result, Ok(7), "{how}");
                assert_eq!(word(&outcome.message[24..32]), result, "{how}");
                assert_eq!(word(&outcome.message[32..40]), argument, "{how}");
                assert!(outcome.memory[..0x1_0000] == memory, "{how}");
            }
        }
    }
}

#[test]
fn misalignment_comes_before_bounds() {
    for (ty, width, bytes) in WIDTHS {
        for change in ["load", "store", "xor", "add", "cmpxchg"] {
            let end = 0x1_0000;
            let mut cases = vec![
                (end - bytes, 0, None),
                (end, 0, Some(Cause::MemoryBounds)),
                (0xffff_fff8, 0, Some(Cause::MemoryBounds)),
                (0xffff_fff8, 8, Some(Cause::MemoryBounds)),
                (0, 0xffff_fff8, Some(Cause::MemoryBounds)),
                (8, 0xffff_fff8, Some(Cause::MemoryBounds)),
                (end - bytes - 8, 8, None),
            ];
            if bytes > 1 {
                let unaligned = Some(Cause::Unaligned);
                cases.extend([
                    (1, 0, unaligned),
                    (0, 1, unaligned),
                    (bytes / 2, 8, unaligned),
                    (end - 1, 0, unaligned),
                    (end + 1, 0, unaligned),
                    (u32::MAX, 0, unaligned),
                    (0, u32::MAX - 8, unaligned),
                    (7, 1, None),
                ]);
            }
            for offset in [0, 1, 8, 0xffff_fff8, u32::MAX - 8] {
                let chosen = cases.iter().filter(|(_, o, _)| *o == offset);
                let (messages, causes): (Vec<_>, Vec<_>) = chosen
                    .map(|(at, _, cause)| (message(*at, 5, 0), *cause))
                    .unzip();
                let messages: Vec<&[u8]> = messages.iter().map(Vec::as_slice).collect();
                let outcomes = run(&tester(ty, width, change, offset), &messages);
                let mut before: Option<&Vec<u8>> = None;
                for ((outcome, cause), message) in outcomes.iter().zip(causes).zip(messages) {
                    let found = outcome.result.err().map(|(cause, _)| cause);
                    let how = operator(ty, width, change);
                    assert_eq!(found, cause, "{how} offset={offset} {message:x?}");
                    if cause.is_some()
                        && let Some(before) = before
                    {
                        assert!(outcome.memory == *before, "{how} offset={offset}");
                    }
                    before = Some(&outcome.memory);
                }
            }
        }
    }
}

/// One party is a handler that adds, the other a thread of user space that
/// does the same: whoever was not atomic would lose some.
#[test]
fn nothing_is_lost_between_two_cpus() {
    const RUNS: u32 = 300_000;
    if skip_unless_root() {
        return;
    }
    for kind in [MemoryKind::Arena, MemoryKind::Array] {
        // In one instruction, in a loop over the whole word, over a part of it.
        for (add, bits) in [
            (
                "(drop (i32.atomic.rmw.add (i32.const 1000) (i32.const 1)))",
                32,
            ),
            (
                "(drop (i32.atomic.rmw.sub (i32.const 1000) (i32.const -1)))",
                32,
            ),
            (
                "(drop (i32.atomic.rmw16.add_u (i32.const 1000) (i32.const 1)))",
                16,
            ),
            (
                "(drop (i32.atomic.rmw8.add_u (i32.const 1000) (i32.const 1)))",
                8,
            ),
            // Two bits turned, and back by the next run.
            (
                "(drop (i32.atomic.rmw.xor (i32.const 1000) (i32.const 0xc0000000)))",
                30,
            ),
        ] {
            let wasm = module(&format!(
                r#"(module (memory (export "memory") 1 1)
                    (func (export "on_rx") (param i32 i32) (result i32) {add} (i32.const 0)))"#
            ));
            let promoted = promote(&wasm, kind, false, PLENTY).unwrap();
            let loaded = Loaded::new(&promoted);
            let word = loaded.memory.u32_at(1000);
            let done = AtomicBool::new(false);
            let step = if bits == 30 {
                1
            } else {
                1_u32.wrapping_shl(bits)
            };
            let by_user = std::thread::scope(|scope| {
                let user = scope.spawn(|| {
                    let mut count = 0_u32;
                    while !done.load(Ordering::Relaxed) {
                        // The bits next to the handler's, or the same ones.
                        word.fetch_add(if bits == 32 { 1 } else { step }, Ordering::SeqCst);
                        count += 1;
                    }
                    count
                });
                let run = TestRun {
                    packet: &stub::frame(&[]),
                    context: None,
                    repeat: RUNS,
                };
                let result = loaded.program.test_run(&run);
                done.store(true, Ordering::Relaxed);
                let by_user = user.join().unwrap();
                let outcome = stub::outcome(&result.unwrap().packet).unwrap().result;
                assert_eq!(outcome, Ok(0), "{add}");
                by_user
            });
            assert!(by_user > 1_000, "the other party hardly ran");
            let expected = match bits {
                32 => RUNS.wrapping_add(by_user),
                30 => by_user & 0x3fff_ffff,
                _ => (RUNS & (step - 1)).wrapping_add(by_user.wrapping_mul(step)),
            };
            let mask = if bits == 30 { 0x3fff_ffff } else { u32::MAX };
            assert_eq!(
                word.load(Ordering::SeqCst) & mask,
                expected,
                "{add} {kind:?}"
            );
        }
    }
}
