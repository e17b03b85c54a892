//! Invokers: any function, called through a message.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use ashway_abi::Cause;
use ashway_codegen::normalise::{INVOKE_PREFIX, Limits, NormaliseError, Profile, normalise_as};
use common::Library;

#[test]
fn arguments_and_results_keep_their_bits() {
    let mut library = Library::new(
        r#"(func (export "all") (param i32 i64 f32 f64) (result f64 f32 i64 i32)
              (local.get 3) (local.get 2) (local.get 1) (local.get 0))
           (func (export "none"))
           (func (export "more") (param i64) (result i64 i64 i32)
              (local.get 0) (i64.add (local.get 0) (i64.const 1)) (i32.const -1))"#,
    );
    // Signalling NaNs stay what they are; of an i32 only the low half counts.
    let (single, double) = (0x7fa0_0001, 0x7ff4_0000_0000_0001);
    let args = [0xffff_ffff_8000_0001, u64::MAX - 4, single, double];
    assert_eq!(
        library.call("all", &args),
        Ok(vec![double, single, u64::MAX - 4, 0x8000_0001])
    );
    assert_eq!(library.call("none", &[]), Ok(vec![]));
    let most = u64::from(u32::MAX);
    assert_eq!(library.call("more", &[41]), Ok(vec![41, 42, most]));
}

#[test]
fn a_second_invoker_of_a_function_is_the_first() {
    let mut library = Library::new(
        r#"(func (export "add") (param i32 i32) (result i32)
              (i32.add (local.get 0) (local.get 1)))"#,
    );
    assert_eq!(library.number("add", &[2, 3]), Ok(5));
    let mut module = normalise_as(&library.wasm, &Limits::default(), Profile::Library).unwrap();
    let name = module.add_invoker(0).unwrap();
    assert_eq!(name, format!("{INVOKE_PREFIX}0"));
    let functions = module.functions.len();
    assert_eq!(module.add_invoker(0).unwrap(), name);
    assert_eq!(module.functions.len(), functions);
}

#[test]
fn vectors_have_no_slot() {
    for text in ["(param v128)", "(result v128) (v128.const i64x2 0 0)"] {
        let wasm = wat::parse_str(format!(r#"(module (func (export "v") {text}))"#)).unwrap();
        let mut module = normalise_as(&wasm, &Limits::default(), Profile::Library).unwrap();
        let error = module.add_invoker(0).unwrap_err();
        assert!(matches!(error, NormaliseError::Unsupported { .. }));
        assert!(error.to_string().contains("v128"), "{error}");
    }
}

/// A library needs neither `on_rx` nor a memory, and its start function runs.
#[test]
fn a_library_needs_next_to_nothing() {
    let mut library = Library::new(r#"(func (export "one") (result i32) (i32.const 1))"#);
    assert_eq!(library.number("one", &[]), Ok(1));
    assert_eq!(library.layout.guest_bytes, 0);
    let mut library = Library::new(
        r#"(memory 1) (global $g (mut f64) (f64.const 0.5)) (start $s)
           (func $s (global.set $g (f64.add (global.get $g) (f64.const 1))))
           (func (export "fuel") (result f64) (global.get $g))
           (func (export "grow") (param i32) (result i32) (memory.grow (local.get 0)))
           (func (export "load") (param i32) (result i32) (i32.load (local.get 0)))"#,
    );
    assert_eq!(library.call("fuel", &[]), Ok(vec![1.5_f64.to_bits()]));
    let quota = u64::from(Limits::default().memory_pages);
    library.stops("load", &[65_536], Cause::MemoryBounds, "I32Load");
    assert_eq!(library.number("grow", &[quota]), Ok(u32::MAX));
    assert_eq!(library.number("grow", &[quota - 1]), Ok(1));
    assert_eq!(library.number("load", &[65_536]), Ok(0));
}
