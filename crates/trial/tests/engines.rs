//! The same module in every engine: the same answers, and the same memory.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use ashway_abi::{Cause, Verdict};
use ashway_codegen::normalise::{Limits, Module, Profile, normalise, normalise_as};
use ashway_handler::Stopped;
use ashway_trial::{Activation, Blame, EMPTY, Engine, NotRun, Trial};
use common::{engines, wasm};

/// A handler that counts its messages in a global and in memory, and answers
/// with the number; with a start function.
const COUNTER: &str = r#"(module
    (import "ashway" "msg_store32le" (func $store (param i32 i32)))
    (memory (export "memory") 1 2)
    (data (i32.const 8) "\05")
    (global $seen (mut i32) (i32.const 7))
    (func $start
        (global.set $seen (i32.add (global.get $seen) (i32.const 100)))
        (i32.store (i32.const 16) (i32.load (i32.const 8))))
    (start $start)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (global.set $seen (i32.add (global.get $seen) (i32.const 1)))
        (i32.store (i32.const 16) (i32.add (i32.load (i32.const 16)) (local.get $len)))
        (call $store (i32.const 0) (global.get $seen))
        (i32.const 1))
    (func (export "dropping") (param $len i32) (param $channel i32) (result i32)
        (call $store (i32.const 0) (global.get $seen))
        (i32.const 5)))"#;

#[test]
fn memory_persists_and_is_the_same_everywhere() {
    let wasm = wasm(COUNTER);
    let module = normalise(&wasm, &Limits::default()).unwrap();
    let mut agreed = None;
    for (name, engine, setup) in engines() {
        let mut trial = Trial::new(&module, engine, &setup).unwrap();
        assert_eq!(trial.guest()[16], 5, "{name}: the start function has run");
        let first = trial.activate("on_rx", b"message", 0).unwrap();
        let expected = Activation {
            result: Ok(Verdict::Reply as u32),
            message: b"\x6c\0\0\0age".to_vec(),
            dirty: true,
            fuel_left: setup.budget.fuel as i64,
        };
        assert_eq!(first, expected, "{name}");
        let second = trial.activate("on_rx", b"four", 0).unwrap();
        assert_eq!(second.message, b"\x6d\0\0\0", "{name}");
        // What is dropped goes on as it came, though it was changed.
        let dropped = trial.activate("dropping", b"four", 0).unwrap();
        assert_eq!(dropped.message, b"four", "{name}");
        assert!(dropped.dirty, "{name}");
        assert_eq!(dropped.verdict(), Some(Verdict::Drop), "{name}");
        trial.write_guest(32, b"written from outside");
        let memory = (trial.guest(), trial.state());
        assert_eq!(memory.0[16], 5 + 7 + 4, "{name}");
        assert_eq!(&memory.0[32..52], b"written from outside", "{name}");
        assert_eq!(memory.0.len(), 2 * 65536);
        assert!(
            *agreed.get_or_insert_with(|| memory.clone()) == memory,
            "{name}"
        );
    }
}

/// A handler of frames in memory that is stopped a hundred times has all of its stack again.
#[test]
fn what_is_stopped_gives_its_stack_back_everywhere() {
    let wasm = wasm(
        r#"(module
        (import "ashway" "msg_load8" (func $load8 (param i32) (result i32)))
        (memory (export "memory") 1 1)
        (global $__stack_pointer (mut i32) (i32.const 4096))
        (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
            (global.set $__stack_pointer
                (i32.sub (global.get $__stack_pointer) (i32.const 256)))
            (i32.store8 (global.get $__stack_pointer) (call $load8 (i32.const 3)))
            (global.set $__stack_pointer
                (i32.add (global.get $__stack_pointer) (i32.const 256)))
            (i32.const 1)))"#,
    );
    let module = normalise(&wasm, &Limits::default()).unwrap();
    for (name, engine, setup) in engines() {
        let mut trial = Trial::new(&module, engine, &setup).unwrap();
        for _ in 0..100 {
            let short = trial.activate("on_rx", b"two", 0).unwrap();
            assert!(short.result.is_err(), "{name}");
        }
        let long = trial.activate("on_rx", b"four", 0).unwrap();
        assert_eq!(long.result, Ok(Verdict::Reply as u32), "{name}");
        assert_eq!(trial.guest()[4096 - 256], b'r', "{name}");
    }
}

#[test]
fn stops_are_the_same_everywhere() {
    let wasm = wasm(
        r#"(module
        (memory (export "memory") 1 1)
        (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
            (if (i32.eq (local.get $len) (i32.const 1)) (then unreachable))
            (if (i32.eq (local.get $len) (i32.const 2))
                (then (drop (i32.load (i32.const 65533)))))
            (if (i32.eq (local.get $len) (i32.const 3))
                (then (loop $ever (br $ever))))
            (i32.const 99)))"#,
    );
    let module = normalise(&wasm, &Limits::default()).unwrap();
    let mut agreed = None;
    for (name, engine, setup) in engines() {
        let mut trial = Trial::new(&module, engine, &setup).unwrap();
        let found: Vec<Activation> = [&b"1"[..], b"22", b"333", b"4444"]
            .map(|message| trial.activate("on_rx", message, 0).unwrap())
            .to_vec();
        let causes = found.iter().map(|a| a.result.unwrap_err().cause);
        let expected = [
            Cause::Unreachable,
            Cause::MemoryBounds,
            Cause::Fuel,
            Cause::BadVerdict,
        ];
        assert_eq!(causes.collect::<Vec<_>>(), expected, "{name}");
        assert!(found[2].fuel_left < 0, "{name}");
        assert_eq!(
            agreed.get_or_insert_with(|| found.clone()),
            &found,
            "{name}"
        );
    }
}

