//! References as numbers.
//!
//! Behind normalisation a `funcref` is an `i32`: 0 for null, else the
//! function's index plus 1; an `externref` is the host's number plus 1. Both
//! tiers then need nothing for references but what they have for integers.
//! What the validator checked is kept in [`Module::canonical`]: types that
//! differ only in kinds of references look alike afterwards.
//!
//! [`Module::canonical`]: super::Module::canonical

use wasmparser::{BlockType, FuncType, ValType};

/// The number that means this function.
pub(super) const fn of_function(index: u32) -> u32 {
    index + 1
}

/// The type of a value behind normalisation.
pub(super) const fn as_number(ty: ValType) -> ValType {
    match ty {
        ValType::Ref(_) => ValType::I32,
        other => other,
    }
}

/// The type of a function behind normalisation.
pub(super) fn function_type(ty: &FuncType) -> FuncType {
    let numbers = |types: &[ValType]| types.iter().copied().map(as_number).collect::<Vec<_>>();
    FuncType::new(numbers(ty.params()), numbers(ty.results()))
}

/// The type of a block behind normalisation; those in the type section are
/// rewritten there.
pub(super) const fn block_type(ty: BlockType) -> BlockType {
    match ty {
        BlockType::Type(ty) => BlockType::Type(as_number(ty)),
        other => other,
    }
}
