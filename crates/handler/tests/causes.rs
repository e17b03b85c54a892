//! Each way a handler can be stopped: its cause, its place, and that the
//! instance goes on afterwards.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use ashway_abi::{Cause, Verdict};
use ashway_codegen::normalise::{Limits, encode, normalise};
use ashway_handler::{Budget, Clocks, Engine, Function, Instance, Region, SLICE, Stopped};
use common::{Pages, file, handler, layout, load, on_rx, place};
use std::sync::Arc;

const FUEL: u64 = 1_000;

fn stop(instance: &mut Instance, message: &[u8]) -> Stopped {
    let outcome = instance.activate(Function::ON_RX, &mut message.to_vec(), 0, FUEL);
    outcome
        .verdict
        .expect_err("the handler should have been stopped")
}

/// The handler must be stopped with `cause` at the one operation `kind` by an
/// empty message, and answer a longer one.
fn check(cause: Cause, kind: &str, wasm: &[u8]) {
    let (mut instance, _pages) = load(wasm);
    let expected = Stopped {
        cause,
        at: place(wasm, kind),
    };
    assert_eq!(stop(&mut instance, b""), expected, "{kind}");
    let again = instance.activate(Function::ON_RX, &mut [1], 0, FUEL);
    assert_eq!(again.verdict, Ok(Verdict::Reply), "{kind}");
    assert_eq!(stop(&mut instance, b""), expected, "{kind}, again");
}

/// Does `body` for an empty message only.
fn if_empty(body: &str) -> Vec<u8> {
    handler(&format!(
        "(if (i32.eqz (local.get $len)) (then {body})) (i32.const 1)"
    ))
}

#[test]
fn unreachable() {
    check(Cause::Unreachable, "Unreachable", &if_empty("unreachable"));
}

#[test]
fn memory_bounds() {
    for address in [65_533, 65_536, -1, i32::MIN] {
        // Not constant: Wasmtime blames an access that is certain to trap on
        // the branch that leads to it.
        let body =
            format!("(drop (i32.load (i32.sub (i32.const {address}) (local.get $channel))))");
        check(Cause::MemoryBounds, "I32Load", &if_empty(&body));
    }
    let wraps = if_empty("(drop (i32.load offset=4294967295 (i32.const 8)))");
    let (mut instance, _pages) = load(&wraps);
    assert_eq!(stop(&mut instance, b"").cause, Cause::MemoryBounds);
    let store = "(i64.store (i32.sub (i32.const 65529) (local.get $channel)) (i64.const 1))";
    check(Cause::MemoryBounds, "I64Store", &if_empty(store));
    let fill = "(memory.fill (i32.const 65000) (i32.const 0) (i32.const 537))";
    check(Cause::MemoryBounds, "MemoryFill", &if_empty(fill));
}

#[test]
fn the_region_goes_on_behind_the_memory_and_still_it_ends() {
    let wasm =
        handler("(i32.store8 (call $load32be (i32.const 0)) (i32.const 0xee)) (i32.const 1)");
    let (mut instance, pages) = load(&wasm);
    let mut at = |address: u32| {
        instance
            .activate(Function::ON_RX, &mut address.to_be_bytes(), 0, FUEL)
            .verdict
    };
    let stopped = Err(Stopped {
        cause: Cause::MemoryBounds,
        at: place(&wasm, "I32Store8"),
    });
    assert_eq!(at(65_535), Ok(Verdict::Reply));
    for address in [65_536, 65_536 + 64, 2 * 65_536, 1 << 31, u32::MAX] {
        assert_eq!(at(address), stopped, "{address:#x}");
    }
    assert_eq!(pages.read(65_535), [0xee]);
    let behind = 65_536 + 4..pages.len();
    assert!(behind.into_iter().all(|at| pages.read(at) == [0]));
}

#[test]
fn message_bounds() {
    check(
        Cause::MessageBounds,
        "Host",
        &if_empty("(drop (call $load8 (i32.const 0)))"),
    );
    check(
        Cause::MessageBounds,
        "Host",
        &if_empty("(call $store64be (i32.const -4) (i64.const 1))"),
    );
    check(
        Cause::MessageBounds,
        "Host",
        &if_empty("(call $read (i32.const 1) (i32.const 0) (i32.const 0))"),
    );
}

