//! Files that nobody would write: garbage, damaged modules, damaged debug
//! information, and what is only large.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use ashway_codegen::normalise::{Limits, NormaliseError, normalise, static_bound};
use ashway_rig::skip::skip;
use common::{on_rx, parse};
use std::time::{Duration, Instant};

/// A module with something of everything.
fn sample() -> Vec<u8> {
    parse(&format!(
        r#"(@custom "ashway.abi" "\01\00\00\00")
           (global $sp (mut i32) (i32.const 16384)) (global (export "x") i32 (i32.const 1024))
           (table $t 3 funcref) (elem (table $t) (i32.const 1) func $a) (elem $p func $a)
           (data (i32.const 8) "hello") (data $d "passive") (start $s)
           (func $a (param i32) (result i32) (local i64 f32)
              (i32.div_s (local.get 0) (i32.const 3)))
           (func $s (global.set $sp (i32.sub (global.get $sp) (i32.const 16))))
           {}"#,
        on_rx(
            "(block $b (loop $l
                (call $store8 (local.get $i) (call $load8 (local.get $i)))
                (local.set $i (i32.add (local.get $i) (i32.const 1)))
                (br_table $l $b (local.get $i))))
             (memory.init $d (i32.const 0) (i32.const 0) (i32.const 7)) (data.drop $d)
             (table.init $t $p (i32.const 0) (i32.const 0) (i32.const 1))
             (call_indirect $t (param i32) (result i32) (i32.const 9) (i32.const 1))"
        )
    ))
}

/// xorshift64: the same files on every machine.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

/// Whatever comes is refused with a place inside the file, or is a module that
/// can be encoded validly.
fn survive(wasm: &[u8]) -> bool {
    match normalise(wasm, &Limits::default()) {
        Ok(module) => {
            common::check_encoded(&module);
            for index in 0..module.functions.len() {
                let _ = static_bound(&module, index as u32);
            }
            true
        }
        Err(error) => {
            assert!(!error.to_string().is_empty() && !error.hint().is_empty());
            assert!(
                error.place().is_none_or(|at| at as usize <= wasm.len()),
                "{error:?}"
            );
            false
        }
    }
}

#[test]
fn mutated_modules_are_refused_or_make_sense() {
    let sample = sample();
    assert!(survive(&sample));
    let mut random = Random(0x5eed);
    let mut accepted = 0;
    for _ in 0..3_000 {
        let mut wasm = sample.clone();
        for _ in 0..=random.below(3) {
            let at = random.below(wasm.len());
            match random.below(4) {
                0 => wasm[at] = random.below(256) as u8,
                1 => wasm[at] ^= 1 << random.below(8),
                2 => drop(wasm.remove(at)),
                _ => wasm.insert(at, random.below(256) as u8),
            }
        }
        accepted += usize::from(survive(&wasm));
    }
    assert!(
        accepted > 50,
        "{accepted}: the mutations reach no valid module"
    );
}

#[test]
fn truncated_modules_are_refused() {
    let sample = sample();
    for len in 0..sample.len() {
        survive(&sample[..len]);
    }
    assert!(matches!(
        normalise(b"not wasm at all", &Limits::default()),
        Err(NormaliseError::Invalid { at: 0, .. })
    ));
    assert!(matches!(
        normalise(b"", &Limits::default()),
        Err(NormaliseError::Invalid { .. })
    ));
}

#[test]
fn a_component_is_no_module() {
    let wasm = wat::parse_str("(component)").unwrap();
    assert!(matches!(
        normalise(&wasm, &Limits::default()),
        Err(NormaliseError::Invalid { .. })
    ));
}

/// Every prefix and 2,000 mutations of real debug information, if the example
/// handlers have been built.
#[test]
fn broken_debug_information_is_left_out() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../target/handlers/lock.wasm"
    );
    let Ok(wasm) = std::fs::read(path) else {
        skip("needs handlers (cargo xtask handlers)");
        return;
    };
    let module = normalise(&wasm, &Limits::default()).unwrap();
    let at = module.functions[0].at;
    let (file, line) = module.lines.at(at).expect("the handlers are built with -g");
    assert_eq!(file, "apps/handlers/lock.c");
    assert!(line > 1);
    let name = b".debug_line";
    let start = wasm
        .windows(name.len())
        .position(|window| window == name)
        .unwrap()
        + name.len();
    let mut random = Random(0xd3b6);
    for _ in 0..2_000 {
        let mut wasm = wasm.clone();
        for _ in 0..=random.below(4) {
            let at = start + random.below(wasm.len() - start).min(400);
            wasm[at] = random.below(256) as u8;
        }
        survive(&wasm);
    }
}

/// Nesting, calls and tables as deep and as many as 4 MiB allow: linear time.
#[test]
fn large_files_take_linear_time() {
    let start = Instant::now();
    let nested = format!(
        "{} {} (i32.const 1)",
        "block ".repeat(200_000),
        "end ".repeat(200_000)
    );
    survive(&parse(&on_rx(&nested)));
    let calls = "(call $f)".repeat(200_000);
    survive(&parse(&format!(
        "(func $f) {}",
        on_rx(&format!("{calls} (i32.const 1)"))
    )));
    let globals = "(global (mut i64) (i64.const 0))".repeat(8_000);
    survive(&parse(&format!("{globals} {}", on_rx("(i32.const 1)"))));
    assert!(
        start.elapsed() < Duration::from_mins(1),
        "{:?}",
        start.elapsed()
    );
}
