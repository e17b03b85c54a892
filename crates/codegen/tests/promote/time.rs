//! No handler outlasts its budget: hostile ones are stopped.
//!
//! How long they run is not asserted here, because a hypervisor can take the CPU
//! away at any time; `bench/src/bin/time_promise.rs` measures it with the
//! same handlers.

use super::harness::{Budget, Loaded, Outcome, handler, promote, run_with};
use ashway_abi::Cause;
use ashway_abi::MemoryKind;
use ashway_codegen::stub;
use ashway_kernel::TestRun;
use ashway_rig::skip_unless_root;
use std::time::{Duration, Instant};

/// Runs of one handler; all take 1 ms if they keep to the budget.
const REPEAT: u32 = 20;

/// A node's default budget of 50 us.
const BUDGET: Budget = Budget {
    fuel: 2_400_000,
    slice: 4_096,
    ns: 50_000,
};

/// As much fuel as nobody has, so that only the clock stops a handler.
const BY_TIME: Budget = Budget {
    fuel: 1 << 40,
    ..BUDGET
};

const HOSTILE: [(&str, &str); 10] = [
    ("nested_loops", include_str!("hostile/nested_loops.wat")),
    ("recursion", include_str!("hostile/recursion.wat")),
    ("copy_mib", include_str!("hostile/copy_mib.wat")),
    ("copy_64k", include_str!("hostile/copy_64k.wat")),
    ("copy_small", include_str!("hostile/copy_small.wat")),
    ("fill_mib", include_str!("hostile/fill_mib.wat")),
    ("br_table", include_str!("hostile/br_table.wat")),
    ("cache_miss", include_str!("hostile/cache_miss.wat")),
    ("division", include_str!("hostile/division.wat")),
    ("atomics", include_str!("hostile/atomics.wat")),
];

fn cause(outcome: &Outcome) -> Option<Cause> {
    outcome.result.err().map(|(cause, _)| cause)
}

#[test]
fn hostile_handlers_are_stopped() {
    if skip_unless_root() {
        return;
    }
    for (name, text) in HOSTILE {
        let wasm = wat::parse_str(text).unwrap();
        for kind in [MemoryKind::Arena, MemoryKind::Array] {
            let found = stopped(&wasm, kind, BUDGET);
            assert!(
                matches!(found, Some(Cause::Fuel | Cause::Time)),
                "{name} {kind:?}: {found:?}"
            );
            // With fuel without end it is the clock, and never the verifier's own
            // bound, which is the same cause but 250 ms later.
            let begin = Instant::now();
            let found = stopped(&wasm, kind, BY_TIME);
            assert_eq!(found, Some(Cause::Time), "{name} {kind:?}");
            let most = Duration::from_millis(250) * REPEAT;
            assert!(begin.elapsed() < most, "{name} {kind:?}");
        }
    }
}

/// Runs it in the kernel and says why the last run was stopped.
fn stopped(wasm: &[u8], kind: MemoryKind, budget: Budget) -> Option<Cause> {
    let promoted = promote(wasm, kind, false, budget).unwrap();
    let loaded = Loaded::new(&promoted);
    let run = TestRun {
        packet: &stub::frame(b""),
        context: None,
        repeat: REPEAT,
    };
    let result = loaded.program.test_run(&run).unwrap();
    let outcome = stub::outcome(&result.packet).unwrap().result;
    outcome.err().map(|(cause, _)| cause)
}

/// One bulk operation that is longer than the time, in the interpreter, whose
/// clock goes by looks: it has to look at it often, and to give up.
#[test]
fn one_bulk_operation_looks_at_the_clock() {
    let budget = |looks: u64| Budget {
        fuel: 1 << 40,
        slice: 1 << 30,
        ns: looks * 1_000,
    };
    for bulk in [
        "(memory.copy (i32.const 0x80000) (i32.const 0) (i32.const 0x80000))",
        "(memory.copy (i32.const 64) (i32.const 0) (i32.const 0xfff00))",
        "(memory.fill (i32.const 0) (i32.const 1) (i32.const 0x100000))",
    ] {
        let wasm = wat::parse_str(format!(
            r#"(module (memory (export "memory") 16 16)
                (func (export "on_rx") (param i32 i32) (result i32) {bulk} (i32.const 5)))"#
        ))
        .unwrap();
        for kind in [MemoryKind::Arena, MemoryKind::Array] {
            let run = |looks| {
                let promoted = promote(&wasm, kind, false, budget(looks)).unwrap();
                promoted.interpret(&[b""])[0]
                    .result
                    .map_err(|(cause, _)| cause)
            };
            // 512 KiB to 1 MiB are 32 to 64 looks.
            assert_eq!(run(28), Err(Cause::Time), "{bulk}");
            assert_eq!(run(70), Ok(5), "{bulk}");
        }
    }
}