#[test]
fn a_bulk_access_outside_the_memory() {
    let read = "(call $read (i32.const 0) (i32.const 65537) (i32.const 0))";
    check(Cause::MemoryBounds, "Host", &if_empty(read));
    let write = "(call $write (i32.const 0) (i32.const 65537) (i32.const 0))";
    check(Cause::MemoryBounds, "Host", &if_empty(write));
}

#[test]
fn division() {
    let by = |op: &str| if_empty(&format!("(drop ({op} (i32.const 7) (local.get $i)))"));
    check(Cause::DivideByZero, "I32DivS", &by("i32.div_s"));
    check(Cause::DivideByZero, "I32DivU", &by("i32.div_u"));
    check(Cause::DivideByZero, "I32RemS", &by("i32.rem_s"));
    check(Cause::DivideByZero, "I32RemU", &by("i32.rem_u"));
    let overflow = "(local.set $i (i32.const -1))
        (drop (i32.div_s (i32.const 0x80000000) (local.get $i)))";
    check(Cause::Overflow, "I32DivS", &if_empty(overflow));
    let not_overflow = "(local.set $i (i32.const -1))
        (drop (i32.rem_s (i32.const 0x80000000) (local.get $i)))";
    let (mut instance, _pages) = load(&if_empty(not_overflow));
    assert_eq!(
        instance.activate(Function::ON_RX, &mut [], 0, FUEL).verdict,
        Ok(Verdict::Reply)
    );
}

#[test]
fn indirect_calls() {
    let call = |entry: i32| {
        file(&format!(
            "(type $none (func)) (table 3 funcref)
             (elem (i32.const 0) $mistyped $right)
             (func $mistyped (param i32)) (func $right)
             {}",
            on_rx(&format!(
                "(if (i32.eqz (local.get $len))
                    (then (call_indirect (type $none) (i32.const {entry}))))
                 (i32.const 1)"
            )),
        ))
    };
    for entry in [0, 2, 3, -1] {
        check(Cause::IndirectCall, "CallIndirect", &call(entry));
    }
    let (mut instance, _pages) = load(&call(1));
    assert_eq!(
        instance.activate(Function::ON_RX, &mut [], 0, FUEL).verdict,
        Ok(Verdict::Reply)
    );
}

#[test]
fn stack() {
    let wasm = file(&format!(
        "(func $deep (param i32) (result i32)
            (i32.add (i32.const 1) (call $deep (local.get 0))))
         {}",
        on_rx(
            "(if (i32.eqz (local.get $len)) (then (drop (call $deep (i32.const 0)))))
             (i32.const 1)"
        ),
    ));
    let (mut instance, _pages) = load(&wasm);
    let outcome = instance.activate(Function::ON_RX, &mut [], 0, u64::MAX);
    let stopped = outcome.verdict.unwrap_err();
    assert_eq!(stopped.cause, Cause::Stack);
    assert_eq!(stopped.at, place(&wasm, "Push"));
    assert_eq!(
        instance
            .activate(Function::ON_RX, &mut [1], 0, FUEL)
            .verdict,
        Ok(Verdict::Reply)
    );
}

#[test]
fn bad_verdict() {
    let (mut instance, _pages) = load(&handler("(call $load8 (i32.const 0))"));
    assert_eq!(
        instance
            .activate(Function::ON_RX, &mut [6], 0, FUEL)
            .verdict,
        Ok(Verdict::Abort)
    );
    for number in [7, 99, 255] {
        assert_eq!(stop(&mut instance, &[number]).cause, Cause::BadVerdict);
    }
}

