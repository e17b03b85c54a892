//! What a handler can do to a message and to its memory.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use ashway_abi::memory::{STATE_GLOBALS, STATE_GUEST_PAGES, WASM_PAGE};
use ashway_abi::{Cause, Verdict};
use ashway_codegen::normalise::{Limits, encode, normalise};
use ashway_handler::{
    Engine, Function, Instance, InstantiateError, Outcome, Param, ParamError, Region,
};
use common::{Pages, file, handler, layout, load, on_rx, try_load};
use std::sync::Arc;

const FUEL: u64 = 10_000;

fn run(instance: &mut Instance, message: &mut [u8]) -> Outcome {
    instance.activate(Function::ON_RX, message, 0, FUEL)
}

#[test]
fn loads_and_stores_have_the_byte_order_they_say() {
    // Each load's result is stored by the store of the other order.
    let exchange = [
        ("$load16le", "$store16be", 2),
        ("$load16be", "$store16le", 2),
        ("$load32le", "$store32be", 4),
        ("$load32be", "$store32le", 4),
        ("$load64le", "$store64be", 8),
        ("$load64be", "$store64le", 8),
    ];
    for (load_call, store_call, bytes) in exchange {
        let body = format!(
            "(call {store_call} (i32.const 1) (call {load_call} (i32.const 1))) (i32.const 1)"
        );
        let (mut instance, _pages) = load(&handler(&body));
        let mut message: Vec<u8> = (0x80..0x8a).collect();
        let mut expected = message.clone();
        expected[1..=bytes].reverse();
        let outcome = run(&mut instance, &mut message);
        assert_eq!((outcome.verdict, outcome.dirty), (Ok(Verdict::Reply), true));
        assert_eq!(message, expected, "{load_call} {store_call}");
    }
}

#[test]
fn loads_are_zero_extended_and_stores_take_the_low_bits() {
    for (name, expected) in [("8", 0xff_u32), ("16le", 0xfeff), ("16be", 0xfffe)] {
        let body =
            format!("(i32.store (i32.const 0) (call $load{name} (i32.const 0))) (i32.const 1)");
        let (mut instance, pages) = load(&handler(&body));
        let outcome = run(&mut instance, &mut [0xff, 0xfe]);
        assert!(!outcome.dirty);
        assert_eq!(pages.read_u32(0), expected, "{name}");
    }
    for (name, expected) in [
        ("8", [0x78, 2, 3]),
        ("16le", [0x78, 0x56, 3]),
        ("16be", [0x56, 0x78, 3]),
    ] {
        let body =
            format!("(call $store{name} (i32.const 0) (i32.const 0x12345678)) (i32.const 1)");
        let (mut instance, _pages) = load(&handler(&body));
        let mut message = [1, 2, 3];
        run(&mut instance, &mut message);
        assert_eq!(message, expected, "{name}");
    }
}

#[test]
fn accesses_end_with_the_last_byte() {
    for (call, bytes) in [("8", 1), ("16le", 2), ("16be", 2), ("32le", 4), ("64be", 8)] {
        let body = format!(
            "(drop (call $load{call} (i32.sub (local.get $len) (i32.const {bytes})))) (i32.const 1)"
        );
        let (mut instance, _pages) = load(&handler(&body));
        for len in 0..20 {
            let outcome = run(&mut instance, &mut vec![0; len]);
            let stopped = outcome.verdict.map_err(|stopped| stopped.cause);
            let expected = if len < bytes {
                Err(Cause::MessageBounds)
            } else {
                Ok(Verdict::Reply)
            };
            assert_eq!(stopped, expected, "{call} in {len}");
        }
    }
}