/// 5,000 turns of a loop, and a fill of 64 looks at the clock.
const WITH_LOOKS: [&str; 2] = [
    "(loop $again
        (local.set $turns (i32.add (local.get $turns) (i32.const 1)))
        (br_if $again (i32.lt_u (local.get $turns) (i32.const 5000))))",
    "(memory.fill (i32.const 0) (i32.const 1) (i32.const 0x100000))",
];

/// What a handler ends with where the clock goes on by these steps, and by 100 ns then.
fn by_steps(body: &str, steps: &[u64]) -> [Result<u32, Cause>; 2] {
    let wasm = wat::parse_str(format!(
        r#"(module (memory (export "memory") 16 16)
            (func (export "on_rx") (param i32 i32) (result i32) (local $turns i32)
                {body} (i32.const 5)))"#
    ));
    let wasm = wasm.unwrap();
    let run = |kind| {
        let promoted = promote(&wasm, kind, false, BY_TIME).unwrap();
        let outcome = &promoted.interpret_steps(steps, 100, &[b""])[0];
        outcome.result.map_err(|(cause, _)| cause)
    };
    [MemoryKind::Arena, MemoryKind::Array].map(run)
}

/// A hypervisor or an interrupt has it for milliseconds, where the budget is 50 us.
#[test]
fn a_cpu_that_is_taken_away_once_stops_nobody() {
    for body in WITH_LOOKS {
        for steps in [
            &[4_000_000][..],
            &[100, 100, 4_000_000],
            &[30_000, 4_000_000],
        ] {
            assert_eq!(by_steps(body, steps), [Ok(5); 2], "{body} {steps:?}");
        }
    }
}

/// The time that was left is left, and no more.
#[test]
fn one_that_is_taken_away_again_does() {
    for body in WITH_LOOKS {
        for steps in [
            &[4_000_000, 4_000_000][..],
            &[100, 4_000_000, 100, 4_000_000],
            &[30_000, 4_000_000, 21_000],
        ] {
            let found = by_steps(body, steps);
            assert_eq!(found, [Err(Cause::Time); 2], "{body} {steps:?}");
        }
        let found = by_steps(body, &[30_000, 4_000_000, 4_000]);
        assert_eq!(found, [Ok(5); 2], "{body}");
    }
}

/// Message copies tick like those within memory, so many short ones look at
/// the clock, too.
#[test]
fn message_copies_look_at_the_clock() {
    let budget = Budget {
        fuel: 1 << 40,
        slice: 1 << 30,
        ns: 3_000,
    };
    for call in ["$read", "$write"] {
        let wasm = handler(&format!(
            "(loop $again
                (call {call} (i32.const 0) (i32.const 0) (local.get $len))
                (br $again))
             (unreachable)"
        ));
        for kind in [MemoryKind::Arena, MemoryKind::Array] {
            let promoted = promote(&wasm, kind, false, budget).unwrap();
            let found = cause(&promoted.interpret(&[&[7; 1024]])[0]);
            assert_eq!(found, Some(Cause::Time), "{call} {kind:?}");
        }
    }
}

/// Fuel is taken whole and before, so the copy has not begun where it is not
/// enough.
#[test]
fn ticks_take_no_fuel() {
    let body = "(memory.fill (i32.const 0) (i32.const 1) (i32.const 0x8000)) (i32.const 0)";
    let budget = |fuel| Budget {
        fuel,
        slice: 2_048,
        ns: 1_000_000_000,
    };
    let enough = &run_with(&handler(body), &[b""], budget(4_096))[0];
    assert_eq!((enough.result, enough.fuel), (Ok(0), 0));
    let short = &run_with(&handler(body), &[b""], budget(4_095))[0];
    assert_eq!(cause(short), Some(Cause::Fuel));
    assert!(short.memory[..0x8000].iter().all(|byte| *byte == 0));
}
