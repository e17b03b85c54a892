//! Atomic operators: each width and operation, alignment before bounds.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use ashway_abi::Cause;
use common::Library;
use std::fmt::Write;

/// Prefix, suffix and bytes of each access.
const ACCESSES: [(&str, &str, u32); 7] = [
    ("i32", "", 4),
    ("i32", "8_u", 1),
    ("i32", "16_u", 2),
    ("i64", "", 8),
    ("i64", "8_u", 1),
    ("i64", "16_u", 2),
    ("i64", "32_u", 4),
];

type Operation = fn(u64, u64) -> u64;

const OPERATIONS: [(&str, Operation); 6] = [
    ("add", u64::wrapping_add),
    ("sub", u64::wrapping_sub),
    ("and", |a, b| a & b),
    ("or", |a, b| a | b),
    ("xor", |a, b| a ^ b),
    ("xchg", |_, b| b),
];

/// `i32.atomic.rmw16.add_u`, exported under its own name with all others.
fn library() -> Library {
    let mut text = String::from("(memory 1 1 shared)");
    let mut export = |name: &str, params: &str, result: &str, code: &str| {
        write!(
            text,
            r#"(func (export "{name}") (param i32 {params}) {result} (local.get 0) {code} ({name}))"#
        )
        .unwrap();
    };
    for (ty, suffix, _) in ACCESSES {
        let result = format!("(result {ty})");
        let bits = suffix.trim_end_matches("_u");
        let value = "(local.get 1)";
        export(&format!("{ty}.atomic.load{suffix}"), "", &result, "");
        export(&format!("{ty}.atomic.store{bits}"), ty, "", value);
        for (operation, _) in OPERATIONS {
            let name = rmw(ty, suffix, operation);
            export(&name, ty, &result, value);
        }
        let name = rmw(ty, suffix, "cmpxchg");
        let params = format!("{ty} {ty}");
        export(&name, &params, &result, "(local.get 1) (local.get 2)");
    }
    text += r#"(func (export "fence") (atomic.fence))"#;
    Library::new(&text)
}

fn rmw(ty: &str, suffix: &str, operation: &str) -> String {
    let (bits, tail) = suffix
        .split_once('_')
        .map_or(("", ""), |(bits, _)| (bits, "_u"));
    format!("{ty}.atomic.rmw{bits}.{operation}{tail}")
}

fn mask(bytes: u32) -> u64 {
    u64::MAX >> (64 - 8 * bytes)
}

const BEFORE: u64 = 0xf1e2_d3c4_b5a6_9788;
const VALUE: u64 = 0x0112_2334_4556_6799;

#[test]
fn each_operator_reads_and_writes_its_own_bytes() {
    let mut library = library();
    for (ty, suffix, bytes) in ACCESSES {
        let mask = mask(bytes);
        let mut check = |name: &str, args: &[u64], old: Option<u64>, new: u64| {
            library.pages.write(16, &BEFORE.to_le_bytes());
            let found = library.call(name, args).unwrap();
            if let Some(old) = old {
                assert_eq!(found[0], old & mask, "{name}");
            }
            let memory = u64::from_le_bytes(library.pages.read(16));
            assert_eq!(memory, BEFORE & !mask | new & mask, "{name}");
        };
        let bits = suffix.trim_end_matches("_u");
        check(
            &format!("{ty}.atomic.load{suffix}"),
            &[16],
            Some(BEFORE),
            BEFORE,
        );
        check(
            &format!("{ty}.atomic.store{bits}"),
            &[16, VALUE],
            None,
            VALUE,
        );
        for (operation, compute) in OPERATIONS {
            let name = rmw(ty, suffix, operation);
            let new = compute(BEFORE, VALUE);
            check(&name, &[16, VALUE], Some(BEFORE), new);
        }
        let name = rmw(ty, suffix, "cmpxchg");
        check(&name, &[16, BEFORE & mask, VALUE], Some(BEFORE), VALUE);
        check(&name, &[16, !BEFORE & mask, VALUE], Some(BEFORE), BEFORE);
        if bytes < if ty == "i32" { 4 } else { 8 } {
            // What is expected is wrapped to the width before it is compared
            // (threads proposal, "Compare Exchange").
            check(
                &name,
                &[16, BEFORE & mask | (mask + 1), VALUE],
                Some(BEFORE),
                VALUE,
            );
        }
    }
    library.call("fence", &[]).unwrap();
}

#[test]
fn alignment_comes_before_bounds() {
    let mut library = library();
    for (ty, suffix, bytes) in ACCESSES {
        let names = [
            format!("{ty}.atomic.load{suffix}"),
            format!("{ty}.atomic.store{}", suffix.trim_end_matches("_u")),
            rmw(ty, suffix, "add"),
            rmw(ty, suffix, "cmpxchg"),
        ];
        for name in names {
            let mut cause = |at: u32| {
                let found = library.call(&name, &[u64::from(at), 0, 0]);
                found.map_err(|stopped| stopped.cause).err()
            };
            assert_eq!(cause(65_536 - bytes), None, "{name}");
            assert_eq!(cause(65_536), Some(Cause::MemoryBounds), "{name}");
            assert_eq!(
                cause(u32::MAX - bytes + 1),
                Some(Cause::MemoryBounds),
                "{name}"
            );
            for at in 1..bytes {
                for base in [0, 65_536 - bytes, 65_536, 1 << 31] {
                    assert_eq!(
                        cause(base + at),
                        Some(Cause::Unaligned),
                        "{name} {base} {at}"
                    );
                }
            }
        }
    }
}

#[test]
fn the_offset_counts_for_alignment_and_stops_have_their_place() {
    let mut library = Library::new(
        r#"(memory 1 1)
           (func (export "load") (param i32) (result i32)
              (i32.atomic.load offset=2 (local.get 0)))
           (func (export "add") (param i32) (result i64)
              (i64.atomic.rmw.add offset=4294967295 (local.get 0) (i64.const 1)))"#,
    );
    library.stops("load", &[0], Cause::Unaligned, "I32AtomicLoad");
    assert_eq!(library.number("load", &[2]), Ok(0));
    library.stops("load", &[65_534], Cause::MemoryBounds, "I32AtomicLoad");
    library.stops("add", &[0], Cause::Unaligned, "I64AtomicRmwAdd");
    library.stops("add", &[9], Cause::MemoryBounds, "I64AtomicRmwAdd");
}