/// Functions of several types, and no handler.
const LIBRARY: &str = r#"(module
    (func (export "both") (param i32 i64) (result i64 i32)
        (i64.add (local.get 1) (i64.extend_i32_s (local.get 0)))
        (i32.clz (local.get 0)))
    (func (export "divide") (param i64 i64) (result i64)
        (i64.div_s (local.get 0) (local.get 1)))
    (func (export "nothing")))"#;

fn library(wasm: &[u8]) -> Module<'_> {
    let mut module = normalise_as(wasm, &Limits::default(), Profile::Library).unwrap();
    for function in 0..3 {
        module.add_invoker(function).unwrap();
    }
    module
}

#[test]
fn functions_are_called_with_their_arguments() {
    let wasm = wasm(LIBRARY);
    let module = library(&wasm);
    for (name, engine, setup) in engines() {
        let mut trial = Trial::new(&module, engine, &setup).unwrap();
        let both = trial.invoke(0, &[0xffff_ffff, 1 << 40]).unwrap();
        assert_eq!(both, Ok(vec![(1 << 40) - 1, 0]), "{name}");
        assert_eq!(trial.invoke(0, &[1, 2]).unwrap(), Ok(vec![3, 31]), "{name}");
        let quotient = trial.invoke(1, &[-12_i64 as u64, 4]).unwrap();
        assert_eq!(quotient, Ok(vec![-3_i64 as u64]), "{name}");
        let stopped = trial.invoke(1, &[1, 0]).unwrap().unwrap_err();
        assert_eq!(stopped.cause, Cause::DivideByZero, "{name}");
        let stopped = trial.invoke(1, &[1 << 63, u64::MAX]).unwrap();
        assert_eq!(stopped.unwrap_err().cause, Cause::Overflow, "{name}");
        assert_eq!(trial.invoke(2, &[]).unwrap(), Ok(vec![]), "{name}");
        assert!(matches!(
            trial.invoke(1, &[1]),
            Err(NotRun::Arguments {
                given: 1,
                wanted: 2
            })
        ));
        assert!(matches!(trial.invoke(9, &[]), Err(NotRun::NoInvoker(9))));
    }
}

#[test]
fn a_start_function_that_stops_leaves_no_trial() {
    let wasm = wasm(
        r#"(module
        (memory (export "memory") 1 1)
        (func $start (loop $ever (br $ever)))
        (start $start)
        (func (export "on_rx") (param i32 i32) (result i32) (i32.const 0)))"#,
    );
    let module = normalise(&wasm, &Limits::default()).unwrap();
    for (name, engine, setup) in engines() {
        let error = Trial::new(&module, engine, &setup).unwrap_err();
        assert_eq!(error.blame(), Blame::Handler, "{name}");
        let NotRun::Start(Stopped { cause, .. }) = error else {
            panic!("{name}: {error}");
        };
        assert_eq!(cause, Cause::Fuel, "{name}");
    }
}

#[test]
fn the_empty_handler_is_what_its_text_says_and_takes_time() {
    let text = r#"(module
        (memory (export "memory") 1 1)
        (func (export "on_rx") (param i32 i32) (result i32) (i32.const 0)))"#;
    assert_eq!(EMPTY, wasm(text));
    let module = normalise(EMPTY, &Limits::default()).unwrap();
    for (name, engine, setup) in engines() {
        let mut trial = Trial::new(&module, engine, &setup).unwrap();
        let ns = trial.time("on_rx", &[0; 64], 1_000).unwrap();
        assert!(ns > 0.0 && ns < 1e6, "{name}: {ns} ns");
        let activation = trial.activate("on_rx", b"", 0).unwrap();
        assert_eq!(activation.verdict(), Some(Verdict::Consume), "{name}");
    }
}

#[test]
fn what_cannot_run_says_why() {
    let floats = wasm(
        r#"(module
        (memory (export "memory") 1 1)
        (func (export "on_rx") (param i32 i32) (result i32)
            (i32.trunc_f64_s (f64.add (f64.const 1) (f64.convert_i32_s (local.get 0))))))"#,
    );
    let floats = normalise(&floats, &Limits::default()).unwrap();
    for (name, engine, setup) in engines() {
        let mut trial = Trial::new(&floats, engine, &setup).unwrap();
        let activation = trial.activate("on_rx", b"12", 0);
        if engine == Engine::User {
            assert_eq!(activation.unwrap().result, Ok(3));
            continue;
        }
        let error = activation.unwrap_err();
        assert_eq!(error.blame(), Blame::Handler, "{name}: {error}");
        assert!(error.reason().contains("has no eBPF counterpart"), "{name}");
        assert!(!error.reason().contains("offset"), "{name}");
    }
    let module = normalise(EMPTY, &Limits::default()).unwrap();
    for (name, engine, setup) in engines() {
        let mut trial = Trial::new(&module, engine, &setup).unwrap();
        let error = trial.activate("on_tx", b"", 0).unwrap_err();
        assert_eq!(error.blame(), Blame::Caller, "{name}: {error}");
        assert!(matches!(error, NotRun::NoHandler { known, .. } if known == ["on_rx"]));
        if engine == Engine::Kernel {
            let long = vec![0; 4096];
            let error = trial.activate("on_rx", &long, 0).unwrap_err();
            assert!(matches!(error, NotRun::MessageTooLong { len: 4096, .. }));
            let longest = vec![0; ashway_codegen::stub::MESSAGE_BYTES];
            trial.activate("on_rx", &longest, 0).unwrap();
            let loaded = trial.program("on_rx").unwrap();
            assert!(loaded.verified_insns.unwrap() > 10, "{name}");
        }
    }
}
