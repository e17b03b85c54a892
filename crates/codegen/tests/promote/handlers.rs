//! The handlers of `apps/handlers`, as the build made them.

use super::harness::{Outcome, PLENTY, promote, run, without_perfmon};
use ashway_abi::MemoryKind;
use ashway_abi::{Cause, Verdict};
use ashway_rig::skip::skip;
use std::path::PathBuf;

/// The compiled handler; `None` (said so) where the build has not made it.
fn compiled(name: &str) -> Option<Vec<u8>> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let file = root.join(format!("target/handlers/{name}.wasm"));
    let bytes = std::fs::read(&file).ok();
    if bytes.is_none() {
        skip("needs handlers (cargo xtask handlers)");
    }
    bytes
}

fn verdict(outcome: &Outcome) -> Result<Verdict, Cause> {
    let result = outcome.result.map_err(|(cause, _)| cause);
    result.map(|number| Verdict::from_number(number).unwrap())
}

#[test]
fn counter_counts() {
    let Some(wasm) = compiled("counter") else {
        return;
    };
    let outcomes = run(&wasm, &[&[0, 0, 0, 5, 9], &[1, 0, 0, 0], &[1, 2, 3]]);
    assert_eq!(verdict(&outcomes[0]), Ok(Verdict::Reply));
    assert_eq!(outcomes[0].message, [0, 0, 0, 5, 9]);
    assert_eq!(outcomes[1].message, [1, 0, 0, 5]);
    assert_eq!(verdict(&outcomes[2]), Ok(Verdict::Pass));
    assert!(outcomes[1].dirty && !outcomes[2].dirty);
}

#[test]
fn counter_is_short() {
    let Some(wasm) = compiled("counter") else {
        return;
    };
    let promoted = promote(&wasm, MemoryKind::Arena, false, PLENTY).unwrap();
    assert!(promoted.summary.insns <= 48, "{:?}", promoted.summary);
}

#[test]
fn echo_and_even_answer() {
    let Some(wasm) = compiled("echo") else { return };
    assert_eq!(verdict(&run(&wasm, &[b""])[0]), Ok(Verdict::Reply));
    let Some(wasm) = compiled("even") else { return };
    let outcomes = run(&wasm, &[&[0, 0, 0, 2], &[0, 0, 0, 3], &[0]]);
    let verdicts: Vec<_> = outcomes.iter().map(|o| verdict(o).unwrap()).collect();
    assert_eq!(verdicts, [Verdict::Consume, Verdict::Pass, Verdict::Pass]);
}

#[test]
fn lock_is_held_and_released() {
    let Some(wasm) = compiled("lock") else { return };
    let messages: [&[u8]; 7] = [
        &[1, 0, 0, 7, 0, 0, 0, 1],
        &[1, 0, 0, 7, 0, 0, 0, 2],
        &[2, 0, 0, 7, 0, 0, 0, 2],
        &[2, 0, 0, 7, 0, 0, 0, 1],
        &[1, 0, 0, 7, 0, 0, 0, 2],
        &[1, 0, 1, 7, 0, 0, 0, 2],
        &[9, 0, 0, 7, 0, 0, 0, 2],
    ];
    let outcomes = run(&wasm, &messages);
    let statuses: Vec<u8> = outcomes.iter().map(|outcome| outcome.message[0]).collect();
    assert_eq!(statuses, [0, 1, 2, 0, 0, 3, 3]);
}

#[test]
fn sum_adds_up_every_byte() {
    let Some(wasm) = compiled("sum") else { return };
    let message: Vec<u8> = (0..=255).cycle().take(1_400).collect();
    let outcomes = run(&wasm, &[&message]);
    let sum: u32 = message.iter().map(|byte| u32::from(*byte)).sum();
    assert_eq!(outcomes[0].message[..4], sum.to_be_bytes());
}

#[test]
fn stops_have_their_causes() {
    let traps: [(&str, &[u8], Cause); 6] = [
        ("runaway", b"R", Cause::Fuel),
        (
            "wild",
            &[0xff, 0xff, 0xff, 0xfe, 0, 0, 0, 1],
            Cause::MemoryBounds,
        ),
        ("divide", &[0, 0, 0, 1, 0, 0, 0, 0], Cause::DivideByZero),
        (
            "divide",
            &[0x80, 0, 0, 0, 0xff, 0xff, 0xff, 0xff],
            Cause::Overflow,
        ),
        ("outside", &[0xff, 0xff, 0xfe, 0x70], Cause::MessageBounds),
        ("dirty", &[1], Cause::Unreachable),
    ];
    for (name, message, cause) in traps {
        let Some(wasm) = compiled(name) else { continue };
        let outcome = &run(&wasm, &[message])[0];
        assert_eq!(verdict(outcome), Err(cause), "{name}");
        assert_eq!(outcome.dirty, name == "dirty", "{name}");
    }
}

#[test]
fn divide_and_wild_work_inside_their_bounds() {
    let Some(wasm) = compiled("divide") else {
        return;
    };
    let outcome = &run(&wasm, &[&[0xff, 0xff, 0xff, 0xf9, 0, 0, 0, 2]])[0];
    assert_eq!(outcome.message[..4], (-3_i32).to_be_bytes());
    let Some(wasm) = compiled("wild") else { return };
    let outcome = &run(&wasm, &[&[0, 1, 0, 3, 1, 2, 3, 4]])[0];
    assert_eq!(outcome.memory[0x1_0003..0x1_0007], [4, 3, 2, 1]);
}

#[test]
fn every_test_handler_is_translated_but_the_one_with_floats() {
    for name in [
        "badverdict",
        "counter",
        "dirty",
        "divide",
        "echo",
        "even",
        "float",
        "lock",
        "outside",
        "runaway",
        "sum",
        "wild",
    ] {
        let Some(wasm) = compiled(name) else { continue };
        let result = promote(&wasm, MemoryKind::Arena, false, PLENTY);
        match (name, result) {
            ("float", Err(error)) => {
                let text = error.to_string();
                assert!(
                    text.contains("float.c:") && text.contains("`f64."),
                    "{text}"
                );
            }
            (_, result) => assert!(result.is_ok() && name != "float", "{name}"),
        }
    }
}

#[test]
fn array_mode_needs_no_cap_perfmon() {
    without_perfmon(|| {
        let message: [u8; 12] = [1, 0, 0, 7, 0, 0, 0, 1, 2, 3, 4, 5];
        for name in [
            "counter", "echo", "lock", "even", "sum", "divide", "wild", "outside",
        ] {
            let Some(wasm) = compiled(name) else { continue };
            let promoted = promote(&wasm, MemoryKind::Array, false, PLENTY).unwrap();
            let messages: [&[u8]; 2] = [&message, &message[..4]];
            assert!(
                promoted.run_in_kernel(&messages) == promoted.interpret(&messages),
                "{name}"
            );
        }
    });
}
