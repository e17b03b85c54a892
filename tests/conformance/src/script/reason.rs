//! Why something of a script was not run, in the few words that are counted.

use ashway_codegen::normalise::NormaliseError;
use ashway_codegen::promote::PromoteError;
use ashway_trial::NotRun;
use std::borrow::Cow;
use wasmparser::{Validator, WasmFeatures};

/// A reason, as it is counted and printed.
pub(super) type Reason = Cow<'static, str>;

/// Floats: the kernel has none; of the user tier's, mutable globals.
pub(super) const FLOATS: &str = "floating point";
/// Imports from another module, and `register`.
pub(super) const LINKING: &str = "linking";
/// Lanes.
pub(super) const SIMD: &str = "SIMD";

/// What a refused module would have needed.
#[must_use]
pub(super) fn of_normalise(error: &NormaliseError) -> Reason {
    match error {
        NormaliseError::Invalid { message, .. } if message.contains("gc proposal") => {
            "garbage-collected types".into()
        }
        NormaliseError::Invalid { message, .. } => format!("invalid: {message}").into(),
        NormaliseError::UnknownImport { .. } | NormaliseError::ImportType { .. } => LINKING.into(),
        NormaliseError::Memory { problem, .. } if problem.contains("import") => LINKING.into(),
        NormaliseError::TooLarge { what, .. } => format!("quota: {what}").into(),
        NormaliseError::Unsupported { what, .. } => of_words(what),
        other => other.to_string().into(),
    }
}

/// What an operator that was refused belongs to.
fn of_words(words: &str) -> Reason {
    let has = |needles: &[&str]| needles.iter().any(|needle| words.contains(needle));
    if has(&[
        "v128", "SIMD", "i8x16", "i16x8", "i32x4", "i64x2", "f32x4", "f64x2",
    ]) {
        SIMD.into()
    } else if has(&["f32", "f64"]) {
        FLOATS.into()
    } else if has(&["atomic.wait", "atomic.notify"]) {
        "wait and notify".into()
    } else {
        words.to_owned().into()
    }
}

/// What the kernel tier has not.
#[must_use]
pub(super) fn of_promote(error: &PromoteError) -> Reason {
    match error {
        PromoteError::NoCounterpart { op, .. } => of_words(op),
        PromoteError::Frames { .. } => "frames over the context".into(),
        PromoteError::TooLong { .. } => "too many instructions".into(),
        PromoteError::TooSlow { .. } => "too long to load".into(),
        other => other.to_string().into(),
    }
}

/// Why an engine did not run a function.
#[must_use]
pub(super) fn of_engine(error: &NotRun) -> Reason {
    match error {
        NotRun::Promote(error) => of_promote(error),
        // Its only reason: a parameter or result of 128 bits.
        NotRun::NoInvoker(_) => SIMD.into(),
        other => other.reason().into(),
    }
}

/// Whether the module is valid in WebAssembly 2.0 with threads: a script of an
/// older version may say that it is not.
#[must_use]
pub(super) fn is_valid_today(wasm: &[u8]) -> bool {
    let features = WasmFeatures::WASM2 | WasmFeatures::THREADS;
    Validator::new_with_features(features)
        .validate_all(wasm)
        .is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ashway_codegen::normalise::{Limits, Profile, normalise_as};

    #[test]
    fn what_is_missing_is_named() {
        for (text, name) in [
            (
                "(module (memory i64 1))",
                "64-bit memories and tables (memory64)",
            ),
            ("(module (tag))", "exceptions"),
            ("(module (type (sub (func))))", "garbage-collected types"),
            ("(module (func return_call 0))", "tail calls"),
            (r#"(module (import "m" "f" (func)))"#, LINKING),
        ] {
            let wasm = wat::parse_str(text).unwrap();
            let error = normalise_as(&wasm, &Limits::default(), Profile::Library).unwrap_err();
            assert_eq!(of_normalise(&error), name, "{text}");
        }
        let op = |op: &str| of_words(op);
        assert_eq!(op("f32.load"), FLOATS);
        assert_eq!(op("i32.trunc_f64_s"), FLOATS);
        assert_eq!(op("i8x16.splat"), SIMD);
    }
}