#[test]
fn what_a_longer_message_left_cannot_be_read() {
    let (mut instance, _pages) = load(&handler("(drop (call $load8 (i32.const 4))) (i32.const 1)"));
    assert_eq!(
        run(&mut instance, &mut b"secret".to_vec()).verdict,
        Ok(Verdict::Reply)
    );
    let stopped = run(&mut instance, &mut b"four".to_vec())
        .verdict
        .unwrap_err();
    assert_eq!(stopped.cause, Cause::MessageBounds);
}

#[test]
fn bulk_access_copies_both_ways() {
    let body = "(call $read (i32.const 1) (i32.const 100) (i32.const 3))
        (call $write (i32.const 0) (i32.const 101) (i32.const 2))
        (call $read (local.get $len) (i32.const 0x10000) (i32.const 0))
        (i32.const 1)";
    let (mut instance, pages) = load(&handler(body));
    let mut message = *b"abcdef";
    let outcome = run(&mut instance, &mut message);
    assert_eq!((outcome.verdict, outcome.dirty), (Ok(Verdict::Reply), true));
    assert_eq!(&message, b"cdcdef");
    assert_eq!(&pages.read::<5>(99), b"\0bcd\0");
}

#[test]
fn only_a_verdict_that_sends_the_message_on_changes_it() {
    for verdict in Verdict::ALL {
        let body = format!(
            "(call $store8 (i32.const 0) (i32.const 9)) (i32.const {})",
            verdict as u32
        );
        let (mut instance, _pages) = load(&handler(&body));
        let mut message = [1, 2];
        let outcome = run(&mut instance, &mut message);
        assert_eq!((outcome.verdict, outcome.dirty), (Ok(verdict), true));
        let changed = matches!(
            verdict,
            Verdict::Reply | Verdict::Deliver | Verdict::Forward
        );
        assert_eq!(message, [if changed { 9 } else { 1 }, 2], "{verdict:?}");
    }
}

#[test]
fn a_stopped_handler_leaves_the_message_and_says_dirty() {
    let body = "(call $store8 (i32.const 0) (i32.const 9)) unreachable";
    let (mut instance, _pages) = load(&handler(body));
    let mut message = [1];
    let outcome = run(&mut instance, &mut message);
    assert_eq!(
        outcome.verdict.map_err(|s| s.cause),
        Err(Cause::Unreachable)
    );
    assert!(outcome.dirty);
    assert_eq!(message, [1]);
}

#[test]
fn the_largest_message_is_64_kib() {
    let (mut instance, _pages) = load(&handler(
        "(call $store8 (i32.const 65535) (i32.const 9)) (i32.const 1)",
    ));
    let mut message = vec![0; 70_000];
    assert_eq!(run(&mut instance, &mut message).verdict, Ok(Verdict::Reply));
    assert_eq!(message[65_535..65_537], [9, 0]);
}

#[test]
fn channel_and_length_arrive() {
    let body = "(i32.store (i32.const 0) (local.get $len))
        (i32.store (i32.const 4) (local.get $channel)) (i32.const 0)";
    let (mut instance, pages) = load(&handler(body));
    instance.activate(Function::ON_RX, &mut [0; 7], 3, FUEL);
    assert_eq!((pages.read_u32(0), pages.read_u32(4)), (7, 3));
}

/// Adds up in memory and in a mutable global.
fn counter() -> Vec<u8> {
    file(&format!(
        r#"(global $sum (mut i64) (i64.const -5))
           (global (export "ashway_param_step") i32 (i32.const 4096))
           (data (i32.const 4096) "\01\00\00\00\00\00\00\00")
           {}"#,
        on_rx(
            "(i32.store (i32.const 16) (i32.add (i32.load (i32.const 16)) (i32.const 1)))
             (global.set $sum (i64.add (global.get $sum) (i64.load (i32.const 4096))))
             (i32.const 1)"
        ),
    ))
}