#[test]
fn fuel_ends_at_the_turn_that_was_computed() {
    // One turn: the charge itself 4, global.get, i32.add, global.set, br = 8
    // units. The turns are counted in a mutable global, which survives the stop.
    let wasm = file(&format!(
        "(global $turns (mut i32) (i32.const 0)) {}",
        on_rx(
            "(loop $again
                (global.set $turns (i32.add (global.get $turns) (i32.const 1)))
                (br $again))
             (i32.const 1)"
        ),
    ));
    let (mut instance, pages) = load(&wasm);
    let turns = 65_536 + ashway_abi::memory::STATE_GLOBALS;
    let mut all = 0;
    for fuel in [0, 7, 8, 15, 16, 1_000, 1_003] {
        let outcome = instance.activate(Function::ON_RX, &mut [], 0, fuel);
        let expected = Stopped {
            cause: Cause::Fuel,
            at: place(&wasm, "Loop"),
        };
        assert_eq!(outcome.verdict, Err(expected));
        assert_eq!(outcome.fuel_left, fuel as i64 % 8 - 8);
        all += fuel as u32 / 8;
        assert_eq!(pages.read_u32(turns), all, "{fuel}");
    }
}

#[test]
fn fuel_pays_for_bulk_operations_by_length() {
    let wasm = handler(
        "(memory.fill (i32.const 0) (i32.const 7) (call $load32be (i32.const 0))) (i32.const 1)",
    );
    let (mut instance, pages) = load(&wasm);
    let mut fill =
        |len: u32, fuel| instance.activate(Function::ON_RX, &mut len.to_be_bytes(), 0, fuel);
    assert_eq!(fill(800, 100).fuel_left, 0);
    assert_eq!(pages.read(799), [7]);
    assert_eq!(pages.read(800), [0]);
    let outcome = fill(808, 100);
    let expected = Stopped {
        cause: Cause::Fuel,
        at: place(&wasm, "MemoryFill"),
    };
    assert_eq!((outcome.verdict, outcome.fuel_left), (Err(expected), -1));
    assert_eq!(pages.read(800), [0], "a bulk operation is paid for first");
    assert_eq!(fill(u32::MAX, 1_000).verdict, Err(expected));
}

/// A clock on which each look takes 1 us.
fn virtual_ns() -> u64 {
    thread_local! {
        static NOW: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
    }
    NOW.set(NOW.get() + 1_000);
    NOW.get()
}

#[test]
fn time_ends_what_has_fuel() {
    let wasm = if_empty("(loop $again (br $again))");
    let clocks = Clocks {
        wall: virtual_ns,
        thread: virtual_ns,
    };
    let engine = Engine::with_clocks(clocks).unwrap();
    let module = normalise(&wasm, &Limits::default()).unwrap();
    let region: Arc<dyn Region> = Pages::new(layout(1).total_bytes());
    let encoded = encode(&module);
    let mut instance = Instance::new(&engine, &module, &encoded, &region, layout(1)).unwrap();
    let budget = Budget {
        fuel: 1_000 * SLICE,
        ns: 10_000,
    };
    let expected = Stopped {
        cause: Cause::Time,
        at: place(&wasm, "Loop"),
    };
    for _ in 0..3 {
        let outcome = instance.activate(Function::ON_RX, &mut [], 0, budget);
        assert_eq!(outcome.verdict, Err(expected));
        // A slice before the first look, and ten more looks.
        let spent = budget.fuel - outcome.fuel_left as u64;
        assert!((10 * SLICE..=12 * SLICE).contains(&spent), "{spent}");
    }
    // Fuel ends it where it would in one piece.
    let budget = Budget {
        fuel: 3 * SLICE + 5,
        ns: 1_000_000,
    };
    let outcome = instance.activate(Function::ON_RX, &mut [], 0, budget);
    let stopped = outcome.verdict.unwrap_err();
    let turn = turn(&wasm);
    let expected = (Cause::Fuel, budget.fuel as i64 % turn - turn);
    assert_eq!((stopped.cause, outcome.fuel_left), expected);
}

/// What a turn of the only loop costs.
fn turn(wasm: &[u8]) -> i64 {
    let (mut instance, _pages) = load(wasm);
    let outcome = instance.activate(Function::ON_RX, &mut [], 0, 0);
    -outcome.fuel_left
}
