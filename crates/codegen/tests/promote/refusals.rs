//! What is refused, and in which words.

use super::harness::{PLENTY, handler, promote};
use ashway_abi::MemoryKind;
use ashway_codegen::promote::PromoteError;

fn refusal(wasm: &[u8]) -> PromoteError {
    match promote(wasm, MemoryKind::Arena, false, PLENTY) {
        Ok(promoted) => panic!("translated: {:?}", promoted.summary),
        Err(error) => error,
    }
}

#[test]
fn floats_are_named() {
    let error = refusal(&handler("(f32.const 1) (f32.const 2) f32.lt"));
    assert!(
        error
            .to_string()
            .ends_with("`f32.const` has no eBPF counterpart"),
        "{error}"
    );
    assert!(error.to_string().starts_with("offset 0x"), "{error}");
    assert_eq!(
        error.hint(),
        "use integers, or set `tier = \"user\"` on the path"
    );
    assert!(error.place().is_some());
}

#[test]
fn frames_have_an_end() {
    let locals = "(local i64)".repeat(2_100);
    let used = |i| format!("(local.set {i} (i64.const 1)) (drop (local.get {i}))");
    let uses: Vec<String> = (2..2_102).map(used).collect();
    let body = format!("{locals} {} (i32.const 0)", uses.concat());
    let error = refusal(&handler(&body));
    assert!(matches!(error, PromoteError::Frames { .. }), "{error:?}");
}

#[test]
fn hostile_sizes_end_early() {
    let deep = format!(
        "{} {}",
        "(i32.const 1)".repeat(100_000),
        "(drop)".repeat(99_999)
    );
    let error = refusal(&handler(&deep));
    assert!(matches!(error, PromoteError::Frames { .. }), "{error:?}");
    let long = format!(
        "{} (i32.const 0)",
        "(memory.copy (local.get 0) (local.get 1) (local.get 0))".repeat(20_000)
    );
    let error = refusal(&handler(&long));
    assert!(matches!(error, PromoteError::TooSlow { .. }), "{error:?}");
}

#[test]
fn what_is_too_long_is_refused_by_name() {
    let many = |times| {
        let once = "(local.set 2 (i64.popcnt (i64.add (local.get 2) (i64.const 1))))";
        let all = format!("(local i64) {} (i32.const 0)", once.repeat(times));
        handler(&all)
    };
    let long = promote(&many(6_000), MemoryKind::Arena, false, PLENTY).unwrap();
    assert!(long.summary.insns > 100_000, "{:?}", long.summary);
    let error = refusal(&many(20_000));
    assert!(matches!(error, PromoteError::TooLong { .. }), "{error:?}");
    assert!(
        error
            .to_string()
            .ends_with("the handler takes more than 200000 eBPF instructions"),
        "{error}"
    );
}

/// Branches of which the verifier knows that they are never taken, and which the kernel would
/// remove one by one.
#[test]
fn what_would_load_too_slowly_is_refused_by_name() {
    let many = |times| {
        let once = "(if (i32.gt_u (i32.and (local.get 0) (i32.const 255)) (i32.const 300))
            (then (local.set 1 (i32.add (local.get 1) (i32.const 3)))))";
        handler(&format!("{} (local.get 1)", once.repeat(times)))
    };
    promote(&many(8_000), MemoryKind::Arena, false, PLENTY).unwrap();
    let error = refusal(&many(10_000));
    assert!(matches!(error, PromoteError::TooSlow { .. }), "{error:?}");
    assert!(
        error
            .to_string()
            .contains("the kernel would take more than 3 s to load the handler"),
        "{error}"
    );
    assert!(error.place().is_some() && error.hint().contains("-Os"));
}

/// Divisions, in whose place the kernel puts several instructions, count twice as much.
#[test]
fn divisions_load_slower_than_branches() {
    let many = |times| {
        let once = "(local.set 1 (i32.div_u (local.get 1) (local.get 0)))";
        handler(&format!("{} (local.get 1)", once.repeat(times)))
    };
    promote(&many(4_000), MemoryKind::Arena, false, PLENTY).unwrap();
    let error = refusal(&many(8_000));
    let PromoteError::TooSlow {
        insns,
        grown,
        jumps,
        ..
    } = error
    else {
        panic!("{error:?}");
    };
    // As branches alone it would be taken.
    assert!(
        insns * (grown + jumps) * 6 < 3_000_000_000,
        "{insns} {grown} {jumps}"
    );
}