#[test]
fn state_lies_in_the_region_and_stays() {
    let (mut instance, pages) = load(&counter());
    let global = WASM_PAGE + STATE_GLOBALS;
    assert_eq!(i64::from_le_bytes(pages.read(global)), -5);
    for _ in 0..3 {
        run(&mut instance, &mut []);
    }
    assert_eq!(pages.read_u32(16), 3);
    assert_eq!(i64::from_le_bytes(pages.read(global)), -2);
    // What somebody else writes is what the handler sees.
    pages.write(16, &41_u32.to_le_bytes());
    run(&mut instance, &mut []);
    assert_eq!(pages.read_u32(16), 42);
}

#[test]
fn parameters_are_variables() {
    let (mut instance, pages) = load(&counter());
    assert_eq!(i64::from_le_bytes(pages.read(4096)), 1);
    instance.set_param("step", &Param::Number(-7)).unwrap();
    run(&mut instance, &mut []);
    assert_eq!(
        i64::from_le_bytes(pages.read(WASM_PAGE + STATE_GLOBALS)),
        -12
    );
    let unknown = ParamError::Unknown {
        param: "stop".to_owned(),
        has: vec!["step".to_owned()],
    };
    assert_eq!(instance.set_param("stop", &Param::Number(1)), Err(unknown));
}

#[test]
fn a_parameter_outside_the_memory_is_refused() {
    let wasm = file(&format!(
        r#"(global (export "ashway_param_p") i32 (i32.const 65529)) {}"#,
        on_rx("(i32.const 1)")
    ));
    let (mut instance, pages) = load(&wasm);
    assert!(instance.set_param("p", &Param::Number(-1)).is_err());
    assert_eq!(
        pages.read::<9>(65_528),
        [0, 0, 0, 0, 0, 0, 0, 0, 1],
        "only the size behind it"
    );
}

#[test]
fn instances_have_their_own_memories() {
    let (mut one, pages_of_one) = load(&counter());
    let (mut two, pages_of_two) = load(&counter());
    run(&mut one, &mut []);
    run(&mut two, &mut []);
    run(&mut two, &mut []);
    assert_eq!(
        (pages_of_one.read_u32(16), pages_of_two.read_u32(16)),
        (1, 2)
    );
    drop(one);
    run(&mut two, &mut []);
    assert_eq!(pages_of_two.read_u32(16), 3);
}

#[test]
fn memory_grows_in_both_tiers() {
    let wasm = file(&format!(
        r#"(memory (export "memory") 1 3) {}"#,
        on_rx(
            "(if (local.get $len) (then (drop (memory.grow (call $load8 (i32.const 0))))))
             (i32.store (i32.const 0) (memory.size)) (i32.const 1)"
        ),
    ));
    let (mut instance, pages) = load(&wasm);
    let size_word = 3 * WASM_PAGE + STATE_GUEST_PAGES;
    assert_eq!(pages.read_u32(size_word), 1);
    run(&mut instance, &mut [1]);
    assert_eq!((pages.read_u32(0), pages.read_u32(size_word)), (2, 2));
    run(&mut instance, &mut [2]);
    assert_eq!(
        (pages.read_u32(0), pages.read_u32(size_word)),
        (2, 2),
        "beyond the maximum"
    );
    // The kernel tier grew it, or the application says so.
    pages.write(size_word, &3_u32.to_le_bytes());
    run(&mut instance, &mut []);
    assert_eq!(pages.read_u32(0), 3);
    pages.write(size_word, &u32::MAX.to_le_bytes());
    run(&mut instance, &mut []);
    assert_eq!(pages.read_u32(0), 3);
}

#[test]
fn the_start_function_runs_once_and_can_be_stopped() {
    let with_start = |body: &str| {
        file(&format!(
            "(func $s {body}) (start $s) {}",
            on_rx("(i32.const 1)")
        ))
    };
    let (_instance, pages) = load(&with_start("(i32.store (i32.const 8) (i32.const 6))"));
    assert_eq!(pages.read_u32(8), 6);
    let stopped = try_load(&with_start("(loop (br 0))"))
        .map(|_| ())
        .unwrap_err();
    assert!(matches!(stopped, InstantiateError::Start(s) if s.cause == Cause::Fuel));
}

