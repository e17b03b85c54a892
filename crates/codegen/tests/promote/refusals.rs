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
    assert!(matches!(error, PromoteError::TooLong { .. }), "{error:?}");
}

#[test]
fn what_is_too_long_is_refused_by_name() {
    let many = |times| {
        let once = "(local.set 0 (i32.mul (local.get 0) (local.get 1)))";
        handler(&format!("{} (local.get 0)", once.repeat(times)))
    };
    promote(&many(48_000), MemoryKind::Arena, false, PLENTY).unwrap();
    let error = refusal(&many(57_344));
    assert!(matches!(error, PromoteError::TooLong { .. }), "{error:?}");
    assert!(
        error
            .to_string()
            .ends_with("the handler takes more than 57344 eBPF instructions"),
        "{error}"
    );
}