#[test]
fn a_region_that_does_not_fit_is_refused() {
    let wasm = counter();
    let engine = Engine::new().unwrap();
    let module = normalise(&wasm, &Limits::default()).unwrap();
    let small: Arc<dyn Region> = Pages::new(2 * WASM_PAGE - 4096);
    let new = |region, layout| Instance::new(&engine, &module, &encode(&module), region, layout);
    let refused = new(&small, layout(1)).map(|_| ()).unwrap_err();
    assert!(
        matches!(refused, InstantiateError::Region { .. }),
        "{refused}"
    );
    let large: Arc<dyn Region> = Pages::new(layout(2).total_bytes());
    let refused = new(&large, layout(2)).map(|_| ()).unwrap_err();
    assert!(
        matches!(refused, InstantiateError::Region { .. }),
        "{refused}"
    );
}

#[test]
fn floats_and_vectors_run_here() {
    let body = "(i32.store (i32.const 0) (i32.trunc_f64_s (f64.sqrt (f64.const 144))))
        (i32.store (i32.const 4) (i32x4.extract_lane 2 (i32x4.splat (i32.const 5))))
        (i32.const 1)";
    let (mut instance, pages) = load(&handler(body));
    assert_eq!(run(&mut instance, &mut []).verdict, Ok(Verdict::Reply));
    assert_eq!((pages.read_u32(0), pages.read_u32(4)), (12, 5));
}

#[test]
fn tables_segments_and_passive_data_work() {
    let wasm = file(&format!(
        r#"(table $t 4 funcref) (type $give (func (result i32)))
           (elem (table $t) (i32.const 1) func $seven)
           (elem $later funcref (ref.func $eight))
           (data $bytes "hello")
           (func $seven (result i32) (i32.const 7))
           (func $eight (result i32) (i32.const 8))
           {}"#,
        on_rx(
            "(table.init $t $later (i32.const 2) (i32.const 0) (i32.const 1))
             (memory.init $bytes (i32.const 100) (i32.const 1) (i32.const 3))
             (i32.store (i32.const 0) (call_indirect $t (type $give) (i32.const 1)))
             (i32.store (i32.const 4) (call_indirect $t (type $give) (i32.const 2)))
             (table.set $t (i32.const 3) (ref.func $eight))
             (i32.store (i32.const 8) (call_indirect $t (type $give) (i32.const 3)))
             (i32.store (i32.const 12) (table.grow $t (ref.null func) (i32.const 1)))
             (i32.const 1)"
        ),
    ));
    let (mut instance, pages) = load(&wasm);
    assert_eq!(run(&mut instance, &mut []).verdict, Ok(Verdict::Reply));
    let words = [0, 4, 8, 12].map(|at| pages.read_u32(at));
    assert_eq!(words, [7, 8, 8, 4]);
    assert_eq!(&pages.read::<5>(99), b"\0ell\0");
}

#[test]
fn any_exported_handler_can_be_chosen() {
    let (mut instance, _) = load(&file(
        r#"(func (export "on_rx") (param i32 i32) (result i32) i32.const 0)
        (func (export "on_other") (param i32 i32) (result i32) i32.const 5)
        (func (export "helper") (result i32) i32.const 5)"#,
    ));
    let other = instance.function("on_other").unwrap();
    let verdict =
        |instance: &mut Instance, function| instance.activate(function, &mut [], 0, 1000).verdict;
    assert_eq!(
        verdict(&mut instance, Function::ON_RX),
        Ok(Verdict::Consume)
    );
    assert_eq!(verdict(&mut instance, other), Ok(Verdict::Drop));
    assert_eq!(instance.function("helper"), None, "not of a handler's type");
    assert_eq!(instance.function("absent"), None);
}
